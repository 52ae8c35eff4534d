//! Sharded parameters and distributed tensors against one process.

use crate::support::{Ranks, device};
use rushlight_core::{DType, Result, rng::manual_seed};
use rushlight_dist::{DTensor, DeviceMesh, FullyShard, Placement, ReduceOp, ZeroStage, clip_grad_norm_};
use rushlight_nn::{Forward, Linear, Module, Sequential, Tanh};
use rushlight_tensor::{Tensor, autograd::no_grad};
use std::sync::Arc;

fn batch(step: usize, from: usize, rows: usize) -> Tensor {
    let values: Vec<f64> = (0..rows * 6).map(|i| (((step * 1000 + from * 6 + i) * 37) as f64).sin()).collect();
    Tensor::from_slice(&values, [rows, 6]).unwrap().to_dtype(DType::F32).unwrap().to(device()).unwrap()
}

fn layer(inputs: usize, outputs: usize) -> Linear {
    Linear::new(inputs, outputs).unwrap().to(device()).unwrap()
}

fn update(parameters: &[Tensor]) -> Result<()> {
    no_grad(|| {
        for p in parameters {
            if let Some(g) = p.grad() {
                p.sub_(&g.mul(0.1)?)?;
            }
            p.zero_grad();
        }
        Ok(())
    })
}

/// Runs a rank's part; errors fail the test.
fn checked(body: impl FnOnce() -> Result<()>) {
    body().expect("the rank's part runs");
}

const STEPS: usize = 4;

/// Losses and final parameters of one process over the rows of all ranks.
fn alone(ranks: usize, max_norm: f64) -> Result<(Vec<f32>, Vec<Vec<f32>>)> {
    manual_seed(3);
    let net = Sequential::from((layer(6, 7), Tanh, layer(7, 5), Tanh, layer(5, 1)));
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let loss = net.forward(&batch(step, 0, 4 * ranks))?.square()?.mean(..)?;
        loss.backward()?;
        let grads: Vec<Tensor> = net.parameters().iter().filter_map(Tensor::grad).collect();
        clip(&grads, max_norm)?;
        update(&net.parameters())?;
        losses.push(loss.item::<f32>()?);
    }
    Ok((losses, net.parameters().iter().map(|p| p.to_vec::<f32>().unwrap()).collect()))
}

fn clip(grads: &[Tensor], max_norm: f64) -> Result<()> {
    let norm = rushlight_tensor::foreach::norm(&grads.iter().collect::<Vec<_>>(), 2.0)?.item::<f32>()? as f64;
    let factor = max_norm / (norm + 1e-6);
    grads.iter().filter(|_| factor < 1.0).try_for_each(|g| g.mul_(factor).map(drop))
}

fn close(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() <= 1e-5 * y.abs().max(1.0), "{what}: {x} and {y}");
    }
}

fn trains_as_alone(test: &'static str, mesh: &'static [usize], stage: ZeroStage, offload: bool) {
    let ranks = mesh.iter().product();
    Ranks::new(test, ranks).run(move |world| {
        checked(|| {
            let names = if mesh.len() == 1 { vec!["dp"] } else { vec!["replicate", "shard"] };
            let mesh = DeviceMesh::new(&world, mesh, &names)?;
            let shard = FullyShard::new(&mesh)?.stage(stage).offload(offload);
            // The parameters of rank 0 count.
            manual_seed(3 + world.rank() as u64);
            let (a, b, c) = (shard.apply(layer(6, 7))?, shard.apply(layer(7, 5))?, shard.apply(layer(5, 1))?);
            let groups = [a.group().clone(), b.group().clone(), c.group().clone()];
            groups[0].set_prefetch(Some(&groups[1..2]), None);
            groups[1].set_prefetch(Some(&groups[2..]), Some(&groups[..1]));
            groups[2].set_prefetch(None, Some(&groups[1..2]));
            let net = Sequential::from((a, Tanh, b, Tanh, c));
            let max_norm = 0.2;
            let (losses, parameters) = alone(world.size(), max_norm)?;
            for (step, expected) in losses.iter().enumerate() {
                // Two halves: the first adds up without communication.
                let mut sum = 0.0;
                for half in 0..2 {
                    groups.iter().for_each(|g| g.set_sync(half == 1));
                    let x = batch(step, 4 * world.rank() + 2 * half, 2);
                    let loss = net.forward(&x)?.square()?.mean(..)?.div(2.0)?;
                    if stage == ZeroStage::Three {
                        assert!(groups.iter().all(|g| !g.is_gathered()), "freed after the forward pass");
                    }
                    loss.backward()?;
                    sum += loss.item::<f32>()?;
                }
                assert!(stage == ZeroStage::One || groups.iter().all(|g| !g.is_gathered()), "freed after backward");
                let mean = Tensor::new([sum])?;
                world.all_reduce(&mean, ReduceOp::Mean)?;
                close(&mean.to_vec::<f32>()?, &[*expected], "loss");
                clip_grad_norm_(&net.parameters(), max_norm, &**mesh.group(mesh.ndim() - 1)?)?;
                update(&net.parameters())?;
            }
            let mut whole = Vec::new();
            for (group, chunk) in groups.iter().zip(net.parameters().chunks(2)) {
                whole.extend(group.unshard(&chunk.iter().map(Tensor::detach).collect::<Vec<_>>())?);
            }
            for (got, expected) in whole.iter().zip(&parameters) {
                close(&got.to_vec::<f32>()?, expected, "parameter");
            }
            Ok(())
        })
    });
}

