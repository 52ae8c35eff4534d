//! Process groups: collectives on tensors, with handles for those that continue in the background.

mod collective;
mod device;
mod flight;
mod host;
mod lower;
mod objects;
mod staging;
mod work;

pub use collective::{Collective, P2p};
pub(crate) use device::DeviceGroup;
pub use flight::{Entry, FlightRecord, Stage};
pub(crate) use host::HostGroup;
pub use objects::{ObjectSeal, Objects};
pub use work::Work;

use crate::comm::ReduceOp;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Ranks that communicate. An engine implements [`ProcessGroup::submit`]; the named collectives are built on it.
///
/// All ranks of a group must call the same collectives in the same order. If a rank calls another one, passes other
/// shapes, dies, or does not arrive before the timeout, the error on every rank names it. After such an error the group
/// cannot be used any more.
///
/// Collectives are not recorded by autograd. A tensor that is not contiguous is copied before and after.
///
/// Tensors on accelerators use the vendor's library (NCCL, RCCL) or, if ranks of one machine share a device, shared
/// device memory, on a separate stream, also within captured steps. There, messages between two ranks are matched by
/// order, not by tag, as with NCCL in PyTorch. `RUSHLIGHT_DEVICE_COLLECTIVES` overrides the choice: `library`,
/// `shared`, or `host` for copies through the CPU's memory.
pub trait ProcessGroup: Send + Sync {
    /// This rank in the group.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The group's name.
    fn name(&self) -> &str;

    /// The engine's name.
    fn backend(&self) -> &'static str;

    /// Ranks of the world that are in the group, in its order.
    fn ranks(&self) -> &[usize];

    /// Timeout of a collective.
    fn timeout(&self) -> Duration;

    /// Changes the timeout of collectives that start from now on.
    fn set_timeout(&self, timeout: Duration);

    /// Runs a collective, or starts it if `background`. Collectives of one group run in the order in which they were
    /// submitted.
    fn submit(&self, collective: Collective, background: bool) -> Result<Work>;

    /// The last collectives.
    fn flight_record(&self) -> FlightRecord;

    /// The seals of objects that this group's ranks send each other; `None` if they have no secret.
    fn object_seal(&self) -> Option<&ObjectSeal> {
        None
    }

    /// Runs a collective and waits for it.
    fn run(&self, collective: Collective) -> Result<()> {
        self.submit(collective, false)?.wait()
    }

    /// Combines a tensor with the other ranks', in place.
    fn all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<()> {
        self.run(Collective::AllReduce { tensors: vec![tensor.clone()], op })
    }

    /// [`ProcessGroup::all_reduce`] of several tensors in one call.
    fn all_reduce_coalesced(&self, tensors: &[Tensor], op: ReduceOp) -> Result<()> {
        self.run(Collective::AllReduce { tensors: tensors.to_vec(), op })
    }

    /// Copies the root's tensor to all ranks.
    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<()> {
        self.run(Collective::Broadcast { tensors: vec![tensor.clone()], root })
    }

    /// Combines the ranks' tensors on the root. Other ranks' tensors are unchanged.
    fn reduce(&self, tensor: &Tensor, op: ReduceOp, root: usize) -> Result<()> {
        self.run(Collective::Reduce { tensor: tensor.clone(), op, root })
    }

    /// Collects every rank's tensor on every rank; shapes may differ.
    fn all_gather(&self, outputs: &[Tensor], input: &Tensor) -> Result<()> {
        self.run(Collective::AllGather { outputs: outputs.to_vec(), input: input.clone() })
    }

    /// Concatenates tensors of one shape along the first dimension of the output.
    fn all_gather_into_tensor(&self, output: &Tensor, input: &Tensor) -> Result<()> {
        let outputs = even_parts("all_gather_into_tensor", output, self.size(), input)?;
        self.run(Collective::AllGather { outputs, input: input.clone() })
    }

    /// Combines the ranks' lists and gives each rank the tensor at its place.
    fn reduce_scatter(&self, output: &Tensor, inputs: &[Tensor], op: ReduceOp) -> Result<()> {
        self.run(Collective::ReduceScatter { output: output.clone(), inputs: inputs.to_vec(), op })
    }

    /// [`ProcessGroup::reduce_scatter`] of the parts of one tensor, along its first dimension.
    fn reduce_scatter_tensor(&self, output: &Tensor, input: &Tensor, op: ReduceOp) -> Result<()> {
        let inputs = even_parts("reduce_scatter_tensor", input, self.size(), output)?;
        self.run(Collective::ReduceScatter { output: output.clone(), inputs, op })
    }

