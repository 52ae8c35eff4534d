//! Launch detection: rank and world size of this process, under any launcher.
//!
//! [`detect`] reads the environment; [`detect_from`] is the same as a pure function over an [`Environment`]. The
//! innermost launcher wins, and variables that contradict each other are an error that names them.

mod address;
mod device;
mod environment;
mod hosts;
mod secret;
mod table;
#[cfg(test)]
mod tests;

pub use address::{
    Interface, LOCAL_ADDRESS_VARIABLE, Rendezvous, address_towards, candidate_ports, choose_interface, ephemeral_range,
    interfaces, own_addresses, resolve,
};
pub use device::{DeviceChoice, choose_device, device};
pub use environment::Environment;
pub use hosts::{expand_hosts, expand_tasks, unique_lines};
pub(crate) use secret::random_bytes;
pub use secret::{SECRET_VARIABLE, Secret, job_secret};
pub use table::Launcher;

use rushlight_core::{Error, Result};
use table::{ROWS, Row, in_slurm_step};

/// Rank and world size of this process, and how they were found.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The launcher.
    pub launcher: Launcher,
    /// Global rank.
    pub rank: usize,
    /// World size.
    pub world_size: usize,
    /// Local rank; `None` if the launcher does not report it.
    pub local_rank: Option<usize>,
    /// Number of processes on this node; `None` if the launcher does not report it.
    pub local_size: Option<usize>,
    /// Index of this node; `None` if the launcher does not report it.
    pub node_rank: Option<usize>,
    /// Number of nodes; `None` if the launcher does not report it.
    pub nodes: Option<usize>,
    /// Hosts of the job, rank 0's first; empty if unknown.
    pub hosts: Vec<String>,
    /// A name that is unique among the jobs of this cluster, if the launcher provides one.
    pub job: String,
    /// A random value that the launcher gave to this job's processes only.
    pub launcher_secret: Option<String>,
    /// Facts that led to the result, for messages.
    pub reasons: Vec<String>,
    /// A probable omission of the user, such as `srun` in a batch script.
    pub advice: Option<String>,
}

/// Detects the launch from this process's environment.
pub fn detect() -> Result<Launch> {
    detect_from(&Environment::current())
}

/// Detects the launch from an environment.
pub fn detect_from(env: &Environment) -> Result<Launch> {
    let Some(row) = ROWS.iter().find(|row| row.applies(env)) else { return Ok(single(env)) };
    let launch = read(row, env)?;
    if matches!(row.launcher, Launcher::Torchrun | Launcher::Kubeflow | Launcher::Environment) {
        return Ok(launch);
    }
    reconcile(launch, env)
}

