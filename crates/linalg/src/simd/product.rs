//! Products of matrices.
//!
//! A product is computed in tiles of up to three registers by [`Vector::COLUMNS`] columns, which stay in registers
//! while all of `k` passes. Operands are read in place where that is fast, so small products neither copy nor
//! allocate; others are copied to panels that the tiles read from end to end.

use super::{Vector, vectorised};
use crate::real::Scalar;
use crate::view::{Mat, MatMut};
use std::mem::MaybeUninit;

vectorised! {
    /// `c = a b`, or with `subtract` `c -= a b`. Rows or columns of `c` are contiguous.
    pub fn product<T>(c: MatMut<'_, T>, a: Mat<'_, T>, b: Mat<'_, T>, subtract: bool) = product_kernel;
}

/// Columns of `a` that pass before sums are added to `c`: a panel of `b` then fits the first-level cache.
const DEPTH: usize = 256;

/// Elements of `a` that are copied at a time: half of a second-level cache of a megabyte.
const COPIED: usize = 1 << 16;

/// Elements of `a` that stay in the first-level cache where they are.
const IN_PLACE: usize = 1 << 12;

/// Elements of `a` that are copied without an allocation.
const SMALL: usize = 1 << 10;

/// Columns of the widest tile.
const WIDEST: usize = 8;

/// What becomes of the sums.
#[derive(Clone, Copy)]
enum Update {
    Replace,
    Add,
    Subtract,
}

#[inline(always)]
fn product_kernel<T: Scalar, V: Vector<T>>(c: MatMut<'_, T>, a: Mat<'_, T>, b: Mat<'_, T>, subtract: bool) {
    assert!(a.rows() == c.rows() && b.cols() == c.cols() && a.cols() == b.rows());
    if c.cols() == 1 && a.col_stride() == 1 && b.row_stride() == 1 && a.row_stride() != 1 {
        return dots::<T, V>(c, a, b, subtract);
    }
    if c.rows() == 1 && a.col_stride() == 1 && b.row_stride() == 1 {
        return dots::<T, V>(c.transpose(), b.transpose(), a.transpose(), subtract);
    }
    // Registers hold parts of columns of `c`.
    let turn = if c.rows() == 1 { c.col_stride() == 1 } else { c.row_stride() != 1 };
    let (mut c, a, b) = if turn { (c.transpose(), b.transpose(), a.transpose()) } else { (c, a, b) };
    let (m, n, k) = (c.rows(), c.cols(), a.cols());
    if m == 0 || n == 0 {
        return;
    }
    assert!(c.row_stride() == 1 || m == 1);
    let lanes = V::LANES;
    let in_place = a.row_stride() == 1 && (m * k <= IN_PLACE || n <= V::COLUMNS);
    // A whole number of tiles.
    let height = if in_place { m } else { (COPIED / DEPTH / (3 * lanes)).max(1) * 3 * lanes };
    let mut copied = Vec::new();
    let mut small = [const { MaybeUninit::<T>::uninit() }; SMALL];
    let mut panel = [const { MaybeUninit::<T>::uninit() }; DEPTH * WIDEST];
    let c_step = c.col_stride();
    let c = c.as_mut_ptr();
    let mut p0 = 0;
    loop {
        let depth = DEPTH.min(k - p0);
        let update = match (subtract, p0) {
            (true, _) => Update::Subtract,
            (_, 0) => Update::Replace,
            _ => Update::Add,
        };
        let mut i0 = 0;
        while i0 < m {
            let rows = height.min(m - i0);
            // SAFETY: entries `i0..i0 + rows` by `p0..p0 + depth` are entries of `a`, and `p0..p0 + depth` by `0..n`
            // of `b`, since sizes agree; `copied` or `small` gets room for whole registers, and `panel` has `depth`
            // rows of `WIDEST`. `c` is written only within its entries, which nothing else refers to.
            unsafe {
                let mut left = Left {
                    from: a.as_ptr().add(if depth > 0 { i0 * a.row_stride() + p0 * a.col_stride() } else { 0 }),
                    step: a.col_stride(),
                    rows,
                    depth,
                    copied: false,
                };
                if !in_place {
                    let need = rows.next_multiple_of(lanes) * depth;
                    let to = if need <= SMALL {
                        small.as_mut_ptr().cast::<T>()
                    } else {
                        copied.reserve(need);
                        copied.as_mut_ptr()
                    };
                    copy_left::<T, V>(left.from, a.row_stride(), a.col_stride(), rows, depth, to);
                    left.from = to;
                    left.copied = true;
                }
                let many = rows > 6 * lanes;
                let mut j = 0;
                while j < n {
                    let width = if n - j >= V::COLUMNS {
                        V::COLUMNS
                    } else if n - j >= 4 {
                        4
                    } else if n - j >= 2 {
                        2
                    } else {
                        1
                    };
                    let (mut right, mut right_step, mut right_col) = (
                        b.as_ptr().add(if depth > 0 { p0 * b.row_stride() + j * b.col_stride() } else { 0 }),
                        b.row_stride(),
                        b.col_stride(),
                    );
                    if many && depth > 8 {
                        let to = panel.as_mut_ptr().cast::<T>();
                        for jj in 0..width {
                            for p in 0..depth {
                                *to.add(p * width + jj) = *right.add(p * right_step + jj * right_col);
                            }
                        }
                        (right, right_step, right_col) = (to, width, 1);
                    }
                    let right = Right { from: right, step: right_step, col: right_col };
                    let to = c.add(i0 + j * c_step);
                    match width {
                        // A constant condition: narrower levels do not compile it.
                        8 if const { V::COLUMNS == 8 } => columns::<T, V, 8>(left, right, to, c_step, update),
                        4 => columns::<T, V, 4>(left, right, to, c_step, update),
                        2 => columns::<T, V, 2>(left, right, to, c_step, update),
                        _ => columns::<T, V, 1>(left, right, to, c_step, update),
                    }
                    j += width;
                }
            }
            i0 += rows;
        }
        p0 += depth;
        if p0 >= k {
            return;
        }
    }
}

/// The left operand of tiles: columns of `rows` elements `step` apart, or copied by [`copy_left`].
#[derive(Clone, Copy)]
struct Left<T> {
    from: *const T,
    step: usize,
    rows: usize,
    depth: usize,
    copied: bool,
}

/// The right operand of tiles.
#[derive(Clone, Copy)]
struct Right<T> {
    from: *const T,
    step: usize,
    col: usize,
}

/// Registers of the next tile, where `rows` rows are left.
#[inline(always)]
fn tile_registers(rows: usize, lanes: usize) -> usize {
    match rows.div_ceil(lanes) {
        // Two and two are quicker than three and one.
        4 => 2,
        registers => registers.min(3),
    }
}

/// Copies rows to tiles of whole registers, one after the other, each column by column.
///
/// # Safety
/// The matrix can be read, and rows rounded up to registers times `depth` elements can be written at `to`.
#[inline(always)]
unsafe fn copy_left<T: Scalar, V: Vector<T>>(
    from: *const T,
    row_stride: usize,
    col_stride: usize,
    rows: usize,
    depth: usize,
    mut to: *mut T,
) {
    let mut i = 0;
    while i < rows {
        let step = tile_registers(rows - i, V::LANES) * V::LANES;
        let height = step.min(rows - i);
        // SAFETY: the caller's promise.
        unsafe {
            let from = from.add(i * row_stride);
            if row_stride == 1 {
                for p in 0..depth {
                    let (from, to) = (from.add(p * col_stride), to.add(p * step));
                    if height == step {
                        let mut r = 0;
                        while r < step {
                            V::load(from.add(r)).store(to.add(r));
                            r += V::LANES;
                        }
                    } else {
                        for r in 0..height {
                            *to.add(r) = *from.add(r);
                        }
                    }
                }
            } else {
                // A cache line of each row at a time.
                let mut p = 0;
                while p + 8 <= depth {
                    for r in 0..height {
                        let (from, to) = (from.add(r * row_stride + p * col_stride), to.add(p * step + r));
                        for q in 0..8 {
                            *to.add(q * step) = *from.add(q * col_stride);
                        }
                    }
                    p += 8;
                }
                while p < depth {
                    for r in 0..height {
                        *to.add(p * step + r) = *from.add(r * row_stride + p * col_stride);
                    }
                    p += 1;
                }
            }
            to = to.add(step * depth);
        }
        i += height;
    }
}

/// `N` columns of `c`, tile by tile.
///
/// # Safety
/// The operands can be read and `c` written at the left operand's rows of `N` columns.
#[inline(always)]
unsafe fn columns<T: Scalar, V: Vector<T>, const N: usize>(
    left: Left<T>,
    right: Right<T>,
    c: *mut T,
    c_step: usize,
    update: Update,
) {
    let lanes = V::LANES;
    let (mut i, mut from) = (0, left.from);
    while i < left.rows {
        let registers = tile_registers(left.rows - i, lanes);
        let rows = (registers * lanes).min(left.rows - i);
        // Elements of the last register.
        let last = rows - (registers - 1) * lanes;
        let step = if left.copied { registers * lanes } else { left.step };
        // SAFETY: the caller's promise; the tile ends with row `i + rows`.
        unsafe {
            let to = c.add(i);
            match registers {
                3 => tile::<T, V, 3, N>(from, step, right, left.depth, to, c_step, last, update),
                2 => tile::<T, V, 2, N>(from, step, right, left.depth, to, c_step, last, update),
                _ => tile::<T, V, 1, N>(from, step, right, left.depth, to, c_step, last, update),
            }
            from = from.add(if left.copied { registers * lanes * left.depth } else { rows });
        }
        i += rows;
    }
}

/// A tile of `R` registers, of which the last has `last` elements, by `N` columns.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn tile<T: Scalar, V: Vector<T>, const R: usize, const N: usize>(
    a: *const T,
    a_step: usize,
    b: Right<T>,
    depth: usize,
    c: *mut T,
    c_step: usize,
    last: usize,
    update: Update,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if const { V::MASKS } || last < V::LANES {
            tile_of::<T, V, R, N, true>(a, a_step, b, depth, c, c_step, last, update);
        } else {
            tile_of::<T, V, R, N, false>(a, a_step, b, depth, c, c_step, last, update);
        }
    }
}

