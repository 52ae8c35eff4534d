//! Files of `torch.save`: plain values and tensors go through the core's reader and writer, which run no code.

use crate::dtype::PyDType;
use crate::error::{IntoPyResult, to_py, type_error};
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use rushlight_core::{DType, Layout, Result};
use rushlight_io::{LoadOptions, pt};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Dict, Key, Value};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Maximum nesting of containers: deeper ones are rejected, so that the stack does not overflow.
const DEEPEST: usize = 200;

/// Converts a Python value; `None` if only pickle can write it.
fn value(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Value>> {
    if depth > DEEPEST {
        return Ok(None);
    }
    if let Some(tensor) = as_tensor(object) {
        return Ok(Some(Value::Tensor(tensor.get().tensor())));
    }
    let exact = object.get_type();
    let py = object.py();
    Ok(Some(if object.is_none() {
        Value::None
    } else if let Ok(b) = object.cast_exact::<PyBool>() {
        Value::Bool(b.is_true())
    } else if object.cast_exact::<PyInt>().is_ok() {
        match object.extract() {
            Ok(i) => Value::Int(i),
            Err(_) => return Ok(None),
        }
    } else if object.cast_exact::<PyFloat>().is_ok() {
        Value::Float(object.extract()?)
    } else if let Ok(s) = object.cast_exact::<PyString>() {
        Value::Str(s.extract()?)
    } else if let Ok(b) = object.cast_exact::<PyBytes>() {
        Value::Bytes(b.as_bytes().to_vec())
    } else if object.cast_exact::<PyList>().is_ok() || object.cast_exact::<PyTuple>().is_ok() {
        let mut items = Vec::new();
        for item in object.try_iter()? {
            match value(&item?, depth + 1)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        if exact.is(py.get_type::<PyTuple>()) { Value::Tuple(items) } else { Value::List(items) }
    } else if let Ok(dict) = object.cast::<PyDict>()
        && let ordered = is_ordered_dict(&exact)?
        && (ordered || object.cast_exact::<PyDict>().is_ok())
    {
        let mut out = Dict::new();
        for (key, item) in dict.iter() {
            let key = if let Ok(text) = key.cast_exact::<PyString>() {
                Key::Str(text.extract()?)
            } else if key.cast_exact::<PyInt>().is_ok()
                && let Ok(i) = key.extract()
            {
                Key::Int(i)
            } else {
                return Ok(None);
            };
            match value(&item, depth + 1)? {
                Some(item) => out.insert(key, item),
                None => return Ok(None),
            };
        }
        if ordered {
            // `_metadata` of a state dict is an attribute.
            match value(&object.getattr("__dict__")?, depth + 1)? {
                Some(Value::Dict(attributes)) => out = out.ordered(attributes),
                _ => return Ok(None),
            }
        }
        Value::Dict(out)
    } else {
        return Ok(None);
    }))
}

/// Python's `collections.OrderedDict`.
fn ordered_dict(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("collections")?.getattr("OrderedDict")
}

/// Whether a class is `collections.OrderedDict` itself.
fn is_ordered_dict(class: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(class.name()? == "OrderedDict" && class.is(&ordered_dict(class.py())?))
}

/// Turns the value of a file into Python's objects.
struct Objects<'py> {
    py: Python<'py>,
    /// Ids of tensors that are parameters, and the objects of those made so far: one for each.
    parameters: HashSet<usize>,
    made: HashMap<usize, Bound<'py, PyAny>>,
}

impl<'py> Objects<'py> {
    fn of(py: Python<'py>, (value, parameters): (Value, HashSet<usize>)) -> PyResult<Bound<'py, PyAny>> {
        Self { py, parameters, made: HashMap::new() }.object(&value)
    }

    fn tensor(&mut self, t: &Tensor) -> PyResult<Bound<'py, PyAny>> {
        if !self.parameters.contains(&t.id()) {
            return Ok(wrap(self.py, t.clone())?.into_any());
        }
        if let Some(made) = self.made.get(&t.id()) {
            return Ok(made.clone());
        }
        let class = self.py.import("rushlight.nn.parameter")?.getattr("Parameter")?;
        let made = class.call1((wrap(self.py, t.detach())?, t.requires_grad()))?;
        self.made.insert(t.id(), made.clone());
        Ok(made)
    }

    fn object(&mut self, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match value {
            Value::None => py.None().into_bound(py),
            Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
            Value::Int(i) => i.into_pyobject(py)?.into_any(),
            Value::Float(f) => f.into_pyobject(py)?.into_any(),
            Value::Str(s) => PyString::new(py, s).into_any(),
            Value::Bytes(b) => PyBytes::new(py, b).into_any(),
            Value::Tensor(t) => self.tensor(t)?,
            Value::List(items) => {
                PyList::new(py, items.iter().map(|v| self.object(v)).collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Value::Tuple(items) => {
                PyTuple::new(py, items.iter().map(|v| self.object(v)).collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Value::Dict(dict) => {
                let out = if dict.is_ordered() { ordered_dict(py)?.call0()? } else { PyDict::new(py).into_any() };
                for (key, item) in dict {
                    match key {
                        Key::Str(text) => out.set_item(text, self.object(item)?)?,
                        Key::Int(i) => out.set_item(i, self.object(item)?)?,
                    }
                }
                for (key, item) in dict.attributes().into_iter().flatten() {
                    out.setattr(key.to_string().as_str(), self.object(item)?)?;
                }
                out
            }
        })
    }
}

/// Writes a value if it is plain. Returns whether it was.
#[pyfunction]
fn _save(py: Python<'_>, obj: &Bound<'_, PyAny>, path: PathBuf) -> PyResult<bool> {
    let Some(value) = value(obj, 0)? else { return Ok(false) };
    py.detach(|| pt::save(&value, &path)).py()?;
    Ok(true)
}

/// The bytes of a file with a plain value, or `None`.
#[pyfunction]
fn _save_bytes<'py>(py: Python<'py>, obj: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let Some(value) = value(obj, 0)? else { return Ok(None) };
    let mut bytes = Vec::new();
    py.detach(|| pt::write(&value, &mut bytes)).py()?;
    Ok(Some(PyBytes::new(py, &bytes)))
}

/// Reads a file without running code; tensors of GPUs return to them if `gpus` is true and they exist.
#[pyfunction]
fn _load(py: Python<'_>, path: PathBuf, mmap: bool, gpus: bool) -> PyResult<Bound<'_, PyAny>> {
    let options = LoadOptions::default()
        .mmap(mmap)
        .gpus(crate::device::numbered(0), if gpus { crate::device::count() } else { 0 });
    Objects::of(py, py.detach(|| pt::load_marked(&path, &options)).map_err(read_error)?)
}

/// Reads the contents of a file without running code.
#[pyfunction]
fn _load_bytes<'py>(py: Python<'py>, data: &Bound<'py, PyBytes>, gpus: bool) -> PyResult<Bound<'py, PyAny>> {
    let bytes = data.as_bytes();
    let options =
        LoadOptions::default().gpus(crate::device::numbered(0), if gpus { crate::device::count() } else { 0 });
    Objects::of(py, py.detach(|| pt::from_bytes_marked(bytes, &options)).map_err(read_error)?)
}

/// A name in a file that is not a plain value raises PyTorch's `UnpicklingError`.
fn read_error(error: rushlight_core::Error) -> PyErr {
    let message = error.to_string();
    if error.kind() == rushlight_core::ErrorKind::Io && message.contains("No such file") {
        return pyo3::exceptions::PyFileNotFoundError::new_err(message);
    }
    if message.contains("not allowed") || message.contains("weights_only") || message.contains("may not") {
        return Python::attach(|py| match py.import("pickle").and_then(|m| m.getattr("UnpicklingError")) {
            Ok(class) => match class.call1((message,)) {
                Ok(raised) => PyErr::from_value(raised),
                Err(failed) => failed,
            },
            Err(failed) => failed,
        });
    }
    to_py(error)
}

/// All bytes of the storage behind a tensor, as a tensor of bytes over it.
pub fn storage_bytes(t: &Tensor) -> Result<Tensor> {
    let layout = Layout::contiguous(&[t.storage().bytes()])?;
    // SAFETY: the storage of a tensor, whole.
    unsafe { Tensor::from_storage(t.storage().clone(), layout, DType::U8) }
}

/// A tensor over another's storage. Bytes of any value are elements of every dtype, `bool` included.
pub fn over_storage(storage: &Tensor, layout: Layout, dtype: DType) -> Result<Tensor> {
    // SAFETY: the storage is a tensor's; the layout is checked against it.
    unsafe { Tensor::from_storage(storage.storage().clone(), layout, dtype) }
}

#[pyfunction]
fn _storage<'py>(tensor: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTensor>> {
    wrap(tensor.py(), storage_bytes(&tensor.get().tensor()).py()?)
}

/// A tensor over a storage, from dtype, sizes, strides and offset.
#[pyfunction]
fn _over_storage<'py>(
    storage: &Bound<'py, PyTensor>,
    dtype: &Bound<'py, PyDType>,
    offset: usize,
    size: Vec<usize>,
    stride: Vec<usize>,
) -> PyResult<Bound<'py, PyTensor>> {
    if size.len() != stride.len() {
        return Err(type_error("a tensor has as many strides as sizes"));
    }
    let layout = Layout::strided(&size, &stride, offset).py()?;
    wrap(storage.py(), over_storage(&storage.get().tensor(), layout, dtype.get().core()?).py()?)
}

/// The address of a tensor's storage: the same for tensors that share it.
#[pyfunction]
fn _storage_address(tensor: &Bound<'_, PyTensor>) -> usize {
    tensor.get().tensor().storage().ptr() as usize
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_save, module)?)?;
    module.add_function(wrap_pyfunction!(_save_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(_load, module)?)?;
    module.add_function(wrap_pyfunction!(_load_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(_storage, module)?)?;
    module.add_function(wrap_pyfunction!(_over_storage, module)?)?;
    module.add_function(wrap_pyfunction!(_storage_address, module)?)?;
    Ok(())
}
