//! Collectives between processes: on a separate stream, by the vendor's library or by shared device memory.

pub(crate) mod collectives;
pub(crate) mod shared_memory;
