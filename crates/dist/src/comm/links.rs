//! Connections between pairs of ranks, made when first used.
//!
//! A connection carries messages in one direction: a rank dials those it sends to and accepts those it receives from.
//! So no send waits for the other rank's program. A message is a sealed header (kind, tag, length, the sender's
//! signature) and its bytes. Messages of one kind and tag arrive in order. While a rank waits, it reads from all its
//! connections and stores messages that arrive early: ranks that all send first do not deadlock, in pairs or in rings.

use super::abort::Limit;
use super::endpoint::{Accepted, Endpoint};
use super::reduce::Span;
use super::signature::Signature;
use crate::store::Dialled;
use crate::store::auth::{Purpose, Seal, TAG};
use rushlight_core::{Error, Result};
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Header without its tag: kind and tag as one number, length, signature.
const HEAD: usize = 16 + Signature::BYTES;
/// The whole header.
const HEADER: usize = HEAD + TAG;
/// Interval at which a wait in the kernel checks for abort and deadline.
const SLICE_MS: i32 = 50;
/// Number of this rank's collectives that are remembered.
const HISTORY: usize = 64;
/// Maximum length of a message. A longer announcement is invalid.
const MAX_MESSAGE: u64 = 1 << 40;
/// How long a rank whose listener cannot be reached is tried. It listens before it tells its address.
const REACH_TIME: Duration = Duration::from_secs(15);
/// How long nothing may arrive from a rank that has left, or be taken by it: its last messages may be under way.
const DEPARTURE_TIME: Duration = Duration::from_secs(2);

/// The purpose of a message: a collective, or a send with its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Channel(u64);

impl Channel {
    pub(crate) const COLLECTIVE: Channel = Channel(0);

    pub(crate) fn tagged(tag: u32) -> Self {
        Channel(1 << 32 | u64::from(tag))
    }
}

/// Addresses of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its rank in the world, for messages.
    pub(crate) rank: usize,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
}

/// The connections with a rank.
#[derive(Default)]
struct Link {
    /// To it.
    out: Option<(TcpStream, Seal)>,
    /// From it.
    back: Option<Incoming>,
    /// Why there is no connection from it any more.
    ended: Option<String>,
    kept: HashMap<Channel, VecDeque<(Signature, Vec<u8>)>>,
}

/// A connection from a rank.
struct Incoming {
    stream: TcpStream,
    seal: Seal,
    head: [u8; HEADER],
    head_len: usize,
    /// An incoming message: its channel, signature, length, and the bytes if it was not requested yet.
    arriving: Option<Arriving>,
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

/// What a wait in the kernel waits for.
#[derive(Default)]
struct Polls {
    entries: Vec<libc::pollfd>,
    /// The rank that each of the first entries is from; this rank for those to send on.
    ranks: Vec<usize>,
}

/// The connections of one group.
pub(crate) struct Links {
    group: u64,
    rank: usize,
    peers: Vec<Peer>,
    /// `None` in a world of one process.
    endpoint: Option<Arc<Endpoint>>,
    links: Vec<Link>,
    /// Readable when a connection of this group has been accepted.
    arrivals: Option<Arc<OwnedFd>>,
    /// This rank's last collectives: the sender may be ahead of the rank that detects the mismatch.
    history: VecDeque<Signature>,
    /// The rank whose messages a receive from any rank looks for first.
    turn: usize,
}

impl Links {
    pub(crate) fn new(group: u64, rank: usize, peers: Vec<Peer>, endpoint: Option<Arc<Endpoint>>) -> Self {
        let links = peers.iter().map(|_| Link::default()).collect();
        Self { group, rank, peers, endpoint, links, arrivals: None, history: VecDeque::new(), turn: 0 }
    }

