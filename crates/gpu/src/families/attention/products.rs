//! Attention by matrix products over a stored score matrix: for `f32` and `f64`, which the tensor-core kernels do not
//! support. A call holds the scores of as many images as fit a bound; nothing is kept between calls.

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

    /// Whether the image stride continues the head stride, so that one batched product covers both.
    fn is_even(&self, heads: usize) -> bool {
        self.strides[0] == heads as u64 * self.strides[1]
    }
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

    /// `out = a @ b` for every head of some images.
    fn heads_product(
        &self,
        spec: &Spec,
        form: &Form,
        images: usize,
        [m, n, k]: [usize; 3],
        a: Heads,
        b: Heads,
        out: Heads,
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
                ..Gemm::plain(form.dtype, batch, m, n, k)
            })?;
        }
        Ok(())
    }

    /// Attention by products. Returns whether it applied.
    pub fn attention_products(&self, spec: &Spec, form: Form, out: View, lse: View) -> Result<bool> {
        let Some(most) = Self::images_at_once(spec, &form, 1) else { return Ok(false) };
        let (heads, l, s, d, dv, size) = (spec.heads, spec.l, spec.s, spec.d, spec.dv, form.dtype.size());
        let scratch = self.scratch(most * heads * l * s * size)?;
        let scores = Heads::contiguous(scratch.ptr, heads, l, s);
        let key = Key::new(Family::Attention, "attention_scores", form.tags());
        let function = self.function(key, || form.defines("PRODUCTS"))?;
        for first in (0..spec.batch).step_by(most) {
            let images = most.min(spec.batch - first);
            let part = |ptr: u64, strides: [u64; 4]| Heads { ptr, strides }.from(first, size);
            let (q, k, v) = (part(spec.q, spec.q_strides), part(spec.k, spec.k_strides), part(spec.v, spec.v_strides));
            self.heads_product(spec, &form, images, [l, s, d], q, k.transposed(), scores)?;
            let (all, at, log_sum, start) = (*spec, scratch.ptr, lse.ptr() as u64, first * heads * l);
            let grid = Grid::line(images * heads * l, THREADS)?;
            launch!(self, function, grid; all, at, log_sum, start)?;
            let to = part(out.ptr() as u64, strides(out));
            self.heads_product(spec, &form, images, [l, dv, s], scores, v, to)?;
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
        let (first_half, second_half) =
            (self.scratch(most * heads * l * s * size)?, self.scratch(most * heads * l * s * size)?);
        let (p, ds) = (Heads::contiguous(first_half.ptr, heads, l, s), Heads::contiguous(second_half.ptr, heads, l, s));
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
            self.heads_product(spec, &form, images, [l, s, d], q, k.transposed(), p)?;
            self.heads_product(spec, &form, images, [l, s, width], dout, v.transposed(), ds)?;
            let (all, a, b, log_sum, start) = (*spec, p.ptr, ds.ptr, saved.lse, first * heads * l);
            let grid = Grid::line(images * heads * l, THREADS)?;
            launch!(self, function, grid; all, a, b, log_sum, delta, start)?;
            self.heads_product(spec, &form, images, [s, width, l], p.transposed(), dout, own(dv, s, width))?;
            self.heads_product(spec, &form, images, [l, d, s], ds, k, own(dq, l, d))?;
            self.heads_product(spec, &form, images, [s, d, l], ds.transposed(), q, own(dk, s, d))?;
        }
        Ok(true)
    }
}
