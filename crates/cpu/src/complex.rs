//! Products and quotients of complex numbers.

use crate::isa::Isa;
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
    if !dense || !fits(&a) || !fits(&b) {
        return Ok(false);
    }
    match out.dtype() {
        DType::F32 => run::<f32>(op, a, b, out),
        DType::F64 => run::<f64>(op, a, b, out),
        _ => return Ok(false),
    }
    Ok(true)
}

fn run<T: Part>(op: Complex, a: View, b: View, out: View) {
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
                Complex::Div => divide::<T>(x, da, y, db, z, end - start),
            }
        }
    });
}

multiversion! {
    /// `z = x y`, the imaginary part of `y` times `sign`.
    unsafe fn multiply<T: Part>(x: *const [T; 2], dx: usize, y: *const [T; 2], dy: usize, z: *mut [T; 2], n: usize, sign: T) = products;
}

#[inline(always)]
unsafe fn products<T: Part, I: Isa>(
    x: *const [T; 2],
    dx: usize,
    y: *const [T; 2],
    dy: usize,
    z: *mut [T; 2],
    n: usize,
    sign: T,
) {
    #[inline(always)]
    fn product<T: Part>([a, b]: [T; 2], [c, d]: [T; 2], sign: T) -> [T; 2] {
        let d = d * sign;
        [a * c - b * d, a * d + b * c]
    }
    // SAFETY: by the caller's contract.
    unsafe {
        match (dx, dy) {
            (1, 1) => (0..n).for_each(|i| *z.add(i) = product(*x.add(i), *y.add(i), sign)),
            (1, _) => {
                let y = *y;
                (0..n).for_each(|i| *z.add(i) = product(*x.add(i), y, sign));
            }
            _ => {
                let x = *x;
                (0..n).for_each(|i| *z.add(i) = product(x, *y.add(i * dy), sign));
            }
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
