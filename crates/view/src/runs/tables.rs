//! Rows of metrics: JSON lines, and CSV files with a header.

use serde_json::Value as Json;

/// Maximum length of a line; a file without newlines is not a metrics file.
pub const MAX_LINE: usize = 4 << 20;
/// Maximum values of a row.
const MAX_VALUES: usize = 20_000;

/// The values of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The step, if the row has one.
    pub step: Option<i64>,
    /// The epoch, if the row has one.
    pub epoch: Option<f64>,
    /// Seconds since 1970, if the row has it.
    pub time: Option<f64>,
    /// Names and values.
    pub values: Vec<(String, f64)>,
}

impl Row {
    fn put(&mut self, name: &str, value: f64) {
        match name {
            "step" => self.step = Some(value as i64),
            "epoch" => self.epoch = Some(value),
            "time" => self.time = Some(value),
            _ if self.values.len() < MAX_VALUES => self.values.push((name.to_owned(), value)),
            _ => {}
        }
    }
}

/// A number, or the name of a non-finite one.
fn number(value: &Json) -> Option<f64> {
    match value {
        Json::Number(n) => n.as_f64(),
        Json::Bool(b) => Some(f64::from(u8::from(*b))),
        Json::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// The row of a JSON line; `None` if it is not an object.
pub fn json_row(line: &[u8]) -> Option<Row> {
    let Json::Object(object) = serde_json::from_slice(line).ok()? else { return None };
    let mut row = Row::default();
    for (name, value) in &object {
        if let Some(value) = number(value) {
            row.put(name, value);
        }
    }
    Some(row)
}

/// The complete lines of a piece of a file, and their bytes.
pub fn whole_lines(bytes: &[u8]) -> (impl Iterator<Item = &[u8]>, usize) {
    let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    (bytes[..end].split(|b| *b == b'\n').filter(|line| !line.is_empty()), end)
}

/// The rows of a CSV file.
pub fn csv_rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let names = lines.next().map(cells).unwrap_or_default();
    lines
        .map(|line| {
            let mut row = Row::default();
            for (name, cell) in names.iter().zip(cells(line)) {
                // Rust parses every spelling of infinity and NaN that loggers use.
                if let Ok(value) = cell.trim().parse::<f64>() {
                    row.put(name, value);
                }
            }
            row
        })
        .collect()
}

/// The cells of a line. Quoted ones may contain commas and doubled quotes, not newlines: loggers write none.
fn cells(line: &str) -> Vec<String> {
    let (mut found, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => found.push(std::mem::take(&mut cell)),
            _ => cell.push(c),
        }
    }
    found.push(cell);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let row =
            json_row(br#"{"step": 3, "epoch": 1, "time": 2.5, "loss": "NaN", "acc": 0.5, "note": "x", "a": [1]}"#);
        let row = row.unwrap();
        assert_eq!((row.step, row.epoch, row.time), (Some(3), Some(1.0), Some(2.5)));
        assert_eq!(row.values.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["acc", "loss"]);
        assert!(json_row(b"[1]").is_none() && json_row(b"{").is_none() && json_row(b"\xff").is_none());
        let rows = csv_rows("epoch,step,\"a,\"\"b\",c\n0,1,2.5,\n1,2,nan,inf\nbroken");
        assert_eq!(rows[0].values, [("a,\"b".to_owned(), 2.5)]);
        assert!(rows[1].values[0].1.is_nan() && rows[1].values[1].1.is_infinite());
        assert_eq!(rows[2], Row::default());
        let (lines, end) = whole_lines(b"a\n\nb\nc");
        assert_eq!((lines.collect::<Vec<_>>(), end), (vec![&b"a"[..], b"b"], 5));
    }
}
