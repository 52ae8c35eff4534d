//! Data parallel against one process that sees all the data.

use crate::support::{Ranks, device};
use rushlight_core::{DType, Result, rng::manual_seed};
use rushlight_dist::{
    CommHook, DataParallel, DistributedDataParallel, DistributedOptimizer, PeriodicModelAverager, ReduceOp,
    SyncBatchNorm, World, broadcast_parameters,
};
use rushlight_nn::{BatchNorm1d, Forward, Linear, Member, MemberMut, Module, Parameter};
use rushlight_tensor::{Tensor, autograd::no_grad};

/// Two layers, the second used on request, and an unused scale.
struct Net {
    first: Linear,
    second: Linear,
    spare: Parameter,
}

impl Net {
    fn new() -> Result<Self> {
        let spare = Parameter::new(&Tensor::ones_with([3], (DType::F64, device()))?)?;
        let layer = |i, o| Linear::new(i, o)?.to((DType::F64, device()));
        Ok(Self { first: layer(6, 8)?, second: layer(8, 1)?, spare })
    }

    fn run(&self, x: &Tensor, both: bool) -> Result<Tensor> {
        let y = self.first.forward(x)?.tanh()?;
        if both { self.second.forward(&y) } else { Ok(y) }
    }
}

impl Module for Net {
    fn type_name(&self) -> &'static str {
        "Net"
    }
    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        visit("first", Member::Module(&self.first));
        visit("second", Member::Module(&self.second));
        visit("spare", Member::Parameter(&self.spare));
    }
    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        visit("first", MemberMut::Module(&mut self.first));
        visit("second", MemberMut::Module(&mut self.second));
        visit("spare", MemberMut::Parameter(&mut self.spare));
    }
}

/// Batch `step` of all ranks: rows are numbered over all ranks.
fn batch(step: usize, from: usize, rows: usize) -> Tensor {
    let values: Vec<f64> = (0..rows * 6).map(|i| (((step * 1000 + from * 6 + i) * 37) as f64).sin()).collect();
    Tensor::from_slice(&values, [rows, 6]).unwrap().to(device()).unwrap()
}

fn step(parameters: &[Tensor]) -> Result<()> {
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

fn close(a: f64, b: f64, what: &str) {
    assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{what}: {a} and {b}");
}

fn model(rank: usize) -> Net {
    // Every rank begins with its own values; rank 0's are broadcast.
    manual_seed(rank as u64);
    Net::new().unwrap()
}

/// Losses of one process over all rows.
fn alone(ranks: usize, steps: usize, both: bool) -> Result<(Vec<f64>, Vec<f64>)> {
    let net = model(0);
    let mut losses = Vec::new();
    for s in 0..steps {
        let loss = net.run(&batch(s, 0, 4 * ranks), both)?.pow(2)?.mean(..)?;
        loss.backward()?;
        losses.push(loss.item::<f64>()?);
        step(&net.parameters())?;
    }
    let end = net.parameters().iter().map(|p| p.sum(..)?.item::<f64>()).collect::<Result<_>>()?;
    Ok((losses, end))
}

fn mean_over(world: &World, x: f64) -> f64 {
    let t = Tensor::from_slice(&[x], [1]).unwrap();
    world.all_reduce(&t, rushlight_dist::ReduceOp::Mean).unwrap();
    t.item().unwrap()
}

fn trained(world: &World, ddp: &DistributedDataParallel<Net>, both: bool) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (losses, end) = alone(size, 5, both)?;
    for (s, expected) in losses.iter().enumerate() {
        let loss = ddp.call(|net| net.run(&batch(s, 4 * rank, 4), both))?.pow(2)?.mean(..)?;
        loss.backward()?;
        close(mean_over(world, loss.item()?), *expected, "loss");
        assert!(ddp.module().spare.grad().is_none());
        step(&ddp.parameters())?;
    }
    for (p, expected) in ddp.parameters().iter().zip(end) {
        close(p.sum(..)?.item()?, expected, "parameter");
    }
    Ok(())
}

