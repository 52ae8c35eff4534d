//! Backward pass over a range of queries and keys of one head, from recomputed probabilities.

use super::forward::multiply_row;
use super::product::{Matrix, Store, product};
use super::{Head, KEYS, QUERIES, Scratch};
use crate::multiversion;
use crate::simd::{Real, Simd, Vectors, sweep};
use std::ops::Range;

/// Inputs of the backward pass besides the head, and the gradients it adds to. Gradients that are `None` are not
/// computed.
pub struct Gradients<R> {
    /// Gradient of the output; elements of a row are adjacent.
    pub dout: Matrix<R>,
    /// For each query the logarithm of its sum of exponentials.
    pub lse: *const R,
    /// For each query the sum of the output times its gradient.
    pub delta: *const R,
    /// `[queries, d]`, of the queries in range.
    pub dq: Option<*mut R>,
    /// `[keys, d]` and `[keys, dv]`, of the keys in range.
    pub dkv: Option<(*mut R, *mut R)>,
}

#[inline(always)]
unsafe fn backward_kernel<R: Real, I: Vectors>(
    h: &Head<R>,
    g: &Gradients<R>,
    queries: Range<usize>,
    keys: Range<usize>,
) {
    let mut scratch = Scratch::new(h);
    // SAFETY: the head's matrices have its sizes, and scratch is made for them.
    unsafe {
        let (keys_t, values_t) = (
            scratch.keys.transposed::<I>(h.k.from(keys.start), keys.len(), h.d),
            scratch.values.transposed::<I>(h.v.from(keys.start), keys.len(), h.dv),
        );
        let (p, ds) = (scratch.scores.room(QUERIES * KEYS), scratch.gradients.room(QUERIES * KEYS));
        for key in keys.clone().step_by(KEYS) {
            let block = KEYS.min(keys.end - key);
            // Under a causal mask, queries before the first of these keys see none of them.
            let first = if h.causal { queries.start.max(key / QUERIES * QUERIES) } else { queries.start };
            for first in (first..queries.end).step_by(QUERIES) {
                let rows = QUERIES.min(queries.end - first);
                let count = if h.causal { block.min(first + rows - key) } else { block };
                let padded = count.next_multiple_of(<R::V<I> as Simd>::N).min(KEYS);
                let q = h.q.from(first);
                let dout = g.dout.from(first);
                let kt = Matrix::rows(keys_t.add((key - keys.start) * h.d), KEYS);
                let vt = Matrix::rows(values_t.add((key - keys.start) * h.dv), KEYS);
                product::<R>([rows, padded, h.d], q, kt, (p, KEYS), Store::Set(h.scale));
                product::<R>([rows, padded, h.dv], dout, vt, (ds, KEYS), Store::Set(R::lit(1.0)));
                for r in 0..rows {
                    let (p, ds) = (p.add(r * KEYS), ds.add(r * KEYS));
                    let seen = h.seen(first + r, key, count);
                    h.mask_row::<I>(first + r, key, std::slice::from_raw_parts_mut(p, seen));
                    let factors = match &h.dropout {
                        Some(dropout) => {
                            dropout.factors(first + r, key, &mut scratch.factors[..seen]);
                            Some(scratch.factors.as_ptr())
                        }
                        None => None,
                    };
                    if let Some(factors) = factors {
                        multiply_row::<R, I>(ds, factors, seen);
                    }
                    score_gradient::<R, I>(p, ds, seen, *g.lse.add(first + r), *g.delta.add(first + r), h.scale);
                    if let Some(factors) = factors {
                        multiply_row::<R, I>(p, factors, seen);
                    }
                    for row in [p, ds] {
                        std::slice::from_raw_parts_mut(row.add(seen), count - seen).fill(R::ZERO);
                    }
                }
                let (p, ds) = (Matrix::rows(p.cast_const(), KEYS), Matrix::rows(ds.cast_const(), KEYS));
                if let Some((dk, dv)) = g.dkv {
                    let at = key - keys.start;
                    let (dk, dv) = ((dk.add(at * h.d), h.d), (dv.add(at * h.dv), h.dv));
                    product::<R>([count, h.dv, rows], p.transposed(), dout, dv, Store::Add);
                    product::<R>([count, h.d, rows], ds.transposed(), q, dk, Store::Add);
                }
                if let Some(dq) = g.dq {
                    let dq = (dq.add((first - queries.start) * h.d), h.d);
                    product::<R>([rows, h.d, count], ds, h.k.from(key), dq, Store::Add);
                }
            }
        }
    }
}
multiversion! {
    /// Adds the contributions of the given queries and keys of a head to the gradients. Both ranges begin at
    /// multiples of the block sizes.
    ///
    /// # Safety
    /// The head's and the gradients' matrices have its sizes, the ranges are within; results overlap no input.
    pub unsafe fn backward<R: Real>(h: &Head<R>, g: &Gradients<R>, queries: Range<usize>, keys: Range<usize>) = backward_kernel;
}

/// Scores to probabilities, and the gradient of the probabilities to that of the unscaled scores.
#[inline(always)]
unsafe fn score_gradient<R: Real, I: Vectors>(p: *mut R, ds: *mut R, n: usize, lse: R, delta: R, scale: R) {
    // A query with every key masked has no probabilities: exp(-inf) = 0.
    let lse = if lse == R::NEG_INFINITY { R::ZERO - R::NEG_INFINITY } else { lse };
    let (lse, delta, scale) = (R::V::<I>::splat(lse), R::V::<I>::splat(delta), R::V::<I>::splat(scale));
    // SAFETY: `n` elements by the caller's contract.
    sweep!(R::V<I>, n, i, m => {
        unsafe {
            let e = (R::V::<I>::get(p.add(i), m, R::ZERO) - lse).exp();
            e.put(p.add(i), m);
            let d = R::V::<I>::get(ds.add(i), m, R::ZERO) - delta;
            (e * scale * d).put(ds.add(i), m);
        }
    });
}
