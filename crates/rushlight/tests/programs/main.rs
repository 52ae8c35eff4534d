//! Whole programs against PyTorch: their losses, and models and optimizers that change hands by files.

mod exchange;
mod training;
