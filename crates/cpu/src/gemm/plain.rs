//! Microkernels for architectures without dedicated ones.

use super::kernel::Plain;
use super::{Gemm, WithKernel, run};
use crate::isa::Portable;

/// # Safety
/// The pointers of the work are valid.
pub(super) unsafe fn f32<W: WithKernel<f32>>(work: W) -> W::Out {
    // SAFETY: the caller's promise; the kernel needs no feature.
    unsafe { work.with::<Plain<f32, Portable>>() }
}

/// # Safety
/// The pointers of the work are valid.
pub(super) unsafe fn f64<W: WithKernel<f64>>(work: W) -> W::Out {
    // SAFETY: as above.
    unsafe { work.with::<Plain<f64, Portable>>() }
}

macro_rules! plain {
    ($($name:ident $t:ty;)*) => {$(
        /// # Safety
        /// As for [`gemm`](super::gemm) with this dtype.
        pub(super) unsafe fn $name(spec: &Gemm) {
            // SAFETY: the caller's promise; the kernel needs no feature.
            unsafe { run::<Plain<$t, Portable>>(spec) }
        }
    )*};
}
plain! {
    f16 half::f16;
    bf16 half::bf16;
    i32 i32;
    i64 i64;
}
