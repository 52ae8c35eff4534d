//! Attention by matrix products over a stored score matrix: for `f32` and `f64`, which the tensor-core kernels do not
//! support. A call holds the scores of as many images as fit a bound; nothing is kept between calls. Under a causal
//! mask queries are taken in stripes, whose products leave out the keys that none of them sees.

use crate::device::Gpu;
use crate::families::attention::{Form, Saved, Spec, strides};
use crate::families::matmul::Gemm;
use crate::launch::kernel::{Family, Grid, Key, launch};
use rushlight_core::{Result, View};

const THREADS: usize = 128;
/// Maximum bytes of scores.
const MAX_SCORES: usize = 1 << 30;
/// Smaller score matrices are left to the fused kernel.
const MIN_SCORES: usize = 64 * 64;

/// Heads of a batch of matrices: address, and strides of batch, head, row and column.
#[derive(Clone, Copy)]
struct Heads {
    ptr: u64,
    strides: [u64; 4],
}

impl Heads {
    fn contiguous(ptr: u64, heads: usize, rows: usize, columns: usize) -> Self {
        let matrix = (rows * columns) as u64;
        Self { ptr, strides: [heads as u64 * matrix, matrix, columns as u64, 1] }
    }

    /// The same with rows and columns swapped.
    fn transposed(mut self) -> Self {
        self.strides.swap(2, 3);
        self
    }

    /// The batch starting at image `first`.
    fn from(mut self, first: usize, size: usize) -> Self {
        self.ptr += first as u64 * self.strides[0] * size as u64;
        self
    }

    /// The rows from `first` on.
    fn down(mut self, first: usize, size: usize) -> Self {
        self.ptr += first as u64 * self.strides[2] * size as u64;
        self
    }

    /// Whether the image stride continues the head stride, so that one batched product covers both.
    fn is_even(&self, heads: usize) -> bool {
        self.strides[0] == heads as u64 * self.strides[1]
    }
}

/// Some queries of all heads, and the number of keys that they see. Matches `Stripe` in `attention.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Stripe {
    head: usize,
    from: usize,
    rows: usize,
    keys: usize,
}

/// Smallest number of queries in a stripe.
const MIN_ROWS: usize = 256;
/// Rows of products, over all heads, that occupy a GPU: one tile of 128 rows per multiprocessor.
const FULL_ROWS: usize = 128 * 128;

/// Number of queries in a stripe: all of them without a causal mask. Stripes of few rows would leave a part of the GPU
/// without work.
fn stripe_rows(spec: &Spec, form: &Form, images: usize) -> usize {
    let tiles = images * spec.heads * spec.d.max(spec.dv).div_ceil(128);
    let rows = (FULL_ROWS / tiles.max(1)).max(spec.l / 8).max(MIN_ROWS).next_multiple_of(64);
    if form.causal { rows.min(spec.l) } else { spec.l }
}

/// The stripes, the last one first: it takes all keys, so that its gradients are the first of each key.
fn stripes(spec: &Spec, rows: usize, head: usize) -> impl Iterator<Item = Stripe> {
    let (l, s) = (spec.l, spec.s);
    (0..l).step_by(rows).rev().map(move |from| {
        let end = (from + rows).min(l);
        Stripe { head, from, rows: end - from, keys: if end == l { s } else { end.min(s) } }
    })
}

impl Gpu {
    /// Number of images per batch of products; `None` if another kernel is faster.
    fn images_at_once(spec: &Spec, form: &Form, matrices: usize) -> Option<usize> {
        let size = form.dtype.size();
        let scores = spec.l * spec.s;
        let bytes = scores.saturating_mul(spec.heads).saturating_mul(size * matrices);
        let fits = size >= 4 && spec.kv_heads == spec.heads && scores >= MIN_SCORES && bytes <= MAX_SCORES;
        fits.then(|| (MAX_SCORES / bytes.max(1)).clamp(1, spec.batch.max(1)))
    }

    /// Whether views should be packed first: where heads are not adjacent, as in a joint projection, products would
    /// need a launch per image; libraries take no matrices whose elements repeat, such as the gradient of a sum.
    pub fn are_uneven(spec: &Spec, form: &Form, views: &[View]) -> bool {
        let even = |v: &View| {
            let heads = Heads { ptr: 0, strides: strides(*v) };
            let (rows, columns) = (v.shape()[2], v.shape()[3]);
            let repeats = rows > 1 && heads.strides[2] == 0 || columns > 1 && heads.strides[3] == 0;
            !repeats && (spec.batch == 1 || heads.is_even(v.shape()[1]))
        };
        Self::images_at_once(spec, form, 1).is_some() && !views.iter().all(even)
    }

    /// `out = a @ b + beta * out` for every head of some images.
    fn heads_product(
        &self,
        spec: &Spec,
        form: &Form,
        images: usize,
        [m, n, k]: [usize; 3],
        a: Heads,
        b: Heads,
        (out, beta): (Heads, f64),
    ) -> Result<()> {
        let inner = |h: Heads| [h.strides[1], h.strides[2], h.strides[3]].map(|v| v as usize);
        let even = [a, b, out].iter().all(|h| h.is_even(spec.heads));
        let (turns, batch) = if even { (1, images * spec.heads) } else { (images, spec.heads) };
        for i in 0..turns {
            let at = |h: Heads| h.from(i, form.dtype.size()).ptr;
            self.gemm(Gemm {
                a: at(a),
                a_strides: inner(a),
                b: at(b),
                b_strides: inner(b),
                out: at(out),
                out_strides: inner(out),
                beta,
                ..Gemm::plain(form.dtype, batch, m, n, k)
            })?;
        }
        Ok(())
    }

