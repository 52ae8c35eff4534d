//! The loop and its options.

use crate::support::*;
use rushlight_core::rng::manual_seed;
use rushlight_core::{DType, Result};
use rushlight_nn::Module;
use rushlight_optim::lr_scheduler::{LrScheduler, ReduceLROnPlateau};
use rushlight_optim::{GradScaler, Optimizer, Sgd};
use rushlight_tensor::{Tensor, clip_grad_norm_, clip_grad_value_, set_autocast};
use rushlight_train::{
    Batch, Callback, ClipAlgorithm, EarlyStopping, Interval, Optimizers, Precision, Run, StepContext, TrainModule,
};
use std::time::Duration;

/// The equivalent handwritten loop.
fn by_hand(
    epochs: u64,
    accumulate: usize,
    lower: Option<DType>,
    scaled: bool,
    clip: impl Fn(&[Tensor]) -> Result<()>,
) -> Result<Vec<u32>> {
    manual_seed(7);
    let mut net = Net::new()?;
    net.to_(device().into())?;
    let (mut optimizer, mut schedule) = net.optimizer()?;
    let mut scaler = GradScaler::new().enabled(scaled);
    let loader = loader(96, true)?;
    for epoch in 0..epochs {
        for (i, batch) in loader.epoch(epoch).enumerate() {
            let (x, y) = batch?.map(&mut |t| t.to(device()))?;
            if i % accumulate == 0 {
                optimizer.zero_grad();
            }
            let loss = {
                let _precision = set_autocast(lower)?;
                net.loss(&x, &y)?
            };
            let loss = if accumulate > 1 { loss.div(accumulate as f64)? } else { loss };
            scaler.scale(&loss)?.backward()?;
            if (i + 1) % accumulate == 0 || i == 11 {
                scaler.unscale_(&mut optimizer)?;
                clip(&net.parameters())?;
                scaler.step(&mut optimizer)?;
                scaler.update()?;
                schedule.step(&mut optimizer)?;
            }
        }
    }
    net.bits()
}

fn trained(builder: rushlight_train::TrainerBuilder) -> Result<Vec<u32>> {
    manual_seed(7);
    let mut net = Net::new()?;
    builder.build()?.fit(&mut net, &mut loader(96, true)?, Some(&mut loader(24, false)?))?;
    net.bits()
}

#[test]
fn the_same_bits_as_by_hand() -> Result<()> {
    let _turn = alone();
    let plain = by_hand(2, 1, None, false, |_| Ok(()))?;
    assert_eq!(trained(quiet().max_epochs(2))?, plain);
    let norm = by_hand(2, 1, None, false, |p| clip_grad_norm_(p, 0.05).map(drop))?;
    assert_ne!(norm, plain);
    assert_eq!(trained(quiet().max_epochs(2).gradient_clip_val(0.05))?, norm);
    let value = by_hand(2, 5, None, false, |p| clip_grad_value_(p, 0.01))?;
    let clipped = quiet().gradient_clip_val(0.01).gradient_clip_algorithm(ClipAlgorithm::Value);
    assert_eq!(trained(clipped.max_epochs(2).accumulate_grad_batches(5))?, value);
    let bf16 = by_hand(2, 1, Some(DType::BF16), false, |_| Ok(()))?;
    assert_eq!(trained(quiet().max_epochs(2).precision(Precision::Bf16Mixed))?, bf16);
    let f16 = by_hand(2, 1, Some(DType::F16), true, |p| clip_grad_norm_(p, 0.05).map(drop))?;
    assert_eq!(trained(quiet().max_epochs(2).precision(Precision::F16Mixed).gradient_clip_val(0.05))?, f16);
    Ok(())
}

#[test]
fn true_precisions_convert_the_model() -> Result<()> {
    let _turn = alone();
    for (precision, dtype) in
        [(Precision::Bf16True, DType::BF16), (Precision::F64, DType::F64), (Precision::F16True, DType::F16)]
    {
        let mut net = Net::new()?;
        let mut trainer = quiet().max_epochs(1).precision(precision).build()?;
        trainer.fit(&mut net, &mut loader(16, false)?, None)?;
        assert!(net.parameters().iter().all(|p| p.dtype() == dtype), "{precision}");
        let predictions = trainer.predict(&mut net, &mut loader(16, false)?)?;
        assert_eq!(predictions[1].as_tensor()?.dtype(), dtype);
        assert_eq!(predictions.len(), 2);
    }
    Ok(())
}

fn events(builder: rushlight_train::TrainerBuilder) -> Result<(Net, rushlight_train::Trainer)> {
    let mut net = Net::new()?;
    let mut trainer = builder.build()?;
    trainer.fit(&mut net, &mut loader(96, true)?, Some(&mut loader(40, false)?))?;
    Ok((net, trainer))
}

