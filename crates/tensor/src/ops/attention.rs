//! Scaled dot-product attention: a fused kernel that stores no scores, and the same as ops for second derivatives.

use super::compare::where_;
use super::norm::wide;
use crate::announce::announced;
use crate::autograd::{Saved, no_grad, record, recording};
use crate::capture::random_stream;
use crate::{Tensor, amp};
use rushlight_core::backend::{Attention, call};
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::rng::default_generator;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Layout, Philox, Result, setters};

/// The optional arguments of [`Tensor::scaled_dot_product_attention`].
#[derive(Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    attn_mask: Option<&'a Tensor>,
    dropout_p: f64,
    is_causal: bool,
    scale: Option<f64>,
    enable_gqa: bool,
}

impl<'a> AttentionOptions<'a> {
    setters! {
        /// A mask that broadcasts to `[.., queries, keys]`: `bool` (true takes part), or a float that is added to the
        /// scores.
        attn_mask: into Option<&'a Tensor>;
        /// The probability of dropping an attention weight; 0 by default. Applied whenever set: pass 0 in evaluation.
        dropout_p: f64;
        /// Whether query `i` sees keys `0..=i` only.
        is_causal: bool;
        /// The factor of the scores; `1 / sqrt(head size)` by default.
        scale: into Option<f64>;
        /// Whether keys and values may have fewer heads, each serving several neighbouring query heads.
        enable_gqa: bool;
    }
}

/// Options of attention.
#[derive(Clone, Copy)]
struct Plan {
    causal: bool,
    scale: f64,
    dropout: Option<(f64, Philox)>,
    /// Whether the operands had no batch: what counts as the batch here were their heads.
    unbatched: bool,
}

/// Operands as `[batch, heads, length, size]`.
struct Operands {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Option<Tensor>,
}

