//! The small linear maps of Winograd's minimal filtering for 3 × 3 kernels and 4 × 4 tiles.
//!
//! A tile is evaluated, as a polynomial in each direction, at 0, ±¾, ±1½ and infinity; products are computed point by
//! point. These points keep the rounding error within about twice that of direct summation (0, ±1, ±2 would make it
//! five times), and their powers are exact in `f32`. Sign pairs share the even and the odd half of their sums.

use super::simd::{Simd, Vector};

/// The positive finite points.
const A: f32 = 0.75;
const B: f32 = 1.5;
const A2: f32 = A * A;
const B2: f32 = B * B;

/// Points in a tile: six in each direction.
pub(super) const POINTS: usize = 36;

/// A map applied to the rows, then to the columns of a square.
pub(super) trait Map: Copy + 'static {
    const FROM: usize;
    const TO: usize;
    /// # Safety
    /// The features of the level are present.
    unsafe fn apply<V: Vector<Elem = f32>>(v: [V; 6]) -> [V; 6];
}

/// Six pixels to six points.
#[derive(Clone, Copy)]
pub(super) struct Image;
/// A filter of `N` taps, 3 or 4, to six points.
#[derive(Clone, Copy)]
pub(super) struct Filter<const N: usize>;
/// Six points to `N` results, 3 or 4.
#[derive(Clone, Copy)]
pub(super) struct Outcome<const N: usize>;

// SAFETY (all three): vector arithmetic only, whose features the caller has.
impl Map for Image {
    const FROM: usize = 6;
    const TO: usize = 6;
    #[inline(always)]
    unsafe fn apply<V: Vector<Elem = f32>>([d0, d1, d2, d3, d4, d5]: [V; 6]) -> [V; 6] {
        unsafe {
            let (product, sum) = (V::splat(A2 * B2), V::splat(-(A2 + B2)));
            let even_a = V::splat(-B2).mul_add(d2, d4);
            let odd_a = V::splat(-B2).mul_add(d1, d3);
            let even_b = V::splat(-A2).mul_add(d2, d4);
            let odd_b = V::splat(-A2).mul_add(d1, d3);
            [
                product.mul_add(d0, sum.mul_add(d2, d4)),
                V::splat(A).mul_add(odd_a, even_a),
                V::splat(-A).mul_add(odd_a, even_a),
                V::splat(B).mul_add(odd_b, even_b),
                V::splat(-B).mul_add(odd_b, even_b),
                product.mul_add(d1, sum.mul_add(d3, d5)),
            ]
        }
    }
}

impl<const N: usize> Map for Filter<N> {
    const FROM: usize = N;
    const TO: usize = 6;
    #[inline(always)]
    unsafe fn apply<V: Vector<Elem = f32>>([g0, g1, g2, g3, ..]: [V; 6]) -> [V; 6] {
        // The denominators of Lagrange's interpolation.
        const AT_A: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
        const AT_B: f32 = 1.0 / (2.0 * B2 * (B2 - A2));
        unsafe {
            let four = N == 4;
            let even_a = V::splat(AT_A).mul(V::splat(A2).mul_add(g2, g0));
            let even_b = V::splat(AT_B).mul(V::splat(B2).mul_add(g2, g0));
            let odd_a = V::splat(AT_A * A).mul(if four { V::splat(A2).mul_add(g3, g1) } else { g1 });
            let odd_b = V::splat(AT_B * B).mul(if four { V::splat(B2).mul_add(g3, g1) } else { g1 });
            [
                V::splat(1.0 / (A2 * B2)).mul(g0),
                even_a.add(odd_a),
                even_a.sub(odd_a),
                even_b.add(odd_b),
                even_b.sub(odd_b),
                if four { g3 } else { g2 },
            ]
        }
    }
}

impl<const N: usize> Map for Outcome<N> {
    const FROM: usize = 6;
    const TO: usize = N;
    #[inline(always)]
    unsafe fn apply<V: Vector<Elem = f32>>([m0, m1, m2, m3, m4, m5]: [V; 6]) -> [V; 6] {
        unsafe {
            let (even_a, odd_a) = (m1.add(m2), m1.sub(m2));
            let (even_b, odd_b) = (m3.add(m4), m3.sub(m4));
            let square = V::splat(A2).mul_add(even_a, V::splat(B2).mul(even_b));
            let mut out =
                [m0.add(even_a).add(even_b), V::splat(A).mul_add(odd_a, V::splat(B).mul(odd_b)), square, m5, m5, m5];
            if N == 4 {
                out[3] = V::splat(A2 * A).mul_add(odd_a, V::splat(B2 * B).mul_add(odd_b, m5));
            } else {
                out[2] = square.add(m5);
            }
            out
        }
    }
}

/// One square to transform: its start, and the part of the result that is needed.
#[derive(Clone, Copy)]
pub(super) struct Square {
    pub src: usize,
    pub dst: usize,
    pub rows: usize,
    pub cols: usize,
}

/// Many squares; each element is a run of `lanes` channels. Strides are in elements, from row to row and from column to
/// column.
pub(super) struct Transform<'a> {
    pub src: *const f32,
    pub src_strides: (isize, isize),
    pub dst: *mut f32,
    pub dst_strides: (usize, usize),
    pub squares: &'a [Square],
    pub lanes: usize,
}

/// # Safety
/// Every element of every square is valid on both sides for `lanes` rounded up to whole vectors of 16.
#[inline(always)]
unsafe fn kernel<M: Map, I: Simd<f32>>(t: &Transform) {
    for square in t.squares {
        for lane in (0..t.lanes).step_by(I::V::LANES) {
            // SAFETY: the addresses are those of the square.
            unsafe {
                let (src, dst) = (t.src.add(square.src + lane), t.dst.add(square.dst + lane));
                let zero = I::V::splat(0.0);
                let mut half = [[zero; 6]; 6];
                for col in 0..M::FROM {
                    let mut v = [zero; 6];
                    for (row, v) in v.iter_mut().enumerate().take(M::FROM) {
                        *v = I::V::load(src.offset(row as isize * t.src_strides.0 + col as isize * t.src_strides.1));
                    }
                    let v = M::apply(v);
                    for row in 0..M::TO {
                        half[row][col] = v[row];
                    }
                }
                for (row, half) in half.iter().enumerate().take(M::TO) {
                    if row >= square.rows {
                        break;
                    }
                    let v = M::apply(*half);
                    for (col, v) in v.iter().enumerate().take(M::TO) {
                        if col < square.cols {
                            v.store(dst.add(row * t.dst_strides.0 + col * t.dst_strides.1));
                        }
                    }
                }
            }
        }
    }
}

crate::multiversion! {
    /// Applies `M` to every square.
    ///
    /// # Safety
    /// Every element of every square is valid on both sides for `lanes` rounded up to whole vectors of 16.
    pub(super) unsafe fn transform<M: Map>(t: &Transform) = kernel;
}
