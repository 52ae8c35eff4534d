//! The boundary between the tensor layer and the engines: memory ([`Storage`], [`View`]), engine calls as values
//! ([`call`]), and the [`Backend`] trait that runs them.

pub mod call;
mod capture;
mod collectives;
pub mod composed;
mod engine;
mod fused;
mod precision;
mod resample;
mod spec;
mod storage;
mod stream;

pub use call::Call;
pub use capture::{Capture, Graph, Readback, Recording, StepPool};
pub use collectives::{Collectives, DeviceComm, DeviceOp, DeviceWork, MemoryOffer, ReduceOp};
pub use engine::{Engine, Library, Pinned, PinnedMemory, Properties};
pub use fused::{MAX_INPUTS, MAX_OUTPUTS, MAX_STEPS, RowReduce, Step, StepArg, StepOp, Steps};
pub use precision::{
    allow_tf32, allow_tf32_conv, in_recurrent_layer, is_in_recurrent_layer, set_allow_tf32, set_allow_tf32_conv,
};
pub use resample::{Resample, ResampleAxis, Sampling};
pub use spec::*;
pub use storage::{Operand, Storage, View};
pub use stream::{Event, Stream, Streams};

use crate::{Device, Result};
use std::ptr::NonNull;

/// Allocator statistics in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// In use by tensors.
    pub allocated: usize,
    /// Taken from the system, in use or kept for reuse.
    pub reserved: usize,
    /// Highest `allocated` since the last reset.
    pub peak: usize,
}

/// Optional: statistics and control of a caching allocator.
pub trait CachingAllocator: Send + Sync {
    /// The allocator's statistics.
    fn stats(&self) -> MemoryStats;
    /// Resets the peak.
    fn reset_peak(&self);
    /// Returns memory kept for reuse to the system.
    fn empty_cache(&self);
}

/// Optional capabilities of an engine. The tensor layer checks a flag before it relies on one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Products and sums of halves can be written as their `f32` accumulators.
    pub wide_outputs: bool,
    /// Convolutions support channels-last images, and are fastest so in half precision.
    pub channels_last: bool,
    /// Attention writes gradients with any strides.
    pub strided_attention_gradients: bool,
    /// Batch norm of halves accepts `f32` weights and biases.
    pub wide_batch_norm_parameters: bool,
    /// The gradient of a batch norm and the ReLU after it is one kernel.
    pub batch_norm_relu: bool,
    /// Bytes that the engine copies in the time of one launch: a copy up to this size pays if it saves a launch.
    pub bytes_per_call: usize,
    /// A call is a launch: lists are copied by one call, and ops of several calls run as fused programs.
    pub launches: bool,
}

/// What an engine did with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a declined call was not run"]
pub enum Outcome {
    /// The call ran, or was queued.
    Done,
    /// The engine has no kernel for the call; nothing was written.
    Declined,
}

impl From<bool> for Outcome {
    fn from(done: bool) -> Self {
        if done { Outcome::Done } else { Outcome::Declined }
    }
}

