//! Captured data-parallel steps, and failures while a device waits. `RUSHLIGHT_TEST_DEVICE=cuda` runs them on a GPU
//! that all ranks share; on the CPU the same programs must give the same.

use crate::support::{Ranks, device};
use rushlight_core::{DType, Device, Result, rng::manual_seed};
use rushlight_dist::{Collective, CommHook, DistributedDataParallel, ReduceOp, World};
use rushlight_nn::{Forward, Linear, Module};
use rushlight_tensor::{Capture, Tensor, autograd::no_grad};
use std::time::{Duration, Instant};

/// Rows of a step, numbered over all ranks.
fn rows(step: usize, from: usize, count: usize) -> Tensor {
    let values: Vec<f32> = (0..count * 6).map(|i| (((step * 1000 + from * 6 + i) * 37) as f32).sin()).collect();
    Tensor::from_slice(&values, [count, 6]).unwrap().to(device()).unwrap()
}

fn layer() -> Linear {
    manual_seed(7);
    Linear::new(6, 3).unwrap().to(device()).unwrap()
}

fn descend(parameters: &[Tensor]) -> Result<()> {
    no_grad(|| {
        parameters.iter().filter(|p| p.grad().is_some()).try_for_each(|p| {
            let grad = p.grad().ok_or_else(|| rushlight_core::Error::value("no gradient"))?;
            p.sub_(&grad.mul(0.1)?).map(drop)
        })
    })
}

/// Parameters after some steps of one process over all rows.
fn alone(ranks: usize, steps: usize) -> Result<Vec<Vec<f32>>> {
    let net = layer();
    for s in 0..steps {
        net.parameters().iter().for_each(Tensor::zero_grad);
        net.forward(&rows(s, 0, 4 * ranks))?.pow(2)?.mean(..)?.backward()?;
        descend(&net.parameters())?;
    }
    net.parameters().iter().map(|p| p.to_vec::<f32>()).collect()
}

fn captured(world: &World, hook: CommHook, tolerance: f32) {
    let (rank, size) = (world.rank(), world.size());
    let ddp = DistributedDataParallel::builder(layer(), world.group().clone()).comm_hook(hook).build().unwrap();
    let mut capture = Capture::new().device(device());
    for s in 0..8 {
        let loss = capture
            .run(&[rows(s, 4 * rank, 4)], |[x]| {
                ddp.parameters().iter().for_each(Tensor::zero_grad);
                let loss = ddp.forward(x)?.pow(2)?.mean(..)?;
                loss.backward()?;
                descend(&ddp.parameters())?;
                Ok(loss)
            })
            .unwrap();
        assert!(loss.item::<f32>().unwrap().is_finite());
    }
    // OpenCL devices run steps without capture.
    assert_eq!(capture.graphs(), !matches!(device(), Device::Cpu | Device::Xpu(_)) as usize);
    let expected = alone(size, 8).unwrap();
    for (p, expected) in ddp.parameters().iter().zip(expected) {
        for (a, b) in p.to_vec::<f32>().unwrap().iter().zip(expected) {
            assert!((a - b).abs() <= tolerance, "{a} and {b}");
        }
    }
}

#[test]
fn captured_steps_of_one_rank() {
    Ranks::new("devices::captured_steps_of_one_rank", 1).run(|world| captured(&world, CommHook::AllReduce, 1e-6));
}

#[test]
fn captured_steps_of_two_ranks() {
    Ranks::new("devices::captured_steps_of_two_ranks", 2).run(|world| {
        captured(&world, CommHook::AllReduce, 1e-5);
        captured(&world, CommHook::Bf16, 2e-2);
    });
}

/// Every collective that a step may contain, recorded and replayed, next to collectives that are not recorded.
#[test]
fn recorded_collectives() {
    Ranks::new("devices::recorded_collectives", 2).run(|world| {
        let (rank, size) = (world.rank(), world.size());
        let mut capture = Capture::new().device(device());
        for s in 0..5 {
            let x = Tensor::full([1000], (s + rank) as f64).unwrap().to(device()).unwrap();
            let [sum, gathered, part, first] = capture
                .run(&[x], |[x]| {
                    let (sum, first) = (x.mul(1)?, x.mul(1)?);
                    let work =
                        world.submit(Collective::AllReduce { tensors: vec![sum.clone()], op: ReduceOp::Sum }, true)?;
                    let gathered = Tensor::zeros_with([2000], device())?;
                    world.all_gather_into_tensor(&gathered, x)?;
                    work.wait()?;
                    let part = Tensor::zeros_with([1000], device())?;
                    world.reduce_scatter_tensor(&part, &gathered, ReduceOp::Max)?;
                    world.broadcast(&first, 0)?;
                    Ok([sum, gathered, part, first])
                })
                .unwrap();
            // One that is not recorded, in between.
            let plain = Tensor::ones_with([3], device()).unwrap();
            world.all_reduce(&plain, ReduceOp::Sum).unwrap();
            assert_eq!(plain.to_vec::<f32>().unwrap(), [size as f32; 3]);
            let is = |t: &Tensor, v: f32| assert!(t.to_vec::<f32>().unwrap().iter().all(|&x| x == v), "step {s}: {v}");
            is(&sum, (2 * s + 1) as f32);
            is(&gathered.narrow(0, 0, 1000).unwrap(), s as f32);
            is(&gathered.narrow(0, 1000, 1000).unwrap(), s as f32 + 1.0);
            is(&part, (s + rank) as f32);
            is(&first, s as f32);
        }
    });
}

/// The error that ends a job is reported by a later call at the latest.
fn next_error(world: &World) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let x = Tensor::ones_with([4], device()).unwrap();
        match world.all_reduce(&x, ReduceOp::Sum).and_then(|()| world.barrier()) {
            Err(e) => return e.to_string(),
            Ok(()) => assert!(Instant::now() < deadline, "no error"),
        }
    }
}

#[test]
fn another_shape_is_named() {
    Ranks::new("devices::another_shape_is_named", 2).run(|world| {
        let x = |n: usize| Tensor::ones_with([n], device()).unwrap();
        world.all_reduce(&x(3), ReduceOp::Sum).unwrap();
        let wrong = x(if world.rank() == 1 { 5 } else { 4 });
        let message = match world.all_reduce(&wrong, ReduceOp::Sum) {
            Err(e) => e.to_string(),
            Ok(()) => next_error(&world),
        };
        assert!(message.contains("rank 1 called all_reduce(sum) float32 [5]"), "{message}");
        // The device is usable again.
        assert_eq!(x(2).to_vec::<f32>().unwrap(), [1.0; 2]);
    });
}

#[test]
fn a_dead_rank_is_named() {
    Ranks::new("devices::a_dead_rank_is_named", 2).victims(&[1]).run(|world| {
        let x = Tensor::ones_with([1000], (DType::F32, device())).unwrap();
        world.all_reduce(&x, ReduceOp::Sum).unwrap();
        assert_eq!(x.sum(..).unwrap().item::<f32>().unwrap(), 2000.0);
        world.barrier().unwrap();
        if world.rank() == 1 {
            std::process::abort();
        }
        let message = next_error(&world);
        assert!(message.contains("rank 1"), "{message}");
        assert_eq!(Tensor::ones_with([2], device()).unwrap().to_vec::<f32>().unwrap(), [1.0; 2]);
    });
}
