//! Progress display: one line that is redrawn on a terminal, periodic lines elsewhere.

use crate::system::{cpu_time, is_pipe, resident, terminal_width};
use crate::system_log::Figures;
use rushlight_core::Device;
use rushlight_tensor::memory_stats;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Often enough to look alive, seldom enough to cost nothing.
const REDRAW: Duration = Duration::from_millis(100);
/// Interval of lines in a log.
const LINE_EVERY: Duration = Duration::from_secs(30);
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const HISTORY: usize = 16;

/// Values shown.
pub(crate) struct View<'a> {
    pub epoch: u64,
    pub max_epochs: Option<u64>,
    pub batch: u64,
    pub batches: Option<u64>,
    pub global_step: u64,
    pub max_steps: Option<u64>,
    /// Samples of this rank.
    pub samples: u64,
    pub ranks: u64,
    pub loss: Option<f64>,
    pub values: &'a [(String, f64)],
    pub device: Device,
    /// The stage, if it is not training.
    pub stage: Option<&'a str>,
}

/// Start of the rate measurement.
struct Mark {
    at: Instant,
    cpu: Duration,
    batch: u64,
    samples: u64,
}

pub(crate) struct Progress {
    terminal: bool,
    color: bool,
    /// Whether to write to standard error.
    visible: bool,
    log: Option<File>,
    drawn: Option<Instant>,
    lined: Instant,
    /// Whether the cursor is on our line of the terminal.
    open: bool,
    losses: VecDeque<f64>,
    epoch: Mark,
    /// Start of the current interval, for utilisation and the recent rate.
    interval: Mark,
    utilisation: f64,
    /// Utilisation of the GPU, from a background thread.
    figures: Option<Arc<Figures>>,
}

impl Mark {
    fn now(batch: u64, samples: u64) -> Self {
        Self { at: Instant::now(), cpu: cpu_time(), batch, samples }
    }
}

impl Progress {
    pub(crate) fn new(visible: bool) -> Self {
        let shown = || std::io::stderr().is_terminal() || launcher_shows_bars();
        let terminal = visible && shown() && std::env::var("TERM").as_deref() != Ok("dumb");
        Self {
            terminal,
            color: terminal && std::env::var_os("NO_COLOR").is_none(),
            visible,
            log: None,
            drawn: None,
            lined: Instant::now(),
            open: false,
            losses: VecDeque::new(),
            epoch: Mark::now(0, 0),
            interval: Mark::now(0, 0),
            utilisation: 0.0,
            figures: None,
        }
    }

    /// Sets the source of the GPU's utilisation.
    pub(crate) fn set_figures(&mut self, figures: Option<Arc<Figures>>) {
        self.figures = figures;
    }

