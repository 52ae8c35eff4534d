//! From samples to a batch.

use indexmap::IndexMap;
use rushlight_core::{Element, Error, Result};
use rushlight_tensor::{Tensor, stack};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

/// Samples that can be put together into a batch, by the rules of PyTorch's `default_collate`.
///
/// | sample | batch |
/// |---|---|
/// | `Tensor` | one tensor, stacked along a new first dimension |
/// | integers | an `int64` tensor |
/// | `f32`, `f64`, `bool` | a tensor of that dtype |
/// | `String`, `&'static str` | a vector of them |
/// | tuples, arrays, vectors, maps | the same of the parts' batches |
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_data as data; }
/// use rushlight::data::Collate;
/// use rushlight::Tensor;
/// let samples = vec![(Tensor::new([1.0f32, 2.0])?, 7i64), (Tensor::new([3.0f32, 4.0])?, 8)];
/// let (x, y) = Collate::collate(samples)?;
/// assert_eq!(x.shape(), [2, 2]);
/// assert_eq!(y.to_vec::<i64>()?, [7, 8]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait Collate: Sized {
    /// The batch made of several samples.
    type Batch: Send + 'static;
    /// One batch of the samples, in their order.
    fn collate(samples: Vec<Self>) -> Result<Self::Batch>;
}

impl Collate for Tensor {
    type Batch = Tensor;
    fn collate(samples: Vec<Tensor>) -> Result<Tensor> {
        if samples.is_empty() {
            return Err(Error::value("collate: a batch needs at least one sample"));
        }
        let refs: Vec<&Tensor> = samples.iter().collect();
        stack(&refs, 0).map_err(|e| e.within("collate"))
    }
}

macro_rules! numbers {
    ($($from:ty => $to:ty;)*) => {$(
        impl Collate for $from {
            type Batch = Tensor;
            fn collate(samples: Vec<$from>) -> Result<Tensor> {
                numbers_to_tensor::<$to>(samples.into_iter().map(<$to>::from))
            }
        }
    )*};
}

fn numbers_to_tensor<T: Element>(numbers: impl Iterator<Item = T>) -> Result<Tensor> {
    Tensor::from_iter(numbers)
}

numbers! {
    i64 => i64;
    i32 => i64;
    i16 => i64;
    i8 => i64;
    u32 => i64;
    u16 => i64;
    u8 => i64;
    f32 => f32;
    f64 => f64;
    bool => bool;
}

macro_rules! wide_numbers {
    ($($from:ty)*) => {$(
        impl Collate for $from {
            type Batch = Tensor;
            fn collate(samples: Vec<$from>) -> Result<Tensor> {
                let numbers = samples.into_iter().map(|v| {
                    i64::try_from(v).map_err(|_| Error::value(format!("collate: {v} does not fit an int64 tensor")))
                });
                Tensor::new(numbers.collect::<Result<Vec<i64>>>()?)
            }
        }
    )*};
}
wide_numbers!(usize u64 isize);

macro_rules! kept {
    ($($t:ty)*) => {$(
        impl Collate for $t {
            type Batch = Vec<$t>;
            fn collate(samples: Vec<$t>) -> Result<Vec<$t>> {
                Ok(samples)
            }
        }
    )*};
}
kept!(String &'static str);

impl Collate for () {
    type Batch = ();
    fn collate(_: Vec<()>) -> Result<()> {
        Ok(())
    }
}

macro_rules! tuples {
    ($(($($t:ident $part:ident),+);)*) => {$(
        impl<$($t: Collate),+> Collate for ($($t,)+) {
            type Batch = ($($t::Batch,)+);
            fn collate(samples: Vec<Self>) -> Result<Self::Batch> {
                $(let mut $part = Vec::with_capacity(samples.len());)+
                for sample in samples {
                    #[allow(non_snake_case)]
                    let ($($t,)+) = sample;
                    $($part.push($t);)+
                }
                Ok(($($t::collate($part)?,)+))
            }
        }
    )*};
}

tuples! {
    (A a);
    (A a, B b);
    (A a, B b, C c);
    (A a, B b, C c, D d);
    (A a, B b, C c, D d, E e);
    (A a, B b, C c, D d, E e, F f);
}

/// The samples' first parts, second parts, and so on; all must have the same number of parts.
fn transpose<T>(samples: impl Iterator<Item = impl IntoIterator<Item = T>>, count: usize) -> Result<Vec<Vec<T>>> {
    let mut columns: Vec<Vec<T>> = Vec::new();
    for (row, sample) in samples.enumerate() {
        let mut parts = 0;
        for (column, part) in sample.into_iter().enumerate() {
            if row == 0 {
                columns.push(Vec::with_capacity(count));
            }
            parts += 1;
            if let Some(c) = columns.get_mut(column) {
                c.push(part);
            }
        }
        if parts != columns.len() {
            return Err(Error::shape(format!(
                "collate: each sample of a batch must have equally many parts, but the first has {} and sample {row} has {parts}",
                columns.len()
            )));
        }
    }
    Ok(columns)
}

impl<T: Collate> Collate for Vec<T> {
    type Batch = Vec<T::Batch>;
    fn collate(samples: Vec<Vec<T>>) -> Result<Vec<T::Batch>> {
        let count = samples.len();
        transpose(samples.into_iter(), count)?.into_iter().map(T::collate).collect()
    }
}

impl<T: Collate, const N: usize> Collate for [T; N] {
    type Batch = [T::Batch; N];
    fn collate(samples: Vec<[T; N]>) -> Result<[T::Batch; N]> {
        let count = samples.len();
        let batches: Vec<T::Batch> =
            transpose(samples.into_iter(), count)?.into_iter().map(T::collate).collect::<Result<_>>()?;
        batches.try_into().map_err(|_| Error::value("collate: a batch needs at least one sample"))
    }
}

macro_rules! maps {
    ($(($($generics:tt)*) $map:ty, $batch:ty;)*) => {$(
        impl<K: Send + 'static, V: Collate, $($generics)*> Collate for $map
        where
            K: Clone + std::fmt::Debug + Eq + Hash + Ord,
        {
            type Batch = $batch;
            fn collate(samples: Vec<$map>) -> Result<$batch> {
                let mut columns: IndexMap<K, Vec<V>> = IndexMap::new();
                let count = samples.len();
                for (row, sample) in samples.into_iter().enumerate() {
                    for (key, value) in sample {
                        match columns.get_mut(&key) {
                            Some(column) => column.push(value),
                            None if row == 0 => {
                                columns.insert(key, vec![value]);
                            }
                            None => return Err(unequal_keys(&key)),
                        }
                    }
                }
                if let Some((key, _)) = columns.iter().find(|(_, column)| column.len() != count) {
                    return Err(unequal_keys(key));
                }
                columns.into_iter().map(|(key, column)| Ok((key, V::collate(column)?))).collect()
            }
        }
    )*};
}

fn unequal_keys(key: &impl std::fmt::Debug) -> Error {
    Error::value(format!("collate: every sample of a batch must have the same keys, but {key:?} is missing in some"))
}

maps! {
    () BTreeMap<K, V>, BTreeMap<K, V::Batch>;
    (S: BuildHasher + Default + Send + 'static) HashMap<K, V, S>, HashMap<K, V::Batch, S>;
    (S: BuildHasher + Default + Send + 'static) IndexMap<K, V, S>, IndexMap<K, V::Batch, S>;
}
