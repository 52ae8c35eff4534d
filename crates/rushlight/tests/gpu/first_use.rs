//! Kernels that are not compiled yet: launches are queued, in order, while the program continues.
//!
//! Each test runs in a separate process, which finds no compiled kernels.

use super::capture::train;
use super::{device, turn};
use rushlight::prelude::*;
use std::process::Command;

/// Whether this process runs the test's body: otherwise it starts another one that does, unless the device is the CPU.
fn alone(test: &str) -> Option<Device> {
    const NAME: &str = "RUSHLIGHT_TEST_FIRST_USE";
    if std::env::var_os(NAME).is_some_and(|v| *v == *test) {
        return Some(device());
    }
    let _turn = turn();
    if device().is_cpu() {
        println!("skipped: RUSHLIGHT_TEST_DEVICE names no GPU");
        return None;
    }
    let output = Command::new(std::env::current_exe().expect("a test has a file"))
        .args([&format!("first_use::{test}"), "--exact", "--nocapture"])
        .env(NAME, test)
        .env("RUSHLIGHT_CUDA_CACHE", "")
        .output()
        .expect("a test can be started");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    None
}

fn adamw(parameters: Vec<Tensor>) -> Result<Box<dyn Optimizer>> {
    Ok(Box::new(AdamW::builder(parameters).build()?))
}

#[test]
fn first_steps_are_like_later_ones() -> Result<()> {
    let Some(device) = alone("first_steps_are_like_later_ones") else { return Ok(()) };
    let first = train(device, adamw, None, false, 0)?;
    assert_eq!(train(device, adamw, None, false, 0)?, first);
    Ok(())
}

#[test]
fn steps_are_captured_before_anything_is_compiled() -> Result<()> {
    let Some(device) = alone("steps_are_captured_before_anything_is_compiled") else { return Ok(()) };
    let first = train(device, adamw, Some(DType::BF16), true, 1)?;
    assert_eq!(train(device, adamw, Some(DType::BF16), false, 0)?, first);
    Ok(())
}

const OPS: [fn(&Tensor) -> Result<Tensor>; 12] = [
    |x| x.sinh(),
    |x| x.expm1(),
    |x| x.erf(),
    |x| x.atan(),
    |x| x.softmax(-1),
    |x| x.cumsum(-1),
    |x| x.matmul(&x.t()?),
    |x| x.t()?.contiguous(),
    |x| x.copy(),
    |x| x.sum(0),
    |x| x.tanh(),
    |x| x.log1p(),
];

/// Each op on other numbers, whose memory is freed, and reused, long before the op runs.
fn all_ops(device: Device) -> Result<Vec<Tensor>> {
    let one = |(i, op): (usize, &fn(&Tensor) -> Result<Tensor>)| {
        let numbers = (0..64 * 32).map(|n| ((n * (i + 3)) % 97) as f64 / 97.0);
        op(&Tensor::from_iter(numbers)?.reshape([64, 32])?.to(device)?)
    };
    OPS.iter().enumerate().map(one).collect()
}

fn check(found: &[Tensor]) -> Result<()> {
    for (i, (found, expected)) in found.iter().zip(all_ops(Device::Cpu)?).enumerate() {
        let furthest = (found.to(Device::Cpu)? - expected).eval()?.abs()?.max(..)?.item::<f64>()?;
        assert!(furthest < 1e-12, "op {i}: {furthest:e} apart");
    }
    Ok(())
}

#[test]
fn memory_is_used_again_in_order() -> Result<()> {
    let Some(device) = alone("memory_is_used_again_in_order") else { return Ok(()) };
    let found = all_ops(device)?;
    let error = Tensor::zeros_with([1 << 45], device).expect_err("no device has so much");
    assert_eq!(error.kind(), rushlight::ErrorKind::OutOfMemory);
    check(&found)
}

#[test]
fn threads_and_streams_keep_their_order() -> Result<()> {
    let Some(device) = alone("threads_and_streams_keep_their_order") else { return Ok(()) };
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..3).map(|_| s.spawn(|| check(&all_ops(device)?))).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("no panic"))
    })?;
    let (main, side) = (Stream::main(device)?, Stream::new(device)?);
    let x = Tensor::full_with([1 << 20], 0.5, device)?.acosh()?.nan_to_num(Some(2.0), None, None)?;
    let made = Event::new(device)?;
    made.record()?;
    side.wait_event(&made)?;
    let y = side.scope(|| x.exp2()?.sum(..))?;
    side.synchronize()?;
    assert!(side.query()?);
    assert_eq!(y.item::<f32>()?, 4.0 * f64::from(1 << 20) as f32);
    // Other libraries use these streams: from here on launches are synchronous with compilation.
    assert_ne!(main.handle()?, side.handle()?);
    let z = x.log2()?;
    main.synchronize()?;
    assert_eq!(z.sum(..)?.item::<f32>()?, f64::from(1 << 20) as f32);
    Ok(())
}

#[test]
fn faults_are_told_when_values_are_read() -> Result<()> {
    let Some(device) = alone("faults_are_told_when_values_are_read") else { return Ok(()) };
    let table = Tensor::ones_with([4, 4], device)?;
    let rows = table.index_select(0, &Tensor::new([1i64, 9])?.to(device)?)?;
    let error = rows.sum(..)?.item::<f32>().expect_err("there is no row 9");
    assert!(error.to_string().contains("index 9 is out of bounds"), "{error}");
    assert_eq!(table.sum(..)?.item::<f32>()?, 16.0);
    Ok(())
}
