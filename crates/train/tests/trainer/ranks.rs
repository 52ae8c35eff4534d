//! Two processes train as one.

use crate::support::*;
use rushlight_core::rng::manual_seed;
use rushlight_core::{Error, Result};
use rushlight_data::DataLoader;
use rushlight_dist::plan::Configuration;
use rushlight_nn::{Forward, Linear, Module};
use rushlight_optim::Sgd;
use rushlight_tensor::{Reduction, Tensor};
use rushlight_train::metrics::{Auroc, MeanSquaredError, R2Score};
use rushlight_train::{LogOptions, ModelCheckpoint, Optimizers, Resume, Run, StepContext, TrainModule, Trainer};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Module)]
struct Line {
    layer: Linear,
    #[module(skip)]
    mse: MeanSquaredError,
    #[module(skip)]
    r2: R2Score,
    #[module(skip)]
    auroc: Auroc,
}

impl TrainModule for Line {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<Tensor> {
        let loss = self.layer.forward(x)?.mse_loss(y, Reduction::Mean)?;
        step.log_with("train_mse", &loss, LogOptions::new().on_step(false).on_epoch(true))?;
        Ok(loss)
    }

    fn validation_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<()> {
        let out = self.layer.forward(x)?;
        self.mse.update(&out, y)?;
        self.r2.update(&out, y)?;
        self.auroc.update(&out, &y.gt(0.0)?.to_dtype(rushlight_core::DType::I64)?)?;
        step.log("val_mse", &self.mse)?;
        step.log("val_r2", &self.r2)?;
        step.log("val_auroc", &self.auroc)?;
        step.log("val_loss", out.mse_loss(y, Reduction::Mean)?)
    }

    fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
        Ok(Optimizers::new(Sgd::builder(self.parameters()).lr(0.05).momentum(0.9).build()?))
    }
}

/// Batches of `size` for each process; 21 samples to validate on, which two processes cannot share evenly.
fn train(root: &Path, size: usize, resume: bool, epochs: u64, strategy: &str) -> Result<()> {
    manual_seed(7);
    let layer = Linear::new(8, 1)?;
    let mut model = Line { layer, mse: MeanSquaredError::new(), r2: R2Score::new(), auroc: Auroc::binary() };
    let loader = |samples: usize, size: usize| DataLoader::builder(data(samples)?).batch_size(size).seed(3).build();
    // A plan says how many batches are accumulated.
    let builder = match strategy {
        "plan" => Trainer::builder(),
        strategy => Trainer::builder().strategy(strategy).accumulate_grad_batches(2),
    };
    let mut builder = builder
        .device(device())
        .max_epochs(epochs)
        .gradient_clip_val(0.5)
        .run_directory(Some(root.into()))
        .run_name("run")
        .progress(false)
        .checkpoint(ModelCheckpoint::new());
    if resume {
        builder = builder.resume(Resume::Auto);
    }
    let mut trainer = builder.build()?;
    let mut batches = loader(96, size)?;
    trainer.fit(&mut model, &mut batches, Some(&mut loader(21, 4)?))?;
    assert_eq!(batches.batch_size(), Some(size), "the loader has its own batches again");
    let weights: Vec<String> = model.layer.weight.to_vec::<f32>()?.iter().map(|w| format!("weight {w}")).collect();
    let values = trainer.metrics().iter().filter(|(n, _)| *n != "loss_step").map(|(n, v)| format!("{n} {v}"));
    let rates = trainer.run().learning_rates().iter().map(|(name, rate)| format!("{name} {rate}"));
    let text: Vec<String> = weights.into_iter().chain(values).chain(rates).collect();
    std::fs::write(root.join(format!("end-{}", trainer.run().rank())), text.join("\n")).map_err(Error::from)
}

