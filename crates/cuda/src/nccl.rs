//! NCCL: its search path.

use crate::SEARCH;
use rushlight_core::Result;
use rushlight_gpu::vendor::nccl::Nccl;
use std::sync::OnceLock;

/// The library, or the reason why it is missing.
pub fn get() -> Result<&'static Nccl> {
    static LIBRARY: OnceLock<Result<Nccl>> = OnceLock::new();
    let open = || {
        Nccl::open(
            &SEARCH,
            "NCCL",
            &["libnccl.so.2", "libnccl.so"],
            "Install NCCL or the Python package nvidia-nccl and name its directory in RUSHLIGHT_CUDA_PATH; only jobs of several \
             GPUs need it.",
        )
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}
