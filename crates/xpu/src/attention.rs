//! Attention: products of blocks of rows, and one kernel between them (`kernels/attention.cl`). No more than a block of
//! the score matrix is stored. `attention_tiles` has the form for CPUs.

use crate::device::{Scratch, Temporary, Xpu};
use crate::driver::{Arg, Kernel};
use crate::matmul::{Matrix, Product};
use crate::program::{Argument, At, Family, Key, Kind, run};
use crate::rows::{Shape, float};
use rushlight_core::backend::Attention;
use rushlight_core::{DType, Error, Result, Scalar, View};
use rushlight_gpu::launch::formula::words_below;

/// The same as `Block` in `attention.cl`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Block {
    heads: u64,
    rows: u64,
    s: u64,
    stride: u64,
    first: u64,
    l: u64,
    mask: [i64; 4],
    causal: u32,
    below: u32,
    seed: u64,
    offset: u64,
    head: u64,
    image_heads: u64,
    head_step: u64,
}

/// The same as `Outputs` in `attention.cl`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Outputs {
    out: [i64; 4],
    dout: [i64; 4],
    size: u64,
}

macro_rules! plain {
    ($($type:ty),*) => {$(impl Argument for $type {
        fn arg(&self) -> Arg<'_> {
            // SAFETY: a plain struct without padding, which the kernel declares alike.
            Arg::Value(unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) })
        }
    })*};
}
plain!(Block, Outputs);
pub(crate) use plain;

/// Some rows of some heads of some images. Query heads are taken some key heads at a time, those that are the
/// `member`-th to share one.
#[derive(Clone, Copy)]
pub struct Part {
    pub image: usize,
    pub images: usize,
    /// Heads of keys.
    pub head: usize,
    pub heads: usize,
    pub member: usize,
    pub first: usize,
    pub rows: usize,
}

/// Sizes and what kernels are compiled for.
pub struct Problem<'a> {
    pub spec: &'a Attention<'a>,
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub l: usize,
    pub s: usize,
    pub d: usize,
    pub dv: usize,
    pub shape: Shape,
    /// The dtype of statistics and scores.
    pub wide: DType,
    /// The probability of dropout, zero for none.
    pub p: f64,
}

/// The strides of a view of four dimensions.
fn strides(view: View) -> [i64; 4] {
    std::array::from_fn(|i| view.strides()[i] as i64)
}

impl<'a> Problem<'a> {
    pub fn new(xpu: &Xpu, spec: &'a Attention<'a>) -> Result<Self> {
        let (&[batch, heads, l, d], &[_, kv_heads, s, _]) = (spec.q.shape(), spec.k.shape()) else {
            return Err(Error::shape("attention: queries, keys and values need four dimensions"));
        };
        let dtype = spec.q.dtype();
        float("attention", dtype)?;
        xpu.require(&[dtype])?;
        if spec.k.dtype() != dtype || spec.v.dtype() != dtype {
            return Err(Error::dtype(format!("attention: keys and values must be of dtype {dtype}, as the queries")));
        }
        if spec.mask.is_some_and(|mask| mask.dtype() != DType::Bool && !mask.dtype().is_float()) {
            return Err(Error::dtype("attention: a mask is bool or float"));
        }
        if kv_heads == 0 && heads > 0 || kv_heads > 0 && !heads.is_multiple_of(kv_heads) {
            return Err(Error::shape(format!("attention: {heads} heads cannot share {kv_heads} heads of keys")));
        }
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let p = spec.dropout.map_or(0.0, |(p, _)| p);
        let (dv, shape) = (spec.v.shape()[3], xpu.row_shape(dtype, s));
        Ok(Self { spec, batch, heads, kv_heads, l, s, d, dv, shape, wide, p })
    }

