//! Files of a run.

use crate::support::*;
use rushlight_core::Result;
use rushlight_train::loggers::{CsvLogger, JsonLinesLogger, TensorBoardLogger};
use rushlight_train::{Mode, ModelCheckpoint, Trainer};
use serde_json::Value as Json;

#[test]
fn a_run_has_a_directory() -> Result<()> {
    let _turn = alone();
    let root = scratch("files");
    let mut net = Net::new()?;
    let mut trainer = Trainer::new()
        .accelerator(rushlight_train::Accelerator::Cpu)
        .max_epochs(3)
        .log_every_n_steps(4)
        .run_directory(Some(root.clone()))
        .run_name("first")
        .progress(false)
        .logger(JsonLinesLogger::new())
        .logger(CsvLogger::new())
        .logger(TensorBoardLogger::new())
        .checkpoint(ModelCheckpoint::new().monitor("val_loss", Mode::Min).save_top_k(2).keep_last(1))
        .hparams([("width", 32)])
        .build()?;
    trainer.fit(&mut net, &mut loader(96, true)?, Some(&mut loader(40, false)?))?;
    let run = root.join("first");
    assert_eq!(trainer.directory(), Some(run.as_path()));

    let config: Json = serde_json::from_str(&std::fs::read_to_string(run.join("config.json"))?).unwrap();
    assert_eq!((&config["hparams"]["width"], &config["trainer"]["max_epochs"]), (&32.into(), &3.into()));
    assert_eq!(config["model"]["parameters"], 8 * 32 + 32 + 33);
    let environment: Json = serde_json::from_str(&std::fs::read_to_string(run.join("environment.json"))?).unwrap();
    assert_eq!(environment["device"], "cpu");

    let text = std::fs::read_to_string(run.join("metrics.jsonl"))?;
    let rows: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<u64> =
        rows.iter().filter(|r| r.get("train_mse_step").is_some()).map(|r| r["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [4, 8, 12, 16, 20, 24, 28, 32, 36]);
    assert_eq!(rows.iter().filter(|r| r.get("val_loss").is_some()).count(), 3);
    let last = rows.last().unwrap();
    assert_eq!((last["step"].as_u64(), last["epoch"].as_u64()), (Some(36), Some(2)));
    assert_eq!(last["train_mse_epoch"].as_f64(), Some(trainer.metrics()["train_mse_epoch"]));
    assert_eq!(last["loss_epoch"], last["train_mse_epoch"]);

    let csv = std::fs::read_to_string(run.join("metrics.csv"))?;
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(header[..2], ["step", "epoch"]);
    assert!(lines.clone().all(|line| line.split(',').count() == header.len()), "{csv}");
    assert_eq!(lines.count(), rows.len());

    let log = std::fs::read_to_string(run.join("logs").join("rank-0.log"))?;
    assert!(log.contains("epoch 3/3") && log.contains("val_loss"), "{log}");
    let events = std::fs::read_dir(&run)?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    assert_eq!(events.filter(|name| name.starts_with("events.out.tfevents.")).count(), 1);
    let checkpoints = std::fs::read_dir(run.join("checkpoints"))?.count();
    assert!((2..=3).contains(&checkpoints), "{checkpoints}");
    assert!(trainer.best_checkpoint()?.is_some());

    // Another run of the same name has a directory of its own.
    let mut again =
        Trainer::new().run_directory(Some(root.clone())).run_name("first").progress(false).max_epochs(1).build()?;
    again.fit(&mut Net::new()?, &mut loader(8, true)?, None)?;
    assert_eq!(again.directory(), Some(root.join("first-2").as_path()));
    std::fs::remove_dir_all(root)?;
    Ok(())
}