fn equal_to_one_process(world: World) {
    let rank = world.rank();
    let wrap = || DistributedDataParallel::builder(model(rank), world.group().clone());
    // The spare parameter is unused: without `find_unused_parameters` the error names it.
    let ddp = wrap().build().unwrap();
    let loss = ddp.call(|net| net.run(&batch(0, 0, 2), true)).unwrap().sum(..).unwrap();
    let message = loss.backward().unwrap_err().to_string();
    assert!(message.contains("spare") && message.contains("find_unused_parameters"), "{message}");
    world.barrier().unwrap();

    trained(&world, &wrap().find_unused_parameters(true).build().unwrap(), true).unwrap();
    // Buckets of 64 bytes: many.
    trained(
        &world,
        &wrap().find_unused_parameters(true).bucket_cap_mb(64.0 / (1 << 20) as f64).build().unwrap(),
        false,
    )
    .unwrap();
    trained(&world, &wrap().static_graph(true).build().unwrap(), true).unwrap();
    let frozen = model(rank);
    frozen.spare.tensor().clone().requires_grad_(false).unwrap();
    let ddp = DistributedDataParallel::builder(frozen, world.group().clone()).bucket_cap_mb(1e-4).build().unwrap();
    trained(&world, &ddp, true).unwrap();
    // Gradients are views of the buckets: the two of a layer are adjacent in memory.
    ddp.call(|net| net.run(&batch(0, 0, 2), true)).unwrap().sum(..).unwrap().backward().unwrap();
    let grad = |p: &Parameter| p.grad().unwrap();
    assert!(grad(&ddp.module().second.weight).shares_storage(&grad(ddp.module().second.bias.as_ref().unwrap())));
    assert!(ddp.state_dict().keys().all(|key| key.starts_with("module.")));
}

#[test]
fn data_parallel_equals_one_process() {
    Ranks::new("parallel::data_parallel_equals_one_process", 2).run(equal_to_one_process);
}

#[test]
fn data_parallel_between_nodes() {
    Ranks::new("parallel::data_parallel_between_nodes", 3).nodes(3).run(equal_to_one_process);
}

#[test]
fn accumulation_hooks_and_buffers() {
    Ranks::new("parallel::accumulation_hooks_and_buffers", 2).run(|world| {
        let (rank, size) = (world.rank(), world.size());
        manual_seed(rank as u64);
        let layer = Linear::new(6, 1).unwrap().to(device()).unwrap();
        let x = |s: usize, r: usize| batch(s, 4 * r, 4).to_dtype(DType::F32).unwrap();
        // Two local passes, then one with communication: the mean of the sums.
        let ddp = DistributedDataParallel::new(layer, world.group().clone()).unwrap();
        for s in 0..3 {
            let guard = (s < 2).then(|| ddp.no_sync());
            let y = ddp.forward(&x(s, rank)).unwrap();
            drop(guard);
            y.sum(..).unwrap().backward().unwrap();
        }
        let total: f64 = (0..size)
            .flat_map(|r| (0..3).map(move |s| (s, r)))
            .map(|(s, r)| x(s, r).sum(..).unwrap().item::<f64>().unwrap())
            .sum();
        let grad =
            |ddp: &DistributedDataParallel<Linear>| ddp.weight.grad().unwrap().sum(..).unwrap().item::<f64>().unwrap();
        assert!((grad(&ddp) - total / size as f64).abs() < 1e-4);
        for hook in [CommHook::Fp16, CommHook::Bf16] {
            let layer = Linear::new(6, 1).unwrap().to(device()).unwrap();
            let ddp = DistributedDataParallel::builder(layer, world.group().clone()).comm_hook(hook).build().unwrap();
            ddp.forward(&x(0, rank)).unwrap().sum(..).unwrap().backward().unwrap();
            let total: f64 = (0..size).map(|r| x(0, r).sum(..).unwrap().item::<f64>().unwrap()).sum();
            assert!((grad(&ddp) - total / size as f64).abs() < 0.1, "{hook:?}");
        }
        // Divided before they are summed: the sum of 40,000 and 40,000 is infinite in half precision.
        let layer = Linear::new(6, 1).unwrap().to(device()).unwrap();
        let ddp =
            DistributedDataParallel::builder(layer, world.group().clone()).comm_hook(CommHook::Fp16).build().unwrap();
        let large = Tensor::full_with([1, 6], 40_000.0, (DType::F32, device())).unwrap();
        ddp.forward(&large).unwrap().sum(..).unwrap().backward().unwrap();
        assert!((grad(&ddp) - 240_000.0).abs() < 200.0, "{}", grad(&ddp));
        // Rank 0's running statistics are broadcast at the next forward pass.
        let norm = BatchNorm1d::new(6).unwrap().to(device()).unwrap();
        let ddp = DistributedDataParallel::new(norm, world.group().clone()).unwrap();
        ddp.forward(&x(0, rank)).unwrap().sum(..).unwrap().backward().unwrap();
        ddp.eval();
        ddp.forward(&x(1, rank)).unwrap().sum(..).unwrap().backward().unwrap();
        let sum = |b: &Tensor| b.to_dtype(DType::F64).unwrap().sum(..).unwrap().item::<f64>().unwrap();
        let all: f64 = ddp.buffers().iter().map(sum).sum();
        let mean = mean_over(&world, all);
        assert!((mean - all).abs() < 1e-9);
    });
}

