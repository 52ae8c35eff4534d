//! The launcher's own output: whole lines, in order, by one thread, above a progress bar of rank 0's.
//!
//! A terminal may stop taking output (Ctrl-S). Ranks' output then waits, and with it the ranks. The launcher's own
//! messages are queued: it goes on to stop ranks, and to report failures to the other nodes.

use rushlight_core::sync::lock;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A stream of the launcher's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// How long the launcher waits for its own message to appear.
const MESSAGE_TIME: Duration = Duration::from_millis(300);

/// The queue of this process. A forked child makes its own: it has no thread of its parent's.
static CONSOLE: Mutex<Option<(u32, Arc<Queue>)>> = Mutex::new(None);

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

enum Item {
    /// Whole lines.
    Lines(Stream, Vec<u8>),
    /// The text of the last line of the terminal, until the next one; empty for none.
    Bar(Vec<u8>),
}

impl Item {
    fn len(&self) -> usize {
        match self {
            Item::Lines(_, bytes) | Item::Bar(bytes) => bytes.len(),
        }
    }
}

#[derive(Default)]
struct State {
    lines: VecDeque<Item>,
    /// Bytes that are queued or being written.
    bytes: usize,
}

/// Writes bytes. A closed console is no error: ranks do not depend on it.
fn print(stream: Stream, bytes: &[u8]) {
    let descriptor = if stream == Stream::Out { 1 } else { 2 };
    // SAFETY: the descriptor is the process's own and is not closed here. The standard library's locks are avoided: a
    // child that is forked while another thread holds one would wait for ever.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let _ = file.write_all(bytes);
}

/// Prints items; lines appear above the bar.
fn screen(mut print: impl FnMut(Stream, &[u8])) -> impl FnMut(&Item) {
    const CLEAR: &[u8] = b"\r\x1b[K";
    let mut bar: Vec<u8> = Vec::new();
    move |item| match item {
        Item::Lines(stream, bytes) if bar.is_empty() => print(*stream, bytes),
        Item::Lines(stream, bytes) => {
            print(Stream::Err, CLEAR);
            print(*stream, bytes);
            print(Stream::Err, &bar);
        }
        Item::Bar(new) => {
            if *new != bar {
                print(Stream::Err, &[CLEAR, new].concat());
                bar.clone_from(new);
            }
        }
    }
}

impl Queue {
    /// A queue whose thread passes its items to `sink`; `None` without a thread.
    fn start(mut sink: impl FnMut(&Item) + Send + 'static) -> Option<Arc<Self>> {
        let queue = Arc::new(Self { state: Mutex::default(), changed: Condvar::new() });
        let theirs = queue.clone();
        let thread = std::thread::Builder::new().name("rushlight-console".into()).spawn(move || {
            let mut state = lock(&theirs.state);
            loop {
                match state.lines.pop_front() {
                    Some(item) => {
                        drop(state);
                        sink(&item);
                        state = lock(&theirs.state);
                        state.bytes -= item.len();
                        theirs.changed.notify_all();
                    }
                    None => state = theirs.changed.wait(state).unwrap_or_else(|e| e.into_inner()),
                }
            }
        });
        thread.ok().map(|_| queue)
    }

    fn push(&self, item: Item) {
        let mut state = lock(&self.state);
        state.bytes += item.len();
        state.lines.push_back(item);
        self.changed.notify_all();
    }

    /// Waits until everything is written, or for `patience`. Returns whether it is.
    fn flush(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.state);
        while state.bytes > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        true
    }
}

fn queue() -> Option<Arc<Queue>> {
    let mut console = lock(&CONSOLE);
    let process = std::process::id();
    if let Some((_, queue)) = console.as_ref().filter(|(owner, _)| *owner == process) {
        return Some(queue.clone());
    }
    let queue = Queue::start(screen(print))?;
    *console = Some((process, queue.clone()));
    Some(queue)
}

/// Writes bytes that end with a newline, without interleaving, and waits until they are written.
pub fn write(stream: Stream, bytes: &[u8]) {
    match queue() {
        Some(queue) => {
            queue.push(Item::Lines(stream, bytes.to_vec()));
            queue.flush(Duration::from_secs(1 << 30));
        }
        None => print(stream, bytes),
    }
}

/// Shows a text in the last line of the terminal, on standard error, and waits until it is shown. An empty one removes
/// it.
pub fn show_bar(text: &[u8]) {
    if let Some(queue) = queue() {
        queue.push(Item::Bar(text.to_vec()));
        queue.flush(Duration::from_secs(1 << 30));
    }
}

/// Whether a stream is a terminal that can redraw a line.
pub fn is_terminal(stream: Stream) -> bool {
    let descriptor = if stream == Stream::Out { 1 } else { 2 };
    // SAFETY: queries a descriptor, open or not.
    let known = unsafe { libc::isatty(descriptor) } == 1;
    known && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns of the terminal on standard error.
pub fn columns() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request writes a winsize to the pointer, which is to one of this frame.
    let known = unsafe { libc::ioctl(2, libc::TIOCGWINSZ, &mut size) } == 0 && size.ws_col > 0;
    if known { usize::from(size.ws_col) } else { 100 }
}

/// Prints a message for the user, on standard error. A stalled console does not hold the caller.
pub fn tell_user(text: &str) {
    let line = format!("rushlight run: {text}\n");
    match queue() {
        Some(queue) => {
            queue.push(Item::Lines(Stream::Err, line.clone().into_bytes()));
            queue.flush(MESSAGE_TIME);
        }
        None => print(Stream::Err, line.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn lines_appear_above_the_bar() {
        let mut shown = Vec::new();
        let mut show = screen(|_, bytes| shown.extend_from_slice(bytes));
        show(&Item::Bar(b"10%".to_vec()));
        show(&Item::Bar(b"10%".to_vec()));
        show(&Item::Lines(Stream::Out, b"hello\n".to_vec()));
        show(&Item::Bar(Vec::new()));
        show(&Item::Lines(Stream::Out, b"bye\n".to_vec()));
        drop(show);
        assert_eq!(shown, b"\r\x1b[K10%\r\x1b[Khello\n10%\r\x1b[Kbye\n");
    }

    #[test]
    fn a_stalled_console_holds_ranks_and_not_the_launcher() {
        let (go, gate) = mpsc::channel::<()>();
        let (sender, printed) = mpsc::channel();
        let queue = Queue::start(move |item| {
            let _ = gate.recv();
            let _ = sender.send(item.len());
        })
        .unwrap();
        // Nothing is written, as after Ctrl-S.
        queue.push(Item::Lines(Stream::Out, b"of a rank".to_vec()));
        let theirs = queue.clone();
        let blocked = std::thread::spawn(move || theirs.flush(Duration::from_secs(60)));
        let since = Instant::now();
        queue.push(Item::Lines(Stream::Err, b"a report".to_vec()));
        assert!(!queue.flush(MESSAGE_TIME) && since.elapsed() < Duration::from_secs(5));
        assert!(!blocked.is_finished());
        drop(go);
        assert!(blocked.join().unwrap());
        assert_eq!(printed.iter().take(2).collect::<Vec<_>>(), [9, 8]);
    }
}
