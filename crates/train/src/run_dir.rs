//! The directory of a run: its name, `config.json` and `environment.json`.

use crate::loggers::{Hparams, now};
use crate::run::Run;
use rushlight_core::{Error, Result};
use rushlight_io::atomic::AtomicFile;
use serde_json::{Value as Json, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The directory of a new run: the name itself if unused, else with a number appended.
pub(crate) fn fresh(root: &Path, name: &str) -> Result<PathBuf> {
    for n in 1u32.. {
        let path = root.join(if n == 1 { name.to_owned() } else { format!("{name}-{n}") });
        std::fs::create_dir_all(root).map_err(|e| Error::io(format!("cannot make '{}': {e}", root.display())))?;
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io(format!("cannot make '{}': {e}", path.display()))),
        }
    }
    Err(Error::io(format!("'{}' has no room for another run '{name}'", root.display())))
}

/// The directory of the newest run of a name, to continue it; the name itself if no run exists.
pub(crate) fn newest(root: &Path, name: &str) -> PathBuf {
    let mut newest = root.join(name);
    for n in 2u32.. {
        let next = root.join(format!("{name}-{n}"));
        if !next.exists() {
            break;
        }
        newest = next;
    }
    newest
}

/// A name must stay within the root.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
        true => Err(Error::value(format!("Trainer: a run cannot be called {name:?}; it is the name of a directory"))),
        false => Ok(()),
    }
}

/// The default name of a run: its start time.
pub(crate) fn default_name() -> String {
    let seconds = now() as i64;
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// The Gregorian date `days` days after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    // Counted from 1 March of the year 0, so that leap days end a year.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

pub(crate) fn write_json(path: &Path, value: &Json) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    writeln!(file, "{text}").map_err(|e| Error::io(format!("cannot write '{}': {e}", path.display())))?;
    file.commit()
}

/// Writes `config.json` and `environment.json`.
pub(crate) fn describe(directory: &Path, run: &Run, trainer: Json, hparams: &Hparams, model: &Json) -> Result<()> {
    let config = json!({ "trainer": trainer, "hparams": hparams, "model": model });
    write_json(&directory.join("config.json"), &config)?;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpu = read("/proc/cpuinfo");
    let cpu =
        cpu.lines().find_map(|line| line.strip_prefix("model name")).map(|rest| rest.trim_matches(['\t', ' ', ':']));
    let scheduler: Vec<(String, String)> = std::env::vars()
        .filter(|(name, _)| {
            [
                "SLURM_JOB_ID",
                "SLURM_RESTART_COUNT",
                "PBS_JOBID",
                "FLUX_JOB_ID",
                "LSB_JOBID",
                "CUDA_VISIBLE_DEVICES",
                "RUSHLIGHT_NUM_THREADS",
            ]
            .contains(&name.as_str())
        })
        .collect();
    let environment = json!({
        "rushlight": env!("CARGO_PKG_VERSION"),
        "started": now(),
        "command": std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "directory": std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default(),
        "hostname": read("/proc/sys/kernel/hostname"),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpu": cpu.unwrap_or(std::env::consts::ARCH),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "pid": std::process::id(),
        "device": run.device().to_string(),
        "world_size": run.world_size(),
        "variables": scheduler.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    });
    write_json(&directory.join("environment.json"), &environment)
}

/// Writes `status.json`: what has become of the run, and the process by which others can tell that it is still there.
pub(crate) fn write_status(directory: &Path, state: &str, reason: Option<&str>) -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let status = json!({
        "state": state,
        "reason": reason,
        "time": now(),
        "pid": std::process::id(),
        "started": process_start(&read("/proc/self/stat")),
        "hostname": read("/proc/sys/kernel/hostname").trim(),
    });
    write_json(&directory.join("status.json"), &status)
}

/// The start of a process in ticks since the machine's, from `/proc/PID/stat`: with it a number that is used again is
/// another process.
pub fn process_start(stat: &str) -> Option<u64> {
    // The name before may contain anything, also spaces and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(19_782), (2024, 2, 29));
        assert_eq!(date(19_783), (2024, 3, 1));
        assert_eq!(date(20_773), (2026, 11, 16));
    }

    #[test]
    fn processes() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 7654321 8192 200";
        assert_eq!(process_start(stat), Some(7_654_321));
        assert_eq!(process_start(""), None);
    }

    #[test]
    fn names() {
        assert!(check_name("a run").is_ok());
        for bad in ["", "..", "a/b", ".hidden"] {
            assert!(check_name(bad).is_err());
        }
    }
}
