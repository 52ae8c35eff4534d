//! Bags of rows: sums, means and maxima, as bags of embeddings need them.

use super::gather::ScatterReduce;
use crate::Tensor;
use rushlight_core::{DType, Error, Result};

/// How the rows of a bag are reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// The largest of each element.
    Max,
}

impl BagMode {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            BagMode::Sum => "sum",
            BagMode::Mean => "mean",
            BagMode::Max => "max",
        }
    }

    /// The mode of a name.
    pub fn by_name(name: &str) -> Result<Self> {
        [BagMode::Sum, BagMode::Mean, BagMode::Max]
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| Error::value("mode has to be one of sum or mean or max"))
    }
}

impl Tensor {
    /// Rows `[bags, length, width]` reduced to `[bags, width]`: bags of one length. `kept`, `[bags, length]`, marks the
    /// rows that count. A bag without rows is zero. No sizes are read, so a step with it can be captured.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{BagMode, Tensor};
    /// let rows = Tensor::new([[[1.0f32], [3.0]], [[5.0], [8.0]]])?;
    /// assert_eq!(rows.even_bags(BagMode::Mean, None)?.to_vec::<f32>()?, [2.0, 6.5]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn even_bags(&self, mode: BagMode, kept: Option<&Tensor>) -> Result<Tensor> {
        let &[bags, length, width] = self.shape() else {
            return Err(Error::shape(format!(
                "even_bags: expected [bags, length, width], got shape {:?}",
                self.shape()
            )));
        };
        if length == 0 {
            return Tensor::zeros_with([bags, width], (self.dtype(), self.device()));
        }
        let rows = self.without(mode, kept)?;
        match (mode, kept) {
            (BagMode::Sum, _) => rows.sum(1),
            (BagMode::Mean, None) => rows.mean(1),
            (BagMode::Mean, Some(kept)) => {
                rows.sum(1)?.div(&kept.sum_dims(1, true)?.clamp_min(1)?.to_dtype(rows.dtype())?)
            }
            (BagMode::Max, None) => Ok(rows.max_dim(1, false)?.0),
            (BagMode::Max, Some(kept)) => {
                let empty = kept.any_dims(1, true)?.logical_not()?;
                rows.max_dim(1, false)?.0.masked_fill(&empty, 0.0)
            }
        }
    }

    /// Rows `[count, width]` reduced to `[bags, width]`; `owner` has the bag of each row, and the number `bags` for
    /// rows of none. `kept` marks the rows that count. A bag without rows is zero.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{BagMode, Tensor};
    /// let (rows, owner) = (Tensor::new([[1.0f32], [2.0], [4.0]])?, Tensor::new([0i64, 0, 2])?);
    /// assert_eq!(rows.bags(BagMode::Sum, &owner, 3, None)?.to_vec::<f32>()?, [3.0, 0.0, 4.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn bags(&self, mode: BagMode, owner: &Tensor, bags: usize, kept: Option<&Tensor>) -> Result<Tensor> {
        let (&[count, width], [owners]) = (self.shape(), owner.shape()) else {
            return Err(Error::shape(format!(
                "bags: expected rows [count, width] and owners [count], got shapes {:?} and {:?}",
                self.shape(),
                owner.shape()
            )));
        };
        if *owners != count {
            return Err(Error::shape(format!("bags: {count} rows have {owners} owners")));
        }
        let rows = self.without(mode, kept)?;
        let zeros = Tensor::zeros_with([bags + 1, width], (rows.dtype(), rows.device()))?;
        // As integers: a half type does not count far.
        let counts = || -> Result<Tensor> {
            let options = (DType::I64, rows.device());
            let one = match kept {
                Some(kept) => kept.to_dtype(DType::I64)?,
                None => Tensor::ones_with([count], options)?,
            };
            let counts = Tensor::zeros_with([bags + 1], options)?.index_add(0, owner, &one, 1)?;
            counts.narrow(0, 0, bags)?.unsqueeze(-1)
        };
        match mode {
            BagMode::Sum => zeros.index_add(0, owner, &rows, 1)?.narrow(0, 0, bags),
            BagMode::Mean => {
                let sums = zeros.index_add(0, owner, &rows, 1)?.narrow(0, 0, bags)?;
                sums.div(&counts()?.clamp_min(1)?.to_dtype(rows.dtype())?)
            }
            BagMode::Max => {
                let owner = owner.unsqueeze(-1)?.expand([count, width])?;
                let found = zeros.scatter_reduce(0, &owner, &rows, ScatterReduce::Amax, false)?;
                found.narrow(0, 0, bags)?.masked_fill(&counts()?.eq(0)?, 0.0)
            }
        }
    }

    /// These rows without what those that do not count would add.
    fn without(&self, mode: BagMode, kept: Option<&Tensor>) -> Result<Tensor> {
        let Some(kept) = kept else { return Ok(self.clone()) };
        let nothing = if mode == BagMode::Max { f64::NEG_INFINITY } else { 0.0 };
        self.masked_fill(&kept.logical_not()?.unsqueeze(-1)?, nothing)
    }
}
