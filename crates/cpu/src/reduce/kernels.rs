//! Vectorised kernels behind one table of function pointers per reduction and dtype, so that the drivers are compiled
//! once. Small integers and, but for sums, half types are widened to another dtype's kernels.
//!
//! A partial result is one to three words. Partial results of `width` adjacent outputs are stored in planes: word `k`
//! of output `j` is at `k * plane + j`.

use super::fold::{self, Absorbed, Float, FloatItem, Fold, Param};
use super::item::{Item, Wide};
use crate::isa::{Isa, Portable};
use crate::multiversion;
use crate::pointwise::convert::converter;
use half::{bf16, f16};
use rushlight_core::backend::Reduce;
use rushlight_core::{DType, Error, Result, Truth};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Maximum columns of a tile.
pub const TILE_COLUMNS: usize = 1024;
/// Maximum rows of a tile: bounds the rounding error of `f32` lanes.
pub const TILE_ROWS: usize = 64;

/// A reduction compiled for one dtype. `param` is the exponent where there is one.
pub struct Kernels {
    /// Words of a partial result.
    pub words: usize,
    /// The partial result of no elements.
    pub empty: [u64; 3],
    /// Combines all of a tile into the words at `acc` (plane 1).
    ///
    /// Safety: the tile is readable and not empty, `acc` writable for `words` words.
    pub whole: unsafe fn(tile: Tile, param: f64, acc: *mut u64),
    /// Combines the columns of a tile into the words of as many outputs, which all have the same element count so far.
    ///
    /// Safety: the tile is readable and not empty, `acc` writable for `words` planes.
    pub columns: unsafe fn(tile: Tile, param: f64, acc: *mut u64, plane: usize),
    /// Combines partial results, `b` into `a`, for `width` outputs.
    ///
    /// Safety: both are valid for `words` planes and do not overlap.
    pub join: unsafe fn(a: *mut u64, a_plane: usize, b: *const u64, b_plane: usize, width: usize),
}

/// `rows <= TILE_ROWS` rows of `columns <= TILE_COLUMNS` adjacent elements, with stride `stride`.
#[derive(Clone, Copy)]
pub struct Tile {
    pub x: *const u8,
    pub rows: usize,
    pub stride: usize,
    pub columns: usize,
}

/// One lane per column, written before it is read.
struct Lanes<L>(MaybeUninit<[L; TILE_COLUMNS]>);

impl<L> Lanes<L> {
    #[inline(always)]
    fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    #[inline(always)]
    fn ptr(&mut self) -> *mut L {
        self.0.as_mut_ptr().cast()
    }
}

/// The steps' argument of each column.
trait Aux<A>: Copy {
    /// # Safety
    /// `column` is one of the tile's.
    unsafe fn at(self, column: usize) -> A;
}

/// The same for all.
#[derive(Clone, Copy)]
struct Same<A>(A);
impl<A: Copy> Aux<A> for Same<A> {
    #[inline(always)]
    unsafe fn at(self, _: usize) -> A {
        self.0
    }
}

/// One for each.
#[derive(Clone, Copy)]
struct Each<A>(*const A);
impl<A: Copy> Aux<A> for Each<A> {
    #[inline(always)]
    unsafe fn at(self, column: usize) -> A {
        // SAFETY: the caller's promise.
        unsafe { *self.0.add(column) }
    }
}

/// Accumulates `ROWS` rows into the lanes, or initialises the lanes with them if they are the first.
#[inline(always)]
unsafe fn fold_rows<T: Item, F: Fold<T>, I: Isa, const ROWS: usize, const FIRST: bool>(
    tile: Tile,
    row: usize,
    aux: impl Aux<F::Aux>,
    lanes: *mut F::Lane,
) {
    // SAFETY: rows and columns are within the tile, which has no more columns than there are lanes.
    unsafe {
        let x = tile.x.cast::<T>().add(row * tile.stride);
        for j in 0..tile.columns {
            let mut lane = if FIRST { F::LANE } else { *lanes.add(j) };
            for r in 0..ROWS {
                lane = F::step::<I>(lane, *x.add(r * tile.stride + j), aux.at(j));
            }
            *lanes.add(j) = lane;
        }
    }
}

