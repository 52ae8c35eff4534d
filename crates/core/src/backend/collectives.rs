//! Optional: collectives between devices of several processes, by the vendor's library or by shared device memory.
//!
//! An engine offers [`Collectives`] if it can do at least one of two things:
//!
//! - join a communicator of the vendor's library (NCCL, RCCL, oneCCL), for ranks that have a device each;
//! - share device memory with other processes of the same machine, for ranks that use one device together.
//!
//! Engines built on `rushlight-gpu` get both from it: a vendor's crate provides the table of its library's functions
//! and the driver's calls for shared memory. `rushlight-dist` chooses between the two, exchanges identifiers between
//! processes, and never names a vendor.

use super::View;
use crate::{DType, Error, Result};
use std::fmt;
use std::sync::Arc;

/// How the tensors of the ranks are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The sum divided by the number of ranks; PyTorch's AVG.
    Mean,
    /// The smallest; NaN wins.
    Min,
    /// The largest; NaN wins.
    Max,
    /// The product.
    Product,
    /// Bitwise and, of integers.
    BitAnd,
    /// Bitwise or, of integers.
    BitOr,
    /// Bitwise exclusive or, of integers.
    BitXor,
}

impl ReduceOp {
    /// All of them.
    pub const ALL: [ReduceOp; 8] = {
        use ReduceOp::*;
        [Sum, Mean, Min, Max, Product, BitAnd, BitOr, BitXor]
    };

    /// Whether the op is defined for a dtype.
    pub fn check(self, dtype: DType) -> Result<()> {
        let fits = match self {
            _ if dtype.is_carried() => false,
            ReduceOp::Mean => dtype.is_float(),
            ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => !dtype.is_float(),
            _ => true,
        };
        if fits { Ok(()) } else { Err(Error::dtype(format!("the reduction {self} is not defined for {dtype}"))) }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Product => "product",
            ReduceOp::BitAnd => "bit and",
            ReduceOp::BitOr => "bit or",
            ReduceOp::BitXor => "bit xor",
        })
    }
}

/// One operation of a [`DeviceComm`]. All views are contiguous and on the communicator's device.
#[derive(Clone, Copy, Debug)]
pub enum DeviceOp<'a> {
    /// Combines the ranks' data, in place.
    AllReduce {
        /// Read and written.
        data: View<'a>,
        /// How.
        op: ReduceOp,
    },
    /// Copies the root's data to all ranks.
    Broadcast {
        /// Read on the root, written elsewhere.
        data: View<'a>,
        /// The rank whose data is copied.
        root: usize,
    },
    /// Combines the ranks' data on the root; other ranks' data is unchanged.
    Reduce {
        /// Read everywhere, written on the root.
        data: View<'a>,
        /// How.
        op: ReduceOp,
        /// The rank that gets the result.
        root: usize,
    },
    /// Concatenates the ranks' inputs.
    AllGather {
        /// This rank's part.
        input: View<'a>,
        /// As many elements for each rank.
        output: View<'a>,
    },
    /// Combines the ranks' inputs and gives each rank the part at its index.
    ReduceScatter {
        /// As many elements for each rank as the output has.
        input: View<'a>,
        /// This rank's part.
        output: View<'a>,
        /// How.
        op: ReduceOp,
    },
    /// Sends to another rank. Messages between two ranks arrive in the order in which they were sent.
    Send {
        /// The data sent.
        data: View<'a>,
        /// The destination; not this rank.
        peer: usize,
    },
    /// Receives from another rank.
    Recv {
        /// Where to.
        data: View<'a>,
        /// The source; not this rank.
        peer: usize,
    },
}

/// Collectives of a device. All calls may be made by any thread.
pub trait Collectives: Send + Sync {
    /// The vendor's unique identifier of the device, the same in every process.
    fn identity(&self) -> Result<Vec<u8>>;
    /// Name and version of the vendor's library, such as "NCCL 2.28.9"; an error says why it is missing.
    fn library(&self) -> Result<String>;
    /// An identifier for a new communicator of the library. One rank creates it and sends it to the others.
    fn unique_id(&self) -> Result<Vec<u8>>;
    /// Joins a communicator of the library. Returns when all `size` ranks have called this, each with another device.
    fn join(&self, id: &[u8], rank: usize, size: usize) -> Result<Arc<dyn DeviceComm>>;
    /// Memory of this device for a communicator between processes of one machine, which may use one device together.
    fn offer_memory(&self, rank: usize, size: usize) -> Result<MemoryOffer>;
}

/// The first half of joining a communicator over shared device memory.
pub struct MemoryOffer {
    /// The address card that every other rank needs.
    pub card: Vec<u8>,
    /// The second half: takes the cards of all ranks, in order. A rank may use the communicator when all have done
    /// this.
    pub accept: Box<dyn FnOnce(&[Vec<u8>]) -> Result<Arc<dyn DeviceComm>> + Send>,
}

/// One rank's end of a communicator between devices.
pub trait DeviceComm: Send + Sync {
    /// The transport's name for messages: "NCCL 2.28.9", "shared device memory".
    fn name(&self) -> String;
    /// Starts all operations on the communicator's own stream. They run after the work that the calling thread's stream
    /// holds now, and concurrently with later work. Within a recorded step they become part of it.
    ///
    /// The memory must not be freed within a recorded step before the work is joined or dropped.
    fn start(&self, ops: &[DeviceOp]) -> Result<Arc<dyn DeviceWork>>;
    /// A background error of the operations: a broken connection, an aborted
    /// communicator.
    fn error(&self) -> Result<()>;
    /// Ends all running operations, finished or not. The communicator cannot be used afterwards.
    fn abort(&self);
}

/// Operations in progress.
pub trait DeviceWork: Send + Sync {
    /// Later work of the calling thread's stream waits for the operations. The host does not.
    fn join(&self) -> Result<()>;
    /// Whether they are done. Always true within a recorded step, where nothing is under way.
    fn query(&self) -> Result<bool>;
}
