//! Distributed training: launch detection, stores, process groups, data parallel.
//!
//! The same program runs alone and under any launcher: [`launch`] finds its rank and world, the ranks meet in a
//! [`store`], and [`ProcessGroup`]s have PyTorch's collectives.

mod comm;
mod group;
mod job;
pub mod launch;
mod net;
mod parallel;
pub mod store;
mod world;

pub use comm::ReduceOp;
pub use group::{Collective, Entry, FlightRecord, Objects, P2p, ProcessGroup, Stage, Work};
pub use parallel::{Builder, CommHook, DistributedDataParallel, NoSync, Outputs};
pub use world::{DEFAULT_GROUP_TIMEOUT, Init, World, init};
