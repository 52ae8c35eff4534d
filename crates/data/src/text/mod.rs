//! Text: tokenizers, and windows over tokens.

mod bpe;
mod simple;
mod split;
mod windows;

pub use bpe::Bpe;
pub use simple::{ByteTokenizer, CharTokenizer};
pub use split::split_words;
pub use windows::TokenWindows;

use rushlight_core::Result;

/// Text to numbers and back.
pub trait Tokenizer: Send + Sync {
    /// The tokens of a text.
    fn encode(&self, text: &str) -> Result<Vec<u32>>;
    /// The text of tokens. Bytes that are no UTF-8, as in the middle of a character, become the replacement character.
    fn decode(&self, tokens: &[u32]) -> Result<String>;
    /// How many tokens there are.
    fn vocab_size(&self) -> usize;
}
