//! The vectors the convolution kernels are written in: one trait, one implementation per instruction-set level.

use crate::isa::{Isa, Portable};

/// A register of `LANES` floats. Every method is inlined into the kernel, which the `multiversion!` wrapper compiles
/// with the features of its level.
pub(super) trait Vector: Copy {
    type Elem: Copy;
    const LANES: usize;

    /// # Safety
    /// For every method: the features of the level are present; for loads and stores, `LANES` elements are valid at
    /// `p`.
    unsafe fn splat(v: Self::Elem) -> Self;
    unsafe fn load(p: *const Self::Elem) -> Self;
    unsafe fn store(self, p: *mut Self::Elem);
    unsafe fn add(self, o: Self) -> Self;
    unsafe fn sub(self, o: Self) -> Self;
    unsafe fn mul(self, o: Self) -> Self;
    /// `self * o + acc`.
    unsafe fn mul_add(self, o: Self, acc: Self) -> Self;
    /// `max(self, 0)`; NaN stays.
    unsafe fn relu(self) -> Self;
    /// Copies fewer than `LANES` elements.
    #[inline(always)]
    unsafe fn copy_part(src: *const Self::Elem, dst: *mut Self::Elem, count: usize) {
        for i in 0..count {
            // SAFETY: the caller guarantees `count` elements on both sides.
            unsafe { *dst.add(i) = *src.add(i) }
        }
    }
}

/// The vector of `E` at a level, and the number of vectors that a kernel keeps side by side.
pub(super) trait Simd<E>: Isa {
    type V: Vector<Elem = E>;
    /// Vectors per accumulator row: six such rows, the row of the right operand and one broadcast fill the register
    /// file.
    const ACROSS: usize;
}

/// A portable vector, lowered by the compiler to the build's target.
#[derive(Clone, Copy)]
pub(super) struct Plain<E, const N: usize>([E; N]);

