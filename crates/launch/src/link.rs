//! The connection of a node's agent to the coordinator, and its recovery after a loss.

use crate::coordinator::{self, BELL, Command, EVENTS, Event, NodeInfo, Rules};
use crate::plan::Meeting;
use crate::signals;
use rushlight_core::{Error, ErrorKind, Result};
use rushlight_dist::launch::{self, Environment, Launch, Rendezvous};
use rushlight_dist::store::{HashStore, Store, TcpStore};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
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
    /// Set in the process that runs the coordinator; receives its result when it ends.
    served: Option<Receiver<Result<()>>>,
}

impl Link {
    /// Joins the job. `watcher` is a connection to the same store, for a thread that waits for commands; `life` is the
    /// connection whose end signals this node's death.
    fn join(
        store: Arc<dyn Store>,
        watcher: Arc<dyn Store>,
        life: Option<TcpStore>,
        served: Option<Receiver<Result<()>>>,
        info: NodeInfo,
    ) -> Result<Self> {
        let node = store.add("nodes", 1)? as u64;
        if let Some(life) = &life {
            life.lease(&format!("gone/{node}"), b"")?;
        }
        // Earlier commands concern other nodes.
        let mut next = store.add("commands", 0)? as u64 + 1;
        let (sender, commands) = mpsc::channel();
        let (woken, wake) = signals::pipe()?;
        std::thread::Builder::new().name("rushlight-commands".into()).spawn(move || {
            loop {
                let key = format!("command/{next}");
                let news = match watcher.wait_for(&[&key], Duration::from_secs(30)) {
                    Err(e) if e.kind() == ErrorKind::Timeout => continue,
                    waited => waited.and_then(|()| watcher.get(&key)).and_then(|bytes| Command::decode(&bytes)),
                };
                next += 1;
                let failed = news.is_err();
                // SAFETY: writes one byte to a pipe that this thread owns.
                let written =
                    sender.send(news).is_ok() && unsafe { libc::write(wake.as_raw_fd(), b"x".as_ptr().cast(), 1) } == 1;
                if failed || !written {
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

    /// The error with which a coordinator in this process has ended before the job.
    pub fn coordinator_error(&self) -> Option<Error> {
        match self.served.as_ref()?.try_recv() {
            Ok(Err(e)) => Some(e),
            _ => None,
        }
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
            let served = Some(serve(store.clone(), self.rules.clone())?);
            return Link::join(store.clone(), store, None, served, info);
        };
        let (store, holds) = self.store(meeting, patience)?;
        info.address = self.address(&store, meeting)?;
        info.node_rank = meeting.node_rank;
        let served = if holds { Some(serve(Arc::new(store.another()?), self.rules.clone())?) } else { None };
        let (watcher, life) = (store.another()?, store.another()?);
        Link::join(Arc::new(store), Arc::new(watcher), Some(life), served, info)
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
        let chosen = launch::choose_interface(&all, &self.env)?;
        let by_user = ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"].iter().any(|name| self.env.get(name).is_some());
        let best = chosen.as_ref().filter(|interface| by_user || interface.is_fast()).map(|i| i.address);
        // By the route to the rendezvous, whatever the interface is called.
        let on_the_way = store.local_ip().filter(|ip| !ip.is_loopback());
        let route = || on_the_way.or_else(|| launch::address_towards(&meeting.host, &all, &self.env));
        let address = best.or_else(route).or(chosen.map(|interface| interface.address));
        Ok(address.map_or_else(|| self.env.hostname().to_owned(), |ip| ip.to_string()))
    }
}

/// A link that is being made.
pub struct Rejoining {
    pub link: Receiver<Result<Link>>,
    /// Readable when there is a result.
    pub woken: OwnedFd,
}

/// Runs the coordinator on a separate thread. The receiver gets its result when it ends.
fn serve(store: Arc<dyn Store>, rules: Rules) -> Result<Receiver<Result<()>>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().name("rushlight-coordinator".into()).spawn(move || {
        let _ = sender.send(coordinator::serve(&*store, rules));
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

    /// An agent learns that the coordinator in its own process has failed, while the job runs.
    #[test]
    fn an_error_of_the_coordinator_is_told_at_once() {
        let store: Arc<dyn Store> = Arc::new(HashStore::new());
        let served = serve(store.clone(), tests_of_coordinator::rules((1, 1), 0)).unwrap();
        let link = Link::join(store.clone(), store, None, Some(served), tests_of_coordinator::info("1")).unwrap();
        assert!(matches!(link.commands.recv_timeout(Duration::from_secs(20)), Ok(Ok(Command::Round(_)))));
        assert!(link.coordinator_error().is_none());
        link.store.append(EVENTS, b"nonsense\n").unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let error = loop {
            match link.coordinator_error() {
                Some(error) => break error,
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                None => panic!("the coordinator's error is not told"),
            }
        };
        assert!(error.to_string().contains("not understood"), "{error}");
    }
}