    pub fn members(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// Elements between rows of scores: whole cache lines, an odd number of them, so that rows do not share sets of a
    /// cache.
    pub fn stride(&self) -> usize {
        self.s.div_ceil(16) / 2 * 32 + 16
    }

    /// The parts whose scores have up to `most` elements.
    pub fn parts(&self, most: usize) -> Vec<Part> {
        let unit = self.l.saturating_mul(self.s).max(1);
        let per_image = unit.saturating_mul(self.kv_heads);
        let images = (most / per_image).clamp(1, self.batch.max(1));
        let heads = if images > 1 { self.kv_heads } else { (most / unit).clamp(1, self.kv_heads.max(1)) };
        // Parts of about the same size, of whole tiles of products.
        const ROWS: usize = 12;
        let fitting = (most / self.s.max(1)).clamp(1, self.l.max(1));
        let even = self.l.div_ceil(self.l.div_ceil(fitting).max(1));
        let rows = if fitting > ROWS { even.next_multiple_of(ROWS) } else { even }.min(self.l);
        let mut parts = Vec::new();
        for image in (0..self.batch).step_by(images) {
            for head in (0..self.kv_heads).step_by(heads) {
                for member in 0..self.members() {
                    for first in (0..self.l).step_by(rows.max(1)) {
                        parts.push(Part {
                            image,
                            images: images.min(self.batch - image),
                            head,
                            heads: heads.min(self.kv_heads - head),
                            member,
                            first,
                            rows: rows.min(self.l - first),
                        });
                    }
                }
            }
        }
        parts
    }

    /// The part of queries, or of what is laid out like them.
    pub fn of_queries(&self, view: View, part: &Part) -> Matrix {
        let [image, head, row, column] = strides(view);
        let member = self.members() as i64;
        let head_number = part.head as i64 * member + part.member as i64;
        let offset = part.image as i64 * image + head_number * head + part.first as i64 * row;
        Matrix {
            address: (view.ptr() as u64).wrapping_add_signed(offset * view.dtype().size() as i64),
            dtype: view.dtype(),
            strides: [image, head * member, row, column],
        }
    }

    /// The part of keys, or of what is laid out like them.
    pub fn of_keys(&self, view: View, part: &Part) -> Matrix {
        let [image, head, row, column] = strides(view);
        let offset = part.image as i64 * image + part.head as i64 * head;
        Matrix {
            address: (view.ptr() as u64).wrapping_add_signed(offset * view.dtype().size() as i64),
            dtype: view.dtype(),
            strides: [image, head, row, column],
        }
    }

    /// Scores of a part, in memory of our own.
    pub fn of_scores(&self, memory: &Temporary, part: &Part) -> Matrix {
        let unit = (part.rows * self.stride()) as i64;
        Matrix {
            address: memory.view().ptr() as u64,
            dtype: self.wide,
            strides: [part.heads as i64 * unit, unit, self.stride() as i64, 1],
        }
    }

    pub fn block(&self, part: &Part) -> Block {
        let (seed, offset) = self.spec.dropout.map_or((0, 0), |(_, stream)| (stream.seed, stream.offset));
        let member = self.members();
        Block {
            heads: part.heads as u64,
            rows: part.rows as u64,
            s: self.s as u64,
            stride: self.stride() as u64,
            first: part.first as u64,
            l: self.l as u64,
            mask: self.spec.mask.map_or([0; 4], |mask| {
                let [image, head, row, column] = strides(mask);
                [image, head * member as i64, row, column]
            }),
            causal: self.spec.causal as u32,
            below: words_below(self.p as f32 as f64),
            seed,
            offset,
            head: (part.image * self.heads + part.head * member + part.member) as u64,
            image_heads: self.heads as u64,
            head_step: member as u64,
        }
    }

    /// Where the mask of a part begins, whose rows are counted from the first of all.
    pub fn mask(&self, part: &Part) -> u64 {
        match self.spec.mask {
            Some(mask) => self.of_queries(mask, &Part { first: 0, ..*part }).address,
            None => self.spec.q.ptr() as u64,
        }
    }

    /// Statistics of a part, `[batch, heads, l]`: the address, and the elements between images and heads.
    pub fn statistics(&self, lse: View, part: &Part) -> (u64, usize, usize) {
        let head = part.image * self.heads + part.head * self.members() + part.member;
        let address = lse.ptr() as u64 + (head * self.l * self.wide.size()) as u64;
        (address, self.heads * self.l, self.members() * self.l)
    }

    pub fn kernel(
        &self,
        xpu: &Xpu,
        family: Family,
        entry: &'static str,
        name: &'static str,
    ) -> Result<&'static Kernel> {
        let mask = self.spec.mask.map_or(DType::Bool, |mask| mask.dtype());
        let kind = self.spec.mask.map_or(0u16, |mask| if mask.dtype() == DType::Bool { 1 } else { 2 });
        let (dtype, dropout) = (self.spec.q.dtype(), (self.p > 0.0) as u16);
        let [a, b, c] = self.shape.tags();
        let room = self.room();
        let key = Key::new(family, entry, [a, b, c, dtype as u16, mask as u16, kind, dropout, room as u16]);
        xpu.kernel(key, || {
            let defines = self.shape.defines().define(name, 1).define("MASK", kind).define("DROPOUT", dropout);
            let defines = if family == Family::AttentionTiles {
                defines.vector("T", dtype).define("HEAD", room)
            } else {
                defines.dtype("T", dtype)
            };
            defines.dtype("M", mask)
        })
    }

