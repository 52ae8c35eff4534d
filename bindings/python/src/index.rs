//! `x[…]` and `x[…] = value`.

use crate::convert::{int, scalar};
use crate::error::{IntoPyResult, runtime_error, type_error, value_error};
use crate::overrides;
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyList, PySlice, PyTuple};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Device, Error};
use rushlight_tensor::{Arg, IndexItem, Tensor};

type Items = SmallVec<[IndexItem; 4]>;

fn bound(object: &Bound<'_, PyAny>) -> PyResult<Option<isize>> {
    if object.is_none() {
        return Ok(None);
    }
    match int(object) {
        Ok(Some(i)) => Ok(Some(i as isize)),
        Ok(None) => Err(type_error("slice indices must be integers or None or have an __index__ method")),
        // Python clamps out-of-range bounds.
        Err(_) => Ok(Some(if object.lt(0)? { isize::MIN + 1 } else { isize::MAX })),
    }
}

fn item(object: &Bound<'_, PyAny>) -> PyResult<IndexItem> {
    let py = object.py();
    if let Some(tensor) = as_tensor(object) {
        return Ok(IndexItem::Tensor(tensor.get().tensor()));
    }
    if object.is_none() {
        return Ok(IndexItem::NewAxis);
    }
    if object.is_instance_of::<PyBool>() {
        return Ok(IndexItem::Tensor(Tensor::new(object.extract::<bool>()?).py()?));
    }
    if let Some(i) = int(object)? {
        return Ok(IndexItem::Int(i as isize));
    }
    if object.cast::<PySlice>().is_ok() {
        let [start, end, step] = ["start", "stop", "step"].map(|part| object.getattr(part).and_then(|o| bound(&o)));
        let step = match step?.unwrap_or(1) {
            step @ 1.. => step as usize,
            _ => return Err(value_error("step must be greater than zero")),
        };
        return Ok(IndexItem::Range { start: start?, end: end?, step });
    }
    if object.is(PyEllipsis::get(py)) {
        return Ok(IndexItem::Ellipsis);
    }
    // Lists, arrays and ranges of indices.
    if object.try_iter().is_ok() {
        let tensor = crate::construct::tensor(object, None, Some(Device::Cpu))?;
        // An empty list selects nothing, whatever its dtype.
        let tensor = if tensor.numel() == 0 { tensor.to_dtype(DType::I64).py()? } else { tensor };
        return Ok(IndexItem::Tensor(tensor));
    }
    Err(PyIndexError::new_err(format!(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})",
        object.get_type().name()?
    )))
}

/// Whether an item of a list makes that list a tuple of indices: a list of numbers is an index tensor.
fn makes_tuple(item: &Bound<'_, PyAny>) -> bool {
    item.is_none()
        || item.cast::<PySlice>().is_ok()
        || item.is(PyEllipsis::get(item.py()))
        || as_tensor(item).is_some()
        || item.cast::<PyList>().is_ok()
        || item.cast::<PyTuple>().is_ok()
}

/// Lists from this length on are index tensors, whatever their items.
const LONGEST_TUPLE: usize = 32;

/// The components of an index: a tuple, a list that counts as one, or a single component.
fn items(index: &Bound<'_, PyAny>) -> PyResult<Items> {
    if let Ok(tuple) = index.cast::<PyTuple>() {
        return tuple.iter().map(|o| item(&o)).collect();
    }
    if let Ok(list) = index.cast::<PyList>()
        && list.len() < LONGEST_TUPLE
        && list.iter().any(|o| makes_tuple(&o))
    {
        return list.iter().map(|o| item(&o)).collect();
    }
    Ok(Items::from_iter([item(index)?]))
}

/// The components of an index of a tensor; index tensors may be on the CPU wherever the tensor is.
pub fn items_of(tensor: &Tensor, index: &Bound<'_, PyAny>) -> PyResult<Items> {
    let mut items = items(index)?;
    for _ in items.iter().filter(|item| matches!(item, IndexItem::Tensor(t) if t.dtype() == DType::U8)) {
        let text = c"indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.";
        PyErr::warn(index.py(), &index.py().get_type::<pyo3::exceptions::PyUserWarning>(), text, 1)?;
    }
    if !tensor.device().is_cpu() {
        for item in &mut items {
            if let IndexItem::Tensor(t) = item
                && t.device().is_cpu()
            {
                *t = t.to(tensor.device()).py()?;
            }
        }
    }
    Ok(items)
}

