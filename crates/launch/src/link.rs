//! The connection of a node's agent to the coordinator, and its recovery after a loss.

use crate::coordinator::{self, BELL, Command, EVENTS, Event, NodeInfo, Rules};
use crate::plan::Meeting;
use crate::signals;
use rushlight_core::{Error, ErrorKind, Result};
use rushlight_dist::launch::{self, Environment, Launch, Rendezvous};
use rushlight_dist::store::{HashStore, Store, TcpStore};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How long a node that a scheduler started tries to reach a lost rendezvous: nobody restarts that launcher.
const SCHEDULED_PATIENCE: Duration = Duration::from_secs(60);

/// How long one attempt to join again may take.
const REJOIN_ATTEMPT: Duration = Duration::from_secs(2);

/// The connection to the coordinator.
pub struct Link {
    store: Arc<dyn Store>,
    pub node: u64,
    /// Whether the store ends with this process.
    pub holds_store: bool,
    pub commands: Receiver<Result<Command>>,
    /// Readable when there is a command.
    pub woken: OwnedFd,
    /// The connection whose end signals this node's death to the others.
    _life: Option<TcpStore>,
    /// Set in the process that runs the coordinator; disconnected when it has ended.
    served: Option<Receiver<()>>,
}

impl Link {
    /// Joins the job. `watcher` is a connection to the same store, for a thread that waits for commands; `life` is the
    /// connection whose end signals this node's death; `coordinator` has the store and the rules of the one to run in
    /// this process.
    fn join(
        store: Arc<dyn Store>,
        watcher: Arc<dyn Store>,
        life: Option<TcpStore>,
        coordinator: Option<(Arc<dyn Store>, Rules)>,
        info: NodeInfo,
    ) -> Result<Self> {
        let (sender, commands) = mpsc::channel();
        let (woken, wake) = signals::pipe()?;
        let post = Post { sender, wake: Arc::new(wake) };
        let served = coordinator.map(|(store, rules)| serve(store, rules, post.clone())).transpose()?;
        let node = store.add("nodes", 1)? as u64;
        if let Some(life) = &life {
            life.lease(&format!("gone/{node}"), b"")?;
        }
        // Earlier commands concern other nodes.
        let mut next = store.add("commands", 0)? as u64 + 1;
        std::thread::Builder::new().name("rushlight-commands".into()).spawn(move || {
            loop {
                let key = format!("command/{next}");
                let news = match watcher.wait_for(&[&key], Duration::from_secs(30)) {
                    Err(e) if e.kind() == ErrorKind::Timeout => continue,
                    waited => waited.and_then(|()| watcher.get(&key)).and_then(|bytes| Command::decode(&bytes)),
                };
                next += 1;
                let failed = news.is_err();
                if !post.send(news) || failed {
                    return;
                }
            }
        })?;
        let link = Self { store, node, holds_store: served.is_some(), commands, woken, _life: life, served };
        link.tell(&Event::Join { node, info })?;
        Ok(link)
    }

    /// Sends an event to the coordinator, in one operation: an agent that dies meanwhile leaves no gap.
    pub fn tell(&self, event: &Event) -> Result<()> {
        self.store.append(EVENTS, format!("{}\n", event.encode()).as_bytes())?;
        self.store.set(BELL, b"")
    }

    /// Waits until the other nodes have read the job's end from the store in this process, for at most `patient`.
    pub fn finish(&self, patient: impl Fn() -> bool) {
        while let Some(served) = &self.served {
            match served.recv_timeout(Duration::from_millis(20)) {
                Err(RecvTimeoutError::Timeout) if patient() => {}
                _ => break,
            }
        }
    }
}

/// Sends commands to the agent's thread.
#[derive(Clone)]
struct Post {
    sender: Sender<Result<Command>>,
    /// Wakes the agent by a byte.
    wake: Arc<OwnedFd>,
}

impl Post {
    /// Returns whether the agent is still there.
    fn send(&self, news: Result<Command>) -> bool {
        // SAFETY: writes one byte to a pipe that is open as long as this is.
        self.sender.send(news).is_ok() && unsafe { libc::write(self.wake.as_raw_fd(), b"x".as_ptr().cast(), 1) } == 1
    }
}

