//! Products and quotients of complex numbers.

use crate::fft::{Pair, Pairs, Place};
use crate::gemm::ComplexProduct;
use crate::simd::{Real, Simd, Vectors};
use crate::{multiversion, pool};
use rushlight_core::backend::Complex;
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Result, View};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Numbers a task computes at least.
const GRAIN: usize = 8 << 10;

/// The arithmetic of a part.
pub(crate) trait Part:
    Copy
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    fn magnitude(self) -> Self;
}

macro_rules! part {
    ($($t:ty)*) => {$(
        impl Part for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
        }
    )*};
}
part!(f32 f64);

/// See `call::Complex`.
pub fn complex(op: Complex, a: View, b: View, out: View) -> Result<bool> {
    let views = [a, b, out];
    let dense = views.iter().all(|v| v.layout().is_contiguous() && v.dtype() == out.dtype());
    let fits = |v: &View| v.numel() == out.numel() || v.numel() == 2;
    if !dense {
        return Ok(false);
    }
    match (op, out.dtype()) {
        (Complex::Product, _) => return Ok(product_of_matrices(a, b, out)),
        // A part of the default body of products.
        (Complex::Blocks, _) => return Ok(false),
        _ if !fits(&a) || !fits(&b) => return Ok(false),
        (_, DType::F32) => run::<f32>(op, a, b, out),
        (_, DType::F64) => run::<f64>(op, a, b, out),
        _ => return Ok(false),
    }
    Ok(true)
}

/// See [`Complex::Product`].
fn product_of_matrices(a: View, b: View, out: View) -> bool {
    let (&[batch, m, k, 2], &[_, _, n, 2]) = (a.shape(), b.shape()) else { return false };
    if b.shape() != [batch, k, n, 2] || out.shape() != [batch, m, n, 2] {
        return false;
    }
    let (a, b, c) = (a.ptr().cast_const(), b.ptr().cast_const(), out.ptr());
    // SAFETY: contiguous views of these shapes and one dtype; the output overlaps no input.
    unsafe { ComplexProduct { dtype: out.dtype(), batch, m, n, k, a, b, c }.run() }
}

fn run<T: Part + Real>(op: Complex, a: View, b: View, out: View) {
    let n = out.numel() / 2;
    // Steps from number to number: an operand of one number stays.
    let step = |v: View| if v.numel() == out.numel() { 1 } else { 0 };
    let (da, db) = (step(a), step(b));
    let [x, y, z] = [a, b, out].map(|v| SendPtr::new(v.ptr().cast::<[T; 2]>()));
    let grain = n.div_ceil(4 * pool::num_threads()).max(GRAIN);
    pool::parallel_ranges(n, grain, |start, end| {
        // SAFETY: contiguous views with these many numbers; ranges are disjoint.
        unsafe {
            let (x, y, z) = (x.at(start * da), y.at(start * db), z.at(start));
            match op {
                Complex::Mul => multiply::<T>(x, da, y, db, z, end - start, T::ONE),
                Complex::MulConj => multiply::<T>(x, da, y, db, z, end - start, -T::ONE),
                _ => divide::<T>(x, da, y, db, z, end - start),
            }
        }
    });
}

multiversion! {
    /// `z = x y`, the imaginary part of `y` times `sign`.
    unsafe fn multiply<T: Real>(x: *const [T; 2], dx: usize, y: *const [T; 2], dy: usize, z: *mut [T; 2], n: usize, sign: T) = products;
}

fn pairs<T>(at: *const T) -> Pairs<T> {
    Pairs { at: at.cast_mut(), swap: false }
}

/// Numbers in order.
#[derive(Clone, Copy)]
struct Each<T>(Pairs<T>);

/// One number for all places.
#[derive(Clone, Copy)]
struct One<V>(Pair<V>);

/// The numbers of an operand by their places.
trait Operand<T: Real, I: Vectors>: Copy {
    /// # Safety
    /// There are `count` numbers from `at` on; the CPU has the level.
    unsafe fn get(self, at: usize, count: usize) -> Pair<T::V<I>>;
}

