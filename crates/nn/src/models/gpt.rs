//! GPT-2, with the parameter names of OpenAI's and Karpathy's code (linear weights as PyTorch's `nn.Linear` keeps
//! them).

use super::generation::{CausalModel, Generate, KvCache, causal_attention};
use crate::{Dropout, Embedding, Forward, LayerNorm, Linear, Module, ModuleList, Training, init, locate};
use rushlight_core::{Error, Result};
use rushlight_tensor::{AttentionOptions, Tensor};

/// A decoder-only transformer over tokens.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, Module, models::Gpt};
/// use rushlight::Tensor;
/// let gpt = Gpt::builder(65).n_layer(2).n_head(2).n_embd(16).block_size(8).build()?;
/// let tokens = Tensor::new([[1i64, 2, 3]])?;
/// assert_eq!(gpt.forward(&tokens)?.shape(), [1, 3, 65]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
pub struct Gpt {
    transformer: Body,
    lm_head: Linear,
    block_size: usize,
}

#[derive(Module)]
struct Body {
    wte: Embedding,
    wpe: Embedding,
    drop: Dropout,
    h: ModuleList<Block>,
    ln_f: LayerNorm,
}

/// Attention and a two-layer network, each after a norm and around a shortcut.
#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn: CausalSelfAttention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

#[derive(Module)]
struct CausalSelfAttention {
    c_attn: Linear,
    c_proj: Linear,
    resid_dropout: Dropout,
    n_head: usize,
    dropout: f64,
    training: Training,
}

#[derive(Module)]
struct Mlp {
    c_fc: Linear,
    c_proj: Linear,
    dropout: Dropout,
}

impl CausalSelfAttention {
    /// Attention to the tokens of `x`, or to those in the cache of layer `layer` as well.
    fn run(&self, x: &Tensor, cached: Option<(usize, &mut KvCache, usize)>) -> Result<Tensor> {
        locate(self, || {
            let &[batch, length, size] = x.shape() else {
                return Err(Error::shape(format!("Gpt: attention takes [batch, length, size], got {:?}", x.shape())));
            };
            let parts = self.c_attn.forward(x)?.split(size, 2)?;
            let heads = |i: usize| parts[i].reshape([batch, length, self.n_head, size / self.n_head])?.transpose(1, 2);
            let (q, mut k, mut v) = (heads(0)?, heads(1)?, heads(2)?);
            if let Some((layer, cache, capacity)) = cached {
                (k, v) = cache.append(layer, &k, &v, capacity)?;
            }
            let dropout = if self.training.get() { self.dropout } else { 0.0 };
            let y = causal_attention(&q, &k, &v, AttentionOptions::default().dropout_p(dropout))?;
            self.resid_dropout.forward(&self.c_proj.forward(&y.transpose(1, 2)?.reshape([batch, length, size])?)?)
        })
    }
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        locate(self, || {
            let y = match (&self.c_fc.bias, &self.c_proj.bias) {
                (Some(b1), Some(b2)) => x.feed_forward(&self.c_fc.weight, b1, &self.c_proj.weight, b2)?,
                _ => self.c_proj.forward(&self.c_fc.forward(x)?.gelu_tanh()?)?,
            };
            self.dropout.forward(&y)
        })
    }
}

impl Block {
    fn run(&self, x: &Tensor, cached: Option<(usize, &mut KvCache, usize)>) -> Result<Tensor> {
        locate(self, || {
            let x = x.add(&self.attn.run(&self.ln_1.forward(x)?, cached)?)?;
            x.add(&self.mlp.forward(&self.ln_2.forward(&x)?)?)
        })
    }
}

/// The options of a [`Gpt`]; the defaults are GPT-2's smallest.
#[derive(Clone, Debug)]
pub struct GptBuilder {
    vocab_size: usize,
    n_layer: usize,
    n_head: usize,
    n_embd: usize,
    block_size: usize,
    dropout: f64,
    tie_weights: bool,
}

impl GptBuilder {
    rushlight_core::setters! {
        /// Number of blocks, 12 by default.
        n_layer: usize;
        /// Attention heads of a block, 12 by default.
        n_head: usize;
        /// Size of a token's vector, 768 by default.
        n_embd: usize;
        /// Longest sequence, 1024 by default.
        block_size: usize;
        /// Probability of dropping, 0 by default.
        dropout: f64;
        /// Whether tokens are read and predicted by the same weights, as in GPT-2; not by default.
        tie_weights: bool;
    }