impl Operands {
    fn spec(&self, plan: &Plan) -> Attention<'_> {
        Attention {
            q: self.q.engine_view(),
            k: self.k.engine_view(),
            v: self.v.engine_view(),
            mask: self.mask.as_ref().map(|m| m.engine_view()),
            causal: plan.causal,
            scale: plan.scale,
            dropout: plan.dropout,
        }
    }

    /// Keys or values once per query head.
    fn per_query_head(&self, t: &Tensor) -> Result<Tensor> {
        let (heads, [batch, kv_heads, length, size]) = (self.q.shape()[1], four(t));
        if heads == kv_heads {
            return Ok(t.clone());
        }
        let group = heads / kv_heads;
        t.unsqueeze(2)?.expand([batch, kv_heads, group, length, size])?.reshape([batch, heads, length, size])
    }

    /// Attention weights before dropout, of recorded ops; `k` has a head per query head. A query that sees nothing has
    /// none.
    fn weights(&self, plan: &Plan, k: &Tensor) -> Result<Tensor> {
        let mut scores = self.q.mul(plan.scale)?.matmul(&k.transpose(-2, -1)?)?;
        let (l, s) = (scores.shape()[2], scores.shape()[3]);
        match &self.mask {
            Some(mask) if mask.dtype() == DType::Bool => scores = where_(mask, &scores, f64::NEG_INFINITY)?,
            Some(mask) => scores = scores.add(mask)?,
            None => {}
        }
        if plan.causal {
            let position = |n: usize| Tensor::arange_with(0, n, 1, (DType::I64, scores.device()));
            let visible = position(l)?.unsqueeze(1)?.ge(&position(s)?)?;
            scores = where_(&visible, &scores, f64::NEG_INFINITY)?;
        }
        if self.mask.is_none() && !plan.causal {
            return scores.softmax(-1);
        }
        let blind = no_grad(|| scores.eq(f64::NEG_INFINITY)?.all_dims([-1], true))?;
        scores.masked_fill(&blind, 0.0)?.softmax(-1)?.masked_fill(&blind, 0.0)
    }

    /// The output, of recorded ops.
    fn composed(&self, plan: &Plan) -> Result<Tensor> {
        let weights = self.weights(plan, &self.per_query_head(&self.k)?)?;
        dropped(&weights, plan)?.matmul(&self.per_query_head(&self.v)?)
    }

    /// The gradients by `q`, `k` and `v`, of recorded ops.
    fn composed_backward(&self, plan: &Plan, dout: &Tensor) -> Result<[Tensor; 3]> {
        let dtype = self.q.dtype();
        let widened = |t: &Tensor| t.to_dtype(wide(dtype));
        let mask = match &self.mask {
            Some(m) if m.dtype() != DType::Bool => Some(widened(m)?),
            other => other.clone(),
        };
        let this = Operands { q: widened(&self.q)?, k: widened(&self.k)?, v: widened(&self.v)?, mask };
        let dout = widened(dout)?;
        let (k, v) = (this.per_query_head(&this.k)?, this.per_query_head(&this.v)?);
        let weights = this.weights(plan, &k)?;
        let dv = dropped(&weights, plan)?.transpose(-2, -1)?.matmul(&dout)?;
        let dweights = dropped(&dout.matmul(&v.transpose(-2, -1)?)?, plan)?;
        let dscores = weights.mul(&dweights.sub(&weights.mul(&dweights)?.sum_dims([-1], true)?)?)?.mul(plan.scale)?;
        let dq = dscores.matmul(&k)?;
        let dk = dscores.transpose(-2, -1)?.matmul(&this.q)?;
        // A key head that served several query heads gets the sum of their gradients.
        let shared = |d: &Tensor, like: &Tensor| -> Result<Tensor> {
            let [batch, heads, length, size] = four(like);
            let group = self.q.shape()[1] / heads.max(1);
            d.reshape([batch, heads, group, length, size])?.sum(2)?.to_dtype(dtype)
        };
        Ok([dq.to_dtype(dtype)?, shared(&dk, &this.k)?, shared(&dv, &this.v)?])
    }

    /// Memory for the gradients: row-major by default. If the engine writes any strides and the inputs are slices of a
    /// joint projection of queries, keys and values, the gradients are slices of
    /// `[batch, length, 3, heads, size]`: merging heads and parts then needs no copy.
    fn gradients(&self) -> Result<[Tensor; 3]> {
        let (q, k, v) = (&self.q, &self.k, &self.v);
        let alike = q.shape() == k.shape() && q.shape() == v.shape();
        if !alike || q.is_contiguous() || !q.backend().features().strided_attention_gradients {
            let made = |t: &Tensor| t.uninit_like(t.shape(), t.dtype());
            return Ok([made(q)?, made(k)?, made(v)?]);
        }
        let [batch, heads, l, size] = four(q);
        let shape = [batch, l, 3, heads, size];
        let (memory, whole) = (q.uninit_like(&shape, q.dtype())?, Layout::contiguous(&shape)?);
        Ok(std::array::from_fn(|part| {
            let layout = whole.select(2, part).transpose(1, 2);
            Tensor::from_parts(memory.0.storage.clone(), layout, q.dtype(), Default::default())
        }))
    }

    /// The fused kernel, recorded.
    fn fused(self, plan: Plan) -> Result<Tensor> {
        let [batch, heads, l, _] = four(&self.q);
        let size = self.v.shape()[3];
        // The order of the queries. Those that models split off a projection have adjacent heads: merging the output's
        // needs no copy then.
        let memory = self.q.uninit_like(&[batch, l, heads, size], self.q.dtype())?;
        let layout = match self.q.is_contiguous() {
            true => Layout::contiguous(&[batch, heads, l, size])?,
            false => Layout::contiguous(&[batch, l, heads, size])?.transpose(1, 2),
        };
        let out = Tensor::from_parts(memory.0.storage.clone(), layout, memory.dtype(), Default::default());
        let lse = self.q.uninit_like(&[batch, heads, l], wide(self.q.dtype()))?;
        out.run(call::Attention { of: self.spec(&plan), out: out.engine_view(), lse: lse.engine_view() })?;
        let inputs = [&self.q, &self.k, &self.v];
        if recording(&inputs) {
            let [q, k, v] = inputs.map(Saved::input);
            let (mask, saved_out) = (self.mask.as_ref().map(Saved::input), Saved::output(&out, 0));
            record("scaled_dot_product_attention", &inputs, &out, move |ctx, dout| {
                let mask = mask.as_ref().map(|m| ctx.get(m)).transpose()?;
                let operands = Operands { q: ctx.get(&q)?, k: ctx.get(&k)?, v: ctx.get(&v)?, mask };
                if ctx.recording() {
                    let made = operands.composed_backward(&plan, dout)?;
                    return made.iter().map(|d| with_adjacent_heads(d, &plan).map(Some)).collect();
                }
                let out = ctx.get(&saved_out)?;
                // A gradient of another dtype would be misread.
                let dout = dout.to_dtype(out.dtype())?;
                let [dq, dk, dv] = operands.gradients()?;
                let spec = operands.spec(&plan);
                out.run(call::AttentionBackward {
                    of: spec,
                    out: out.engine_view(),
                    lse: lse.engine_view(),
                    dout: dout.engine_view(),
                    dq: dq.engine_view(),
                    dk: dk.engine_view(),
                    dv: dv.engine_view(),
                })?;
                Ok(smallvec![Some(dq), Some(dk), Some(dv)])
            })?;
        }
        Ok(out)
    }
}

