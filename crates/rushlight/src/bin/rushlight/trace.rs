//! `rushlight trace`: where a step's time went.

use rushlight::profile::summary::Summary;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

const USAGE: &str = "Usage: rushlight trace FILE...

Says of each Chrome trace (.json or .json.gz), of torch.profiler here or in PyTorch, where the time of a step went and what would help.
Steps are those that the profiler's step() marks; without them the whole trace counts as one.";

pub fn trace(arguments: &[OsString]) -> ExitCode {
    match arguments {
        [] => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        [one] if one == "-h" || one == "--help" => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        files => {
            let mut code = ExitCode::SUCCESS;
            for file in files {
                match Summary::read(file) {
                    Ok(summary) => {
                        let head = if files.len() > 1 { format!("{}\n", file.display()) } else { String::new() };
                        // A reader that has seen enough, such as head, is no failure.
                        match write!(std::io::stdout(), "{head}{summary}") {
                            Err(e) if e.kind() == ErrorKind::BrokenPipe => return code,
                            _ => {}
                        }
                    }
                    Err(e) => {
                        eprintln!("rushlight trace: {e}");
                        code = ExitCode::FAILURE;
                    }
                }
            }
            code
        }
    }
}
