//! The Trainer: its loop against one written by hand, its options, its runs that are killed, its files.

mod logs;
mod loop_;
mod resume;
mod support;