/// Four scalars, of which a pass uses one.
struct Choice(Vec<Parameter>);

impl Module for Choice {
    fn type_name(&self) -> &'static str {
        "Choice"
    }
    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        self.0.iter().enumerate().for_each(|(i, p)| visit(&i.to_string(), Member::Parameter(p)));
    }
    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        self.0.iter_mut().enumerate().for_each(|(i, p)| visit(&i.to_string(), MemberMut::Parameter(p)));
    }
}

/// A parameter that a rank used only under `no_sync` is averaged by the next pass, on every rank.
#[test]
fn unused_parameters_and_accumulation() {
    Ranks::new("parallel::unused_parameters_and_accumulation", 2).run(|world| {
        let rank = world.rank();
        let scalar = |_| Parameter::new(&Tensor::ones_with([1], (DType::F64, device())).unwrap()).unwrap();
        let module = Choice((0..4).map(scalar).collect());
        let ddp = DistributedDataParallel::builder(module, world.group().clone()).find_unused_parameters(true);
        let ddp = ddp.build().unwrap();
        let pass = |which: usize| {
            ddp.call(|m| m.0[which].tensor().mul(1.0)).unwrap().sum(..).unwrap().backward().unwrap();
        };
        let grads = || -> Vec<Option<f64>> {
            let item = |p: &Parameter| p.grad().map(|g| g.item::<f64>().unwrap());
            ddp.module().0.iter().map(item).collect()
        };
        let guard = ddp.no_sync();
        pass(2 * rank);
        drop(guard);
        pass(2 * rank + 1);
        // PyTorch's answer for one pass of each kind: rank 0 uses 0 and 1, rank 1 uses 2 and 3.
        assert_eq!(grads(), [Some(0.5); 4]);
        // What was averaged is not counted again.
        ddp.parameters().iter().for_each(Tensor::zero_grad);
        pass(0);
        assert_eq!(grads(), [Some(1.0), None, None, None]);
    });
}

#[test]
fn different_modules_are_named() {
    Ranks::new("parallel::different_modules_are_named", 3).run(|world| {
        let features = if world.rank() == 1 { 5 } else { 6 };
        let layer = Linear::new(features, 1).unwrap();
        let message = DistributedDataParallel::new(layer, world.group().clone()).err().unwrap().to_string();
        assert!(message.contains("rank 0 has parameter weight: float32 [1, 6]"), "{message}");
        assert!(message.contains("rank 1 has parameter weight: float32 [1, 5]"), "{message}");
    });
}

#[test]
fn uneven_inputs_join() {
    Ranks::new("parallel::uneven_inputs_join", 3).run(|world| {
        let rank = world.rank();
        manual_seed(rank as u64);
        let layer = Linear::new(6, 1).unwrap().to((DType::F64, device())).unwrap();
        let ddp = DistributedDataParallel::new(layer, world.group().clone()).unwrap();
        // Rank 0 has no data at all, rank 2 the most.
        let seen = ddp
            .join(|ddp| {
                for s in 0..2 * rank {
                    ddp.forward(&batch(s, 4 * rank, 4))?.pow(2)?.mean(..)?.backward()?;
                    step(&ddp.parameters())?;
                }
                Ok(2 * rank)
            })
            .unwrap();
        assert_eq!(seen, 2 * rank);
        let sum = ddp.weight.sum(..).unwrap().item::<f64>().unwrap();
        close(mean_over(&world, sum), sum, "all ranks end alike");
        world.barrier().unwrap();
    });
}

fn sums(parameters: &[Tensor]) -> Vec<f64> {
    parameters.iter().map(|p| p.detach().sum(..).unwrap().item::<f64>().unwrap()).collect()
}

