//! Running sums of metrics.

use crate::ranks::Ranks;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::{Dict, Value};
use rushlight_tensor::{Tensor, cat};
use std::sync::{Arc, Mutex};

/// Sums in `f64` on the device of the data. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums(Arc<Mutex<Option<Tensor>>>);

impl Sums {
    /// Adds a vector, always of the same length.
    pub(super) fn add(&self, contribution: &Tensor) -> Result<()> {
        no_grad(|| {
            let contribution = contribution.detach().to_dtype(DType::F64)?;
            match &mut *lock(&self.0) {
                // In place: a captured step adds to the same memory at each replay.
                Some(sums) => sums.add_(&contribution).map(drop),
                empty => {
                    *empty = Some(contribution.copy()?);
                    Ok(())
                }
            }
        })
    }

    /// The sums of all processes; zeros if nothing was added.
    pub(super) fn read(&self, len: usize, ranks: &Ranks) -> Result<Vec<f64>> {
        let mut values = match &*lock(&self.0) {
            Some(sums) => sums.to_vec::<f64>()?,
            None => vec![0.0; len],
        };
        ranks.reduce(&mut values, crate::ReduceFx::Sum)?;
        Ok(values)
    }

    pub(super) fn reset(&self) -> Result<()> {
        no_grad(|| lock(&self.0).as_ref().map_or(Ok(()), |sums| sums.zero_().map(drop)))
    }

    pub(super) fn state(&self) -> Result<Value> {
        let sums = lock(&self.0).as_ref().map(|sums| sums.copy()).transpose()?;
        Ok(Dict::from_iter([("sums".into(), sums.into())]).into())
    }

    pub(super) fn merge(&self, state: &Value) -> Result<()> {
        match state.get("sums")? {
            Value::None => Ok(()),
            value => {
                let saved = value.as_tensor()?;
                let mut own = lock(&self.0);
                match &mut *own {
                    Some(sums) if sums.shape() != saved.shape() => Err(Error::shape(format!(
                        "the saved metric has {} sums, this one {}; it was made with other options",
                        saved.numel(),
                        sums.numel()
                    ))),
                    Some(sums) => no_grad(|| sums.add_(&saved.to(sums.device())?).map(drop)),
                    empty => {
                        *empty = Some(saved.copy()?);
                        Ok(())
                    }
                }
            }
        }
    }
}

/// Pairs of vectors that are kept completely, on the host, in `f64`. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(Arc<Mutex<Vec<(Tensor, Tensor)>>>);

impl Pairs {
    pub(super) fn add(&self, first: &Tensor, second: &Tensor) -> Result<()> {
        let host = |t: &Tensor| t.detach().to(rushlight_core::Device::Cpu)?.to_dtype(DType::F64)?.copy();
        lock(&self.0).push((host(first)?, host(second)?));
        Ok(())
    }

    fn own(&self) -> Result<(Vec<f64>, Vec<f64>)> {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (a, b) in &*lock(&self.0) {
            first.extend(a.to_vec::<f64>()?);
            second.extend(b.to_vec::<f64>()?);
        }
        Ok((first, second))
    }

    /// The pairs of all processes.
    pub(super) fn read(&self, ranks: &Ranks) -> Result<(Vec<f64>, Vec<f64>)> {
        let bytes = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let numbers = |all: Vec<Vec<u8>>| {
            let chunk = |c: &[u8]| f64::from_le_bytes(c.try_into().unwrap_or_default());
            all.iter().flat_map(|bytes| bytes.chunks_exact(8).map(chunk)).collect::<Vec<f64>>()
        };
        let (first, second) = self.own()?;
        Ok((numbers(ranks.gather(&bytes(&first))?), numbers(ranks.gather(&bytes(&second))?)))
    }

    pub(super) fn reset(&self) -> Result<()> {
        lock(&self.0).clear();
        Ok(())
    }

    pub(super) fn state(&self) -> Result<Value> {
        let pairs = lock(&self.0);
        let joined = |pick: fn(&(Tensor, Tensor)) -> &Tensor| match pairs.is_empty() {
            true => Tensor::zeros_with([0], DType::F64),
            false => {
                let flat: Vec<Tensor> = pairs.iter().map(|p| pick(p).reshape([-1])).collect::<Result<_>>()?;
                cat(&flat.iter().collect::<Vec<_>>(), 0)
            }
        };
        let (first, second) = (joined(|p| &p.0)?, joined(|p| &p.1)?);
        Ok(Dict::from_iter([("first".into(), first.into()), ("second".into(), second.into())]).into())
    }

    pub(super) fn merge(&self, state: &Value) -> Result<()> {
        let saved = (state.get("first")?.as_tensor()?.copy()?, state.get("second")?.as_tensor()?.copy()?);
        lock(&self.0).insert(0, saved);
        Ok(())
    }
}

/// Implements [`Metric`](super::Metric) for a metric whose field holds its state and whose `figure` method computes its
/// value from it.
macro_rules! metric {
    ($name:ident, $state:ident, |$this:ident, $ranks:ident| $read:expr) => {
        impl $crate::metrics::Metric for $name {
            fn value(&self, $ranks: &$crate::Ranks) -> rushlight_core::Result<f64> {
                let $this = self;
                $read
            }

            fn reset(&self) -> rushlight_core::Result<()> {
                self.$state.reset()
            }

            fn state(&self) -> rushlight_core::Result<rushlight_tensor::state::Value> {
                self.$state.state()
            }

            fn merge(&self, state: &rushlight_tensor::state::Value) -> rushlight_core::Result<()> {
                self.$state.merge(state)
            }
        }

        impl $name {
            /// The value over the batches of this process since the last reset.
            pub fn compute(&self) -> rushlight_core::Result<f64> {
                $crate::metrics::Metric::value(self, &$crate::Ranks::alone())
            }
        }
    };
}
pub(super) use metric;