macro_rules! plain {
    ($e:ty, $n:literal) => {
        impl Vector for Plain<$e, $n> {
            type Elem = $e;
            const LANES: usize = $n;
            #[inline(always)]
            unsafe fn splat(v: $e) -> Self {
                Self([v; $n])
            }
            #[inline(always)]
            unsafe fn load(p: *const $e) -> Self {
                // SAFETY: the caller guarantees `LANES` elements.
                Self(unsafe { p.cast::<[$e; $n]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $e) {
                // SAFETY: the caller guarantees `LANES` elements.
                unsafe { p.cast::<[$e; $n]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn add(mut self, o: Self) -> Self {
                for i in 0..$n {
                    self.0[i] += o.0[i];
                }
                self
            }
            #[inline(always)]
            unsafe fn sub(mut self, o: Self) -> Self {
                for i in 0..$n {
                    self.0[i] -= o.0[i];
                }
                self
            }
            #[inline(always)]
            unsafe fn mul(mut self, o: Self) -> Self {
                for i in 0..$n {
                    self.0[i] *= o.0[i];
                }
                self
            }
            #[inline(always)]
            unsafe fn mul_add(mut self, o: Self, acc: Self) -> Self {
                for i in 0..$n {
                    let (x, y, z) = (self.0[i], o.0[i], acc.0[i]);
                    self.0[i] = if Portable::FMA { x.mul_add(y, z) } else { x * y + z };
                }
                self
            }
            #[inline(always)]
            unsafe fn relu(mut self) -> Self {
                for i in 0..$n {
                    self.0[i] = if self.0[i] < 0.0 { 0.0 } else { self.0[i] };
                }
                self
            }
        }
        impl Simd<$e> for Portable {
            type V = Plain<$e, $n>;
            const ACROSS: usize = 2;
        }
    };
}
plain!(f32, 4);
plain!(f64, 2);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Simd, Vector};
    use crate::isa::{Avx2, Avx512};
    use std::arch::x86_64::*;

    macro_rules! register {
        ($e:ty, $v:ty, $isa:ty, $lanes:literal, $across:literal,
         $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $fma:ident, $max:ident $(, { $($part:tt)* })?) => {
            // SAFETY (all blocks): the trait's contract gives the features and the memory.
            impl Vector for $v {
                type Elem = $e;
                const LANES: usize = $lanes;
                #[inline(always)]
                unsafe fn splat(v: $e) -> Self {
                    unsafe { $splat(v) }
                }
                #[inline(always)]
                unsafe fn load(p: *const $e) -> Self {
                    unsafe { $load(p) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $e) {
                    unsafe { $store(p, self) }
                }
                #[inline(always)]
                unsafe fn add(self, o: Self) -> Self {
                    unsafe { $add(self, o) }
                }
                #[inline(always)]
                unsafe fn sub(self, o: Self) -> Self {
                    unsafe { $sub(self, o) }
                }
                #[inline(always)]
                unsafe fn mul(self, o: Self) -> Self {
                    unsafe { $mul(self, o) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, o: Self, acc: Self) -> Self {
                    unsafe { $fma(self, o, acc) }
                }
                #[inline(always)]
                unsafe fn relu(self) -> Self {
                    // Of operands with a NaN the second is the result.
                    unsafe { $max($splat(0.0), self) }
                }
                $($($part)*)?
            }
            impl Simd<$e> for $isa {
                type V = $v;
                const ACROSS: usize = $across;
            }
        };
    }
    register!(
        f32,
        __m512,
        Avx512,
        16,
        4,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps,
        _mm512_fmadd_ps,
        _mm512_max_ps,
        {
            #[inline(always)]
            unsafe fn copy_part(src: *const f32, dst: *mut f32, count: usize) {
                let mask = (1u16 << count) - 1;
                // SAFETY: lanes the mask leaves out are not touched.
                unsafe { _mm512_mask_storeu_ps(dst, mask, _mm512_maskz_loadu_ps(mask, src)) }
            }
        }
    );
    register!(
        f64,
        __m512d,
        Avx512,
        8,
        4,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_add_pd,
        _mm512_sub_pd,
        _mm512_mul_pd,
        _mm512_fmadd_pd,
        _mm512_max_pd
    );
    register!(
        f32,
        __m256,
        Avx2,
        8,
        2,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps,
        _mm256_fmadd_ps,
        _mm256_max_ps
    );
    register!(
        f64,
        __m256d,
        Avx2,
        4,
        2,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_add_pd,
        _mm256_sub_pd,
        _mm256_mul_pd,
        _mm256_fmadd_pd,
        _mm256_max_pd
    );
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{Simd, Vector};
    use crate::isa::Neon;
    use crate::simd::{Simd as Lanes, Vectors};

    macro_rules! register {
        ($e:ty, $v:ty) => {
            // SAFETY (all blocks): the trait's contract gives the memory.
            impl Vector for $v {
                type Elem = $e;
                const LANES: usize = <$v as Lanes>::N;
                #[inline(always)]
                unsafe fn splat(v: $e) -> Self {
                    Lanes::splat(v)
                }
                #[inline(always)]
                unsafe fn load(p: *const $e) -> Self {
                    unsafe { Lanes::load(p) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $e) {
                    unsafe { Lanes::store(self, p) }
                }
                #[inline(always)]
                unsafe fn add(self, o: Self) -> Self {
                    self + o
                }
                #[inline(always)]
                unsafe fn sub(self, o: Self) -> Self {
                    self - o
                }
                #[inline(always)]
                unsafe fn mul(self, o: Self) -> Self {
                    self * o
                }
                #[inline(always)]
                unsafe fn mul_add(self, o: Self, acc: Self) -> Self {
                    Lanes::fma(self, o, acc)
                }
                #[inline(always)]
                unsafe fn relu(self) -> Self {
                    Lanes::max(Lanes::splat(0.0), self)
                }
            }
            impl Simd<$e> for Neon {
                type V = $v;
                const ACROSS: usize = 2;
            }
        };
    }
    register!(f32, <Neon as Vectors>::F32);
    register!(f64, <Neon as Vectors>::F64);
}
