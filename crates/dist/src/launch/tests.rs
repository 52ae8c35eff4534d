//! Recorded environments of every launcher, written from their documentation and from the variables that MPICH, Open
//! MPI, Intel MPI and Slurm were observed to set.

use super::*;

fn launch(lines: &str) -> Launch {
    detect_from(&Environment::recorded(lines)).unwrap_or_else(|e| panic!("{e}\n{lines}"))
}

fn refused(lines: &str, words: &[&str]) {
    let message = detect_from(&Environment::recorded(lines)).unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "{message:?} does not name {word}");
    }
}

/// Launcher, rank, world size, local rank, local size.
fn place(l: &Launch) -> (Launcher, usize, usize, Option<usize>, Option<usize>) {
    (l.launcher, l.rank, l.world_size, l.local_rank, l.local_size)
}

const TORCHRUN: &str = "RANK=5\nWORLD_SIZE=8\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=4\nGROUP_RANK=1\nGROUP_WORLD_SIZE=2\nMASTER_ADDR=n1\nMASTER_PORT=29500
TORCHELASTIC_RUN_ID=none\nTORCHELASTIC_RESTART_COUNT=0\nTORCHELASTIC_MAX_RESTARTS=0\nTORCHELASTIC_USE_AGENT_STORE=True";
const SLURM: &str = "SLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_STEPID=0\nSLURM_PROCID=2\nSLURM_LOCALID=0\nSLURM_NODEID=1\nSLURM_NTASKS=4
SLURM_STEP_NUM_TASKS=4\nSLURM_STEP_NUM_NODES=2\nSLURM_STEP_TASKS_PER_NODE=2(x2)\nSLURM_STEP_NODELIST=n[1-2]\nSLURM_JOB_NODELIST=n[1-2]";
const SHASTA: &str = "PALS_RANKID=9\nPALS_LOCAL_RANKID=1\nPALS_NODEID=1\nPALS_APINFO=/var/spool/x\nPMI_RANK=9\nPMI_SIZE=16\nPMI_LOCAL_RANK=1\nPMI_LOCAL_SIZE=8
PMI_CONTROL_PORT=20001\nPMI_SHARED_SECRET=1234567890\nSLURM_JOB_ID=3\nSLURM_STEP_ID=2\nSLURM_PROCID=9\nSLURM_LOCALID=1\nSLURM_NODEID=1
SLURM_STEP_NUM_TASKS=16\nSLURM_STEP_NUM_NODES=2\nSLURM_STEP_TASKS_PER_NODE=8(x2)\nSLURM_STEP_NODELIST=frontier[00001,00007]";
const PALS: &str = "PALS_RANKID=13\nPALS_LOCAL_RANKID=1\nPALS_LOCAL_SIZE=12\nPALS_NODEID=1\nPMIX_RANK=13\nPBS_NODEFILE=/nodes\nPBS_JOBID=9.aurora\nPALS_APID=abc";
const HYDRA: &str = "PMI_RANK=3\nPMI_SIZE=4\nPMI_FD=7\nMPI_LOCALRANKID=3\nMPI_LOCALNRANKS=4";
const INTEL: &str = "PMI_RANK=1\nPMI_SIZE=4\nPMI_FD=9\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2\nI_MPI_MPIRUN=mpirun\nI_MPI_HYDRA_UUID=1f\nHYDRA_BSTRAP_XTERM=1";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=2\nOMPI_COMM_WORLD_SIZE=3\nOMPI_COMM_WORLD_LOCAL_RANK=2\nOMPI_COMM_WORLD_LOCAL_SIZE=3\nOMPI_COMM_WORLD_NODE_RANK=2
PMIX_RANK=2\nPMIX_NAMESPACE=123\nOMPI_MCA_orte_precondition_transports=5f-6e";
const FLUX: &str = "FLUX_TASK_RANK=3\nFLUX_JOB_SIZE=4\nFLUX_TASK_LOCAL_ID=1\nFLUX_JOB_NNODES=2\nFLUX_JOB_ID=f1\nPMI_RANK=3\nPMI_SIZE=4\nPMI_FD=5";
const JSRUN: &str = "JSM_NAMESPACE_RANK=6\nJSM_NAMESPACE_SIZE=12\nJSM_NAMESPACE_LOCAL_RANK=0\nLSB_JOBID=5\nLSB_DJOB_RANKFILE=/ranks\nOMPI_COMM_WORLD_RANK=6
OMPI_COMM_WORLD_SIZE=12\nOMPI_COMM_WORLD_LOCAL_SIZE=6\nPMIX_RANK=6\nPMIX_NAMESPACE=1";
const MVAPICH: &str = "MV2_COMM_WORLD_RANK=1\nMV2_COMM_WORLD_SIZE=2\nMV2_COMM_WORLD_LOCAL_RANK=1\nMV2_COMM_WORLD_LOCAL_SIZE=2\nMPIRUN_ID=7\nPMI_RANK=1\nPMI_SIZE=2";
const KUBEFLOW: &str = "RANK=1\nWORLD_SIZE=3\nMASTER_ADDR=job-master-0\nMASTER_PORT=23456\nPET_NNODES=3\nPET_NODE_RANK=1\nKUBERNETES_SERVICE_HOST=10.0.0.1";

