//! Forward pass over a range of queries of one head.

use super::product::{Matrix, Store, product};
use super::{Head, KEYS, QUERIES, Scratch};
use crate::multiversion;
use crate::simd::{Real, Simd, Vectors, sweep, total};

#[inline(always)]
unsafe fn forward_kernel<R: Real, I: Vectors>(h: &Head<R>, from: usize, to: usize, out: (*mut R, usize), lse: *mut R) {
    let mut scratch = Scratch::new(h);
    let keys = if h.causal { h.s.min(to) } else { h.s };
    // SAFETY: the head's matrices have its sizes, and scratch is made for them.
    unsafe {
        let transposed = scratch.keys.transposed::<I>(h.k, keys, h.d);
        let scores = scratch.scores.room(QUERIES * KEYS);
        let mut first = from;
        while first < to {
            let rows = QUERIES.min(to - first);
            let mut best = [R::NEG_INFINITY; QUERIES];
            let mut sum = [R::ZERO; QUERIES];
            let out = (out.0.add((first - from) * out.1), out.1);
            for r in 0..rows {
                std::slice::from_raw_parts_mut(out.0.add(r * out.1), h.dv).fill(R::ZERO);
            }
            let visible = if h.causal { keys.min(first + rows) } else { keys };
            for key in (0..visible).step_by(KEYS) {
                let count = KEYS.min(visible - key);
                let q = h.q.from(first);
                let kt = Matrix::rows(transposed.add(key * h.d), KEYS);
                let padded = count.next_multiple_of(<R::V<I> as Simd>::N).min(KEYS);
                product::<R>([rows, padded, h.d], q, kt, (scores, KEYS), Store::Set(h.scale));
                for r in 0..rows {
                    let scores = scores.add(r * KEYS);
                    let seen = h.seen(first + r, key, count);
                    h.mask_row::<I>(first + r, key, std::slice::from_raw_parts_mut(scores, seen));
                    let correction = softmax_row::<R, I>(scores, seen, &mut best[r], &mut sum[r]);
                    std::slice::from_raw_parts_mut(scores.add(seen), count - seen).fill(R::ZERO);
                    if correction != R::lit(1.0) {
                        scale_row::<R, I>(out.0.add(r * out.1), h.dv, correction);
                    }
                    if let Some(dropout) = &h.dropout {
                        dropout.factors(first + r, key, &mut scratch.factors[..seen]);
                        multiply_row::<R, I>(scores, scratch.factors.as_ptr(), seen);
                    }
                }
                product::<R>([rows, h.dv, count], Matrix::rows(scores, KEYS), h.v.from(key), out, Store::Add);
            }
            for r in 0..rows {
                // A row with every key masked stays zero.
                let seen = sum[r] != R::ZERO;
                if seen {
                    scale_row::<R, I>(out.0.add(r * out.1), h.dv, R::lit(1.0) / sum[r]);
                }
                *lse.add(first - from + r) = if seen { best[r] + sum[r].ln() } else { R::NEG_INFINITY };
            }
            first += rows;
        }
    }
}
multiversion! {
    /// Queries `from..to` of a head: their rows of the output and the logarithms of their sums of exponentials.
    ///
    /// # Safety
    /// The head's matrices have its sizes; `to - from` rows of `dv` at `out` (given with its row stride) and as many
    /// elements at `lse`.
    pub unsafe fn forward<R: Real>(h: &Head<R>, from: usize, to: usize, out: (*mut R, usize), lse: *mut R) = forward_kernel;
}

/// Scores to exponentials relative to the running maximum, which is updated with its sum. Returns the
/// factor that rescales the earlier sums to the new maximum.
#[inline(always)]
unsafe fn softmax_row<R: Real, I: Vectors>(scores: *mut R, n: usize, best: &mut R, sum: &mut R) -> R {
    // SAFETY: `n` elements by the caller's contract. Lanes beyond give exp(-inf) = 0.
    unsafe {
        let mut tops = [R::V::<I>::splat(R::NEG_INFINITY); 4];
        sweep!(R::V<I>, n, i, m, k => { tops[k] = R::V::<I>::get(scores.add(i), m, R::NEG_INFINITY).max(tops[k]) });
        let top = (tops[0].max(tops[1])).max(tops[2].max(tops[3])).largest();
        let new = if top > *best { top } else { *best };
        // While everything is masked out, any finite reference gives exponentials of zero.
        let reference = if new == R::NEG_INFINITY { R::ZERO } else { new };
        let mut sums = [R::V::<I>::splat(R::ZERO); 4];
        let shift = R::V::<I>::splat(reference);
        sweep!(R::V<I>, n, i, m, k => {
            let e = (R::V::<I>::get(scores.add(i), m, R::NEG_INFINITY) - shift).exp();
            e.put(scores.add(i), m);
            sums[k] = sums[k] + e;
        });
        let correction = if new == *best { R::lit(1.0) } else { (*best - reference).exp() };
        *best = new;
        *sum = *sum * correction + total(sums);
        correction
    }
}

/// `row *= factor`.
#[inline(always)]
unsafe fn scale_row<R: Real, I: Vectors>(row: *mut R, n: usize, factor: R) {
    let factor = R::V::<I>::splat(factor);
    // SAFETY: `n` elements by the caller's contract.
    sweep!(R::V<I>, n, i, m => { unsafe { (R::V::<I>::get(row.add(i), m, R::ZERO) * factor).put(row.add(i), m) } });
}

/// `row *= factors`, element by element.
#[inline(always)]
pub(super) unsafe fn multiply_row<R: Real, I: Vectors>(row: *mut R, factors: *const R, n: usize) {
    // SAFETY: `n` elements by the caller's contract.
    sweep!(R::V<I>, n, i, m => {
        unsafe { (R::V::<I>::get(row.add(i), m, R::ZERO) * R::V::<I>::get(factors.add(i), m, R::ZERO)).put(row.add(i), m) }
    });
}
