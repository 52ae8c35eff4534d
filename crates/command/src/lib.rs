//! The command `rushlight`: a launcher, batch scripts, a report on this machine, views of runs and GPUs, summaries of
//! traces, exported models. The program of that name and the Python package run it.

mod bisect;
mod doctor;
#[cfg(target_os = "linux")]
mod measure;
mod model;
#[cfg(target_os = "linux")]
mod plan;
mod trace;

use rushlight_settings::{nearest, unread_variables};
use std::ffi::OsString;
use std::io::Write;

const USAGE: &str = "Usage: rushlight COMMAND

  run     Starts the ranks of a job: rushlight run [OPTIONS] [-m] PROGRAM [ARGS]...
  job     Writes a batch script: rushlight job --scheduler slurm|pbs|flux|kubernetes [OPTIONS] PROGRAM [ARGS]...
  plan    Says how to split a model over a machine: rushlight plan --model 70b --nodes 16
  doctor  Says what this machine has, and what is missing
  ui      Shows training runs in a browser: rushlight ui [OPTIONS] [DIR]
  top     Shows GPUs and processors in the terminal, of this machine or of a job's nodes
  bisect  Names the pass and kernel that change results of compiled programs: rushlight bisect COMMAND [ARGS]...
  trace   Says where a step's time went: rushlight trace FILE, a trace of the profiler's or of PyTorch's
  show    Prints or draws an exported model: rushlight show [--html FILE] MODEL
  bench   Times an exported model: rushlight bench MODEL [OPTIONS]
  convert Converts models and files of weights: rushlight convert A B

run, job and plan are for Linux.

`rushlight COMMAND --help` says more.";

const COMMANDS: &[&str] =
    &["run", "job", "plan", "doctor", "ui", "top", "bisect", "trace", "show", "bench", "convert", "help"];

/// Runs a command line, without the program's name. `myself` starts this program again, for the nodes of a job.
/// Returns the exit code.
pub fn run(arguments: &[OsString], myself: &[OsString]) -> u8 {
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.to_string_lossy().into_owned(), rest),
        None => (String::new(), &[][..]),
    };
    let myself: Vec<OsString> = myself.iter().cloned().chain([OsString::from(&command)]).collect();
    // The report has them among its findings.
    if command != "doctor" && COMMANDS.contains(&command.as_str()) {
        unread_variables().iter().for_each(|text| complain(&format!("rushlight: {text}")));
    }
    match (command.as_str(), rest) {
        #[cfg(target_os = "linux")]
        ("run", rest) => exit(rushlight_launch::run(rest, &myself)),
        #[cfg(target_os = "linux")]
        ("job", rest) => exit(rushlight_launch::job(rest)),
        #[cfg(target_os = "linux")]
        ("plan", rest) => plan::plan(rest),
        ("doctor", rest) => doctor::doctor(rest),
        ("ui", rest) => rushlight_view::ui(rest),
        ("top", rest) => rushlight_view::top(rest, &myself),
        ("bisect", rest) => bisect::bisect(rest),
        ("trace", rest) => trace::trace(rest),
        ("show" | "bench" | "convert", rest) => model::command(&command, rest),
        ("-h" | "--help" | "help", _) => {
            print(USAGE);
            0
        }
        ("-V" | "--version", _) => {
            print(concat!("rushlight ", env!("CARGO_PKG_VERSION")));
            0
        }
        ("", _) => {
            complain(USAGE);
            2
        }
        (other, _) => {
            let advice = match nearest(other, COMMANDS.iter().copied()) {
                Some(known) => format!("; did you mean {known}?"),
                None => "; rushlight --help lists them".into(),
            };
            complain(&format!("rushlight: there is no command {other}{advice}"));
            2
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

#[cfg(target_os = "linux")]
fn exit(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}
