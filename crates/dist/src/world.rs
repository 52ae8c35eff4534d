//! The world of a program: its rank, its store, its groups.

use crate::comm::{Communicator, Endpoint, Links, Peer, Shared};
use crate::group::{ProcessGroup, TcpGroup};
use crate::job::{Job, Network};
use crate::launch::{self, Environment, Launch, Rendezvous, Secret, random_bytes};
use crate::store::{FileStore, HashStore, PrefixStore, Store, TcpStore};
use rushlight_core::{Device, Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long collectives may take unless told otherwise, as PyTorch's groups over Gloo.
pub const DEFAULT_GROUP_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Names of engines that programs may ask for. All mean the best engine there is.
const BACKENDS: [&str; 7] = ["", "tcp", "gloo", "nccl", "ccl", "xccl", "mpi"];

/// How a world is set up. The defaults follow the launcher.
#[derive(Clone)]
pub struct Init {
    backend: String,
    timeout: Duration,
    method: String,
    place: Option<(usize, usize)>,
    node: Option<String>,
    store: Option<Arc<dyn Store>>,
}

impl Default for Init {
    fn default() -> Self {
        Self::new()
    }
}

impl Init {
    /// The launcher's rank and world, the best engine, a timeout of 30 minutes.
    pub fn new() -> Self {
        Self {
            backend: String::new(),
            timeout: DEFAULT_GROUP_TIMEOUT,
            method: "env://".into(),
            place: None,
            node: None,
            store: None,
        }
    }

    /// The engine: `tcp`. PyTorch's and others' names (`gloo`, `nccl`, `ccl`, `xccl`, `mpi`) are taken and mean the
    /// best there is.
    pub fn backend(mut self, name: &str) -> Self {
        self.backend = name.into();
        self
    }

    /// How long a collective, and the meeting of the ranks, may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Where the ranks meet: `env://` (the launcher's way), `tcp://host:port`, or `file:///path` on a file system
    /// they share.
    pub fn method(mut self, url: &str) -> Self {
        self.method = url.into();
        self
    }

    /// Rank and world size, instead of the launcher's.
    pub fn place(mut self, rank: usize, world_size: usize) -> Self {
        self.place = Some((rank, world_size));
        self
    }

    /// The name of this rank's node. Ranks whose nodes have the same name use shared memory; by default the machine
    /// says.
    pub fn node(mut self, name: &str) -> Self {
        self.node = Some(name.into());
        self
    }

    /// A store that the ranks share already, in which they meet instead of by [`Init::method`]. Whoever can read it can
    /// join the job: rank 0 leaves the job's secret there.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Meets the other ranks.
    pub fn build(self) -> Result<World> {
        World::new(self)
    }
}

/// Meets the other ranks as the launcher says; alone if there is none.
///
/// ```
/// use rushlight_dist::{ProcessGroup, ReduceOp};
/// let world = rushlight_dist::init()?;
/// let x = rushlight_tensor::Tensor::new([1.0f32, 2.0])?;
/// world.all_reduce(&x, ReduceOp::Sum)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn init() -> Result<World> {
    Init::new().build()
}

/// This process among its peers: rank, size, store, and the group of all.
///
/// Dropping it leaves the job in good order. A process that ends without that is taken for dead, and every other
/// rank's collectives fail with its name.
pub struct World {
    launch: Launch,
    job: Arc<Job>,
    group: Arc<dyn ProcessGroup>,
    store: Arc<dyn Store>,
}

impl World {
    fn new(init: Init) -> Result<Self> {
        if !BACKENDS.contains(&init.backend.as_str()) {
            return Err(Error::value(format!(
                "init_process_group: unknown backend {:?}; tcp, gloo, nccl, ccl, xccl and mpi are known",
                init.backend
            )));
        }
        let env = Environment::current();
        let launch = match init.place {
            Some((rank, size)) => Launch::explicit(rank, size)?,
            None => launch::detect_from(&env)?,
        };
        if let Some(advice) = &launch.advice {
            eprintln!("rushlight: {advice}");
        }
        if launch.world_size == 1 {
            return Self::alone(launch, init.timeout);
        }
        let store = meet(&launch, &env, &init)?;
        let job = Arc::new(join(&launch, &env, &init, store)?);
        job.watch()?;
        let ranks: Vec<usize> = (0..launch.world_size).collect();
        let group = make_group(&job, "world", ranks, init.timeout)?;
        let store: Arc<dyn Store> = match &job.network {
            Some(network) => Arc::new(PrefixStore::new("user", network.store.clone())),
            None => Arc::new(HashStore::new()),
        };
        Ok(Self { launch, job, group, store })
    }

