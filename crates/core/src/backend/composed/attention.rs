//! Attention by blocks of query rows: only one block of the score matrix is stored at a time.

use super::array::{Array, apply, choose, product};
use super::per_block;
use super::random::dropped;
use crate::backend::{Attention, Reduce, View, call};
use crate::{DType, Error, Philox, Pointwise, Result};

/// The operands in the dtype of statistics. Query heads are processed `kv_heads` at a time: the `member`-th heads that
/// share each key head, so that a batched product pairs each with its own keys.
struct Problem<'a> {
    q: Array<'a>,
    k: Array<'a>,
    v: Array<'a>,
    mask: Option<Array<'a>>,
    causal: bool,
    scale: f64,
    dropout: Option<(f64, Philox)>,
    batch: usize,
    heads: usize,
    kv_heads: usize,
    l: usize,
    s: usize,
}

/// Some rows of some heads of one image.
#[derive(Clone, Copy)]
struct Block {
    image: usize,
    /// Index among the query heads that share a key head.
    member: usize,
    first: usize,
    rows: usize,
}

impl<'a> Problem<'a> {
    fn new(spec: &Attention<'a>) -> Result<Self> {
        let (&[batch, heads, l, _], &[_, kv_heads, s, _]) = (spec.q.shape(), spec.k.shape()) else {
            return Err(Error::shape("attention: queries, keys and values need four dimensions"));
        };
        if kv_heads == 0 && heads > 0 || kv_heads > 0 && !heads.is_multiple_of(kv_heads) {
            return Err(Error::shape(format!("attention: {heads} heads cannot share {kv_heads} heads of keys")));
        }
        Ok(Self {
            q: Array::of(spec.q).wide()?,
            k: Array::of(spec.k).wide()?,
            v: Array::of(spec.v).wide()?,
            mask: spec.mask.map(Array::of),
            causal: spec.causal,
            scale: spec.scale,
            dropout: spec.dropout.filter(|d| d.0 > 0.0),
            batch,
            heads,
            kv_heads,
            l,
            s,
        })
    }

    fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    fn each_block(&self, mut f: impl FnMut(Block) -> Result<()>) -> Result<()> {
        if self.heads == 0 {
            return Ok(());
        }
        let step = per_block(self.l, self.kv_heads * self.s);
        for image in 0..self.batch {
            for member in 0..self.group() {
                for first in (0..self.l).step_by(step) {
                    f(Block { image, member, first, rows: step.min(self.l - first) })?;
                }
            }
        }
        Ok(())
    }

    /// The rows of a block of a `[batch, heads, l, ..]` array: `[kv_heads, rows, ..]`.
    fn rows<'b>(&self, x: &Array<'b>, block: Block) -> Array<'b> {
        let heads = x.layout().select(0, block.image).slice(0, block.member, self.kv_heads, self.group());
        x.with(heads.slice(1, block.first, block.rows, 1))
    }

    /// Scores `[kv_heads, rows, s]`; masked keys have negative infinity.
    fn scores(&self, block: Block) -> Result<Array<'static>> {
        let q = self.rows(&self.q, block);
        let k = self.k.select(0, block.image).transpose(1, 2);
        let scores = q.uninit(&[self.kv_heads, block.rows, self.s], q.dtype())?;
        product(self.scale, &q, &k, 0.0, &scores)?;
        if let Some(mask) = &self.mask {
            let mask = self.rows(mask, block);
            if mask.dtype() == DType::Bool {
                choose(&mask, &scores, f64::NEG_INFINITY, &scores)?;
            } else {
                apply(Pointwise::Add, &[(&scores).into(), (&mask).into()], &scores)?;
            }
        }
        if self.causal {
            let positions = q.counting(block.rows)?.add(block.first as i64)?;
            let visible = positions.unsqueeze(1).ge(&q.counting(self.s)?)?;
            choose(&visible, &scores, f64::NEG_INFINITY, &scores)?;
        }
        Ok(scores)
    }

    /// Applies dropout to `x`, `[kv_heads, rows, s]`: zeroes the dropped elements and scales up the rest.
    fn drop(&self, x: Array<'static>, block: Block) -> Result<Array<'static>> {
        let Some((p, stream)) = self.dropout else { return Ok(x) };
        let kept = x.mul(1.0 / (1.0 - p))?;
        for kv in 0..self.kv_heads {
            let head = block.image * self.heads + kv * self.group() + block.member;
            let first = (head as u64 * self.l as u64 + block.first as u64) * self.s as u64;
            let one = kept.select(0, kv);
            // The kernels compare uniforms with `p` as `f32`.
            choose(&dropped(&x, p as f32 as f64, stream, first, one.shape())?, 0.0, &one, &one)?;
        }
        Ok(kept)
    }
}

