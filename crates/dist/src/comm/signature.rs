//! Signature of a collective call, which ranks compare to detect mismatches.

use sha2::{Digest, Sha256};

/// A collective with its dtype, shapes and other arguments that must be equal on all ranks.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Signature {
    hash: u64,
    /// The collective's number in its group, or 0 if unknown.
    pub(crate) number: u64,
    len: u16,
    text: [u8; TEXT],
}

/// Bytes of a description that are sent.
const TEXT: usize = 110;

impl Signature {
    /// Bytes on the wire.
    pub(crate) const BYTES: usize = size_of::<Signature>();

    /// Signature of a description that is equal on all ranks if they call the same. Long descriptions are truncated; a
    /// hash covers the whole.
    pub(crate) fn new(description: &str) -> Self {
        let hash = Sha256::digest(description.as_bytes());
        let mut end = description.len().min(TEXT);
        while !description.is_char_boundary(end) {
            end -= 1;
        }
        let mut text = [0; TEXT];
        text[..end].copy_from_slice(&description.as_bytes()[..end]);
        Self { hash: u64::from_le_bytes(hash[..8].try_into().unwrap_or_default()), number: 0, len: end as u16, text }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn matches(&self, other: &Signature) -> bool {
        self.hash == other.hash
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text[..(self.len as usize).min(TEXT)]).into_owned()
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.hash.to_le_bytes());
        out[8..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..18].copy_from_slice(&self.len.to_le_bytes());
        out[18..18 + TEXT].copy_from_slice(&self.text);
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut text = [0; TEXT];
        text.copy_from_slice(&bytes[18..18 + TEXT]);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        Self { hash: word(0), number: word(8), len: u16::from_le_bytes([bytes[16], bytes[17]]), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_survive_the_wire_and_compare_whole() {
        let long = "ü".repeat(100);
        let a = Signature { number: 7, ..Signature::new(&long) };
        let b = Signature::from_bytes(&a.to_bytes());
        assert!(a.matches(&b) && b.number == 7 && long.starts_with(&b.text()));
        assert!(!a.matches(&Signature::new(&(long + "x"))));
        // Arbitrary bytes from another process.
        assert_eq!(Signature::from_bytes(&[0xff; Signature::BYTES]).text().chars().count(), TEXT);
    }
}
