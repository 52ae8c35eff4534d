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
    let mut trainer = Trainer::builder()
        .device(device())
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
    let system = std::fs::read_to_string(run.join("system").join("rank-0.jsonl"))?;
    let row: Json = serde_json::from_str(system.lines().last().unwrap()).unwrap();
    assert_eq!(row["step"], 36, "{system}");
    #[cfg(target_os = "linux")]
    assert!(row["system/resident_bytes"].as_f64() > Some(1e6), "{system}");
    let events = std::fs::read_dir(&run)?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    assert_eq!(events.filter(|name| name.starts_with("events.out.tfevents.")).count(), 1);
    let checkpoints = std::fs::read_dir(run.join("checkpoints"))?.count();
    assert!((2..=3).contains(&checkpoints), "{checkpoints}");
    assert!(trainer.best_checkpoint()?.is_some());

    // Another run of the same name has a directory of its own.
    let mut again = Trainer::builder()
        .run_directory(Some(root.clone()))
        .run_name("first")
        .progress(false)
        .system_metrics(false)
        .max_epochs(1)
        .build()?;
    again.fit(&mut Net::new()?, &mut loader(8, true)?, None)?;
    assert_eq!(again.directory(), Some(root.join("first-2").as_path()));
    assert!(!root.join("first-2").join("system").exists(), "turned off");
    std::fs::remove_dir_all(root)?;
    Ok(())
}

/// The output of the reader `tests/NAME/read.py`, which uses TensorBoard's or MLflow's own code; `None`, with the
/// reason printed, if it is not installed.
fn read_with(name: &str, arguments: &[&std::ffi::OsStr]) -> Option<Json> {
    let Some(python) = std::env::var_os("RUSHLIGHT_TENSORBOARD_PYTHON").filter(|python| !python.is_empty()) else {
        assert!(std::env::var_os("CI").is_none(), "RUSHLIGHT_TENSORBOARD_PYTHON is not set; scripts/test sets it");
        println!(
            "skipped: RUSHLIGHT_TENSORBOARD_PYTHON is not set; scripts/tensorboard prints a Python that has TensorBoard and MLflow"
        );
        return None;
    };
    let reader = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name).join("read.py");
    let output = std::process::Command::new(python).arg(reader).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn read_back(directory: &std::path::Path) -> Option<Json> {
    read_with("tensorboard", &[directory.as_os_str()])
}

#[test]
fn tensorboard_reads_what_was_written() -> Result<()> {
    use rushlight_tensor::Tensor;
    use rushlight_train::loggers::tensorboard::{EventWriter, pixels};
    let _turn = alone();
    let root = scratch("events");
    let mut events = EventWriter::create(&root, "", None)?;
    for step in 0..1000 {
        events.scalar("loss", 1.0 / (step + 1) as f64, step)?;
    }
    events.scalar("odd", f64::NAN, 3)?;
    let values: Vec<f64> = (0..1000).map(|i| (i as f64 * 0.7).sin()).collect();
    events.histogram("weights", &values, None, 5)?;
    events.histogram("few", &values, Some(&[-1.0, 0.0, 1.0]), 5)?;
    let (bytes, size) = pixels(&Tensor::rand([3, 5, 7])?)?;
    events.image("picture", &bytes, size, 2)?;
    events.text("note", "ein **Text** with ünïcode", 4)?;
    events.model(&Net::new()?)?;
    let hparams = serde_json::json!({ "lr": 0.1, "optimizer": "adam", "nesterov": true });
    events.hparams(hparams.as_object().unwrap(), &["loss"])?;
    drop(events);
    let Some(found) = read_back(&root) else { return Ok(()) };
    let loss = found["scalars"]["loss"].as_array().unwrap();
    assert_eq!(loss.len(), 1000);
    assert_eq!(loss[3], serde_json::json!([3, 0.25]));
    let histogram = &found["histograms"]["weights"];
    assert_eq!((&histogram["num"], &histogram["step"]), (&1000.0.into(), &5.into()));
    let sum: f64 = histogram["counts"].as_array().unwrap().iter().map(|c| c.as_f64().unwrap()).sum();
    assert_eq!(sum, 1000.0);
    let few = &found["histograms"]["few"];
    assert_eq!(few["limits"], serde_json::json!([-1.0, 0.0, 1.0]));
    assert!((few["sum_squares"].as_f64().unwrap() - values.iter().map(|v| v * v).sum::<f64>()).abs() < 1e-9);
    assert_eq!(found["images"]["picture"], serde_json::json!({ "step": 2, "width": 7, "height": 5, "png": [7, 5] }));
    assert_eq!(found["text"]["note/text_summary"], serde_json::json!([[4, "ein **Text** with ünïcode"]]));
    let names: Vec<&str> = found["graph"].as_array().unwrap().iter().map(|n| n[0].as_str().unwrap()).collect();
    assert_eq!(names, ["Net/(Net)", "Net/first", "Net/drop", "Net/second"]);
    assert_eq!(found["hparams"], hparams);
    assert_eq!(found["hparam_metrics"], serde_json::json!(["loss"]));
    std::fs::remove_dir_all(root)?;
    Ok(())
}

