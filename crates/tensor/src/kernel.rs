//! Kernels of one's own: a text for GPUs, a function for the CPU, a backward.
//!
//! [`Kernel`] is an op made of them. [`DeviceKernel`] is a compiled text alone, launched by hand.
//!
//! ```
//! # mod rushlight { pub use rushlight_core::*; pub use rushlight_tensor::*; }
//! use rushlight::Tensor;
//! use rushlight::kernel::Kernel;
//!
//! let cubed = Kernel::builder("cubed")
//!     .cuda(
//!         r#"extern "C" __global__ void cubed(const float* x, float* y, float scale, long long n) {
//!             long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
//!             if (i < n) y[i] = scale * x[i] * x[i] * x[i];
//!         }"#,
//!     )
//!     .opencl(
//!         r#"__kernel void cubed(__global const float* x, __global float* y, float scale, long n) {
//!             long i = get_global_id(0);
//!             if (i < n) y[i] = scale * x[i] * x[i] * x[i];
//!         }"#,
//!     )
//!     .cpu(|call| Ok(vec![call.inputs[0].pow(3)?.mul(call.float(0)?)?]))
//!     .backward(|call, _outputs, grads| {
//!         let slope = (call.inputs[0].square()? * 3.0 * call.float(0)?).eval()?;
//!         Ok(vec![Some(grads[0].mul(&slope)?)])
//!     })
//!     .build()?;
//!
//! let x = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
//! let y = cubed.call(&[&x], &[0.5f32.into()])?.remove(0);
//! y.sum(..)?.backward()?;
//! assert_eq!(y.to_vec::<f32>()?, [0.5, 4.0]);
//! assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.5, 6.0]);
//! # Ok::<(), rushlight_core::Error>(())
//! ```

use crate::autograd::{Context, Function, apply};
use crate::{Options, Tensor, program};
use rushlight_core::sync::lock;
use rushlight_core::{DType, Device, Error, Result};
pub use rushlight_engines::{DeviceKernel, KernelArg, Language};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Threads of a block unless [`KernelBuilder::block`] says otherwise.
const BLOCK: u32 = 256;

type Outputs = dyn Fn(&Call) -> Result<Vec<(Vec<usize>, DType)>> + Send + Sync;
type Threads = dyn Fn(&Call, &[Tensor]) -> usize + Send + Sync;
type Cpu = dyn Fn(&Call) -> Result<Vec<Tensor>> + Send + Sync;
type Backward = dyn Fn(&Call, &[Tensor], &[Tensor]) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// What a kernel was called with.
pub struct Call {
    /// The inputs; on a GPU their elements lie one after the other, row by row.
    pub inputs: Vec<Tensor>,
    /// The numbers.
    pub numbers: Vec<KernelArg>,
}

impl Call {
    /// A number as a float.
    pub fn float(&self, at: usize) -> Result<f64> {
        match self.numbers.get(at) {
            Some(KernelArg::F32(v)) => Ok(f64::from(*v)),
            Some(KernelArg::F64(v)) => Ok(*v),
            Some(KernelArg::I32(v)) => Ok(f64::from(*v)),
            Some(KernelArg::I64(v)) => Ok(*v as f64),
            _ => Err(Error::value(format!("kernel: there is no number {at} among {}", self.numbers.len()))),
        }
    }

    /// A number as an integer.
    pub fn int(&self, at: usize) -> Result<i64> {
        match self.numbers.get(at) {
            Some(KernelArg::I32(v)) => Ok(i64::from(*v)),
            Some(KernelArg::I64(v)) => Ok(*v),
            _ => Err(Error::value(format!("kernel: number {at} of {} is no integer", self.numbers.len()))),
        }
    }
}

/// An op of one's own. See the [module](self).
///
/// A text's parameters are pointers to the inputs, pointers to the outputs, the numbers of the call, and at last the
/// number of elements of the first output (`long long`, in OpenCL `long`).
#[derive(Clone)]
pub struct Kernel(Arc<Parts>);

struct Parts {
    name: String,
    texts: HashMap<Language, String>,
    block: u32,
    outputs: Option<Box<Outputs>>,
    threads: Option<Box<Threads>>,
    cpu: Option<Box<Cpu>>,
    backward: Option<Box<Backward>>,
    compiled: Mutex<HashMap<Device, DeviceKernel>>,
}

/// Makes a [`Kernel`].
pub struct KernelBuilder(Parts);

