//! Steps recorded between two calls, as PyTorch's `CUDAGraph` has it: inputs and outputs are the tensors that the work
//! between them reads and writes.

use super::recorder::{Installed, Recorded, recorder_of};
use super::{Tensors, is_recording};
use crate::tensor::backend;
use rushlight_core::backend::StepPool;
use rushlight_core::{Backend, Device, Error, Result};

/// Memory for the graphs of a device, which may share it.
pub fn graph_pool(device: Device) -> Result<StepPool> {
    recorder_of(device)?.pool()
}

/// Work that this thread records until [`end`](GraphRecording::end). Dropped before, it leaves nothing behind.
pub struct GraphRecording {
    backend: &'static dyn Backend,
    installed: Installed,
}

impl GraphRecording {
    /// Begins: from now on this thread's work on the device is noted and not done.
    pub fn begin(device: Device, pool: &StepPool) -> Result<Self> {
        if is_recording() {
            return Err(Error::unsupported("capture: this thread records already; graphs cannot be nested"));
        }
        Ok(Self { backend: backend(device)?, installed: Installed::begin(device, pool)? })
    }

    /// Ends recording. The graph's work has not run yet. Tensors made during recording hold the results of the last
    /// replay.
    pub fn end(self) -> Result<Graph> {
        let mut recorded = Recorded::finish(self.backend, self.installed, Tensors::new(), Tensors::new())?;
        recorded.uncount();
        Ok(Graph(recorded))
    }
}

/// Recorded work that reads from and writes to the same tensors at every replay. Optimizers in it follow their options
/// and count their steps, and random numbers continue, as in a [`Capture`](super::Capture).
///
/// ```
/// # use rushlight_core::Device;
/// # use rushlight_tensor::{Tensor, capture::{GraphRecording, graph_pool}};
/// // Where there is no GPU, this is an error that says why.
/// if let Ok(x) = Tensor::ones_with([2], Device::Cuda(0)) {
///     let recording = GraphRecording::begin(x.device(), &graph_pool(x.device())?)?;
///     let y = x.mul(2.0)?;
///     let mut graph = recording.end()?;
///     x.fill_(3.0)?;
///     graph.replay()?;
///     assert_eq!(y.to_vec::<f32>()?, [6.0, 6.0]);
/// }
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Graph(Recorded);

impl Graph {
    /// Runs the recorded work once more, on its tensors' current contents.
    pub fn replay(&mut self) -> Result<()> {
        if !self.0.is_current() {
            return Err(Error::value(
                "replay: an optimizer in the graph has been loaded or changed since it was recorded; record it again",
            ));
        }
        self.0.replay(&[]).map(drop)
    }
}
