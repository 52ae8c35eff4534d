//! Killed runs that continue as if they had not been killed.

use crate::support::*;
use rushlight_core::rng::manual_seed;
use rushlight_core::{Error, Result};
use rushlight_nn::Module;
use rushlight_train::{Callback, EarlyStopping, ModelCheckpoint, Resume, Run, Stage, Trainer};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Ends the process at once, as a kill would, at a given moment.
struct Die {
    moment: String,
}

impl Die {
    fn at(&self, moment: String) {
        if self.moment == moment {
            std::process::abort();
        }
        #[cfg(target_os = "linux")]
        for (name, signal) in [("SIGTERM", libc::SIGTERM), ("SIGUSR1", libc::SIGUSR1), ("SIGINT", libc::SIGINT)] {
            if self.moment == format!("{name} {moment}") {
                // SAFETY: the run watches for the signal.
                unsafe { libc::raise(signal) };
            }
        }
    }
}

impl Callback for Die {
    fn name(&self) -> &str {
        "Die"
    }

    fn on_train_batch_start(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        self.at(format!("start {}", run.global_step()));
        Ok(())
    }

    fn on_train_batch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        self.at(format!("end {}", run.global_step()));
        Ok(())
    }

    fn on_validation_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        if run.stage() == Stage::Validate {
            self.at(format!("validation {}", run.global_step()));
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        self.at(format!("epoch {}", run.epoch()));
        Ok(())
    }
}

/// A run with all kinds of state: dropout, shuffling, a schedule, accumulation, a scaler, validation, values of the
/// epoch.
fn train(root: &Path, moment: &str, background: bool) -> Result<()> {
    manual_seed(7);
    let mut net = Net::new()?;
    let mut trainer = Trainer::builder()
        .device(device())
        .max_epochs(3)
        .accumulate_grad_batches(2)
        .precision("16-mixed".parse()?)
        .val_check_interval(6)
        .log_every_n_steps(1)
        .run_directory(Some(root.into()))
        .run_name("run")
        .resume(Resume::Auto)
        .save_on_interrupt(true)
        .checkpoint(ModelCheckpoint::new().every_n_train_steps(1).every_n_epochs(1).background(background))
        .callback(EarlyStopping::new("val_loss").patience(100))
        .callback(Die { moment: moment.into() })
        .build()?;
    trainer.fit(&mut net, &mut loader(96, true)?, Some(&mut loader(24, false)?))?;
    if let Some(code) = trainer.preempted() {
        drop(trainer);
        std::process::exit(code);
    }
    let mut text: Vec<String> = net.bits()?.iter().map(|bits| format!("{bits:08x}")).collect();
    text.extend(trainer.metrics().iter().map(|(name, value)| format!("{name} {:016x}", value.to_bits())));
    std::fs::write(root.join("end"), text.join("\n")).map_err(Error::from)
}

/// Not a test: the run that the others start as a process.
#[test]
fn child_run() -> Result<()> {
    let Ok(root) = std::env::var("RUSHLIGHT_TEST_RUN") else { return Ok(()) };
    let moment = std::env::var("RUSHLIGHT_TEST_MOMENT").unwrap_or_default();
    train(Path::new(&root), &moment, std::env::var_os("RUSHLIGHT_TEST_BACKGROUND").is_some())
}

fn start(root: &Path, moment: &str, background: bool) -> bool {
    ended(root, moment, background).success()
}

fn ended(root: &Path, moment: &str, background: bool) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "resume::child_run"]).env("RUSHLIGHT_TEST_RUN", root).env("RUSHLIGHT_TEST_MOMENT", moment);
    command.env("RUSHLIGHT_NUM_THREADS", "1").stdout(Stdio::null()).stderr(Stdio::null());
    if background {
        command.env("RUSHLIGHT_TEST_BACKGROUND", "1");
    }
    command.status().unwrap()
}

/// The values of each step, without their times.
fn rows(root: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(root.join("run").join("metrics.jsonl")).unwrap();
    let mut rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("time")));
    rows
}

