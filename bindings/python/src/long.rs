//! Attention over split sequences and dispatch to experts, for `torch.distributed.tensor.experimental` and
//! `torch.distributed.expert_parallel`.

use crate::dist::PyGroup;
use crate::error::{IntoPyResult, value_error};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use rushlight_dist::context_parallel::{self, Order, RingOptions};
use rushlight_dist::expert_parallel::{self, Dispatch};

/// Attention of this rank's queries over the keys and values of all ranks.
#[pyfunction]
#[pyo3(signature = (q, k, v, is_causal, balanced, scale, group))]
#[allow(clippy::too_many_arguments)]
fn _ring_attention<'py>(
    py: Python<'py>,
    q: &Bound<'py, PyTensor>,
    k: &Bound<'py, PyTensor>,
    v: &Bound<'py, PyTensor>,
    is_causal: bool,
    balanced: bool,
    scale: Option<f64>,
    group: &PyGroup,
) -> PyResult<Bound<'py, PyTensor>> {
    let order = if balanced { Order::Balanced } else { Order::Contiguous };
    let options = RingOptions { is_causal, order, scale };
    let [q, k, v] = [q, k, v].map(|t| t.get().tensor());
    wrap(py, py.detach(|| context_parallel::ring_attention(&q, &k, &v, options, &group.0)).py()?)
}

/// Splits dimension `from` among the ranks and gathers dimension `to`.
#[pyfunction]
fn _all_to_all_dims<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyTensor>,
    from: isize,
    to: isize,
    group: &PyGroup,
) -> PyResult<Bound<'py, PyTensor>> {
    let x = x.get().tensor();
    let dims = x.rank() as isize;
    if ![from, to].iter().all(|d| (-dims..dims).contains(d)) {
        return Err(value_error(format!("all_to_all: dimensions {from} and {to} of a tensor of {dims}")));
    }
    wrap(py, py.detach(|| context_parallel::all_to_all_dims(&x, from, to, &group.0)).py()?)
}

/// Tokens on their way to experts and back.
#[pyclass(name = "_Dispatch", module = "rushlight._C", frozen)]
struct PyDispatch(Dispatch);

#[pymethods]
impl PyDispatch {
    /// Rows of each of this rank's experts.
    #[getter]
    fn counts(&self) -> Vec<usize> {
        self.0.counts().to_vec()
    }

    /// Brings the experts' outputs back to the ranks of their tokens, in the order of the tokens.
    fn combine<'py>(&self, py: Python<'py>, outputs: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTensor>> {
        let outputs = outputs.get().tensor();
        wrap(py, py.detach(|| self.0.combine(&outputs)).py()?)
    }
}

/// Sends each row to the rank of its expert.
#[pyfunction]
fn _dispatch<'py>(
    py: Python<'py>,
    tokens: &Bound<'py, PyTensor>,
    chosen: &Bound<'py, PyTensor>,
    experts: usize,
    group: &PyGroup,
) -> PyResult<(Bound<'py, PyTensor>, PyDispatch)> {
    let (tokens, chosen) = (tokens.get().tensor(), chosen.get().tensor());
    let (rows, way) = py.detach(|| expert_parallel::dispatch(&tokens, &chosen, experts, &group.0)).py()?;
    Ok((wrap(py, rows)?, PyDispatch(way)))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDispatch>()?;
    module.add_function(wrap_pyfunction!(_ring_attention, module)?)?;
    module.add_function(wrap_pyfunction!(_all_to_all_dims, module)?)?;
    module.add_function(wrap_pyfunction!(_dispatch, module)?)
}
