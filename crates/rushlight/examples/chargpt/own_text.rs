//! This project's own documents and sources: a text that is always at hand.

/// All of it, file after file.
pub fn all() -> String {
    FILES.join("\n")
}

macro_rules! files {
    ($($path:literal)*) => {
        const FILES: &[&str] = &[$(include_str!(concat!("../../../../", $path))),*];
    };
}

files! {
    "README.md"
    "ARCHITECTURE.md"
    "crates/core/src/layout.rs"
    "crates/core/src/rng.rs"
    "crates/core/src/rows/num.rs"
    "crates/core/src/backend/mod.rs"
    "crates/core/src/backend/spec.rs"
    "crates/tensor/src/tensor.rs"
    "crates/tensor/src/state.rs"
    "crates/tensor/src/amp.rs"
    "crates/tensor/src/expr.rs"
    "crates/tensor/src/autograd/engine.rs"
    "crates/tensor/src/autograd/node.rs"
    "crates/tensor/src/ops/matmul.rs"
    "crates/tensor/src/ops/attention.rs"
    "crates/tensor/src/ops/conv.rs"
    "crates/tensor/src/ops/view.rs"
    "crates/tensor/src/ops/index.rs"
    "crates/tensor/src/ops/norm.rs"
    "crates/nn/src/module/mod.rs"
    "crates/nn/src/models/gpt.rs"
    "crates/train/src/checkpoint/mod.rs"
}
