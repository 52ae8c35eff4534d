//! Running reductions along a dimension.
//!
//! Floats are accumulated in `f64`, integers in `i64`. Adjacent lines are scanned together; a single long line is
//! scanned in pieces: first the total of each piece, then each piece starting from the total of the earlier ones.

use crate::pool;
use crate::reduce::fold::{Absorbed, Float};
use crate::reduce::item::{Item, Wide, with_item};
use crate::reduce::plan;
use rushlight_core::backend::Scan;
use rushlight_core::{DType, Element, Error, Result, Truth, View};

/// Minimum elements per task.
const TASK: usize = 16 << 10;
/// Lines scanned together.
const COLUMNS: usize = 64;
/// Elements per piece of a single line; independent of the number of threads, because sums depend on it.
const PIECE: usize = 64 << 10;

type Word<T> = <<T as Item>::Wide as Absorbed>::Word;

/// A running reduction over elements of type `T`.
trait Scanner<T: Item<Wide: Absorbed>>: 'static {
    /// A carry that changes nothing.
    const EMPTY: Word<T>;
    /// The carry after one more element, or after another piece with carry `x`.
    fn step(carry: Word<T>, x: Word<T>) -> Word<T>;
}

struct Sum;
impl<T: Item<Wide: Absorbed>> Scanner<T> for Sum {
    const EMPTY: Word<T> = Word::<T>::ZERO;
    #[inline(always)]
    fn step(carry: Word<T>, x: Word<T>) -> Word<T> {
        carry.add(x)
    }
}

struct Prod;
impl<T: Item<Wide: Absorbed>> Scanner<T> for Prod {
    const EMPTY: Word<T> = Word::<T>::ONE;
    #[inline(always)]
    fn step(carry: Word<T>, x: Word<T>) -> Word<T> {
        carry.mul(x)
    }
}

struct LogSumExp;
impl<T: Item<Wide: Float>> Scanner<T> for LogSumExp {
    const EMPTY: f64 = f64::NEG_INFINITY;
    #[inline(always)]
    fn step(carry: f64, x: f64) -> f64 {
        let (low, high) = (carry.smaller(x), carry.larger(x));
        // Equal infinities would give NaN as their difference.
        if low == high && low.is_infinite() { low } else { high + (low - high).exp().ln_1p() }
    }
}

/// Running reduction along `dim`; `indices` is there for `Max` and `Min`.
pub fn scan(op: Scan, x: View, dim: usize, out: View, indices: Option<View>) -> Result<()> {
    if out.dtype() != x.dtype() && (out.dtype() != DType::I64 || x.dtype().is_float()) {
        return Err(Error::dtype(format!(
            "scan: {} into {} is not supported; convert the input first",
            x.dtype(),
            out.dtype()
        )));
    }
    match op {
        Scan::Sum if x.dtype() == DType::Bool => fold::<Truth, Sum>(x, dim, out),
        Scan::Prod if x.dtype() == DType::Bool => fold::<Truth, Prod>(x, dim, out),
        Scan::Sum => with_item!(x.dtype(), T => fold::<T, Sum>(x, dim, out)),
        Scan::Prod => with_item!(x.dtype(), T => fold::<T, Prod>(x, dim, out)),
        Scan::LogSumExp => match x.dtype() {
            rushlight_core::DType::F32 => fold::<f32, LogSumExp>(x, dim, out),
            rushlight_core::DType::F64 => fold::<f64, LogSumExp>(x, dim, out),
            rushlight_core::DType::F16 => fold::<half::f16, LogSumExp>(x, dim, out),
            rushlight_core::DType::BF16 => fold::<half::bf16, LogSumExp>(x, dim, out),
            other => return Err(Error::dtype(format!("logcumsumexp needs a floating dtype, got {other}"))),
        },
        Scan::Max | Scan::Min => {
            let Some(indices) = indices else {
                return Err(Error::value("a running maximum or minimum needs a tensor for the indices"));
            };
            with_item!(x.dtype(), T => best::<T>(op == Scan::Max, x, dim, out, indices));
        }
    }
    Ok(())
}

