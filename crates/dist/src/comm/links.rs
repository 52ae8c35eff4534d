//! Connections between pairs of ranks, made when first used.
//!
//! A message is a header (kind, tag, length, the sender's signature) and its bytes. Messages of one kind and tag arrive
//! in order. Messages that arrive early are stored, also while this rank is sending: two ranks that both send first do
//! not deadlock.

use super::abort::Limit;
use super::reduce::Span;
use super::signature::Signature;
use crate::launch::Secret;
use crate::net;
use crate::store::auth::{self, Purpose};
use rushlight_core::{Error, Result};
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Header: kind and tag as one number, length, signature.
const HEADER: usize = 16 + Signature::BYTES;
/// Maximum concurrent handshakes.
const MAX_HANDSHAKES: usize = 64;
/// Interval at which a wait in the kernel checks for abort and deadline.
const SLICE_MS: i32 = 50;
/// Number of this rank's collectives that are remembered.
const HISTORY: usize = 64;
/// Maximum length of a message. A longer announcement is invalid.
const MAX_MESSAGE: u64 = 1 << 40;

/// The purpose of a message: a collective, or a send with its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Channel(u64);

impl Channel {
    pub(crate) const COLLECTIVE: Channel = Channel(0);

    pub(crate) fn tagged(tag: u32) -> Self {
        Channel(1 << 32 | u64::from(tag))
    }
}

/// This process's listener and the connections it has accepted.
pub(crate) struct Endpoint {
    port: u16,
    state: Arc<Arrivals>,
}

struct Arrivals {
    /// By group and rank.
    streams: Mutex<HashMap<(u64, u32), TcpStream>>,
    arrived: Condvar,
    stop: AtomicBool,
    handshakes: AtomicUsize,
    secret: Secret,
}

impl Endpoint {
    /// Listens on all interfaces, or on loopback only.
    pub(crate) fn listen(secret: Secret, loopback: bool) -> Result<Self> {
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
            streams: Mutex::default(),
            arrived: Condvar::new(),
            stop: AtomicBool::new(false),
            handshakes: AtomicUsize::new(0),
            secret,
        });
        let shared = state.clone();
        std::thread::Builder::new().name("rushlight-accept".into()).spawn(move || accept_all(&listener, &shared))?;
        Ok(Self { port, state })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn take(&self, group: u64, index: usize, rank: usize, limit: &Limit) -> Result<TcpStream> {
        let mut streams = self.state.streams.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            if let Some(stream) = streams.remove(&(group, index as u32)) {
                return Ok(stream);
            }
            limit.check(|| format!("a connection from rank {rank}"))?;
            let wait = self.state.arrived.wait_timeout(streams, Duration::from_millis(SLICE_MS as u64));
            streams = wait.unwrap_or_else(|e| e.into_inner()).0;
        }
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

fn accept_all(listener: &TcpListener, state: &Arc<Arrivals>) {
    loop {
        let accepted = listener.accept();
        if state.stop.load(Relaxed) {
            return;
        }
        let Ok((stream, peer)) = accepted else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        while state.handshakes.load(Relaxed) >= MAX_HANDSHAKES {
            std::thread::sleep(Duration::from_millis(10));
        }
        state.handshakes.fetch_add(1, Relaxed);
        let shared = state.clone();
        // A thread per handshake, so that a silent stranger blocks nobody.
        let spawned = std::thread::Builder::new().name("rushlight-handshake".into()).spawn(move || {
            match greet(stream, &shared.secret) {
                Ok((key, stream)) => {
                    shared.streams.lock().unwrap_or_else(|e| e.into_inner()).insert(key, stream);
                    shared.arrived.notify_all();
                }
                Err(e) => eprintln!("rushlight: refused a connection from {peer}: {e}"),
            }
            shared.handshakes.fetch_sub(1, Relaxed);
        });
        if spawned.is_err() {
            state.handshakes.fetch_sub(1, Relaxed);
        }
    }
}

fn greet(mut stream: TcpStream, secret: &Secret) -> std::io::Result<((u64, u32), TcpStream)> {
    net::configure(&stream);
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    auth::accept(&mut stream, secret, Purpose::Link)?;
    let mut hello = [0; 12];
    stream.read_exact(&mut hello)?;
    let group = u64::from_le_bytes(hello[..8].try_into().unwrap_or_default());
    let rank = u32::from_le_bytes(hello[8..].try_into().unwrap_or_default());
    Ok(((group, rank), stream))
}

