//! NEON vectors: pairs of registers.
//!
//! NEON has 32 registers of four `f32`. Pairs of them are 16 vectors of eight, which is what AVX2 has: kernels whose
//! blocks fit AVX2's registers fit these, and each operation is two independent instructions.

use super::{Simd, Vectors};
use crate::isa;
use crate::lane::{f16_to_f32, f32_to_bf16, f32_to_f16};
use half::{bf16, f16};
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::{Add, Div, Mul, Sub};

/// Eight `f32`.
#[derive(Clone, Copy)]
pub struct F32x8(float32x4_t, float32x4_t);

/// Four `f64`.
#[derive(Clone, Copy)]
pub struct F64x4(float64x2_t, float64x2_t);

/// The first `n < 4` elements at `p`, then `rest`.
///
/// # Safety
/// `n` elements may be read.
#[inline(always)]
unsafe fn part_f32(p: *const f32, n: usize, rest: f32) -> float32x4_t {
    // SAFETY: the caller's promise; every 64-bit ARM has NEON.
    unsafe {
        let rest = vdupq_n_f32(rest);
        match n {
            0 => rest,
            1 => vld1q_lane_f32::<0>(p, rest),
            2 => vcombine_f32(vld1_f32(p), vget_high_f32(rest)),
            _ => vld1q_lane_f32::<2>(p.add(2), vcombine_f32(vld1_f32(p), vget_high_f32(rest))),
        }
    }
}

/// The first `n < 2` elements at `p`, then `rest`.
///
/// # Safety
/// `n` elements may be read.
#[inline(always)]
unsafe fn part_f64(p: *const f64, n: usize, rest: f64) -> float64x2_t {
    // SAFETY: as above.
    unsafe {
        let rest = vdupq_n_f64(rest);
        if n == 0 { rest } else { vld1q_lane_f64::<0>(p, rest) }
    }
}

/// Writes the first `n < 4` lanes.
///
/// # Safety
/// `n` elements may be written.
#[inline(always)]
unsafe fn put_f32(p: *mut f32, v: float32x4_t, n: usize) {
    // SAFETY: as above.
    unsafe {
        if n >= 2 {
            vst1_f32(p, vget_low_f32(v));
        }
        match n {
            1 => vst1q_lane_f32::<0>(p, v),
            3 => vst1q_lane_f32::<2>(p.add(2), v),
            _ => {}
        }
    }
}

/// Writes the first `n < 2` lanes.
///
/// # Safety
/// `n` elements may be written.
#[inline(always)]
unsafe fn put_f64(p: *mut f64, v: float64x2_t, n: usize) {
    // SAFETY: as above.
    unsafe {
        if n == 1 {
            vst1q_lane_f64::<0>(p, v);
        }
    }
}

/// `v · 2^n` by two factors, each a normal number: they reach from the smallest denormal to infinity.
#[inline(always)]
fn scale_f32(v: float32x4_t, n: float32x4_t) -> float32x4_t {
    // SAFETY: every 64-bit ARM has NEON.
    unsafe {
        let n = vcvtnq_s32_f32(n);
        let half = vshrq_n_s32::<1>(n);
        let power = |m| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(m, vdupq_n_s32(127))));
        vmulq_f32(vmulq_f32(v, power(half)), power(vsubq_s32(n, half)))
    }
}

/// The same for `f64`.
#[inline(always)]
fn scale_f64(v: float64x2_t, n: float64x2_t) -> float64x2_t {
    // SAFETY: as above.
    unsafe {
        let n = vcvtnq_s64_f64(n);
        let half = vshrq_n_s64::<1>(n);
        let power = |m| vreinterpretq_f64_s64(vshlq_n_s64::<52>(vaddq_s64(m, vdupq_n_s64(1023))));
        vmulq_f64(vmulq_f64(v, power(half)), power(vsubq_s64(n, half)))
    }
}