impl Kernel {
    /// A kernel by the name of its entry point in every text.
    pub fn builder(name: impl Into<String>) -> KernelBuilder {
        KernelBuilder(Parts {
            name: name.into(),
            texts: HashMap::new(),
            block: BLOCK,
            outputs: None,
            threads: None,
            cpu: None,
            backward: None,
            compiled: Mutex::default(),
        })
    }

    /// Runs it: the text of the device's language, or the function of the CPU where there is none. Inputs are on one
    /// device. Recorded for autograd by its backward; without one, an input that requires a gradient is an error.
    pub fn call(&self, inputs: &[&Tensor], numbers: &[KernelArg]) -> Result<Vec<Tensor>> {
        let name = &self.0.name;
        let Some(first) = inputs.first() else {
            return Err(Error::value(format!("kernel {name}: it needs an input, whose device it runs on")));
        };
        if let Some(other) = inputs.iter().find(|t| t.device() != first.device()) {
            return Err(Error::device(format!(
                "kernel {name}: inputs are on {} and {}; they must be on one device",
                first.device(),
                other.device()
            )));
        }
        if let Some(KernelArg::Memory(_)) = numbers.iter().find(|n| matches!(n, KernelArg::Memory(_))) {
            return Err(Error::value(format!("kernel {name}: an address is no number; pass tensors as inputs")));
        }
        if self.0.backward.is_none() && crate::autograd::is_grad_enabled() && inputs.iter().any(|t| t.requires_grad()) {
            return Err(Error::autograd(format!(
                "kernel {name}: an input requires a gradient, and it has no backward; give it one, or call it under no_grad"
            )));
        }
        apply(Recorded { kernel: self.clone(), numbers: numbers.to_vec() }, inputs)
    }

    fn run(&self, call: &Call) -> Result<Vec<Tensor>> {
        let (parts, device) = (&*self.0, call.inputs[0].device());
        let text = Language::of(device)?.and_then(|language| {
            let of = |language| parts.texts.get(&language);
            // HIP is CUDA C, unless a text of its own says otherwise.
            of(language).or_else(|| if language == Language::Hip { of(Language::Cuda) } else { None })
        });
        match (text, &parts.cpu) {
            (Some(text), _) => self.launch(call, device, text),
            (None, Some(cpu)) => {
                let outputs = cpu(call).map_err(|e| e.within(&format!("kernel {}", parts.name)))?;
                outputs.into_iter().map(|t| if t.device() == device { Ok(t) } else { t.to(device) }).collect()
            }
            (None, None) => Err(Error::unsupported(format!(
                "kernel {}: it has neither a text for {device} nor a function for the CPU",
                parts.name
            ))),
        }
    }

    fn launch(&self, call: &Call, device: Device, text: &str) -> Result<Vec<Tensor>> {
        let parts = &*self.0;
        let inputs = call.inputs.iter().map(Tensor::contiguous).collect::<Result<Vec<_>>>()?;
        let specs = match &parts.outputs {
            Some(outputs) => outputs(call)?,
            None => vec![(inputs[0].shape().to_vec(), inputs[0].dtype())],
        };
        let outputs = specs
            .iter()
            .map(|(shape, dtype)| Tensor::empty_with(shape, Options::from((*dtype, device))))
            .collect::<Result<Vec<_>>>()?;
        let Some(first) = outputs.first() else {
            return Err(Error::value(format!("kernel {}: it has no output", parts.name)));
        };
        let threads = parts.threads.as_ref().map_or(first.numel(), |threads| threads(call, &outputs));
        let blocks = u32::try_from(threads.div_ceil(parts.block as usize)).ok().filter(|n| *n <= i32::MAX as u32);
        let blocks = blocks.ok_or_else(|| Error::value(format!("kernel {}: {threads} threads", parts.name)))?;
        let known = lock(&parts.compiled).get(&device).copied();
        let kernel = match known {
            Some(kernel) => kernel,
            None => {
                let kernel = DeviceKernel::compile(device, text, &parts.name)?;
                *lock(&parts.compiled).entry(device).or_insert(kernel)
            }
        };
        let mut args: Vec<KernelArg> = inputs.iter().chain(&outputs).map(|t| KernelArg::Memory(address(t))).collect();
        args.extend(&call.numbers);
        args.push(KernelArg::I64(first.numel() as i64));
        program::note_foreign("a kernel of the user's");
        // SAFETY: the memory is the tensors', which live until the launch is queued; what the text does with it is the
        // word of the one who wrote it.
        unsafe { kernel.launch([blocks, 1, 1], [parts.block, 1, 1], 0, &args)? };
        Ok(outputs)
    }
}