    /// Attention by products. Returns whether it applied.
    pub fn attention_products(&self, spec: &Spec, form: Form, out: View, lse: View) -> Result<bool> {
        let Some(most) = Self::images_at_once(spec, &form, 1) else { return Ok(false) };
        let (heads, s, d, dv, size) = (spec.heads, spec.s, spec.d, spec.dv, form.dtype.size());
        let rows = stripe_rows(spec, &form, most);
        let scratch = self.scratch(most * heads * rows * s * size)?;
        let key = Key::new(Family::Attention, "attention_scores", form.tags());
        let function = self.function(key, || form.defines("PRODUCTS"))?;
        for first in (0..spec.batch).step_by(most) {
            let images = most.min(spec.batch - first);
            let part = |ptr: u64, strides: [u64; 4]| Heads { ptr, strides }.from(first, size);
            let (q, k, v) = (part(spec.q, spec.q_strides), part(spec.k, spec.k_strides), part(spec.v, spec.v_strides));
            let to = part(out.ptr() as u64, strides(out));
            for stripe in stripes(spec, rows, first * heads) {
                let Stripe { from, rows, keys, .. } = stripe;
                let scores = Heads::contiguous(scratch.ptr, heads, rows, keys);
                let sizes = [rows, keys, d];
                self.heads_product(spec, &form, images, sizes, q.down(from, size), k.transposed(), (scores, 0.0))?;
                let (all, at, log_sum) = (*spec, scratch.ptr, lse.ptr() as u64);
                let grid = Grid::line(images * heads * rows, THREADS)?;
                launch!(self, function, grid; all, at, log_sum, stripe)?;
                self.heads_product(spec, &form, images, [rows, dv, keys], scores, v, (to.down(from, size), 0.0))?;
            }
        }
        Ok(true)
    }

    /// Gradients of attention by products, given `out . dout` of each row. Returns whether it applied.
    pub fn attention_products_backward(
        &self,
        spec: &Spec,
        form: Form,
        saved: &Saved,
        delta: u64,
        [dq, dk, dv]: [View; 3],
    ) -> Result<bool> {
        let Some(most) = Self::images_at_once(spec, &form, 2) else { return Ok(false) };
        let (heads, l, s, d, width, size) = (spec.heads, spec.l, spec.s, spec.d, spec.dv, form.dtype.size());
        let rows = stripe_rows(spec, &form, most);
        let bytes = most * heads * rows * s * size;
        let (first_half, second_half) = (self.scratch(bytes)?, self.scratch(bytes)?);
        let key = Key::new(Family::Attention, "attention_scores_backward", form.tags());
        let function = self.function(key, || form.defines("PRODUCTS"))?;
        for first in (0..spec.batch).step_by(most) {
            let images = most.min(spec.batch - first);
            let part = |ptr: u64, strides: [u64; 4]| Heads { ptr, strides }.from(first, size);
            let own = |view: View, rows: usize, columns: usize| {
                Heads::contiguous(view.ptr() as u64, heads, rows, columns).from(first, size)
            };
            let (q, k, v) = (part(spec.q, spec.q_strides), part(spec.k, spec.k_strides), part(spec.v, spec.v_strides));
            let dout = part(saved.dout, saved.dout_strides);
            for stripe in stripes(spec, rows, first * heads) {
                let Stripe { from, rows, keys, .. } = stripe;
                let scores = |ptr: u64| Heads::contiguous(ptr, heads, rows, keys);
                let (p, ds) = (scores(first_half.ptr), scores(second_half.ptr));
                let (q, dout) = (q.down(from, size), dout.down(from, size));
                self.heads_product(spec, &form, images, [rows, keys, d], q, k.transposed(), (p, 0.0))?;
                self.heads_product(spec, &form, images, [rows, keys, width], dout, v.transposed(), (ds, 0.0))?;
                let (all, a, b, log_sum) = (*spec, p.ptr, ds.ptr, saved.lse);
                let grid = Grid::line(images * heads * rows, THREADS)?;
                launch!(self, function, grid; all, a, b, log_sum, delta, stripe)?;
                // Earlier queries add to the gradients of the keys that they see too.
                let beta = if from + rows == l { 0.0 } else { 1.0 };
                let (to_k, to_v) = (own(dk, s, d), own(dv, s, width));
                self.heads_product(spec, &form, images, [keys, width, rows], p.transposed(), dout, (to_v, beta))?;
                self.heads_product(spec, &form, images, [rows, d, keys], ds, k, (own(dq, l, d).down(from, size), 0.0))?;
                self.heads_product(spec, &form, images, [keys, d, rows], ds.transposed(), q, (to_k, beta))?;
            }
        }
        Ok(true)
    }
}