    /// The scores of a part before the mask: queries, or gradients of the output (`like_values`), times keys or values
    /// transposed.
    pub fn scores(&self, part: &Part, like_values: Option<View>, scores: Matrix) -> Product {
        let batch = [part.images, part.heads];
        match like_values {
            Some(dout) => {
                let (a, b) = (self.of_queries(dout, part), self.of_keys(self.spec.v, part).transposed());
                Product::new(batch, [part.rows, self.s, self.dv], a, b, scores)
            }
            None => {
                let (a, b) = (self.of_queries(self.spec.q, part), self.of_keys(self.spec.k, part).transposed());
                let product = Product::new(batch, [part.rows, self.s, self.d], a, b, scores);
                Product { alpha: self.spec.scale, ..product }
            }
        }
    }

    /// What kept probabilities are multiplied by.
    pub fn kept_factor(&self) -> f64 {
        1.0 / (1.0 - self.p)
    }
}

/// Keys or values in panels, packed once for all parts of their heads.
#[derive(Default)]
pub struct Panels<'x> {
    of: Option<(usize, usize)>,
    packed: Option<(Scratch<'x>, u64)>,
}

impl<'x> Panels<'x> {
    fn product(&mut self, xpu: &'x Xpu, part: &Part, product: Product) -> Result<()> {
        if self.of != Some((part.image, part.head)) {
            (self.of, self.packed) = (Some((part.image, part.head)), xpu.packed(&product)?);
        }
        let packed = self.packed.as_ref().map(|(scratch, batch)| (scratch.address, *batch));
        xpu.product(&Product { packed, ..product })
    }
}

impl Xpu {
    /// Maximum elements of the scores in memory: on a CPU they stay in its caches.
    pub fn max_scores(&self) -> usize {
        if self.driver.abilities().is_cpu { 1 << 18 } else { 1 << 25 }
    }

    pub fn attention(&self, spec: &Attention, out: View, lse: View) -> Result<()> {
        let p = Problem::new(self, spec)?;
        if p.batch * p.heads * p.l == 0 {
            return Ok(());
        }
        if p.s == 0 {
            self.fill(Scalar::Float(0.0), out)?;
            return self.fill(Scalar::Float(f64::NEG_INFINITY), lse);
        }
        if p.takes_tiles(self) {
            return self.attention_tiles(&p, out, lse);
        }
        let kernel = p.kernel(self, Family::Attention, "attention_rows", "FORWARD")?;
        let mut keys = Panels::default();
        for part in p.parts(self.max_scores()) {
            let memory = self.temporary(&[part.images * part.heads, part.rows, p.stride()], p.wide)?;
            let scores = p.of_scores(&memory, &part);
            keys.product(self, &part, p.scores(&part, None, scores))?;
            let (to, image, head) = p.statistics(lse, &part);
            let factors = self.scratch(part.images * part.heads * part.rows * p.wide.size())?;
            run!(self, kernel, [part.rows, part.images * part.heads, 1], [p.shape.items, 1, 1];
                p.block(&part), At(scores.address), At(p.mask(&part)), At(to), image, head, At(factors.address),
                p.shape.kind.number(p.kept_factor()))?;
            let (v, rows) = (p.of_keys(spec.v, &part), p.of_queries(out, &part));
            let product = Product::new([part.images, part.heads], [part.rows, p.dv, p.s], scores, v, rows);
            self.product(&Product { row_factors: Some(factors.address), ..product })?;
        }
        Ok(())
    }