/// The address of a tensor's first element, for a kernel: a step that is being recorded keeps the memory.
pub fn address(tensor: &Tensor) -> u64 {
    if program::is_noting() {
        program::note_use(tensor.storage());
    }
    (tensor.storage().ptr() as usize + tensor.layout().offset() * tensor.dtype().size()) as u64
}

impl KernelBuilder {
    fn text(mut self, language: Language, text: impl Into<String>) -> Self {
        self.0.texts.insert(language, text.into());
        self
    }

    /// The text in CUDA C, for NVIDIA's GPUs and, without [`hip`](Self::hip), AMD's.
    pub fn cuda(self, text: impl Into<String>) -> Self {
        self.text(Language::Cuda, text)
    }

    /// The text in HIP, where it is not that of CUDA.
    pub fn hip(self, text: impl Into<String>) -> Self {
        self.text(Language::Hip, text)
    }

    /// The text in OpenCL C, for Intel's GPUs.
    pub fn opencl(self, text: impl Into<String>) -> Self {
        self.text(Language::OpenCl, text)
    }

    /// Computes the outputs on the CPU, and on GPUs for which there is no text: by tensor ops, or from `to_vec`.
    pub fn cpu(mut self, compute: impl Fn(&Call) -> Result<Vec<Tensor>> + Send + Sync + 'static) -> Self {
        self.0.cpu = Some(Box::new(compute));
        self
    }

    /// Shapes and dtypes of the outputs; by default one like the first input.
    pub fn outputs(
        mut self,
        outputs: impl Fn(&Call) -> Result<Vec<(Vec<usize>, DType)>> + Send + Sync + 'static,
    ) -> Self {
        self.0.outputs = Some(Box::new(outputs));
        self
    }

    /// The number of threads, from the call and its outputs; by default one for each element of the first output.
    pub fn threads(mut self, threads: impl Fn(&Call, &[Tensor]) -> usize + Send + Sync + 'static) -> Self {
        self.0.threads = Some(Box::new(threads));
        self
    }

    /// Threads of a block, 256 by default.
    pub fn block(mut self, block: u32) -> Self {
        self.0.block = block;
        self
    }

    /// One gradient for each input (`None` is zero) from the call, its outputs and their gradients. Made of tensor ops,
    /// or of kernels with a backward of their own, it can be differentiated again.
    pub fn backward(
        mut self,
        backward: impl Fn(&Call, &[Tensor], &[Tensor]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        self.0.backward = Some(Box::new(backward));
        self
    }

    /// The kernel. Texts are compiled when a device first runs them.
    pub fn build(self) -> Result<Kernel> {
        let Parts { name, texts, cpu, block, .. } = &self.0;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            return Err(Error::value(format!("kernel: {name:?} is no name of a function in C")));
        }
        if texts.is_empty() && cpu.is_none() {
            return Err(Error::value(format!("kernel {name}: it has neither a text nor a function for the CPU")));
        }
        if *block == 0 {
            return Err(Error::value(format!("kernel {name}: a block needs a thread")));
        }
        Ok(Kernel(Arc::new(self.0)))
    }
}

/// A call as autograd records it.
struct Recorded {
    kernel: Kernel,
    numbers: Vec<KernelArg>,
}

impl Recorded {
    fn call(&self, inputs: Vec<Tensor>) -> Call {
        Call { inputs, numbers: self.numbers.clone() }
    }
}

impl Function for Recorded {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let outputs = self.kernel.run(&self.call(inputs.iter().map(|t| (*t).clone()).collect()))?;
        if self.kernel.0.backward.is_some() {
            let saved: Vec<&Tensor> = inputs.iter().copied().chain(&outputs).collect();
            ctx.save_for_backward(&saved);
        }
        Ok(outputs)
    }

    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let name = &self.kernel.0.name;
        let Some(backward) = &self.kernel.0.backward else {
            return Err(Error::autograd(format!("kernel {name}: it has no backward")));
        };
        let (inputs, outputs) = saved.split_at(saved.len() - grads.len());
        let grads = grads
            .iter()
            .zip(outputs)
            .map(|(grad, output)| grad.clone().map_or_else(|| output.zeros_like(), Ok))
            .collect::<Result<Vec<_>>>()?;
        let found = backward(&self.call(inputs.to_vec()), outputs, &grads)?;
        if found.len() != inputs.len() {
            return Err(Error::autograd(format!(
                "kernel {name}: its backward gives {} gradients for {} inputs",
                found.len(),
                inputs.len()
            )));
        }
        Ok(found)
    }

    fn name(&self) -> &'static str {
        "custom_kernel"
    }
}
