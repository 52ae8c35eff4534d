//! Optional: recording a step once and replaying it as a device graph.

use super::{Storage, View};
use crate::{Device, Result};
use std::any::Any;
use std::sync::Arc;

/// Memory pool of recorded steps. Steps of one pool share their scratch memory.
#[derive(Clone)]
pub struct StepPool {
    /// The device.
    pub device: Device,
    /// For the engine's downcasts.
    pub memory: Arc<dyn Any + Send + Sync>,
}

/// The recorder of a device.
pub trait Capture: Send + Sync {
    /// Memory for recorded steps.
    fn pool(&self) -> Result<StepPool>;
    /// Begins a recording by the calling thread: until it ends, the thread's work on the device is recorded instead of
    /// run.
    fn begin(&self, pool: &StepPool) -> Result<Box<dyn Recording>>;
    /// A value that a step reports to the host.
    fn readback(&self) -> Result<Arc<dyn Readback>>;
}

/// A step that the calling thread is recording. Dropping it before [`finish`](Recording::finish) discards it.
pub trait Recording {
    /// Reserves eight-byte values that change from replay to replay. Returns the index of the first, and its address on
    /// the device.
    fn numbers(&mut self, count: usize) -> Result<(usize, u64)>;
    /// Whether memory was allocated within this recording or an earlier one of its pool.
    fn owns(&self, storage: &Storage) -> bool;
    /// Until the guard is dropped, work runs at once and is not recorded.
    fn outside(&self) -> Box<dyn Any>;
    /// Ends the recording. A replay copies each output (contiguous) to the address stored in its value.
    fn finish(self: Box<Self>, outputs: &[(View, usize)]) -> Result<Box<dyn Graph>>;
}

/// A recorded step.
pub trait Graph: Send {
    /// Replays the step with these values, after copying each first view to the second (contiguous, of one size).
    /// Returns before the work is done.
    fn launch(&self, numbers: &[u64], copies: &[(View, View)]) -> Result<()>;
    /// Replaces the recorded work, between the copies of inputs and of outputs, by that of a closure. Values keep their
    /// addresses. After an error the step is as it was.
    fn rerecord(&mut self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _ = work;
        Err(crate::Error::unsupported("capture: this engine records a step once"))
    }
}

/// A value that a recorded step reports to the host while it runs, such as whether a gradient was infinite.
pub trait Readback: Any + Send + Sync {
    /// Device address of the value, one `f32` that is not NaN.
    fn address(&self) -> u64;
    /// Forgets the value of the latest launch, before the step is launched once more.
    fn prepare(&self);
    /// Records that the step was launched once more.
    fn launched(&self) -> Result<()>;
    /// The value of the latest launch. Waits until the step has written it, not for the step's end.
    fn wait(&self) -> Result<f32>;
}
