//! Llama, with the parameter names of Hugging Face's `LlamaForCausalLM`.

use super::generation::{CausalModel, Generate, KvCache, causal_attention};
use crate::{Embedding, Forward, Linear, Module, ModuleList, RMSNorm, RopeScaling, RotaryEmbedding, init, locate};
use rushlight_core::{Error, Result};
use rushlight_tensor::{AttentionOptions, Options, Tensor};

/// A decoder-only transformer with rotary positions, RMS norms, gated feed-forward layers and grouped queries. State
/// dicts of Hugging Face's Llama models load without conversion.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, models::{Generate, Llama}};
/// use rushlight::Tensor;
/// let llama = Llama::builder(65)
///     .hidden_size(16)
///     .intermediate_size(32)
///     .num_hidden_layers(2)
///     .num_attention_heads(4)
///     .num_key_value_heads(2)
///     .build()?;
/// let tokens = Tensor::new([[1, 2, 3]])?;
/// assert_eq!(llama.forward(&tokens)?.shape(), [1, 3, 65]);
/// assert_eq!(llama.generate(&tokens, &Generate::new(4))?.shape(), [1, 7]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
pub struct Llama {
    model: Body,
    lm_head: Linear,
}

#[derive(Module)]
struct Body {
    embed_tokens: Embedding,
    layers: ModuleList<DecoderLayer>,
    norm: RMSNorm,
    rotary_emb: RotaryEmbedding,
}

#[derive(Module)]
struct DecoderLayer {
    self_attn: Attention,
    mlp: Mlp,
    input_layernorm: RMSNorm,
    post_attention_layernorm: RMSNorm,
}

#[derive(Module)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    head_dim: usize,
}

#[derive(Module)]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

/// A layer's number and the cache, if tokens follow others.
type Cached<'a> = Option<(usize, &'a mut KvCache)>;

impl Attention {
    fn run(&self, x: &Tensor, rope: &RotaryEmbedding, start: usize, cached: Cached) -> Result<Tensor> {
        locate(self, || {
            let &[batch, length, _] = x.shape() else {
                return Err(Error::shape(format!("Llama: attention takes [batch, length, size], got {:?}", x.shape())));
            };
            let heads = |projection: &Linear| {
                let count = projection.weight.shape()[0] / self.head_dim;
                projection.forward(x)?.reshape([batch, length, count, self.head_dim])?.transpose(1, 2)
            };
            let q = rope.forward(&heads(&self.q_proj)?, start)?;
            let (mut k, mut v) = (rope.forward(&heads(&self.k_proj)?, start)?, heads(&self.v_proj)?);
            if let Some((layer, cache)) = cached {
                (k, v) = cache.append(layer, &k, &v, rope.max_positions())?;
            }
            let grouped = q.shape()[1] != k.shape()[1];
            let y = causal_attention(&q, &k, &v, AttentionOptions::default().enable_gqa(grouped))?;
            self.o_proj.forward(&y.transpose(1, 2)?.reshape([batch as isize, length as isize, -1])?)
        })
    }
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        locate(self, || {
            let gated = self.gate_proj.forward(x)?.silu()? * self.up_proj.forward(x)?;
            self.down_proj.forward(&gated.eval()?)
        })
    }
}

impl DecoderLayer {
    fn run(&self, x: &Tensor, rope: &RotaryEmbedding, start: usize, cached: Cached) -> Result<Tensor> {
        locate(self, || {
            let x = x.add(&self.self_attn.run(&self.input_layernorm.forward(x)?, rope, start, cached)?)?;
            x.add(&self.mlp.forward(&self.post_attention_layernorm.forward(&x)?)?)
        })
    }
}

/// The options of a [`Llama`], under the names of Hugging Face's `LlamaConfig`; the defaults are Llama 2's with 7
/// billion parameters.
#[derive(Clone, Debug)]
pub struct LlamaBuilder {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: usize,
    rms_norm_eps: f64,
    rope_theta: f64,
    rope_scaling: Option<RopeScaling>,
    attention_bias: bool,
    mlp_bias: bool,
    tie_word_embeddings: bool,
    initializer_range: f64,
    options: Options,
}

crate::factory_options!(LlamaBuilder);

impl LlamaBuilder {
    rushlight_core::setters! {
        /// Size of a token's vector, 4096 by default.
        hidden_size: usize;
        /// Size inside the feed-forward layers, 11008 by default.
        intermediate_size: usize;
        /// Number of layers, 32 by default.
        num_hidden_layers: usize;
        /// Heads of the queries, 32 by default.
        num_attention_heads: usize;
        /// Heads of the keys and values, each serving several heads of the queries; as many as the queries by default.
        num_key_value_heads: into Option<usize>;
        /// Features of a head; `hidden_size / num_attention_heads` by default.
        head_dim: into Option<usize>;
        /// Longest sequence, 2048 by default.
        max_position_embeddings: usize;
        /// Epsilon of the norms, added to the mean square; 1e-6 by default.
        rms_norm_eps: f64;
        /// Base of the rotary frequencies, 10000 by default.
        rope_theta: f64;
        /// Changed rotary frequencies for long contexts; none by default.
        rope_scaling: into Option<RopeScaling>;
        /// Whether attention's projections have biases; not by default.
        attention_bias: bool;
        /// Whether the feed-forward layers have biases; not by default.
        mlp_bias: bool;
        /// Whether tokens are read and predicted by the same weights; not by default.
        tie_word_embeddings: bool;
        /// Standard deviation of the initial weights, 0.02 by default.
        initializer_range: f64;
    }

