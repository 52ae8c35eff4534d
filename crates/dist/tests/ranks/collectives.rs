//! Every collective, dtype and odd size against values that each rank can compute by itself.

use crate::support::{Ranks, device};
use rushlight_core::{DType, Device, Result};
use rushlight_dist::{Collective, Objects, P2p, ReduceOp, World};
use rushlight_tensor::Tensor;
use std::time::Instant;

/// Element `i` of rank `r`'s tensor: small, so that sums and products are exact in every dtype.
fn value(r: usize, i: usize) -> i64 {
    ((i * 7 + r * 3) % 3) as i64 + (i % 2) as i64
}

/// Rank `r`'s tensor in the CPU's memory.
fn host(dtype: DType, r: usize, n: usize) -> Tensor {
    let values: Vec<i64> = (0..n).map(|i| value(r, i)).collect();
    Tensor::from_slice(&values, [n]).unwrap().to_dtype(dtype).unwrap()
}

fn tensor(dtype: DType, r: usize, n: usize) -> Tensor {
    host(dtype, r, n).to(device()).unwrap()
}

fn zeros(dtype: DType, n: usize) -> Result<Tensor> {
    Tensor::zeros_with([n], (dtype, device()))
}

fn reference(dtype: DType, op: ReduceOp, ranks: usize, n: usize) -> Tensor {
    let of = |r: usize, i: usize| if dtype == DType::Bool { (value(r, i) != 0) as i64 } else { value(r, i) };
    let all = |i: usize| (0..ranks).map(move |r| of(r, i));
    let values: Vec<f64> = (0..n)
        .map(|i| match op {
            ReduceOp::Sum => all(i).sum::<i64>() as f64,
            ReduceOp::Mean => all(i).sum::<i64>() as f64 / ranks as f64,
            ReduceOp::Min => all(i).min().unwrap() as f64,
            ReduceOp::Max => all(i).max().unwrap() as f64,
            ReduceOp::Product => all(i).product::<i64>() as f64,
            ReduceOp::BitAnd => all(i).reduce(|a, b| a & b).unwrap() as f64,
            ReduceOp::BitOr => all(i).reduce(|a, b| a | b).unwrap() as f64,
            ReduceOp::BitXor => all(i).reduce(|a, b| a ^ b).unwrap() as f64,
        })
        .collect();
    Tensor::from_slice(&values, [n]).unwrap().to_dtype(dtype).unwrap()
}

/// The tensors one after another.
fn join(tensors: &[Tensor]) -> Result<Tensor> {
    rushlight_tensor::cat(&tensors.iter().collect::<Vec<_>>(), 0)
}

/// Results and what they should be, compared together: a transfer from a device that processes share waits for its
/// turn.
#[derive(Default)]
struct Checks(Vec<(Tensor, Tensor, String)>);

impl Checks {
    fn add(&mut self, found: &Tensor, expected: &Tensor, what: &str) {
        assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{what}");
        self.0.push((found.clone(), expected.clone(), what.to_owned()));
    }

    fn settle(self, world: &World, name: &str, start: Instant) {
        if self.0.is_empty() {
            return;
        }
        let whole = |side: &dyn Fn(&(Tensor, Tensor, String)) -> Tensor| {
            join(&self.0.iter().map(side).collect::<Vec<_>>()).unwrap().to_vec::<f64>().unwrap()
        };
        let (found, expected) = (whole(&|c| c.0.clone()), whole(&|c| c.1.clone()));
        let mut at = 0;
        for (tensor, _, what) in &self.0 {
            let range = at..at + tensor.numel();
            assert!(found[range.clone()] == expected[range.clone()], "{what}: values differ");
            at = range.end;
        }
        if std::env::var_os("RUSHLIGHT_TEST_TIMES").is_some() && world.rank() == 0 {
            let each = start.elapsed().as_secs_f64() * 1e3 / self.0.len() as f64;
            eprintln!("{name}: {} collectives, {each:.2} ms each, checks included", self.0.len());
        }
    }
}

fn same(a: &Tensor, b: &Tensor, what: &str) {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{what}");
    assert!(a.to_vec::<f64>().unwrap() == b.to_vec::<f64>().unwrap(), "{what}: values differ");
}

/// Nothing, one, primes, the largest small message and one more, more than a slot of shared memory.
const SIZES: [usize; 7] = [0, 1, 2, 97, 4096, 4097, 300_007];

