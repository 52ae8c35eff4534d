//! Conversion of Python objects to Rust values.

use crate::device::PyDevice;
use crate::generator::PyGenerator;
use crate::signature::{Kind, Param};
use crate::tensor::{PyTensor, as_tensor};
use crate::value::{Ints, MemoryFormat, Value};
use pyo3::exceptions::{PyNotImplementedError, PyOverflowError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyComplexMethods, PyFloat, PyInt, PyList, PyString, PyTuple};
use rushlight_core::Scalar;

/// `torch.layout`. Tensors of the core are `torch.strided`; Python makes those of sparse layouts.
#[pyclass(name = "layout", module = "rushlight", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyLayout(pub &'static str);

pub const LAYOUTS: [&str; 8] =
    ["strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn"];

#[pymethods]
impl PyLayout {
    fn __repr__(&self) -> String {
        format!("torch.{}", self.0)
    }

    fn __reduce__(&self) -> &'static str {
        self.0
    }
}

/// Whether the object is `torch.sparse_coo` or another sparse layout.
pub fn is_sparse_layout(object: &Bound<'_, PyAny>) -> bool {
    object.cast::<PyLayout>().is_ok_and(|l| l.get().0.starts_with("sparse_"))
}

fn layout(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    match object.cast::<PyLayout>() {
        Ok(l) if l.get().0 == LAYOUTS[0] => Ok(Some(Value::None)),
        Ok(l) => Err(PyNotImplementedError::new_err(format!(
            "layout torch.{} is not supported here; make a dense tensor and call .to_sparse(layout=torch.{})",
            l.get().0,
            l.get().0
        ))),
        Err(_) => Ok(None),
    }
}

/// `torch.memory_format`.
#[pyclass(name = "memory_format", module = "rushlight", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyMemoryFormat(pub MemoryFormat);

#[pymethods]
impl PyMemoryFormat {
    fn __repr__(&self) -> String {
        format!("torch.{}", self.__reduce__())
    }

    fn __reduce__(&self) -> &'static str {
        match self.0 {
            MemoryFormat::Contiguous => "contiguous_format",
            MemoryFormat::Preserve => "preserve_format",
            MemoryFormat::ChannelsLast => "channels_last",
            MemoryFormat::ChannelsLast3d => "channels_last_3d",
        }
    }
}

/// A number, if the object is one: Python's, NumPy's, or a tensor without dimensions.
pub fn scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(object.extract()?)));
    }
    if object.is_instance_of::<PyBool>() {
        return Ok(Some(Scalar::Bool(object.extract()?)));
    }
    if object.is_instance_of::<PyInt>() {
        return match object.extract::<i64>() {
            Ok(i) => Ok(Some(Scalar::Int(i))),
            Err(_) => match object.extract::<u64>() {
                Ok(i) => Ok(Some(Scalar::Unsigned(i))),
                Err(_) => Err(PyOverflowError::new_err("int too big to convert")),
            },
        };
    }
    if let Ok(number) = object.cast::<PyComplex>() {
        return Ok(Some(Scalar::Complex(number.real(), number.imag())));
    }
    if let Some(tensor) = as_tensor(object) {
        let tensor = tensor.get().tensor();
        return match tensor.rank() {
            0 => Ok(Some(tensor.to_scalar().map_err(crate::error::to_py)?)),
            _ => Ok(None),
        };
    }
    numpy_scalar(object)
}

/// NumPy scalars are not Python numbers, but can be converted.
fn numpy_scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    let ty = object.get_type();
    let name = ty.name()?;
    let name = name.to_string_lossy();
    if name.starts_with("bool") && object.hasattr("dtype")? {
        return Ok(Some(Scalar::Bool(object.is_truthy()?)));
    }
    // Arrays are sequences, whatever their class is called.
    // SAFETY: a valid object and the interpreter held.
    let is_number = unsafe { ffi::PyIndex_Check(object.as_ptr()) != 0 && ffi::PySequence_Check(object.as_ptr()) == 0 };
    if is_number {
        return scalar(&object.call_method0("__index__")?);
    }
    if name.starts_with("complex") && object.hasattr("dtype")? {
        let number = |part: &str| object.getattr(part)?.call_method0("__float__")?.extract();
        return Ok(Some(Scalar::Complex(number("real")?, number("imag")?)));
    }
    if name.starts_with("float") && object.hasattr("dtype")? {
        return Ok(Some(Scalar::Float(object.call_method0("__float__")?.extract()?)));
    }
    Ok(None)
}

/// An integer, if the object is one (a bool is not).
pub fn int(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_instance_of::<PyInt>() {
        if object.is_instance_of::<PyBool>() {
            return Ok(None);
        }
        return match object.extract::<i64>() {
            Ok(i) => Ok(Some(i)),
            Err(_) => Err(PyOverflowError::new_err("Overflow when unpacking long")),
        };
    }
    match scalar(object)? {
        Some(Scalar::Int(i)) => Ok(Some(i)),
        _ => Ok(None),
    }
}

