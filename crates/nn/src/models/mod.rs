//! Whole models, with the parameter names of the PyTorch code they are known from.

mod gpt;
mod resnet;

pub use gpt::{Generate, Gpt, GptBuilder};
pub use resnet::{BasicBlock, ResNet, ResNetBuilder, resnet18, resnet18_cifar, resnet34};
