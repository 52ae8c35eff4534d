//! Products of 8- and 16-bit integers, by the kernel of `i32`.
//!
//! Sums modulo 2³² agree with sums modulo 2⁸ and 2¹⁶ in their low bits, so operands are widened block by block, multiplied as `i32`, and
//! the results cut. Kernels of their own would be nine more to compile.

use super::driver::Shared;
use super::scalar::Accumulator;
use super::{Activation, Bias, BiasAxis, Gemm};
use crate::pool;
use rushlight_core::DType;

/// Elements of an operand widened at a time.
const BLOCK: usize = 1 << 22;
/// Elements of it worth a task.
const TASK: usize = 1 << 15;

/// An integer narrower than its sums.
pub(super) trait Small: Copy + Send + Sync + 'static {
    fn widen(self) -> i32;
    /// Keeps the low bits.
    fn narrow(sum: i32) -> Self;
}

macro_rules! small {
    ($($t:ident),*) => {$(
        impl Small for $t {
            #[inline(always)]
            fn widen(self) -> i32 {
                self as i32
            }
            #[inline(always)]
            fn narrow(sum: i32) -> $t {
                sum as $t
            }
        }
    )*};
}
small!(i16, i8, u8);

/// A batch of strided matrices.
#[derive(Clone, Copy)]
struct Matrices<T> {
    ptr: *mut T,
    sizes: [usize; 3],
    strides: [isize; 3],
}

// SAFETY: addresses; the caller of `gemm` vouches for them from any thread, and tasks write disjoint rows.
unsafe impl<T> Sync for Matrices<T> {}

impl<T> Matrices<T> {
    /// An element of a row, given the row's offset.
    fn at(&self, offset: isize, column: usize) -> *mut T {
        self.ptr.wrapping_offset(offset + column as isize * self.strides[2])
    }

    /// Calls `f(row, offset)` for each row of all matrices, in order, with the offset of its first element.
    fn each_row(&self, f: impl Fn(usize, isize) + Sync) {
        let [batch, rows, cols] = self.sizes;
        pool::parallel_ranges(batch * rows, TASK.div_ceil(cols.max(1)), |from, to| {
            for row in from..to {
                let (item, within) = ((row / rows) as isize, (row % rows) as isize);
                f(row, item * self.strides[0] + within * self.strides[1]);
            }
        });
    }
}

/// A dense copy.
///
/// # Safety
/// The matrices are readable.
unsafe fn widened<T: Small>(x: Matrices<T>) -> Vec<i32> {
    let cols = x.sizes[2];
    let mut out = vec![0; x.sizes.iter().product()];
    let to = Shared(out.as_mut_ptr());
    x.each_row(|row, offset| {
        // SAFETY: the row is one of the matrices', and has its place in the copy.
        unsafe {
            let to = to.get().add(row * cols);
            for j in 0..cols {
                *to.add(j) = (*x.at(offset, j)).widen();
            }
        }
    });
    out
}

/// Writes the results of a block, activated as the narrow values they are.
///
/// # Safety
/// The matrices are writable, and `sums` are theirs.
unsafe fn store<T: Small>(sums: &[i32], activation: Activation, c: Matrices<T>) {
    let cols = c.sizes[2];
    c.each_row(|row, offset| {
        for (j, &sum) in sums[row * cols..(row + 1) * cols].iter().enumerate() {
            let mut value = [T::narrow(sum).widen()];
            if activation != Activation::None {
                i32::activate(&mut value, activation);
            }
            // SAFETY: the row is one of the matrices'.
            unsafe { *c.at(offset, j) = T::narrow(value[0]) };
        }
    });
}

/// A batch of products of the dtype of `T`.
///
/// # Safety
/// As for [`gemm`](super::gemm).
pub(super) unsafe fn gemm<T: Small>(spec: &Gemm) {
    let &Gemm { batch, m, n, k, .. } = spec;
    if batch == 0 || m == 0 || n == 0 {
        return;
    }
    let items = (BLOCK / (m * k).max(k * n).max(m * n)).clamp(1, batch);
    let rows = (BLOCK / k.max(1)).clamp(1, m);
    let cols = (BLOCK / k.max(rows)).clamp(1, n);
    for item in (0..batch).step_by(items) {
        for i in (0..m).step_by(rows) {
            for j in (0..n).step_by(cols) {
                let sizes = [items.min(batch - item), rows.min(m - i), cols.min(n - j)];
                // SAFETY: the block lies within the operands that the caller vouches for.
                unsafe { block::<T>(spec, [item, i, j], sizes) };
            }
        }
    }
}

/// Some products, rows and columns, from `first` on.
///
/// # Safety
/// As for [`gemm`], and the block lies within the product.
unsafe fn block<T: Small>(spec: &Gemm, first: [usize; 3], [items, m, n]: [usize; 3]) {
    let k = spec.k;
    let [item, i, j] = first.map(|at| at as isize);
    // One that all products share is widened once.
    let operand = |ptr: *const u8, strides: [isize; 3], rows: usize, cols: usize, offset: isize| Matrices {
        ptr: ptr.cast::<T>().cast_mut().wrapping_offset(item * strides[0] + offset),
        sizes: [if strides[0] == 0 { 1 } else { items }, rows, cols],
        strides,
    };
    let dense = |strides: [isize; 3], rows: usize, cols: usize| {
        [if strides[0] == 0 { 0 } else { (rows * cols) as isize }, cols as isize, 1]
    };
    let (sa, sb, sc) = (spec.a_strides, spec.b_strides, spec.c_strides);
    let c_at = spec.c.cast::<T>().wrapping_offset(item * sc[0] + i * sc[1] + j * sc[2]);
    // SAFETY: the caller's promise; dense copies have the sizes that the product in `i32` is told.
    unsafe {
        let a = widened(operand(spec.a, sa, m, k, i * sa[1]));
        let b = widened(operand(spec.b, sb, k, n, j * sb[2]));
        let mut c = match spec.beta {
            0.0 => vec![0; items * m * n],
            _ => widened(Matrices { ptr: c_at, sizes: [items, m, n], strides: sc }),
        };
        let bias = spec.bias.map(|bias| {
            let (start, len) = match bias.per {
                BiasAxis::Row => (i, m),
                BiasAxis::Column => (j, n),
            };
            let ptr = bias.ptr.cast::<T>().cast_mut().wrapping_offset(start * bias.stride);
            (widened(Matrices { ptr, sizes: [1, 1, len], strides: [0, 0, bias.stride] }), bias.per)
        });
        super::gemm(&Gemm {
            dtype: DType::I32,
            batch: items,
            m,
            n,
            k,
            a: a.as_ptr().cast(),
            a_strides: dense(sa, m, k),
            b: b.as_ptr().cast(),
            b_strides: dense(sb, k, n),
            c: c.as_mut_ptr().cast(),
            c_strides: [(m * n) as isize, n as isize, 1],
            alpha: spec.alpha,
            beta: spec.beta,
            bias: bias.as_ref().map(|(values, per)| Bias { ptr: values.as_ptr().cast(), stride: 1, per: *per }),
            activation: Activation::None,
        });
        store(&c, spec.activation, Matrices { ptr: c_at, sizes: [items, m, n], strides: sc });
    }
}
