//! Attention without a stored score matrix.
//!
//! Queries are processed in blocks against blocks of keys; the softmax is updated from block to block, and only the
//! logarithm of its sum is saved. The backward pass recomputes the probabilities from it. Work is split along queries
//! and keys only in ways that do not change the order of any sum. So the split may depend on the number of threads, but
//! results do not.

mod backward;
mod forward;
mod product;
mod scores;

use crate::float::{Float, expect, narrow, with_float};
use crate::multiversion;
use crate::pool::{num_threads, parallel_for};
use crate::simd::{Real, Simd, Vectors, sweep, total};
use backward::{Gradients, backward};
use forward::forward;
use product::{Matrix, transpose};
use rushlight_core::backend::{Attention, call};
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Element, Error, Result, View};
use scores::{Dropout, Mask};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Queries per block.
const QUERIES: usize = 32;
/// Keys per block.
const KEYS: usize = 128;

/// Attention; `out` is `[batch, heads, l, dv]` of any strides, `lse` `[batch, heads, l]` contiguous. A row with every
/// key masked out gives zeros.
pub fn attention(c: &call::Attention<View>) -> Result<()> {
    let call::Attention { of: ref spec, out, lse, .. } = *c;
    const OP: &str = "attention";
    let sizes = Sizes::new(OP, spec)?;
    sizes.expect(OP, "out", &out, spec.q.dtype(), [sizes.batch, sizes.heads, sizes.l, sizes.dv])?;
    with_float!(OP, spec.q.dtype(), T => {
        expect(OP, "lse", &lse, <T as Float>::Acc::DTYPE, sizes.rows())?;
        let problem = Problem::<T>::new(spec, sizes);
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe { problem.forward(Tensor::new(&out), lse.ptr().cast()) };
        Ok(())
    })
}

/// Gradients of attention (contiguous); recomputes probabilities from `lse`.
pub fn attention_backward(c: &call::AttentionBackward<View>) -> Result<()> {
    let call::AttentionBackward { of: ref spec, out, lse, dout, dq, dk, dv, .. } = *c;
    const OP: &str = "attention_backward";
    let sizes = Sizes::new(OP, spec)?;
    let dtype = spec.q.dtype();
    for (name, view) in [("out", &out), ("dout", &dout)] {
        sizes.expect(OP, name, view, dtype, [sizes.batch, sizes.heads, sizes.l, sizes.dv])?;
    }
    expect(OP, "dq", &dq, dtype, sizes.rows() * sizes.d)?;
    expect(OP, "dk", &dk, dtype, sizes.batch * sizes.kv_heads * sizes.s * sizes.d)?;
    expect(OP, "dv", &dv, dtype, sizes.batch * sizes.kv_heads * sizes.s * sizes.dv)?;
    with_float!(OP, dtype, T => {
        expect(OP, "lse", &lse, <T as Float>::Acc::DTYPE, sizes.rows())?;
        let problem = Problem::<T>::new(spec, sizes);
        let saved = Saved { out: Tensor::new(&out), lse: SendPtr::new(lse.ptr().cast()), dout: Tensor::new(&dout) };
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe { problem.backward(saved, dq.ptr().cast(), dk.ptr().cast(), dv.ptr().cast()) };
        Ok(())
    })
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    l: usize,
    s: usize,
    d: usize,
    dv: usize,
}

impl Sizes {
    fn new(op: &str, spec: &Attention) -> Result<Self> {
        let (&[batch, heads, l, d], &[_, kv_heads, s, _], &[.., dv]) = (spec.q.shape(), spec.k.shape(), spec.v.shape())
        else {
            return Err(Error::shape(format!("{op}: queries, keys and values need four dimensions")));
        };
        let sizes = Self { batch, heads, kv_heads, l, s, d, dv };
        if kv_heads == 0 && heads > 0 || kv_heads > 0 && !heads.is_multiple_of(kv_heads) {
            return Err(Error::shape(format!("{op}: {heads} heads cannot share {kv_heads} heads of keys")));
        }
        sizes.expect(op, "k", &spec.k, spec.q.dtype(), [batch, kv_heads, s, d])?;
        sizes.expect(op, "v", &spec.v, spec.q.dtype(), [batch, kv_heads, s, dv])?;
        if let Some(mask) = &spec.mask {
            let dtype = if mask.dtype() == DType::Bool { DType::Bool } else { spec.q.dtype() };
            sizes.expect(op, "mask", mask, dtype, [batch, heads, l, s])?;
        }
        Ok(sizes)
    }

