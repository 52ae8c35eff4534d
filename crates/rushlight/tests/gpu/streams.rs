//! Streams, events, pinned memory, copies between devices, full memory.

use super::{device, turn};
use rushlight::prelude::*;
use rushlight_core::backend::Outcome;

/// The device under test, if it is a GPU.
fn gpu() -> Option<Device> {
    let device = device();
    if device.is_cpu() {
        println!("skipped: RUSHLIGHT_TEST_DEVICE names no GPU");
        return None;
    }
    Some(device)
}

#[test]
fn devices_that_are_not_there_are_errors() {
    let best = Device::best();
    assert_eq!(Tensor::zeros_with([1], best).map(|t| t.device()).ok(), Some(best));
    let missing = Tensor::zeros_with([1], Device::Cuda(63)).expect_err("there are fewer devices");
    assert!(missing.to_string().contains("cuda:63"), "{missing}");
    let error = Stream::new(Device::Cpu).err().expect("the CPU has no streams");
    assert!(error.to_string().starts_with("Stream::new: cpu has no streams"), "{error}");
    assert!(Event::new(Device::Cpu).is_err());
}

#[test]
fn streams_run_side_by_side() -> Result<()> {
    let _turn = turn();
    let Some(device) = gpu() else { return Ok(()) };
    let side = Stream::new(device)?;
    let x = Tensor::ones_with([512, 512], device)?;
    let start = Event::new(device)?;
    start.record()?;
    side.wait_event(&start)?;
    let y = side.scope(|| {
        let mut y = x.clone();
        for _ in 0..20 {
            y = y.matmul(&x)?.div(512.0)?;
        }
        Ok(y)
    })?;
    x.record_stream(&side)?;
    let done = side.record_event()?;
    done.wait()?;
    // Made on the side stream, read on the main one: after the drop, its memory waits for both.
    let sum = y.sum(..)?.item::<f32>()?;
    assert_eq!(sum, 512.0 * 512.0);
    assert!(done.query()? && side.query()?);
    let end = Event::new(device)?;
    end.record()?;
    end.synchronize()?;
    assert!(start.elapsed_time(&end)? > 0.0);
    assert!(start.elapsed_time(&done).is_err(), "without a time");
    side.synchronize()?;
    drop((y, side));
    assert_eq!(x.sum(..)?.item::<f32>()?, 512.0 * 512.0);
    Ok(())
}

#[test]
fn memory_waits_for_the_stream_that_uses_it() -> Result<()> {
    let _turn = turn();
    let Some(device) = gpu() else { return Ok(()) };
    let side = Stream::new(device)?;
    for round in 0..20 {
        let x = Tensor::full_with([1 << 20], f64::from(round), device)?;
        let made = Event::new(device)?;
        made.record()?;
        side.wait_event(&made)?;
        let sum = side.scope(|| {
            // Long enough for the main stream to overtake.
            let busy = Tensor::ones_with([1024, 1024], device)?;
            for _ in 0..10 {
                busy.matmul(&busy)?;
            }
            x.sum(..)
        })?;
        x.record_stream(&side)?;
        drop(x);
        // Would reuse the block, and overwrite it, if it were free.
        let other = Tensor::full_with([1 << 20], -1.0, device)?;
        let expected = f64::from(round) * f64::from(1 << 20);
        assert_eq!(side.scope(|| sum.item::<f64>())?, expected);
        drop(other);
    }
    Ok(())
}

#[test]
fn threads_choose_their_streams() -> Result<()> {
    let _turn = turn();
    let Some(device) = gpu() else { return Ok(()) };
    let (main, side) = (Stream::main(device)?, Stream::with_priority(device, -1)?);
    assert!(Stream::current(device)? == main && side != main);
    let x = Tensor::ones_with([64, 64], device)?;
    side.wait_stream(&main)?;
    side.set_current()?;
    let y = x.matmul(&x)?;
    let elsewhere = std::thread::scope(|s| s.spawn(|| Stream::current(device)).join());
    assert!(elsewhere.expect("no panic")? == main);
    let inner = main.scope(|| Stream::current(device))?;
    assert!(inner == main);
    assert!(Stream::current(device)? == side);
    let done = Event::new(device)?;
    done.record_on(&side)?;
    main.set_current()?;
    done.wait()?;
    y.record_stream(&main)?;
    // Of all streams.
    synchronize(&device)?;
    assert!(side.query()? && main.query()?);
    Stream::lend_to_default(y.storage())?;
    assert_eq!(y.sum(..)?.item::<f32>()?, 64.0 * 64.0 * 64.0);
    Ok(())
}

