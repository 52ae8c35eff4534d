//! The world of a program: its rank, its store, its groups.

use crate::comm::{Abort, Communicator, Limit, Links, NodeMemory, NodeSegment, Transport};
use crate::group::{DeviceGroup, HostGroup, ProcessGroup};
use crate::job::{Job, Network};
use crate::launch::{self, Environment, Launch, random_bytes};
use crate::meeting;
use crate::mpi::{MpiTransport, Runtime};
use crate::store::{HashStore, PrefixStore, Store};
use rushlight_core::{Device, Error, Result};
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
    pub(crate) timeout: Duration,
    pub(crate) method: String,
    place: Option<(usize, usize)>,
    pub(crate) node: Option<String>,
    pub(crate) store: Option<Arc<dyn Store>>,
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
            rushlight_core::warn!("{advice}");
        }
        let mut transport = mpi.as_ref().map(|mpi| MpiTransport::world(mpi, launch.rank, &limit)).transpose()?;
        let mut job = match (launch.world_size, &mut transport) {
            (1, _) => Job::new(0, 1, None),
            (_, Some(mpi)) if init.store.is_none() && meeting::is_usual(&init.method) => {
                let met = meeting::meet_by_mpi(mpi, &launch, &env, &init, limit)?;
                meeting::join(&launch, &env, &init, met)?
            }
            _ => meeting::join(&launch, &env, &init, meeting::meet(&launch, &env, &init)?)?,
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
        (None, None) => Box::new(Communicator::new(0, &[0], NodeMemory::Missing, Links::new(id, 0, Vec::new(), None))),
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

/// The shared memory of this node's ranks. If any node cannot provide it, no rank uses it, and all know.
fn share_memory(
    network: &Network,
    id: u64,
    rank: usize,
    nodes: &[usize],
    ranks: &[usize],
    timeout: Duration,
) -> Result<NodeMemory> {
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
            let made = NodeSegment::create(&cookie, index, &world);
            let path = made.as_ref().map_or("", |(_, path)| path.as_str());
            store.set(&key, &[&cookie[..], path.as_bytes()].concat())?;
            made.map(|(shared, _)| Some(shared))
        }
        _ => {
            let told = store.get(&key)?;
            let cookie = told.first_chunk::<32>().copied().unwrap_or_default();
            let path = String::from_utf8_lossy(told.get(32..).unwrap_or_default()).into_owned();
            NodeSegment::open(&path, &cookie, index, &world).map(Some)
        }
    };
    if let Err(e) = &shared {
        store.set("without-memory", e.to_string().as_bytes())?;
    }
    if store.add("ready", 1)? as usize == nodes.len() {
        store.set("all-ready", b"")?;
    }
    store.wait_for(&["all-ready"], timeout)?;
    Ok(match shared {
        Ok(shared) if !store.check(&["without-memory"])? => NodeMemory::Everywhere(shared),
        _ => NodeMemory::Missing,
    })
}

impl Drop for World {
    fn drop(&mut self) {
        self.job.leave();
    }
}