    fn expect(&self, op: &str, what: &str, view: &View, dtype: DType, shape: [usize; 4]) -> Result<()> {
        if view.dtype() != dtype {
            return Err(Error::dtype(format!("{op}: {what} is {}, expected {dtype}", view.dtype())));
        }
        if view.shape() != shape {
            return Err(Error::shape(format!("{op}: {what} has shape {:?}, expected {shape:?}", view.shape())));
        }
        Ok(())
    }

    /// Queries of all heads.
    fn rows(&self) -> usize {
        self.batch * self.heads * self.l
    }

    /// Heads that share their keys and values.
    fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }
}

/// A tensor of four dimensions by address and strides.
#[derive(Clone, Copy)]
struct Tensor<T> {
    at: SendPtr<T>,
    strides: [usize; 4],
}

impl<T: Float> Tensor<T> {
    fn new(view: &View) -> Self {
        let mut strides = [0; 4];
        strides.copy_from_slice(view.strides());
        Self { at: SendPtr::new(view.ptr().cast()), strides }
    }

    fn head(&self, batch: usize, head: usize) -> *mut T {
        self.at.at(batch * self.strides[0] + head * self.strides[1])
    }

    /// The `[rows, cols]` matrix of a head in the compute type, through `copy` unless it can be read in place.
    ///
    /// # Safety
    /// The head has these rows and columns.
    unsafe fn matrix(
        &self,
        batch: usize,
        head: usize,
        [rows, cols]: [usize; 2],
        copy: &mut Vec<T::Acc>,
    ) -> Matrix<T::Acc> {
        let at = self.head(batch, head);
        if T::WIDE && (self.strides[3] == 1 || cols == 1) {
            return Matrix::rows(at.cast(), self.strides[2]);
        }
        copy.clear();
        copy.reserve(rows * cols);
        for r in 0..rows {
            // SAFETY: row `r` of the head; room was reserved.
            unsafe {
                let (row, to) = (at.add(r * self.strides[2]), copy.as_mut_ptr().add(r * cols));
                if self.strides[3] == 1 {
                    crate::float::widen(row, to, cols);
                } else {
                    for c in 0..cols {
                        *to.add(c) = T::Acc::lit((*row.add(c * self.strides[3])).to_f64());
                    }
                }
            }
        }
        // SAFETY: all rows were written.
        unsafe { copy.set_len(rows * cols) };
        Matrix::rows(copy.as_ptr(), cols)
    }

    /// Stores rows `from..` of a head.
    ///
    /// # Safety
    /// The head has these rows of `cols`, and `values` as many.
    unsafe fn store(&self, batch: usize, head: usize, from: usize, cols: usize, values: &[T::Acc]) {
        for (r, row) in values.chunks_exact(cols.max(1)).enumerate() {
            // SAFETY: by the caller's contract.
            unsafe {
                let to = self.head(batch, head).add((from + r) * self.strides[2]);
                if self.strides[3] == 1 {
                    narrow(row.as_ptr(), to, cols);
                } else {
                    for (c, v) in row.iter().enumerate() {
                        *to.add(c * self.strides[3]) = T::from_f64(v.to_f64());
                    }
                }
            }
        }
    }
}

/// One head, ready to be computed with.
struct Head<R> {
    q: Matrix<R>,
    k: Matrix<R>,
    v: Matrix<R>,
    s: usize,
    d: usize,
    dv: usize,
    scale: R,
    causal: bool,
    mask: Option<Mask>,
    dropout: Option<Dropout>,
}

impl<R: Real> Head<R> {
    /// How many of `count` keys from `key` on query `i` may see.
    #[inline(always)]
    fn seen(&self, i: usize, key: usize, count: usize) -> usize {
        if self.causal { count.min((i + 1).saturating_sub(key)) } else { count }
    }

    /// Applies the mask, if any, to scores of query `i` from `key` on.
    ///
    /// # Safety
    /// The head has these scores.
    #[inline(always)]
    unsafe fn mask_row<I: Vectors>(&self, i: usize, key: usize, scores: &mut [R]) {
        if let Some(mask) = &self.mask {
            // SAFETY: by the caller's contract.
            unsafe { mask.apply::<R, I>(i, key, scores) }
        }
    }
}

