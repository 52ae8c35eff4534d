//! Householder reflectors `I - tau v vᵀ`, one by one and in blocks.

use crate::layout::{col_major, col_major_mut};
use crate::real::Scalar;
use crate::simd::PAD;
use crate::simd::kernels::{dot, reflect_columns};
use crate::simd::product::product;
use crate::view::{Mat, MatMut};

/// Number of reflectors that one block applies by matrix products.
pub const BLOCK: usize = 32;

/// Up to this many reflectors are applied one by one: matrix products this small cost more than they save.
const FEW: usize = 16;

/// Matrices up to this size have all reflectors applied one by one, to padded columns.
const SMALL: usize = 32;

/// Replaces `x` by the vector `v` of a reflector that maps `x` to `beta` times the first unit vector; `v` starts with
/// one. Returns `tau` and `beta`. As in LAPACK `beta` has the sign opposite to `x[0]`, and `tau` is zero if there is
/// nothing to reflect. The tail of `x` counts as zero if the sum of its squares is at most `negligible`.
pub fn make_reflector<T: Scalar>(x: &mut [T], negligible: T) -> (T, T) {
    let Some((head, tail)) = x.split_first_mut() else { return (T::ZERO, T::ZERO) };
    let alpha = *head;
    *head = T::ONE;
    let squares = dot(tail, tail);
    if negligible > T::ZERO && squares <= negligible {
        tail.fill(T::ZERO);
        return (T::ZERO, alpha);
    }
    let total = alpha * alpha + squares;
    let (low, high) = (T::MIN_POSITIVE / (T::EPSILON * T::EPSILON), T::EPSILON / T::MIN_POSITIVE);
    if low < total && total < high {
        if squares == T::ZERO {
            tail.fill(T::ZERO);
            return (T::ZERO, alpha);
        }
        return finish_reflector(alpha, total.sqrt(), tail);
    }
    // The squares may have overflowed or underflowed, so scale the vector before computing the norm.
    let largest = tail.iter().fold(alpha.abs(), |m, x| if x.abs() > m { x.abs() } else { m });
    if tail.iter().all(|&x| x == T::ZERO) {
        return (T::ZERO, alpha);
    }
    tail.iter_mut().for_each(|x| *x /= largest);
    let alpha = alpha / largest;
    let norm = (alpha * alpha + dot(tail, tail)).sqrt();
    let (tau, beta) = finish_reflector(alpha, norm, tail);
    (tau, beta * largest)
}

/// Scales the tail of a reflector's vector; returns `tau` and `beta`.
fn finish_reflector<T: Scalar>(alpha: T, norm: T, tail: &mut [T]) -> (T, T) {
    let beta = if alpha > T::ZERO { -norm } else { norm };
    let scale = alpha - beta;
    tail.iter_mut().for_each(|x| *x /= scale);
    ((beta - alpha) / beta, beta)
}

/// Threshold below which squares are negligible in a matrix whose largest entry is near one: far below its precision,
/// but large enough to avoid subnormal numbers, for which a reflector is not orthogonal.
pub fn negligible<T: Scalar>() -> T {
    T::MIN_POSITIVE / T::EPSILON
}

/// Workspace of [`Reflectors::apply`] for matrices of up to `cols` columns.
pub struct BlockWork<T> {
    factor: Vec<T>,
    products: Vec<T>,
    turned: Vec<T>,
}

impl<T: Scalar> BlockWork<T> {
    pub fn new(cols: usize) -> Self {
        Self {
            factor: vec![T::ZERO; 2 * BLOCK * BLOCK],
            products: vec![T::ZERO; BLOCK * cols],
            turned: vec![T::ZERO; BLOCK * cols],
        }
    }
}

/// The reflectors `H₀ H₁ …`, stored as columns of a matrix. The vector of `Hᵢ` starts at row `i + offset` with a one;
/// the matrix is zero above.
#[derive(Clone, Copy)]
pub struct Reflectors<'a, T> {
    pub vectors: Mat<'a, T>,
    pub taus: &'a [T],
    pub offset: usize,
}

