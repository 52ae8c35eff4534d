//! Context and expert parallelism and products that overlap their communication, against one process.

use crate::support::{Ranks, device};
use rushlight_core::{DType, Result, rng::manual_seed};
use rushlight_dist::async_tp::{all_gather_matmul, gathered_linear, matmul_reduce_scatter, scattered_linear};
use rushlight_dist::context_parallel::{Order, RingOptions, ring_attention, ulysses_attention};
use rushlight_dist::expert_parallel::dispatch;
use rushlight_dist::{ReduceOp, World};
use rushlight_tensor::{AttentionOptions, Tensor};

fn near(a: &Tensor, b: &Tensor, what: &str) {
    let gap = a.sub(b).unwrap().abs().unwrap().max(..).unwrap().item::<f32>().unwrap();
    assert!(gap < 1e-5, "{what}: {gap}");
}

fn attention(world: World) -> Result<()> {
    let (rank, ranks) = (world.rank(), world.size());
    for is_causal in [false, true] {
        for (order, is_ring) in [(Order::Contiguous, true), (Order::Balanced, true), (Order::Contiguous, false)] {
            manual_seed(5);
            let make = || Tensor::randn([2, ranks.max(4), 8 * ranks, 6])?.to(device());
            let whole = [make()?, make()?, make()?];
            let dy = make()?;
            let leaves = |split: bool| -> Result<Vec<Tensor>> {
                let of = |t: &Tensor| if split { order.split(t, 2, rank, ranks) } else { t.copy() };
                whole.iter().map(|t| of(t)?.detach().requires_grad_(true)).collect()
            };
            let alone = leaves(false)?;
            let options = AttentionOptions::default().is_causal(is_causal);
            let expected = alone[0].scaled_dot_product_attention(&alone[1], &alone[2], &options)?;
            expected.mul(&dy)?.sum(..)?.backward()?;
            let own = leaves(true)?;
            let ring = RingOptions { is_causal, order, scale: None };
            let out = match is_ring {
                true => ring_attention(&own[0], &own[1], &own[2], ring, world.group())?,
                false => ulysses_attention(&own[0], &own[1], &own[2], options, world.group())?,
            };
            let what = format!("{order:?}, ring {is_ring}, causal {is_causal}");
            near(&out, &order.split(&expected.detach(), 2, rank, ranks)?, &what);
            out.mul(&order.split(&dy, 2, rank, ranks)?)?.sum(..)?.backward()?;
            for (part, whole) in own.iter().zip(&alone) {
                let expected = order.split(&whole.grad().unwrap(), 2, rank, ranks)?;
                near(&part.grad().unwrap(), &expected, &format!("gradient, {what}"));
            }
        }
    }
    let odd = Tensor::ones([1, 1, 3, 2])?;
    let ring = RingOptions { is_causal: true, order: Order::Balanced, scale: None };
    assert!(ring_attention(&odd, &odd, &odd, ring, world.group()).is_err());
    Ok(())
}

fn experts(world: World) -> Result<()> {
    let (rank, ranks) = (world.rank(), world.size());
    let (count, size, rows) = (2 * ranks, 5, 7);
    manual_seed(11);
    let weights = Tensor::randn([count, size, size])?.to(device())?;
    let all = Tensor::randn([ranks * rows, size])?.to(device())?;
    let dy = Tensor::randn([ranks * rows, size])?.to(device())?;
    // Uneven: the last expert gets nothing.
    let chosen: Vec<i64> = (0..ranks * rows).map(|i| (i * i + 3 * i) as i64 % (count as i64 - 1)).collect();

    let (w, x) = (weights.copy()?.requires_grad_(true)?, all.copy()?.requires_grad_(true)?);
    let each =
        chosen.iter().enumerate().map(|(i, &e)| x.narrow(0, i as isize, 1)?.matmul(&w.select(0, e as isize)?)?.tanh());
    let expected = Tensor::cat(&each.collect::<Result<Vec<_>>>()?.iter().collect::<Vec<_>>(), 0)?;
    expected.mul(&dy)?.sum(..)?.backward()?;

    let mine = |t: &Tensor| t.detach().narrow(0, (rank * rows) as isize, rows)?.copy();
    let own = mine(&all)?.requires_grad_(true)?;
    let own_w = weights.narrow(0, (2 * rank) as isize, 2)?.copy()?.requires_grad_(true)?;
    let index = Tensor::from_slice(&chosen[rank * rows..(rank + 1) * rows], [rows])?.to(device())?;
    let (tokens, way) = dispatch(&own, &index, count, world.group())?;
    assert_eq!(tokens.shape()[0], way.counts().iter().sum::<usize>());
    let parts = tokens.split_with_sizes(way.counts(), 0)?;
    let outputs = parts
        .iter()
        .enumerate()
        .map(|(e, part)| part.matmul(&own_w.select(0, e as isize)?)?.tanh())
        .collect::<Result<Vec<_>>>()?;
    let out = way.combine(&Tensor::cat(&outputs.iter().collect::<Vec<_>>(), 0)?)?;
    near(&out, &mine(&expected)?, "experts");
    out.mul(&mine(&dy)?)?.sum(..)?.backward()?;
    near(&own.grad().unwrap(), &mine(&x.grad().unwrap())?, "tokens' gradients");
    near(&own_w.grad().unwrap(), &w.grad().unwrap().narrow(0, (2 * rank) as isize, 2)?, "experts' gradients");

    let wrong = Tensor::full_with([rows], 99, (DType::I64, device()))?;
    assert!(dispatch(&own, &wrong, count, world.group()).err().unwrap().to_string().contains("expert 99"));
    assert!(dispatch(&own, &index, count + 1, world.group()).is_err());
    Ok(())
}