/// Addresses of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its rank in the world, for messages.
    pub(crate) rank: usize,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
}

/// One end of a connection.
struct Link {
    stream: TcpStream,
    head: [u8; HEADER],
    head_len: usize,
    /// An incoming message: its channel, signature, length, and the bytes if it was not requested yet.
    arriving: Option<Arriving>,
    kept: HashMap<Channel, VecDeque<(Signature, Vec<u8>)>>,
}

struct Arriving {
    channel: Channel,
    signature: Signature,
    len: usize,
    got: usize,
    /// The transfer that receives it, or `None` if it is stored.
    taker: Option<usize>,
    kept: Vec<u8>,
}

/// A message to send or to receive.
pub(crate) struct Transfer {
    peer: usize,
    channel: Channel,
    span: Span,
    sends: bool,
    /// Bytes transferred, including the header.
    done: usize,
    complete: bool,
}

impl Transfer {
    pub(crate) fn send(peer: usize, channel: Channel, span: Span) -> Self {
        Self { peer, channel, span, sends: true, done: 0, complete: false }
    }

    pub(crate) fn receive(peer: usize, channel: Channel, span: Span) -> Self {
        Self { peer, channel, span, sends: false, done: 0, complete: false }
    }

    pub(crate) fn peer(&self) -> usize {
        self.peer
    }

    pub(crate) fn tag(&self) -> u32 {
        self.channel.0 as u32
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    pub(crate) fn is_send(&self) -> bool {
        self.sends
    }
}

/// The connections of one group.
pub(crate) struct Links {
    group: u64,
    rank: usize,
    peers: Vec<Peer>,
    /// `None` in a world of one process.
    endpoint: Option<Arc<Endpoint>>,
    links: Vec<Option<Link>>,
    /// This rank's last collectives: the sender may be ahead of the rank that detects the mismatch.
    history: VecDeque<Signature>,
}

impl Links {
    pub(crate) fn new(group: u64, rank: usize, peers: Vec<Peer>, endpoint: Option<Arc<Endpoint>>) -> Self {
        let links = peers.iter().map(|_| None).collect();
        Self { group, rank, peers, endpoint, links, history: VecDeque::new() }
    }

    /// Connects to a rank: the higher of the two connects.
    fn open(&mut self, peer: usize, limit: &Limit) -> Result<()> {
        if self.links[peer].is_some() {
            return Ok(());
        }
        let Some(endpoint) = self.endpoint.clone().filter(|_| peer != self.rank) else {
            return Err(Error::value("a rank cannot send to itself or receive from itself"));
        };
        let stream = match self.rank < peer {
            true => endpoint.take(self.group, peer, self.peers[peer].rank, limit)?,
            false => self.dial(&endpoint, peer, limit)?,
        };
        stream.set_nonblocking(true)?;
        self.links[peer] = Some(Link { stream, head: [0; HEADER], head_len: 0, arriving: None, kept: HashMap::new() });
        Ok(())
    }