/// A [`tile`] whose last register is `PARTIAL`, or whole.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn tile_of<T: Scalar, V: Vector<T>, const R: usize, const N: usize, const PARTIAL: bool>(
    a: *const T,
    a_step: usize,
    b: Right<T>,
    depth: usize,
    c: *mut T,
    c_step: usize,
    last: usize,
    update: Update,
) {
    let lanes = V::LANES;
    let mask = V::mask(last);
    let zero = V::splat(T::ZERO);
    let mut sums = [[zero; R]; N];
    // SAFETY: the caller's promise: the last register is read and written in its first `last` elements only.
    unsafe {
        let (mut a, mut row) = (a, b.from);
        for _ in 0..depth {
            let mut left = [zero; R];
            for r in 0..R {
                let from = a.add(r * lanes);
                left[r] = if PARTIAL && r == R - 1 { V::load_part(from, mask) } else { V::load(from) };
            }
            for j in 0..N {
                let right = V::splat(*row.add(j * b.col));
                for r in 0..R {
                    sums[j][r] = left[r].mul_add(right, sums[j][r]);
                }
            }
            // Past the last element by at most one step, and not read there.
            a = a.wrapping_add(a_step);
            row = row.wrapping_add(b.step);
        }
        for j in 0..N {
            for r in 0..R {
                let to = c.add(j * c_step + r * lanes);
                let partial = PARTIAL && r == R - 1;
                let old = match update {
                    Update::Replace => zero,
                    _ if partial => V::load_part(to, mask),
                    _ => V::load(to),
                };
                let new = match update {
                    Update::Replace => sums[j][r],
                    Update::Add => old.add(sums[j][r]),
                    Update::Subtract => old.sub(sums[j][r]),
                };
                if partial {
                    new.store_part(to, mask);
                } else {
                    new.store(to);
                }
            }
        }
    }
}

