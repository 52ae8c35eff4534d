//! Signals as a file descriptor: they are blocked, and read in the launcher's event loop.

use rushlight_core::Result;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Default signals to forward to the ranks.
pub const FORWARDED: [i32; 6] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Whether a signal requests the end of the job.
pub fn asks_to_end(signal: i32) -> bool {
    matches!(signal, libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT)
}

/// Signals by name.
const NAMES: [(i32, &str); 20] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGCONT, "SIGCONT"),
    (libc::SIGTSTP, "SIGTSTP"),
    (libc::SIGWINCH, "SIGWINCH"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGSYS, "SIGSYS"),
];

/// A signal's name.
pub fn name(signal: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// The signal of a name, with or without `SIG`. `None` for unknown ones and for SIGKILL, which cannot be handled.
pub fn by_name(name: &str) -> Option<i32> {
    let name = name.trim().to_ascii_uppercase();
    let found = NAMES.iter().find(|(_, known)| *known == name || known.strip_prefix("SIG") == Some(&name));
    found.map(|(number, _)| *number).filter(|&number| number != libc::SIGKILL)
}

/// Blocks the forwarded signals and SIGCHLD for this thread; restores the mask when dropped.
pub struct Blocked {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Blocked {
    /// Signals that are ignored when the launcher starts, as under `nohup`, stay ignored.
    pub fn new(forwarded: &[i32]) -> Result<Self> {
        // SAFETY: the sets are initialised by `sigemptyset` before use, and all pointers are to locals.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            for &signal in forwarded {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut action);
                if action.sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(&mut set, signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                let error = std::io::Error::last_os_error();
                libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
                return Err(error.into());
            }
            Ok(Self { fd: OwnedFd::from_raw_fd(fd), before })
        }
    }

    /// Readable when a signal is pending.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The signal mask for programs started from here.
    pub fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    /// The next pending signal.
    pub fn next(&self) -> Option<i32> {
        // SAFETY: the structure is plain data and as large as the read.
        unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let read = libc::read(self.fd(), (&raw mut info).cast(), size);
            (read == size as isize).then_some(info.ssi_signo as i32)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask was given by the kernel for this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Waits until one of the descriptors is readable or has hung up, for at most `milliseconds`. Returns which.
pub fn wait_readable<const N: usize>(fds: [RawFd; N], milliseconds: i32) -> [bool; N] {
    let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: the array has N entries. An interrupted wait leaves them without events.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
    polled.map(|entry| ready > 0 && entry.revents != 0)
}

/// A close-on-exec pipe: read end, write end.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array takes two descriptors, which are new and owned by nobody else.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
