//! Streams and events of an accelerator, wrapped by the packages of devices.

use crate::device::numbered;
use crate::error::IntoPyResult;
use crate::tensor::PyTensor;
use pyo3::prelude::*;
use rushlight_tensor::{Event, Stream};

/// A stream of an accelerator.
#[pyclass(name = "_Stream", module = "rushlight._C", frozen, eq)]
#[derive(PartialEq)]
pub struct PyStream(Stream);

#[pymethods]
impl PyStream {
    #[new]
    fn new(device: usize, priority: i32) -> PyResult<Self> {
        Stream::with_priority(numbered(device), priority).map(Self).py()
    }

    /// The default stream of a device.
    #[staticmethod]
    fn main(device: usize) -> PyResult<Self> {
        Stream::main(numbered(device)).map(Self).py()
    }

    /// This thread's current stream of a device.
    #[staticmethod]
    fn current(device: usize) -> PyResult<Self> {
        Stream::current(numbered(device)).map(Self).py()
    }

    fn set_current(&self) -> PyResult<()> {
        self.0.set_current().py()
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.synchronize()).py()
    }

    fn query(&self) -> PyResult<bool> {
        self.0.query().py()
    }

    fn wait_event(&self, event: &PyEvent) -> PyResult<()> {
        self.0.wait_event(&event.0).py()
    }

    fn wait_stream(&self, other: &PyStream) -> PyResult<()> {
        self.0.wait_stream(&other.0).py()
    }

    /// After a tensor is freed, its memory is not reused until this stream has passed its current work.
    fn keep(&self, tensor: &Bound<'_, PyTensor>) -> PyResult<()> {
        tensor.get().tensor().record_stream(&self.0).py()
    }

    #[getter]
    fn handle(&self) -> PyResult<usize> {
        self.0.handle().py()
    }

    #[getter]
    fn device(&self) -> usize {
        self.0.device().index()
    }
}

/// A point in the work of a stream.
#[pyclass(name = "_Event", module = "rushlight._C", frozen)]
pub struct PyEvent(Event);

#[pymethods]
impl PyEvent {
    #[new]
    fn new(device: usize) -> PyResult<Self> {
        Event::new(numbered(device)).map(Self).py()
    }

    fn record(&self, stream: &PyStream) -> PyResult<()> {
        self.0.record_on(&stream.0).py()
    }

    fn query(&self) -> PyResult<bool> {
        self.0.query().py()
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.synchronize()).py()
    }

    fn elapsed_time(&self, end: &PyEvent) -> PyResult<f64> {
        self.0.elapsed_time(&end.0).py()
    }

    #[getter]
    fn handle(&self) -> usize {
        self.0.handle()
    }

    #[getter]
    fn device(&self) -> usize {
        self.0.device().index()
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyStream>()?;
    module.add_class::<PyEvent>()
}
