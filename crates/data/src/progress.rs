//! A progress bar for any iterator.

use rushlight_core::sync::lock;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Often enough to look alive, seldom enough to cost nothing.
const REDRAW: Duration = Duration::from_millis(100);
const BAR_WIDTH: usize = 30;

/// An iterator that draws how far it is on standard error, and nothing where that is not a terminal.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::Progress;
/// let bar = Progress::new(0..3, Some(3)).title("epoch 0");
/// let handle = bar.handle();
/// for step in bar {
///     handle.message(format!("loss {:.3}", 1.0 / (step + 1) as f64));
/// }
/// ```
pub struct Progress<I> {
    items: I,
    handle: ProgressHandle,
    line: Line,
    drawn: Option<Instant>,
    visible: bool,
}

/// Computes the suffix of a progress bar's line.
#[derive(Clone, Default)]
pub struct ProgressHandle(Arc<Mutex<String>>);

impl ProgressHandle {
    /// Sets the message, such as the loss. Line breaks and control characters are left out.
    pub fn message(&self, message: impl AsRef<str>) {
        let clean = message.as_ref().chars().filter(|c| !c.is_control()).collect();
        *lock(&self.0) = clean;
    }

    fn text(&self) -> String {
        lock(&self.0).clone()
    }
}

impl<I: Iterator> Progress<I> {
    /// A bar over an iterator of `total` items, if that is known.
    pub fn new(items: I, total: Option<usize>) -> Self {
        let line = Line { title: String::new(), before: 0, done: 0, total, start: Instant::now() };
        let visible = std::io::stderr().is_terminal();
        Self { items, handle: ProgressHandle::default(), line, drawn: None, visible }
    }

    /// The prefix of the line.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.line.title = title.into();
        self
    }

    /// How many items were done before, in an earlier run.
    pub fn done(mut self, done: usize) -> Self {
        (self.line.before, self.line.done) = (done, done);
        self
    }

    /// A handle that sets the message while the iterator is in use.
    pub fn handle(&self) -> ProgressHandle {
        self.handle.clone()
    }

    fn draw(&mut self, end: &str) {
        // Nothing sensible can be done if the terminal is gone.
        let _ = write!(
            std::io::stderr(),
            "\r{}\x1b[K{end}",
            self.line.text(&self.handle.text(), self.line.start.elapsed())
        );
        self.drawn = Some(Instant::now());
    }
}

impl<I: Iterator> Iterator for Progress<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let item = self.items.next();
        if item.is_some() {
            self.line.done += 1;
        }
        if self.visible {
            match item {
                None => {
                    self.draw("\n");
                    self.visible = false;
                }
                Some(_) if self.drawn.is_none_or(|at| at.elapsed() >= REDRAW) => self.draw(""),
                Some(_) => {}
            }
        }
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<I> Drop for Progress<I> {
    /// Ends the line, so that later output starts on a new one.
    fn drop(&mut self) {
        if self.visible && self.drawn.is_some() {
            let _ = writeln!(std::io::stderr());
        }
    }
}

/// The progress line's contents.
struct Line {
    title: String,
    /// Items done before this run, which say nothing about the rate.
    before: usize,
    done: usize,
    total: Option<usize>,
    start: Instant,
}

impl Line {
    fn text(&self, message: &str, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64();
        let rate = (self.done - self.before) as f64 / seconds.max(1e-9);
        let mut text = self.title.clone();
        if !text.is_empty() {
            text.push(' ');
        }
        match self.total {
            Some(total) => {
                let part = self.done as f64 / total.max(1) as f64;
                let filled = ((part * BAR_WIDTH as f64) as usize).min(BAR_WIDTH);
                let left = total.saturating_sub(self.done) as f64 / rate.max(1e-9);
                text += &format!(
                    "{:3.0}% [{}{}] {}/{total} [{}<{}, {rate:.1}/s]",
                    (part * 100.0).min(100.0),
                    "#".repeat(filled),
                    "-".repeat(BAR_WIDTH - filled),
                    self.done,
                    clock(seconds),
                    if self.done > self.before { clock(left) } else { "?".into() },
                );
            }
            None => text += &format!("{} [{}, {rate:.1}/s]", self.done, clock(seconds)),
        }
        if !message.is_empty() {
            text += " ";
            text += message;
        }
        text
    }
}

/// Minutes and seconds, with hours where there are any.
fn clock(seconds: f64) -> String {
    let s = seconds.min(1e9) as u64;
    match s / 3600 {
        0 => format!("{:02}:{:02}", s / 60, s % 60),
        hours => format!("{hours}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut line = Line { title: "epoch 1".into(), before: 0, done: 50, total: Some(200), start: Instant::now() };
        assert_eq!(
            line.text("loss 0.5", Duration::from_secs(10)),
            "epoch 1  25% [#######-----------------------] 50/200 [00:10<00:30, 5.0/s] loss 0.5"
        );
        line.before = 50;
        assert!(line.text("", Duration::ZERO).contains("[00:00<?, 0.0/s]"));
        line.total = None;
        assert_eq!(line.text("", Duration::from_secs(3661)), "epoch 1 50 [1:01:01, 0.0/s]");
    }

    #[test]
    fn messages_stay_on_the_line() {
        let handle = ProgressHandle::default();
        handle.message("a\nb\x1b[2Jc");
        assert_eq!(handle.text(), "ab[2Jc");
    }
}
