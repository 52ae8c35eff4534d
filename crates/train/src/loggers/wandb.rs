//! Weights & Biases' offline format: a folder that `wandb sync` uploads.

use super::tensorboard::Message;
use super::{Logger, Row, Start, cannot, now};
use crate::run_dir::default_name;
use rushlight_core::{Error, Result};
use serde_json::{Value as Json, json};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file in a run's directory with the ID of its W&B run.
const RUN_FILE: &str = "wandb-run";
/// The log is made of blocks; a record that does not fit is split.
const BLOCK: usize = 32 << 10;
/// Checksum, length and kind of a part.
const PART_HEAD: usize = 7;

/// Writes values and hyperparameters as Weights & Biases' client does offline, without it: `wandb sync
/// wandb/offline-run-…` uploads them. A resumed run has the same ID, in another folder. Histograms, images and text are
/// skipped.
///
/// ```no_run
/// # mod rushlight { pub use rushlight_train as train; }
/// use rushlight::train::{Trainer, loggers::WandbLogger};
/// let trainer = Trainer::builder().logger(WandbLogger::new("digits").entity("my-team")).build()?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct WandbLogger {
    project: String,
    entity: String,
    root: PathBuf,
    run: Option<OfflineRun>,
}

struct OfflineRun {
    log: RecordLog,
    started: f64,
}

impl WandbLogger {
    /// Runs of a project. They are written below `wandb` in the current directory.
    pub fn new(project: impl Into<String>) -> Self {
        Self { project: project.into(), entity: String::new(), root: "wandb".into(), run: None }
    }

    /// The user or team that the project belongs to; the default one of `wandb sync` if not said.
    pub fn entity(mut self, entity: impl Into<String>) -> Self {
        self.entity = entity.into();
        self
    }

    /// Another directory for the folders of runs.
    pub fn directory(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    fn run(&mut self) -> Result<&mut OfflineRun> {
        self.run.as_mut().ok_or_else(|| Error::value("WandbLogger: the run has not begun"))
    }
}

/// Keys and JSON values as repeated items of a record.
fn items<'a>(field: u32, values: impl IntoIterator<Item = (&'a str, Json)>) -> Message {
    values.into_iter().fold(Message::new(), |all, (key, value)| {
        all.message(field, &Message::new().text(1, key).text(16, &value.to_string()))
    })
}

/// JSON has no such numbers; W&B reads them as Python's `json` writes them.
fn items_of_floats<'a>(all: Message, field: u32, values: impl IntoIterator<Item = (&'a str, f64)>) -> Message {
    values.into_iter().fold(all, |all, (key, value)| {
        let text = match value {
            v if v.is_nan() => "NaN".to_owned(),
            v if v.is_infinite() => if v > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
            v => json!(v).to_string(),
        };
        all.message(field, &Message::new().text(1, key).text(16, &text))
    })
}

/// Eight letters and digits.
fn new_id() -> String {
    let mut bits = RandomState::new().hash_one(std::process::id());
    let digits = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut next = || {
        let digit = digits[(bits % 36) as usize];
        bits /= 36;
        digit as char
    };
    (0..8).map(|_| next()).collect()
}

impl Logger for WandbLogger {
    fn name(&self) -> &str {
        "wandb"
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        let known = start.directory.join(RUN_FILE);
        let id = match std::fs::read_to_string(&known) {
            Ok(id) if start.resumed.is_some() => id.trim().to_owned(),
            _ => new_id(),
        };
        std::fs::write(&known, &id).map_err(|e| cannot("write", &known, e))?;
        // The name of W&B's folders: a date, a time and the ID.
        let folder = self.root.join(format!("offline-run-{}-{id}", default_name().replace('-', "_")));
        std::fs::create_dir_all(folder.join("files")).map_err(|e| cannot("make", &folder, e))?;
        let started = now();
        let mut log = RecordLog::create(&folder.join(format!("run-{id}.wandb")))?;
        let config = items(1, start.hparams.iter().map(|(name, value)| (name.as_str(), value.clone())));
        let name = start.directory.file_name().unwrap_or_default().to_string_lossy();
        let mut run = Message::new().text(1, &id).text(2, &self.entity).text(3, &self.project).message(4, &config);
        run = run.text(8, &name);
        if let Some(resumed) = start.resumed {
            run = run.int(14, resumed.step as i64).int(15, 1);
        }
        let seconds = Message::new().int(1, started as i64);
        log.record(17, &run.message(17, &seconds))?;
        self.run = Some(OfflineRun { log, started });
        Ok(())
    }