    pub fn attention_backward(
        &self,
        spec: &Attention,
        out: View,
        lse: View,
        dout: View,
        [dq, dk, dv]: [View; 3],
    ) -> Result<()> {
        let p = Problem::new(self, spec)?;
        if p.batch * p.heads * p.l * p.s == 0 {
            return [dq, dk, dv].into_iter().try_for_each(|view| self.fill(Scalar::Float(0.0), view));
        }
        if p.takes_tiles(self) {
            return self.attention_tiles_backward(&p, out, lse, dout, [dq, dk, dv]);
        }
        let kernel = p.kernel(self, Family::Attention, "attention_rows_backward", "BACKWARD")?;
        let parts = p.parts(self.max_scores());
        let sums = self.wide_sums(&p, &parts, dk, dv)?;
        let (dk_sum, dv_sum) = sums.as_ref().map_or((dk, dv), |(dk, dv)| (dk.view(), dv.view()));
        let (mut keys, mut values) = (Panels::default(), Panels::default());
        for part in &parts {
            let shape = [part.images * part.heads, part.rows, p.stride()];
            let (memory, slopes) = (self.temporary(&shape, p.wide)?, self.temporary(&shape, p.wide)?);
            let (scores, d) = (p.of_scores(&memory, part), p.of_scores(&slopes, part));
            let batch = [part.images, part.heads];
            keys.product(self, part, p.scores(part, None, scores))?;
            values.product(self, part, p.scores(part, Some(dout), d))?;
            let (k, q, slope) = (p.of_keys(spec.k, part), p.of_queries(spec.q, part), p.of_queries(dout, part));
            // Rows of these are counted from the first of all.
            let all = Part { first: 0, ..*part };
            let (result, gradient) = (p.of_queries(out, &all), p.of_queries(dout, &all));
            let outputs = Outputs { out: result.strides, dout: gradient.strides, size: p.dv as u64 };
            let (from, image, head) = p.statistics(lse, part);
            let number = |value| -> crate::program::Number { Kind::number(p.shape.kind, value) };
            run!(self, kernel, [part.rows, part.images * part.heads, 1], [p.shape.items, 1, 1];
                p.block(part), outputs, At(scores.address), At(d.address), At(p.mask(part)), At(from), image, head,
                At(result.address), At(gradient.address), number(p.kept_factor()), number(spec.scale))?;
            self.add_to_keys(&p, part, scores, slope, p.of_keys(dv_sum, part), p.dv)?;
            self.add_to_keys(&p, part, d, q, p.of_keys(dk_sum, part), p.d)?;
            self.product(&Product::new(batch, [part.rows, p.d, p.s], d, k, p.of_queries(dq, part)))?;
        }
        if sums.is_some() {
            self.copy(dk_sum, dk)?;
            self.copy(dv_sum, dv)?;
        }
        Ok(())
    }

    /// Gradients of keys and values that several parts add to, wide until all have; `None` where the results themselves
    /// serve.
    pub fn wide_sums(&self, p: &Problem, parts: &[Part], dk: View, dv: View) -> Result<Option<(Temporary, Temporary)>> {
        let adds = parts.iter().any(|part| part.first > 0 || part.member > 0);
        if !adds || p.spec.q.dtype() == p.wide {
            return Ok(None);
        }
        Ok(Some((self.temporary(dk.shape(), p.wide)?, self.temporary(dv.shape(), p.wide)?)))
    }

    /// A part's share of the gradients of keys or values, `size` elements each: its scores transposed times rows of
    /// queries or of the output's gradient.
    pub fn add_to_keys(
        &self,
        p: &Problem,
        part: &Part,
        scores: Matrix,
        rows: Matrix,
        to: Matrix,
        size: usize,
    ) -> Result<()> {
        let beta = if part.first > 0 || part.member > 0 { 1.0 } else { 0.0 };
        let batch = [part.images, part.heads];
        let product = Product::new(batch, [p.s, size, part.rows], scores.transposed(), rows, to);
        self.product(&Product { beta, ..product })
    }
}
