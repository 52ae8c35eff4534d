//! Compiling kernels for the GPU they will run on, by AMD's run-time compiler.

use crate::api;
use rushlight_core::{Error, Result};
use rushlight_gpu::driver::Compiler;
use rushlight_gpu::kernel::AMD;
use std::ffi::{CString, c_char, c_int, c_void};

type Program = *mut c_void;

api! {
    /// The run-time compiler. Before ROCm 6 it is a part of the runtime.
    Hiprtc(
        "hiprtc, AMD's run-time compiler (libhiprtc)",
        &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libamdhip64.so.5", "libamdhip64.so"],
        "Install ROCm and load its module, or name the library's directory in RUSHLIGHT_HIP_PATH."
    ) {
        fn version = b"hiprtcVersion" (*mut c_int, *mut c_int);
        fn create = b"hiprtcCreateProgram" (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
        fn compile = b"hiprtcCompileProgram" (Program, c_int, *const *const c_char);
        fn log_size = b"hiprtcGetProgramLogSize" (Program, *mut usize);
        fn log = b"hiprtcGetProgramLog" (Program, *mut c_char);
        fn code_size = b"hiprtcGetCodeSize" (Program, *mut usize);
        fn code = b"hiprtcGetCode" (Program, *mut c_char);
        fn destroy = b"hiprtcDestroyProgram" (*mut Program);
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

    /// What kernels are compiled with. By default products and sums may fuse where no pragma forbids it, and divisions and roots are exact.
    pub fn options(&self, arch: &str) -> Vec<String> {
        [&format!("--offload-arch={arch}"), "-std=c++17", "-O3", "-w"].map(|option| option.to_string()).to_vec()
    }

    /// # Safety
    /// `program` is compiled.
    unsafe fn image(&self, program: Program, fail: &dyn Fn(&str, i32) -> Error) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the image is written to a buffer of the size asked for.
        unsafe {
            let rc = (self.code_size)(program, &mut size);
            if rc != 0 {
                return Err(fail("hiprtcGetCodeSize", rc));
            }
            let mut image = vec![0u8; size];
            match (self.code)(program, image.as_mut_ptr().cast()) {
                0 => Ok(image),
                rc => Err(fail("hiprtcGetCode", rc)),
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
        Error::device(format!("hiprtc could not compile {name} (error {code}):\n{}", log.trim_end_matches('\0')))
    }
}

impl Compiler for Hiprtc {
    fn build(&self, source: &str, name: &str, arch: &str) -> Result<Vec<u8>> {
        let text = |s: &str| CString::new(s).map_err(|_| Error::value(format!("kernel {name} contains a zero byte")));
        let (code, file) = (text(&format!("{AMD}\n{source}"))?, text(name)?);
        let options = self.options(arch).iter().map(|o| text(o)).collect::<Result<Vec<CString>>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let fail = |call: &str, code: i32| Error::device(format!("{call} of kernel {name} failed with error {code}"));
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: strings end in zero, there are no headers, and the program is destroyed below.
        unsafe {
            let rc = (self.create)(&mut program, code.as_ptr(), file.as_ptr(), 0, std::ptr::null(), std::ptr::null());
            if rc != 0 {
                return Err(fail("hiprtcCreateProgram", rc));
            }
            let rc = (self.compile)(program, options.len() as c_int, options.as_ptr());
            let result = if rc == 0 { self.image(program, &fail) } else { Err(self.complaint(program, name, rc)) };
            (self.destroy)(&mut program);
            result
        }
    }

    fn fingerprint(&self, arch: &str) -> Result<String> {
        let (major, minor) = self.number()?;
        Ok(format!("hiprtc {major}.{minor} {:?} {AMD}", self.options(arch)))
    }
}