/// The sizes of a four-dimensional tensor.
fn four(t: &Tensor) -> [usize; 4] {
    std::array::from_fn(|i| t.shape().get(i).copied().unwrap_or(1))
}

/// A gradient in the order of PyTorch's: `[batch, length, heads, size]`.
fn with_adjacent_heads(d: &Tensor, plan: &Plan) -> Result<Tensor> {
    match plan.unbatched {
        true => d.permute([2, 0, 1, 3])?.contiguous()?.permute([1, 2, 0, 3]),
        false => d.transpose(1, 2)?.contiguous()?.transpose(1, 2),
    }
}

fn dropped(weights: &Tensor, plan: &Plan) -> Result<Tensor> {
    plan.dropout.map_or(Ok(weights.clone()), |(p, stream)| weights.dropout_from(p, stream))
}

/// Leading dimensions made `[batch, heads]`: the last one counts heads.
fn fold(t: &Tensor, lead: &[usize]) -> Result<Tensor> {
    let rank = t.rank();
    let mut shape = Dims::from_slice(lead);
    shape.extend_from_slice(&t.shape()[rank - 2..]);
    let t = if shape[..] == *t.shape() { t.clone() } else { t.expand(&shape)? };
    let (&heads, batch) = match lead {
        [] | [_] => (&1, lead),
        [batch @ .., heads] => (heads, batch),
    };
    t.reshape([batch.iter().product(), heads, shape[shape.len() - 2], shape[shape.len() - 1]])
}

