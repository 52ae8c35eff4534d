//! Every kernel of the engine compiles, for the architectures named here, with whatever NVRTC is found: no GPU is
//! needed. Run with `RUSHLIGHT_CUDA_PATH` naming NVRTC's directory (`scripts/test` does).

use crate::nvrtc::Nvrtc;
use rushlight_gpu::catalogue::{Case, each_apart, families, pointwise, skip};
use rushlight_gpu::driver::{Compiler, MatrixUnits};
use rushlight_gpu::kernel::waiting;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn compile(cases: &[Case], arch: &str) {
    let nvrtc = match Nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(e) => return skip(&e.to_string()),
    };
    println!("{} kernels for {arch} with {} {:?}", cases.len(), nvrtc.path, nvrtc.number().unwrap());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
                    let source = if arch == "sm_80" { case.source.clone() } else { waiting(&case.source) };
                    if let Err(e) = nvrtc.build(&source, &case.name, arch) {
                        wrong.lock().unwrap().push(e.to_string());
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    assert!(wrong.is_empty(), "{} of {} kernels:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What `rushlight doctor` prints: each library with its version and path, or what is missing and what to do.
#[test]
fn libraries_are_listed() {
    let listed = crate::libraries();
    let names: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["driver", "NVRTC", "cuBLASLt", "cuDNN", "cuBLAS", "cuSOLVER", "CUPTI", "NCCL"]);
    for (name, found) in listed {
        match found {
            // CUPTI tells no version that means anything to a user.
            Ok(library) => assert!(
                (name == "CUPTI" || library.version.contains('.')) && !library.path.is_empty(),
                "{name}: {library:?}"
            ),
            Err(e) => assert!(e.to_string().contains("Tried: ") && e.to_string().contains("Install "), "{name}: {e}"),
        }
    }
    assert_eq!([22707, 2708, 91002, 8902].map(crate::triple), ["2.27.7", "2.7.8", "9.10.2", "8.9.2"]);
}

#[test]
fn rows_compile() {
    compile(&pointwise(), "sm_90a");
}

#[test]
fn kernels_compile_apart() {
    compile(&each_apart(), "sm_90a");
}

#[test]
fn families_compile_for_sm_90() {
    compile(&families(MatrixUnits::TensorCores((9, 0))), "sm_90a");
}

#[test]
fn families_compile_for_sm_80() {
    let some: Vec<Case> = families(MatrixUnits::TensorCores((8, 0)))
        .into_iter()
        .chain(pointwise().into_iter().skip(5))
        .step_by(3)
        .collect();
    compile(&some, "sm_80");
}