impl<T: Real, I: Vectors> Operand<T, I> for Each<T> {
    #[inline(always)]
    unsafe fn get(self, at: usize, count: usize) -> Pair<T::V<I>> {
        // SAFETY: the caller's promise.
        unsafe { self.0.get::<I>(at, count) }
    }
}

impl<T: Real, I: Vectors> Operand<T, I> for One<T::V<I>> {
    #[inline(always)]
    unsafe fn get(self, _: usize, _: usize) -> Pair<T::V<I>> {
        self.0
    }
}

/// Without fused multiply-adds: a number times its conjugate has no imaginary part.
#[inline(always)]
fn product<V: Simd>(a: Pair<V>, b: Pair<V>, sign: V) -> Pair<V> {
    let im = b.im * sign;
    Pair { re: a.re * b.re - a.im * im, im: a.re * im + a.im * b.re }
}

#[inline(always)]
unsafe fn one<T: Real, I: Vectors>(p: *const [T; 2]) -> One<T::V<I>> {
    // SAFETY: by the caller's contract.
    let [re, im] = unsafe { *p };
    One(Pair { re: T::V::<I>::splat(re), im: T::V::<I>::splat(im) })
}

#[inline(always)]
unsafe fn products<T: Real, I: Vectors>(
    x: *const [T; 2],
    dx: usize,
    y: *const [T; 2],
    dy: usize,
    z: *mut [T; 2],
    n: usize,
    sign: T,
) {
    #[inline(always)]
    unsafe fn run<T: Real, I: Vectors>(x: impl Operand<T, I>, y: impl Operand<T, I>, z: Pairs<T>, n: usize, sign: T) {
        let (width, sign) = (T::V::<I>::N, T::V::<I>::splat(sign));
        // SAFETY: by the caller's contract.
        unsafe {
            // Closures would not inherit the features of the instruction set.
            let whole = n - n % width;
            for at in (0..whole).step_by(width) {
                let (a, b) = (x.get(at, width), y.get(at, width));
                z.put::<I>(at, width, product(a, b, sign));
            }
            if whole < n {
                let (a, b) = (x.get(whole, n - whole), y.get(whole, n - whole));
                z.put::<I>(whole, n - whole, product(a, b, sign));
            }
        }
    }
    // SAFETY: by the caller's contract.
    unsafe {
        let (x_each, y_each, z) = (Each(pairs(x.cast::<T>())), Each(pairs(y.cast::<T>())), pairs(z.cast::<T>()));
        match (dx, dy) {
            (1, 1) => run::<T, I>(x_each, y_each, z, n, sign),
            (1, _) => run::<T, I>(x_each, one::<T, I>(y), z, n, sign),
            (_, 1) => run::<T, I>(one::<T, I>(x), y_each, z, n, sign),
            _ => run::<T, I>(one::<T, I>(x), one::<T, I>(y), z, n, sign),
        }
    }
}

/// `z = x / y` by Smith's method, which scales by the larger part of the divisor.
///
/// # Safety
/// `n` numbers at `z`, and at `x` and `y` as many as their steps reach.
unsafe fn divide<T: Part>(x: *const [T; 2], dx: usize, y: *const [T; 2], dy: usize, z: *mut [T; 2], n: usize) {
    for i in 0..n {
        // SAFETY: by the caller's contract.
        unsafe {
            let ([a, b], [c, d]) = (*x.add(i * dx), *y.add(i * dy));
            *z.add(i) = quotient(a, b, c, d);
        }
    }
}

#[inline(always)]
fn quotient<T: Part>(a: T, b: T, c: T, d: T) -> [T; 2] {
    if c.magnitude() >= d.magnitude() {
        if c == T::ZERO && d == T::ZERO {
            // Infinite or NaN, as PyTorch's.
            return [a / c.magnitude(), b / d.magnitude()];
        }
        let ratio = d / c;
        let scale = T::ONE / (c + d * ratio);
        [(a + b * ratio) * scale, (b - a * ratio) * scale]
    } else {
        let ratio = c / d;
        let scale = T::ONE / (c * ratio + d);
        [(a * ratio + b) * scale, (b * ratio - a) * scale]
    }
}