/// Six steps an epoch: moments within an epoch, between a step and its checkpoint, after a validation, at the end of an
/// epoch.
#[test]
fn a_killed_run_ends_with_the_same_weights_and_values() {
    let _turn = alone();
    for background in [false, true] {
        let whole = scratch(&format!("whole-{background}"));
        assert!(start(&whole, "", background));
        let expected = std::fs::read(whole.join("end")).unwrap();
        let moments = [
            "end 1",
            "start 2",
            "validation 3",
            "end 6",
            "validation 6",
            "epoch 0",
            "start 6",
            "end 9",
            "epoch 1",
            "validation 15",
            "end 18",
            "epoch 2",
        ];
        let broken = scratch(&format!("broken-{background}"));
        let mut kills = 0;
        for moment in moments {
            kills += usize::from(!start(&broken, moment, background));
        }
        assert!(start(&broken, "", background));
        assert!(kills >= 9, "{kills} kills");
        assert_eq!(std::fs::read(broken.join("end")).unwrap(), expected, "background {background}, {kills} kills");
        // Every value was logged as in the run that was not killed.
        assert_eq!(rows(&broken), rows(&whole), "background {background}");
        for directory in [whole, broken] {
            std::fs::remove_dir_all(directory).unwrap();
        }
    }
}

/// A scheduler's signal: the run saves at the end of the step and exits with the requeue code; the next job
/// continues.
#[test]
#[cfg(target_os = "linux")]
fn a_preempted_run_asks_for_another_job() {
    let _turn = alone();
    let (whole, broken) = (scratch("undisturbed"), scratch("preempted"));
    assert!(start(&whole, "", true));
    // In the middle of accumulation, after a step, at the end of an epoch.
    for moment in ["SIGUSR1 start 4", "SIGTERM end 8", "SIGUSR1 epoch 1"] {
        assert_eq!(ended(&broken, moment, true).code(), Some(rushlight_train::REQUEUE_CODE), "{moment}");
    }
    // Ctrl-C saves as well, and requests no other job.
    assert_eq!(ended(&broken, "SIGINT end 14", true).code(), Some(128 + libc::SIGINT));
    assert!(start(&broken, "", true));
    assert_eq!(std::fs::read(broken.join("end")).unwrap(), std::fs::read(whole.join("end")).unwrap());
    assert_eq!(rows(&broken), rows(&whole));
    for directory in [whole, broken] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn a_run_goes_on_from_a_named_checkpoint_with_more_epochs() -> Result<()> {
    let _turn = alone();
    let root = scratch("named");
    let builder = |epochs: u64| quiet().max_epochs(epochs);
    let mut whole = Net::new()?;
    builder(4).build()?.fit(&mut whole, &mut loader(96, true)?, None)?;
    manual_seed(7);
    let mut half = Net::new()?;
    let saves = ModelCheckpoint::new().directory(root.join("saved"));
    let mut trainer = builder(2).checkpoint(saves).build()?;
    trainer.fit(&mut half, &mut loader(96, true)?, None)?;
    let path = trainer.last_checkpoint()?.unwrap();
    manual_seed(99);
    let mut rest = Net::new()?;
    let mut trainer = builder(4).resume(Resume::From(path.clone())).build()?;
    trainer.fit(&mut rest, &mut loader(96, true)?, None)?;
    assert_eq!(trainer.resumed_from(), Some(path.as_path()));
    assert_eq!(rest.bits()?, whole.bits()?);
    let error =
        quiet().resume(Resume::From(root.join("nothing.pt"))).build()?.fit(&mut rest, &mut loader(8, true)?, None);
    assert!(error.unwrap_err().to_string().contains("nothing.pt"));
    std::fs::remove_dir_all(root)?;
    Ok(())
}

#[test]
fn an_error_leaves_a_checkpoint_where_that_is_wanted() -> Result<()> {
    let _turn = alone();
    struct Fails;
    impl Callback for Fails {
        fn name(&self) -> &str {
            "Fails"
        }
        fn on_train_batch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
            if run.global_step() == 5 { Err(Error::value("on purpose")) } else { Ok(()) }
        }
    }
    let root = scratch("exception");
    let saves = ModelCheckpoint::new().directory(root.join("saved")).on_exception(true);
    let mut trainer = quiet().max_epochs(2).checkpoint(saves).callback(Fails).build()?;
    assert!(trainer.fit(&mut Net::new()?, &mut loader(96, true)?, None).is_err());
    let saved = rushlight_train::load_checkpoint(root.join("saved/exception/checkpoint-000000000005.pt"))?;
    assert_eq!(saved.get("trainer")?.get("global_step")?.as_int()?, 5);
    std::fs::remove_dir_all(root)?;
    Ok(())
}
