//! A real Slurm of two nodes on this machine: `srun`, `sbatch`, and Hydra inside an allocation.

use crate::launchers::{Launched, on_path, watch};
use rushlight_dist::launch::Launcher;
use rushlight_dist::{Init, ReduceOp};
use rushlight_tensor::Tensor;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set for ranks: the launcher that should have started them.
const EXPECTED: &str = "RUSHLIGHT_TEST_LAUNCHER";
const TEST: &str = "slurm::two_nodes";

/// A controller and two node daemons, stopped when dropped.
struct Cluster {
    directory: PathBuf,
    daemons: Vec<Child>,
}

impl Cluster {
    /// Nodes are named by loopback addresses, which every rank can resolve.
    fn start() -> Option<Self> {
        let programs = ["slurmctld", "slurmd", "srun", "sbatch", "salloc", "sinfo"].map(on_path);
        let [Some(controller), Some(node), .., Some(info)] = &programs else { return None };
        let directory = std::env::temp_dir().join(format!("rushlight-slurm-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        for part in ["state", "spool-127.0.0.1", "spool-127.0.0.2"] {
            std::fs::create_dir_all(directory.join(part)).expect("a directory");
        }
        let free: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let ports: Vec<u16> = free.iter().map(|l| l.local_addr().expect("a port").port()).collect();
        drop(free);
        let said = |program: &str, argument: &str| {
            let output = Command::new(program).arg(argument).output().expect("an answer");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        let (host, user, at) = (said("hostname", "-s"), said("id", "-un"), directory.display());
        let configuration = format!(
            "ClusterName=rushlight\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser={user}\nSlurmdUser={user}\n\
             SlurmctldPort={}\nAuthType=auth/none\nCredType=cred/none\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_Core\nSlurmdParameters=config_overrides\nReturnToService=2\n\
             StateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool-%n\nSlurmctldPidFile={at}/controller.pid\n\
             SlurmdPidFile={at}/node-%n.pid\nSlurmctldLogFile={at}/controller.log\nSlurmdLogFile={at}/node-%n.log\n\
             NodeName=127.0.0.1 NodeHostname={host} Port={} CPUs=4 RealMemory=1000\n\
             NodeName=127.0.0.2 NodeHostname={host} Port={} CPUs=4 RealMemory=1000\n\
             PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES\n",
            ports[0], ports[1], ports[2]
        );
        std::fs::write(directory.join("slurm.conf"), configuration).expect("a configuration");
        let mut cluster = Self { directory, daemons: Vec::new() };
        let mut start = |program: &PathBuf, arguments: &[&str]| {
            let mut command = cluster.command(program.to_str().expect("a path"));
            let quiet = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
            cluster.daemons.push(quiet.spawn().expect("a daemon"));
        };
        start(controller, &["-D"]);
        start(node, &["-D", "-N", "127.0.0.1"]);
        start(node, &["-D", "-N", "127.0.0.2"]);
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let output = cluster.command(info.to_str().expect("a path")).args(["-h", "-o", "%t %D"]).output();
            let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
            if text.trim() == "idle 2" {
                return Some(cluster);
            }
            assert!(Instant::now() < deadline, "Slurm's nodes do not come up: {text}\n{}", cluster.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // Hide the variables of a real Slurm job that runs the tests.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SLURM") {
                command.env_remove(name);
            }
        }
        command.env("SLURM_CONF", self.directory.join("slurm.conf"));
        command.env("HOME", &self.directory).env("RUSHLIGHT_NUM_THREADS", "1").env(EXPECTED, "slurm");
        command
    }

    fn logs(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        ["controller.log", "node-127.0.0.1.log", "node-127.0.0.2.log"].map(read).join("\n")
    }

    /// The output of a command's ranks, sorted.
    fn run(&self, program: &str, arguments: &[&str], expected: &str) -> Vec<String> {
        let mut command = self.command(program);
        command.args(arguments).env(EXPECTED, expected).current_dir(&self.directory);
        // srun belongs to no MPI: the library has to be named.
        let library = Launched::new(TEST, "mpich", 1).library_path("libmpi.so.12");
        if expected == "slurm mpi" && library.exists() {
            command.env("RUSHLIGHT_MPI_LIBRARY", library);
        }
        let (well, mut output) = watch(command);
        if let Ok(file) = std::fs::read_to_string(self.directory.join("batch.out")) {
            output += &file;
        }
        assert!(well, "{program} {arguments:?}:\n{output}\n{}", self.logs());
        let mut said: Vec<String> =
            output.lines().filter_map(|line| line.split_once("said: ")).map(|(_, text)| text.to_owned()).collect();
        said.sort();
        assert!(!said.is_empty(), "{program} {arguments:?} said nothing:\n{output}\n{}", self.logs());
        said
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // SAFETY: a process that was started here and has not been waited for.
            unsafe { libc::kill(daemon.id() as i32, libc::SIGTERM) };
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        for daemon in &mut self.daemons {
            while daemon.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Body of a rank: joins the others, over TCP between the nodes, and prints its rank.
fn rank(expected: &str) {
    let node = std::env::var("SLURMD_NODENAME").unwrap_or_default();
    let backend = if expected.ends_with("mpi") { "mpi" } else { "tcp" };
    let world = Init::new().timeout(Duration::from_secs(60)).node(&node).backend(backend).build().unwrap();
    let by = match expected.trim_end_matches(" mpi") {
        "hydra" => Launcher::Hydra,
        "single" => Launcher::Single,
        _ => Launcher::Slurm,
    };
    assert_eq!((world.launch().launcher, world.backend()), (by, backend));
    let x = Tensor::full([70_001], world.rank() as f64 + 1.0).unwrap();
    world.all_reduce(&x, ReduceOp::Sum).unwrap();
    let total = (world.size() * (world.size() + 1) / 2) as f64;
    assert_eq!(x.sum(..).unwrap().item::<f64>().unwrap(), 70_001.0 * total);
    let local = (world.local_rank(), world.local_size());
    let advice = if world.launch().advice.is_some() { ", with advice" } else { "" };
    // In a single write: ranks share the output.
    let line = format!("\nsaid: {}/{} {}/{}{advice}\n", world.rank(), world.size(), local.0, local.1);
    eprint!("{line}");
}

#[test]
fn two_nodes() {
    if let Ok(expected) = std::env::var(EXPECTED) {
        return rank(&expected);
    }
    let Some(cluster) = Cluster::start() else {
        assert!(std::env::var_os("CI").is_none(), "Slurm is missing: run scripts/launchers");
        return println!("skipped: no Slurm here (scripts/launchers installs it)");
    };
    let exe = std::env::current_exe().unwrap();
    let exe = exe.to_str().unwrap();
    let program = [exe, TEST, "--exact", "--nocapture"];
    let with = |arguments: &[&'static str]| [arguments, &program[..]].concat();
    // Three tasks: two on the first node, one on the second.
    let three = ["0/3 0/2", "1/3 1/2", "2/3 0/1"];
    assert_eq!(cluster.run("srun", &with(&["-N2", "-n3"]), "slurm"), three);
    // PMI's variables beside Slurm's own, and MPICH that finds its ranks by them.
    assert_eq!(cluster.run("srun", &with(&["-N2", "-n3", "--mpi=pmi2"]), "slurm"), three);
    assert_eq!(cluster.run("srun", &with(&["-N2", "-n3", "--mpi=pmi2"]), "slurm mpi"), three);

    // A batch script, with srun and without.
    let batch = |line: &str| {
        let script = format!("#!/bin/sh\n#SBATCH -N2 -n3\n{line} {}\n", program.join(" "));
        std::fs::write(cluster.directory.join("job.sh"), script).unwrap();
        let _ = std::fs::remove_file(cluster.directory.join("batch.out"));
    };
    batch("srun");
    assert_eq!(cluster.run("sbatch", &["--wait", "-N2", "-n3", "-o", "batch.out", "job.sh"], "slurm"), three);
    batch("exec");
    let alone = cluster.run("sbatch", &["--wait", "-N2", "-n3", "-o", "batch.out", "job.sh"], "single");
    assert_eq!(alone, ["0/1 0/1, with advice"]);
    let _ = std::fs::remove_file(cluster.directory.join("batch.out"));
    // A shell of an allocation.
    assert_eq!(cluster.run("salloc", &with(&["-N2", "-n3"]), "single"), ["0/1 0/1, with advice"]);
    assert_eq!(cluster.run("salloc", &with(&["-N2", "-n3", "srun"]), "slurm"), three);

    // Hydra inside an allocation: Slurm's variables count Hydra's proxies, not the ranks.
    let Some(hydra) = Launched::new(TEST, "mpich", 4).program().or_else(|| on_path("mpiexec.mpich")) else {
        return println!("skipped: no Hydra here (scripts/launchers installs MPICH)");
    };
    let hydra = hydra.to_str().unwrap();
    let four = ["0/4 0/2", "1/4 1/2", "2/4 0/2", "3/4 1/2"];
    let inside = [&["-N2", "-n2", hydra, "-bootstrap", "slurm", "-n", "4", "-ppn", "2"], &program[..]].concat();
    assert_eq!(cluster.run("salloc", &inside, "hydra"), four);
    assert_eq!(cluster.run("salloc", &inside, "hydra mpi"), four);
}