fn alike(world: &World, parameters: &[Tensor], what: &str) {
    for sum in sums(parameters) {
        close(mean_over(world, sum), sum, what);
    }
}

#[test]
fn low_rank_gradients() {
    Ranks::new("parallel::low_rank_gradients", 2).run(|world| {
        let rank = world.rank();
        let layer = || {
            manual_seed(3);
            Linear::new(6, 20).unwrap().to((DType::F64, device())).unwrap()
        };
        let hook = CommHook::PowerSgd { rank: 1, start_iteration: 1 };
        let ddp = DistributedDataParallel::builder(layer(), world.group().clone()).comm_hook(hook).build().unwrap();
        let plain = DistributedDataParallel::new(layer(), world.group().clone()).unwrap();
        for s in 0..4 {
            for model in [&ddp, &plain] {
                model.parameters().iter().for_each(Tensor::zero_grad);
                // The gradient of the weight is an outer product, so compression is exact.
                model.forward(&batch(s, 4 * rank, 4)).unwrap().sum(..).unwrap().backward().unwrap();
            }
            for (a, b) in ddp.parameters().iter().zip(plain.parameters()) {
                let difference = a.grad().unwrap().sub(&b.grad().unwrap()).unwrap().abs().unwrap();
                assert!(difference.max(..).unwrap().item::<f64>().unwrap() < 1e-6, "step {s}");
            }
        }
        // The error feedback catches up: over many steps the sums agree.
        let (mut lossy, mut exact) = (0.0, 0.0);
        for s in 0..200 {
            for (model, total) in [(&ddp, &mut lossy), (&plain, &mut exact)] {
                model.parameters().iter().for_each(Tensor::zero_grad);
                model
                    .forward(&batch(s % 5, 4 * rank, 4))
                    .unwrap()
                    .pow(2)
                    .unwrap()
                    .mean(..)
                    .unwrap()
                    .backward()
                    .unwrap();
                *total += model.weight.grad().unwrap().narrow(0, 3, 1).unwrap().sum(..).unwrap().item::<f64>().unwrap();
            }
        }
        assert!((lossy - exact).abs() < 0.05 * exact.abs().max(1.0), "{lossy} and {exact}");
    });
}

#[test]
fn models_that_train_apart() {
    Ranks::new("parallel::models_that_train_apart", 2).run(|world| {
        let rank = world.rank();
        manual_seed(1);
        let layer = Linear::new(6, 1).unwrap().to((DType::F64, device())).unwrap();
        let ddp =
            DistributedDataParallel::builder(layer, world.group().clone()).post_local_sgd(2, None).build().unwrap();
        let mut averager = PeriodicModelAverager::new(world.group().clone(), 3).unwrap().warmup_steps(2);
        for s in 0..6 {
            ddp.forward(&batch(s, 4 * rank, 4)).unwrap().pow(2).unwrap().mean(..).unwrap().backward().unwrap();
            step(&ddp.parameters()).unwrap();
            // Together until the second step, averaged after the third and the sixth.
            let averaged = averager.average_parameters(&ddp.parameters()).unwrap();
            assert_eq!(averaged, s == 2 || s == 5);
            if s == 3 {
                let sum = sums(&ddp.parameters())[0];
                assert!((mean_over(&world, sum) - sum).abs() > 1e-9, "the ranks train apart");
            } else if s != 4 {
                alike(&world, &ddp.parameters(), "parameters");
            }
        }
        assert!(PeriodicModelAverager::new(world.group().clone(), 0).is_err());
    });
}