/// Four vectors as columns.
#[inline(always)]
pub(crate) fn transposed4(r: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: every 64-bit ARM has NEON.
    unsafe {
        let pairs = |v: float32x4_t| vreinterpretq_f64_f32(v);
        let words = |v: float64x2_t| vreinterpretq_f32_f64(v);
        // Words of two rows side by side, then pairs of words of four.
        let (a, b) = (vtrn1q_f32(r[0], r[1]), vtrn2q_f32(r[0], r[1]));
        let (c, d) = (vtrn1q_f32(r[2], r[3]), vtrn2q_f32(r[2], r[3]));
        [
            words(vtrn1q_f64(pairs(a), pairs(c))),
            words(vtrn1q_f64(pairs(b), pairs(d))),
            words(vtrn2q_f64(pairs(a), pairs(c))),
            words(vtrn2q_f64(pairs(b), pairs(d))),
        ]
    }
}

macro_rules! operators {
    ($V:ident: $($trait:ident $method:ident $f:ident;)*) => {$(
        impl $trait for $V {
            type Output = Self;
            #[inline(always)]
            fn $method(self, b: Self) -> Self {
                // SAFETY: every 64-bit ARM has NEON.
                unsafe { Self($f(self.0, b.0), $f(self.1, b.1)) }
            }
        }
    )*};
}
operators! { F32x8: Add add vaddq_f32; Sub sub vsubq_f32; Mul mul vmulq_f32; Div div vdivq_f32; }
operators! { F64x4: Add add vaddq_f64; Sub sub vsubq_f64; Mul mul vmulq_f64; Div div vdivq_f64; }

