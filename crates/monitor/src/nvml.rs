//! NVIDIA's management library.

use crate::{Gpu, GpuProcess, text};
use rushlight_core::{Error, Result};
use rushlight_gpu::library_api;
use rushlight_gpu::vendor::library::Search;
use std::ffi::c_void;
use std::sync::OnceLock;

const SEARCH: Search = Search {
    variable: "RUSHLIGHT_MONITOR_PATH",
    toolkit_variables: &[],
    toolkits: &["/usr/lib/wsl"],
    packages: "nvidia",
    companion: None,
};

type Device = *mut c_void;

#[repr(C)]
#[derive(Default)]
struct Utilisation {
    gpu: u32,
    memory: u32,
}

#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Default)]
struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: u32,
    memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

const INSUFFICIENT_SIZE: i32 = 7;
const CLOCK_SM: u32 = 1;
const CLOCK_MEMORY: u32 = 2;
/// Of memory that cannot be known.
const UNKNOWN: u64 = u64::MAX;

library_api! {
    /// Functions of NVML.
    Nvml(
        SEARCH,
        "NVIDIA's management library",
        if cfg!(windows) { &["nvml.dll"] } else { &["libnvidia-ml.so.1", "libnvidia-ml.so"] },
        "It comes with the driver."
    ) {
        fn init = "nvmlInit_v2" ();
        fn count = "nvmlDeviceGetCount_v2" (*mut u32);
        fn handle = "nvmlDeviceGetHandleByIndex_v2" (u32, *mut Device);
        fn name = "nvmlDeviceGetName" (Device, *mut u8, u32);
        fn uuid = "nvmlDeviceGetUUID" (Device, *mut u8, u32);
        fn utilisation = "nvmlDeviceGetUtilizationRates" (Device, *mut Utilisation);
        fn memory = "nvmlDeviceGetMemoryInfo" (Device, *mut Memory);
        fn power = "nvmlDeviceGetPowerUsage" (Device, *mut u32);
        fn temperature = "nvmlDeviceGetTemperature" (Device, u32, *mut u32);
        fn clock = "nvmlDeviceGetClockInfo" (Device, u32, *mut u32);
        optional fn memory2 = "nvmlDeviceGetMemoryInfo_v2" (Device, *mut Memory2);
        optional fn power_limit = "nvmlDeviceGetEnforcedPowerLimit" (Device, *mut u32);
        optional fn clock_limit = "nvmlDeviceGetMaxClockInfo" (Device, u32, *mut u32);
        optional fn processes3 = "nvmlDeviceGetComputeRunningProcesses_v3" (Device, *mut u32, *mut ProcessInfo);
        optional fn processes2 = "nvmlDeviceGetComputeRunningProcesses_v2" (Device, *mut u32, *mut ProcessInfo);
    }
}

fn failed(what: &str, code: i32) -> Error {
    let meaning = match code {
        1 => "not initialised",
        2 => "invalid argument",
        3 => "not supported by this device",
        4 => "no permission",
        6 => "not found",
        9 => "the driver is not loaded",
        15 => "the GPU has fallen off the bus",
        18 => "the library's version is not the driver's; the driver was updated, restart the machine",
        _ => "see `nvidia-smi`",
    };
    Error::device(format!("NVML: {what} failed with code {code}: {meaning}"))
}

fn check(what: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failed(what, code)) }
}

/// The library, initialised once.
fn nvml() -> Result<&'static Nvml> {
    static INITIALISED: OnceLock<Result<()>> = OnceLock::new();
    let nvml = Nvml::get()?;
    INITIALISED
        .get_or_init(|| {
            // SAFETY: takes nothing.
            check("nvmlInit", unsafe { (nvml.init)() })
        })
        .clone()?;
    Ok(nvml)
}

/// All devices; `None` where the library is not installed.
pub fn gpus() -> Result<Option<Vec<Gpu>>> {
    if Nvml::get().is_err() {
        return Ok(None);
    }
    let nvml = nvml()?;
    let count = device_count(nvml)?;
    (0..count).map(|index| read(nvml, index)).collect::<Result<Vec<_>>>().map(Some)
}

