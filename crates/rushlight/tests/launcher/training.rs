//! Whole jobs: a distributed training run, killed and preempted.

use crate::support::{Folder, Launcher, until};
use rushlight::dist::DistributedDataParallel;
use rushlight::prelude::*;
use rushlight::train::{Preemption, REQUEUE_CODE};
use std::path::Path;
use std::process::{Command, Stdio};

/// Names the folder of [`console_of_every_rank`]'s program.
const CONSOLE: &str = "RUSHLIGHT_TEST_CONSOLE";

/// Names the folder and the steps of [`job`].
const VARIABLE: &str = "RUSHLIGHT_TEST_TRAINING";

/// The program of these tests: `CHECKPOINTS EXPORT STEPS PAUSE` in [`VARIABLE`], PAUSE in ms a step.
fn train(text: &str) -> Result<i32> {
    let words: Vec<&str> = text.split(' ').collect();
    let [folder, export, steps, pause] = words[..] else { panic!("{text}") };
    let (steps, pause): (u64, u64) = (steps.parse().unwrap(), pause.parse().unwrap());
    manual_seed(3);
    let world = rushlight_dist::init()?;
    let data = TensorDataset::new((Tensor::randn([96, 8])?, Tensor::randn([96, 1])?))?;
    let mut model = DistributedDataParallel::new(Linear::new(8, 1)?, world.group().clone())?;
    let mut optimizer = AdamW::new(model.parameters(), 1e-2)?;
    let loader = DataLoader::builder(data).batch_size(4).shuffle(true).seed(1).distributed(world.rank(), world.size());
    let mut loader = loader.build()?;
    let mut checkpoints = Checkpoints::builder(folder).world(&world).background(true).build()?;
    let mut preemption = Preemption::watch(&world)?;
    let mut position = Position::default();
    let found =
        checkpoints.restore(&mut [("model", &mut model), ("optimizer", &mut optimizer), ("loader", &mut loader)])?;
    if let Some(restored) = found {
        position = restored.position;
    }
    println!("ready at step {} of {} ranks", position.step, world.size());
    while position.step < steps {
        for batch in loader.epoch(position.epoch) {
            let (x, y) = batch?;
            let noise = Tensor::randn([x.shape()[0], 1])?;
            optimizer.zero_grad();
            model.forward(&x)?.add(&noise)?.mse_loss(&y, Reduction::Mean)?.backward()?;
            optimizer.step()?;
            position.step += 1;
            std::thread::sleep(std::time::Duration::from_millis(pause));
            let preempted = preemption.agreed()?;
            if preempted || position.step % 5 == 0 || position.step == steps {
                checkpoints.save(position, &[("model", &model), ("optimizer", &optimizer), ("loader", &loader)])?;
            }
            if preempted {
                checkpoints.finish()?;
                println!("preempted after step {}", position.step);
                return Ok(preemption.requeue());
            }
            if position.step == steps {
                break;
            }
        }
        position.epoch += 1;
    }
    checkpoints.finish()?;
    if world.rank() == 0 {
        rushlight::io::save(&model.state()?, export)?;
    }
    Ok(0)
}

/// Not a test: the program.
#[test]
fn job() {
    if let Ok(text) = std::env::var(VARIABLE) {
        std::process::exit(train(&text).expect("training"));
    }
}

/// The command line of the program.
fn program(checkpoints: &str, export: &str, steps: usize, pause: usize) -> Vec<String> {
    let exe = std::env::current_exe().unwrap();
    let variable = format!("{VARIABLE}={checkpoints} {export} {steps} {pause}");
    let words = ["env", &variable, exe.to_str().unwrap(), "--exact", "training::job", "--nocapture"];
    words.map(str::to_owned).to_vec()
}

fn start(options: &[&str], folder: &Folder, name: &str, steps: usize, pause: usize) -> Launcher {
    let (checkpoints, export) = (folder.path(name), folder.path(&format!("{name}.safetensors")));
    let words = program(checkpoints.to_str().unwrap(), export.to_str().unwrap(), steps, pause);
    Launcher::start_program(options, &words.iter().map(String::as_str).collect::<Vec<_>>(), folder)
}

fn weights(folder: &Folder, name: &str) -> Vec<u8> {
    std::fs::read(folder.path(&format!("{name}.safetensors"))).expect("the weights")
}

#[test]
fn one_ranks_signal_stops_all_after_the_same_step() {
    let folder = Folder::new("preemption");
    let (code, out, err) = start(&["--nproc-per-node=2"], &folder, "whole", 120, 0).finish();
    assert_eq!(code, Some(0), "{out} {err}");
    for signal in ["USR1", "TERM"] {
        let name = format!("stopped-{signal}");
        let launcher = start(&["--nproc-per-node=2"], &folder, &name, 120, 5);
        launcher.until("training begins", |_| has_checkpoint(&folder.path(&name)));
        // The launcher forwards a signal to all; here only one rank receives it.
        let agent = crate::support::children(launcher.pid())[0];
        crate::support::kill(crate::support::children(agent)[1], signal);
        let (code, out, err) = launcher.finish();
        assert_eq!(code, Some(REQUEUE_CODE), "{out} {err}");
        let stopped: Vec<&str> = out.lines().filter(|l| l.contains("preempted")).collect();
        assert_eq!(stopped.len(), 2, "{out}");
        let step = |line: &str| line.rsplit(' ').next().unwrap().to_owned();
        assert_eq!(step(stopped[0]), step(stopped[1]), "both ranks stop after the same step: {out}");
        let (code, out, err) = start(&["--nproc-per-node=2"], &folder, &name, 120, 0).finish();
        assert_eq!(code, Some(0), "{out} {err}");
        assert!(out.contains(&format!("ready at step {} of 2 ranks", step(stopped[0]))), "{out}");
        assert!(weights(&folder, &name) == weights(&folder, "whole"), "the weights differ");
    }
}

