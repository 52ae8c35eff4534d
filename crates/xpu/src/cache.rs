//! Compiled programs on disk, so that a second run compiles nothing.

use rushlight_gpu::launch::cache::Cache;
pub use rushlight_gpu::launch::cache::hash;

/// The cache of programs of Intel's GPUs. A file is named by a hash of its text and of the properties of the device and
/// its driver.
pub static PROGRAMS: Cache =
    Cache { variable: "RUSHLIGHT_XPU_CACHE", folder: "xpu", extension: "cl.bin", magic: b"RLOPENCL" };
