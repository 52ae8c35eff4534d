//! MLflow's file store: a directory of text files that its client and its web page read.

use super::{Logger, Row, Start, cannot, now};
use rushlight_core::{Error, Result};
use rushlight_io::atomic::AtomicFile;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file in a run's directory with the ID of its MLflow run.
const RUN_FILE: &str = "mlflow-run";

/// Writes values and hyperparameters to a directory in MLflow's file-store format, without MLflow: `mlflow ui
/// --backend-store-uri FOLDER` shows them (from version 3 on with `MLFLOW_ALLOW_FILE_STORE=true`). A resumed run
/// continues its MLflow run. Histograms, images and text are skipped.
///
/// ```no_run
/// # mod rushlight { pub use rushlight_train as train; }
/// use rushlight::train::{Trainer, loggers::MlflowLogger};
/// let trainer = Trainer::builder().logger(MlflowLogger::new("mlruns").experiment("digits")).build()?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct MlflowLogger {
    root: PathBuf,
    experiment: String,
    run: Option<StoredRun>,
}

struct StoredRun {
    folder: PathBuf,
    experiment_id: String,
    id: String,
    name: String,
    started: u64,
    metrics: HashMap<String, Metric>,
}

struct Metric {
    file: File,
    /// The last line's step and value.
    last: Option<(u64, String)>,
}

impl MlflowLogger {
    /// A store in this directory, which MLflow calls `mlruns`. It is created when the run starts.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), experiment: "Default".into(), run: None }
    }

    /// The experiment that the run belongs to: `Default` by default.
    pub fn experiment(mut self, name: impl Into<String>) -> Self {
        self.experiment = name.into();
        self
    }

    /// The experiment of this name; created if missing.
    fn open_experiment(&self, root: &Path) -> Result<String> {
        let entries = std::fs::read_dir(root).map_err(|e| cannot("read", root, e))?;
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        for folder in folders {
            let Ok(text) = std::fs::read_to_string(folder.join("meta.yaml")) else { continue };
            if text.lines().find_map(|line| line.strip_prefix("name: ")).map(unquoted) == Some(self.experiment.clone())
            {
                return Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
        }
        let mut id = if self.experiment == "Default" { "0".to_owned() } else { experiment_id(&self.experiment, 0) };
        let mut attempt = 0;
        while root.join(&id).exists() {
            attempt += 1;
            id = experiment_id(&self.experiment, attempt);
        }
        let folder = root.join(&id);
        let time = milliseconds();
        let meta = [
            ("artifact_location", quoted(&uri(&folder))),
            ("creation_time", time.to_string()),
            ("experiment_id", quoted(&id)),
            ("last_update_time", time.to_string()),
            ("lifecycle_stage", "active".into()),
            ("name", quoted(&self.experiment)),
        ];
        write_meta(&folder, &meta)?;
        Ok(id)
    }
}

impl StoredRun {
    /// Writes the run's metadata, and its final status if it has ended.
    fn describe(&self, ended: bool) -> Result<()> {
        let meta = [
            ("artifact_uri", quoted(&uri(&self.folder.join("artifacts")))),
            ("end_time", if ended { milliseconds().to_string() } else { "null".into() }),
            ("entry_point_name", "''".into()),
            ("experiment_id", quoted(&self.experiment_id)),
            ("lifecycle_stage", "active".into()),
            ("run_id", quoted(&self.id)),
            ("run_name", quoted(&self.name)),
            ("source_name", "''".into()),
            ("source_type", "4".into()),
            ("source_version", "''".into()),
            ("start_time", self.started.to_string()),
            // RUNNING or FINISHED.
            ("status", if ended { "3" } else { "1" }.into()),
            ("tags", "[]".into()),
            ("user_id", quoted(&std::env::var("USER").unwrap_or_default())),
        ];
        write_meta(&self.folder, &meta)
    }

    fn log(&mut self, name: &str, value: f64, step: u64) -> Result<()> {
        let name = key(name);
        let path = self.folder.join("metrics").join(&name);
        let metric = match self.metrics.entry(name) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let last = std::fs::read_to_string(&path).ok().and_then(|text| {
                    let line = text.lines().last()?;
                    let mut words = line.split(' ').skip(1);
                    let value = words.next()?.to_owned();
                    Some((words.next()?.parse().ok()?, value))
                });
                new.insert(Metric { file: append(&path)?, last })
            }
        };
        let text = number(value);
        // Skip values that the checkpoint's step had logged already.
        if metric.last.as_ref().is_some_and(|(known, value)| *known == step && *value == text) {
            return Ok(());
        }
        let line = format!("{} {text} {step}\n", milliseconds());
        metric.file.write_all(line.as_bytes()).map_err(|e| cannot("write", &path, e))?;
        metric.last = Some((step, text));
        Ok(())
    }

    /// Drops values of steps that a resumed run repeats.
    fn cut(&self, folder: &Path, step: u64) -> Result<()> {
        for entry in std::fs::read_dir(folder).map_err(|e| cannot("read", folder, e))?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.cut(&path, step)?;
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|e| cannot("read", &path, e))?;
            let of = |line: &str| line.split(' ').nth(2).and_then(|word| word.parse::<u64>().ok());
            let kept: Vec<&str> = text.lines().filter(|line| of(line).is_some_and(|own| own <= step)).collect();
            let mut file = AtomicFile::create(&path)?;
            kept.iter().try_for_each(|line| writeln!(file, "{line}")).map_err(|e| cannot("write", &path, e))?;
            file.commit()?;
        }
        Ok(())
    }
}

