//! Training runs: the Trainer, its callbacks, loggers and metrics, and checkpoints that lose nothing.

pub mod callbacks;
pub mod loggers;
pub mod metrics;

mod batch;
mod checkpoint;
mod module;
mod optimizers;
mod precision;
#[cfg(target_os = "linux")]
mod preemption;
mod progress;
mod ranks;
mod results;
mod run;
mod run_dir;
mod step;
mod system;
mod trainer;

pub use batch::Batch;
pub use callbacks::{Callback, EarlyStopping, Mode, ModelCheckpoint};
pub use checkpoint::{Best, Checkpoints, CheckpointsBuilder, Position, Restored, SaveOptions, load_checkpoint};
pub use module::TrainModule;
pub use optimizers::{Interval, Optimizers};
pub use precision::Precision;
#[cfg(target_os = "linux")]
pub use preemption::{Preemption, REQUEUE_CODE};
pub use ranks::Ranks;
pub use run::Run;
pub use step::{LogOptions, LogValue, ReduceFx, Stage, StepContext};
pub use trainer::{Accelerator, ClipAlgorithm, Limit, Resume, Trainer, TrainerBuilder};