    fn log(&mut self, row: &Row) -> Result<()> {
        let run = self.run()?;
        let time = now();
        let own = [("_step", json!(row.step)), ("epoch", json!(row.epoch))];
        let times = [("_timestamp", time), ("_runtime", time - run.started)];
        let values = row.values.iter().map(|(name, value)| (name.as_str(), *value));
        let history = items_of_floats(items(1, own), 1, times.into_iter().chain(values));
        run.log.record(2, &history.message(2, &Message::new().int(1, row.step as i64)))
    }

    fn flush(&mut self) -> Result<()> {
        self.run()?.log.flush()
    }

    fn finish(&mut self, metrics: &[(String, f64)]) -> Result<()> {
        let run = self.run()?;
        let values = metrics.iter().map(|(name, value)| (name.as_str(), *value));
        run.log.record(3, &items_of_floats(Message::new(), 1, values))?;
        let runtime = (now() - run.started) as i64;
        run.log.record(18, &Message::new().int(1, 0).int(2, runtime))?;
        run.log.flush()
    }
}

/// A log of records in blocks, each part with its checksum.
struct RecordLog {
    path: PathBuf,
    file: std::io::BufWriter<File>,
    written: usize,
    records: i64,
}

impl RecordLog {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|e| cannot("make", path, e))?;
        let mut log = Self { path: path.to_owned(), file: std::io::BufWriter::new(file), written: 0, records: 0 };
        // Identification, magic number, version.
        log.write(b":W&B\xe1\xbe\x00")?;
        Ok(log)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| cannot("write", &self.path, e))?;
        self.written += bytes.len();
        Ok(())
    }

    /// Appends a record whose content is `message` in the field of its kind.
    fn record(&mut self, field: u32, message: &Message) -> Result<()> {
        self.records += 1;
        let record = Message::new().int(1, self.records).message(field, message);
        let mut rest = record.bytes();
        let mut first = true;
        loop {
            let mut left = BLOCK - self.written % BLOCK;
            if left < PART_HEAD {
                self.write(&vec![0; left])?;
                left = BLOCK;
            }
            let (part, after) = rest.split_at(rest.len().min(left - PART_HEAD));
            let kind = match (first, after.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            self.part(kind, part)?;
            if after.is_empty() {
                return Ok(());
            }
            (rest, first) = (after, false);
        }
    }

    fn part(&mut self, kind: u8, data: &[u8]) -> Result<()> {
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&[kind]);
        checksum.update(data);
        let length = (data.len() as u16).to_le_bytes();
        let head = [&checksum.finalize().to_le_bytes()[..], &length, &[kind]].concat();
        self.write(&head)?;
        self.write(data)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|e| cannot("write", &self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split_at_blocks() {
        let path = std::env::temp_dir().join(format!("rushlight-wandb-{}.wandb", std::process::id()));
        let mut log = RecordLog::create(&path).unwrap();
        let long = "x".repeat(2 * BLOCK);
        log.record(17, &Message::new().text(1, "first")).unwrap();
        log.record(2, &Message::new().text(1, &long)).unwrap();
        log.record(18, &Message::new().int(2, 3)).unwrap();
        log.flush().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(&bytes[..7], b":W&B\xe1\xbe\x00");
        // Kinds and lengths of the parts: whole, first, middle, last, whole.
        let (mut at, mut kinds, mut total) = (7, Vec::new(), 0);
        while at < bytes.len() {
            let length = u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]) as usize;
            let (kind, data) = (bytes[at + 6], &bytes[at + 7..at + 7 + length]);
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(&[kind]);
            checksum.update(data);
            assert_eq!(checksum.finalize().to_le_bytes(), bytes[at..at + 4]);
            assert!(at / BLOCK == (at + 6 + length) / BLOCK, "a part crosses a block");
            kinds.push(kind);
            total += length;
            at += 7 + length;
        }
        assert_eq!(kinds, [1, 2, 3, 4, 1]);
        assert!(total > 2 * BLOCK);
        assert!(new_id().bytes().all(|b| b.is_ascii_alphanumeric()) && new_id().len() == 8);
    }
}
