//! The matrix product: `C = act(alpha · A·B + beta · C + bias)`, batched, for any strides.
//!
//! [`gemm`] picks a microkernel by dtype and instruction set once per call. Large products run blocked and packed
//! (`driver`); products with a vector read their operands in place (`vector`).

mod activation;
mod buffer;
mod complex;
mod driver;
mod kernel;
mod long_sum;
mod packed;
mod problem;
mod scalar;
mod small;
mod task;
mod vector;

#[cfg(target_arch = "aarch64")]
#[path = "arm/mod.rs"]
mod machine;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "plain.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86/mod.rs"]
mod machine;

use crate::pool;
pub use complex::ComplexProduct;
use kernel::Kernel;
pub use packed::{Epilogue, PackedRight};
use problem::Problem;
use rushlight_core::DType;
use scalar::Scalar;

/// The epilogue: applied to each finished element of C before it is rounded to C's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// `max(x, 0)`.
    Relu,
    /// `x · Φ(x)`, by the error function.
    Gelu,
    /// GELU by its approximation with the hyperbolic tangent.
    GeluTanh,
}

/// The dimension that a bias runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BiasAxis {
    /// Each row of C.
    Row,
    /// Each column of C.
    Column,
}

/// A vector added to C, of C's dtype, the same for every product of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Bias {
    /// Its first element.
    pub ptr: *const u8,
    /// Stride in elements.
    pub stride: isize,
    /// The axis of C along which it runs.
    pub per: BiasAxis,
}

/// A batch of products `C = act(alpha · A·B + beta · C + bias)`: A is `m × k`, B `k × n`, C `m × n`.
///
/// Strides count elements and run over batch, row and column; they may be 0 or negative (in C no two elements may share
/// a place).
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// Of A, B, C and bias. Half types accumulate in `f32`, integers wrap.
    pub dtype: DType,
    /// Number of products.
    pub batch: usize,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// A's first element.
    pub a: *const u8,
    /// A's strides.
    pub a_strides: [isize; 3],
    /// B's first element.
    pub b: *const u8,
    /// B's strides.
    pub b_strides: [isize; 3],
    /// C's first element.
    pub c: *mut u8,
    /// C's strides.
    pub c_strides: [isize; 3],
    /// Scales the product.
    pub alpha: f64,
    /// Factor of C's previous contents; with 0, C is not read.
    pub beta: f64,
    /// Added to every row or column.
    pub bias: Option<Bias>,
    /// Applied last.
    pub activation: Activation,
}

/// Computes a batch of products on the whole pool. The result does not depend on the number of threads.
///
/// `bool` and carried dtypes have no products: for those the call does nothing in release builds and asserts in debug
/// builds.
///
/// # Safety
/// A, B and bias are readable and C is writable (readable too unless `beta` is 0) at every element the sizes and
/// strides reach, aligned to their dtype, and C overlaps none of the others.
pub unsafe fn gemm(spec: &Gemm) {
    debug_assert!(spec.dtype != DType::Bool && !spec.dtype.is_carried(), "gemm: {} has no arithmetic", spec.dtype);
    // SAFETY: the caller's promise; kernels are chosen by the detected features.
    unsafe {
        match spec.dtype {
            DType::F32 => machine::f32(Product(spec)),
            DType::F64 => machine::f64(Product(spec)),
            DType::F16 => machine::f16(spec),
            DType::BF16 => machine::bf16(spec),
            DType::I64 => machine::i64(spec),
            DType::I32 => machine::i32(spec),
            #[cfg(target_arch = "aarch64")]
            DType::I8 | DType::U8 if machine::takes_bytes(spec) => machine::bytes(spec),
            DType::I16 => small::gemm::<i16>(spec),
            DType::I8 => small::gemm::<i8>(spec),
            DType::U8 => small::gemm::<u8>(spec),
            _ => {}
        }
    }
}

/// Work for the kernel that suits the dtype `T` and the machine.
trait WithKernel<T: Scalar> {
    type Out;
    /// # Safety
    /// The machine has the kernel's features, and the pointers of the work are valid.
    unsafe fn with<K: Kernel<Elem = T>>(self) -> Self::Out;
}

struct Product<'a>(&'a Gemm);

impl<T: Scalar> WithKernel<T> for Product<'_> {
    type Out = ();

    unsafe fn with<K: Kernel<Elem = T>>(self) {
        // SAFETY: the caller's promise.
        unsafe { run::<K>(self.0) }
    }
}

/// Splits a batch over the pool.
///
/// # Safety
/// As for [`gemm`], and the machine has the kernel's features.
unsafe fn run<K: Kernel>(spec: &Gemm) {
    if spec.m == 0 || spec.n == 0 || spec.batch == 0 {
        return;
    }
    let spec = &with_batch_folded(*spec);
    let first = Problem::<K::Elem>::first(spec);
    let batch_strides = [spec.a_strides[0], spec.b_strides[0], spec.c_strides[0]];
    let one = |index: usize| first.at(batch_strides, index);
    let work = spec.m.saturating_mul(spec.n).saturating_mul(spec.k.max(1));
    let threads = pool::num_threads();
    // SAFETY: every problem of the batch is valid by the caller's promise.
    unsafe {
        if spec.batch > 1 && (spec.batch >= 2 * threads || work < 8 * driver::task_work::<K>()) {
            let grain = (driver::task_work::<K>() / work).max(1);
            pool::parallel_ranges(spec.batch, grain, |start, end| {
                for index in start..end {
                    product::<K>(&one(index), driver::serial_product::<K>);
                }
            });
        } else {
            for index in 0..spec.batch {
                product::<K>(&one(index), driver::parallel::<K>);
            }
        }
    }
}

/// Computes one product by the method for its shape; `blocked` handles the usual shapes.
///
/// # Safety
/// As for [`run`].
unsafe fn product<K: Kernel>(p: &Problem<K::Elem>, blocked: unsafe fn(&Problem<K::Elem>)) {
    let p = &driver::oriented::<K>(*p);
    // SAFETY: the caller's promise.
    unsafe {
        if p.k == 0 {
            driver::without_sums::<K>(p);
        } else if p.m == 1 {
            vector::one_row::<K>(p);
        } else if p.n == 1 {
            vector::one_row::<K>(&p.transposed());
        } else if long_sum::is_long_and_thin::<K>(p) {
            long_sum::over_k::<K>(p);
        } else {
            driver::by_blocks::<K>(p, blocked);
        }
    }
}

/// A batch that shares B, and whose rows continue from product to product, is a single product with more rows.
fn with_batch_folded(mut spec: Gemm) -> Gemm {
    let continues = |s: [isize; 3], rows: usize| s[0] == s[1] * rows as isize;
    let row_bias = spec.bias.is_some_and(|b| b.per == BiasAxis::Row);
    if spec.batch > 1
        && spec.b_strides[0] == 0
        && continues(spec.a_strides, spec.m)
        && continues(spec.c_strides, spec.m)
        && !row_bias
    {
        spec.m *= spec.batch;
        spec.batch = 1;
    }
    spec
}