    fn dial(&self, endpoint: &Endpoint, peer: usize, limit: &Limit) -> Result<TcpStream> {
        let Peer { rank, addresses, port } = &self.peers[peer];
        let mut last = String::from("it has no address");
        loop {
            for &ip in addresses {
                match crate::store::dial(SocketAddr::new(ip, *port), &endpoint.state.secret, Purpose::Link) {
                    Ok(mut stream) => {
                        let mut hello = [0; 12];
                        hello[..8].copy_from_slice(&self.group.to_le_bytes());
                        hello[8..].copy_from_slice(&(self.rank as u32).to_le_bytes());
                        stream.write_all(&hello)?;
                        return Ok(stream);
                    }
                    Err(e) => last = format!("{ip}, port {port}: {e}"),
                }
            }
            limit.check(|| format!("a connection to rank {rank} ({last})"))?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs transfers concurrently until all are done.
    ///
    /// # Safety
    /// The spans are valid throughout, and nothing else writes to those received into or sent from.
    pub(crate) unsafe fn run(
        &mut self,
        transfers: &mut [Transfer],
        signature: &Signature,
        limit: &Limit,
    ) -> Result<()> {
        if self.history.back().is_none_or(|last| last.number != signature.number) && signature.number != 0 {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(*signature);
        }
        for i in 0..transfers.len() {
            self.open(transfers[i].peer, limit)?;
        }
        let mut polls: Vec<libc::pollfd> = Vec::new();
        loop {
            let mut moved = false;
            for i in 0..transfers.len() {
                if !transfers[i].complete && transfers[i].sends {
                    moved |= self.push(&mut transfers[i], signature)?;
                }
            }
            for peer in open_peers(transfers) {
                moved |= self.pull(peer, transfers, signature)?;
            }
            if transfers.iter().all(|t| t.complete) {
                return Ok(());
            }
            if moved {
                continue;
            }
            polls.clear();
            for peer in open_peers(transfers) {
                let Some(link) = &self.links[peer] else { continue };
                let sending = transfers.iter().any(|t| t.peer == peer && t.sends && !t.complete);
                let events = libc::POLLIN | if sending { libc::POLLOUT } else { 0 };
                polls.push(libc::pollfd { fd: link.stream.as_raw_fd(), events, revents: 0 });
            }
            // SAFETY: the array is valid and as long as said.
            unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, SLICE_MS) };
            limit.check(|| {
                let late = open_peers(transfers).into_iter().map(|peer| format!("rank {}", self.peers[peer].rank));
                late.collect::<Vec<_>>().join(", ")
            })?;
        }
    }

    fn gone(&self, peer: usize, why: &str) -> Error {
        Error::io(format!("rank {} closed its connection: {why}", self.peers[peer].rank))
    }

    /// Sends as much as the socket accepts. Returns whether any bytes were sent.
    fn push(&mut self, t: &mut Transfer, signature: &Signature) -> Result<bool> {
        let Some(link) = &self.links[t.peer] else { return Ok(false) };
        let mut head = [0; HEADER];
        head[..8].copy_from_slice(&t.channel.0.to_le_bytes());
        head[8..16].copy_from_slice(&(t.span.len as u64).to_le_bytes());
        head[16..].copy_from_slice(&signature.to_bytes());
        let before = t.done;
        while t.done < HEADER + t.span.len {
            // SAFETY: the span is valid by the contract of `run`.
            let body = unsafe { std::slice::from_raw_parts(t.span.ptr, t.span.len) };
            let result = if t.done < HEADER {
                (&link.stream).write_vectored(&[std::io::IoSlice::new(&head[t.done..]), std::io::IoSlice::new(body)])
            } else {
                (&link.stream).write(&body[t.done - HEADER..])
            };
            match result {
                Ok(0) => return Err(self.gone(t.peer, "it accepts no more data")),
                Ok(n) => t.done += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(t.done > before),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.gone(t.peer, &e.to_string())),
            }
        }
        t.complete = true;
        Ok(true)
    }

    /// Receives the bytes that have arrived from a rank. Returns whether there were any.
    fn pull(&mut self, peer: usize, transfers: &mut [Transfer], signature: &Signature) -> Result<bool> {
        let mut moved = self.hand_out(peer, transfers, signature)?;
        let wanted = |transfers: &[Transfer]| transfers.iter().any(|t| t.peer == peer && !t.complete);
        while wanted(transfers) {
            match self.read_some(peer, transfers, signature)? {
                0 => break,
                _ => moved = true,
            }
        }
        Ok(moved)
    }

    /// Delivers stored messages to the transfers that expect them now.
    fn hand_out(&mut self, peer: usize, transfers: &mut [Transfer], signature: &Signature) -> Result<bool> {
        let mut moved = false;
        for t in transfers.iter_mut().filter(|t| t.peer == peer && !t.sends && !t.complete && t.done == 0) {
            let Some(link) = &mut self.links[peer] else { break };
            let Some((theirs, mut bytes)) = link.kept.get_mut(&t.channel).and_then(VecDeque::pop_front) else {
                continue;
            };
            check_message(self.peers[peer].rank, t, &theirs, bytes.len(), signature, &self.history)?;
            // SAFETY: the span is valid by the contract of `run`.
            unsafe { t.span.copy_from(Span::of(&mut bytes)) };
            t.complete = true;
            moved = true;
        }
        Ok(moved)
    }

