//! The launch plan, derived from the options and the environment.

use crate::options::{Nproc, Options};
use rushlight_core::{Error, Result};
use rushlight_dist::launch::{self, Environment, Launch, Launcher, Rendezvous, candidate_ports, expand_hosts};

/// This process's role in the job.
#[derive(Debug)]
pub enum Plan {
    /// The agent of the only node.
    Alone,
    /// The agent of one of several nodes.
    Node(Meeting),
    /// A batch script's process: `srun` with these options starts an agent on each node.
    Srun(Vec<String>),
    /// One of the ranks, which the scheduler has started already: this launcher executes the program.
    Placed { launch: Box<Launch>, meeting: Rendezvous },
    /// A launcher that the scheduler started besides the first of its node.
    Superfluous,
}

/// The agents' rendezvous.
#[derive(Clone, Debug)]
pub struct Meeting {
    pub host: String,
    pub ports: Vec<u16>,
    /// Minimum and maximum nodes.
    pub nodes: (usize, usize),
    /// This node's rank, if the order is fixed; node 0 then holds the store.
    pub node_rank: Option<usize>,
    /// The enclosing launch, for its secret.
    pub launch: Option<Launch>,
}

/// Finds the plan.
pub fn plan(options: &Options, env: &Environment) -> Result<Plan> {
    let several = options.nnodes.is_some_and(|(_, most)| most > 1);
    if several && (options.endpoint.is_some() || options.master_addr.is_some()) {
        if superfluous(env) {
            return Ok(Plan::Superfluous);
        }
        return explicit(options).map(Plan::Node);
    }
    if options.nnodes.is_some_and(|(_, most)| most == 1) {
        return Ok(if superfluous(env) { Plan::Superfluous } else { Plan::Alone });
    }
    let launch = launch::detect_from(env)?;
    // A rank of an outer job may start a job itself: its variables are not a scheduler's.
    let outer =
        !matches!(launch.launcher, Launcher::Single | Launcher::Torchrun | Launcher::Environment | Launcher::Kubeflow);
    if outer && launch.world_size > 1 {
        return under_scheduler(launch, options, env);
    }
    if launch.launcher == Launcher::Single
        && let Some(nodes) = env.number("SLURM_JOB_NUM_NODES")?.filter(|&n| n > 1 && env.get("SLURM_JOB_ID").is_some())
    {
        let nodes = options.nnodes.map_or(nodes, |(_, most)| most.min(nodes));
        return Ok(Plan::Srun(srun(nodes, env)));
    }
    if several {
        return Err(Error::value(
            "rushlight run: several nodes need a place to meet: give --rdzv-endpoint HOST:PORT on each, or start in a Slurm allocation",
        ));
    }
    Ok(Plan::Alone)
}

/// Whether a scheduler started several launchers on this node and this is not the first. Torchrun's command lines are
/// often started that way, with as many tasks as GPUs.
fn superfluous(env: &Environment) -> bool {
    launch::detect_from(env).is_ok_and(|launch| {
        matches!(launch.launcher, Launcher::Slurm | Launcher::CrayShasta) && launch.local_rank.is_some_and(|r| r > 0)
    })
}

/// Several nodes whose rendezvous the user gives.
fn explicit(options: &Options) -> Result<Meeting> {
    let nodes = options.nnodes.unwrap_or((1, 1));
    let fixed = options.fixed_order || options.endpoint.is_none();
    let node_rank = match (fixed, options.node_rank) {
        (true, None) => {
            return Err(Error::value("rushlight run: where the order of nodes is fixed, each needs its --node-rank"));
        }
        (true, rank) => rank,
        (false, _) => None,
    };
    let (host, port) = match (&options.endpoint, &options.master_addr) {
        (Some((host, port)), _) => (host.clone(), *port),
        (None, Some(host)) => (host.clone(), None),
        (None, None) => unreachable!("one of them is given"),
    };
    let name = format!("rushlight run {} {host}", options.run_id.as_deref().unwrap_or("none"));
    let ports = match port {
        Some(port) => vec![port],
        None if fixed => candidate_ports(&format!("{name} {}", options.master_port.unwrap_or(0))),
        // The first node holds the store, so there must be a single port.
        None => vec![candidate_ports(&name)[0]],
    };
    Ok(Meeting { host, ports, nodes, node_rank, launch: None })
}

