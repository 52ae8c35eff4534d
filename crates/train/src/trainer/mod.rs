//! The Trainer: epochs and batches, validation, checkpoints, logs, on any device and any number of processes.

mod elastic;
mod engine;
mod evaluate;
mod fit;
mod options;
#[cfg(all(target_os = "linux", feature = "dist"))]
mod planned;
mod state;
mod tune;

pub use elastic::ElasticBatch;
pub use tune::LrFinding;

pub(crate) use options::Options;
pub use options::{Accelerator, ClipAlgorithm, Limit, Resume, TrainerBuilder};

use crate::callbacks::{Callback, ModelCheckpoint};
use crate::checkpoint::Checkpoints;
use crate::loggers::{Hparams, Logger, Loggers, Resumed, Start};
use crate::profiling::Profiling;
use crate::progress::{Progress, View};
use crate::ranks::{Ranks, Watch};
use crate::results::Results;
use crate::run::Run;
use crate::run_dir;
use crate::step::Stage;
use crate::system_log::SystemLog;
use indexmap::IndexMap;
use rushlight_core::rng::manual_seed;
use rushlight_core::{Device, Error, Result};
use rushlight_nn::Module;
use rushlight_optim::GradScaler;
use rushlight_tensor::Tensor;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Trains, validates, tests and predicts: Lightning's `Trainer`.
///
/// The same program runs alone and, started by a launcher (`rushlight run`, `srun`, `mpiexec`, …), data parallel:
/// processes share the loaders, gradients are averaged, values and metrics cover all processes.
/// [`TrainModule`](crate::TrainModule) has an example.
pub struct Trainer {
    options: Options,
    ranks: Arc<Ranks>,
    run: Run,
    policies: Vec<ModelCheckpoint>,
    checkpoints: Vec<Checkpoints>,
    callbacks: Vec<Box<dyn Callback>>,
    /// Present until the run starts.
    waiting: Vec<Box<dyn Logger>>,
    progress: Progress,
    /// Present while it trains.
    profiling: Profiling,
    /// Present while it trains in a directory.
    system_log: Option<SystemLog>,
    scaler: Option<GradScaler>,
    results: Results,
    /// Numbers of processes that the batch and the learning rates are meant for.
    meant: elastic::Meant,
    /// The loader's own batch size, while the run has changed it.
    own_batch_size: Option<usize>,
    /// Epoch and batch of the last validation.
    validated: Option<(u64, u64)>,
    /// The checkpoint that the run continues from.
    resumed_from: Option<PathBuf>,
    /// Log position of that checkpoint, if the run continues the same log.
    resumed: Option<Resumed>,
    watch: Watch,
    /// The exit code that requests another job.
    preempted: Option<i32>,
}

impl Trainer {
    /// A Trainer's options.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](TrainerBuilder::build).
    pub fn builder() -> TrainerBuilder {
        TrainerBuilder::new()
    }

    fn build(
        options: Options,
        policies: Vec<ModelCheckpoint>,
        callbacks: Vec<Box<dyn Callback>>,
        loggers: Vec<Box<dyn Logger>>,
    ) -> Result<Self> {
        let ranks = match options.strategy.as_str() {
            "single_device" => Ranks::alone(),
            _ => Ranks::launched()?,
        };
        #[cfg(all(target_os = "linux", feature = "dist"))]
        if let Some(plan) = &options.plan {
            plan.check_data_parallel(ranks.size()).map_err(|e| e.within("Trainer"))?;
        }
        if let Some(seed) = options.seed {
            manual_seed(seed);
        }
        let device = match options.accelerator {
            Accelerator::Device(device) => device,
            Accelerator::Cpu => Device::Cpu,
            Accelerator::Auto => ranks.device(),
            Accelerator::Gpu => match ranks.device() {
                Device::Cpu => {
                    let why = rushlight_engines::accelerators().find_map(|engine| engine.count().err());
                    let why = why.map_or("this machine has none".into(), |e| e.to_string());
                    return Err(Error::device(format!("Trainer: no GPU: {why}; Accelerator::Auto takes the CPU then")));
                }
                device => device,
            },
        };
        // Reports at once that the device is missing.
        Tensor::zeros_with([1], device)?;
        if let Some(devices) = options.devices
            && devices != ranks.size()
        {
            return Err(Error::value(format!(
                "Trainer: devices is {devices}, but the run has {} processes, each with one device; start it with \
                 'rushlight run --nproc-per-node {devices} PROGRAM', or under another launcher",
                ranks.size()
            )));
        }
        if ranks.rank() == 0 {
            rushlight_settings::unread_variables().iter().for_each(|text| rushlight_core::warn!("{text}"));
        }
        let ranks = Arc::new(ranks);
        let progress = Progress::new(options.progress && ranks.rank() == 0);
        let mut run = Run::new(device, ranks.clone());
        (run.max_epochs, run.max_steps) = (options.max_epochs, options.max_steps);
        run.accumulate = options.accumulate_grad_batches;
        run.log_every_n_steps = options.log_every_n_steps;
        let meant = elastic::Meant { batch: ranks.size(), rate: ranks.size() };
        Ok(Self {
            options,
            ranks,
            run,
            policies,
            checkpoints: Vec::new(),
            callbacks,
            waiting: loggers,
            progress,
            profiling: Profiling::Off,
            system_log: None,
            scaler: None,
            results: Results::new(Stage::Train),
            meant,
            own_batch_size: None,
            validated: None,
            resumed_from: None,
            resumed: None,
            watch: Watch::default(),
            preempted: None,
        })
    }

