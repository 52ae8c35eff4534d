//! The world of a program: its rank, its store, its groups.

use crate::comm::{Abort, Call, Communicator, Endpoint, Limit, Links, Peer, Shared, Signature, Span, Transport};
use crate::group::{DeviceGroup, HostGroup, ProcessGroup};
use crate::job::{Job, Network};
use crate::launch::{self, Environment, Launch, Rendezvous, Secret, random_bytes};
use crate::mpi::{MpiTransport, Runtime};
use crate::store::{FileStore, HashStore, PrefixStore, Store, TcpStore};
use rushlight_core::{Device, Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The default timeout of collectives, equal to PyTorch's for Gloo.
pub const DEFAULT_GROUP_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Engine names that programs may pass. All but `mpi` select the best available engine.
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

    /// The engine: `tcp`, which needs nothing and moves everything through host memory, or `mpi`, the system's MPI. The
    /// names of PyTorch's and other backends (`gloo`, `nccl`, `ccl`, `xccl`) select the best engine without MPI: for
    /// tensors on accelerators the vendor's library, or device memory that ranks share. A list by device
    /// (`cpu:mpi,cuda:nccl`) is accepted too.
    ///
    /// `mpi` opens the library of the launcher that started the program; RUSHLIGHT_MPI_LIBRARY names another one. No
    /// other engine uses MPI.
    pub fn backend(mut self, name: &str) -> Self {
        self.backend = name.into();
        self
    }

    /// Timeout of collectives and of the rendezvous.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The rendezvous: `env://` (from the launcher), `tcp://host:port`, or `file:///path` on a file system
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

    /// An existing store that the ranks share, used as rendezvous instead of [`Init::method`]. A process that can read
    /// it can
    /// join the job: rank 0 leaves the job's secret there.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Joins the other ranks.
    pub fn build(self) -> Result<World> {
        World::new(self)
    }
}

/// Joins the other ranks of the launcher's job; a world of one without a launcher.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_dist as dist; }
/// use rushlight::dist::{ProcessGroup, ReduceOp};
/// let world = rushlight::dist::init()?;
/// let x = rushlight::Tensor::new([1.0f32, 2.0])?;
/// world.all_reduce(&x, ReduceOp::Sum)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn init() -> Result<World> {
    Init::new().build()
}

/// This process among its peers: rank, size, store, and the group of all.
///
/// Dropping it leaves the job cleanly. A process that ends without that is treated as dead, and every other rank's
/// collectives fail with an error that names it.
pub struct World {
    launch: Launch,
    job: Arc<Job>,
    group: Arc<dyn ProcessGroup>,
    store: Arc<dyn Store>,
}

impl World {
    fn new(init: Init) -> Result<Self> {
        let mut engines = init.backend.split(',').map(|part| part.rsplit(':').next().unwrap_or_default());
        if let Some(unknown) = engines.clone().find(|name| !BACKENDS.contains(name)) {
            return Err(Error::value(format!(
                "init_process_group: unknown backend {unknown:?}; tcp, gloo, nccl, ccl, xccl and mpi are known"
            )));
        }
        let env = Environment::current();
        let abort = Abort::default();
        let limit = Limit::new(&abort, init.timeout);
        let mpi = engines.any(|name| name == "mpi").then(|| Runtime::start(&env, &limit)).transpose()?;
        let launch = match (&mpi, init.place) {
            (Some(mpi), place) => mpi.reconcile(launch::detect_from(&env), place)?,
            (None, Some((rank, size))) => Launch::explicit(rank, size)?,
            (None, None) => launch::detect_from(&env)?,
        };
        if let Some(advice) = &launch.advice {
            eprintln!("rushlight: {advice}");
        }
        let mut transport = mpi.as_ref().map(|mpi| MpiTransport::world(mpi, launch.rank, &limit)).transpose()?;
        let mut job = match (launch.world_size, &mut transport) {
            (1, _) => Job::new(0, 1, None),
            (_, Some(mpi)) if init.store.is_none() && is_usual(&init.method) => {
                let store = meet_by_mpi(mpi, &launch, &env, &init, limit)?;
                join(&launch, &env, &init, store)?
            }
            _ => join(&launch, &env, &init, meet(&launch, &env, &init)?)?,
        };
        job.mpi = mpi.zip(transport.as_ref().map(MpiTransport::handle));
        let job = Arc::new(job.with_devices(init.backend != "tcp"));
        job.watch()?;
        let ranks: Vec<usize> = (0..launch.world_size).collect();
        let group = match transport {
            Some(transport) => {
                job.groups.fetch_add(1, Relaxed);
                let nodes = job.network.as_ref().map_or_else(|| vec![0; ranks.len()], |network| network.nodes.clone());
                let group = HostGroup::new("world", ranks, Box::new(transport), job.clone(), init.timeout);
                with_devices(group, nodes, &job)
            }
            None => make_group(&job, "world", ranks, init.timeout)?,
        };
        let store: Arc<dyn Store> = match &job.network {
            Some(network) => Arc::new(PrefixStore::new("user", network.store.clone())),
            None => Arc::new(HashStore::new()),
        };
        Ok(Self { launch, job, group, store })
    }