#[test]
fn each_launcher() {
    use Launcher::*;
    assert_eq!(place(&launch(TORCHRUN)), (Torchrun, 5, 8, Some(1), Some(4)));
    assert_eq!(place(&launch(SLURM)), (Slurm, 2, 4, Some(0), Some(2)));
    assert_eq!(place(&launch(SHASTA)), (CrayShasta, 9, 16, Some(1), Some(8)));
    assert_eq!(place(&launch(HYDRA)), (Hydra, 3, 4, Some(3), Some(4)));
    assert_eq!(place(&launch(INTEL)), (Hydra, 1, 4, Some(1), Some(2)));
    assert_eq!(place(&launch(OPEN_MPI)), (OpenMpi, 2, 3, Some(2), Some(3)));
    assert_eq!(place(&launch(FLUX)), (Flux, 3, 4, Some(1), None));
    assert_eq!(place(&launch(JSRUN)), (Jsrun, 6, 12, Some(0), Some(6)));
    assert_eq!(place(&launch(MVAPICH)), (Mvapich, 1, 2, Some(1), Some(2)));
    assert_eq!(place(&launch(&MVAPICH.replace("MV2_", "MVP_"))), (Mvapich, 1, 2, Some(1), Some(2)));
    assert_eq!(place(&launch(KUBEFLOW)), (Kubeflow, 1, 3, Some(0), Some(1)));
    assert_eq!(place(&launch("RANK=1\nWORLD_SIZE=2")), (Launcher::Environment, 1, 2, None, None));
    assert_eq!(place(&launch("")), (Single, 0, 1, Some(0), Some(1)));
    assert_eq!(launch(SHASTA).launcher_secret.as_deref(), Some("1234567890"));
    assert_eq!(launch(SHASTA).hosts, ["frontier00001", "frontier00007"]);
    assert_eq!(launch(SLURM).hosts, ["n1", "n2"]);
    assert_eq!(launch(OPEN_MPI).launcher_secret.as_deref(), Some("5f-6e"));
}

#[test]
fn slurm_nodes_with_different_numbers_of_tasks() {
    let uneven = SLURM.replace("2(x2)", "4,1").replace("NUM_TASKS=4", "NUM_TASKS=5").replace("PROCID=2", "PROCID=4");
    assert_eq!(launch(&uneven).local_size, Some(1));
    refused(&SLURM.replace("2(x2)", "4"), &["SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=4"]);
}

#[test]
fn the_innermost_launcher_wins() {
    // Hydra started by Slurm: SLURM_PROCID counts the proxies.
    let dawn = format!("{SLURM}\n{}", HYDRA.replace("PMI_RANK=3", "PMI_RANK=1"));
    assert_eq!(place(&launch(&dawn)), (Launcher::Hydra, 1, 4, Some(3), Some(4)));
    assert_eq!(launch(&format!("{SLURM}\n{TORCHRUN}")).launcher, Launcher::Torchrun);
    assert_eq!(launch(&format!("{SLURM}\n{OPEN_MPI}")).launcher, Launcher::OpenMpi);
    // srun --mpi=pmi2 sets the same variables as Hydra, except for the local rank.
    let pmi2 = format!("{SLURM}\nPMI_RANK=2\nPMI_SIZE=4\nPMI_FD=8\nPMI_JOBID=7.0");
    assert_eq!(place(&launch(&pmi2)), (Launcher::Slurm, 2, 4, Some(0), Some(2)));
}

