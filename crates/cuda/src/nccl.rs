//! NCCL: found, and its version told. Nothing of one GPU's work needs it.

use crate::api;
use rushlight_core::{Error, Result};
use std::ffi::c_int;

api! {
    /// The library of sums and copies across GPUs.
    Nccl(
        "NCCL (libnccl)",
        &["libnccl.so.2", "libnccl.so"],
        "Install NCCL or the Python package nvidia-nccl and name its directory in RUSHLIGHT_CUDA_PATH; one GPU does without it: \
         it is for sums across several."
    ) {
        fn version = b"ncclGetVersion" (*mut c_int);
    }
}

impl Nccl {
    /// The version as one number, such as 22707.
    pub fn number(&self) -> Result<i32> {
        let mut number = 0;
        // SAFETY: an integer to write to.
        match unsafe { (self.version)(&mut number) } {
            0 => Ok(number),
            code => Err(Error::device(format!("ncclGetVersion failed with error {code}"))),
        }
    }
}