/// A list or tuple of integers, if the object is one.
pub fn ints(object: &Bound<'_, PyAny>) -> PyResult<Option<Ints>> {
    let mut out = Ints::new();
    macro_rules! collect {
        ($items:expr) => {
            for item in $items.iter() {
                match int(&item)? {
                    Some(i) => out.push(i),
                    None => return Ok(None),
                }
            }
        };
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        collect!(tuple);
    } else if let Ok(list) = object.cast::<PyList>() {
        collect!(list);
    } else {
        return Ok(None);
    }
    Ok(Some(out))
}

/// The same, where `None` means -1.
fn ints_or_none(object: &Bound<'_, PyAny>) -> PyResult<Option<Ints>> {
    if !object.is_instance_of::<PyTuple>() && !object.is_instance_of::<PyList>() {
        return Ok(None);
    }
    let mut out = Ints::new();
    for item in object.try_iter()? {
        let item = item?;
        match if item.is_none() { Some(-1) } else { int(&item)? } {
            Some(i) => out.push(i),
            None => return Ok(None),
        }
    }
    Ok(Some(out))
}

fn floats(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<f64>>> {
    if !object.is_instance_of::<PyTuple>() && !object.is_instance_of::<PyList>() {
        return Ok(None);
    }
    let mut out = Vec::new();
    for item in object.try_iter()? {
        match scalar(&item?)? {
            Some(s) => out.push(s.to_f64()),
            None => return Ok(None),
        }
    }
    Ok(Some(out))
}

/// Tensors in a list or tuple, if the object is one.
pub fn tensors(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<rushlight_tensor::Tensor>>> {
    if !object.is_instance_of::<PyTuple>() && !object.is_instance_of::<PyList>() {
        return Ok(None);
    }
    let mut out = Vec::new();
    for item in object.try_iter()? {
        match item?.cast::<PyTensor>() {
            Ok(t) => out.push(t.get().tensor()),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(out))
}

/// The value of an argument, or `None` if it is not of the parameter's kind.
pub fn convert(object: &Bound<'_, PyAny>, param: &Param) -> PyResult<Option<Value>> {
    if object.is_none() {
        return Ok(param.nullable.then_some(Value::None));
    }
    Ok(match param.kind {
        Kind::Tensor => as_tensor(object).map(|t| Value::Tensor(t.get().tensor())),
        Kind::TensorOrNumber => match as_tensor(object) {
            Some(t) => Some(Value::Tensor(t.get().tensor())),
            None => scalar(object)?.map(Value::Scalar),
        },
        Kind::Tensors => tensors(object)?.map(Value::Tensors),
        // A number made of a tensor would lose its gradient.
        Kind::Number if as_tensor(object).is_some_and(|t| t.get().tensor().requires_grad()) => None,
        Kind::Number => scalar(object)?.map(Value::Scalar),
        Kind::Int => int(object)?.map(|i| Value::Scalar(Scalar::Int(i))),
        Kind::Ints(0) => ints(object)?.map(Value::Ints),
        Kind::Ints(count) => match ints(object)? {
            Some(list) => Some(Value::Ints(list)),
            None => int(object)?.map(|i| Value::Ints(Ints::from_elem(i, count))),
        },
        Kind::IntsOrNone(count) => match ints_or_none(object)? {
            Some(list) => Some(Value::Ints(list)),
            None => int(object)?.map(|i| Value::Ints(Ints::from_elem(i, count))),
        },
        Kind::VarInts => match ints(object)? {
            Some(list) => Some(Value::Ints(list)),
            None => int(object)?.map(|i| Value::Ints(Ints::from_elem(i, 1))),
        },
        Kind::Float => scalar(object)?.map(|s| Value::Scalar(Scalar::Float(s.to_f64()))),
        Kind::Floats => match floats(object)? {
            Some(list) => Some(Value::Floats(list)),
            None => scalar(object)?.map(|s| Value::Floats(vec![s.to_f64()])),
        },
        Kind::Bool => match scalar(object)? {
            Some(Scalar::Bool(b)) => Some(Value::Scalar(Scalar::Bool(b))),
            _ => None,
        },
        Kind::Str => object.cast::<PyString>().ok().map(|s| Value::Str(s.to_string_lossy().into_owned())),
        Kind::StrOrInts => match object.cast::<PyString>() {
            Ok(s) => Some(Value::Str(s.to_string_lossy().into_owned())),
            Err(_) => match ints(object)? {
                Some(list) => Some(Value::Ints(list)),
                None => int(object)?.map(|i| Value::Ints(Ints::from_elem(i, 1))),
            },
        },
        Kind::DType => crate::dtype::of(object)?.map(Value::DType),
        Kind::Device => Some(Value::Device(PyDevice::from_object(object)?.resolve(object.py())?)),
        Kind::Generator => object.cast::<PyGenerator>().ok().map(|g| Value::Generator(g.get().0.clone())),
        Kind::Layout => layout(object)?,
        Kind::MemoryFormat => object.cast::<PyMemoryFormat>().ok().map(|m| Value::MemoryFormat(m.get().0)),
    })
}