fn is_mask(index: &Tensor) -> bool {
    matches!(index.dtype(), DType::Bool | DType::U8)
}

/// The index with whole dimensions in place of index tensors.
fn without_tensors(items: &[IndexItem]) -> Items {
    let whole = || IndexItem::Range { start: None, end: None, step: 1 };
    items
        .iter()
        .flat_map(|item| match item {
            IndexItem::Tensor(t) if is_mask(t) && t.rank() == 0 => Items::from_iter([IndexItem::NewAxis]),
            IndexItem::Tensor(t) if is_mask(t) => (0..t.rank()).map(|_| whole()).collect(),
            IndexItem::Tensor(_) => Items::from_iter([whole()]),
            other => Items::from_iter([other.clone()]),
        })
        .collect()
}

/// PyTorch's error for values that are elements of the tensor they would be written to by indices.
pub fn refuse_overlap(tensor: &Tensor, values: &Tensor) -> PyResult<()> {
    let extent = |t: &Tensor| {
        let start = t.layout().offset() * t.dtype().size();
        start..start + t.numel() * t.dtype().size()
    };
    let (a, b) = (extent(tensor), extent(values));
    let dense = tensor.layout().is_dense() && values.layout().is_dense();
    let overlap = dense && values.shares_storage(tensor) && a.start < b.end && b.start < a.end;
    if values.is_same(tensor) || overlap {
        return Err(runtime_error(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. \
             Please clone() the tensor before performing the operation.",
        ));
    }
    Ok(())
}

/// The error of `x[…] = value` without the name of a Rust method.
fn unnamed(error: Error) -> Error {
    match error.to_string().strip_prefix("index_assign: ") {
        Some(message) => Error::new(error.kind(), message),
        None => error,
    }
}

#[pymethods]
impl PyTensor {
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(answer) = overrides::method("__getitem__", slf, &[index])? {
            return Ok(answer);
        }
        let t = slf.get().tensor();
        let items = items_of(&t, index)?;
        let copies = items.iter().any(|i| matches!(i, IndexItem::Tensor(_)));
        let out = if copies { py.detach(|| t.index(&items[..])) } else { t.index(&items[..]) };
        Ok(wrap(py, out.py()?)?.into_any())
    }

    fn __setitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>, value: &Bound<'py, PyAny>) -> PyResult<()> {
        let py = slf.py();
        if overrides::method("__setitem__", slf, &[index, value])?.is_some() {
            return Ok(());
        }
        let t = slf.get().tensor();
        let items = items_of(&t, index)?;
        if let Some(value) = as_tensor(value) {
            let value = value.get().tensor();
            // Values are converted when copied, not when scattered by indices.
            let indices: SmallVec<[&Tensor; 4]> =
                items.iter().filter_map(|i| if let IndexItem::Tensor(t) = i { Some(t) } else { None }).collect();
            // One number where a mask is true is a `masked_fill`; an integer in a tensor is an integer.
            let fills = value.numel() == 1 && matches!(&indices[..], [one] if is_mask(one));
            let copies = fills || indices.iter().all(|t| t.rank() == 0 && !is_mask(t));
            // Integers and slices come before index tensors: one that is out of range is told first.
            let rest = if indices.is_empty() { None } else { Some(t.index(&without_tensors(&items)[..]).py()?) };
            // Scattered values must not be elements of the destination. Tensors without dimensions select a view, whose
            // copy to itself changes nothing: `x[i, j] += 1` ends with one.
            if let (Some(rest), false) = (rest, copies) {
                refuse_overlap(&rest, &value)?;
            }
            if !copies && value.dtype() != t.dtype() {
                return Err(runtime_error(format!(
                    "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source.",
                    t.dtype(),
                    value.dtype()
                )));
            }
            return py.detach(|| t.index_assign(&items[..], &value).map(drop)).map_err(unnamed).py();
        }
        let value = match scalar(value)? {
            Some(number) => number,
            None => {
                return Err(type_error(format!("can't assign a {} to a tensor", value.get_type().name()?)));
            }
        };
        py.detach(|| t.index_assign(&items[..], Arg::Scalar(value)).map(drop)).map_err(unnamed).py()
    }

    fn __delitem__(&self, _index: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(type_error("Tensor does not support deleting items"))
    }
}