    /// The values logged last, by name.
    pub fn metrics(&self) -> &IndexMap<String, f64> {
        &self.run.metrics
    }

    /// The run: its directory and its position.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The run's directory, once it has begun.
    pub fn directory(&self) -> Option<&Path> {
        self.run.directory()
    }

    /// The checkpoint that the run continued from.
    pub fn resumed_from(&self) -> Option<&Path> {
        self.resumed_from.as_deref()
    }

    /// The exit code of a program whose scheduler preempted it, or that was interrupted with
    /// [`TrainerBuilder::save_on_interrupt`]. The run has been saved; a preempted program that exits with this code is
    /// started again. With [`Resume::Auto`] a Trainer watches for SIGTERM and SIGUSR1.
    ///
    /// ```no_run
    /// # let trainer = rushlight_train::Trainer::new().unwrap();
    /// // … trainer.fit(…)?; …
    /// if let Some(code) = trainer.preempted() {
    ///     drop(trainer);
    ///     std::process::exit(code);
    /// }
    /// ```
    pub fn preempted(&self) -> Option<i32> {
        self.preempted
    }

    /// The checkpoint whose monitored value is the best, of the first [`ModelCheckpoint`].
    pub fn best_checkpoint(&self) -> Result<Option<PathBuf>> {
        let (Some(policy), Some(checkpoints)) = (self.policies.first(), self.checkpoints.first()) else {
            return Ok(None);
        };
        let Some((_, mode)) = &policy.monitor else { return Ok(None) };
        checkpoints.best(crate::callbacks::best_of(*mode))
    }

    /// The newest checkpoint of the first [`ModelCheckpoint`].
    pub fn last_checkpoint(&self) -> Result<Option<PathBuf>> {
        self.checkpoints.first().map_or(Ok(None), |checkpoints| Ok(checkpoints.list()?.pop()))
    }

    /// The hyperparameters.
    pub fn hparams(&self) -> &Hparams {
        &self.options.hparams
    }

    /// Calls a hook of all callbacks.
    fn each(
        &mut self,
        model: &dyn Module,
        hook: impl Fn(&mut dyn Callback, &mut Run, &dyn Module) -> Result<()>,
    ) -> Result<()> {
        for callback in &mut self.callbacks {
            let start = self.profiling.begin();
            hook(&mut **callback, &mut self.run, model)
                .map_err(|e| e.within(&format!("callback {}", callback.name())))?;
            if start.is_some() {
                self.profiling.end(&format!("callback {}", callback.name()), start);
            }
        }
        Ok(())
    }