#[test]
fn pals_without_a_world_size() {
    let env = |lines: &str| Environment::recorded(lines).with_file("/nodes", "x1000\nx1001\nx1000\nx1001\n");
    let l = detect_from(&env(PALS)).unwrap();
    assert_eq!(place(&l), (Launcher::Pals, 13, 24, Some(1), Some(12)));
    assert_eq!((l.hosts.as_slice(), l.nodes), (["x1000".to_owned(), "x1001".to_owned()].as_slice(), Some(2)));
    refused(PALS, &["PBS_NODEFILE=/nodes", "RUSHLIGHT_WORLD_SIZE"]);
    assert_eq!(launch(&format!("{PALS}\nRUSHLIGHT_WORLD_SIZE=20")).world_size, 20);
    assert_eq!(detect_from(&env(&format!("{PALS}\nPMI_SIZE=20"))).unwrap().world_size, 20);
    for size in ["1", "48"] {
        let message = detect_from(&env(&format!("{PALS}\nPMI_SIZE={size}"))).unwrap_err().to_string();
        assert!(message.contains("PMI_SIZE") && message.contains("PALS_LOCAL_SIZE"), "{message}");
    }
    let message = detect_from(&env(&PALS.replace("PALS_RANKID=13", "PALS_RANKID=24"))).unwrap_err().to_string();
    assert!(message.contains("PALS_RANKID=24"), "{message}");
}

#[test]
fn contradictions_name_the_variables() {
    refused(&format!("{SLURM}\nPMI_RANK=0\nPMI_SIZE=4"), &["SLURM_PROCID=2", "PMI_RANK=0"]);
    refused(&SHASTA.replace("PMI_SIZE=16", "PMI_SIZE=8"), &["SLURM_STEP_NUM_TASKS=16", "PMI_SIZE=8"]);
    refused(&format!("{HYDRA}\nWORLD_SIZE=7"), &["WORLD_SIZE=7", "Hydra"]);
    refused(&format!("{HYDRA}\nRANK=0\nWORLD_SIZE=4"), &["RANK=0", "Hydra"]);
    refused(&format!("{HYDRA}\nRANK=0"), &["RANK=0", "Hydra"]);
    refused(&HYDRA.replace("PMI_SIZE=4", "PMI_SIZE=2"), &["rank", "3 of 2", "PMI_SIZE"]);
    refused(&HYDRA.replace("PMI_SIZE=4", "PMI_SIZE=many"), &["PMI_SIZE=many"]);
    refused(&HYDRA.replace("PMI_SIZE=4", "X=4"), &["PMI_SIZE"]);
    refused(&HYDRA.replace("PMI_SIZE=4", "PMI_SIZE=0"), &["PMI_SIZE=0"]);
    refused(&HYDRA.replace("NRANKS=4", "NRANKS=3"), &["local rank"]);
    refused("TORCHELASTIC_RUN_ID=x\nRANK=0", &["WORLD_SIZE"]);
}

#[test]
fn variables_set_by_hand_that_agree() {
    assert_eq!(launch(&format!("{HYDRA}\nRANK=3\nWORLD_SIZE=4\nLOCAL_RANK=3")).launcher, Launcher::Hydra);
    assert_eq!(launch(&format!("{HYDRA}\nWORLD_SIZE=4")).launcher, Launcher::Hydra);
    // Two tasks of Slurm that spawn four workers each.
    let spawned = format!("{}\nRANK=9\nWORLD_SIZE=16\nLOCAL_RANK=1", SLURM);
    assert_eq!(place(&launch(&spawned)), (Launcher::Environment, 9, 16, Some(1), None));
    refused(&spawned.replace("RANK=9", "RANK=0").replace("LOCAL_RANK=0", "LOCAL_RANK=1"), &["WORLD_SIZE=16"]);
}

#[test]
fn allocations_without_srun_give_advice() {
    let batch = launch("SLURM_JOB_ID=7\nSLURM_PROCID=0\nSLURM_NTASKS=4\nSLURM_LOCALID=0");
    assert_eq!((batch.launcher, batch.world_size), (Launcher::Single, 1));
    assert!(batch.advice.unwrap().contains("srun"));
    let shell = launch("SLURM_JOB_ID=7\nSLURM_NTASKS=4\nSLURM_JOB_NAME=interactive");
    assert!(shell.advice.unwrap().contains("shell of an allocation"));
    let step =
        launch("SLURM_JOB_ID=7\nSLURM_NTASKS=4\nSLURM_PROCID=0\nSLURM_STEP_ID=4294967290\nSLURM_STEP_NUM_TASKS=1");
    assert!(step.advice.is_some());
    assert!(launch("SLURM_JOB_ID=7\nSLURM_PROCID=0\nSLURM_NTASKS=1").advice.is_none());
    // An inner srun of an allocation keeps the job's name.
    assert_eq!(launch(&format!("{SLURM}\nSLURM_JOB_NAME=interactive")).launcher, Launcher::Slurm);
}

