//! Recurrent layers on the device give the CPU's numbers, forward and backward.

use super::{device, turn};
use rushlight::prelude::*;

/// The output of two layers over 7 steps, and the gradients of input and parameters.
fn train(device: Device, dtype: DType) -> Result<Vec<Vec<f64>>> {
    manual_seed(3);
    let model = LSTM::builder(5, 6).num_layers(2).dtype(dtype).build()?;
    let x = Tensor::randn([7, 3, 5])?;
    for p in model.parameters() {
        no_grad(|| p.copy_(&p.mul(1.5)?))?;
    }
    let model = model.to(device)?;
    let x = x.to_dtype(dtype)?.to(device)?.requires_grad_(true)?;
    let (y, _) = model.forward(&x, None)?;
    y.square()?.sum(..)?.backward()?;
    let grads = [&x].into_iter().cloned().chain(model.parameters()).filter_map(|t| t.grad());
    std::iter::once(y.clone()).chain(grads).map(|t| t.to_dtype(DType::F64)?.to(Device::Cpu)?.to_vec::<f64>()).collect()
}

#[test]
fn lstms_are_the_cpus() -> Result<()> {
    let _turn = turn();
    // TF32 has ten bits of fraction; engines without it give full precision.
    for (dtype, tf32, tolerance) in [(DType::F32, true, 2e-2), (DType::F32, false, 1e-4), (DType::F64, true, 1e-9)] {
        rushlight::set_allow_tf32_conv(tf32);
        let (here, there) = (train(Device::Cpu, dtype)?, train(device(), dtype)?);
        assert_eq!(here.len(), there.len());
        for (a, b) in here.iter().flatten().zip(there.iter().flatten()) {
            assert!((a - b).abs() <= tolerance * a.abs().max(1.0), "{a} and {b}");
        }
    }
    rushlight::set_allow_tf32_conv(true);
    Ok(())
}