    /// Finds or creates the run's directory, the same on all processes.
    fn open_directory(&mut self) -> Result<()> {
        if self.run.directory.is_some() {
            return Ok(());
        }
        let Some(root) = self.options.root.clone() else { return Ok(()) };
        let path = if self.ranks.rank() == 0 {
            let name = self.options.run_name.clone().unwrap_or_else(run_dir::default_name);
            let path = match self.options.resume {
                Resume::Auto => Ok(run_dir::newest(&root, &name)),
                _ => run_dir::fresh(&root, &name),
            };
            let made = path.and_then(|path| {
                std::fs::create_dir_all(&path)
                    .map_err(|e| Error::io(format!("cannot make '{}': {e}", path.display())))?;
                Ok(path)
            });
            made.map(|path| format!("={}", path.display())).unwrap_or_else(|e| format!("!{e}"))
        } else {
            String::new()
        };
        let all = self.ranks.gather(path.as_bytes())?;
        let told = String::from_utf8_lossy(all.first().map_or(&[][..], |bytes| bytes)).into_owned();
        match told.strip_prefix('=') {
            Some(path) => {
                self.run.directory = Some(path.into());
                let log = Path::new(path).join("logs").join(format!("rank-{}.log", self.ranks.rank()));
                self.progress.log_to(&log);
                name_to_launcher(path);
                Ok(())
            }
            None => Err(Error::io(told.trim_start_matches('!').to_owned())),
        }
    }

    /// Starts to log statistics of this process and its device.
    fn open_system_log(&mut self) {
        let Some(directory) = self.run.directory.as_ref().filter(|_| self.options.system_metrics) else { return };
        self.system_log = SystemLog::start(directory, self.ranks.rank(), self.run.device);
        self.progress.set_figures(self.system_log.as_ref().map(|log| log.figures().clone()));
    }

    /// Makes the checkpoints' directories.
    fn open_checkpoints(&mut self) -> Result<()> {
        if !self.checkpoints.is_empty() {
            return Ok(());
        }
        for (i, policy) in self.policies.iter().enumerate() {
            let directory = match (&policy.directory, &self.run.directory) {
                (Some(directory), _) => directory.clone(),
                (None, Some(run)) if i == 0 => run.join("checkpoints"),
                (None, Some(run)) => run.join(format!("checkpoints-{}", i + 1)),
                (None, None) => {
                    return Err(Error::value("Trainer: a ModelCheckpoint needs a directory, as the run has none"));
                }
            };
            self.checkpoints.push(self.ranks.share(policy.builder(directory)).build()?);
        }
        Ok(())
    }

    /// Starts the loggers, on the first process, and logs the run's description.
    fn open_loggers(&mut self, model: &dyn Module) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let Some(directory) = self.run.directory.clone().filter(|_| self.ranks.rank() == 0) else { return Ok(()) };
        if waiting.is_empty() && !self.run.loggers.is_empty() {
            return Ok(());
        }
        run_dir::write_status(&directory, "running", None)?;
        let start = Start { directory: &directory, resumed: self.resumed, hparams: &self.options.hparams };
        self.run.loggers = Loggers::start(waiting, &start)?;
        run_dir::describe(&directory, &self.run, self.options.to_json(), &self.options.hparams, &describe(model))
    }

    fn view<'a>(run: &'a Run, shown: &'a [(String, f64)], stage: Option<&'a str>) -> View<'a> {
        View {
            epoch: run.epoch,
            max_epochs: run.max_epochs,
            batch: run.batch_idx,
            batches: run.num_training_batches,
            global_step: run.global_step,
            max_steps: run.max_steps,
            samples: run.samples,
            ranks: run.world_size() as u64,
            loss: run.loss,
            values: shown,
            device: run.device,
            stage,
        }
    }
}

/// Names the run's directory to `rushlight run`, which copies what this process prints to `logs/console-rank-N.log`.
fn name_to_launcher(directory: &str) {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.into());
    if std::env::var("RUSHLIGHT_CONSOLE").as_deref() == Ok("1") && crate::system::is_pipe(2) {
        eprintln!("\x1b]rushlight-run;{}\x07", directory.display());
    }
}

/// A model's entry in `config.json`.
fn describe(model: &dyn Module) -> Json {
    let parameters = model.parameters();
    let trainable: usize = parameters.iter().filter(|p| p.requires_grad()).map(Tensor::numel).sum();
    json!({
        "type": model.type_name(),
        "parameters": parameters.iter().map(Tensor::numel).sum::<usize>(),
        "trainable_parameters": trainable,
        "text": model.repr(),
    })
}
