//! Ranks that die, hang, leave or call something else are named on every other rank.

use crate::support::Ranks;
use rushlight_dist::ReduceOp;
use rushlight_tensor::Tensor;
use std::time::{Duration, Instant};

fn ones(n: usize) -> Tensor {
    Tensor::ones([n]).unwrap()
}

fn names(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

/// One rank calls something else.
fn mismatch(test: &'static str, nodes: usize) {
    Ranks::new(test, 3).nodes(nodes).run(|world| {
        world.barrier().unwrap();
        let error = match world.rank() {
            1 => world.all_reduce(&ones(5), ReduceOp::Sum),
            _ => world.all_reduce(&ones(4), ReduceOp::Sum),
        };
        let message = error.unwrap_err().to_string();
        names(&message, &["different collectives", "float32 [4]", "rank 1 called all_reduce(sum) float32 [5]"]);
        // The group cannot be used any more, and reports why.
        names(&world.barrier().unwrap_err().to_string(), &["different collectives"]);
    });
}

#[test]
fn mismatch_on_one_node() {
    mismatch("failures::mismatch_on_one_node", 1);
}

/// The root of a broadcast sends and continues. The error names that call, not its next one.
fn a_root_that_has_gone_on(test: &'static str, nodes: usize) {
    Ranks::new(test, 2).nodes(nodes).run(|world| {
        let error = match world.rank() {
            0 => world.all_reduce(&ones(4), ReduceOp::Sum),
            _ => world.broadcast(&ones(4), 1).and_then(|()| world.barrier()),
        };
        names(
            &error.unwrap_err().to_string(),
            &["different collectives", "called all_reduce(sum) float32 [4]", "called broadcast(from 1) float32 [4]"],
        );
    });
}

#[test]
fn another_collective_on_one_node() {
    a_root_that_has_gone_on("failures::another_collective_on_one_node", 1);
}

#[test]
fn another_collective_between_nodes() {
    a_root_that_has_gone_on("failures::another_collective_between_nodes", 2);
}

/// Both ranks only send: the next collective detects it.
fn nobody_waits(test: &'static str, nodes: usize) {
    Ranks::new(test, 2).nodes(nodes).run(|world| {
        let sent = match world.rank() {
            0 => world.broadcast(&ones(4), 0),
            _ => world.reduce(&ones(4), ReduceOp::Sum, 0),
        };
        let message = sent.and_then(|()| world.barrier()).unwrap_err().to_string();
        names(
            &message,
            &["different collectives", "called broadcast(from 0) float32 [4]", "called reduce(sum, to 0) float32 [4]"],
        );
    });
}

#[test]
fn nobody_waits_on_one_node() {
    nobody_waits("failures::nobody_waits_on_one_node", 1);
}

#[test]
fn nobody_waits_between_nodes() {
    nobody_waits("failures::nobody_waits_between_nodes", 2);
}

fn death(test: &'static str, nodes: usize) {
    Ranks::new(test, 3).nodes(nodes).victims(&[1]).run(|world| {
        // The death may reach a rank before the last message of the barrier does.
        let met = world.barrier();
        if world.rank() == 1 {
            std::process::abort();
        }
        let sum = met.and_then(|()| world.all_reduce(&ones(100_000), ReduceOp::Sum));
        let message = sum.unwrap_err().to_string();
        names(&message, &["rank 1"]);
    });
}

#[test]
fn death_on_one_node() {
    death("failures::death_on_one_node", 1);
}

#[test]
fn death_between_nodes() {
    death("failures::death_between_nodes", 3);
}

#[test]
fn death_of_the_store() {
    Ranks::new("failures::death_of_the_store", 2).victims(&[0]).run(|world| {
        let met = world.barrier();
        if world.rank() == 0 {
            std::process::abort();
        }
        names(&met.and_then(|()| world.barrier()).unwrap_err().to_string(), &["rank 0"]);
    });
}

#[test]
fn panic_of_a_rank() {
    Ranks::new("failures::panic_of_a_rank", 2).victims(&[1]).run(|world| {
        let met = world.barrier();
        assert!(world.rank() == 0, "this rank panics on purpose");
        names(&met.and_then(|()| world.barrier()).unwrap_err().to_string(), &["rank 1", "panicked"]);
    });
}

#[test]
fn a_rank_that_leaves() {
    Ranks::new("failures::a_rank_that_leaves", 2).run(|world| {
        world.barrier().unwrap();
        if world.rank() == 0 {
            names(&world.barrier().unwrap_err().to_string(), &["rank 1 has left"]);
        }
    });
}

#[test]
fn a_rank_dies_while_rank_0_leaves() {
    Ranks::new("failures::a_rank_dies_while_rank_0_leaves", 2).victims(&[1]).run(|world| {
        world.barrier().unwrap();
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_secs(1));
            std::process::abort();
        }
        let since = Instant::now();
        drop(world);
        assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    });
}