    /// Makes the model, with GPT-2's initial values.
    pub fn build(self) -> Result<Gpt> {
        let GptBuilder { vocab_size, n_layer, n_head, n_embd, block_size, dropout, tie_weights } = self;
        if n_head == 0 || n_embd == 0 || n_embd % n_head != 0 {
            return Err(Error::value(format!("Gpt: n_embd {n_embd} must be a multiple of n_head {n_head}")));
        }
        if vocab_size == 0 || block_size == 0 {
            return Err(Error::value("Gpt: vocab_size and block_size must be at least 1"));
        }
        let block = || -> Result<Block> {
            Ok(Block {
                ln_1: LayerNorm::new([n_embd])?,
                attn: CausalSelfAttention {
                    c_attn: Linear::new(n_embd, 3 * n_embd)?,
                    c_proj: Linear::new(n_embd, n_embd)?,
                    resid_dropout: Dropout::new(dropout)?,
                    n_head,
                    dropout,
                    training: Training::default(),
                },
                ln_2: LayerNorm::new([n_embd])?,
                mlp: Mlp {
                    c_fc: Linear::new(n_embd, 4 * n_embd)?,
                    c_proj: Linear::new(4 * n_embd, n_embd)?,
                    dropout: Dropout::new(dropout)?,
                },
            })
        };
        let transformer = Body {
            wte: Embedding::new(vocab_size, n_embd)?,
            wpe: Embedding::new(block_size, n_embd)?,
            drop: Dropout::new(dropout)?,
            h: (0..n_layer).map(|_| block()).collect::<Result<_>>()?,
            ln_f: LayerNorm::new([n_embd])?,
        };
        let mut lm_head = Linear::builder(n_embd, vocab_size).bias(false).build()?;
        if tie_weights {
            lm_head.weight = transformer.wte.weight.tie();
        }
        let gpt = Gpt { transformer, lm_head, block_size };
        gpt.initialise(n_layer)?;
        Ok(gpt)
    }
}

impl Gpt {
    /// A model over `vocab_size` tokens.
    pub fn new(vocab_size: usize) -> Result<Self> {
        Self::builder(vocab_size).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](GptBuilder::build).
    pub fn builder(vocab_size: usize) -> GptBuilder {
        GptBuilder {
            vocab_size,
            n_layer: 12,
            n_head: 12,
            n_embd: 768,
            block_size: 1024,
            dropout: 0.0,
            tie_weights: false,
        }
    }

    /// The longest sequence it takes.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    fn initialise(&self, n_layer: usize) -> Result<()> {
        for (name, p) in self.named_parameters() {
            if name.ends_with(".bias") {
                init::zeros_(&p)?;
            } else if name.ends_with("c_proj.weight") {
                // Two shortcuts are added per block: their sum keeps its size.
                init::normal_(&p, 0.0, 0.02 / (2.0 * n_layer as f64).sqrt())?;
            } else if p.rank() == 2 {
                init::normal_(&p, 0.0, 0.02)?;
            }
        }
        Ok(())
    }

    /// Weights of matrix products, which weight decay should shrink, and all other parameters, which it should not.
    pub fn decay_groups(&self) -> (Vec<Tensor>, Vec<Tensor>) {
        let (decayed, others): (Vec<_>, Vec<_>) = self
            .named_parameters()
            .into_iter()
            .partition(|(name, p)| p.rank() == 2 && !name.contains("wte") && !name.contains("wpe"));
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
            let length = match tokens.shape() {
                [_, length] if start + length <= self.block_size => *length,
                other => {
                    return Err(Error::shape(format!(
                        "Gpt: takes tokens of shape [batch, length] with length at most {}, got {other:?} after {start} tokens",
                        self.block_size
                    )));
                }
            };
            let body = &self.transformer;
            let positions = body.wpe.weight.narrow(0, start as isize, length)?;
            let mut x = body.drop.forward(&body.wte.forward(tokens)?.add(&positions)?)?;
            for (i, block) in body.h.iter().enumerate() {
                x = block.run(&x, cache.as_deref_mut().map(|cache| (i, cache, self.block_size)))?;
            }
            self.lm_head.forward(&body.ln_f.forward(&x)?)
        })
    }
}

impl CausalModel for Gpt {
    fn context(&self) -> usize {
        self.block_size
    }

    fn forward_cached(&self, tokens: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        self.run(tokens, Some(cache))
    }
}

impl Forward for Gpt {
    /// Logits `[batch, length, vocab_size]` for tokens `[batch, length]`.
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.run(tokens, None)
    }
}
