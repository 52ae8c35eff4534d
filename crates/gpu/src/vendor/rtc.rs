//! Kernel compilation by NVRTC or hiprtc, whose functions differ only in their prefix.

use crate::vendor::driver::Handle;
use rushlight_core::{Error, Result};
use std::ffi::{CString, c_char, c_int};

/// A compiler's functions.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "named as the library's functions are")]
pub struct Rtc {
    /// The compiler's name, for messages.
    pub name: &'static str,
    /// Prefix of its functions' names.
    pub prefix: &'static str,
    pub create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> i32,
    pub compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> i32,
    pub log_size: unsafe extern "C" fn(Handle, *mut usize) -> i32,
    pub log: unsafe extern "C" fn(Handle, *mut c_char) -> i32,
    /// The term for machine code in function names: `CUBIN`, `Code`.
    pub code_name: &'static str,
    pub code_size: unsafe extern "C" fn(Handle, *mut usize) -> i32,
    pub code: unsafe extern "C" fn(Handle, *mut c_char) -> i32,
    pub destroy: unsafe extern "C" fn(*mut Handle) -> i32,
}

impl Rtc {
    /// Compiles a text to machine code; `kernel` is its name for messages.
    pub fn build(&self, text: &str, kernel: &str, options: &[String]) -> Result<Vec<u8>> {
        let c_text =
            |s: &str| CString::new(s).map_err(|_| Error::value(format!("kernel {kernel} contains a zero byte")));
        let (code, file) = (c_text(text)?, c_text(kernel)?);
        let options = options.iter().map(|o| c_text(o)).collect::<Result<Vec<CString>>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let mut program = std::ptr::null_mut();
        // SAFETY: strings end in zero, there are no headers, and the program is destroyed below.
        unsafe {
            let none = std::ptr::null();
            self.check(
                "CreateProgram",
                kernel,
                (self.create)(&mut program, code.as_ptr(), file.as_ptr(), 0, none, none),
            )?;
            let result = match (self.compile)(program, options.len() as c_int, options.as_ptr()) {
                0 => self.image(program, kernel),
                rc => Err(self.complaint(program, kernel, rc)),
            };
            (self.destroy)(&mut program);
            result
        }
    }

    fn check(&self, call: &str, kernel: &str, code: i32) -> Result<()> {
        match code {
            0 => Ok(()),
            _ => Err(Error::device(format!("{}{call} of kernel {kernel} failed with error {code}", self.prefix))),
        }
    }

    /// # Safety
    /// `program` is compiled.
    unsafe fn image(&self, program: Handle, kernel: &str) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the image is written to a buffer of the queried size.
        unsafe {
            self.check(&format!("Get{}Size", self.code_name), kernel, (self.code_size)(program, &mut size))?;
            let mut image = vec![0u8; size];
            self.check(&format!("Get{}", self.code_name), kernel, (self.code)(program, image.as_mut_ptr().cast()))?;
            Ok(image)
        }
    }

    /// # Safety
    /// `program` exists.
    unsafe fn complaint(&self, program: Handle, kernel: &str, code: i32) -> Error {
        let (mut size, mut log) = (0, Vec::new());
        // SAFETY: as in `image`.
        unsafe {
            if (self.log_size)(program, &mut size) == 0 {
                log = vec![0u8; size];
                (self.log)(program, log.as_mut_ptr().cast());
            }
        }
        let log = String::from_utf8_lossy(&log);
        let log = log.trim_end_matches('\0');
        Error::device(format!("{} could not compile {kernel} (error {code}):\n{log}", self.name))
    }
}
