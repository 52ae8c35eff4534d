//! Collectives over bytes: shared memory within a node, connections between nodes.
//!
//! | collective | all ranks on one node | several nodes |
//! |---|---|---|
//! | all-reduce, up to 16 KiB | one round: every rank reduces everything | recursive doubling |
//! | all-reduce, larger | in cache-sized chunks: two ranks reduce everything, more reduce a part each | parts within each node, rings of the same part across nodes |
//! | broadcast, reduce | one writer or one reader | binomial tree of one rank per node, then each node |
//! | all-gather | every rank reads every slot | ring |
//! | reduce-scatter, all-to-all | every rank reads its part of every slot | pairwise exchange |
//! | gather, scatter | root reads or writes | root talks to each |

mod abort;
mod across;
mod endpoint;
mod links;
mod local;
mod reduce;
mod shm;
mod signature;

pub(crate) use abort::{Abort, Limit};
pub(crate) use endpoint::{Endpoint, counted};
pub(crate) use links::{Channel, Links, Peer, Transfer};
pub use reduce::ReduceOp;
pub(crate) use reduce::{Span, reduce};
pub(crate) use shm::NodeSegment;
pub(crate) use signature::Signature;

use rushlight_core::{DType, Result};

/// Maximum size of a message that is bound by latency.
const SMALL: usize = 16 << 10;

/// One rank's end of a group: collectives on bytes in the CPU's memory.
///
/// # Safety
/// Spans are valid and nothing else uses them until a method returns. If it returns an error and
/// [`Transport::holds_memory`], the memory must stay valid for ever.
pub(crate) trait Transport: Send {
    /// This rank in the group.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The engine's name.
    fn backend(&self) -> &'static str;

    /// Whether memory of a call that failed may still be written to.
    fn holds_memory(&self) -> bool {
        false
    }

    /// Runs before every collective, but not before sends and receives.
    fn begin(&mut self, _: &Call) -> Result<()> {
        Ok(())
    }

    /// In place.
    unsafe fn all_reduce(&mut self, data: Span, how: Reduction, call: &Call) -> Result<()>;

    unsafe fn broadcast(&mut self, data: Span, root: usize, call: &Call) -> Result<()>;

    /// Does not change `data` on ranks other than the root.
    unsafe fn reduce(&mut self, data: Span, how: Reduction, root: usize, call: &Call) -> Result<()>;

    /// Output `i` has the length of rank `i`'s input.
    unsafe fn all_gather(&mut self, input: Span, outputs: &[Span], call: &Call) -> Result<()>;

    /// Input `i` has the length of rank `i`'s output.
    unsafe fn reduce_scatter(&mut self, inputs: &[Span], output: Span, how: Reduction, call: &Call) -> Result<()>;

    unsafe fn all_to_all(&mut self, inputs: &[Span], outputs: &[Span], call: &Call) -> Result<()>;

    /// The root has an output for each rank, the others none.
    unsafe fn gather(&mut self, input: Span, outputs: &[Span], root: usize, call: &Call) -> Result<()>;

    /// The root has an input for each rank, the others none.
    unsafe fn scatter(&mut self, inputs: &[Span], output: Span, root: usize, call: &Call) -> Result<()>;

    /// Sends and receives between pairs, concurrently. A list of sends alone does not wait for their receivers.
    unsafe fn exchange(&mut self, transfers: &mut [Transfer], call: &Call) -> Result<()>;

    /// Waits until a message with a tag can be received from any rank, and returns the rank.
    fn probe(&mut self, tag: u32, call: &Call) -> Result<usize>;

    fn barrier(&mut self, call: &Call) -> Result<()>;
}

/// The engine `tcp`: shared memory within a node, connections between nodes.
pub(crate) struct Communicator {
    rank: usize,
    size: usize,
    /// Ranks of the group by node, each in order.
    nodes: Vec<Vec<usize>>,
    /// This rank's node.
    node: usize,
    /// Memory shared with the other ranks of the node; `None` if there are none or it is unavailable.
    shared: Option<NodeSegment>,
    /// Whether every node with several ranks has shared memory; the same on all ranks.
    shared_everywhere: bool,
    links: Links,
    scratch: Vec<u64>,
}

/// Shared memory of a group's nodes.
pub(crate) enum NodeMemory {
    /// Every node with several ranks has it; `None` on a node with one rank.
    Everywhere(Option<NodeSegment>),
    /// A node cannot provide it, so that none uses it.
    Missing,
}

