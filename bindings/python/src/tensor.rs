//! `torch.Tensor`: the object and its attributes.

use crate::device::{Kind, PyDevice};
use crate::dtype::{self, PyDType};
use crate::error::{IntoPyResult, runtime_error};
use crate::overrides;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use rushlight_core::{Device, Layout, Result};
use rushlight_tensor::{Tensor, autograd};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

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
    /// The address of this object, once it is the one that stands for its tensor.
    address: AtomicUsize,
    /// Whether the class of this object handles ops of it by `__torch_dispatch__`.
    dispatches: AtomicBool,
    /// For a wrapper, which has no elements of its own: the device that it says it is on.
    place: Locked<Option<Box<PyDevice>>>,
    /// The last object returned for `.grad`, so that it is the same each time.
    pub(crate) grad: Locked<Option<Py<PyTensor>>>,
}

impl From<Tensor> for PyTensor {
    #[inline]
    fn from(tensor: Tensor) -> Self {
        PyTensor {
            tensor: Locked::new(tensor),
            address: AtomicUsize::new(0),
            dispatches: AtomicBool::new(false),
            place: Locked::new(None),
            grad: Locked::new(None),
        }
    }
}

/// An object whose class handles its ops, as a gradient.
struct Carried(Py<PyTensor>);

impl autograd::Foreign for Carried {
    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        Python::attach(|py| {
            let (a, b) = (wrap_known(py, a.clone())?, wrap_known(py, b.clone())?);
            let sum = a.call_method1("add", (b,))?;
            Ok(gradient_of(sum.cast::<PyTensor>()?))
        })
        .map_err(crate::error::from_py)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// An object's tensor as a gradient: the engine carries an object whose class handles its ops.
pub fn gradient_of(object: &Bound<'_, PyTensor>) -> Tensor {
    let tensor = object.get().tensor();
    match object.get().dispatches() {
        true => tensor.carrying(std::sync::Arc::new(Carried(object.clone().unbind()))),
        false => tensor,
    }
}

/// A tensor as a new Python object.
#[inline]
pub fn wrap(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyTensor>> {
    if let Some(carried) = tensor.carried_object()
        && let Some(object) = carried.as_any().downcast_ref::<Carried>()
    {
        return Ok(object.0.bind(py).clone());
    }
    let object = Bound::new(py, PyTensor::from(tensor))?;
    // An object from the free list is not tracked by the garbage collector yet.
    // SAFETY: a live object of a class that takes part in garbage collection, the GIL held.
    unsafe {
        if ffi::PyObject_GC_IsTracked(object.as_ptr()) == 0 {
            ffi::PyObject_GC_Track(object.as_ptr().cast());
        }
    }
    object.get().stand_for_tensor(&object);
    Ok(object)
}

/// The object that stands for a tensor, or a new one: `y._base` is the object that `y` was made from.
pub fn wrap_known(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyTensor>> {
    let address = tensor.front_object() as *mut ffi::PyObject;
    if !address.is_null() {
        // SAFETY: the object clears the number when it is destroyed (`Drop`), with the GIL held as here, so the address
        // is a live object's, or one's whose destruction has begun: its count of references is zero.
        if unsafe { ffi::Py_REFCNT(address) } > 0 {
            // SAFETY: a live object; only addresses of tensors are stored.
            return Ok(unsafe { Bound::from_borrowed_ptr(py, address).cast_into_unchecked::<PyTensor>() });
        }
    }
    wrap(py, tensor)
}

impl Drop for PyTensor {
    fn drop(&mut self) {
        self.step_down();
    }
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
        self.step_down();
        let address = self.address.load(Relaxed);
        if address != 0 {
            tensor.set_front_object(address);
        }
        self.tensor.replace(tensor);
    }

    /// Makes `object`, which is this one, the object of its tensor, if the tensor has none.
    #[inline]
    pub fn stand_for_tensor(&self, object: &Bound<'_, PyTensor>) {
        let address = object.as_ptr() as usize;
        self.address.store(address, Relaxed);
        self.with(|t| {
            if t.front_object() == 0 {
                t.set_front_object(address);
            }
        });
    }

    /// Ends that this object stands for its tensor.
    #[inline]
    fn step_down(&self) {
        let address = self.address.load(Relaxed);
        self.with(|t| {
            if address != 0 && t.front_object() == address {
                t.set_front_object(0);
            }
        });
    }

    /// Whether ops of this object are handled by its class.
    #[inline]
    pub fn dispatches(&self) -> bool {
        self.dispatches.load(Relaxed)
    }

    /// Lets the class of `object`, which is this one, handle its ops if it has a `__torch_dispatch__` of its own.
    pub fn heed_dispatch(&self, object: &Bound<'_, PyTensor>) -> PyResult<()> {
        if overrides::has_dispatch(&object.get_type())? {
            self.dispatches.store(true, Relaxed);
            overrides::note_dispatch();
        }
        Ok(())
    }

    /// The device that this object says it is on.
    fn place(&self) -> PyDevice {
        let place = self.place.with(|place| place.as_deref().cloned());
        place.unwrap_or_else(|| self.with(Tensor::device).into())
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
        let made = object.cast::<PyTensor>()?;
        made.get().replace(tensor);
        made.get().stand_for_tensor(made);
        made.get().heed_dispatch(made)?;
        Ok(object)
    }

    /// An object of a subclass with a size, a dtype and a device, and without elements: its class handles every op by
    /// `__torch_dispatch__`.
    #[classmethod]
    #[pyo3(signature = (size, strides=None, storage_offset=None, memory_format=None, dtype=None, layout=None, device=None, pin_memory=false,
        requires_grad=false, dispatch_sizes_strides_policy=None, dispatch_device=false, dispatch_layout=false, _extra_dispatch_keys=None, storage_size=None))]
    #[expect(clippy::too_many_arguments, reason = "PyTorch's signature")]
    fn _make_wrapper_subclass<'py>(
        cls: &Bound<'py, PyType>,
        size: Vec<usize>,
        strides: Option<Vec<usize>>,
        storage_offset: Option<usize>,
        memory_format: Option<Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyDType>>,
        layout: Option<Bound<'py, PyAny>>,
        device: Option<&Bound<'py, PyAny>>,
        pin_memory: bool,
        requires_grad: bool,
        dispatch_sizes_strides_policy: Option<Bound<'py, PyAny>>,
        dispatch_device: bool,
        dispatch_layout: bool,
        _extra_dispatch_keys: Option<Bound<'py, PyAny>>,
        storage_size: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        if !overrides::has_dispatch(cls)? {
            return Err(runtime_error(format!("{cls} must define __torch_dispatch__")));
        }
        if memory_format.is_some() || pin_memory {
            return Err(runtime_error(
                "_make_wrapper_subclass: a wrapper has no memory; memory_format and pin_memory are not supported, pass strides",
            ));
        }
        if dispatch_sizes_strides_policy.is_some() || dispatch_device || dispatch_layout {
            return Err(pyo3::exceptions::PyNotImplementedError::new_err(
                "_make_wrapper_subclass: sizes, device and layout are fixed when the wrapper is made; define properties on the class instead",
            ));
        }
        // The layout and the size of the storage describe memory that a wrapper does not have.
        let _ = (layout, storage_size);
        let dtype = match dtype {
            Some(dtype) => dtype.get().core()?,
            None => dtype::default(),
        };
        let place = match device {
            Some(device) => PyDevice::from_object(device)?,
            None => PyDevice::from(Device::Cpu),
        };
        let offset = storage_offset.unwrap_or(0);
        let tensor = match strides {
            None if offset == 0 => Tensor::zeros_with(&size, (dtype, Device::Meta)).py()?,
            strides => {
                let strides = match strides {
                    Some(strides) => strides,
                    None => rushlight_core::Layout::contiguous(&size).py()?.strides().to_vec(),
                };
                if strides.len() != size.len() {
                    return Err(runtime_error(format!(
                        "_make_wrapper_subclass: {} strides for {} dimensions",
                        strides.len(),
                        size.len()
                    )));
                }
                let last: usize = size.iter().zip(&strides).map(|(n, s)| n.saturating_sub(1).saturating_mul(*s)).sum();
                let whole = Tensor::zeros_with([offset + last + 1], (dtype, Device::Meta)).py()?;
                whole.as_strided(&size, &strides, offset).py()?.detach()
            }
        };
        let object = py.get_type::<PyTensor>().call_method1("__new__", (cls,))?;
        let made = object.cast::<PyTensor>()?;
        made.get().replace(tensor.requires_grad_(requires_grad).py()?);
        made.get().stand_for_tensor(made);
        made.get().place.replace(Some(Box::new(place)));
        made.get().heed_dispatch(made)?;
        Ok(object)
    }

    #[getter]
    fn shape<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if crate::overrides::watched()
            && let Some(answer) = crate::overrides::attribute("shape", slf)?
        {
            return Ok(answer);
        }
        size(slf.py(), slf.get().tensor().shape())
    }

    #[pyo3(signature = (dim=None))]
    fn size<'py>(slf: &Bound<'py, Self>, dim: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if crate::overrides::watched() {
            let dim = dim.map(|dim| dim.into_pyobject(py)).transpose()?;
            let others: Vec<_> = dim.iter().map(|dim| dim.as_any()).collect();
            if let Some(answer) = crate::overrides::method("size", slf, &others)? {
                return Ok(answer);
            }
        }
        match dim {
            None => size(py, slf.get().tensor().shape()),
            Some(dim) => Ok(slf.get().with(|t| t.size(dim)).py()?.into_pyobject(py)?.into_any()),
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
        self.place()
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
        self.place().kind == Kind::Cuda
    }

    #[getter]
    fn is_cpu(&self) -> bool {
        self.place().kind == Kind::Cpu
    }

    #[getter]
    fn is_xpu(&self) -> bool {
        self.place().kind == Kind::Xpu
    }

    #[getter]
    fn is_mps(&self) -> bool {
        false
    }

    #[getter]
    fn is_meta(&self) -> bool {
        self.place().kind == Kind::Meta
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
        self.with(Tensor::is_complex)
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
        if self.with(Tensor::device) == Device::Meta {
            return 0;
        }
        self.with(|t| t.storage().ptr() as usize + t.layout().offset() * t.dtype().size())
    }

    #[getter]
    fn _version(&self) -> u32 {
        self.with(Tensor::counted_version)
    }
}
