//! Data parallelism of `rushlight_dist`: the reducer of `DistributedDataParallel` and of Horovod's optimizer, with
//! hooks in Python; PowerSGD; batch normalisation over ranks.

use crate::dist::{PyGroup, failed};
use crate::error::{IntoPyResult, from_py};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rushlight_core::{Error, ErrorKind, Result};
use rushlight_dist::{
    BucketHook, GradBucket, PowerSgd, PowerSgdMemory, Reducer, ReducerSettings, SentBucket, sync_batch_norm,
};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// The error of a failed collective as Python's; others keep their kind.
fn converted(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Timeout => from_py(failed(error)),
        _ => error,
    }
}

/// `hook(index, is_last, buffer, parameters, gradients)` returns an object with `wait()`, or `None` when it is done.
struct PyHook(Py<PyAny>);

impl BucketHook for PyHook {
    fn send(&self, bucket: &GradBucket) -> Result<Box<dyn SentBucket>> {
        let sent = Python::attach(|py| -> PyResult<Py<PyAny>> {
            let parameters = PyList::new(py, bucket.gradients.iter().map(|(index, _)| *index))?;
            let gradients = bucket.gradients.iter().map(|(_, view)| wrap(py, view.clone()));
            let gradients = PyList::new(py, gradients.collect::<PyResult<Vec<_>>>()?)?;
            self.0.call1(py, (bucket.index, bucket.is_last, wrap(py, bucket.buffer.clone())?, parameters, gradients))
        });
        Ok(Box::new(PySent(sent.map_err(from_py)?)))
    }
}

struct PySent(Py<PyAny>);

impl SentBucket for PySent {
    fn wait(&self) -> Result<Option<Tensor>> {
        let new = Python::attach(|py| -> PyResult<Option<Tensor>> {
            let sent = self.0.bind(py);
            if sent.is_none() {
                return Ok(None);
            }
            let mut result = sent.call_method0("wait")?;
            if result.is_instance_of::<PyList>() || result.is_instance_of::<PyTuple>() {
                result = result.get_item(0)?;
            }
            match result.is_none() {
                true => Ok(None),
                false => Ok(Some(result.cast::<PyTensor>()?.get().tensor())),
            }
        });
        new.map_err(from_py)
    }
}

/// The reducer. A backward pass may hold its lock while it waits for the GIL, to call a hook: so calls release the GIL.
#[pyclass(name = "_Reducer", module = "rushlight._C", frozen)]
struct PyReducer(Arc<Reducer>);

#[pymethods]
impl PyReducer {
    #[new]
    fn new(
        named: Vec<(String, Bound<'_, PyTensor>)>,
        group: &PyGroup,
        bucket_bytes: usize,
        as_views: bool,
        find_unused: bool,
        static_graph: bool,
        zero_missing: bool,
    ) -> PyResult<Self> {
        let settings = ReducerSettings {
            bucket_bytes,
            find_unused,
            static_graph,
            as_views,
            packed: true,
            zero_missing,
            idle_alone: true,
            convert_error: converted,
            ..Default::default()
        };
        let parameters = named.into_iter().map(|(name, p)| (name, p.get().tensor())).collect();
        Reducer::new(parameters, group.0.clone(), settings).map(Self).py()
    }

    /// Begins a pass that communicates or not; waits for buckets that a failed pass has left.
    fn begin(&self, py: Python<'_>, sync: bool) {
        py.detach(|| self.0.begin(sync));
    }

    /// Finds the parameters that outputs do not depend on.
    fn after_forward(&self, py: Python<'_>, outputs: Vec<Bound<'_, PyTensor>>) -> PyResult<()> {
        let outputs: Vec<Tensor> = outputs.iter().map(|t| t.get().tensor()).collect();
        py.detach(|| self.0.after_forward(&outputs.iter().collect::<Vec<_>>())).py()
    }

    fn set_hook(&self, py: Python<'_>, hook: Py<PyAny>) {
        py.detach(|| self.0.set_hook(Arc::new(PyHook(hook))));
    }

    #[pyo3(signature = (ranks))]
    fn set_divisor(&self, py: Python<'_>, ranks: Option<usize>) {
        py.detach(|| self.0.set_divisor(ranks));
    }

    fn set_static_graph(&self, py: Python<'_>) {
        py.detach(|| self.0.set_static_graph());
    }

    /// Has `decides()` say at the first gradient of each pass whether the pass communicates.
    fn set_decision(&self, py: Python<'_>, decides: Py<PyAny>) {
        let decides = move || Python::attach(|py| decides.call0(py)?.extract::<bool>(py)).map_err(from_py);
        py.detach(|| self.0.set_decision(Arc::new(decides)));
    }

    /// A pass of a rank without inputs.
    fn shadow(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.shadow()).map_err(converted).py()
    }
}

