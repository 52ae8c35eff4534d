//! Products with a small result and a long sum: K is split into pieces.

use super::buffer::{Use, with_buffer};
use super::driver::serial;
use super::kernel::{Acc, Kernel, Task, fma};
use super::problem::{Matrix, Problem};
use super::scalar::{Accumulator, Scalar};
use crate::pool;
use rushlight_core::sync::SendPtr;

/// Minimum length of a piece of K.
const PIECE: usize = 4096;
/// Maximum number of pieces.
const PIECES: usize = 128;

/// Results with at most this many rows and columns are computed as independent sums: they would leave most of a
/// kernel's tile empty.
const FEW: usize = 8;
/// Steps of K gathered at a time.
const STEPS: usize = 256;
/// Number of independent parts of each sum.
const LANES: usize = 16;

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
        let partials = SendPtr::new(partials);
        pool::parallel_for(pieces, |t| {
            let k0 = t * depth;
            let piece = p.over(k0, depth.min(p.k - k0));
            // SAFETY: the piece is inside A and B, and each writes its own sums.
            unsafe {
                let to = partials.get().add(t * size);
                match p.m <= FEW && p.n <= FEW {
                    // A constant condition: for other kernels nothing is compiled.
                    true if const { K::Elem::IS_ACC && <Acc<K> as Accumulator>::IS_FLOAT } => {
                        K::enter(FewSums::<K> { problem: &piece, to });
                    }
                    _ => serial::<K>(&piece, Some(to)),
                }
            };
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
                p.finish_long_row::<K>(i, 0, total);
            }
        }
    }
}

/// Rows of A, or columns of B, each along K.
type Gathered<K> = [[Acc<K>; STEPS]; FEW];

/// A small product of a piece of K.
struct FewSums<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    to: *mut Acc<K>,
}

impl<K: Kernel> Task for FewSums<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = self.problem;
        let (mut left, mut right): (Gathered<K>, Gathered<K>) =
            ([[Acc::<K>::ZERO; STEPS]; FEW], [[Acc::<K>::ZERO; STEPS]; FEW]);
        let mut sums = [[[Acc::<K>::ZERO; LANES]; FEW]; FEW];
        for start in (0..p.k).step_by(STEPS) {
            let steps = STEPS.min(p.k - start);
            // SAFETY: steps within the piece.
            unsafe {
                K::apart(Gather::<K> { from: p.a, count: p.m, start, steps, to: &mut left });
                K::apart(Gather::<K> { from: p.b.transposed(), count: p.n, start, steps, to: &mut right });
            }
            for (a, sums) in left.iter().zip(&mut sums).take(p.m) {
                for (b, sum) in right.iter().zip(sums).take(p.n) {
                    let mut lanes = *sum;
                    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)).take(steps.div_ceil(LANES)) {
                        for i in 0..LANES {
                            lanes[i] = fma::<K>(a[i], b[i], lanes[i]);
                        }
                    }
                    *sum = lanes;
                }
            }
        }
        for (i, row) in sums.iter().enumerate().take(p.m) {
            for (j, lanes) in row.iter().enumerate().take(p.n) {
                let total = lanes.iter().fold(Acc::<K>::ZERO, |sum, v| sum.plus(*v));
                // SAFETY: `to` has m × n places.
                unsafe { self.to.add(i * p.n + j).write(total) };
            }
        }
    }
}

/// Copies `count` rows of `from`, no more than [`FEW`], steps `start..start + steps`, padded with zeros to a whole
/// vector.
struct Gather<'a, K: Kernel> {
    from: Matrix<*const K::Elem>,
    count: usize,
    start: usize,
    steps: usize,
    to: &'a mut Gathered<K>,
}

impl<K: Kernel> Task for Gather<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let Self { from, count, start, steps, to } = self;
        // SAFETY: inside the matrix.
        unsafe {
            let at = from.ptr.offset(start as isize * from.col_stride);
            if from.row_stride == 1 && from.col_stride == count as isize {
                match count {
                    2 => split::<K, 2>(at, steps, to),
                    3 => split::<K, 3>(at, steps, to),
                    4 => split::<K, 4>(at, steps, to),
                    5 => split::<K, 5>(at, steps, to),
                    6 => split::<K, 6>(at, steps, to),
                    7 => split::<K, 7>(at, steps, to),
                    _ => split::<K, 8>(at, steps, to),
                }
            } else {
                for (i, row) in to.iter_mut().enumerate().take(count) {
                    let at = at.offset(i as isize * from.row_stride);
                    match from.col_stride {
                        1 => row.iter_mut().take(steps).enumerate().for_each(|(k, to)| *to = (*at.add(k)).widen()),
                        step => {
                            row.iter_mut()
                                .take(steps)
                                .enumerate()
                                .for_each(|(k, to)| *to = (*at.offset(k as isize * step)).widen());
                        }
                    }
                }
            }
        }
        for row in to.iter_mut().take(count) {
            row[steps..steps.next_multiple_of(LANES)].fill(Acc::<K>::ZERO);
        }
    }
}

/// Deinterleaves `C` rows.
///
/// # Safety
/// `steps` times `C` elements at `from`.
#[inline(always)]
unsafe fn split<K: Kernel, const C: usize>(from: *const K::Elem, steps: usize, to: &mut Gathered<K>) {
    for (c, row) in to.iter_mut().enumerate().take(C) {
        // SAFETY: the caller's.
        row.iter_mut().take(steps).enumerate().for_each(|(k, to)| *to = unsafe { *from.add(k * C + c) }.widen());
    }
}
