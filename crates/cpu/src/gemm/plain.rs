//! Microkernels for architectures without dedicated ones.

use super::kernel::Plain;
use super::{Gemm, run};
use crate::isa::Portable;

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
    f32 f32;
    f64 f64;
    f16 half::f16;
    bf16 half::bf16;
    i32 i32;
    i64 i64;
}
