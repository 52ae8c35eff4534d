//! Changes of bytes by a fixed random stream.

use std::ops::Range;

/// A stream of numbers below a bound (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// Some changes of one kind: of the length, of any bytes, or of bytes in the part that describes the contents.
pub fn mutate(name: &str, bytes: &mut Vec<u8>, kind: usize, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let place = match kind {
            0 => {
                shift(bytes, random);
                continue;
            }
            1 => 0..bytes.len(),
            _ => header(name, bytes),
        };
        overwrite(bytes, place, random);
    }
}

/// A change within `place` that keeps all offsets: it passes the outer format.
fn overwrite(bytes: &mut [u8], place: Range<usize>, random: &mut Random) {
    let at = place.start + random.below(place.len());
    let room = place.end - at;
    match random.below(5) {
        _ if room == 0 => {}
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.below(256) as u8,
        2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        3 => {
            // A field with an extreme value.
            let width = [2, 4, 8][random.below(3)].min(room);
            let value = [0, u64::MAX, i64::MAX as u64, u64::from(u32::MAX), bytes.len() as u64][random.below(5)];
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        _ => {
            // A piece copied from elsewhere.
            let from = place.start + random.below(place.len());
            let n = (1 + random.below(32)).min(place.end - from).min(room);
            bytes.copy_within(from..from + n, at);
        }
    }
}

/// A change that makes the file longer or shorter.
fn shift(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(3) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => drop(bytes.remove(at)),
        _ => bytes.insert(at, random.below(256) as u8),
    }
}

/// The part of a file that describes its contents: the pickle, the header.
fn header(name: &str, bytes: &[u8]) -> Range<usize> {
    let field = |at: usize| bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let place = match name {
        "pt" => {
            let start = 30 + field(26) + field(28);
            let rest = bytes.get(start..).unwrap_or_default();
            start..start + rest.windows(2).position(|w| w == b"PK").unwrap_or(rest.len())
        }
        "safetensors" => 8..8 + field(0),
        "npy" => 6..10 + field(8),
        "npz" | "pickle" | "tokenizer" => 0..bytes.len(),
        _ => 0..64,
    };
    if place.end <= bytes.len() { place } else { 0..bytes.len() }
}
