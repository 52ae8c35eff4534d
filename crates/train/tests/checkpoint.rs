//! Killed runs and damaged files: nothing is lost.

use rushlight_core::Result;
use rushlight_core::rng::manual_seed;
use rushlight_data::{DataLoader, TensorDataset};
use rushlight_nn::{Dropout, Forward, Linear, Module};
use rushlight_optim::lr_scheduler::{LrScheduler, StepLR};
use rushlight_optim::{AdamW, GradScaler, Optimizer};
use rushlight_tensor::state::{Dict, Stateful, Value};
use rushlight_tensor::{Reduction, Tensor};
use rushlight_train::{Checkpoints, Position};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const EPOCHS: u64 = 3;

#[derive(Module)]
struct Net {
    first: Linear,
    drop: Dropout,
    second: Linear,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.second.forward(&self.drop.forward(&self.first.forward(x)?.relu()?)?)
    }
}

/// A training run with all kinds of state: dropout, shuffling, momentum, a schedule, a scaler. Saves after every
/// step.
fn train(directory: &Path, background: bool) -> Result<Vec<u8>> {
    manual_seed(7);
    let (x, y) = (Tensor::randn([96, 8])?, Tensor::randn([96, 1])?);
    let mut net = Net { first: Linear::new(8, 64)?, drop: Dropout::new(0.2)?, second: Linear::new(64, 1)? };
    let mut optimizer = AdamW::new(net.parameters(), 1e-2)?;
    let mut schedule = StepLR::builder(5).gamma(0.9).build(&mut optimizer)?;
    let mut scaler = GradScaler::new();
    let mut loader = DataLoader::builder(TensorDataset::new((x, y))?).batch_size(8).shuffle(true).seed(3).build()?;
    let mut checkpoints = Checkpoints::builder(directory).keep(2).background(background).build()?;
    let restored = checkpoints.restore(&mut [
        ("model", &mut net),
        ("optimizer", &mut optimizer),
        ("scheduler", &mut schedule),
        ("scaler", &mut scaler),
        ("loader", &mut loader),
    ])?;
    let mut position = restored.map_or(Position::default(), |r| r.position);
    while position.epoch < EPOCHS {
        for batch in loader.epoch(position.epoch) {
            let (x, y) = batch?;
            optimizer.zero_grad();
            scaler.scale(&net.forward(&x)?.mse_loss(&y, Reduction::Mean)?)?.backward()?;
            scaler.step(&mut optimizer)?;
            scaler.update()?;
            schedule.step(&mut optimizer)?;
            position.step += 1;
            let parts: [(&str, &dyn Stateful); 5] = [
                ("model", &net),
                ("optimizer", &optimizer),
                ("scheduler", &schedule),
                ("scaler", &scaler),
                ("loader", &loader),
            ];
            checkpoints.save(position, &parts)?;
        }
        position.epoch += 1;
    }
    let mut weights = Vec::new();
    for p in net.parameters() {
        weights.extend(p.to_vec::<f32>()?.iter().flat_map(|v| v.to_bits().to_le_bytes()));
    }
    Ok(weights)
}

/// A directory of its own for a test, empty.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rushlight-train-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Not a test: the run that the others start as a process and kill.
#[test]
fn child_run() -> Result<()> {
    let Ok(directory) = std::env::var("RUSHLIGHT_TEST_RUN") else { return Ok(()) };
    let background = std::env::var_os("RUSHLIGHT_TEST_BACKGROUND").is_some();
    let weights = train(Path::new(&directory), background)?;
    std::fs::write(Path::new(&directory).join("weights"), weights)?;
    Ok(())
}