/// The first variable that is set. All others that are set must have the same value.
fn agreed(env: &Environment, names: &[&'static str]) -> Result<Option<(usize, &'static str)>> {
    let mut first: Option<(usize, &'static str)> = None;
    for &name in names {
        match (env.number(name)?, first) {
            (Some(value), None) => first = Some((value, name)),
            (Some(value), Some((other, from))) if value != other => {
                return Err(contradiction(from, other, name, value));
            }
            _ => {}
        }
    }
    Ok(first)
}

fn contradiction(a: &str, x: usize, b: &str, y: usize) -> Error {
    Error::value(format!(
        "launch: {a}={x} and {b}={y} contradict each other; one of them was inherited from an outer launcher or set by hand: unset it"
    ))
}

fn read(row: &Row, env: &Environment) -> Result<Launch> {
    let mut reasons = Vec::new();
    let mut note = |what: &str, found: Option<(usize, &'static str)>| {
        if let Some((value, name)) = found {
            reasons.push(format!("{what} {value} from {name}"));
        }
        found.map(|(value, _)| value)
    };
    let missing = |what: &str, names: &[&str]| {
        Error::value(format!(
            "launch: {} started this process but {} ({what}) is not set",
            row.launcher,
            names.join(" or ")
        ))
    };
    let rank = note("rank", agreed(env, row.rank)?).ok_or_else(|| missing("the rank", row.rank))?;
    let size = note("world size", agreed(env, row.size)?);
    let local_rank = note("local rank", agreed(env, row.local_rank)?);
    let local_size = note("local size", agreed(env, row.local_size)?);
    let node_rank = note("node", agreed(env, row.node_rank)?);
    let nodes = note("nodes", agreed(env, row.nodes)?);
    let job: Vec<&str> = row.job.iter().filter_map(|name| env.get(name)).collect();
    let mut launch = Launch {
        launcher: row.launcher,
        rank,
        world_size: size.unwrap_or(0),
        local_rank,
        local_size,
        node_rank,
        nodes,
        hosts: Vec::new(),
        job: if job.is_empty() { String::new() } else { format!("{:?} {}", row.launcher, job.join(" ")) },
        launcher_secret: row.secret.iter().find_map(|name| env.get(name)).map(str::to_owned),
        reasons,
        advice: None,
    };
    match row.launcher {
        Launcher::Pals => complete_pals(&mut launch, env)?,
        Launcher::Slurm | Launcher::CrayShasta => complete_slurm(&mut launch, env)?,
        Launcher::Kubeflow if launch.local_rank.is_none() => {
            (launch.local_rank, launch.local_size) = (Some(0), Some(1));
            launch.reasons.push("local rank 0: Kubeflow starts one process per pod".into());
        }
        _ => {}
    }
    if launch.world_size == 0 {
        return Err(match size {
            Some(_) => Error::value(format!(
                "launch: {} says that the world has no processes ({}=0)",
                row.launcher, row.size[0]
            )),
            None => missing("the number of processes", row.size),
        });
    }
    check(&launch)?;
    if launch.hosts.is_empty() {
        launch.hosts = job_hosts(&launch, env)?;
    }
    Ok(launch)
}

/// PALS exports no reliable size: it is the ranks per node times the hosts of the job. A default of 1 would
/// make every process a separate world.
fn complete_pals(launch: &mut Launch, env: &Environment) -> Result<()> {
    if let Some(size) = env.number("RUSHLIGHT_WORLD_SIZE")? {
        launch.world_size = size;
        launch.reasons.push(format!("world size {size} from RUSHLIGHT_WORLD_SIZE"));
        return Ok(());
    }
    let ask = "set RUSHLIGHT_WORLD_SIZE to the number of ranks that mpiexec was told to start";
    let path = env
        .get("PBS_NODEFILE")
        .ok_or_else(|| Error::value(format!("launch: PALS sets no world size and PBS_NODEFILE is not set; {ask}")))?;
    let hosts = env.read(path).map(|text| unique_lines(&text)).filter(|hosts| !hosts.is_empty()).ok_or_else(|| {
        Error::value(format!(
            "launch: PALS sets no world size and PBS_NODEFILE={path} cannot be read or is empty; {ask}"
        ))
    })?;
    let local = launch.local_size.filter(|&n| n > 0).ok_or_else(|| {
        Error::value(format!("launch: PALS sets no world size and PALS_LOCAL_SIZE is not set; {ask}"))
    })?;
    let size = local * hosts.len();
    if launch.rank >= size {
        return Err(Error::value(format!(
            "launch: PALS_RANKID={} does not fit PALS_LOCAL_SIZE={local} on the {} hosts of PBS_NODEFILE; {ask}",
            launch.rank,
            hosts.len()
        )));
    }
    // PMI_SIZE is used only if it is plausible; usually it is absent.
    match env.number("PMI_SIZE")?.filter(|&n| n != size) {
        Some(n) if n > launch.rank && n < size && n > 1 => {
            launch.world_size = n;
            launch.reasons.push(format!("world size {n} from PMI_SIZE: fewer than PALS_LOCAL_SIZE times the hosts"));
        }
        Some(n) => return Err(contradiction("PMI_SIZE", n, "PALS_LOCAL_SIZE × hosts of PBS_NODEFILE", size)),
        None => {
            launch.world_size = size;
            let nodes = hosts.len();
            launch.reasons.push(format!("world size {size}: PALS_LOCAL_SIZE {local} × {nodes} hosts of PBS_NODEFILE"));
            launch.nodes = Some(nodes);
        }
    }
    launch.hosts = hosts;
    Ok(())
}

fn complete_slurm(launch: &mut Launch, env: &Environment) -> Result<()> {
    if launch.world_size == 0
        && let Some(size) = env.number("SLURM_NTASKS")?
    {
        launch.world_size = size;
        launch.reasons.push(format!("world size {size} from SLURM_NTASKS"));
    }
    if let Some(list) = env.get("SLURM_STEP_NODELIST").or(env.get("SLURM_JOB_NODELIST")) {
        launch.hosts = expand_hosts(list)?;
    }
    if launch.local_size.is_none()
        && let (Some(list), Some(node)) = (env.get("SLURM_STEP_TASKS_PER_NODE"), launch.node_rank)
    {
        let tasks = expand_tasks(list)?;
        let local = *tasks.get(node).ok_or_else(|| {
            Error::value(format!(
                "launch: SLURM_NODEID={node} is not among the nodes of SLURM_STEP_TASKS_PER_NODE={list}"
            ))
        })?;
        launch.local_size = Some(local);
        launch.nodes = launch.nodes.or(Some(tasks.len()));
        launch.reasons.push(format!("local size {local} from SLURM_STEP_TASKS_PER_NODE"));
    }
    Ok(())
}

/// Checks that hold for every launcher.
fn check(launch: &Launch) -> Result<()> {
    let below = |what: &str, value: Option<usize>, bound: Option<usize>| match (value, bound) {
        (Some(value), Some(bound)) if value >= bound => Err(Error::value(format!(
            "launch: {what} is {value} of {bound} under {}, but it counts from 0; the variables are of different launchers ({})",
            launch.launcher,
            launch.reasons.join(", ")
        ))),
        _ => Ok(()),
    };
    below("the rank", Some(launch.rank), Some(launch.world_size))?;
    below("the local rank", launch.local_rank, launch.local_size)?;
    below("the node", launch.node_rank, launch.nodes)?;
    // A local size may be as large as the world, no larger.
    below("the local size less one", launch.local_size.map(|n| n.saturating_sub(1)), Some(launch.world_size))
}

/// Hosts of the enclosing job, for launchers that do not report them, if the ranks are on several.
fn job_hosts(launch: &Launch, env: &Environment) -> Result<Vec<String>> {
    if launch.is_one_node() {
        return Ok(Vec::new());
    }
    if let Some(list) = env.get("SLURM_STEP_NODELIST").or(env.get("SLURM_JOB_NODELIST")) {
        return expand_hosts(list);
    }
    if let Some(text) = env.get("LSB_DJOB_RANKFILE").and_then(|path| env.read(path)) {
        // The first line is the node the job script runs on, where jsrun starts no rank.
        let hosts: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
        return Ok(unique_lines(&hosts.join("\n")));
    }
    Ok(env.get("PBS_NODEFILE").and_then(|path| env.read(path)).map(|text| unique_lines(&text)).unwrap_or_default())
}

/// Compares a launcher's numbers with RANK and WORLD_SIZE, which scripts set by hand.
///
/// Equal sizes need equal ranks. A larger WORLD_SIZE is a process that its launcher's rank has spawned: `srun -n2`
/// and four workers each. Everything else is a contradiction.
fn reconcile(launch: Launch, env: &Environment) -> Result<Launch> {
    let (Some(size), own) = (env.number("WORLD_SIZE")?, launch.world_size) else {
        return match env.number("RANK")? {
            Some(rank) if rank != launch.rank => {
                Err(contradiction("RANK", rank, &format!("the rank by {}", launch.launcher), launch.rank))
            }
            _ => Ok(launch),
        };
    };
    let size_of_launcher = format!("the world size by {}", launch.launcher);
    match env.number("RANK")? {
        Some(rank) if size == own && rank != launch.rank => {
            Err(contradiction("RANK", rank, &format!("the rank by {}", launch.launcher), launch.rank))
        }
        Some(rank) if size > own && size % own == 0 && rank / (size / own) == launch.rank => {
            let row = ROWS.iter().find(|row| row.launcher == Launcher::Environment).expect("the table has this row");
            let mut inner = read(row, env)?;
            inner.reasons.push(format!("spawned by rank {} of {own} of {}", launch.rank, launch.launcher));
            inner.hosts = launch.hosts;
            if !launch.job.is_empty() {
                inner.job = format!("{} {}", launch.job, inner.job);
            }
            inner.launcher_secret = launch.launcher_secret;
            Ok(inner)
        }
        _ if size == own => Ok(launch),
        _ => Err(contradiction("WORLD_SIZE", size, &size_of_launcher, own)),
    }
}

/// No launcher: one process. In an allocation with room for more, with advice.
fn single(env: &Environment) -> Launch {
    let tasks = env.number("SLURM_NTASKS").ok().flatten().or(env.number("SLURM_NPROCS").ok().flatten()).unwrap_or(1);
    let allocation = env.get("SLURM_JOB_ID").is_some() && !in_slurm_step(env);
    let advice = (allocation && tasks > 1).then(|| {
        let place = if env.get("SLURM_PROCID").is_some() { "a batch script" } else { "a shell of an allocation" };
        format!(
            "Slurm gave this job {tasks} tasks, but this process runs alone in {place}. Start the program with srun to use all of them: \
             srun {}",
            std::env::args().next().filter(|_| env.is_current()).unwrap_or_else(|| "PROGRAM".into())
        )
    });
    Launch {
        launcher: Launcher::Single,
        rank: 0,
        world_size: 1,
        local_rank: Some(0),
        local_size: Some(1),
        node_rank: Some(0),
        nodes: Some(1),
        hosts: Vec::new(),
        job: String::new(),
        launcher_secret: None,
        reasons: vec!["no launcher's variables are set".into()],
        advice,
    }
}

impl Launch {
    /// Whether an MPI launcher started this process, so that `MPI_Init` finds its peers. Under torchrun, or with ranks
    /// set by hand, an installed MPI library is of no use.
    pub fn is_mpi(&self, env: &Environment) -> bool {
        match self.launcher {
            Launcher::OpenMpi
            | Launcher::Hydra
            | Launcher::Mvapich
            | Launcher::Pals
            | Launcher::CrayShasta
            | Launcher::Jsrun => true,
            // `srun --mpi=pmi2` and `--mpi=pmix` serve MPI.
            Launcher::Slurm | Launcher::Flux => {
                ["PMI_RANK", "PMI_FD", "PMIX_RANK", "PMIX_SERVER_URI4"].iter().any(|name| env.get(name).is_some())
            }
            _ => false,
        }
    }

    /// A place in a world given by the caller instead of a launcher.
    pub fn explicit(rank: usize, world_size: usize) -> Result<Self> {
        let launch = Self {
            launcher: Launcher::Environment,
            rank,
            world_size,
            local_rank: None,
            local_size: None,
            node_rank: None,
            nodes: None,
            reasons: vec!["given by the program".into()],
            ..single(&Environment::default())
        };
        if world_size == 0 {
            return Err(Error::value("launch: the world size must not be zero"));
        }
        check(&launch)?;
        Ok(launch)
    }

    /// Whether the launcher reports that all ranks are on this node.
    pub fn is_one_node(&self) -> bool {
        self.nodes == Some(1) || self.local_size == Some(self.world_size)
    }
}
