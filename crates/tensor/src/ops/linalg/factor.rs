//! Cholesky and QR.

use super::{batched, check_matrices, check_square, is_empty_half, run, sizes, symmetric};
use crate::autograd::{Saved, record, record_many, recording};
use crate::cat;
use crate::ops::linalg::SolveTriangular;
use crate::{Tensor, amp};
use rushlight_core::backend::Linalg;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{Dims, Error, Result};

impl Tensor {
    /// Cholesky factors of symmetric positive-definite matrices, of which the lower triangle is read: `L` with
    /// `L Lᵀ = self`; with `upper`, the upper triangle is read and `Lᵀ` given.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; }
    /// # use rushlight_tensor::Tensor;
    /// let a = Tensor::new_with([[4.0, 2.0], [2.0, 10.0]], rushlight::DType::F64)?;
    /// assert_eq!(a.cholesky(false)?.to_vec::<f64>()?, [2.0, 0.0, 1.0, 3.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn cholesky(&self, upper: bool) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.cholesky(upper));
        }
        if !is_empty_half(self) || sizes(self) != (0, 0) {
            check_square("linalg.cholesky", self)?;
        }
        if upper {
            return self.mt()?.cholesky(false)?.mt();
        }
        let out = run(Linalg::Cholesky, &[self], &[Dims::from_slice(self.shape())])?.remove(0);
        if recording(&[self]) {
            let factor = Saved::output(&out, 0);
            record("linalg_cholesky", &[self], &out, move |ctx, dy| {
                let l = ctx.get(&factor)?;
                let inner = symmetric(&half_diagonal(&l.mt()?.matmul(dy)?.tril(0)?)?)?;
                // L⁻ᵀ · inner · L⁻¹
                let turned = l.mt()?;
                let left = turned.solve_triangular(&inner, SolveTriangular::new(true))?;
                Ok(smallvec![Some(l.solve_triangular(&left, SolveTriangular::new(false).left(false))?)])
            })?;
        }
        Ok(out)
    }

    /// QR factorisation `self = Q R` with orthonormal columns in `Q`. Of `m × n` matrices, `Q` is `m × min(m, n)`, or
    /// square if `complete`. The derivative of a complete one exists where `m <= n`.
    pub fn qr(&self, complete: bool) -> Result<(Tensor, Tensor)> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.qr(complete));
        }
        check_matrices("linalg.qr", self)?;
        let (m, n) = sizes(self);
        let k = if complete { m } else { m.min(n) };
        let mut out = run(Linalg::Qr { complete }, &[self], &[batched(self, &[m, k]), batched(self, &[k, n])])?;
        let (r, q) = (out.remove(1), out.remove(0));
        if recording(&[self]) {
            let (q_saved, r_saved) = (Saved::output(&q, 0), Saved::output(&r, 1));
            record_many("linalg_qr", &[self], &[&q, &r], move |ctx, mut grads| {
                if complete && m > n {
                    return Err(Error::unsupported(format!(
                        "linalg.qr: the QR decomposition is not differentiable when mode='complete' and nrows > ncols ({m} > {n})"
                    )));
                }
                let (dr, dq) = (grads.pop().flatten(), grads.pop().flatten());
                Ok(smallvec![Some(qr_derivative(&ctx.get(&q_saved)?, &ctx.get(&r_saved)?, dq, dr)?)])
            })?;
        }
        Ok((q, r))
    }

    /// The Householder reflectors of a QR factorisation in LAPACK's packing, and their factors: `R` is in the upper
    /// triangle, the reflectors' vectors are below it, without their leading ones. It has no derivative; [`Tensor::qr`]
    /// has one.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
    /// use rushlight::{DType, Tensor};
    /// let (packed, tau) = Tensor::new_with([[3.0], [4.0]], DType::F64)?.geqrf()?;
    /// assert!((packed.to_vec::<f64>()?[0] + 5.0).abs() < 1e-12 && (tau.to_vec::<f64>()?[0] - 1.6).abs() < 1e-12);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn geqrf(&self) -> Result<(Tensor, Tensor)> {
        check_matrices("geqrf", self)?;
        let (m, n) = sizes(self);
        let mut out = run(Linalg::Geqrf, &[self], &[Dims::from_slice(self.shape()), batched(self, &[m.min(n)])])?;
        let (tau, packed) = (out.remove(1), out.remove(0));
        if recording(&[self]) {
            record_many("geqrf", &[self], &[&packed, &tau], |_, _| {
                Err(Error::unsupported("the derivative for 'geqrf' is not implemented; use qr, which has one"))
            })?;
        }
        Ok((packed, tau))
    }
}

fn half_diagonal(x: &Tensor) -> Result<Tensor> {
    x.add(&x.tril(-1)?)?.mul(0.5)
}

fn qr_derivative(q: &Tensor, r: &Tensor, dq: Option<Tensor>, dr: Option<Tensor>) -> Result<Tensor> {
    let (k, n) = sizes(r);
    let zero_q = || q.detach().zeros_like();
    if n > k {
        // A = [X Y] with X = Q R₁ and R₂ = Qᵀ Y: the part Y reaches Q and itself through R₂.
        let (head, tail) = (r.narrow(-1, 0, k)?, r.narrow(-1, k as isize, n - k)?);
        let Some(dr) = dr else {
            let dx = square_qr_derivative(q, &head, dq.map_or_else(zero_q, Ok)?, None)?;
            return cat(&[&dx, &q.detach().matmul(&tail.detach().zeros_like()?)?], -1);
        };
        let (dr1, dr2) = (dr.narrow(-1, 0, k)?, dr.narrow(-1, k as isize, n - k)?);
        let through = q.matmul(&tail)?.matmul(&dr2.mt()?)?;
        let dq = match dq {
            Some(dq) => dq.add(&through)?,
            None => through,
        };
        return cat(&[&square_qr_derivative(q, &head, dq, Some(dr1))?, &q.matmul(&dr2)?], -1);
    }
    square_qr_derivative(q, r, dq.map_or_else(zero_q, Ok)?, dr)
}

/// For a square `R`.
fn square_qr_derivative(q: &Tensor, r: &Tensor, dq: Tensor, dr: Option<Tensor>) -> Result<Tensor> {
    let mut inner = q.mt()?.matmul(&dq)?.neg()?;
    if let Some(dr) = dr {
        inner = inner.add(&dr.matmul(&r.mt()?)?)?;
    }

    // The upper triangle mirrored: its transpose added, the diagonal once.
    let mirrored = inner.triu(0)?.add(&inner.triu(1)?.mt()?)?;
    let whole = dq.add(&q.matmul(&mirrored)?)?;
    r.mt()?.solve_triangular(&whole, SolveTriangular::new(false).left(false))
}