#[test]
fn batches_and_validations_are_counted_as_the_options_say() -> Result<()> {
    let _turn = alone();
    let counts = |net: &Net| (net.count("train"), net.count("validation"), net.count("val"), net.count("epoch"));
    // 12 batches an epoch, 5 for validation, of which the sanity check takes 2.
    let (net, trainer) = events(quiet().max_epochs(3))?;
    assert_eq!(counts(&net), (36, 4, 17, 3));
    assert_eq!((trainer.run().global_step(), trainer.run().epoch()), (36, 3));
    assert_eq!(trainer.run().estimated_stepping_batches(), Some(36));
    let (net, _) = events(quiet().max_epochs(2).num_sanity_val_steps(0).val_check_interval(0.25))?;
    assert_eq!(counts(&net), (24, 8, 40, 2));
    let (net, _) = events(quiet().max_epochs(2).num_sanity_val_steps(0).val_check_interval(5).limit_val_batches(1))?;
    assert_eq!(counts(&net), (24, 4, 4, 2));
    let (net, _) = events(quiet().max_epochs(4).num_sanity_val_steps(0).check_val_every_n_epoch(2))?;
    assert_eq!(counts(&net), (48, 2, 10, 4));
    let (net, trainer) = events(quiet().max_steps(17).num_sanity_val_steps(0))?;
    assert_eq!(counts(&net), (17, 1, 5, 2));
    assert_eq!(trainer.run().global_step(), 17);
    let (net, trainer) = events(quiet().max_epochs(2).accumulate_grad_batches(5).num_sanity_val_steps(0))?;
    assert_eq!(counts(&net), (24, 2, 10, 2));
    assert_eq!(trainer.run().global_step(), 6);
    assert_eq!(trainer.run().estimated_stepping_batches(), Some(6));
    let (net, _) = events(quiet().max_epochs(50).fast_dev_run(2))?;
    assert_eq!(counts(&net), (2, 1, 2, 1));
    let (net, _) = events(quiet().max_epochs(2).limit_train_batches(0.5).limit_val_batches(0))?;
    assert_eq!(counts(&net), (12, 0, 0, 2));
    let (net, trainer) = events(quiet().max_time(Duration::ZERO).min_steps(3).num_sanity_val_steps(0))?;
    assert_eq!(counts(&net), (3, 0, 0, 1));
    assert!(trainer.run().stop_reason().unwrap().contains("time"));
    Ok(())
}

#[test]
fn overfitting_reads_the_same_batches() -> Result<()> {
    let _turn = alone();
    let (net, trainer) = events(quiet().max_epochs(60).overfit_batches(1).num_sanity_val_steps(0))?;
    assert_eq!((net.count("train"), net.count("val")), (60, 60));
    assert!(trainer.metrics()["train_mse_epoch"] < 0.2, "{:?}", trainer.metrics());
    Ok(())
}

#[test]
fn values_are_weighted_by_samples() -> Result<()> {
    let _turn = alone();
    let mut net = Net::new()?;
    // 20 samples in batches of 8: the last has 4.
    let mut trainer = quiet().max_epochs(1).build()?;
    let values = trainer.validate(&mut net, Some(&mut loader(20, false)?))?;
    net.eval();
    let (x, y) = (data(20)?.tensors().0.clone(), data(20)?.tensors().1.clone());
    let expected = net.loss(&x, &y)?.item::<f64>()?;
    assert_eq!(values[0].0, "val_loss");
    assert!((values[0].1 - expected).abs() < 1e-6, "{values:?} {expected}");
    net.train();
    let test = trainer.test(&mut net, [&mut loader(20, false)?, &mut loader(8, false)?])?;
    assert_eq!(test[0].0, "test_loss/dataloader_idx_0");
    assert!((test[0].1 - expected).abs() < 1e-6);
    assert_eq!(test[1].0, "test_loss/dataloader_idx_1");
    Ok(())
}

#[test]
fn early_stopping_stops() -> Result<()> {
    let _turn = alone();
    let stop = EarlyStopping::new("val_loss").patience(2).min_delta(100.0);
    let (net, trainer) = events(quiet().max_epochs(50).callback(stop).num_sanity_val_steps(0))?;
    // The first validation is the best, two more are not better.
    assert_eq!(net.count("validation"), 3);
    assert!(trainer.run().stop_reason().unwrap().contains("val_loss"));
    let missing = events(quiet().callback(EarlyStopping::new("accuracy"))).err().unwrap().to_string();
    assert!(missing.contains("'accuracy'") && missing.contains("val_loss"), "{missing}");
    Ok(())
}

/// Two optimizers and a schedule that watches a value.
struct Two;

impl Two {
    fn optimizers(net: &Net) -> Result<Optimizers> {
        let all = net.parameters();
        let first = Sgd::new(all[..2].to_vec(), 0.1)?;
        let mut second = Sgd::new(all[2..].to_vec(), 0.1)?;
        let plateau = ReduceLROnPlateau::builder().patience(0).threshold(1e9).build(&mut second)?;
        Ok(Optimizers::new(first).and(second).plateau(plateau, "val_loss"))
    }
}

