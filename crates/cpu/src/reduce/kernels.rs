//! Vectorised kernels behind one table of function pointers per reduction and dtype, so that the drivers are compiled once.
//!
//! A partial result is one to three words. Those of `width` neighbouring outputs lie in planes: word `k` of output `j` at
//! `k * plane + j`.

#![allow(clippy::needless_range_loop)] // one index over several arrays is what the compiler vectorises

use super::fold::{self, Absorbed, Float, FloatItem, Fold, Param};
use super::item::{Item, Wide, with_item};
use crate::isa::Isa;
use crate::multiversion;
use rushlight_core::backend::Reduce;
use rushlight_core::{DType, Error, Result};

/// Most elements folded into lanes before these are absorbed: bounds the rounding error of `f32` lanes.
pub const CHUNK: usize = 4096;
/// Most columns of a tile.
pub const TILE_COLUMNS: usize = 1024;
/// Most rows of a tile.
pub const TILE_ROWS: usize = 64;
/// Lanes of a row fold; the same at every level, so that results are, too.
const LANES: usize = 32;

/// A reduction compiled for one dtype. `param` is the exponent where there is one.
pub struct Kernels {
    /// Words of a partial result.
    pub words: usize,
    /// The partial result of nothing.
    pub empty: [u64; 3],
    /// Joins `n <= CHUNK` neighbouring elements into the words at `acc` (plane 1).
    ///
    /// Safety: `x` is readable for `n` elements, `acc` writable for `words` words.
    pub row: unsafe fn(x: *const u8, n: usize, param: f64, acc: *mut u64),
    /// Joins a tile into the words of its columns.
    ///
    /// Safety: all of the tile is readable; `acc` is writable for `words` planes.
    pub tile: unsafe fn(tile: Tile, param: f64, acc: *mut u64, plane: usize),
    /// Joins partial results: `a = a + b` for `width` outputs.
    ///
    /// Safety: both are valid for `words` planes, do not overlap.
    pub join: unsafe fn(a: *mut u64, a_plane: usize, b: *const u64, b_plane: usize, width: usize),
}

/// `rows <= TILE_ROWS` rows of `columns <= TILE_COLUMNS` neighbouring elements, `stride` elements apart.
#[derive(Clone, Copy)]
pub struct Tile {
    pub x: *const u8,
    pub rows: usize,
    pub stride: usize,
    pub columns: usize,
}

