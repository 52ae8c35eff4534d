//! AMD GPUs: count, properties, opening.

use crate::driver::{Hip, attribute, context};
use crate::hiprtc::Hiprtc;
use crate::{LIBRARIES, hip_version};
use rushlight_core::backend::Properties;
use rushlight_core::{Device, Error, Result};
use rushlight_gpu::vendor::calls::NO_DEVICE;
use rushlight_gpu::vendor::driver::{MatrixUnits, Opened};
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

/// Number of GPUs.
pub fn count() -> Result<usize> {
    let hip = Hip::get()?;
    if started(hip)?.is_none() {
        return Ok(0);
    }
    let mut count: c_int = 0;
    // SAFETY: an integer to write to.
    match unsafe { (hip.device_count)(&mut count) } {
        NO_DEVICE => Ok(0),
        code => hip.check("hipGetDeviceCount", code).map(|()| count as usize),
    }
}

/// Starts the runtime; `None` if it finds no GPU. A failure is not cached: the next call tries again.
fn started(hip: &'static Hip) -> Result<Option<()>> {
    static DONE: OnceLock<()> = OnceLock::new();
    if DONE.get().is_none() {
        // SAFETY: no precondition.
        match unsafe { (hip.init)(0) } {
            NO_DEVICE => return Ok(None),
            code => hip.check("hipInit", code)?,
        }
        DONE.get_or_init(|| ());
    }
    Ok(Some(()))
}

/// The runtime, after checking that GPU `index` exists.
fn runtime_of(index: usize) -> Result<&'static Hip> {
    let count = count()?;
    if index < count {
        return Hip::get();
    }
    Err(Error::device(format!(
        "cuda:{index} is not there: HIP finds {count} AMD device(s). If the machine has one, see that this user may use /dev/kfd and \
         /dev/dri (groups render and video) and that HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES do not hide it"
    )))
}

fn attribute(hip: &Hip, which: i32, index: usize) -> Result<usize> {
    let mut value = 0;
    // SAFETY: an integer to write to.
    hip.check("hipDeviceGetAttribute", unsafe { (hip.device_attribute)(&mut value, which, index as c_int) })?;
    Ok(value as usize)
}

/// The architecture in the compiler's notation, such as `gfx90a:sramecc+:xnack-`. Its offset in `hipDeviceProp_t`
/// depends on the runtime's version, so we search for it behind the name, the first field, which has 256 bytes.
fn architecture(hip: &Hip, index: usize) -> Result<String> {
    // The structure has about 1.5 KiB.
    let mut properties = vec![0u64; 1024];
    let Some(get) = hip.properties_6.or(hip.properties_5) else {
        return Err(Error::device(format!("{} lacks hipGetDeviceProperties: it is too old", hip.path)));
    };
    // SAFETY: the buffer is larger than any version of the structure.
    hip.check("hipGetDeviceProperties", unsafe { get(properties.as_mut_ptr().cast(), index as c_int) })?;
    let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_le_bytes()).collect();
    find_architecture(&bytes[256..])
        .ok_or_else(|| Error::device(format!("hipGetDeviceProperties of {} names no architecture (gfx…)", hip.path)))
}

fn find_architecture(bytes: &[u8]) -> Option<String> {
    let at = bytes.windows(4).position(|w| w.starts_with(b"gfx") && w[3].is_ascii_hexdigit())?;
    let text = bytes[at..].iter().take_while(|&&c| c != 0);
    Some(text.map(|&c| c as char).collect())
}

/// Major and minor number of an architecture, as PyTorch reports them: 9.0 for gfx90a, 9.4 for gfx942, 11.0 for
/// gfx1100.
fn capability(arch: &str) -> (i32, i32) {
    let digits = arch.strip_prefix("gfx").unwrap_or(arch).split(':').next().unwrap_or("");
    let Some((major, rest)) = digits.len().checked_sub(2).and_then(|at| digits.split_at_checked(at)) else {
        return (0, 0);
    };
    let minor = rest.chars().next().and_then(|c| c.to_digit(16)).unwrap_or(0);
    major.parse().map_or((0, 0), |major| (major, minor as i32))
}

/// Properties of a GPU. Creates no context.
pub fn properties(index: usize) -> Result<Properties> {
    let hip = runtime_of(index)?;
    let (mut memory, mut name, mut driver) = (0usize, [0 as c_char; 256], 0);
    // SAFETY: each call writes to its arguments, and the name's length is passed with it.
    unsafe {
        hip.check("hipDeviceGetName", (hip.device_name)(name.as_mut_ptr(), 256, index as c_int))?;
        hip.check("hipDeviceTotalMem", (hip.device_memory)(&mut memory, index as c_int))?;
        hip.check("hipDriverGetVersion", (hip.driver_version)(&mut driver))?;
    }
    let name: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    Ok(Properties {
        name: String::from_utf8_lossy(&name).into_owned(),
        memory,
        multiprocessors: attribute(hip, attribute::MULTIPROCESSORS, index)?,
        capability: capability(&architecture(hip, index)?),
        driver: hip_version(driver),
        runtime: hip_version(hip.number()),
    })
}

/// Whether attention may use MFMA: CDNA 2 and later support it for both half types.
fn matrix_units(arch: &str, wavefront: usize) -> MatrixUnits {
    let known = ["gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"].contains(&arch.split(':').next().unwrap_or(""));
    if known && wavefront == 64 { MatrixUnits::Mfma } else { MatrixUnits::Absent }
}

/// Opens a GPU and makes it the calling thread's current device.
pub fn open(index: usize) -> Result<Opened> {
    let properties = properties(index)?;
    let hip = runtime_of(index)?;
    let compiler = Hiprtc::get()?;
    let arch = architecture(hip, index)?;
    let wavefront = attribute(hip, attribute::WAVEFRONT, index)?;
    if wavefront != 32 && wavefront != 64 {
        return Err(Error::device(format!(
            "cuda:{index} ({}) has wavefronts of {wavefront} lanes; 32 or 64 are needed",
            properties.name
        )));
    }
    // SAFETY: a device that is there.
    hip.check("hipSetDevice", unsafe { (hip.device_set)(index as c_int) })?;
    Ok(Opened {
        device: Device::Cuda(index),
        driver: hip,
        compiler,
        libraries: &LIBRARIES,
        context: context(index),
        shared_memory: attribute(hip, attribute::MAX_SHARED_MEMORY, index)?,
        matrix_units: matrix_units(&arch, wavefront),
        arch,
        overlap: false,
        properties,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_read() {
        assert_eq!(["gfx90a:sramecc+:xnack-", "gfx942", "gfx1100"].map(capability), [(9, 0), (9, 4), (11, 0)]);
        assert_eq!(["", "gfx", "gfx9"].map(capability), [(0, 0); 3]);
        let mut bytes = vec![0u8; 900];
        bytes[700..712].copy_from_slice(b"gfx90a:xnack");
        assert_eq!(find_architecture(&bytes).as_deref(), Some("gfx90a:xnack"));
        assert_eq!(find_architecture(&[0; 64]), None);
        assert_eq!(matrix_units("gfx90a:sramecc+", 64), MatrixUnits::Mfma);
        assert_eq!(matrix_units("gfx1100", 32), MatrixUnits::Absent);
    }
}
