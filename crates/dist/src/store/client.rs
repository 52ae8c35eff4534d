//! The client's side of the store over TCP.

use super::auth::{self, Purpose};
use super::frame::{self, Status};
use super::table::Op;
use super::{DEFAULT_TIMEOUT, Store, StoreServer, millis, timed_out};
use crate::launch::{Environment, Rendezvous, Secret, resolve};
use crate::net;
use rushlight_core::{Error, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How much longer than the server's timeout a client waits for an answer.
const GRACE: Duration = Duration::from_secs(10);

/// A key-value store in one process of the job, which all others reach over TCP.
///
/// Both sides prove that they have the job's secret first. The connection is not encrypted.
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
    stream: Mutex<Option<TcpStream>>,
    address: SocketAddr,
    secret: Secret,
    server: Option<Arc<StoreServer>>,
    timeout: AtomicU64,
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
            Self::host(&[outside, inside].concat(), net::is_loopback(&meeting.host), secret)?
        } else {
            Self::connect_within(&meeting.host, &meeting.ports, secret, timeout)?
        };
        store.set_timeout(timeout);
        Ok(store)
    }

    /// [`TcpStore::connect`] with a timeout. Tries all addresses of the host on all ports, again and again, until a
    /// store with the same secret answers.
    pub fn connect_within(host: &str, ports: &[u16], secret: Secret, timeout: Duration) -> Result<Self> {
        let deadline = Instant::now() + timeout;
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
                            Ok(stream) => {
                                return Ok(Self {
                                    stream: Mutex::new(Some(stream)),
                                    address,
                                    secret,
                                    server: None,
                                    timeout: AtomicU64::new(millis(DEFAULT_TIMEOUT)),
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
        let stream = self.stream.lock().unwrap_or_else(|e| e.into_inner());
        stream.as_ref()?.local_addr().ok().map(|a| a.ip())
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

/// Connects and proves the secret.
pub(crate) fn dial(address: SocketAddr, secret: &Secret, purpose: Purpose) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    net::configure(&stream);
    if purpose == Purpose::Store {
        net::bound_silence(&stream);
    }
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    auth::connect(&mut stream, secret, purpose)?;
    Ok(stream)
}

fn exchange(stream: &mut TcpStream, message: &[u8]) -> Result<(Status, Vec<Vec<u8>>)> {
    stream.write_all(message)?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > frame::MAX_FRAME {
        return Err(Error::io(format!("an answer of {length} bytes was announced")));
    }
    let mut body = Vec::new();
    stream.take(length as u64).read_to_end(&mut body)?;
    if body.len() != length {
        return Err(Error::io("the connection was closed in the middle of an answer"));
    }
    frame::parse_reply(&body)
}

impl Store for TcpStore {
    fn call(&self, op: Op, args: &[&[u8]], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let message = frame::request(op, millis(timeout), args)?;
        let mut guard = self.stream.lock().unwrap_or_else(|e| e.into_inner());
        let lost =
            |why: &str| Error::io(format!("store: the connection to the store at {} is lost: {why}", self.address));
        let mut stream = guard.take().ok_or_else(|| lost("an earlier call failed"))?;
        stream.set_read_timeout(Some(timeout.saturating_add(GRACE)))?;
        let (status, mut values) = exchange(&mut stream, &message).map_err(|e| lost(&e.to_string()))?;
        *guard = Some(stream);
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
