//! DLPack in both directions: tensors over other libraries' memory, and other libraries' arrays over ours.

use crate::device;
use crate::error::{IntoPyResult, value_error};
use crate::exchange::over_memory;
use crate::tensor::{PyTensor, wrap};
use pyo3::exceptions::{PyAssertionError, PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use rushlight_core::{DType, Device, Layout};
use rushlight_tensor::{Stream, Tensor};
use std::ffi::{CStr, c_void};

#[repr(C)]
#[derive(Clone, Copy)]
struct DLDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DLManagedTensor {
    tensor: DLTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// The structure of DLPack 1.0: version first, and flags.
#[repr(C)]
struct DLManagedTensorVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    flags: u64,
    tensor: DLTensor,
}

const READ_ONLY: u64 = 1;
const CPU: i32 = 1;
const CUDA: i32 = 2;
/// Pinned memory of the host.
const CUDA_HOST: i32 = 3;
/// Intel GPUs over SYCL.
const ONE_API: i32 = 14;
const NAME: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

fn data_type(dtype: DType) -> DLDataType {
    let code = match dtype {
        DType::BF16 => 4,
        DType::F8E4M3FN => 10,
        DType::F8E4M3FNUZ => 11,
        DType::F8E5M2 => 12,
        DType::F8E5M2FNUZ => 13,
        DType::F8E8M0FNU => 14,
        d if d.is_float() => 2,
        d if d.is_complex() => 5,
        DType::Bool => 6,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        _ => 0,
    };
    DLDataType { code, bits: dtype.size() as u8 * 8, lanes: 1 }
}

/// The data that an exported capsule keeps alive: the tensor, and the arrays of its description.
struct Exported {
    tensor: Tensor,
    /// Whether the consumer's work may still use the memory when it is returned.
    in_use: bool,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Drop for Exported {
    fn drop(&mut self) {
        if self.in_use {
            // An error means that the device has stopped.
            let _ = rushlight_tensor::synchronize(&self.tensor.device());
        }
    }
}

fn export(t: Tensor, in_use: bool) -> (Box<Exported>, DLTensor) {
    let shape = t.shape().iter().map(|&n| n as i64).collect();
    let strides = t.strides().iter().map(|&n| n as i64).collect();
    let data = t.storage().ptr().wrapping_add(t.layout().offset() * t.dtype().size());
    let device = match t.device() {
        // `hand_over` has rejected meta tensors.
        Device::Cpu | Device::Meta => DLDevice { kind: CPU, id: 0 },
        Device::Cuda(index) => DLDevice { kind: CUDA, id: index as i32 },
        Device::Xpu(index) => DLDevice { kind: ONE_API, id: index as i32 },
    };
    let (ndim, dtype) = (t.rank() as i32, data_type(t.dtype()));
    let mut kept = Box::new(Exported { tensor: t, in_use, shape, strides });
    let tensor = DLTensor {
        data: data.cast(),
        device,
        ndim,
        dtype,
        shape: kept.shape.as_mut_ptr(),
        strides: kept.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    (kept, tensor)
}

unsafe extern "C" fn delete(managed: *mut DLManagedTensor) {
    // SAFETY: made by `Box::into_raw` below; the consumer of the capsule calls this once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: as above.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

/// Frees a capsule that was not consumed.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this with a capsule of one of the two names, or of one that was renamed when
    // consumed.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// Orders a consumer's use of a tensor behind the work that produces it. By the protocol the stream is 1, or missing,
/// for CUDA's default stream, and -1 if the consumer synchronises itself. Any other value is a handle of the
/// consumer's, which cannot be checked: the host then waits for the work. Returns whether the consumer's work must also
/// be awaited before the memory is reused.
fn hand_over(py: Python<'_>, tensor: &Tensor, stream: Option<i64>) -> PyResult<bool> {
    match (tensor.device(), stream) {
        (Device::Meta, _) => Err(PyBufferError::new_err("Cannot pack tensors on meta")),
        (Device::Cpu, None | Some(-1)) | (Device::Cuda(_), Some(-1)) => Ok(false),
        (Device::Xpu(_), _) => Err(PyBufferError::new_err(
            "Cannot pack tensors on xpu: their memory belongs to an OpenCL context, which SYCL libraries do not share; use .cpu()",
        )),
        (Device::Cpu, Some(_)) => Err(PyAssertionError::new_err("stream should be None on cpu.")),
        (Device::Cuda(_), None | Some(1)) => Stream::lend_to_default(tensor.storage()).map(|()| false).py(),
        (device, Some(_)) => py.detach(|| Stream::current(device)?.synchronize()).map(|()| true).py(),
    }
}

/// A tensor as a capsule; versioned if the consumer supports DLPack 1.0.
#[pyfunction]
#[pyo3(signature = (tensor, max_version=None, stream=None))]
fn _to_dlpack<'py>(
    tensor: &Bound<'py, PyTensor>,
    max_version: Option<(u32, u32)>,
    stream: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    let in_use = hand_over(py, &tensor.get().tensor(), stream)?;
    let (kept, description) = export(tensor.get().tensor().detach(), in_use);
    let context = Box::into_raw(kept).cast();
    // SAFETY: a boxed description, a name that lives for ever, and a destructor that fits it.
    unsafe {
        let capsule = if max_version.is_some_and(|(major, _)| major >= 1) {
            let managed = DLManagedTensorVersioned {
                version: [1, 0],
                context,
                deleter: Some(delete_versioned),
                flags: 0,
                tensor: description,
            };
            ffi::PyCapsule_New(Box::into_raw(Box::new(managed)).cast(), VERSIONED.as_ptr(), Some(drop_capsule))
        } else {
            let managed = DLManagedTensor { tensor: description, context, deleter: Some(delete) };
            ffi::PyCapsule_New(Box::into_raw(Box::new(managed)).cast(), NAME.as_ptr(), Some(drop_capsule))
        };
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// A description taken from a capsule; returned to its producer when dropped.
enum Taken {
    Plain(*mut DLManagedTensor),
    Versioned(*mut DLManagedTensorVersioned),
}

// SAFETY: the producer's deleter may be called from any thread; the pointer is used for nothing else.
unsafe impl Send for Taken {}
// SAFETY: as above.
unsafe impl Sync for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        // Python libraries free Python objects in their deleters.
        Python::attach(|_| {
            // SAFETY: taken from a capsule that was renamed, so this is the only one to call it.
            unsafe {
                match *self {
                    Taken::Plain(managed) => {
                        if let Some(deleter) = (*managed).deleter {
                            deleter(managed);
                        }
                    }
                    Taken::Versioned(managed) => {
                        if let Some(deleter) = (*managed).deleter {
                            deleter(managed);
                        }
                    }
                }
            }
        });
    }
}

/// Memory of another library that an accelerator's stream uses: it is returned when the stream has passed its use.
struct Borrowed {
    stream: Option<Stream>,
    _taken: Taken,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // Polled, because a recording thread must not block; an error means a device that has
        // stopped.
        let Some(past) = self.stream.as_ref().and_then(|stream| stream.record_event().ok()) else { return };
        while !past.query().unwrap_or(true) {
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
    }
}

/// A tensor over the memory that a capsule describes. On an accelerator the producer has ordered this thread's stream
/// behind its work.
#[pyfunction]
fn _from_dlpack<'py>(capsule: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTensor>> {
    let (py, object) = (capsule.py(), capsule.as_ptr());
    // SAFETY: the name identifies the pointer's type; renaming marks the capsule as consumed.
    let (taken, flags) = unsafe {
        if ffi::PyCapsule_IsValid(object, NAME.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(object, NAME.as_ptr()).cast::<DLManagedTensor>();
            ffi::PyCapsule_SetName(object, USED.as_ptr());
            (Taken::Plain(managed), 0)
        } else if ffi::PyCapsule_IsValid(object, VERSIONED.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(object, VERSIONED.as_ptr()).cast::<DLManagedTensorVersioned>();
            if (*managed).version[0] > 1 {
                return Err(PyBufferError::new_err(format!(
                    "from_dlpack: DLPack version {:?} is not known",
                    (*managed).version
                )));
            }
            ffi::PyCapsule_SetName(object, USED_VERSIONED.as_ptr());
            (Taken::Versioned(managed), (*managed).flags)
        } else {
            return Err(PyRuntimeError::new_err(
                "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once",
            ));
        }
    };
    // SAFETY: valid until the deleter is called, which `taken` does when dropped.
    let tensor = unsafe {
        match &taken {
            Taken::Plain(managed) => &(**managed).tensor,
            Taken::Versioned(managed) => &(**managed).tensor,
        }
    };
    let device = match tensor.device {
        DLDevice { kind: CPU | CUDA_HOST, .. } => Device::Cpu,
        DLDevice { kind: CUDA, id } if usize::try_from(id).is_ok_and(|id| id < device::count()) => {
            Device::Cuda(id as usize)
        }
        DLDevice { kind, id } => {
            return Err(PyBufferError::new_err(format!(
                "from_dlpack: the tensor is on device {id} of kind {kind}, and only the CPU's and CUDA devices' that are in use here are taken; copy it \
                 to the CPU first"
            )));
        }
    };
    let Some(dtype) = DType::ALL.into_iter().find(|&d| data_type(d) == tensor.dtype) else {
        return Err(PyBufferError::new_err(format!(
            "from_dlpack: no dtype has code {}, {} bits and {} lanes",
            tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
        )));
    };
    let rank = usize::try_from(tensor.ndim).unwrap_or(0);
    // SAFETY: by DLPack, `shape` (and `strides`, unless null) have `ndim` entries.
    let read =
        |p: *mut i64| (0..rank).map(|i| usize::try_from(unsafe { *p.add(i) })).collect::<Result<Vec<usize>, _>>();
    let negative = |_| value_error("from_dlpack: negative sizes and strides are not supported");
    let shape = read(tensor.shape).map_err(negative)?;
    let layout = match tensor.strides.is_null() {
        true => Layout::contiguous(&shape).py()?,
        false => Layout::strided(&shape, &read(tensor.strides).map_err(negative)?, 0).py()?,
    };
    let address = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    if !(address as usize).is_multiple_of(dtype.size()) {
        return Err(value_error("from_dlpack: the data is not aligned to its elements"));
    }
    let stream = if device.is_cpu() { None } else { Some(Stream::current(device).py()?) };
    // SAFETY: the producer keeps memory of this layout on this device alive until its deleter is called.
    let made = unsafe { over_memory(Box::new(Borrowed { stream, _taken: taken }), device, address, layout, dtype)? };
    // Read-only memory is copied.
    let made = if flags & READ_ONLY != 0 { made.copy().py()? } else { made };
    wrap(py, made)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_to_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(_from_dlpack, module)?)?;
    Ok(())
}
