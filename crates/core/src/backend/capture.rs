//! Optional: steps recorded once and replayed as a graph of the device.

use super::{Operand, ParamUpdate, Storage, View};
use crate::{Device, Result};
use std::any::Any;
use std::sync::Arc;

/// Memory pool of recorded steps. Steps of one pool share their scratch memory.
#[derive(Clone)]
pub struct StepPool {
    /// The device.
    pub device: Device,
    /// The engine's own.
    pub memory: Arc<dyn Any + Send + Sync>,
}

/// The recorder of a device.
pub trait Capture: Send + Sync {
    /// Memory for recorded steps.
    fn pool(&self) -> Result<StepPool>;
    /// Begins a recording by the calling thread: until it ends, the thread's work on the device is noted and not done.
    fn begin(&self, pool: &StepPool) -> Result<Box<dyn Recording>>;
    /// A number that a step leaves for the host.
    fn verdict(&self) -> Result<Arc<dyn Verdict>>;
    /// [`Backend::update`](super::Backend::update) within a recording. The [numbers](ParamUpdate::numbers) of each
    /// parameter
    /// are at an address on the device; nothing is done where `found_inf`, one `f32`, is not zero.
    fn update(
        &self,
        updates: &[ParamUpdate],
        numbers: &[u64],
        grad_scale: Operand,
        found_inf: Option<View>,
    ) -> Result<()>;
}

/// A step that the calling thread is recording. Dropped before [`finish`](Recording::finish), it leaves nothing behind.
pub trait Recording {
    /// Reserves numbers of eight bytes that change from replay to replay: the index of the first, and its address on
    /// the device.
    fn numbers(&mut self, count: usize) -> Result<(usize, u64)>;
    /// Whether memory was allocated within this recording or an earlier one of its pool.
    fn owns(&self, storage: &Storage) -> bool;
    /// Until the guard is dropped, work is done at once and not recorded.
    fn outside(&self) -> Box<dyn Any>;
    /// Ends the recording. A replay copies each output (contiguous) to the address that its number holds.
    fn finish(self: Box<Self>, outputs: &[(View, usize)]) -> Result<Box<dyn Graph>>;
}

/// A recorded step.
pub trait Graph: Send {
    /// Replays the step with these numbers, after copying each first view to the second (contiguous, of one size).
    /// Returns before the work is done.
    fn launch(&self, numbers: &[u64], copies: &[(View, View)]) -> Result<()>;
}

/// A number that a recorded step leaves for the host, such as whether a gradient was infinite.
pub trait Verdict: Any + Send + Sync {
    /// Where the device writes it, one `f32`.
    fn address(&self) -> u64;
    /// Notes that the step was launched once more.
    fn launched(&self) -> Result<()>;
    /// The number of the step launched last; waits for it.
    fn wait(&self) -> Result<f32>;
}
