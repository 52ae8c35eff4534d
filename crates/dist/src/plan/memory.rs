//! What a rank holds at the two moments of a step that need most, as measured on this engine
//! (`tests/planned_ranks.py`).

use super::model::Model;

/// The dtype of products and activations. Weights that are updated, gradients and moments are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Weights are gathered or cast to bf16.
    Bf16,
    /// All in f32.
    F32,
}

impl Precision {
    /// Bytes of an element.
    pub fn bytes(self) -> f64 {
        match self {
            Precision::Bf16 => 2.0,
            Precision::F32 => 4.0,
        }
    }

    /// A precision by its name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "bf16" => Some(Precision::Bf16),
            "f32" => Some(Precision::F32),
            _ => None,
        }
    }
}

/// What the parts of a split have to hold.
pub(super) struct Split {
    /// Parameters of a block, of the embeddings and the output layer, and of all that a rank trains.
    pub block: f64,
    pub ends: f64,
    pub own: f64,
    /// Sizes of the mesh.
    pub data: f64,
    pub tensor: f64,
    pub pipeline: f64,
    /// ZeRO's stage.
    pub zero: usize,
    pub microbatches: f64,
    /// Tokens of a microbatch.
    pub tokens: f64,
    pub recompute: bool,
    pub offload: bool,
    pub precision: Precision,
}

/// Bytes of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Weights, gradients and optimizer states.
    pub state: f64,
    /// Activations at the start of the backward pass.
    pub activations: f64,
    /// The most at any moment, without what is offloaded.
    pub peak: f64,
    /// What is offloaded.
    pub host: f64,
}

pub(super) fn memory(model: &Model, split: &Split) -> Memory {
    let c = split.precision.bytes();
    let Split { block, ends, own, data, tensor: t, pipeline, zero, microbatches, tokens, .. } = *split;
    let shards = if zero > 0 { data } else { 1.0 };
    // Weights and two moments, and gradients.
    let (fixed, gradients) = (12.0 * own / shards, 4.0 * own / shards);
    let is_cast = split.precision == Precision::Bf16;
    // Whole weights in the dtype of products: autocast's, those that stay, or those of the block that runs and the
    // next.
    let whole = match zero {
        0 if is_cast => c * own,
        0 => 0.0,
        1 | 2 => c * (own + 2.0 * block),
        _ => c * (ends + 2.0 * block),
    };

    // Of a block and a token: inputs and results of norms, q, k, v and the output, and the feed-forward layer.
    let (h, f, kv) = (model.hidden as f64, model.ffn as f64, model.kv_heads as f64 / model.heads as f64);
    let inputs = 2.0 * c * h;
    let rest = c * ((4.0 + 2.0 * kv) * h + if model.gated { 4.0 } else { 2.0 } * f) + 4.0 * model.heads as f64;
    // Under autocast the norms and the sums between blocks stay f32.
    let rest = if zero == 0 && is_cast { rest + 10.0 * h } else { rest };
    // Products that are split read the inputs of all positions.
    let one = tokens * (inputs + rest / t);
    let layers = (model.layers as f64) / pipeline;
    let kept = if split.recompute { layers * c * tokens * h / t } else { layers * one };
    let again = if split.recompute { one } else { 0.0 };
    // The scores or their copy in f32, the logarithms of probabilities, and in f32 the gradient beside both.
    let scores = (2.0 * c + 4.0) * tokens * model.vocabulary as f64 / t;
    // The first stage of a pipeline holds most microbatches, the last one and its scores.
    let held = pipeline.min(microbatches);
    let activations = if pipeline > 1.0 { (kept * held).max(kept + scores) + again } else { kept + scores + again };

    // Buckets of data parallelism keep their memory; other gradients are there from the first microbatch on.
    let early = if (zero == 0 && data > 1.0) || microbatches > 1.0 { gradients } else { 0.0 };
    let begin = fixed + early + whole + activations;
    // The gradients of the largest group on their way to their owners, beside those of the group before.
    let largest = ends.max(block);
    let sent = if zero > 0 { (4.0 + 3.0 * c) * largest + 4.0 * block } else { 0.0 };
    let end = fixed + gradients + if zero == 1 { c * own } else { 0.0 } + sent;
    let (peak, host) = (begin.max(end), fixed + gradients);
    let state = fixed + gradients + whole;
    if split.offload {
        let peak = (begin - fixed - early).max(end - fixed - gradients);
        return Memory { state: whole, activations, peak, host };
    }
    Memory { state, activations, peak, host: 0.0 }
}
