//! `torch.Tensor`: the object itself, its attributes and its conversions to Python.

use crate::device::PyDevice;
use crate::dtype::{self, PyDType};
use crate::error::{IntoPyResult, runtime_error, type_error};
use crate::overrides;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple, PyType};
use rushlight_core::{DType, Device, Result, Scalar};
use rushlight_tensor::{Tensor, autograd};
use std::cell::UnsafeCell;

/// A value that only threads holding the GIL touch.
struct Locked<T>(UnsafeCell<T>);

// SAFETY: every access below takes place in a method that Python calls, with its lock held and not released during the
// access.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: one thread at a time (see above), and no access runs Python code, so none happens within another.
        f(unsafe { &*self.0.get() })
    }

    fn replace(&self, value: T) -> T {
        // SAFETY: as above.
        unsafe { std::mem::replace(&mut *self.0.get(), value) }
    }
}

/// A multi-dimensional array with elements of one dtype, on a device, with its place on the autograd tape.
#[pyclass(name = "Tensor", module = "rushlight", subclass, weakref, dict, frozen, freelist = 256)]
pub struct PyTensor {
    tensor: Locked<Tensor>,
    /// The object last given out for `.grad`, so that it is the same each time.
    grad: Locked<Option<Py<PyTensor>>>,
}

impl From<Tensor> for PyTensor {
    #[inline]
    fn from(tensor: Tensor) -> Self {
        PyTensor { tensor: Locked::new(tensor), grad: Locked::new(None) }
    }
}

/// A tensor as a new Python object.
#[inline]
pub fn wrap(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyTensor>> {
    let object = Bound::new(py, PyTensor::from(tensor))?;
    // An object from the free list is not tracked by the garbage collector yet.
    // SAFETY: a live object of a class that takes part in garbage collection, the GIL held.
    unsafe {
        if ffi::PyObject_GC_IsTracked(object.as_ptr()) == 0 {
            ffi::PyObject_GC_Track(object.as_ptr().cast());
        }
    }
    Ok(object)
}

/// The object as a tensor, if it is one.
#[inline]
pub fn as_tensor<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyTensor>> {
    object.cast::<PyTensor>().ok()
}

static SIZE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Sizes as a `torch.Size`.
pub fn size<'py>(py: Python<'py>, sizes: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let class = SIZE.import(py, "rushlight._size", "Size")?;
    class.call1((PyTuple::new(py, sizes)?,))
}

impl PyTensor {
    /// The tensor: a handle to it, as another thread may give this object another one.
    #[inline]
    pub fn tensor(&self) -> Tensor {
        self.tensor.with(Tensor::clone)
    }

    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&Tensor) -> R) -> R {
        self.tensor.with(f)
    }

    /// The only element, for `float()` and `int()`.
    fn number(&self) -> PyResult<Scalar> {
        let tensor = self.tensor();
        match tensor.numel() {
            1 => tensor.to_scalar().py(),
            _ => Err(PyValueError::new_err("only one element tensors can be converted to Python scalars")),
        }
    }

    /// Makes this object refer to another tensor.
    pub fn replace(&self, tensor: Tensor) {
        self.tensor.replace(tensor);
    }

    /// Forgets the gradient.
    pub fn forget_grad(&self) -> Result<()> {
        self.with(|t| t.set_grad(None))?;
        self.grad.replace(None);
        Ok(())
    }

    /// Takes a result given as `out=`: a tensor of another shape becomes one of the result's.
    pub fn store(&self, result: &Tensor) -> Result<()> {
        let target = self.tensor();
        if target.requires_grad() && autograd::is_grad_enabled() {
            return Err(rushlight_core::Error::autograd(
                "functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad",
            ));
        }
        if target.shape() == result.shape() {
            return autograd::no_grad(|| target.copy_(result).map(|_| ()));
        }
        self.replace(autograd::no_grad(|| result.detach().to_dtype(target.dtype())?.copy())?);
        Ok(())
    }
}

/// Shape and dtype of a tensor without elements.
fn meta_repr(t: &Tensor) -> String {
    let sizes: Vec<String> = t.shape().iter().map(usize::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let dtype = match t.dtype() {
        DType::F32 => String::new(),
        dtype => format!(", dtype=torch.{dtype}"),
    };
    let recorded = if t.requires_grad() && t.is_leaf() { ", requires_grad=True" } else { "" };
    format!("tensor(..., device='meta', size=({}{comma}){dtype}{recorded})", sizes.join(", "))
}

/// A number as Python has it.
pub fn number<'py>(py: Python<'py>, value: Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Scalar::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Scalar::Int(i) => i.into_pyobject(py)?.into_any(),
        Scalar::Unsigned(i) => i.into_pyobject(py)?.into_any(),
        Scalar::Float(f) => f.into_pyobject(py)?.into_any(),
    })
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

