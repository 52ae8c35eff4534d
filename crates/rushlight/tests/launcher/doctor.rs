//! `rushlight doctor`, alone and under a launcher.

use crate::support::{Folder, Launcher};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_rushlight");

#[test]
fn findings_come_first_and_details_on_request() {
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).arg("doctor").args(arguments).output().expect("the program");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, brief) = run(&[]);
    assert_eq!(code, Some(0), "{brief}");
    assert!(brief.starts_with("! ") || brief.starts_with("no problem was found"), "{brief}");
    let (code, all) = run(&["-v"]);
    assert_eq!(code, Some(0), "{all}");
    for fact in ["open files: ", "shared memory: ", "network: ", "library: MPI: ", "processors: ", "launcher: "] {
        assert!(all.contains(fact), "{fact} is missing: {all}");
    }
    assert!(all.lines().count() > brief.lines().count());
    assert_eq!(run(&["--frobnicate"]).0, Some(2));
    assert_eq!(run(&["--disk"]).0, Some(2), "a value is missing");
    assert_eq!(run(&["--disk", "/proc/no/such/folder"]).0, Some(1), "the test fails");
    let output = Command::new(PROGRAM).arg("doctor").env("OMP_NUM_THREADS", "1").output().expect("the program");
    let many = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    assert_eq!(many, String::from_utf8_lossy(&output.stdout).contains("! OMP_NUM_THREADS=1"));
}

#[test]
fn ranks_compare_themselves_and_name_the_odd_one() {
    let folder = Folder::new("doctor");
    let script =
        format!("[ $RANK = 1 ] && ulimit -Sn 200; exec {PROGRAM} doctor --all-ranks --all-reduce --disk \"$F\"");
    let (code, out, err) = Launcher::start(&["--nproc-per-node=3"], &script, &folder).finish();
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(out.contains("! rank 1: open files is 200"), "{out}");
    assert!(out.contains("3 ranks compared") && out.contains("all-reduce of 64 MiB over 3 ranks"), "{out}");
    assert_eq!(out.matches("written at").count(), 3, "{out}");
    assert_eq!(
        std::fs::read_dir(&folder.0)
            .unwrap()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("rushlight-doctor"))
            .count(),
        0
    );
}
