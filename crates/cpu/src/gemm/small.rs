//! Products of 8- and 16-bit integers. They have no microkernels: those would be nine more to compile.
//!
//! Sums modulo 2³² agree with sums modulo 2⁸ and 2¹⁶ in their low bits. So matrices are widened block by block: bytes
//! to `f32`, whose products are several times as fast as those of `i32` and exact as long as no sum exceeds 2²⁴; others
//! to `i32`. A vector times a matrix is bound by memory, so it reads the matrix in place.

use super::buffer::{Use, with_buffer};
use super::scalar::Accumulator;
use super::{Activation, BiasAxis, Gemm};
use crate::isa::Isa;
use crate::{multiversion, pool};
use rushlight_core::DType;
use rushlight_core::sync::SendPtr;

/// Elements of an operand that are widened at a time, so that they stay in the L2 cache.
const BLOCK: usize = 1 << 18;
/// Minimum elements per task.
const TASK: usize = 1 << 15;
/// Columns per step of a vector product.
const COLUMNS: usize = 1024;

/// An integer narrower than its sums.
pub(super) trait Small: Copy + Send + Sync + 'static {
    /// Number of products whose sum is at most 2²⁴; 0 if that is too few to be useful.
    const EXACT: usize;
    fn widen(self) -> i32;
    /// Keeps the low bits.
    fn narrow(sum: i32) -> Self;
}

