//! Transformers by their sizes.

/// A decoder-only transformer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// What it is called.
    pub name: &'static str,
    /// Number of blocks.
    pub layers: usize,
    /// Width.
    pub hidden: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Whether the feed-forward layer has a gate: three matrices instead of two.
    pub gated: bool,
    /// Whether the output layer is the embedding.
    pub tied: bool,
    /// Attention heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
}

/// Known models: Llama's sizes, GPT-3's, and Megatron's with 10¹² parameters.
pub const MODELS: &[Model] = &[
    llama("7b", 32, 4096, 11008, 32, 32, 32000, 4096),
    llama("8b", 32, 4096, 14336, 32, 8, 128256, 8192),
    llama("70b", 80, 8192, 28672, 64, 8, 32000, 4096),
    llama("405b", 126, 16384, 53248, 128, 8, 128256, 8192),
    gpt("1.5b", 48, 1600, 25, 1024),
    gpt("22b", 48, 6144, 48, 2048),
    gpt("175b", 96, 12288, 96, 2048),
    gpt("1t", 128, 25600, 160, 2048),
];

#[allow(clippy::too_many_arguments)]
const fn llama(
    name: &'static str,
    layers: usize,
    hidden: usize,
    ffn: usize,
    heads: usize,
    kv_heads: usize,
    vocabulary: usize,
    sequence: usize,
) -> Model {
    Model { name, layers, hidden, ffn, gated: true, tied: false, heads, kv_heads, vocabulary, sequence }
}

const fn gpt(name: &'static str, layers: usize, hidden: usize, heads: usize, sequence: usize) -> Model {
    let (ffn, vocabulary) = (4 * hidden, 51200);
    Model { name, layers, hidden, ffn, gated: false, tied: true, heads, kv_heads: heads, vocabulary, sequence }
}

impl Model {
    /// A known model by its name.
    pub fn named(name: &str) -> Option<Self> {
        MODELS.iter().find(|model| model.name.eq_ignore_ascii_case(name)).copied()
    }

    /// Parameters of a block.
    pub fn block(&self) -> f64 {
        let (h, f) = (self.hidden as f64, self.ffn as f64);
        let attention = 2.0 * h * h * (1.0 + self.kv_heads as f64 / self.heads as f64);
        attention + h * f * if self.gated { 3.0 } else { 2.0 } + 2.0 * h
    }

    /// Parameters of the embedding and the output layer.
    pub fn embeddings(&self) -> f64 {
        self.vocabulary as f64 * self.hidden as f64 * if self.tied { 1.0 } else { 2.0 }
    }

    /// All parameters.
    pub fn parameters(&self) -> f64 {
        self.block() * self.layers as f64 + self.embeddings()
    }

    /// Operations of a training step for one token: 6 for each parameter of a product, and causal attention.
    pub fn operations(&self) -> f64 {
        let products = self.block() * self.layers as f64 + (self.vocabulary * self.hidden) as f64;
        6.0 * products + 6.0 * (self.layers * self.hidden * self.sequence) as f64
    }
}
