//! Training runs: the Trainer, its callbacks, loggers and metrics, and checkpoints.
//!
//! A model implements [`TrainModule`] (a step and its optimizers); a [`Trainer`] does the rest.
//!
//! | module | what |
//! |---|---|
//! | root | [`Trainer`], [`TrainModule`], [`StepContext`], [`Optimizers`], [`Precision`], [`Checkpoints`] |
//! | [`callbacks`] | checkpoints, early stopping, averages of weights, monitors |
//! | [`loggers`] | TensorBoard, JSON lines, CSV, MLflow's file store |
//! | [`metrics`] | accuracy to BLEU, exact over batches of any size and over processes |
//!
//! # Layout of a run's directory
//!
//! A run has a directory `runs/NAME` (`NAME-2` and so on if one of that name exists and the run does not resume it).
//! The first process writes:
//!
//! - `config.json`: `trainer` (the options), `hparams` (name to value), `model` (`type`, `parameters`,
//!   `trainable_parameters`, `text`).
//! - `environment.json`: `rushlight` (version), `started` (seconds since 1970), `command`, `directory`, `hostname`,
//!   `kernel`, `cpu`, `cores`, `pid`, `device`, `world_size`, `variables` (the scheduler's).
//! - `metrics.jsonl`: an object a line, flushed with each: `step`, `epoch`, `time` (seconds since 1970), and logged
//!   values by name. Numbers that are not finite are the strings `NaN`, `Infinity`, `-Infinity`. Values by step and by
//!   epoch end in `_step` and `_epoch`; `loss` is always among them. [`callbacks::DeviceStatsMonitor`] logs under
//!   `system/`, [`callbacks::ThroughputMonitor`] under `throughput/`. A resumed run cuts the file back to where its
//!   checkpoint was saved: a program that follows it must expect a replaced file.
//! - `metrics.csv`, with [`loggers::CsvLogger`]: the same as a table.
//! - `events.out.tfevents.TIME.HOST.PID.N`: TensorBoard's events, one file for each process that worked on the run.
//!   Histograms, images, text and hyperparameters are here only.
//! - `checkpoints/`: `checkpoint-STEP.pt`, or a folder `checkpoint-STEP` of a run of several processes
//!   ([`Checkpoints`]); parts `model`, `extra`, `optimizers`, `schedules`, `scaler`, `loader`, `trainer`.
//! - `profile/`, with [`TrainerBuilder::profiler`]: the time of its actions, or a trace.
//! - `status.json`: whether it runs, by which process, or how it ended.
//! - `logs/rank-N.log`: log lines of each process: one per epoch, and one every 30 seconds. Under `rushlight run` with
//!   several ranks also `logs/console-rank-N.log`: everything that the process prints.

pub mod callbacks;
pub mod loggers;
pub mod metrics;

mod batch;
mod checkpoint;
mod module;
mod optimizers;
mod precision;
#[cfg(all(target_os = "linux", feature = "dist"))]
mod preemption;
mod profiling;
mod progress;
mod ranks;
mod results;
mod run;
mod run_dir;
#[cfg(all(target_os = "linux", feature = "dist"))]
mod sharding;
mod step;
mod system;
mod system_log;
mod trainer;

pub use batch::Batch;
pub use callbacks::{Callback, EarlyStopping, Mode, ModelCheckpoint};
pub use checkpoint::{
    Best, CheckpointInfo, Checkpoints, CheckpointsBuilder, Position, Restored, SaveOptions, checkpoint_info,
    load_checkpoint,
};
pub use module::TrainModule;
pub use optimizers::{Interval, Optimizers};
pub use precision::Precision;
#[cfg(all(target_os = "linux", feature = "dist"))]
pub use preemption::{Preemption, REQUEUE_CODE};
pub use profiling::RunProfiler;
pub use ranks::Ranks;
pub use run::Run;
pub use run_dir::process_start;
pub use step::{LogOptions, LogValue, ReduceFx, Stage, StepContext};
pub use trainer::{Accelerator, ClipAlgorithm, ElasticBatch, Limit, LrFinding, Resume, Trainer, TrainerBuilder};