    /// Prepares a transfer: connects to the rank if it is a send.
    fn open(&mut self, transfer: &Transfer, limit: &Limit) -> Result<()> {
        let peer = transfer.peer;
        let Some(endpoint) = self.endpoint.clone().filter(|_| peer != self.rank) else {
            return Err(Error::value("a rank cannot send to itself or receive from itself"));
        };
        self.welcome(&endpoint)?;
        if transfer.sends && self.links[peer].out.is_none() {
            let Dialled { stream, out, .. } = self.dial(&endpoint, peer, limit)?;
            stream.set_nonblocking(true)?;
            self.links[peer].out = Some((stream, out));
        }
        Ok(())
    }

    /// Takes connections of the group from now on.
    fn welcome(&mut self, endpoint: &Endpoint) -> Result<()> {
        if self.arrivals.is_none() {
            self.arrivals = Some(endpoint.waker(self.group)?);
            self.adopt();
        }
        Ok(())
    }

    /// Takes the connections that other ranks of the group have made.
    fn adopt(&mut self) {
        let Some(endpoint) = &self.endpoint else { return };
        for (peer, Accepted { stream, seal }) in endpoint.take(self.group) {
            let Some(link) = self.links.get_mut(peer as usize) else { continue };
            if stream.set_nonblocking(true).is_ok() {
                let (head, head_len, arriving) = ([0; HEADER], 0, None);
                link.back = Some(Incoming { stream, seal, head, head_len, arriving });
                link.ended = None;
            }
        }
    }

