//! How fast products and copies are on an xpu device: `cargo run --release -p rushlight-xpu --example products`.

use rushlight_core::backend::{Activation, MatMul};
use rushlight_core::{DType, Layout, Result, Scalar, View};
use std::time::Instant;

/// Seconds of the fastest of seven runs.
fn fastest(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn main() -> Result<()> {
    let engine = rushlight_xpu::backend(0)?;
    for n in [256usize, 512, 1024] {
        let layout = Layout::contiguous(&[1, n, n])?;
        let storages = [engine.alloc(n * n * 4)?, engine.alloc(n * n * 4)?, engine.alloc(n * n * 4)?];
        let [a, b, out] = [0, 1, 2].map(|i| View { storage: &storages[i], layout: &layout, dtype: DType::F32 });
        engine.fill(Scalar::Float(0.5), a)?;
        engine.fill(Scalar::Float(0.25), b)?;
        let spec = MatMul { a, b, out, bias: None, alpha: 1.0, beta: 0.0, activation: Activation::None };
        let seconds = fastest(|| {
            engine.matmul(&spec)?;
            engine.synchronize()
        })?;
        println!("matmul {n}: {:.1} GFLOP/s", 2.0 * (n * n * n) as f64 / seconds * 1e-9);
    }
    let count = 1usize << 24;
    let layout = Layout::contiguous(&[count])?;
    let storages = [engine.alloc(count * 4)?, engine.alloc(count * 4)?];
    let [x, y] = [0, 1].map(|i| View { storage: &storages[i], layout: &layout, dtype: DType::F32 });
    engine.fill(Scalar::Float(1.0), x)?;
    let seconds = fastest(|| {
        engine.copy(x, y)?;
        engine.synchronize()
    })?;
    println!("copy of 64 MiB: {:.1} GB/s", (count * 8) as f64 / seconds * 1e-9);
    Ok(())
}
