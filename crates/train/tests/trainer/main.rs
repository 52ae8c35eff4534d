//! The Trainer: its loop against a handwritten one, its options, killed runs, its files.

mod callbacks;
mod logs;
mod loop_;
#[cfg(target_os = "linux")]
mod ranks;
mod resume;
mod support;
mod tune;
