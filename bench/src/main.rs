//! Rushlight's half of the benchmark: runs the requested case and prints its time.
//!
//! `compare.py` starts this program and PyTorch side by side and alternates between them. Protocol, line by line on
//! standard input: `time CASE REPEATS` answers the seconds of one repeat, `peak CASE` the peak memory in bytes that a
//! run of the case adds (for cases that train: of the whole process), `list` the names.

mod cases;
mod ops;
mod training;

use rushlight::prelude::*;
use std::io::{BufRead, Write};
use std::time::Instant;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    if let Some(arg) = args.next() {
        eprintln!(
            "rushlight-bench takes no arguments (got {arg}); it is driven by bench/run, for example:\n\n    bench/run --only matmul"
        );
        std::process::exit(if arg == "--help" { 0 } else { 2 });
    }
    let mut prepared: Option<(String, cases::Case)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["list"] => [cases::NAMES, training::NAMES, ops::NAMES].concat().join(" "),
            ["time", name, repeats] => {
                if prepared.as_ref().is_none_or(|(n, _)| n != name) {
                    drop(prepared.take());
                    empty_cache(&Device::Cpu)?;
                    prepared = Some((name.to_string(), cases::prepare(name)?));
                }
                let Some((_, case)) = &mut prepared else { continue };
                let repeats: usize = repeats.parse().unwrap_or(1);
                let start = Instant::now();
                for _ in 0..repeats {
                    case()?;
                }
                format!("{:e}", start.elapsed().as_secs_f64() / repeats as f64)
            }
            ["peak", name] => {
                let mut case = cases::prepare(name)?;
                // Cases that train report the whole process.
                let (before, repeats) = if name.starts_with("train_") { (0, 3) } else { (resident(), 1) };
                for _ in 0..repeats {
                    case()?;
                }
                format!("{}", peak().saturating_sub(before))
            }
            _ => {
                return Err(Error::value(format!(
                    "unknown request '{line}': expected list, time CASE REPEATS or peak CASE"
                )));
            }
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Resident memory now, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|s| s.split_whitespace().nth(1).and_then(|p| p.parse::<usize>().ok()))
        .unwrap_or(0);
    pages * 4096
}

/// The highest resident memory so far, in bytes. (`getrusage` would count the parent's before `exec`.)
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or(0) * 1024
}