#[test]
fn pinned_memory_copies_without_waiting() -> Result<()> {
    let _turn = turn();
    let Some(device) = gpu() else { return Ok(()) };
    let x = Tensor::arange(0, 1 << 18, 1)?;
    let pinned = x.pin_memory()?;
    assert!(pinned.is_pinned() && !x.is_pinned() && pinned.pin_memory()?.is_same(&pinned));
    assert!(pinned.equal(&x)?);
    let there = pinned.to_with(&device, true)?;
    drop(pinned);
    // The block is not reused before the copy is done.
    let other = Tensor::zeros_with([1 << 18], DType::I64)?.pin_memory()?;
    assert!(there.to(Device::Cpu)?.equal(&x)?);
    assert!(other.to(device)?.sum(..)?.item::<i64>()? == 0);
    assert!(there.pin_memory().is_err());
    let data = TensorDataset::new((Tensor::ones([8, 4])?, Tensor::arange(0, 8, 1)?))?;
    let loader = DataLoader::builder(data).batch_size(4).workers(1).pin_memory().build()?;
    for batch in &loader {
        let (x, y) = batch?;
        assert!(x.is_pinned() && y.is_pinned());
        assert_eq!(x.to_with(&device, true)?.sum(..)?.item::<f32>()?, 16.0);
    }
    rushlight::engines::pinned_memory()?.empty_cache()
}

#[test]
fn copies_between_devices() -> Result<()> {
    let _turn = turn();
    let Some(device) = gpu() else { return Ok(()) };
    let x = Tensor::arange(0, 1000, 1)?.to(device)?;
    let y = Tensor::zeros_with([1000], (DType::I64, device))?;
    // One device in both roles: the path is the same.
    let backend = y.storage().backend();
    assert_eq!(backend.copy_from_peer(x.storage(), 0, y.storage(), 8000)?, Outcome::Done);
    assert!(x.equal(&y)?);
    assert!(backend.copy_from_peer(x.storage(), 8, y.storage(), 8000).is_err());
    if rushlight::engines::accelerator().map_or(Ok(0), |engine| engine.count())? > 1 {
        assert!(x.to(Device::Cuda(1))?.to(Device::Cpu)?.equal(&x.to(Device::Cpu)?)?);
    }
    Ok(())
}

#[test]
fn full_memory_is_an_error_after_which_training_goes_on() -> Result<()> {
    let _turn = turn();
    let Some(device) = gpu() else { return Ok(()) };
    let model = Linear::builder(64, 64).device(device).build()?;
    let mut optimizer = AdamW::builder(model.parameters()).build()?;
    let mut capture = Capture::new();
    let mut step = |rows: usize| -> Result<f32> {
        let x = Tensor::ones_with([rows, 64], device)?;
        let loss = capture.run(&[x], |[x]| {
            optimizer.zero_grad();
            let loss = model.forward(x)?.mean(..)?;
            loss.backward()?;
            optimizer.step()?;
            Ok(loss)
        })?;
        loss.item::<f32>()
    };
    for _ in 0..4 {
        step(32)?;
    }
    reset_peak_memory(&device)?;
    let before = memory_stats(&device)?;
    let error = step(1 << 40).expect_err("no device has 256 TiB");
    assert_eq!(error.kind(), rushlight::ErrorKind::OutOfMemory);
    for word in ["asked for", "tensors hold", "reserved", "free"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(memory_stats(&device)?.allocated, before.allocated);
    for _ in 0..4 {
        assert!(step(32)?.is_finite());
        assert!(step(16)?.is_finite());
    }
    let stats = memory_stats(&device)?;
    assert!(stats.reserved >= stats.allocated && stats.peak >= stats.allocated);
    empty_cache(&device)?;
    assert!(memory_stats(&device)?.reserved <= stats.reserved);
    Ok(())
}
