//! Kernels of users: a text in the vendor's language, compiled when it is asked for.

use super::cache;
use crate::device::Gpu;
use crate::vendor::driver::{Handle, Launch};
use rushlight_core::{Device, Error, Result};
use std::ffi::{CString, c_void};

/// A loaded kernel of a user. It stays loaded as long as the process lives.
#[derive(Clone, Copy)]
pub struct UserKernel {
    gpu: &'static Gpu,
    /// The driver's handle, as a number: it may be used from any thread.
    function: usize,
    /// Its name, for the profiler.
    name: &'static str,
}

impl UserKernel {
    /// Compiles a text for a GPU that is in use, or loads it from the cache on disk. The error has the compiler's log.
    pub fn compile(device: Device, source: &str, entry: &str) -> Result<Self> {
        let gpu = Gpu::all_started().into_iter().find(|gpu| gpu.device() == device);
        let gpu = gpu.ok_or_else(|| Error::device(format!("kernel {entry}: {device} is not a GPU in use")))?;
        let name = CString::new(entry).map_err(|_| Error::value("a kernel's name has a zero byte"))?;
        let kernels = &gpu.kernels;
        let version = format!("{} user {}", env!("CARGO_PKG_VERSION"), kernels.compiler.fingerprint(&kernels.arch)?);
        let file = cache::hash(&[source.as_bytes(), version.as_bytes()]);
        let image = match cache::KERNELS.read(file) {
            Some(image) => image,
            None => {
                let image = kernels.compiler.build(source, entry, &kernels.arch)?;
                cache::KERNELS.write(file, &image);
                image
            }
        };
        gpu.enter()?;
        // SAFETY: the image comes from the vendor's compiler; modules stay loaded.
        let function = unsafe {
            let module = gpu.driver.relaxed(|| gpu.driver.module_load(&image))?;
            gpu.driver.module_function(module, &name)
        };
        let function = function.map_err(|e| {
            Error::new(e.kind(), format!("{e}; the text must declare `extern \"C\" __global__ void {entry}(…)`"))
        })?;
        Ok(Self { gpu, function: function as usize, name: Box::leak(entry.to_owned().into_boxed_str()) })
    }

    /// Launches it on this thread's stream. `args` are the arguments' bytes, each in a word of its own.
    ///
    /// # Safety
    /// The arguments are those of the kernel's parameters, and its accesses stay within their memory.
    pub unsafe fn launch(&self, grid: [u32; 3], block: [u32; 3], shared: u32, mut args: Vec<u64>) -> Result<()> {
        let gpu = self.gpu;
        if grid.contains(&0) {
            return Ok(());
        }
        if block.contains(&0) || shared as usize > gpu.shared_memory {
            return Err(Error::value(format!(
                "kernel {}: blocks of {block:?} threads with {shared} bytes of shared memory; a block has {} at most",
                self.name, gpu.shared_memory
            )));
        }
        if shared > 48 << 10 {
            gpu.enter()?;
            // SAFETY: a function of this device.
            unsafe { gpu.driver.allow_shared(self.function as Handle, shared as usize)? };
        }
        let function = self.function;
        let work = move |gpu: &Gpu, stream| {
            let mut arguments: Vec<*mut c_void> = args.iter_mut().map(|word| (word as *mut u64).cast()).collect();
            let mut launch = Launch {
                function: function as Handle,
                grid,
                block,
                shared,
                stream,
                // The text does not wait for the kernel before it.
                overlap: false,
                arguments: &mut arguments,
            };
            // SAFETY: the caller's.
            unsafe { gpu.driver.launch(&mut launch) }
        };
        if gpu.is_timed() {
            gpu.timed(self.name, grid, block, work)?
        } else {
            gpu.submit(work)?
        }
        if super::sync_each_call() && !gpu.lane().recording { gpu.synchronize() } else { Ok(()) }
    }
}