/// The sum of two 40,000 is infinite in half precision; their mean is not.
fn means_do_not_overflow(world: &World) -> Result<()> {
    let large = |n: usize| Tensor::full([n], 40_000.0)?.to_dtype(DType::F16)?.to(device());
    let (size, mut checks) = (world.size(), Checks::default());
    for n in [3, 5000] {
        let x = large(n)?;
        world.all_reduce(&x, ReduceOp::Mean)?;
        checks.add(&x, &large(n)?, "mean of all");
        let y = large(n)?;
        world.reduce(&y, ReduceOp::Mean, 0)?;
        checks.add(&y, &large(n)?, "mean on a root");
        let (output, inputs) = (zeros(DType::F16, n)?, (0..size).map(|_| large(n)).collect::<Result<Vec<_>>>()?);
        world.reduce_scatter(&output, &inputs, ReduceOp::Mean)?;
        checks.add(&output, &large(n)?, "mean of parts");
    }
    checks.settle(world, "means", Instant::now());
    Ok(())
}

fn reductions(world: &World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    for dtype in DType::COMPUTED {
        let (mut checks, start) = (Checks::default(), Instant::now());
        for op in ReduceOp::ALL {
            let fits = op.check(dtype).is_ok();
            for n in if op == ReduceOp::Sum { &SIZES[..] } else { &SIZES[..4] } {
                let what = format!("{dtype} {op} {n} on {rank}");
                let x = tensor(dtype, rank, *n);
                if !fits {
                    assert!(world.all_reduce(&x, op).is_err(), "{what}");
                    continue;
                }
                world.all_reduce(&x, op)?;
                checks.add(&x, &reference(dtype, op, size, *n), &what);
                let root = n % size;
                let y = tensor(dtype, rank, *n);
                world.reduce(&y, op, root)?;
                let expected = if rank == root { reference(dtype, op, size, *n) } else { host(dtype, rank, *n) };
                checks.add(&y, &expected, &what);
            }
        }
        checks.settle(world, &format!("reductions of {dtype}"), start);
    }
    Ok(())
}

