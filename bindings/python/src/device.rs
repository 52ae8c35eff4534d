//! `torch.device`, and the meaning of a device's name on this machine.

use crate::error::{IntoPyResult, runtime_error, type_error};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};
use rushlight_core::backend::{self, Engine};
use rushlight_core::sync::lock;
use rushlight_core::{Device, Result};
use rushlight_engines::{accelerator, accelerators};
use rushlight_monitor::Monitor;

use rushlight_tensor::Tensor;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

/// The device of a tensor: `device("cpu")`, `device("cuda", 1)`, `device("cuda:1")`.
#[pyclass(name = "device", module = "rushlight", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash, Clone)]
pub struct PyDevice {
    pub kind: Kind,
    pub index: Option<usize>,
}

#[derive(PartialEq, Eq, Hash, Clone, Copy)]
pub enum Kind {
    Cpu,
    Cuda,
    Xpu,
    Hip,
    Mps,
    Meta,
    /// A device that PyTorch names and that no engine here has.
    Other(&'static str),
}

/// PyTorch's names of devices that no engine here has.
const OTHERS: [&str; 9] = ["hpu", "ipu", "lazy", "maia", "mtia", "privateuseone", "ve", "vulkan", "xla"];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Cpu => "cpu",
            Kind::Cuda => "cuda",
            Kind::Xpu => "xpu",
            Kind::Hip => "hip",
            Kind::Mps => "mps",
            Kind::Meta => "meta",
            Kind::Other(name) => name,
        }
    }
}

static DEFAULT: Mutex<Device> = Mutex::new(Device::Cpu);
thread_local! {
    /// Devices of the active `with device:` blocks of this thread.
    static BLOCKS: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
    /// The accelerator of a name without an index.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}
static NOTICED: AtomicBool = AtomicBool::new(false);

/// The accelerators found on first use.
struct Found {
    engine: Option<&'static dyn Engine>,
    count: usize,
    /// The process that initialised: a started driver does not survive a fork.
    process: u32,
    /// Why an installed driver did not start.
    failure: Option<String>,
}

static FOUND: LazyLock<Found> = LazyLock::new(|| {
    let (engine, failure) = match std::env::var("RUSHLIGHT_DEVICE").as_deref() {
        Ok("cpu") => (None, None),
        _ => match accelerator() {
            Some(engine) => (Some(engine), None),
            None => (None, accelerators().find_map(failed_driver)),
        },
    };
    let count = engine.map_or(0, |engine| engine.count().unwrap_or(0));
    Found { engine, count, process: std::process::id(), failure }
});

/// Why the driver of an engine does not start. A driver that is not installed is no failure, nor is one without
/// devices.
fn failed_driver(engine: &dyn Engine) -> Option<String> {
    let installed = engine.libraries().first().is_some_and(|(_, driver)| driver.is_ok());
    engine.count().err().filter(|_| installed).map(|e| e.to_string())
}

fn failure() -> Option<&'static str> {
    FOUND.failure.as_deref()
}

/// This process's local rank, which programs use as the index of their accelerator. Without accelerators that is the
/// CPU, too.
fn local_rank() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return rushlight_dist::launch::detect().ok()?.local_rank;
    #[cfg(not(target_os = "linux"))]
    None
}

/// The accelerator of an index, of the kind that this machine has.
pub fn numbered(index: usize) -> Device {
    FOUND.engine.map_or(Device::Cuda(index), |engine| engine.device(index))
}

/// The kind of this machine's accelerators, as PyTorch names it (an AMD GPU is `cuda`, too); `cuda` if there are
/// none.
#[pyfunction]
fn _accelerator_type() -> &'static str {
    FOUND.engine.map_or("cuda", |engine| PyDevice::from(engine.device(0)).kind.name())
}

/// The first of CUDA and HIP whose driver is installed, and its version. Starts no driver, so that processes may still
/// be forked.
#[pyfunction]
fn _accelerator_toolkit() -> Option<(&'static str, String)> {
    rushlight_engines::toolkit()
}

/// Number of accelerators available to programs: none if `RUSHLIGHT_DEVICE` is `cpu`.
pub fn count() -> usize {
    FOUND.count
}

#[pyfunction]
fn _device_count() -> usize {
    count()
}

#[pyfunction]
fn _current_device() -> usize {
    CURRENT.get()
}

#[pyfunction]
fn _set_device(index: usize) -> PyResult<()> {
    if index >= _device_count() {
        return Err(runtime_error(format!(
            "invalid device ordinal {index}: this process sees {} (numbered from 0); ranks that share a device take LOCAL_RANK % device_count()",
            _device_count()
        )));
    }
    CURRENT.set(index);
    Ok(())
}

