//! The client's side of the store over TCP.

use super::auth::{self, Purpose, Seal, TAG};
use super::frame::{self, Status};
use super::table::Op;
use super::{DEFAULT_TIMEOUT, Store, StoreServer, millis, timed_out};
use crate::launch::{Environment, Rendezvous, Secret, resolve};
use crate::net;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How much longer than an operation's timeout a client waits for the answer, in seconds. A server that is stopped (by
/// a debugger, by slow pinning of memory) answers later; the connection notices the end of its process or machine.
const PATIENCE_VARIABLE: &str = "RUSHLIGHT_STORE_PATIENCE";
const DEFAULT_PATIENCE: Duration = Duration::from_secs(300);
/// When a late answer is reported.
const NOTICE: Duration = Duration::from_secs(10);
/// How long a handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// A key-value store in one process of the job, which all others reach over TCP.
///
/// Both sides prove that they have the job's secret first, and every message is authenticated. The connection is not
/// encrypted.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// use rushlight::dist::launch::Secret;
/// use rushlight::dist::store::{Store, TcpStore};
/// let secret = Secret::random()?;
/// let server = TcpStore::host(&[0], true, secret.clone())?;
/// let client = TcpStore::connect("127.0.0.1", &[server.port()], secret)?;
/// server.set("key", b"value")?;
/// assert_eq!(client.get("key")?, b"value");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct TcpStore {
    /// `None` after the connection failed: it may have been in the middle of a message.
    stream: Mutex<Option<Box<Dialled>>>,
    address: SocketAddr,
    secret: Secret,
    server: Option<Arc<StoreServer>>,
    timeout: AtomicU64,
    patience: AtomicU64,
}

/// A connection whose handshake is done.
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    /// Seals of this side's frames, and of the other's.
    pub(crate) out: Seal,
    pub(crate) back: Seal,
}

impl TcpStore {
    /// Starts a server on the first free port of `ports` (0 means any) and connects to it.
    pub fn host(ports: &[u16], loopback: bool, secret: Secret) -> Result<Self> {
        let server = StoreServer::start(ports, loopback, secret.clone())?;
        let mut store = Self::connect("127.0.0.1", &[server.port()], secret.clone())
            .or_else(|_| Self::connect("::1", &[server.port()], secret))?;
        store.server = Some(Arc::new(server));
        Ok(store)
    }

