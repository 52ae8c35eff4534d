//! Divide and conquer for tridiagonal eigenproblems and bidiagonal singular value problems.
//!
//! Both halves of the problem are solved, then joined by the secular equation. Eigenpairs that the halves share with
//! the whole are kept ("deflation"); the others cost a matrix product: 4/3 n³ operations at most, n² for values only.
//! Scalars are f64, vectors have the element type.

mod bidiagonal;
mod secular;
mod tridiagonal;
mod values;

pub use bidiagonal::BidiagonalProblem;
pub use tridiagonal::{TridiagonalProblem, ql_iteration};
pub use values::eigenvalues;

use crate::real::Scalar;
use crate::simd::kernels::{dot, rotate};
use crate::simd::product::product;
use crate::simd::{Aligned, padded};
use crate::view::{Mat, MatMut};
use secular::Secular;
use std::ops::Range;

/// The row blocks in which a column of a block-diagonal matrix of two blocks can be nonzero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Support {
    Top,
    Both,
    Bottom,
}

impl Support {
    fn join(self, other: Self) -> Self {
        if self == other { self } else { Support::Both }
    }
}

/// A square column-major matrix, assembled from blocks on its diagonal.
struct Basis<T> {
    ld: usize,
    columns: Aligned<T>,
}

impl<T: Scalar> Basis<T> {
    fn new(n: usize) -> Self {
        let ld = padded(n);
        Self { ld, columns: Aligned::new(ld * n) }
    }

    fn at(&self, row: usize, column: usize) -> T {
        self.columns[column * self.ld + row]
    }

    fn set_identity(&mut self) {
        self.columns.fill(T::ZERO);
        self.columns.iter_mut().step_by(self.ld + 1).for_each(|x| *x = T::ONE);
    }

    fn column(&self, column: usize, rows: Range<usize>) -> &[T] {
        &self.columns[column * self.ld..][rows]
    }

    /// Replaces columns `x` and `y` by `cos x + sin y` and `cos y - sin x`.
    fn rotate(&mut self, x: usize, y: usize, rows: Range<usize>, cos: f64, sin: f64) {
        let ld = self.ld;
        let (head, tail) = self.columns.split_at_mut(x.max(y) * ld);
        let (first, second) = (&mut head[x.min(y) * ld..][rows.clone()], &mut tail[rows]);
        let sin = if x < y { sin } else { -sin };
        rotate(first, second, T::from_f64(cos), T::from_f64(sin));
    }

    /// Like [`Basis::rotate`] for all rows. The padding is zero and stays so; without it rows would be left to scalar
    /// loops.
    fn rotate_whole(&mut self, x: usize, y: usize, cos: f64, sin: f64) {
        self.rotate(x, y, 0..self.ld, cos, sin);
    }

    fn block(&self, rows: Range<usize>, columns: Range<usize>) -> Mat<'_, T> {
        let size = (self.ld, columns.len());
        Mat::new(&self.columns[columns.start * self.ld..], size, (1, self.ld)).block(rows, 0..size.1)
    }

    fn block_mut(&mut self, rows: Range<usize>, columns: Range<usize>) -> MatMut<'_, T> {
        let size = (self.ld, columns.len());
        MatMut::new(&mut self.columns[columns.start * self.ld..], size, (1, self.ld)).block(rows, 0..size.1)
    }

    /// Joins two blocks in the adjacent row ranges `top` and `bottom`: the columns `join.grouped` times `factors`
    /// become the first columns of the joined block; unchanged columns follow.
    fn join(&mut self, top: Range<usize>, bottom: Range<usize>, join: &Join, factors: &[T], scratch: &mut Vec<T>) {
        let count = join.grouped.len();
        let (rows, first) = (top.start..bottom.end, top.start);
        let heads = &join.grouped[..join.in_top];
        let tails = &join.grouped[count - join.in_bottom..];
        scratch.clear();
        heads.iter().for_each(|&c| scratch.extend_from_slice(self.column(c, top.clone())));
        tails.iter().for_each(|&c| scratch.extend_from_slice(self.column(c, bottom.clone())));
        join.unchanged.iter().for_each(|&c| scratch.extend_from_slice(self.column(c, rows.clone())));
        let (packed_top, rest) = scratch.split_at(heads.len() * top.len());
        let (packed_bottom, kept) = rest.split_at(tails.len() * bottom.len());
        if count > 0 {
            let factors = Mat::new(factors, (count, count), (1, count));
            let packed_top = Mat::new(packed_top, (top.len(), heads.len()), (1, top.len()));
            let packed_bottom = Mat::new(packed_bottom, (bottom.len(), tails.len()), (1, bottom.len()));
            let to = self.block_mut(top, first..first + count);
            product(to, packed_top, factors.block(0..heads.len(), 0..count), false);
            let to = self.block_mut(bottom, first..first + count);
            product(to, packed_bottom, factors.block(count - tails.len()..count, 0..count), false);
        }
        for (i, kept) in kept.chunks_exact(rows.len()).enumerate() {
            self.columns[(first + count + i) * self.ld..][rows.clone()].copy_from_slice(kept);
        }
    }
}

/// First and last rows of the blocks of a matrix of vectors: all that computing values needs of it.
struct Ends {
    first: Vec<f64>,
    last: Vec<f64>,
}

impl Ends {
    fn new(n: usize) -> Self {
        Self { first: vec![0.0; n], last: vec![0.0; n] }
    }

    fn rotate(&mut self, x: usize, y: usize, cos: f64, sin: f64) {
        for row in [&mut self.first, &mut self.last] {
            (row[x], row[y]) = (cos * row[x] + sin * row[y], cos * row[y] - sin * row[x]);
        }
    }