fn movements(world: &World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    for dtype in DType::COMPUTED {
        let (mut checks, start) = (Checks::default(), Instant::now());
        // Data movement does not depend on the dtype: large sizes are tested for one dtype of each width.
        let each_width = [DType::F32, DType::BF16, DType::I64, DType::Bool].contains(&dtype);
        for &n in if each_width { &SIZES[..] } else { &SIZES[..4] } {
            let what = format!("{dtype} {n} on {rank}");
            let root = (n + 1) % size;
            let own = tensor(dtype, rank, n);
            let empty = |n: usize| zeros(dtype, n);
            let all = |n: usize| (0..size).map(|_| empty(n)).collect::<Result<Vec<_>>>();

            let x = tensor(dtype, rank, n);
            world.broadcast(&x, root)?;
            checks.add(&x, &host(dtype, root, n), &what);

            let outputs = all(n)?;
            world.all_gather(&outputs, &own)?;
            for (r, output) in outputs.iter().enumerate() {
                checks.add(output, &host(dtype, r, n), &what);
            }
            let whole = empty(n * size)?;
            world.all_gather_into_tensor(&whole, &own)?;
            let parts: Vec<Tensor> = (0..size).map(|r| host(dtype, r, n)).collect();
            checks.add(&whole, &join(&parts)?, &what);

            // Uneven: rank r has r additional elements.
            let uneven = (0..size).map(|r| empty(n + r)).collect::<Result<Vec<_>>>()?;
            world.all_gather(&uneven, &tensor(dtype, rank, n + rank))?;
            for (r, output) in uneven.iter().enumerate() {
                checks.add(output, &host(dtype, r, n + r), &what);
            }
            // To rank t from rank r: n + t elements of pattern r + t.
            let inputs: Vec<Tensor> = (0..size).map(|t| tensor(dtype, rank + t, n + t)).collect();
            let outputs = all(n + rank)?;
            world.all_to_all(&outputs, &inputs)?;
            for (r, output) in outputs.iter().enumerate() {
                checks.add(output, &host(dtype, r + rank, n + rank), &what);
            }
            let inputs: Vec<Tensor> = (0..size).map(|t| tensor(dtype, rank + t, n)).collect();
            let single = empty(n * size)?;
            world.all_to_all_single(&single, &join(&inputs)?, None, None)?;
            let expected: Vec<Tensor> = (0..size).map(|r| host(dtype, r + rank, n)).collect();
            checks.add(&single, &join(&expected)?, &what);

            let outputs = if rank == root { all(n)? } else { Vec::new() };
            world.gather(&own, &outputs, root)?;
            for (r, output) in outputs.iter().enumerate() {
                checks.add(output, &host(dtype, r, n), &what);
            }
            let inputs: Vec<Tensor> =
                if rank == root { (0..size).map(|t| tensor(dtype, 2 * t, n)).collect() } else { Vec::new() };
            let output = empty(n)?;
            world.scatter(&output, &inputs, root)?;
            checks.add(&output, &host(dtype, 2 * rank, n), &what);

            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            if size == 1 {
                continue;
            }
            let got = empty(n)?;
            if device() == Device::Cpu {
                // All ranks send first: messages wait at their destination.
                world.send(&own, next, 7)?;
                world.recv(&got, before, 7)?;
            } else {
                let p2p = |t: &Tensor, peer, sends| P2p { tensor: t.clone(), peer, tag: 7, sends };
                world.batch_p2p(vec![p2p(&own, next, true), p2p(&got, before, false)])?.wait()?;
            }
            checks.add(&got, &host(dtype, before, n), &what);
        }
        for &n in if each_width { &[0usize, 1, 5, 70_001][..] } else { &[0, 1, 97] } {
            // Uneven: rank r gets r additional elements.
            let inputs: Vec<Tensor> = (0..size).map(|r| tensor(dtype, rank, n + r)).collect();
            let output = zeros(dtype, n + rank)?;
            world.reduce_scatter(&output, &inputs, ReduceOp::Product)?;
            checks.add(&output, &reference(dtype, ReduceOp::Product, size, n + rank), "uneven reduce_scatter");
            let inputs: Vec<Tensor> = (0..size).map(|_| tensor(dtype, rank, n)).collect();
            let output = zeros(dtype, n)?;
            world.reduce_scatter(&output, &inputs, ReduceOp::Sum)?;
            checks.add(&output, &reference(dtype, ReduceOp::Sum, size, n), "reduce_scatter");
            let (whole, output) = (join(&inputs)?, zeros(dtype, n)?);
            world.reduce_scatter_tensor(&output, &whole, ReduceOp::Max)?;
            checks.add(&output, &reference(dtype, ReduceOp::Max, size, n), "reduce_scatter_tensor");
        }
        checks.settle(world, &format!("movements of {dtype}"), start);
    }
    Ok(())
}

fn messages(world: &World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let zeros = |n: usize| zeros(DType::F32, n);
    // Tags may be received in another order. On devices messages keep their order, and a second one waits for the
    // receiver of the first: one rank of the ring has to receive before it sends.
    let (a, b) = (tensor(DType::F32, rank, 10), tensor(DType::F32, rank + 1, 20));
    let (x, y) = (zeros(10)?, zeros(20)?);
    let send = || world.send(&a, next, 1).and_then(|()| world.send(&b, next, 2));
    let in_order = || world.recv(&x, before, 1).and_then(|()| world.recv(&y, before, 2));
    match (device(), rank) {
        (Device::Cpu, _) => {
            send()?;
            world.recv(&y, before, 2)?;
            world.recv(&x, before, 1)?;
        }
        (_, 0) => in_order().and_then(|()| send())?,
        _ => send().and_then(|()| in_order())?,
    }
    same(&x, &tensor(DType::F32, before, 10), "tag 1");
    same(&y, &tensor(DType::F32, before + 1, 20), "tag 2");
    // Larger than socket buffers, in both directions at once.
    let (out, into) = (tensor(DType::F32, rank, 3_000_000), zeros(3_000_000)?);
    let p2p = |t: &Tensor, peer, sends| P2p { tensor: t.clone(), peer, tag: 0, sends };
    world.batch_p2p(vec![p2p(&out, next, true), p2p(&into, before, false)])?.wait()?;
    same(&into, &tensor(DType::F32, before, 3_000_000), "batch");
    if device() == Device::Cpu {
        world.send(&out, next, 0)?;
        world.recv(&into, before, 0)?;
    }
    if device() == Device::Cpu {
        messages_of_any_rank(world)?;
    }
    world.send_object(b"hello", next, 3)?;
    assert_eq!(world.recv_object(before, 3)?, b"hello");
    Ok(())
}

