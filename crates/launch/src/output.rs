//! Output of the ranks: one thread reads it, prints lines with a rank prefix, and writes log files.

use crate::console::{self, Stream};
use crate::signals;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer lines are shown in parts.
const MAX_LINE: usize = 1 << 20;
/// Number of a rank's last lines kept for the report of a failure, and their maximum length.
const LAST_LINES: usize = 20;
const LAST_LINE: usize = 1000;

/// What a rank prints before it has named its run's directory; the rest of more is dropped.
const MAX_KEPT: usize = 1 << 18;
/// The line by which a rank names its run's directory on standard error: an escape sequence that terminals ignore.
const RUN_NAMED: (&[u8], &[u8]) = (b"\x1b]rushlight-run;", b"\x07");

/// One stream of one rank.
pub struct Source {
    /// The rank's index on this node.
    pub local_rank: usize,
    /// The rank.
    pub rank: usize,
    /// The read end.
    pub pipe: OwnedFd,
    /// The prefix of each line.
    pub prefix: String,
    /// Destination of shown lines; `None` if they are hidden.
    pub console: Option<Stream>,
    /// Treatment of text that the rank overwrites.
    pub redrawn: Redrawn,
    /// A file that receives the raw bytes.
    pub file: Option<File>,
    /// A file for lines with one of these texts.
    pub filtered: Option<(File, Vec<String>)>,
}

/// What becomes of text that a rank overwrites after a carriage return, such as a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redrawn {
    /// It is a line like others: the console is no terminal.
    Lines,
    /// The terminal's last line shows it.
    Bar,
    /// It is not shown: one rank has the bar.
    Hidden,
}

/// The thread that reads all streams of an attempt.
pub struct Output {
    shared: Arc<SharedOutput>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct SharedOutput {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The last lines of each local rank.
    tails: Vec<VecDeque<String>>,
    /// Streams of each local rank that are still open.
    open: Vec<usize>,
    /// Transcripts of each local rank, for its run's directory.
    transcripts: Vec<Transcript>,
}

/// Both streams of a rank as `logs/console-rank-N.log` of the run's directory, where `rushlight ui` shows them.
enum Transcript {
    /// Lines of a rank that has not named a directory yet.
    Kept(Vec<u8>),
    /// The file; `None` if it cannot be written.
    File(Option<File>),
}

impl Transcript {
    fn take(&mut self, lines: &[u8]) {
        match self {
            Self::Kept(kept) => kept.extend(&lines[..lines.len().min(MAX_KEPT - kept.len())]),
            Self::File(Some(file)) => {
                if file.write_all(lines).is_err() {
                    *self = Self::File(None);
                }
            }
            Self::File(None) => {}
        }
    }

