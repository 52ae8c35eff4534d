//! The inner product kernel of all channel-last paths.

use super::simd::{Simd, Vector};

/// Rows of the left operand per register tile.
const ROWS: usize = 6;

/// Bytes of one row of a right-operand panel: 64 `f32` or 32 `f64`.
pub(super) const PANEL_BYTES: usize = 256;

/// Start of one segment of the contraction in both operands.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub a: usize,
    pub b: usize,
}

/// `c[i][j] (+)= Σ_segments Σ_k a[a_rows[i] + segment.a + k·a_step] · b[segment.b + k·PANEL + j]`, for `j < lanes`.
///
/// Lanes up to the next multiple of the vector length are computed and written too; rows of `c` are `PANEL` wide.
pub(super) struct Product<'a, E> {
    pub a: *const E,
    pub a_rows: &'a [usize],
    pub a_step: usize,
    pub b: *const E,
    pub segments: &'a [Segment],
    pub depth: usize,
    pub c: *mut E,
    pub c_rows: &'a [usize],
    pub lanes: usize,
    pub accumulate: bool,
}

/// # Safety
/// Every address the formula above names is valid, `lanes` is at most `PANEL`, and `c` overlaps neither operand.
#[inline(always)]
unsafe fn kernel<E: Copy + Default, I: Simd<E>>(p: &Product<E>) {
    let rows = p.a_rows.len();
    let blocks = rows.div_ceil(ROWS);
    for block in 0..blocks {
        // Equal blocks: a thin last block would leave multipliers idle.
        let (start, end) = (rows * block / blocks, rows * (block + 1) / blocks);
        let mut lane = 0;
        while lane < p.lanes {
            let across = (p.lanes - lane).div_ceil(I::V::LANES).min(I::ACROSS);
            // SAFETY: the tile touches what the formula names.
            unsafe {
                match across {
                    1 => rows_of::<E, I, 1>(p, start, end - start, lane),
                    2 => rows_of::<E, I, 2>(p, start, end - start, lane),
                    3 => rows_of::<E, I, 3>(p, start, end - start, lane),
                    _ => rows_of::<E, I, 4>(p, start, end - start, lane),
                }
            }
            lane += across * I::V::LANES;
        }
    }
}

/// # Safety
/// As [`kernel`].
#[inline(always)]
unsafe fn rows_of<E: Copy + Default, I: Simd<E>, const N: usize>(p: &Product<E>, row: usize, rows: usize, lane: usize) {
    // SAFETY: passed on.
    unsafe {
        match rows {
            1 => tile::<E, I, 1, N>(p, row, lane),
            2 => tile::<E, I, 2, N>(p, row, lane),
            3 => tile::<E, I, 3, N>(p, row, lane),
            4 => tile::<E, I, 4, N>(p, row, lane),
            5 => tile::<E, I, 5, N>(p, row, lane),
            _ => tile::<E, I, 6, N>(p, row, lane),
        }
    }
}

/// # Safety
/// As [`kernel`].
#[inline(always)]
unsafe fn tile<E: Copy + Default, I: Simd<E>, const M: usize, const N: usize>(p: &Product<E>, row: usize, lane: usize) {
    let panel = PANEL_BYTES / size_of::<E>();
    // SAFETY: rows `row..row + M` exist; the addresses are the formula's.
    unsafe {
        let mut acc = [[I::V::splat(E::default()); N]; M];
        let mut a = [p.a; M];
        for i in 0..M {
            a[i] = p.a.add(*p.a_rows.get_unchecked(row + i));
        }
        for segment in p.segments {
            let mut offset = segment.a;
            let mut b = p.b.add(segment.b + lane);
            for _ in 0..p.depth {
                let mut right = [I::V::splat(E::default()); N];
                for j in 0..N {
                    right[j] = I::V::load(b.add(j * I::V::LANES));
                }
                for i in 0..M {
                    let left = I::V::splat(*a[i].add(offset));
                    for j in 0..N {
                        acc[i][j] = left.mul_add(right[j], acc[i][j]);
                    }
                }
                offset += p.a_step;
                b = b.add(panel);
            }
        }
        for i in 0..M {
            let c = p.c.add(*p.c_rows.get_unchecked(row + i) + lane);
            for j in 0..N {
                let c = c.add(j * I::V::LANES);
                // Adding the finished sum, instead of continuing from the old one, keeps the error of long sums small.
                let total = if p.accumulate { I::V::load(c).add(acc[i][j]) } else { acc[i][j] };
                total.store(c);
            }
        }
    }
}

#[inline(always)]
unsafe fn kernel_f32<I: Simd<f32>>(p: &Product<f32>) {
    // SAFETY: passed on.
    unsafe { kernel::<f32, I>(p) }
}

#[inline(always)]
unsafe fn kernel_f64<I: Simd<f64>>(p: &Product<f64>) {
    // SAFETY: passed on.
    unsafe { kernel::<f64, I>(p) }
}

crate::multiversion! {
    /// The product in `f32`.
    ///
    /// # Safety
    /// As the formula of [`Product`] says.
    pub(super) unsafe fn product_f32(p: &Product<f32>) = kernel_f32;
}

crate::multiversion! {
    /// The product in `f64`.
    ///
    /// # Safety
    /// As the formula of [`Product`] says.
    pub(super) unsafe fn product_f64(p: &Product<f64>) = kernel_f64;
}