    fn alone(launch: Launch, timeout: Duration) -> Result<Self> {
        let job = Arc::new(Job::new(0, 1, None));
        let group = make_group(&job, "world", vec![0], timeout)?;
        Ok(Self { launch, job, group, store: Arc::new(HashStore::new()) })
    }

    /// How this process was started.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// This rank among those of its node. The launcher says, or the ranks have found out when they met.
    pub fn local_rank(&self) -> usize {
        let before = |nodes: &[usize]| nodes[..self.job.rank].iter().filter(|n| **n == nodes[self.job.rank]).count();
        self.launch.local_rank.unwrap_or_else(|| self.job.network.as_ref().map_or(0, |network| before(&network.nodes)))
    }

    /// Number of ranks on this node.
    pub fn local_size(&self) -> usize {
        let same = |nodes: &[usize]| nodes.iter().filter(|n| **n == nodes[self.job.rank]).count();
        self.launch.local_size.unwrap_or_else(|| self.job.network.as_ref().map_or(1, |network| same(&network.nodes)))
    }

    /// This rank's device: the GPU that follows from its local rank and from what the launcher left visible, or the CPU.
    pub fn device(&self) -> Device {
        let Some(engine) = rushlight_engines::accelerator() else { return Device::Cpu };
        let launch = Launch { local_rank: Some(self.local_rank()), ..self.launch.clone() };
        launch::choose_device(&launch, &Environment::current(), engine.count().unwrap_or(0))
            .map_or(Device::Cpu, |choice| engine.device(choice.index))
    }

    /// A store for the program's own keys.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// A function that says why the job cannot go on, once another rank has died, hung or failed. It waits for nothing
    /// and may be called by any thread.
    pub fn failure(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let job = self.job.clone();
        move || job.abort.check().err().map(|e| e.to_string())
    }

    /// The group of all ranks.
    pub fn group(&self) -> &Arc<dyn ProcessGroup> {
        &self.group
    }

    /// A group of some ranks of the world, in the order given. Every rank of the world must call this, in the same
    /// order of calls; those that are not in the group get `None`.
    pub fn new_group(&self, ranks: &[usize]) -> Result<Option<Arc<dyn ProcessGroup>>> {
        self.new_group_with(ranks, self.group.timeout())
    }

    /// [`World::new_group`] with a timeout of its own.
    pub fn new_group_with(&self, ranks: &[usize], timeout: Duration) -> Result<Option<Arc<dyn ProcessGroup>>> {
        let mut seen = vec![false; self.job.size];
        for &rank in ranks {
            match seen.get_mut(rank) {
                Some(once) if !*once => *once = true,
                _ => {
                    return Err(Error::value(format!(
                        "new_group: rank {rank} is not in the world of {} or comes twice",
                        self.job.size
                    )));
                }
            }
        }
        if !ranks.contains(&self.job.rank) {
            self.job.groups.fetch_add(1, Relaxed);
            return Ok(None);
        }
        let name = format!("group{}", self.job.groups.load(Relaxed));
        make_group(&self.job, &name, ranks.to_vec(), timeout).map(Some)
    }
}

impl std::ops::Deref for World {
    type Target = dyn ProcessGroup;

    fn deref(&self) -> &Self::Target {
        &*self.group
    }
}

/// The store of the job.
fn meet(launch: &Launch, env: &Environment, init: &Init) -> Result<TcpStore> {
    let timeout = init.timeout.min(crate::store::DEFAULT_TIMEOUT);
    if let Some(store) = &init.store {
        return meet_in(&**store, "the store", launch, env, timeout);
    }
    if let Some(path) = init.method.strip_prefix("file://") {
        let file = FileStore::open(path, Some(launch.world_size))?;
        file.set_timeout(timeout);
        return meet_in(&file, &format!("the file {path}"), launch, env, timeout);
    }
    let meeting = match init.method.strip_prefix("tcp://") {
        Some(address) => {
            let (host, port) =
                address.trim_end_matches('/').rsplit_once(':').ok_or_else(|| bad_method(&init.method))?;
            let port = port.parse::<u16>().map_err(|_| bad_method(&init.method))?;
            Rendezvous {
                host: host.into(),
                ports: vec![port],
                job: address.into(),
                reason: "given by the program".into(),
            }
        }
        None if init.method == "env://" || init.method.is_empty() => Rendezvous::new(launch, env)?,
        None => return Err(bad_method(&init.method)),
    };
    let (secret, _) = launch::job_secret(launch, &meeting)?;
    TcpStore::meet(&meeting, launch.rank, secret, timeout)
}