fn start(directory: &Path, background: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_run"]).env("RUSHLIGHT_TEST_RUN", directory).env("RUSHLIGHT_NUM_THREADS", "1");
    if background {
        command.env("RUSHLIGHT_TEST_BACKGROUND", "1");
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills runs at ever later, irregular moments until one completes; the result is always the same.
fn killed_again_and_again(name: &str, background: bool) {
    let whole = scratch(&format!("{name}-whole"));
    assert!(start(&whole, background).wait().unwrap().success());
    let expected = std::fs::read(whole.join("weights")).unwrap();

    let broken = scratch(&format!("{name}-broken"));
    let mut wait = Duration::from_millis(3);
    let mut kills = 0;
    loop {
        let mut child = start(&broken, background);
        let deadline = std::time::Instant::now() + wait;
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if std::time::Instant::now() >= deadline {
                break None;
            }
            std::thread::sleep(Duration::from_micros(300));
        };
        if let Some(status) = ended {
            assert!(status.success(), "the resumed run failed");
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        wait += Duration::from_millis(3 + kills % 5);
    }
    assert_eq!(std::fs::read(broken.join("weights")).unwrap(), expected, "after {kills} kills");
    let left = std::fs::read_dir(&broken).unwrap().count();
    assert!(left <= 3, "two checkpoints and the weights, not {left} files");
    for directory in [whole, broken] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn a_killed_run_ends_with_the_same_weights() {
    killed_again_and_again("foreground", false);
}

#[test]
fn a_run_killed_while_writing_in_the_background_ends_with_the_same_weights() {
    killed_again_and_again("background", true);
}

/// A part that is one number.
#[derive(Default)]
struct Number(i64);

impl Stateful for Number {
    fn state(&self) -> Result<Value> {
        Ok(self.0.into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        self.0 = state.as_int()?;
        Ok(())
    }
}

fn save_three(checkpoints: &mut Checkpoints) -> Result<()> {
    for step in 1..=3 {
        checkpoints.save(Position { epoch: 0, step }, &[("number", &Number(10 * step as i64))])?;
    }
    Ok(())
}

#[test]
fn damaged_files_are_passed_over_and_reported() -> Result<()> {
    let directory = scratch("damage");
    let mut checkpoints = Checkpoints::new(&directory)?;
    save_three(&mut checkpoints)?;
    let files = checkpoints.list()?;
    // The newest is truncated, the previous has a byte changed.
    let newest = std::fs::read(&files[2])?;
    std::fs::write(&files[2], &newest[..newest.len() / 2])?;
    let mut middle = std::fs::read(&files[1])?;
    let at = middle.windows(6).position(|w| w == b"number").unwrap();
    middle[at] ^= 1;
    std::fs::write(&files[1], middle)?;
    let mut number = Number::default();
    let restored = checkpoints.restore(&mut [("number", &mut number)])?.unwrap();
    assert_eq!((number.0, restored.position.step, restored.skipped.len()), (10, 1, 2));
    assert_eq!(restored.path, files[0]);
    // The damaged ones are renamed: the run's next save is the newest.
    assert!(directory.join("checkpoint-000000000003.pt.damaged").exists());
    let mut one = Checkpoints::builder(&directory).keep(1).build()?;
    one.save(Position { epoch: 0, step: 2 }, &[("number", &Number(20))])?;
    assert_eq!(one.restore(&mut [("number", &mut number)])?.unwrap().position.step, 2);
    // If every file is damaged, the run must not silently start over.
    std::fs::write(&files[1], b"")?;
    let message = checkpoints.restore(&mut [("number", &mut number)]).unwrap_err().to_string();
    assert!(message.contains("every checkpoint") && message.contains("checkpoint-000000000002.pt"), "{message}");
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

/// A checkpoint that the file system does not give is not damaged: it stays, and the run does not go back.
#[test]
#[cfg(unix)]
fn a_checkpoint_that_cannot_be_read_stays() -> Result<()> {
    let directory = scratch("unreadable");
    let mut checkpoints = Checkpoints::new(&directory)?;
    save_three(&mut checkpoints)?;
    let newest = checkpoints.list()?.remove(2);
    // A link to itself fails to open with an error of the system, as a file server that is away for a moment.
    let kept = directory.join("kept");
    std::fs::rename(&newest, &kept)?;
    std::os::unix::fs::symlink(&newest, &newest)?;
    let mut number = Number::default();
    let message = checkpoints.restore(&mut [("number", &mut number)]).unwrap_err().to_string();
    assert!(message.contains("cannot be read") && message.contains("may be sound"), "{message}");
    assert!(!directory.join("checkpoint-000000000003.pt.damaged").exists());
    // It comes back between two attempts.
    let (there, here) = (newest.clone(), kept.clone());
    let server = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        std::fs::rename(here, there).unwrap();
    });
    let restored = checkpoints.restore(&mut [("number", &mut number)])?.unwrap();
    server.join().unwrap();
    assert_eq!((number.0, restored.position.step, restored.skipped.len()), (30, 3, 0));
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

/// A program that only reads does not touch the save of a running job, nor its older checkpoints.
#[test]
fn a_reader_leaves_a_running_jobs_files_alone() -> Result<()> {
    let directory = scratch("reader");
    let mut job = Checkpoints::builder(&directory).keep(10).build()?;
    (1..=5).try_for_each(|step| job.save(Position { epoch: 0, step }, &[("number", &Number(step as i64))]))?;
    // A sharded save that is under way: shards, and no manifest yet.
    let unfinished = directory.join("checkpoint-000000000006");
    std::fs::create_dir(&unfinished)?;
    std::fs::write(unfinished.join("shard-00000-of-00002-x.pt"), b"bytes")?;
    let mut number = Number::default();
    let mut reader = Checkpoints::new(&directory)?;
    assert_eq!(reader.restore(&mut [("number", &mut number)])?.unwrap().position.step, 5);
    assert!(unfinished.join("shard-00000-of-00002-x.pt").exists());
    assert_eq!(reader.list()?.len(), 5);
    // A run that saves there owns the directory: it removes what a killed one has left.
    Checkpoints::builder(&directory)
        .keep(10)
        .build()?
        .save(Position { epoch: 0, step: 7 }, &[("number", &Number(7))])?;
    assert!(!unfinished.exists());
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[test]
fn only_the_last_are_kept() -> Result<()> {
    let directory = scratch("keep");
    let mut checkpoints = Checkpoints::builder(&directory).keep(2).background(true).build()?;
    save_three(&mut checkpoints)?;
    checkpoints.finish()?;
    let names: Vec<String> =
        checkpoints.list()?.iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["checkpoint-000000000002.pt", "checkpoint-000000000003.pt"]);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[test]
fn the_background_writes_what_was_there_when_asked() -> Result<()> {
    let directory = scratch("snapshot");
    let mut layer = Linear::new(4, 4)?;
    rushlight_nn::init::ones_(&layer.weight)?;
    let mut checkpoints = Checkpoints::builder(&directory).background(true).build()?;
    checkpoints.save(Position::default(), &[("model", &layer)])?;
    rushlight_nn::init::zeros_(&layer.weight)?;
    checkpoints.restore(&mut [("model", &mut layer)])?;
    assert_eq!(layer.weight.sum(..)?.item::<f32>()?, 16.0);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[test]
fn misuse_is_told() -> Result<()> {
    let directory = scratch("misuse");
    assert!(Checkpoints::builder(&directory).keep(0).build().is_err());
    let mut checkpoints = Checkpoints::new(&directory)?;
    let mut number = Number(1);
    assert!(checkpoints.restore(&mut [("number", &mut number)])?.is_none());
    let taken = checkpoints.save(Position::default(), &[("epoch", &number)]).unwrap_err().to_string();
    assert!(taken.contains("'epoch'"), "{taken}");
    checkpoints.save(Position::default(), &[("number", &number)])?;
    let mut layer = Linear::new(2, 2)?;
    let missing = checkpoints.restore(&mut [("model", &mut layer)]).unwrap_err().to_string();
    assert!(missing.contains("no entry 'model'"), "{missing}");
    let wrong = checkpoints.restore(&mut [("number", &mut layer)]).unwrap_err().to_string();
    assert!(wrong.contains("part 'number'"), "{wrong}");
    let file = directory.join("a file");
    std::fs::write(&file, b"")?;
    assert!(Checkpoints::new(file.join("below")).is_err());
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[test]
fn the_files_are_dictionaries_that_others_read() -> Result<()> {
    let directory = scratch("format");
    let mut checkpoints = Checkpoints::new(&directory)?;
    checkpoints.save(Position { epoch: 2, step: 5 }, &[("number", &Number(4))])?;
    let state = rushlight_io::load(&checkpoints.list()?[0])?;
    let dict: &Dict = state.as_dict()?;
    assert_eq!(dict.len(), 5);
    assert_eq!(
        (state.get("epoch")?.as_int()?, state.get("step")?.as_int()?, state.get("number")?.as_int()?),
        (2, 5, 4)
    );
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