/// Not a test: a rank.
#[test]
fn child_rank() -> Result<()> {
    let Ok(root) = std::env::var("RUSHLIGHT_TEST_RANK") else { return Ok(()) };
    let option = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
    let size = option("RUSHLIGHT_TEST_SIZE") as usize;
    let strategy = std::env::var("RUSHLIGHT_TEST_STRATEGY").unwrap_or("auto".into());
    train(Path::new(&root), size, option("RUSHLIGHT_TEST_RESUME") == 1, option("RUSHLIGHT_TEST_EPOCHS"), &strategy)
}

fn start(root: &Path, world: usize, size: usize, resume: bool, epochs: u64) {
    start_with(root, world, size, resume, epochs, "auto", "");
}

/// [`start`] with a strategy and a policy for changed worlds, as `rushlight run --elastic-batch` passes it on.
fn start_with(root: &Path, world: usize, size: usize, resume: bool, epochs: u64, strategy: &str, policy: &str) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let spawn = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "ranks::child_rank"])
            .env("RUSHLIGHT_TEST_RANK", root)
            .env("RUSHLIGHT_NUM_THREADS", "1");
        command.env("RUSHLIGHT_TEST_SIZE", size.to_string()).env("RUSHLIGHT_TEST_EPOCHS", epochs.to_string());
        command.env("RUSHLIGHT_TEST_RESUME", u8::from(resume).to_string()).env("RUSHLIGHT_TEST_STRATEGY", strategy);
        command.env("RUSHLIGHT_ELASTIC_BATCH", policy);
        if strategy == "plan" {
            command.env("RUSHLIGHT_PLAN", root.join("plan.json"));
        }
        if world > 1 {
            for (name, value) in
                [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", world), ("LOCAL_WORLD_SIZE", world)]
            {
                command.env(name, value.to_string());
            }
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        }
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let mut children: Vec<_> = (0..world).map(spawn).collect();
    let deadline = Instant::now() + Duration::from_secs(120);
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        if Instant::now() > deadline {
            children.iter_mut().for_each(|child| drop(child.kill()));
            panic!("ranks hang");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
}

fn ends(root: &Path, rank: usize) -> Vec<(String, f64)> {
    let text = std::fs::read_to_string(root.join(format!("end-{rank}"))).unwrap();
    let parse = |line: &str| line.rsplit_once(' ').map(|(n, v)| (n.to_owned(), v.parse().unwrap())).unwrap();
    text.lines().map(parse).collect()
}

#[test]
fn two_processes_train_as_one() {
    let (one, two, again) = (scratch("one"), scratch("two"), scratch("again"));
    // Two processes with batches of 8 see the same data as one with batches of 16.
    start(&one, 1, 16, false, 4);
    start(&two, 2, 8, false, 4);
    let (alone, first) = (ends(&one, 0), ends(&two, 0));
    assert_eq!(first, ends(&two, 1), "both have the same weights and values");
    assert_eq!(alone.len(), first.len());
    for ((name, a), (other, b)) in alone.iter().zip(&first) {
        assert_eq!(name, other);
        assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{name}: {a} alone, {b} together");
    }
    // A job that stops after two epochs and continues ends with the same.
    start(&again, 2, 8, true, 2);
    start(&again, 2, 8, true, 4);
    assert_eq!(ends(&again, 0), first);
    for directory in [one, two, again] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn a_changed_world_keeps_its_step_or_scales_its_rate() {
    let (whole, kept, scaled) = (scratch("whole"), scratch("kept"), scratch("scaled"));
    let rate = |root: &Path| ends(root, 0).iter().find(|(name, _)| name == "lr-0").map(|(_, rate)| *rate).unwrap();
    start_with(&whole, 2, 8, true, 4, "auto", "keep");
    // Two processes become one, then two again: a step has 32 samples all the time.
    start_with(&kept, 2, 8, true, 2, "auto", "keep");
    start_with(&kept, 1, 8, true, 3, "auto", "keep");
    start_with(&kept, 2, 8, true, 4, "auto", "keep");
    let (expected, found) = (ends(&whole, 0), ends(&kept, 0));
    near(&expected, &found, "by two, and by two and one");
    // Each process keeps its batch: half the samples, half the rate, and back.
    start_with(&scaled, 2, 8, true, 1, "auto", "scale");
    assert_eq!(rate(&scaled), 0.05);
    start_with(&scaled, 1, 8, true, 2, "auto", "scale");
    assert_eq!(rate(&scaled), 0.025);
    start_with(&scaled, 2, 8, true, 3, "auto", "scale");
    assert_eq!(rate(&scaled), 0.05);
    for directory in [whole, kept, scaled] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

fn near(a: &[(String, f64)], b: &[(String, f64)], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for ((name, a), (other, b)) in a.iter().zip(b) {
        assert_eq!(name, other, "{what}");
        assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{what}: {name}: {a} and {b}");
    }
}

#[test]
fn sharded_strategies_train_as_one_process() {
    let (one, again) = (scratch("sharded-one"), scratch("sharded-again"));
    start(&one, 1, 16, false, 4);
    let alone = ends(&one, 0);
    for strategy in ["zero1", "deepspeed", "fsdp"] {
        let root = scratch(strategy);
        start_with(&root, 2, 8, false, 4, strategy, "");
        assert_eq!(ends(&root, 0), ends(&root, 1), "{strategy}: both have the same weights and values");
        near(&alone, &ends(&root, 0), strategy);
        std::fs::remove_dir_all(root).unwrap();
    }
    // A checkpoint of one strategy is continued by another.
    start_with(&again, 2, 8, true, 2, "fsdp", "");
    start_with(&again, 2, 8, true, 3, "zero2", "");
    start_with(&again, 2, 8, true, 4, "ddp", "");
    near(&alone, &ends(&again, 0), "continued");
    for directory in [one, again] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

/// A file as `rushlight plan --write` makes it.
fn plan(stage: usize, offload: bool) -> String {
    let host = ["offload_optimizer", "offload_param"].map(|name| format!(r#", "{name}": {{"device": "cpu"}}"#));
    format!(
        r#"{{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "bf16": {{"enabled": false}},
            "zero_optimization": {{"stage": {stage}{}}}, "plan": {{"devices": 2, "mesh": {{"pp": 1, "dp": 2, "tp": 1}}}}}}"#,
        if offload { host.concat() } else { String::new() }
    )
}

#[test]
fn a_plan_is_followed() {
    let one = scratch("plan-one");
    start(&one, 1, 16, false, 3);
    let alone = ends(&one, 0);
    std::fs::remove_dir_all(one).unwrap();
    for (stage, offload) in [(0, false), (2, false), (3, true)] {
        let root = scratch(&format!("plan-{stage}"));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("plan.json"), plan(stage, offload)).unwrap();
        // The loader's own batches of 3 are not the plan's.
        start_with(&root, 2, 3, false, 3, "plan", "");
        near(&alone, &ends(&root, 0), &format!("stage {stage}"));
        let config = std::fs::read_to_string(root.join("run/config.json")).unwrap();
        assert!(config.contains(if stage == 0 { "\"ddp\"" } else { "\"zero" }), "{config}");
        std::fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn a_plan_and_other_settings_do_not_agree() {
    let of = |text: &str| Configuration::from_json(text).unwrap();
    let quiet = || Trainer::builder().run_directory(None).progress(false);
    for (builder, reason) in [
        (quiet().plan(of(&plan(2, false))), "2 devices, the job has 1 ranks"),
        (quiet().plan(of(&plan(2, false))).strategy("ddp"), "the strategy is ddp, and the plan says zero2"),
        (quiet().plan(of(&plan(2, false))).accumulate_grad_batches(3), "the plan says 2"),
        (quiet().plan(of(&plan(2, false))).precision(rushlight_train::Precision::F64), "the precision is 64-true"),
        (
            quiet().plan(of(r#"{"train_micro_batch_size_per_gpu": 1, "plan": {"mesh": {"tp": 2}}}"#)),
            "rushlight plan --data-parallel",
        ),
    ] {
        let error = builder.build().err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
