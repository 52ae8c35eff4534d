//! LU factors with partial pivoting, `A = P L U`.

use super::{SolveTriangular, batched, check_matrices, check_square, is_empty_half, run, sizes};
use crate::autograd::{Saved, record, recording};
use crate::{Tensor, amp, cat};
use rushlight_core::backend::Linalg;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Result};

impl Tensor {
    /// Packed LU factors of `m × n` matrices, LAPACK's pivots (`int32`, counted from one) and `info` (`int32`): the
    /// place of the first zero on the diagonal of `U`, counted from one, or zero. `U` is in the upper triangle, `L`
    /// below it without its ones. A singular matrix is no error here.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::Tensor; }
    /// use rushlight::{DType, Tensor};
    /// let a = Tensor::new_with([[1.0, 2.0], [4.0, 6.0]], DType::F64)?;
    /// let (lu, pivots, _) = a.lu_factor()?;
    /// assert_eq!(lu.to_vec::<f64>()?, [4.0, 6.0, 0.25, 0.5]);
    /// assert_eq!(pivots.to_vec::<i32>()?, [2, 2]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn lu_factor(&self) -> Result<(Tensor, Tensor, Tensor)> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.lu_factor());
        }
        if !is_empty_half(self) {
            check_matrices("linalg.lu_factor", self)?;
        }
        let (m, n) = sizes(self);
        let shapes = [Dims::from_slice(self.shape()), batched(self, &[m.min(n)]), batched(self, &[])];
        let mut out = run(Linalg::LuFactor, &[self], &shapes)?;
        let info = out.remove(2).to_dtype(DType::I32)?;
        let pivots = out.remove(1).to_dtype(DType::I32)?;
        let lu = out.remove(0);
        if recording(&[self]) {
            let (factors, rows) = (Saved::output(&lu, 0), pivots.clone());
            record("linalg_lu_factor", &[self], &lu, move |ctx, dy| {
                let (p, l, u) = lu_unpack(&ctx.get(&factors)?, &rows)?;
                let (dl, du) = halves(dy)?;
                Ok(smallvec![Some(p.matmul(&derivative(&l, &u, &dl, &du)?)?)])
            })?;
        }
        Ok((lu, pivots, info))
    }

    /// `(P, L, U)` with `self = P L U`: a permutation, a lower triangle with ones on its diagonal, an upper triangle.
    /// Of `m × n` matrices `L` is `m × min(m, n)`, `U` is `min(m, n) × n`.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::Tensor; }
    /// use rushlight::{DType, Tensor};
    /// let a = Tensor::new_with([[1.0, 2.0], [4.0, 6.0]], DType::F64)?;
    /// let (p, l, u) = a.lu()?;
    /// assert_eq!(p.matmul(&l)?.matmul(&u)?.to_vec::<f64>()?, [1.0, 2.0, 4.0, 6.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn lu(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let (lu, pivots, _) = self.lu_factor().map_err(|e| e.within("linalg.lu"))?;
        lu_unpack(&lu, &pivots)
    }

    /// Solves `A X = b` for the `A` whose packed factors are `self` and `pivots` (see
    /// [`lu_factor`](Tensor::lu_factor)); `X A = b` if not `left`, `Aᵀ` in place of `A` if `adjoint`. Batches
    /// broadcast.
    pub fn lu_solve(&self, pivots: &Tensor, b: &Tensor, left: bool, adjoint: bool) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.lu_solve(pivots, &cast.of(b)?, left, adjoint));
        }
        let call = "linalg.lu_solve";
        check_square(call, self)?;
        if b.rank() < 2 {
            return Err(Error::shape(format!(
                "{call}: The input tensor B must have at least 2 dimensions, got shape {:?}",
                b.shape()
            )));
        }
        if !left {
            return self.lu_solve(pivots, &b.mt()?, true, !adjoint)?.mt();
        }
        let (p, _, _) = lu_unpack(self, pivots).map_err(|e| e.within(call))?;
        let (lower, upper) = (SolveTriangular::new(false).unitriangular(true), SolveTriangular::new(true));
        if adjoint {
            let (lower, upper) = (SolveTriangular { upper: true, ..lower }, SolveTriangular { upper: false, ..upper });
            let turned = self.mt()?;
            return p.matmul(&turned.solve_triangular(&turned.solve_triangular(b, upper)?, lower)?);
        }
        self.solve_triangular(&self.solve_triangular(&p.mt()?.matmul(b)?, lower)?, upper)
    }
}

