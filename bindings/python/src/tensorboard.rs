//! `torch.utils.tensorboard`'s files, by the same writer as the Trainer's.

use crate::error::{IntoPyResult, value_error};
use pyo3::prelude::*;
use rushlight_core::sync::lock;
use rushlight_train::loggers::tensorboard::{EventWriter, Node, PrCurve};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

/// Writes an event file.
#[pyclass(name = "EventWriter", module = "rushlight._C", frozen)]
pub struct PyEventWriter(Mutex<Option<EventWriter>>);

impl PyEventWriter {
    fn lock(&self) -> MutexGuard<'_, Option<EventWriter>> {
        lock(&self.0)
    }

    fn with(
        &self,
        walltime: Option<f64>,
        write: impl FnOnce(&mut EventWriter) -> rushlight_core::Result<()>,
    ) -> PyResult<()> {
        let mut writer = self.lock();
        let Some(events) = &mut *writer else { return Err(value_error("SummaryWriter: the writer is closed")) };
        events.set_wall_time(walltime);
        write(events).py()
    }
}

#[pymethods]
impl PyEventWriter {
    #[new]
    fn new(log_dir: PathBuf, suffix: &str, purge_step: Option<u64>) -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(EventWriter::create(log_dir, suffix, purge_step).py()?))))
    }

    fn scalar(&self, tag: &str, value: f64, step: u64, walltime: Option<f64>) -> PyResult<()> {
        self.with(walltime, |events| events.scalar(tag, value, step))
    }

    fn histogram(
        &self,
        tag: &str,
        values: Vec<f64>,
        edges: Option<Vec<f64>>,
        step: u64,
        walltime: Option<f64>,
    ) -> PyResult<()> {
        self.with(walltime, |events| events.histogram(tag, &values, edges.as_deref(), step))
    }

    fn histogram_raw(
        &self,
        tag: &str,
        figures: [f64; 5],
        limits: Vec<f64>,
        counts: Vec<f64>,
        step: u64,
        walltime: Option<f64>,
    ) -> PyResult<()> {
        self.with(walltime, |events| events.histogram_raw(tag, figures, &limits, &counts, step))
    }

    fn image(&self, tag: &str, pixels: &[u8], size: [usize; 3], step: u64, walltime: Option<f64>) -> PyResult<()> {
        self.with(walltime, |events| events.image(tag, pixels, size, step))
    }

    /// Samples from -1 to 1 of one channel.
    fn audio(&self, tag: &str, samples: Vec<f32>, sample_rate: u32, step: u64, walltime: Option<f64>) -> PyResult<()> {
        self.with(walltime, |events| events.audio(tag, &samples, 1, sample_rate, step))
    }

    fn pr_curve(
        &self,
        tag: &str,
        labels: Vec<f64>,
        predictions: Vec<f64>,
        thresholds: usize,
        weights: Option<Vec<f64>>,
        step: u64,
        walltime: Option<f64>,
    ) -> PyResult<()> {
        let curve = PrCurve::new(&labels, &predictions, thresholds, weights.as_deref()).py()?;
        self.with(walltime, |events| events.pr_curve(tag, &curve, step))
    }

    fn pr_curve_raw(&self, tag: &str, rows: [Vec<f64>; 6], step: u64, walltime: Option<f64>) -> PyResult<()> {
        let curve = PrCurve::from_rows(rows).py()?;
        self.with(walltime, |events| events.pr_curve(tag, &curve, step))
    }

    fn text(&self, tag: &str, text: &str, step: u64, walltime: Option<f64>) -> PyResult<()> {
        self.with(walltime, |events| events.text(tag, text, step))
    }

    /// Hyperparameters as a JSON object.
    fn hparams(&self, hparams: &str, metrics: Vec<String>) -> PyResult<()> {
        let hparams = serde_json::from_str(hparams).map_err(|e| value_error(format!("add_hparams: {e}")))?;
        let metrics: Vec<&str> = metrics.iter().map(String::as_str).collect();
        self.with(None, |events| events.hparams(&hparams, &metrics))
    }

    /// Nodes: name, kind, inputs, attributes.
    fn graph(&self, nodes: Vec<(String, String, Vec<String>, Vec<(String, String)>)>) -> PyResult<()> {
        let node = |(name, op, inputs, attributes)| Node { name, op, inputs, attributes };
        let nodes: Vec<Node> = nodes.into_iter().map(node).collect();
        self.with(None, |events| events.graph(&nodes))
    }

    fn flush(&self) -> PyResult<()> {
        self.lock().as_mut().map_or(Ok(()), EventWriter::flush).py()
    }

    fn close(&self) -> PyResult<()> {
        self.lock().take().map_or(Ok(()), |mut events| events.flush()).py()
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyEventWriter>()
}