/// Replaces the gradients of a bucket by an approximation of their means (`PowerSgd`); without a list of them, the
/// bucket is one square matrix. Returns the error, the two lists of factors and the number of elements sent.
#[pyfunction]
fn _power_sgd<'py>(
    py: Python<'py>,
    group: &PyGroup,
    buffer: &Bound<'py, PyTensor>,
    gradients: Option<Vec<Bound<'py, PyTensor>>>,
    error: Option<Bound<'py, PyTensor>>,
    seconds: Vec<Bound<'py, PyTensor>>,
    settings: (usize, f64, bool, f64, u64),
) -> PyResult<(Option<Bound<'py, PyTensor>>, Vec<Bound<'py, PyTensor>>, Vec<Bound<'py, PyTensor>>, usize)> {
    let (rank, min_compression, error_feedback, epsilon, seed) = settings;
    let power = PowerSgd { rank, min_compression, error_feedback, epsilon, seed };
    let tensors = |list: Vec<Bound<'py, PyTensor>>| list.iter().map(|t| t.get().tensor()).collect::<Vec<Tensor>>();
    let (buffer, gradients) = (buffer.get().tensor(), gradients.map(tensors));
    let mut memory =
        PowerSgdMemory { error: error.map(|t| t.get().tensor()), firsts: Vec::new(), seconds: tensors(seconds) };
    let group = group.0.clone();
    let sent = py.detach(|| match &gradients {
        Some(list) => power.reduce(&buffer, &list.iter().collect::<Vec<_>>(), &mut memory, &*group),
        None => power.reduce_as_square(&buffer, &mut memory, &*group),
    });
    let sent = sent.map_err(converted).py()?;
    let wrapped = |list: Vec<Tensor>| list.into_iter().map(|t| wrap(py, t)).collect::<PyResult<Vec<_>>>();
    let error = memory.error.map(|t| wrap(py, t)).transpose()?;
    Ok((error, wrapped(memory.firsts)?, wrapped(memory.seconds)?, sent))
}

/// Batch normalisation by the statistics of all ranks, recorded. `running` has the running mean, variance and momentum.
#[pyfunction]
fn _sync_batch_norm<'py>(
    py: Python<'py>,
    input: &Bound<'py, PyTensor>,
    weight: Option<Bound<'py, PyTensor>>,
    bias: Option<Bound<'py, PyTensor>>,
    running: Option<(Bound<'py, PyTensor>, Bound<'py, PyTensor>, f64)>,
    eps: f64,
    group: &PyGroup,
) -> PyResult<Bound<'py, PyTensor>> {
    let tensor = |t: &Bound<'py, PyTensor>| t.get().tensor();
    let (input, weight, bias) = (tensor(input), weight.as_ref().map(tensor), bias.as_ref().map(tensor));
    let running = running.map(|(mean, variance, momentum)| (tensor(&mean), tensor(&variance), momentum));
    let group = group.0.clone();
    let out = py.detach(|| {
        let running = running.as_ref().map(|(mean, variance, momentum)| (mean, variance, *momentum));
        sync_batch_norm(&input, weight.as_ref(), bias.as_ref(), running, eps, &group)
    });
    wrap(py, out.map_err(converted).py()?)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_power_sgd, module)?)?;
    module.add_function(wrap_pyfunction!(_sync_batch_norm, module)?)?;
    module.add_class::<PyReducer>()
}