#[test]
fn zero_three_on_two_ranks() {
    trains_as_alone("sharded::zero_three_on_two_ranks", &[2], ZeroStage::Three, false);
}

#[test]
fn zero_three_on_eight_ranks() {
    trains_as_alone("sharded::zero_three_on_eight_ranks", &[8], ZeroStage::Three, false);
}

#[test]
fn hybrid_sharding_on_eight_ranks() {
    trains_as_alone("sharded::hybrid_sharding_on_eight_ranks", &[2, 4], ZeroStage::Three, false);
}

#[test]
fn zero_two_on_four_ranks() {
    trains_as_alone("sharded::zero_two_on_four_ranks", &[4], ZeroStage::Two, false);
}

#[test]
fn zero_one_on_two_ranks() {
    trains_as_alone("sharded::zero_one_on_two_ranks", &[2], ZeroStage::One, true);
}

#[test]
fn hybrid_sharding_on_four_ranks() {
    trains_as_alone("sharded::hybrid_sharding_on_four_ranks", &[2, 2], ZeroStage::Three, false);
}

/// Rows of `i * 1.5 - 3`.
fn matrix(rows: usize, columns: usize) -> Result<Tensor> {
    let values: Vec<f32> = (0..rows * columns).map(|i| (i as f32 * 0.37).sin()).collect();
    Tensor::from_slice(&values, [rows, columns])?.to(device())?.requires_grad_(true)
}

#[test]
fn distributed_products_have_the_gradients_of_whole_ones() {
    const S0: Placement = Placement::Shard(0);
    const S1: Placement = Placement::Shard(1);
    const R: Placement = Placement::Replicate;
    Ranks::new("sharded::distributed_products_have_the_gradients_of_whole_ones", 4).run(|world| {
        checked(|| {
            let mesh = Arc::new(DeviceMesh::new(&world, &[2, 2], &["dp", "tp"])?);
            assert_eq!(mesh.select(&["tp"])?.ranks(), [world.rank() / 2 * 2, world.rank() / 2 * 2 + 1]);
            let (x, w, v) = (matrix(6, 4)?, matrix(4, 5)?, matrix(5, 3)?);
            let whole = x.matmul(&w)?.relu()?.matmul(&v)?;
            whole.square()?.sum(..)?.backward()?;
            let gradients = [&x, &w, &v].map(|t| t.grad().unwrap().to_vec::<f32>().unwrap());
            let cases: [[[Placement; 2]; 3]; 4] = [
                [[S0, R], [R, S1], [R, S0]],
                [[S0, S0], [R, R], [R, R]],
                [[S1, R], [S0, R], [S1, S1]],
                [[R, S1], [S1, S0], [R, R]],
            ];
            for case in cases {
                let parts = [&x, &w, &v]
                    .iter()
                    .zip(&case)
                    .map(|(t, p)| DTensor::distribute(t, &mesh, p))
                    .collect::<Result<Vec<_>>>()?;
                let y = parts[0].matmul(&parts[1])?.relu()?.matmul(&parts[2])?;
                let full = y.full_tensor()?;
                close(&full.to_vec::<f32>()?, &whole.to_vec::<f32>()?, "product");
                full.square()?.sum(..)?.backward()?;
                for (part, expected) in parts.iter().zip(&gradients) {
                    let grad = part.to_local().grad().expect("a gradient");
                    let grad = DTensor::from_parts(&grad, &mesh, part.shape(), part.placements())?;
                    close(&grad.full_tensor()?.to_vec::<f32>()?, expected, "gradient");
                }
            }
            // Of uneven parts.
            let uneven = DTensor::distribute(&matrix(5, 3)?, &mesh, &[S0, S0])?;
            let moved = uneven.redistribute(&[S1, R])?.redistribute(&[R, S0])?;
            close(&moved.full_tensor()?.to_vec::<f32>()?, &matrix(5, 3)?.to_vec::<f32>()?, "moved");
            Ok(())
        })
    });
}
