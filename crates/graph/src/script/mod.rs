//! Programs as text: parsing.

pub mod ast;
mod lex;
mod lifetimes;
pub mod parse;

pub use parse::{Definitions, parse};

/// A position on the stack, to measure its use from.
pub(crate) struct Stack(usize);

impl Stack {
    #[inline(never)]
    pub(crate) fn here() -> Self {
        let marker = 0u8;
        Self(std::ptr::from_ref(std::hint::black_box(&marker)).addr())
    }

    /// Bytes between that position and the caller's.
    pub(crate) fn used(&self) -> usize {
        self.0.abs_diff(Self::here().0)
    }
}