macro_rules! pair {
    (
        $V:ident, $e:ty, half $half:literal, part $part:ident $put:ident, scale $scale:ident, $splat:ident $load:ident $store:ident $fma:ident
        $gt:ident $eq:ident $select:ident $not:ident $or:ident $sqrt:ident $round:ident $add:ident $sum:ident $max:ident $largest:ident
        $(, { $($more:tt)* })?
    ) => {
        // SAFETY (all blocks): every 64-bit ARM has NEON; the trait's contract gives the memory.
        impl Simd for $V {
            type Elem = $e;
            const N: usize = 2 * $half;

            #[inline(always)]
            fn splat(v: $e) -> Self {
                unsafe { Self($splat(v), $splat(v)) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $e) -> Self {
                unsafe { Self($load(p), $load(p.add($half))) }
            }
            #[inline(always)]
            unsafe fn load_part(p: *const $e, n: usize, rest: $e) -> Self {
                unsafe {
                    if n < $half {
                        Self($part(p, n, rest), $splat(rest))
                    } else {
                        Self($load(p), $part(p.add($half), n - $half, rest))
                    }
                }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $e) {
                unsafe {
                    $store(p, self.0);
                    $store(p.add($half), self.1);
                }
            }
            #[inline(always)]
            unsafe fn store_part(self, p: *mut $e, n: usize) {
                unsafe {
                    if n < $half {
                        $put(p, self.0, n);
                    } else {
                        $store(p, self.0);
                        $put(p.add($half), self.1, n - $half);
                    }
                }
            }
            #[inline(always)]
            unsafe fn stream(self, p: *mut $e) {
                // ARM does not read lines that are written whole, so a plain store is enough.
                unsafe { self.store(p) }
            }
            #[inline(always)]
            fn fma(self, a: Self, b: Self) -> Self {
                unsafe { Self($fma(b.0, self.0, a.0), $fma(b.1, self.1, a.1)) }
            }
            #[inline(always)]
            fn max(self, b: Self) -> Self {
                unsafe { Self($select($gt(self.0, b.0), self.0, b.0), $select($gt(self.1, b.1), self.1, b.1)) }
            }
            #[inline(always)]
            fn min(self, b: Self) -> Self {
                unsafe { Self($select($gt(b.0, self.0), self.0, b.0), $select($gt(b.1, self.1), self.1, b.1)) }
            }
            #[inline(always)]
            fn take_larger(&mut self, mark: &mut Self, v: Self, mark_of_v: Self) {
                unsafe {
                    // Larger, or not a number.
                    let first = $or($gt(v.0, self.0), $not($eq(v.0, v.0)));
                    let second = $or($gt(v.1, self.1), $not($eq(v.1, v.1)));
                    *self = Self($select(first, v.0, self.0), $select(second, v.1, self.1));
                    *mark = Self($select(first, mark_of_v.0, mark.0), $select(second, mark_of_v.1, mark.1));
                }
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                unsafe { Self($sqrt(self.0), $sqrt(self.1)) }
            }
            #[inline(always)]
            fn round(self) -> Self {
                unsafe { Self($round(self.0), $round(self.1)) }
            }
            #[inline(always)]
            fn scale2(self, n: Self) -> Self {
                Self($scale(self.0, n.0), $scale(self.1, n.1))
            }
            #[inline(always)]
            fn sum(self) -> $e {
                unsafe { $sum($add(self.0, self.1)) }
            }
            #[inline(always)]
            fn largest(self) -> $e {
                unsafe { $largest($max(self.0, self.1)) }
            }
            $($($more)*)?
        }
    };
}

/// There is no complement of 64-bit lanes.
#[inline(always)]
fn not_u64(v: uint64x2_t) -> uint64x2_t {
    // SAFETY: every 64-bit ARM has NEON.
    unsafe { vreinterpretq_u64_u32(vmvnq_u32(vreinterpretq_u32_u64(v))) }
}

pair!(
    F32x8, f32, half 4, part part_f32 put_f32, scale scale_f32, vdupq_n_f32 vld1q_f32 vst1q_f32 vfmaq_f32
    vcgtq_f32 vceqq_f32 vbslq_f32 vmvnq_u32 vorrq_u32 vsqrtq_f32 vrndnq_f32 vaddq_f32 vaddvq_f32 vmaxq_f32 vmaxvq_f32,
    {
        #[inline(always)]
        unsafe fn transpose_pairs(
            from: *const f32,
            row: usize,
            swap: [bool; 2],
            to: *mut f32,
            to_row: usize,
            scale: Option<Self>,
        ) {
            let [swap_from, swap_to] = swap.map(usize::from);
            for r in [0, 4] {
                for c in [0, 4] {
                    // SAFETY: eight rows of eight at both.
                    unsafe {
                        let mut v = [vdupq_n_f32(0.0); 4];
                        for i in 0..4 {
                            v[i] = vld1q_f32(from.add(((r + i) ^ swap_from) * row + c));
                            if let Some(scale) = scale {
                                v[i] = vmulq_f32(v[i], scale.0);
                            }
                        }
                        let v = transposed4(v);
                        for i in 0..4 {
                            vst1q_f32(to.add(((c + i) ^ swap_to) * to_row + r), v[i]);
                        }
                    }
                }
            }
        }
    }
);
pair!(
    F64x4, f64, half 2, part part_f64 put_f64, scale scale_f64, vdupq_n_f64 vld1q_f64 vst1q_f64 vfmaq_f64
    vcgtq_f64 vceqq_f64 vbslq_f64 not_u64 vorrq_u64 vsqrtq_f64 vrndnq_f64 vaddq_f64 vaddvq_f64 vmaxq_f64 vmaxvq_f64
);

/// Four half-precision numbers as `f32`. The instruction is part of NEON; its intrinsic is not stable in the oldest
/// Rust that we build with.
#[inline(always)]
pub(crate) fn widen_f16x4(v: uint16x4_t) -> float32x4_t {
    let out: float32x4_t;
    // SAFETY: from register to register.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) out, in(vreg) v, options(pure, nomem, nostack, preserves_flags))
    };
    out
}

/// The upper four of eight half-precision numbers as `f32`.
#[inline(always)]
fn widen_high_f16x4(v: uint16x8_t) -> float32x4_t {
    let out: float32x4_t;
    // SAFETY: from register to register.
    unsafe {
        asm!("fcvtl2 {0:v}.4s, {1:v}.8h", out(vreg) out, in(vreg) v, options(pure, nomem, nostack, preserves_flags))
    };
    out
}

