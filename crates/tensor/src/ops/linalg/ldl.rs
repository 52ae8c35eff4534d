//! Symmetric indefinite systems, by `A = P L D Lᵀ Pᵀ`.

use super::{batched, check_square, run, sizes};
use crate::Tensor;
use crate::autograd::{record, recording};
use rushlight_core::backend::Linalg;
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::{DType, Dims, Error, Result};

/// The error of a backward pass through `name`.
fn no_derivative<T>(name: &str) -> Result<T> {
    Err(Error::autograd(format!("the derivative for '{name}' is not implemented; use linalg.solve, which has one")))
}

impl Tensor {
    /// Factors of symmetric matrices, of which the lower triangle is read: `L` and the blocks of `D` packed in the
    /// lower triangle, LAPACK's pivots (`int32`) and `info` (`int32`): the place of the first zero block of `D`,
    /// counted from one, or zero. A singular matrix is no error here.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
    /// use rushlight::{DType, Tensor};
    /// let a = Tensor::new_with([[4.0, 1.0], [1.0, 3.0]], DType::F64)?;
    /// let (ld, pivots, _) = a.ldl_factor()?;
    /// assert_eq!(ld.to_vec::<f64>()?, [4.0, 0.0, 0.25, 2.75]);
    /// let x = ld.ldl_solve(&pivots, &Tensor::new_with([[5.0], [4.0]], DType::F64)?)?;
    /// assert_eq!(x.to_vec::<f64>()?, [1.0, 1.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn ldl_factor(&self) -> Result<(Tensor, Tensor, Tensor)> {
        check_square("torch.linalg.ldl_factor_ex", self)?;
        let n = sizes(self).0;
        let shapes = [Dims::from_slice(self.shape()), batched(self, &[n]), batched(self, &[])];
        let mut out = run(Linalg::LdlFactor, &[self], &shapes)?;
        let info = out.remove(2).to_dtype(DType::I32)?;
        let pivots = out.remove(1).to_dtype(DType::I32)?;
        let ld = out.remove(0);
        if recording(&[self]) {
            record("linalg_ldl_factor_ex", &[self], &ld, |_, _| no_derivative("linalg_ldl_factor_ex"))?;
        }
        Ok((ld, pivots, info))
    }

    /// Solves `A X = b` for the `A` whose factors are `self` and `pivots` (see [`Tensor::ldl_factor`]). Batches
    /// broadcast.
    pub fn ldl_solve(&self, pivots: &Tensor, b: &Tensor) -> Result<Tensor> {
        let call = "torch.linalg.ldl_solve";
        check_square(call, self)?;
        let n = sizes(self).0;
        if b.rank() < 2 {
            return Err(Error::index(format!(
                "{call}: B must have at least 2 dimensions, got shape {:?}; for one vector use B.unsqueeze(-1)",
                b.shape()
            )));
        }
        if b.dtype() != self.dtype() {
            return Err(Error::dtype(format!(
                "{call}: Expected b and A to have the same dtype, but found b of type {} and A of type {} instead",
                b.dtype(),
                self.dtype()
            )));
        }
        if sizes(b).0 != n {
            let (rows, columns) = sizes(b);
            return Err(Error::shape(format!(
                "Incompatible matrix sizes for {call}: each A matrix is {n} by {n} but each b matrix is {rows} by {columns}"
            )));
        }
        if *pivots.shape() != self.shape()[..self.rank() - 1] {
            return Err(Error::shape(format!(
                "{call}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {:?} instead",
                pivots.shape()
            )));
        }
        if !matches!(pivots.dtype(), DType::I32 | DType::I64) {
            return Err(Error::dtype(format!("{call}: Expected pivots to be integers. Got {}", pivots.dtype())));
        }
        let lead = broadcast_shapes(&self.shape()[..self.rank() - 2], &b.shape()[..b.rank() - 2])
            .map_err(|e| e.within(call))?;
        let expanded = |t: &Tensor, tail: &[usize]| {
            let mut shape = Dims::from_slice(&lead);
            shape.extend_from_slice(tail);
            t.expand(&shape[..])
        };
        let right = expanded(b, &b.shape()[b.rank() - 2..])?;
        let (ld, pivots) = (expanded(self, &[n, n])?, expanded(&pivots.to_dtype(self.dtype())?, &[n])?);
        let x = run(Linalg::LdlSolve, &[&right, &ld, &pivots], &[Dims::from_slice(right.shape())])?.remove(0);
        if recording(&[self, b]) {
            record("linalg_ldl_solve", &[self, b], &x, |_, _| no_derivative("linalg_ldl_solve"))?;
        }
        Ok(x)
    }
}