macro_rules! small {
    ($($t:ident $exact:literal),*) => {$(
        impl Small for $t {
            const EXACT: usize = $exact;
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
small!(i16 0, i8 1024, u8 256);

/// The type that elements are widened to.
trait Widened: Copy {
    fn of(value: i32) -> Self;
}

impl Widened for i32 {
    #[inline(always)]
    fn of(value: i32) -> i32 {
        value
    }
}

impl Widened for f32 {
    #[inline(always)]
    fn of(value: i32) -> f32 {
        value as f32
    }
}

/// A batch of strided matrices.
#[derive(Clone, Copy)]
struct Matrices<T> {
    ptr: *mut T,
    sizes: [usize; 3],
    strides: [isize; 3],
}

// SAFETY: addresses; the caller of `gemm` vouches for them from any thread, and tasks write disjoint rows.
unsafe impl<T> Sync for Matrices<T> {}

impl<T: Small> Matrices<T> {
    /// The part starting at a product, row and column.
    fn part(self, first: [usize; 3], sizes: [usize; 3]) -> Self {
        let offset = (0..3).map(|d| first[d] as isize * self.strides[d]).sum();
        // A matrix shared by all products is present once.
        let items = if self.strides[0] == 0 { 1 } else { sizes[0] };
        Matrices { ptr: self.ptr.wrapping_offset(offset), sizes: [items, sizes[1], sizes[2]], ..self }
    }

    fn transposed(self) -> Self {
        let ([b, r, c], [sb, sr, sc]) = (self.sizes, self.strides);
        Matrices { ptr: self.ptr, sizes: [b, c, r], strides: [sb, sc, sr] }
    }

    /// The first element of a row.
    fn row(&self, item: usize, row: usize) -> *mut T {
        self.ptr.wrapping_offset(item as isize * self.strides[0] + row as isize * self.strides[1])
    }

    /// Calls `f` for each row of all matrices.
    fn each_row(&self, f: impl Fn(usize, usize) + Sync) {
        let [batch, rows, cols] = self.sizes;
        pool::parallel_ranges(batch * rows, TASK.div_ceil(cols.max(1)), |from, to| {
            (from..to).for_each(|at| f(at / rows, at % rows));
        });
    }

    fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Writes a dense copy and returns its strides.
    ///
    /// # Safety
    /// The matrices are readable, and `to` has room for all of them.
    unsafe fn widen<W: Widened>(&self, to: *mut W) -> [isize; 3] {
        let [_, rows, cols] = self.sizes;
        let to = SendPtr::new(to);
        self.each_row(|item, row| {
            // SAFETY: the row is one of the matrices', and has its place in the copy.
            unsafe { widen_row(self.row(item, row), self.strides[2], to.get().add((item * rows + row) * cols), cols) }
        });
        [if self.strides[0] == 0 { 0 } else { (rows * cols) as isize }, cols as isize, 1]
    }
}

multiversion! {
    /// Widens `n` elements with this stride.
    ///
    /// # Safety
    /// `from` is readable, and `to` writable for `n` elements.
    unsafe fn widen_row<T: Small, W: Widened>(from: *const T, step: isize, to: *mut W, n: usize) = widen_row_kernel;
}

#[inline(always)]
unsafe fn widen_row_kernel<T: Small, W: Widened, I: Isa>(from: *const T, step: isize, to: *mut W, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match step {
            1 => (0..n).for_each(|j| to.add(j).write(W::of((*from.add(j)).widen()))),
            step => (0..n).for_each(|j| to.add(j).write(W::of((*from.offset(j as isize * step)).widen()))),
        }
    }
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
    let vector = m == 1 || n == 1;
    let items = if vector { 1 } else { (BLOCK / (m * k).max(k * n).max(m * n)).clamp(1, batch) };
    let rows = if vector { m } else { (BLOCK / k.max(1)).clamp(1, m) };
    let cols = if vector { n } else { (BLOCK / k.max(rows)).clamp(1, n) };
    for item in (0..batch).step_by(items) {
        for i in (0..m).step_by(rows) {
            for j in (0..n).step_by(cols) {
                let sizes = [items.min(batch - item), rows.min(m - i), cols.min(n - j)];
                // SAFETY: the block is within the operands that the caller guarantees.
                unsafe { block::<T>(spec, [item, i, j], sizes) };
            }
        }
    }
}

/// Some products, rows and columns, from `first` on.
///
/// # Safety
/// As for [`gemm`], and the block is within the product.
unsafe fn block<T: Small>(spec: &Gemm, first @ [item, i, j]: [usize; 3], sizes @ [items, m, n]: [usize; 3]) {
    let k = spec.k;
    let whole = |ptr: *const u8, strides| Matrices { ptr: ptr.cast::<T>().cast_mut(), sizes: [0; 3], strides };
    let a = whole(spec.a, spec.a_strides).part([item, i, 0], [items, m, k]);
    let b = whole(spec.b, spec.b_strides).part([item, 0, j], [items, k, n]);
    // A batch of one may have any stride.
    let c = Matrices { sizes, ..whole(spec.c, spec.c_strides).part(first, sizes) };
    with_buffer(Use::WideC, c.len(), |sums: *mut i32| {
        // SAFETY: the caller's promise; buffers have the given size.
        unsafe {
            if m == 1 {
                vector_product(&a, &b, sums);
            } else if n == 1 {
                vector_product(&b.transposed(), &a.transposed(), sums);
            } else if T::EXACT > 0 {
                // In ranges of `k`, each exact.
                with_buffer(Use::WidePart, c.len(), |part: *mut f32| {
                    for from in (0..k.max(1)).step_by(T::EXACT) {
                        let k = T::EXACT.min(k - from);
                        let (a, b) = (a.part([0, 0, from], [items, m, k]), b.part([0, from, 0], [items, k, n]));
                        widened_product(DType::F32, items, &a, &b, part);
                        let (part, sums) = (SendPtr::new(part), SendPtr::new(sums));
                        pool::parallel_ranges(c.len(), TASK, |start, end| {
                            // SAFETY: tasks add to different elements, all of which the product has written.
                            add_part(part.get().add(start), end - start, from == 0, sums.get().add(start));
                        });
                    }
                });
            } else {
                widened_product(DType::I32, items, &a, &b, sums);
            }
            store(spec, [i, j], sums, &c);
        }
    });
}

/// The products of a batch, widened to `W`, the type of `dtype`.
///
/// # Safety
/// Both are readable, and `out` has room for their products.
unsafe fn widened_product<T: Small, W: Widened>(
    dtype: DType,
    batch: usize,
    a: &Matrices<T>,
    b: &Matrices<T>,
    out: *mut W,
) {
    let ([_, m, k], n) = (a.sizes, b.sizes[2]);
    with_buffer(Use::WideA, a.len(), |wide_a: *mut W| {
        with_buffer(Use::WideB, b.len(), |wide_b: *mut W| {
            // SAFETY: the caller's promise; buffers have the room that is told.
            unsafe {
                super::gemm(&Gemm {
                    dtype,
                    batch,
                    m,
                    n,
                    k,
                    a_strides: a.widen(wide_a),
                    a: wide_a.cast_const().cast(),
                    b_strides: b.widen(wide_b),
                    b: wide_b.cast_const().cast(),
                    c: out.cast(),
                    c_strides: [(m * n) as isize, n as isize, 1],
                    alpha: 1.0,
                    beta: 0.0,
                    bias: None,
                    activation: Activation::None,
                })
            }
        })
    });
}

multiversion! {
    /// Adds integers held as `f32` to sums, or writes them for the first range.
    ///
    /// # Safety
    /// `n` elements at both, those of `part` integers of at most 2²⁴.
    unsafe fn add_part(part: *const f32, n: usize, first: bool, sums: *mut i32) = add_part_kernel;
}

#[inline(always)]
unsafe fn add_part_kernel<I: Isa>(part: *const f32, n: usize, first: bool, sums: *mut i32) {
    // SAFETY: the caller's promise.
    unsafe {
        let value = |i: usize| (*part.add(i)).to_int_unchecked::<i32>();
        if first {
            (0..n).for_each(|i| sums.add(i).write(value(i)));
        } else {
            (0..n).for_each(|i| sums.add(i).write((*sums.add(i)).wrapping_add(value(i))));
        }
    }
}

/// `x [1, k]` times `b [k, n]`, the first of each batch.
///
/// # Safety
/// Both are readable, and `sums` has room for `n`.
unsafe fn vector_product<T: Small>(x: &Matrices<T>, b: &Matrices<T>, sums: *mut i32) {
    let [_, k, n] = b.sizes;
    with_buffer(Use::WideA, k, |vector: *mut i32| {
        // SAFETY: the vector has `k` elements.
        unsafe { x.widen(vector) };
        let (vector, sums) = (SendPtr::new(vector), SendPtr::new(sums));
        let columns = (TASK / k.max(1)).clamp(1, COLUMNS);
        pool::parallel_ranges(n.div_ceil(columns), 1, |from, to| {
            for first in (from..to).map(|part| part * columns) {
                let count = columns.min(n - first);
                let part = b.part([0, 0, first], [1, k, count]);
                // SAFETY: the columns are among those of `b` and of the sums.
                unsafe {
                    times_columns(
                        k,
                        vector.get(),
                        part.ptr,
                        [part.strides[1], part.strides[2]],
                        count,
                        sums.get().add(first),
                    )
                };
            }
        });
    });
}

#[inline(always)]
unsafe fn times_columns_kernel<T: Small, I: Isa>(
    k: usize,
    x: *const i32,
    b: *const T,
    [row, column]: [isize; 2],
    count: usize,
    sums: *mut i32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if column == 1 {
            let sums = std::slice::from_raw_parts_mut(sums, count);
            sums.fill(0);
            let term = |p: usize, j: usize| (*x.add(p)).wrapping_mul((*b.offset(p as isize * row).add(j)).widen());
            // Four rows at a time: each sum is loaded and stored once per four rows.
            let fours = k / 4 * 4;
            for p in (0..fours).step_by(4) {
                for (j, sum) in sums.iter_mut().enumerate() {
                    let (low, high) =
                        (term(p, j).wrapping_add(term(p + 1, j)), term(p + 2, j).wrapping_add(term(p + 3, j)));
                    *sum = sum.wrapping_add(low.wrapping_add(high));
                }
            }
            for p in fours..k {
                sums.iter_mut().enumerate().for_each(|(j, sum)| *sum = sum.wrapping_add(term(p, j)));
            }
            return;
        }
        for j in 0..count {
            let b = b.offset(j as isize * column);
            let dot = |step: isize| {
                (0..k).fold(0i32, |sum, p| {
                    sum.wrapping_add((*x.add(p)).wrapping_mul((*b.offset(p as isize * step)).widen()))
                })
            };
            // A constant stride vectorises.
            sums.add(j).write(if row == 1 { dot(1) } else { dot(row) });
        }
    }
}

multiversion! {
    /// The vector `x` times `count <= COLUMNS` columns of a matrix with these strides of rows and columns.
    ///
    /// # Safety
    /// `k` elements at `x`, as many rows of the columns at `b`, and `count` elements at `sums`.
    unsafe fn times_columns<T: Small>(
        k: usize, x: *const i32, b: *const T, strides: [isize; 2], count: usize, sums: *mut i32,
    ) = times_columns_kernel;
}

/// Writes `act(alpha · sums + beta · C + bias)` to the part of C that starts at `at`.
///
/// # Safety
/// The part is writable (readable unless beta is 0), the bias readable, and `sums` are the part's, dense.
unsafe fn store<T: Small>(spec: &Gemm, at: [usize; 2], sums: *mut i32, c: &Matrices<T>) {
    let (alpha, beta) = (i32::from_f64(spec.alpha), i32::from_f64(spec.beta));
    let [_, rows, cols] = c.sizes;
    let sums = SendPtr::new(sums);
    let bias = spec.bias.map(|b| (SendPtr::new(b.ptr.cast::<T>().cast_mut()), b.stride, b.per));
    let activation = spec.activation;
    if [alpha, beta] == [1, 0] && bias.is_none() && activation == Activation::None && c.strides[2] == 1 {
        return c.each_row(|item, row| {
            // SAFETY: the row is one of the part's.
            unsafe { narrow_row(sums.get().add((item * rows + row) * cols), cols, c.row(item, row)) }
        });
    }
    c.each_row(|item, row| {
        for j in 0..cols {
            // SAFETY: the element is one of the part's.
            unsafe {
                let to = c.row(item, row).offset(j as isize * c.strides[2]);
                let mut value = (*sums.get().add((item * rows + row) * cols + j)).wrapping_mul(alpha);
                if beta != 0 {
                    value = value.wrapping_add(beta.wrapping_mul((*to).widen()));
                }
                if let Some((bias, stride, per)) = &bias {
                    let place = match per {
                        BiasAxis::Row => at[0] + row,
                        BiasAxis::Column => at[1] + j,
                    };
                    value = value.wrapping_add((*bias.get().offset(place as isize * stride)).widen());
                }
                // Activations apply to the narrow value.
                let mut value = [T::narrow(value).widen()];
                if activation != Activation::None {
                    i32::activate(&mut value, activation);
                }
                *to = T::narrow(value[0]);
            }
        }
    });
}

multiversion! {
    /// The low bits of `n` sums.
    ///
    /// # Safety
    /// `n` elements at both.
    unsafe fn narrow_row<T: Small>(sums: *const i32, n: usize, to: *mut T) = narrow_row_kernel;
}

#[inline(always)]
unsafe fn narrow_row_kernel<T: Small, I: Isa>(sums: *const i32, n: usize, to: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { (0..n).for_each(|j| to.add(j).write(T::narrow(*sums.add(j)))) }
}
