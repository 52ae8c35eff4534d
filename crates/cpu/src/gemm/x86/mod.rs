//! Microkernels for x86-64, and their selection.

mod amx;
mod avx2;
mod avx512;
mod bf16_dot;
mod fma;
mod integers;
mod pack512;

use super::kernel::Plain;
use super::{Gemm, WithKernel, run};
use crate::amx::{Bf16Path, bf16_path};
use crate::isa::{self, Avx2, Level, Portable};
use fma::Fma;
use half::{bf16, f16};
use integers::Integers;
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

/// # Safety
/// The pointers of the work are valid.
pub(super) unsafe fn f32<W: WithKernel<f32>>(work: W) -> W::Out {
    // SAFETY: the caller's promise, and the level is one the machine has.
    unsafe {
        match isa::level() {
            Level::Avx512 => work.with::<Fma<__m512, f32>>(),
            Level::Avx2 => work.with::<Fma<__m256, f32>>(),
            Level::Portable => work.with::<Plain<f32, Portable>>(),
        }
    }
}

/// # Safety
/// The pointers of the work are valid.
pub(super) unsafe fn f64<W: WithKernel<f64>>(work: W) -> W::Out {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Avx512 => work.with::<Fma<__m512d, f64>>(),
            Level::Avx2 => work.with::<Fma<__m256d, f64>>(),
            Level::Portable => work.with::<Plain<f64, Portable>>(),
        }
    }
}

/// # Safety
/// As for [`gemm`](super::gemm) with this dtype.
pub(super) unsafe fn i32(spec: &Gemm) {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Avx512 => run::<Integers<i32, 32>>(spec),
            Level::Avx2 => run::<Plain<i32, Avx2>>(spec),
            Level::Portable => run::<Plain<i32, Portable>>(spec),
        }
    }
}

/// # Safety
/// As for [`gemm`](super::gemm) with this dtype.
pub(super) unsafe fn i64(spec: &Gemm) {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Avx512 => run::<Integers<i64, 16>>(spec),
            Level::Avx2 => run::<Plain<i64, Avx2>>(spec),
            Level::Portable => run::<Plain<i64, Portable>>(spec),
        }
    }
}

/// # Safety
/// As for [`gemm`](super::gemm) with this dtype.
pub(super) unsafe fn f16(spec: &Gemm) {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Avx512 => run::<Fma<__m512, f16>>(spec),
            Level::Avx2 => run::<Fma<__m256, f16>>(spec),
            Level::Portable => run::<Plain<f16, Portable>>(spec),
        }
    }
}

/// # Safety
/// As for [`gemm`](super::gemm) with this dtype.
pub(super) unsafe fn bf16(spec: &Gemm) {
    // SAFETY: as above; the path was checked against the machine.
    unsafe {
        match (isa::level(), bf16_path()) {
            (Level::Avx512, Bf16Path::Amx) => run::<amx::Tiles>(spec),
            (Level::Avx512, Bf16Path::Dot) => run::<bf16_dot::Dot>(spec),
            (Level::Avx512, Bf16Path::Widen) => run::<Fma<__m512, bf16>>(spec),
            (Level::Avx2, _) => run::<Fma<__m256, bf16>>(spec),
            (Level::Portable, _) => run::<Plain<bf16, Portable>>(spec),
        }
    }
}
