//! The listener of a process, at which other ranks' connections arrive.
//!
//! A handshake has a total deadline, and an address has a bounded number of them: connections without the job's secret
//! delay the others' by no more than their own handshake takes.

use crate::launch::Secret;
use crate::net;
use crate::store::auth::{self, Purpose, Seal, TAG};
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum concurrent handshakes: of all addresses, and of one. The oldest is ended for a new one.
const MAX_HANDSHAKES: usize = 256;
const MAX_OF_ONE_ADDRESS: usize = 64;
/// How long a handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// This process's listener and the connections it has accepted.
pub(crate) struct Endpoint {
    port: u16,
    state: Arc<Arrivals>,
}

/// A connection on which another rank sends.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) seal: Seal,
}

struct Arrivals {
    groups: Mutex<HashMap<u64, Group>>,
    handshakes: Mutex<Vec<Handshake>>,
    stop: AtomicBool,
    refused: AtomicU64,
    secret: Secret,
    /// This process's rank in the world.
    rank: usize,
}

/// Accepted connections of a group, by the rank there.
#[derive(Default)]
struct Group {
    streams: Vec<(u32, Accepted)>,
    /// Readable when there are some.
    waker: Option<Arc<OwnedFd>>,
}

/// A handshake under way.
struct Handshake {
    number: u64,
    address: IpAddr,
    stream: TcpStream,
}

impl Endpoint {
    /// Listens on all interfaces, or on loopback only.
    pub(crate) fn listen(secret: Secret, rank: usize, loopback: bool) -> Result<Self> {
        let (v6, v4) = if loopback {
            (Ipv6Addr::LOCALHOST, Ipv4Addr::LOCALHOST)
        } else {
            (Ipv6Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED)
        };
        let listener = match loopback {
            true => TcpListener::bind((v4, 0)).or_else(|_| TcpListener::bind((v6, 0))),
            false => TcpListener::bind((v6, 0)).or_else(|_| TcpListener::bind((v4, 0))),
        }
        .map_err(|e| Error::io(format!("no port to listen on for the other ranks: {e}")))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Arrivals {
            groups: Mutex::default(),
            handshakes: Mutex::default(),
            stop: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            secret,
            rank,
        });
        let shared = state.clone();
        std::thread::Builder::new().name("rushlight-accept".into()).spawn(move || accept_all(&listener, &shared))?;
        Ok(Self { port, state })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.state.secret
    }

    /// A descriptor that becomes readable when a connection of a group arrives. [`drain`] resets it.
    pub(crate) fn waker(&self, group: u64) -> Result<Arc<OwnedFd>> {
        let mut groups = lock(&self.state.groups);
        let entry = groups.entry(group).or_default();
        if let Some(waker) = &entry.waker {
            return Ok(waker.clone());
        }
        // SAFETY: `eventfd` gives a new descriptor or -1, which is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let waker = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        entry.waker = Some(waker.clone());
        Ok(waker)
    }

    /// The connections of a group that have arrived since the last call, with the rank there.
    pub(crate) fn take(&self, group: u64) -> Vec<(u32, Accepted)> {
        lock(&self.state.groups).get_mut(&group).map(|entry| std::mem::take(&mut entry.streams)).unwrap_or_default()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.state.stop.store(true, Relaxed);
        // A connection to ourselves ends the wait in `accept`.
        let _ = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, self.port).into(), Duration::from_secs(1))
            .or_else(|_| TcpStream::connect_timeout(&(Ipv6Addr::LOCALHOST, self.port).into(), Duration::from_secs(1)));
    }
}

/// Resets a waker.
pub(super) fn drain(waker: &OwnedFd) {
    let mut count = [0u8; 8];
    // SAFETY: an eventfd is read in eight bytes, which the array has.
    unsafe { libc::read(waker.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
}

/// The address by which connections are counted. One machine often has a whole /64 of IPv6 addresses.
pub(crate) fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let mut segments = v6.segments();
            segments[4..].fill(0);
            Ipv6Addr::from(segments).into()
        }
        v4 => v4,
    }
}

fn accept_all(listener: &TcpListener, state: &Arc<Arrivals>) {
    for number in 0u64.. {
        let accepted = listener.accept();
        if state.stop.load(Relaxed) {
            return;
        }
        let Ok((stream, peer)) = accepted else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let Ok(twin) = stream.try_clone() else { continue };
        admit(state, Handshake { number, address: counted(peer.ip()), stream: twin });
        let shared = state.clone();
        // A thread per handshake, so that a silent stranger blocks nobody.
        let spawned = std::thread::Builder::new().name("rushlight-handshake".into()).spawn(move || {
            let greeted = greet(&stream, &shared);
            lock(&shared.handshakes).retain(|handshake| handshake.number != number);
            match greeted {
                Ok(((group, rank), seal)) => shared.deliver(group, rank, Accepted { stream, seal }),
                Err(e) => {
                    let count = shared.refused.fetch_add(1, Relaxed) + 1;
                    // A port scan must not fill the log.
                    if count <= 10 || count.is_power_of_two() {
                        rushlight_core::warn!("refused a connection from {peer}: {e} ({count} so far)");
                    }
                }
            }
        });
        if spawned.is_err() {
            lock(&state.handshakes).retain(|handshake| handshake.number != number);
        }
    }
}

/// Counts a handshake. If there are too many, the oldest ends.
fn admit(state: &Arrivals, new: Handshake) {
    let mut all = lock(&state.handshakes);
    let of_one = all.iter().filter(|handshake| handshake.address == new.address).count() >= MAX_OF_ONE_ADDRESS;
    if of_one || all.len() >= MAX_HANDSHAKES {
        // They are in order of arrival.
        if let Some(at) = all.iter().position(|handshake| !of_one || handshake.address == new.address) {
            let _ = all.remove(at).stream.shutdown(Shutdown::Both);
        }
    }
    all.push(new);
}

fn greet(stream: &TcpStream, state: &Arrivals) -> std::io::Result<((u64, u32), Seal)> {
    net::configure(stream);
    let (_, mut seal) = auth::accept(stream, &state.secret, Purpose::Link(state.rank), HANDSHAKE_TIME)?;
    let mut hello = [0; 12 + TAG];
    stream.set_read_timeout(Some(HANDSHAKE_TIME))?;
    let mut reader = stream;
    reader.read_exact(&mut hello)?;
    let (hello, tag) = hello.split_at(12);
    if !seal.verify(hello, tag) {
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "its first message has a wrong seal"));
    }
    let group = u64::from_le_bytes(hello[..8].try_into().unwrap_or_default());
    let rank = u32::from_le_bytes(hello[8..].try_into().unwrap_or_default());
    Ok(((group, rank), seal))
}

impl Arrivals {
    fn deliver(&self, group: u64, rank: u32, accepted: Accepted) {
        let mut groups = lock(&self.groups);
        let entry = groups.entry(group).or_default();
        entry.streams.push((rank, accepted));
        if let Some(waker) = &entry.waker {
            // SAFETY: the descriptor is open; an eventfd takes eight bytes.
            unsafe { libc::write(waker.as_raw_fd(), 1u64.to_ne_bytes().as_ptr().cast(), 8) };
        }
    }
}
