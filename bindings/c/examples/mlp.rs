//! Times training steps of a small model, beside `bindings/cpp/tests/mlp.cpp`.

use rushlight_core::Result;
use rushlight_nn::{Forward, Linear, Module};
use rushlight_optim::{Optimizer, Sgd};
use rushlight_tensor::Tensor;
use std::time::Instant;

fn main() -> Result<()> {
    let (x, y) = (Tensor::randn([32, 64])?, Tensor::randn([32, 10])?);
    let (first, second) = (Linear::new(64, 64)?, Linear::new(64, 10)?);
    let params: Vec<Tensor> = first.parameters().into_iter().chain(second.parameters()).collect();
    let mut optimizer = Sgd::builder(params).lr(0.01).momentum(0.9).build()?;
    let mut step = || -> Result<()> {
        optimizer.zero_grad();
        let out = second.forward(&first.forward(&x)?.relu()?)?;
        out.mse_loss(&y, rushlight_tensor::Reduction::Mean)?.backward()?;
        optimizer.step()
    };
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..500 {
            step()?;
        }
        best = best.min(start.elapsed().as_secs_f64() / 500.0);
    }
    println!("Rust: {:.2} us a step", best * 1e6);
    Ok(())
}
