//! Compiling kernels for the device they will run on.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::driver::Compiler;
use std::ffi::{CString, c_char, c_int, c_void};

type Program = *mut c_void;

api! {
    /// The run-time compiler.
    Nvrtc(
        "NVRTC, CUDA's run-time compiler (libnvrtc)",
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
        "Install the CUDA toolkit or the Python package nvidia-cuda-nvrtc and name its directory in RUSHLIGHT_CUDA_PATH."
    ) {
        fn version = b"nvrtcVersion" (*mut c_int, *mut c_int);
        fn create = b"nvrtcCreateProgram" (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
        fn compile = b"nvrtcCompileProgram" (Program, c_int, *const *const c_char);
        fn log_size = b"nvrtcGetProgramLogSize" (Program, *mut usize);
        fn log = b"nvrtcGetProgramLog" (Program, *mut c_char);
        fn cubin_size = b"nvrtcGetCUBINSize" (Program, *mut usize);
        fn cubin = b"nvrtcGetCUBIN" (Program, *mut c_char);
        fn destroy = b"nvrtcDestroyProgram" (*mut Program);
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

    /// What kernels are compiled with: products and sums may fuse, divisions and roots stay exact.
    pub fn options(&self, arch: &str) -> Result<Vec<String>> {
        let mut options = vec![format!("--gpu-architecture={arch}")];
        options.extend(
            ["--std=c++17", "--device-as-default-execution-space", "--extra-device-vectorization"].map(String::from),
        );
        // Leaves out what kernels do not use of the language, and a fifth of the time.
        if self.number()? >= (12, 8) {
            options.push("--minimal".into());
        }
        Ok(options)
    }

    /// # Safety
    /// `program` is compiled.
    unsafe fn image(&self, program: Program, fail: &dyn Fn(&str, i32) -> Error) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the image is written to a buffer of the size asked for.
        unsafe {
            let rc = (self.cubin_size)(program, &mut size);
            if rc != 0 {
                return Err(fail("nvrtcGetCUBINSize", rc));
            }
            let mut image = vec![0u8; size];
            match (self.cubin)(program, image.as_mut_ptr().cast()) {
                0 => Ok(image),
                rc => Err(fail("nvrtcGetCUBIN", rc)),
            }
        }
    }

    /// # Safety
    /// `program` exists.
    unsafe fn complaint(&self, program: Program, name: &str, code: i32) -> Error {
        let mut size = 0;
        let mut log = Vec::new();
        // SAFETY: as in `image`.
        unsafe {
            if (self.log_size)(program, &mut size) == 0 {
                log = vec![0u8; size];
                (self.log)(program, log.as_mut_ptr().cast());
            }
        }
        let log = String::from_utf8_lossy(&log);
        Error::device(format!("NVRTC could not compile {name} (error {code}):\n{}", log.trim_end_matches('\0')))
    }
}

impl Compiler for Nvrtc {
    fn build(&self, source: &str, name: &str, arch: &str) -> Result<Vec<u8>> {
        let text = |s: &str| CString::new(s).map_err(|_| Error::value(format!("kernel {name} contains a zero byte")));
        let (code, file) = (text(source)?, text(name)?);
        let options = self.options(arch)?.iter().map(|o| text(o)).collect::<Result<Vec<CString>>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let fail = |call: &str, code: i32| Error::device(format!("{call} of kernel {name} failed with error {code}"));
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: strings end in zero, there are no headers, and the program is destroyed below.
        unsafe {
            let rc = (self.create)(&mut program, code.as_ptr(), file.as_ptr(), 0, std::ptr::null(), std::ptr::null());
            if rc != 0 {
                return Err(fail("nvrtcCreateProgram", rc));
            }
            let rc = (self.compile)(program, options.len() as c_int, options.as_ptr());
            let result = if rc == 0 { self.image(program, &fail) } else { Err(self.complaint(program, name, rc)) };
            (self.destroy)(&mut program);
            result
        }
    }

    fn fingerprint(&self, arch: &str) -> Result<String> {
        let (major, minor) = self.number()?;
        Ok(format!("{major}.{minor} {:?}", self.options(arch)?))
    }
}