    /// Writes lines to a file too. Training continues if the file cannot be created.
    pub(crate) fn log_to(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            let _ = std::fs::create_dir_all(parent);
        }
        self.log = std::fs::OpenOptions::new().create(true).append(true).open(path).ok();
    }

    /// Whether anything is ever shown.
    fn is_on(&self) -> bool {
        self.visible || self.log.is_some()
    }

    pub(crate) fn start_epoch(&mut self, batch: u64, samples: u64) {
        self.epoch = Mark::now(batch, samples);
        self.interval = Mark::now(batch, samples);
    }

    /// Whether a redraw is due. The caller reads the loss only then.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        if self.terminal {
            return self.drawn.is_none_or(|at| now.duration_since(at) >= REDRAW);
        }
        self.is_on() && now.duration_since(self.lined) >= LINE_EVERY
    }

    pub(crate) fn update(&mut self, view: &View) {
        if let Some(loss) = view.loss
            && view.stage.is_none()
        {
            if self.losses.len() == HISTORY {
                self.losses.pop_front();
            }
            self.losses.push_back(loss);
        }
        let since = self.interval.at.elapsed();
        if since >= Duration::from_millis(500) {
            let cpu = cpu_time().saturating_sub(self.interval.cpu);
            self.utilisation = cpu.as_secs_f64() / since.as_secs_f64();
            self.interval = Mark::now(view.batch, view.samples);
        }
        if self.terminal {
            self.draw(view);
        }
        if self.lined.elapsed() >= LINE_EVERY {
            self.lined = Instant::now();
            let line = fitted(self.parts(view, None), usize::MAX);
            self.print_line(&line, !self.terminal);
        }
    }

    /// Prints a permanent line, also to the log.
    pub(crate) fn print_line(&mut self, line: &str, shown: bool) {
        if shown && self.visible {
            self.clear();
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        if let Some(log) = &mut self.log {
            let _ = writeln!(log, "{line}");
        }
    }

    /// Clears the display, so that something else can be printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.drawn = None;
    }

    fn draw(&mut self, view: &View) {
        let width = terminal_width().saturating_sub(1);
        let line = fitted(self.parts(view, Some(width)), width);
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        self.open = true;
        self.drawn = Some(Instant::now());
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The parts of the line in order, each with its priority; a narrow line drops the lowest priorities first. A
    /// terminal gets colours, a bar and the losses as bars.
    fn parts(&self, view: &View, width: Option<usize>) -> Vec<(u8, String)> {
        let paint = |code: &str, text: &str| if width.is_some() { self.paint(code, text) } else { text.to_owned() };
        let mut parts = Vec::new();
        let title = match (view.stage, view.max_epochs) {
            (Some(stage), _) => stage.to_owned(),
            (None, Some(all)) => format!("epoch {}/{all}", view.epoch + 1),
            (None, None) => format!("epoch {}", view.epoch + 1),
        };
        parts.push((9, paint("1", &title)));
        let narrow = width.is_some_and(|width| width < 110);
        if let (Some(_), Some(all)) = (width, view.batches) {
            parts.push((4, self.bar(view.batch, all, if narrow { 12 } else { 24 })));
        }
        let done = match view.batches {
            Some(all) => format!("{}/{all}", view.batch),
            None => view.batch.to_string(),
        };
        parts.push((8, done));
        if let (Some(loss), None) = (view.loss, view.stage) {
            parts.push((7, format!("loss {}", paint("1", &short(loss)))));
            if width.is_some() && self.losses.len() > 1 {
                let shown = self.losses.len().min(if narrow { 8 } else { HISTORY });
                parts.push((3, paint("36", &sparkline(self.losses.range(self.losses.len() - shown..)))));
            }
        }
        parts.extend(view.values.iter().map(|(name, value)| (5, format!("{name} {}", short(*value)))));
        let seconds = self.epoch.at.elapsed().as_secs_f64();
        let rate = view.batch.saturating_sub(self.epoch.batch) as f64 / seconds.max(1e-9);
        if rate > 0.0 {
            let samples = view.samples.saturating_sub(self.epoch.samples) as f64 / seconds.max(1e-9);
            parts.push((4, if rate >= 1.0 { format!("{rate:.1} it/s") } else { format!("{:.2} s/it", 1.0 / rate) }));
            if view.stage.is_none() {
                let all = scaled(samples * view.ranks as f64);
                let of = if view.ranks > 1 { format!(" on {} ranks", view.ranks) } else { String::new() };
                parts.push((2, format!("{all} samples/s{of}")));
            }
            if let Some(all) = view.batches {
                let left = all.saturating_sub(view.batch);
                parts.push((6, format!("eta {}", clock(left as f64 / rate))));
                let epochs = view.max_epochs.map(|all| all.saturating_sub(view.epoch + 1));
                let by_epochs = epochs.map(|n| left.saturating_add(n.saturating_mul(all)));
                let by_steps = view.max_steps.map(|all| all.saturating_sub(view.global_step));
                let total = by_epochs.into_iter().chain(by_steps).min();
                if let Some(total) = total.filter(|total| *total > left && view.stage.is_none()) {
                    parts.push((4, paint("2", &format!("in all {}", clock(total as f64 / rate)))));
                }
            }
        }
        if let Ok(memory) = memory_stats(&view.device) {
            parts.push((2, paint("2", &format!("mem {}", bytes(memory.peak as f64)))));
        }
        if let Some(percent) = self.figures.as_ref().and_then(|figures| figures.gpu_utilisation()) {
            parts.push((2, paint("2", &format!("gpu {percent}%"))));
        }
        if view.device.is_cpu() && self.utilisation > 0.0 {
            parts.push((1, paint("2", &format!("cpu {:.0}%", self.utilisation * 100.0))));
        } else if let (false, Some(host)) = (view.device.is_cpu(), resident()) {
            parts.push((1, paint("2", &format!("host {}", bytes(host as f64)))));
        }
        parts
    }

    fn bar(&self, done: u64, all: u64, width: usize) -> String {
        let share = (done as f64 / all.max(1) as f64).min(1.0) * width as f64;
        let (full, half) = (share as usize, share.fract() >= 0.5);
        let filled = "━".repeat(full) + if half { "╸" } else { "" };
        let rest = "─".repeat(width - full - usize::from(half));
        self.paint("32", &filled) + &self.paint("2", &rest)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Whether standard error is a pipe to `rushlight run` on a terminal, which shows this rank's bar.
fn launcher_shows_bars() -> bool {
    std::env::var("RUSHLIGHT_TERMINAL").as_deref() == Ok("1") && is_pipe(2)
}

/// Joins the parts with the highest priorities that fit: a line that wraps could not be redrawn.
fn fitted(mut parts: Vec<(u8, String)>, width: usize) -> String {
    let long = |parts: &[(u8, String)]| parts.iter().map(|(_, text)| visible_width(text) + 2).sum::<usize>();
    while parts.len() > 1 && long(&parts) > width.saturating_add(2) {
        let lightest = parts.iter().map(|(weight, _)| *weight).min();
        match parts.iter().rposition(|(weight, _)| Some(*weight) == lightest) {
            Some(at) => drop(parts.remove(at)),
            None => break,
        }
    }
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    texts.join("  ")
}

/// Values as a bar chart, scaled to their range.
pub(crate) fn sparkline<'a>(values: impl IntoIterator<Item = &'a f64> + Clone) -> String {
    let finite = || values.clone().into_iter().filter(|v| v.is_finite());
    let (low, high) = finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    let spark = |v: &f64| match v.is_finite() {
        true if high > low => SPARKS[(((v - low) / (high - low)) * 7.0).round() as usize],
        true => SPARKS[3],
        false => '×',
    };
    values.into_iter().map(spark).collect()
}

/// Columns of a text on a terminal; escape sequences have none.
fn visible_width(text: &str) -> usize {
    let (mut width, mut escaped) = (0, false);
    for c in text.chars() {
        match (c, escaped) {
            ('\x1b', _) => escaped = true,
            ('m', true) => escaped = false,
            (_, true) => {}
            _ => width += 1,
        }
    }
    width
}

/// Few digits, in a bounded width.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        a if (1e-3..1e5).contains(&a) => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

pub(crate) fn scaled(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e4 => format!("{:.1}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

pub(crate) fn bytes(bytes: f64) -> String {
    const MIB: f64 = (1 << 20) as f64;
    if bytes >= 1024.0 * MIB { format!("{:.2} GiB", bytes / MIB / 1024.0) } else { format!("{:.0} MiB", bytes / MIB) }
}

/// Minutes and seconds, with hours if there are any.
pub(crate) fn clock(seconds: f64) -> String {
    let s = seconds.clamp(0.0, 1e9) as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        hours => format!("{hours}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparks() {
        assert_eq!(sparkline(&[8.0, 4.0, 1.0]), "█▄▁");
        assert_eq!(sparkline(&[1.0, 1.0]), "▄▄");
        assert_eq!(sparkline(&[f64::NAN, 1.0, 2.0]), "×▁█");
    }

    #[test]
    fn numbers() {
        assert_eq!((short(1.23456), short(1e-7), short(0.0)), ("1.2346".into(), "1.000e-7".into(), "0".into()));
        assert_eq!((clock(3661.0), clock(59.9)), ("1:01:01".into(), "0:59".into()));
        assert_eq!(visible_width("\x1b[32m━━\x1b[0m ab"), 5);
    }

    #[test]
    fn a_view_as_text() {
        let progress = Progress::new(false);
        let values = [("acc".to_owned(), 0.5)];
        let view = View {
            epoch: 2,
            max_epochs: Some(10),
            batch: 50,
            batches: Some(200),
            global_step: 450,
            max_steps: None,
            samples: 1600,
            ranks: 2,
            loss: Some(1.25),
            values: &values,
            device: Device::Cpu,
            stage: None,
        };
        let text = fitted(progress.parts(&view, None), usize::MAX);
        assert!(text.starts_with("epoch 3/10  50/200  loss 1.2500  acc 0.5000  "), "{text}");
        assert!(text.contains("samples/s on 2 ranks") && text.contains("eta") && text.contains("mem"), "{text}");
        assert!(!text.contains('\x1b'));
        // 80 columns still show when the epoch ends; memory and rates are dropped first.
        let line = fitted(progress.parts(&view, Some(80)), 80);
        assert!(visible_width(&line) <= 80 && line.contains("eta") && line.contains('━'), "{line}");
        let short = fitted(progress.parts(&view, Some(30)), 30);
        assert!(visible_width(&short) <= 30 && short.starts_with("epoch 3/10  50/200"), "{short}");
    }
}