/// A process that `srun` or `mpiexec` started.
fn under_scheduler(launch: Launch, options: &Options, env: &Environment) -> Result<Plan> {
    let one_per_node = launch.local_size == Some(1) || launch.nodes == Some(launch.world_size);
    if !one_per_node {
        if options.nproc.is_some() {
            return Ok(if launch.local_rank.is_some_and(|r| r > 0) {
                Plan::Superfluous
            } else {
                first_of_node(launch, options, env)?
            });
        }
        if options.max_restarts > 0 || options.nnodes.is_some() {
            return Err(Error::value(format!(
                "rushlight run: {} has started {} ranks itself, so --max-restarts and --nnodes have nothing to act on: start one task for each node",
                launch.launcher, launch.world_size
            )));
        }
        let meeting = Rendezvous::new(&launch, env)?;
        return Ok(Plan::Placed { launch: Box::new(launch), meeting });
    }
    let count = launch.world_size;
    let rank = launch.rank;
    meet(launch, count, rank, options)
}

/// The first of several launchers on each node: the nodes are the scheduler's.
fn first_of_node(launch: Launch, options: &Options, env: &Environment) -> Result<Plan> {
    if launch.is_one_node() {
        return Ok(Plan::Alone);
    }
    match (launch.nodes, launch.node_rank) {
        (Some(nodes), Some(rank)) => meet(launch, nodes, rank, options),
        _ => Err(Error::value(format!(
            "rushlight run: {} does not say which of its nodes this is ({}): start one task for each node",
            launch.launcher,
            env.hostname()
        ))),
    }
}

fn meet(launch: Launch, count: usize, rank: usize, options: &Options) -> Result<Plan> {
    let host = launch.hosts.first().cloned().ok_or_else(|| {
        Error::value(format!(
            "rushlight run: {} does not say on which hosts the job runs: give --nnodes and --rdzv-endpoint HOST:PORT",
            launch.launcher
        ))
    })?;
    let nodes = options.nnodes.map_or((count, count), |(least, most)| (least.min(count), most.min(count)));
    let ports = candidate_ports(&format!("rushlight run {}", launch.job));
    Ok(Plan::Node(Meeting { host, ports, nodes, node_rank: Some(rank), launch: Some(launch) }))
}

/// Options of `srun` that start one agent on each node, with all of its processors.
fn srun(nodes: usize, env: &Environment) -> Vec<String> {
    let mut options = vec![
        format!("--nodes={nodes}"),
        format!("--ntasks={nodes}"),
        "--ntasks-per-node=1".into(),
        "--cpu-bind=none".into(),
        // Agents stop their ranks themselves, and an elastic job continues without a lost node.
        "--kill-on-bad-exit=0".into(),
    ];
    // Nodes may have different numbers of processors: use the smallest.
    let cpus = env.get("SLURM_JOB_CPUS_PER_NODE").and_then(|list| {
        let counts = list.split(',').map(|item| item.split('(').next()?.trim().parse::<usize>().ok());
        counts.collect::<Option<Vec<_>>>()?.into_iter().min()
    });
    options.extend(cpus.map(|n| format!("--cpus-per-task={n}")));
    options
}

/// The number of ranks on this node.
pub fn local_size(options: &Options, env: &Environment, gpus: impl Fn() -> Result<usize>) -> Result<usize> {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let allocated =
        env.get("SLURM_JOB_ID").is_some() || env.get("PBS_JOBID").is_some() || env.get("FLUX_JOB_ID").is_some();
    match options.nproc {
        Some(Nproc::Count(n)) => Ok(n),
        Some(Nproc::Cpu) => Ok(processors()),
        Some(Nproc::Gpu) => match gpus() {
            Ok(0) => Err(Error::value(
                "rushlight run: --nproc-per-node gpu, but this node has no GPU that can be used; `rushlight doctor` says why",
            )),
            found => found,
        },
        Some(Nproc::Auto) => Ok(gpus().ok().filter(|&n| n > 0).unwrap_or_else(processors)),
        None if allocated => Ok(gpus().unwrap_or(0).max(1)),
        None => Ok(1),
    }
}

/// A name for the job.
pub fn run_id(options: &Options, env: &Environment) -> String {
    if let Some(id) = &options.run_id {
        return id.clone();
    }
    for name in ["SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID", "LSB_JOBID"] {
        if let Some(id) = env.get(name) {
            return id.to_owned();
        }
    }
    "none".into()
}

