//! The server of a [`TcpStore`](super::TcpStore): one thread over epoll for all connections.

use super::auth::{ANSWER, Challenge, HandshakeResult, PROOF, Purpose, Seal, TAG};
use super::frame::{self, MAX_FRAME, Status};
use super::table::{Op, Outcome, Table};
use crate::launch::Secret;
use crate::net;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a connection may take to prove the secret.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Maximum number of unauthenticated connections: of all addresses, and of one. The oldest is closed for a new one.
const MAX_STRANGERS: usize = 1024;
const MAX_STRANGERS_OF_ONE_ADDRESS: usize = 512;
/// Epoll tokens that are not connections.
const LISTENER: u64 = 0;
const WAKE: u64 = 1;

/// The server that holds a job's keys and values. Dropping it closes all connections.
pub struct StoreServer {
    port: u16,
    shared: Arc<ServerControl>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct ServerControl {
    stop: AtomicBool,
    refused: AtomicU64,
    wake: OwnedFd,
}

impl StoreServer {
    /// Listens on the first free port; 0 means any.
    ///
    /// The server answers on all interfaces, because only connections that prove the secret get past its greeting; with
    /// `loopback` only this machine can connect.
    pub fn start(ports: &[u16], loopback: bool, secret: Secret) -> Result<Self> {
        Self::start_on(listen(ports, loopback)?, secret)
    }

    /// Serves a socket that listens already.
    pub fn start_on(listener: TcpListener, secret: Secret) -> Result<Self> {
        net::raise_descriptor_limit();
        let port = listener.local_addr()?.port();
        listener.set_nonblocking(true)?;
        // SAFETY: `eventfd` gives a new descriptor or -1, which is checked.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let shared = Arc::new(ServerControl { stop: AtomicBool::new(false), refused: AtomicU64::new(0), wake });
        let mut serving = Serving::new(listener, secret, shared.clone())?;
        let thread = std::thread::Builder::new().name("rushlight-store".into()).spawn(move || serving.run())?;
        Ok(Self { port, shared, thread: Mutex::new(Some(thread)) })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Number of connections refused for a wrong or missing proof.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Relaxed)
    }
}

impl StoreServer {
    /// Closes all connections and the port, which another server can use at once.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
        // SAFETY: the descriptor is open; an eventfd takes eight bytes.
        unsafe { libc::write(self.shared.wake.as_raw_fd(), 1u64.to_ne_bytes().as_ptr().cast(), 8) };
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A listener on the first free port, for IPv6 and IPv4 where the machine has both.
/// The listener of a bound stream socket that the caller gives up.
pub fn listener_of(descriptor: RawFd) -> Result<TcpListener> {
    let (mut kind, mut length) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: `kind` and `length` are valid for writes; a descriptor that is none is an error.
    let asked = unsafe {
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut length)
    };
    // SAFETY: the descriptor is a socket, by the check before.
    if asked != 0 || kind != libc::SOCK_STREAM || unsafe { libc::listen(descriptor, 2048) } != 0 {
        return Err(Error::value(format!("TCPStore: master_listen_fd={descriptor} is not a bound stream socket")));
    }
    // SAFETY: a socket that the caller has detached, so nobody else closes it.
    Ok(unsafe { TcpListener::from_raw_fd(descriptor) })
}