/// A run that was killed and resumed has each step once in TensorBoard.
#[test]
fn tensorboard_reads_a_resumed_run() -> Result<()> {
    use rushlight_train::loggers::tensorboard::EventWriter;
    let root = scratch("resumed-events");
    let write = |steps: std::ops::Range<u64>, purge: Option<u64>, suffix: &str| -> Result<()> {
        let mut events = EventWriter::create(&root, suffix, purge)?;
        steps.into_iter().try_for_each(|step| events.scalar("loss", step as f64, step))
    };
    write(1..8, None, ".0")?;
    write(5..10, Some(5), ".1")?;
    let Some(found) = read_back(&root) else { return Ok(()) };
    let steps: Vec<u64> =
        found["scalars"]["loss"].as_array().unwrap().iter().map(|row| row[0].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..10).collect::<Vec<u64>>());
    std::fs::remove_dir_all(root)?;
    Ok(())
}

/// MLflow's client finds a run that was interrupted and resumed: each step once, the hyperparameters, and that it
/// ended.
#[test]
fn mlflow_reads_what_was_written() -> Result<()> {
    use rushlight_train::loggers::MlflowLogger;
    let _turn = alone();
    let root = scratch("mlflow");
    let (store, experiment) = (root.join("a store"), "an experiment: 2");
    for epochs in [1, 3] {
        let mut trainer = quiet()
            .max_epochs(epochs)
            .log_every_n_steps(4)
            .run_directory(Some(root.clone()))
            .run_name("run")
            .resume(rushlight_train::Resume::Auto)
            .hparams([("model/lr", Json::from(0.1)), ("kind", "a b".into())])
            .logger(MlflowLogger::new(&store).experiment(experiment))
            .build()?;
        trainer.fit(&mut Net::new()?, &mut loader(96, true)?, Some(&mut loader(24, false)?))?;
    }
    let Some(found) = read_with("mlflow", &[store.as_os_str(), experiment.as_ref()]) else { return Ok(()) };
    assert_eq!((found["runs"].as_array().unwrap().len(), &found["after"]), (1, &2.into()), "{found}");
    let run = &found["runs"][0];
    assert_eq!((&run["name"], &run["status"], &run["ended"]), (&"run".into(), &"FINISHED".into(), &true.into()));
    assert_eq!(run["params"], serde_json::json!({ "model/lr": "0.1", "kind": "a b" }));
    let steps = |name: &str| -> Vec<u64> {
        let rows = run["metrics"][name].as_array().unwrap_or_else(|| panic!("{name}: {run}"));
        rows.iter().map(|row| row[0].as_u64().unwrap()).collect()
    };
    // 12 steps an epoch.
    assert_eq!(steps("loss_step"), [4, 8, 12, 16, 20, 24, 28, 32, 36]);
    assert_eq!(steps("val_loss"), [12, 24, 36]);
    std::fs::remove_dir_all(root)?;
    Ok(())
}
