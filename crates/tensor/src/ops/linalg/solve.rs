//! Determinants, inverses and systems of equations.

use super::{batched, check_matrices, check_square, column_major, is_empty_half, run, scaled, sizes};
use crate::autograd::{Saved, no_grad, record, record_many, recording};
use crate::{Tensor, amp};
use rushlight_core::backend::Linalg;
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{Dims, Error, ErrorKind, Result};

/// How a triangular system is solved; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolveTriangular {
    /// Whether the upper triangle is read, not the lower.
    pub upper: bool,
    /// Whether the unknown is to the right of the matrix (`A X = B`), not to the left (`X A = B`).
    pub left: bool,
    /// Whether the diagonal counts as ones.
    pub unitriangular: bool,
}

impl SolveTriangular {
    /// `A X = B` with the named triangle of `A`.
    pub fn new(upper: bool) -> Self {
        Self { upper, left: true, unitriangular: false }
    }

    /// Solves `X A = B` if false.
    pub fn left(mut self, left: bool) -> Self {
        self.left = left;
        self
    }

    /// Takes the diagonal as ones.
    pub fn unitriangular(mut self, unitriangular: bool) -> Self {
        self.unitriangular = unitriangular;
        self
    }
}

/// Singular values up to this count as zero: the larger of `atol` and of `rtol` times the largest value. By default
/// `rtol` is the machine precision times the longer side, or zero if `atol` is positive.
#[derive(Clone, Copy, Debug, Default)]
pub struct RankTolerance {
    /// The absolute tolerance.
    pub atol: Option<f64>,
    /// The tolerance relative to the largest singular value.
    pub rtol: Option<f64>,
}

impl From<Option<f64>> for RankTolerance {
    /// A relative tolerance, or the default.
    fn from(rtol: Option<f64>) -> Self {
        Self { atol: None, rtol }
    }
}

