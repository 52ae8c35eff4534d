//! One product with typed pointers, and its epilogue.

use super::kernel::{Acc, Activate, Kernel, Task, prefetch_to_write};
use super::scalar::{Accumulator, Scalar};
use super::{Activation, Bias, BiasAxis, Gemm};

/// A strided matrix.
#[derive(Clone, Copy)]
pub(super) struct Matrix<P> {
    pub ptr: P,
    pub row_stride: isize,
    pub col_stride: isize,
}

impl<P> Matrix<P> {
    pub(super) fn transposed(self) -> Self {
        Matrix { ptr: self.ptr, row_stride: self.col_stride, col_stride: self.row_stride }
    }
}

/// One product of a batch.
pub(super) struct Problem<T: Scalar> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Matrix<*const T>,
    pub b: Matrix<*const T>,
    pub c: Matrix<*mut T>,
    pub alpha: T::Acc,
    pub beta: T::Acc,
    /// Added to element (i, j): `ptr[i · row_stride + j · col_stride]`.
    pub bias: Option<Matrix<*const T>>,
    pub activation: Activation,
}

impl<T: Scalar> Clone for Problem<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Scalar> Copy for Problem<T> {}

// SAFETY: the caller of `gemm` vouches for the pointers from any thread; tasks write disjoint parts of C.
unsafe impl<T: Scalar> Sync for Problem<T> {}
// SAFETY: as above.
unsafe impl<T: Scalar> Send for Problem<T> {}

impl<T: Scalar> Problem<T> {
    /// The first product of the batch.
    pub(super) fn first(spec: &Gemm) -> Self {
        let matrix = |ptr, s: [isize; 3]| Matrix { ptr, row_stride: s[1], col_stride: s[2] };
        let bias = |b: Bias| match b.per {
            BiasAxis::Row => Matrix { ptr: b.ptr.cast(), row_stride: b.stride, col_stride: 0 },
            BiasAxis::Column => Matrix { ptr: b.ptr.cast(), row_stride: 0, col_stride: b.stride },
        };
        Problem {
            m: spec.m,
            n: spec.n,
            k: spec.k,
            a: matrix(spec.a.cast(), spec.a_strides),
            b: matrix(spec.b.cast(), spec.b_strides),
            c: Matrix { ptr: spec.c.cast(), row_stride: spec.c_strides[1], col_stride: spec.c_strides[2] },
            alpha: T::Acc::from_f64(spec.alpha),
            beta: T::Acc::from_f64(spec.beta),
            bias: spec.bias.map(bias),
            activation: spec.activation,
        }
    }

    /// The product at `index`, given the batch strides of A, B and C.
    pub(super) fn at(mut self, batch_strides: [isize; 3], index: usize) -> Self {
        let index = index as isize;
        self.a.ptr = self.a.ptr.wrapping_offset(index * batch_strides[0]);
        self.b.ptr = self.b.ptr.wrapping_offset(index * batch_strides[1]);
        self.c.ptr = self.c.ptr.wrapping_offset(index * batch_strides[2]);
        self
    }

    /// The same product as Cᵀ = Bᵀ·Aᵀ.
    pub(super) fn transposed(self) -> Self {
        Problem {
            m: self.n,
            n: self.m,
            a: self.b.transposed(),
            b: self.a.transposed(),
            c: self.c.transposed(),
            bias: self.bias.map(Matrix::transposed),
            ..self
        }
    }

    /// The part of the product over `depth` of K from `k0` on: the first part scales C, the others add to it, the last
    /// applies the epilogue.
    pub(super) fn over(&self, k0: usize, depth: usize) -> Self {
        let last = k0 + depth == self.k;
        let along_k = |ptr: *const T, stride: isize| ptr.wrapping_offset(k0 as isize * stride);
        Problem {
            k: depth,
            a: Matrix { ptr: along_k(self.a.ptr, self.a.col_stride), ..self.a },
            b: Matrix { ptr: along_k(self.b.ptr, self.b.row_stride), ..self.b },
            beta: if k0 == 0 { self.beta } else { T::Acc::ONE },
            bias: self.bias.filter(|_| last),
            activation: if last { self.activation } else { Activation::None },
            ..*self
        }
    }

    /// The bias from column `col` on if it has one adjacent value per column: kernels add it to sums that go
    /// to C.
    #[inline(always)]
    pub(super) fn bias_of_columns(&self, col: usize) -> Option<*const T> {
        self.bias.filter(|b| b.row_stride == 0 && b.col_stride == 1).map(|b| b.ptr.wrapping_add(col))
    }

    /// Prefetches a tile of C for writing.
    #[inline(always)]
    pub(super) fn prefetch_tile(&self, row: usize, col: usize, rows: usize, cols: usize) {
        let Matrix { ptr, row_stride, col_stride } = self.c;
        let (lines, stride, from, len) = match (row_stride, col_stride) {
            (_, 1) => (row..row + rows, row_stride, col, cols),
            (1, _) => (col..col + cols, col_stride, row, rows),
            _ => return,
        };
        for line in lines {
            let start = ptr.wrapping_offset(line as isize * stride).wrapping_add(from).cast::<u8>();
            for byte in (0..len * size_of::<T>()).step_by(64) {
                prefetch_to_write(start.wrapping_add(byte));
            }
        }
    }

