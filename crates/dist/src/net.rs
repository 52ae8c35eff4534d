//! Sockets: options and limits.

use std::net::{IpAddr, TcpStream};
use std::os::fd::AsRawFd;

/// Sets the options of all our connections: small messages are not delayed, and keep-alive probes detect within about
/// 10 s that the other machine is gone while nothing is sent.
pub(crate) fn configure(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    set(stream, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(stream, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 5);
    set(stream, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1);
    set(stream, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 5);
}

/// Ends a connection when sent data is not acknowledged for 15 s: the kernel does not probe then, and would retry
/// for a quarter of an hour. Only for connections whose other side always reads: a full receiver counts as silent. A
/// rank that computes before it reads a large message is not dead, so connections between ranks do not use it; the
/// store reports dead ranks to them.
pub(crate) fn bound_silence(stream: &TcpStream) {
    set(stream, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 15_000);
}

/// Sets an option; ignored if the system lacks it.
fn set(stream: &TcpStream, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    // SAFETY: the descriptor is open and the value is an int, as these options take.
    unsafe {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
}

/// Raises the limit of open files to the hard limit: the store of a large job has a connection to each
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

/// Whether a host is a loopback address of this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Ports as text.
pub(crate) fn list(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
