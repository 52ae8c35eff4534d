//! Norms of matrices.

use crate::Tensor;
use rushlight_core::{Error, Result};

/// The order of a matrix norm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MatrixNorm {
    /// The square root of the sum of squares.
    #[default]
    Fro,
    /// The sum of the singular values.
    Nuc,
    /// 1 and infinity: the largest sum of magnitudes of a column, of a row; 2: the largest singular value; negative:
    /// the smallest.
    Ord(f64),
}

impl Tensor {
    /// Norms of the matrices that two dimensions hold; PyTorch's default dimensions are the last two.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
    /// use rushlight::{MatrixNorm, Tensor};
    /// let a = Tensor::new_with([[3.0, 0.0], [0.0, -4.0]], rushlight::DType::F64)?;
    /// assert_eq!(a.matrix_norm(MatrixNorm::Fro, [-2, -1], false)?.item::<f64>()?, 5.0);
    /// assert_eq!(a.matrix_norm(MatrixNorm::Ord(1.0), [-2, -1], false)?.item::<f64>()?, 4.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn matrix_norm(&self, ord: MatrixNorm, dims: [isize; 2], keepdim: bool) -> Result<Tensor> {
        let call = "linalg.matrix_norm";
        self.needs_float(call)?;
        if self.rank() < 2 {
            return Err(Error::shape(format!(
                "{call}: The input tensor must have at least 2 dimensions, got shape {:?}",
                self.shape()
            )));
        }
        let pair = self.wrap_dims(call, &dims)?;
        let (rows, columns) = (pair[0] as isize, pair[1] as isize);
        let p = match ord {
            MatrixNorm::Fro => return self.frobenius_norm(dims, keepdim),
            MatrixNorm::Nuc => f64::NAN,
            MatrixNorm::Ord(p) if [1.0, 2.0, f64::INFINITY].contains(&p.abs()) => p,
            MatrixNorm::Ord(p) => {
                return Err(Error::value(format!(
                    "{call}: Order {p} not supported; use 1, 2, infinity or a negative of these"
                )));
            }
        };
        // Everything below keeps both dimensions until the end.
        let kept = if p.abs() == 1.0 || p.is_infinite() {
            let (summed, compared) = if p.is_infinite() { (columns, rows) } else { (rows, columns) };
            let sums = self.abs()?.sum_dims([summed], true)?;
            if p > 0.0 { sums.amax([compared], true)? } else { sums.amin([compared], true)? }
        } else {
            let values = self.movedim([rows, columns], [-2, -1])?.svdvals()?;
            let norm = match ord {
                MatrixNorm::Nuc => values.sum(-1)?,
                _ if p > 0.0 => values.amax([-1], false)?,
                _ => values.amin([-1], false)?,
            };
            norm.unsqueeze(rows.min(columns))?.unsqueeze(rows.max(columns))?
        };
        if keepdim { Ok(kept) } else { kept.squeeze([rows, columns]) }
    }
}
