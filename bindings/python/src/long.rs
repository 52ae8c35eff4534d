//! Attention over split sequences, dispatch to experts, and products that overlap their communication, for
//! `torch.distributed.tensor.experimental`, `torch.distributed.expert_parallel` and
//! `torch.distributed._symmetric_memory`.

use crate::dist::{PyGroup, reduce_op};
use crate::error::{IntoPyResult, value_error};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use rushlight_dist::async_tp;
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

/// The whole of a tensor that is split along a dimension, if it is asked for, and its products with matrices.
#[pyfunction]
fn _all_gather_matmul<'py>(
    py: Python<'py>,
    shard: &Bound<'py, PyTensor>,
    matrices: Vec<Bound<'py, PyTensor>>,
    dim: isize,
    with_whole: bool,
    group: &PyGroup,
) -> PyResult<(Option<Bound<'py, PyTensor>>, Vec<Bound<'py, PyTensor>>)> {
    let shard = shard.get().tensor();
    let matrices: Vec<_> = matrices.iter().map(|m| m.get().tensor()).collect();
    let matrices: Vec<_> = matrices.iter().collect();
    let (whole, products) =
        py.detach(|| async_tp::all_gather_matmul(&shard, &matrices, dim, with_whole, &*group.0)).py()?;
    let whole = whole.map(|t| wrap(py, t)).transpose()?;
    Ok((whole, products.into_iter().map(|t| wrap(py, t)).collect::<PyResult<_>>()?))
}

/// This rank's part of the ranks' summed products.
#[pyfunction]
fn _matmul_reduce_scatter<'py>(
    py: Python<'py>,
    a: &Bound<'py, PyTensor>,
    b: &Bound<'py, PyTensor>,
    op: &str,
    dim: isize,
    group: &PyGroup,
) -> PyResult<Bound<'py, PyTensor>> {
    let (a, b, op) = (a.get().tensor(), b.get().tensor(), reduce_op(op)?);
    wrap(py, py.detach(|| async_tp::matmul_reduce_scatter(&a, &b, op, dim, &*group.0)).py()?)
}

/// A layer whose input is gathered along a dimension (`gathers`), or whose output is scattered along it.
#[pyfunction]
fn _overlapped_linear<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyTensor>,
    weight: &Bound<'py, PyTensor>,
    dim: isize,
    gathers: bool,
    group: &PyGroup,
) -> PyResult<Bound<'py, PyTensor>> {
    let (x, weight) = (x.get().tensor(), weight.get().tensor());
    let layer = if gathers { async_tp::gathered_linear } else { async_tp::scattered_linear };
    wrap(py, py.detach(|| layer(&x, &weight, dim, &group.0)).py()?)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDispatch>()?;
    module.add_function(wrap_pyfunction!(_ring_attention, module)?)?;
    module.add_function(wrap_pyfunction!(_all_to_all_dims, module)?)?;
    module.add_function(wrap_pyfunction!(_dispatch, module)?)?;
    module.add_function(wrap_pyfunction!(_all_gather_matmul, module)?)?;
    module.add_function(wrap_pyfunction!(_matmul_reduce_scatter, module)?)?;
    module.add_function(wrap_pyfunction!(_overlapped_linear, module)?)
}