impl Tensor {
    /// `softmax(self @ key.T * scale + mask) @ value` over `[.., heads, length, size]`, without storing the scores.
    ///
    /// ```
    /// # use rushlight_tensor::{AttentionOptions, Tensor};
    /// let q = Tensor::ones([1, 2, 4, 8])?;
    /// let y = q.scaled_dot_product_attention(&q, &q, &AttentionOptions::default().is_causal(true))?;
    /// assert_eq!(y.shape(), [1, 2, 4, 8]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias("sdpa", "flash_attention"))]
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        options: &AttentionOptions,
    ) -> Result<Tensor> {
        let name = "scaled_dot_product_attention";
        if let Some(cast) = amp::lower() {
            let mask = cast.of_option(options.attn_mask)?;
            let options = options.attn_mask(mask.as_ref());
            return cast
                .run(|| cast.of(self)?.scaled_dot_product_attention(&cast.of(key)?, &cast.of(value)?, &options));
        }
        let AttentionOptions { attn_mask, dropout_p, is_causal, scale, enable_gqa } = *options;
        announced!(
            "nn.functional.scaled_dot_product_attention",
            [self, key, value, attn_mask, dropout_p, is_causal], scale = scale, enable_gqa = enable_gqa;
            self.scaled_dot_product_attention(key, value, options)
        );
        self.needs_float(name)?;
        for (what, t) in [("query", self), ("key", key), ("value", value)] {
            self.same_device(t, name)?;
            if t.dtype() != self.dtype() {
                return Err(Error::dtype(format!(
                    "{name}: expected query, key, and value to have the same dtype, but got query.dtype: {}, key.dtype: {}, and value.dtype: {} \
                     instead",
                    self.dtype(),
                    key.dtype(),
                    value.dtype()
                )));
            }
            if t.rank() < 2 {
                return Err(Error::shape(format!(
                    "{name}: expected {what} to have at least 2 dimensions, got shape {:?}",
                    t.shape()
                )));
            }
        }
        if options.attn_mask.is_some() && options.is_causal {
            return Err(Error::value(format!("{name}: explicit attn_mask should not be set when is_causal=True")));
        }
        if !(0.0..=1.0).contains(&options.dropout_p) {
            return Err(Error::value(format!(
                "{name}: dropout probability has to be between 0 and 1, but got {}",
                options.dropout_p
            )));
        }
        let ends = |t: &Tensor| [t.shape()[t.rank() - 2], t.shape()[t.rank() - 1]];
        let ([l, size], [s, key_size], [values, value_size]) = (ends(self), ends(key), ends(value));
        if size != key_size || s != values {
            return Err(Error::shape(format!(
                "{name}: query {:?} and key {:?} must have the same last size, key and value {:?} the same length",
                self.shape(),
                key.shape(),
                value.shape()
            )));
        }
        let (lead, kv_lead) = leads(name, self, key, value, options.enable_gqa)?;
        let mask = options.attn_mask.map(|mask| -> Result<Tensor> {
            self.same_device(mask, name)?;
            if !matches!(mask.dtype(), DType::Bool | DType::F32) && mask.dtype() != self.dtype() {
                return Err(Error::dtype(format!(
                    "{name}: expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {} and query.dtype: {} \
                     instead",
                    mask.dtype(),
                    self.dtype()
                )));
            }
            let mut shape = lead.clone();
            shape.extend_from_slice(&[l, s]);
            let mask = if mask.dtype() == DType::Bool { mask.clone() } else { mask.to_dtype(self.dtype())? };
            fold(&mask.expand(&shape).map_err(|e| e.within(name))?, &lead)
        });
        let operands = Operands {
            q: fold(self, &lead)?,
            k: fold(key, &kv_lead)?,
            v: fold(value, &kv_lead)?,
            mask: mask.transpose()?,
        };
        let words = operands.q.shape()[..3].iter().product::<usize>() as u64 * s as u64;
        let random = || random_stream(default_generator(), words, self.device());
        let dropout =
            (options.dropout_p > 0.0).then(|| random().map(|stream| (options.dropout_p, stream))).transpose()?;
        let scale = options.scale.unwrap_or(1.0 / (size as f64).sqrt());
        let plan = Plan { causal: options.is_causal, scale, dropout, unbatched: lead.len() == 1 };
        let mut shape = lead.clone();
        shape.extend_from_slice(&[l, value_size]);
        let mask_learns = operands.mask.as_ref().is_some_and(|m| recording(&[m]));
        let empty = [&operands.q, &operands.k, &operands.v].iter().any(|t| t.numel() == 0);
        let out = if mask_learns || empty || options.dropout_p == 1.0 {
            operands.composed(&plan)?
        } else {
            operands.fused(plan)?
        };
        out.reshape(&shape)
    }
}

/// The leading sizes of queries, and of keys and values, after broadcasting; they differ in the heads alone, where
/// allowed.
fn leads(name: &str, q: &Tensor, k: &Tensor, v: &Tensor, gqa: bool) -> Result<(Dims, Dims)> {
    let [q_lead, k_lead, v_lead] = [q, k, v].map(|t| &t.shape()[..t.rank() - 2]);
    let common = |a: &[usize], b: &[usize]| broadcast_shapes(a, b).map_err(|e| e.within(name));
    if !gqa {
        let lead = common(&common(q_lead, k_lead)?, v_lead)?;
        return Ok((lead.clone(), lead));
    }
    let ([q_batch @ .., heads], [k_batch @ .., k_heads], [v_batch @ .., v_heads]) = (q_lead, k_lead, v_lead) else {
        return Err(Error::shape(format!("{name}: enable_gqa needs query, key and value of at least 3 dimensions")));
    };
    if k_heads != v_heads || *k_heads == 0 || heads % k_heads != 0 {
        return Err(Error::shape(format!(
            "{name}: number of heads in key and value must divide the number of heads in query, but got key {k_heads}, value {v_heads} and query \
             {heads}"
        )));
    }
    let mut lead = common(&common(q_batch, k_batch)?, v_batch)?;
    let mut kv_lead = lead.clone();
    lead.push(*heads);
    kv_lead.push(*k_heads);
    Ok((lead, kv_lead))
}
