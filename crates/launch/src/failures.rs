//! Errors of ranks: the files to which they write them (`TORCHELASTIC_ERROR_FILE`), and the report of those that
//! failed.

use crate::worker::{Exit, Place, Worker};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Maximum size of an error file that is read.
const MAX_FILE: u64 = 1 << 20;
/// Maximum length of an error message that the launcher shows.
const MAX_MESSAGE: usize = 4000;

/// The directory of a job's error files.
pub struct Failures {
    /// `None` if it cannot be created: ranks then write no error files.
    folder: Option<PathBuf>,
    /// Whether the caller requested a report and removes the directory.
    is_callers: bool,
}

impl Failures {
    /// The caller's directory, or a temporary one.
    pub fn new(folder: Option<&Path>) -> Self {
        let Some(folder) = folder else {
            return Self { folder: crate::run::private_directory("rushlight-errors").ok(), is_callers: false };
        };
        Self { folder: Some(folder.to_owned()), is_callers: true }
    }

    /// The file to which a rank may write its error, as PyTorch's `@record` does.
    pub fn file(&self, place: &Place, local_rank: usize) -> Option<PathBuf> {
        let rank = place.first_rank + local_rank;
        Some(self.folder.as_ref()?.join(format!("error-{}-{rank}.json", place.round)))
    }

    /// Removes files of earlier rounds: a job may restart for months.
    pub fn forget(&self, place: &Place) {
        let own = format!("error-{}-", place.round);
        for entry in self.folder.iter().flat_map(std::fs::read_dir).flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with("error-") && !name.starts_with(&own)) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// The message that a rank wrote.
    pub fn error_of(&self, place: &Place, local_rank: usize) -> Option<String> {
        let path = self.file(place, local_rank)?;
        if std::fs::metadata(&path).ok()?.len() > MAX_FILE {
            return None;
        }
        let value: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        // A plain text, or a text with further details.
        let message = value["message"]["message"].as_str().or(value["message"].as_str())?;
        Some(message.chars().take(MAX_MESSAGE).collect())
    }

    /// Writes the report of a round. Ranks stopped by the launcher are marked by their signal.
    pub fn write(&self, place: &Place, workers: &[Worker]) {
        let Some(folder) = self.folder.as_ref().filter(|_| self.is_callers) else { return };
        let failed: Vec<Value> = workers
            .iter()
            .filter_map(|worker| Some((worker, worker.ended.filter(|exit| !exit.is_good())?)))
            .map(|(worker, exit)| {
                let code = match exit {
                    Exit::Code(code) => code,
                    Exit::Signal(signal) => -signal,
                };
                let file = self.file(place, worker.local_rank).filter(|file| file.exists());
                let time = worker.ended_at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
                json!({
                    "rank": worker.rank, "local_rank": worker.local_rank, "pid": worker.pid, "exitcode": code,
                    "error_file": file, "time": time,
                })
            })
            .collect();
        let path = folder.join("failures.json");
        let _ = if failed.is_empty() {
            std::fs::remove_file(path)
        } else {
            std::fs::write(path, json!({ "failures": failed }).to_string())
        };
    }

    /// Removes the temporary directory.
    pub fn remove(&self) {
        if let Some(folder) = self.folder.as_ref().filter(|_| !self.is_callers) {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        self.remove();
    }
}
