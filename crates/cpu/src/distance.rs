//! Distances of the rows of two matrices.

use crate::float::Shared;
use crate::isa::Isa;
use crate::multiversion;
use crate::pool;
use rushlight_core::{DType, Error, Result, View};

/// Differences a task should have at least.
const TASK: usize = 32 << 10;
/// Partial sums; a fixed number, so that results do not depend on the vector width.
const LANES: usize = 16;

/// The norms that have a kernel.
#[derive(Clone, Copy)]
enum Norm {
    Count,
    Sum,
    Squares,
    Largest,
}

trait Number: Copy + PartialOrd + Send + Sync + 'static {
    const ZERO: Self;
    fn gap(self, other: Self) -> Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn root(self) -> Self;
    /// One, or zero for zero.
    fn counted(self) -> Self;
    /// The larger; NaN if either is.
    fn larger(self, other: Self) -> Self;
}

macro_rules! number {
    ($($t:ty)*) => {$(
        impl Number for $t {
            const ZERO: Self = 0.0;
            #[inline(always)]
            fn gap(self, other: Self) -> Self {
                (self - other).abs()
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn counted(self) -> Self {
                (self != 0.0) as u8 as $t
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if self >= other || self.is_nan() { self } else { other }
            }
        }
    )*};
}
number!(f32 f64);

/// See `Backend::distances`.
pub fn distances(p: f64, a: View, b: View, out: View) -> Result<bool> {
    let norm = match p {
        0.0 => Norm::Count,
        1.0 => Norm::Sum,
        2.0 => Norm::Squares,
        f64::INFINITY => Norm::Largest,
        _ => return Ok(false),
    };
    let (&[batch, n, size], &[_, m, _]) = (a.shape(), b.shape()) else {
        return Err(Error::shape(format!(
            "distances: expected batches of matrices, got {:?}, {:?}",
            a.shape(),
            b.shape()
        )));
    };
    let fits = b.shape() == [batch, m, size] && out.shape() == [batch, n, m];
    if !fits || [a, b, out].iter().any(|v| !v.layout.is_contiguous() || v.dtype != a.dtype) {
        return Err(Error::shape(format!(
            "distances: {:?}, {:?} and {:?} do not fit, or are not contiguous and of one dtype",
            a.shape(),
            b.shape(),
            out.shape()
        )));
    }
    match a.dtype {
        DType::F32 => run::<f32>(norm, [batch, n, m, size], a, b, out),
        DType::F64 => run::<f64>(norm, [batch, n, m, size], a, b, out),
        _ => return Ok(false),
    }
    Ok(true)
}

fn run<T: Number>(norm: Norm, [batch, n, m, size]: [usize; 4], a: View, b: View, out: View) {
    let start = |view: View| Shared::new(view.ptr().cast::<T>());
    let (a, b, out) = (start(a), start(b), start(out));
    pool::parallel_ranges(batch * n, TASK.div_ceil((m * size).max(1)), |from, to| {
        for row in from..to {
            // SAFETY: rows are within the contiguous views, and tasks write different ones.
            unsafe {
                let x = std::slice::from_raw_parts(a.at(row * size), size);
                let others = std::slice::from_raw_parts(b.at(row / n * m * size), m * size);
                let out = std::slice::from_raw_parts_mut(out.at(row * m), m);
                of_row(norm, x, others, out);
            }
        }
    });
}

multiversion! {
    /// The distances of one row to as many others as `out` has elements.
    ///
    /// # Safety
    /// No precondition but the machine's level.
    unsafe fn of_row<T: Number>(norm: Norm, x: &[T], others: &[T], out: &mut [T]) = of_row_kernel;
}

#[inline(always)]
unsafe fn of_row_kernel<T: Number, I: Isa>(norm: Norm, x: &[T], others: &[T], out: &mut [T]) {
    for (j, out) in out.iter_mut().enumerate() {
        let y = &others[j * x.len()..][..x.len()];
        *out = match norm {
            Norm::Count => folded(x, y, |sum, gap| sum.plus(gap.counted()), T::plus),
            Norm::Sum => folded(x, y, |sum, gap| sum.plus(gap), T::plus),
            Norm::Squares => folded(x, y, |sum, gap| sum.plus(gap.times(gap)), T::plus).root(),
            Norm::Largest => folded(x, y, |most, gap| most.larger(gap), T::larger),
        };
    }
}

/// Folds the differences in lanes, then the lanes pair by pair.
#[inline(always)]
fn folded<T: Number>(x: &[T], y: &[T], add: impl Fn(T, T) -> T, join: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for l in 0..LANES {
            lanes[l] = add(lanes[l], x[l].gap(y[l]));
        }
    }
    for (l, (&x, &y)) in x_rest.iter().zip(y_rest).enumerate() {
        lanes[l] = add(lanes[l], x.gap(y));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            lanes[l] = join(lanes[l], lanes[l + width]);
        }
        width /= 2;
    }
    lanes[0]
}
