//! Sockets: options and limits.

use std::net::{IpAddr, TcpStream};
use std::os::fd::AsRawFd;

/// Sets what every connection of ours has: no delay of small messages, and probes that notice within some 15 s that
/// the other machine is gone.
pub(crate) fn configure(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let set = |level, name, value: i32| {
        // SAFETY: the descriptor is open and the value is an int, as these options take.
        unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<i32>() as libc::socklen_t,
            )
        };
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 5);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 2);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 5);
}

/// Allows this process as many open files as the system's hard limit: a store of a large job has a connection to each
/// rank.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Whether a host is this machine by its loopback address.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Ports as text.
pub(crate) fn list(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