fn has_checkpoint(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("manifest.json")).any(|manifest| manifest.exists())
}

/// A node is lost for good; the job continues with the other.
#[test]
fn an_elastic_job_goes_on_with_other_sizes() {
    let folder = Folder::new("sizes");
    let endpoint = format!("127.0.0.1:{}", crate::support::free_port());
    let options = ["--nnodes=1:2", "--nproc-per-node=1", "--rdzv-id=s", "--rdzv-endpoint", &endpoint];
    let first = start(&options, &folder, "elastic", 150, 10);
    first.until("the store is there", |_| std::net::TcpStream::connect(&endpoint).is_ok());
    let second = start(&options, &folder, "elastic", 150, 10);
    first.until("two ranks train", |l| l.out().contains("of 2 ranks") && has_checkpoint(&folder.path("elastic")));
    crate::support::children(second.pid()).into_iter().for_each(|agent| crate::support::kill(agent, "KILL"));
    second.signal("KILL");
    let (code, out, err) = first.finish();
    assert_eq!(code, Some(0), "a lost node is no failure (--max-restarts is 0): {out} {err}");
    let resumed = out.lines().find(|l| l.contains("of 1 ranks")).expect("a world of one");
    assert!(!resumed.contains("at step 0 "), "it goes on from a checkpoint: {out}");
}

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name)
}

/// Runs one of the project's scripts. Returns its output; `None` if the machine lacks a requirement.
fn run_script(name: &str, arguments: &[&str], steps: usize, pause: usize) -> Option<String> {
    let program = program("{checkpoints}", "{export}", steps, pause);
    let words: Vec<&str> = arguments.iter().copied().chain(program.iter().map(String::as_str)).collect();
    run_script_alone(name, &words)
}

/// [`run_script`] for one that needs no program.
fn run_script_alone(name: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(script(name));
    command.args(arguments);
    command.env_remove(VARIABLE).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the script");
    let pid = child.id() as i32;
    let waiting = std::thread::spawn(move || child.wait_with_output().expect("its output"));
    until(&format!("{name} ends"), || waiting.is_finished() || !crate::support::runs(pid), String::new);
    let output = waiting.join().expect("its output");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) {
        assert!(std::env::var_os("CI").is_none(), "{name} cannot run here: {text}");
        eprintln!("skipped: {text}");
        return None;
    }
    assert!(output.status.success(), "{name}: {text}");
    Some(text)
}

#[test]
fn killed_ranks_and_launchers_change_nothing() {
    let options = ["--runs=4", "--seed=5", "--spread=0.3", "--rushlight", env!("CARGO_BIN_EXE_rushlight")];
    if let Some(text) = run_script("kill-ranks", &options, 100, 3) {
        assert!(text.contains("bit-identical"), "{text}");
    }
}

#[test]
fn jobs_on_a_real_slurm() {
    if let Some(text) = run_script("slurm-jobs", &[env!("CARGO_BIN_EXE_rushlight")], 100, 20) {
        assert!(text.lines().any(|line| line == "passed"), "{text}");
    }
}

#[test]
fn kubernetes_takes_the_documents() {
    if let Some(text) = run_script_alone("kubernetes", &[env!("CARGO_BIN_EXE_rushlight")]) {
        assert!(text.lines().any(|line| line == "passed"), "{text}");
    }
}

#[test]
fn a_link_is_cut_and_mended() {
    if let Some(text) = run_script("cut-link", &[env!("CARGO_BIN_EXE_rushlight")], 150, 20) {
        assert!(text.lines().any(|line| line == "passed"), "{text}");
    }
}

#[derive(Module)]
struct Line {
    layer: Linear,
}

impl TrainModule for Line {
    type Batch = (Tensor, Tensor);

    fn training_step(&self, (x, y): &Self::Batch, _: &mut StepContext) -> Result<Tensor> {
        self.layer.forward(x)?.mse_loss(y, Reduction::Mean)
    }

    fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
        Ok(Optimizers::new(Sgd::new(self.parameters(), 0.1)?))
    }
}

/// Not a test: the program of [`console_of_every_rank`].
#[test]
fn console_job() -> Result<()> {
    let Ok(folder) = std::env::var(CONSOLE) else { return Ok(()) };
    println!("before the run");
    let data = TensorDataset::new((Tensor::ones([8, 2])?, Tensor::ones([8, 1])?))?;
    let mut trainer = Trainer::builder()
        .max_epochs(1)
        .run_directory(Some(folder.into()))
        .run_name("run")
        .enable_checkpointing(false)
        .build()?;
    trainer.fit(&mut Line { layer: Linear::new(2, 1)? }, &mut DataLoader::new(data, 4)?, None)?;
    println!("after the run");
    eprintln!("an error of rank {}", trainer.run().rank());
    Ok(())
}

/// What each rank prints is in the run's directory, where the page shows it.
#[test]
fn console_of_every_rank() {
    let folder = Folder::new("console");
    let exe = std::env::current_exe().unwrap();
    let variable = format!("{CONSOLE}={}", folder.path("runs").display());
    let words = ["env", &variable, exe.to_str().unwrap(), "--exact", "training::console_job", "--nocapture"];
    let (code, out, err) = Launcher::start_program(&["--nproc-per-node=2"], &words, &folder).finish();
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(!out.contains("rushlight-run;") && !err.contains("rushlight-run;"), "{out} {err}");
    for rank in 0..2 {
        let file = folder.path(&format!("runs/run/logs/console-rank-{rank}.log"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let lines = ["before the run", "after the run", &format!("an error of rank {rank}")];
        assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    }
}