fn listen(ports: &[u16], loopback: bool) -> Result<TcpListener> {
    let hosts: [IpAddr; 2] = if loopback {
        [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
    } else {
        // A listener on `::` accepts IPv4 too, unless the machine is configured otherwise.
        [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()]
    };
    let mut last = None;
    for &port in ports {
        for host in hosts {
            match TcpListener::bind((host, port)) {
                Ok(listener) => return Ok(listener),
                // The other family would find the same port in use, or worse, would get it.
                Err(e) if e.kind() == ErrorKind::AddrInUse => {
                    last = Some(e);
                    break;
                }
                Err(e) => last = Some(e),
            }
        }
    }
    let why = last.map(|e| e.to_string()).unwrap_or_else(|| "no port was given".into());
    Err(Error::io(format!("store: cannot listen on port {}: {why}", net::list(ports))))
}

enum Phase {
    /// Has not proved the secret yet.
    Stranger(Challenge),
    Ready,
    /// Waiting for a key.
    Blocked {
        op: Op,
        args: Vec<Vec<u8>>,
        key: Vec<u8>,
        timeout: Duration,
    },
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    /// Seals of the answers and of the requests, once the secret is proved.
    seals: Option<Box<(Seal, Seal)>>,
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    deadline: Option<Instant>,
    /// Set when the connection ends.
    lease: Option<(Vec<u8>, Vec<u8>)>,
    watches_output: bool,
}

/// Why a connection is closed.
enum Close {
    /// The peer disconnected, or was dropped for misbehaving after its proof.
    Ended,
    /// It never proved the secret.
    Refused(&'static str),
}

struct Serving {
    listener: TcpListener,
    epoll: OwnedFd,
    secret: Secret,
    shared: Arc<ServerControl>,
    table: Table,
    connections: HashMap<u64, Connection>,
    next: u64,
    strangers: usize,
    /// Which connections wait for a key.
    waiting: HashMap<Vec<u8>, Vec<u64>>,
    deadlines: BTreeSet<(Instant, u64)>,
}

impl Serving {
    fn new(listener: TcpListener, secret: Secret, shared: Arc<ServerControl>) -> Result<Self> {
        // SAFETY: `epoll_create1` gives a new descriptor or -1, which is checked.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let serving = Self {
            listener,
            epoll,
            secret,
            shared,
            table: Table::default(),
            connections: HashMap::new(),
            next: 2,
            strangers: 0,
            waiting: HashMap::new(),
            deadlines: BTreeSet::new(),
        };
        serving.watch(libc::EPOLL_CTL_ADD, serving.listener.as_raw_fd(), LISTENER, libc::EPOLLIN)?;
        serving.watch(libc::EPOLL_CTL_ADD, serving.shared.wake.as_raw_fd(), WAKE, libc::EPOLLIN)?;
        Ok(serving)
    }

    fn watch(&self, action: i32, fd: RawFd, token: u64, events: i32) -> std::io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: both descriptors are open and the event outlives the call.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), action, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    fn run(&mut self) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
        while !self.shared.stop.load(Relaxed) {
            let pause = self.deadlines.first().map_or(-1, |(at, _)| {
                // Rounded up, so that the deadline has passed when the wait ends.
                at.saturating_duration_since(Instant::now()).as_millis().min(60_000) as i32 + 1
            });
            // SAFETY: the array is writable and as long as said.
            let ready =
                unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, pause) };
            for event in events.iter().take(ready.max(0) as usize) {
                match event.u64 {
                    LISTENER => self.accept(),
                    WAKE => {}
                    token => self.progress(token),
                }
            }
            self.expire();
        }
    }

    fn accept(&mut self) {
        loop {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)) =>
                {
                    // No descriptor is free: the connection stays in the backlog until one is.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
                Err(_) => continue,
            };
            self.make_room(peer.ip());
            let Ok(challenge) = Challenge::new(Purpose::Store) else { continue };
            let token = self.next;
            if stream.set_nonblocking(true).is_err()
                || self.watch(libc::EPOLL_CTL_ADD, stream.as_raw_fd(), token, libc::EPOLLIN | libc::EPOLLRDHUP).is_err()
            {
                continue;
            }
            net::configure(&stream);
            net::bound_silence(&stream);
            self.next += 1;
            self.strangers += 1;
            let deadline = Instant::now() + GREETING_TIME;
            self.deadlines.insert((deadline, token));
            let connection = Connection {
                stream,
                peer,
                seals: None,
                output: challenge.greeting().to_vec(),
                phase: Phase::Stranger(challenge),
                input: Vec::new(),
                written: 0,
                deadline: Some(deadline),
                lease: None,
                watches_output: false,
            };
            self.connections.insert(token, connection);
            self.progress(token);
        }
    }

    /// Closes the oldest connection without proof if there are too many, in all or of one address.
    fn make_room(&mut self, ip: IpAddr) {
        // Counted only when there are many at all.
        if self.strangers < MAX_STRANGERS_OF_ONE_ADDRESS {
            return;
        }
        let address = crate::comm::counted(ip);
        let stranger = |c: &Connection| matches!(c.phase, Phase::Stranger(_));
        let same = |c: &Connection| crate::comm::counted(c.peer.ip()) == address;
        let of_one = self.connections.values().filter(|c| stranger(c) && same(c)).count();
        if of_one < MAX_STRANGERS_OF_ONE_ADDRESS && self.strangers < MAX_STRANGERS {
            return;
        }
        let of_one = of_one >= MAX_STRANGERS_OF_ONE_ADDRESS;
        // Strangers have equal times, so that deadlines are in order of arrival.
        let oldest = self
            .deadlines
            .iter()
            .map(|(_, token)| *token)
            .find(|token| self.connections.get(token).is_some_and(|c| stranger(c) && (!of_one || same(c))));
        if let Some(token) = oldest
            && let Some(connection) = self.connections.remove(&token)
        {
            self.close(token, connection, Close::Refused("too many connections without proof"));
        }
    }

    /// Reads, answers and writes until the connection would block.
    fn progress(&mut self, token: u64) {
        let Some(mut connection) = self.connections.remove(&token) else { return };
        match self.advance(token, &mut connection) {
            Ok(()) => {
                self.connections.insert(token, connection);
            }
            Err(close) => self.close(token, connection, close),
        }
    }

    fn advance(&mut self, token: u64, c: &mut Connection) -> Result<(), Close> {
        loop {
            flush(c)?;
            let more = receive(c)?;
            let mut answered = false;
            while c.output.is_empty() && !matches!(c.phase, Phase::Blocked { .. }) && self.handle(token, c)? {
                answered = true;
                flush(c)?;
            }
            if !more && !answered {
                break;
            }
        }
        let wants_output = !c.output.is_empty();
        if wants_output != c.watches_output {
            let events = libc::EPOLLIN | libc::EPOLLRDHUP | if wants_output { libc::EPOLLOUT } else { 0 };
            self.watch(libc::EPOLL_CTL_MOD, c.stream.as_raw_fd(), token, events).map_err(|_| Close::Ended)?;
            c.watches_output = wants_output;
        }
        Ok(())
    }

    /// Handles one message of the input; false if it is incomplete.
    fn handle(&mut self, token: u64, c: &mut Connection) -> Result<bool, Close> {
        if let Phase::Stranger(challenge) = &c.phase {
            let Some(answer) = c.input.first_chunk::<ANSWER>() else { return Ok(false) };
            let local = c.stream.local_addr().map_err(|_| Close::Ended)?;
            let (proof, seals) = match challenge.verify(&self.secret, answer, local) {
                HandshakeResult::Accepted(proof, seals) => (proof, seals),
                HandshakeResult::Elsewhere(told) => {
                    c.output = told.to_vec();
                    let _ = flush(c);
                    return Err(Close::Refused("it has dialled another address than this one"));
                }
                HandshakeResult::Refused => {
                    c.output = vec![0; PROOF];
                    let _ = flush(c);
                    return Err(Close::Refused("wrong proof of the job's secret"));
                }
            };
            c.input.drain(..ANSWER);
            c.output = proof.to_vec();
            c.seals = Some(seals);
            c.phase = Phase::Ready;
            self.strangers -= 1;
            self.clear_deadline(token, c);
            return Ok(true);
        }
        let (op, timeout, args, used) = {
            let Some((body, used)) = frame::split(&c.input).map_err(|_| Close::Ended)? else { return Ok(false) };
            let Some(tag) = c.input.get(used..used + TAG) else { return Ok(false) };
            let (_, theirs) = &mut **c.seals.as_mut().ok_or(Close::Ended)?;
            if !theirs.verify(&c.input[..used], tag) {
                return Err(Close::Ended);
            }
            let (op, timeout, args) = frame::parse_request(body).map_err(|_| Close::Ended)?;
            (op, timeout, args, used)
        };
        c.input.drain(..used + TAG);
        self.answer(token, c, op, args, Duration::from_millis(timeout));
        Ok(true)
    }

    fn answer(&mut self, token: u64, c: &mut Connection, op: Op, args: Vec<Vec<u8>>, timeout: Duration) {
        if op == Op::Lease && args.len() <= 2 {
            let mut args = args.into_iter();
            c.lease = args.next().zip(args.next());
            reply(c, Status::Done, &[]);
            return;
        }
        match self.table.apply(op, &args) {
            Ok(Outcome::Done(values)) => {
                reply(c, Status::Done, &values);
                if op.changes() {
                    let keys = args.into_iter().enumerate().filter(|(i, _)| op.is_key(*i)).map(|(_, key)| key);
                    keys.for_each(|key| self.notify(&key));
                }
            }
            Ok(Outcome::Blocked(key)) => {
                if c.deadline.is_none() {
                    let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
                    self.deadlines.insert((deadline, token));
                    c.deadline = Some(deadline);
                }
                self.waiting.entry(key.clone()).or_default().push(token);
                c.phase = Phase::Blocked { op, args, key, timeout };
            }
            Err(e) => reply(c, Status::Failed, &[e.to_string().into_bytes()]),
        }
    }

    /// Retries the requests that wait for a key.
    fn notify(&mut self, key: &[u8]) {
        for token in self.waiting.remove(key).unwrap_or_default() {
            let Some(mut c) = self.connections.remove(&token) else { continue };
            if let Phase::Blocked { op, args, timeout, .. } = std::mem::replace(&mut c.phase, Phase::Ready) {
                self.answer(token, &mut c, op, args, timeout);
                if !matches!(c.phase, Phase::Blocked { .. }) {
                    self.clear_deadline(token, &mut c);
                }
            }
            match self.advance(token, &mut c) {
                Ok(()) => {
                    self.connections.insert(token, c);
                }
                Err(close) => self.close(token, c, close),
            }
        }
    }

    fn clear_deadline(&mut self, token: u64, c: &mut Connection) {
        if let Some(deadline) = c.deadline.take() {
            self.deadlines.remove(&(deadline, token));
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(at, token)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, token));
            let Some(mut c) = self.connections.remove(&token) else { continue };
            c.deadline = None;
            if matches!(c.phase, Phase::Stranger(_)) {
                self.close(token, c, Close::Refused("no proof of the job's secret within 10 s"));
                continue;
            }
            if let Phase::Blocked { key, .. } = std::mem::replace(&mut c.phase, Phase::Ready) {
                self.stop_waiting(&key, token);
                reply(&mut c, Status::TimedOut, &[key]);
            }
            self.connections.insert(token, c);
            self.progress(token);
        }
    }

    fn stop_waiting(&mut self, key: &[u8], token: u64) {
        if let Some(tokens) = self.waiting.get_mut(key) {
            tokens.retain(|t| *t != token);
            if tokens.is_empty() {
                self.waiting.remove(key);
            }
        }
    }

    fn close(&mut self, token: u64, mut c: Connection, close: Close) {
        self.clear_deadline(token, &mut c);
        if let Phase::Blocked { key, .. } = &c.phase {
            self.stop_waiting(key, token);
        }
        if matches!(c.phase, Phase::Stranger(_)) {
            self.strangers -= 1;
            if let Close::Refused(why) = close {
                self.log_refusal(c.peer, why);
            }
        }
        // Closing the descriptor removes it from epoll.
        drop(c.stream);
        if let Some((key, value)) = c.lease {
            // The first report counts.
            if matches!(self.table.apply(Op::CompareSet, &[&key[..], b"", &value]), Ok(Outcome::Done(_))) {
                self.notify(&key);
            }
        }
    }

    fn log_refusal(&self, peer: SocketAddr, why: &str) {
        let count = self.shared.refused.fetch_add(1, Relaxed) + 1;
        // A port scan must not fill the log.
        if count <= 10 || count.is_power_of_two() {
            rushlight_core::warn!("the store refused a connection from {peer}: {why} ({count} so far)");
        }
    }
}

