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
    /// Applied to the finished sums.
    pub epilogue: Option<&'a Epilogue<'a, E>>,
}

/// `relu(c[i][j] + bias[j] + addend[rows[i] + j])`, each part where it is there.
#[derive(Clone, Copy)]
pub(super) struct Epilogue<'a, E> {
    /// A value for each lane, or null.
    pub bias: *const E,
    /// Null, or another tensor of the result's size.
    pub addend: *const E,
    /// The addend's row of each row.
    pub rows: &'a [usize],
    pub relu: bool,
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
                // Constant conditions: tiles wider than the level's registers are not compiled.
                match across {
                    4 if const { I::ACROSS >= 4 } => rows_of::<E, I, 4>(p, start, end - start, lane),
                    3 if const { I::ACROSS >= 3 } => rows_of::<E, I, 3>(p, start, end - start, lane),
                    2 => rows_of::<E, I, 2>(p, start, end - start, lane),
                    _ => rows_of::<E, I, 1>(p, start, end - start, lane),
                }
                // Apart from the tiles, which it would make several times as long. The sums are still in the cache.
                if let Some(e) = p.epilogue {
                    for row in start..end {
                        let c = p.c.add(*p.c_rows.get_unchecked(row));
                        for j in 0..across {
                            let at = lane + j * I::V::LANES;
                            finish::<E, I::V>(e, row, at, I::V::load(c.add(at)), c.add(at));
                        }
                    }
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

/// Finishes and stores a vector of sums, whose first is lane `at` of a row.
///
/// # Safety
/// The addend and the bias cover the row's lanes; `c` has room for the vector.
#[inline(always)]
unsafe fn finish<E: Copy + Default, V: Vector<Elem = E>>(e: &Epilogue<E>, row: usize, at: usize, sums: V, c: *mut E) {
    let mut total = sums;
    // SAFETY: the caller's promise.
    unsafe {
        if !e.bias.is_null() {
            total = total.add(V::load(e.bias.add(at)));
        }
        if !e.addend.is_null() {
            total = total.add(V::load(e.addend.add(*e.rows.get_unchecked(row) + at)));
        }
        if e.relu {
            total = total.relu();
        }
        total.store(c);
    }
}

/// `dst[i·dst_pitch + j] = epilogue(src[i·src_pitch + j])` for rows of `lanes`, a multiple of 16.
pub(super) struct Finish<'a> {
    pub src: *const f32,
    pub src_pitch: usize,
    pub dst: *mut f32,
    pub dst_pitch: usize,
    pub rows: usize,
    pub lanes: usize,
    pub epilogue: &'a Epilogue<'a, f32>,
}

#[inline(always)]
unsafe fn finish_rows_kernel<I: Simd<f32>>(f: &Finish) {
    for row in 0..f.rows {
        for lane in (0..f.lanes).step_by(I::V::LANES) {
            // SAFETY: the addresses are the formula's.
            unsafe {
                let sum = I::V::load(f.src.add(row * f.src_pitch + lane));
                finish::<f32, I::V>(f.epilogue, row, lane, sum, f.dst.add(row * f.dst_pitch + lane));
            }
        }
    }
}

crate::multiversion! {
    /// Finishes rows of sums.
    ///
    /// # Safety
    /// As the formula of [`Finish`] says; `src` and `dst` may be the same rows.
    pub(super) unsafe fn finish_rows(f: &Finish) = finish_rows_kernel;
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