#[test]
fn meeting_points() {
    let meet = |lines: &str| {
        let env = Environment::recorded(lines);
        Rendezvous::new(&detect_from(&env).unwrap(), &env)
    };
    let slurm = meet(SLURM).unwrap();
    assert_eq!(slurm.host, "n1");
    assert_eq!(slurm.ports, candidate_ports(&slurm.job));
    assert_ne!(slurm.ports, meet(&SLURM.replace("STEP_ID=0", "STEP_ID=1")).unwrap().ports);
    assert_eq!(meet(&format!("{SLURM}\nMASTER_ADDR=10.0.0.1\nMASTER_PORT=3442")).unwrap().ports, [3442]);
    // The agent's store holds MASTER_PORT.
    let torchrun = meet(TORCHRUN).unwrap();
    assert_eq!(torchrun.host, "n1");
    assert!(!torchrun.ports.contains(&29500));
    assert_eq!(meet(&TORCHRUN.replace("STORE=True", "STORE=False")).unwrap().ports, [29500]);
    let ranks = Environment::recorded(JSRUN).with_file("/ranks", "batch1\nh1\nh1\nh2\n");
    assert_eq!(Rendezvous::new(&detect_from(&ranks).unwrap(), &ranks).unwrap().host, "h1");
    assert!(meet(INTEL).unwrap_err().to_string().contains("MASTER_ADDR"));
    assert!(meet(&format!("{INTEL}\nMASTER_ADDR=h")).unwrap_err().to_string().contains("MASTER_PORT"));
    assert!(meet(&format!("{INTEL}\nMASTER_ADDR=h\nMASTER_PORT=70000")).unwrap_err().to_string().contains("70000"));
}

#[test]
fn ports_avoid_the_ephemeral_range() {
    for job in ["a", "b", "Slurm 1 0"] {
        let ports = candidate_ports(job);
        assert_eq!(ports.len(), 16);
        assert!(ports.iter().all(|p| (15000..32768).contains(p)));
    }
    let env = Environment::recorded("").with_file("/proc/sys/net/ipv4/ip_local_port_range", "20000\t30000\n");
    assert_eq!(address::ephemeral_range(&env), 20000..=30000);
    assert_eq!(address::ephemeral_range(&Environment::recorded("")), 32768..=60999);
}

#[test]
fn interface_choice() {
    let all: Vec<Interface> = [
        ("lo", "127.0.0.1"),
        ("eth0", "fe80::1"),
        ("eth0", "2001:db8::1"),
        ("eth0", "192.168.0.2"),
        ("docker0", "172.17.0.1"),
        ("ib0", "10.1.0.2"),
        ("hsn0", "10.2.0.2"),
        ("hsn1", "10.3.0.2"),
    ]
    .map(|(name, address)| Interface { name: name.into(), address: address.parse().unwrap() })
    .into();
    let choose =
        |lines: &str| choose_interface(&all, &Environment::recorded(lines)).map(|i| i.unwrap().address.to_string());
    assert_eq!(choose("").unwrap(), "10.2.0.2");
    assert_eq!(choose("NCCL_SOCKET_IFNAME=hsn1").unwrap(), "10.3.0.2");
    assert_eq!(choose("NCCL_SOCKET_IFNAME==ib0\nGLOO_SOCKET_IFNAME=eth0").unwrap(), "10.1.0.2");
    assert_eq!(choose("GLOO_SOCKET_IFNAME=eth").unwrap(), "192.168.0.2");
    assert_eq!(choose("NCCL_SOCKET_IFNAME=^hsn,ib").unwrap(), "192.168.0.2");
    assert_eq!(choose("NCCL_SOCKET_IFNAME=lo").unwrap(), "127.0.0.1");
    assert!(choose("NCCL_SOCKET_IFNAME=mlx").unwrap_err().to_string().contains("NCCL_SOCKET_IFNAME=mlx"));
    assert_eq!(choose_interface(&all[..2], &Environment::recorded("")).unwrap(), None);
    assert!(interfaces().iter().any(|i| i.address.is_loopback()));
}

