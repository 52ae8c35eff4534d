//! Figures of GPUs and processors: utilisation, memory, power, temperature, clocks, processes.
//!
//! GPUs are queried through the vendor's management library, which is opened at run time: NVML, ROCm SMI or Level Zero
//! Sysman. A figure that a library or a device does not provide is `None`. Without the feature `devices` there are no
//! GPUs.
//!
//! ```
//! let mut monitor = rushlight_monitor::Monitor::new();
//! let sample = monitor.sample();
//! for gpu in &sample.gpus {
//!     println!("{} {}: {:?} %", gpu.vendor, gpu.name, gpu.utilisation);
//! }
//! println!("{} cores", sample.host.cores.len());
//! ```

#[cfg(not(feature = "devices"))]
mod absent;
mod host;
mod json;
#[cfg(feature = "devices")]
mod nvml;
#[cfg(feature = "devices")]
mod rocm;
#[cfg(feature = "devices")]
mod sysman;

#[cfg(not(feature = "devices"))]
use absent::{nvml, rocm, sysman};
pub use host::{Host, HostProcess, process_name};
#[cfg(feature = "devices")]
pub use nvml::visible_index;

use host::HostReader;
use rushlight_core::{Device, Error, Result};

/// Memory of a GPU that a process holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuProcess {
    /// The process.
    pub pid: u32,
    /// Its name; empty if it cannot be known.
    pub name: String,
    /// Bytes, if they are known.
    pub memory: Option<u64>,
}

/// A GPU at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// `nvidia`, `amd` or `intel`.
    pub vendor: String,
    /// The number by which the vendor's library knows the device.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// A name that no other device has.
    pub uuid: String,
    /// Per cent of the time in which it computed.
    pub utilisation: Option<f64>,
    /// Per cent of the time in which its memory was read or written.
    pub memory_utilisation: Option<f64>,
    /// Bytes in use.
    pub memory_used: Option<u64>,
    /// Bytes in all.
    pub memory_total: Option<u64>,
    /// Watts.
    pub power: Option<f64>,
    /// Watts it may draw.
    pub power_limit: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// MHz of its cores.
    pub clock: Option<f64>,
    /// MHz its cores can reach.
    pub clock_limit: Option<f64>,
    /// MHz of its memory.
    pub memory_clock: Option<f64>,
    /// Processes that use it.
    pub processes: Vec<GpuProcess>,
}

/// Everything at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: f64,
    /// The machine.
    pub host: Host,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// Why a library that is there gives nothing.
    pub problems: Vec<String>,
}

/// Takes samples. Rates are those since the sample before, so the first has none.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    host: HostReader,
    sysman: sysman::Counters,
}

impl Monitor {
    /// Opens nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The figures of now.
    pub fn sample(&mut self) -> Sample {
        let mut sample = Sample {
            time: std::time::UNIX_EPOCH.elapsed().map_or(0.0, |d| d.as_secs_f64()),
            host: self.host.read(),
            ..Sample::default()
        };
        let found = [nvml::gpus(), rocm::gpus(), sysman::gpus(&mut self.sysman)];
        for gpus in found {
            match gpus {
                Ok(Some(gpus)) => sample.gpus.extend(gpus),
                Ok(None) => {}
                Err(e) => sample.problems.push(e.to_string()),
            }
        }
        for process in sample.gpus.iter_mut().flat_map(|gpu| &mut gpu.processes) {
            process.name = process_name(process.pid);
        }
        sample
    }

    /// Only the GPUs, without the names of processes: for periodic use by a training run.
    pub fn gpus(&mut self) -> Vec<Gpu> {
        let found = [nvml::gpus(), rocm::gpus(), sysman::gpus(&mut self.sysman)];
        found.into_iter().flatten().flatten().flatten().collect()
    }

    /// The machine alone.
    pub fn host(&mut self) -> Host {
        self.host.read()
    }

    /// The GPU with a program's device number: variables such as `CUDA_VISIBLE_DEVICES` renumber devices.
    pub fn gpu(&mut self, device: Device) -> Result<Gpu> {
        match device {
            Device::Cuda(ordinal) => match nvml::gpu(ordinal) {
                Ok(Some(gpu)) => Ok(gpu),
                // `cuda` is AMD's GPU, too.
                Ok(None) => {
                    rocm::gpu(ordinal)?.ok_or_else(|| Error::device("NVML finds no GPU, and there is no ROCm SMI"))
                }
                Err(e) if nvml::has_gpus() => Err(e),
                Err(e) => rocm::gpu(ordinal)?.ok_or(e),
            },
            Device::Xpu(ordinal) => {
                let found = sysman::gpus(&mut self.sysman)?.unwrap_or_default();
                let known = found.len();
                found.into_iter().nth(ordinal).ok_or_else(|| {
                    Error::device(format!("Level Zero Sysman knows {known} GPUs, not one with the number {ordinal}"))
                })
            }
            other => Err(Error::device(format!("{other} is no GPU: there are no figures of it"))),
        }
    }

    /// Processes that took most processor time since the last call, the busiest first.
    pub fn busiest(&mut self, most: usize) -> Vec<HostProcess> {
        self.host.busiest(most)
    }
}

/// Text up to the first zero.
#[cfg(feature = "devices")]
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
