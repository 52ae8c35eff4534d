//! The product kernel of all three passes: 32 × 32 sums in four tiles.

use crate::amx::sums;
use std::arch::asm;

/// Rows and columns of a block of sums: two tiles in each direction.
pub(super) const SIDE: usize = 32;
/// Rows of a tile.
pub(super) const ROWS: usize = 16;
/// Terms per step.
pub(super) const STEP: usize = 32;
/// Elements of a tile of either operand.
pub(super) const TILE: usize = 512;

/// Start of one segment of the contraction in both operands.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub a: usize,
    pub b: usize,
}

/// A block of sums.
///
/// The left operand is two tiles of 16 rows; a row holds its terms in order. The right one is, for every step of 32
/// terms, two tiles of 16 columns, each row a pair of terms of all columns. The result is two tiles of 16 rows, `SIDE`
/// columns wide.
pub(super) struct Block<'a> {
    pub a: [*const u16; 2],
    /// Row stride in elements.
    pub a_row: usize,
    pub b: *const u16,
    pub segments: &'a [Segment],
    /// Steps of every segment.
    pub steps: usize,
    pub c: [*mut f32; 2],
    pub c_row: usize,
    /// Whether to accumulate onto the result's contents.
    pub accumulate: bool,
}

impl Block<'_> {
    /// # Safety
    /// Runs under [`with_tiles`](crate::amx::with_tiles); all addresses the description names are valid, and `steps` is
    /// not zero.
    #[inline]
    pub(super) unsafe fn run(&self) {
        #[cfg(rushlight_exact_alloc)]
        // SAFETY: the caller's promise.
        unsafe {
            self.touch();
        }
        let row = size_of::<f32>() * self.c_row;
        // SAFETY: the caller's promise.
        unsafe {
            if self.accumulate {
                sums::load(self.c.map(|c| c.cast_const()), row);
            } else {
                sums::zero();
            }
            for segment in self.segments {
                asm!(
                    "2:",
                    "tileloadd tmm4, [{a0} + {a_row}*1]",
                    "tileloadd tmm6, [{b} + {row}*1]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{b} + {row}*1 + 1024]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{a1} + {a_row}*1]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {a0}, 64",
                    "add {a1}, 64",
                    "add {b}, 2048",
                    "dec {steps}",
                    "jnz 2b",
                    a0 = inout(reg) self.a[0].add(segment.a) => _, a1 = inout(reg) self.a[1].add(segment.a) => _,
                    b = inout(reg) self.b.add(segment.b) => _, a_row = in(reg) 2 * self.a_row, row = in(reg) 64usize,
                    steps = inout(reg) self.steps => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, readonly)
                );
            }
            sums::store(self.c, row);
        }
    }

    /// Performs the memory accesses of the tiles in Rust, because AddressSanitizer does not see into assembly.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[cfg(rushlight_exact_alloc)]
    unsafe fn touch(&self) {
        let read = |from: *const u16, len: usize| {
            // SAFETY: what the tiles read.
            (0..len).for_each(|i| unsafe {
                std::ptr::read_volatile(from.add(i));
            })
        };
        // SAFETY: what the tiles read and write.
        unsafe {
            for segment in self.segments {
                read(self.b.add(segment.b), 2 * TILE * self.steps);
                for row in 0..ROWS {
                    self.a.iter().for_each(|a| read(a.add(segment.a + row * self.a_row), STEP * self.steps));
                }
            }
            for (c, row) in self.c.iter().flat_map(|c| (0..ROWS).map(move |row| (c, row))) {
                for i in 0..SIDE {
                    let at = c.add(row * self.c_row + i);
                    std::ptr::write_volatile(at, std::ptr::read_volatile(at));
                }
            }
        }
    }
}
