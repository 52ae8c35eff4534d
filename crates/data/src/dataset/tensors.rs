//! Rows of tensors as samples.

use super::{Dataset, out_of_range};
use crate::collate::Collate;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;

/// A tensor, or a tuple, array or vector of tensors.
pub trait TensorGroup: Sized + Send + Sync {
    /// All tensors, in order.
    fn tensors(&self) -> Vec<&Tensor>;
    /// The group with every tensor replaced.
    fn try_map(&self, f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Self>;
}

impl TensorGroup for Tensor {
    fn tensors(&self) -> Vec<&Tensor> {
        vec![self]
    }
    fn try_map(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        f(self)
    }
}

impl TensorGroup for Vec<Tensor> {
    fn tensors(&self) -> Vec<&Tensor> {
        self.iter().collect()
    }
    fn try_map(&self, f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.iter().map(f).collect()
    }
}

impl<const N: usize> TensorGroup for [Tensor; N] {
    fn tensors(&self) -> Vec<&Tensor> {
        self.iter().collect()
    }
    fn try_map(&self, f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let mapped: Vec<Tensor> = self.iter().map(f).collect::<Result<_>>()?;
        mapped.try_into().map_err(|_| Error::value("TensorGroup: the number of tensors changed"))
    }
}

macro_rules! tuples {
    ($(($($t:ident $tensor:ident),+);)*) => {$(
        impl TensorGroup for ($($t,)+) {
            fn tensors(&self) -> Vec<&Tensor> {
                let ($($tensor,)+) = self;
                vec![$($tensor),+]
            }
            fn try_map(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
                let ($($tensor,)+) = self;
                Ok(($(f($tensor)?,)+))
            }
        }
    )*};
}
tuples! {
    (Tensor a);
    (Tensor a, Tensor b);
    (Tensor a, Tensor b, Tensor c);
    (Tensor a, Tensor b, Tensor c, Tensor d);
}

/// Tensors with equally many rows; sample `i` is row `i` of each. Batches are gathered at once.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_data as data; }
/// use rushlight::data::{Dataset, TensorDataset};
/// use rushlight::Tensor;
/// let data = TensorDataset::new((Tensor::zeros([10, 3])?, Tensor::arange(0, 10, 1)?))?;
/// let (x, y) = data.get(4)?;
/// assert_eq!((x.shape(), y.item::<i64>()?), (&[3][..], 4));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct TensorDataset<T> {
    group: T,
    len: usize,
}

impl<T: TensorGroup> TensorDataset<T> {
    /// A dataset of the tensors' rows.
    pub fn new(tensors: T) -> Result<Self> {
        let all = tensors.tensors();
        let rows = |t: &Tensor| t.shape().first().copied();
        let Some(len) = all.first().and_then(|t| rows(t)) else {
            return Err(Error::shape("TensorDataset: needs tensors with at least one dimension"));
        };
        if let Some(other) = all.iter().find(|t| rows(t) != Some(len)) {
            return Err(Error::shape(format!(
                "TensorDataset: all tensors must have the same size in their first dimension, but the first has {len} rows and \
                 another has shape {:?}",
                other.shape()
            )));
        }
        Ok(Self { group: tensors, len })
    }

    /// The tensors.
    pub fn tensors(&self) -> &T {
        &self.group
    }
}

/// Indices as a tensor, checked against a dataset's length.
pub(crate) fn index_tensor(dataset: &str, indices: &[usize], len: usize) -> Result<Tensor> {
    if let Some(&bad) = indices.iter().find(|&&i| i >= len) {
        return Err(out_of_range(dataset, bad, len));
    }
    Tensor::new(indices.iter().map(|&i| i as i64).collect::<Vec<i64>>())
}

impl<T: TensorGroup + Collate<Batch = T>> Dataset for TensorDataset<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<T> {
        if index >= self.len {
            return Err(out_of_range("TensorDataset", index, self.len));
        }
        self.group.try_map(|t| t.select(0, index as isize))
    }

    fn get_batch(&self, indices: &[usize]) -> Result<Option<T>> {
        let index = index_tensor("TensorDataset", indices, self.len)?;
        self.group.try_map(|t| t.index_select(0, &index.to(t.device())?)).map(Some)
    }
}
