//! The program `rushlight`: a launcher, batch scripts, and a report on this machine.

mod doctor;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "Usage: rushlight COMMAND

  run     Starts the ranks of a job: rushlight run [OPTIONS] [-m] PROGRAM [ARGS]...
  job     Writes a batch script: rushlight job --scheduler slurm|pbs|flux|kubernetes [OPTIONS] PROGRAM [ARGS]...
  doctor  Says what this machine has, and what is missing

run and job are for Linux.

`rushlight COMMAND --help` says more.";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.to_string_lossy().into_owned(), rest),
        None => (String::new(), &[][..]),
    };
    match (command.as_str(), rest) {
        #[cfg(target_os = "linux")]
        ("run", rest) => exit(rushlight_launch::run(rest, &myself())),
        #[cfg(target_os = "linux")]
        ("job", rest) => exit(rushlight_launch::job(rest)),
        ("doctor", rest) => doctor::doctor(rest),
        ("-h" | "--help" | "help", _) => {
            print(USAGE);
            ExitCode::SUCCESS
        }
        ("-V" | "--version", _) => {
            print(concat!("rushlight ", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        ("", _) => {
            complain(USAGE);
            ExitCode::from(2)
        }
        (other, _) => {
            complain(&format!("rushlight: there is no command {other}\n\n{USAGE}"));
            ExitCode::from(2)
        }
    }
}

/// Prints a text. A reader such as `head` may have gone, which is no error.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints a text to standard error.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The command that starts this launcher again.
#[cfg(target_os = "linux")]
fn myself() -> [OsString; 2] {
    let exe = std::env::current_exe().map_or_else(|_| "rushlight".into(), std::path::PathBuf::into_os_string);
    [exe, "run".into()]
}

#[cfg(target_os = "linux")]
fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
