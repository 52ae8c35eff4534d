//! `rushlight trace`: where a step's time went.

use rushlight_tensor::profile::summary::Summary;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};

const USAGE: &str = "Usage: rushlight trace FILE...
       rushlight trace --pipeline SCHEDULE --ranks N --microbatches N [--stages N] [--svg FILE]

Says of each Chrome trace (.json or .json.gz), of torch.profiler here or in PyTorch, where the time of a step went and what would help.
Steps are those that the profiler's step() marks; without them the whole trace counts as one.

--pipeline shows a pipeline's schedule, simulated, with its bubbles: gpipe, 1f1b, interleaved1f1b, loopedbfs, interleavedzerobubble or
zbvzerobubble, with --stages stages a rank.";

pub fn trace(arguments: &[OsString]) -> u8 {
    match arguments {
        [] => {
            eprintln!("{USAGE}");
            2
        }
        [one] if one == "-h" || one == "--help" => {
            println!("{USAGE}");
            0
        }
        #[cfg(target_os = "linux")]
        [first, rest @ ..] if first == "--pipeline" => match schedule(rest) {
            Ok(text) => {
                crate::print(&text);
                0
            }
            Err(e) => {
                crate::complain(&format!("rushlight trace: {e}; see rushlight trace --help"));
                2
            }
        },
        files => {
            let mut code = 0;
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
                        code = 1;
                    }
                }
            }
            code
        }
    }
}

/// The chart of a pipeline's schedule.
#[cfg(target_os = "linux")]
fn schedule(arguments: &[OsString]) -> Result<String, String> {
    use rushlight_dist::pipeline::{Costs, Schedule};
    use rushlight_settings::did_you_mean;
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (name, options) = words.split_first().ok_or("--pipeline needs the name of a schedule")?;
    let (mut ranks, mut stages, mut microbatches, mut svg) = (None, None, None, None);
    for pair in options.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        let number = || value.parse::<usize>().map_err(|_| format!("{option} needs a number, got '{value}'"));
        match option.as_str() {
            "--ranks" => ranks = Some(number()?),
            "--stages" => stages = Some(number()?),
            "--microbatches" => microbatches = Some(number()?),
            "--svg" => svg = Some(value),
            _ => return Err(format!("there is no option {option}{}", did_you_mean(option, USAGE))),
        }
    }
    let default = if name.to_lowercase().contains("zbv") { 2 } else { 1 };
    let ranks = ranks.ok_or("--ranks is missing")?;
    let microbatches = microbatches.ok_or("--microbatches is missing")?;
    let schedule =
        Schedule::by_name(name, ranks, stages.unwrap_or(default), microbatches).map_err(|e| e.to_string())?;
    let costs = Costs::default();
    if let Some(path) = svg {
        let image = schedule.svg(&costs).map_err(|e| e.to_string())?;
        std::fs::write(path, image).map_err(|e| format!("cannot write '{path}': {e}"))?;
    }
    schedule.chart(&costs).map_err(|e| e.to_string())
}
