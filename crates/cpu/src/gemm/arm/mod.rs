//! Microkernels for 64-bit ARM, and their selection.
//!
//! Two kinds of kernel cover all dtypes: multiply-adds of a vector by one lane of another (`lanes`: `f32`, `f64`,
//! `i32`, and bytes by dot products), and products of two small matrices in registers (`squares`: bf16 and bytes).
//! Instructions beyond NEON are written in assembly: their intrinsics are not stable Rust.

mod elements;
mod lanes;
mod squares;

use super::kernel::{Features, Plain, Task};
use super::{Activation, Gemm, WithKernel, run};
use crate::isa::{self, Isa, Level, Neon, Portable};
use half::{bf16, f16};
use lanes::{Dots, LaneKernel};
use squares::{Byte, SquareKernel};
use std::arch::aarch64::{float32x4_t, float64x2_t, int32x4_t};

impl Features for Neon {
    // Not inlined, so that a task is compiled once and a tile has all registers.
    #[inline(never)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise; every 64-bit ARM has NEON.
        unsafe { task.run() }
    }
}

macro_rules! beyond_neon {
    ($(#[$doc:meta])* $name:ident, $features:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl Isa for $name {
            const FMA: bool = Neon::FMA;
            const LANES: usize = Neon::LANES;
        }

        impl Features for $name {
            #[inline(always)]
            unsafe fn enter(task: impl Task) {
                #[inline(never)]
                #[target_feature(enable = $features)]
                unsafe fn inner(task: impl Task) {
                    // SAFETY: the caller's promise.
                    unsafe { task.run() }
                }
                // SAFETY: the caller guarantees the features.
                unsafe { inner(task) }
            }
        }
    };
}
beyond_neon!(
    /// NEON with dot products of bytes.
    DotProd,
    "neon,dotprod"
);
beyond_neon!(
    /// NEON with products of matrices of bf16 and of bytes.
    Matrices,
    "neon,dotprod,bf16,i8mm"
);

/// # Safety
/// The pointers of the work are valid.
pub(super) unsafe fn f32<W: WithKernel<f32>>(work: W) -> W::Out {
    // SAFETY: the caller's promise, and the level is one the machine has.
    unsafe {
        match isa::level() {
            Level::Portable => work.with::<Plain<f32, Portable>>(),
            _ => work.with::<LaneKernel<float32x4_t, f32>>(),
        }
    }
}

/// # Safety
/// The pointers of the work are valid.
pub(super) unsafe fn f64<W: WithKernel<f64>>(work: W) -> W::Out {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Portable => work.with::<Plain<f64, Portable>>(),
            _ => work.with::<LaneKernel<float64x2_t, f64>>(),
        }
    }
}

/// # Safety
/// As for [`gemm`](super::gemm) with this dtype.
pub(super) unsafe fn i32(spec: &Gemm) {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Portable => run::<Plain<i32, Portable>>(spec),
            _ => run::<LaneKernel<int32x4_t, i32>>(spec),
        }
    }
}

/// NEON has no multiplication of 64-bit integers.
///
/// # Safety
/// As for [`gemm`](super::gemm) with this dtype.
pub(super) unsafe fn i64(spec: &Gemm) {
    // SAFETY: as above.
    unsafe { run::<Plain<i64, Portable>>(spec) }
}

/// # Safety
/// As for [`gemm`](super::gemm) with this dtype.
pub(super) unsafe fn f16(spec: &Gemm) {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Portable => run::<Plain<f16, Portable>>(spec),
            _ => run::<LaneKernel<float32x4_t, f16>>(spec),
        }
    }
}

/// # Safety
/// As for [`gemm`](super::gemm) with this dtype.
pub(super) unsafe fn bf16(spec: &Gemm) {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Portable => run::<Plain<bf16, Portable>>(spec),
            Level::Neon | Level::DotProd => run::<LaneKernel<float32x4_t, bf16>>(spec),
            Level::Bf16 => run::<SquareKernel<bf16>>(spec),
        }
    }
}

/// Whether [`bytes`] computes this product of 8-bit integers. An activation needs the sum wrapped to 8 bits, which only
/// `small` provides.
pub(super) fn takes_bytes(spec: &Gemm) -> bool {
    isa::level() >= Level::DotProd && spec.m > 1 && spec.n > 1 && spec.activation == Activation::None
}

/// 8-bit integers, signed or unsigned: sums modulo 2⁸ are the same.
///
/// # Safety
/// As for [`gemm`](super::gemm) with these dtypes, and [`takes_bytes`].
pub(super) unsafe fn bytes(spec: &Gemm) {
    // SAFETY: as above.
    unsafe {
        match isa::level() {
            Level::Bf16 => run::<SquareKernel<Byte>>(spec),
            _ => run::<LaneKernel<Dots, Byte>>(spec),
        }
    }
}
