//! RCCL: where it is looked for. It has NCCL's functions, by which the engine calls it.

use crate::SEARCH;
use rushlight_core::Result;
use rushlight_gpu::nccl::Nccl;
use std::sync::OnceLock;

/// The library, or why there is none.
pub fn get() -> Result<&'static Nccl> {
    static LIBRARY: OnceLock<Result<Nccl>> = OnceLock::new();
    let open = || {
        Nccl::open(
            &SEARCH,
            "RCCL",
            &["librccl.so.1", "librccl.so"],
            "Install RCCL, a part of ROCm, or name its directory in RUSHLIGHT_HIP_PATH; one GPU does without it: it is for sums across several.",
        )
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}
