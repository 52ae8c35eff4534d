//! Programs without distributed code, under launchers, or under variables that launchers set.

use crate::launchers::Launched;
use crate::support::Ranks;
use rushlight_dist::launch::Launcher;
use rushlight_dist::{ReduceOp, World};
use rushlight_tensor::Tensor;
use std::net::TcpListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

fn meets(world: World, launcher: Launcher) {
    assert_eq!((world.launch().launcher, world.size()), (launcher, 2));
    let x = Tensor::new([world.rank() as f32 + 1.0]).unwrap();
    world.all_reduce(&x, ReduceOp::Sum).unwrap();
    assert_eq!(x.item::<f32>().unwrap(), 3.0);
}

/// A home for the user's key that is not the user's.
fn home() -> (&'static str, String) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let home = std::env::temp_dir().join(format!("rushlight-home-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    ("HOME", home.display().to_string())
}

/// Hydra on one node provides neither rendezvous nor secret.
fn hydra(rank: usize) -> Vec<(&'static str, String)> {
    let rank = rank.to_string();
    vec![
        ("PMI_RANK", rank.clone()),
        ("PMI_SIZE", "2".into()),
        ("MPI_LOCALRANKID", rank),
        ("MPI_LOCALNRANKS", "2".into()),
        hydra_home(),
    ]
}

fn hydra_home() -> (&'static str, String) {
    static HOME: OnceLock<String> = OnceLock::new();
    ("HOME", HOME.get_or_init(|| home().1).clone())
}

#[test]
fn hydra_on_one_node() {
    Ranks::new("launched::hydra_on_one_node", 2).launched(hydra).run(|world| meets(world, Launcher::Hydra));
    if std::env::var("PMI_RANK").is_err() {
        std::fs::remove_dir_all(hydra_home().1).unwrap();
    }
}

/// The port of torchrun's agent: another program listens there, and never answers.
fn agent_port() -> u16 {
    static AGENT: OnceLock<TcpListener> = OnceLock::new();
    AGENT.get_or_init(|| TcpListener::bind("127.0.0.1:0").unwrap()).local_addr().unwrap().port()
}

fn torchrun(rank: usize) -> Vec<(&'static str, String)> {
    let rank = rank.to_string();
    vec![
        ("RANK", rank.clone()),
        ("WORLD_SIZE", "2".into()),
        ("LOCAL_RANK", rank),
        ("LOCAL_WORLD_SIZE", "2".into()),
        ("GROUP_RANK", "0".into()),
        ("GROUP_WORLD_SIZE", "1".into()),
        ("MASTER_ADDR", "localhost".into()),
        ("MASTER_PORT", agent_port().to_string()),
        ("TORCHELASTIC_RUN_ID", "none".into()),
        ("TORCHELASTIC_RESTART_COUNT", "0".into()),
        ("TORCHELASTIC_USE_AGENT_STORE", "True".into()),
        ("RUSHLIGHT_JOB_SECRET", "of this test".into()),
    ]
}

#[test]
fn torchrun_with_its_own_store() {
    let ranks = Ranks::new("launched::torchrun_with_its_own_store", 2).launched(torchrun);
    ranks.run(|world| meets(world, Launcher::Torchrun));
}

/// Set by hand, with a free port.
fn by_hand(rank: usize) -> Vec<(&'static str, String)> {
    static PORT: OnceLock<u16> = OnceLock::new();
    let port = PORT.get_or_init(|| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".into()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", port.to_string()),
        ("RUSHLIGHT_JOB_SECRET", "of this test".into()),
    ]
}

#[test]
fn rank_and_world_size_by_hand() {
    let ranks = Ranks::new("launched::rank_and_world_size_by_hand", 2).launched(by_hand);
    ranks.run(|world| meets(world, Launcher::Environment));
}

/// The embedded engine under a real launcher. MPI is not touched.
fn real(test: &'static str, launcher: &'static str, expected: Launcher) {
    let home = home();
    let directory = home.1.clone();
    let is_rank = std::env::var("PMI_RANK").is_ok() || std::env::var("OMPI_COMM_WORLD_RANK").is_ok();
    Launched::new(test, launcher, 2).backend("tcp").with(home.0, home.1).run(|world| {
        meets(world, expected);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("libmpi"), "the engine tcp has opened MPI");
    });
    if !is_rank {
        let _ = std::fs::remove_dir_all(directory);
    }
}

#[test]
fn a_real_mpich() {
    real("launched::a_real_mpich", "mpich", Launcher::Hydra);
}

#[test]
fn a_real_open_mpi() {
    real("launched::a_real_open_mpi", "openmpi", Launcher::OpenMpi);
}

#[test]
fn a_real_intel_mpi() {
    real("launched::a_real_intel_mpi", "impi", Launcher::Hydra);
}

#[test]
fn debians_mpich() {
    real("launched::debians_mpich", "debian-mpich", Launcher::Hydra);
}

#[test]
fn debians_open_mpi() {
    real("launched::debians_open_mpi", "debian-openmpi", Launcher::OpenMpi);
}