/// The hosts of a Slurm allocation, for messages.
pub fn allocation_hosts(env: &Environment) -> Option<String> {
    let hosts = expand_hosts(env.get("SLURM_JOB_NODELIST")?).ok()?;
    Some(if hosts.len() > 4 {
        format!("{} and {} more", hosts[..4].join(", "), hosts.len() - 4)
    } else {
        hosts.join(", ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn parse(line: &str) -> Options {
        let words = std::iter::once("run").chain(line.split_whitespace());
        options::read(&options::command().try_get_matches_from(words).unwrap(), |_| None).unwrap()
    }

    fn plan_of(line: &str, env: &str) -> Result<Plan> {
        plan(&parse(line), &Environment::recorded(env))
    }

    const STEP: &str = "SLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_LOCALID=0\nSLURM_NODEID=1\nSLURM_STEP_NUM_TASKS=2\n\
        SLURM_STEP_NUM_NODES=2\nSLURM_STEP_TASKS_PER_NODE=1(x2)\nSLURM_STEP_NODELIST=n[1-2]";

    #[test]
    fn without_a_scheduler() {
        assert!(matches!(plan_of("a", ""), Ok(Plan::Alone)));
        assert!(matches!(plan_of("--standalone a", STEP), Ok(Plan::Alone)));
        assert!(plan_of("--nnodes 2 a", "").unwrap_err().to_string().contains("--rdzv-endpoint"));
        let Ok(Plan::Node(m)) = plan_of("--nnodes 1:4 --rdzv-endpoint h:5 a", "") else { panic!() };
        assert_eq!((m.host.as_str(), m.ports, m.nodes, m.node_rank), ("h", vec![5], (1, 4), None));
        let Ok(Plan::Node(m)) = plan_of("--nnodes 2 --node-rank 1 --master-addr h --master-port 5 a", "") else {
            panic!()
        };
        assert_eq!((m.ports.len(), m.node_rank), (16, Some(1)));
        assert!(!m.ports.contains(&5));
        assert!(plan_of("--nnodes 2 --master-addr h a", "").unwrap_err().to_string().contains("--node-rank"));
        // A rank of an outer job.
        let rank = "TORCHELASTIC_RUN_ID=x\nRANK=1\nWORLD_SIZE=2\nLOCAL_RANK=1";
        assert!(matches!(plan_of("a", rank), Ok(Plan::Alone)));
    }

    #[test]
    fn in_a_slurm_step() {
        let Ok(Plan::Node(m)) = plan_of("train", STEP) else { panic!() };
        assert_eq!((m.host.as_str(), m.nodes, m.node_rank, m.ports.len()), ("n1", (2, 2), Some(1), 16));
        let Ok(Plan::Node(m)) = plan_of("--nnodes 1:2 train", STEP) else { panic!() };
        assert_eq!(m.nodes, (1, 2));
        let ranks = STEP
            .replace("NUM_TASKS=2", "NUM_TASKS=4")
            .replace("1(x2)", "2(x2)")
            .replace("PROCID=1", "PROCID=3")
            .replace("LOCALID=0", "LOCALID=1");
        let Ok(Plan::Placed { launch, meeting }) = plan_of("train", &ranks) else { panic!() };
        assert_eq!((launch.rank, launch.world_size, meeting.host.as_str()), (3, 4, "n1"));
        assert!(plan_of("--max-restarts 2 train", &ranks).is_err());
        // As in the manual of the H100 cluster: as many launchers as GPUs.
        assert!(matches!(plan_of("--standalone --nnodes=1 --nproc-per-node=2 t", &ranks), Ok(Plan::Superfluous)));
        assert!(matches!(plan_of("--nproc-per-node=2 t", &ranks), Ok(Plan::Superfluous)));
    }

    #[test]
    fn in_a_batch_script() {
        let script = "SLURM_JOB_ID=7\nSLURM_PROCID=0\nSLURM_NTASKS=2\nSLURM_JOB_NUM_NODES=2\nSLURM_JOB_CPUS_PER_NODE=8(x1),4\nSLURM_JOB_NODELIST=n[1-2]";
        let Ok(Plan::Srun(options)) = plan_of("train", script) else { panic!() };
        assert!(options.contains(&"--nodes=2".to_owned()) && options.contains(&"--cpus-per-task=4".to_owned()));
        let one = script.replace("NUM_NODES=2", "NUM_NODES=1");
        assert!(matches!(plan_of("train", &one), Ok(Plan::Alone)));
        assert!(matches!(plan_of("--standalone train", script), Ok(Plan::Alone)));
    }

    #[test]
    fn ranks_of_a_node() {
        let (none, slurm) = (Environment::recorded(""), Environment::recorded("SLURM_JOB_ID=7"));
        let size = |line: &str, env: &Environment, gpus: usize| local_size(&parse(line), env, || Ok(gpus));
        assert_eq!(size("a", &none, 8).unwrap(), 1);
        assert_eq!(size("a", &slurm, 8).unwrap(), 8);
        assert_eq!(size("a", &slurm, 0).unwrap(), 1);
        assert_eq!(size("--nproc-per-node auto a", &none, 3).unwrap(), 3);
        assert_eq!(size("--nproc-per-node 5 a", &slurm, 3).unwrap(), 5);
        assert!(size("--nproc-per-node gpu a", &none, 0).is_err());
    }
}
