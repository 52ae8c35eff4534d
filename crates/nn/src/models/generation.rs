//! Generation of tokens: sampling, and the cache of keys and values that makes each step cost one token.

use rushlight_core::{DType, Error, Result, setters};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{AttentionOptions, Tensor};

/// The keys and values of the tokens a model has seen, layer by layer, so that the next token costs one position and
/// not all.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, Module, models::{Gpt, KvCache}};
/// use rushlight::{Tensor, autograd::no_grad};
/// let gpt = Gpt::builder(65).n_layer(2).n_head(2).n_embd(16).block_size(8).build()?;
/// let tokens = Tensor::new([[1, 2, 3]])?;
/// let mut cache = KvCache::new();
/// let logits = no_grad(|| {
///     gpt.forward_cached(&tokens.narrow(1, 0, 2)?, &mut cache)?;
///     gpt.forward_cached(&tokens.narrow(1, 2, 1)?, &mut cache)
/// })?;
/// assert_eq!(cache.len(), 3);
/// assert!(logits.allclose(&gpt.forward(&tokens)?.narrow(1, 2, 1)?, 1e-4, 1e-5)?);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Default)]
pub struct KvCache {
    layers: Vec<LayerCache>,
}

/// One layer's keys and values, `[batch, heads, capacity, size]`, of which the first `length` positions are filled.
#[derive(Default)]
struct LayerCache {
    kept: Option<[Tensor; 2]>,
    length: usize,
}

impl KvCache {
    /// An empty cache for any model.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of tokens seen.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.length)
    }

    /// Whether no token has been seen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens and keeps the memory for the next ones of the same shape.
    pub fn clear(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.length = 0);
    }

    /// Appends a layer's keys and values `[batch, heads, length, size]` and returns those of all tokens so far.
    /// `capacity` is the longest sequence of the model.
    pub fn append(
        &mut self,
        layer: usize,
        keys: &Tensor,
        values: &Tensor,
        capacity: usize,
    ) -> Result<(Tensor, Tensor)> {
        if keys.requires_grad() || values.requires_grad() {
            return Err(Error::autograd(
                "KvCache: keys and values are kept without their history; run the model under no_grad",
            ));
        }
        if keys.rank() != 4 || keys.shape()[..3] != values.shape()[..3.min(values.rank())] {
            return Err(Error::shape(format!(
                "KvCache: takes keys and values of shape [batch, heads, length, size], got {:?} and {:?}",
                keys.shape(),
                values.shape()
            )));
        }
        if self.layers.len() <= layer {
            self.layers.resize_with(layer + 1, LayerCache::default);
        }
        let cache = &mut self.layers[layer];
        let new = keys.shape()[2];
        let end = cache.length + new;
        if end > capacity {
            return Err(Error::index(format!(
                "KvCache: {end} tokens exceed the model's longest sequence of {capacity}"
            )));
        }
        let fits = |kept: &[Tensor; 2]| {
            kept.iter().zip([keys, values]).all(|(kept, new)| {
                let (k, n) = (kept.shape(), new.shape());
                (k[0], k[1], k[3], kept.dtype(), kept.device()) == (n[0], n[1], n[3], new.dtype(), new.device())
            })
        };
        if let Some(kept) = &cache.kept
            && !fits(kept)
        {
            if cache.length > 0 {
                return Err(Error::shape(format!(
                    "KvCache: holds {} tokens of shape {:?}, got {:?}; clear it before another batch",
                    cache.length,
                    kept[0].shape(),
                    keys.shape()
                )));
            }
            cache.kept = None;
        }
        let room = cache.kept.as_ref().map_or(0, |kept| kept[0].shape()[2]);
        if end > room {
            // Twice the room each time, so that a token costs the same on average however long the sequence gets.
            let room = (2 * room).max(end).max(64).min(capacity);
            let grown = |i: usize, like: &Tensor| -> Result<Tensor> {
                let &[batch, heads, _, size] = like.shape() else {
                    return Err(Error::shape("KvCache: four dimensions"));
                };
                let fresh = Tensor::zeros_with([batch, heads, room, size], (like.dtype(), like.device()))?;
                if let Some(kept) = &cache.kept {
                    fresh.narrow(2, 0, cache.length)?.copy_(&kept[i].narrow(2, 0, cache.length)?)?;
                }
                Ok(fresh)
            };
            cache.kept = Some([grown(0, keys)?, grown(1, values)?]);
        }
        let Some([all_keys, all_values]) = &cache.kept else { return Err(Error::value("KvCache: no memory was made")) };
        for (all, new_part) in [(all_keys, keys), (all_values, values)] {
            all.narrow(2, cache.length as isize, new)?.copy_(new_part)?;
        }
        cache.length = end;
        Ok((all_keys.narrow(2, 0, end)?, all_values.narrow(2, 0, end)?))
    }
}

/// Causal attention of queries to keys that may begin before them: query `i` sees the keys up to its own position.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::{AttentionOptions, Tensor, nn::models::causal_attention};
/// let (q, k, v) = (Tensor::randn([1, 2, 1, 8])?, Tensor::randn([1, 2, 5, 8])?, Tensor::randn([1, 2, 5, 8])?);
/// assert_eq!(causal_attention(&q, &k, &v, AttentionOptions::default())?.shape(), [1, 2, 1, 8]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn causal_attention(q: &Tensor, k: &Tensor, v: &Tensor, options: AttentionOptions) -> Result<Tensor> {
    let (queries, keys) = (q.size(-2)?, k.size(-2)?);
    if queries == keys {
        return q.scaled_dot_product_attention(k, v, &options.is_causal(true));
    }
    if queries == 1 {
        return q.scaled_dot_product_attention(k, v, &options);
    }
    let mask = Tensor::ones_with([queries, keys], (DType::Bool, q.device()))?.tril((keys - queries) as i64)?;
    q.scaled_dot_product_attention(k, v, &options.attn_mask(&mask))
}