/// `(P, L, U)` of packed LU factors and LAPACK's pivots (see [`Tensor::lu_factor`]).
pub fn lu_unpack(lu: &Tensor, pivots: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let call = "lu_unpack";
    if !is_empty_half(lu) {
        check_matrices(call, lu)?;
    }
    if pivots.dtype() != DType::I32 {
        return Err(Error::dtype(format!(
            "{call}: pivots must be int32, as lu_factor gives them, but they are {}",
            pivots.dtype()
        )));
    }
    let (m, n) = sizes(lu);
    let k = m.min(n);
    if *pivots.shape() != batched(lu, &[k])[..] {
        return Err(Error::shape(format!(
            "{call}: factors of shape {:?} go with pivots of shape {:?}, but these have {:?}",
            lu.shape(),
            &batched(lu, &[k])[..],
            pivots.shape()
        )));
    }
    let permutation = permutation(call, pivots, m, k)?;
    // A[permutation[i]] is row i of L U, so column i of P has its one in row permutation[i].
    let places = Tensor::arange(0, m as i64, 1)?.to(lu.device())?.unsqueeze(-1)?;
    let p = places.eq(&permutation.unsqueeze(-2)?)?.to_dtype(lu.dtype())?;
    let l = lu.narrow(-1, 0, k)?.tril(-1)?.add(&Tensor::eye_with(m, k, (lu.dtype(), lu.device()))?)?;
    Ok((p, l, lu.narrow(-2, 0, k)?.triu(0)?))
}

/// The permutation that results from the row exchanges, `[.., m]`, `int64`.
fn permutation(call: &str, pivots: &Tensor, m: usize, k: usize) -> Result<Tensor> {
    let exchanges = pivots.to_vec::<i32>()?;
    let lead = &pivots.shape()[..pivots.rank().saturating_sub(1)];
    let count: usize = lead.iter().product();
    let mut order: Vec<i64> = Vec::with_capacity(count * m);
    for one in 0..count {
        let start = order.len();
        order.extend(0..m as i64);
        for i in 0..k {
            let with = exchanges[one * k + i];
            if with < 1 || with as usize > m {
                return Err(Error::value(format!("{call}: a pivot is {with}, but it must be from 1 to {m}")));
            }
            order.swap(start + i, start + with as usize - 1);
        }
    }
    let mut shape = Dims::from_slice(lead);
    shape.push(m);
    Tensor::from_slice(&order, &shape)?.to(pivots.device())
}

/// The parts of a packed gradient that belong to `L` and to `U`.
fn halves(packed: &Tensor) -> Result<(Tensor, Tensor)> {
    let (m, n) = sizes(packed);
    let k = m.min(n);
    Ok((packed.narrow(-1, 0, k)?.tril(-1)?, packed.narrow(-2, 0, k)?.triu(0)?))
}

/// The gradient by `L U` from those by `L` and `U`.
fn derivative(l: &Tensor, u: &Tensor, dl: &Tensor, du: &Tensor) -> Result<Tensor> {
    let ((m, k), (_, n)) = (sizes(l), sizes(u));
    let (l1, u1) = (l.narrow(-2, 0, k)?, u.narrow(-1, 0, k)?);
    let by_lower = SolveTriangular::new(true).unitriangular(true);
    // X U₁ᵀ = B, of which U₁ᵀ is the lower triangle.
    let by_upper = |b: &Tensor| u1.mt()?.solve_triangular(b, SolveTriangular::new(false).left(false));
    let mut lower = l1.mt()?.matmul(&dl.narrow(-2, 0, k)?)?;
    let mut upper = du.narrow(-1, 0, k)?.matmul(&u1.mt()?)?;
    if n > k {
        // U₂ = L⁻¹ Pᵀ A₂ depends on L.
        let (u2, du2) = (u.narrow(-1, k as isize, n - k)?, du.narrow(-1, k as isize, n - k)?);
        lower = lower.sub(&du2.matmul(&u2.mt()?)?)?;
    }
    if m > k {
        // L₂ = A₂ U⁻¹ depends on U.
        let (l2, dl2) = (l.narrow(-2, k as isize, m - k)?, dl.narrow(-2, k as isize, m - k)?);
        upper = upper.sub(&l2.mt()?.matmul(&dl2)?)?;
    }
    let inner = lower.tril(-1)?.add(&upper.triu(0)?)?;
    let mut out = by_upper(&l1.mt()?.solve_triangular(&inner, by_lower)?)?;
    if n > k {
        let right = l1.mt()?.solve_triangular(&du.narrow(-1, k as isize, n - k)?, by_lower)?;
        out = cat(&[&out, &right], -1)?;
    }
    if m > k {
        out = cat(&[&out, &by_upper(&dl.narrow(-2, k as isize, m - k)?)?], -2)?;
    }
    Ok(out)
}
