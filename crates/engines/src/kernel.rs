//! Kernels of users, on the devices of any engine that compiles text at run time.

use rushlight_core::{Device, Error, Result};

/// The language of a kernel's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// CUDA C, for NVIDIA's GPUs.
    Cuda,
    /// HIP, for AMD's GPUs: CUDA C without what only NVIDIA has.
    Hip,
    /// OpenCL C, for Intel's GPUs.
    OpenCl,
}

impl Language {
    /// The language of a device's engine; `None` if it compiles no text, as the CPU's. Starts the device.
    pub fn of(device: Device) -> Result<Option<Self>> {
        if matches!(device, Device::Cpu | Device::Meta) {
            return Ok(None);
        }
        crate::backend(device)?;
        let engine = crate::of(device).find(|engine| engine.backend(device.index()).is_ok());
        Ok(engine.and_then(|engine| match engine.name() {
            "cuda" => Some(Self::Cuda),
            "hip" => Some(Self::Hip),
            "xpu" => Some(Self::OpenCl),
            _ => None,
        }))
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelArg {
    /// The address of a tensor's elements.
    Memory(u64),
    /// `int`.
    I32(i32),
    /// `long long` in CUDA C and HIP, `long` in OpenCL C.
    I64(i64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
}

macro_rules! numbers {
    ($($type:ty => $variant:ident,)*) => {$(
        impl From<$type> for KernelArg {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}
numbers! { i32 => I32, i64 => I64, f32 => F32, f64 => F64, }

/// A kernel of a user's, compiled for one device.
#[derive(Clone, Copy)]
pub struct DeviceKernel(Compiled);

#[derive(Clone, Copy)]
enum Compiled {
    #[cfg(any(feature = "cuda", feature = "hip"))]
    Gpu(rushlight_gpu::UserKernel),
    #[cfg(feature = "xpu")]
    Xpu(rushlight_xpu::UserKernel),
}

impl DeviceKernel {
    /// Compiles a text in the [`Language`] of a device's engine. `entry` is the kernel's name in it. An error has the
    /// compiler's log. Compiled texts are kept on disk, as the engine's own.
    pub fn compile(device: Device, source: &str, entry: &str) -> Result<Self> {
        match Language::of(device)? {
            #[cfg(any(feature = "cuda", feature = "hip"))]
            Some(Language::Cuda | Language::Hip) => {
                rushlight_gpu::UserKernel::compile(device, source, entry).map(|k| Self(Compiled::Gpu(k)))
            }
            #[cfg(feature = "xpu")]
            Some(Language::OpenCl) => {
                rushlight_xpu::user_kernel(device.index(), source, entry).map(|k| Self(Compiled::Xpu(k)))
            }
            _ => {
                let _ = source;
                Err(Error::unsupported(format!("kernel {entry}: {device} compiles no text; it runs on GPUs")))
            }
        }
    }

    /// Launches the kernel after the work that this thread has given the device: `grid` blocks of `block` threads, with
    /// `shared` bytes of dynamic shared memory (OpenCL has local arrays instead).
    ///
    /// # Safety
    /// The arguments are those of the kernel's parameters, in order, and its accesses stay within their memory.
    pub unsafe fn launch(&self, grid: [u32; 3], block: [u32; 3], shared: u32, args: &[KernelArg]) -> Result<()> {
        match &self.0 {
            #[cfg(any(feature = "cuda", feature = "hip"))]
            Compiled::Gpu(kernel) => {
                let word = |arg: &KernelArg| match *arg {
                    KernelArg::Memory(address) => address,
                    KernelArg::I32(v) => u64::from(v as u32),
                    KernelArg::I64(v) => v as u64,
                    KernelArg::F32(v) => u64::from(v.to_bits()),
                    KernelArg::F64(v) => v.to_bits(),
                };
                // SAFETY: the caller's.
                unsafe { kernel.launch(grid, block, shared, args.iter().map(word).collect()) }
            }
            #[cfg(feature = "xpu")]
            Compiled::Xpu(kernel) => {
                use rushlight_xpu::UserArg;
                if shared > 0 {
                    return Err(Error::unsupported(
                        "kernel: OpenCL has no dynamic shared memory; declare a local array",
                    ));
                }
                let arg = |arg: &KernelArg| match *arg {
                    KernelArg::Memory(address) => UserArg::Memory(address),
                    KernelArg::I32(v) => UserArg::Value(u64::from(v as u32), 4),
                    KernelArg::I64(v) => UserArg::Value(v as u64, 8),
                    KernelArg::F32(v) => UserArg::Value(u64::from(v.to_bits()), 4),
                    KernelArg::F64(v) => UserArg::Value(v.to_bits(), 8),
                };
                let sizes = |of: [u32; 3]| of.map(|n| n as usize);
                // SAFETY: the caller's.
                unsafe { kernel.launch(sizes(grid), sizes(block), &args.iter().map(arg).collect::<Vec<_>>()) }
            }
            #[cfg(not(any(feature = "cuda", feature = "hip", feature = "xpu")))]
            _ => {
                let _ = (grid, block, shared, args);
                Err(Error::unsupported("kernel: no engine of GPUs is compiled in"))
            }
        }
    }
}