/// Rank 0 receives from whoever sends, in any order; messages of another tag wait.
fn messages_of_any_rank(world: &World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    for n in [3, 200_000] {
        if rank != 0 {
            world.send(&tensor(DType::F32, rank + 7, n + 1), 0, 12)?;
            world.send(&tensor(DType::F32, rank, n), 0, 11)?;
            // A second message must not overtake another rank's first.
            world.barrier()?;
            continue;
        }
        let mut senders = Vec::new();
        for _ in 1..size {
            let got = zeros(DType::F32, n)?;
            let from = world.recv_any(&got, 11)?;
            same(&got, &tensor(DType::F32, from, n), "a message of any rank");
            senders.push(from);
        }
        senders.sort_unstable();
        assert_eq!(senders, (1..size).collect::<Vec<_>>());
        for from in (1..size).rev() {
            let got = zeros(DType::F32, n + 1)?;
            world.recv(&got, from, 12)?;
            same(&got, &tensor(DType::F32, from + 7, n + 1), "a message of another tag");
        }
        world.barrier()?;
    }
    Ok(())
}

/// More than fits shared device memory at a time.
fn larger_than_a_lane(world: &World) -> Result<()> {
    let (rank, size, n) = (world.rank(), world.size(), 3_000_001);
    let (mut checks, start) = (Checks::default(), Instant::now());
    let x = tensor(DType::F32, rank, n);
    world.all_reduce(&x, ReduceOp::Sum)?;
    checks.add(&x, &reference(DType::F32, ReduceOp::Sum, size, n), "a large all_reduce");
    let y = tensor(DType::F32, rank, n);
    world.broadcast(&y, size - 1)?;
    checks.add(&y, &host(DType::F32, size - 1, n), "a large broadcast");
    let (own, whole) = (tensor(DType::F32, rank, n), zeros(DType::F32, n * size)?);
    world.all_gather_into_tensor(&whole, &own)?;
    checks.add(&whole, &join(&(0..size).map(|r| host(DType::F32, r, n)).collect::<Vec<_>>())?, "a large all_gather");
    let part = zeros(DType::F32, n)?;
    world.reduce_scatter_tensor(&part, &join(&vec![own; size])?, ReduceOp::Max)?;
    checks.add(&part, &reference(DType::F32, ReduceOp::Max, size, n), "a large reduce_scatter");
    checks.settle(world, "larger than a lane", start);
    Ok(())
}

fn the_rest(world: &World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    world.barrier()?;
    // Asynchronous, several at a time, and one queued behind them.
    let tensors: Vec<Tensor> = (0..5).map(|i| tensor(DType::F32, rank, 1000 * i + 1)).collect();
    let works = tensors
        .iter()
        .map(|t| world.submit(Collective::AllReduce { tensors: vec![t.clone()], op: ReduceOp::Sum }, true))
        .collect::<Result<Vec<_>>>()?;
    let last = tensor(DType::F32, rank, 3);
    world.all_reduce_coalesced(&[last.clone(), zeros(DType::F32, 2)?], ReduceOp::Max)?;
    same(&last, &reference(DType::F32, ReduceOp::Max, size, 3), "behind the queue");
    for (i, work) in works.iter().enumerate() {
        work.wait()?;
        same(&tensors[i], &reference(DType::F32, ReduceOp::Sum, size, 1000 * i + 1), "in the background");
        work.wait_for(std::time::Duration::from_secs(60))?;
        assert!(work.is_completed());
    }
    if size > 1 {
        messages(world)?;
    }
    if device() != Device::Cpu {
        larger_than_a_lane(world)?;
    }
    // Views that are not contiguous.
    let square = Tensor::zeros_with([4, 4], device())?;
    let column = square.narrow(1, 1, 1)?;
    column.fill_(rank as f64 + 1.0)?;
    world.all_reduce(&column, ReduceOp::Sum)?;
    let total = (size * (size + 1) / 2) as f64;
    assert_eq!(square.sum(..)?.item::<f64>()?, 4.0 * total);
    // Objects.
    let bytes = vec![rank as u8; 3 * rank];
    let all = world.all_gather_object(&bytes)?;
    assert!(all.iter().enumerate().all(|(r, b)| *b == vec![r as u8; 3 * r]));
    let root = size - 1;
    let told = world.broadcast_object((rank == root).then_some(b"news"), root)?;
    assert_eq!(told, b"news");
    assert_eq!(world.gather_object(&bytes, 0)?.map(|all| all.len()), (rank == 0).then_some(size));
    let list: Vec<Vec<u8>> = (0..size).map(|r| vec![9; r]).collect();
    assert_eq!(world.scatter_object((rank == 0).then_some(&list[..]), 0)?, vec![9; rank]);
    // Sub-groups: even ranks, and all in reverse.
    let even: Vec<usize> = (0..size).step_by(2).collect();
    let group = world.new_group(&even)?;
    assert_eq!(group.is_some(), rank % 2 == 0);
    if let Some(group) = group {
        let x = Tensor::new([rank as f32])?.to(device())?;
        group.all_reduce(&x, ReduceOp::Sum)?;
        assert_eq!(x.item::<f64>()?, even.iter().sum::<usize>() as f64);
        assert_eq!(group.ranks(), even);
    }
    let reverse: Vec<usize> = (0..size).rev().collect();
    let group = world.new_group(&reverse)?.unwrap();
    let x = Tensor::new([rank as f32])?.to(device())?;
    group.broadcast(&x, 0)?;
    assert_eq!((group.rank(), x.item::<f64>()?), (size - 1 - rank, (size - 1) as f64));
    // Errors that one rank detects locally do no harm to the group.
    assert!(world.broadcast(&x, size).unwrap_err().to_string().contains("root"));
    assert!(world.send(&x, rank, 0).is_err());
    assert!(device() == Device::Cpu || world.all_gather(&vec![x.to(Device::Cpu)?; size], &x).is_err());
    assert!(world.all_gather(&[], &x).is_err());
    assert!(world.new_group(&[0, 0]).is_err());
    world.barrier()?;
    let record = world.flight_record();
    assert!(record.to_string().contains("barrier"));
    assert!(world.local_rank() < world.local_size() && world.local_size() <= size);
    // The program's own keys.
    world.store().add("mine", 1)?;
    world.barrier()?;
    assert_eq!(world.store().get("mine")?, size.to_string().as_bytes());
    Ok(())
}