#[test]
fn names_are_resolved_without_dns() {
    let env = Environment::recorded("")
        .with_file("/etc/hosts", "# comment\n10.0.0.9 n9.local n9\n")
        .with_hostname("n1.cluster");
    let resolve = |host: &str| resolve(host, &env, std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(resolve("10.1.2.3"), ["10.1.2.3".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(resolve("[::1]"), ["::1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(resolve("N9"), ["10.0.0.9".parse::<std::net::IpAddr>().unwrap()]);
    assert!(resolve("n1.hsn").iter().all(std::net::IpAddr::is_loopback));
}

#[test]
fn mpi_is_served_by_its_launchers_only() {
    let served = |lines: &str| {
        let env = Environment::recorded(lines);
        detect_from(&env).unwrap().is_mpi(&env)
    };
    assert!(served(HYDRA) && served(OPEN_MPI) && served(SHASTA));
    assert!(served(&format!("{SLURM}\nPMI_RANK=2\nPMI_SIZE=4\nPMI_FD=8")));
    assert!(!served(SLURM) && !served("") && !served("RANK=0\nWORLD_SIZE=2"));
    // torchrun within an MPI job: its ranks are not MPI's.
    assert!(!served(&format!("{OPEN_MPI}\n{TORCHRUN}")));
}

#[test]
fn addresses_by_route() {
    let own = interfaces();
    let env = Environment::recorded("");
    // An address of this machine is its own way, whatever the interface is called.
    for interface in own.iter().filter(|i| i.is_usable()) {
        assert_eq!(address_towards(&interface.address.to_string(), &own, &env), Some(interface.address));
    }
    assert_eq!(address_towards("127.0.0.1", &own, &env), None);
    let named = |name: &str, address: &str| Interface { name: name.into(), address: address.parse().unwrap() };
    let odd = [named("lo", "127.0.0.1"), named("vA", "10.9.0.1")];
    assert_eq!(address_towards("10.9.0.1", &odd, &env), Some("10.9.0.1".parse().unwrap()));
    assert!(odd[1].is_usable() && !odd[0].is_usable() && !odd[1].is_fast() && named("hsn3", "10.0.0.1").is_fast());
}

/// A host whose interfaces have unusual names is reached all the same; addresses of loopback are never given to others.
#[test]
fn interfaces_of_any_name_have_addresses() {
    let named = |name: &str, address: &str| Interface { name: name.into(), address: address.parse().unwrap() };
    let ip = |address: &str| Some(address.parse().unwrap());
    let order = |all: &[Interface], route, lines: &str| {
        let found = own_addresses(all, &Environment::recorded(lines), route).unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let mut all = vec![named("lo", "127.0.0.1"), named("vA", "10.9.0.1"), named("vB", "10.8.0.1")];
    // The route decides; without one, every address that others may reach.
    assert_eq!(order(&all, ip("10.8.0.1"), ""), "10.8.0.1");
    assert_eq!(order(&all, None, ""), "10.9.0.1 10.8.0.1");
    assert_eq!(order(&all, ip("127.0.0.1"), ""), "10.9.0.1 10.8.0.1");
    // A usual name comes after the route, a fast network and the user's choice before it.
    all.push(named("eth0", "192.168.0.2"));
    assert_eq!(order(&all, ip("10.9.0.1"), ""), "10.9.0.1 192.168.0.2");
    assert_eq!(order(&all, ip("10.9.0.1"), "GLOO_SOCKET_IFNAME=vB"), "10.8.0.1 10.9.0.1");
    all.push(named("hsn0", "10.2.0.2"));
    assert_eq!(order(&all, ip("10.9.0.1"), ""), "10.2.0.2 10.9.0.1");
    // A variable of another machine is passed over.
    assert_eq!(order(&all, None, "NCCL_SOCKET_IFNAME=mlx"), "10.2.0.2");
    assert!(own_addresses(&all, &Environment::recorded("GLOO_SOCKET_IFNAME=mlx"), None).is_err());
}

#[test]
fn devices() {
    let choose = |lines: &str, count| {
        let env = Environment::recorded(lines);
        choose_device(&detect_from(&env).unwrap(), &env, count).map(|d| d.index)
    };
    assert_eq!(choose(HYDRA, 4), Some(3));
    assert_eq!(choose(&format!("{HYDRA}\nZE_AFFINITY_MASK=3"), 1), Some(0));
    assert_eq!(choose(HYDRA, 2), Some(1));
    assert_eq!(choose(HYDRA, 0), None);
}

#[test]
fn explicit_places() {
    assert_eq!(Launch::explicit(1, 2).unwrap().rank, 1);
    assert!(Launch::explicit(2, 2).is_err());
    assert!(Launch::explicit(0, 0).is_err());
}
