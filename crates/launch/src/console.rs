//! The launcher's own output: whole lines, in order, by one thread.
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

#[derive(Default)]
struct State {
    lines: VecDeque<(Stream, Vec<u8>)>,
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

impl Queue {
    /// A queue whose thread passes its lines to `sink`; `None` without a thread.
    fn start(sink: impl Fn(Stream, &[u8]) + Send + 'static) -> Option<Arc<Self>> {
        let queue = Arc::new(Self { state: Mutex::default(), changed: Condvar::new() });
        let theirs = queue.clone();
        let thread = std::thread::Builder::new().name("rushlight-console".into()).spawn(move || {
            let mut state = lock(&theirs.state);
            loop {
                match state.lines.pop_front() {
                    Some((stream, bytes)) => {
                        drop(state);
                        sink(stream, &bytes);
                        state = lock(&theirs.state);
                        state.bytes -= bytes.len();
                        theirs.changed.notify_all();
                    }
                    None => state = theirs.changed.wait(state).unwrap_or_else(|e| e.into_inner()),
                }
            }
        });
        thread.ok().map(|_| queue)
    }

    fn push(&self, stream: Stream, bytes: &[u8]) {
        let mut state = lock(&self.state);
        state.bytes += bytes.len();
        state.lines.push_back((stream, bytes.to_vec()));
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
    let queue = Queue::start(print)?;
    *console = Some((process, queue.clone()));
    Some(queue)
}

/// Writes bytes that end with a newline, without interleaving, and waits until they are written.
pub fn write(stream: Stream, bytes: &[u8]) {
    match queue() {
        Some(queue) => {
            queue.push(stream, bytes);
            queue.flush(Duration::from_secs(1 << 30));
        }
        None => print(stream, bytes),
    }
}

/// Prints a message for the user, on standard error. A stalled console does not hold the caller.
pub fn tell_user(text: &str) {
    let line = format!("rushlight run: {text}\n");
    match queue() {
        Some(queue) => {
            queue.push(Stream::Err, line.as_bytes());
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
    fn a_stalled_console_holds_ranks_and_not_the_launcher() {
        let (go, gate) = mpsc::channel::<()>();
        let (sender, printed) = mpsc::channel();
        let queue = Queue::start(move |_, bytes| {
            let _ = gate.recv();
            let _ = sender.send(bytes.len());
        })
        .unwrap();
        // Nothing is written, as after Ctrl-S.
        queue.push(Stream::Out, b"of a rank");
        let theirs = queue.clone();
        let blocked = std::thread::spawn(move || theirs.flush(Duration::from_secs(60)));
        let since = Instant::now();
        queue.push(Stream::Err, b"a report");
        assert!(!queue.flush(MESSAGE_TIME) && since.elapsed() < Duration::from_secs(5));
        assert!(!blocked.is_finished());
        drop(go);
        assert!(blocked.join().unwrap());
        assert_eq!(printed.iter().take(2).collect::<Vec<_>>(), [9, 8]);
    }
}
