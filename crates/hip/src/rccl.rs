//! RCCL: its search path. The engine calls it through NCCL's interface.

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
            "RCCL",
            &["librccl.so.1", "librccl.so"],
            "Install RCCL, a part of ROCm, or name its directory in RUSHLIGHT_HIP_PATH; only jobs of several GPUs need it.",
        )
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}
