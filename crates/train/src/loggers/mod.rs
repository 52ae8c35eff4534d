//! Loggers: destinations of a run's values.

mod csv;
mod jsonl;
mod mlflow;
pub mod tensorboard;
mod wandb;

pub use csv::CsvLogger;
pub use jsonl::JsonLinesLogger;
pub(crate) use jsonl::number as json_number;
pub use mlflow::MlflowLogger;
pub use tensorboard::TensorBoardLogger;
pub use wandb::WandbLogger;

use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use serde_json::{Map, Value as Json};
use std::path::Path;

/// Hyperparameters by name, as JSON values.
pub type Hparams = Map<String, Json>;

/// Values of one step.
pub struct Row<'a> {
    /// Optimizer steps done.
    pub step: u64,
    /// The epoch.
    pub epoch: u64,
    /// Names and values.
    pub values: &'a [(String, f64)],
}

/// Log position at which the checkpoint was saved that a run continues from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Optimizer steps done.
    pub step: u64,
    /// Rows logged.
    pub rows: u64,
}

/// Start information for a logger.
pub struct Start<'a> {
    /// The run's directory.
    pub directory: &'a Path,
    /// Position at which a resumed run continues: values logged later are discarded.
    pub resumed: Option<Resumed>,
    /// The run's hyperparameters.
    pub hparams: &'a Hparams,
}

/// Destination of a run's values. Only the first process of a run logs.
#[allow(unused_variables)]
pub trait Logger: Send {
    /// The logger's name, for messages.
    fn name(&self) -> &str;

    /// Before the first value.
    fn start(&mut self, start: &Start) -> Result<()>;

    /// Values of a step.
    fn log(&mut self, row: &Row) -> Result<()>;

    /// A histogram. Loggers that cannot show one skip it.
    fn histogram(&mut self, name: &str, values: &Tensor, step: u64) -> Result<()> {
        Ok(())
    }

    /// An image of shape `[C, H, W]`: floats from 0 to 1, or `u8`. Loggers that cannot show one skip it.
    fn image(&mut self, name: &str, image: &Tensor, step: u64) -> Result<()> {
        Ok(())
    }

    /// Sound of shape `[C, L]` or `[L]`, from -1 to 1. Loggers that cannot play it skip it.
    fn audio(&mut self, name: &str, samples: &Tensor, sample_rate: u32, step: u64) -> Result<()> {
        Ok(())
    }

    /// Labels (0 or 1) and predictions (from 0 to 1) of a binary classifier, for a curve of precision and recall.
    /// Loggers that cannot show one skip it.
    fn pr_curve(&mut self, name: &str, labels: &Tensor, predictions: &Tensor, step: u64) -> Result<()> {
        Ok(())
    }

    /// A text. Loggers that cannot show one skip it.
    fn text(&mut self, name: &str, text: &str, step: u64) -> Result<()> {
        Ok(())
    }

    /// Flushes everything to its file.
    fn flush(&mut self) -> Result<()>;

    /// The run is over; its last values are passed once more, for a comparison of runs.
    fn finish(&mut self, metrics: &[(String, f64)]) -> Result<()> {
        self.flush()
    }
}

/// A run's loggers. A logger that fails is reported once and dropped: a full disk for logs must not end a run.
#[derive(Default)]
pub struct Loggers {
    all: Vec<Box<dyn Logger>>,
    rows: u64,
}

impl Loggers {
    pub(crate) fn start(loggers: Vec<Box<dyn Logger>>, start: &Start) -> Result<Self> {
        let mut all = Self { all: loggers, rows: start.resumed.map_or(0, |resumed| resumed.rows) };
        for logger in &mut all.all {
            logger.start(start).map_err(|e| e.within(&format!("logger {}", logger.name())))?;
        }
        Ok(all)
    }

    fn each(&mut self, mut act: impl FnMut(&mut dyn Logger) -> Result<()>) {
        self.all.retain_mut(|logger| match act(&mut **logger) {
            Ok(()) => true,
            Err(e) => {
                rushlight_core::warn!("logger {} failed and gets nothing more: {e}", logger.name());
                false
            }
        });
    }

    pub(crate) fn log(&mut self, row: &Row) {
        if !row.values.is_empty() {
            self.rows += 1;
            self.each(|logger| logger.log(row));
        }
    }

    /// Rows logged since the run began.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether there are no loggers.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Logs a distribution of values.
    #[doc(alias("log_histogram", "add_histogram"))]
    pub fn histogram(&mut self, name: &str, values: &Tensor, step: u64) {
        self.each(|logger| logger.histogram(name, values, step));
    }

    /// Logs an image of shape `[C, H, W]`; `make_grid` makes one of several.
    #[doc(alias("log_image", "add_image"))]
    pub fn image(&mut self, name: &str, image: &Tensor, step: u64) {
        self.each(|logger| logger.image(name, image, step));
    }

    /// Logs sound of shape `[C, L]` or `[L]`, from -1 to 1.
    #[doc(alias("log_audio", "add_audio"))]
    pub fn audio(&mut self, name: &str, samples: &Tensor, sample_rate: u32, step: u64) {
        self.each(|logger| logger.audio(name, samples, sample_rate, step));
    }

    /// Logs a curve of precision and recall: labels (0 or 1) and predictions (from 0 to 1) of one class.
    #[doc(alias("log_pr_curve", "add_pr_curve"))]
    pub fn pr_curve(&mut self, name: &str, labels: &Tensor, predictions: &Tensor, step: u64) {
        self.each(|logger| logger.pr_curve(name, labels, predictions, step));
    }

    /// Logs a text.
    #[doc(alias("log_text", "add_text"))]
    pub fn text(&mut self, name: &str, text: &str, step: u64) {
        self.each(|logger| logger.text(name, text, step));
    }

    pub(crate) fn flush(&mut self) {
        self.each(|logger| logger.flush());
    }

    pub(crate) fn finish(&mut self, metrics: &[(String, f64)]) {
        self.each(|logger| logger.finish(metrics));
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0.0, |d| d.as_secs_f64())
}

pub(crate) fn cannot(what: &str, path: &Path, e: std::io::Error) -> Error {
    Error::io(format!("cannot {what} '{}': {e}", path.display()))
}