    fn read_some(&mut self, peer: usize, transfers: &mut [Transfer], signature: &Signature) -> Result<usize> {
        let rank = self.peers[peer].rank;
        let Some(link) = &mut self.links[peer] else { return Ok(0) };
        let result = match &mut link.arriving {
            None => (&link.stream).read(&mut link.head[link.head_len..]),
            Some(a) => match a.taker {
                Some(i) => {
                    let rest = transfers[i].span.part(a.got, a.len - a.got);
                    // SAFETY: the span is valid by the contract of `run`.
                    (&link.stream).read(unsafe { std::slice::from_raw_parts_mut(rest.ptr, rest.len) })
                }
                None => {
                    // Grows with the bytes received, not with the announced length.
                    let target = a.len.min(a.got + (1 << 20));
                    a.kept.resize(target, 0);
                    (&link.stream).read(&mut a.kept[a.got..target])
                }
            },
        };
        let n = match result {
            Ok(0) => return Err(self.gone(peer, "it ended")),
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(0),
            Err(e) => return Err(self.gone(peer, &e.to_string())),
        };
        match &mut link.arriving {
            Some(a) => a.got += n,
            None => {
                link.head_len += n;
                if link.head_len < HEADER {
                    return Ok(n);
                }
                link.head_len = 0;
                let word = |at: usize| u64::from_le_bytes(link.head[at..at + 8].try_into().unwrap_or_default());
                let (channel, len) = (Channel(word(0)), word(8));
                if len > MAX_MESSAGE {
                    return Err(Error::io(format!("rank {rank} sent a malformed message")));
                }
                let bytes = link.head[16..].first_chunk::<{ Signature::BYTES }>();
                let signature_of = bytes.map_or_else(|| Signature::new(""), Signature::from_bytes);
                let earlier = link.kept.get(&channel).is_some_and(|kept| !kept.is_empty());
                let taker = transfers
                    .iter()
                    .position(|t| t.peer == peer && !t.sends && !t.complete && t.done == 0 && t.channel == channel)
                    .filter(|_| !earlier);
                let arriving =
                    Arriving { channel, signature: signature_of, len: len as usize, got: 0, taker, kept: Vec::new() };
                if let Some(i) = taker {
                    check_message(rank, &transfers[i], &arriving.signature, arriving.len, signature, &self.history)?;
                    transfers[i].done = 1;
                }
                link.arriving = Some(arriving);
            }
        }
        if let Some(a) = link.arriving.take_if(|a| a.got == a.len) {
            match a.taker {
                Some(i) => transfers[i].complete = true,
                None => {
                    link.kept.entry(a.channel).or_default().push_back((a.signature, a.kept));
                    self.hand_out(peer, transfers, signature)?;
                }
            }
        }
        Ok(n)
    }
}

/// Ranks with transfers that are not done.
fn open_peers(transfers: &[Transfer]) -> Vec<usize> {
    let open = transfers.iter().enumerate().filter(|(_, t)| !t.complete);
    open.filter(|(i, t)| !transfers[..*i].iter().any(|u| !u.complete && u.peer == t.peer))
        .map(|(_, t)| t.peer)
        .collect()
}

/// Checks that a message matches its receiver. Point-to-point messages may differ in shape, but not in size.
fn check_message(
    from: usize,
    t: &Transfer,
    theirs: &Signature,
    len: usize,
    own: &Signature,
    history: &VecDeque<Signature>,
) -> Result<()> {
    let collective = t.channel == Channel::COLLECTIVE;
    let same = !collective || (theirs.matches(own) && theirs.number == own.number);
    if same && len == t.span.len {
        return Ok(());
    }
    if !collective {
        return Err(Error::value(format!(
            "rank {from} sent {len} bytes with {}, this rank expected {} bytes with {}",
            theirs.text(),
            t.span.len,
            own.text()
        )));
    }
    // Both ranks compare the collectives with the same number.
    let (differ, theirs_text) = ("the ranks called different collectives", theirs.text());
    Err(Error::value(match history.iter().find(|s| s.number == theirs.number).filter(|s| !s.matches(theirs)) {
        Some(earlier) => {
            format!("{differ}: rank {from} called {theirs_text}; this rank called {}", earlier.text())
        }
        None if theirs.number > own.number => format!(
            "{differ}: rank {from} has gone on to its collective {}, {theirs_text}, without its part in collective {}; this rank called {}",
            theirs.number,
            own.number,
            own.text()
        ),
        None => format!("{differ}: rank {from} called {theirs_text}; this rank called {}", own.text()),
    }))
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
