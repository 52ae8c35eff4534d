//! Kernels of users: a text compiled for a device, and its launch.

use crate::device::PyDevice;
use crate::error::{IntoPyResult, value_error};
use crate::tensor::PyTensor;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rushlight_core::{Device, Error};
use rushlight_tensor::kernel::{DeviceKernel, KernelArg, Language, address};
use rushlight_tensor::program::note_foreign;

/// The language of a device's kernels: `cuda`, `hip`, `opencl`, or `None` where no text is compiled.
#[pyfunction]
fn _kernel_language(device: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    let device = PyDevice::from_object(device)?.resolve(device.py())?;
    Ok(Language::of(device).py()?.map(|language| match language {
        Language::Cuda => "cuda",
        Language::Hip => "hip",
        Language::OpenCl => "opencl",
    }))
}

/// A compiled kernel.
#[pyclass(name = "_Kernel", module = "rushlight._C", frozen)]
pub struct PyKernel {
    kernel: DeviceKernel,
    device: Device,
}

#[pymethods]
impl PyKernel {
    #[new]
    fn new(device: &Bound<'_, PyAny>, source: &str, entry: &str) -> PyResult<Self> {
        let device = PyDevice::from_object(device)?.resolve(device.py())?;
        Ok(Self { kernel: DeviceKernel::compile(device, source, entry).py()?, device })
    }

    /// Launches it on the current stream. Arguments are tensors of the device or pairs of a number and its type in C.
    fn launch(&self, grid: [u32; 3], block: [u32; 3], shared: u32, args: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let args = args.iter().map(|arg| self.argument(arg)).collect::<PyResult<Vec<_>>>()?;
        note_foreign("a kernel of the user's");
        // SAFETY: the memory is that of the tensors; what the text does with it is the word of the one who wrote it.
        unsafe { self.kernel.launch(grid, block, shared, &args) }.py()
    }
}

impl PyKernel {
    fn argument(&self, arg: &Bound<'_, PyAny>) -> PyResult<KernelArg> {
        if let Ok(tensor) = arg.cast::<PyTensor>() {
            let tensor = tensor.get().tensor();
            let pinned = tensor.device().is_cpu() && rushlight_engines::is_pinned(tensor.storage().ptr());
            if tensor.device() != self.device && !pinned {
                let text = format!("a kernel for {} got a tensor of {}", self.device, tensor.device());
                return Err(Error::device(text)).py();
            }
            return Ok(KernelArg::Memory(address(&tensor)));
        }
        let (number, kind): (Bound<'_, PyAny>, String) = arg
            .extract()
            .map_err(|_| PyTypeError::new_err(format!("Unsupported argument type: {}", arg.get_type())))?;
        Ok(match kind.as_str() {
            "int" => KernelArg::I32(number.extract()?),
            "long" => KernelArg::I64(number.extract()?),
            "float" => KernelArg::F32(number.extract()?),
            "double" => KernelArg::F64(number.extract()?),
            other => return Err(value_error(format!("a kernel's number is int, long, float or double, not {other}"))),
        })
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_kernel_language, module)?)?;
    module.add_class::<PyKernel>()
}
