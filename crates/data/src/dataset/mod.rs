//! The `Dataset` trait and adapters that combine datasets.

mod adapters;
mod iterable;
mod split;
mod tensors;

pub use adapters::{ConcatDataset, Map, Subset, Transformed};
pub use iterable::{IterableDataset, WorkerInfo};
pub use split::{SplitLength, random_split};
pub(crate) use tensors::index_tensor;
pub use tensors::{TensorDataset, TensorGroup};

use crate::collate::Collate;
use crate::rng::SampleRng;
use crate::transform::Transform;
use rushlight_core::{Error, Result};
use std::sync::Arc;

/// Samples by number.
///
/// [`Dataset::len`] and [`Dataset::get`] are enough. A dataset that changes its samples at random implements
/// [`Dataset::get_with`] as well and draws from the stream it is given; one that can read many samples at once
/// implements [`Dataset::get_batch`], which the loader prefers.
///
/// ```
/// # mod rushlight { pub use rushlight_core::Result; pub use rushlight_data as data; }
/// use rushlight::Result;
/// use rushlight::data::Dataset;
/// struct Squares;
/// impl Dataset for Squares {
///     type Item = (f32, f32);
///     fn len(&self) -> usize {
///         100
///     }
///     fn get(&self, index: usize) -> Result<(f32, f32)> {
///         let x = index as f32;
///         Ok((x, x * x))
///     }
/// }
/// let halves = Squares.map(|(x, y)| Ok((x / 2.0, y)));
/// assert_eq!(halves.get(3)?, (1.5, 9.0));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait Dataset: Send + Sync {
    /// One sample.
    type Item;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A sample.
    fn get(&self, index: usize) -> Result<Self::Item>;

    /// A sample; random transforms draw from `rng`.
    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<Self::Item> {
        let _ = rng;
        self.get(index)
    }

    /// A batch read at once, equal to the collated samples; `None` where there is no quicker way than one by one.
    fn get_batch(&self, indices: &[usize]) -> Result<Option<<Self::Item as Collate>::Batch>>
    where
        Self::Item: Collate,
    {
        let _ = indices;
        Ok(None)
    }

    /// This dataset with every sample put through a function.
    fn map<O, F>(self, function: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Self::Item) -> Result<O> + Send + Sync,
    {
        Map::new(self, function)
    }

    /// This dataset with every image, the first part of a sample, put through a transform.
    fn transform<L, T>(self, transform: T) -> Transformed<Self, T>
    where
        Self: Dataset<Item = (rushlight_tensor::Tensor, L)> + Sized,
        T: Transform,
    {
        Transformed::new(self, transform)
    }
}

/// The error for an index that is not below a dataset's length.
#[cold]
pub(crate) fn out_of_range(dataset: &str, index: usize, len: usize) -> Error {
    Error::index(format!("{dataset}: index {index} is out of range for a dataset of {len} samples"))
}

macro_rules! delegate {
    ($($pointer:ident)*) => {$(
        impl<D: Dataset + ?Sized> Dataset for $pointer<D> {
            type Item = D::Item;
            fn len(&self) -> usize {
                (**self).len()
            }
            fn get(&self, index: usize) -> Result<D::Item> {
                (**self).get(index)
            }
            fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
                (**self).get_with(index, rng)
            }
            fn get_batch(&self, indices: &[usize]) -> Result<Option<<D::Item as Collate>::Batch>>
            where
                D::Item: Collate,
            {
                (**self).get_batch(indices)
            }
        }
    )*};
}
delegate!(Arc Box);

/// Samples held in memory.
///
/// ```
/// # mod rushlight { pub use rushlight_data as data; }
/// use rushlight::data::{Dataset, VecDataset};
/// assert_eq!(VecDataset::new(vec!["a", "b"]).get(1)?, "b");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VecDataset<T>(Vec<T>);

impl<T> VecDataset<T> {
    /// A dataset of the vector's elements.
    pub fn new(samples: Vec<T>) -> Self {
        Self(samples)
    }
}

impl<T: Clone + Send + Sync> Dataset for VecDataset<T> {
    type Item = T;
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, index: usize) -> Result<T> {
        self.0.get(index).cloned().ok_or_else(|| out_of_range("VecDataset", index, self.0.len()))
    }
}
