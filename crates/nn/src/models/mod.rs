//! Whole models, with the parameter names of the PyTorch code they are known from.

mod generation;
mod gpt;
mod llama;
mod resnet;

pub use generation::{CausalModel, Generate, KvCache, causal_attention};
pub use gpt::{Gpt, GptBuilder};
pub use llama::{Llama, LlamaBuilder};
pub use resnet::{BasicBlock, ResNet, ResNetBuilder, resnet18, resnet18_cifar, resnet34};
