//! Memory shared with NumPy and other libraries, by the array interface and the buffer protocol.

use crate::error::{IntoPyResult, runtime_error, type_error, value_error};
use crate::tensor::PyTensor;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyTuple};
use rushlight_core::{DType, Device, Layout, Storage};
use rushlight_tensor::Tensor;
use std::ptr::NonNull;
use std::sync::Arc;

/// NumPy's name of a dtype's elements; `bfloat16` and 8-bit floats have none.
fn typestr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I16 => "<i2",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        _ => return None,
    })
}

/// The dtype of an array's or array scalar's elements.
pub fn dtype_of(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let text: String = object.getattr("dtype")?.getattr("str")?.extract()?;
    Ok(DType::ALL.into_iter().find(|&d| typestr(d) == Some(text.as_str())))
}

/// A tensor over memory owned by a Python object.
///
/// # Safety
/// `address` is valid on the device for reads and writes of all elements of the layout for as long as `owner` lives.
pub unsafe fn over_memory(
    owner: Box<dyn std::any::Any + Send + Sync>,
    device: Device,
    address: *mut u8,
    layout: Layout,
    dtype: DType,
) -> PyResult<Tensor> {
    if device.is_cpu() && layout.numel() > 0 && !(address as usize).is_multiple_of(dtype.real().size()) {
        return Err(value_error(format!(
            "the memory at {address:p} is not aligned for elements of {dtype}; copy it first"
        )));
    }
    let bytes = layout.span().py()?.checked_mul(dtype.size()).ok_or_else(|| value_error("the array is too large"))?;
    let address = NonNull::new(address).unwrap_or(NonNull::dangling());
    let backend = rushlight_engines::backend(device).py()?;
    // SAFETY: by this function's contract; an empty layout touches nothing.
    unsafe {
        let storage = Storage::from_owner(backend, address, bytes, owner);
        Tensor::from_storage(Arc::new(storage), layout, dtype).py()
    }
}

/// An object with `__array_interface__` as a tensor over the same memory; `None` if it has none.
pub fn from_array_interface(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    from_array(object, false)
}

/// [`from_array_interface`] for a caller that copies the elements: arrays that cannot be shared are copied by NumPy.
pub fn array_to_copy(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    from_array(object, true)
}

fn from_array(object: &Bound<'_, PyAny>, may_copy: bool) -> PyResult<Option<Tensor>> {
    let Ok(interface) = object.getattr("__array_interface__") else {
        return Ok(None);
    };
    let interface = interface.cast_into::<PyDict>()?;
    let get =
        |key: &str| interface.get_item(key)?.ok_or_else(|| type_error(format!("__array_interface__ lacks '{key}'")));
    let text: String = get("typestr")?.extract()?;
    let Some(dtype) = DType::ALL.into_iter().find(|&d| typestr(d) == Some(text.as_str())) else {
        let name = object.getattr("dtype").and_then(|d| d.getattr("name")).map_or(text, |n| n.to_string());
        return Err(type_error(format!(
            "can't convert np.ndarray of type numpy.{name}. The only supported types are: float64, float32, float16, complex64, complex128, int64, int32, \
             int16, int8, uint64, uint32, uint16, uint8, and bool."
        )));
    };
    let shape: Vec<usize> = get("shape")?.extract()?;
    let (address, read_only): (usize, bool) = get("data")?.extract()?;
    let strides: Option<Vec<isize>> = match interface.get_item("strides")? {
        Some(strides) if !strides.is_none() => Some(strides.extract()?),
        _ => None,
    };
    let size = dtype.size() as isize;
    let is_empty = shape.contains(&0);
    let fits = |s: isize| s >= 0 && s % size == 0;
    if may_copy
        && (!is_empty && !address.is_multiple_of(dtype.real().size()) || strides.iter().flatten().any(|&s| !fits(s)))
        && let Ok(copy) = object.call_method0("copy")
    {
        return from_array(&copy, false);
    }
    let layout = match strides {
        _ if !is_empty && !address.is_multiple_of(dtype.real().size()) => {
            return Err(value_error(
                "given numpy array is not aligned to its element size. Copy the numpy array to reallocate the memory.",
            ));
        }
        None => Layout::contiguous(&shape).py()?,
        Some(strides) if strides.iter().any(|&s| s < 0) => {
            return Err(value_error(
                "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently \
                 supported. (You can probably work around this by making a copy of your array  with array.copy().)",
            ));
        }
        Some(strides) if strides.iter().any(|&s| s % size != 0) => {
            return Err(value_error(
                "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the memory.",
            ));
        }
        Some(strides) => {
            let strides: Vec<usize> = strides.iter().map(|&s| (s / size) as usize).collect();
            Layout::strided(&shape, &strides, 0).py()?
        }
    };
    // SAFETY: the interface promises memory of this shape for as long as the array lives, which the tensor keeps alive.
    let shared =
        unsafe { over_memory(Box::new(object.clone().unbind()), Device::Cpu, address as *mut u8, layout, dtype)? };
    // Read-only memory is copied: an in-place op could not detect it.
    if read_only { shared.copy().py().map(Some) } else { Ok(Some(shared)) }
}

/// The object from which NumPy makes an array without copying: keeps the tensor's memory alive.
#[pyclass(frozen)]
pub struct ArrayView(Tensor);

#[pymethods]
impl ArrayView {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let t = &self.0;
        let Some(text) = typestr(t.dtype()) else {
            return Err(type_error(format!("Got unsupported ScalarType {}", crate::dtype::scalar_type(t.dtype()))));
        };
        let interface = PyDict::new(py);
        let address = t.storage().ptr() as usize + t.layout().offset() * t.dtype().size();
        let strides: Vec<usize> = t.strides().iter().map(|s| s * t.dtype().size()).collect();
        interface.set_item("version", 3)?;
        interface.set_item("typestr", text)?;
        interface.set_item("shape", PyTuple::new(py, t.shape())?)?;
        interface.set_item("strides", PyTuple::new(py, strides)?)?;
        interface.set_item("data", (address, false))?;
        Ok(interface)
    }
}