impl Tensor {
    /// Determinants of square matrices.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; }
    /// # use rushlight_tensor::Tensor;
    /// let a = Tensor::new_with([[1.0, 2.0], [3.0, 4.0]], rushlight::DType::F64)?;
    /// assert!((a.det()?.item::<f64>()? + 2.0).abs() < 1e-12);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn det(&self) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.det());
        }
        if !is_empty_half(self) || sizes(self) != (0, 0) {
            check_square("linalg.det", self)?;
        }
        let out = run(Linalg::Det, &[self], &[batched(self, &[])])?.remove(0);
        if recording(&[self]) {
            let (a, det) = (Saved::input(self), Saved::output(&out, 0));
            record("linalg_det", &[self], &out, move |ctx, dy| {
                let (a, det) = (ctx.get(&a)?, ctx.get(&det)?);
                let singular = no_grad(|| det.eq(0.0)?.any(..)?.item::<bool>())?;
                let cofactors = if singular { cofactors(&a)? } else { scaled(&det, &a.inv()?.mt()?)? };
                Ok(smallvec![Some(column_major(&scaled(dy, &cofactors)?)?)])
            })?;
        }
        Ok(out)
    }

    /// Sign and logarithm of the absolute value of determinants, for those that would overflow.
    pub fn slogdet(&self) -> Result<(Tensor, Tensor)> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.slogdet());
        }
        check_square("linalg.slogdet", self)?;
        let shape = batched(self, &[]);
        let mut out = run(Linalg::Slogdet, &[self], &[shape.clone(), shape])?;
        let (log, sign) = (out.remove(1), out.remove(0));
        if recording(&[self]) {
            let a = Saved::input(self);
            record_many("linalg_slogdet", &[self], &[&sign, &log], move |ctx, mut grads| {
                // The sign is constant wherever it has a derivative.
                let Some(dy) = grads.pop().flatten() else { return Ok(smallvec![None]) };
                Ok(smallvec![Some(column_major(&scaled(&dy, &ctx.get(&a)?.inv()?.mt()?)?)?)])
            })?;
        }
        Ok((sign, log))
    }

    /// Logarithms of determinants; NaN where negative, minus infinity where zero.
    pub fn logdet(&self) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.logdet());
        }
        let (sign, log) = self.slogdet().map_err(|e| e.within("logdet"))?;
        crate::where_(&sign.detach().lt(0.0)?, f64::NAN, &log)
    }

    /// Inverses of square matrices; a singular one is an error.
    pub fn inv(&self) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.inv());
        }
        if self.is_complex() {
            return super::complex::inv(self);
        }
        check_square("linalg.inv", self)?;
        let out = run(Linalg::Inv, &[self], &[Dims::from_slice(self.shape())])?.remove(0);
        if recording(&[self]) {
            let inverse = Saved::output(&out, 0);
            record("linalg_inv", &[self], &out, move |ctx, dy| {
                let turned = ctx.get(&inverse)?.mt()?;
                Ok(smallvec![Some(turned.matmul(dy)?.matmul(&turned)?.neg()?)])
            })?;
        }
        Ok(out)
    }

    /// Solves `self · X = b`, or `X · self = b` if not `left`, for square matrices. `b` holds matrices, or vectors
    /// where it has one dimension or the shape of `self` less the last; batches broadcast.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; }
    /// # use rushlight_tensor::Tensor;
    /// let a = Tensor::new_with([[2.0, 0.0], [0.0, 4.0]], rushlight::DType::F64)?;
    /// let x = a.solve(&Tensor::new_with([2.0, 2.0], rushlight::DType::F64)?, true)?;
    /// assert_eq!(x.to_vec::<f64>()?, [1.0, 0.5]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn solve(&self, b: &Tensor, left: bool) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.solve(&cast.of(b)?, left));
        }
        let call = "linalg.solve";
        if !self.is_complex() {
            check_square(call, self)?;
        }
        let vector = b.rank() == 1 || b.rank() + 1 == self.rank() && *b.shape() == self.shape()[..self.rank() - 1];
        if vector {
            if !left {
                return Err(Error::value(format!(
                    "{call}: Vector broadcasting of the left hand side is not supported for left=False"
                )));
            }
            return self.solve(&b.unsqueeze(-1)?, true)?.squeeze(-1);
        }
        if !left {
            return self.mt()?.solve(&b.mt()?, true)?.mt();
        }
        if self.is_complex() {
            return super::complex::solve(self, b);
        }
        let (a, b) = broadcast_system(call, self, b)?;
        let out = run(Linalg::Solve, &[&a, &b], &[Dims::from_slice(b.shape())])?.remove(0);
        if recording(&[&a, &b]) {
            let (saved, x) = (Saved::input(&a), Saved::output(&out, 0));
            record("linalg_solve", &[&a, &b], &out, move |ctx, dy| {
                let db = ctx.get(&saved)?.mt()?.solve(dy, true)?;
                let da = if ctx.needs(0) { Some(db.matmul(&ctx.get(&x)?.mt()?)?.neg()?) } else { None };
                Ok(smallvec![da, Some(db)])
            })?;
        }
        Ok(out)
    }

    /// Solves a system whose matrix is triangular; only that triangle is read.
    pub fn solve_triangular(&self, b: &Tensor, options: SolveTriangular) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.solve_triangular(&cast.of(b)?, options));
        }
        let call = "linalg.solve_triangular";
        if !self.is_complex() {
            check_square(call, self)?;
        }
        let SolveTriangular { upper, left, unitriangular } = options;
        if !left {
            if b.rank() < 2 {
                return Err(Error::shape(format!(
                    "{call}: The input tensor B must have at least 2 dimensions, got {:?}",
                    b.shape()
                )));
            }
            let turned = SolveTriangular { upper: !upper, left: true, unitriangular };
            return self.mt()?.solve_triangular(&b.mt()?, turned)?.contiguous()?.mt();
        }
        if self.is_complex() {
            let own = if unitriangular { 1 } else { 0 };
            let mut a = if upper { self.triu(own)? } else { self.tril(-own)? };
            if unitriangular {
                let n = self.size(-1)?;
                a = a.add(&Tensor::eye_with(n, n, (self.dtype(), self.device()))?)?;
            }
            return super::complex::solve(&a, b);
        }
        let (a, b) = broadcast_system(call, self, b)?;
        let op = Linalg::SolveTriangular { upper, unitriangular };
        let out = run(op, &[&a, &b], &[Dims::from_slice(b.shape())])?.remove(0);
        if recording(&[&a, &b]) {
            let (saved, x) = (Saved::input(&a), Saved::output(&out, 0));
            record("linalg_solve_triangular", &[&a, &b], &out, move |ctx, dy| {
                let turned = SolveTriangular { upper: !upper, left: true, unitriangular };
                let db = ctx.get(&saved)?.mt()?.solve_triangular(dy, turned)?;
                let da = match ctx.needs(0) {
                    false => None,
                    true => {
                        let whole = db.matmul(&ctx.get(&x)?.mt()?)?.neg()?;
                        let skip = i64::from(unitriangular);
                        Some(if upper { whole.triu(skip)? } else { whole.tril(-skip)? })
                    }
                };
                Ok(smallvec![da, Some(db)])
            })?;
        }
        Ok(out)
    }

    /// The `X` of least norm that brings `self · X` closest to `b`; batches broadcast.
    pub fn lstsq(&self, b: &Tensor) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.lstsq(&cast.of(b)?));
        }
        let call = "linalg.lstsq";
        check_matrices(call, self)?;
        let vector = b.rank() + 1 == self.rank() && *b.shape() == self.shape()[..self.rank() - 1];
        if vector {
            return self.lstsq(&b.unsqueeze(-1)?)?.squeeze(-1);
        }
        let (a, b) = broadcast_system(call, self, b)?;
        let shape = batched(&b, &[sizes(&a).1, sizes(&b).1]);
        let out = run(Linalg::Lstsq, &[&a, &b], &[shape])?.remove(0);
        if recording(&[&a, &b]) {
            let (a_saved, b_saved) = (Saved::input(&a), Saved::input(&b));
            record("linalg_lstsq", &[&a, &b], &out, move |ctx, dy| {
                let a = ctx.get(&a_saved)?;
                // The solution is the pseudo-inverse times b.
                let p = a.pinv(None)?;
                let da = match ctx.needs(0) {
                    true => Some(pinv_derivative(&a, &p, &dy.matmul(&ctx.get(&b_saved)?.mt()?)?)?),
                    false => None,
                };
                let db = if ctx.needs(1) { Some(p.mt()?.matmul(dy)?) } else { None };
                Ok(smallvec![da, db])
            })?;
        }
        Ok(out)
    }

    /// Pseudo-inverses. Singular values up to the tolerance count as zero; see [`RankTolerance`]. `None` takes the
    /// default tolerance, a number is relative to the largest singular value. The pseudo-inverse of a matrix with
    /// infinities is zero.
    pub fn pinv(&self, tolerance: impl Into<RankTolerance>) -> Result<Tensor> {
        let tolerance = tolerance.into();
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.pinv(tolerance));
        }
        check_matrices("linalg.pinv", self)?;
        self.pinv_of(self, tolerance)
    }

    /// [`Tensor::pinv`] of symmetric matrices, of which only the lower triangles are read. The gradient is that of
    /// [`Tensor::pinv`], for whole matrices.
    pub fn pinv_symmetric(&self, tolerance: impl Into<RankTolerance>) -> Result<Tensor> {
        let tolerance = tolerance.into();
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.pinv_symmetric(tolerance));
        }
        check_square("linalg.pinv", self)?;
        let read = no_grad(|| self.tril(0)?.add(&self.tril(-1)?.mt()?))?;
        self.pinv_of(&read, tolerance)
    }

    /// The pseudo-inverses of matrices that are read from `self`.
    fn pinv_of(&self, read: &Tensor, tolerance: RankTolerance) -> Result<Tensor> {
        let out = no_grad(|| {
            let (u, s, vh) = read.with_infinities_zeroed(|a| a.svd(false))?;
            let kept = read.above_noise(&s, tolerance)?;
            let inverse = crate::where_(&kept, &s.reciprocal()?, 0.0)?;
            vh.mt()?.mul(&inverse.unsqueeze(-2)?)?.matmul(&u.mt()?)
        })?;
        if recording(&[self]) {
            let (a, p) = (Saved::input(self), Saved::output(&out, 0));
            record("linalg_pinv", &[self], &out, move |ctx, dy| {
                Ok(smallvec![Some(pinv_derivative(&ctx.get(&a)?, &ctx.get(&p)?, dy)?)])
            })?;
        }
        Ok(out)
    }

    /// How many singular values are larger than the tolerance (see [`Tensor::pinv`]), `int64`. The rank of a matrix
    /// with infinities is zero.
    pub fn matrix_rank(&self, tolerance: impl Into<RankTolerance>) -> Result<Tensor> {
        let tolerance = tolerance.into();
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.matrix_rank(tolerance));
        }
        check_matrices("linalg.matrix_rank", self)?;
        no_grad(|| {
            let s = self.with_infinities_zeroed(Tensor::svdvals)?;
            self.above_noise(&s, tolerance)?.sum(-1)
        })
    }

    /// Decomposes these matrices; if that fails because of infinities, with zeros in place of the matrices that have
    /// them. LAPACK gives such matrices singular values of NaN, which count as noise. NaN stays an error.
    fn with_infinities_zeroed<R>(&self, decompose: impl Fn(&Tensor) -> Result<R>) -> Result<R> {
        let a = self.detach();
        let error = match decompose(&a) {
            Err(error) if error.kind() == ErrorKind::Numerical => error,
            done => return done,
        };
        let infinite = a.isinf()?.any_dims([-2, -1], true)?;
        let nan = a.isnan()?.any(..)?.item::<bool>()?;
        if nan || !infinite.any(..)?.item::<bool>()? {
            return Err(error);
        }
        decompose(&a.masked_fill(&infinite, 0.0)?)
    }

    /// Which of this tensor's singular values count.
    fn above_noise(&self, s: &Tensor, tolerance: RankTolerance) -> Result<Tensor> {
        let (m, n) = sizes(self);
        if m == 0 || n == 0 {
            return s.gt(0.0);
        }
        let epsilon = if self.dtype() == rushlight_core::DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 };
        let (atol, rtol) = match tolerance {
            RankTolerance { atol: Some(atol), rtol: None } if atol > 0.0 => (atol, 0.0),
            RankTolerance { atol, rtol } => (atol.unwrap_or(0.0), rtol.unwrap_or(epsilon * m.max(n) as f64)),
        };
        // Values descend, so the first is the largest.
        s.gt(&s.narrow(-1, 0, 1)?.mul(rtol)?.clamp_min(atol)?)
    }

    /// Matrices multiplied by themselves `n` times; the inverse for negative `n`, the identity for zero.
    pub fn matrix_power(&self, n: i64) -> Result<Tensor> {
        let call = "linalg.matrix_power";
        if self.rank() < 2 || sizes(self).0 != sizes(self).1 {
            return Err(Error::shape(format!(
                "{call}: A must be batches of square matrices, but they are {:?}",
                self.shape()
            )));
        }
        if n == 0 {
            let identity = Tensor::eye_with(sizes(self).0, sizes(self).1, (self.dtype(), self.device()))?;
            let out = identity.expand(self.shape())?.copy()?;
            if recording(&[self]) {
                let zeros = out.zeros_like()?;
                record("linalg_matrix_power", &[self], &out, move |_, _| Ok(smallvec![Some(zeros.copy()?)]))?;
            }
            return Ok(out);
        }
        let mut square = if n < 0 { self.inv().map_err(|e| e.within(call))? } else { self.clone() };
        let mut out: Option<Tensor> = None;
        let mut left = n.unsigned_abs();
        loop {
            if left & 1 == 1 {
                out = Some(match out {
                    Some(product) => product.matmul(&square)?,
                    None => square.clone(),
                });
            }
            left >>= 1;
            match out {
                Some(out) if left == 0 => return if out.is_same(self) { out.copy() } else { Ok(out) },
                _ => square = square.matmul(&square)?,
            }
        }
    }
}

