//! Values as JSON lines: `metrics.jsonl`.

use super::{Logger, Row, Start, cannot, now};
use rushlight_core::{Error, Result};
use serde_json::{Map, Number, Value as Json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes one JSON object a row to `metrics.jsonl` in the run's directory: `step`, `epoch`, `time` (seconds since 1970)
/// and the values by name. JSON has no numbers that are not finite: those are the strings `NaN`, `Infinity` and
/// `-Infinity`. A resumed run drops the rows that it will write again.
#[derive(Default)]
pub struct JsonLinesLogger {
    file: Option<(PathBuf, BufWriter<File>)>,
}

impl JsonLinesLogger {
    /// The file is created when the run starts.
    pub fn new() -> Self {
        Self::default()
    }
}

/// A number in a form that JSON supports.
pub(crate) fn number(value: f64) -> Json {
    match Number::from_f64(value) {
        Some(number) => Json::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// Keeps the first rows. If some are missing, as after a power failure, keeps the others.
fn keep_first(path: &Path, rows: u64) -> Result<()> {
    let Ok(file) = File::open(path) else { return Ok(()) };
    let mut kept = rushlight_io::atomic::AtomicFile::create(path)?;
    for line in BufReader::new(file).lines().take(usize::try_from(rows).unwrap_or(usize::MAX)) {
        let line = line.map_err(|e| cannot("read", path, e))?;
        if serde_json::from_str::<Json>(&line).is_ok() {
            writeln!(kept, "{line}").map_err(|e| cannot("write", path, e))?;
        }
    }
    kept.commit()
}

impl Logger for JsonLinesLogger {
    fn name(&self) -> &str {
        "JSON lines"
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        let path = start.directory.join("metrics.jsonl");
        if let Some(resumed) = start.resumed {
            keep_first(&path, resumed.rows)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(|e| cannot("open", &path, e))?;
        self.file = Some((path, BufWriter::new(file)));
        Ok(())
    }

    fn log(&mut self, row: &Row) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Err(Error::value("the logger has not been started")) };
        let mut object = Map::new();
        object.insert("step".into(), row.step.into());
        object.insert("epoch".into(), row.epoch.into());
        object.insert("time".into(), number((now() * 1e3).round() / 1e3));
        object.extend(row.values.iter().map(|(name, value)| (name.clone(), number(*value))));
        // Flush each line, so that concurrent readers see complete lines.
        writeln!(file, "{}", Json::Object(object)).and_then(|()| file.flush()).map_err(|e| cannot("write", path, e))
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.file {
            Some((path, file)) => file.flush().map_err(|e| cannot("write", path, e)),
            None => Ok(()),
        }
    }
}