/// The settings for joining a job, and for joining it again.
#[derive(Clone)]
pub struct Contact {
    /// The rendezvous; `None` for a job of one node.
    pub meeting: Option<Meeting>,
    pub env: Environment,
    pub run_id: String,
    pub rules: Rules,
    pub info: NodeInfo,
    /// The address of `--local-addr`.
    pub local_addr: Option<String>,
    /// Whether this process hosts the store, if the user sets it.
    pub is_host: Option<bool>,
}

impl Contact {
    /// Joins the job. The rendezvous store is created here, or reached within `patience`.
    pub fn join(&self, patience: Duration) -> Result<Link> {
        let mut info = self.info.clone();
        let Some(meeting) = &self.meeting else {
            let store: Arc<dyn Store> = Arc::new(HashStore::new());
            let coordinator = Some((store.clone(), self.rules.clone()));
            return Link::join(store.clone(), store, None, coordinator, info);
        };
        let (store, holds) = self.store(meeting, patience)?;
        info.address = self.address(&store, meeting)?;
        info.node_rank = meeting.node_rank;
        let coordinator = match holds {
            true => Some((Arc::new(store.another()?) as Arc<dyn Store>, self.rules.clone())),
            false => None,
        };
        let (watcher, life) = (store.another()?, store.another()?);
        Link::join(Arc::new(store), Arc::new(watcher), Some(life), coordinator, info)
    }

    /// The rendezvous, for messages.
    pub fn place(&self) -> String {
        match &self.meeting {
            Some(Meeting { host, ports, .. }) if ports.len() == 1 => format!("{host}:{}", ports[0]),
            Some(Meeting { host, .. }) => host.clone(),
            None => "this node".into(),
        }
    }

    /// How long a node tries to join again after it lost the rendezvous; `None` if it was in this process.
    pub fn patience(&self) -> Option<Duration> {
        let scheduled = self.meeting.as_ref()?.launch.is_some();
        Some(if scheduled { self.rules.join_timeout.min(SCHEDULED_PATIENCE) } else { self.rules.join_timeout })
    }

    /// Rejoins on a separate thread. The receiver gets the new link, after a byte in the pipe.
    pub fn rejoin(&self, patience: Duration) -> Result<Rejoining> {
        let mut contact = self.clone();
        contact.info.port = free_port()?;
        let (sender, link) = mpsc::channel();
        let (woken, wake) = signals::pipe()?;
        std::thread::Builder::new().name("rushlight-rejoin".into()).spawn(move || {
            let deadline = Instant::now() + patience;
            // The port of a new store may be in use for a moment: retry.
            let joined = loop {
                let left = deadline.saturating_duration_since(Instant::now());
                match contact.join(left.min(REJOIN_ATTEMPT)) {
                    Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
                    joined => break joined,
                }
            };
            let _ = sender.send(joined);
            // SAFETY: writes one byte to a pipe that this thread owns.
            unsafe { libc::write(wake.as_raw_fd(), b"x".as_ptr().cast(), 1) };
        })?;
        Ok(Rejoining { link, woken })
    }

    /// The agents' store, and whether it is in this process.
    fn store(&self, meeting: &Meeting, patience: Duration) -> Result<(TcpStore, bool)> {
        let rendezvous = Rendezvous {
            host: meeting.host.clone(),
            ports: meeting.ports.clone(),
            job: format!("rushlight run {}", self.run_id),
            reason: String::new(),
        };
        let launch = meeting.launch.clone().map_or_else(|| Launch::explicit(0, 1), Ok)?;
        let (secret, _) = launch::job_secret(&launch, &rendezvous)?;
        let holds = match (self.is_host, meeting.node_rank) {
            (Some(is_host), _) => is_host,
            (None, Some(rank)) => rank == 0,
            (None, None) => is_local(&meeting.host, &self.env),
        };
        let hosted = holds.then(|| TcpStore::host(&meeting.ports, is_loopback(&meeting.host), secret.clone()));
        let (store, holds) = match hosted {
            Some(Ok(store)) => (store, true),
            // Another launcher on this host was first, unless the order says that it is us.
            Some(Err(e)) if meeting.node_rank.is_some() => return Err(e),
            _ => {
                let store = TcpStore::connect_within(&meeting.host, &meeting.ports, secret, patience)
                    .map_err(|e| Error::io(format!("the launchers cannot meet: {e}")))?;
                (store, false)
            }
        };
        store.set_timeout(Duration::from_secs(30));
        Ok((store, holds))
    }

