//! `rushlight doctor`: what this machine offers, and what is missing.

use rushlight::prelude::*;
use rushlight_core::backend::Engine;
use rushlight_cpu::isa;

pub const USAGE: &str = "Usage: rushlight doctor

Says what this machine has: processor, threads, GPUs, NVIDIA's libraries with their versions and paths, and what is missing.";

/// Prints the report.
pub fn doctor() {
    println!("rushlight {}", env!("CARGO_PKG_VERSION"));
    println!(
        "processor: {}, kernels for {} of {}",
        std::env::consts::ARCH,
        isa::level().name(),
        isa::detected().name()
    );
    println!("features: {}", features().join(" "));
    println!("threads: {}", rushlight::num_threads());
    rushlight::engines::accelerators().for_each(accelerators);
}

/// The devices of an engine, and the vendor's libraries.
fn accelerators(engine: &dyn Engine) {
    let name = engine.name();
    match engine.count() {
        Err(e) => println!("{name} devices: none. {e}"),
        Ok(count) => {
            println!("{name} devices: {count}");
            (0..count).for_each(|index| accelerator(engine, index));
        }
    }
    for (name, found) in engine.libraries() {
        match found {
            Ok(library) => println!("{name}: {} ({})", library.version, library.path),
            Err(e) => println!("{name}: missing. {e}"),
        }
    }
}

fn accelerator(engine: &dyn Engine, index: usize) {
    let device = engine.device(index);
    match engine.properties(index) {
        Ok(p) => println!(
            "  {device}: {}, {:.1} GiB, {} multiprocessors, compute capability {}.{}, driver for {}",
            p.name,
            p.memory as f64 / (1u64 << 30) as f64,
            p.multiprocessors,
            p.capability.0,
            p.capability.1,
            p.driver,
        ),
        Err(e) => println!("  {device}: {e}"),
    }
    if let Err(e) = Tensor::zeros_with([1], device) {
        println!("  {device} cannot be used: {e}");
    }
}

/// What of the processor's abilities counts for the engine.
fn features() -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! look {
            ($($name:tt)*) => {$(
                if std::arch::is_x86_feature_detected!($name) {
                    found.push($name);
                }
            )*};
        }
        look!("avx2" "fma" "f16c" "bmi2" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512bf16" "avx512vnni");
    }
    if found.is_empty() {
        found.push("none that the engine asks for");
    }
    found
}
