//! Kernels of users: a text in OpenCL C, compiled when it is asked for.

use crate::cache;
use crate::device::Xpu;
use crate::driver::{Arg, Kernel};
use rushlight_core::{Error, Result};

/// An argument of a user's kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UserArg {
    /// The address of a tensor's elements.
    Memory(u64),
    /// A number: its bytes from the lowest on, and how many they are.
    Value(u64, usize),
}

/// A compiled kernel of a user.
#[derive(Clone, Copy)]
pub struct UserKernel {
    xpu: &'static Xpu,
    kernel: &'static Kernel,
}

impl UserKernel {
    pub(crate) fn compile(xpu: &'static Xpu, source: &str, entry: &str) -> Result<Self> {
        let name = cache::hash(&[&b"user"[..], source.as_bytes(), xpu.driver.abilities().fingerprint.as_bytes()]);
        let kept = cache::PROGRAMS.read(name).and_then(|image| xpu.driver.load(&image).ok());
        let program = match kept {
            Some(program) => program,
            None => {
                let program = xpu.driver.build(source).map_err(|e| e.within(&format!("kernel {entry}")))?;
                if let Some(image) = xpu.driver.image(program) {
                    cache::PROGRAMS.write(name, &image);
                }
                program
            }
        };
        let kernel = xpu
            .driver
            .kernel(program, entry)
            .map_err(|e| Error::new(e.kind(), format!("{e}; the text must declare `__kernel void {entry}(…)`")))?;
        Ok(Self { xpu, kernel: Box::leak(Box::new(kernel)) })
    }

    /// Starts it in this thread's queue.
    ///
    /// # Safety
    /// The arguments are those of the kernel's parameters, and its accesses stay within their memory.
    pub unsafe fn launch(&self, groups: [usize; 3], items: [usize; 3], args: &[UserArg]) -> Result<()> {
        let words: Vec<[u8; 8]> = args
            .iter()
            .map(|arg| match arg {
                UserArg::Memory(address) => address.to_ne_bytes(),
                UserArg::Value(word, _) => word.to_ne_bytes(),
            })
            .collect();
        let args: Vec<Arg> = args
            .iter()
            .zip(&words)
            .map(|(arg, word)| match arg {
                UserArg::Memory(address) => Arg::Memory(*address),
                UserArg::Value(_, bytes) => Arg::Value(&word[..*bytes]),
            })
            .collect();
        // SAFETY: the caller's.
        unsafe { self.xpu.launch(self.kernel, groups, items, &args) }
    }
}
