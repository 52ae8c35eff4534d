//! Whole programs against PyTorch: their losses, and models and optimizers that change hands by files. Also the book's
//! pages.

mod book;
mod exchange;
#[cfg(target_os = "linux")]
mod ranks;
mod training;
