//! Tokens that are bytes or characters.

use super::Tokenizer;
use rushlight_core::{Error, Result};
use std::collections::HashMap;

/// Every byte of the UTF-8 text is a token.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteTokenizer;

impl ByteTokenizer {
    /// The tokenizer, which is also the value `ByteTokenizer`.
    pub fn new() -> Self {
        Self
    }
}

impl Tokenizer for ByteTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let bytes: Vec<u8> = tokens
            .iter()
            .map(|&t| u8::try_from(t).map_err(|_| Error::value(format!("ByteTokenizer: {t} is not a byte"))))
            .collect::<Result<_>>()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn vocab_size(&self) -> usize {
        256
    }
}

/// Character-level tokenizer over the characters of a text, in order of their code points.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::text::{CharTokenizer, Tokenizer};
/// let chars = CharTokenizer::new("hello");
/// assert_eq!(chars.vocab_size(), 4);
/// assert_eq!(chars.encode("hole")?, [1, 3, 2, 0]);
/// assert_eq!(chars.decode(&[1, 0])?, "he");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CharTokenizer {
    chars: Vec<char>,
    numbers: HashMap<char, u32>,
}

impl CharTokenizer {
    /// The characters of a text.
    pub fn new(text: &str) -> Self {
        let mut chars: Vec<char> = text.chars().collect();
        chars.sort_unstable();
        chars.dedup();
        // There are fewer characters than numbers.
        let numbers = chars.iter().zip(0u32..).map(|(&c, i)| (c, i)).collect();
        Self { chars, numbers }
    }

    /// The characters, by token.
    pub fn chars(&self) -> &[char] {
        &self.chars
    }
}

impl Tokenizer for CharTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let number = |c: char| {
            self.numbers.get(&c).copied().ok_or_else(|| {
                Error::value(format!(
                    "CharTokenizer: the character {c:?} is not in the text the tokenizer was made from"
                ))
            })
        };
        text.chars().map(number).collect()
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let char = |&t: &u32| {
            self.chars.get(t as usize).copied().ok_or_else(|| {
                Error::value(format!("CharTokenizer: token {t} is not below the vocabulary's {}", self.chars.len()))
            })
        };
        tokens.iter().map(char).collect()
    }

    fn vocab_size(&self) -> usize {
        self.chars.len()
    }
}
