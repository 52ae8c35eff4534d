//! Tensors as Python values: numbers, lists, sequences, text and deep copies.

use crate::error::{IntoPyResult, runtime_error, type_error};
use crate::serialize::{over_storage, storage_bytes};
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList};
use rushlight_core::{DType, Device, Element, Scalar};
use rushlight_tensor::{Tensor, autograd};

/// A scalar as a Python number.
pub fn number<'py>(py: Python<'py>, value: Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Scalar::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Scalar::Int(i) => i.into_pyobject(py)?.into_any(),
        Scalar::Unsigned(i) => i.into_pyobject(py)?.into_any(),
        Scalar::Float(f) => f.into_pyobject(py)?.into_any(),
        Scalar::Complex(re, im) => PyComplex::from_doubles(py, re, im).into_any(),
    })
}

/// A number that is to become a real one: an error if it has an imaginary part.
fn real_number(value: Scalar, kind: &str) -> PyResult<Scalar> {
    match value {
        Scalar::Complex(_, im) if im != 0.0 => Err(runtime_error(format!(
            "value cannot be converted to type {} without overflow",
            if kind == "int" { "int64_t" } else { "double" }
        ))),
        Scalar::Complex(re, _) => Ok(Scalar::Float(re)),
        value => Ok(value),
    }
}

/// Text of a meta tensor: shape and dtype.
fn meta_repr(t: &Tensor) -> String {
    let sizes: Vec<String> = t.shape().iter().map(usize::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let dtype = match t.dtype() {
        dtype if dtype == crate::dtype::default() => String::new(),
        dtype => format!(", dtype=torch.{dtype}"),
    };
    let recorded = if t.requires_grad() && t.is_leaf() { ", requires_grad=True" } else { "" };
    format!("tensor(..., device='meta', size=({}{comma}){dtype}{recorded})", sizes.join(", "))
}

/// Nested lists of a tensor's elements.
fn nested<'py, T: Copy>(
    py: Python<'py>,
    shape: &[usize],
    elements: &mut std::slice::Iter<'_, T>,
    leaf: &impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match shape {
        [] => match elements.next() {
            Some(&e) => leaf(e),
            None => Err(runtime_error("tolist: a tensor without elements has no number")),
        },
        [n, inner @ ..] => {
            let items = (0..*n).map(|_| nested(py, inner, elements, leaf)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
    }
}

/// A copy that shares its memory with the copies of other tensors over the same memory, made by one `deepcopy`. `None`
/// for a meta tensor, which has no memory.
fn shared_copy(t: &Tensor, memo: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    if t.device() == Device::Meta {
        return Ok(None);
    }
    let py = memo.py();
    // Keys of other objects are their addresses; a storage's has its own kind of key.
    let key = (intern!(py, "storage"), std::sync::Arc::as_ptr(t.storage()) as usize);
    let bytes = match memo.get_item(key) {
        Ok(known) => known.cast_into::<PyTensor>()?.get().tensor(),
        Err(_) => {
            let whole = py.detach(|| storage_bytes(t).and_then(|bytes| bytes.copy())).py()?;
            memo.set_item(key, wrap(py, whole.clone())?)?;
            whole
        }
    };
    over_storage(&bytes, t.layout().clone(), t.dtype()).py().map(Some)
}

/// The only element. The GIL is released while a device works: only then does reading take long.
fn read_scalar(py: Python<'_>, tensor: &Tensor) -> PyResult<Scalar> {
    match tensor.device().is_cpu() {
        true => tensor.to_scalar().py(),
        false => py.detach(|| tensor.to_scalar()).py(),
    }
}

/// All elements, without the GIL: the device may still work on them, or there are many.
fn elements<T: Element>(py: Python<'_>, tensor: &Tensor) -> PyResult<Vec<T>> {
    py.detach(|| tensor.to_vec::<T>()).py()
}

impl PyTensor {
    /// The only element, for `float()` and `int()`.
    fn number(&self, py: Python<'_>) -> PyResult<Scalar> {
        let tensor = self.tensor();
        match tensor.numel() {
            1 => read_scalar(py, &tensor),
            _ => Err(PyValueError::new_err("only one element tensors can be converted to Python scalars")),
        }
    }
}

/// The answer of a mode to a question about a tensor's values.
fn watched<'py>(name: &str, slf: &Bound<'py, PyTensor>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !crate::overrides::watched() {
        return Ok(None);
    }
    crate::overrides::method(name, slf, &[])
}

/// The only element of an object whose class handles its ops.
fn handled<'py>(slf: &Bound<'py, PyTensor>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !slf.get().dispatches() || !crate::overrides::is_dispatch_on() {
        return Ok(None);
    }
    slf.py().import("rushlight._dispatch")?.call_method1("item", (slf,)).map(Some)
}

