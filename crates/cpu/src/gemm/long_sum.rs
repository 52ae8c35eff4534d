//! Products with a small result and a long sum: K is cut into pieces.

use super::buffer::{Use, with_buffer};
use super::driver::{Shared, serial};
use super::kernel::{Acc, Kernel, Task};
use super::problem::Problem;
use super::scalar::Accumulator;
use crate::pool;

/// K is cut into pieces of at least this many when the result is too small to share out.
const PIECE: usize = 4096;
/// And into at most this many pieces.
const PIECES: usize = 128;

/// Whether the product is a long sum into a small result.
pub(super) fn is_long_and_thin<K: Kernel>(p: &Problem<K::Elem>) -> bool {
    p.k >= 4 * PIECE && p.m.div_ceil(K::MR) * p.n.div_ceil(K::NR) <= 64
}

/// A product with small C and large K: pieces of K in parallel, then their sums in order.
///
/// # Safety
/// The pointers of the problem are valid and the machine has the kernel's features.
pub(super) unsafe fn over_k<K: Kernel>(p: &Problem<K::Elem>) {
    let depth = p.k.div_ceil(PIECES).max(PIECE);
    let pieces = p.k.div_ceil(depth);
    let size = p.m * p.n;
    with_buffer(Use::Partials, pieces * size, |partials: *mut Acc<K>| {
        let partials = Shared(partials);
        pool::parallel_for(pieces, |t| {
            let k0 = t * depth;
            let piece = p.over(k0, depth.min(p.k - k0));
            // SAFETY: the piece is inside A and B, and each writes its own sums.
            unsafe { serial::<K>(&piece, Some(partials.get().add(t * size))) };
        });
        let rows = SumRows::<K> { problem: p, partials: partials.get(), pieces };
        // SAFETY: all partial sums are written.
        unsafe { K::enter(rows) };
    });
}

/// Adds the partial sums of `over_k` and finishes C.
struct SumRows<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    partials: *mut Acc<K>,
    pieces: usize,
}

impl<K: Kernel> Task for SumRows<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = self.problem;
        for i in 0..p.m {
            // SAFETY: every piece has m × n sums.
            unsafe {
                let total = std::slice::from_raw_parts_mut(self.partials.add(i * p.n), p.n);
                for piece in 1..self.pieces {
                    let more = std::slice::from_raw_parts(self.partials.add((piece * p.m + i) * p.n), p.n);
                    total.iter_mut().zip(more).for_each(|(t, v)| *t = t.plus(*v));
                }
                p.finish_row::<K>(i, 0, total);
            }
        }
    }
}
