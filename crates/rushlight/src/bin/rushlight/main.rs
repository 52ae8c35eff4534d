//! The program `rushlight`: a launcher, batch scripts, a report on this machine, views of runs and GPUs, and summaries
//! of traces.

mod bisect;
mod doctor;
mod model;
#[cfg(target_os = "linux")]
mod plan;
mod trace;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "Usage: rushlight COMMAND

  run     Starts the ranks of a job: rushlight run [OPTIONS] [-m] PROGRAM [ARGS]...
  job     Writes a batch script: rushlight job --scheduler slurm|pbs|flux|kubernetes [OPTIONS] PROGRAM [ARGS]...
  plan    Says how to split a model over a machine: rushlight plan --model 70b --nodes 16
  doctor  Says what this machine has, and what is missing
  ui      Shows training runs in a browser: rushlight ui [OPTIONS] [DIR]
  top     Shows GPUs and processors in the terminal, of this machine or of a job's nodes
  bisect  Names the pass and kernel that change results of compiled programs: rushlight bisect COMMAND [ARGS]...
  trace   Says where a step's time went: rushlight trace FILE, a trace of the profiler's or of PyTorch's
  show    Prints an exported model: rushlight show MODEL
  bench   Times an exported model: rushlight bench MODEL [OPTIONS]
  convert Converts models and files of weights: rushlight convert A B

run, job and plan are for Linux.

`rushlight COMMAND --help` says more.";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.to_string_lossy().into_owned(), rest),
        None => (String::new(), &[][..]),
    };
    match (command.as_str(), rest) {
        #[cfg(target_os = "linux")]
        ("run", rest) => exit(rushlight_launch::run(rest, &myself("run"))),
        #[cfg(target_os = "linux")]
        ("job", rest) => exit(rushlight_launch::job(rest)),
        #[cfg(target_os = "linux")]
        ("plan", rest) => plan::plan(rest),
        ("doctor", rest) => doctor::doctor(rest),
        ("ui", rest) => ExitCode::from(rushlight_view::ui(rest)),
        ("top", rest) => ExitCode::from(rushlight_view::top(rest, &myself("top"))),
        ("bisect", rest) => bisect::bisect(rest),
        ("trace", rest) => trace::trace(rest),
        ("show" | "bench" | "convert", rest) => model::command(&command, rest),
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

/// The command line that starts a command of this program again.
fn myself(command: &str) -> [OsString; 2] {
    let exe = std::env::current_exe().map_or_else(|_| "rushlight".into(), std::path::PathBuf::into_os_string);
    [exe, command.into()]
}

#[cfg(target_os = "linux")]
fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