/// Accumulates each column into its lane. Four rows at a time: lanes are loaded and stored less often, and several
/// memory streams are faster than one.
#[inline(always)]
unsafe fn fold_columns<T: Item, F: Fold<T>, I: Isa>(tile: Tile, aux: impl Aux<F::Aux>, lanes: *mut F::Lane) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut row = if tile.rows >= 4 {
            fold_rows::<T, F, I, 4, true>(tile, 0, aux, lanes);
            4
        } else {
            fold_rows::<T, F, I, 1, true>(tile, 0, aux, lanes);
            1
        };
        while row + 4 <= tile.rows {
            fold_rows::<T, F, I, 4, false>(tile, row, aux, lanes);
            row += 4;
        }
        while row < tile.rows {
            fold_rows::<T, F, I, 1, false>(tile, row, aux, lanes);
            row += 1;
        }
    }
}

/// Lanes that are merged one by one at the end.
const LAST: usize = 16;

/// Merges lanes into one, pairwise.
#[inline(always)]
unsafe fn merge_lanes<T: Item, F: Fold<T>>(lanes: *mut F::Lane, mut n: usize) -> F::Lane {
    // SAFETY: the caller's promise: `n` lanes are written.
    unsafe {
        while n > LAST {
            let half = n.div_ceil(2);
            let low = std::slice::from_raw_parts_mut(lanes, n - half);
            let high = std::slice::from_raw_parts(lanes.add(half), n - half);
            for (a, &b) in low.iter_mut().zip(high) {
                *a = F::merge(*a, b);
            }
            n = half;
        }
        let mut last = [F::LANE; LAST];
        for j in 0..n {
            last[j] = *lanes.add(j);
        }
        let mut half = LAST / 2;
        while half > 0 {
            for j in 0..half {
                last[j] = F::merge(last[j], last[j + half]);
            }
            half /= 2;
        }
        last[0]
    }
}

/// Whether a tile is read without lanes: they would take longer.
#[inline(always)]
fn is_short(tile: &Tile) -> bool {
    tile.columns < LAST && tile.rows == 1
}

/// Reduces a short tile into one lane.
#[inline(always)]
unsafe fn fold_short<T: Item, F: Fold<T>, I: Isa>(tile: Tile, aux: impl Aux<F::Aux>) -> F::Lane {
    let x = tile.x.cast::<T>();
    // SAFETY: the caller's promise.
    unsafe { (0..tile.columns).fold(F::LANE, |lane, j| F::step::<I>(lane, *x.add(j), aux.at(j))) }
}

/// Reduces all of a tile into one lane, the columns pairwise.
#[inline(always)]
unsafe fn fold_whole<T: Item, F: Fold<T>, I: Isa>(tile: Tile, aux: impl Aux<F::Aux>) -> F::Lane {
    let mut lanes = Lanes::new();
    let lanes = lanes.ptr();
    // SAFETY: the first `tile.columns` lanes are written before they are read.
    unsafe {
        if is_short(&tile) {
            return fold_short::<T, F, I>(tile, aux);
        }
        fold_columns::<T, F, I>(tile, aux, lanes);
        merge_lanes::<T, F>(lanes, tile.columns)
    }
}

/// Reduces a single row into one lane, for reductions that need nothing else.
///
/// # Safety
/// The tile is readable, has one row and is not empty.
#[inline(always)]
pub unsafe fn one_row<T: Item, F: Fold<T, Aux = ()>, I: Isa>(tile: Tile) -> F::Lane {
    let mut lanes = Lanes::new();
    let lanes = lanes.ptr();
    // SAFETY: the caller's promise.
    unsafe {
        if is_short(&tile) {
            return fold_short::<T, F, I>(tile, Same(()));
        }
        fold_rows::<T, F, I, 1, true>(tile, 0, Same(()), lanes);
        merge_lanes::<T, F>(lanes, tile.columns)
    }
}

// ---- reductions with one word

/// Accumulates each column into its lane: what takes the time of a reduction, compiled once for both of its forms.
#[inline(always)]
unsafe fn simple_lanes_kernel<T: Item, F: Fold<T>, I: Isa>(tile: Tile, param: f64, lanes: *mut F::Lane) {
    // SAFETY: the caller's promise.
    unsafe { fold_columns::<T, F, I>(tile, Same(Param::from_param(param)), lanes) }
}