/// Eight numbers rounded to half precision.
#[inline(always)]
fn narrow_f16x8(low: float32x4_t, high: float32x4_t) -> uint16x8_t {
    let out: uint16x8_t;
    // SAFETY: from registers to a register, which is written before `high` is read.
    unsafe {
        asm!(
            "fcvtn {0:v}.4h, {1:v}.4s",
            "fcvtn2 {0:v}.8h, {2:v}.4s",
            out(vreg) out, in(vreg) low, in(vreg) high,
            options(pure, nomem, nostack, preserves_flags)
        )
    };
    out
}

/// Four numbers rounded to half precision.
#[inline(always)]
pub(crate) fn narrow_f16x4(v: float32x4_t) -> uint16x4_t {
    let out: uint16x4_t;
    // SAFETY: from register to register.
    unsafe {
        asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) out, in(vreg) v, options(pure, nomem, nostack, preserves_flags))
    };
    out
}

/// Runs `vectors(i)` for the elements `i..i + 8` of each whole vector of `0..n`; the last vector may overlap the one
/// before. Fewer than eight elements use `single(i)` each.
#[inline(always)]
fn by_eight(n: usize, vectors: impl Fn(usize), single: impl Fn(usize)) {
    if n < 8 {
        return (0..n).for_each(single);
    }
    let mut i = 0;
    while i + 16 <= n {
        vectors(i);
        vectors(i + 8);
        i += 16;
    }
    if i + 8 <= n {
        vectors(i);
        i += 8;
    }
    if i < n {
        vectors(n - 8);
    }
}

/// Rounds `n` numbers to bf16.
///
/// # Safety
/// `n` elements at `src` and `dst`, which do not overlap; the machine has bf16 instructions.
#[target_feature(enable = "bf16")]
pub(crate) unsafe fn narrow_bf16(src: *const f32, dst: *mut bf16, n: usize) {
    by_eight(
        n,
        // SAFETY: eight elements from `i` on are among the `n`.
        |i| unsafe {
            let (low, high) = (vld1q_f32(src.add(i)), vld1q_f32(src.add(i + 4)));
            let out: uint16x8_t;
            asm!(
                "bfcvtn {0:v}.4h, {1:v}.4s",
                "bfcvtn2 {0:v}.8h, {2:v}.4s",
                out(vreg) out, in(vreg) low, in(vreg) high,
                options(pure, nomem, nostack, preserves_flags)
            );
            vst1q_u16(dst.add(i).cast(), out);
        },
        // SAFETY: `i` is below `n`.
        |i| unsafe { dst.add(i).write(bf16::from_bits(f32_to_bf16(src.add(i).read()))) },
    );
}

impl Vectors for isa::Neon {
    type F32 = F32x8;
    type F64 = F64x4;

    #[inline(always)]
    unsafe fn widen_f16(src: *const f16, dst: *mut f32, n: usize) {
        by_eight(
            n,
            // SAFETY: eight elements from `i` on are among the `n`.
            |i| unsafe {
                let v = vld1q_u16(src.add(i).cast());
                vst1q_f32(dst.add(i), widen_f16x4(vget_low_u16(v)));
                vst1q_f32(dst.add(i + 4), widen_high_f16x4(v));
            },
            // SAFETY: `i` is below `n`.
            |i| unsafe { dst.add(i).write(f16_to_f32(src.add(i).read().to_bits())) },
        );
    }
    #[inline(always)]
    unsafe fn narrow_f16(src: *const f32, dst: *mut f16, n: usize) {
        by_eight(
            n,
            // SAFETY: eight elements from `i` on are among the `n`.
            |i| unsafe {
                let v = narrow_f16x8(vld1q_f32(src.add(i)), vld1q_f32(src.add(i + 4)));
                vst1q_u16(dst.add(i).cast(), v);
            },
            // SAFETY: `i` is below `n`.
            |i| unsafe { dst.add(i).write(f16::from_bits(f32_to_f16(src.add(i).read()))) },
        );
    }
}