fn device_count(nvml: &Nvml) -> Result<u32> {
    let mut count = 0;
    // SAFETY: the pointer is to an integer of this frame.
    check("nvmlDeviceGetCount", unsafe { (nvml.count)(&mut count) })?;
    // A bound against a broken library.
    Ok(count.min(1024))
}

/// Whether NVML knows any device.
pub fn has_gpus() -> bool {
    nvml().and_then(device_count).is_ok_and(|count| count > 0)
}

/// The device that CUDA numbers so; `None` if NVML knows no devices.
pub fn gpu(ordinal: usize) -> Result<Option<Gpu>> {
    let nvml = nvml()?;
    let count = device_count(nvml)?;
    if count == 0 {
        return Ok(None);
    }
    let uuids: Vec<String> = (0..count).map(|index| uuid_of(nvml, index)).collect::<Result<_>>()?;
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    read(nvml, visible_index(visible.as_deref(), &uuids, ordinal)? as u32).map(Some)
}

/// NVML's number of the device that CUDA numbers `ordinal`, given `CUDA_VISIBLE_DEVICES` and the devices' UUIDs.
/// Numbers in the variable are taken in the order of the bus, as PyTorch does.
pub fn visible_index(visible: Option<&str>, uuids: &[String], ordinal: usize) -> Result<usize> {
    let none = || {
        Error::device(format!(
            "device {ordinal} is none of those that variables such as CUDA_VISIBLE_DEVICES leave visible"
        ))
    };
    let Some(visible) = visible else {
        return (ordinal < uuids.len()).then_some(ordinal).ok_or_else(|| {
            Error::device(format!("there is no GPU {ordinal}; the management library knows {}", uuids.len()))
        });
    };
    let mut found = Vec::new();
    for word in visible.split(',').map(str::trim) {
        if word.starts_with("MIG-") {
            return Err(Error::device(
                "CUDA_VISIBLE_DEVICES names a part of a GPU (MIG), whose figures NVML does not provide: use `nvidia-smi`",
            ));
        }
        let index = match word.parse::<usize>() {
            Ok(index) => Some(index).filter(|index| *index < uuids.len()),
            Err(_) => uuids.iter().position(|uuid| !word.is_empty() && uuid.starts_with(word)),
        };
        // CUDA, too, stops at the first that is none.
        match index {
            Some(index) => found.push(index),
            None => break,
        }
    }
    found.get(ordinal).copied().ok_or_else(none)
}

fn handle(nvml: &Nvml, index: u32) -> Result<Device> {
    let mut device = std::ptr::null_mut();
    // SAFETY: the pointer is to a handle of this frame.
    check("nvmlDeviceGetHandleByIndex", unsafe { (nvml.handle)(index, &mut device) })?;
    Ok(device)
}

/// A text of a device, which the function writes with its end.
fn string(device: Device, get: unsafe extern "C" fn(Device, *mut u8, u32) -> i32) -> String {
    let mut bytes = [0u8; 96];
    // SAFETY: the length is the buffer's.
    match unsafe { get(device, bytes.as_mut_ptr(), bytes.len() as u32) } {
        0 => text(&bytes),
        _ => String::new(),
    }
}

fn uuid_of(nvml: &Nvml, index: u32) -> Result<String> {
    Ok(string(handle(nvml, index)?, nvml.uuid))
}

