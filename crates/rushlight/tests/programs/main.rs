//! Whole programs against PyTorch: their losses, and models and optimizers that change hands by files.

mod exchange;
#[cfg(target_os = "linux")]
mod ranks;
mod training;