#[pymethods]
impl PyTensor {
    /// An array over the same memory.
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(&self, py: Python<'py>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        if t.requires_grad() && !force && rushlight_tensor::autograd::is_grad_enabled() {
            return Err(runtime_error(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            ));
        }
        if !t.device().is_cpu() && !force {
            return Err(type_error(format!(
                "can't convert {} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
                t.device()
            )));
        }
        let t = t.detach().to(Device::Cpu).py()?;
        let numpy = py.import("numpy").map_err(|_| runtime_error("Numpy is not available"))?;
        numpy.call_method1("asarray", (Bound::new(py, ArrayView(t))?,))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut array = self.numpy(py, false)?;
        let shared = array.clone();
        if let Some(dtype) = dtype {
            let options = PyDict::new(py);
            options.set_item("copy", false)?;
            array = array.call_method("astype", (dtype,), Some(&options))?;
        }
        if copy == Some(true) && array.is(&shared) { array.call_method0("copy") } else { Ok(array) }
    }

    /// Results of NumPy's functions on tensors are tensors.
    #[pyo3(signature = (array, _context=None, _return_scalar=false))]
    fn __array_wrap__<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        _context: Option<Bound<'py, PyAny>>,
        _return_scalar: bool,
    ) -> PyResult<Bound<'py, PyTensor>> {
        crate::tensor::wrap(array.py(), crate::construct::share(array, None, None)?)
    }
}

/// `torch.frombuffer`: a tensor over an object's buffer.
#[pyfunction]
#[pyo3(signature = (buffer, *, dtype, count=-1, offset=0, requires_grad=false))]
pub fn frombuffer<'py>(
    buffer: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    count: isize,
    offset: isize,
    requires_grad: bool,
) -> PyResult<Bound<'py, PyTensor>> {
    let py = buffer.py();
    let Some(dtype) = crate::dtype::argument("frombuffer", Some(dtype))? else {
        return Err(type_error("frombuffer(): argument 'dtype' must be torch.dtype, not NoneType"));
    };
    // Through Python's own classes: the C functions for buffers are not in the stable ABI of 3.9.
    let view =
        PyMemoryView::from(buffer).map_err(|_| value_error("object does not implement Python buffer protocol."))?;
    if view.getattr("readonly")?.extract::<bool>()? {
        let text = c"The given buffer is not writable, and PyTorch does not support non-writable tensors. The elements were copied.";
        PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyUserWarning>(), text, 1)?;
    }
    let bytes: usize = view.getattr("nbytes")?.extract()?;
    if bytes == 0 || count == 0 {
        return Err(value_error(format!("both buffer length ({bytes}) and count ({count}) must not be 0")));
    }
    let offset = usize::try_from(offset).map_err(|_| {
        value_error(format!(
            "offset ({offset} bytes) must be non-negative and no greater than buffer length ({bytes} bytes) minus 1"
        ))
    })?;
    if offset >= bytes {
        return Err(value_error(format!(
            "offset ({offset} bytes) must be non-negative and no greater than buffer length ({bytes} bytes) minus 1"
        )));
    }
    let room = bytes - offset;
    let count = match usize::try_from(count) {
        Ok(count) => count,
        Err(_) if room.is_multiple_of(dtype.size()) => room / dtype.size(),
        Err(_) => {
            return Err(value_error(format!(
                "buffer length ({room} bytes) after offset ({offset} bytes) must be a multiple of element size ({})",
                dtype.size()
            )));
        }
    };
    if count.checked_mul(dtype.size()).is_none_or(|n| n > room) {
        return Err(value_error(format!(
            "requested buffer length ({count} * {} bytes) after offset ({offset} bytes) must not be greater than actual buffer length ({bytes} bytes)",
            dtype.size()
        )));
    }
    if !view.getattr("c_contiguous")?.extract::<bool>()? {
        return Err(value_error("frombuffer: the buffer is not contiguous; copy it first"));
    }
    let tensor = match lent(&view)? {
        Some((owner, address)) if (address + offset).is_multiple_of(dtype.size()) => {
            let layout = Layout::contiguous(&[count]).py()?;
            // SAFETY: the length was checked, and the owner keeps the buffer exported, so it does not move.
            unsafe { over_memory(Box::new(owner.unbind()), Device::Cpu, (address + offset) as *mut u8, layout, dtype)? }
        }
        _ => {
            let copied = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
            let empty = Tensor::empty_with([count], dtype).py()?;
            // SAFETY: both runs have `count` elements, and a new tensor's memory is nobody else's.
            unsafe {
                let source = copied.as_bytes().as_ptr().add(offset);
                std::ptr::copy_nonoverlapping(source, empty.storage().ptr(), count * dtype.size());
            }
            empty
        }
    };
    crate::tensor::wrap(py, tensor.requires_grad_(requires_grad).py()?)
}

/// The address of a writable buffer, and an object that keeps it alive.
fn lent<'py>(view: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, usize)>> {
    if view.getattr("readonly")?.extract()? {
        return Ok(None);
    }
    let ctypes = view.py().import("ctypes")?;
    let array = ctypes.getattr("c_ubyte")?.mul(view.getattr("nbytes")?)?;
    let owner = array.call_method1("from_buffer", (view.call_method1("cast", ("B",))?,))?;
    let address = ctypes.call_method1("addressof", (&owner,))?.extract()?;
    Ok(Some((owner, address)))
}