fn read(nvml: &Nvml, index: u32) -> Result<Gpu> {
    let device = handle(nvml, index)?;
    // SAFETY: the function writes one value of the type it is declared with.
    let number = |get: &dyn Fn(*mut u32) -> i32| {
        let mut value = 0u32;
        (get(&mut value) == 0).then_some(f64::from(value))
    };
    let mut rates = Utilisation::default();
    // SAFETY: as above; the device's handle is NVML's.
    let busy = unsafe { (nvml.utilisation)(device, &mut rates) } == 0;
    let (used, total) = memory(nvml, device);
    // SAFETY: as above, for each of the closures.
    let gpu = unsafe {
        Gpu {
            vendor: "nvidia".into(),
            index: index as usize,
            name: string(device, nvml.name),
            uuid: string(device, nvml.uuid),
            utilisation: busy.then_some(f64::from(rates.gpu)),
            memory_utilisation: busy.then_some(f64::from(rates.memory)),
            memory_used: used,
            memory_total: total,
            power: number(&|to| (nvml.power)(device, to)).map(|mw| mw / 1000.0),
            power_limit: nvml.power_limit.and_then(|get| number(&|to| get(device, to))).map(|mw| mw / 1000.0),
            temperature: number(&|to| (nvml.temperature)(device, 0, to)),
            clock: number(&|to| (nvml.clock)(device, CLOCK_SM, to)),
            clock_limit: nvml.clock_limit.and_then(|get| number(&|to| get(device, CLOCK_SM, to))),
            memory_clock: number(&|to| (nvml.clock)(device, CLOCK_MEMORY, to)),
            processes: processes(nvml, device),
        }
    };
    Ok(gpu)
}

/// Bytes used and in all. Like `nvidia-smi`, the newer function excludes the driver's reserved memory.
fn memory(nvml: &Nvml, device: Device) -> (Option<u64>, Option<u64>) {
    if let Some(get) = nvml.memory2 {
        let mut memory = Memory2 { version: size_of::<Memory2>() as u32 | 2 << 24, ..Memory2::default() };
        // SAFETY: the structure is of the version it names.
        if unsafe { get(device, &mut memory) } == 0 {
            return (Some(memory.used), Some(memory.total));
        }
    }
    let mut memory = Memory::default();
    // SAFETY: the structure is the documented one.
    match unsafe { (nvml.memory)(device, &mut memory) } {
        0 => (Some(memory.used), Some(memory.total)),
        _ => (None, None),
    }
}

fn processes(nvml: &Nvml, device: Device) -> Vec<GpuProcess> {
    let Some(get) = nvml.processes3.or(nvml.processes2) else { return Vec::new() };
    let mut found = vec![ProcessInfo::default(); 64];
    for _ in 0..3 {
        let mut count = found.len() as u32;
        // SAFETY: the count is the buffer's length.
        match unsafe { get(device, &mut count, found.as_mut_ptr()) } {
            0 => {
                found.truncate(count as usize);
                let known = |memory: u64| (memory != UNKNOWN).then_some(memory);
                let process = |p: ProcessInfo| GpuProcess { pid: p.pid, name: String::new(), memory: known(p.memory) };
                return found.into_iter().map(process).collect();
            }
            // More were started meanwhile.
            INSUFFICIENT_SIZE => found.resize((count as usize + 16).min(65_536), ProcessInfo::default()),
            _ => return Vec::new(),
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices() {
        let uuids: Vec<String> = ["GPU-aa11", "GPU-bb22", "GPU-cc33"].map(String::from).to_vec();
        let index = |visible: Option<&str>, ordinal| visible_index(visible, &uuids, ordinal).ok();
        assert_eq!((index(None, 2), index(None, 3)), (Some(2), None));
        assert_eq!((index(Some("2,0"), 0), index(Some("2,0"), 1), index(Some("2,0"), 2)), (Some(2), Some(0), None));
        assert_eq!(index(Some("GPU-bb"), 0), Some(1));
        assert_eq!((index(Some(""), 0), index(Some("-1"), 0), index(Some("7,1"), 0)), (None, None, None));
        assert!(visible_index(Some("MIG-x"), &uuids, 0).is_err_and(|e| e.to_string().contains("MIG")));
    }

    #[test]
    fn layouts() {
        assert_eq!((size_of::<Memory2>(), size_of::<ProcessInfo>(), size_of::<Memory>()), (40, 24, 24));
    }
}