/// Scratch memory of a task.
struct Scratch<R> {
    keys: Buffer<R>,
    values: Buffer<R>,
    scores: Buffer<R>,
    gradients: Buffer<R>,
    factors: Vec<R>,
}

impl<R: Real> Scratch<R> {
    fn new(h: &Head<R>) -> Self {
        Self {
            keys: Buffer::new(),
            values: Buffer::new(),
            scores: Buffer::new(),
            gradients: Buffer::new(),
            factors: vec![R::ZERO; if h.dropout.is_some() { KEYS } else { 0 }],
        }
    }
}

/// Uninitialised memory that begins on a cache line, so that no vector crosses a line.
struct Buffer<R>(Vec<R>);

impl<R: Real> Buffer<R> {
    fn new() -> Self {
        Self(Vec::new())
    }

    /// Room for `n` elements.
    fn room(&mut self, n: usize) -> *mut R {
        const LINE: usize = 64;
        self.0.reserve(n + LINE / size_of::<R>());
        let start = self.0.as_mut_ptr();
        start.wrapping_add(start.align_offset(LINE))
    }

    /// The first `count` rows of a matrix in blocks of `[cols, KEYS]`, the last padded with zeros.
    ///
    /// # Safety
    /// The matrix has these rows and columns; the CPU has level `I`.
    #[inline(always)]
    unsafe fn transposed<I: Vectors>(&mut self, from: Matrix<R>, count: usize, cols: usize) -> *const R {
        let to = self.room(count.next_multiple_of(KEYS) * cols);
        for first in (0..count).step_by(KEYS) {
            let rows = KEYS.min(count - first);
            // SAFETY: the rows are there by the caller's contract, and room for each block.
            unsafe {
                let to = to.add(first * cols);
                if rows < KEYS {
                    std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<R>>(), KEYS * cols)
                        .fill(MaybeUninit::new(R::ZERO));
                }
                transpose::<R, I>(rows, cols, from.from(first), to, KEYS);
            }
        }
        to
    }
}

struct Problem<T: Float> {
    sizes: Sizes,
    q: Tensor<T>,
    k: Tensor<T>,
    v: Tensor<T>,
    mask: Option<Mask>,
    causal: bool,
    scale: f64,
    dropout: Option<(f64, rushlight_core::Philox)>,
}

/// Arguments of the backward pass.
#[derive(Clone, Copy)]
struct Saved<T: Float> {
    out: Tensor<T>,
    lse: SendPtr<T::Acc>,
    dout: Tensor<T>,
}

/// Copies of a head's matrices that cannot be read in place.
#[derive(Default)]
struct Copies<R> {
    q: Vec<R>,
    k: Vec<R>,
    v: Vec<R>,
    dout: Vec<R>,
}

impl<T: Float> Problem<T> {
    fn new(spec: &Attention, sizes: Sizes) -> Self {
        let mask = spec.mask.as_ref().map(|m| {
            let mut strides = [0; 4];
            strides.copy_from_slice(m.strides());
            Mask::new(m.ptr(), m.dtype(), strides)
        });
        Self {
            sizes,
            q: Tensor::new(&spec.q),
            k: Tensor::new(&spec.k),
            v: Tensor::new(&spec.v),
            mask,
            causal: spec.causal,
            scale: spec.scale,
            dropout: spec.dropout.filter(|d| d.0 > 0.0),
        }
    }

    /// # Safety
    /// The tensors have the problem's sizes.
    unsafe fn head(&self, batch: usize, head: usize, copies: &mut Copies<T::Acc>) -> Head<T::Acc> {
        let Sizes { l, s, d, dv, heads, .. } = self.sizes;
        let kv = head / self.sizes.group();
        // SAFETY: by the caller's contract.
        unsafe {
            Head {
                q: self.q.matrix(batch, head, [l, d], &mut copies.q),
                k: self.k.matrix(batch, kv, [s, d], &mut copies.k),
                v: self.v.matrix(batch, kv, [s, dv], &mut copies.v),
                s,
                d,
                dv,
                scale: T::Acc::lit(self.scale),
                causal: self.causal,
                mask: self.mask.map(|m| m.head(batch, head)),
                dropout: self.dropout.map(|d| Dropout::new(d, batch * heads + head, l, s)),
            }
        }
    }

