//! Built-in callbacks.

use crate::support::*;
use rushlight_core::Result;
use rushlight_core::rng::manual_seed;
use rushlight_nn::{Forward, Module};
use rushlight_train::callbacks::*;
use rushlight_train::{ModelCheckpoint, Resume};
use std::time::Duration;

#[test]
fn values_are_logged() -> Result<()> {
    let _turn = alone();
    let mut net = Net::new()?;
    let mut trainer = quiet()
        .max_epochs(2)
        .log_every_n_steps(1)
        .gradient_clip_val(1e-3)
        .callback(LearningRateMonitor::new().every_n_steps(1))
        .callback(GradientNorm::new().each_parameter(true))
        .callback(ThroughputMonitor::new().every_n_steps(2).flops_per_sample(100.0).peak_flops(1e15))
        .callback(DeviceStatsMonitor::new().every_n_steps(1))
        .build()?;
    trainer.fit(&mut net, &mut loader(96, true)?, None)?;
    let metrics = trainer.metrics();
    // 24 steps, and 0.9 after every fifth.
    assert!((metrics["lr-0"] - 1e-2 * 0.9f64.powi(4)).abs() < 1e-12, "{metrics:?}");
    let each: f64 = metrics.iter().filter(|(n, _)| n.starts_with("grad_norm/")).map(|(_, v)| v * v).sum();
    assert!((metrics["grad_norm"] - each.sqrt()).abs() < 1e-5 * each.sqrt() && each.sqrt() > 1e-3, "{metrics:?}");
    assert!(metrics["throughput/samples_per_s"] > 0.0 && metrics["throughput/utilisation"] < 1.0);
    assert!(metrics["system/host/resident_bytes"] > 1e6);
    assert!(metrics.contains_key("system/cpu/memory_peak_bytes"));
    Ok(())
}

#[test]
fn a_timer_ends_a_run() -> Result<()> {
    let _turn = alone();
    let mut trainer = quiet().max_epochs(100).callback(Timer::new(Duration::ZERO)).build()?;
    trainer.fit(&mut Net::new()?, &mut loader(96, true)?, None)?;
    assert_eq!(trainer.run().global_step(), 1);
    assert!(trainer.run().stop_reason().unwrap().contains("timer"));
    Ok(())
}

fn averaged(
    callback: impl Callback + 'static,
    epochs: u64,
    resume: Resume,
    saves: ModelCheckpoint,
) -> Result<(Vec<u32>, std::path::PathBuf)> {
    manual_seed(7);
    let mut net = Net::new()?;
    let mut trainer = quiet().max_epochs(epochs).resume(resume).checkpoint(saves).callback(callback).build()?;
    trainer.fit(&mut net, &mut loader(32, true)?, Some(&mut loader(8, false)?))?;
    Ok((net.bits()?, trainer.last_checkpoint()?.unwrap()))
}

/// Averages replace the weights at the end, do not disturb training, and survive a restart.
#[test]
fn averages_of_weights() -> Result<()> {
    let _turn = alone();
    let root = scratch("averages");
    let saves = |name: &str| ModelCheckpoint::new().directory(root.join(name)).keep_last(9).background(false);
    for swa in [false, true] {
        let run = |epochs, resume, name: &str| match swa {
            true => averaged(StochasticWeightAveraging::new(1), epochs, resume, saves(name)),
            false => averaged(EmaWeights::new(0.9), epochs, resume, saves(name)),
        };
        let (whole, last) = run(4, Resume::Never, &format!("whole-{swa}"))?;
        // The checkpoint has the raw weights, like a run without the callback.
        let plain = averaged(LearningRateMonitor::new(), 4, Resume::Never, saves(&format!("plain-{swa}")))?;
        let weights = rushlight_train::load_checkpoint(last)?.get("model")?.to_state_dict()?;
        let net = Net::new()?;
        net.load_state_dict(&weights)?;
        assert_eq!(net.bits()?, plain.0);
        assert_ne!(whole, plain.0);
        let (_, half) = run(2, Resume::Never, &format!("half-{swa}"))?;
        assert_eq!(run(4, Resume::From(half), &format!("rest-{swa}"))?.0, whole, "swa {swa}");
    }
    std::fs::remove_dir_all(root)?;
    Ok(())
}

#[test]
fn a_summary_is_a_table() -> Result<()> {
    let _turn = alone();
    let table = ModelSummary::new().table(&Net::new()?);
    assert!(
        table.contains("[32, 8] [32]") && table.contains("321 parameters") && table.contains("576 FLOPs"),
        "{table}"
    );
    assert_eq!(table.lines().count(), 2 + 4 + 2, "{table}");
    Ok(())
}

