//! Long sums of a device against `f64`, and pinned memory: `RUSHLIGHT_TEST_DEVICE` names the device.

use crate::device::{device, turn};
use rushlight_core::{DType, Device, Result};
use rushlight_tensor::Tensor;

/// The largest relative error of positive numbers.
fn error(got: &Tensor, want: &Tensor) -> Result<f64> {
    let (got, want) = (got.to_vec::<f64>()?, want.to_vec::<f64>()?);
    assert_eq!(got.len(), want.len());
    Ok(got.iter().zip(&want).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max))
}

/// The device under test, if it is one of Intel's engine.
fn xpu() -> Option<Device> {
    let device = device()?;
    if !matches!(device, Device::Xpu(_)) {
        println!("skipped: RUSHLIGHT_TEST_DEVICE names no xpu");
        return None;
    }
    Some(device)
}

/// Long sums are as precise as the CPU engine's: training amplifies errors.
#[test]
fn long_sums_are_as_exact_as_the_cpus() -> Result<()> {
    let _turn = turn();
    let Some(device) = xpu() else { return Ok(()) };
    let rand = |shape: &[usize]| Tensor::rand(shape);
    type Sum = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let (a, b) = (rand(&[20, 20_000])?, rand(&[20_000, 40])?);
    let (column, images, few) = (rand(&[20_000, 1])?, rand(&[6, 3, 9000])?, rand(&[2, 7000])?);
    let cases: [(&str, &Tensor, &Tensor, Sum); 9] = [
        ("a product", &a, &b, |a, b| a.matmul(b)),
        ("a product with a transposed matrix", &b.transpose(0, 1)?, &a, |a, b| a.matmul(&b.transpose(0, 1)?)),
        ("a matrix times a vector", &a, &column, |a, b| a.matmul(b)),
        ("a vector times a matrix", &column, &b, |a, b| a.transpose(0, 1)?.matmul(b)),
        ("a sum of channels", &images, &a, |x, _| x.sum_dims([0, 2], false)),
        ("a mean of channels", &images, &a, |x, _| x.mean_dims([0, 2], false)),
        ("a variance of channels", &images, &a, |x, _| x.var_dims([0, 2], 0.0, false)),
        ("a sum across rows", &b, &a, |x, _| x.sum_dims([0], false)),
        ("a sum of few elements", &few, &a, |x, _| x.sum_dims([1], false)),
    ];
    for (name, a, b, sum) in cases {
        let want = sum(&a.to_dtype(DType::F64)?, &b.to_dtype(DType::F64)?)?;
        let (cpu, own) = (error(&sum(a, b)?, &want)?, error(&sum(&a.to(device)?, &b.to(device)?)?, &want)?);
        // 2e-7: the rounding of a result and of one addition.
        println!("{name}: off by {own:.1e}, the CPU engine by {cpu:.1e}");
        assert!(own <= 2.0 * cpu.max(2e-7), "{name}: off by {own:.1e}, the CPU engine by {cpu:.1e}");
    }
    Ok(())
}

/// Pinned memory is copied asynchronously, and not reused before the copy is done.
#[test]
fn pinned_memory() -> Result<()> {
    let _turn = turn();
    let Some(device) = xpu() else { return Ok(()) };
    let x = Tensor::arange(0, 1 << 18, 1)?;
    let pinned = x.pin_memory()?;
    assert!(pinned.is_pinned() && !x.is_pinned() && pinned.pin_memory()?.is_same(&pinned));
    assert!(pinned.equal(&x)?);
    let there = pinned.to_with(&device, true)?;
    drop(pinned);
    let other = Tensor::zeros_with([1 << 18], DType::I64)?.pin_memory()?;
    assert!(there.to(Device::Cpu)?.equal(&x)?);
    assert_eq!(other.to_with(&device, true)?.sum(..)?.item::<i64>()?, 0);
    assert!(there.pin_memory().is_err());
    drop(other);
    rushlight_engines::pinned_memory()?.empty_cache()
}
