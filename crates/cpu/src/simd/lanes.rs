//! Vectors as arrays, for levels and types without intrinsics here.

use super::{Real, Simd};
use crate::isa::Isa;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Sub};

/// `N` scalars, used as one value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Lanes<R, const N: usize, I>([R; N], PhantomData<I>);

macro_rules! operators {
    ($($trait:ident $method:ident $op:tt;)*) => {$(
        impl<R: Real, const N: usize, I: Isa> $trait for Lanes<R, N, I> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, b: Self) -> Self {
                let mut out = self.0;
                for i in 0..N {
                    out[i] = self.0[i] $op b.0[i];
                }
                Self(out, PhantomData)
            }
        }
    )*};
}
operators! { Add add +; Sub sub -; Mul mul *; Div div /; }

impl<R: Real, const N: usize, I: Isa> Simd for Lanes<R, N, I> {
    type Elem = R;
    const N: usize = N;

    #[inline(always)]
    fn splat(v: R) -> Self {
        Self([v; N], PhantomData)
    }
    #[inline(always)]
    unsafe fn load(p: *const R) -> Self {
        // SAFETY: `N` elements may be read.
        Self(unsafe { p.cast::<[R; N]>().read_unaligned() }, PhantomData)
    }
    #[inline(always)]
    unsafe fn load_part(p: *const R, n: usize, rest: R) -> Self {
        let mut out = [rest; N];
        for (i, lane) in out.iter_mut().enumerate().take(n) {
            // SAFETY: `n` elements may be read.
            *lane = unsafe { *p.add(i) };
        }
        Self(out, PhantomData)
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut R) {
        // SAFETY: `N` elements may be written.
        unsafe { p.cast::<[R; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut R, n: usize) {
        for (i, &lane) in self.0.iter().enumerate().take(n) {
            // SAFETY: `n` elements may be written.
            unsafe { *p.add(i) = lane }
        }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut R) {
        // SAFETY: as for `store`.
        unsafe { self.store(p) }
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        let mut out = self.0;
        for i in 0..N {
            out[i] = self.0[i].fma::<I>(a.0[i], b.0[i]);
        }
        Self(out, PhantomData)
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        let mut out = b.0;
        for i in 0..N {
            out[i] = if self.0[i] > b.0[i] { self.0[i] } else { b.0[i] };
        }
        Self(out, PhantomData)
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        let mut out = b.0;
        for i in 0..N {
            out[i] = if self.0[i] < b.0[i] { self.0[i] } else { b.0[i] };
        }
        Self(out, PhantomData)
    }
    #[inline(always)]
    fn take_larger(&mut self, mark: &mut Self, v: Self, mark_of_v: Self) {
        for i in 0..N {
            // Written for conditional moves; NaN is not equal to itself.
            #[allow(clippy::eq_op)]
            let better = (v.0[i] > self.0[i]) | (v.0[i] != v.0[i]);
            self.0[i] = if better { v.0[i] } else { self.0[i] };
            mark.0[i] = if better { mark_of_v.0[i] } else { mark.0[i] };
        }
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        let mut out = self.0;
        for i in 0..N {
            out[i] = self.0[i].sqrt();
        }
        Self(out, PhantomData)
    }
    #[inline(always)]
    fn round(self) -> Self {
        let magic = Self::splat(R::MAGIC);
        (self + magic) - magic
    }
    #[inline(always)]
    fn scale2(self, n: Self) -> Self {
        let mut out = self.0;
        for i in 0..N {
            out[i] = self.0[i].scale2(n.0[i]);
        }
        Self(out, PhantomData)
    }
    #[inline(always)]
    fn sum(self) -> R {
        let mut v = self.0;
        let mut width = N / 2;
        while width > 0 {
            for i in 0..width {
                v[i] = v[i] + v[i + width];
            }
            width /= 2;
        }
        v[0]
    }
    #[inline(always)]
    fn largest(self) -> R {
        let mut best = self.0[0];
        for &v in &self.0[1..] {
            best = if v > best { v } else { best };
        }
        best
    }
}
