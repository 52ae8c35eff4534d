//! Python programs: whether they are there, and which `torch` they import.

use crate::console::tell_user;
use crate::options::Options;
use crate::worker::{interpreter, is_python};
use rushlight_core::{Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// Prints where `torch` and `rushlight` are found, a line each, without importing them.
const PROBE: &str = "import importlib.util as u
for n in ('torch', 'rushlight'):
    try:
        s = u.find_spec(n)
        print('none' if s is None else 'shim' if 'rushlight' in str(getattr(s.loader, '__module__', '')) else s.origin or 'found')
    except Exception:
        print('none')
";

/// Checks a Python program before its ranks start: a missing script is an error here and not once per rank. Where no
/// `torch` is installed, and Rushlight is, programs are run by `python -m rushlight`; where one is, the user is told
/// which it is.
pub fn prepare(options: &mut Options) -> Result<()> {
    let program = Path::new(&options.program[0]);
    if !options.module && (options.no_python || !is_python(program)) {
        return Ok(());
    }
    if !options.module && !program.exists() {
        return Err(Error::io(format!("rushlight run: there is no script {}", program.display())));
    }
    let found = Command::new(interpreter()).args(["-c", PROBE]).stdin(Stdio::null()).output();
    // An interpreter that does not start is reported where the ranks are started.
    let text = found.map(|found| String::from_utf8_lossy(&found.stdout).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let [torch, ours] = lines[..] else { return Ok(()) };
    options.serves_torch = torch == "none" && ours != "none";
    if !matches!(torch, "none" | "shim") && ours != "none" && !is_shim(Path::new(torch)) {
        tell_user(&format!(
            "`import torch` is the one at {torch}; for Rushlight's: python -m rushlight -m rushlight.run, or python -m \
             rushlight --install"
        ));
    }
    Ok(())
}

/// Whether an installed `torch` is the one of `python -m rushlight --install`.
fn is_shim(torch: &Path) -> bool {
    std::fs::read_to_string(torch).is_ok_and(|text| text.len() < 1 << 16 && text.contains("rushlight"))
}
