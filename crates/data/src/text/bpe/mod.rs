//! Byte-level byte-pair encoding, as GPT-2's.

mod alphabet;
mod files;
mod merge;
mod train;

use super::{Tokenizer, split_words};
use alphabet::Alphabet;
use merge::MergeTable;
use rushlight_core::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;

/// A byte-level byte-pair tokenizer: words are bytes whose commonest pairs are merged, so that every text can be
/// encoded and decoded without loss.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::text::{Bpe, Tokenizer};
/// let bpe = Bpe::train("low lower lowest low low", 260)?;
/// let tokens = bpe.encode("lower!")?;
/// assert_eq!(bpe.decode(&tokens)?, "lower!");
/// assert!(tokens.len() < 6);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bpe {
    /// The bytes of every token.
    bytes: HashMap<u32, Box<[u8]>>,
    /// Tokens by their name in `vocab.json`.
    names: HashMap<String, u32>,
    /// The token of every single byte, where there is one.
    base: [Option<u32>; 256],
    merges: MergeTable,
}

impl Bpe {
    /// A tokenizer from tokens by name, as in `vocab.json`, and pairs of names in the order they are merged.
    pub fn new<'a>(
        vocab: impl IntoIterator<Item = (String, u32)>,
        merges: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let alphabet = Alphabet::new();
        let mut bpe =
            Self { bytes: HashMap::new(), names: HashMap::new(), base: [None; 256], merges: MergeTable::default() };
        for (name, token) in vocab {
            let bytes = alphabet.bytes(&name);
            if let [byte] = bytes[..] {
                bpe.base[usize::from(byte)] = Some(token);
            }
            if bpe.bytes.insert(token, bytes.into()).is_some() {
                return Err(Error::value(format!("Bpe: two entries of the vocabulary have the number {token}")));
            }
            bpe.names.insert(name, token);
        }
        for (left, right) in merges {
            let token = |name: &str| {
                bpe.names.get(name).copied().ok_or_else(|| {
                    Error::value(format!(
                        "Bpe: the merge of '{left}' and '{right}' needs the token '{name}', which the vocabulary does not have"
                    ))
                })
            };
            let pair = (token(left)?, token(right)?);
            let merged = token(&format!("{left}{right}"))?;
            bpe.merges.push(pair, merged)?;
        }
        Ok(bpe)
    }

    /// The token of a name in the vocabulary, such as `<|endoftext|>`. Encoding never gives a token that merges do not
    /// lead to.
    pub fn token(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    fn encode_word(&self, word: &str, out: &mut Vec<u32>) -> Result<()> {
        let mut tokens = Vec::with_capacity(word.len());
        for byte in word.bytes() {
            tokens.push(self.base[usize::from(byte)].ok_or_else(|| {
                Error::value(format!("Bpe: the vocabulary has no token for the byte {byte:#04x} in {word:?}"))
            })?);
        }
        self.merges.apply(tokens, out);
        Ok(())
    }
}

impl Tokenizer for Bpe {
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        // Most words of a text come again: their tokens are copied from the first occurrence.
        let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
        for word in split_words(text) {
            match seen.get(word) {
                Some(range) => out.extend_from_within(range.clone()),
                None => {
                    let start = out.len();
                    self.encode_word(word, &mut out)?;
                    seen.insert(word, start..out.len());
                }
            }
        }
        Ok(out)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let mut bytes = Vec::new();
        for token in tokens {
            bytes.extend_from_slice(self.bytes.get(token).ok_or_else(|| {
                Error::value(format!("Bpe: token {token} is not in the vocabulary of {}", self.bytes.len()))
            })?);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn vocab_size(&self) -> usize {
        self.bytes.len()
    }
}