/// An engine for one device: memory, optional capabilities, and [`run`](Backend::run).
///
/// # What an engine must run
///
/// The primitives, which have no default body:
///
/// - values: `fill`, `copy`, `random`;
/// - elements: `pointwise`, `pointwise_grad`, `select`;
/// - reductions: `reduce`;
/// - indexing: `index`, `index_put`, `scatter`;
/// - products: `matmul`.
///
/// An engine may decline every other call; [`execute`] then runs its default body, which is made of the primitives (see
/// [`composed`]). So an engine runs whole models with the primitives alone. It runs a family itself once it has a
/// kernel for it, and tests the kernel against the default body. The default bodies of `sort`, `topk`, `kth` and
/// `permutation` use the host; `linalg` has none, and the tensor layer computes it on the CPU.
pub trait Backend: Send + Sync + 'static {
    /// The device.
    fn device(&self) -> Device;

    /// Runs a call, or declines it.
    ///
    /// # Safety
    /// The call keeps the contract of its family (see [`call`]), and its views are memory of this engine's device.
    unsafe fn run(&self, call: &Call<View>) -> Result<Outcome>;

    // ---- memory
    /// Uninitialised memory, aligned for any vector load.
    fn alloc(&'static self, bytes: usize) -> Result<Storage>;
    /// Frees memory.
    ///
    /// # Safety
    /// `ptr` came from this engine's `alloc` with the same `bytes`, and is not used afterwards.
    unsafe fn free(&self, ptr: NonNull<u8>, bytes: usize);
    /// Copies from the host to `dst`, from byte `offset` on.
    fn upload(&self, src: &[u8], dst: &Storage, offset: usize) -> Result<()>;
    /// Copies from `src`, from byte `offset` on, to the host.
    fn download(&self, src: &Storage, offset: usize, dst: &mut [u8]) -> Result<()>;
    /// Waits for all work issued so far.
    fn synchronize(&self) -> Result<()>;

    // ---- optional capabilities
    /// The engine's optional capabilities.
    fn features(&self) -> Features {
        Features::default()
    }
    /// The caching allocator, if there is one.
    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        None
    }
    /// Makes ready what running a call needs and takes long, such as a kernel that is compiled in the background.
    /// Returns whether it is ready; an engine declines a call that is not.
    fn prepare(&self, call: &Call<View>) -> Result<bool> {
        let _ = call;
        Ok(true)
    }
    /// Says that nobody reads the values in this memory any more. An engine that joins calls need not write them.
    fn unneeded(&self, storage: &Storage) {
        let _ = storage;
    }
    /// Streams and events, if the device works asynchronously.
    fn streams(&self) -> Option<&dyn Streams> {
        None
    }
    /// The recorder of steps, if the device can replay them.
    fn capture(&self) -> Option<&dyn Capture> {
        None
    }
    /// Collectives with devices of other processes, if the device or its vendor's library supports them.
    fn collectives(&self) -> Option<&dyn Collectives> {
        None
    }
    /// [`upload`](Backend::upload) that may return before the copy is done: later work on the calling thread's stream
    /// sees it.
    ///
    /// # Safety
    /// `src` is valid for reads of `bytes` bytes and is not written before the device is past the copy; it is in the
    /// engine's [`PinnedMemory`], which is not reused before then.
    unsafe fn upload_pinned(&self, src: *const u8, bytes: usize, dst: &Storage, offset: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        self.upload(unsafe { std::slice::from_raw_parts(src, bytes) }, dst, offset)
    }
    /// Copies `bytes` from another device's memory to the start of `dst`, after all work both devices were given.
    /// Declined if the two have no direct path: the tensor layer then copies through the host.
    fn copy_from_peer(&self, src: &Storage, src_offset: usize, dst: &Storage, bytes: usize) -> Result<Outcome> {
        let _ = (src, src_offset, dst, bytes);
        Ok(Outcome::Declined)
    }

    /// A copy of the matrix `weight` for many products with at most `rows` rows each
    /// ([`PackedMatMul`](call::PackedMatMul)). `None` if [`MatMul`] is as fast.
    fn pack_weight(&self, weight: View, rows: usize) -> Result<Option<Packed>> {
        let _ = (weight, rows);
        Ok(None)
    }

    /// A copy of a convolution's contiguous weight for many calls ([`ConvPacked`](call::ConvPacked)). `None` if
    /// [`ConvForward`](call::ConvForward) is as fast.
    fn pack_conv(&self, spec: &Conv, weight: View) -> Result<Option<Packed>> {
        let _ = (spec, weight);
        Ok(None)
    }
}

/// Runs a call on an engine. A declined call runs as its default body.
///
/// # Safety
/// As for [`Backend::run`].
#[inline]
pub unsafe fn execute(engine: &dyn Backend, call: &Call<View>) -> Result<()> {
    // SAFETY: the caller's promise.
    match unsafe { engine.run(call) }? {
        Outcome::Done => Ok(()),
        // SAFETY: as above.
        Outcome::Declined => unsafe { composed::run(engine, call) },
    }
}
