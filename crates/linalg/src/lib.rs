//! Dense factorisations over plain slices, for `f32` and `f64`.
//!
//! Every function takes a batch of matrices, stored one after the other in row-major order, and works through it on the
//! calling thread; to use more threads, split the batch. Names, conventions and messages are those of `torch.linalg`.
//! No function panics: slices of the wrong length are errors, an empty batch or a size of zero is valid, and numbers
//! that are not finite give an error or NaN, as each function documents.
//!
//! Factorisations work on blocks, so that most of the time is spent in products of matrices. Kernels are compiled for
//! several instruction sets and chosen at run time.
//!
//! This is a separate crate so that generic code is compiled once: callers instantiate only the thin functions of this
//! page, which call code compiled here.
//!
//! ```
//! // Two systems at once: the identity, and one that exchanges the unknowns and doubles one.
//! let a = [1.0, 0.0, 0.0, 1.0, /* and */ 0.0, 1.0, 2.0, 0.0];
//! let b = [3.0, 4.0, /* and */ 3.0, 4.0];
//! let mut x = [0.0; 4];
//! rushlight_linalg::solve(2, 2, 1, &a, &b, &mut x)?;
//! assert_eq!(x, [3.0, 4.0, 2.0, 3.0]);
//! # Ok::<(), rushlight_core::Error>(())
//! ```

// Only `simd` and `view` allow it.
#![deny(unsafe_code)]

mod bidiagonal;
mod cholesky;
mod conquer;
mod eigh;
mod layout;
mod ldl;
mod lstsq;
mod lu;
mod qr;
mod real;
mod reflector;
#[allow(unsafe_code)]
mod simd;
mod small;
mod svd;
mod triangular;
mod tridiagonal;
#[allow(unsafe_code)]
mod view;

pub use lu::LuFactors;
use rushlight_core::Result;

/// An element type with factorisations: `f32` or `f64`.
pub trait Real: compiled::Engine<Self> + Copy + 'static {
    /// A pivot as a number of this type, rounded where it is beyond the type's precision.
    fn from_pivot(pivot: i32) -> Self;
    /// The pivot that a number stands for.
    fn to_pivot(self) -> i32;
}
impl Real for f32 {
    fn from_pivot(pivot: i32) -> Self {
        pivot as f32
    }
    fn to_pivot(self) -> i32 {
        self as i32
    }
}
impl Real for f64 {
    fn from_pivot(pivot: i32) -> Self {
        f64::from(pivot)
    }
    fn to_pivot(self) -> i32 {
        self as i32
    }
}

