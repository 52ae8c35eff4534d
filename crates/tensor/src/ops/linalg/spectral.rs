//! Singular and eigenvalues.

use super::{batched, check_matrices, check_square, is_empty_half, run, sizes};
use crate::autograd::{Grads, Saved, record_many, recording};
use crate::{Tensor, amp};
use rushlight_core::Result;
use rushlight_core::backend::Linalg;
use rushlight_core::smallvec::smallvec;

impl Tensor {
    /// Singular value decomposition `self = U diag(S) Vᴴ`, values descending. Of `m × n` matrices with `k = min(m, n)`,
    /// `U` is `m × k` and `Vᴴ` is `k × n`; both are square with `full_matrices`, whose extra vectors have no
    /// derivative.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; }
    /// # use rushlight_tensor::Tensor;
    /// let a = Tensor::new_with([[0.0, 3.0], [5.0, 0.0]], rushlight::DType::F64)?;
    /// let (u, s, vh) = a.svd(false)?;
    /// assert!(s.allclose(&Tensor::new_with([5.0, 3.0], rushlight::DType::F64)?, 1e-12, 1e-12)?);
    /// assert!(u.mul(&s)?.matmul(&vh)?.allclose(&a, 1e-12, 1e-12)?);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn svd(&self, full_matrices: bool) -> Result<(Tensor, Tensor, Tensor)> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.svd(full_matrices));
        }
        if !is_empty_half(self) {
            check_matrices("linalg.svd", self)?;
        }
        let (m, n) = sizes(self);
        let k = m.min(n);
        let (columns, rows) = if full_matrices { (m, n) } else { (k, k) };
        let shapes = [batched(self, &[m, columns]), batched(self, &[k]), batched(self, &[rows, n])];
        let mut out = run(Linalg::Svd { full_matrices }, &[self], &shapes)?;
        let (vh, s, u) = (out.remove(2), out.remove(1), out.remove(0));
        if recording(&[self]) {
            let saved = [Saved::output(&u, 0), Saved::output(&s, 1), Saved::output(&vh, 2)];
            record_many("linalg_svd", &[self], &[&u, &s, &vh], move |ctx, grads| {
                let [u, s, vh] = &saved;
                let (u, vh) = (ctx.get(u)?.narrow(-1, 0, k)?, ctx.get(vh)?.narrow(-2, 0, k)?);
                Ok(smallvec![Some(svd_derivative(&u, &ctx.get(s)?, &vh, grads, k)?)])
            })?;
        }
        Ok((u, s, vh))
    }

    /// Singular values alone, descending.
    pub fn svdvals(&self) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.svdvals());
        }
        if !is_empty_half(self) {
            check_matrices("linalg.svdvals", self)?;
        }
        if recording(&[self]) {
            return Ok(self.svd(false)?.1);
        }
        let (m, n) = sizes(self);
        Ok(run(Linalg::Svd { full_matrices: false }, &[self], &[batched(self, &[m.min(n)])])?.remove(0))
    }

    /// Eigenvalues, ascending, and orthonormal eigenvectors (as columns) of symmetric matrices, of which the lower
    /// triangle is read, or the upper if `upper`.
    pub fn eigh(&self, upper: bool) -> Result<(Tensor, Tensor)> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.eigh(upper));
        }
        if !is_empty_half(self) || sizes(self) != (0, 0) {
            check_square("linalg.eigh", self)?;
        }
        if upper {
            return self.mt()?.eigh(false);
        }
        let n = sizes(self).0;
        let mut out = run(Linalg::Eigh, &[self], &[batched(self, &[n]), batched(self, &[n, n])])?;
        let (vectors, values) = (out.remove(1), out.remove(0));
        if recording(&[self]) {
            let (w, v) = (Saved::output(&values, 0), Saved::output(&vectors, 1));
            record_many("linalg_eigh", &[self], &[&values, &vectors], move |ctx, mut grads| {
                let (dv, dw) = (grads.pop().flatten(), grads.pop().flatten());
                let (w, v) = (ctx.get(&w)?, ctx.get(&v)?);
                let mut inner: Option<Tensor> = None;
                if let Some(dv) = dv {
                    let turn = skew(&v.mt()?.matmul(&dv)?)?.mul(0.5)?;
                    inner = Some(turn.div(&gaps(&w)?)?);
                }
                let whole = match (inner, dw) {
                    (inner, Some(dw)) => {
                        let straight = v.mul(&dw.unsqueeze(-2)?)?;
                        match inner {
                            Some(inner) => straight.add(&v.matmul(&inner)?)?,
                            None => straight,
                        }
                    }
                    (Some(inner), None) => v.matmul(&inner)?,
                    (None, None) => return Ok(smallvec![None]),
                };
                Ok(smallvec![Some(whole.matmul(&v.mt()?)?)])
            })?;
        }
        Ok((values, vectors))
    }

    /// Eigenvalues alone of symmetric matrices, ascending; see [`Tensor::eigh`].
    pub fn eigvalsh(&self, upper: bool) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.eigvalsh(upper));
        }
        if !is_empty_half(self) || sizes(self) != (0, 0) {
            check_square("linalg.eigvalsh", self)?;
        }
        if recording(&[self]) {
            return Ok(self.eigh(upper)?.0);
        }
        let a = if upper { self.mt()? } else { self.clone() };
        Ok(run(Linalg::Eigh, &[&a], &[batched(self, &[sizes(self).0])])?.remove(0))
    }
}

