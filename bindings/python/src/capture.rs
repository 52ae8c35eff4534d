//! Recorded and replayed steps: `rushlight.capture`, and the primitives of `torch.cuda.CUDAGraph`.

use crate::device::{PyDevice, numbered};
use crate::error::{IntoPyResult, from_py, runtime_error};
use crate::recorded::{PyKind, PyOutput};
use crate::tensor::PyTensor;
use pyo3::prelude::*;
use rushlight_tensor::capture::{Graph, GraphRecording, StepPool, graph_pool, recording_id, refuse_host};
use rushlight_tensor::{Capture, Tensor};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The engine's `Capture` over Python functions.
#[pyclass(name = "_Capture", module = "rushlight._C", frozen)]
struct PyCapture(Mutex<Capture>);

impl PyCapture {
    fn lock(&self) -> PyResult<MutexGuard<'_, Capture>> {
        match self.0.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(runtime_error(
                "capture: the step is running already; it cannot call itself, nor run in two threads at once",
            )),
        }
    }
}

#[pymethods]
impl PyCapture {
    #[new]
    fn new(enabled: bool, warmup: usize, max_graphs: usize) -> Self {
        Self(Mutex::new(Capture::new().enabled(enabled).warmup(warmup).max_graphs(max_graphs)))
    }

    /// Runs, records or replays a step of a kind on a device: `step(*inputs)` returns a list of tensors and a form;
    /// replays return the form that was recorded.
    fn run<'py>(
        &self,
        kind: &Bound<'py, PyAny>,
        device: &Bound<'py, PyAny>,
        inputs: Vec<Bound<'py, PyTensor>>,
        step: &Bound<'py, PyAny>,
    ) -> PyResult<(Vec<Bound<'py, PyTensor>>, Py<PyAny>)> {
        let py = step.py();
        let kind = PyKind::new(kind)?;
        let device = PyDevice::from_object(device)?.resolve(py)?;
        let inputs: Vec<Tensor> = inputs.iter().map(|t| t.get().tensor()).collect();
        let mut capture = self.lock()?;
        *capture = std::mem::take(&mut *capture).device(device);
        let output = capture.run_kind(kind, &inputs, |own| PyOutput::of(step, own).map_err(from_py)).py()?;
        drop(capture);
        output.into_python(py)
    }

    #[getter]
    fn graphs(&self) -> PyResult<usize> {
        Ok(self.lock()?.graphs())
    }

    fn set_enabled(&self, enabled: bool) -> PyResult<()> {
        self.lock()?.set_enabled(enabled);
        Ok(())
    }

    fn clear(&self) -> PyResult<()> {
        self.lock()?.clear();
        Ok(())
    }
}

/// Memory that graphs of a device share.
#[pyclass(name = "_GraphPool", module = "rushlight._C", frozen)]
struct PyGraphPool(StepPool);

#[pymethods]
impl PyGraphPool {
    #[new]
    fn new(device: usize) -> PyResult<Self> {
        graph_pool(numbered(device)).map(Self).py()
    }
}

/// Recorded work.
#[pyclass(name = "_Graph", module = "rushlight._C", frozen)]
struct PyGraph(Mutex<Graph>);

#[pymethods]
impl PyGraph {
    fn replay(&self) -> PyResult<()> {
        // The lock is held during a launch; callbacks need the GIL, which this thread holds.
        self.0
            .try_lock()
            .map_err(|_| runtime_error("replay: the graph is being replayed by another thread"))?
            .replay()
            .py()
    }
}

thread_local! {
    /// This thread's recording between two calls.
    static OPEN: RefCell<Option<GraphRecording>> = const { RefCell::new(None) };
}

/// Starts recording this thread's work on a device.
#[pyfunction]
fn _graph_begin(device: usize, pool: &PyGraphPool) -> PyResult<()> {
    let recording = GraphRecording::begin(numbered(device), &pool.0).py()?;
    OPEN.with_borrow_mut(|open| *open = Some(recording));
    Ok(())
}

/// Ends the recording and returns the graph.
#[pyfunction]
fn _graph_end() -> PyResult<PyGraph> {
    let Some(recording) = OPEN.with_borrow_mut(Option::take) else {
        return Err(runtime_error(
            "capture_end: this thread records nothing; capture_begin() comes first, in the same thread",
        ));
    };
    recording.end().map(|graph| PyGraph(Mutex::new(graph))).py()
}

/// Discards this thread's recording.
#[pyfunction]
fn _graph_abort() {
    let open = OPEN.with_borrow_mut(Option::take);
    drop(open);
}

/// Whether this thread is recording a step.
#[pyfunction]
fn _is_recording() -> bool {
    recording_id().is_some()
}

/// Returns an error if this thread is recording a step: `call` cannot be part of it.
#[pyfunction]
fn _refuse_recording(call: &str) -> PyResult<()> {
    refuse_host(call).py()
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCapture>()?;
    module.add_class::<PyGraphPool>()?;
    module.add_class::<PyGraph>()?;
    macro_rules! functions {
        ($($name:ident),* $(,)?) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    functions!(_graph_begin, _graph_end, _graph_abort, _is_recording, _refuse_recording);
    Ok(())
}
