//! The engine `mpi` under real launchers, with real libraries of every ABI.

use crate::collectives;
use crate::launchers::{Launched, report, report_as};
use rushlight_dist::{ReduceOp, World};
use rushlight_tensor::Tensor;
use std::time::Duration;

fn ones(n: usize) -> Tensor {
    Tensor::ones([n]).unwrap()
}

fn names(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

fn everything(world: World) {
    assert_eq!(world.backend(), "mpi");
    collectives::everything(world);
}

#[test]
fn collectives_by_mpich() {
    Launched::new("mpi::collectives_by_mpich", "mpich", 3).run(everything);
}

#[test]
fn collectives_by_open_mpi() {
    Launched::new("mpi::collectives_by_open_mpi", "openmpi", 3).run(everything);
}

#[test]
fn collectives_by_intel_mpi() {
    Launched::new("mpi::collectives_by_intel_mpi", "impi", 2).run(everything);
}

/// The standard ABI of MPI 5, as MPICH has it, with messages cut into pieces.
#[test]
fn collectives_by_the_standard_abi() {
    Launched::new("mpi::collectives_by_the_standard_abi", "mpich", 2)
        .library("libmpi_abi.so.1")
        .with("RUSHLIGHT_MPI_CHUNK", "100000")
        .run(everything);
}

#[test]
fn collectives_by_debian_mpich() {
    Launched::new("mpi::collectives_by_debian_mpich", "debian-mpich", 2).run(everything);
}

#[test]
fn collectives_by_debian_open_mpi() {
    Launched::new("mpi::collectives_by_debian_open_mpi", "debian-openmpi", 2).run(everything);
}

#[test]
fn collectives_of_one_process() {
    Launched::new("mpi::collectives_of_one_process", "mpich", 1).run(everything);
}

/// A launcher with the library of another MPI: each rank would be alone.
#[test]
fn a_library_of_another_launcher() {
    let other = Launched::new("", "openmpi", 2).library("libmpi.so.40");
    let test = Launched::new("mpi::a_library_of_another_launcher", "mpich", 2).variables_of(other);
    test.refused(|message| {
        names(message, &["Hydra", "rank", "of 2", "MPI says rank 0 of 1", "Open MPI", "RUSHLIGHT_MPI_LIBRARY"])
    });
}

fn mismatch(test: &'static str, launcher: &'static str) {
    Launched::new(test, launcher, 3).fails(1).run(|world| {
        world.barrier().unwrap();
        let n = if world.rank() == 1 { 5 } else { 4 };
        let message = world.all_reduce(&ones(n), ReduceOp::Sum).unwrap_err().to_string();
        names(&message, &["different collectives", "float32 [4]", "rank 1 called all_reduce(sum) float32 [5]"]);
        names(&world.barrier().unwrap_err().to_string(), &["different collectives"]);
        report();
    });
}

#[test]
fn mismatch_under_mpich() {
    mismatch("mpi::mismatch_under_mpich", "mpich");
}

#[test]
fn mismatch_under_open_mpi() {
    mismatch("mpi::mismatch_under_open_mpi", "openmpi");
}

/// Both other ranks name a rank that dies, through our detection: the launcher does not see it in time.
fn death(test: &'static str, launcher: &'static str) {
    Launched::new(test, launcher, 3).survivors(&[0, 2]).run(|world| {
        let met = world.barrier();
        if world.rank() == 1 {
            std::process::abort();
        }
        let sum = met.and_then(|()| world.all_reduce(&ones(100_000), ReduceOp::Sum));
        let message = sum.unwrap_err().to_string();
        names(&message, &["rank 1 died"]);
        report_as(world.rank());
    });
}

#[test]
fn death_under_mpich() {
    death("mpi::death_under_mpich", "mpich");
}

#[test]
fn death_under_open_mpi() {
    death("mpi::death_under_open_mpi", "openmpi");
}

#[test]
fn hang_under_mpich() {
    let test = Launched::new("mpi::hang_under_mpich", "mpich", 3).timeout(Duration::from_secs(3)).fails(1);
    test.run(|world| {
        world.barrier().unwrap();
        if world.rank() == 2 {
            std::thread::sleep(Duration::from_secs(5));
            names(&world.barrier().unwrap_err().to_string(), &["timed out"]);
            return report();
        }
        let message = world.all_reduce(&ones(10), ReduceOp::Sum).unwrap_err().to_string();
        let late = "not here: rank 2 (its last: collective 1, barrier)";
        names(&message, &["all_reduce(sum) float32 [10]", "timed out after 3 s", late]);
        // A group that is not made by all its ranks.
        assert!(world.new_group(&[0, 1]).is_err());
        report();
    });
}

#[test]
fn a_rank_that_leaves() {
    Launched::new("mpi::a_rank_that_leaves", "mpich", 2).fails(1).run(|world| {
        world.barrier().unwrap();
        if world.rank() == 0 {
            names(&world.barrier().unwrap_err().to_string(), &["rank 1 has left"]);
            report();
        }
    });
}

/// A message of another size than its receiver expects.
#[test]
fn a_send_of_another_size() {
    Launched::new("mpi::a_send_of_another_size", "mpich", 2).fails(1).run(|world| {
        if world.rank() == 0 {
            return world.send(&ones(3), 1, 5).unwrap();
        }
        let message = world.recv(&ones(4), 0, 5).unwrap_err().to_string();
        names(&message, &["rank 0 sent 12 bytes", "expected 16"]);
        report();
    });
}
