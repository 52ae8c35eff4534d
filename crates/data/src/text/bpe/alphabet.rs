//! GPT-2's letters for bytes: every byte is written as a visible character.

use std::collections::HashMap;

/// Both directions of the mapping.
pub(super) struct Alphabet {
    letters: [char; 256],
    bytes: HashMap<char, u8>,
}

impl Alphabet {
    /// Visible Latin-1 characters map to themselves, the other bytes to the characters from 256 on.
    pub(super) fn new() -> Self {
        let mut letters = ['\0'; 256];
        let mut next = 256u32;
        for (byte, letter) in (0u8..=255).zip(&mut letters) {
            *letter = match byte {
                b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
                _ => {
                    next += 1;
                    char::from_u32(next - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
                }
            };
        }
        let bytes = letters.iter().zip(0u8..=255).map(|(&c, b)| (c, b)).collect();
        Self { letters, bytes }
    }

    /// The bytes that a name encodes. A name with other characters, which only added tokens have, encodes itself.
    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let bytes: Option<Vec<u8>> = name.chars().map(|c| self.bytes.get(&c).copied()).collect();
        bytes.unwrap_or_else(|| name.as_bytes().to_vec())
    }

    /// The name of bytes.
    pub(super) fn name(&self, bytes: &[u8]) -> String {
        bytes.iter().map(|&b| self.letters[usize::from(b)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_letters() {
        let alphabet = Alphabet::new();
        // As they appear in GPT-2's vocabulary: space, newline, tab, no-break space, soft hyphen.
        assert_eq!(alphabet.name(b" \n\t\xa0\xad"), "ĠĊĉłŃ");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(alphabet.bytes(&alphabet.name(&all)), all);
    }
}
