//! Data loading: datasets, samplers, the loader, transforms, tokenizers.
//!
//! | module | what |
//! |---|---|
//! | root | [`Dataset`], [`IterableDataset`], [`Collate`], [`DataLoader`], as in `torch.utils.data` |
//! | [`sampler`] | the order in which samples are read |
//! | [`vision`] | CIFAR, MNIST and folders of images |
//! | [`transform`] | image transforms, as in `torchvision.transforms` |
//! | [`text`] | tokenizers and windows over tokens |
//! | [`download`] | fetching and unpacking public datasets |

mod collate;
mod dataset;
pub mod download;
mod loader;
mod pin;
mod progress;
mod rng;
pub mod sampler;
pub mod text;
pub mod transform;
pub mod vision;

pub use collate::Collate;
pub use dataset::*;
pub use loader::{DataLoader, DataLoaderBuilder, IterableLoaderBuilder, LoaderIter};
pub use pin::PinMemory;
pub use progress::{Progress, ProgressHandle};
pub use rng::SampleRng;