#[inline(always)]
unsafe fn fold_row<T: Item, F: Fold<T>, I: Isa>(x: *const T, n: usize, aux: F::Aux) -> F::Lane {
    let mut lanes = [F::LANE; LANES];
    let whole = n / LANES * LANES;
    // SAFETY: the caller vouches for `n` elements.
    unsafe {
        let mut i = 0;
        while i < whole {
            for j in 0..LANES {
                lanes[j] = F::step::<I>(lanes[j], *x.add(i + j), aux);
            }
            i += LANES;
        }
        for j in 0..n - whole {
            lanes[j] = F::step::<I>(lanes[j], *x.add(whole + j), aux);
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] = F::merge(lanes[j], lanes[j + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Folds each column; four rows at a time, so that lanes are loaded and stored once for four elements.
#[inline(always)]
unsafe fn fold_tile<T: Item, F: Fold<T>, I: Isa>(
    tile: Tile,
    aux: &[F::Aux; TILE_COLUMNS],
    lanes: &mut [F::Lane; TILE_COLUMNS],
) {
    let Tile { rows, stride, columns, .. } = tile;
    let x = tile.x.cast::<T>();
    let columns = columns.min(TILE_COLUMNS);
    lanes[..columns].fill(F::LANE);
    let mut r = 0;
    // SAFETY: rows and columns stay within the tile.
    unsafe {
        while r + 4 <= rows {
            let [a, b, c, d] = [0, 1, 2, 3].map(|k| x.add((r + k) * stride));
            for j in 0..columns {
                let mut lane = lanes[j];
                lane = F::step::<I>(lane, *a.add(j), aux[j]);
                lane = F::step::<I>(lane, *b.add(j), aux[j]);
                lane = F::step::<I>(lane, *c.add(j), aux[j]);
                lanes[j] = F::step::<I>(lane, *d.add(j), aux[j]);
            }
            r += 4;
        }
        while r < rows {
            let a = x.add(r * stride);
            for j in 0..columns {
                lanes[j] = F::step::<I>(lanes[j], *a.add(j), aux[j]);
            }
            r += 1;
        }
    }
}

// ---- folds of one word

#[inline(always)]
unsafe fn simple_row_kernel<T: Item, F: Fold<T>, I: Isa>(x: *const u8, n: usize, param: f64, acc: *mut u64) {
    let acc = acc.cast::<F::Word>();
    // SAFETY: the caller's promise; words are 8 bytes.
    unsafe { *acc = F::absorb(*acc, fold_row::<T, F, I>(x.cast(), n, Param::from_param(param))) };
}

#[inline(always)]
unsafe fn simple_tile_kernel<T: Item, F: Fold<T>, I: Isa>(tile: Tile, param: f64, acc: *mut u64, _plane: usize) {
    let aux = [F::Aux::from_param(param); TILE_COLUMNS];
    let mut lanes = [F::LANE; TILE_COLUMNS];
    let acc = acc.cast::<F::Word>();
    // SAFETY: the caller's promise.
    unsafe {
        fold_tile::<T, F, I>(tile, &aux, &mut lanes);
        for j in 0..tile.columns.min(TILE_COLUMNS) {
            *acc.add(j) = F::absorb(*acc.add(j), lanes[j]);
        }
    }
}

unsafe fn simple_join<T: Item, F: Fold<T>>(a: *mut u64, _: usize, b: *const u64, _: usize, width: usize) {
    let (a, b) = (a.cast::<F::Word>(), b.cast::<F::Word>());
    for j in 0..width {
        // SAFETY: the caller's promise.
        unsafe { *a.add(j) = F::join(*a.add(j), *b.add(j)) };
    }
}

multiversion! {
    unsafe fn simple_row<T: Item, F: Fold<T>>(x: *const u8, n: usize, param: f64, acc: *mut u64) = simple_row_kernel;
}
multiversion! {
    unsafe fn simple_tile<T: Item, F: Fold<T>>(tile: Tile, param: f64, acc: *mut u64, plane: usize) = simple_tile_kernel;
}

const fn simple<T: Item, F: Fold<T>>() -> Kernels {
    // SAFETY: a word is `f64` or `i64`.
    let empty = unsafe { std::mem::transmute_copy::<F::Word, u64>(&F::WORD) };
    Kernels {
        words: 1,
        empty: [empty, 0, 0],
        row: simple_row::<T, F>,
        tile: simple_tile::<T, F>,
        join: simple_join::<T, F>,
    }
}

// ---- variance: count, mean, sum of squared distances from the mean

type Moments = [f64; 3];

/// Chan's update.
#[inline(always)]
fn join_moments([na, mean_a, a]: Moments, [nb, mean_b, b]: Moments) -> Moments {
    let n = na + nb;
    let (delta, share) = (mean_b - mean_a, nb / n);
    [n, mean_a + delta * share, a + b + delta * delta * na * share]
}

/// Moments of `n` elements from their sum and the squared distances from `centre`, their mean as rounded to the element's type.
#[inline(always)]
fn moments(n: usize, sum: f64, centre: f64, squares: f64) -> Moments {
    let mean = sum / n as f64;
    let off = mean - centre;
    [n as f64, mean, squares - off * off * n as f64]
}

#[inline(always)]
unsafe fn variance_row_kernel<T: FloatItem, I: Isa>(x: *const u8, n: usize, _param: f64, acc: *mut u64) {
    let (x, acc) = (x.cast::<T>(), acc.cast::<Moments>());
    // SAFETY: the caller's promise.
    unsafe {
        let sum = fold_row::<T, fold::Sum, I>(x, n, ()).word();
        let centre = T::Wide::from_param(sum / n as f64);
        let squares = fold_row::<T, fold::SumSquaredDistance, I>(x, n, centre).word();
        *acc = join_moments(*acc, moments(n, sum, centre.word(), squares));
    }
}

#[inline(always)]
unsafe fn variance_tile_kernel<T: FloatItem, I: Isa>(tile: Tile, _param: f64, acc: *mut u64, plane: usize) {
    let acc = acc.cast::<f64>();
    let mut sums = [T::Wide::ZERO; TILE_COLUMNS];
    let mut squares = [T::Wide::ZERO; TILE_COLUMNS];
    let mut centres = [T::Wide::ZERO; TILE_COLUMNS];
    let rows = tile.rows as f64;
    // SAFETY: the caller's promise.
    unsafe {
        fold_tile::<T, fold::Sum, I>(tile, &[(); TILE_COLUMNS], &mut sums);
        let inverse = 1.0 / rows;
        for j in 0..tile.columns.min(TILE_COLUMNS) {
            centres[j] = T::Wide::from_param(sums[j].word() * inverse);
        }
        fold_tile::<T, fold::SumSquaredDistance, I>(tile, &centres, &mut squares);
        // All columns have seen as many rows, so the weights of the update are the same.
        let before = *acc;
        let (share, product) = (rows / (before + rows), before * rows / (before + rows));
        for j in 0..tile.columns.min(TILE_COLUMNS) {
            let mean = acc.add(plane + j);
            let sum_of_squares = acc.add(2 * plane + j);
            let here = sums[j].word() * inverse;
            let (off, delta) = (here - centres[j].word(), here - *mean);
            *acc.add(j) = before + rows;
            *mean += delta * share;
            *sum_of_squares += squares[j].word() - off * off * rows + delta * delta * product;
        }
    }
}

unsafe fn variance_join(a: *mut u64, a_plane: usize, b: *const u64, b_plane: usize, width: usize) {
    let (a, b) = (a.cast::<f64>(), b.cast::<f64>());
    for j in 0..width {
        // SAFETY: the caller's promise.
        unsafe {
            let left = [0, 1, 2].map(|k| *a.add(k * a_plane + j));
            let right = [0, 1, 2].map(|k| *b.add(k * b_plane + j));
            for (k, word) in join_moments(left, right).into_iter().enumerate() {
                *a.add(k * a_plane + j) = word;
            }
        }
    }
}

multiversion! {
    unsafe fn variance_row<T: FloatItem>(x: *const u8, n: usize, param: f64, acc: *mut u64) = variance_row_kernel;
}
multiversion! {
    unsafe fn variance_tile<T: FloatItem>(tile: Tile, param: f64, acc: *mut u64, plane: usize) = variance_tile_kernel;
}

const fn variance<T: FloatItem>() -> Kernels {
    Kernels { words: 3, empty: [0; 3], row: variance_row::<T>, tile: variance_tile::<T>, join: variance_join }
}

// ---- log of the sum of exponentials: largest element, sum of exponentials of the distances to it

type LogSum = [f64; 2];

#[inline(always)]
fn join_log_sums([max_a, a]: LogSum, [max_b, b]: LogSum) -> LogSum {
    let max = max_a.larger(max_b);
    // Equal ones may both be infinite, where the difference would be NaN.
    let scaled = |m: f64, sum: f64| if m == max { sum } else { sum * (m - max).exp() };
    [max, scaled(max_a, a) + scaled(max_b, b)]
}

/// What exponentials are taken relative to: a finite number, whatever the largest element is.
#[inline(always)]
fn shift<F: Float>(max: F) -> F {
    if max > F::LOWEST && max < F::HIGHEST { max } else { F::ZERO }
}

/// The two words, where an infinite or NaN maximum decides alone.
#[inline(always)]
fn log_sum<F: Float>(max: F, sum: F) -> LogSum {
    let sum = if max > F::LOWEST && max < F::HIGHEST {
        sum.word()
    } else if max == F::LOWEST {
        0.0
    } else {
        1.0
    };
    [max.word(), sum]
}

#[inline(always)]
unsafe fn log_sum_row_kernel<T: FloatItem, I: Isa>(x: *const u8, n: usize, _param: f64, acc: *mut u64) {
    let (x, acc) = (x.cast::<T>(), acc.cast::<LogSum>());
    // SAFETY: the caller's promise.
    unsafe {
        let max = fold_row::<T, fold::Max, I>(x, n, ());
        let sum = fold_row::<T, fold::SumExp, I>(x, n, shift(max));
        *acc = join_log_sums(*acc, log_sum(max, sum));
    }
}

#[inline(always)]
unsafe fn log_sum_tile_kernel<T: FloatItem, I: Isa>(tile: Tile, _param: f64, acc: *mut u64, plane: usize) {
    let acc = acc.cast::<f64>();
    let mut maxima = [T::Wide::LOWEST; TILE_COLUMNS];
    let mut shifts = [T::Wide::ZERO; TILE_COLUMNS];
    let mut sums = [T::Wide::ZERO; TILE_COLUMNS];
    // SAFETY: the caller's promise.
    unsafe {
        fold_tile::<T, fold::Max, I>(tile, &[(); TILE_COLUMNS], &mut maxima);
        for j in 0..tile.columns.min(TILE_COLUMNS) {
            shifts[j] = shift(maxima[j]);
        }
        fold_tile::<T, fold::SumExp, I>(tile, &shifts, &mut sums);
        for j in 0..tile.columns.min(TILE_COLUMNS) {
            let before = [*acc.add(j), *acc.add(plane + j)];
            let [max, sum] = join_log_sums(before, log_sum(maxima[j], sums[j]));
            *acc.add(j) = max;
            *acc.add(plane + j) = sum;
        }
    }
}

unsafe fn log_sum_join(a: *mut u64, a_plane: usize, b: *const u64, b_plane: usize, width: usize) {
    let (a, b) = (a.cast::<f64>(), b.cast::<f64>());
    for j in 0..width {
        // SAFETY: the caller's promise.
        unsafe {
            let [max, sum] = join_log_sums([*a.add(j), *a.add(a_plane + j)], [*b.add(j), *b.add(b_plane + j)]);
            *a.add(j) = max;
            *a.add(a_plane + j) = sum;
        }
    }
}

multiversion! {
    unsafe fn log_sum_row<T: FloatItem>(x: *const u8, n: usize, param: f64, acc: *mut u64) = log_sum_row_kernel;
}
multiversion! {
    unsafe fn log_sum_tile<T: FloatItem>(tile: Tile, param: f64, acc: *mut u64, plane: usize) = log_sum_tile_kernel;
}

const fn log_sum_exp<T: FloatItem>() -> Kernels {
    Kernels {
        words: 2,
        empty: [f64::NEG_INFINITY.to_bits(), 0, 0],
        row: log_sum_row::<T>,
        tile: log_sum_tile::<T>,
        join: log_sum_join,
    }
}

/// Runs an expression with `$T` bound to a floating dtype's type, or fails.
macro_rules! with_float {
    ($op:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F16 => {
                type $T = half::f16;
                $body
            }
            DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            other => return Err(Error::dtype(format!("{:?}: needs a floating dtype, got {other}", $op))),
        }
    };
}

/// The kernels of a reduction for inputs of a dtype.
#[inline]
pub fn select(op: Reduce, dtype: DType) -> Result<&'static Kernels> {
    Ok(match op {
        Reduce::Sum => with_item!(dtype, T => &const { simple::<T, fold::Sum>() }),
        Reduce::Mean => with_float!(op, dtype, T => &const { simple::<T, fold::Sum>() }),
        Reduce::Prod => with_item!(dtype, T => &const { simple::<T, fold::Prod>() }),
        Reduce::Max => with_item!(dtype, T => &const { simple::<T, fold::Max>() }),
        Reduce::Min => with_item!(dtype, T => &const { simple::<T, fold::Min>() }),
        Reduce::Any | Reduce::All | Reduce::CountNonzero => count(dtype),
        Reduce::Norm { p: 0.0 } => with_float!(op, dtype, T => &const { simple::<T, fold::Count>() }),
        Reduce::Norm { p: 1.0 } => with_float!(op, dtype, T => &const { simple::<T, fold::SumAbs>() }),
        Reduce::SumSquares | Reduce::Norm { p: 2.0 } => {
            with_float!(op, dtype, T => &const { simple::<T, fold::SumSquares>() })
        }
        Reduce::Norm { p: f64::INFINITY } => with_float!(op, dtype, T => &const { simple::<T, fold::MaxAbs>() }),
        Reduce::Norm { p: f64::NEG_INFINITY } => with_float!(op, dtype, T => &const { simple::<T, fold::MinAbs>() }),
        Reduce::Norm { .. } => with_float!(op, dtype, T => &const { simple::<T, fold::SumPowers>() }),
        Reduce::Var { .. } => with_float!(op, dtype, T => &const { variance::<T>() }),
        Reduce::LogSumExp => with_float!(op, dtype, T => &const { log_sum_exp::<T>() }),
    })
}

fn count(dtype: DType) -> &'static Kernels {
    with_item!(dtype, T => &const { simple::<T, fold::Count>() })
}
