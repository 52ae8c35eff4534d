//! Kernel compilation at run time by hiprtc, for the architecture of the GPU in use.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::launch::kernel::AMD;
use rushlight_gpu::vendor::driver::Compiler;
use rushlight_gpu::vendor::rtc::Rtc;
use std::ffi::{c_char, c_int};

type Program = rushlight_gpu::vendor::driver::Handle;

api! {
    /// The run-time compiler. Before ROCm 6 it is a part of the runtime.
    Hiprtc(
        "hiprtc, AMD's run-time compiler (libhiprtc)",
        &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libamdhip64.so.5", "libamdhip64.so"],
        "Install ROCm and load its module, or name the library's directory in RUSHLIGHT_HIP_PATH."
    ) {
        fn version = "hiprtcVersion" (*mut c_int, *mut c_int);
        fn create = "hiprtcCreateProgram" (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
        fn compile = "hiprtcCompileProgram" (Program, c_int, *const *const c_char);
        fn log_size = "hiprtcGetProgramLogSize" (Program, *mut usize);
        fn log = "hiprtcGetProgramLog" (Program, *mut c_char);
        fn code_size = "hiprtcGetCodeSize" (Program, *mut usize);
        fn code = "hiprtcGetCode" (Program, *mut c_char);
        fn destroy = "hiprtcDestroyProgram" (*mut Program);
    }
}

impl Hiprtc {
    /// Major and minor version.
    pub fn number(&self) -> Result<(i32, i32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both point to an integer.
        match unsafe { (self.version)(&mut major, &mut minor) } {
            0 => Ok((major, minor)),
            code => Err(Error::device(format!("hiprtcVersion failed with error {code}"))),
        }
    }

    /// Compiler options of kernels. By default hiprtc fuses products and sums unless a pragma forbids it, and its
    /// divisions and roots are exact.
    pub fn options(&self, arch: &str) -> Vec<String> {
        [&format!("--offload-arch={arch}"), "-std=c++17", "-O3", "-w"].map(|option| option.to_string()).to_vec()
    }

    fn rtc(&self) -> Rtc {
        Rtc {
            name: "hiprtc",
            prefix: "hiprtc",
            create: self.create,
            compile: self.compile,
            log_size: self.log_size,
            log: self.log,
            code_name: "Code",
            code_size: self.code_size,
            code: self.code,
            destroy: self.destroy,
        }
    }
}

impl Compiler for Hiprtc {
    fn build(&self, source: &str, name: &str, arch: &str) -> Result<Vec<u8>> {
        self.rtc().build(&format!("{AMD}\n{source}"), name, &self.options(arch))
    }

    fn fingerprint(&self, arch: &str) -> Result<String> {
        let (major, minor) = self.number()?;
        Ok(format!("hiprtc {major}.{minor} {:?} {AMD}", self.options(arch)))
    }
}