#[inline(always)]
unsafe fn simple_merge_kernel<T: Item, F: Fold<T>, I: Isa>(lanes: *mut F::Lane, n: usize) -> F::Lane {
    // SAFETY: the caller's promise.
    unsafe { merge_lanes::<T, F>(lanes, n) }
}

#[inline(always)]
unsafe fn simple_absorb_kernel<T: Item, F: Fold<T>, I: Isa>(acc: *mut F::Word, lanes: *const F::Lane, n: usize) {
    for j in 0..n {
        // SAFETY: the caller's promise.
        unsafe { *acc.add(j) = F::absorb(*acc.add(j), *lanes.add(j)) };
    }
}

multiversion! {
    unsafe fn simple_lanes<T: Item, F: Fold<T>>(tile: Tile, param: f64, lanes: *mut F::Lane) = simple_lanes_kernel, wide when F::HOT && size_of::<T>() == 4;
}
multiversion! {
    unsafe fn simple_merge<T: Item, F: Fold<T>>(lanes: *mut F::Lane, n: usize) -> F::Lane = simple_merge_kernel, wide when false;
}
multiversion! {
    unsafe fn simple_absorb<T: Item, F: Fold<T>>(acc: *mut F::Word, lanes: *const F::Lane, n: usize) = simple_absorb_kernel, wide when false;
}

unsafe fn simple_whole<T: Item, F: Fold<T>>(tile: Tile, param: f64, acc: *mut u64) {
    let acc = acc.cast::<F::Word>();
    // SAFETY: the caller's promise; words are 8 bytes; the first `tile.columns` lanes are written before they are read.
    unsafe {
        let lane = if is_short(&tile) {
            fold_short::<T, F, Portable>(tile, Same(Param::from_param(param)))
        } else {
            let mut lanes = Lanes::new();
            simple_lanes::<T, F>(tile, param, lanes.ptr());
            simple_merge::<T, F>(lanes.ptr(), tile.columns)
        };
        *acc = F::absorb(*acc, lane);
    }
}

unsafe fn simple_columns<T: Item, F: Fold<T>>(tile: Tile, param: f64, acc: *mut u64, _plane: usize) {
    let mut lanes = Lanes::new();
    // SAFETY: the caller's promise.
    unsafe {
        simple_lanes::<T, F>(tile, param, lanes.ptr());
        simple_absorb::<T, F>(acc.cast(), lanes.ptr(), tile.columns);
    }
}

unsafe fn simple_join<T: Item, F: Fold<T>>(a: *mut u64, _: usize, b: *const u64, _: usize, width: usize) {
    let (a, b) = (a.cast::<F::Word>(), b.cast::<F::Word>());
    for j in 0..width {
        // SAFETY: the caller's promise.
        unsafe { *a.add(j) = F::join(*a.add(j), *b.add(j)) };
    }
}

const fn simple<T: Item, F: Fold<T>>() -> Kernels {
    // SAFETY: a word is `f64` or `i64`.
    let empty = unsafe { std::mem::transmute_copy::<F::Word, u64>(&F::WORD) };
    Kernels {
        words: 1,
        empty: [empty, 0, 0],
        whole: simple_whole::<T, F>,
        columns: simple_columns::<T, F>,
        join: simple_join::<T, F>,
    }
}

// ---- dtypes whose elements are widened first: compiling every reduction for them would cost more than it saves

/// The kernels that do the arithmetic of another dtype.
trait Widened: 'static {
    const FROM: DType;
    const TO: DType;
    const KERNELS: Kernels;
}

/// Elements of `T` widened to those of `W`, whose kernels `K` makes.
struct As<T, W, K>(PhantomData<(T, W, K)>);

/// Makes the kernels of a reduction for an element type.
trait Make<T: Item>: 'static {
    const KERNELS: Kernels;
}

impl<T: Item, W: Item, K: Make<W>> Widened for As<T, W, K> {
    const FROM: DType = T::DTYPE;
    const TO: DType = W::DTYPE;
    const KERNELS: Kernels = K::KERNELS;
}

