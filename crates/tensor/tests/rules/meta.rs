//! The meta device: shapes without elements.

use rushlight_core::{DType, Device, ErrorKind, Result};
use rushlight_tensor::Tensor;

#[test]
fn shapes_without_elements() -> Result<()> {
    // More elements than any machine has memory for.
    let x = Tensor::zeros_with([1 << 20, 1 << 20], (DType::F32, Device::Meta))?.requires_grad_(true)?;
    let y = x.matmul(&x.transpose(0, 1)?)?.relu()?.sum(..)?;
    assert_eq!((y.device(), y.rank()), (Device::Meta, 0));
    y.backward()?;
    assert_eq!(x.grad().map(|g| g.shape().to_vec()), Some(vec![1 << 20, 1 << 20]));
    Ok(())
}

#[test]
fn values_are_errors() -> Result<()> {
    let x = Tensor::ones_with([2], Device::Meta)?;
    let cpu = Tensor::ones_with([2], DType::F32)?;
    let kind = |done: Result<()>| done.map_err(|e| e.kind());
    assert_eq!(kind(x.to(Device::Cpu).map(drop)), Err(ErrorKind::Unsupported));
    assert!(x.to_vec::<f32>().is_err() && x.nonzero().is_err() && x.sum(..)?.to_scalar().is_err());
    assert!(cpu.add(&x).is_err() && x.add(&cpu).is_err() && cpu.copy_(&x).is_err());
    assert_eq!(cpu.to(Device::Meta)?.shape(), [2]);
    x.copy_(&cpu)?;
    Ok(())
}