/// Name, bytes of memory, multiprocessors, compute capability, driver and run time of an accelerator.
#[pyfunction]
fn _device_properties(index: usize) -> PyResult<(String, usize, usize, (i32, i32), String, String)> {
    let engine = accelerator().ok_or_else(|| runtime_error("there is no accelerator"))?;
    let found = engine.properties(index).py()?;
    Ok((found.name, found.memory, found.multiprocessors, found.capability, found.driver, found.runtime))
}

/// Statistics of a GPU from its management library: per cent of time computing and using memory, bytes used, degrees
/// Celsius, watts, MHz. Also works without an engine for the GPU: the index is then CUDA's.
#[pyfunction]
fn _gpu_figures(py: Python<'_>, index: usize) -> PyResult<GpuFigures> {
    static MONITOR: Mutex<Option<Monitor>> = Mutex::new(None);
    let device = match accelerator() {
        Some(engine) => engine.device(index),
        None => Device::Cuda(index),
    };
    py.detach(|| {
        let mut guard = lock(&MONITOR);
        let monitor = guard.get_or_insert_default();
        let mut gpu = monitor.gpu(device)?;
        if gpu.utilisation.is_none() || gpu.power.is_none() {
            // Some libraries report counters; their difference is the value.
            std::thread::sleep(Duration::from_millis(50));
            gpu = monitor.gpu(device)?;
        }
        Ok((gpu.utilisation, gpu.memory_utilisation, gpu.memory_used, gpu.temperature, gpu.power, gpu.clock))
    })
    .py()
}

/// The result of [`_gpu_figures`].
type GpuFigures = (Option<f64>, Option<f64>, Option<u64>, Option<f64>, Option<f64>, Option<f64>);

fn given(device: Option<&Bound<'_, PyAny>>) -> PyResult<Device> {
    device.map_or(Ok(Device::Cpu), |d| PyDevice::from_object(d)?.resolve(d.py()))
}

/// Waits for all work of a device.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn _synchronize(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let device = given(device)?;
    py.detach(|| rushlight_tensor::synchronize(&device)).py()
}

/// Bytes of a device's allocator: in use, held, and the peak of those in use.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn _memory_stats(device: Option<&Bound<'_, PyAny>>) -> PyResult<(usize, usize, usize)> {
    let stats = rushlight_tensor::memory_stats(&given(device)?).py()?;
    Ok((stats.allocated, stats.reserved, stats.peak))
}

#[pyfunction]
#[pyo3(signature = (device=None))]
fn _reset_peak_memory(device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    rushlight_tensor::reset_peak_memory(&given(device)?).py()
}

#[pyfunction]
#[pyo3(signature = (device=None))]
fn _empty_cache(device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    rushlight_tensor::empty_cache(&given(device)?).py()
}

/// Returns unused pinned memory to the system.
#[pyfunction]
fn _empty_pinned_cache() -> PyResult<()> {
    accelerators().filter_map(|engine| engine.pinned_memory()).try_for_each(|memory| memory.empty_cache()).py()
}

/// Whether products of `float32` on accelerators may use TF32; sets it if a value is given.
#[pyfunction]
#[pyo3(signature = (allow=None))]
fn _allow_tf32(allow: Option<bool>) -> bool {
    if let Some(allow) = allow {
        backend::set_allow_tf32(allow);
    }
    backend::allow_tf32()
}