/// The context of every collective.
pub(crate) struct Call<'a> {
    pub(crate) signature: Signature,
    pub(crate) limit: Limit<'a>,
}

/// How elements are combined.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
}

impl Reduction {
    /// # Safety
    /// As for [`reduce::reduce`].
    unsafe fn combine(self, acc: Span, src: Span) {
        // SAFETY: by contract.
        unsafe { reduce(self.dtype, self.op, acc, src) }
    }

    /// Number by which every rank divides its operand of a reduction over `ranks` before the transport takes it: a sum
    /// in half precision may overflow where its mean does not. A power of two rounds only the smallest numbers.
    pub(crate) fn scale(self, ranks: usize) -> usize {
        if self.op == ReduceOp::Mean && self.dtype == DType::F16 { ranks.next_power_of_two() } else { 1 }
    }

    /// The last step of a reduction over `ranks`: means divide by what [`scale`](Reduction::scale) has left.
    ///
    /// # Safety
    /// As for [`reduce::reduce`].
    pub(crate) unsafe fn finish(self, acc: Span, ranks: usize) {
        if self.op == ReduceOp::Mean {
            // SAFETY: by contract.
            unsafe { reduce::divide(self.dtype, acc, ranks as f64 / self.scale(ranks) as f64) }
        }
    }

    /// [`combine`](Reduction::combine) with the last of the others, [`finish`](Reduction::finish), and a copy of the
    /// result.
    ///
    /// # Safety
    /// As for [`reduce::reduce_last`].
    unsafe fn combine_last(self, acc: Span, src: Span, copy: Span, ranks: usize) {
        // SAFETY: by contract.
        unsafe {
            if !reduce::reduce_last(self.dtype, self.op, acc, src, Some(copy), ranks) {
                self.combine(acc, src);
                self.finish(acc, ranks);
                copy.copy_from(acc);
            }
        }
    }

    /// The whole reduction of two ranks; `first` says whether `acc` is the first one's.
    ///
    /// # Safety
    /// As for [`reduce::reduce`].
    unsafe fn combine_pair(self, acc: Span, src: Span, first: bool) {
        // SAFETY: by contract.
        unsafe {
            if !reduce::reduce_last(self.dtype, self.op, acc, src, None, 2) {
                match first {
                    true => self.combine(acc, src),
                    false => reduce::reduce_onto(self.dtype, self.op, acc, src),
                }
                self.finish(acc, 2);
            }
        }
    }

    /// The same without the last step.
    pub(crate) fn partial(self) -> Self {
        Self { op: if self.op == ReduceOp::Mean { ReduceOp::Sum } else { self.op }, ..self }
    }
}

/// Start and length of part `i` of `n`, aligned for every dtype.
fn part(len: usize, n: usize, i: usize) -> (usize, usize) {
    let each = len.div_ceil(n).next_multiple_of(64);
    let start = (i * each).min(len);
    (start, each.min(len - start))
}

impl Communicator {
    /// `node_of` tells the node of each rank of the group.
    pub(crate) fn new(rank: usize, node_of: &[usize], memory: NodeMemory, links: Links) -> Self {
        let mut names: Vec<usize> = Vec::new();
        let mut nodes: Vec<Vec<usize>> = Vec::new();
        for (rank, name) in node_of.iter().enumerate() {
            match names.iter().position(|n| n == name) {
                Some(node) => nodes[node].push(rank),
                None => {
                    names.push(*name);
                    nodes.push(vec![rank]);
                }
            }
        }
        let node = nodes.iter().position(|ranks| ranks.contains(&rank)).unwrap_or(0);
        let (shared, shared_everywhere) = match memory {
            NodeMemory::Everywhere(shared) => (shared, true),
            NodeMemory::Missing => (None, false),
        };
        Self { rank, size: node_of.len(), nodes, node, shared, shared_everywhere, links, scratch: Vec::new() }
    }

    /// The shared memory, if all ranks of the group have it.
    fn whole(&mut self) -> Option<&mut NodeSegment> {
        let alone = self.nodes.len() == 1;
        self.shared.as_mut().filter(|_| alone)
    }

    /// A buffer of bytes, aligned for every dtype.
    fn scratch(&mut self, len: usize) -> Span {
        self.scratch.resize(self.scratch.len().max(len.div_ceil(8)), 0);
        Span { ptr: self.scratch.as_mut_ptr().cast(), len }
    }
}