impl<T: Scalar> Reflectors<'_, T> {
    /// Replaces `c` by `H₀ H₁ … c`, or with `transposed` by `… H₁ H₀ c`.
    ///
    /// A block of reflectors is `I - V T Vᵀ` with `T` triangular, so applying it takes three matrix products.
    pub fn apply(&self, mut c: MatMut<'_, T>, transposed: bool, work: &mut BlockWork<T>) {
        let count = self.taus.len();
        if count <= FEW && self.vectors.row_stride() == 1 && c.row_stride() == 1 {
            for i in 0..count {
                self.apply_one(if transposed { i } else { count - 1 - i }, c.reborrow());
            }
            return;
        }
        let blocks = count.div_ceil(BLOCK);
        for block in 0..blocks {
            let block = if transposed { block } else { blocks - 1 - block };
            self.apply_block(block * BLOCK, c.reborrow(), transposed, work);
        }
    }

    /// Applies reflector `i` to matrices whose columns are contiguous, without a matrix product.
    fn apply_one(&self, i: usize, mut c: MatMut<'_, T>) {
        let (first, tau) = (i + self.offset, self.taus[i]);
        let v = &self.vectors.column(i)[first..];
        for j in 0..c.cols() {
            reflect_columns(&mut c.column_mut(j)[first..], v.len(), v, tau);
        }
    }

    /// Writes the leading columns of `H₀ H₁ …` to `q`, as many as `q` has.
    pub fn write(&self, mut q: MatMut<'_, T>, work: &mut BlockWork<T>) {
        let (rows, cols) = (q.rows(), q.cols());
        for j in 0..cols {
            q.column_mut(j).fill(T::ZERO);
        }
        for i in 0..rows.min(cols) {
            q.set(i, i, T::ONE);
        }
        for start in (0..self.taus.len()).step_by(BLOCK).rev() {
            // The columns before this block still equal the identity's, which are zero in all rows that the block
            // touches.
            let first = (start + self.offset).min(cols);
            self.apply_block(start, q.reborrow().block(0..rows, first..cols), false, work);
        }
    }

    /// Applies the block of reflectors that begins with `start`.
    pub fn apply_block(&self, start: usize, c: MatMut<'_, T>, transposed: bool, work: &mut BlockWork<T>) {
        let width = BLOCK.min(self.taus.len() - start);
        let (first, rows, cols) = (start + self.offset, c.rows(), c.cols());
        let mut c = c.block(first..rows, 0..cols);
        let v = self.vectors.block(first..rows, start..start + width);
        block_factor(v, &self.taus[start..start + width], &mut work.factor);
        let t = col_major(&work.factor[..width * width], width, width);
        let mut products = col_major_mut(&mut work.products[..width * cols], width, cols);
        let mut turned = col_major_mut(&mut work.turned[..width * cols], width, cols);
        product(products.reborrow(), v.transpose(), c.as_ref(), false);
        product(turned.reborrow(), if transposed { t.transpose() } else { t }, products.as_ref(), false);
        product(c.reborrow(), v, turned.as_ref(), true);
    }
}

/// Whether [`apply_padded`] is quicker than [`Reflectors::apply`] for square matrices of `n` rows.
pub fn is_small(n: usize) -> bool {
    n <= SMALL
}

/// Like [`Reflectors::apply`] for columns padded with zeros to `ld`, a multiple of [`PAD`]: vectors and matrix. Whole
/// registers and one call for all columns make this quicker for small matrices.
pub fn apply_padded<T: Scalar>(vectors: &[T], taus: &[T], offset: usize, ld: usize, columns: &mut [T]) {
    for (i, (v, &tau)) in vectors.chunks_exact(ld).zip(taus).enumerate().rev() {
        reflect_columns(columns, ld, &v[(i + offset) / PAD * PAD..], tau);
    }
}

/// Computes the upper triangular `T` of a block of reflectors at the start of `factor`, which also has room for the
/// products of the vectors.
fn block_factor<T: Scalar>(v: Mat<'_, T>, taus: &[T], factor: &mut [T]) {
    let width = taus.len();
    let (t, gram) = factor.split_at_mut(width * width);
    let gram = &mut gram[..width * width];
    product(col_major_mut(gram, width, width), v.transpose(), v, false);
    t.fill(T::ZERO);
    for j in 0..width {
        // Column j is -tau T Vᵀ v: T so far, times the products with the earlier vectors.
        let (done, column) = t.split_at_mut(j * width);
        for (i, earlier) in done.chunks_exact(width).enumerate() {
            let product = -taus[j] * gram[j * width + i];
            for (to, &value) in column[..=i].iter_mut().zip(&earlier[..=i]) {
                *to += product * value;
            }
        }
        column[j] = taus[j];
    }
}
