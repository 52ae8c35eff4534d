//! Means.

use super::sums::{Sums, metric};
use crate::ranks::Ranks;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::stack;
use rushlight_tensor::state::{Dict, Value};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// A weighted mean.
#[derive(Clone, Debug, Default)]
pub struct MeanMetric {
    sums: Sums,
}

impl MeanMetric {
    /// An empty mean.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the elements of a tensor, with a weight each.
    pub fn update(&self, values: &Tensor, weight: f64) -> Result<()> {
        no_grad(|| {
            let values = values.detach().to_dtype(DType::F64)?;
            let weights = Tensor::full_with([], weight * values.numel() as f64, (DType::F64, values.device()))?;
            self.sums.add(&stack(&[&values.sum(..)?.mul(weight)?, &weights], 0)?)
        })
    }
}

metric!(MeanMetric, sums, |this, ranks| {
    let sums = this.sums.read(2, ranks)?;
    Ok(sums[0] / sums[1])
});

/// The mean of the last values, over all processes.
#[derive(Clone, Debug)]
pub struct RunningMean {
    window: usize,
    values: Arc<Mutex<VecDeque<f64>>>,
}

impl RunningMean {
    /// Over the last `window` values of each process.
    pub fn new(window: usize) -> Self {
        Self { window: window.max(1), values: Arc::default() }
    }

    fn values(&self) -> MutexGuard<'_, VecDeque<f64>> {
        lock(&self.values)
    }

    /// Adds a value.
    pub fn update(&self, value: f64) {
        let mut values = self.values();
        if values.len() == self.window {
            values.pop_front();
        }
        values.push_back(value);
    }

    /// The mean of the last values of this process.
    pub fn compute(&self) -> Result<f64> {
        super::Metric::value(self, &Ranks::alone())
    }
}

impl super::Metric for RunningMean {
    fn value(&self, ranks: &Ranks) -> Result<f64> {
        let values = self.values();
        let mut sums = [values.iter().sum(), values.len() as f64];
        ranks.reduce(&mut sums, crate::ReduceFx::Sum)?;
        Ok(sums[0] / sums[1])
    }

    fn reset(&self) -> Result<()> {
        self.values().clear();
        Ok(())
    }

    fn state(&self) -> Result<Value> {
        let values: Vec<Value> = self.values().iter().map(|v| (*v).into()).collect();
        Ok(Dict::from_iter([("values".into(), values.into())]).into())
    }

    fn merge(&self, state: &Value) -> Result<()> {
        let mut values = self.values();
        for value in state.get("values")?.as_list()?.iter().rev() {
            if values.len() == self.window {
                break;
            }
            values.push_front(value.as_float()?);
        }
        match values.len() > self.window {
            true => Err(Error::value("RunningMean: more values than the window holds")),
            false => Ok(()),
        }
    }
}