    /// Makes the model, with Hugging Face's initial values.
    pub fn build(self) -> Result<Llama> {
        let (hidden, heads) = (self.hidden_size, self.num_attention_heads);
        let kv_heads = self.num_key_value_heads.unwrap_or(heads);
        if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(Error::value(format!(
                "Llama: num_attention_heads {heads} must be a multiple of num_key_value_heads {kv_heads}"
            )));
        }
        if self.head_dim.is_none() && !hidden.is_multiple_of(heads) {
            return Err(Error::value(format!(
                "Llama: hidden_size {hidden} must be a multiple of num_attention_heads {heads}; or set head_dim"
            )));
        }
        if self.vocab_size == 0 || hidden == 0 || self.intermediate_size == 0 {
            return Err(Error::value("Llama: vocab_size, hidden_size and intermediate_size must be at least 1"));
        }
        let head_dim = self.head_dim.unwrap_or(hidden / heads);
        let linear =
            |from: usize, to: usize, bias: bool| Linear::builder(from, to).bias(bias).options(self.options).build();
        let norm = || RMSNorm::builder([hidden]).eps(self.rms_norm_eps).options(self.options).build();
        let layer = || -> Result<DecoderLayer> {
            Ok(DecoderLayer {
                self_attn: Attention {
                    q_proj: linear(hidden, heads * head_dim, self.attention_bias)?,
                    k_proj: linear(hidden, kv_heads * head_dim, self.attention_bias)?,
                    v_proj: linear(hidden, kv_heads * head_dim, self.attention_bias)?,
                    o_proj: linear(heads * head_dim, hidden, self.attention_bias)?,
                    head_dim,
                },
                mlp: Mlp {
                    gate_proj: linear(hidden, self.intermediate_size, self.mlp_bias)?,
                    up_proj: linear(hidden, self.intermediate_size, self.mlp_bias)?,
                    down_proj: linear(self.intermediate_size, hidden, self.mlp_bias)?,
                },
                input_layernorm: norm()?,
                post_attention_layernorm: norm()?,
            })
        };
        let model = Body {
            embed_tokens: Embedding::builder(self.vocab_size, hidden).options(self.options).build()?,
            layers: (0..self.num_hidden_layers).map(|_| layer()).collect::<Result<_>>()?,
            norm: norm()?,
            rotary_emb: RotaryEmbedding::builder(head_dim, self.max_position_embeddings)
                .base(self.rope_theta)
                .scaling(self.rope_scaling)
                .options(self.options)
                .build()?,
        };
        let mut lm_head = linear(hidden, self.vocab_size, false)?;
        if self.tie_word_embeddings {
            lm_head.weight = model.embed_tokens.weight.tie();
        }
        let llama = Llama { model, lm_head };
        for (name, p) in llama.named_parameters() {
            if p.rank() == 2 {
                init::normal_(&p, 0.0, self.initializer_range)?;
            } else if name.ends_with(".bias") {
                init::zeros_(&p)?;
            }
        }
        Ok(llama)
    }
}

impl Llama {
    /// A model over `vocab_size` tokens.
    pub fn new(vocab_size: usize) -> Result<Self> {
        Self::builder(vocab_size).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](LlamaBuilder::build).
    pub fn builder(vocab_size: usize) -> LlamaBuilder {
        LlamaBuilder {
            vocab_size,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope_theta: 10000.0,
            rope_scaling: None,
            attention_bias: false,
            mlp_bias: false,
            tie_word_embeddings: false,
            initializer_range: 0.02,
            options: Options::default(),
        }
    }

    /// The longest sequence it takes.
    pub fn max_position_embeddings(&self) -> usize {
        self.model.rotary_emb.max_positions()
    }

    /// Weights of matrix products, which weight decay should shrink, and all other parameters, which it should not.
    pub fn decay_groups(&self) -> (Vec<Tensor>, Vec<Tensor>) {
        let named = self.named_parameters().into_iter();
        let (decayed, others): (Vec<_>, Vec<_>) =
            named.partition(|(name, p)| p.rank() == 2 && !name.contains("embed_tokens"));
        let tensors = |named: Vec<(String, Tensor)>| named.into_iter().map(|(_, p)| p).collect();
        (tensors(decayed), tensors(others))
    }

    /// Continues `tokens` (`[batch, length]`, `int64`), one token at a time; returns the input with the new tokens
    /// after it.
    pub fn generate(&self, tokens: &Tensor, options: &Generate) -> Result<Tensor> {
        options.run(self, tokens)
    }

    /// Logits `[batch, length, vocab_size]` for tokens that follow those in the cache, which they join. For use under
    /// `no_grad`.
    pub fn forward_cached(&self, tokens: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        self.run(tokens, Some(cache))
    }

    fn run(&self, tokens: &Tensor, mut cache: Option<&mut KvCache>) -> Result<Tensor> {
        locate(self, || {
            let start = cache.as_ref().map_or(0, |cache| cache.len());
            let longest = self.max_position_embeddings();
            if !matches!(tokens.shape(), [_, length] if start + length <= longest) {
                return Err(Error::shape(format!(
                    "Llama: takes tokens of shape [batch, length] with length at most {longest}, got {:?} after {start} tokens",
                    tokens.shape()
                )));
            }
            let body = &self.model;
            let mut x = body.embed_tokens.forward(tokens)?;
            for (i, layer) in body.layers.iter().enumerate() {
                x = layer.run(&x, &body.rotary_emb, start, cache.as_deref_mut().map(|cache| (i, cache)))?;
            }
            self.lm_head.forward(&body.norm.forward(&x)?)
        })
    }
}

impl CausalModel for Llama {
    fn context(&self) -> usize {
        self.max_position_embeddings()
    }

    fn forward_cached(&self, tokens: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        self.run(tokens, Some(cache))
    }
}

impl Forward for Llama {
    /// Logits `[batch, length, vocab_size]` for tokens `[batch, length]`.
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.run(tokens, None)
    }
}