fn overlapped(world: World) -> Result<()> {
    let (rank, ranks) = (world.rank(), world.size());
    let (rows, inner, out) = (3, 4 * ranks, 2 * ranks);
    manual_seed(23);
    let make = |shape: &[usize]| Tensor::randn(shape)?.to(device());
    let (x, w1, w2) = (make(&[2, rows * ranks, inner])?, make(&[out, inner])?, make(&[inner, out])?);
    let dy = make(&[2, rows * ranks, inner])?;
    let mine = |t: &Tensor, dim: isize| -> Result<Tensor> {
        let size = t.size(dim)? / ranks;
        t.detach().narrow(dim, (rank * size) as isize, size)?.copy()
    };
    // Two layers, the first split by its outputs and the second by its inputs; tokens are split before and after.
    let alone = [&x, &w1, &w2].map(|t| t.copy().and_then(|t| t.requires_grad_(true)));
    let [ax, aw1, aw2] = alone;
    let (ax, aw1, aw2) = (ax?, aw1?, aw2?);
    let expected = ax.linear(&aw1, None)?.tanh()?.linear(&aw2, None)?;
    expected.mul(&dy)?.sum(..)?.backward()?;
    let (own, own1, own2) = (mine(&x, 1)?.requires_grad_(true)?, mine(&w1, 0)?.requires_grad_(true)?, mine(&w2, 1)?);
    let own2 = own2.requires_grad_(true)?;
    let hidden = gathered_linear(&own, &own1, 1, world.group())?;
    assert_eq!(hidden.shape(), [2, rows * ranks, out / ranks]);
    let y = scattered_linear(&hidden.tanh()?, &own2, -2, world.group())?;
    near(&y, &mine(&expected, 1)?, "two layers");
    y.mul(&mine(&dy, 1)?)?.sum(..)?.backward()?;
    near(&own.grad().unwrap(), &mine(&ax.grad().unwrap(), 1)?, "gradient of the input");
    near(&own1.grad().unwrap(), &mine(&aw1.grad().unwrap(), 0)?, "gradient of the first weight");
    near(&own2.grad().unwrap(), &mine(&aw2.grad().unwrap(), 1)?, "gradient of the second weight");

    // Several products of one gather, and the mean.
    let flat = x.flatten(0, 1)?;
    let (a, b) = (w1.t()?, make(&[inner, 3])?);
    let (whole, products) = all_gather_matmul(&mine(&flat, 0)?, &[&a, &b], 0, true, &**world.group())?;
    near(&whole.unwrap(), &flat, "the whole");
    near(&products[0], &flat.matmul(&a)?, "the first product");
    near(&products[1], &flat.matmul(&b)?, "the second product");
    let each = flat.mul(rank as f64 + 1.0)?;
    let mean = matmul_reduce_scatter(&each, &a, ReduceOp::Mean, 0, &**world.group())?;
    let factor = (ranks + 1) as f64 / 2.0;
    near(&mean.div(factor)?, &mine(&flat.matmul(&a)?, 0)?, "the mean of products");

    let told = |result: Result<Tensor>, words: &str| {
        let message = result.err().unwrap().to_string();
        assert!(message.contains(words), "{message}");
    };
    told(gathered_linear(&own, &own1, 2, world.group()), "before the last");
    told(gathered_linear(&own, &own2, 1, world.group()), "cannot be multiplied");
    told(matmul_reduce_scatter(&flat, &a, ReduceOp::Max, 0, &**world.group()), "sum and mean");
    let odd = make(&[ranks + 1, inner])?;
    told(matmul_reduce_scatter(&odd, &a, ReduceOp::Sum, 0, &**world.group()), "does not split");
    Ok(())
}

#[test]
fn overlapped_products_on_two_ranks() {
    Ranks::new("long::overlapped_products_on_two_ranks", 2).run(|world| overlapped(world).unwrap());
}

#[test]
fn overlapped_products_on_four_ranks() {
    Ranks::new("long::overlapped_products_on_four_ranks", 4).run(|world| overlapped(world).unwrap());
}

#[test]
fn context_parallel_on_two_ranks() {
    Ranks::new("long::context_parallel_on_two_ranks", 2).run(|world| attention(world).unwrap());
}

#[test]
fn context_parallel_on_four_ranks() {
    Ranks::new("long::context_parallel_on_four_ranks", 4).run(|world| attention(world).unwrap());
}

#[test]
fn expert_parallel_on_two_ranks() {
    Ranks::new("long::expert_parallel_on_two_ranks", 2).run(|world| experts(world).unwrap());
}

#[test]
fn expert_parallel_on_four_ranks() {
    Ranks::new("long::expert_parallel_on_four_ranks", 4).run(|world| experts(world).unwrap());
}

#[test]
fn context_parallel_on_eight_ranks() {
    Ranks::new("long::context_parallel_on_eight_ranks", 8).run(|world| attention(world).unwrap());
}

#[test]
fn expert_parallel_on_eight_ranks() {
    Ranks::new("long::expert_parallel_on_eight_ranks", 8).run(|world| experts(world).unwrap());
}
