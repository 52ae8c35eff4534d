//! Compiling kernels for the device they will run on.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::vendor::driver::Compiler;
use rushlight_gpu::vendor::rtc::Rtc;
use std::ffi::{c_char, c_int};

type Program = rushlight_gpu::vendor::driver::Handle;

api! {
    /// The run-time compiler.
    Nvrtc(
        "NVRTC, CUDA's run-time compiler (libnvrtc)",
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
        "Install the CUDA toolkit or the Python package nvidia-cuda-nvrtc and name its directory in RUSHLIGHT_CUDA_PATH."
    ) {
        fn version = "nvrtcVersion" (*mut c_int, *mut c_int);
        fn create = "nvrtcCreateProgram" (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
        fn compile = "nvrtcCompileProgram" (Program, c_int, *const *const c_char);
        fn log_size = "nvrtcGetProgramLogSize" (Program, *mut usize);
        fn log = "nvrtcGetProgramLog" (Program, *mut c_char);
        fn cubin_size = "nvrtcGetCUBINSize" (Program, *mut usize);
        fn cubin = "nvrtcGetCUBIN" (Program, *mut c_char);
        fn destroy = "nvrtcDestroyProgram" (*mut Program);
    }
}

impl Nvrtc {
    /// Major and minor version.
    pub fn number(&self) -> Result<(i32, i32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both point to an integer.
        match unsafe { (self.version)(&mut major, &mut minor) } {
            0 => Ok((major, minor)),
            code => Err(Error::device(format!("nvrtcVersion failed with error {code}"))),
        }
    }

    /// Compiler options of kernels: products and sums may fuse, divisions and roots stay exact.
    pub fn options(&self, arch: &str) -> Result<Vec<String>> {
        let mut options = vec![format!("--gpu-architecture={arch}")];
        options.extend(
            ["--std=c++17", "--device-as-default-execution-space", "--extra-device-vectorization"].map(String::from),
        );
        // Disables unused language features, which saves a fifth of the time.
        if self.number()? >= (12, 8) {
            options.push("--minimal".into());
        }
        Ok(options)
    }

    fn rtc(&self) -> Rtc {
        Rtc {
            name: "NVRTC",
            prefix: "nvrtc",
            create: self.create,
            compile: self.compile,
            log_size: self.log_size,
            log: self.log,
            code_name: "CUBIN",
            code_size: self.cubin_size,
            code: self.cubin,
            destroy: self.destroy,
        }
    }
}

impl Compiler for Nvrtc {
    fn build(&self, source: &str, name: &str, arch: &str) -> Result<Vec<u8>> {
        self.rtc().build(source, name, &self.options(arch)?)
    }

    fn fingerprint(&self, arch: &str) -> Result<String> {
        let (major, minor) = self.number()?;
        Ok(format!("{major}.{minor} {:?}", self.options(arch)?))
    }
}
