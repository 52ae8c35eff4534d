//! Distributed training: launch detection, stores, process groups, data parallel.
//!
//! The same program runs alone and under any launcher: [`launch`] finds its rank and world, [`store`] is where the ranks meet.

pub mod launch;
mod net;
pub mod store;
