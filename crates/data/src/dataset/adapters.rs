//! Datasets made of other datasets.

use super::{Dataset, out_of_range};
use crate::collate::Collate;
use crate::rng::SampleRng;
use crate::transform::Transform;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// Some samples of a dataset, in a given order.
#[derive(Clone)]
pub struct Subset<D> {
    dataset: D,
    indices: Arc<[usize]>,
}

impl<D: Dataset> Subset<D> {
    /// The samples the indices name. An index that the dataset does not have is an error.
    pub fn new(dataset: D, indices: impl Into<Arc<[usize]>>) -> Result<Self> {
        let (indices, len) = (indices.into(), dataset.len());
        match indices.iter().find(|&&i| i >= len) {
            Some(&bad) => Err(out_of_range("Subset", bad, len)),
            None => Ok(Self { dataset, indices }),
        }
    }

    /// The indices into the whole dataset.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// The whole dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    fn whole_index(&self, index: usize) -> Result<usize> {
        self.indices.get(index).copied().ok_or_else(|| out_of_range("Subset", index, self.indices.len()))
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        self.dataset.get(self.whole_index(index)?)
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        self.dataset.get_with(self.whole_index(index)?, rng)
    }

    fn get_batch(&self, indices: &[usize]) -> Result<Option<<D::Item as Collate>::Batch>>
    where
        D::Item: Collate,
    {
        let whole: Vec<usize> = indices.iter().map(|&i| self.whole_index(i)).collect::<Result<_>>()?;
        self.dataset.get_batch(&whole)
    }
}

/// Several datasets one after the other. Datasets of different types go in as `Box<dyn Dataset<Item = …>>`.
pub struct ConcatDataset<D> {
    parts: Vec<D>,
    /// Where each part ends.
    ends: Vec<usize>,
}

impl<D: Dataset> ConcatDataset<D> {
    /// The samples of the first dataset, then those of the second, and so on.
    pub fn new(parts: Vec<D>) -> Result<Self> {
        if parts.is_empty() {
            return Err(Error::value("ConcatDataset: needs at least one dataset"));
        }
        let mut end = 0usize;
        let mut ends = Vec::with_capacity(parts.len());
        for part in &parts {
            end = end
                .checked_add(part.len())
                .ok_or_else(|| Error::value("ConcatDataset: more samples than can be counted"))?;
            ends.push(end);
        }
        Ok(Self { parts, ends })
    }

    /// The dataset that contains a sample, and its index there.
    fn locate(&self, index: usize) -> Result<(&D, usize)> {
        let at = self.ends.partition_point(|&end| end <= index);
        match self.parts.get(at) {
            Some(part) => Ok((part, index - if at == 0 { 0 } else { self.ends[at - 1] })),
            None => Err(out_of_range("ConcatDataset", index, self.len())),
        }
    }
}

impl<D: Dataset> Dataset for ConcatDataset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        let (part, index) = self.locate(index)?;
        part.get(index)
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        let (part, index) = self.locate(index)?;
        part.get_with(index, rng)
    }
}

/// A dataset with every sample put through a function: see [`Dataset::map`].
#[derive(Clone)]
pub struct Map<D, F> {
    dataset: D,
    function: F,
}

impl<D, F> Map<D, F> {
    pub(super) fn new(dataset: D, function: F) -> Self {
        Self { dataset, function }
    }
}

impl<D: Dataset, O, F: Fn(D::Item) -> Result<O> + Send + Sync> Dataset for Map<D, F> {
    type Item = O;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn get(&self, index: usize) -> Result<O> {
        (self.function)(self.dataset.get(index)?)
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<O> {
        (self.function)(self.dataset.get_with(index, rng)?)
    }
}

/// A dataset of images with labels, the images put through a transform: see [`Dataset::transform`].
#[derive(Clone)]
pub struct Transformed<D, T> {
    dataset: D,
    transform: T,
}

impl<D, T> Transformed<D, T> {
    pub(super) fn new(dataset: D, transform: T) -> Self {
        Self { dataset, transform }
    }
}

impl<L, D: Dataset<Item = (Tensor, L)>, T: Transform> Dataset for Transformed<D, T> {
    type Item = (Tensor, L);

    fn len(&self) -> usize {
        self.dataset.len()
    }

    /// The sample changed by random numbers of the process-wide generator.
    fn get(&self, index: usize) -> Result<(Tensor, L)> {
        self.get_with(index, &mut SampleRng::from_default())
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<(Tensor, L)> {
        let (image, label) = self.dataset.get_with(index, rng)?;
        Ok((self.transform.apply(&image, rng)?, label))
    }
}