    /// The launch of this process.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// This rank's index on its node, from the launcher or determined when the ranks joined.
    pub fn local_rank(&self) -> usize {
        let before = |nodes: &[usize]| nodes[..self.job.rank].iter().filter(|n| **n == nodes[self.job.rank]).count();
        self.launch.local_rank.unwrap_or_else(|| self.job.network.as_ref().map_or(0, |network| before(&network.nodes)))
    }

    /// Number of ranks on this node.
    pub fn local_size(&self) -> usize {
        let same = |nodes: &[usize]| nodes.iter().filter(|n| **n == nodes[self.job.rank]).count();
        self.launch.local_size.unwrap_or_else(|| self.job.network.as_ref().map_or(1, |network| same(&network.nodes)))
    }

    /// This rank's device: the GPU selected by its local rank among the devices that the launcher left visible, or the
    /// CPU.
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

    /// A function that returns why the job cannot continue, once another rank has died, hung or failed. It does not
    /// block and may be called by any thread.
    pub fn failure(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let job = self.job.clone();
        move || job.abort.check().err().map(|e| e.to_string())
    }

    /// The group of all ranks.
    pub fn group(&self) -> &Arc<dyn ProcessGroup> {
        &self.group
    }

    /// A group of some ranks of the world, in the order given. Every rank of the world must call this, in the same
    /// order of calls; ranks outside the group get `None`.
    pub fn new_group(&self, ranks: &[usize]) -> Result<Option<Arc<dyn ProcessGroup>>> {
        self.new_group_with(ranks, self.group.timeout())
    }

    /// [`World::new_group`] with a separate timeout.
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
        None if is_usual(&init.method) => Rendezvous::new(launch, env)?,
        None => return Err(bad_method(&init.method)),
    };
    let (secret, _) = launch::job_secret(launch, &meeting)?;
    TcpStore::meet(&meeting, launch.rank, secret, timeout)
}

/// Whether the launcher determines the rendezvous.
fn is_usual(method: &str) -> bool {
    method == "env://" || method.is_empty()
}

fn bad_method(method: &str) -> Error {
    Error::value(format!("init_process_group: the method {method:?} should be env://, tcp://host:port or file:///path"))
}

/// Rank 0 sends the address of the job's store over MPI: nothing is guessed or read from variables.
fn meet_by_mpi(
    mpi: &mut MpiTransport,
    launch: &Launch,
    env: &Environment,
    init: &Init,
    limit: Limit,
) -> Result<TcpStore> {
    let timeout = init.timeout.min(crate::store::DEFAULT_TIMEOUT);
    let own = (launch.rank == 0).then(|| host_store(env, timeout)).transpose();
    // Without a store rank 0 sends an empty message: the others must not wait for it.
    let text = own.as_ref().ok().and_then(Option::as_ref).map_or("", |(_, text)| text.as_str());
    let call = Call { signature: Signature::new("init_process_group"), limit };
    let mut length = (text.len() as u64).to_le_bytes();
    // SAFETY: arrays of this frame, of one size on all ranks. An error leaves the process with no use for MPI.
    unsafe { mpi.broadcast(Span::of(&mut length), 0, &call)? };
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(u64::from_le_bytes(length) as usize, 0);
    // SAFETY: as above.
    unsafe { mpi.broadcast(Span::of(&mut bytes), 0, &call)? };
    match own? {
        Some((store, _)) => Ok(store),
        None => join_store(&String::from_utf8_lossy(&bytes), "the message of rank 0", env, timeout),
    }
}

