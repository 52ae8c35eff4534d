//! The terminal: alternate screen, raw keys, restored at the end.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Set by terminating signals.
static ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_: libc::c_int) {
    ENDED.store(true, Relaxed);
}

extern "C" fn nothing(_: libc::c_int) {}

/// An event of the terminal.
pub enum Event {
    /// The user quits.
    Quit,
    /// The terminal was resized.
    Resized,
    /// Timeout.
    Time,
}

/// A terminal that is drawn on.
pub struct Terminal {
    /// Original settings, if keys are read.
    before: Option<libc::termios>,
    last_size: (usize, usize),
}

fn on_signal(signal: libc::c_int, act: extern "C" fn(libc::c_int)) {
    // SAFETY: the handler does nothing but store to an atomic; without SA_RESTART the wait for keys is interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = act as *const () as libc::sighandler_t;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

impl Terminal {
    /// Takes over the terminal.
    pub fn open() -> std::io::Result<Self> {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            on_signal(signal, end);
        }
        on_signal(libc::SIGWINCH, nothing);
        let mut before = None;
        if std::io::stdin().is_terminal() {
            // SAFETY: the structure is valid for the calls, which read or write it.
            unsafe {
                let mut settings: libc::termios = std::mem::zeroed();
                if libc::tcgetattr(0, &mut settings) == 0 {
                    before = Some(settings);
                    // Raw mode without echo, also for Ctrl-C and Ctrl-Z: the screen must be restored first.
                    settings.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
                    libc::tcsetattr(0, libc::TCSANOW, &settings);
                }
            }
        }
        let terminal = Self { before, last_size: (0, 0) };
        let mut out = std::io::stdout();
        out.write_all(b"\x1b[?1049h\x1b[?25l\x1b[2J")?;
        out.flush()?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub fn size(&mut self) -> (usize, usize) {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the request writes a winsize to the pointer, which is to one of this frame.
        let known = unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &mut size) } == 0 && size.ws_col > 0 && size.ws_row > 0;
        self.last_size = if known { (size.ws_col.into(), size.ws_row.into()) } else { (100, 40) };
        self.last_size
    }

    /// Draws lines from the top; lines beyond the last row are skipped.
    pub fn draw(&self, lines: &[String], rows: usize) -> std::io::Result<()> {
        let mut text = String::from("\x1b[H");
        let (most, more) = if lines.len() > rows { (rows.saturating_sub(1), true) } else { (lines.len(), false) };
        for line in &lines[..most] {
            text += line;
            text += "\x1b[K\r\n";
        }
        if more {
            text += &format!("… {} more lines; q quits\x1b[K", lines.len() - most);
        } else {
            // No newline after the last row: it would scroll.
            text.truncate(text.len().saturating_sub(2));
        }
        text += "\x1b[J";
        let mut out = std::io::stdout();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Waits for a key, a resize, or the timeout.
    pub fn wait(&mut self, time: Duration) -> Event {
        let deadline = Instant::now() + time;
        loop {
            if ENDED.load(Relaxed) {
                return Event::Quit;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Event::Time;
            }
            let mut stdin = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
            let count = libc::nfds_t::from(self.before.is_some());
            // SAFETY: the pointer is to `count` structures of this frame, at most one.
            let ready = unsafe { libc::poll(&mut stdin, count, left.as_millis().clamp(1, 60_000) as i32) };
            if ready < 0 {
                let was = self.last_size;
                if self.size() != was {
                    return Event::Resized;
                }
            }
            if ready > 0 {
                let mut keys = [0u8; 64];
                // SAFETY: the length is the buffer's.
                let read = unsafe { libc::read(0, keys.as_mut_ptr().cast(), keys.len()) };
                let keys = &keys[..usize::try_from(read).unwrap_or(0)];
                // End of input, q, Ctrl-C, Ctrl-D, or Escape alone.
                if keys.is_empty() || keys == [27] || keys.iter().any(|key| [b'q', b'Q', 3, 4].contains(key)) {
                    return Event::Quit;
                }
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut out = std::io::stdout();
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
        if let Some(settings) = &self.before {
            // SAFETY: the settings are those the terminal had.
            unsafe { libc::tcsetattr(0, libc::TCSANOW, settings) };
        }
    }
}
