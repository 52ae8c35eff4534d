//! ROCm SMI: its version.

use crate::api;
use rushlight_core::{Error, Result};
use std::ffi::c_char;

api! {
    /// The library that reports a GPU's temperature, power and utilisation.
    Smi(
        "ROCm SMI (librocm_smi64)",
        &["librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so"],
        "Install rocm-smi-lib, a part of ROCm, or name its directory in RUSHLIGHT_HIP_PATH; only the monitoring of GPUs needs it."
    ) {
        fn version = "rsmi_version_get" (*mut SmiVersion);
    }
}

/// `rsmi_version_t`.
#[repr(C)]
pub struct SmiVersion {
    major: u32,
    minor: u32,
    patch: u32,
    build: *const c_char,
}

impl Smi {
    /// The version, such as 7.3.0.
    pub fn number(&self) -> Result<String> {
        let mut version = SmiVersion { major: 0, minor: 0, patch: 0, build: std::ptr::null() };
        // SAFETY: a structure to write to.
        match unsafe { (self.version)(&mut version) } {
            0 => Ok(format!("{}.{}.{}", version.major, version.minor, version.patch)),
            code => Err(Error::device(format!("rsmi_version_get failed with status {code}"))),
        }
    }
}
