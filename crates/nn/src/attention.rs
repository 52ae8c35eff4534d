//! Multi-head attention.

use crate::{
    Field, Forward, Linear, Member, MemberMut, Memo, Module, Parameter, Training, factory_options, init, locate,
};
use rushlight_core::{DType, Error, Result, setters};
use rushlight_tensor::{AttentionOptions, Options, PadMode, Tensor, cat};

/// Attention by several heads at once, each over its own part of the projected features.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{MultiheadAttention, MultiheadAttentionOptions};
/// use rushlight::Tensor;
/// let attention = MultiheadAttention::builder(8, 2).batch_first(true).build()?;
/// let x = Tensor::ones([3, 5, 8])?;
/// let (y, weights) = attention.forward(&x, &x, &x, &MultiheadAttentionOptions::default())?;
/// assert_eq!(y.shape(), [3, 5, 8]);
/// assert_eq!(weights.unwrap().shape(), [3, 5, 5]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
pub struct MultiheadAttention {
    /// The weights that make queries, keys and values.
    pub in_proj: InProjection,
    /// `[3 * embed_dim]`: the biases of queries, keys and values.
    pub in_proj_bias: Option<Parameter>,
    /// A key behind those given, `[1, 1, embed_dim]`.
    pub bias_k: Option<Parameter>,
    /// The value of that key.
    pub bias_v: Option<Parameter>,
    /// From the heads' outputs to the layer's.
    pub out_proj: Linear,
    embed_dim: usize,
    num_heads: usize,
    kdim: usize,
    vdim: usize,
    dropout: f64,
    add_zero_attn: bool,
    batch_first: bool,
    training: Training,
}

/// The weights that make queries, keys and values.
pub enum InProjection {
    /// `in_proj_weight`: `[3 * embed_dim, embed_dim]`, when keys and values have `embed_dim` features.
    Packed(Parameter),
    /// `q_proj_weight`, `k_proj_weight` and `v_proj_weight`: `[embed_dim, features]` of queries, keys and values.
    Separate([Parameter; 3]),
}

const SEPARATE: [&str; 3] = ["q_proj_weight", "k_proj_weight", "v_proj_weight"];

impl Field for InProjection {
    fn visit<'a>(&'a self, name: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        match self {
            InProjection::Packed(weight) => weight.visit(&format!("{name}_weight"), visit),
            InProjection::Separate(weights) => weights.iter().zip(SEPARATE).for_each(|(w, name)| w.visit(name, visit)),
        }
    }

    fn visit_mut<'a>(&'a mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        match self {
            InProjection::Packed(weight) => weight.visit_mut(&format!("{name}_weight"), visit),
            InProjection::Separate(weights) => {
                weights.iter_mut().zip(SEPARATE).for_each(|(w, name)| w.visit_mut(name, visit));
            }
        }
    }

    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
        Ok(match self {
            InProjection::Packed(weight) => InProjection::Packed(weight.deepcopy_field(memo)?),
            InProjection::Separate(weights) => InProjection::Separate(weights.deepcopy_field(memo)?),
        })
    }
}

/// The options of a [`MultiheadAttention`].
#[derive(Clone, Debug)]
pub struct MultiheadAttentionBuilder {
    embed_dim: usize,
    num_heads: usize,
    dropout: f64,
    bias: bool,
    add_bias_kv: bool,
    add_zero_attn: bool,
    kdim: Option<usize>,
    vdim: Option<usize>,
    batch_first: bool,
    options: Options,
}

/// The optional arguments of [`MultiheadAttention::forward`].
#[derive(Clone, Copy)]
pub struct MultiheadAttentionOptions<'a> {
    key_padding_mask: Option<&'a Tensor>,
    attn_mask: Option<&'a Tensor>,
    is_causal: bool,
    need_weights: bool,
    average_attn_weights: bool,
}

impl Default for MultiheadAttentionOptions<'_> {
    fn default() -> Self {
        Self {
            key_padding_mask: None,
            attn_mask: None,
            is_causal: false,
            need_weights: true,
            average_attn_weights: true,
        }
    }
}

impl<'a> MultiheadAttentionOptions<'a> {
    setters! {
        /// `[batch, keys]`: true hides a key from all queries; a float is added to its scores.
        key_padding_mask: into Option<&'a Tensor>;
        /// `[queries, keys]`, or `[batch * num_heads, queries, keys]`: true hides a key from a query; a float is added
        /// to the score.
        attn_mask: into Option<&'a Tensor>;
        /// Whether query `i` sees keys `0..=i` only. An `attn_mask` given as well must agree with it, and the
        /// faster kernel does not read it.
        is_causal: bool;
        /// Whether to return the attention weights too; true by default. They take memory for every query and key: pass
        /// `false` if you do not need them.
        need_weights: bool;
        /// Whether the weights are averaged over the heads, true by default.
        average_attn_weights: bool;
    }
}