/// A reduction of one word.
struct Simple<F>(PhantomData<F>);
impl<T: Item, F: Fold<T>> Make<T> for Simple<F> {
    const KERNELS: Kernels = simple::<T, F>();
}
struct Variance;
impl<T: FloatItem> Make<T> for Variance {
    const KERNELS: Kernels = variance::<T>();
}
struct LogSumExp;
impl<T: FloatItem> Make<T> for LogSumExp {
    const KERNELS: Kernels = log_sum_exp::<T>();
}

/// Elements that are widened at a time: they stay in the first-level cache.
const WIDENED: usize = 2048;
const _: () = assert!(WIDENED >= TILE_COLUMNS);

/// Calls `f` with the rows of a tile, widened, a few at a time.
///
/// # Safety
/// The tile is readable and not empty.
unsafe fn widen_rows(tile: Tile, from: DType, to: DType, f: &mut dyn FnMut(Tile)) {
    let mut room = [MaybeUninit::<u64>::uninit(); WIDENED];
    let room = room.as_mut_ptr().cast::<u8>();
    let (convert, columns) = (converter(from, to), tile.columns);
    let step = (WIDENED / columns).max(1);
    for row in (0..tile.rows).step_by(step) {
        let rows = step.min(tile.rows - row);
        // SAFETY: the rows are the tile's; there is room for `step` rows of up to eight bytes an element.
        unsafe {
            let x = tile.x.add(row * tile.stride * from.size());
            convert(rows, columns, x, [tile.stride, 1], room, [columns, 1]);
        }
        f(Tile { x: room, rows, stride: columns, columns });
    }
}

unsafe fn widened_whole<K: Widened>(tile: Tile, param: f64, acc: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe { widen_rows(tile, K::FROM, K::TO, &mut |tile| (const { K::KERNELS.whole })(tile, param, acc)) }
}

unsafe fn widened_columns<K: Widened>(tile: Tile, param: f64, acc: *mut u64, plane: usize) {
    // SAFETY: the caller's promise.
    unsafe { widen_rows(tile, K::FROM, K::TO, &mut |tile| (const { K::KERNELS.columns })(tile, param, acc, plane)) }
}

