//! `rushlight doctor`: what this machine offers, and what is missing.

use rushlight::prelude::*;
use rushlight_core::backend::Engine;
use rushlight_cpu::isa;

pub const USAGE: &str = "Usage: rushlight doctor

Says what this machine has: processor, threads, GPUs, NVIDIA's libraries with their versions and paths, and what is missing;
then which launcher started this process, its rank, where the ranks would meet, and why.";

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
    #[cfg(target_os = "linux")]
    launch();
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

/// What was found out about the launcher, line by line.
#[cfg(target_os = "linux")]
fn launch() {
    use rushlight::dist::launch::{self, Environment, Rendezvous};
    let env = Environment::current();
    let launch = match launch::detect_from(&env) {
        Ok(launch) => launch,
        Err(e) => return println!("launcher: {e}"),
    };
    println!("launcher: {}, rank {} of {}", launch.launcher, launch.rank, launch.world_size);
    println!("  because: {}", launch.reasons.join("; "));
    if let Some(advice) = &launch.advice {
        println!("  advice: {advice}");
    }
    let engine = rushlight::engines::accelerator();
    let count = engine.and_then(|engine| engine.count().ok()).unwrap_or(0);
    match engine.zip(launch::choose_device(&launch, &env, count)) {
        Some((engine, choice)) => println!("  device: {}, {}", engine.device(choice.index), choice.reason),
        None => println!("  device: cpu, no accelerator is visible"),
    }
    match launch::choose_interface(&launch::interfaces(), &env) {
        Ok(Some(interface)) => println!("  interface: {} ({})", interface.name, interface.address),
        Ok(None) => println!("  interface: none but loopback"),
        Err(e) => println!("  interface: {e}"),
    }
    if launch.world_size == 1 {
        return;
    }
    match Rendezvous::new(&launch, &env) {
        Ok(meeting) => {
            let ports: Vec<String> = meeting.ports.iter().map(u16::to_string).collect();
            println!("  meeting point: {}, port {} ({})", meeting.host, ports.join(" or "), meeting.reason);
            match launch::job_secret(&launch, &meeting) {
                Ok((_, source)) => println!("  secret: {source}"),
                Err(e) => println!("  secret: {e}"),
            }
        }
        Err(e) => println!("  meeting point: {e}"),
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
