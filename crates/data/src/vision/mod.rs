//! Datasets of images: CIFAR, MNIST, folders.
//!
//! Samples are `(image, label)`: an image `[channels, height, width]` of `uint8`, and the number of its class.

mod cifar;
mod decode;
mod encode;
mod folder;
mod grid;
mod idx;
mod mnist;
mod synthetic;

pub use cifar::{Cifar10, Cifar100};
pub use decode::{Colours, DecodeLimits, decode_image, read_image};
pub use encode::{encode_jpeg, encode_png};
pub use folder::ImageFolder;
pub use grid::{make_grid, save_image};
pub use mnist::{FashionMnist, Mnist};

use crate::collate::Collate;
use crate::dataset::{Dataset, index_tensor, out_of_range};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// Images and labels held in memory. Batches are gathered at once.
#[derive(Clone)]
pub struct LabeledImages {
    images: Tensor,
    labels: Tensor,
    label_values: Arc<[i64]>,
    classes: Arc<[String]>,
}

impl LabeledImages {
    /// Images `[count, channels, height, width]` of `uint8`, with a label below the number of classes for each.
    pub fn new(images: Tensor, labels: Vec<i64>, classes: Vec<String>) -> Result<Self> {
        if images.rank() != 4 || images.dtype() != DType::U8 || images.shape()[0] != labels.len() {
            return Err(Error::shape(format!(
                "LabeledImages: expects uint8 images [{}, channels, height, width], one per label, got {:?} of {}",
                labels.len(),
                images.shape(),
                images.dtype()
            )));
        }
        let valid = |label: i64| usize::try_from(label).is_ok_and(|l| l < classes.len());
        if let Some((i, label)) = labels.iter().enumerate().find(|(_, l)| !valid(**l)) {
            return Err(Error::value(format!(
                "LabeledImages: label {label} of image {i} is not below the number of classes {}",
                classes.len()
            )));
        }
        let tensor = Tensor::new(&labels[..])?;
        Ok(Self { images, labels: tensor, label_values: labels.into(), classes: classes.into() })
    }

    /// All images.
    pub fn images(&self) -> &Tensor {
        &self.images
    }

    /// All labels.
    pub fn labels(&self) -> &Tensor {
        &self.labels
    }

    /// The classes' names, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }
}

impl Dataset for LabeledImages {
    type Item = (Tensor, i64);

    fn len(&self) -> usize {
        self.label_values.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        match self.label_values.get(index) {
            Some(&label) => Ok((self.images.select(0, index as isize)?, label)),
            None => Err(out_of_range("LabeledImages", index, self.len())),
        }
    }

    fn get_batch(&self, indices: &[usize]) -> Result<Option<<Self::Item as Collate>::Batch>> {
        let index = index_tensor("LabeledImages", indices, self.len())?;
        Ok(Some((self.images.index_select(0, &index)?, self.labels.index_select(0, &index)?)))
    }
}

fn class_names(names: &[&str]) -> Vec<String> {
    names.iter().map(|s| s.to_string()).collect()
}