/// `x - xᵀ`.
fn skew(x: &Tensor) -> Result<Tensor> {
    x.sub(&x.mt()?)
}

/// `values[j] - values[i]` at `(i, j)`, and one on the diagonal, where the dividend is zero.
fn gaps(values: &Tensor) -> Result<Tensor> {
    let n = values.shape().last().copied().unwrap_or(0);
    let one = Tensor::eye_with(n, n, (values.dtype(), values.device()))?;
    values.unsqueeze(-2)?.sub(&values.unsqueeze(-1)?)?.add(&one)
}

/// The gradient of `U diag(S) Vᴴ` from those of its parts.
fn svd_derivative(u: &Tensor, s: &Tensor, vh: &Tensor, grads: Grads, k: usize) -> Result<Tensor> {
    let mut grads = grads.into_iter();
    let (du, ds, dvh) = (grads.next().flatten(), grads.next().flatten(), grads.next().flatten());
    let (row, column) = (s.unsqueeze(-2)?, s.unsqueeze(-1)?);
    let squares = s.square()?;
    let mut inner = match ds {
        Some(ds) => {
            let identity = Tensor::eye_with(k, k, (s.dtype(), s.device()))?;
            ds.unsqueeze(-1)?.mul(&identity)?
        }
        None => Tensor::zeros_with(batched(u, &[k, k]), (s.dtype(), s.device()))?,
    };
    // Parts of the vectors' gradients outside the spaces they span.
    let (mut left_rest, mut right_rest) = (None, None);
    if let Some(du) = du {
        let du = du.narrow(-1, 0, k)?;
        let along = u.mt()?.matmul(&du)?;
        inner = inner.add(&skew(&along)?.div(&gaps(&squares)?)?.mul(&row)?)?;
        if sizes(u).0 > k {
            left_rest = Some(du.sub(&u.matmul(&along)?)?.div(&row)?);
        }
    }
    if let Some(dvh) = dvh {
        let dvh = dvh.narrow(-2, 0, k)?;
        let along = dvh.matmul(&vh.mt()?)?;
        inner = inner.add(&skew(&along.mt()?)?.div(&gaps(&squares)?)?.mul(&column)?)?;
        if sizes(vh).1 > k {
            right_rest = Some(dvh.sub(&along.matmul(vh)?)?.div(&column)?);
        }
    }
    let mut whole = u.matmul(&inner)?;
    if let Some(rest) = left_rest {
        whole = whole.add(&rest)?;
    }
    whole = whole.matmul(vh)?;
    match right_rest {
        Some(rest) => whole.add(&u.matmul(&rest)?),
        None => Ok(whole),
    }
}