    /// # Safety
    /// The problem's pointers and the outputs have its sizes; outputs overlap nothing.
    unsafe fn forward(&self, out: Tensor<T>, lse: *mut T::Acc) {
        let Sizes { batch, heads, l, dv, .. } = self.sizes;
        let lse = SendPtr::new(lse);
        let per_task = rows_per_task(batch * heads, l);
        let parts = l.div_ceil(per_task.max(1));
        parallel_for(batch * heads * parts, |task| {
            let (part, b, h) = (task % parts, task / parts / heads, task / parts % heads);
            let (from, to) = (part * per_task, l.min((part + 1) * per_task));
            let mut copies = Copies::default();
            // SAFETY: the head's tensors have the problem's sizes; rows `from..to` of its outputs are this task's.
            unsafe {
                let head = self.head(b, h, &mut copies);
                let lse = lse.at((b * heads + h) * l + from);
                if T::WIDE && out.strides[3] == 1 {
                    let at = out.head(b, h).add(from * out.strides[2]).cast();
                    forward(&head, from, to, (at, out.strides[2]), lse);
                } else {
                    let mut rows = vec![T::Acc::ZERO; (to - from) * dv];
                    forward(&head, from, to, (rows.as_mut_ptr(), dv), lse);
                    out.store(b, h, from, dv, &rows);
                }
            }
        });
    }

    /// # Safety
    /// As for `forward`; the gradients are contiguous.
    unsafe fn backward(&self, saved: Saved<T>, dq: *mut T, dk: *mut T, dv: *mut T) {
        let Sizes { batch, heads, kv_heads, l, s, d, dv: dvs, .. } = self.sizes;
        let delta = self.delta(&saved);
        let delta = SendPtr::new(delta.as_ptr().cast_mut());
        let (dq, dk, dv) = (SendPtr::new(dq), SendPtr::new(dk), SendPtr::new(dv));
        // The gradients of some queries, or of some keys, of a head: each task has its own.
        // SAFETY: (all three) the ranges are within the gradients, which are contiguous.
        let of_queries = |head: usize, part: &Range<usize>| unsafe {
            Sums::<T>::new(dq.at((head * l + part.start) * d), part.len() * d)
        };
        let of_keys = |head: usize, part: &Range<usize>| unsafe {
            let at = head * s + part.start;
            [Sums::<T>::new(dk.at(at * d), part.len() * d), Sums::<T>::new(dv.at(at * dvs), part.len() * dvs)]
        };
        // Adds the contribution of head `h` of batch `b`, for some queries and keys.
        let run = |b: usize,
                   h: usize,
                   (queries, keys): (Range<usize>, Range<usize>),
                   dq: Option<&mut Sums<T>>,
                   dkv: Option<&mut [Sums<T>; 2]>| {
            let mut copies = Copies::default();
            let at = b * heads + h;
            // SAFETY: the tensors have the problem's sizes, the sums those of the ranges.
            unsafe {
                let head = self.head(b, h, &mut copies);
                let gradients = Gradients {
                    dout: saved.dout.matrix(b, h, [l, dvs], &mut copies.dout),
                    lse: saved.lse.at(at * l),
                    delta: delta.at(at * l),
                    dq: dq.map(Sums::ptr),
                    dkv: dkv.map(|[dk, dv]| (dk.ptr(), dv.ptr())),
                };
                backward(&head, &gradients, queries, keys);
            }
        };
        let group = self.sizes.group();
        if batch * kv_heads >= 2 * num_threads() || num_threads() == 1 {
            parallel_for(batch * kv_heads, |task| {
                let (b, kv) = (task / kv_heads, task % kv_heads);
                let mut dkv = of_keys(task, &(0..s));
                for h in kv * group..(kv + 1) * group {
                    let mut dq = of_queries(b * heads + h, &(0..l));
                    run(b, h, (0..l, 0..s), Some(&mut dq), Some(&mut dkv));
                    dq.finish();
                }
                dkv.into_iter().for_each(Sums::finish);
            });
        } else {
            // Too few heads for the threads: keys and queries are split too, at the cost of computing scores
            // twice.
            let blocks = s.div_ceil(KEYS);
            parallel_for(batch * kv_heads * blocks, |task| {
                let (block, at) = (task % blocks, task / blocks);
                let (b, kv) = (at / kv_heads, at % kv_heads);
                let keys = block * KEYS..s.min((block + 1) * KEYS);
                let mut dkv = of_keys(at, &keys);
                for h in kv * group..(kv + 1) * group {
                    run(b, h, (0..l, keys.clone()), None, Some(&mut dkv));
                }
                dkv.into_iter().for_each(Sums::finish);
            });
            let per_task = rows_per_task(batch * heads, l);
            let parts = l.div_ceil(per_task.max(1));
            parallel_for(batch * heads * parts, |task| {
                let (part, at) = (task % parts, task / parts);
                let queries = part * per_task..l.min((part + 1) * per_task);
                let mut dq = of_queries(at, &queries);
                let keys = if self.causal { s.min(queries.end) } else { s };
                run(at / heads, at % heads, (queries, 0..keys), Some(&mut dq), None);
                dq.finish();
            });
        }
    }