#[pymethods]
impl PyTensor {
    /// Tells the garbage collector of the gradient's object; PyO3 tells it of the attributes.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.grad.with(|grad| visit.call(grad))
    }

    /// The cycle is broken by the dictionary, which the collector clears itself; the gradient's object is dropped.
    fn __clear__(&self) {
        self.grad.replace(None);
    }

    #[new]
    #[pyo3(signature = (*args, dtype=None, device=None, requires_grad=false))]
    fn new(
        args: &Bound<'_, PyTuple>,
        dtype: Option<&Bound<'_, PyDType>>,
        device: Option<&Bound<'_, PyAny>>,
        requires_grad: bool,
    ) -> PyResult<Self> {
        crate::construct::legacy(args, dtype.map(|d| d.get().core()).transpose()?, device, requires_grad)
            .map(PyTensor::from)
    }

    #[classattr]
    fn __array_priority__() -> i64 {
        1000
    }

    /// An object of a subclass that shares a tensor's elements: for `nn.Parameter`.
    #[classmethod]
    #[pyo3(signature = (data, require_grad=false))]
    fn _make_subclass<'py>(
        cls: &Bound<'py, PyType>,
        data: &Bound<'py, PyTensor>,
        require_grad: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        let tensor = data.get().tensor().detach().requires_grad_(require_grad).py()?;
        let object = py.get_type::<PyTensor>().call_method1("__new__", (cls,))?;
        object.cast::<PyTensor>()?.get().replace(tensor);
        Ok(object)
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        size(py, self.tensor().shape())
    }

    #[pyo3(signature = (dim=None))]
    fn size<'py>(&self, py: Python<'py>, dim: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
        match dim {
            None => self.shape(py),
            Some(dim) => Ok(self.with(|t| t.size(dim)).py()?.into_pyobject(py)?.into_any()),
        }
    }

    #[pyo3(signature = (dim=None))]
    fn stride<'py>(&self, py: Python<'py>, dim: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        match dim {
            None => Ok(PyTuple::new(py, t.strides())?.into_any()),
            Some(dim) => {
                let at = if dim < 0 { dim + t.rank() as isize } else { dim };
                match t.strides().get(at as usize) {
                    Some(stride) => Ok(stride.into_pyobject(py)?.into_any()),
                    None => Err(pyo3::exceptions::PyIndexError::new_err(format!(
                        "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
                        -(t.rank() as isize),
                        t.rank() as isize - 1
                    ))),
                }
            }
        }
    }

    fn storage_offset(&self) -> usize {
        self.with(|t| t.layout().offset())
    }

    fn dim(&self) -> usize {
        self.with(Tensor::rank)
    }

    fn ndimension(&self) -> usize {
        self.dim()
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.dim()
    }

    fn numel(&self) -> usize {
        self.with(Tensor::numel)
    }

    fn nelement(&self) -> usize {
        self.numel()
    }

    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype::object(py, self.with(Tensor::dtype))
    }

    #[getter]
    fn device(&self) -> PyDevice {
        self.with(Tensor::device).into()
    }

    #[getter]
    fn layout<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("rushlight._C")?.getattr("strided")
    }

    #[getter]
    fn itemsize(&self) -> usize {
        self.with(|t| t.dtype().size())
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.with(|t| t.dtype().size() * t.numel())
    }

    fn element_size(&self) -> usize {
        self.itemsize()
    }

    #[getter]
    fn is_cuda(&self) -> bool {
        self.with(|t| matches!(t.device(), Device::Cuda(_)))
    }

    #[getter]
    fn is_cpu(&self) -> bool {
        self.with(|t| t.device().is_cpu())
    }

    #[getter]
    fn is_xpu(&self) -> bool {
        self.with(|t| matches!(t.device(), Device::Xpu(_)))
    }

    #[getter]
    fn is_mps(&self) -> bool {
        false
    }

    #[getter]
    fn is_meta(&self) -> bool {
        self.with(|t| t.device() == Device::Meta)
    }

    #[getter]
    fn is_sparse(&self) -> bool {
        false
    }

    #[getter]
    fn is_quantized(&self) -> bool {
        false
    }

    #[getter]
    fn is_nested(&self) -> bool {
        false
    }

    fn is_floating_point(&self) -> bool {
        self.with(Tensor::is_floating_point)
    }

    fn is_complex(&self) -> bool {
        false
    }

    fn is_signed(&self) -> bool {
        self.with(|t| crate::dtype::is_signed(t.dtype()))
    }

    fn is_inference(&self) -> bool {
        self.with(Tensor::is_inference)
    }

    #[pyo3(signature = (device=None))]
    fn is_pinned(&self, device: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        device.map(PyDevice::from_object).transpose()?;
        Ok(self.with(Tensor::is_pinned))
    }

    /// This tensor in memory of the host that an accelerator copies from by itself; unchanged without an
    /// accelerator.
    #[pyo3(signature = (device=None))]
    fn pin_memory<'py>(slf: &Bound<'py, Self>, device: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, Self>> {
        device.map(PyDevice::from_object).transpose()?;
        let tensor = slf.get().tensor();
        let pinned = crate::device::pinned(&tensor).py()?;
        if pinned.is_same(&tensor) { Ok(slf.clone()) } else { wrap(slf.py(), pinned) }
    }

    fn data_ptr(&self) -> usize {
        if self.is_meta() {
            return 0;
        }
        self.with(|t| t.storage().ptr() as usize + t.layout().offset() * t.dtype().size())
    }

    #[getter]
    fn _version(&self) -> u32 {
        self.with(Tensor::counted_version)
    }

    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.with(Tensor::to_scalar).py()?;
        number(py, value)
    }

    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        match t.dtype() {
            d if d.is_float() => {
                let v = t.to_vec::<f64>().py()?;
                nested(py, t.shape(), &mut v.iter(), &|e| Ok(e.into_pyobject(py)?.into_any()))
            }
            DType::Bool => {
                let v = t.to_vec::<bool>().py()?;
                nested(py, t.shape(), &mut v.iter(), &|e| Ok(e.into_pyobject(py)?.to_owned().into_any()))
            }
            DType::U64 => {
                let v = t.to_vec::<u64>().py()?;
                nested(py, t.shape(), &mut v.iter(), &|e| Ok(e.into_pyobject(py)?.into_any()))
            }
            _ => {
                let v = t.to_vec::<i64>().py()?;
                nested(py, t.shape(), &mut v.iter(), &|e| Ok(e.into_pyobject(py)?.into_any()))
            }
        }
    }

    fn __bool__(&self) -> PyResult<bool> {
        let t = self.tensor();
        match t.numel() {
            1 => Ok(t.to_scalar().py()?.to_f64() != 0.0),
            0 => Err(runtime_error("Boolean value of Tensor with no values is ambiguous")),
            _ => Err(runtime_error("Boolean value of Tensor with more than one value is ambiguous")),
        }
    }

    fn __float__(&self) -> PyResult<f64> {
        Ok(self.number()?.to_f64())
    }

    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.number()?;
        match value {
            Scalar::Float(f) if !f.is_finite() => {
                Err(PyValueError::new_err(format!("cannot convert float {f} to integer")))
            }
            Scalar::Unsigned(_) => number(py, value),
            value => number(py, Scalar::Int(value.to_i64())),
        }
    }

    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        if t.dtype().is_float() || t.numel() != 1 {
            return Err(PyTypeError::new_err("only integer tensors of a single element can be converted to an index"));
        }
        match t.to_scalar().py()? {
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
        let py = slf.py();
        if slf.get().dim() == 0 {
            return slf.get().item(py)?.call_method1("__format__", (spec,));
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
        let copy = py.detach(|| {
            autograd::no_grad(|| {
                let copy = t.detach().copy()?.requires_grad_(t.requires_grad())?;
                copy.set_grad(t.grad().map(|g| g.detach().copy()).transpose()?)?;
                Ok(copy)
            })
        });
        let object = py.get_type::<PyTensor>().call_method1("__new__", (slf.get_type(),))?;
        object.cast::<PyTensor>()?.get().replace(copy.py()?);
        memo.set_item(key, &object)?;
        let attributes = slf.getattr("__dict__")?;
        let copied = py.import("copy")?.call_method1("deepcopy", (attributes, memo))?;
        object.getattr("__dict__")?.call_method1("update", (copied,))?;
        Ok(object)
    }

    // Autograd.

    #[getter]
    fn requires_grad(&self) -> bool {
        self.with(Tensor::requires_grad)
    }

    #[setter]
    fn set_requires_grad(&self, value: bool) -> PyResult<()> {
        self.tensor().requires_grad_(value).py().map(|_| ())
    }

    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        slf.get().set_requires_grad(requires_grad)?;
        Ok(slf.clone())
    }

    #[getter]
    fn is_leaf(&self) -> bool {
        self.with(Tensor::is_leaf)
    }

    #[getter]
    fn retains_grad(&self) -> bool {
        self.with(Tensor::retains_grad)
    }

    fn retain_grad(&self) -> PyResult<()> {
        self.with(Tensor::retain_grad).py()
    }

    #[getter]
    fn get_grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        let Some(grad) = self.with(Tensor::grad) else {
            self.grad.replace(None);
            return Ok(None);
        };
        let known = self.grad.with(|cached| match cached {
            Some(object) if object.get().with(|g| g.is_same(&grad)) => Some(object.clone_ref(py)),
            _ => None,
        });
        if let Some(object) = known {
            return Ok(Some(object.into_bound(py)));
        }
        let object = wrap(py, grad)?;
        self.grad.replace(Some(object.clone().unbind()));
        Ok(Some(object))
    }

    #[setter]
    fn set_grad(&self, grad: Option<Bound<'_, PyTensor>>) -> PyResult<()> {
        self.tensor().set_grad(grad.as_ref().map(|g| g.get().tensor())).py()?;
        self.grad.replace(grad.map(Bound::unbind));
        Ok(())
    }

    #[getter]
    fn get_grad_dtype(&self, py: Python<'_>) -> PyResult<Option<Py<PyDType>>> {
        self.with(Tensor::grad_dtype).map(|d| dtype::object(py, d)).transpose()
    }

    #[setter]
    fn set_grad_dtype(&self, dtype: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let dtype = match &dtype {
            None => None,
            Some(object) => Some(object.cast::<PyDType>().map_err(|_| {
                runtime_error(format!(
                    "grad_dtype must be a torch.dtype or None, but got {}",
                    object.get_type().name().map_or_else(|_| "another object".into(), |n| n.to_string())
                ))
            })?),
        };
        self.tensor().set_grad_dtype(dtype.map(|d| d.get().core()).transpose()?).py()
    }

    /// Adds the gradients of this tensor to the `.grad` of the leaves it was made from.
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward<'py>(
        slf: &Bound<'py, Self>,
        gradient: Option<Bound<'py, PyTensor>>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let tensor = slf.get().tensor();
        let inputs = match inputs {
            None => None,
            Some(inputs) => Some(match as_tensor(&inputs) {
                Some(one) => vec![one.get().tensor()],
                None => inputs
                    .try_iter()?
                    .map(|t| Ok(t?.cast_into::<PyTensor>()?.get().tensor()))
                    .collect::<PyResult<_>>()?,
            }),
        };
        let gradient = gradient.map(|g| g.get().tensor());
        crate::autograd::backward(slf.py(), &[tensor], &[gradient], retain_graph, create_graph, inputs)
    }

    #[getter]
    fn get_data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match overrides::attribute("data", slf)? {
            Some(answer) => Ok(answer),
            None => Ok(wrap(slf.py(), slf.get().with(Tensor::data))?.into_any()),
        }
    }

    /// The object keeps its identity, gradient and hooks' owner; its elements are another tensor's.
    #[setter]
    fn set_data(&self, data: &Bound<'_, PyTensor>) -> PyResult<()> {
        let (old, new) = (self.tensor(), data.get().tensor().detach());
        let new = new.requires_grad_(old.requires_grad()).py()?;
        if let Some(grad) = old.grad()
            && grad.shape() == new.shape()
            && grad.dtype() == new.dtype()
        {
            new.set_grad(Some(grad)).py()?;
        }
        self.replace(new);
        Ok(())
    }

    fn detach<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match overrides::method("detach", slf, &[])? {
            Some(answer) => Ok(answer),
            None => Ok(wrap(slf.py(), slf.get().with(Tensor::detach))?.into_any()),
        }
    }

    fn detach_<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        let detached = slf.get().with(Tensor::detach);
        slf.get().replace(detached);
        slf.clone()
    }
}
