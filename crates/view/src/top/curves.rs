//! The curves of a run in a terminal: `rushlight top RUN`.

use crate::runs::{Run, Series, Store};
use std::path::Path;
use std::sync::Arc;

/// Rows of a chart, its frame not counted.
const HEIGHT: usize = 6;
/// Columns of the values beside a chart.
const LABEL: usize = 11;

/// Reads a run, or the one that was written to last of the runs below a directory.
pub struct Curves {
    store: Arc<Store>,
}

impl Curves {
    /// The run or runs in a directory.
    pub fn open(directory: &Path) -> Result<Self, String> {
        if !directory.is_dir() {
            return Err(format!("{} is no directory of a run", directory.display()));
        }
        Ok(Self { store: Store::new(directory.to_owned()) })
    }

    /// Starts to follow the files.
    pub fn follow(&self) -> Result<(), String> {
        self.store.watch().map_err(|e| format!("cannot start a thread: {e}"))
    }

    /// Reads everything that is there once.
    pub fn read(&self) {
        self.store.read_now();
    }

    /// The newest run as lines of text.
    pub fn lines(&self, columns: usize, rows: usize) -> Vec<String> {
        let state = self.store.lock();
        let time = |run: &Run| run.last_time.unwrap_or(0.0);
        let Some(run) = state.runs.values().max_by(|a, b| time(a).total_cmp(&time(b))) else {
            let text = if state.loaded { "there is no run here yet" } else { "reading …" };
            return vec![format!("{}: {text}", self.store.root().display())];
        };
        draw(run, state.runs.len(), columns, rows)
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        a if (1e-3..1e5).contains(&a) => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

fn clock(seconds: f64) -> String {
    let s = seconds.clamp(0.0, 1e9) as u64;
    if s >= 3600 {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    } else {
        format!("{}:{:02}", s / 60, s % 60)
    }
}

/// Control characters in a name could command the terminal.
fn clean(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

/// Curves first that people look at: losses, then the others by name.
fn order(name: &str) -> (bool, bool, &str) {
    (!name.contains("loss"), name.starts_with("system/") || name.starts_with("throughput/"), name)
}

fn draw(run: &Run, runs: usize, columns: usize, rows: usize) -> Vec<String> {
    let step = run.series.values().filter_map(|(_, series)| series.last()).map(|p| p.step).max().unwrap_or(0);
    let time = run.last_time.zip(run.first_time).map_or(String::new(), |(last, first)| clock(last - first));
    let state = if run.state.is_empty() { String::new() } else { format!("  {}", run.state) };
    let more = if runs > 1 { format!("  (the newest of {runs} runs)") } else { String::new() };
    let mut lines = vec![clean(&format!("{}{state}  step {step}  {time}{more}", run.name), columns)];
    if let Some(reason) = run.status.get("reason").and_then(serde_json::Value::as_str) {
        lines.push(clean(reason, columns));
    }
    let mut names: Vec<&String> = run.series.keys().filter(|name| *name != "epoch").collect();
    names.sort_by_key(|name| order(name));
    // Two charts side by side on a wide terminal.
    let across = if columns >= 110 { 2 } else { 1 };
    let width = columns / across;
    let fitting = (rows.saturating_sub(lines.len()) / (HEIGHT + 2)).max(1) * across;
    let shown: Vec<Vec<String>> =
        names.iter().take(fitting).map(|name| chart(name, &run.series[*name].1, width)).collect();
    for pair in shown.chunks(across) {
        for row in 0..HEIGHT + 2 {
            let parts = pair.iter().map(|chart| format!("{:<width$}", chart[row]));
            lines.push(parts.collect::<String>().trim_end().to_owned());
        }
    }
    if names.len() > fitting {
        let others = names[fitting..].iter().map(|name| {
            let last = run.series[*name].1.last().map_or(f64::NAN, |p| p.value);
            format!("{} {}", clean(name, 40), number(last))
        });
        lines.push(clean(&others.collect::<Vec<_>>().join("   "), columns));
    }
    lines
}

/// A curve in Braille dots, two by four in each place: a title, the rows, the steps.
fn chart(name: &str, series: &Series, width: usize) -> Vec<String> {
    let columns = width.saturating_sub(LABEL + 3).max(8);
    let points = series.since(0, 4 * columns).map(|(_, points)| points).unwrap_or_default();
    let finite: Vec<(f64, f64)> =
        points.iter().filter(|p| p.value.is_finite()).map(|p| (p.step as f64, p.value)).collect();
    let bound = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (first, last) = bound(&mut finite.iter().map(|p| p.0));
    let (low, high) = bound(&mut finite.iter().map(|p| p.1));
    let newest = series.last().map_or(f64::NAN, |p| p.value);
    let mut lines = vec![clean(&format!("{name}  {}", number(newest)), width - 1)];
    let (dots_x, dots_y) = (2 * columns, 4 * HEIGHT);
    let share = |v: f64, low: f64, high: f64| if high > low { (v - low) / (high - low) } else { 0.5 };
    let mut cells = vec![vec![0u8; columns]; HEIGHT];
    let mut before: Option<(usize, usize)> = None;
    for &(step, value) in &finite {
        let x = (share(step, first, last) * (dots_x - 1) as f64).round() as usize;
        let y = ((1.0 - share(value, low, high)) * (dots_y - 1) as f64).round() as usize;
        // A line from the point before.
        let (x0, y0) = before.unwrap_or((x, y));
        let steps = x.abs_diff(x0).max(y.abs_diff(y0)).max(1);
        for i in 0..=steps {
            let at = |a: usize, b: usize| (a as f64 + (b as f64 - a as f64) * i as f64 / steps as f64).round() as usize;
            let (px, py) = (at(x0, x), at(y0, y));
            const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
            cells[py / 4][px / 2] |= DOTS[py % 4][px % 2];
        }
        before = Some((x, y));
    }
    for (row, cells) in cells.iter().enumerate() {
        let label = match row {
            0 if high.is_finite() => number(high),
            _ if row == HEIGHT - 1 && low.is_finite() => number(low),
            _ => String::new(),
        };
        let dots: String = cells.iter().map(|c| char::from_u32(0x2800 + u32::from(*c)).unwrap_or(' ')).collect();
        lines.push(format!("{label:>LABEL$} {dots}"));
    }
    let steps = if first.is_finite() { format!("{first:.0} … {last:.0}") } else { "no finite values".into() };
    lines.push(format!("{:>LABEL$} {steps}", "step"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_in_dots() {
        let mut series = Series::default();
        (0..100).for_each(|i| series.push(i, 0.0, 100.0 - i as f64, 1));
        let lines = chart("loss", &series, 60);
        assert_eq!(lines.len(), HEIGHT + 2);
        assert!(lines[0].starts_with("loss  1.0000"), "{}", lines[0]);
        // It falls from the upper left to the lower right.
        let dots = |line: &str| line.chars().skip(LABEL + 1).map(|c| c as u32 != 0x2800).collect::<Vec<_>>();
        assert!(dots(&lines[1])[0] && !dots(&lines[1])[45]);
        assert!(!dots(&lines[HEIGHT])[0] && dots(&lines[HEIGHT])[45], "{lines:#?}");
        assert!(lines[HEIGHT + 1].contains("0 … 99"));
        assert!(lines.iter().all(|line| line.chars().count() <= 60));
        // Nothing but NaN is no chart, and no panic.
        let mut broken = Series::default();
        broken.push(1, 0.0, f64::NAN, 1);
        assert!(chart("x", &broken, 20)[HEIGHT + 1].contains("no finite values"));
    }
}