    /// For each query the sum of the output times its gradient.
    fn delta(&self, saved: &Saved<T>) -> Vec<T::Acc> {
        let Sizes { batch, heads, l, dv, .. } = self.sizes;
        let mut delta = vec![T::Acc::ZERO; batch * heads * l];
        let at = SendPtr::new(delta.as_mut_ptr());
        parallel_for(batch * heads, |head| {
            let (b, h) = (head / heads, head % heads);
            let (mut out, mut dout) = (Vec::new(), Vec::new());
            // SAFETY: the tensors have the problem's sizes; the head's sums are this task's.
            unsafe {
                let (o, g) = (saved.out.matrix(b, h, [l, dv], &mut out), saved.dout.matrix(b, h, [l, dv], &mut dout));
                for i in 0..l {
                    *at.at(head * l + i) = dot(o.from(i).at, g.from(i).at, dv);
                }
            }
        });
        delta
    }
}

/// Gradients that begin as zeros and are added to: the result itself, or, for half types, sums in `f32` that are
/// rounded once.
struct Sums<T: Float> {
    to: *mut T,
    count: usize,
    wide: Vec<T::Acc>,
}

impl<T: Float> Sums<T> {
    /// # Safety
    /// `count` elements at `to`, which nobody else uses while this is.
    unsafe fn new(to: *mut T, count: usize) -> Self {
        if T::WIDE {
            // SAFETY: by the caller's contract; a wide type is its own compute type.
            unsafe { std::slice::from_raw_parts_mut(to.cast::<T::Acc>(), count) }.fill(T::Acc::ZERO);
        }
        Self { to, count, wide: vec![T::Acc::ZERO; if T::WIDE { 0 } else { count }] }
    }

    fn ptr(&mut self) -> *mut T::Acc {
        if T::WIDE { self.to.cast() } else { self.wide.as_mut_ptr() }
    }

    /// Rounds the sums.
    fn finish(self) {
        if !T::WIDE {
            // SAFETY: `count` elements of both, by the contract of `new`.
            unsafe { narrow(self.wide.as_ptr(), self.to, self.count) }
        }
    }
}

#[inline(always)]
unsafe fn dot_kernel<R: Real, I: Vectors>(a: *const R, b: *const R, n: usize) -> R {
    let mut sums = [R::V::<I>::splat(R::ZERO); 4];
    // SAFETY: `n` elements of both by the caller's contract.
    unsafe {
        sweep!(R::V<I>, n, i, m, k => {
            sums[k] = R::V::<I>::get(a.add(i), m, R::ZERO).fma(R::V::<I>::get(b.add(i), m, R::ZERO), sums[k]);
        });
        total(sums)
    }
}
multiversion! {
    /// Dot product of two rows.
    ///
    /// # Safety
    /// `n` elements of both.
    unsafe fn dot<R: Real>(a: *const R, b: *const R, n: usize) -> R = dot_kernel;
}

/// Queries per task: a whole head if there are enough heads for the threads, else a part.
fn rows_per_task(heads: usize, l: usize) -> usize {
    let wanted = (4 * num_threads()).div_ceil(heads.max(1));
    if num_threads() == 1 || wanted <= 1 { l } else { l.div_ceil(wanted).next_multiple_of(2 * QUERIES) }
}
