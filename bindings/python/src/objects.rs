//! Helpers of the Python part of `Tensor` that do not fit the op table.

use crate::dtype::PyDType;
use crate::error::{IntoPyResult, type_error, value_error};
use crate::index::{items_of, refuse_overlap};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use rushlight_core::{Device, Layout};
use rushlight_tensor::Tensor;

/// Makes an object refer to another tensor; returns the object.
#[pyfunction]
fn _become<'py>(object: &Bound<'py, PyTensor>, tensor: &Bound<'py, PyTensor>) -> Bound<'py, PyTensor> {
    object.get().replace(tensor.get().tensor());
    object.clone()
}

/// An error if a tensor is a leaf that must not be changed in place, or a view of one.
#[pyfunction]
fn _check_leaf_change(tensor: &Bound<'_, PyTensor>, name: &str) -> PyResult<()> {
    tensor.get().tensor().check_leaf_change(name).py()
}

/// Counts a change in place of a tensor; returns it.
#[pyfunction]
fn _count_change<'py>(object: &Bound<'py, PyTensor>) -> Bound<'py, PyTensor> {
    object.get().tensor().note_change();
    object.clone()
}

/// The same tensor, including its position in the graph, as an object of a subclass.
#[pyfunction]
fn _as_subclass<'py>(tensor: &Bound<'py, PyTensor>, class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    let base = tensor.py().get_type::<PyTensor>();
    if !class.is_subclass(&base)? {
        return Err(type_error(format!("as_subclass: expected a subclass of Tensor, got {}", class.name()?)));
    }
    let object = base.call_method1("__new__", (class,))?;
    let made = object.cast::<PyTensor>()?;
    made.get().replace(tensor.get().tensor());
    made.get().heed_dispatch(made)?;
    Ok(object)
}

/// Writes or adds values at indices: in place, or in a copy.
#[pyfunction]
fn _index_put<'py>(
    tensor: &Bound<'py, PyTensor>,
    indices: &Bound<'py, PyAny>,
    values: &Bound<'py, PyTensor>,
    accumulate: bool,
    inplace: bool,
) -> PyResult<Bound<'py, PyTensor>> {
    let (t, values) = (tensor.get().tensor(), values.get().tensor());
    let items = items_of(&t, indices)?;
    let py = tensor.py();
    if inplace {
        t.check_leaf_change("index_put_").py()?;
        refuse_overlap(&t, &values)?;
        py.detach(|| t.index_put_(&items[..], &values, accumulate).map(drop)).py()?;
        return Ok(tensor.clone());
    }
    wrap(py, py.detach(|| t.index_put(&items[..], &values, accumulate)).py()?)
}

/// The elements in row-major order.
#[pyfunction]
fn _to_bytes<'py>(tensor: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyBytes>> {
    let py = tensor.py();
    let t = tensor.get().tensor().detach();
    let t = py.detach(|| t.to(Device::Cpu)?.contiguous()).py()?;
    let count = t.numel() * t.dtype().size();
    let start = t.storage().ptr().wrapping_add(t.layout().offset() * t.dtype().size());
    // SAFETY: a contiguous tensor on the CPU has contiguous elements from its offset on.
    let bytes = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, count) } };
    Ok(PyBytes::new(py, bytes))
}

/// A tensor with elements from bytes, copied.
#[pyfunction]
fn _from_bytes<'py>(
    data: &Bound<'py, PyBytes>,
    dtype: &Bound<'py, PyDType>,
    shape: Vec<usize>,
) -> PyResult<Bound<'py, PyTensor>> {
    let (dtype, bytes) = (dtype.get().core()?, data.as_bytes());
    let layout = Layout::contiguous(&shape).py()?;
    if layout.numel().checked_mul(dtype.size()) != Some(bytes.len()) {
        return Err(value_error(format!(
            "{} bytes are not a tensor of shape {shape:?} and dtype {dtype}",
            bytes.len()
        )));
    }
    let made = Tensor::empty_with(&shape, dtype).py()?;
    // SAFETY: the new tensor has the counted number of bytes, and is not shared yet.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), made.storage().ptr(), bytes.len()) };
    wrap(data.py(), made)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_become, module)?)?;
    module.add_function(wrap_pyfunction!(_check_leaf_change, module)?)?;
    module.add_function(wrap_pyfunction!(_count_change, module)?)?;
    module.add_function(wrap_pyfunction!(_as_subclass, module)?)?;
    module.add_function(wrap_pyfunction!(_index_put, module)?)?;
    module.add_function(wrap_pyfunction!(_to_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(_from_bytes, module)?)?;
    Ok(())
}
