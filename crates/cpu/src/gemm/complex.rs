//! Products of complex matrices, computed by the kernels of real ones.
//!
//! A number of A becomes two real rows, its parts, and a number of B two columns: the real product of both holds all
//! products of parts, at the cost of a complex product. Where a tile is written, its rows and columns are added in
//! pairs. Neither operand takes more memory than it has, and the sums stay in the order of K.

use super::kernel::{Kernel, Left, Strip, Target, Task, pack_pairs};
use super::scalar::{Accumulator, Scalar};
use super::{Activation, Gemm, WithKernel, machine, run};
use rushlight_core::DType;
use std::marker::PhantomData;
use std::ops::{Neg, Sub};

/// Products `C = A·B` of contiguous matrices of complex numbers, whose parts are of one dtype.
#[derive(Clone, Copy, Debug)]
pub struct ComplexProduct {
    /// Of the parts: `f32` or `f64`.
    pub dtype: DType,
    /// Number of products.
    pub batch: usize,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// A's first part.
    pub a: *const u8,
    /// B's first part.
    pub b: *const u8,
    /// C's first part.
    pub c: *mut u8,
}

impl ComplexProduct {
    /// Computes the products on the whole pool; `false` for other dtypes.
    ///
    /// # Safety
    /// The matrices are readable and writable, aligned to their dtype, and C overlaps neither A nor B.
    pub unsafe fn run(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::F32 => machine::f32(Numbers(self)),
                DType::F64 => machine::f64(Numbers(self)),
                _ => return false,
            }
        }
        true
    }
}

struct Numbers<'a>(&'a ComplexProduct);

impl<T: Part> WithKernel<T> for Numbers<'_> {
    type Out = ();

    unsafe fn with<K: Kernel<Elem = T>>(self) {
        let &ComplexProduct { dtype, batch, m, n, k, a, b, c } = self.0;
        let strides = |rows: usize, columns: usize| [(rows * columns) as isize, columns as isize, 1];
        let spec = Gemm {
            dtype,
            batch,
            m,
            n,
            k,
            a,
            a_strides: strides(m, k),
            b,
            b_strides: strides(k, n),
            c,
            c_strides: strides(m, n),
            alpha: 1.0,
            beta: 0.0,
            bias: None,
            activation: Activation::None,
        };
        // SAFETY: the caller's promise, and the strides count numbers.
        unsafe { run::<Pairs<K>>(&spec) }
    }
}

/// The arithmetic of a part.
trait Part: Accumulator + Neg<Output = Self> + Sub<Output = Self> {}
impl Part for f32 {}
impl Part for f64 {}

/// A complex number as it lies in memory.
#[derive(Clone, Copy, PartialEq)]
#[repr(C)]
struct Number<T> {
    re: T,
    im: T,
}

impl<T: Part> Scalar for Number<T> {
    type Acc = Self;
    const IS_ACC: bool = true;
    #[inline(always)]
    fn widen(self) -> Self {
        self
    }
    #[inline(always)]
    fn narrow(acc: Self) -> Self {
        acc
    }
}

impl<T: Part> Accumulator for Number<T> {
    const ZERO: Self = Number { re: T::ZERO, im: T::ZERO };
    const ONE: Self = Number { re: T::ONE, im: T::ZERO };
    const IS_FLOAT: bool = true;
    #[inline(always)]
    fn from_f64(v: f64) -> Self {
        Number { re: T::from_f64(v), im: T::ZERO }
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Number { re: self.re.plus(other.re), im: self.im.plus(other.im) }
    }
    #[inline(always)]
    fn times(self, x: Self) -> Self {
        Number { re: self.re.times(x.re) - self.im.times(x.im), im: self.re.times(x.im).plus(self.im.times(x.re)) }
    }
    #[inline(always)]
    fn mul_add<const FMA: bool>(self, x: Self, y: Self) -> Self {
        let re = self.re.mul_add::<FMA>(x.re, y.re);
        let im = self.re.mul_add::<FMA>(x.im, y.im);
        Number { re: (-self.im).mul_add::<FMA>(x.im, re), im: self.im.mul_add::<FMA>(x.re, im) }
    }
    /// Complex products have no epilogue.
    #[inline(always)]
    fn activate(_: &mut [Self], activation: Activation) {
        debug_assert_eq!(activation, Activation::None);
    }
}

/// A strip of numbers as one of pairs.
#[inline(always)]
fn pairs<T>(Strip { ptr, lane_stride, k_stride, lanes, k }: Strip<Number<T>>) -> Strip<[T; 2]> {
    Strip { ptr: ptr.cast(), lane_stride, k_stride, lanes, k }
}

/// The kernel of complex numbers, by that of their parts.
struct Pairs<K>(PhantomData<K>);

impl<K: Kernel<Elem = T>, T: Part> Kernel for Pairs<K> {
    type Elem = Number<T>;
    type Packed = [K::Packed; 2];
    const MR: usize = K::MR / 2;
    const NR: usize = K::NR / 2;
    const K_UNIT: usize = K::K_UNIT;
    const KC: usize = K::KC;
    const MC: usize = K::MC / 2;
    const WHOLE_TILES: bool = K::WHOLE_TILES;
    const FMA: bool = K::FMA;
    const RATE: usize = K::RATE / 4;

    #[inline(always)]
    unsafe fn enter(task: impl Task) {
        // SAFETY: the caller's promise.
        unsafe { K::enter(task) }
    }

    #[inline(always)]
    unsafe fn pack_a(strip: Strip<Number<T>>, to: *mut [K::Packed; 2]) {
        // SAFETY: a number is its two parts.
        unsafe { K::pack_pairs(pairs(strip), to.cast()) }
    }

    #[inline(always)]
    unsafe fn pack_b(s: Strip<Number<T>>, to: *mut [K::Packed; 2]) {
        // SAFETY: the caller's promise; adjacent numbers are adjacent parts.
        unsafe {
            if s.lane_stride != 1 {
                return pack_pairs(pairs(s), K::NR, to.cast(), |strip, to| K::pack_b(strip, to));
            }
            let (lanes, k_stride) = (2 * s.lanes, 2 * s.k_stride);
            K::pack_b(Strip { ptr: s.ptr.cast(), lane_stride: 1, k_stride, lanes, k: s.k }, to.cast());
        }
    }

    #[inline(always)]
    unsafe fn tile(
        k: usize,
        a: Left<[K::Packed; 2]>,
        b: *const [K::Packed; 2],
        rows: usize,
        cols: usize,
        target: Target<Number<T>>,
        ahead: *const u8,
    ) {
        const { assert!(K::MR.is_multiple_of(2) && K::NR.is_multiple_of(2) && !K::WHOLE_TILES) };
        debug_assert!(target.alpha == Number::ONE && target.bias.is_null());
        let target = Target {
            ptr: target.ptr.cast(),
            stride: 2 * target.stride,
            alpha: T::ONE,
            beta: target.beta.re,
            bias: std::ptr::null(),
        };
        // SAFETY: the caller's promise; numbers are their parts.
        unsafe {
            K::tile_of_pairs(
                k,
                Left { ptr: a.ptr.cast(), row_stride: None, once: a.once },
                b.cast(),
                2 * rows,
                2 * cols,
                target,
                ahead,
            );
        }
    }
}