/// A column of inner products of contiguous rows with the contiguous column `b`.
#[inline(always)]
fn dots<T: Scalar, V: Vector<T>>(mut c: MatMut<'_, T>, a: Mat<'_, T>, b: Mat<'_, T>, subtract: bool) {
    const ROWS: usize = 4;
    let (m, k, lanes) = (a.rows(), a.cols(), V::LANES);
    let (step, to_step) = (a.row_stride(), c.row_stride());
    let (from, x, to) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    let whole = k / lanes * lanes;
    let mut i = 0;
    while i < m {
        let rows = ROWS.min(m - i);
        let mut sums = [V::splat(T::ZERO); ROWS];
        // SAFETY: `rows` rows of `k` elements of `a` and `k` elements of `b` can be read; a group of fewer rows reads
        // its first row again. `c` has `m` rows.
        unsafe {
            let mut at = [from; ROWS];
            for r in 0..ROWS {
                at[r] = from.add((i + if r < rows { r } else { 0 }) * step);
            }
            let mut p = 0;
            while p < whole {
                let right = V::load(x.add(p));
                for r in 0..ROWS {
                    sums[r] = V::load(at[r].add(p)).mul_add(right, sums[r]);
                }
                p += lanes;
            }
            for r in 0..rows {
                let mut sum = sums[r].sum();
                for p in whole..k {
                    sum += *at[r].add(p) * *x.add(p);
                }
                let to = to.add((i + r) * to_step);
                *to = if subtract { *to - sum } else { sum };
            }
        }
        i += rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way through the kernels: tails of registers and of columns, both orders of both operands, copies in parts.
    #[test]
    fn products_equal_sums_of_products() {
        fn run<T: Scalar>(tolerance: f64) {
            let mut number = 1u32;
            let mut next = || {
                number = number.wrapping_mul(1664525).wrapping_add(1013904223);
                T::from_f64(f64::from(number >> 8) / f64::from(1 << 24) - 0.5)
            };
            let sizes = [
                (1, 1, 1),
                (3, 2, 4),
                (4, 4, 4),
                (5, 7, 3),
                (1, 9, 20),
                (9, 1, 20),
                (17, 15, 33),
                (16, 16, 16),
                (8, 3, 0),
                (31, 24, 257),
                (49, 13, 300),
                (130, 9, 70),
                (300, 11, 270),
                (2, 130, 5),
            ];
            for (m, n, k) in sizes {
                let a: Vec<T> = (0..m * k).map(|_| next()).collect();
                let b: Vec<T> = (0..k * n).map(|_| next()).collect();
                let before: Vec<T> = (0..m * n).map(|_| next()).collect();
                for order in 0..16 {
                    let strides = |rows: usize, cols: usize, bit: usize| {
                        if order & bit == 0 { (cols, 1) } else { (1, rows) }
                    };
                    let a = Mat::new(&a, (m, k), strides(m, k, 1));
                    let b = Mat::new(&b, (k, n), strides(k, n, 2));
                    let subtract = order & 8 != 0;
                    let mut c = before.clone();
                    product(MatMut::new(&mut c, (m, n), strides(m, n, 4)), a, b, subtract);
                    let c = Mat::new(&c, (m, n), strides(m, n, 4));
                    let before = Mat::new(&before, (m, n), strides(m, n, 4));
                    for i in 0..m {
                        for j in 0..n {
                            let sum: f64 = (0..k).map(|p| a.at(i, p).to_f64() * b.at(p, j).to_f64()).sum();
                            let wanted = if subtract { before.at(i, j).to_f64() - sum } else { sum };
                            let error = (c.at(i, j).to_f64() - wanted).abs();
                            assert!(error <= tolerance * (k as f64 + 1.0), "{m} {n} {k} {order}: {error}");
                        }
                    }
                }
            }
        }
        run::<f32>(1e-7);
        run::<f64>(1e-15);
    }

    #[test]
    fn a_product_keeps_to_its_block() {
        let (a, b) = ([1.0f64; 10], [1.0f64; 10]);
        let mut c = [7.0; 60];
        let view = MatMut::new(&mut c, (6, 10), (10, 1)).block(1..4, 2..7);
        product(view, Mat::new(&a, (3, 2), (2, 1)), Mat::new(&b, (2, 5), (5, 1)), false);
        for (i, &value) in c.iter().enumerate() {
            let inside = (1..4).contains(&(i / 10)) && (2..7).contains(&(i % 10));
            assert_eq!(value, if inside { 2.0 } else { 7.0 });
        }
    }
}