    /// The address by which other nodes reach this one.
    fn address(&self, store: &TcpStore, meeting: &Meeting) -> Result<String> {
        if let Some(address) = &self.local_addr {
            return Ok(address.clone());
        }
        if is_loopback(&meeting.host) {
            return Ok("127.0.0.1".into());
        }
        let all = launch::interfaces();
        let known = store.local_ip().filter(|ip| !ip.is_loopback());
        let route = known.or_else(|| launch::address_towards(&meeting.host, &all, &self.env));
        let addresses = launch::own_addresses(&all, &self.env, route)?;
        Ok(addresses.first().map_or_else(|| self.env.hostname().to_owned(), IpAddr::to_string))
    }
}

/// A link that is being made.
pub struct Rejoining {
    pub link: Receiver<Result<Link>>,
    /// Readable when there is a result.
    pub woken: OwnedFd,
}

/// Runs the coordinator on a separate thread. The receiver is disconnected when it ends. The agent hears of its error,
/// because nobody would answer any event.
fn serve(store: Arc<dyn Store>, rules: Rules, post: Post) -> Result<Receiver<()>> {
    let (ended, receiver) = mpsc::channel();
    std::thread::Builder::new().name("rushlight-coordinator".into()).spawn(move || {
        let run = AssertUnwindSafe(|| coordinator::serve(&*store, rules));
        let result = catch_unwind(run).unwrap_or_else(|_| Err(Error::io("it panicked")));
        if let Err(e) = result {
            post.send(Err(Error::io(format!("the coordinator ended early: {e}"))));
        }
        drop(ended);
    })?;
    Ok(receiver)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether a host is this one.
fn is_local(host: &str, env: &Environment) -> bool {
    let own = launch::interfaces();
    launch::resolve(host, env, Duration::from_secs(10))
        .is_ok_and(|found| found.iter().any(|ip| ip.is_loopback() || own.iter().any(|i| i.address == *ip)))
}

/// A port for rank 0: free now, and outside the ephemeral range.
pub fn free_port() -> Result<u16> {
    let mut seed = [0u8; 8];
    std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut seed))?;
    let name = format!("{} {}", std::process::id(), u64::from_le_bytes(seed));
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    rushlight_dist::launch::candidate_ports(&name).into_iter().find(free).ok_or_else(|| {
        Error::io("rushlight run: none of 16 ports between 15000 and 32767 is free on this node; give --master-port")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::tests as tests_of_coordinator;
    use rushlight_dist::launch::Secret;

    /// An agent learns that the coordinator in its own process has failed, while the job runs.
    #[test]
    fn an_error_of_the_coordinator_is_told_at_once() {
        let secret = Secret::new("of this test");
        let host = TcpStore::host(&[0], true, secret.clone()).unwrap();
        let lost = TcpStore::connect("127.0.0.1", &[host.port()], secret).unwrap();
        drop(host);
        let store: Arc<dyn Store> = Arc::new(HashStore::new());
        let coordinator = Some((Arc::new(lost) as Arc<dyn Store>, tests_of_coordinator::rules((1, 1), 0)));
        let link = Link::join(store.clone(), store, None, coordinator, tests_of_coordinator::info("1")).unwrap();
        let error = link.commands.recv_timeout(Duration::from_secs(20)).unwrap().unwrap_err().to_string();
        assert!(error.contains("the coordinator ended early"), "{error}");
        let mut byte = 0u8;
        // SAFETY: reads one byte from an open pipe.
        assert_eq!(unsafe { libc::read(link.woken.as_raw_fd(), (&raw mut byte).cast(), 1) }, 1);
    }
}