/// Profiles by the Trainer's actions and as a trace of steps.
#[test]
fn profilers_write_what_they_measured() -> Result<()> {
    let _turn = alone();
    let root = scratch("profilers");
    let run = |name: &str| -> Result<std::path::PathBuf> {
        let builder = quiet().max_epochs(2).run_directory(Some(root.clone())).run_name(name).profiler(name.parse()?);
        let mut trainer = builder.callback(LearningRateMonitor::new()).build()?;
        trainer.fit(&mut Net::new()?, &mut loader(96, true)?, Some(&mut loader(24, false)?))?;
        Ok(trainer.directory().unwrap().join("profile"))
    };
    let table = std::fs::read_to_string(run("simple")?.join("simple-rank-0.txt"))?;
    // 2 epochs of 12 batches, one of 2 validations and one of 2 checkpoints each.
    for (action, calls) in [("training step", 24), ("load batch", 24), ("validation", 2), ("save checkpoint", 2)] {
        let row = table.lines().find(|line| line.starts_with(action)).unwrap_or_else(|| panic!("{action}: {table}"));
        assert!(row.split_whitespace().any(|word| word == calls.to_string()), "{row}");
    }
    assert!(table.contains("callback LearningRateMonitor") && table.contains("whole run"), "{table}");
    let folder = run("trace")?;
    let summary = rushlight_tensor::profile::summary::Summary::read(folder.join("trace-rank-0.json")).unwrap();
    assert_eq!(summary.steps, 3);
    let ops = std::fs::read_to_string(folder.join("trace-rank-0.txt"))?;
    assert!(ops.contains("rushlight::matmul") && ops.contains("ProfilerStep*"), "{ops}");
    let unknown = |name: &str| name.parse::<rushlight_train::RunProfiler>().unwrap_err().to_string();
    assert!(unknown("advanced").contains("use 'trace'") && unknown("nothing").contains("known are"));
    std::fs::remove_dir_all(root)?;
    Ok(())
}

/// Operations by module: attention belongs to the block's attention, a shared weight to the layer that multiplies with
/// it.
#[test]
fn a_summary_counts_operations_of_each_part() -> Result<()> {
    let _turn = alone();
    let model = rushlight_nn::models::Gpt::builder(32).n_layer(1).n_head(2).n_embd(16).block_size(8).build()?;
    let x = rushlight_tensor::Tensor::zeros_with([4, 8], rushlight_core::DType::I64)?;
    let table = ModelSummary::new().depth(5).traced(&model, 4, || model.forward(&x))?.table(&model);
    let flops = |name: &str| -> String {
        let row = table.lines().find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap_or_else(|| panic!("{name}: {table}")).split("  ").last().unwrap().trim().to_owned()
    };
    // Two operations per weight and position; scores and their product with values over half of the pairs of positions.
    let (qkv, out, mlp) = (2 * 8 * 16 * 48, 2 * 8 * 16 * 16, 2 * 8 * 16 * 64);
    let attention = 2 * 2 * (8 * 8 / 2) * (8 + 8);
    assert_eq!(flops("c_attn"), format!("{:.1} k", f64::from(qkv) / 1e3));
    assert_eq!(flops("attn"), format!("{:.1} k", f64::from(qkv + out + attention) / 1e3));
    assert_eq!(flops("mlp"), format!("{:.1} k", f64::from(2 * mlp) / 1e3), "{table}");
    assert!(table.ends_with("counted"), "{table}");
    Ok(())
}

/// Monitors log as often as the trainer does, and an interval may be longer than the steps between two validations.
#[test]
fn monitors_follow_the_trainer_across_validations() -> Result<()> {
    let _turn = alone();
    let mut trainer = quiet()
        .max_epochs(3)
        .log_every_n_steps(1)
        .callback(LearningRateMonitor::new())
        .callback(ThroughputMonitor::new().every_n_steps(6))
        .build()?;
    // 4 steps an epoch.
    trainer.fit(&mut Net::new()?, &mut loader(32, true)?, Some(&mut loader(8, false)?))?;
    let metrics = trainer.metrics();
    assert!(metrics.contains_key("lr-0") && metrics["throughput/steps_per_s"] > 0.0, "{metrics:?}");
    Ok(())
}

/// The newest checkpoint stays only as long as the run may have to continue from it.
#[test]
fn the_best_checkpoints_stay() -> Result<()> {
    let _turn = alone();
    let directory = scratch("top-k");
    let best = ModelCheckpoint::new().directory(&directory).monitor("val_loss", Mode::Min).save_top_k(2);
    for (saves, kept) in [(best.clone(), 2), (best.monitor("val_loss", Mode::Max).keep_last(1), 3)] {
        let _ = std::fs::remove_dir_all(&directory);
        let mut trainer = quiet().max_epochs(5).checkpoint(saves).build()?;
        trainer.fit(&mut Net::new()?, &mut loader(32, true)?, Some(&mut loader(8, false)?))?;
        let files: Vec<_> = std::fs::read_dir(&directory)?.flatten().map(|file| file.file_name()).collect();
        assert_eq!(files.len(), kept, "{files:?}");
    }
    Ok(())
}
