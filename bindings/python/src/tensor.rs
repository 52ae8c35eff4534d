//! `torch.Tensor`: the object and its attributes.

use crate::device::PyDevice;
use crate::dtype::{self, PyDType};
use crate::error::IntoPyResult;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use rushlight_core::{Device, Layout, Result};
use rushlight_tensor::{Tensor, autograd};
use std::cell::UnsafeCell;

/// A value that only threads holding the GIL touch.
pub(crate) struct Locked<T>(UnsafeCell<T>);

// SAFETY: every access below takes place in a method that Python calls, with its lock held and not released during the
// access.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: one thread at a time (see above), and no access runs Python code, so none happens within another.
        f(unsafe { &*self.0.get() })
    }

    pub(crate) fn replace(&self, value: T) -> T {
        // SAFETY: as above.
        unsafe { std::mem::replace(&mut *self.0.get(), value) }
    }
}

/// A multi-dimensional array with elements of one dtype, on a device, with its position on the autograd tape.
#[pyclass(name = "Tensor", module = "rushlight", subclass, weakref, dict, frozen, freelist = 256)]
pub struct PyTensor {
    tensor: Locked<Tensor>,
    /// The last object returned for `.grad`, so that it is the same each time.
    pub(crate) grad: Locked<Option<Py<PyTensor>>>,
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
    /// A handle to the tensor: another thread may replace this object's tensor.
    #[inline]
    pub fn tensor(&self) -> Tensor {
        self.tensor.with(Tensor::clone)
    }

    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&Tensor) -> R) -> R {
        self.tensor.with(f)
    }

    /// Makes this object refer to another tensor.
    pub fn replace(&self, tensor: Tensor) {
        self.tensor.replace(tensor);
    }

    /// Drops the gradient.
    pub fn forget_grad(&self) -> Result<()> {
        self.with(|t| t.set_grad(None))?;
        self.grad.replace(None);
        Ok(())
    }

    /// Stores a result for `out=`: a tensor of another shape gets the result's shape.
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
        // Memory that has room for the result is used: tensors that share it see the result.
        let layout = Layout::contiguous(result.shape())?.with_offset(target.layout().offset());
        let fits = layout.span()? * target.dtype().size() <= target.storage().bytes() && result.numel() > 0;
        let resized = match fits {
            true => crate::serialize::over_storage(&target, layout, target.dtype())?,
            false => Tensor::empty_with(result.shape(), (target.dtype(), target.device()))?,
        };
        autograd::no_grad(|| resized.copy_(result).map(drop))?;
        self.replace(resized);
        Ok(())
    }
}

#[pymethods]
impl PyTensor {
    /// Reports the gradient's object to the garbage collector; PyO3 reports the attributes.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.grad.with(|grad| visit.call(grad))
    }

    /// The collector clears the dictionary itself; dropping the gradient's object breaks the cycle.
    fn __clear__(&self) {
        self.grad.replace(None);
    }

    #[new]
    #[pyo3(signature = (*args, dtype=None, device=None, requires_grad=false))]
    fn new(
        args: &Bound<'_, PyTuple>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        requires_grad: bool,
    ) -> PyResult<Self> {
        crate::construct::legacy(args, dtype::argument("new", dtype)?, device, requires_grad).map(PyTensor::from)
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

    /// A copy of this tensor in pinned memory; unchanged without an
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
}