    /// Starts a server on a socket that listens already, and connects to it.
    pub fn host_on(listener: TcpListener, secret: Secret) -> Result<Self> {
        let own = listener.local_addr()?.ip();
        let server = StoreServer::start_on(listener, secret.clone())?;
        let hosts = if own.is_unspecified() { vec!["127.0.0.1".into(), "::1".into()] } else { vec![own.to_string()] };
        let mut last = Error::io("store: the socket has no address");
        for host in hosts {
            match Self::connect(&host, &[server.port()], secret.clone()) {
                Ok(mut store) => {
                    store.server = Some(Arc::new(server));
                    return Ok(store);
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Connects to a server; retries until it is up or the default timeout has passed.
    pub fn connect(host: &str, ports: &[u16], secret: Secret) -> Result<Self> {
        Self::connect_within(host, ports, secret, DEFAULT_TIMEOUT)
    }

    /// The store of a launch's rendezvous: rank 0 is the server.
    pub fn meet(meeting: &Rendezvous, rank: usize, secret: Secret, timeout: Duration) -> Result<Self> {
        let store = if rank == 0 {
            let env = Environment::current();
            let ephemeral = crate::launch::ephemeral_range(&env);
            let (inside, outside): (Vec<u16>, Vec<u16>) =
                meeting.ports.iter().partition(|port| ephemeral.contains(port));
            let ports = [outside, inside].concat();
            // A second rank 0 would wait for ranks that have met the first. Asked again once this one listens, or
            // cannot: the two may start at the same moment.
            refuse_second_host(&ports, &secret)?;
            let hosted = Self::host(&ports, net::is_loopback(&meeting.host), secret.clone());
            let own = hosted.as_ref().map_or(0, Self::port);
            let others: Vec<u16> = ports.into_iter().filter(|&port| port != own).collect();
            refuse_second_host(&others, &secret)?;
            hosted?
        } else {
            Self::connect_within(&meeting.host, &meeting.ports, secret, timeout)?
        };
        store.set_timeout(timeout);
        Ok(store)
    }

    /// [`TcpStore::connect`] with a timeout. Tries all addresses of the host on all ports, again and again, until a
    /// store with the same secret answers.
    pub fn connect_within(host: &str, ports: &[u16], secret: Secret, timeout: Duration) -> Result<Self> {
        if ports.is_empty() || ports.contains(&0) {
            return Err(Error::value(format!(
                "store: a client of the store at {host} needs the port on which it listens; port 0 (any) is for the server"
            )));
        }
        let started = Instant::now();
        let deadline = started + timeout;
        let mut noticed = false;
        let env = Environment::current();
        let mut pause = Duration::from_millis(5);
        let mut last = String::from("nothing was tried");
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match resolve(host, &env, left.min(Duration::from_secs(10))) {
                Ok(addresses) => {
                    for address in
                        ports.iter().flat_map(|&port| addresses.iter().map(move |&ip| SocketAddr::new(ip, port)))
                    {
                        match dial(address, &secret, Purpose::Store) {
                            Ok(dialled) => {
                                return Ok(Self {
                                    stream: Mutex::new(Some(Box::new(dialled))),
                                    address,
                                    secret,
                                    server: None,
                                    timeout: AtomicU64::new(millis(DEFAULT_TIMEOUT)),
                                    patience: AtomicU64::new(millis(patience()?)),
                                });
                            }
                            // With a single port this must be the job's store.
                            Err(e) if e.kind() == ErrorKind::PermissionDenied && ports.len() == 1 => {
                                return Err(Error::io(format!(
                                    "store: {address} refused this process: {e}. All processes of a job need the same RUSHLIGHT_JOB_SECRET, or a home \
                                     directory they share; another job may also be using this port"
                                )));
                            }
                            Err(e) => last = format!("{address}: {e}"),
                        }
                    }
                }
                Err(e) => last = e.to_string(),
            }
            if Instant::now() >= deadline {
                return Err(Error::io(format!(
                    "store: no store of this job at {host}, port {}, within {} s (last: {last}). Is rank 0 running, on that host?",
                    net::list(ports),
                    timeout.as_secs_f32()
                )));
            }
            if !noticed && started.elapsed() > NOTICE {
                noticed = true;
                rushlight_core::warn!(
                    "no store of this job at {host}, port {}, for {} s (last: {last}); trying for {} s",
                    net::list(ports),
                    NOTICE.as_secs(),
                    timeout.as_secs()
                );
            }
            std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }

    /// Another connection to the same store, for a thread that blocks while others continue.
    pub fn another(&self) -> Result<Self> {
        let host = self.address.ip().to_string();
        let mut store =
            Self::connect_within(&host, &[self.address.port()], self.secret.clone(), Duration::from_secs(30))?;
        store.server = self.server.clone();
        store.set_timeout(self.timeout());
        Ok(store)
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// This machine's address on the route to the server.
    pub fn local_ip(&self) -> Option<std::net::IpAddr> {
        let stream = lock(&self.stream);
        stream.as_ref()?.stream.local_addr().ok().map(|a| a.ip())
    }

    /// Sets how much longer than an operation's timeout this connection waits for a store that does not answer.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.patience.store(millis(patience), Relaxed);
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The server, in the process that holds it.
    pub fn server(&self) -> Option<&StoreServer> {
        self.server.as_deref()
    }

    /// Makes the server set a key when this connection ends without notice: the death of a process becomes a key that
    /// others wait for.
    pub fn lease(&self, key: &str, value: &[u8]) -> Result<()> {
        self.call(Op::Lease, &[key.as_bytes(), value], self.timeout()).map(drop)
    }

    /// Releases the lease, before leaving on purpose.
    pub fn release(&self) -> Result<()> {
        self.call(Op::Lease, &[], self.timeout()).map(drop)
    }
}

/// RUSHLIGHT_STORE_PATIENCE, or its default.
fn patience() -> Result<Duration> {
    match std::env::var(PATIENCE_VARIABLE) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .ok()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(|| Error::value(format!("{PATIENCE_VARIABLE}={text} should be a number of seconds"))),
        _ => Ok(DEFAULT_PATIENCE),
    }
}

/// An error if a process of this job, and thus its rank 0, listens on one of the ports of this machine.
fn refuse_second_host(ports: &[u16], secret: &Secret) -> Result<()> {
    for &port in ports.iter().filter(|&&port| port != 0) {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let Ok(dialled) = dial_within(address, secret, Purpose::Store, Duration::from_secs(2)) else { continue };
        let store = TcpStore {
            stream: Mutex::new(Some(Box::new(dialled))),
            address,
            secret: secret.clone(),
            server: None,
            timeout: AtomicU64::new(2000),
            patience: AtomicU64::new(2000),
        };
        // The store of a world that is closing ends on its own.
        let first = match store.call(Op::Get, &[b"rank/0"], Duration::from_secs(1)) {
            Ok(card) => card.first().map(|card| String::from_utf8_lossy(card).into_owned()).unwrap_or_default(),
            Err(e) if e.to_string().contains("is lost") => continue,
            Err(_) => String::new(),
        };
        // The card's last line names its process.
        let first = first.lines().nth(3).map_or("a process".to_owned(), str::to_owned);
        return Err(Error::value(format!(
            "init_process_group: {first} holds the store of this job on port {port} as rank 0, and this process is rank 0 too: \
             RANK must differ between processes, and MASTER_PORT between jobs with one RUSHLIGHT_JOB_SECRET"
        )));
    }
    Ok(())
}

/// Connects and proves the secret.
pub(crate) fn dial(address: SocketAddr, secret: &Secret, purpose: Purpose) -> std::io::Result<Dialled> {
    dial_within(address, secret, purpose, HANDSHAKE_TIME)
}

fn dial_within(address: SocketAddr, secret: &Secret, purpose: Purpose, limit: Duration) -> std::io::Result<Dialled> {
    let stream = TcpStream::connect_timeout(&address, limit.min(Duration::from_secs(5)))?;
    // A port of this machine may connect to itself if nothing listens there.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    net::configure(&stream);
    if purpose == Purpose::Store {
        net::bound_silence(&stream);
    }
    let (out, back) = auth::connect(&stream, secret, purpose, address, limit)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    Ok(Dialled { stream, out, back })
}

/// Reads exactly, for at most `patience`; reports once that the answer is late.
fn read_patiently(
    stream: &mut TcpStream,
    mut bytes: &mut [u8],
    started: Instant,
    patience: Duration,
    notice: &mut Option<Duration>,
) -> Result<()> {
    while !bytes.is_empty() {
        let elapsed = started.elapsed();
        if elapsed >= patience {
            return Err(Error::io(format!(
                "no answer for {} s, although its machine answers: the process is stopped or overloaded ({PATIENCE_VARIABLE} sets the time)",
                elapsed.as_secs()
            )));
        }
        let until = notice.filter(|at| *at > elapsed).unwrap_or(patience).min(patience);
        stream.set_read_timeout(Some((until - elapsed).max(Duration::from_millis(1))))?;
        match stream.read(bytes) {
            Ok(0) => return Err(Error::io("it closed the connection")),
            Ok(n) => bytes = &mut bytes[n..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) && is_timeout(&e) => {
                if notice.take_if(|at| started.elapsed() >= *at).is_some() {
                    let peer =
                        stream.peer_addr().map_or_else(|_| "the store".to_owned(), |a| format!("the store at {a}"));
                    rushlight_core::warn!(
                        "{peer} has not answered for {} s: rank 0 is stopped or overloaded; waiting up to {} s \
                         ({PATIENCE_VARIABLE})",
                        started.elapsed().as_secs(),
                        patience.as_secs()
                    );
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Whether an error is the end of a wait, not the kernel's verdict that the other machine is gone.
fn is_timeout(e: &std::io::Error) -> bool {
    e.raw_os_error() != Some(libc::ETIMEDOUT)
}

fn exchange(
    dialled: &mut Dialled,
    message: Vec<u8>,
    timeout: Duration,
    patience: Duration,
) -> Result<(Status, Vec<Vec<u8>>)> {
    let Dialled { stream, out, back } = dialled;
    let message = out.seal(message);
    stream.write_all(&message)?;
    let (started, whole) = (Instant::now(), timeout.saturating_add(patience));
    let mut notice = Some(timeout.saturating_add(NOTICE)).filter(|at| *at < whole);
    let mut head = [0; 4];
    read_patiently(stream, &mut head, started, whole, &mut notice)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > frame::MAX_FRAME {
        return Err(Error::io(format!("an answer of {length} bytes was announced")));
    }
    // Grows with the bytes received, not with the announced length.
    let mut frame = head.to_vec();
    while frame.len() < 4 + length + TAG {
        let (at, next) = (frame.len(), (4 + length + TAG).min(frame.len() + (1 << 20)));
        frame.resize(next, 0);
        read_patiently(stream, &mut frame[at..], started, whole.saturating_add(DEFAULT_PATIENCE), &mut notice)?;
    }
    let (body, tag) = frame.split_at(4 + length);
    if !back.verify(body, tag) {
        return Err(Error::io("an answer has a wrong seal: something on the way has changed it"));
    }
    frame::parse_reply(&body[4..])
}

impl Store for TcpStore {
    fn try_clone(self: Arc<Self>) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.another()?))
    }

    fn call(&self, op: Op, args: &[&[u8]], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let message = frame::request(op, millis(timeout), args)?;
        let mut guard = lock(&self.stream);
        let lost =
            |why: &str| Error::io(format!("store: the connection to the store at {} is lost: {why}", self.address));
        let mut dialled = guard.take().ok_or_else(|| lost("an earlier call failed"))?;
        let patience = Duration::from_millis(self.patience.load(Relaxed));
        let (status, mut values) =
            exchange(&mut dialled, message, timeout, patience).map_err(|e| lost(&e.to_string()))?;
        *guard = Some(dialled);
        match status {
            Status::Done => Ok(values),
            Status::TimedOut => Err(timed_out(op, &values, timeout)),
            Status::Failed => {
                let why = values.pop().unwrap_or_default();
                Err(Error::value(String::from_utf8_lossy(&why).into_owned()))
            }
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.load(Relaxed))
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(millis(timeout), Relaxed);
    }
}