    /// The row `row` of C from column `col` on: `act(alpha · sums + beta · C + bias)`.
    ///
    /// # Safety
    /// The problem's pointers are valid, the row has `sums.len()` columns from `col` on, and this runs within
    /// `K::enter`.
    #[inline(always)]
    pub(super) unsafe fn finish_row<K: Kernel<Elem = T>>(&self, row: usize, col: usize, sums: &mut [T::Acc]) {
        // SAFETY: row and columns are inside C and bias.
        unsafe {
            let c = self.c.ptr.offset(row as isize * self.c.row_stride + col as isize * self.c.col_stride);
            if self.alpha != T::Acc::ONE {
                sums.iter_mut().for_each(|v| *v = v.times(self.alpha));
            }
            if self.c.col_stride == 1 {
                if self.beta != T::Acc::ZERO {
                    self.add_old(c, sums);
                }
                self.bias_and_activation::<K>(row, col, sums);
                K::narrow(sums.as_ptr(), c, sums.len());
            } else {
                if self.beta != T::Acc::ZERO {
                    for (j, v) in sums.iter_mut().enumerate() {
                        let old = (*c.offset(j as isize * self.c.col_stride)).widen();
                        *v = v.plus(self.beta.times(old));
                    }
                }
                self.bias_and_activation::<K>(row, col, sums);
                for (j, v) in sums.iter().enumerate() {
                    c.offset(j as isize * self.c.col_stride).write(T::narrow(*v));
                }
            }
        }
    }

    /// [`finish_row`](Problem::finish_row) as a function of its own, compiled once for all that call it.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn finish_long_row<K: Kernel<Elem = T>>(&self, row: usize, col: usize, sums: &mut [T::Acc]) {
        // SAFETY: the caller's promise.
        unsafe { K::apart(FinishRow::<K> { problem: self, at: [row, col], sums }) }
    }

    /// Adds `beta` times the old values at `c`.
    ///
    /// # Safety
    /// There are `sums.len()` values.
    #[inline(always)]
    unsafe fn add_old(&self, c: *const T, sums: &mut [T::Acc]) {
        // Read before any sum is written: the compiler does not know that they do not overlap.
        const RUN: usize = 16;
        let (runs, rest) = sums.as_chunks_mut::<RUN>();
        let done = runs.len() * RUN;
        // SAFETY: the caller's promise.
        unsafe {
            for (i, run) in runs.iter_mut().enumerate() {
                let old = c.add(i * RUN).cast::<[T; RUN]>().read();
                for (v, old) in run.iter_mut().zip(old) {
                    *v = v.plus(self.beta.times(old.widen()));
                }
            }
            for (j, v) in rest.iter_mut().enumerate() {
                *v = v.plus(self.beta.times((*c.add(done + j)).widen()));
            }
        }
    }

    /// Adds bias and applies the activation to sums already scaled.
    ///
    /// # Safety
    /// The bias is readable for `sums.len()` columns from `col` on, and this runs within `K::enter`.
    #[inline(always)]
    pub(super) unsafe fn bias_and_activation<K: Kernel<Elem = T>>(&self, row: usize, col: usize, sums: &mut [T::Acc]) {
        if let Some(bias) = self.bias {
            // SAFETY: the bias covers C's rows or columns.
            unsafe {
                let from = bias.ptr.offset(row as isize * bias.row_stride + col as isize * bias.col_stride);
                match bias.col_stride {
                    0 => {
                        let value = (*from).widen();
                        sums.iter_mut().for_each(|v| *v = v.plus(value));
                    }
                    1 => sums.iter_mut().enumerate().for_each(|(j, v)| *v = v.plus((*from.add(j)).widen())),
                    s => {
                        for (j, v) in sums.iter_mut().enumerate() {
                            *v = v.plus((*from.offset(j as isize * s)).widen());
                        }
                    }
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.activate::<K>(sums) };
    }

    /// Applies the activation.
    ///
    /// # Safety
    /// This runs within `K::enter`.
    #[inline(always)]
    pub(super) unsafe fn activate<K: Kernel<Elem = T>>(&self, sums: &mut [T::Acc]) {
        if self.activation != Activation::None {
            // SAFETY: the caller's promise.
            unsafe { K::apart(Activate(sums, self.activation)) };
        }
    }
}

/// A row of C, from a column on, whose sums are complete.
struct FinishRow<'a, K: Kernel> {
    problem: &'a Problem<K::Elem>,
    at: [usize; 2],
    sums: &'a mut [Acc<K>],
}

impl<K: Kernel> Task for FinishRow<'_, K> {
    #[inline(always)]
    unsafe fn run(self) {
        // SAFETY: the caller's promise.
        unsafe { self.problem.finish_row::<K>(self.at[0], self.at[1], self.sums) }
    }
}
