//! One rank of the distributed benchmark: `bench/dist` starts two. Rank 0 prints a line for each case: name and
//! microseconds of each repetition. Only cases whose name contains `RUSHLIGHT_BENCH_FILTER` are run, if it is set.

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
    use rushlight::dist::{DistributedDataParallel, ReduceOp, World, init};
    use rushlight::prelude::*;
    use std::time::Instant;

    pub fn main() -> Result<()> {
        let world = init()?;
        for (name, elements, repetitions) in
            [("all_reduce_8B", 2usize, 2000), ("all_reduce_1MiB", 1 << 18, 300), ("all_reduce_64MiB", 1 << 24, 15)]
        {
            let x = Tensor::ones([elements])?;
            measure(&world, name, repetitions, || world.all_reduce(&x, ReduceOp::Sum))?;
        }
        manual_seed(0);
        let (x, y) = (Tensor::randn([32, 20])?, Tensor::randn([32, 1])?);
        let plain = Linear::new(20, 1)?;
        let mut optimizer = Sgd::new(plain.parameters(), 1e-3)?;
        measure(&world, "linear_plain", 1000, || {
            optimizer.zero_grad();
            plain.forward(&x)?.mse_loss(&y, Reduction::Mean)?.backward()?;
            optimizer.step()
        })?;
        let model = DistributedDataParallel::new(Linear::new(20, 1)?, world.group().clone())?;
        let mut optimizer = Sgd::new(model.parameters(), 1e-3)?;
        measure(&world, "linear_ddp", 1000, || {
            optimizer.zero_grad();
            model.forward(&x)?.mse_loss(&y, Reduction::Mean)?.backward()?;
            optimizer.step()
        })?;
        let plain = transformer()?;
        let mut optimizer = Adam::new(plain.parameters(), 1e-3)?;
        let (src, tgt) = (Tensor::rand([32, 1, 512])?, Tensor::rand([32, 20, 512])?);
        measure(&world, "transformer_plain", 5, || {
            optimizer.zero_grad();
            plain.forward(&src, &tgt)?.cross_entropy(&tgt)?.backward()?;
            optimizer.step()
        })?;
        drop((plain, optimizer));
        let model = DistributedDataParallel::new(transformer()?, world.group().clone())?;
        let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
        measure(&world, "transformer_ddp", 5, || {
            optimizer.zero_grad();
            model.call(|m| m.forward(&src, &tgt))?.cross_entropy(&tgt)?.backward()?;
            optimizer.step()
        })?;
        Ok(())
    }

    fn transformer() -> Result<Transformer> {
        Transformer::builder().batch_first(true).build()
    }

    fn measure(world: &World, name: &str, repetitions: usize, mut step: impl FnMut() -> Result<()>) -> Result<()> {
        if std::env::var("RUSHLIGHT_BENCH_FILTER").is_ok_and(|filter| !name.contains(&filter)) {
            return Ok(());
        }
        for _ in 0..repetitions / 10 + 2 {
            step()?;
        }
        world.barrier()?;
        let mut times = Vec::with_capacity(repetitions);
        for _ in 0..repetitions {
            let start = Instant::now();
            step()?;
            times.push(format!("{:.2}", start.elapsed().as_secs_f64() * 1e6));
        }
        if world.rank() == 0 {
            println!("{name} {}", times.join(" "));
        }
        Ok(())
    }
}
