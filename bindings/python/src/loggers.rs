//! The Trainer's loggers, for `rushlight.loggers`.

use crate::error::{IntoPyResult, value_error};
use pyo3::prelude::*;
use rushlight_core::Result;
use rushlight_core::sync::lock;
use rushlight_train::loggers::{
    CsvLogger, Hparams, JsonLinesLogger, Logger, MlflowLogger, Row, Start, TensorBoardLogger, WandbLogger,
};
use std::path::PathBuf;
use std::sync::Mutex;

/// A logger of the Trainer's that has begun.
#[pyclass(name = "RunLogger", module = "rushlight._C", frozen)]
pub struct PyRunLogger(Mutex<Option<Box<dyn Logger>>>);

impl PyRunLogger {
    fn with(&self, act: impl FnOnce(&mut dyn Logger) -> Result<()>) -> PyResult<()> {
        match lock(&self.0).as_mut() {
            Some(logger) => act(&mut **logger).py(),
            None => Err(value_error("the logger is closed")),
        }
    }
}

#[pymethods]
impl PyRunLogger {
    /// `kind` is a logger's name; `first` and `second` are its own settings; `hparams` is a JSON object.
    #[new]
    fn new(kind: &str, directory: PathBuf, first: &str, second: &str, hparams: &str) -> PyResult<Self> {
        let mut logger: Box<dyn Logger> = match kind {
            "csv" => Box::new(CsvLogger::new()),
            "jsonl" => Box::new(JsonLinesLogger::new()),
            "tensorboard" => Box::new(TensorBoardLogger::new()),
            "mlflow" => Box::new(MlflowLogger::new(first).experiment(second)),
            "wandb" => Box::new(WandbLogger::new(first).entity(second).directory(directory.join("wandb"))),
            other => return Err(value_error(format!("there is no logger '{other}'"))),
        };
        let hparams: Hparams = serde_json::from_str(hparams).map_err(|e| value_error(format!("hparams: {e}")))?;
        std::fs::create_dir_all(&directory)?;
        logger.start(&Start { directory: &directory, resumed: None, hparams: &hparams }).py()?;
        Ok(Self(Mutex::new(Some(logger))))
    }

    fn log(&self, step: u64, epoch: u64, values: Vec<(String, f64)>) -> PyResult<()> {
        self.with(|logger| logger.log(&Row { step, epoch, values: &values }))
    }

    fn flush(&self) -> PyResult<()> {
        self.with(|logger| logger.flush())
    }

    /// Ends the log with its newest values.
    fn close(&self, values: Vec<(String, f64)>) -> PyResult<()> {
        match lock(&self.0).take() {
            Some(mut logger) => logger.finish(&values).py(),
            None => Ok(()),
        }
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyRunLogger>()
}