/// Rank 0 puts address and secret of the job's store in another store: a file that only this user can read, or one that
/// the program passed.
fn meet_in(other: &dyn Store, name: &str, launch: &Launch, env: &Environment, timeout: Duration) -> Result<TcpStore> {
    if launch.rank == 0 {
        let (store, text) = host_store(env, timeout)?;
        other.set("store", text.as_bytes())?;
        return Ok(store);
    }
    join_store(&String::from_utf8_lossy(&other.get("store")?), name, env, timeout)
}

/// A store in this process with a new secret, and the text that others need to join it.
fn host_store(env: &Environment, timeout: Duration) -> Result<(TcpStore, String)> {
    let secret = random_bytes()?.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let store = TcpStore::host(&[0], false, Secret::new(&secret))?;
    let mut hosts: Vec<String> = own_addresses(env)?.iter().map(IpAddr::to_string).collect();
    hosts.push("127.0.0.1".into());
    let text = format!("{secret} {} {} {}", store.port(), env.hostname(), hosts.join(","));
    store.set_timeout(timeout);
    Ok((store, text))
}

/// Joins a store that [`host_store`] made elsewhere. `name` is the source of its description.
fn join_store(text: &str, name: &str, env: &Environment, timeout: Duration) -> Result<TcpStore> {
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

/// Addresses of this machine that others may reach, the best first.
fn own_addresses(env: &Environment) -> Result<Vec<IpAddr>> {
    let all = launch::interfaces();
    let chosen = match launch::choose_interface(&all, env) {
        // The variable may be meant for NCCL on another machine: it is a preference here, not a condition.
        Err(e) if env.get("NCCL_SOCKET_IFNAME").is_some() && env.get("GLOO_SOCKET_IFNAME").is_none() => {
            eprintln!("rushlight: {e}; the usual choice is made instead");
            launch::choose_interface(&all, &Environment::default())?
        }
        chosen => chosen?,
    };
    Ok(chosen.map(|i| i.address).into_iter().collect())
}

/// An identifier equal for processes that can share memory: boot id, process namespace and user.
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
    // One rank reads every card, the others its summary: n messages instead of n².
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
                Error::io(format!("init_process_group: ranks {} of {size} did not join ({e})", missing.join(", ")))
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

/// A group of ranks that includes this one.
fn make_group(job: &Arc<Job>, name: &str, ranks: Vec<usize>, timeout: Duration) -> Result<Arc<dyn ProcessGroup>> {
    let id = job.groups.fetch_add(1, Relaxed);
    let rank = ranks.iter().position(|&r| r == job.rank).unwrap_or(0);
    let mut nodes = vec![0; ranks.len()];
    let transport: Box<dyn Transport> = match (&job.mpi, &job.network) {
        (Some((mpi, world)), network) => {
            if let Some(network) = network {
                nodes = ranks.iter().map(|&r| network.nodes[r]).collect();
            }
            let limit = Limit::new(&job.abort, timeout);
            let made = MpiTransport::subgroup(*world, mpi, id, rank, &ranks, &limit);
            Box::new(made.map_err(|e| Error::new(e.kind(), format!("new_group of ranks {ranks:?}: {e}")))?)
        }
        (None, None) => Box::new(Communicator::new(0, &[0], None, Links::new(id, 0, Vec::new(), None))),
        (None, Some(network)) => {
            nodes = ranks.iter().map(|&r| network.nodes[r]).collect();
            let shared = share_memory(network, id, rank, &nodes, &ranks, timeout)?;
            let peers = ranks.iter().map(|&r| network.peers[r].clone()).collect();
            let links = Links::new(id, rank, peers, Some(network.endpoint.clone()));
            Box::new(Communicator::new(rank, &nodes, shared, links))
        }
    };
    Ok(with_devices(HostGroup::new(name, ranks, transport, job.clone(), timeout), nodes, job))
}

/// The host's group, combined with device collectives if there are devices.
fn with_devices(group: HostGroup, nodes: Vec<usize>, job: &Arc<Job>) -> Arc<dyn ProcessGroup> {
    // Counting devices starts none. Without any there is only host memory.
    match rushlight_engines::accelerator().filter(|_| job.devices) {
        Some(_) => Arc::new(DeviceGroup::new(group, nodes, job.clone())),
        None => Arc::new(group),
    }
}

/// The shared memory of this node's ranks. If any node cannot provide it, no rank uses it.
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