#[derive(Module)]
struct Alternating {
    net: Net,
    joint: bool,
}

impl TrainModule for Alternating {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<Tensor> {
        self.net.note(format!("turn {}", step.optimizer_idx()));
        self.net.loss(x, y)
    }

    fn validation_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<()> {
        step.log("val_loss", self.net.loss(x, y)?)
    }

    fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
        let optimizers = Two::optimizers(&self.net)?;
        Ok(if self.joint { optimizers } else { optimizers.alternating() })
    }
}

#[test]
fn several_optimizers_step_together_or_in_turn() -> Result<()> {
    let _turn = alone();
    for joint in [true, false] {
        let mut model = Alternating { net: Net::new()?, joint };
        let before = model.net.bits()?;
        // Replays of a captured step do not call it, so its calls are counted.
        let mut trainer = quiet().max_epochs(3).capture(false).build()?;
        trainer.fit(&mut model, &mut loader(24, false)?, Some(&mut loader(8, false)?))?;
        assert_eq!(model.net.count("turn 0"), 9);
        assert_eq!(model.net.count("turn 1"), if joint { 0 } else { 9 });
        let after = model.net.bits()?;
        assert!(before.iter().zip(&after).filter(|(a, b)| a != b).count() > before.len() / 2);
        // Without progress the watched rate falls after each epoch.
        let rates = trainer.run().learning_rates();
        assert_eq!(rates[0], ("lr-0".into(), 0.1));
        assert!((rates[1].1 - 1e-4).abs() < 1e-9, "{rates:?}");
    }
    Ok(())
}

#[derive(Module)]
struct ByHand {
    net: Net,
}

impl TrainModule for ByHand {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<Tensor> {
        let loss = self.net.loss(x, y)?;
        step.backward(&loss)?;
        step.optimizer_step(0)?;
        Ok(loss)
    }

    fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
        let (optimizer, schedule) = self.net.optimizer()?;
        Ok(Optimizers::new(optimizer).schedule(schedule, Interval::Step))
    }

    fn automatic_optimization(&self) -> bool {
        false
    }
}

#[test]
fn manual_optimization_is_the_same() -> Result<()> {
    let _turn = alone();
    let automatic = trained(quiet().max_epochs(2))?;
    manual_seed(7);
    let mut model = ByHand { net: Net::new()? };
    quiet().max_epochs(2).build()?.fit(&mut model, &mut loader(96, true)?, None)?;
    assert_eq!(model.net.bits()?, automatic);
    Ok(())
}

struct Failing;

impl Callback for Failing {
    fn name(&self) -> &str {
        "Failing"
    }

    fn on_train_batch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        match run.global_step() {
            3 => Err(rushlight_core::Error::value("on purpose")),
            _ => Ok(()),
        }
    }
}

#[test]
fn misuse_is_told() -> Result<()> {
    let _turn = alone();
    let error = |builder: rushlight_train::TrainerBuilder| builder.build().err().unwrap().to_string();
    assert!(error(quiet().strategy("zero9")).contains("zero2"));
    assert!(error(quiet().strategy("fast")).contains("unknown strategy"));
    assert!(error(quiet().devices(4)).contains("rushlight run --nproc-per-node 4"));
    assert!(error(quiet().limit_train_batches(1.5)).contains("limit_train_batches"));
    assert!(error(quiet().accumulate_grad_batches(0)).contains("accumulate_grad_batches"));
    assert!(error(quiet().deterministic(true)).contains("seed"));
    assert!(error(quiet().run_name("../up")).contains("directory"));
    let failed = events(quiet().callback(Failing)).err().unwrap().to_string();
    assert_eq!(failed, "callback Failing: on purpose");
    let mut net = ByHand { net: Net::new()? };
    let missing = quiet().build()?.fit(&mut net, &mut loader(8, false)?, Some(&mut loader(8, false)?));
    assert!(missing.unwrap_err().to_string().contains("TrainModule::validation_step"));
    Ok(())
}

#[test]
fn anomalies_are_errors() -> Result<()> {
    let _turn = alone();
    #[derive(Module)]
    struct Nan {
        net: Net,
    }
    impl TrainModule for Nan {
        type Batch = (Tensor, Tensor);
        fn training_step(&self, (x, y): &Self::Batch, _: &mut StepContext) -> Result<Tensor> {
            self.net.loss(x, y)?.mul(f64::NAN)
        }
        fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
            Ok(Optimizers::new(self.net.optimizer()?.0))
        }
    }
    let mut model = Nan { net: Net::new()? };
    let error = quiet().detect_anomaly(true).build()?.fit(&mut model, &mut loader(16, false)?, None).unwrap_err();
    assert!(error.to_string().to_lowercase().contains("nan"), "{error}");
    Ok(())
}