/// Addresses of the operands.
#[derive(Clone, Copy)]
struct Places<T> {
    x: *const T,
    out: *mut u8,
    indices: *mut i64,
}
// SAFETY: tasks read the input and write disjoint outputs.
unsafe impl<T> Sync for Places<T> {}

/// Sums and similar scans, into the input's dtype or, for integers, `i64`.
fn fold<T: Item<Wide: Absorbed<Word: Store>>, S: Scanner<T>>(x: View, dim: usize, out: View) {
    // A constant condition: `scan` refuses integers made of floats.
    if const { T::DTYPE.is_float() } || out.dtype() == T::DTYPE {
        fold_into::<T, T, S>(x, dim, out);
    } else {
        fold_into::<T, i64, S>(x, dim, out);
    }
}

/// Words as elements of any dtype.
pub trait Store: Wide {
    fn store<O: Element>(self) -> O;
}
impl Store for f64 {
    #[inline(always)]
    fn store<O: Element>(self) -> O {
        O::from_f64(self)
    }
}
impl Store for i64 {
    #[inline(always)]
    fn store<O: Element>(self) -> O {
        O::from_i64(self)
    }
}

fn fold_into<T: Item<Wide: Absorbed<Word: Store>>, O: Element, S: Scanner<T>>(x: View, dim: usize, out: View) {
    let strides = [x.strides(), out.strides()];
    let (n, steps) = plan::along(x.shape(), dim, strides);
    let lines = plan::lines(x.shape(), dim, strides);
    let count = lines.numel();
    if n == 0 || count == 0 {
        return;
    }
    let places = Places::<T> { x: x.ptr().cast_const().cast(), out: out.ptr(), indices: std::ptr::null_mut() };
    let width = lines.shape.last().copied().unwrap_or(1);
    let sides = [0, 1].map(|i| lines.strides[i].last().copied().unwrap_or(1));
    let at = |line: usize| {
        let ([x, out], places) = (lines.offsets(line), &places);
        // SAFETY: the line is within the views.
        unsafe { (places.x.add(x), places.out.cast::<O>().add(out)) }
    };
    if sides == [1, 1] && width >= 8 && steps != [1, 1] {
        let tiles = width.div_ceil(COLUMNS);
        let grain = TASK.div_ceil(n * COLUMNS.min(width));
        pool::parallel_ranges(count / width * tiles, grain, |from, to| {
            for tile in from..to {
                let first = tile % tiles * COLUMNS;
                let (x, out) = at(tile / tiles * width + first);
                // SAFETY: these lines are adjacent within the views.
                unsafe { scan_columns::<T, O, S>(x, out, n, steps, COLUMNS.min(width - first)) };
            }
        });
    } else if count >= 16 || n <= PIECE {
        pool::parallel_ranges(count, TASK.div_ceil(n), |from, to| {
            for line in from..to {
                let (x, out) = at(line);
                // SAFETY: as above.
                unsafe { scan_line::<T, O, S>(x, out, n, steps, S::EMPTY) };
            }
        });
    } else {
        let pieces = n.div_ceil(PIECE);
        for line in 0..count {
            let ends: Vec<std::sync::OnceLock<Word<T>>> = (0..pieces).map(|_| Default::default()).collect();
            pool::parallel_for(pieces, |p| {
                let (start, end) = (p * PIECE, ((p + 1) * PIECE).min(n));
                let (x, _) = at(line);
                // SAFETY: the piece is within the line. Each is set once.
                let _ = ends[p].set(unsafe { total::<T, S>(x.add(start * steps[0]), end - start, steps[0]) });
            });
            let (mut carry, mut starts) = (S::EMPTY, Vec::with_capacity(pieces));
            for end in &ends {
                starts.push(carry);
                carry = S::step(carry, end.get().copied().unwrap_or(S::EMPTY));
            }
            pool::parallel_for(pieces, |p| {
                let (start, end) = (p * PIECE, ((p + 1) * PIECE).min(n));
                let (x, out) = at(line);
                // SAFETY: as above.
                unsafe {
                    scan_line::<T, O, S>(
                        x.add(start * steps[0]),
                        out.add(start * steps[1]),
                        end - start,
                        steps,
                        starts[p],
                    )
                };
            });
        }
    }
}

