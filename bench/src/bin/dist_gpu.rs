//! The overhead of data parallel for a captured step on a GPU: alternates the plain and the data-parallel step in one
//! process. Started alone it is one rank over NCCL; under a launcher each rank prints its times, and the time of each
//! collective.
//!
//! Usage: `dist_gpu [FILTER]`; only cases whose name contains the filter are run. A line for each case: microseconds of
//! the plain and of the data-parallel step, and their ratio, medians of several rounds. A line for each collective:
//! milliseconds of the first call, in which kernels are compiled, and the median of later ones.

#[cfg(target_os = "linux")]
fn main() -> rushlight::Result<()> {
    rank::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("distributed training needs Linux");
}

#[cfg(target_os = "linux")]
mod rank {
    use rushlight::dist::{DistributedDataParallel, P2p, ReduceOp, World, init};
    use rushlight::nn::models::Gpt;
    use rushlight::prelude::*;
    use std::time::Instant;

    const ROUNDS: usize = 9;
    type Batch = [Tensor; 2];

    /// A captured step and its inputs.
    struct Step<'a> {
        capture: Capture,
        batch: Batch,
        call: Box<dyn FnMut(&Batch) -> Result<Tensor> + 'a>,
    }

    impl Step<'_> {
        fn seconds(&mut self, device: &Device, repeats: usize) -> Result<f64> {
            synchronize(device)?;
            let start = Instant::now();
            for _ in 0..repeats {
                self.capture.run(&self.batch, &mut self.call)?;
            }
            synchronize(device)?;
            Ok(start.elapsed().as_secs_f64() / repeats as f64)
        }
    }

    fn median(mut times: Vec<f64>) -> f64 {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    fn compare(name: &str, world: &World, device: Device, mut plain: Step, mut parallel: Step) -> Result<()> {
        // Each step is recorded after two calls.
        let warm = plain.seconds(&device, 5)?.max(parallel.seconds(&device, 5)?);
        let once = plain.seconds(&device, 5)?;
        // All ranks must run the same number of steps.
        let repeats = Tensor::new([((0.2 / once) as i64).clamp(10, 2000)])?;
        world.broadcast(&repeats, 0)?;
        let repeats = repeats.item::<i64>()? as usize;
        let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (x, y) = (plain.seconds(&device, repeats)?, parallel.seconds(&device, repeats)?);
            a.push(x);
            b.push(y);
            ratios.push(y / x);
        }
        println!(
            "{name} plain {:.1} us, data parallel {:.1} us, ratio {:.4} (first calls {:.0} ms)",
            median(a) * 1e6,
            median(b) * 1e6,
            median(ratios),
            warm * 1e3
        );
        Ok(())
    }

    /// One step: forward and loss in the given precision, backward, update.
    fn step(
        optimizer: &mut dyn Optimizer,
        lower: Option<DType>,
        loss: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Tensor> {
        optimizer.zero_grad();
        let loss = {
            let _precision = set_autocast(lower)?;
            loss()?
        };
        loss.backward()?;
        optimizer.step()?;
        Ok(loss)
    }

    /// The step of a model, plain or data parallel.
    fn make<M: Module>(
        world: Option<&World>,
        device: Device,
        batch: Batch,
        build: impl FnOnce() -> Result<M>,
        lower: Option<DType>,
        loss: impl Fn(&M, &Batch) -> Result<Tensor> + 'static,
    ) -> Result<Step<'static>> {
        manual_seed(1);
        let model = build()?.to(device)?;
        let capture = Capture::new().device(device);
        let call: Box<dyn FnMut(&Batch) -> Result<Tensor>> = match world {
            None => {
                let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
                Box::new(move |batch: &Batch| step(&mut optimizer, lower, || loss(&model, batch)))
            }
            Some(world) => {
                let model = DistributedDataParallel::new(model, world.group().clone())?;
                let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
                Box::new(move |batch: &Batch| step(&mut optimizer, lower, || model.call(|model| loss(model, batch))))
            }
        };
        Ok(Step { capture, batch, call })
    }

    /// The time of each collective alone, until its result is ready.
    fn collectives(world: &World, device: Device) -> Result<()> {
        let size = world.size();
        let (next, before) = ((world.rank() + 1) % size, (world.rank() + size - 1) % size);
        for (bytes, text) in [(4usize << 10, "4 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")] {
            let n = bytes / 4;
            let x = Tensor::ones_with([n], (DType::F32, device))?;
            let y = Tensor::ones_with([n], (DType::F32, device))?;
            let all = Tensor::ones_with([n * size], (DType::F32, device))?;
            let p2p = |tensor: &Tensor, peer, sends| P2p { tensor: tensor.clone(), peer, tag: 0, sends };
            let cases: [(&str, &dyn Fn() -> Result<()>); 5] = [
                ("all_reduce", &|| world.all_reduce(&x, ReduceOp::Mean)),
                ("broadcast", &|| world.broadcast(&x, 0)),
                ("all_gather", &|| world.all_gather_into_tensor(&all, &x)),
                ("reduce_scatter", &|| world.reduce_scatter_tensor(&x, &all, ReduceOp::Mean)),
                ("exchange", &|| world.batch_p2p(vec![p2p(&x, next, true), p2p(&y, before, false)])?.wait()),
            ];
            for (name, run) in cases {
                let mut times = Vec::new();
                for _ in 0..21 {
                    let start = Instant::now();
                    run()?;
                    synchronize(&device)?;
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
                let first = times.remove(0);
                println!(
                    "collective {name} {text}, rank {}: first {first:.1} ms, then {:.3} ms",
                    world.rank(),
                    median(times)
                );
            }
        }
        Ok(())
    }

    pub fn main() -> Result<()> {
        let filter = std::env::args().nth(1).unwrap_or_default();
        let world = init()?;
        let device = world.device();
        if device.is_cpu() {
            return Err(Error::device("this machine has no GPU"));
        }
        let wants = |name: &str| name.contains(&filter);
        let both = |name: &str, one: &dyn Fn(Option<&World>) -> Result<Step<'static>>| {
            if !wants(name) { Ok(()) } else { compare(name, &world, device, one(None)?, one(Some(&world))?) }
        };
        if world.size() > 1 && wants("collective") {
            collectives(&world, device)?;
        }
        let rand = |shape: &[usize]| Tensor::rand_with(shape, (DType::F32, device));
        both("linear", &|world| {
            let batch = [rand(&[32, 20])?, rand(&[32, 1])?];
            let loss = |m: &Linear, [x, y]: &Batch| m.forward(x)?.mse_loss(y, Reduction::Mean);
            make(world, device, batch, || Linear::new(20, 1), None, loss)
        })?;
        for (name, lower) in [("transformer_f32", None), ("transformer_bf16", Some(DType::BF16))] {
            both(name, &|world| {
                let batch = [rand(&[32, 1, 512])?, rand(&[32, 20, 512])?];
                let loss = |m: &Transformer, [src, tgt]: &Batch| m.forward(src, tgt)?.cross_entropy(tgt);
                make(world, device, batch, || Transformer::builder().batch_first(true).build(), lower, loss)
            })?;
        }
        for (name, vocabulary, length) in [("chargpt_bf16", 65, 128), ("gpt2_bf16", 50_304, 1024)] {
            both(name, &|world| {
                let tokens = || Tensor::randint_with(0, vocabulary, [16, length], (DType::I64, device));
                let batch = [tokens()?, tokens()?.reshape([16 * length])?];
                let build = || {
                    let shape = Gpt::builder(vocabulary as usize).n_layer(12).n_head(12).n_embd(768).block_size(length);
                    shape.tie_weights(true).build()
                };
                let loss = |m: &Gpt, [x, y]: &Batch| m.forward(x)?.flatten(0, 1)?.cross_entropy(y);
                make(world, device, batch, build, Some(DType::BF16), loss)
            })?;
        }
        Ok(())
    }
}
