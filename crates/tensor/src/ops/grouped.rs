//! Products of groups of rows, columns or summands with a matrix each, as mixtures of experts need them.

use super::matmul::{Blend, check_operands, multiply};
use crate::Tensor;
use crate::autograd::{Saved, no_grad, record, recording};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Result};
use std::sync::Arc;

/// The dimension that the groups divide. The derivatives of each are products of the other two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Divided {
    /// Rows of the first operand, with a matrix of the second for each group.
    Rows,
    /// Columns of the second operand, with a matrix of the first for each group.
    Columns,
    /// Summands: one product for each group.
    Summands,
}

impl Divided {
    fn compute(self, a: &Tensor, b: &Tensor, ends: &[usize]) -> Result<Tensor> {
        let (m, n) = (a.shape()[a.rank() - 2], b.shape()[b.rank() - 1]);
        let shape: Dims = match self {
            Divided::Summands => smallvec![ends.len(), m, n],
            _ => smallvec![m, n],
        };
        let out = a.uninit_like(&shape, a.dtype())?;
        let mut start = 0;
        for (group, &end) in ends.iter().enumerate() {
            let whole = |t: &Tensor| t.select(0, group as isize);
            let part = |t: &Tensor, dim| t.narrow(dim, start as isize, end - start);
            if self == Divided::Summands && start == end {
                whole(&out)?.fill_(0)?;
            } else if start < end {
                let (a, b, out) = match self {
                    Divided::Rows => (part(a, 0)?, whole(b)?, part(&out, 0)?),
                    Divided::Columns => (whole(a)?, part(b, 1)?, part(&out, 1)?),
                    Divided::Summands => (part(a, 1)?, part(b, 0)?, whole(&out)?),
                };
                multiply(&a, &b, &out, &Blend::PLAIN)?;
            }
            start = end;
        }
        let dim = match self {
            Divided::Rows => 0,
            Divided::Columns => 1,
            Divided::Summands => return Ok(out),
        };
        let length = out.shape()[dim];
        if start < length {
            out.narrow(dim as isize, start as isize, length - start)?.fill_(0)?;
        }
        Ok(out)
    }

    fn product(self, a: &Tensor, b: &Tensor, ends: &Arc<[usize]>) -> Result<Tensor> {
        let out = no_grad(|| self.compute(a, b, ends))?;
        if recording(&[a, b]) {
            let kept = |needed: &Tensor, t: &Tensor| needed.requires_grad().then(|| Saved::input(t));
            let (saved_a, saved_b, ends) = (kept(b, a), kept(a, b), ends.clone());
            let (first, second) = match self {
                Divided::Rows => (Divided::Rows, Divided::Summands),
                Divided::Columns => (Divided::Summands, Divided::Columns),
                Divided::Summands => (Divided::Columns, Divided::Rows),
            };
            record("grouped_mm", &[a, b], &out, move |ctx, dy| {
                let da = match &saved_b {
                    Some(b) if ctx.needs(0) => Some(first.product(dy, &ctx.get(b)?.transpose(-2, -1)?, &ends)?),
                    _ => None,
                };
                let db = match &saved_a {
                    Some(a) if ctx.needs(1) => Some(second.product(&ctx.get(a)?.transpose(-2, -1)?, dy, &ends)?),
                    _ => None,
                };
                Ok(smallvec![da, db])
            })?;
        }
        Ok(out)
    }
}

impl Tensor {
    /// Products of groups that end at `offs`, `i32`: rows of a matrix with matrices of a batch (2-D with 3-D), matrices
    /// of a batch with columns (3-D with 2-D), or summands (2-D with 2-D: a product for each group). Two batches,
    /// without `offs`, multiply as [`bmm`](Self::bmm). What follows the last group is zero. Reads `offs`, so a GPU is
    /// waited for.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
    /// use rushlight::{DType, Tensor};
    /// let (x, experts) = (Tensor::new([[1.0f32], [2.0], [3.0]])?, Tensor::new([[[10.0f32]], [[100.0]]])?);
    /// let y = x.grouped_mm(&experts, Some(&Tensor::new_with([2, 3], DType::I32)?))?;
    /// assert_eq!(y.to_vec::<f32>()?, [10.0, 20.0, 300.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn grouped_mm(&self, other: &Tensor, offs: Option<&Tensor>) -> Result<Tensor> {
        let name = "grouped_mm";
        for (matrix, t) in [("mat_a", self), ("mat_b", other)] {
            if !t.dtype().is_float() || t.dtype().is_carried() {
                return Err(Error::dtype(format!(
                    "{name}: {matrix} must have a floating-point dtype, got {}",
                    t.dtype()
                )));
            }
            if !matches!(t.rank(), 2 | 3) {
                return Err(Error::shape(format!("{name}: {matrix} has to be 2 or 3d, got shape {:?}", t.shape())));
            }
        }
        check_operands(name, self, other)?;
        let (a, b) = (self.shape(), other.shape());
        if a[a.len() - 1] != b[b.len() - 2] {
            return Err(Error::shape(format!(
                "{name}: contraction dimension of mat_a and mat_b must match, got shapes {a:?} and {b:?}"
            )));
        }
        let divided = match (a.len(), b.len()) {
            (2, 3) => Divided::Rows,
            (3, 2) => Divided::Columns,
            (2, 2) => Divided::Summands,
            _ if offs.is_none() => return self.bmm(other),
            _ => {
                return Err(Error::value(format!(
                    "{name}: Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
                )));
            }
        };
        let Some(offs) = offs else {
            return Err(Error::value(format!("{name}: Have to provide offsets if there is a 2d matrix")));
        };
        if offs.dtype() != DType::I32 {
            return Err(Error::dtype(format!("{name}: Offsets have to be int32, got {}", offs.dtype())));
        }
        let (length, batch) = match divided {
            Divided::Rows => (a[0], Some(b[0])),
            Divided::Columns => (b[1], Some(a[0])),
            Divided::Summands => (a[1], None),
        };
        if offs.rank() != 1 || batch.is_some_and(|batch| batch != offs.numel()) {
            return Err(Error::shape(format!(
                "{name}: matrix batch sizes have to match: offsets of shape {:?} for operands {a:?} and {b:?}",
                offs.shape()
            )));
        }
        let offs = offs.to_vec::<i32>()?;
        let (mut ends, mut start) = (Vec::with_capacity(offs.len()), 0);
        for &end in &offs {
            match usize::try_from(end) {
                Ok(end) if start <= end && end <= length => start = end,
                _ => return Err(Error::value(format!("{name}: offsets {offs:?} do not ascend to at most {length}"))),
            }
            ends.push(start);
        }
        divided.product(self, other, &ends.into())
    }
}
