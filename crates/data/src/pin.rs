//! Batches in pinned memory, from which GPUs copy asynchronously.

use indexmap::IndexMap;
use rushlight_core::Result;
use rushlight_tensor::Tensor;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

/// Batches whose tensors can be put into pinned memory ([`Tensor::pin_memory`]); other values are unchanged.
pub trait PinMemory: Sized {
    /// The same batch in pinned memory.
    fn pin_memory(self) -> Result<Self>;
}

impl PinMemory for Tensor {
    fn pin_memory(self) -> Result<Self> {
        // A dataset may live on a GPU already.
        if self.device().is_cpu() { Tensor::pin_memory(&self) } else { Ok(self) }
    }
}

macro_rules! unchanged {
    ($($t:ty)*) => {$(
        impl PinMemory for $t {
            fn pin_memory(self) -> Result<Self> {
                Ok(self)
            }
        }
    )*};
}
unchanged!(() String &'static str);

impl<T: PinMemory> PinMemory for Vec<T> {
    fn pin_memory(self) -> Result<Self> {
        self.into_iter().map(T::pin_memory).collect()
    }
}

impl<T: PinMemory, const N: usize> PinMemory for [T; N] {
    fn pin_memory(self) -> Result<Self> {
        let pinned: Vec<T> = self.into_iter().map(T::pin_memory).collect::<Result<_>>()?;
        pinned.try_into().map_err(|_| rushlight_core::Error::value("pin_memory: a batch lost a part"))
    }
}

macro_rules! tuples {
    ($(($($t:ident),+);)*) => {$(
        impl<$($t: PinMemory),+> PinMemory for ($($t,)+) {
            fn pin_memory(self) -> Result<Self> {
                #[allow(non_snake_case)]
                let ($($t,)+) = self;
                Ok(($($t.pin_memory()?,)+))
            }
        }
    )*};
}
tuples! { (A); (A, B); (A, B, C); (A, B, C, D); (A, B, C, D, E); (A, B, C, D, E, F); }

macro_rules! maps {
    ($(($($generics:tt)*) $map:ty;)*) => {$(
        impl<K: Eq + Hash + Ord, V: PinMemory, $($generics)*> PinMemory for $map {
            fn pin_memory(self) -> Result<Self> {
                self.into_iter().map(|(key, value)| Ok((key, value.pin_memory()?))).collect()
            }
        }
    )*};
}
maps! {
    () BTreeMap<K, V>;
    (S: BuildHasher + Default) HashMap<K, V, S>;
    (S: BuildHasher + Default) IndexMap<K, V, S>;
}