pub fn everything(world: World) {
    reductions(&world).unwrap();
    means_do_not_overflow(&world).unwrap();
    movements(&world).unwrap();
    the_rest(&world).unwrap();
}

#[test]
fn one_rank() {
    Ranks::new("collectives::one_rank", 1).run(everything);
}

#[test]
fn two_ranks_on_one_node() {
    Ranks::new("collectives::two_ranks_on_one_node", 2).run(everything);
}

#[test]
fn three_ranks_on_one_node() {
    Ranks::new("collectives::three_ranks_on_one_node", 3).run(everything);
}

#[test]
fn three_ranks_on_three_nodes() {
    Ranks::new("collectives::three_ranks_on_three_nodes", 3).nodes(3).run(everything);
}

#[test]
fn four_ranks_on_two_nodes() {
    Ranks::new("collectives::four_ranks_on_two_nodes", 4).nodes(2).run(everything);
}

#[test]
fn three_ranks_on_two_nodes() {
    Ranks::new("collectives::three_ranks_on_two_nodes", 3).nodes(2).run(|world| {
        reductions(&world).unwrap();
        the_rest(&world).unwrap();
    });
}

/// Three ranks in a ring start a large send to the right, then receive from the left.
fn ring(test: &'static str, nodes: usize) {
    Ranks::new(test, 3).nodes(nodes).run(|world| {
        let (rank, n) = (world.rank(), 16 << 20);
        let out = Tensor::full([n], rank as f64).unwrap();
        let into = Tensor::zeros([n]).unwrap();
        let send = P2p { tensor: out, peer: (rank + 1) % 3, tag: 0, sends: true };
        let receive = P2p { tensor: into.clone(), peer: (rank + 2) % 3, tag: 0, sends: false };
        let sent = world.batch_p2p(vec![send]).unwrap();
        world.batch_p2p(vec![receive]).unwrap().wait().unwrap();
        sent.wait().unwrap();
        let left = ((rank + 2) % 3) as f64;
        assert_eq!(into.min(..).unwrap().item::<f64>().unwrap(), left);
        assert_eq!(into.max(..).unwrap().item::<f64>().unwrap(), left);
    });
}

#[test]
fn a_ring_of_large_sends() {
    ring("collectives::a_ring_of_large_sends", 1);
}

#[test]
fn a_ring_of_large_sends_between_nodes() {
    ring("collectives::a_ring_of_large_sends_between_nodes", 3);
}
