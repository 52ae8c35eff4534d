//! `rushlight bisect COMMAND...`: runs a command whose compiled programs name the pass and the kernel that change a
//! result.

use crate::{complain, print};
use rushlight_tensor::program::BISECT;
use std::ffi::OsString;
use std::process::Command;

const USAGE: &str = "Usage: rushlight bisect COMMAND [ARGS]...

Runs a command. Each program of `compile` or `torch.compile` in it runs as it was recorded, then after each pass, on the
same memory. Standard error names the first pass after which a result differs, and the first call whose result does.
Programs run slowly so. RUSHLIGHT_FUSE=0 leaves fusion out.";

pub fn bisect(arguments: &[OsString]) -> u8 {
    let Some((program, rest)) = arguments.split_first() else {
        complain(USAGE);
        return 2;
    };
    if matches!(program.to_str(), Some("-h" | "--help")) {
        print(USAGE);
        return 0;
    }
    match Command::new(program).args(rest).env(BISECT, "1").status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        Err(e) => {
            complain(&format!("rushlight bisect: cannot run {}: {e}", program.to_string_lossy()));
            127
        }
    }
}
