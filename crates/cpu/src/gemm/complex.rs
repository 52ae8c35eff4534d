//! Products of complex matrices, computed by the kernels of real ones.
//!
//! A row of A is `2k` reals as it is, and each number `c + d i` of B becomes the block `[[c, d], [-d, c]]`, so a row of
//! C is `2n` reals in order. The blocks are written while B is packed: they take no memory of their own.

use super::kernel::{Kernel, Strip, Task};
use super::packed::Strips;
use super::problem::{Matrix, Problem};
use super::scalar::{Accumulator, Scalar};
use super::task::KBlocks;
use super::{Activation, WithKernel, driver, machine, product};
use crate::pool;
use rushlight_core::DType;
use rushlight_core::sync::SendPtr;
use std::ops::{Neg, Range};

/// Rows of blocks that are written at a time, before they are packed.
const ROWS: usize = 16;
/// Maximum columns of a kernel's strip.
const COLUMNS: usize = 64;
/// Strips that a task packs at a time.
const STRIPS: usize = 8;
/// Fewer rows or columns go to the product that chooses a method by shape.
const FEW: usize = 8;

/// Products `C = A·B` of contiguous matrices of complex numbers, whose parts are of one dtype.
#[derive(Clone, Copy, Debug)]
pub struct ComplexProduct {
    /// Of the parts: `f32` or `f64`.
    pub dtype: DType,
    /// Number of products.
    pub batch: usize,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// A's first part.
    pub a: *const u8,
    /// B's first part.
    pub b: *const u8,
    /// C's first part.
    pub c: *mut u8,
}

impl ComplexProduct {
    /// Computes the products on the whole pool; `false` for other dtypes, or if there is not enough memory.
    ///
    /// # Safety
    /// The matrices are readable and writable, aligned to their dtype, and C overlaps neither A nor B.
    pub unsafe fn run(&self) -> bool {
        if self.batch == 0 || self.m == 0 || self.n == 0 {
            return true;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::F32 => machine::f32::<Batch>(Batch(self)),
                DType::F64 => machine::f64::<Batch>(Batch(self)),
                _ => false,
            }
        }
    }
}

struct Batch<'a>(&'a ComplexProduct);

impl<T: Scalar + Neg<Output = T>> WithKernel<T> for Batch<'_> {
    type Out = bool;

    unsafe fn with<K: Kernel<Elem = T>>(self) -> bool {
        let &ComplexProduct { batch, m, n, k, .. } = self.0;
        let [a, b] = [self.0.a, self.0.b].map(|at| SendPtr::new(at.cast_mut().cast::<T>()));
        let c = SendPtr::new(self.0.c.cast::<T>());
        // SAFETY: the matrices of a batch follow each other.
        let one = |i: usize, blocked| unsafe {
            let (a, b, c) = (a.at(2 * i * m * k), b.at(2 * i * k * n), c.at(2 * i * m * n));
            product_of_one::<K>([m, n, k], a.cast_const(), b.cast_const(), c, blocked)
        };
        let work = m.saturating_mul(n).saturating_mul(k.max(1)).saturating_mul(4);
        if batch > 1 && (batch >= 2 * pool::num_threads() || work < 8 * driver::task_work::<K>()) {
            let complete = std::sync::atomic::AtomicBool::new(true);
            pool::parallel_ranges(batch, (driver::task_work::<K>() / work).max(1), |start, end| {
                if !(start..end).all(|i| one(i, driver::serial_product::<K>)) {
                    complete.store(false, std::sync::atomic::Ordering::Relaxed);
                }
            });
            return complete.into_inner();
        }
        (0..batch).all(|i| one(i, driver::parallel::<K>))
    }
}

