//! The Trainer: its loop against one written by hand, its options, its runs that are killed, its files.

mod callbacks;
mod logs;
mod loop_;
#[cfg(target_os = "linux")]
mod ranks;
mod resume;
mod support;
mod tune;