fn bad_method(method: &str) -> Error {
    Error::value(format!("init_process_group: the method {method:?} should be env://, tcp://host:port or file:///path"))
}

/// Rank 0 leaves address and secret of the job's store in another store: a file that only this user can read, or one
/// that the program passed.
fn meet_in(other: &dyn Store, name: &str, launch: &Launch, env: &Environment, timeout: Duration) -> Result<TcpStore> {
    if launch.rank == 0 {
        let text = random_bytes()?.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let store = TcpStore::host(&[0], false, Secret::new(&text))?;
        let mut hosts: Vec<String> = own_addresses(env)?.iter().map(IpAddr::to_string).collect();
        hosts.push("127.0.0.1".into());
        other.set("store", format!("{text} {} {} {}", store.port(), env.hostname(), hosts.join(",")).as_bytes())?;
        store.set_timeout(timeout);
        return Ok(store);
    }
    let text = String::from_utf8_lossy(&other.get("store")?).into_owned();
    let [secret, port, host, addresses] = text.split(' ').collect::<Vec<_>>()[..] else {
        return Err(Error::io(format!(
            "init_process_group: {name} was used by another program; use one of this job's own"
        )));
    };
    let port = port.parse().map_err(|_| Error::io(format!("init_process_group: {name} is malformed")))?;
    let here = host == env.hostname();
    let mut last = Error::io("init_process_group: rank 0 gave no address");
    let mut addresses: Vec<&str> = addresses.split(',').collect();
    if here {
        addresses.reverse();
    }
    for address in addresses {
        match TcpStore::connect_within(address, &[port], Secret::new(secret), timeout.min(Duration::from_secs(10))) {
            Ok(store) => {
                store.set_timeout(timeout);
                return Ok(store);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Addresses others may reach this machine by, the best first.
fn own_addresses(env: &Environment) -> Result<Vec<IpAddr>> {
    let all = launch::interfaces();
    let chosen = launch::choose_interface(&all, env)?;
    Ok(chosen.map(|i| i.address).into_iter().collect())
}

/// What is the same for processes that can share memory: machine since its last start, process namespace, user.
fn node_name() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").map(|p| p.display().to_string()).unwrap_or_default();
    // SAFETY: `geteuid` has no preconditions.
    format!("{} {namespace} {}", boot.trim(), unsafe { libc::geteuid() })
}

/// Exchanges addresses with all ranks.
fn join(launch: &Launch, env: &Environment, init: &Init, store: TcpStore) -> Result<Job> {
    let (rank, size) = (launch.rank, launch.world_size);
    let store = Arc::new(store);
    let secret = store.secret().clone();
    let node = init.node.clone().unwrap_or_else(node_name);
    let mut addresses = own_addresses(env)?;
    addresses.extend(store.local_ip().filter(|ip| !addresses.contains(ip)));
    let endpoint = Endpoint::listen(secret, addresses.iter().all(IpAddr::is_loopback))?;
    let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let card = format!("{node}\n{}\n{}", endpoint.port(), list.join(","));
    if store.compare_set(&format!("rank/{rank}"), b"", card.as_bytes())? != card.as_bytes() {
        return Err(Error::value(format!("init_process_group: another process of this job is rank {rank} too")));
    }
    // One rank reads every card, the others its summary: n messages, not n times n.
    if rank == 0 {
        let keys: Vec<String> = (0..size).map(|r| format!("rank/{r}")).collect();
        let mut cards = Vec::with_capacity(size);
        for (r, key) in keys.iter().enumerate() {
            let card = store.get(key).map_err(|e| {
                let missing: Vec<String> = (r..size)
                    .filter(|&i| !store.check(&[&keys[i]]).unwrap_or(false))
                    .take(16)
                    .map(|i| i.to_string())
                    .collect();
                Error::io(format!("init_process_group: ranks {} of {size} did not come ({e})", missing.join(", ")))
            })?;
            cards.push(String::from_utf8_lossy(&card).into_owned());
        }
        store.set("cards", cards.join("\0").as_bytes())?;
    }
    let cards = String::from_utf8_lossy(&store.get("cards")?).into_owned();
    let mut names: Vec<String> = Vec::new();
    let (mut peers, mut nodes) = (Vec::with_capacity(size), Vec::with_capacity(size));
    for (rank, card) in cards.split('\0').enumerate() {
        let lines: Vec<&str> = card.split('\n').collect();
        let (Some(name), Some(Ok(port)), Some(list)) = (lines.first(), lines.get(1).map(|p| p.parse()), lines.get(2))
        else {
            return Err(Error::io(format!("init_process_group: rank {rank} sent a malformed card")));
        };
        let mut addresses: Vec<IpAddr> = list.split(',').filter_map(|a| a.parse().ok()).collect();
        if *name == node || addresses.is_empty() {
            addresses.splice(0..0, [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
        }
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push((*name).to_owned());
            names.len() - 1
        });
        nodes.push(at);
        peers.push(Peer { rank, addresses, port });
    }
    let alarm = store.another()?;
    alarm.set_timeout(Duration::from_secs(10));
    let network = Network { store, alarm, endpoint: Arc::new(endpoint), peers, nodes };
    Ok(Job::new(rank, size, Some(network)))
}

/// A group of ranks, of which this is one.
fn make_group(job: &Arc<Job>, name: &str, ranks: Vec<usize>, timeout: Duration) -> Result<Arc<dyn ProcessGroup>> {
    let id = job.groups.fetch_add(1, Relaxed);
    let rank = ranks.iter().position(|&r| r == job.rank).unwrap_or(0);
    let communicator = match &job.network {
        None => Communicator::new(0, &[0], None, Links::new(id, 0, Vec::new(), None)),
        Some(network) => {
            let nodes: Vec<usize> = ranks.iter().map(|&r| network.nodes[r]).collect();
            let shared = share_memory(network, id, rank, &nodes, &ranks, timeout)?;
            let peers = ranks.iter().map(|&r| network.peers[r].clone()).collect();
            Communicator::new(rank, &nodes, shared, Links::new(id, rank, peers, Some(network.endpoint.clone())))
        }
    };
    Ok(Arc::new(TcpGroup::new(name, ranks, communicator, job.clone(), timeout)))
}

/// The memory that the ranks of this node share. If it cannot be had anywhere, all ranks do without.
fn share_memory(
    network: &Network,
    id: u64,
    rank: usize,
    nodes: &[usize],
    ranks: &[usize],
    timeout: Duration,
) -> Result<Option<Shared>> {
    let store = PrefixStore::new(format!("group/{id}"), network.store.clone() as Arc<dyn Store>);
    let timeout = timeout.min(store.timeout());
    let local: Vec<usize> = (0..nodes.len()).filter(|&r| nodes[r] == nodes[rank]).collect();
    let index = local.iter().position(|&r| r == rank).unwrap_or(0);
    let world: Vec<usize> = local.iter().map(|&r| ranks[r]).collect();
    let key = format!("segment/{}", nodes[rank]);
    let shared = match (local.len(), index) {
        (1, _) => Ok(None),
        (_, 0) => {
            let cookie = random_bytes()?;
            let made = Shared::create(&cookie, index, &world);
            let path = made.as_ref().map_or("", |(_, path)| path.as_str());
            store.set(&key, &[&cookie[..], path.as_bytes()].concat())?;
            made.map(|(shared, _)| Some(shared))
        }
        _ => {
            let told = store.get(&key)?;
            let cookie = told.first_chunk::<32>().copied().unwrap_or_default();
            let path = String::from_utf8_lossy(told.get(32..).unwrap_or_default()).into_owned();
            Shared::open(&path, &cookie, index, &world).map(Some)
        }
    };
    if let Err(e) = &shared {
        store.set("without-memory", e.to_string().as_bytes())?;
    }
    if store.add("ready", 1)? as usize == nodes.len() {
        store.set("all-ready", b"")?;
    }
    store.wait_for(&["all-ready"], timeout)?;
    Ok(if store.check(&["without-memory"])? { None } else { shared.unwrap_or(None) })
}

impl Drop for World {
    fn drop(&mut self) {
        self.job.leave();
    }
}
