//! Small matrix products on blocks in cache: no packing, register tiles only.

use crate::isa::Isa;
use crate::simd::{Real, Simd, Vectors};

/// A matrix: address and strides.
#[derive(Clone, Copy)]
pub struct Matrix<R> {
    pub at: *const R,
    pub row: usize,
    pub col: usize,
}

impl<R> Matrix<R> {
    /// A matrix with adjacent columns.
    #[inline(always)]
    pub fn rows(at: *const R, row: usize) -> Self {
        Self { at, row, col: 1 }
    }

    /// The matrix from row `row` on.
    #[inline(always)]
    pub fn from(self, row: usize) -> Self {
        Self { at: self.at.wrapping_add(row * self.row), ..self }
    }

    /// The transposed matrix.
    #[inline(always)]
    pub fn transposed(self) -> Self {
        Self { at: self.at, row: self.col, col: self.row }
    }
}

/// How a product combines with its output.
#[derive(Clone, Copy)]
pub enum Store<R> {
    /// `out = factor * product`.
    Set(R),
    /// `out += product`.
    Add,
}

/// `M` rows of `N` vectors of the output.
///
/// # Safety
/// `k` columns of `M` rows at `a`, `k` rows of `N` vectors at `b`, `M` rows of `N` vectors at `out`; the last vector
/// has `last` elements, fewer than a full vector only if `N` is 1.
#[inline(always)]
unsafe fn tile<V: Simd, const M: usize, const N: usize>(
    k: usize,
    last: usize,
    a: Matrix<V::Elem>,
    b: Matrix<V::Elem>,
    out: (*mut V::Elem, usize),
    store: Store<V::Elem>,
) {
    let zero = V::Elem::ZERO;
    let mut sums = [[V::splat(zero); N]; M];
    // SAFETY: by the caller's contract.
    unsafe {
        let (mut pa, mut pb) = (a.at, b.at);
        for _ in 0..k {
            let mut right = [V::splat(zero); N];
            for (n, right) in right.iter_mut().enumerate() {
                *right = if N > 1 { V::load(pb.add(n * V::N)) } else { V::get(pb, last, zero) };
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let left = V::splat(*pa.add(m * a.row));
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = left.fma(right, *sum);
                }
            }
            pa = pa.add(a.col);
            pb = pb.add(b.row);
        }
        for (m, sums) in sums.iter().enumerate() {
            for (n, &sum) in sums.iter().enumerate() {
                let to = out.0.add(m * out.1 + n * V::N);
                let length = if N > 1 { V::N } else { last };
                match store {
                    Store::Set(factor) => (sum * V::splat(factor)).put(to, length),
                    Store::Add => (V::get(to, length, zero) + sum).put(to, length),
                }
            }
        }
    }
}

/// One panel of `N` vectors, all rows.
#[inline(always)]
unsafe fn panel<V: Simd, const N: usize>(
    m: usize,
    k: usize,
    last: usize,
    a: Matrix<V::Elem>,
    b: Matrix<V::Elem>,
    out: (*mut V::Elem, usize),
    store: Store<V::Elem>,
) {
    let mut i = 0;
    while i < m {
        // SAFETY: rows `i..` of the caller's matrices.
        unsafe {
            let a = a.from(i);
            let out = (out.0.add(i * out.1), out.1);
            i += match m - i {
                6.. => {
                    tile::<V, 6, N>(k, last, a, b, out, store);
                    6
                }
                4 | 5 => {
                    tile::<V, 4, N>(k, last, a, b, out, store);
                    4
                }
                2 | 3 => {
                    tile::<V, 2, N>(k, last, a, b, out, store);
                    2
                }
                _ => {
                    tile::<V, 1, N>(k, last, a, b, out, store);
                    1
                }
            };
        }
    }
}

#[inline(always)]
unsafe fn product_kernel<R: Real, I: Vectors>(
    [m, n, k]: [usize; 3],
    a: Matrix<R>,
    b: Matrix<R>,
    out: (*mut R, usize),
    store: Store<R>,
) {
    let width = <R::V<I> as Simd>::N;
    // 6 by 4 vectors fill 32 registers, 6 by 2 fill 16.
    let widest = if <I as Isa>::LANES == 16 { 4 } else { 2 };
    let mut j = 0;
    while j < n {
        let vectors = ((n - j) / width).min(widest);
        // SAFETY: columns `j..` of the caller's matrices.
        unsafe {
            let b = Matrix { at: b.at.add(j), ..b };
            let out = (out.0.add(j), out.1);
            j += match vectors {
                // A constant condition: tiles wider than the level's registers are not compiled.
                4.. if const { <I as Isa>::LANES == 16 } => {
                    panel::<R::V<I>, 4>(m, k, width, a, b, out, store);
                    4 * width
                }
                2.. => {
                    panel::<R::V<I>, 2>(m, k, width, a, b, out, store);
                    2 * width
                }
                _ => {
                    let last = width.min(n - j);
                    panel::<R::V<I>, 1>(m, k, last, a, b, out, store);
                    last
                }
            };
        }
    }
}

crate::multiversion! {
    /// `a [m, k] @ b [k, n]`; `b` and `out` have neighbouring columns, `out` is given with its row stride.
    ///
    /// A separate function, so that its twelve tile sizes are compiled once per level, not once per product.
    ///
    /// # Safety
    /// The matrices have these sizes, and `out` overlaps neither other.
    pub unsafe fn product<R: Real>(
        sizes: [usize; 3], a: Matrix<R>, b: Matrix<R>, out: (*mut R, usize), store: Store<R>,
    ) = product_kernel;
}

/// `to[c * to_row + r] = from[r][c]`.
///
/// # Safety
/// The matrix has these sizes and neighbouring columns; `cols` rows of `to_row >= rows` elements at `to`, which does
/// not overlap it; the CPU has level `I`.
#[inline(always)]
pub unsafe fn transpose<R: Real, I: Vectors>(rows: usize, cols: usize, from: Matrix<R>, to: *mut R, to_row: usize) {
    let width = <R::V<I> as Simd>::N;
    let (whole_rows, whole_cols) = (rows / width * width, cols / width * width);
    // SAFETY: everything is within the sizes.
    unsafe {
        for r in (0..whole_rows).step_by(width) {
            for c in (0..whole_cols).step_by(width) {
                <R::V<I> as Simd>::transpose(from.at.add(r * from.row + c), from.row, to.add(c * to_row + r), to_row);
            }
        }
        for r in 0..rows {
            let done = if r < whole_rows { whole_cols } else { 0 };
            for c in done..cols {
                *to.add(c * to_row + r) = *from.at.add(r * from.row + c);
            }
        }
    }
}