    fn dial(&self, endpoint: &Endpoint, peer: usize, limit: &Limit) -> Result<Dialled> {
        let Peer { rank, addresses, port } = &self.peers[peer];
        let mut last = vec![String::from("it has no address")];
        let started = Instant::now();
        // Whether something there accepts connections, even if it does not answer: a process may be stopped.
        let mut answered = false;
        loop {
            let mut tried = Vec::new();
            for &ip in addresses {
                match crate::store::dial(SocketAddr::new(ip, *port), endpoint.secret(), Purpose::Link(*rank)) {
                    Ok(mut dialled) => {
                        let mut hello = self.group.to_le_bytes().to_vec();
                        hello.extend_from_slice(&(self.rank as u32).to_le_bytes());
                        let hello = dialled.out.seal(hello);
                        dialled.stream.write_all(&hello)?;
                        return Ok(dialled);
                    }
                    Err(e) => {
                        answered |= !is_unreachable(e.kind());
                        tried.push(format!("{ip} port {port}: {e}"));
                    }
                }
                limit.check(|| format!("a connection to rank {rank} ({})", tried.join("; ")))?;
            }
            if !tried.is_empty() {
                last = tried;
            }
            let late = started.elapsed() > REACH_TIME;
            limit.check(|| format!("a connection to rank {rank} ({})", last.join("; ")))?;
            if late && !answered {
                return Err(Error::io(format!(
                    "rank {} cannot reach rank {rank} for {} s ({}). GLOO_SOCKET_IFNAME or `rushlight run --local-addr` chooses \
                     the address that a node gives to the others",
                    self.peers[self.rank].rank,
                    started.elapsed().as_secs(),
                    last.join("; ")
                )));
            }
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
        for transfer in transfers.iter() {
            self.open(transfer, limit)?;
        }
        let mut polls = Polls::default();
        let mut moved_at = Instant::now();
        loop {
            let mut moved = false;
            for i in 0..transfers.len() {
                // One message after another: the parts of two must not mix.
                let blocked = |t: &Transfer| t.sends && !t.complete && t.peer == transfers[i].peer;
                if !transfers[i].complete && transfers[i].sends && !transfers[..i].iter().any(blocked) {
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
                moved_at = Instant::now();
                continue;
            }
            for peer in open_peers(transfers) {
                let waits = |t: &Transfer| t.peer == peer && !t.sends && !t.complete;
                if let Some(why) = &self.links[peer].ended
                    && transfers.iter().any(waits)
                {
                    return Err(self.gone(peer, why));
                }
            }
            if self.sleep(&mut polls, transfers, signature)? {
                moved_at = Instant::now();
            }
            let late = || {
                let late = open_peers(transfers).into_iter().map(|peer| format!("rank {}", self.peers[peer].rank));
                late.collect::<Vec<_>>().join(", ")
            };
            limit.check(late)?;
            if moved_at.elapsed() > DEPARTURE_TIME {
                let departed = |&peer: &usize| limit.abort.has_departed(self.peers[peer].rank);
                if let Some(peer) = open_peers(transfers).into_iter().find(departed) {
                    return Err(Error::io(format!("rank {} has left the job", self.peers[peer].rank)));
                }
            }
        }
    }

    /// Waits for the kernel, for a short time: for bytes from any rank, which are read, room to send, new connections.
    /// Returns whether bytes came.
    fn sleep(&mut self, polls: &mut Polls, transfers: &mut [Transfer], signature: &Signature) -> Result<bool> {
        let Polls { entries, ranks } = polls;
        entries.clear();
        ranks.clear();
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        for (peer, link) in self.links.iter().enumerate() {
            if let Some(back) = &link.back {
                entries.push(entry(back.stream.as_raw_fd(), libc::POLLIN));
                ranks.push(peer);
            }
            if let Some((stream, _)) = &link.out
                && transfers.iter().any(|t| t.peer == peer && t.sends && !t.complete)
            {
                entries.push(entry(stream.as_raw_fd(), libc::POLLOUT));
                ranks.push(self.rank);
            }
        }
        entries.extend(self.arrivals.iter().map(|fd| entry(fd.as_raw_fd(), libc::POLLIN)));
        // SAFETY: the array is valid and as long as said.
        unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, SLICE_MS) };
        if entries.len() > ranks.len() && entries[ranks.len()].revents != 0 {
            if let Some(fd) = &self.arrivals {
                super::endpoint::drain(fd);
            }
            self.adopt();
        }
        let mut moved = false;
        for (poll, &peer) in entries.iter().zip(ranks.iter()) {
            if poll.revents != 0 && peer != self.rank {
                // Also from ranks that nothing is expected of: theirs must not wait for this rank's next call.
                while self.read_some(peer, transfers, signature)? > 0 {
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    /// Waits for a message of a channel from any rank. Returns the rank; a receive from it gets the message.
    pub(crate) fn probe(&mut self, channel: Channel, signature: &Signature, limit: &Limit) -> Result<usize> {
        let Some(endpoint) = self.endpoint.clone() else {
            return Err(Error::value("a process that is alone cannot receive from another"));
        };
        self.welcome(&endpoint)?;
        let (size, mut polls) = (self.peers.len(), Polls::default());
        let mut moved_at = Instant::now();
        loop {
            let has = |link: &Link| link.kept.get(&channel).is_some_and(|kept| !kept.is_empty());
            // In turns, so that no rank's messages wait behind another's for ever.
            if let Some(peer) = (0..size).map(|i| (self.turn + i) % size).find(|&peer| has(&self.links[peer])) {
                self.turn = (peer + 1) % size;
                return Ok(peer);
            }
            if self.sleep(&mut polls, &mut [], signature)? {
                moved_at = Instant::now();
                continue;
            }
            limit.check(|| "a message of any rank".into())?;
            let departed = |peer: usize| peer == self.rank || limit.abort.has_departed(self.peers[peer].rank);
            if moved_at.elapsed() > DEPARTURE_TIME && (0..size).all(departed) {
                return Err(Error::io("a message of any rank cannot come: all others have left the job"));
            }
        }
    }

    fn gone(&self, peer: usize, why: &str) -> Error {
        Error::io(format!("rank {} closed its connection: {why}", self.peers[peer].rank))
    }

    /// Sends as much as the socket accepts. Returns whether any bytes were sent.
    fn push(&mut self, t: &mut Transfer, signature: &Signature) -> Result<bool> {
        let Some((stream, seal)) = &mut self.links[t.peer].out else { return Ok(false) };
        let mut head = [0; HEADER];
        if t.done < HEADER {
            head[..8].copy_from_slice(&t.channel.0.to_le_bytes());
            head[8..16].copy_from_slice(&(t.span.len as u64).to_le_bytes());
            head[16..HEAD].copy_from_slice(&signature.to_bytes());
            let tag = seal.tag(&head[..HEAD]);
            head[HEAD..].copy_from_slice(&tag);
        }
        let before = t.done;
        while t.done < HEADER + t.span.len {
            // SAFETY: the span is valid by the contract of `run`.
            let body = unsafe { std::slice::from_raw_parts(t.span.ptr, t.span.len) };
            let result = if t.done < HEADER {
                stream.write_vectored(&[std::io::IoSlice::new(&head[t.done..]), std::io::IoSlice::new(body)])
            } else {
                stream.write(&body[t.done - HEADER..])
            };
            match result {
                Ok(0) => return Err(self.gone(t.peer, "it accepts no more data")),
                Ok(n) => t.done += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(t.done > before),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.gone(t.peer, &e.to_string())),
            }
        }
        seal.advance();
        t.complete = true;
        Ok(true)
    }

    /// Receives the bytes that have arrived from a rank. Returns whether there were any.
    fn pull(&mut self, peer: usize, transfers: &mut [Transfer], signature: &Signature) -> Result<bool> {
        let mut moved = self.hand_out(peer, transfers, signature)?;
        let wanted = |transfers: &[Transfer]| transfers.iter().any(|t| t.peer == peer && !t.complete && !t.sends);
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
            let Some((theirs, mut bytes)) = self.links[peer].kept.get_mut(&t.channel).and_then(VecDeque::pop_front)
            else {
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

    /// Reads once from a rank. Returns the number of bytes; 0 if there are none now. The end of the connection is kept;
    /// it is an error only for a transfer that waits for it.
    fn read_some(&mut self, peer: usize, transfers: &mut [Transfer], signature: &Signature) -> Result<usize> {
        let rank = self.peers[peer].rank;
        let Link { back, kept, ended, .. } = &mut self.links[peer];
        let Some(link) = back else { return Ok(0) };
        let result = match &mut link.arriving {
            None => link.stream.read(&mut link.head[link.head_len..]),
            Some(a) => match a.taker {
                Some(i) => {
                    let rest = transfers[i].span.part(a.got, a.len - a.got);
                    // SAFETY: the span is valid by the contract of `run`.
                    link.stream.read(unsafe { std::slice::from_raw_parts_mut(rest.ptr, rest.len) })
                }
                None => {
                    // Grows with the bytes received, not with the announced length.
                    let target = a.len.min(a.got + (1 << 20));
                    a.kept.resize(target, 0);
                    link.stream.read(&mut a.kept[a.got..target])
                }
            },
        };
        let n = match result {
            Ok(n) if n > 0 => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(0),
            end => {
                *ended = Some(end.map_or_else(|e| e.to_string(), |_| "it ended".into()));
                *back = None;
                return Ok(0);
            }
        };
        match &mut link.arriving {
            Some(a) => a.got += n,
            None => {
                link.head_len += n;
                if link.head_len < HEADER {
                    return Ok(n);
                }
                link.head_len = 0;
                let (head, tag) = link.head.split_at(HEAD);
                if !link.seal.verify(head, tag) {
                    return Err(Error::io(format!(
                        "a message on rank {rank}'s connection is malformed or not rank {rank}'s: its seal is wrong"
                    )));
                }
                let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
                let (channel, len) = (Channel(word(0)), word(8));
                if len > MAX_MESSAGE {
                    return Err(Error::io(format!("rank {rank} sent a malformed message")));
                }
                let bytes = head[16..].first_chunk::<{ Signature::BYTES }>();
                let signature_of = bytes.map_or_else(|| Signature::new(""), Signature::from_bytes);
                let earlier = kept.get(&channel).is_some_and(|kept| !kept.is_empty());
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
                    kept.entry(a.channel).or_default().push_back((a.signature, a.kept));
                    self.hand_out(peer, transfers, signature)?;
                }
            }
        }
        Ok(n)
    }
}

/// Whether an error says that nothing accepts connections at an address, or nothing of this job.
fn is_unreachable(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionRefused
            | ErrorKind::TimedOut
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::AddrNotAvailable
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidData
            | ErrorKind::InvalidInput
    )
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