    /// Sends one tensor to each rank and receives one from each; shapes may differ.
    fn all_to_all(&self, outputs: &[Tensor], inputs: &[Tensor]) -> Result<()> {
        self.run(Collective::AllToAll { outputs: outputs.to_vec(), inputs: inputs.to_vec() })
    }

    /// [`ProcessGroup::all_to_all`] of the parts of one tensor, along its first dimension; of equal size unless given
    /// otherwise.
    fn all_to_all_single(
        &self,
        output: &Tensor,
        input: &Tensor,
        output_splits: Option<&[usize]>,
        input_splits: Option<&[usize]>,
    ) -> Result<()> {
        let parts = |what: &str, t: &Tensor, splits: Option<&[usize]>| match splits {
            Some(splits) => t.detach().split_with_sizes(splits, 0).map_err(|e| e.within(what)),
            None => split(what, t, self.size()),
        };
        let outputs = parts("all_to_all_single: output", output, output_splits)?;
        let inputs = parts("all_to_all_single: input", input, input_splits)?;
        self.run(Collective::AllToAll { outputs, inputs })
    }

    /// Collects the ranks' tensors on the root, which passes one for each rank; the others pass none.
    fn gather(&self, input: &Tensor, outputs: &[Tensor], root: usize) -> Result<()> {
        self.run(Collective::Gather { input: input.clone(), outputs: outputs.to_vec(), root })
    }

    /// Gives each rank one of the root's tensors; the others pass none.
    fn scatter(&self, output: &Tensor, inputs: &[Tensor], root: usize) -> Result<()> {
        self.run(Collective::Scatter { output: output.clone(), inputs: inputs.to_vec(), root })
    }

    /// Sends a tensor to a rank, which must receive one of the same size with the same tag.
    ///
    /// From the CPU's memory a message is sent whether or not the other rank receives yet. On an accelerator the stream
    /// waits for the receiver once its buffer is full: ranks that send to each other at the same time use
    /// [`batch_p2p`](ProcessGroup::batch_p2p), as with NCCL.
    fn send(&self, tensor: &Tensor, to: usize, tag: u32) -> Result<()> {
        self.run(Collective::P2p(vec![P2p { tensor: tensor.clone(), peer: to, tag, sends: true }]))
    }

    /// Receives a tensor from a rank.
    fn recv(&self, tensor: &Tensor, from: usize, tag: u32) -> Result<()> {
        self.run(Collective::P2p(vec![P2p { tensor: tensor.clone(), peer: from, tag, sends: false }]))
    }

    /// Receives the next message with a tag from any rank; returns the rank. For tensors in the CPU's memory.
    fn recv_any(&self, tensor: &Tensor, tag: u32) -> Result<usize> {
        let from = Arc::new(AtomicUsize::new(0));
        self.run(Collective::RecvAny { tensor: tensor.clone(), tag, from: from.clone() })?;
        Ok(from.load(Relaxed))
    }

    /// Starts sends and receives that run concurrently; PyTorch's `batch_isend_irecv`.
    fn batch_p2p(&self, all: Vec<P2p>) -> Result<Work> {
        self.submit(Collective::P2p(all), true)
    }

    /// Waits for all ranks.
    fn barrier(&self) -> Result<()> {
        self.run(Collective::Barrier)
    }
}

/// Views of equal parts along the first dimension.
fn split(call: &str, whole: &Tensor, n: usize) -> Result<Vec<Tensor>> {
    let rows = whole.shape().first().copied().unwrap_or(0);
    if whole.rank() == 0 || rows % n != 0 {
        let shape = whole.shape();
        return Err(Error::shape(format!(
            "{call}: the first dimension of shape {shape:?} does not divide into {n} equal parts"
        )));
    }
    (0..n).map(|i| whole.detach().narrow(0, (i * rows / n) as isize, rows / n)).collect()
}

/// The parts of a tensor that holds one of `like`'s shape for each rank, concatenated or stacked.
fn even_parts(call: &str, whole: &Tensor, n: usize, like: &Tensor) -> Result<Vec<Tensor>> {
    if whole.numel() != like.numel() * n || whole.dtype() != like.dtype() {
        return Err(Error::shape(format!(
            "{call}: {} {:?} is not {n} times {} {:?}",
            whole.dtype(),
            whole.shape(),
            like.dtype(),
            like.shape()
        )));
    }
    match whole.rank() {
        0 => Ok(vec![whole.clone()]),
        _ => split(call, whole, n),
    }
}