    /// Starts the file of a run.
    fn open(&mut self, directory: &Path, rank: usize) {
        let logs = directory.join("logs");
        let path = logs.join(format!("console-rank-{rank}.log"));
        let file = std::fs::create_dir_all(&logs).and_then(|()| File::options().append(true).create(true).open(path));
        let former = std::mem::replace(self, Self::File(file.ok()));
        if let Self::Kept(lines) = former {
            self.take(&lines);
        }
    }
}

impl Output {
    /// Starts to read the streams of `ranks` local ranks.
    pub fn start(sources: Vec<Source>, ranks: usize) -> Result<Self> {
        let mut state = State { tails: vec![VecDeque::new(); ranks], open: vec![0; ranks], transcripts: Vec::new() };
        state.transcripts.resize_with(ranks, || Transcript::Kept(Vec::new()));
        for source in &sources {
            state.open[source.local_rank] += 1;
            // SAFETY: sets a flag of a descriptor that the source owns.
            if unsafe { libc::fcntl(source.pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
                return Err(std::io::Error::last_os_error().into());
            }
        }
        let shared = Arc::new(SharedOutput { state: Mutex::new(state), changed: Condvar::new() });
        let (woken, wake) = signals::pipe()?;
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("rushlight-output".into())
            .spawn(move || read_all(sources, &woken, &theirs))
            .map_err(|e| Error::io(format!("rushlight run: no thread for the ranks' output ({e})")))?;
        Ok(Self { shared, wake, thread: Some(thread) })
    }

    /// The last lines of a local rank, after waiting briefly for the end of its output.
    pub fn tail(&self, local_rank: usize, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.shared.state);
        while state.open[local_rank] > 0
            && let Some(left) = deadline.checked_duration_since(Instant::now())
        {
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        state.tails[local_rank].iter().cloned().collect()
    }

    /// Prints the remaining output and stops.
    pub fn finish(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.shared.state);
        while state.open.iter().any(|&open| open > 0)
            && let Some(left) = deadline.checked_duration_since(Instant::now())
        {
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        drop(state);
        // SAFETY: writes one byte to a pipe that is open.
        unsafe { libc::write(self.wake.as_raw_fd(), b"x".as_ptr().cast(), 1) };
        // A console that takes no output may hold the thread: it is left behind then.
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + patience.max(Duration::from_millis(500));
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

fn read_all(sources: Vec<Source>, woken: &OwnedFd, shared: &SharedOutput) {
    let mut open: Vec<Lines> = sources.into_iter().map(Lines::new).collect();
    let mut buffer = vec![0u8; 1 << 16];
    let mut ending = false;
    while !open.is_empty() && !ending {
        let mut fds: Vec<libc::pollfd> = std::iter::once(woken.as_raw_fd())
            .chain(open.iter().map(|lines| lines.pipe.as_raw_fd()))
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
            .collect();
        // SAFETY: the array has as many entries as told. An interrupted wait is repeated.
        if unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) } < 0 {
            continue;
        }
        ending = fds[0].revents != 0;
        let ready: Vec<bool> = fds[1..].iter().map(|entry| ending || entry.revents != 0).collect();
        let mut ready = ready.into_iter();
        open.retain_mut(|lines| !ready.next().unwrap_or(false) || lines.read(&mut buffer, ending, shared));
    }
    // Processes that outlive their rank may hold its streams.
    for mut lines in open {
        lines.end(shared);
    }
}

/// A stream and its current incomplete line.
struct Lines {
    local_rank: usize,
    rank: usize,
    pipe: File,
    prefix: String,
    console: Option<Stream>,
    redrawn: Redrawn,
    /// Whether the last complete line ended with a carriage return, so that the next text overwrites it.
    overwrites: bool,
    file: Option<File>,
    filtered: Option<(File, Vec<String>)>,
    begun: Vec<u8>,
}

impl Lines {
    fn new(source: Source) -> Self {
        Self {
            local_rank: source.local_rank,
            rank: source.rank,
            pipe: source.pipe.into(),
            prefix: source.prefix,
            console: source.console,
            redrawn: source.redrawn,
            overwrites: false,
            file: source.file,
            filtered: source.filtered,
            begun: Vec::new(),
        }
    }