const fn widened<K: Widened>() -> Kernels {
    Kernels { whole: widened_whole::<K>, columns: widened_columns::<K>, ..K::KERNELS }
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

/// Moments of `n` elements from their sum and the squared distances from `centre`, their mean as rounded to the
/// element's type.
#[inline(always)]
fn moments(n: usize, sum: f64, centre: f64, squares: f64) -> Moments {
    let mean = sum / n as f64;
    let off = mean - centre;
    [n as f64, mean, squares - off * off * n as f64]
}

#[inline(always)]
unsafe fn variance_whole_kernel<T: FloatItem, I: Isa>(tile: Tile, _param: f64, acc: *mut u64) {
    let acc = acc.cast::<Moments>();
    let n = tile.rows * tile.columns;
    // SAFETY: the caller's promise.
    unsafe {
        let sum = fold_whole::<T, fold::Sum, I>(tile, Same(())).word();
        let centre = T::Wide::from_param(sum / n as f64);
        let squares = fold_whole::<T, fold::SumSquaredDistance, I>(tile, Same(centre)).word();
        *acc = join_moments(*acc, moments(n, sum, centre.word(), squares));
    }
}

#[inline(always)]
unsafe fn variance_columns_kernel<T: FloatItem, I: Isa>(tile: Tile, _param: f64, acc: *mut u64, plane: usize) {
    let (mut sums, mut squares, mut centres) =
        (Lanes::<T::Wide>::new(), Lanes::<T::Wide>::new(), Lanes::<T::Wide>::new());
    let (sums, squares, centres) = (sums.ptr(), squares.ptr(), centres.ptr());
    let (acc, rows) = (acc.cast::<f64>(), tile.rows as f64);
    // SAFETY: the caller's promise; the first `tile.columns` lanes are written before they are read.
    unsafe {
        fold_columns::<T, fold::Sum, I>(tile, Same(()), sums);
        let inverse = 1.0 / rows;
        for j in 0..tile.columns {
            *centres.add(j) = T::Wide::from_param((*sums.add(j)).word() * inverse);
        }
        fold_columns::<T, fold::SumSquaredDistance, I>(tile, Each(centres.cast_const()), squares);
        // All columns have the same number of rows, so the weights of the update are equal.
        let before = *acc;
        let (share, product) = (rows / (before + rows), before * rows / (before + rows));
        for j in 0..tile.columns {
            let (mean, distances) = (acc.add(plane + j), acc.add(2 * plane + j));
            let here = (*sums.add(j)).word() * inverse;
            let (off, delta) = (here - (*centres.add(j)).word(), here - *mean);
            *acc.add(j) = before + rows;
            *mean += delta * share;
            *distances += (*squares.add(j)).word() - off * off * rows + delta * delta * product;
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
    unsafe fn variance_whole<T: FloatItem>(tile: Tile, param: f64, acc: *mut u64) = variance_whole_kernel, wide when size_of::<T>() == 4;
}
multiversion! {
    unsafe fn variance_columns<T: FloatItem>(tile: Tile, param: f64, acc: *mut u64, plane: usize) = variance_columns_kernel, wide when size_of::<T>() == 4;
}

const fn variance<T: FloatItem>() -> Kernels {
    Kernels { words: 3, empty: [0; 3], whole: variance_whole::<T>, columns: variance_columns::<T>, join: variance_join }
}

// ---- log of the sum of exponentials: largest element, sum of exponentials of the distances to it

type LogSum = [f64; 2];

#[inline(always)]
fn join_log_sums([max_a, a]: LogSum, [max_b, b]: LogSum) -> LogSum {
    let max = max_a.larger(max_b);
    // Equal maxima may both be infinite, and their difference NaN; an empty sum needs no scaling.
    let scaled = |m: f64, sum: f64| if m == max || sum == 0.0 { sum } else { sum * (m - max).exp() };
    [max, scaled(max_a, a) + scaled(max_b, b)]
}

/// The shift of the exponents: finite, even if the largest element is not.
#[inline(always)]
fn shift<F: Float>(max: F) -> F {
    if max > F::LOWEST && max < F::HIGHEST { max } else { F::ZERO }
}

/// The two words; an infinite or NaN maximum alone decides the result.
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
unsafe fn log_sum_whole_kernel<T: FloatItem, I: Isa>(tile: Tile, _param: f64, acc: *mut u64) {
    let acc = acc.cast::<LogSum>();
    // SAFETY: the caller's promise.
    unsafe {
        let max = fold_whole::<T, fold::Max, I>(tile, Same(()));
        let sum = fold_whole::<T, fold::SumExp, I>(tile, Same(shift(max)));
        *acc = join_log_sums(*acc, log_sum(max, sum));
    }
}

#[inline(always)]
unsafe fn log_sum_columns_kernel<T: FloatItem, I: Isa>(tile: Tile, _param: f64, acc: *mut u64, plane: usize) {
    let (mut maxima, mut shifts, mut sums) =
        (Lanes::<T::Wide>::new(), Lanes::<T::Wide>::new(), Lanes::<T::Wide>::new());
    let (maxima, shifts, sums) = (maxima.ptr(), shifts.ptr(), sums.ptr());
    let acc = acc.cast::<f64>();
    // SAFETY: the caller's promise; the first `tile.columns` lanes are written before they are read.
    unsafe {
        fold_columns::<T, fold::Max, I>(tile, Same(()), maxima);
        for j in 0..tile.columns {
            *shifts.add(j) = shift::<T::Wide>(*maxima.add(j));
        }
        fold_columns::<T, fold::SumExp, I>(tile, Each(shifts.cast_const()), sums);
        for j in 0..tile.columns {
            let before = [*acc.add(j), *acc.add(plane + j)];
            let [max, sum] = join_log_sums(before, log_sum(*maxima.add(j), *sums.add(j)));
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
    unsafe fn log_sum_whole<T: FloatItem>(tile: Tile, param: f64, acc: *mut u64) = log_sum_whole_kernel, wide when size_of::<T>() == 4;
}
multiversion! {
    unsafe fn log_sum_columns<T: FloatItem>(tile: Tile, param: f64, acc: *mut u64, plane: usize) = log_sum_columns_kernel, wide when size_of::<T>() == 4;
}

const fn log_sum_exp<T: FloatItem>() -> Kernels {
    Kernels {
        words: 2,
        empty: [f64::NEG_INFINITY.to_bits(), 0, 0],
        whole: log_sum_whole::<T>,
        columns: log_sum_columns::<T>,
        join: log_sum_join,
    }
}

/// Kernels of a floating dtype: half types are widened.
macro_rules! floats {
    ($op:expr, $dtype:expr, $K:ty) => {
        match $dtype {
            DType::F32 => &const { <$K as Make<f32>>::KERNELS },
            DType::F64 => &const { <$K as Make<f64>>::KERNELS },
            DType::F16 => &const { widened::<As<f16, f32, $K>>() },
            DType::BF16 => &const { widened::<As<bf16, f32, $K>>() },
            other => return Err(Error::dtype(format!("{:?}: needs a floating dtype, got {other}", $op))),
        }
    };
}

/// Kernels of any dtype: of those that are named directly, of the others widened.
macro_rules! numbers {
    ($op:expr, $dtype:expr, $K:ty, $($D:ident $t:ty),*) => {
        match $dtype.carrier() {
            DType::I64 => &const { <$K as Make<i64>>::KERNELS },
            $(DType::$D => &const { <$K as Make<$t>>::KERNELS },)*
            #[allow(unreachable_patterns, reason = "named before")]
            DType::I32 => &const { widened::<As<i32, i64, $K>>() },
            DType::I16 => &const { widened::<As<i16, i64, $K>>() },
            DType::I8 => &const { widened::<As<i8, i64, $K>>() },
            #[allow(unreachable_patterns, reason = "named before")]
            DType::U8 | DType::Bool => &const { widened::<As<u8, i64, $K>>() },
            other => floats!($op, other, $K),
        }
    };
}

/// The kernels of a reduction for inputs of a dtype.
#[inline]
pub fn select(op: Reduce, dtype: DType) -> Result<&'static Kernels> {
    Ok(match op {
        // Bytes of bools count as zero or one.
        Reduce::Sum if dtype == DType::Bool => &const { simple::<Truth, fold::Sum>() },
        Reduce::Prod if dtype == DType::Bool => &const { widened::<As<Truth, i64, Simple<fold::Prod>>>() },
        Reduce::Sum | Reduce::Mean if matches!(dtype, DType::F16) => &const { simple::<f16, fold::Sum>() },
        Reduce::Sum | Reduce::Mean if matches!(dtype, DType::BF16) => &const { simple::<bf16, fold::Sum>() },
        Reduce::Sum => numbers!(op, dtype, Simple<fold::Sum>, I32 i32, U8 u8),
        Reduce::Mean => floats!(op, dtype, Simple<fold::Sum>),
        Reduce::Prod => numbers!(op, dtype, Simple<fold::Prod>,),
        Reduce::Max => numbers!(op, dtype, Simple<fold::Max>,),
        Reduce::Min => numbers!(op, dtype, Simple<fold::Min>,),
        Reduce::Any | Reduce::All | Reduce::CountNonzero if dtype == DType::Bool => {
            &const { simple::<u8, fold::Count>() }
        }
        Reduce::Any | Reduce::All | Reduce::CountNonzero => numbers!(op, dtype, Simple<fold::Count>, U8 u8),
        Reduce::Norm { p: 0.0 } => floats!(op, dtype, Simple<fold::Count>),
        Reduce::Norm { p: 1.0 } => floats!(op, dtype, Simple<fold::SumAbs>),
        Reduce::SumSquares | Reduce::Norm { p: 2.0 } => floats!(op, dtype, Simple<fold::SumSquares>),
        Reduce::Norm { p: f64::INFINITY } => floats!(op, dtype, Simple<fold::MaxAbs>),
        Reduce::Norm { p: f64::NEG_INFINITY } => floats!(op, dtype, Simple<fold::MinAbs>),
        Reduce::Norm { .. } => floats!(op, dtype, Simple<fold::SumPowers>),
        Reduce::Var { .. } => floats!(op, dtype, Variance),
        Reduce::LogSumExp => floats!(op, dtype, LogSumExp),
    })
}