/// # Safety
/// `n` elements, `step` apart, are readable.
unsafe fn total<T: Item<Wide: Absorbed>, S: Scanner<T>>(x: *const T, n: usize, step: usize) -> Word<T> {
    // Four carries, because each step depends on the previous one.
    let mut carries = [S::EMPTY; 4];
    let quarter = n / 4;
    // SAFETY: the caller's promise.
    unsafe {
        for i in 0..quarter {
            for (c, carry) in carries.iter_mut().enumerate() {
                *carry = S::step(*carry, (*x.add((c * quarter + i) * step)).widen().word());
            }
        }
        for i in 4 * quarter..n {
            carries[3] = S::step(carries[3], (*x.add(i * step)).widen().word());
        }
    }
    carries.into_iter().fold(S::EMPTY, S::step)
}

/// # Safety
/// `n` elements of `x` are readable and of `out` writable, `steps` apart.
unsafe fn scan_line<T: Item<Wide: Absorbed<Word: Store>>, O: Element, S: Scanner<T>>(
    x: *const T,
    out: *mut O,
    n: usize,
    steps: [usize; 2],
    mut carry: Word<T>,
) {
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe {
            carry = S::step(carry, (*x.add(i * steps[0])).widen().word());
            *out.add(i * steps[1]) = carry.store();
        }
    }
}

/// Adjacent lines together. Bound by memory, so one instruction set is enough.
unsafe fn scan_columns<T: Item<Wide: Absorbed<Word: Store>>, O: Element, S: Scanner<T>>(
    x: *const T,
    out: *mut O,
    n: usize,
    steps: [usize; 2],
    columns: usize,
) {
    let mut carries = [S::EMPTY; COLUMNS];
    for i in 0..n {
        for (j, carry) in carries[..columns].iter_mut().enumerate() {
            // SAFETY: the caller guarantees `n` rows of `columns` neighbours in both.
            unsafe {
                *carry = S::step(*carry, (*x.add(i * steps[0] + j)).widen().word());
                *out.add(i * steps[1] + j) = carry.store();
            }
        }
    }
}

/// Running maxima or minima and the index of the last of equals; NaN stays NaN.
fn best<T: Item>(largest: bool, x: View, dim: usize, out: View, indices: View) {
    let strides = [x.strides(), out.strides(), indices.strides()];
    let (n, steps) = plan::along(x.shape(), dim, strides);
    let lines = plan::lines(x.shape(), dim, strides);
    if n == 0 {
        return;
    }
    let places = Places::<T> { x: x.ptr().cast_const().cast(), out: out.ptr(), indices: indices.ptr().cast() };
    pool::parallel_ranges(lines.numel(), TASK.div_ceil(n), |from, to| {
        let places = &places;
        for line in from..to {
            let [x, out, indices] = lines.offsets(line);
            // SAFETY: the line is within the views.
            unsafe {
                let (x, out, indices) = (places.x.add(x), places.out.cast::<T>().add(out), places.indices.add(indices));
                let (mut value, mut index) = (*x, 0);
                for i in 0..n {
                    let next = *x.add(i * steps[0]);
                    let (new, old) = (next.widen(), value.widen());
                    if new.is_nan() || if largest { new >= old } else { new <= old } {
                        (value, index) = (next, i as i64);
                    }
                    *out.add(i * steps[1]) = value;
                    *indices.add(i * steps[2]) = index;
                }
            }
        }
    });
}