impl Logger for MlflowLogger {
    fn name(&self) -> &str {
        "MLflow"
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        std::fs::create_dir_all(&self.root).map_err(|e| cannot("make", &self.root, e))?;
        let root = std::fs::canonicalize(&self.root).map_err(|e| cannot("find", &self.root, e))?;
        let experiment_id = self.open_experiment(&root)?;
        let marker = start.directory.join(RUN_FILE);
        let known = std::fs::read_to_string(&marker).ok().filter(|id| start.resumed.is_some() && is_id(id));
        let id = known.filter(|id| root.join(&experiment_id).join(id).is_dir()).unwrap_or_else(new_id);
        let folder = root.join(&experiment_id).join(&id);
        for part in ["metrics", "params", "tags", "artifacts"] {
            let path = folder.join(part);
            std::fs::create_dir_all(&path).map_err(|e| cannot("make", &path, e))?;
        }
        let name = start.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let run = StoredRun { folder, experiment_id, id, name, started: milliseconds(), metrics: HashMap::new() };
        if let Some(resumed) = start.resumed {
            run.cut(&run.folder.join("metrics"), resumed.step)?;
        }
        for (name, value) in start.hparams {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            write_text(&run.folder.join("params").join(key(name)), &text)?;
        }
        write_text(&run.folder.join("tags").join("mlflow.runName"), &run.name)?;
        write_text(&run.folder.join("tags").join("mlflow.source.type"), "LOCAL")?;
        run.describe(false)?;
        write_text(&marker, &run.id)?;
        self.run = Some(run);
        Ok(())
    }

    fn log(&mut self, row: &Row) -> Result<()> {
        let Some(run) = &mut self.run else { return Err(Error::value("the logger has not been started")) };
        row.values.iter().try_for_each(|(name, value)| run.log(name, *value, row.step))
    }

    fn flush(&mut self) -> Result<()> {
        // Every line is written at once.
        Ok(())
    }

    fn finish(&mut self, _: &[(String, f64)]) -> Result<()> {
        self.run.as_ref().map_or(Ok(()), |run| run.describe(true))
    }
}

/// Milliseconds since 1970.
fn milliseconds() -> u64 {
    (now() * 1e3) as u64
}

/// A number in Python's notation.
fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "nan".into(),
        v if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.into(),
        v => v.to_string(),
    }
}

/// A name that MLflow allows and that is a path within the run's directory: other characters become `_`.
fn key(name: &str) -> String {
    let allowed = |c: char| if c.is_alphanumeric() || "_-. :".contains(c) { c } else { '_' };
    let part = |part: &str| match part {
        "" | "." | ".." => "_".to_owned(),
        part => part.chars().map(allowed).collect(),
    };
    name.split('/').map(part).collect::<Vec<String>>().join("/")
}

/// Equal for all processes that create an experiment of this name at the same time.
fn experiment_id(name: &str, attempt: u64) -> String {
    let seed = 0xcbf2_9ce4_8422_2325 ^ attempt;
    let hash = name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (100_000_000_000_000_000 + hash % 900_000_000_000_000_000).to_string()
}

fn new_id() -> String {
    // Each state is seeded from the system's random numbers.
    let half = || RandomState::new().hash_one((std::process::id(), milliseconds()));
    format!("{:016x}{:016x}", half(), half())
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A path as a URL, with percent-encoding.
fn uri(path: &Path) -> String {
    let mut text = "file://".to_owned();
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => text.push(byte as char),
            byte if byte.is_ascii_alphanumeric() => text.push(byte as char),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// A YAML string.
fn quoted(text: &str) -> String {
    match text.chars().any(char::is_control) {
        // JSON strings are valid YAML.
        true => Json::from(text).to_string(),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

/// Inverse of [`quoted`] and of MLflow's quoting.
fn unquoted(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => serde_json::from_str(text).ok().filter(|_| text.starts_with('"')).unwrap_or_else(|| text.to_owned()),
    }
}

fn write_meta(folder: &Path, meta: &[(&str, String)]) -> Result<()> {
    let text: String = meta.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    write_text(&folder.join("meta.yaml"), &text)
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| cannot("make", folder, e))?;
    }
    let mut file = AtomicFile::create(path)?;
    file.write_all(text.as_bytes()).map_err(|e| cannot("write", path, e))?;
    file.commit()
}

fn append(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| cannot("make", folder, e))?;
    }
    OpenOptions::new().create(true).append(true).open(path).map_err(|e| cannot("open", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_the_run() {
        assert_eq!(key("val/loss"), "val/loss");
        assert_eq!(key("../../etc/passwd"), "_/_/etc/passwd");
        assert_eq!(key("/a//b?"), "_/a/_/b_");
        for name in ["plain", "with 'quotes'", "two\nlines", "\"double\""] {
            assert_eq!(unquoted(&quoted(name)), name);
        }
        assert_eq!(unquoted("bare"), "bare");
        assert!(is_id(&new_id()) && !is_id("../x"));
        assert_eq!(uri(Path::new("/a b/c")), "file:///a%20b/c");
    }
}
