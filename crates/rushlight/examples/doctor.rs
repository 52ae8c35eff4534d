//! What this machine offers: threads, GPUs, the libraries they need, and what is missing.

use rushlight::prelude::*;

fn main() {
    clap::Command::new("doctor")
        .about("Says what this machine has: threads, GPUs, the libraries they need")
        .get_matches();
    println!("threads: {}", rushlight::num_threads());
    match rushlight::cuda::device_count() {
        Ok(count) => {
            println!("CUDA devices: {count}");
            for index in 0..count {
                match rushlight::cuda::properties(index) {
                    Ok(p) => println!(
                        "  cuda:{index}: {}, {:.1} GiB, {} multiprocessors, compute capability {}.{}, driver for CUDA {}.{}",
                        p.name,
                        p.memory as f64 / (1u64 << 30) as f64,
                        p.multiprocessors,
                        p.capability.0,
                        p.capability.1,
                        p.driver / 1000,
                        p.driver % 1000 / 10
                    ),
                    Err(e) => println!("  cuda:{index}: {e}"),
                }
                if let Err(e) = Tensor::zeros_with([1], Device::Cuda(index)) {
                    println!("  cuda:{index} cannot be used: {e}");
                }
            }
        }
        Err(e) => println!("CUDA devices: none. {e}"),
    }
    for (name, found) in rushlight::cuda::libraries() {
        match found {
            Ok(path) => println!("{name}: {path}"),
            Err(e) => println!("{name}: missing. {e}"),
        }
    }
}