    /// Like [`Basis::join`], with the columns of the factors produced one by one by `factor`.
    fn join(&mut self, start: usize, join: &Join, scratch: &mut Vec<f64>, mut factor: impl FnMut(usize, &mut [f64])) {
        let count = join.grouped.len();
        scratch.clear();
        scratch.resize(count, 0.0);
        for row in [&self.first, &self.last] {
            scratch.extend(join.grouped.iter().map(|&c| row[c]));
            scratch.extend(join.unchanged.iter().map(|&c| row[c]));
        }
        let (column, old) = scratch.split_at_mut(count);
        let (first, last) = old.split_at(count + join.unchanged.len());
        for i in 0..count {
            factor(i, column);
            self.first[start + i] = dot(&first[..count], column);
            self.last[start + i] = dot(&last[..count], column);
        }
        self.first[start + count..start + first.len()].copy_from_slice(&first[count..]);
        self.last[start + count..start + last.len()].copy_from_slice(&last[count..]);
    }
}

/// The columns that take part in joining two blocks, and their order.
#[derive(Default)]
struct Join {
    /// Columns that take part, ordered by pole.
    kept: Vec<usize>,
    /// The same columns ordered by support: the top block's first, the bottom block's last.
    grouped: Vec<usize>,
    /// Number of [`Join::grouped`] columns with entries in both blocks.
    joint: usize,
    /// Number of leading [`Join::grouped`] columns with entries in the top rows.
    in_top: usize,
    /// Number of trailing [`Join::grouped`] columns with entries in the bottom rows.
    in_bottom: usize,
    /// Columns that are not changed.
    unchanged: Vec<usize>,
    /// Poles and coefficients in the order of [`Join::grouped`].
    poles: Vec<f64>,
    z: Vec<f64>,
}

impl Join {
    fn clear(&mut self) {
        self.kept.clear();
        self.unchanged.clear();
    }

    /// Orders the kept columns by support. `lead` comes first among the columns with both supports.
    fn group(&mut self, support: impl Fn(usize) -> Support, lead: Option<usize>) {
        self.grouped.clear();
        let mut sizes = [0; 3];
        for (group, wanted) in [Support::Top, Support::Both, Support::Bottom].into_iter().enumerate() {
            let before = self.grouped.len();
            if wanted == Support::Both {
                self.grouped.extend(lead);
            }
            self.grouped.extend(self.kept.iter().copied().filter(|&c| Some(c) != lead && support(c) == wanted));
            sizes[group] = self.grouped.len() - before;
        }
        self.joint = sizes[1];
        self.in_top = sizes[0] + sizes[1];
        self.in_bottom = sizes[1] + sizes[2];
    }

    /// Copies the poles and coefficients of the grouped columns.
    fn gather(&mut self, poles: &[f64], z: &[f64]) {
        self.poles.clear();
        self.poles.extend(self.grouped.iter().map(|&c| poles[c]));
        self.z.clear();
        self.z.extend(self.grouped.iter().map(|&c| z[c]));
    }
}

/// Orders indices by ascending value.
fn sort_all(values: &[f64], order: &mut [usize]) {
    order.iter_mut().enumerate().for_each(|(i, order)| *order = i);
    order.sort_unstable_by(|&i, &j| values[i].total_cmp(&values[j]));
}

/// Tolerance of the roots: a few digits beyond f32's precision for f32, full precision for f64.
fn secular_tolerance<T: Scalar>() -> f64 {
    (1e-3 * T::EPSILON.to_f64()).max(0.5 * f64::EPSILON)
}

/// Divides all numbers by a power of two so that the largest is between one and two, and returns the divisor. Numbers
/// so small that products of a few of them would underflow become zero; they are far below the precision of the
/// largest.
fn normalise(diagonal: &mut [f64], beside: &mut [f64]) -> f64 {
    let largest = diagonal.iter().chain(beside.iter()).fold(0.0, |m: f64, x| m.max(x.abs()));
    if largest < f64::MIN_POSITIVE || !largest.is_finite() {
        return 1.0;
    }
    // Keeps the exponent bits only.
    let scale = f64::from_bits(largest.to_bits() & 0x7FF0_0000_0000_0000);
    for x in diagonal.iter_mut().chain(beside) {
        *x = if x.abs() < 1e-40 * scale { 0.0 } else { *x / scale };
    }
    scale
}

/// Writes `values * factor` as `T`.
fn narrow<T: Scalar>(values: &[f64], factor: f64, out: &mut [T]) {
    for (out, &value) in out.iter_mut().zip(values) {
        *out = T::from_f64(value * factor);
    }
}

/// Indices of the ranges `first` and `second` by ascending value; each range ascends except for rounding.
fn sort_joined(values: &[f64], first: Range<usize>, second: Range<usize>, out: &mut Vec<usize>) {
    out.clear();
    out.extend(first.chain(second));
    // Two ascending runs: the standard library's sort merges them.
    out.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
}

/// Merges two sorted index lists by ascending value.
fn merge_sorted(values: &[f64], first: &[usize], second: &[usize], out: &mut Vec<usize>) {
    out.clear();
    let (mut i, mut j) = (0, 0);
    while i < first.len() && j < second.len() {
        if values[second[j]] < values[first[i]] {
            out.push(second[j]);
            j += 1;
        } else {
            out.push(first[i]);
            i += 1;
        }
    }
    out.extend_from_slice(&first[i..]);
    out.extend_from_slice(&second[j..]);
}