    /// Reads available output: one buffer, so that no stream blocks the others, or all of it. False at the end.
    fn read(&mut self, buffer: &mut [u8], all: bool, shared: &SharedOutput) -> bool {
        loop {
            match self.pipe.read(buffer) {
                Ok(0) => {
                    self.end(shared);
                    return false;
                }
                Ok(n) => {
                    self.take(&buffer[..n], shared);
                    if !all {
                        return true;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
    }

    fn take(&mut self, bytes: &[u8], shared: &SharedOutput) {
        if let Some(file) = &mut self.file
            && let Err(e) = file.write_all(bytes)
        {
            console::tell_user(&format!("a log file of local rank {} cannot be written ({e})", self.local_rank));
            self.file = None;
        }
        self.begun.extend_from_slice(bytes);
        let whole = whole_lines(&self.begun);
        if self.redrawn != Redrawn::Lines {
            self.take_redrawn(whole, shared);
        } else if whole > 0 {
            let rest = self.begun.split_off(whole);
            let lines = std::mem::replace(&mut self.begun, rest);
            self.show(&lines, shared);
        } else if self.begun.len() > MAX_LINE {
            let mut lines = std::mem::take(&mut self.begun);
            lines.push(b'\n');
            self.show(&lines, shared);
        }
    }

    /// [`Lines::take`] on a terminal: overwritten text is the bar or nothing, other lines are shown above it.
    fn take_redrawn(&mut self, whole: usize, shared: &SharedOutput) {
        let mut bar = None;
        let rest = self.begun.split_off(whole);
        let complete = std::mem::replace(&mut self.begun, rest);
        for line in split_lines(&complete) {
            self.overwrites = line.last() == Some(&b'\r');
            bar = Some(if self.overwrites { line.to_vec() } else { Vec::new() });
            if !self.overwrites {
                self.show(line, shared);
            }
        }
        if self.overwrites && !self.begun.is_empty() {
            bar = Some(self.begun.clone());
        }
        if self.begun.len() > MAX_LINE {
            let mut line = std::mem::take(&mut self.begun);
            line.push(b'\n');
            self.show(&line, shared);
        }
        if let (Some(bar), Redrawn::Bar, Some(_)) = (bar, self.redrawn, self.console) {
            console::show_bar(&fitted(&bar, console::columns().saturating_sub(1)));
        }
    }

    fn show(&mut self, lines: &[u8], shared: &SharedOutput) {
        if !contains(lines, RUN_NAMED.0) {
            return self.show_all(lines, shared);
        }
        for line in split_lines(lines) {
            let named = line.strip_prefix(RUN_NAMED.0).and_then(|rest| rest.trim_ascii_end().strip_suffix(RUN_NAMED.1));
            match named.map(std::str::from_utf8) {
                Some(Ok(directory)) => {
                    lock(&shared.state).transcripts[self.local_rank].open(Path::new(directory), self.rank);
                }
                _ => self.show_all(line, shared),
            }
        }
    }

    fn show_all(&mut self, lines: &[u8], shared: &SharedOutput) {
        if let Some(stream) = self.console {
            console::write(stream, &prefixed(lines, &self.prefix));
        }
        if let Some((file, texts)) = &mut self.filtered {
            let chosen: Vec<u8> = split_lines(lines)
                .filter(|line| texts.iter().any(|text| contains(line, text.as_bytes())))
                .flat_map(|line| [self.prefix.as_bytes(), line].concat())
                .collect();
            if let Err(e) = file.write_all(&chosen) {
                console::tell_user(&format!("the file of filtered lines cannot be written ({e})"));
                self.filtered = None;
            }
        }
        let mut state = lock(&shared.state);
        state.transcripts[self.local_rank].take(lines);
        let tail = &mut state.tails[self.local_rank];
        for line in split_lines(lines) {
            let text = String::from_utf8_lossy(&line[..line.len().min(LAST_LINE)]);
            let text = text.trim_end();
            if !text.is_empty() {
                if tail.len() == LAST_LINES {
                    tail.pop_front();
                }
                tail.push_back(text.to_owned());
            }
        }
    }

    /// Shows a last line without a newline.
    fn end(&mut self, shared: &SharedOutput) {
        if self.redrawn == Redrawn::Bar {
            console::show_bar(b"");
        }
        if self.overwrites && self.redrawn != Redrawn::Lines {
            self.begun.clear();
        }
        if !self.begun.is_empty() {
            let mut lines = std::mem::take(&mut self.begun);
            if lines.last() != Some(&b'\n') {
                lines.push(b'\n');
            }
            self.show(&lines, shared);
        }
        let mut state = lock(&shared.state);
        state.open[self.local_rank] -= 1;
        shared.changed.notify_all();
    }
}

/// The number of bytes in complete lines. A carriage return ends a line too, for progress bars; until the next byte
/// arrives, it may be the first half of a CRLF.
fn whole_lines(bytes: &[u8]) -> usize {
    let known = if bytes.last() == Some(&b'\r') { &bytes[..bytes.len() - 1] } else { bytes };
    known.iter().rposition(|b| matches!(b, b'\n' | b'\r')).map_or(0, |at| at + 1)
}

/// Lines with their ends.
fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let at = rest.iter().position(|b| matches!(b, b'\n' | b'\r'));
        let mut end = at.map_or(rest.len(), |at| at + 1);
        if at.is_some_and(|at| rest[at] == b'\r') && rest.get(end) == Some(&b'\n') {
            end += 1;
        }
        let (line, others) = rest.split_at(end);
        rest = others;
        (!line.is_empty()).then_some(line)
    })
}

/// A bar without line ends, cut to a number of columns; empty if nothing of it is visible.
fn fitted(bar: &[u8], columns: usize) -> Vec<u8> {
    let text = String::from_utf8_lossy(bar);
    let (mut kept, mut width, mut escaped) = (String::new(), 0, false);
    for c in text.chars().filter(|c| !matches!(c, '\r' | '\n')) {
        match c {
            '\x1b' => escaped = true,
            _ if escaped => escaped = !(c.is_ascii_alphabetic() || c == '~'),
            _ if width == columns => break,
            _ => width += 1,
        }
        kept.push(c);
    }
    if width == 0 { Vec::new() } else { (kept + "\x1b[0m").into_bytes() }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len()).any(|part| part == text)
}

fn prefixed(lines: &[u8], prefix: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() + 16 * prefix.len());
    for line in split_lines(lines) {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_prefixed() {
        assert_eq!(whole_lines(b"a\nb"), 2);
        assert_eq!(whole_lines(b"ab"), 0);
        assert_eq!(whole_lines(b"10%\r20%\r"), 4);
        assert_eq!(whole_lines(b"a\r"), 0);
        assert_eq!(whole_lines(b"a\r\n"), 3);
        assert_eq!(prefixed(b"a\r\nb\n\n10%\r", "[1] "), b"[1] a\r\n[1] b\n[1] \n[1] 10%\r");
    }

    #[test]
    fn bytes_in_any_pieces_give_the_same_lines() {
        let text = b"one\ntwo\r\nthree\rfour\n\nfive";
        for size in 1..text.len() {
            let (out, tail) = through(text.chunks(size));
            assert_eq!(out, text);
            assert_eq!(tail, ["one", "two", "three", "four", "five"]);
        }
    }

    #[test]
    fn a_bar_is_redrawn_text_that_fits() {
        assert_eq!(fitted(b"\x1b[1mepoch 1\x1b[0m 50%\x1b[K\r", 7), b"\x1b[1mepoch 1\x1b[0m\x1b[0m");
        assert_eq!(fitted(b"\x1b[K", 80), b"");
        let (read, write) = signals::pipe().unwrap();
        let hidden = Source { redrawn: Redrawn::Hidden, ..source(read, None) };
        let output = Output::start(vec![hidden], 1).unwrap();
        let mut write = File::from(write);
        write.write_all(b"begins\n\r10%\x1b[K\r20%\x1b[K\r\x1b[Kdone\r\n\r30%").unwrap();
        drop(write);
        // The text that was overwritten is no output.
        assert_eq!(output.tail(0, Duration::from_secs(10)), ["begins", "\x1b[Kdone"]);
        output.finish(Duration::from_secs(10));
    }

    #[test]
    fn a_run_gets_a_copy_of_what_its_rank_prints() {
        let run = std::env::temp_dir().join(format!("rushlight-console-{}", std::process::id()));
        let (read, write) = signals::pipe().unwrap();
        let output = Output::start(vec![source(read, None)], 1).unwrap();
        let mut write = File::from(write);
        write.write_all(format!("before\n\x1b]rushlight-run;{}\x07\nafter\n", run.display()).as_bytes()).unwrap();
        drop(write);
        assert_eq!(output.tail(0, Duration::from_secs(10)), ["before", "after"]);
        output.finish(Duration::from_secs(10));
        let copy = std::fs::read_to_string(run.join("logs/console-rank-3.log")).unwrap();
        std::fs::remove_dir_all(&run).unwrap();
        assert_eq!(copy, "before\nafter\n");
    }

    #[test]
    fn a_process_that_holds_the_stream_does_not_hold_the_launcher() {
        let (read, _write) = signals::pipe().unwrap();
        let source = source(read, None);
        let output = Output::start(vec![source], 1).unwrap();
        assert!(output.tail(0, Duration::from_millis(1)).is_empty());
        output.finish(Duration::from_millis(1));
    }

    fn source(pipe: OwnedFd, file: Option<File>) -> Source {
        Source {
            local_rank: 0,
            rank: 3,
            pipe,
            prefix: String::new(),
            console: None,
            redrawn: Redrawn::Lines,
            file,
            filtered: None,
        }
    }

    /// Bytes in the file, and last lines, of a rank that writes these pieces.
    fn through<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<String>) {
        let (read, write) = signals::pipe().unwrap();
        let (kept, file) = signals::pipe().unwrap();
        let source = source(read, Some(file.into()));
        let output = Output::start(vec![source], 1).unwrap();
        let mut write = File::from(write);
        pieces.for_each(|piece| write.write_all(piece).unwrap());
        drop(write);
        let tail = output.tail(0, Duration::from_secs(10));
        output.finish(Duration::from_secs(10));
        let mut bytes = Vec::new();
        File::from(kept).read_to_end(&mut bytes).unwrap();
        (bytes, tail)
    }
}