#[test]
fn rank_0_leaves_while_another_receives() {
    Ranks::new("failures::rank_0_leaves_while_another_receives", 2).run(|world| {
        // A first message makes the connection; none follows.
        match world.rank() {
            0 => world.send(&ones(1), 1, 0).unwrap(),
            _ => world.recv(&ones(1), 0, 0).unwrap(),
        }
        let since = Instant::now();
        if world.rank() == 1 {
            names(&world.recv(&ones(1), 0, 0).unwrap_err().to_string(), &["rank 0 has left the job"]);
        }
        drop(world);
        assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    });
}

#[test]
fn different_world_sizes_are_named() {
    let since = Instant::now();
    Ranks::new("failures::different_world_sizes_are_named", 2).sizes(|rank| 2 + rank).meet(|world| {
        let message = world.err().expect("two worlds").to_string();
        names(&message, &["in a world of ", "in one of ", "rank 0 (process", "rank 1 (process", "WORLD_SIZE must be"]);
    });
    assert!(since.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_missing_rank_is_named_by_all() {
    let ranks = Ranks::new("failures::a_missing_rank_is_named_by_all", 3).absent(&[1]);
    ranks.timeout(Duration::from_secs(3)).meet(|world| {
        let message = world.err().expect("a rank is missing").to_string();
        names(&message, &["rank 1 of 3 did not join"]);
    });
}

#[test]
fn two_ranks_0_are_named() {
    // The first to come waits for rank 1, which never does.
    let ranks = Ranks::new("failures::two_ranks_0_are_named", 2).launched(|_| {
        let port = 20000 + (std::process::id() % 10000) as u16;
        vec![
            ("RANK", "0".into()),
            ("WORLD_SIZE", "2".into()),
            ("MASTER_ADDR", "127.0.0.1".into()),
            ("MASTER_PORT", port.to_string()),
            ("RUSHLIGHT_JOB_SECRET", "two ranks 0".into()),
        ]
    });
    ranks.timeout(Duration::from_secs(6)).meet(|world| {
        let message = world.err().expect("no world").to_string();
        assert!(message.contains("is rank 0 too") || message.contains("rank 1 of 2 did not join"), "{message}");
    });
}

fn hang(test: &'static str, nodes: usize) {
    Ranks::new(test, 3).nodes(nodes).timeout(Duration::from_secs(3)).run(|world| {
        world.barrier().unwrap();
        if world.rank() == 2 {
            std::thread::sleep(Duration::from_secs(5));
            // It, too, gets the reason.
            names(&world.barrier().unwrap_err().to_string(), &["timed out"]);
            return;
        }
        let message = world.all_reduce(&ones(10), ReduceOp::Sum).unwrap_err().to_string();
        names(
            &message,
            &[
                "all_reduce(sum) float32 [10]",
                "timed out after 3 s",
                "not here: rank 2 (its last: collective 1, barrier)",
            ],
        );
    });
}

#[test]
fn hang_on_one_node() {
    hang("failures::hang_on_one_node", 1);
}

#[test]
fn hang_between_nodes() {
    hang("failures::hang_between_nodes", 3);
}

#[test]
fn flight_record_as_json() {
    fn variables(_: usize) -> Vec<(&'static str, String)> {
        let prefix = std::env::temp_dir().join(format!("rushlight-flight-{}-", std::process::id()));
        vec![("RUSHLIGHT_FLIGHT_RECORD", prefix.display().to_string())]
    }
    let ranks = Ranks::new("failures::flight_record_as_json", 2).with(variables);
    ranks.run(|world| {
        world.all_reduce(&ones(3), ReduceOp::Sum).unwrap();
        let result = if world.rank() == 0 { world.barrier() } else { world.all_reduce(&ones(3), ReduceOp::Max) };
        assert!(result.is_err());
    });
    if std::env::var("RUSHLIGHT_FLIGHT_RECORD").is_err() {
        let prefix = &variables(0)[0].1;
        for rank in 0..2 {
            let text = std::fs::read_to_string(format!("{prefix}{rank}.json")).unwrap();
            let record: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(record["reason"].as_str().unwrap().contains("different collectives"), "{text}");
            assert_eq!(record["groups"][0]["entries"][0]["collective"], "all_reduce(sum) float32 [3]");
            assert_ne!(record["groups"][0]["entries"][1]["stage"], "completed");
        }
        (0..2).for_each(|rank| drop(std::fs::remove_file(format!("{prefix}{rank}.json"))));
    }
}
