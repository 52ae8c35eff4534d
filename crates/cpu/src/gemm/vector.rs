//! Products with a vector: one pass over the unpacked matrix, bound by memory.

use super::buffer::{Use, with_buffer};
use super::kernel::{Acc, Kernel, Task, fma};
use super::problem::Problem;
use super::scalar::{Accumulator, Scalar};
use crate::pool;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

/// Columns that a task accumulates together.
const COLUMNS: usize = 1024;
/// Minimum elements of B per task.
const TASK_ELEMENTS: usize = 1 << 16;

/// Computes a product with one row in A. K is split by the sizes alone and pieces are added in order, so the result
/// does not depend on the number of threads.
///
/// # Safety
/// The pointers of the problem are valid, m is 1, k is not 0, and the machine has the kernel's features.
pub(super) unsafe fn one_row<K: Kernel>(p: &Problem<K::Elem>) {
    let walk = if p.b.row_stride == 1 || p.b.col_stride != 1 { Walk::Columns } else { Walk::Rows };
    let (columns, depth) = match walk {
        // A long column is split only if there are too few columns for all threads.
        Walk::Columns if p.n >= 64 => ((TASK_ELEMENTS / p.k).clamp(1, COLUMNS), p.k),
        Walk::Columns => (1.max(TASK_ELEMENTS / p.k), TASK_ELEMENTS.min(p.k)),
        Walk::Rows => (COLUMNS.min(p.n), (4 * TASK_ELEMENTS / COLUMNS.min(p.n)).min(p.k)),
    };
    let (column_parts, pieces) = (p.n.div_ceil(columns), p.k.div_ceil(depth));
    with_buffer(Use::PackedA, p.k, |room| {
        with_buffer(Use::Partials, pieces * p.n, |partials: *mut Acc<K>| {
            let (vector, partials) = (SendPtr::new(room), SendPtr::new(partials));
            // SAFETY: the caller's promise; the rooms have the sizes the tasks expect, and tasks write disjoint parts.
            unsafe {
                K::enter(Widen::<K> { problem: p, to: vector.get() });
                pool::parallel_for(column_parts * pieces, |t| {
                    let (column, piece) = (t % column_parts, t / column_parts);
                    K::enter(Piece::<K> {
                        problem: p,
                        walk,
                        vector: vector.get(),
                        columns: column * columns..p.n.min((column + 1) * columns),
                        k: piece * depth..p.k.min((piece + 1) * depth),
                        to: partials.get().add(piece * p.n),
                    });
                });
                K::enter(Finish::<K> { problem: p, partials: partials.get(), pieces });
            }
        })
    });
}

/// Direction in which B is read.
#[derive(Clone, Copy)]
enum Walk {
    /// Down each column: dot products.
    Columns,
    /// Along the rows: many columns at once.
    Rows,
}

/// Copies the row of A to adjacent accumulators.
struct Widen<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    to: *mut Acc<K>,
}

impl<K: Kernel> Task for Widen<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let a = self.problem.a;
        // SAFETY: A has k columns, and so has the room.
        unsafe {
            if a.col_stride == 1 {
                for p in 0..self.problem.k {
                    self.to.add(p).write((*a.ptr.add(p)).widen());
                }
            } else {
                for p in 0..self.problem.k {
                    self.to.add(p).write((*a.ptr.offset(p as isize * a.col_stride)).widen());
                }
            }
        }
    }
}

/// Sums a range of k for a range of columns.
struct Piece<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    walk: Walk,
    vector: *const Acc<K>,
    columns: Range<usize>,
    k: Range<usize>,
    to: *mut Acc<K>,
}

impl<K: Kernel> Task for Piece<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let b = self.problem.b;
        let depth = self.k.len();
        // SAFETY: columns and k are inside B and the vector, and `to` has a place for every column.
        unsafe {
            let x = self.vector.add(self.k.start);
            let b_start = b.ptr.offset(self.k.start as isize * b.row_stride);
            match self.walk {
                Walk::Columns => {
                    for j in self.columns {
                        let column = b_start.offset(j as isize * b.col_stride);
                        let sum = if b.row_stride == 1 {
                            K::dot(depth, x, column)
                        } else {
                            strided_dot::<K>(depth, x, column, b.row_stride)
                        };
                        self.to.add(j).write(sum);
                    }
                }
                Walk::Rows => {
                    let sums = std::slice::from_raw_parts_mut(self.to.add(self.columns.start), self.columns.len());
                    sums.fill(Acc::<K>::ZERO);
                    add_rows::<K>(depth, x, b_start.add(self.columns.start), b.row_stride, sums);
                }
            }
        }
    }
}

/// # Safety
/// `x` is readable for `len`, and `y` at `len` elements `stride` apart.
#[inline(always)]
unsafe fn strided_dot<K: Kernel>(len: usize, x: *const Acc<K>, y: *const K::Elem, stride: isize) -> Acc<K> {
    let mut sums = [Acc::<K>::ZERO; 4];
    for p in 0..len {
        // SAFETY: p < len.
        let (x, y) = unsafe { (*x.add(p), (*y.offset(p as isize * stride)).widen()) };
        sums[p % 4] = fma::<K>(x, y, sums[p % 4]);
    }
    sums[0].plus(sums[1]).plus(sums[2].plus(sums[3]))
}

/// Adds `x[p] · row p` to the sums.
///
/// # Safety
/// `x` is readable for `len`, and each of the `len` rows for `sums.len()`.
#[inline(always)]
unsafe fn add_rows<K: Kernel>(len: usize, x: *const Acc<K>, rows: *const K::Elem, stride: isize, sums: &mut [Acc<K>]) {
    // SAFETY: rows and columns stay inside B.
    unsafe {
        let row = |p: usize| rows.offset(p as isize * stride);
        let mut p = 0;
        // Four rows at a time: each sum is loaded and stored once per four rows.
        while p + 4 <= len {
            let (x0, x1, x2, x3) = (*x.add(p), *x.add(p + 1), *x.add(p + 2), *x.add(p + 3));
            let (r0, r1, r2, r3) = (row(p), row(p + 1), row(p + 2), row(p + 3));
            for (j, sum) in sums.iter_mut().enumerate() {
                let s = fma::<K>(x0, (*r0.add(j)).widen(), *sum);
                let s = fma::<K>(x1, (*r1.add(j)).widen(), s);
                let s = fma::<K>(x2, (*r2.add(j)).widen(), s);
                *sum = fma::<K>(x3, (*r3.add(j)).widen(), s);
            }
            p += 4;
        }
        for p in p..len {
            let (x, r) = (*x.add(p), row(p));
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = fma::<K>(x, (*r.add(j)).widen(), *sum);
            }
        }
    }
}

/// Adds the pieces of K and writes C.
struct Finish<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    partials: *mut Acc<K>,
    pieces: usize,
}

impl<K: Kernel> Task for Finish<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        let n = self.problem.n;
        // SAFETY: every piece has n sums.
        unsafe {
            let total = std::slice::from_raw_parts_mut(self.partials, n);
            for piece in 1..self.pieces {
                let more = std::slice::from_raw_parts(self.partials.add(piece * n), n);
                total.iter_mut().zip(more).for_each(|(t, v)| *t = t.plus(*v));
            }
            self.problem.finish_long_row::<K>(0, 0, total);
        }
    }
}