/// The same for convolutions.
#[pyfunction]
#[pyo3(signature = (allow=None))]
fn _allow_tf32_conv(allow: Option<bool>) -> bool {
    if let Some(allow) = allow {
        backend::set_allow_tf32_conv(allow);
    }
    backend::allow_tf32_conv()
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDevice>()?;
    macro_rules! functions {
        ($($name:ident),* $(,)?) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    functions!(
        _accelerator_type,
        _accelerator_toolkit,
        _device_count,
        _current_device,
        _set_device,
        _device_properties,
        _gpu_figures,
        _synchronize,
        _memory_stats,
        _reset_peak_memory,
        _empty_cache,
        _empty_pinned_cache,
        _allow_tf32,
        _allow_tf32_conv,
    );
    Ok(())
}

/// A copy of a tensor in pinned memory; unchanged without an accelerator, or if it copies from
/// any memory.
pub fn pinned(tensor: &Tensor) -> Result<Tensor> {
    let pins = FOUND.engine.is_some_and(|engine| engine.pinned_memory().is_some());
    if tensor.device().is_cpu() && !pins { Ok(tensor.clone()) } else { tensor.pin_memory() }
}

/// The device of new tensors.
pub fn default() -> Device {
    if let Some(device) = BLOCKS.with_borrow(|blocks| blocks.last().copied()) {
        return device;
    }
    *lock(&DEFAULT)
}

pub fn set_default(device: Device) {
    *lock(&DEFAULT) = device;
}

impl From<Device> for PyDevice {
    fn from(device: Device) -> Self {
        match device {
            Device::Cpu => PyDevice { kind: Kind::Cpu, index: None },
            Device::Meta => PyDevice { kind: Kind::Meta, index: None },
            Device::Cuda(index) => PyDevice { kind: Kind::Cuda, index: Some(index) },
            Device::Xpu(index) => PyDevice { kind: Kind::Xpu, index: Some(index) },
        }
    }
}

impl PyDevice {
    fn parse(text: &str) -> PyResult<Self> {
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => match index.parse() {
                Ok(index) => (kind, Some(index)),
                Err(_) => return Err(runtime_error(format!("Invalid device string: '{text}'"))),
            },
            None => (text, None),
        };
        let kind = match kind {
            "cpu" => Kind::Cpu,
            "cuda" => Kind::Cuda,
            "xpu" => Kind::Xpu,
            "hip" => Kind::Hip,
            "mps" => Kind::Mps,
            "meta" => Kind::Meta,
            other => match OTHERS.iter().find(|name| **name == other) {
                Some(name) => Kind::Other(name),
                None => {
                    return Err(runtime_error(format!(
                        "Expected one of cpu, cuda, xpu, hip, mps, meta, {} device type at start of device string: {text}",
                        OTHERS.join(", ")
                    )));
                }
            },
        };
        Ok(PyDevice { kind, index })
    }

    /// Converts PyTorch's device arguments: an object, a string, or the number of an accelerator.
    pub fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(device) = object.cast::<PyDevice>() {
            return Ok(device.get().clone());
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Self::parse(&text.to_string_lossy());
        }
        if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() {
            return Ok(PyDevice { kind: Kind::Cuda, index: Some(object.extract()?) });
        }
        Err(type_error(format!(
            "device(): argument must be torch.device, str or int, not {}",
            object.get_type().name()?
        )))
    }

    /// Resolves a device on this machine. An accelerator's name without an accelerator means the CPU, with one notice.
    pub fn resolve(&self, py: Python<'_>) -> PyResult<Device> {
        match self.kind {
            Kind::Cpu => Ok(Device::Cpu),
            Kind::Meta => Ok(Device::Meta),
            Kind::Other(name) => Err(runtime_error(format!(
                "'{name}': this build has no engine for such devices; devices are cpu, cuda, xpu and meta"
            ))),
            _ if FOUND.count > 0 && FOUND.process != std::process::id() => Err(runtime_error(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
            )),
            _ if FOUND.count > 0 => Ok(numbered(self.index.unwrap_or_else(|| CURRENT.get()))),
            kind if self.index.is_some_and(|index| index > 0 && local_rank() != Some(index)) => {
                Err(runtime_error(format!(
                    "'{}:{}': invalid device ordinal: there is no accelerator here; '{}' alone means the CPU{}",
                    kind.name(),
                    self.index.unwrap_or_default(),
                    kind.name(),
                    failure().map_or(String::new(), |why| format!(". The driver did not start: {why}"))
                )))
            }
            kind => {
                if !NOTICED.swap(true, Relaxed) {
                    let why = failure().map_or(String::new(), |why| format!(" (the driver did not start: {why})"));
                    let text = format!("rushlight: no accelerator here{why}, '{}' means the CPU\0", kind.name());
                    let text = std::ffi::CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default();
                    PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyUserWarning>(), text, 2)?;
                }
                Ok(Device::Cpu)
            }
        }
    }
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index=None))]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<isize>) -> PyResult<Self> {
        let negative = |_| runtime_error("Device index must not be negative");
        if let Ok(number) = r#type.extract::<isize>() {
            usize::try_from(number).map_err(negative)?;
        }
        let index = index.map(usize::try_from).transpose().map_err(negative)?;
        let device = Self::from_object(r#type)?;
        match (device.index, index) {
            (Some(_), Some(_)) => Err(runtime_error(format!(
                "type (string) must not include an index because index was passed explicitly: {}",
                device.__str__()
            ))),
            (None, index) => Ok(PyDevice { kind: device.kind, index }),
            _ => Ok(device),
        }
    }

    #[getter]
    fn r#type(&self) -> &'static str {
        self.kind.name()
    }

    #[getter]
    fn index(&self) -> Option<usize> {
        self.index
    }

    fn __str__(&self) -> String {
        match self.index {
            Some(index) => format!("{}:{index}", self.kind.name()),
            None => self.kind.name().to_string(),
        }
    }

    fn __repr__(&self) -> String {
        match self.index {
            Some(index) => format!("device(type='{}', index={index})", self.kind.name()),
            None => format!("device(type='{}')", self.kind.name()),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (String,)) {
        (slf.get_type().into_any(), (slf.get().__str__(),))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let device = slf.get().resolve(slf.py())?;
        BLOCKS.with_borrow_mut(|blocks| blocks.push(device));
        Ok(slf.clone().into_any())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        BLOCKS.with_borrow_mut(Vec::pop);
    }
}
