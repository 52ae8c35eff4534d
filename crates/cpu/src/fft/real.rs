//! Transforms of real signals of even size from those of their pairs.

use super::passes::Pair;
use crate::simd::{Real, Simd, Vectors};

/// The numbers `k` and `n - k` of a real signal's transform from those of the transform of its pairs.
#[inline(always)]
pub(super) fn halves<V: Simd>(z: Pair<V>, w: Pair<V>, cos: V::Elem, sin: V::Elem) -> [Pair<V>; 2] {
    let (half, cos, sin) = (V::splat(V::Elem::lit(0.5)), V::splat(cos), V::splat(sin));
    // Even and odd numbers: (z + conj w) / 2 and (z - conj w) / 2i.
    let (even_re, even_im) = ((z.re + w.re) * half, (z.im - w.im) * half);
    let (odd_re, odd_im) = ((z.im + w.im) * half, (w.re - z.re) * half);
    let (turned_re, turned_im) = (odd_re * cos - odd_im * sin, odd_re * sin + odd_im * cos);
    [
        Pair { re: even_re + turned_re, im: even_im + turned_im },
        Pair { re: even_re - turned_re, im: turned_im - even_im },
    ]
}

/// The inverse of [`halves`], times two.
#[inline(always)]
pub(super) fn whole<V: Simd>(z: Pair<V>, w: Pair<V>, cos: V::Elem, sin: V::Elem) -> [Pair<V>; 2] {
    let (cos, sin) = (V::splat(cos), V::splat(sin));
    let (even_re, even_im) = (z.re + w.re, z.im - w.im);
    let (gap_re, gap_im) = (z.re - w.re, z.im + w.im);
    // (z - conj w) times the conjugate root, times i.
    let (odd_re, odd_im) = (gap_re * cos + gap_im * sin, gap_im * cos - gap_re * sin);
    [Pair { re: even_re - odd_im, im: even_im + odd_re }, Pair { re: even_re + odd_im, im: odd_re - even_im }]
}

/// [`halves`] of a line, in arrays of parts, to pairs.
#[inline(always)]
pub(super) unsafe fn to_halves_kernel<T: Real, I: Vectors>(
    n: usize,
    re: *const T,
    im: *const T,
    roots: &[T],
    y: *mut T,
    scale: T,
) {
    let half = T::lit(0.5) * scale;
    // SAFETY: `n` parts and `n + 1` numbers.
    unsafe {
        let (re, im) = (std::slice::from_raw_parts(re, n), std::slice::from_raw_parts(im, n));
        let y = std::slice::from_raw_parts_mut(y.cast::<[T; 2]>(), n + 1);
        y[0] = [(re[0] + im[0]) * scale, T::ZERO];
        y[n] = [(re[0] - im[0]) * scale, T::ZERO];
        let (cos, sin) = (&roots[1..n], &roots[n + 2..2 * n + 1]);
        let (y, z_re, z_im, w_re, w_im) = (&mut y[1..n], &re[1..n], &im[1..n], &re[1..n], &im[1..n]);
        let count = n - 1;
        for i in 0..count {
            let (zr, zi, wr, wi) = (z_re[i], z_im[i], w_re[count - 1 - i], w_im[count - 1 - i]);
            let (odd_re, odd_im) = (zi + wi, wr - zr);
            let (c, s) = (cos[i], sin[i]);
            y[i] = [half * (zr + wr + odd_re * c - odd_im * s), half * (zi - wi + odd_re * s + odd_im * c)];
        }
    }
}

/// [`whole`] of a line of pairs, to arrays of parts.
#[inline(always)]
pub(super) unsafe fn from_halves_kernel<T: Real, I: Vectors>(
    n: usize,
    x: *const T,
    roots: &[T],
    re: *mut T,
    im: *mut T,
) {
    // SAFETY: `n + 1` numbers and `n` parts.
    unsafe {
        let x = std::slice::from_raw_parts(x.cast::<[T; 2]>(), n + 1);
        let (re, im) = (std::slice::from_raw_parts_mut(re, n), std::slice::from_raw_parts_mut(im, n));
        let (cos, sin) = (&roots[..n], &roots[n + 1..2 * n + 1]);
        (re[0], im[0]) = (x[0][0] + x[n][0], x[0][0] - x[n][0]);
        let (re, im, cos, sin, x) = (&mut re[1..n], &mut im[1..n], &cos[1..n], &sin[1..n], &x[1..n]);
        let count = n - 1;
        for i in 0..count {
            let ([zr, zi], [wr, wi]) = (x[i], x[count - 1 - i]);
            let (gap_re, gap_im) = (zr - wr, zi + wi);
            let (c, s) = (cos[i], sin[i]);
            re[i] = zr + wr - (gap_im * c - gap_re * s);
            im[i] = zi - wi + (gap_re * c + gap_im * s);
        }
    }
}
