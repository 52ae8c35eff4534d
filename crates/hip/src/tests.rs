//! Every kernel of the engine compiles for AMD GPUs with whatever hiprtc is found: no GPU is needed. Run with
//! `RUSHLIGHT_HIP_PATH` naming hiprtc's directory (`scripts/test` does).
//!
//! Where the compiler wants a newer C library than this system's, the directory has one with its own loader, which runs
//! this program anew.

use crate::hiprtc::Hiprtc;
use rushlight_gpu::catalogue::{
    self, Case, all_kernels, check_complete, each_apart, every_branch, families, pointwise, skip,
};
use rushlight_gpu::vendor::driver::{Compiler, MatrixUnits};
use std::path::PathBuf;
use std::process::Command;

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

/// Compiles one case of every branch of the texts, which must contain every kernel, or all cases. CUDA's tests compile
/// each kernel by itself. An architecture whose texts another one has compiled gets only those with matrix
/// instructions, which are where the two differ.
fn compile(test: &str, arch: &str, units: MatrixUnits, turn: usize, again: bool) {
    let hiprtc = match Hiprtc::get() {
        Ok(hiprtc) => hiprtc,
        Err(_) if ran_elsewhere(test) => return,
        Err(e) => return skip(&e.to_string()),
    };
    let cases: Vec<Case> = pointwise().into_iter().chain(families(units)).collect();
    let all = all_kernels();
    let mut cases = if all { cases.into_iter().chain(each_apart()).collect() } else { every_branch(cases, turn) };
    let part = again && !all;
    cases.retain(|case| !part || case.source.contains("mfma"));
    println!("{} kernels for {arch} with {} {:?}", cases.len(), hiprtc.path, hiprtc.number().unwrap());
    let build = |case: &Case| hiprtc.build(&case.source, &case.name, arch);
    let compiled = catalogue::compile(&cases, build, |entry| format!("\0{entry}.kd\0"));
    match part {
        true => assert!(!compiled.is_empty(), "no kernel has matrix instructions"),
        false => check_complete(&compiled, units),
    }
}

/// What `rushlight doctor` prints: each library with its version and path, or what is missing and what to do.
#[test]
fn libraries_are_listed() {
    let listed = crate::libraries();
    let names: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["HIP", "hiprtc", "hipBLASLt", "rocBLAS", "rocSOLVER", "hipFFT", "MIOpen", "RCCL", "ROCm SMI"]);
    for (name, found) in listed {
        match found {
            Ok(library) => assert!(library.version.contains('.') && !library.path.is_empty(), "{name}: {library:?}"),
            Err(e) => {
                assert!(e.to_string().contains("\nInstall ") && e.to_string().lines().count() == 3, "{name}: {e}")
            }
        }
    }
    assert_eq!(crate::hip_version(60_342_134), "6.3.42134");
}

#[test]
fn kernels_compile_for_gfx90a() {
    compile("kernels_compile_for_gfx90a", "gfx90a", MatrixUnits::Mfma, 0, false);
}

#[test]
fn kernels_compile_for_gfx942() {
    compile("kernels_compile_for_gfx942", "gfx942", MatrixUnits::Mfma, 1, true);
}

#[test]
fn kernels_compile_for_gfx1100() {
    compile("kernels_compile_for_gfx1100", "gfx1100", MatrixUnits::Absent, 2, false);
}
