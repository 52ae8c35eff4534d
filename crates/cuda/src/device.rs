//! NVIDIA's GPUs: their number, their properties, and opening one.

use crate::driver::{Driver, attribute};
use crate::nvrtc::Nvrtc;
use crate::{LIBRARIES, cuda_version};
use rushlight_core::backend::Properties;
use rushlight_core::{Device, Error, Result};
use rushlight_gpu::vendor::calls::NO_DEVICE;
use rushlight_gpu::vendor::driver::{MatrixUnits, Opened};
use std::ffi::c_int;
use std::sync::OnceLock;

/// How many GPUs there are.
pub fn count() -> Result<usize> {
    let Some(driver) = started()? else { return Ok(0) };
    let mut count: c_int = 0;
    // SAFETY: an integer to write to.
    driver.check("cuDeviceGetCount", unsafe { (driver.device_count)(&mut count) })?;
    Ok(count as usize)
}

/// The driver, initialised; `None` if it finds no GPU. A failure is not kept: the next call tries again.
fn started() -> Result<Option<&'static Driver>> {
    static DONE: OnceLock<()> = OnceLock::new();
    let driver = Driver::get()?;
    if DONE.get().is_none() {
        // SAFETY: no precondition.
        match unsafe { (driver.init)(0) } {
            NO_DEVICE => return Ok(None),
            code => driver.check("cuInit", code)?,
        }
        DONE.get_or_init(|| ());
    }
    Ok(Some(driver))
}

/// The driver, for a GPU that is there.
fn driver_of(index: usize) -> Result<&'static Driver> {
    let count = count()?;
    started()?
        .filter(|_| index < count)
        .ok_or_else(|| Error::device(format!("cuda:{index} is not there: this machine has {count} CUDA device(s)")))
}

/// A GPU's properties, without starting work on it.
pub fn properties(index: usize) -> Result<Properties> {
    let driver = driver_of(index)?;
    let (mut device, mut memory) = (0, 0usize);
    let mut name = [0 as std::ffi::c_char; 128];
    // SAFETY: each call writes to its arguments, and the name's length is passed with it.
    let get = |which: i32, device: c_int| unsafe {
        let mut value = 0;
        driver.check("cuDeviceGetAttribute", (driver.device_attribute)(&mut value, which, device)).map(|()| value)
    };
    // SAFETY: as above.
    unsafe {
        driver.check("cuDeviceGet", (driver.device_get)(&mut device, index as c_int))?;
        driver.check("cuDeviceGetName", (driver.device_name)(name.as_mut_ptr(), 128, device))?;
        driver.check("cuDeviceTotalMem", (driver.device_memory)(&mut memory, device))?;
    }
    let name: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    Ok(Properties {
        name: String::from_utf8_lossy(&name).into_owned(),
        memory,
        multiprocessors: get(attribute::MULTIPROCESSORS, device)? as usize,
        capability: (get(attribute::CAPABILITY_MAJOR, device)?, get(attribute::CAPABILITY_MINOR, device)?),
        driver: cuda_version(driver.number()),
        runtime: Nvrtc::get()
            .and_then(|nvrtc| nvrtc.number())
            .map_or(String::new(), |(major, minor)| format!("{major}.{minor}")),
    })
}

/// Opens a GPU, whose context becomes the calling thread's.
pub fn open(index: usize) -> Result<Opened> {
    let properties = properties(index)?;
    let driver = driver_of(index)?;
    let compiler = Nvrtc::get()?;
    let (major, minor) = properties.capability;
    if major < 7 {
        return Err(Error::device(format!(
            "cuda:{index} ({}) has compute capability {major}.{minor}; 7.0 or newer is needed",
            properties.name
        )));
    }
    let (mut device, mut context, mut shared) = (0, std::ptr::null_mut(), 0);
    // SAFETY: every call writes to its arguments. The primary context is kept for the life of the process.
    unsafe {
        driver.check("cuDeviceGet", (driver.device_get)(&mut device, index as c_int))?;
        driver.check("cuDevicePrimaryCtxRetain", (driver.context_retain)(&mut context, device))?;
        driver.check("cuCtxSetCurrent", (driver.context_set)(context))?;
        let code = (driver.device_attribute)(&mut shared, attribute::MAX_SHARED_MEMORY, device);
        driver.check("cuDeviceGetAttribute", code)?;
    }
    // Only under this name do Hopper's own instructions (wgmma) exist.
    let arch = format!("sm_{major}{minor}{}", if (major, minor) == (9, 0) { "a" } else { "" });
    // Graphs know of kernels that overlap since CUDA 12.3.
    let wanted = std::env::var_os("RUSHLIGHT_CUDA_OVERLAP").is_none_or(|v| v != "0");
    Ok(Opened {
        device: Device::Cuda(index),
        driver,
        compiler,
        libraries: &LIBRARIES,
        context,
        shared_memory: shared as usize,
        arch,
        matrix_units: MatrixUnits::TensorCores(properties.capability),
        overlap: wanted && major >= 9 && driver.number() >= 12_030,
        properties,
    })
}