/// Declares the public functions. Each becomes a method of a sealed trait whose implementations, not being generic,
/// are compiled in this crate.
macro_rules! entry_points {
    ($($(#[$doc:meta])* $module:ident :: $name:ident ( $($arg:ident : $type:ty),* $(,)? ) -> $result:ty;)*) => {
        mod compiled {
            use super::*;

            pub trait Engine<T>: Sized {
                $(fn $name($($arg: $type),*) -> $result;)*
            }

            entry_points!(@impl single f32 $($module $name ($($arg: $type),*) $result;)*);
            entry_points!(@impl double f64 $($module $name ($($arg: $type),*) $result;)*);
        }

        $(
            $(#[$doc])*
            pub fn $name<T: Real>($($arg: $type),*) -> $result {
                T::$name($($arg),*)
            }
        )*
    };
    (@impl $scope:ident $element:ident $($module:ident $name:ident ($($arg:ident : $type:ty),*) $result:ty;)*) => {
        mod $scope {
            use super::super::*;
            type T = $element;

            impl super::Engine<T> for T {
                $(fn $name($($arg: $type),*) -> $result {
                    $module::$name::<T>($($arg),*)
                })*
            }
        }
    };
}

entry_points! {
    /// Factors `m × n` matrices with partial pivoting, `P A = L U`. A singular matrix is no error: [`LuFactors::infos`]
    /// reports its zero pivot.
    ///
    /// ```
    /// let f = rushlight_linalg::lu_factor(1, 2, 2, &[1.0, 2.0, 4.0, 6.0])?;
    /// assert_eq!(f.lu, [4.0, 6.0, 0.25, 0.5]);
    /// assert_eq!((f.pivots, f.signs, f.infos), (vec![2, 2], vec![-1.0], vec![0]));
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    lu::lu_factor(batch: usize, m: usize, n: usize, a: &[T]) -> Result<LuFactors<T>>;

    /// Determinants of square matrices: one for an empty matrix, NaN for a matrix with a NaN.
    ///
    /// ```
    /// let mut det = [0.0];
    /// rushlight_linalg::det(1, 2, &[1.0, 2.0, 4.0, 6.0], &mut det)?;
    /// assert_eq!(det, [-2.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    lu::det(batch: usize, n: usize, a: &[T], out: &mut [T]) -> Result<()>;

    /// Sign and logarithm of the absolute value of determinants, which cannot overflow. A singular matrix has sign zero
    /// and logarithm minus infinity; a matrix with a NaN has sign zero and logarithm NaN.
    ///
    /// ```
    /// let (mut sign, mut log) = ([0.0], [0.0]);
    /// rushlight_linalg::slogdet(1, 2, &[0.0, 1e200, 1e200, 0.0], &mut sign, &mut log)?;
    /// assert_eq!(sign, [-1.0]);
    /// assert!((log[0] - 400.0 * f64::ln(10.0)).abs() < 1e-12 * log[0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    lu::slogdet(batch: usize, n: usize, a: &[T], sign: &mut [T], logabsdet: &mut [T]) -> Result<()>;

    /// Inverses of square matrices. A singular matrix is an error, and the contents of `out` are then unspecified; a
    /// NaN gives NaN.
    ///
    /// ```
    /// let mut inverse = [0.0; 4];
    /// rushlight_linalg::inv(1, 2, &[0.0, 2.0, 4.0, 0.0], &mut inverse)?;
    /// assert_eq!(inverse, [0.0, 0.25, 0.5, 0.0]);
    /// assert!(rushlight_linalg::inv(1, 2, &[1.0, 2.0, 2.0, 4.0], &mut inverse).is_err());
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    lu::inv(batch: usize, n: usize, a: &[T], out: &mut [T]) -> Result<()>;

    /// Solves `A X = B` for square `A` (`n × n`) and `nrhs` columns in `B`. A singular matrix is an error; a NaN gives
    /// NaN.
    ///
    /// ```
    /// let mut x = [0.0; 2];
    /// rushlight_linalg::solve(1, 2, 1, &[2.0, 1.0, 0.0, 4.0], &[4.0, 8.0], &mut x)?;
    /// assert_eq!(x, [1.0, 2.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    lu::solve(batch: usize, n: usize, nrhs: usize, a: &[T], b: &[T], out: &mut [T]) -> Result<()>;

    /// Solves `A X = B` for triangular `A`. Only the named triangle is read; with `unitriangular` its diagonal is taken
    /// as ones. A zero on the diagonal is no error: the result has infinities or NaN.
    ///
    /// ```
    /// let mut x = [0.0; 2];
    /// let ignored = f64::NAN;
    /// rushlight_linalg::solve_triangular(1, 2, 1, &[2.0, ignored, 1.0, 4.0], &[2.0, 9.0], &mut x, false, false)?;
    /// assert_eq!(x, [1.0, 2.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    triangular::solve_triangular(
        batch: usize, n: usize, nrhs: usize, a: &[T], b: &[T], out: &mut [T], upper: bool, unitriangular: bool,
    ) -> Result<()>;

    /// Lower Cholesky factors `A = L Lᵀ` of symmetric positive-definite matrices; only the lower triangle is read. Any
    /// other matrix, including one that is not finite, is an error.
    ///
    /// ```
    /// let mut l = [0.0; 4];
    /// rushlight_linalg::cholesky(1, 2, &[4.0, 2.0, 2.0, 10.0], &mut l)?;
    /// assert_eq!(l, [2.0, 0.0, 1.0, 3.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    cholesky::cholesky(batch: usize, n: usize, a: &[T], out: &mut [T]) -> Result<()>;

    /// QR factorisation of `m × n` matrices by Householder reflections, so that the diagonal of `R` may be negative.
    /// With `k = min(m, n)`, or `k = m` if `complete`: `q` is `m × k`, `r` is `k × n`. Non-finite input gives NaN.
    ///
    /// ```
    /// let (mut q, mut r) = ([0.0f64; 2], [0.0f64; 1]);
    /// rushlight_linalg::qr(1, 2, 1, &[3.0, 4.0], &mut q, &mut r, false)?;
    /// assert!((q[0] + 0.6).abs() < 1e-15 && (q[1] + 0.8).abs() < 1e-15 && (r[0] + 5.0).abs() < 1e-14);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    qr::qr(batch: usize, m: usize, n: usize, a: &[T], q: &mut [T], r: &mut [T], complete: bool) -> Result<()>;

    /// The reflectors of a QR factorisation of `m × n` matrices in LAPACK's packing: `R` in the upper triangle of `out`
    /// and the vectors below it, without their leading ones; `min(m, n)` factors for each matrix in `tau`.
    ///
    /// ```
    /// let (mut packed, mut tau) = ([0.0f64; 2], [0.0f64; 1]);
    /// rushlight_linalg::geqrf(1, 2, 1, &[3.0, 4.0], &mut packed, &mut tau)?;
    /// assert!((packed[0] + 5.0).abs() < 1e-14 && (packed[1] - 0.5).abs() < 1e-15 && (tau[0] - 1.6).abs() < 1e-15);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    qr::geqrf(batch: usize, m: usize, n: usize, a: &[T], out: &mut [T], tau: &mut [T]) -> Result<()>;

    /// Factors symmetric matrices, of which the lower triangle is read, into `L D Lᵀ` with Bunch and Kaufman's pivots.
    /// `ld` gets `D` (blocks of one and two rows) and `L` below it, `pivots` LAPACK's pivots, and `infos` the place,
    /// counted from one, of the first block of `D` that is zero, or zero.
    ///
    /// ```
    /// let (mut ld, mut pivots, mut infos) = ([0.0; 4], [0; 2], [0]);
    /// rushlight_linalg::ldl_factor(1, 2, &[4.0, 1.0, 1.0, 3.0], &mut ld, &mut pivots, &mut infos)?;
    /// assert_eq!((ld, pivots, infos), ([4.0, 0.0, 0.25, 2.75], [1, 2], [0]));
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    ldl::ldl_factor(
        batch: usize, n: usize, a: &[T], ld: &mut [T], pivots: &mut [i32], infos: &mut [i32],
    ) -> Result<()>;

    /// Solves `A X = B` for the `A` that [`ldl_factor`] has factored, and `nrhs` columns in `B`. A zero in `D` is no
    /// error: the result has infinities or NaN. Pivots that no factorisation gives are an error.
    ///
    /// ```
    /// let mut x = [0.0; 2];
    /// rushlight_linalg::ldl_solve(1, 2, 1, &[4.0, 0.0, 0.25, 2.75], &[1, 2], &[5.0, 4.0], &mut x)?;
    /// assert_eq!(x, [1.0, 1.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    ldl::ldl_solve(
        batch: usize, n: usize, nrhs: usize, ld: &[T], pivots: &[i32], b: &[T], out: &mut [T],
    ) -> Result<()>;

    /// Singular value decomposition `A = U diag(S) Vᴴ` of `m × n` matrices, values descending. With `k = min(m, n)`:
    /// `u` is `m × k`, `s` has `k` entries, `vh` is `k × n`; with `full_matrices` `u` is `m × m` and `vh` is `n × n`.
    /// Non-finite input is an error.
    ///
    /// ```
    /// let (mut u, mut s, mut vh) = ([0.0f64; 4], [0.0; 2], [0.0; 4]);
    /// rushlight_linalg::svd(1, 2, 2, &[0.0, 3.0, 5.0, 0.0], &mut u, &mut s, &mut vh, true)?;
    /// assert!((s[0] - 5.0).abs() < 1e-14 && (s[1] - 3.0).abs() < 1e-14);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    svd::svd(
        batch: usize, m: usize, n: usize, a: &[T], u: &mut [T], s: &mut [T], vh: &mut [T], full_matrices: bool,
    ) -> Result<()>;

    /// Singular values, descending, `min(m, n)` for each matrix, without vectors.
    ///
    /// ```
    /// let mut s = [0.0f32; 1];
    /// rushlight_linalg::svdvals(1, 1, 2, &[3.0, 4.0], &mut s)?;
    /// assert!((s[0] - 5.0).abs() < 1e-5);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    svd::svdvals(batch: usize, m: usize, n: usize, a: &[T], s: &mut [T]) -> Result<()>;

    /// Eigenvalues, ascending, and eigenvectors (the columns of `vectors`, orthonormal) of symmetric matrices. Only the
    /// `lower` or the upper triangle is read; a non-finite number in it is an error.
    ///
    /// ```
    /// let (mut values, mut vectors) = ([0.0f64; 2], [0.0f64; 4]);
    /// rushlight_linalg::eigh(1, 2, &[2.0, 1.0, 1.0, 2.0], &mut values, &mut vectors, true)?;
    /// assert!((values[0] - 1.0).abs() < 1e-14 && (values[1] - 3.0).abs() < 1e-14);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    eigh::eigh(
        batch: usize, n: usize, a: &[T], values: &mut [T], vectors: &mut [T], lower: bool,
    ) -> Result<()>;

    /// Eigenvalues of symmetric matrices, ascending, without eigenvectors.
    ///
    /// ```
    /// let mut values = [0.0f64; 2];
    /// rushlight_linalg::eigvalsh(1, 2, &[2.0, 1.0, 1.0, 2.0], &mut values, false)?;
    /// assert!((values[0] - 1.0).abs() < 1e-14 && (values[1] - 3.0).abs() < 1e-14);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    eigh::eigvalsh(batch: usize, n: usize, a: &[T], values: &mut [T], lower: bool) -> Result<()>;

    /// Least squares: the `X` (`n × nrhs`) of least norm that minimises `|A X - B|`, where `A` is `m × n` and `B` is `m
    /// × nrhs`, and the rank of each matrix. Singular values up to `rcond` times the largest count as zero; by default
    /// `rcond` is the machine precision times `max(m, n)`. A matrix that is not finite is an error.
    ///
    /// ```
    /// // The line through (0, 1), (1, 3) and (2, 5).
    /// let a = [1.0, 0.0, 1.0, 1.0, 1.0, 2.0];
    /// let (mut x, mut rank) = ([0.0f64; 2], [0]);
    /// rushlight_linalg::lstsq(1, 3, 2, 1, &a, &[1.0, 3.0, 5.0], None, &mut x, &mut rank)?;
    /// assert!((x[0] - 1.0).abs() < 1e-14 && (x[1] - 2.0).abs() < 1e-14);
    /// assert_eq!(rank, [2]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    lstsq::lstsq(
        batch: usize, m: usize, n: usize, nrhs: usize, a: &[T], b: &[T], rcond: Option<f64>, out: &mut [T],
        rank: &mut [i64],
    ) -> Result<()>;
}
