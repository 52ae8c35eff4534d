//! The program `rushlight`.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let myself = std::env::current_exe().map_or_else(|_| "rushlight".into(), std::path::PathBuf::into_os_string);
    ExitCode::from(rushlight_command::run(&arguments, &[myself]))
}