impl Transport for Communicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        "tcp"
    }

    unsafe fn all_reduce(&mut self, data: Span, how: Reduction, call: &Call) -> Result<()> {
        // SAFETY: by contract, here and in the methods below.
        unsafe {
            if self.size == 1 {
                return Ok(());
            }
            match self.whole() {
                Some(shared) => shared.all_reduce(data, how, call),
                None => self.all_reduce_across(data, how, call),
            }
        }
    }

    unsafe fn broadcast(&mut self, data: Span, root: usize, call: &Call) -> Result<()> {
        unsafe {
            if self.size == 1 {
                return Ok(());
            }
            match self.whole() {
                Some(shared) => shared.broadcast(data, root, call),
                None => self.broadcast_across(data, root, call),
            }
        }
    }

    unsafe fn reduce(&mut self, data: Span, how: Reduction, root: usize, call: &Call) -> Result<()> {
        unsafe {
            if self.size == 1 {
                return Ok(());
            }
            match self.whole() {
                Some(shared) => shared.reduce(data, how, root, call),
                None => self.reduce_across(data, how, root, call),
            }
        }
    }

    unsafe fn all_gather(&mut self, input: Span, outputs: &[Span], call: &Call) -> Result<()> {
        unsafe {
            outputs[self.rank].copy_from(input);
            if self.size == 1 {
                return Ok(());
            }
            match self.whole() {
                Some(shared) => shared.all_gather(input, outputs, call),
                None => self.all_gather_across(outputs, call),
            }
        }
    }

    unsafe fn reduce_scatter(&mut self, inputs: &[Span], output: Span, how: Reduction, call: &Call) -> Result<()> {
        unsafe {
            output.copy_from(inputs[self.rank]);
            let size = self.size;
            if size > 1 {
                match self.whole() {
                    Some(shared) => shared.reduce_scatter(inputs, output, how, call)?,
                    None => self.reduce_scatter_across(inputs, output, how, call)?,
                }
            }
            how.finish(output, size);
            Ok(())
        }
    }

    unsafe fn all_to_all(&mut self, inputs: &[Span], outputs: &[Span], call: &Call) -> Result<()> {
        unsafe {
            outputs[self.rank].copy_from(inputs[self.rank]);
            if self.size == 1 {
                return Ok(());
            }
            match self.whole() {
                Some(shared) => shared.all_to_all(inputs, outputs, call),
                None => self.all_to_all_across(inputs, outputs, call),
            }
        }
    }

    unsafe fn gather(&mut self, input: Span, outputs: &[Span], root: usize, call: &Call) -> Result<()> {
        unsafe {
            if let Some(own) = outputs.get(self.rank) {
                own.copy_from(input);
            }
            if self.size == 1 {
                return Ok(());
            }
            match self.whole() {
                Some(shared) => shared.gather(input, outputs, root, call),
                None => self.gather_across(input, outputs, root, call),
            }
        }
    }

    unsafe fn scatter(&mut self, inputs: &[Span], output: Span, root: usize, call: &Call) -> Result<()> {
        unsafe {
            if let Some(own) = inputs.get(self.rank) {
                output.copy_from(*own);
            }
            if self.size == 1 {
                return Ok(());
            }
            match self.whole() {
                Some(shared) => shared.scatter(inputs, output, root, call),
                None => self.scatter_across(inputs, output, root, call),
            }
        }
    }

    unsafe fn exchange(&mut self, transfers: &mut [Transfer], call: &Call) -> Result<()> {
        unsafe { self.links.run(transfers, &call.signature, &call.limit) }
    }

    fn probe(&mut self, tag: u32, call: &Call) -> Result<usize> {
        self.links.probe(Channel::tagged(tag), &call.signature, &call.limit)
    }

    fn barrier(&mut self, call: &Call) -> Result<()> {
        if self.size == 1 {
            return Ok(());
        }
        match self.whole() {
            Some(shared) => shared.barrier(call),
            None => self.barrier_across(call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One rank of a group of three on two nodes, without connections.
    fn communicator(rank: usize, memory: NodeMemory) -> Communicator {
        Communicator::new(rank, &[0, 0, 1], memory, Links::new(0, rank, Vec::new(), None))
    }

    #[test]
    fn all_ranks_choose_the_same_tree() {
        // Node 0 lacks shared memory. The rank that is alone on node 1 needs none, and must know.
        for rank in 0..3 {
            assert_eq!(communicator(rank, NodeMemory::Missing).tree(1).0, [1, 2, 0], "rank {rank}");
        }
        assert_eq!(communicator(2, NodeMemory::Everywhere(None)).tree(1).0, [1, 2]);
    }
}
