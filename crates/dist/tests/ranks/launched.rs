//! Programs without a word about ranks, under variables as launchers set them.

use crate::support::Ranks;
use rushlight_dist::launch::Launcher;
use rushlight_dist::{ReduceOp, World};
use rushlight_tensor::Tensor;
use std::net::TcpListener;
use std::sync::OnceLock;

fn meets(world: World, launcher: Launcher) {
    assert_eq!((world.launch().launcher, world.size()), (launcher, 2));
    let x = Tensor::new([world.rank() as f32 + 1.0]).unwrap();
    world.all_reduce(&x, ReduceOp::Sum).unwrap();
    assert_eq!(x.item::<f32>().unwrap(), 3.0);
}

/// A home for the user's key that is not the user's.
fn home() -> (&'static str, String) {
    let home = std::env::temp_dir().join(format!("rushlight-home-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    ("HOME", home.display().to_string())
}

/// Hydra on one node says neither where nor by what secret to meet.
fn hydra(rank: usize) -> Vec<(&'static str, String)> {
    let rank = rank.to_string();
    vec![
        ("PMI_RANK", rank.clone()),
        ("PMI_SIZE", "2".into()),
        ("MPI_LOCALRANKID", rank),
        ("MPI_LOCALNRANKS", "2".into()),
        home(),
    ]
}

#[test]
fn hydra_on_one_node() {
    Ranks::new("launched::hydra_on_one_node", 2).launched(hydra).run(|world| meets(world, Launcher::Hydra));
    if std::env::var("PMI_RANK").is_err() {
        std::fs::remove_dir_all(home().1).unwrap();
    }
}

/// The port of torchrun's agent: somebody else listens there, and never answers.
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
