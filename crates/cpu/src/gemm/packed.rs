//! A right operand that is packed once for many products.

use super::buffer::{Buffer, Use};
use super::driver;
use super::kernel::Kernel;
use super::problem::{Matrix, Problem};
use super::task::{KBlocks, PackTask};
use super::{Activation, WithKernel, machine};
use crate::pool;
use rushlight_core::sync::SendPtr;

/// Strips that a task packs at a time.
const STRIPS: usize = 8;

/// Strips of columns, in the layout of a kernel.
struct Strips(
    /// Present until the drop.
    Option<Buffer>,
);

// SAFETY: after they are packed the strips are only read.
unsafe impl Send for Strips {}
// SAFETY: as above.
unsafe impl Sync for Strips {}

impl Strips {
    /// Room for `n` columns over all of K. `None` if there is not enough memory.
    fn take<K: Kernel>(n: usize, k: usize) -> Option<Self> {
        let depth = KBlocks::new::<K>(k).padded::<K>();
        let bytes = n.next_multiple_of(K::NR).checked_mul(depth)?.checked_mul(size_of::<K::Packed>())?;
        Some(Strips(Some(Buffer::take(Use::Right, bytes)?)))
    }

    fn as_ptr<P>(&self) -> *mut P {
        self.0.as_ref().map_or(std::ptr::null_mut(), |buffer| buffer.as_ptr().cast())
    }
}

impl Drop for Strips {
    fn drop(&mut self) {
        if let Some(buffer) = self.0.take() {
            buffer.give_back(Use::Right);
        }
    }
}

/// Without a matrix: a packed one replaces it.
const NONE: Matrix<*const f32> = Matrix { ptr: std::ptr::null(), row_stride: 0, col_stride: 0 };

/// The address of a matrix with its strides in elements, of rows and columns.
fn matrix<P>((ptr, [row_stride, col_stride]): (P, [isize; 2])) -> Matrix<P> {
    Matrix { ptr, row_stride, col_stride }
}

/// What follows a product: `act(sums + beta · C + bias)`.
#[derive(Clone, Copy)]
pub struct Epilogue {
    /// Factor of C's previous contents.
    pub beta: f32,
    /// One value for each column: the address of the first and the stride of adjacent ones.
    pub bias: Option<(*const f32, isize)>,
    /// Applied last.
    pub activation: Activation,
}

/// The `f32` matrix B of many products `C = act(A·B + beta · C + bias)`, in the layout of the machine's kernel.
pub struct PackedRight {
    strips: Strips,
    n: usize,
    k: usize,
    multiply: unsafe fn(&Strips, &Problem<f32>),
}

impl PackedRight {
    /// Packs a matrix of `k` rows and `n` columns. `None` if it is empty, or if there is not enough memory.
    ///
    /// # Safety
    /// The matrix is readable at every element that its strides (in elements, of rows and columns) reach.
    pub unsafe fn new(b: *const f32, strides: [isize; 2], k: usize, n: usize) -> Option<Self> {
        if n == 0 || k == 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { machine::f32(PackRight { b: matrix((b, strides)), k, n }) }
    }

    /// The product with an A of `m` rows. Strides count elements, of rows and columns; the
    /// columns of C are adjacent.
    ///
    /// # Safety
    /// A and the bias are readable and C writable (readable too unless `beta` is 0) at every element that the strides
    /// reach; C overlaps no operand.
    pub unsafe fn multiply(&self, m: usize, a: (*const f32, [isize; 2]), c: (*mut f32, isize), end: Epilogue) {
        if m == 0 {
            return;
        }
        let (n, k, a, c) = (self.n, self.k, matrix(a), matrix((c.0, [c.1, 1])));
        let bias = end.bias.map(|(ptr, col_stride)| Matrix { ptr, row_stride: 0, col_stride });
        let (beta, activation) = (end.beta, end.activation);
        let problem = Problem { m, n, k, a, b: NONE, c, alpha: 1.0, beta, bias, activation };
        // SAFETY: the caller's promise.
        unsafe { (self.multiply)(&self.strips, &problem) }
    }
}

struct PackRight {
    b: Matrix<*const f32>,
    k: usize,
    n: usize,
}

impl WithKernel<f32> for PackRight {
    type Out = Option<PackedRight>;

    unsafe fn with<K: Kernel<Elem = f32>>(self) -> Option<PackedRight> {
        let PackRight { b, k, n } = self;
        let strips = Strips::take::<K>(n, k)?;
        let (blocks, to) = (KBlocks::new::<K>(k), SendPtr::new(strips.as_ptr::<K::Packed>()));
        let c = matrix((std::ptr::null_mut(), [0, 1]));
        let p = Problem { m: 0, n, k, a: NONE, b, c, alpha: 1.0, beta: 0.0, bias: None, activation: Activation::None };
        pool::parallel_ranges(n.div_ceil(K::NR), STRIPS, |first, end| {
            let part = first * K::NR..n.min(end * K::NR);
            for block in (0..blocks.count()).map(|block| blocks.block(block)) {
                // SAFETY: the caller's promise; there is room for all columns, and tasks pack different ones.
                unsafe { K::enter(PackTask::<K>::within(&p, block, &(0..n), part.clone(), to.get())) };
            }
        });
        Some(PackedRight { strips, n, k, multiply: multiply_right::<K> })
    }
}

/// # Safety
/// As for [`PackedRight::multiply`], and the strips are of this kernel.
unsafe fn multiply_right<K: Kernel<Elem = f32>>(strips: &Strips, p: &Problem<f32>) {
    // SAFETY: the caller's promise.
    unsafe { driver::by_columns::<K>(p, strips.as_ptr::<K::Packed>().cast_const()) }
}
