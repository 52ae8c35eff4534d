//! Distances of the rows of two matrices.

use crate::gemm::{self, Activation, Gemm};
use crate::isa::Isa;
use crate::multiversion;
use crate::pool;
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Error, Result, View};

/// Minimum differences per task.
const TASK: usize = 32 << 10;
/// Bytes of a product per thread that are finished at a time.
const PART: usize = 1 << 20;
/// Number of partial sums: fixed, so that results do not depend on the vector width.
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

/// See `call::Distances`.
pub fn distances(p: f64, a: View, b: View, out: View) -> Result<bool> {
    let norm = match p {
        0.0 => Norm::Count,
        1.0 => Norm::Sum,
        2.0 => Norm::Squares,
        f64::INFINITY => Norm::Largest,
        _ => return Ok(false),
    };
    let sizes = sizes(a, b, out)?;
    match a.dtype() {
        DType::F32 => run::<f32>(norm, sizes, a, b, out),
        DType::F64 => run::<f64>(norm, sizes, a, b, out),
        _ => return Ok(false),
    }
    Ok(true)
}

/// See `call::Euclidean`.
pub fn euclidean(a: View, b: View, out: View) -> Result<bool> {
    let sizes = sizes(a, b, out)?;
    match a.dtype() {
        DType::F32 => by_product::<f32>(sizes, a, b, out),
        DType::F64 => by_product::<f64>(sizes, a, b, out),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Batch, rows of `a`, rows of `b` and their size, of contiguous operands.
fn sizes(a: View, b: View, out: View) -> Result<[usize; 4]> {
    let (&[batch, n, size], &[_, m, _]) = (a.shape(), b.shape()) else {
        return Err(Error::shape(format!(
            "distances: expected batches of matrices, got {:?}, {:?}",
            a.shape(),
            b.shape()
        )));
    };
    let fits = b.shape() == [batch, m, size] && out.shape() == [batch, n, m];
    if !fits || [a, b, out].iter().any(|v| !v.layout().is_contiguous() || v.dtype() != a.dtype()) {
        return Err(Error::shape(format!(
            "distances: {:?}, {:?} and {:?} do not fit, or are not contiguous and of one dtype",
            a.shape(),
            b.shape(),
            out.shape()
        )));
    }
    Ok([batch, n, m, size])
}

/// Distances as the product's epilogue: parts of the product are finished while they are in the L2 cache.
fn by_product<T: Number>([batch, n, m, size]: [usize; 4], a: View, b: View, out: View) {
    if batch * n * m == 0 {
        return;
    }
    let (a_squares, b_squares) = (squares::<T>(a, size), squares::<T>(b, size));
    let part = PART * pool::num_threads() / size_of::<T>();
    // Whole products, or rows of one.
    let (items, rows) = ((part / (n * m)).clamp(1, batch), (part / m).clamp(64.min(n), n));
    let at = |view: View, element: usize| view.ptr().wrapping_add(element * size_of::<T>());
    let start = SendPtr::new(out.ptr().cast::<T>());
    for item in (0..batch).step_by(items) {
        let items = items.min(batch - item);
        for row in (0..n).step_by(rows) {
            let rows = rows.min(n - row);
            let first = item * n + row;
            let gemm = Gemm {
                dtype: a.dtype(),
                batch: items,
                m: rows,
                n: m,
                k: size,
                a: at(a, first * size),
                a_strides: [n * size, size, 1].map(|s| s as isize),
                b: at(b, item * m * size),
                b_strides: [m * size, 1, size].map(|s| s as isize),
                c: at(out, first * m),
                c_strides: [n * m, m, 1].map(|s| s as isize),
                alpha: -2.0,
                beta: 0.0,
                bias: None,
                activation: Activation::None,
            };
            // SAFETY: contiguous operands of these sizes; the output overlaps none of them.
            unsafe { gemm::gemm(&gemm) };
            // More than one item only with all their rows.
            pool::parallel_ranges(items * rows, TASK.div_ceil(m), |from, to| {
                for row in first + from..first + to {
                    let others = &b_squares[row / n * m..][..m];
                    // SAFETY: the row is one of the output's, and tasks write different ones.
                    unsafe { finish(a_squares[row], others, std::slice::from_raw_parts_mut(start.at(row * m), m)) };
                }
            });
        }
    }
}

/// The squared lengths of rows.
fn squares<T: Number>(rows: View, size: usize) -> Vec<T> {
    let count = rows.numel().checked_div(size).unwrap_or(rows.shape()[0] * rows.shape()[1]);
    let mut out = vec![T::ZERO; count];
    let (start, rows) = (SendPtr::new(out.as_mut_ptr()), SendPtr::new(rows.ptr().cast::<T>()));
    pool::parallel_ranges(count, TASK.div_ceil(size.max(1)), |from, to| {
        // SAFETY: rows are within the contiguous view, and tasks write different elements.
        unsafe {
            squares_of(
                std::slice::from_raw_parts(rows.at(from * size), (to - from) * size),
                size,
                std::slice::from_raw_parts_mut(start.at(from), to - from),
            )
        };
    });
    out
}

multiversion! {
    /// The squared lengths of rows.
    ///
    /// # Safety
    /// No precondition but the machine's level.
    unsafe fn squares_of<T: Number>(rows: &[T], size: usize, out: &mut [T]) = squares_of_kernel;
}

#[inline(always)]
unsafe fn squares_of_kernel<T: Number, I: Isa>(rows: &[T], size: usize, out: &mut [T]) {
    for (i, out) in out.iter_mut().enumerate() {
        let row = &rows[i * size..][..size];
        *out = folded(row, row, |x, _| x, |sum, x| sum.plus(x.times(x)), T::plus);
    }
}

multiversion! {
    /// Turns `-2 x·y` into the distances of `x`, whose squared length is `own`, to others.
    ///
    /// # Safety
    /// No precondition but the machine's level.
    unsafe fn finish<T: Number>(own: T, others: &[T], out: &mut [T]) = finish_kernel;
}

#[inline(always)]
unsafe fn finish_kernel<T: Number, I: Isa>(own: T, others: &[T], out: &mut [T]) {
    for (out, &other) in out.iter_mut().zip(others) {
        let square = own.plus(*out).plus(other);
        // Rounding may make this negative. NaN stays.
        *out = if square < T::ZERO { T::ZERO } else { square }.root();
    }
}

fn run<T: Number>(norm: Norm, [batch, n, m, size]: [usize; 4], a: View, b: View, out: View) {
    let start = |view: View| SendPtr::new(view.ptr().cast::<T>());
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
            Norm::Count => folded(x, y, T::gap, |sum, gap| sum.plus(gap.counted()), T::plus),
            Norm::Sum => folded(x, y, T::gap, |sum, gap| sum.plus(gap), T::plus),
            Norm::Squares => folded(x, y, T::gap, |sum, gap| sum.plus(gap.times(gap)), T::plus).root(),
            Norm::Largest => folded(x, y, T::gap, |most, gap| most.larger(gap), T::larger),
        };
    }
}

/// Accumulates pair terms in lanes, then adds the lanes pairwise.
#[inline(always)]
fn folded<T: Number>(
    x: &[T],
    y: &[T],
    pair: impl Fn(T, T) -> T,
    add: impl Fn(T, T) -> T,
    join: impl Fn(T, T) -> T,
) -> T {
    let mut lanes = [T::ZERO; LANES];
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for l in 0..LANES {
            lanes[l] = add(lanes[l], pair(x[l], y[l]));
        }
    }
    for (l, (&x, &y)) in x_rest.iter().zip(y_rest).enumerate() {
        lanes[l] = add(lanes[l], pair(x, y));
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
