//! The launcher's own output: whole lines, one writer at a time.

use std::io::Write;
use std::sync::Mutex;

static CONSOLE: Mutex<()> = Mutex::new(());

/// A stream of the launcher's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Writes bytes that end with a newline, without interleaving. A closed console is no error: ranks do not depend on it.
pub fn write(stream: Stream, bytes: &[u8]) {
    let _guard = CONSOLE.lock().unwrap_or_else(|e| e.into_inner());
    let _ = match stream {
        Stream::Out => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
        Stream::Err => std::io::stderr().write_all(bytes),
    };
}

/// Prints a message for the user, on standard error.
pub fn say(text: &str) {
    write(Stream::Err, format!("rushlight run: {text}\n").as_bytes());
}
