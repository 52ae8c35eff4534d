//! Process statistics from the operating system.

use std::time::Duration;

/// Processor time of all threads since the process began.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of this frame.
    match unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) } {
        0 => Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_time() -> Duration {
    Duration::ZERO
}

/// Whether a descriptor is a pipe.
#[cfg(target_os = "linux")]
pub(crate) fn is_pipe(descriptor: i32) -> bool {
    // SAFETY: zeros are a value of this structure of numbers, which the call fills.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a structure of this frame.
    unsafe { libc::fstat(descriptor, &mut found) == 0 && found.st_mode & libc::S_IFMT == libc::S_IFIFO }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_pipe(_: i32) -> bool {
    false
}

/// Columns of the terminal on standard error.
#[cfg(target_os = "linux")]
pub(crate) fn terminal_width() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request writes a winsize to the pointer, which is to one of this frame.
    let known = unsafe { libc::ioctl(2, libc::TIOCGWINSZ, &mut size) } == 0 && size.ws_col > 0;
    if known { usize::from(size.ws_col) } else { columns() }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn terminal_width() -> usize {
    columns()
}

fn columns() -> usize {
    std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).unwrap_or(100)
}

/// Resident memory of the process in bytes.
pub(crate) fn resident() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