/// A model of tokens that [`Generate`] can run: any of one's own, as well as [`Gpt`](super::Gpt) and
/// [`Llama`](super::Llama).
///
/// ```
/// # mod rushlight { pub use rushlight_core::*; pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::models::{CausalModel, Generate, KvCache};
/// use rushlight::nn::{Embedding, Forward};
/// use rushlight::{Result, Tensor};
///
/// /// The next token depends on the last one alone: there is nothing to keep.
/// struct Bigram(Embedding);
///
/// impl CausalModel for Bigram {
///     fn context(&self) -> usize {
///         64
///     }
///     fn forward_cached(&self, tokens: &Tensor, _: &mut KvCache) -> Result<Tensor> {
///         self.0.forward(tokens)
///     }
/// }
///
/// let model = Bigram(Embedding::new(10, 10)?);
/// let text = Generate::new(5).temperature(0.8).run(&model, &Tensor::new([[1, 2]])?)?;
/// assert_eq!(text.shape(), [1, 7]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait CausalModel {
    /// The longest sequence.
    fn context(&self) -> usize;
    /// Logits `[batch, length, vocab_size]` of tokens that follow those in the cache, which they join by
    /// [`KvCache::append`]. A model that keeps nothing there sees the whole sequence each time.
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KvCache) -> Result<Tensor>;
}

/// How tokens are chosen: `generate` of [`Gpt`](super::Gpt) and [`Llama`](super::Llama) takes it, and
/// [`run`](Generate::run) takes any [`CausalModel`].
#[derive(Clone, Debug)]
pub struct Generate {
    max_new_tokens: usize,
    temperature: f64,
    top_k: Option<usize>,
    top_p: Option<f64>,
    do_sample: bool,
    use_cache: bool,
}

impl Generate {
    /// Appends `max_new_tokens`, drawn by their probabilities.
    pub fn new(max_new_tokens: usize) -> Self {
        Self { max_new_tokens, temperature: 1.0, top_k: None, top_p: None, do_sample: true, use_cache: true }
    }

    setters! {
        /// Divides the logits: below 1 likelier tokens gain, above 1 they lose.
        temperature: f64;
        /// Draws from the `k` likeliest tokens alone.
        top_k: into Option<usize>;
        /// Draws from the fewest likeliest tokens whose probabilities sum up to `p`.
        top_p: into Option<f64>;
        /// Draws tokens (the default), or takes the likeliest each time.
        do_sample: bool;
        /// Whether keys and values of earlier tokens are kept (the default) or recomputed for each token.
        use_cache: bool;
    }

    fn check(&self, tokens: &Tensor) -> Result<()> {
        if tokens.rank() != 2 || tokens.numel() == 0 {
            return Err(Error::shape(format!(
                "generate: takes [batch, length] with at least one token, got {:?}",
                tokens.shape()
            )));
        }
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            return Err(Error::value(format!("generate: temperature must be positive, got {}", self.temperature)));
        }
        if self.top_k == Some(0) {
            return Err(Error::value("generate: top_k must be at least 1"));
        }
        if self.top_p.is_some_and(|p| !(p > 0.0 && p <= 1.0)) {
            return Err(Error::value(format!("generate: top_p must be above 0 and at most 1, got {:?}", self.top_p)));
        }
        Ok(())
    }

    /// The input with the new tokens after it. A sequence longer than the model's context is seen through a window of
    /// its last tokens, whose positions change with every token, so nothing can be cached then.
    pub fn run(&self, model: &dyn CausalModel, tokens: &Tensor) -> Result<Tensor> {
        self.check(tokens)?;
        no_grad(|| {
            let (mut tokens, mut cache, context) = (tokens.clone(), KvCache::new(), model.context());
            for _ in 0..self.max_new_tokens {
                let length = tokens.shape()[1];
                let logits = if self.use_cache && length <= context {
                    let seen = cache.len();
                    model.forward_cached(&tokens.narrow(1, seen as isize, length - seen)?, &mut cache)?
                } else {
                    let window = tokens.narrow(1, length.saturating_sub(context) as isize, length.min(context))?;
                    model.forward_cached(&window, &mut KvCache::new())?
                };
                tokens = Tensor::cat(&[&tokens, &self.choose(&logits.select(1, -1)?)?], 1)?;
            }
            Ok(tokens)
        })
    }

    /// The next tokens, `[batch, 1]`, from logits `[batch, vocab_size]`.
    fn choose(&self, logits: &Tensor) -> Result<Tensor> {
        if !self.do_sample {
            return logits.argmax_dim(-1, true);
        }
        let logits = logits.div(self.temperature)?;
        let k = self.top_k.unwrap_or(usize::MAX).min(logits.size(-1)?);
        let (best, tokens) = logits.topk(k, -1, true)?;
        let mut probabilities = best.softmax(-1)?;
        if let Some(p) = self.top_p {
            // Sorted, likeliest first: a token is left out if those before it are enough.
            let before = (probabilities.cumsum(-1)? - &probabilities).eval()?;
            probabilities = probabilities.masked_fill(&before.ge(p)?, 0.0)?;
        }
        tokens.gather(-1, &probabilities.multinomial(1, false)?)
    }
}
