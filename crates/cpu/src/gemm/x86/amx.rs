//! AMX: bf16 tiles of 16 × 32 multiplied by one instruction, written in assembly because the intrinsics are not stable.

use super::super::kernel::{Kernel, Left, Strip, Target, Task};
use super::super::problem::Matrix;
use super::avx512::dot_f32;
use super::bf16_dot::{self, block};
use crate::amx::{sums, with_tiles};
use half::bf16;
use std::arch::asm;
use std::arch::x86_64::*;

/// bf16 by AMX: 2 × 2 tiles of 16 × 16 sums.
pub(super) struct Tiles;

impl Kernel for Tiles {
    type Elem = bf16;
    type Packed = u16;
    const MR: usize = 32;
    const NR: usize = 32;
    const K_UNIT: usize = 32;
    const KC: usize = 640;
    const MC: usize = 256;
    const WHOLE_TILES: bool = true;
    const COPIES_ROWS: bool = true;
    const ALONG_ROWS: bool = true;
    const FMA: bool = true;
    const RATE: usize = 500_000;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the path was chosen because AMX is granted, and with it comes AVX512-BF16.
        unsafe { with_tiles(|| bf16_dot::enter(task)) }
    }

    /// The tiles are set up already.
    #[inline(always)]
    unsafe fn apart(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { bf16_dot::enter(task) }
    }

    #[inline(always)]
    fn reads_in_place(a: &Matrix<*const bf16>, _n: usize, k: usize) -> bool {
        let row_bytes = (a.row_stride * 2) as usize;
        let aligned = (a.ptr as usize | row_bytes).is_multiple_of(64);
        // At such strides all rows would share a few sets of the L1 cache.
        let crowded = row_bytes.is_multiple_of(2048);
        a.col_stride == 1 && aligned && k.is_multiple_of(Self::K_UNIT) && !crowded
    }

    /// Two tiles of 16 rows for every 32 k, each row its 32 k.
    #[inline(always)]
    unsafe fn pack_a(strip: Strip<bf16>, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { pack::<false>(&strip, to) }
    }

    /// Two tiles of 16 columns for every 32 k, each row a pair of k for its 16 columns.
    #[inline(always)]
    unsafe fn pack_b(strip: Strip<bf16>, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { pack::<true>(&strip, to) }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<u16>,
        b: *const u16,
        rows: usize,
        _cols: usize,
        target: Target<f32>,
        ahead: *const u8,
    ) {
        debug_assert!(target.alpha == 1.0 && (target.beta == 0.0 || target.beta == 1.0));
        // SAFETY: the caller's promise.
        unsafe { tile(k.div_ceil(32), a, b, rows, target, ahead) }
    }

    #[inline(always)]
    unsafe fn narrow(from: *const f32, to: *mut bf16, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { bf16_dot::narrow(from, to, len) }
    }

    #[inline(always)]
    unsafe fn dot(len: usize, x: *const f32, y: *const bf16) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { dot_f32(len, x, y) }
    }
}

/// # Safety
/// The strip is readable and `to` has room for its 32 lanes over k rounded up to 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack<const PAIRS: bool>(strip: &Strip<bf16>, to: *mut u16) {
    for k in (0..strip.k).step_by(32) {
        // SAFETY: a step of 32 k takes 1024 values.
        unsafe {
            for (i, v) in block::<PAIRS>(strip, k).as_flattened().iter().enumerate() {
                _mm512_storeu_si512(to.add(32 * (k + i)).cast(), *v);
            }
        }
    }
}

/// # Safety
/// The tiles are configured, the strips hold `steps` steps of 32 k, and the target is valid at 32 × 32.
#[inline(always)]
unsafe fn tile(steps: usize, a: Left<u16>, b: *const u16, rows: usize, target: Target<f32>, ahead: *const u8) {
    let upper = target.ptr;
    let stride = target.stride as usize * 4;
    // Packed, a step of 32 k is two tiles of 64-byte rows; in place, the next 64 bytes of 32 rows.
    let (row_bytes, second, step) = match a.row_stride {
        None => (64, 512, 2048usize),
        Some(stride) => (2 * stride, 16 * stride, 64),
    };
    let (a, second) = (a.ptr, a.ptr.wrapping_offset(second));
    // SAFETY: the caller's promise.
    unsafe {
        let lower = target.ptr.offset(16 * target.stride);
        if target.beta == 0.0 {
            sums::zero();
        } else {
            sums::load([upper, lower], stride);
        }
        if rows > 16 {
            asm!(
                "2:",
                "tileloadd tmm4, [{a} + {a_row}*1]",
                "tileloaddt1 tmm6, [{b} + {row}*1]",
                "prefetcht1 [{ahead}]",
                "prefetcht1 [{ahead} + 64]",
                "prefetcht1 [{ahead} + 128]",
                "prefetcht1 [{ahead} + 192]",
                "add {ahead}, 256",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloaddt1 tmm7, [{b} + {row}*1 + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{second} + {a_row}*1]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, {step}",
                "add {second}, {step}",
                "add {b}, 2048",
                "dec {steps}",
                "jnz 2b",
                a = inout(reg) a => _, second = inout(reg) second => _, a_row = in(reg) row_bytes, step = in(reg) step,
                b = inout(reg) b => _, row = in(reg) 64usize, steps = inout(reg) steps => _, ahead = inout(reg) ahead => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly)
            );
        } else {
            asm!(
                "2:",
                "tileloadd tmm4, [{a} + {a_row}*1]",
                "tileloaddt1 tmm6, [{b} + {row}*1]",
                "prefetcht1 [{ahead}]",
                "prefetcht1 [{ahead} + 64]",
                "prefetcht1 [{ahead} + 128]",
                "prefetcht1 [{ahead} + 192]",
                "add {ahead}, 256",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloaddt1 tmm7, [{b} + {row}*1 + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {a}, {step}",
                "add {b}, 2048",
                "dec {steps}",
                "jnz 2b",
                a = inout(reg) a => _, a_row = in(reg) row_bytes, step = in(reg) step,
                b = inout(reg) b => _, row = in(reg) 64usize, steps = inout(reg) steps => _, ahead = inout(reg) ahead => _,
                out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly)
            );
        }
        sums::store([upper, lower], stride);
    }
}