/// Default body of [`Attention`](call::Attention).
pub fn attention(c: &call::Attention<View>) -> Result<()> {
    let call::Attention { of: ref spec, out, lse } = *c;
    let p = Problem::new(spec)?;
    let (out, lse) = (Array::of(out), Array::dense(lse, &[p.batch, p.heads, p.l])?);
    if p.s == 0 {
        out.fill(0.0)?;
        return lse.fill(f64::NEG_INFINITY);
    }
    p.each_block(|block| {
        let scores = p.scores(block)?;
        let best = scores.reduce(Reduce::Max, &[2])?;
        // If every key is masked, any finite reference gives exponentials of zero.
        let reference = best.eq(f64::NEG_INFINITY)?.choose(0.0, &best, best.dtype())?;
        let weights = scores.sub(&reference)?.exp()?;
        let sum = weights.sum(&[2])?;
        reference.add(&sum.log()?)?.copy_to(&p.rows(&lse.unsqueeze(3), block))?;
        // A row with every key masked stays zero.
        let divisor = sum.eq(0.0)?.choose(1.0, &sum, sum.dtype())?;
        let v = p.v.select(0, block.image);
        let rows = v.uninit(&[p.kv_heads, block.rows, v.shape()[2]], v.dtype())?;
        product(1.0, &p.drop(weights, block)?, &v, 0.0, &rows)?;
        apply(Pointwise::Div, &[(&rows).into(), (&divisor).into()], &p.rows(&out, block))
    })
}

/// Default body of [`AttentionBackward`](call::AttentionBackward).
pub fn attention_backward(c: &call::AttentionBackward<View>) -> Result<()> {
    let call::AttentionBackward { of: ref spec, out, lse, dout, dq, dk, dv } = *c;
    let p = Problem::new(spec)?;
    let lse = Array::dense(lse, &[p.batch, p.heads, p.l])?.unsqueeze(3);
    let (out, dout) = (Array::of(out).wide()?, Array::of(dout).wide()?);
    let (dq, dk, dv) = (Array::of(dq), Array::of(dk), Array::of(dv));
    if p.s == 0 {
        return dq.fill(0.0);
    }
    // Gradients of keys and values accumulate over blocks.
    let zeros = |like: &Array| like.full(like.shape(), p.q.dtype(), 0.0);
    let (dk_sum, dv_sum) = (zeros(&dk)?, zeros(&dv)?);
    p.each_block(|block| {
        let (q, k, v) = (p.rows(&p.q, block), p.k.select(0, block.image), p.v.select(0, block.image));
        let dout = p.rows(&dout, block);
        let lse = p.rows(&lse, block);
        // A query with every key masked has no probabilities: exp(-inf) = 0.
        let lse = lse.eq(f64::NEG_INFINITY)?.choose(f64::INFINITY, &lse, lse.dtype())?;
        let probabilities = p.scores(block)?.sub(&lse)?.exp()?;
        let dp = probabilities.uninit(probabilities.shape(), probabilities.dtype())?;
        product(1.0, &dout, &v.transpose(1, 2), 0.0, &dp)?;
        let delta = p.rows(&out, block).mul(&dout)?.sum(&[2])?;
        let ds = probabilities.mul(p.scale)?.mul(&p.drop(dp, block)?.sub(&delta)?)?;
        let weights = p.drop(probabilities, block)?;
        product(1.0, &weights.transpose(1, 2), &dout, 1.0, &dv_sum.select(0, block.image))?;
        product(1.0, &ds.transpose(1, 2), &q, 1.0, &dk_sum.select(0, block.image))?;
        let rows = q.uninit(q.shape(), q.dtype())?;
        product(1.0, &ds, &k, 0.0, &rows)?;
        rows.copy_to(&p.rows(&dq, block))
    })?;
    dk_sum.copy_to(&dk)?;
    dv_sum.copy_to(&dv)
}
