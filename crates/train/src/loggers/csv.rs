//! Values as a table: `metrics.csv`.

use super::{Logger, Row, Start, cannot};
use rushlight_core::{Error, Result};
use rushlight_io::atomic::AtomicFile;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes `metrics.csv` in the run's directory: columns `step`, `epoch` and one for each name, empty where a row has no
/// value. A name that first appears later adds a column, and the file is rewritten. A resumed run drops the rows
/// that it will write again.
#[derive(Default)]
pub struct CsvLogger {
    path: Option<PathBuf>,
    columns: Vec<String>,
    /// Steps, epochs and cells.
    rows: Vec<(u64, u64, Vec<String>)>,
    /// Number of rows in the file under the current columns.
    written: usize,
}

/// Rows are written in batches, so that the file of a long run is not opened at each step.
const MAX_WAITING: usize = 64;

impl CsvLogger {
    /// The file is created when the run starts.
    pub fn new() -> Self {
        Self::default()
    }

    fn write(&mut self) -> Result<()> {
        let Some(path) = &self.path else { return Err(Error::value("the logger has not been started")) };
        let width = self.columns.len();
        let line = |(step, epoch, cells): &(u64, u64, Vec<String>)| {
            let padding = ",".repeat(width.saturating_sub(cells.len()));
            let cells: String = cells.iter().map(|cell| format!(",{cell}")).collect();
            format!("{step},{epoch}{cells}{padding}\n")
        };
        if self.written > 0 {
            let mut file = std::fs::OpenOptions::new().append(true).open(path).map_err(|e| cannot("open", path, e))?;
            let text: String = self.rows[self.written..].iter().map(line).collect();
            file.write_all(text.as_bytes()).map_err(|e| cannot("write", path, e))?;
        } else {
            let header: String = self.columns.iter().map(|name| format!(",{}", quoted(name))).collect();
            let text: String = self.rows.iter().map(line).collect();
            let mut file = AtomicFile::create(path)?;
            file.write_all(format!("step,epoch{header}\n{text}").as_bytes()).map_err(|e| cannot("write", path, e))?;
            file.commit()?;
        }
        self.written = self.rows.len();
        Ok(())
    }
}

/// Quotes a cell that may contain commas, quotes and line breaks.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The columns and rows of a file that this logger has written.
fn read(path: &Path, rows: u64) -> Result<(Vec<String>, Vec<(u64, u64, Vec<String>)>)> {
    let text = std::fs::read_to_string(path).map_err(|e| cannot("read", path, e))?;
    let mut records = records(&text).into_iter();
    let columns: Vec<String> = records.next().unwrap_or_default().into_iter().skip(2).collect();
    let rows = records.take(usize::try_from(rows).unwrap_or(usize::MAX)).filter_map(|cells| {
        let (step, epoch) = (cells.first()?.parse().ok()?, cells.get(1)?.parse().ok()?);
        Some((step, epoch, cells.into_iter().skip(2).collect()))
    });
    Ok((columns, rows.collect()))
}

fn records(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut record, mut cell, mut inside) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, inside) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            ('"', _) => inside = !inside,
            (',', false) => record.push(std::mem::take(&mut cell)),
            ('\n', false) => {
                record.push(std::mem::take(&mut cell));
                all.push(std::mem::take(&mut record));
            }
            (c, _) => cell.push(c),
        }
    }
    all
}

impl Logger for CsvLogger {
    fn name(&self) -> &str {
        "CSV"
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        let path = start.directory.join("metrics.csv");
        if let (Some(resumed), true) = (start.resumed, path.exists()) {
            (self.columns, self.rows) = read(&path, resumed.rows)?;
        }
        (self.path, self.written) = (Some(path), 0);
        self.write()?;
        Ok(())
    }

    fn log(&mut self, row: &Row) -> Result<()> {
        let mut cells = vec![String::new(); self.columns.len()];
        for (name, value) in row.values {
            let at = self.columns.iter().position(|column| column == name).unwrap_or_else(|| {
                self.columns.push(name.clone());
                cells.push(String::new());
                // The header changes.
                self.written = 0;
                self.columns.len() - 1
            });
            cells[at] = value.to_string();
        }
        self.rows.push((row.step, row.epoch, cells));
        if self.rows.len() - self.written >= MAX_WAITING { self.write() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back() {
        let name = "a \"strange\", name";
        let text = format!("step,epoch,{}\n1,0,2.5\n", quoted(name));
        assert_eq!(records(&text), [vec!["step", "epoch", name], vec!["1", "0", "2.5"]]);
    }
}
