//! Every kernel of the engine compiles, for the architectures named here, with whatever NVRTC is found: no GPU is
//! needed. Run with `RUSHLIGHT_CUDA_PATH` naming NVRTC's directory (`scripts/test` does). One case of every branch of
//! the texts is compiled; all with `RUSHLIGHT_ALL_KERNELS=1`.

use crate::nvrtc::Nvrtc;
use rushlight_gpu::catalogue::{
    self, Case, all_kernels, check_complete, each_apart, every_branch, families, pointwise, skip,
};
use rushlight_gpu::launch::kernel::waiting;
use rushlight_gpu::vendor::driver::{Compiler, MatrixUnits};
use std::collections::BTreeSet;

/// Names of the kernels that the cases have.
fn compile(cases: &[Case], arch: &str) -> Option<BTreeSet<String>> {
    let nvrtc = match Nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(e) => {
            skip(&e.to_string());
            return None;
        }
    };
    println!("{} kernels for {arch} with {} {:?}", cases.len(), nvrtc.path, nvrtc.number().unwrap());
    let build = |case: &Case| {
        let source = if arch == "sm_80" { case.source.clone() } else { waiting(&case.source) };
        nvrtc.build(&source, &case.name, arch)
    };
    Some(catalogue::compile(cases, build, |entry| format!("\0.text.{entry}\0")))
}

/// What `rushlight doctor` prints: each library with its version and path, or what is missing and what to do.
#[test]
fn libraries_are_listed() {
    let listed = crate::libraries();
    let names: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["driver", "NVRTC", "cuBLASLt", "cuDNN", "cuBLAS", "cuSOLVER", "cuFFT", "CUPTI", "NCCL"]);
    for (name, found) in listed {
        match found {
            // CUPTI tells no version that means anything to a user.
            Ok(library) => assert!(
                (name == "CUPTI" || library.version.contains('.')) && !library.path.is_empty(),
                "{name}: {library:?}"
            ),
            Err(e) => {
                assert!(e.to_string().contains("\nInstall ") && e.to_string().lines().count() == 3, "{name}: {e}")
            }
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
fn kernels_compile_for_sm_90a() {
    let units = MatrixUnits::TensorCores((9, 0));
    // The row kernels have a test of their own; one of them stands for their entry point.
    let cases: Vec<Case> = families(units).into_iter().chain(pointwise().pop()).collect();
    let cases = if all_kernels() { cases } else { every_branch(cases, 1) };
    if let Some(compiled) = compile(&cases, "sm_90a") {
        check_complete(&compiled, units);
    }
}

#[test]
fn kernels_compile_for_sm_80() {
    let units = MatrixUnits::TensorCores((8, 0));
    let cases = pointwise().into_iter().skip(5).chain(families(units)).collect();
    let cases = if all_kernels() { cases } else { every_branch(cases, 0) };
    if let Some(compiled) = compile(&cases, "sm_80") {
        check_complete(&compiled, units);
    }
}

/// A text of a user's gets no prelude of ours, and a mistake in it the compiler's log.
#[test]
fn texts_of_users_compile() {
    let nvrtc = match Nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(e) => return skip(&e.to_string()),
    };
    let text = r#"extern "C" __global__ void twice(const float* x, float* y, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) y[i] = 2 * x[i];
    }"#;
    assert!(!nvrtc.build(text, "twice", "sm_90").unwrap().is_empty());
    let error = nvrtc.build(&text.replace("long long n)", "long long m)"), "twice", "sm_90").unwrap_err();
    assert!(error.to_string().contains("identifier \"n\" is undefined"), "{error}");
}