impl MultiheadAttention {
    /// `num_heads` heads of `embed_dim / num_heads` features each.
    pub fn new(embed_dim: usize, num_heads: usize) -> Result<Self> {
        Self::builder(embed_dim, num_heads).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](MultiheadAttentionBuilder::build).
    pub fn builder(embed_dim: usize, num_heads: usize) -> MultiheadAttentionBuilder {
        MultiheadAttentionBuilder {
            embed_dim,
            num_heads,
            dropout: 0.0,
            bias: true,
            add_bias_kv: false,
            add_zero_attn: false,
            kdim: None,
            vdim: None,
            batch_first: false,
            options: Options::default(),
        }
    }

    /// The outputs for `query`, `[queries, batch, embed_dim]`, from `key` and `value`, `[keys, batch, features]`, and
    /// the attention weights, `[batch, queries, keys]` (`[batch, num_heads, queries, keys]` when not averaged). With
    /// `batch_first` the inputs and the output begin with the batch; without a batch dimension they are
    /// `[length, features]`.
    ///
    /// One tensor given as `query`, `key` and `value`, or as `key` and `value`, is projected in one product.
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: &MultiheadAttentionOptions,
    ) -> Result<(Tensor, Option<Tensor>)> {
        locate(self, || {
            let unbatched = self.check(query, key, value)?;
            let batch_first = self.batch_first || unbatched;
            let lifted = |t: &Tensor| if unbatched { t.unsqueeze(0) } else { Ok(t.clone()) };
            let query_lifted = lifted(query)?;
            let key_lifted = if key.is_same(query) { query_lifted.clone() } else { lifted(key)? };
            let value_lifted = if value.is_same(key) { key_lifted.clone() } else { lifted(value)? };
            // Heads as views of the projections: `[batch, heads, length, size]`.
            let order: [isize; 4] = if batch_first { [0, 2, 1, 3] } else { [1, 2, 0, 3] };
            let projected = self.project(&query_lifted, &key_lifted, &value_lifted)?;
            let heads = |i: usize| projected[i].permute(order);
            let (q, mut k, mut v) = (heads(0)?, heads(1)?, heads(2)?);
            let extra = usize::from(self.bias_k.is_some()) + usize::from(self.add_zero_attn);
            if extra > 0 {
                k = self.with_extra(&k, self.bias_k.as_ref())?;
                v = self.with_extra(&v, self.bias_v.as_ref())?;
            }
            let causal = options.is_causal && options.key_padding_mask.is_none() && !options.need_weights && extra == 0;
            let mask = if causal { None } else { self.mask(options, &q, k.shape()[2] - extra, extra, unbatched)? };
            let dropout = if self.training.get() { self.dropout } else { 0.0 };
            let (heads, weights) = if options.need_weights {
                let (heads, weights) = attend(&q, &k, &v, mask.as_ref(), dropout)?;
                (heads, Some(weights))
            } else {
                let visible = match mask {
                    Some(m) if m.dtype() == DType::Bool => Some(m.logical_not()?),
                    other => other,
                };
                let options =
                    AttentionOptions::default().attn_mask(visible.as_ref()).dropout_p(dropout).is_causal(causal);
                (q.scaled_dot_product_attention(&k, &v, &options)?, None)
            };
            let merged = heads.permute(if batch_first { &[0, 2, 1, 3] } else { &[2, 0, 1, 3] })?;
            let out = self.out_proj.forward(&merged.flatten(2, 3)?)?;
            let weights = match weights {
                Some(w) if options.average_attn_weights => Some(w.mean(1)?),
                other => other,
            };
            if !unbatched {
                return Ok((out, weights));
            }
            Ok((out.squeeze(0)?, weights.map(|w| w.squeeze(0)).transpose()?))
        })
    }

    /// Whether the inputs lack a batch dimension; an error unless they fit the layer and each other.
    fn check(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<bool> {
        let wrong = |what: String| {
            Err(Error::shape(format!(
                "multi_head_attention: {what}; got query {:?}, key {:?}, value {:?}",
                query.shape(),
                key.shape(),
                value.shape()
            )))
        };
        if !matches!(query.rank(), 2 | 3) || key.rank() != query.rank() || value.rank() != query.rank() {
            return wrong("expected inputs of 3 dimensions, or all of 2 without a batch".into());
        }
        let rank = query.rank();
        for (what, t, features) in
            [("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)]
        {
            if t.shape()[rank - 1] != features {
                return wrong(format!("was expecting {features} features of {what}"));
            }
        }
        if key.shape()[..rank - 1] != value.shape()[..rank - 1] {
            return wrong("key and value must have the same length and batch size".into());
        }
        let batch = |t: &Tensor| t.shape()[usize::from(!self.batch_first)];
        if rank == 3 && batch(query) != batch(key) {
            return wrong("query and key must have the same batch size".into());
        }
        Ok(rank == 2)
    }

    /// Queries, keys and values, their last dimension split into heads: `[.., .., heads, size]`. As few products as the
    /// inputs allow.
    fn project(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Vec<Tensor>> {
        let (e, heads) = (self.embed_dim, self.num_heads);
        // Splitting the heads and not the features lets the gradients join in one copy.
        let projected = |x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, count: usize| -> Result<Vec<Tensor>> {
            let joined = x.linear(weight, bias)?.unflatten(-1, [count * heads, e / heads])?;
            if count == 1 { Ok(vec![joined]) } else { joined.split(heads, 2) }
        };
        let parts = |t: Option<&Tensor>, sizes: &[usize]| -> Result<Vec<Option<Tensor>>> {
            match t {
                Some(t) => Ok(t.split_with_sizes(sizes, 0)?.into_iter().map(Some).collect()),
                None => Ok(vec![None; sizes.len()]),
            }
        };
        let bias = self.in_proj_bias.as_deref();
        match &self.in_proj {
            InProjection::Packed(weight) if query.is_same(key) && key.is_same(value) => {
                projected(query, weight, bias, 3)
            }
            InProjection::Packed(weight) if key.is_same(value) => {
                let (weights, biases) = (weight.split_with_sizes(&[e, 2 * e], 0)?, parts(bias, &[e, 2 * e])?);
                let mut found = projected(query, &weights[0], biases[0].as_ref(), 1)?;
                found.extend(projected(key, &weights[1], biases[1].as_ref(), 2)?);
                Ok(found)
            }
            in_proj => {
                let weights = match in_proj {
                    InProjection::Packed(weight) => weight.split(e, 0)?,
                    InProjection::Separate(weights) => weights.iter().map(|w| w.tensor().clone()).collect(),
                };
                let biases = parts(bias, &[e; 3])?;
                let mut found = Vec::with_capacity(3);
                for ((x, weight), bias) in [query, key, value].into_iter().zip(&weights).zip(&biases) {
                    found.extend(projected(x, weight, bias.as_ref(), 1)?);
                }
                Ok(found)
            }
        }
    }

    /// Keys or values, `[batch, heads, length, size]`, with the learned one and the zero behind them.
    fn with_extra(&self, t: &Tensor, learned: Option<&Parameter>) -> Result<Tensor> {
        let (batch, size) = (t.shape()[0], t.shape()[3]);
        let one = [batch, self.num_heads, 1, size];
        let mut parts = vec![t.clone()];
        if let Some(p) = learned {
            parts.push(p.reshape([1, self.num_heads, 1, size])?.expand(one)?);
        }
        if self.add_zero_attn {
            parts.push(Tensor::zeros_with(one, (t.dtype(), t.device()))?);
        }
        cat(&parts.iter().collect::<Vec<_>>(), 2)
    }

    /// All masks as one that broadcasts to `[batch, heads, queries, keys]`: true hides, a float is added. `extra` keys
    /// more than the masks know of are visible.
    fn mask(
        &self,
        options: &MultiheadAttentionOptions,
        q: &Tensor,
        keys: usize,
        extra: usize,
        unbatched: bool,
    ) -> Result<Option<Tensor>> {
        let (batch, queries) = (q.shape()[0], q.shape()[2]);
        let wrong = |what: &str, mask: &Tensor, wanted: String| {
            Err(Error::shape(format!("multi_head_attention: {what} must have shape {wanted}, got {:?}", mask.shape())))
        };
        for (what, mask) in [("attn_mask", options.attn_mask), ("key_padding_mask", options.key_padding_mask)] {
            if let Some(m) = mask
                && m.dtype() != DType::Bool
                && !m.is_floating_point()
            {
                return Err(Error::dtype(format!(
                    "multi_head_attention: only bool and floating types of {what} are supported, got {}",
                    m.dtype()
                )));
            }
        }
        let attn = match options.attn_mask {
            Some(m) if m.shape() == [queries, keys] => Some(m.clone()),
            Some(m) if m.shape() == [batch * self.num_heads, queries, keys] => {
                Some(m.reshape([batch, self.num_heads, queries, keys])?)
            }
            Some(m) => {
                let full = [batch * self.num_heads, queries, keys];
                return wrong("attn_mask", m, format!("{:?} or {full:?}", [queries, keys]));
            }
            None if options.is_causal => Some(Tensor::ones_with([queries, keys], (DType::Bool, q.device()))?.triu(1)?),
            None => None,
        };
        let padding = match options.key_padding_mask {
            Some(m) if m.shape() == [batch, keys] || (unbatched && m.shape() == [keys]) => {
                Some(m.reshape([batch, 1, 1, keys])?)
            }
            Some(m) if unbatched => return wrong("key_padding_mask", m, format!("{:?}", [keys])),
            Some(m) => return wrong("key_padding_mask", m, format!("{:?}", [batch, keys])),
            None => None,
        };
        let added = |m: &Tensor| match m.dtype() {
            DType::Bool => Tensor::zeros_with(m.shape(), (q.dtype(), q.device()))?.masked_fill(m, f64::NEG_INFINITY),
            _ => m.to_dtype(q.dtype()),
        };
        let mask = match (attn, padding) {
            (Some(a), Some(p)) if a.dtype() == DType::Bool && p.dtype() == DType::Bool => a.logical_or(&p)?,
            (Some(a), Some(p)) => added(&a)?.add(&added(&p)?)?,
            (Some(m), None) | (None, Some(m)) => m,
            (None, None) => return Ok(None),
        };
        Ok(Some(if extra > 0 { mask.pad(&[0, extra as isize], PadMode::default())? } else { mask }))
    }
}

/// Attention with its weights, `[batch, heads, queries, keys]`.
fn attend(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, dropout: f64) -> Result<(Tensor, Tensor)> {
    let scale = 1.0 / (q.shape()[3] as f64).sqrt();
    let scores = q.mul(scale)?.matmul(&k.transpose(-2, -1)?)?;
    let scores = match mask {
        Some(m) if m.dtype() == DType::Bool => scores.masked_fill(m, f64::NEG_INFINITY)?,
        Some(m) => scores.add(&m.to_dtype(q.dtype())?)?,
        None => scores,
    };
    let weights = scores.softmax(-1)?.dropout(dropout, true)?;
    Ok((weights.matmul(v)?, weights))
}

factory_options!(MultiheadAttentionBuilder);

impl MultiheadAttentionBuilder {
    setters! {
        /// The probability of dropping an attention weight while training.
        dropout: f64;
        /// Whether the projections have biases, true by default.
        bias: bool;
        /// Whether to learn one more key and value.
        add_bias_kv: bool;
        /// Whether to add a key and a value of zeros.
        add_zero_attn: bool;
        /// The features of keys, `embed_dim` by default.
        kdim: into Option<usize>;
        /// The features of values, `embed_dim` by default.
        vdim: into Option<usize>;
        /// Whether inputs begin with the batch, then the length.
        batch_first: bool;
    }

    /// Makes the layer, with PyTorch's initial values.
    pub fn build(self) -> Result<MultiheadAttention> {
        let (e, heads) = (self.embed_dim, self.num_heads);
        if e == 0 || heads == 0 || !e.is_multiple_of(heads) {
            return Err(Error::value(format!(
                "MultiheadAttention: embed_dim must be divisible by num_heads and both greater than 0, got embed_dim={e} and num_heads={heads}"
            )));
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return Err(Error::value(format!(
                "MultiheadAttention: dropout probability has to be between 0 and 1, but got {}",
                self.dropout
            )));
        }
        let packed = e.checked_mul(3).ok_or_else(|| Error::value("MultiheadAttention: embed_dim is too large"))?;
        let (kdim, vdim) = (self.kdim.unwrap_or(e), self.vdim.unwrap_or(e));
        let weight = |rows: usize, columns: usize| -> Result<Parameter> {
            let weight = Parameter::new(&Tensor::empty_with([rows, columns], self.options)?)?;
            init::xavier_uniform_(&weight, 1.0)?;
            Ok(weight)
        };
        let in_proj = if (kdim, vdim) == (e, e) {
            InProjection::Packed(weight(packed, e)?)
        } else {
            InProjection::Separate([weight(e, e)?, weight(e, kdim)?, weight(e, vdim)?])
        };
        let in_proj_bias =
            self.bias.then(|| Parameter::new(&Tensor::zeros_with([packed], self.options)?)).transpose()?;
        let out_proj = Linear::builder(e, e).bias(self.bias).options(self.options).build()?;
        if let Some(bias) = &out_proj.bias {
            init::zeros_(bias)?;
        }
        let learned = || -> Result<Option<Parameter>> {
            if !self.add_bias_kv {
                return Ok(None);
            }
            let p = Parameter::new(&Tensor::empty_with([1, 1, e], self.options)?)?;
            init::xavier_normal_(&p, 1.0)?;
            Ok(Some(p))
        };
        Ok(MultiheadAttention {
            in_proj,
            in_proj_bias,
            bias_k: learned()?,
            bias_v: learned()?,
            out_proj,
            embed_dim: e,
            num_heads: heads,
            kdim,
            vdim,
            dropout: self.dropout,
            add_zero_attn: self.add_zero_attn,
            batch_first: self.batch_first,
            training: Training::default(),
        })
    }
}
