//! Every kernel of the engine compiles for AMD GPUs with whatever hiprtc is found: no GPU is needed. Run with
//! `RUSHLIGHT_HIP_PATH` naming hiprtc's directory (`scripts/test` does).
//!
//! Where the compiler wants a newer C library than this system's, the directory has one with its own loader, which runs
//! this program anew.

use crate::hiprtc::Hiprtc;
use rushlight_gpu::catalogue::{Case, each_apart, families, pointwise, skip};
use rushlight_gpu::driver::{Compiler, MatrixUnits};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Set in a program that was started by the compiler's own loader.
const INSIDE: &str = "RUSHLIGHT_HIP_TEST_INSIDE";

/// A loader that came with the compiler.
fn loader() -> Option<(PathBuf, PathBuf)> {
    let directories = std::env::var_os("RUSHLIGHT_HIP_PATH")?;
    std::env::split_paths(&directories)
        .map(|directory| (directory.join("ld-linux-x86-64.so.2"), directory))
        .find(|(loader, _)| loader.exists())
}

/// Whether the test was run by a program of another loader's.
fn ran_elsewhere(test: &str) -> bool {
    let Some((loader, directory)) = loader().filter(|_| std::env::var_os(INSIDE).is_none()) else { return false };
    let own = std::env::current_exe().unwrap();
    let out = Command::new(loader)
        .args([PathBuf::from("--library-path"), directory, own])
        .args(["--exact", &format!("tests::{test}"), "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    println!("{text}");
    assert!(out.status.success() && text.contains("1 passed"), "{test} under the compiler's loader:\n{text}");
    true
}

fn compile(test: &str, cases: &[Case], arch: &str) {
    let hiprtc = match Hiprtc::get() {
        Ok(hiprtc) => hiprtc,
        Err(_) if ran_elsewhere(test) => return,
        Err(e) => return skip(&e.to_string()),
    };
    let began = std::time::Instant::now();
    println!("{} kernels for {arch} with {} {:?}", cases.len(), hiprtc.path, hiprtc.number().unwrap());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
                    if let Err(e) = hiprtc.build(&case.source, &case.name, arch) {
                        wrong.lock().unwrap().push(e.to_string());
                    }
                }
            });
        }
    });
    println!("{:.1} s", began.elapsed().as_secs_f64());
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    assert!(wrong.is_empty(), "{} of {} kernels:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// All cases, or every so many unless `RUSHLIGHT_ALL_KERNELS=1`: architectures differ in little.
fn some(cases: Vec<Case>, one_of: usize, from: usize) -> Vec<Case> {
    let all = std::env::var_os("RUSHLIGHT_ALL_KERNELS").is_some_and(|v| v == "1");
    if all { cases } else { cases.into_iter().skip(from).step_by(one_of).collect() }
}

/// What `rushlight doctor` prints: each library with its version and path, or what is missing and what to do.
#[test]
fn libraries_are_listed() {
    let listed = crate::libraries();
    let names: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["HIP", "hiprtc", "hipBLASLt", "rocBLAS", "rocSOLVER", "MIOpen", "RCCL", "ROCm SMI"]);
    for (name, found) in listed {
        match found {
            Ok(library) => assert!(library.version.contains('.') && !library.path.is_empty(), "{name}: {library:?}"),
            Err(e) => assert!(e.to_string().contains("Tried: ") && e.to_string().contains("Install "), "{name}: {e}"),
        }
    }
    assert_eq!(crate::hip_version(60_342_134), "6.3.42134");
}

#[test]
fn rows_compile() {
    compile("rows_compile", &some(pointwise(), 2, 0), "gfx90a");
}

#[test]
fn kernels_compile_apart() {
    compile("kernels_compile_apart", &some(each_apart(), 2, 0), "gfx942");
}

#[test]
fn families_compile_for_gfx90a() {
    compile("families_compile_for_gfx90a", &some(families(MatrixUnits::Mfma), 3, 0), "gfx90a");
}

#[test]
fn families_compile_for_gfx942() {
    compile("families_compile_for_gfx942", &some(families(MatrixUnits::Mfma), 6, 1), "gfx942");
}

#[test]
fn families_compile_for_gfx1100() {
    compile("families_compile_for_gfx1100", &some(families(MatrixUnits::Absent), 6, 2), "gfx1100");
}