/// Matrix and right-hand side with one batch shape.
fn broadcast_system(call: &str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    a.same_device(b, call)?;
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(format!(
            "{call}: Expected A and B to have the same dtype, but found A of type {} and B of type {}",
            a.dtype(),
            b.dtype()
        )));
    }
    if b.rank() < 2 {
        return Err(Error::shape(format!(
            "{call}: The input tensor B must have at least 2 dimensions, got shape {:?}",
            b.shape()
        )));
    }
    let ((m, n), (rows, columns)) = (sizes(a), sizes(b));
    if m != rows {
        return Err(Error::shape(format!(
            "{call}: Incompatible shapes of A and B for the equation AX = B ({m}x{n} and {rows}x{columns})"
        )));
    }
    let lead = broadcast_shapes(&batched(a, &[]), &batched(b, &[])).map_err(|e| e.within(call))?;
    let whole = |t: &Tensor, tail: [usize; 2]| -> Result<Tensor> {
        let mut shape = lead.clone();
        shape.extend_from_slice(&tail);
        if shape[..] == *t.shape() { Ok(t.clone()) } else { t.expand(&shape) }
    };
    Ok((whole(a, [m, n])?, whole(b, [rows, columns])?))
}

/// The derivative of the determinant where it is zero: the cofactors, from the singular values with one at a time
/// omitted.
fn cofactors(a: &Tensor) -> Result<Tensor> {
    let (u, s, vh) = a.svd(false)?;
    let n = sizes(a).0;
    let mut products = Vec::with_capacity(n);
    for i in 0..n as isize {
        let mut product: Option<Tensor> = None;
        for j in (0..n as isize).filter(|&j| j != i) {
            let value = s.select(-1, j)?;
            product = Some(match product {
                Some(p) => p.mul(&value)?,
                None => value,
            });
        }
        products.push(match product {
            Some(p) => p,
            None => s.select(-1, i)?.ones_like()?,
        });
    }
    let others = crate::stack(&products.iter().collect::<Vec<_>>(), -1)?;
    let sign = no_grad(|| u.detach().det()?.mul(&vh.detach().det()?))?;
    scaled(&sign, &u.mul(&others.unsqueeze(-2)?)?.matmul(&vh)?)
}

/// The gradient by `a` of its pseudo-inverse `p`, from the gradient `g` of `p`.
fn pinv_derivative(a: &Tensor, p: &Tensor, g: &Tensor) -> Result<Tensor> {
    let (pt, gt) = (p.mt()?, g.mt()?);
    let through = pt.matmul(g)?.matmul(&pt)?;
    // The parts outside the column space and outside the row space.
    let columns = gt.matmul(p)?.matmul(&pt)?;
    let columns = columns.sub(&a.matmul(p)?.matmul(&columns)?)?;
    let rows = pt.matmul(p)?.matmul(&gt)?;
    let rows = rows.sub(&rows.matmul(p)?.matmul(a)?)?;
    columns.add(&rows)?.sub(&through)
}
