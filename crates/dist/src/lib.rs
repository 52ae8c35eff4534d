//! Distributed training: launch detection, stores, process groups, data parallel.
//!
//! The same program runs alone and under any launcher: [`launch`] finds its rank and world size, the ranks rendezvous
//! in a [`store`], and [`ProcessGroup`]s provide PyTorch's collectives.
//!
//! Linux only: it uses shared memory, futexes and epoll. Elsewhere this crate is empty.

#![cfg(target_os = "linux")]

pub mod async_tp;
mod comm;
pub mod context_parallel;
pub mod dtensor;
pub mod expert_parallel;
mod group;
mod job;
pub mod launch;
mod meeting;
mod mesh;
mod mpi;
mod net;
mod options;
mod parallel;
pub mod pipeline;
pub mod plan;
mod shard;
pub mod store;
mod world;

pub use comm::ReduceOp;
pub use dtensor::{DTensor, Placement};
pub use group::{Collective, Entry, FlightRecord, ObjectSeal, Objects, P2p, ProcessGroup, Stage, Work};
pub use mesh::DeviceMesh;
pub use options::LrScaling;
pub use parallel::{
    BucketHook, Builder, CommHook, DataParallel, DistributedDataParallel, DistributedOptimizer,
    DistributedOptimizerBuilder, GradBucket, NoSync, Outputs, PeriodicModelAverager, PowerSgd, PowerSgdMemory, Reducer,
    ReducerSettings, SentBucket, SyncBatchNorm, allreduce, broadcast_parameters, sync_batch_norm,
};
pub use shard::{FullyShard, InPlace, ShardGroup, ShardOptions, Sharded, ZeroStage, clip_grad_norm_, shard};
pub use world::{DEFAULT_GROUP_TIMEOUT, Init, World, init};
