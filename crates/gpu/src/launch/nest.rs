//! Loop nests in kernel form: merged dimensions, innermost first, with multipliers for fast division.

use rushlight_core::smallvec::SmallVec;
use rushlight_core::{Error, Result};

/// Maximum loops of a kernel after merging.
pub const MAX_RANK: usize = 10;

/// The loop nest over `N` operands; matches `Nest` in `prelude.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Nest<const N: usize> {
    pub rank: u32,
    magic: [u32; MAX_RANK],
    shift: [u32; MAX_RANK],
    pub shape: [u64; MAX_RANK],
    pub strides: [[i64; MAX_RANK]; N],
}

/// One loop: its size and the operands' strides.
type Loop<const N: usize> = (usize, [usize; N]);
/// Loops, outermost first.
pub type Loops<const N: usize> = SmallVec<[Loop<N>; 8]>;

/// The loops of a shape, without those of size one.
pub fn loops<const N: usize>(shape: &[usize], strides: [&[usize]; N]) -> Loops<N> {
    (0..shape.len())
        .filter(|&d| shape[d] != 1)
        .map(|d| (shape[d], std::array::from_fn(|k| strides[k].get(d).copied().unwrap_or(0))))
        .collect()
}

/// Sorts loops by the first operand's memory order, for ops that may visit elements in any order. The first operand's
/// strides are distinct unless it overlaps itself.
pub fn in_memory_order<const N: usize>(mut loops: Loops<N>) -> Loops<N> {
    loops.sort_by_key(|l| std::cmp::Reverse(l.1));
    loops
}

/// Merges neighbouring loops wherever every operand allows it.
pub fn merged<const N: usize>(loops: &Loops<N>) -> Loops<N> {
    let mut out: Loops<N> = SmallVec::new();
    for &(size, strides) in loops {
        match out.last_mut() {
            Some(last) if (0..N).all(|k| last.1[k] == strides[k].saturating_mul(size)) => {
                last.0 *= size;
                last.1 = strides;
            }
            _ => out.push((size, strides)),
        }
    }
    if out.is_empty() {
        out.push((1, [0; N]));
    }
    out
}

/// Multiplier and shift for a division by `d`: `n / d = (high(n * magic) + n) >> shift` for all `n < 2^31`.
fn division(d: u64) -> (u32, u32) {
    let d = d.clamp(1, 1 << 31);
    let shift = 64 - (d - 1).leading_zeros();
    let magic = ((1u64 << 32) * ((1u64 << shift) - d)) / d + 1;
    (magic as u32, shift)
}

impl<const N: usize> Nest<N> {
    /// Builds the nest from merged loops, outermost first.
    pub fn new(loops: &Loops<N>) -> Result<Self> {
        if loops.len() > MAX_RANK {
            return Err(Error::unsupported(format!(
                "GPU kernels take up to {MAX_RANK} dimensions that cannot be merged, not {}; reshape the tensors to fewer, or use the CPU",
                loops.len()
            )));
        }
        let mut nest = Nest {
            rank: loops.len() as u32,
            magic: [0; MAX_RANK],
            shift: [0; MAX_RANK],
            shape: [1; MAX_RANK],
            strides: [[0; MAX_RANK]; N],
        };
        for (d, &(size, strides)) in loops.iter().rev().enumerate() {
            (nest.magic[d], nest.shift[d]) = division(size as u64);
            nest.shape[d] = size as u64;
            for k in 0..N {
                nest.strides[k][d] = strides[k] as i64;
            }
        }
        Ok(nest)
    }

    /// Positions in row-major order, merged if possible.
    pub fn row_major(shape: &[usize], strides: [&[usize]; N]) -> Result<Self> {
        Self::new(&merged(&loops(shape, strides)))
    }
}

/// Whether positions and offsets need more than 32 bits (31, as division needs one).
pub fn is_wide<const N: usize>(loops: &Loops<N>) -> bool {
    const MAX_OFFSET: usize = i32::MAX as usize;
    let numel = loops.iter().fold(1usize, |n, l| n.saturating_mul(l.0));
    // Positions overshoot the end by up to one block.
    numel > MAX_OFFSET - (1 << 20)
        || (0..N).any(|k| {
            loops.iter().fold(0usize, |n, l| n.saturating_add(l.0.saturating_sub(1).saturating_mul(l.1[k])))
                > MAX_OFFSET
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<const N: usize> Nest<N> {
        /// The offsets that a kernel computes.
        fn offsets(&self, mut i: u32) -> [i64; N] {
            let mut out = [0; N];
            for d in 0..self.rank as usize {
                let q = ((((i as u64 * self.magic[d] as u64) >> 32) + i as u64) >> self.shift[d]) as u32;
                let r = if d + 1 == self.rank as usize { i } else { i - q * self.shape[d] as u32 };
                for k in 0..N {
                    out[k] += r as i64 * self.strides[k][d];
                }
                i = q;
            }
            out
        }
    }

    #[test]
    fn divisions_are_exact() {
        for d in [1u64, 2, 3, 5, 7, 10, 64, 100, 641, 65_535, 65_536, 1_000_003, (1 << 30) + 1, (1 << 31) - 1] {
            let (magic, shift) = division(d);
            for n in [0u64, 1, d - 1, d, d + 1, 2 * d + 1, 12_345_678, (1 << 31) - 2, (1 << 31) - 1] {
                let n = n & 0x7FFF_FFFF;
                assert_eq!((((n * magic as u64) >> 32) + n) >> shift, n / d, "{n} / {d}");
            }
        }
    }

    #[test]
    fn offsets_follow_strides() {
        let nest = Nest::row_major(&[3, 4, 5], [&[20, 5, 1], &[1, 3, 12], &[0, 1, 0]]).unwrap();
        for i in 0..60u32 {
            let (a, b, c) = (i as i64 / 20, i as i64 / 5 % 4, i as i64 % 5);
            assert_eq!(nest.offsets(i), [i as i64, a + 3 * b + 12 * c, b]);
        }
    }

    #[test]
    fn loops_merge_in_memory_order() {
        // A transposed output with an input with the same transposition is one loop.
        let l = merged(&in_memory_order(loops(&[4, 6], [&[1, 4], &[1, 4]])));
        assert_eq!(l[..], [(24, [1, 1])]);
        let l = merged(&loops(&[4, 1, 6], [&[6, 77, 1], &[0, 3, 1]]));
        assert_eq!(l[..], [(4, [6, 0]), (6, [1, 1])]);
        assert_eq!(merged(&loops(&[], [&[]]))[..], [(1, [0])]);
        assert!(is_wide(&loops(&[1 << 16, 1 << 16], [&[1 << 16, 1]])));
        assert!(!is_wide(&loops(&[1 << 10, 1 << 16], [&[1 << 16, 1]])));
        assert!(Nest::row_major(&[2; 12], [&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]]).is_err());
    }
}
