//! Averages of weights over the course of training.

use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::capture::refuse_host;
use rushlight_tensor::state::{Dict, Key, StateDict, Stateful, Value};

/// An exponential moving average of a model's parameters: often better than the parameters themselves.
///
/// The first update copies, as `torch.optim.swa_utils.AveragedModel` does; later ones move each average by `1 - decay`
/// of its distance. [`apply`](Ema::apply) puts the averages into the model, for evaluation or to save it,
/// [`restore`](Ema::restore) restores the parameters.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::Ema;
/// use rushlight::Tensor;
/// let weight = Tensor::new([1.0f32])?;
/// let named = [("weight".to_string(), weight.clone())];
/// let mut ema = Ema::new(named, 0.9)?;
/// ema.update()?;
/// weight.fill_(2.0)?;
/// ema.update()?;
/// ema.apply()?;
/// assert!((weight.item::<f32>()? - 1.1).abs() < 1e-6);
/// ema.restore()?;
/// assert_eq!(weight.item::<f32>()?, 2.0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Ema {
    /// `None`: all updates have equal weight.
    decay: Option<f64>,
    entries: Vec<Entry>,
    n_averaged: i64,
    applied: bool,
}

#[derive(Debug)]
struct Entry {
    name: String,
    param: Tensor,
    average: Tensor,
    /// The parameter's own values while the average is in its place.
    backup: Option<Tensor>,
}

/// How new values enter an average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Averaging {
    /// Exponential moving average: the average keeps `decay` of itself.
    Exponential {
        /// Between 0 and 1.
        decay: f64,
    },
    /// Equal weights, as in stochastic weight averaging (SWA); `count` values are in the average already.
    Equal {
        /// The number of values so far.
        count: f64,
    },
}

impl Averaging {
    /// Moves `average` towards `current`.
    pub fn update_(self, average: &Tensor, current: &Tensor) -> Result<()> {
        no_grad(|| {
            if average.is_floating_point() {
                let weight = match self {
                    Averaging::Exponential { decay } => 1.0 - decay,
                    Averaging::Equal { count } => 1.0 / (count + 1.0),
                };
                return average.lerp_(current, weight).map(drop);
            }
            // Integers are averaged in floating point and truncated, as PyTorch does.
            let moved = match self {
                Averaging::Exponential { decay } => average.mul(decay)?.add(&current.mul(1.0 - decay)?)?,
                Averaging::Equal { count } => average.add(&current.sub(average)?.mul(1.0 / (count + 1.0))?)?,
            };
            average.copy_(&moved.to_dtype(average.dtype())?).map(drop)
        })
    }
}

impl Ema {
    /// Averages of named parameters. Buffers may be among them: integer tensors are copied at each update.
    pub fn new(named_parameters: impl IntoIterator<Item = (String, Tensor)>, decay: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&decay) {
            return Err(Error::value(format!(
                "Invalid decay value {decay} provided. Please provide a value in [0,1] range."
            )));
        }
        Self::of(named_parameters, Some(decay))
    }

    /// Averages in which all updates have equal weight: stochastic weight averaging, the default of PyTorch's
    /// `AveragedModel`.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
    /// use rushlight::Tensor;
    /// use rushlight::optim::Ema;
    /// let weight = Tensor::new([0.0])?;
    /// let mut mean = Ema::equal([("weight".to_string(), weight.clone())])?;
    /// for value in [1.0, 2.0, 6.0] {
    ///     weight.fill_(value)?;
    ///     mean.update()?;
    /// }
    /// assert!((mean.averages()["weight"].item::<f32>()? - 3.0).abs() < 1e-6);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn equal(named_parameters: impl IntoIterator<Item = (String, Tensor)>) -> Result<Self> {
        Self::of(named_parameters, None)
    }

    fn of(named_parameters: impl IntoIterator<Item = (String, Tensor)>, decay: Option<f64>) -> Result<Self> {
        let entry = |(name, param): (String, Tensor)| {
            let average = no_grad(|| param.detach().copy())?;
            Ok(Entry { name, param, average, backup: None })
        };
        let entries = named_parameters.into_iter().map(entry).collect::<Result<_>>()?;
        Ok(Self { decay, entries, n_averaged: 0, applied: false })
    }

    /// Moves the averages towards the parameters; call it after each optimizer step.
    pub fn update(&mut self) -> Result<()> {
        if self.applied {
            return Err(Error::value("Ema::update: the averages are in the model's place; call restore() first"));
        }
        refuse_host("Ema::update")?;
        let averaging = match self.decay {
            Some(decay) => Averaging::Exponential { decay },
            None => Averaging::Equal { count: self.n_averaged as f64 },
        };
        no_grad(|| -> Result<()> {
            for e in &self.entries {
                if self.n_averaged == 0 || !e.param.is_floating_point() {
                    e.average.copy_(&e.param)?;
                } else {
                    averaging.update_(&e.average, &e.param)?;
                }
            }
            Ok(())
        })?;
        self.n_averaged += 1;
        Ok(())
    }

    /// Puts the averages into the model.
    pub fn apply(&mut self) -> Result<()> {
        if self.applied {
            return Err(Error::value("Ema::apply: the averages are in the model's place already"));
        }
        no_grad(|| -> Result<()> {
            for e in &mut self.entries {
                e.backup = Some(e.param.detach().copy()?);
                e.param.copy_(&e.average)?;
            }
            Ok(())
        })?;
        self.applied = true;
        Ok(())
    }

    /// Restores the parameters that [`apply`](Ema::apply) replaced.
    pub fn restore(&mut self) -> Result<()> {
        if !self.applied {
            return Err(Error::value("Ema::restore: nothing was applied"));
        }
        no_grad(|| -> Result<()> {
            for e in &mut self.entries {
                if let Some(own) = e.backup.take() {
                    e.param.copy_(&own)?;
                }
            }
            Ok(())
        })?;
        self.applied = false;
        Ok(())
    }

    /// Updates so far.
    pub fn n_averaged(&self) -> i64 {
        self.n_averaged
    }

    /// The averages by name. Tensors are shared, not copied.
    pub fn averages(&self) -> StateDict {
        self.entries.iter().map(|e| (e.name.clone(), e.average.clone())).collect()
    }
}

/// With the keys of PyTorch's `AveragedModel`: `n_averaged`, and each name after `module.`.
impl Stateful for Ema {
    fn state(&self) -> Result<Value> {
        let mut state = Dict::new();
        state.insert("n_averaged".into(), Tensor::scalar(self.n_averaged)?.into());
        for e in &self.entries {
            state.insert(format!("module.{}", e.name).into(), (&e.average).into());
        }
        Ok(state.into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let n_averaged = state.get("n_averaged")?.as_int()?;
        let mut averages = Vec::with_capacity(self.entries.len());
        for e in &self.entries {
            let average = state.get(Key::from(format!("module.{}", e.name)))?.as_tensor()?;
            if average.shape() != e.param.shape() {
                return Err(Error::shape(format!(
                    "Ema: '{}' has shape {:?}, the parameter {:?}",
                    e.name,
                    average.shape(),
                    e.param.shape()
                )));
            }
            averages.push(average.clone());
        }
        no_grad(|| self.entries.iter().zip(&averages).try_for_each(|(e, new)| e.average.copy_(new).map(drop)))?;
        self.n_averaged = n_averaged;
        Ok(())
    }
}