fn reply(c: &mut Connection, status: Status, items: &[Vec<u8>]) {
    let message = frame::reply(status, items).or_else(|e| frame::reply(Status::Failed, &[e.to_string()]));
    if let (Ok(message), Some(seals)) = (message, &mut c.seals) {
        c.output.extend_from_slice(&seals.0.seal(message));
    }
}

fn flush(c: &mut Connection) -> Result<(), Close> {
    while c.written < c.output.len() {
        match (&c.stream).write(&c.output[c.written..]) {
            Ok(0) => return Err(Close::Ended),
            Ok(n) => c.written += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Close::Ended),
        }
    }
    // Frees the buffers of large answers.
    c.output = Vec::new();
    c.written = 0;
    Ok(())
}

/// Reads the bytes that have arrived. Returns whether there may be more. A client may send at most one message ahead.
fn receive(c: &mut Connection) -> Result<bool, Close> {
    let limit = if matches!(c.phase, Phase::Stranger(_)) { ANSWER } else { MAX_FRAME + 4 + TAG };
    let mut buffer = [0u8; 16 << 10];
    let room = limit.saturating_sub(c.input.len()).min(buffer.len());
    if room == 0 {
        return Ok(false);
    }
    match (&c.stream).read(&mut buffer[..room]) {
        Ok(0) if matches!(c.phase, Phase::Stranger(_)) => Err(Close::Refused("closed without proof")),
        Ok(0) => Err(Close::Ended),
        Ok(n) => {
            c.input.extend_from_slice(&buffer[..n]);
            Ok(true)
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(e) if e.kind() == ErrorKind::Interrupted => Ok(true),
        Err(_) => Err(Close::Ended),
    }
}