#[test]
fn batch_norm_over_all_ranks() {
    Ranks::new("parallel::batch_norm_over_all_ranks", 3).run(|world| {
        let (rank, size) = (world.rank(), world.size());
        let kind = (DType::F64, device());
        let norm = SyncBatchNorm::new(6, world.group().clone()).unwrap().to(kind).unwrap();
        let whole = BatchNorm1d::new(6).unwrap().to(kind).unwrap();
        // Rank r has r + 2 rows.
        let rows = |r: usize| (0..r).map(|r| r + 2).sum::<usize>();
        let all = batch(0, 0, rows(size)).requires_grad_(true).unwrap();
        let own = batch(0, rows(rank), rank + 2).requires_grad_(true).unwrap();
        let expected = whole.forward(&all).unwrap();
        let y = norm.forward(&own).unwrap();
        let part = |t: &Tensor| t.detach().narrow(0, rows(rank) as isize, rank + 2).unwrap();
        let near = |a: &Tensor, b: &Tensor, what: &str| {
            let difference = a.detach().sub(&b.detach()).unwrap().abs().unwrap().max(..).unwrap();
            assert!(difference.item::<f64>().unwrap() < 1e-10, "{what}");
        };
        near(&y, &part(&expected), "outputs");
        expected.pow(3).unwrap().sum(..).unwrap().backward().unwrap();
        y.pow(3).unwrap().sum(..).unwrap().backward().unwrap();
        near(&own.grad().unwrap(), &part(&all.grad().unwrap()), "gradients");
        near(&norm.running_mean, whole.running_mean.as_ref().unwrap(), "means");
        near(&norm.running_var, whole.running_var.as_ref().unwrap(), "variances");
        let names = |m: &dyn Module| m.state_dict().keys().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&norm), names(&whole));
        norm.eval();
        whole.eval();
        near(&norm.forward(&own).unwrap(), &whole.forward(&own).unwrap(), "evaluation");
        assert!(norm.forward(&Tensor::ones([2, 5]).unwrap()).is_err());
    });
}

struct Descent(Vec<Tensor>);

#[test]
fn an_optimizer_that_averages() {
    Ranks::new("parallel::an_optimizer_that_averages", 2).run(|world| {
        let (rank, size) = (world.rank(), world.size());
        let net = model(rank);
        broadcast_parameters(&net.parameters(), &**world.group(), 0).unwrap();
        let (_, end) = alone(size, 4, true).unwrap();
        let wrap = |passes| {
            DistributedOptimizer::builder(Descent(net.parameters()), net.named_parameters(), world.group().clone())
                .backward_passes_per_step(passes)
        };
        let mut optimizer = wrap(1).build().unwrap();
        for s in 0..4 {
            net.run(&batch(s, 4 * rank, 4), true).unwrap().pow(2).unwrap().mean(..).unwrap().backward().unwrap();
            optimizer.step_with(|descent| step(&descent.0)).unwrap();
        }
        for (sum, expected) in sums(&optimizer.0).into_iter().zip(end) {
            close(sum, expected, "parameter");
        }
        drop(optimizer);
        // Several passes, sent in half precision.
        let mut optimizer = wrap(2).compression(CommHook::Fp16).build().unwrap();
        for s in 0..2 {
            net.run(&batch(s, 4 * rank, 4), true).unwrap().sum(..).unwrap().backward().unwrap();
        }
        optimizer.step_with(|descent| step(&descent.0)).unwrap();
        alike(&world, &net.parameters(), "parameters");
        let loss = || net.run(&batch(0, 0, 2), true).unwrap().sum(..).unwrap();
        loss().backward().unwrap();
        loss().backward().unwrap();
        assert!(loss().backward().unwrap_err().to_string().contains("backward_passes_per_step"));
        optimizer.synchronize().unwrap();
        drop(optimizer);
        assert!(wrap(0).build().is_err() && wrap(1).op(ReduceOp::Max).build().is_err());
    });
}

#[test]
fn devices_of_one_process() {
    let devices = [device(), device(), device()];
    let make = |device| {
        manual_seed(5);
        Linear::new(6, 2)?.to((DType::F64, device))
    };
    let (parallel, plain) = (DataParallel::new(&devices, make).unwrap(), make(device()).unwrap());
    for s in 0..3 {
        for rows in [7, 2, 1] {
            let (a, b) = (parallel.forward(&batch(s, 0, rows)).unwrap(), plain.forward(&batch(s, 0, rows)).unwrap());
            close(a.sum(..).unwrap().item().unwrap(), b.sum(..).unwrap().item().unwrap(), "outputs");
            a.pow(2).unwrap().sum(..).unwrap().backward().unwrap();
            b.pow(2).unwrap().sum(..).unwrap().backward().unwrap();
        }
        step(&parallel.parameters()).unwrap();
        step(&plain.parameters()).unwrap();
    }
    for (a, b) in sums(&parallel.parameters()).into_iter().zip(sums(&plain.parameters())) {
        close(a, b, "parameters");
    }
    assert!(DataParallel::<Linear>::new(&[], make).is_err());
}