/// One product; `false` if there is not enough memory.
///
/// # Safety
/// As for [`ComplexProduct::run`]; the machine has the kernel's features.
unsafe fn product_of_one<K: Kernel>(
    [m, n, k]: [usize; 3],
    a: *const K::Elem,
    b: *const K::Elem,
    c: *mut K::Elem,
    blocked: unsafe fn(&Problem<K::Elem>),
) -> bool
where
    K::Elem: Neg<Output = K::Elem>,
{
    let (rows, columns) = (2 * k, 2 * n);
    let matrix = |ptr, columns: usize| Matrix { ptr, row_stride: columns as isize, col_stride: 1 };
    let mut problem = Problem {
        m,
        n: columns,
        k: rows,
        a: matrix(a, rows),
        b: matrix(std::ptr::null(), columns),
        c: Matrix { ptr: c, row_stride: columns as isize, col_stride: 1 },
        alpha: Accumulator::ONE,
        beta: Accumulator::ZERO,
        bias: None,
        activation: Activation::None,
    };
    let few = m < FEW || n < FEW;
    let room = if few { Strips::of::<K::Elem>(rows, columns) } else { Strips::take::<K>(columns, rows) };
    let Some(room) = room else { return false };
    // SAFETY: the caller's promise; there is room for all blocks.
    unsafe {
        if few {
            let blocks = room.as_ptr::<K::Elem>();
            for row in 0..rows {
                write_row(b, columns, row, 0..columns, blocks.add(row * columns));
            }
            problem.b.ptr = blocks.cast_const();
            product::<K>(&problem, blocked);
            return true;
        }
        let (all, to) = (KBlocks::new::<K>(rows), SendPtr::new(room.as_ptr::<K::Packed>()));
        let b = SendPtr::new(b.cast_mut());
        pool::parallel_ranges(columns.div_ceil(K::NR), STRIPS, |first, end| {
            let part = first * K::NR..columns.min(end * K::NR);
            for (k0, depth) in (0..all.count()).map(|block| all.block(block)) {
                let padded = depth.next_multiple_of(K::K_UNIT);
                let at = k0 * columns.next_multiple_of(K::NR) + part.start * padded;
                let to = to.get().add(at);
                let from = b.get().cast_const();
                K::enter(PackBlocks::<K> { from, columns, block: (k0, depth), part: part.clone(), to });
            }
        });
        driver::by_columns::<K>(&problem, room.as_ptr::<K::Packed>().cast_const());
    }
    true
}

/// Writes a part of a row of blocks: of an even row the numbers as they are, of an odd one their products with `i`.
///
/// # Safety
/// B has `row / 2` whole rows of `columns` parts and then these columns; `to` has room for them. The range begins and
/// ends between numbers.
#[inline(always)]
unsafe fn write_row<T: Copy + Neg<Output = T>>(
    b: *const T,
    columns: usize,
    row: usize,
    part: Range<usize>,
    to: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let from = b.add(row / 2 * columns + part.start);
        if row.is_multiple_of(2) {
            to.copy_from_nonoverlapping(from, part.len());
            return;
        }
        for at in (0..part.len()).step_by(2) {
            *to.add(at) = -*from.add(at + 1);
            *to.add(at + 1) = *from.add(at);
        }
    }
}

/// Packs some columns of the blocks, over one block of K.
struct PackBlocks<K: Kernel> {
    from: *const K::Elem,
    columns: usize,
    block: (usize, usize),
    part: Range<usize>,
    to: *mut K::Packed,
}

impl<K: Kernel> Task for PackBlocks<K>
where
    K::Elem: Neg<Output = K::Elem>,
{
    #[inline(always)]
    unsafe fn run(self) {
        const { assert!(K::NR <= COLUMNS && K::NR.is_multiple_of(2) && ROWS.is_multiple_of(K::K_UNIT)) };
        let Self { from, columns, block: (k0, depth), part, to } = self;
        let padded = depth.next_multiple_of(K::K_UNIT);
        let mut rows = [std::mem::MaybeUninit::<K::Elem>::uninit(); ROWS * COLUMNS];
        let rows: *mut K::Elem = rows.as_mut_ptr().cast();
        for column in part.clone().step_by(K::NR) {
            let lanes = K::NR.min(part.end - column);
            for k in (0..depth).step_by(ROWS) {
                let count = ROWS.min(depth - k);
                // SAFETY: the caller's promise; `pack_b` reads the rows and lanes that are written here.
                unsafe {
                    for row in 0..count {
                        let to = rows.add(row * K::NR);
                        write_row(from, columns, k0 + k + row, column..column + lanes, to);
                    }
                    let strip =
                        Strip { ptr: rows.cast_const(), lane_stride: 1, k_stride: K::NR as isize, lanes, k: count };
                    K::pack_b(strip, to.add((column - part.start) * padded + k * K::NR));
                }
            }
        }
    }
}
