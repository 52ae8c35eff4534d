//! A left operand that is packed once for many products.

use super::buffer::{Buffer, Use};
use super::driver;
use super::kernel::Kernel;
use super::problem::{Matrix, Problem};
use super::task::PackRows;
use super::{Activation, WithKernel, machine};
use crate::pool;
use rushlight_core::sync::SendPtr;
use std::ops::RangeInclusive;

/// Columns of the right operand that [`PackedLeft`] accepts. With fewer, the product is bound by reading A; with more,
/// it is long enough to pack A itself. The limits are estimates.
const COLUMNS: RangeInclusive<usize> = 4..=256;
/// Strips that a task packs at a time.
const STRIPS: usize = 8;

/// The `f32` matrix A of many products `C = A·B + beta · C` with few columns, in the layout of the machine's kernel.
pub struct PackedLeft {
    /// Present until the drop.
    strips: Option<Buffer>,
    m: usize,
    k: usize,
    multiply: unsafe fn(&PackedLeft, &Problem<f32>),
}

// SAFETY: after `new` the strips are only read.
unsafe impl Send for PackedLeft {}
// SAFETY: as above.
unsafe impl Sync for PackedLeft {}

impl Drop for PackedLeft {
    fn drop(&mut self) {
        if let Some(strips) = self.strips.take() {
            strips.give_back(Use::Left);
        }
    }
}

impl PackedLeft {
    /// Packs a matrix of `m` rows and `k` columns for products with up to `columns` columns. `None` if plain products
    /// are as fast, or if there is not enough memory.
    ///
    /// # Safety
    /// The matrix is readable at every element that its strides (in elements, of rows and columns) reach.
    pub unsafe fn new(
        a: *const f32,
        [row_stride, col_stride]: [isize; 2],
        m: usize,
        k: usize,
        columns: usize,
    ) -> Option<Self> {
        if m == 0 || k == 0 || !COLUMNS.contains(&columns) || !driver::stays_cached::<f32>(columns, k) {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { machine::f32(Pack { a: Matrix { ptr: a, row_stride, col_stride }, m, k }) }
    }

    /// `C = A·B + beta · C` for a B of `n` columns. Strides count elements, of rows and columns.
    ///
    /// # Safety
    /// B is readable and C writable (readable too unless `beta` is 0) at every element that the strides reach; C
    /// overlaps no operand.
    pub unsafe fn multiply(&self, n: usize, b: (*const f32, [isize; 2]), c: (*mut f32, [isize; 2]), beta: f32) {
        if n == 0 {
            return;
        }
        let problem = Problem {
            m: self.m,
            n,
            k: self.k,
            // Not read: the strips replace it.
            a: Matrix { ptr: std::ptr::null(), row_stride: 0, col_stride: 0 },
            b: Matrix { ptr: b.0, row_stride: b.1[0], col_stride: b.1[1] },
            c: Matrix { ptr: c.0, row_stride: c.1[0], col_stride: c.1[1] },
            alpha: 1.0,
            beta,
            bias: None,
            activation: Activation::None,
        };
        // SAFETY: the caller's promise.
        unsafe { (self.multiply)(self, &problem) }
    }
}

struct Pack {
    a: Matrix<*const f32>,
    m: usize,
    k: usize,
}

impl WithKernel<f32> for Pack {
    type Out = Option<PackedLeft>;

    unsafe fn with<K: Kernel<Elem = f32>>(self) -> Option<PackedLeft> {
        let Pack { a, m, k } = self;
        let depth = k.next_multiple_of(K::K_UNIT);
        let bytes = m.next_multiple_of(K::MR).checked_mul(depth)?.checked_mul(size_of::<K::Packed>())?;
        let strips = Buffer::take(Use::Left, bytes)?;
        let (from, to) = (SendPtr::new(a.ptr.cast_mut()), SendPtr::new(strips.as_ptr().cast::<K::Packed>()));
        pool::parallel_ranges(m.div_ceil(K::MR), STRIPS, |first, end| {
            let rows = first * K::MR..m.min(end * K::MR);
            let a = Matrix { ptr: from.get().cast_const(), ..a };
            // SAFETY: the caller's promise; strips lie one after another, and tasks have different ones.
            unsafe { K::enter(PackRows::<K> { a, rows, block: (0, k), to: to.get().add(first * K::MR * depth) }) };
        });
        Some(PackedLeft { strips: Some(strips), m, k, multiply: multiply::<K> })
    }
}

/// # Safety
/// As for [`PackedLeft::multiply`], and `left` was packed for this kernel.
unsafe fn multiply<K: Kernel<Elem = f32>>(left: &PackedLeft, p: &Problem<f32>) {
    let strips = left.strips.as_ref().map(|strips| strips.as_ptr().cast::<K::Packed>().cast_const());
    // SAFETY: the caller's promise.
    unsafe { driver::by_rows::<K>(p, strips) }
}
