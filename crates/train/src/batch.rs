//! Batches of a training step: their tensors can be moved, converted and recorded.

use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

/// A batch: tensors, alone or in containers, optionally with text. Everything that a loader collates is one.
pub trait Batch: Send + Sized + 'static {
    /// Whether the batch consists of tensors only. Only then can a step be captured: other values would keep their
    /// values from the recording.
    const ONLY_TENSORS: bool;

    /// Calls `visit` with every tensor, in order.
    fn visit(&self, visit: &mut dyn FnMut(&Tensor));

    /// The same structure with other tensors; `change` is called in [`Batch::visit`]'s order.
    fn map(&self, change: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self>;

    /// Number of samples: the first dimension of the first tensor that has one.
    fn len(&self) -> usize {
        let mut found = None;
        self.visit(&mut |t| found = found.or_else(|| t.shape().first().copied()));
        found.unwrap_or(1)
    }

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Batch for Tensor {
    const ONLY_TENSORS: bool = true;

    fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
        visit(self);
    }

    fn map(&self, change: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        change(self)
    }
}

macro_rules! without_tensors {
    ($($t:ty, $only:expr;)*) => {$(
        impl Batch for $t {
            const ONLY_TENSORS: bool = $only;
            fn visit(&self, _: &mut dyn FnMut(&Tensor)) {}
            fn map(&self, _: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
                Ok(self.clone())
            }
        }
    )*};
}
without_tensors! { (), true; String, false; &'static str, false; }

impl<T: Batch> Batch for Vec<T> {
    const ONLY_TENSORS: bool = T::ONLY_TENSORS;

    fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|part| part.visit(visit));
    }

    fn map(&self, change: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.iter().map(|part| part.map(change)).collect()
    }
}

impl<T: Batch, const N: usize> Batch for [T; N] {
    const ONLY_TENSORS: bool = T::ONLY_TENSORS;

    fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|part| part.visit(visit));
    }

    fn map(&self, change: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let parts: Vec<T> = self.iter().map(|part| part.map(change)).collect::<Result<_>>()?;
        parts.try_into().map_err(|_| Error::value("Batch::map: `change` returned a wrong number of parts"))
    }
}

macro_rules! tuples {
    ($(($($t:ident),+);)*) => {$(
        impl<$($t: Batch),+> Batch for ($($t,)+) {
            const ONLY_TENSORS: bool = $($t::ONLY_TENSORS &&)+ true;

            fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
                #[allow(non_snake_case)]
                let ($($t,)+) = self;
                $($t.visit(visit);)+
            }

            fn map(&self, change: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
                #[allow(non_snake_case)]
                let ($($t,)+) = self;
                Ok(($($t.map(change)?,)+))
            }
        }
    )*};
}
tuples! { (A); (A, B); (A, B, C); (A, B, C, D); (A, B, C, D, E); (A, B, C, D, E, F); }

macro_rules! maps {
    ($(($($generics:tt)*) $map:ty;)*) => {$(
        impl<K: Clone + Eq + Hash + Ord + Send + 'static, V: Batch, $($generics)*> Batch for $map {
            const ONLY_TENSORS: bool = V::ONLY_TENSORS;

            fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
                self.values().for_each(|part| part.visit(visit));
            }

            fn map(&self, change: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
                self.iter().map(|(key, part)| Ok((key.clone(), part.map(change)?))).collect()
            }
        }
    )*};
}
maps! {
    () BTreeMap<K, V>;
    (S: BuildHasher + Default + Send + 'static) IndexMap<K, V, S>;
}

/// Parts are in the order of their keys: a hash map's own order is not reproducible.
impl<K: Clone + Eq + Hash + Ord + Send + 'static, V: Batch, S: BuildHasher + Default + Send + 'static> Batch
    for HashMap<K, V, S>
{
    const ONLY_TENSORS: bool = V::ONLY_TENSORS;

    fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
        let mut parts: Vec<_> = self.iter().collect();
        parts.sort_by_key(|(key, _)| *key);
        parts.into_iter().for_each(|(_, part)| part.visit(visit));
    }

    fn map(&self, change: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let mut parts: Vec<_> = self.iter().collect();
        parts.sort_by_key(|(key, _)| *key);
        parts.into_iter().map(|(key, part)| Ok((key.clone(), part.map(change)?))).collect()
    }
}