#[pymethods]
impl PyTensor {
    fn item<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(answer) = watched("item", slf)? {
            return Ok(answer);
        }
        if let Some(answer) = handled(slf)? {
            return Ok(answer);
        }
        let value = read_scalar(slf.py(), &slf.get().tensor())?;
        number(slf.py(), value)
    }

    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        match t.dtype() {
            d if d.is_float() => {
                let v = elements::<f64>(py, &t)?;
                nested(py, t.shape(), &mut v.iter(), &|e| Ok(e.into_pyobject(py)?.into_any()))
            }
            d if d.is_complex() => {
                let parts = elements::<f64>(py, &py.detach(|| t.detach().view_as_real()).py()?)?;
                let v: Vec<[f64; 2]> = parts.chunks_exact(2).map(|p| [p[0], p[1]]).collect();
                nested(py, t.shape(), &mut v.iter(), &|[re, im]| Ok(PyComplex::from_doubles(py, re, im).into_any()))
            }
            DType::Bool => {
                let v = elements::<bool>(py, &t)?;
                nested(py, t.shape(), &mut v.iter(), &|e| Ok(e.into_pyobject(py)?.to_owned().into_any()))
            }
            DType::U64 => {
                let v = elements::<u64>(py, &t)?;
                nested(py, t.shape(), &mut v.iter(), &|e| Ok(e.into_pyobject(py)?.into_any()))
            }
            _ => {
                let v = elements::<i64>(py, &t)?;
                nested(py, t.shape(), &mut v.iter(), &|e| Ok(e.into_pyobject(py)?.into_any()))
            }
        }
    }

    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        if let Some(answer) = watched("__bool__", slf)? {
            return answer.extract();
        }
        let t = slf.get().tensor();
        if t.numel() == 1
            && let Some(answer) = handled(slf)?
        {
            return answer.is_truthy();
        }
        match t.numel() {
            1 => Ok(!read_scalar(slf.py(), &t)?.is_zero()),
            0 => Err(runtime_error("Boolean value of Tensor with no values is ambiguous")),
            _ => Err(runtime_error("Boolean value of Tensor with more than one value is ambiguous")),
        }
    }

    fn __float__(slf: &Bound<'_, Self>) -> PyResult<f64> {
        let answer = match watched("__float__", slf)? {
            Some(answer) => Some(answer),
            None => handled(slf)?,
        };
        match answer {
            Some(answer) => answer.extract(),
            None => Ok(real_number(slf.get().number(slf.py())?, "float")?.to_f64()),
        }
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyComplex>> {
        let value = self.number(py)?;
        Ok(PyComplex::from_doubles(py, value.to_f64(), value.imag()))
    }

    fn __int__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(answer) = watched("__int__", slf)? {
            return Ok(answer);
        }
        if let Some(answer) = handled(slf)? {
            return answer.call_method0("__int__");
        }
        let py = slf.py();
        let value = real_number(slf.get().number(py)?, "int")?;
        match value {
            Scalar::Float(f) if f.is_nan() => Err(PyValueError::new_err("cannot convert float NaN to integer")),
            Scalar::Float(f) if f.is_infinite() => {
                Err(PyOverflowError::new_err("cannot convert float infinity to integer"))
            }
            // Python's integers have no limit.
            Scalar::Float(f) if f.abs() >= 9.2e18 => number(py, value)?.call_method0("__int__"),
            Scalar::Unsigned(_) => number(py, value),
            value => number(py, Scalar::Int(value.to_i64())),
        }
    }

    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        if t.dtype().is_differentiable() || t.numel() != 1 {
            return Err(PyTypeError::new_err("only integer tensors of a single element can be converted to an index"));
        }
        match read_scalar(py, &t)? {
            value @ Scalar::Unsigned(_) => number(py, value),
            value => number(py, Scalar::Int(value.to_i64())),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.tensor().shape().first() {
            Some(&n) => Ok(n),
            None => Err(type_error("len() of a 0-d tensor")),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        if t.rank() == 0 {
            return Err(type_error("iteration over a 0-d tensor"));
        }
        let rows = t.unbind(0).py()?.into_iter().map(|t| wrap(py, t)).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, rows)?.try_iter()?.into_any())
    }

    fn __contains__(&self, element: &Bound<'_, PyAny>) -> PyResult<bool> {
        let t = self.tensor();
        let equal = match (as_tensor(element), crate::convert::scalar(element)?) {
            (Some(other), _) => t.eq(&other.get().tensor()),
            (None, Some(number)) => t.eq(number),
            _ => {
                return Err(runtime_error(format!(
                    "Tensor.__contains__ only supports Tensor or scalar, but you passed in a {}.",
                    element.get_type()
                )));
            }
        };
        equal.and_then(|e| e.any(..)?.item::<bool>()).py()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        let t = slf.get().tensor();
        let text = match t.device() == Device::Meta {
            true => meta_repr(&t),
            false => py.detach(|| t.to_string()),
        };
        let class = slf.get_type();
        if class.is(py.get_type::<PyTensor>()) {
            return Ok(text);
        }
        match class.name()?.to_string().as_str() {
            "Parameter" => Ok(format!("Parameter containing:\n{text}")),
            "Buffer" => Ok(format!("Buffer containing:\n{text}")),
            name => Ok(text.replacen("tensor(", &format!("{name}("), 1)),
        }
    }

    #[pyo3(signature = (spec))]
    fn __format__<'py>(slf: &Bound<'py, Self>, spec: &str) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().with(Tensor::rank) == 0 {
            return PyTensor::item(slf)?.call_method1("__format__", (spec,));
        }
        match spec {
            "" => Ok(slf.str()?.into_any()),
            _ => Err(type_error("unsupported format string passed to Tensor.__format__")),
        }
    }

    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        slf.as_ptr() as isize >> 4
    }

    /// A tensor with a copy of the elements, a copy of the gradient, and the attributes set on this object.
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let key = slf.as_ptr() as usize;
        if let Ok(found) = memo.get_item(key) {
            return Ok(found);
        }
        let t = slf.get().tensor();
        if !t.is_leaf() {
            return Err(runtime_error(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  \
                 If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage",
            ));
        }
        let shared = shared_copy(&t, memo)?;
        let copy = py.detach(|| {
            autograd::no_grad(|| {
                let copy = match shared {
                    Some(copy) => copy,
                    None => t.detach().copy()?,
                };
                let copy = copy.requires_grad_(t.requires_grad())?;
                copy.set_grad(t.grad().map(|g| g.detach().copy()).transpose()?)?;
                Ok(copy)
            })
        });
        let object = py.get_type::<PyTensor>().call_method1("__new__", (slf.get_type(),))?;
        let made = object.cast::<PyTensor>()?;
        made.get().replace(copy.py()?);
        made.get().stand_for_tensor(made);
        memo.set_item(key, &object)?;
        let attributes = slf.getattr("__dict__")?;
        let copied = py.import("copy")?.call_method1("deepcopy", (attributes, memo))?;
        object.getattr("__dict__")?.call_method1("update", (copied,))?;
        Ok(object)
    }
}
