//! Weight averaging: exponential, and over the last epochs.

use super::Callback;
use crate::run::Run;
use rushlight_core::{Error, Result};
use rushlight_nn::Module;
use rushlight_optim::Ema;
use rushlight_optim::rule::Averaging;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::{Dict, Stateful, Value};

/// Keeps an exponential moving average of the parameters, validates with it, and copies it to the model at the end.
pub struct EmaWeights {
    decay: f64,
    every: u64,
    last: Option<u64>,
    ema: Option<Ema>,
    /// State from a checkpoint, until the model is known.
    restored: Option<Value>,
    applied: bool,
}

impl EmaWeights {
    /// Moves the average by `1 - decay` of its distance after each step.
    pub fn new(decay: f64) -> Self {
        Self { decay, every: 1, last: None, ema: None, restored: None, applied: false }
    }

    /// Updates the average after every `steps` steps.
    pub fn every_n_steps(mut self, steps: u64) -> Self {
        self.every = steps.max(1);
        self
    }
}

impl Callback for EmaWeights {
    fn name(&self) -> &str {
        "EmaWeights"
    }

    fn on_fit_start(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        let mut ema = Ema::new(model.named_parameters(), self.decay)?;
        if let Some(state) = self.restored.take() {
            ema.load_state(&state)?;
        }
        (self.ema, self.last) = (Some(ema), Some(run.global_step()));
        Ok(())
    }

    fn on_train_batch_end(&mut self, run: &mut Run, _: &dyn Module) -> Result<()> {
        let step = run.global_step();
        match &mut self.ema {
            Some(ema) if step.is_multiple_of(self.every) && self.last.replace(step) != Some(step) => ema.update(),
            _ => Ok(()),
        }
    }

    fn on_validation_start(&mut self, _: &mut Run, _: &dyn Module) -> Result<()> {
        match &mut self.ema {
            Some(ema) if ema.n_averaged() > 0 => {
                self.applied = true;
                ema.apply()
            }
            _ => Ok(()),
        }
    }

    fn on_validation_end(&mut self, _: &mut Run, _: &dyn Module) -> Result<()> {
        match &mut self.ema {
            Some(ema) if std::mem::take(&mut self.applied) => ema.restore(),
            _ => Ok(()),
        }
    }

    fn on_fit_end(&mut self, _: &mut Run, _: &dyn Module) -> Result<()> {
        match &mut self.ema {
            Some(ema) if ema.n_averaged() > 0 => ema.apply(),
            _ => Ok(()),
        }
    }

    fn state(&self) -> Result<Value> {
        self.ema.as_ref().map_or(Ok(Value::None), Stateful::state)
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        self.restored = Some(state.clone());
        Ok(())
    }
}

/// Averages the parameters of the last epochs (stochastic weight averaging) and copies the average to the model at the
/// end. Batch norm statistics are not recomputed. The schedule sets the learning rate.
pub struct StochasticWeightAveraging {
    start: u64,
    averages: Vec<(String, Tensor)>,
    count: u64,
    restored: Option<Value>,
}

impl StochasticWeightAveraging {
    /// Averages from this epoch on (counted from 0).
    pub fn new(start_epoch: u64) -> Self {
        Self { start: start_epoch, averages: Vec::new(), count: 0, restored: None }
    }

    /// Epochs averaged.
    pub fn n_averaged(&self) -> u64 {
        self.count
    }
}

impl Callback for StochasticWeightAveraging {
    fn name(&self) -> &str {
        "StochasticWeightAveraging"
    }

    fn on_fit_start(&mut self, _: &mut Run, model: &dyn Module) -> Result<()> {
        let copy = |(name, p): (String, Tensor)| Ok((name, no_grad(|| p.detach().copy())?));
        self.averages = model.named_parameters().into_iter().map(copy).collect::<Result<_>>()?;
        self.count = 0;
        let Some(state) = self.restored.take() else { return Ok(()) };
        let saved = state.get("averages")?.to_state_dict()?;
        for (name, average) in &self.averages {
            let missing =
                || Error::value(format!("StochasticWeightAveraging: the checkpoint has no average of '{name}'"));
            no_grad(|| average.copy_(saved.get(name).ok_or_else(missing)?).map(drop))?;
        }
        self.count = state.get("n_averaged")?.as_usize()? as u64;
        Ok(())
    }

    fn on_train_epoch_end(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        if run.epoch() < self.start {
            return Ok(());
        }
        let averaging = Averaging::Equal { count: self.count as f64 };
        self.count += 1;
        let pairs = self.averages.iter().zip(model.named_parameters());
        pairs.into_iter().try_for_each(|((_, average), (_, p))| averaging.update_(average, &p.detach()))
    }

    fn on_fit_end(&mut self, _: &mut Run, model: &dyn Module) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let all = model.named_parameters();
        no_grad(|| {
            all.iter().zip(&self.averages).try_for_each(|((_, p), (_, average))| p.detach().copy_(average).map(drop))
        })
    }

    fn state(&self) -> Result<Value> {
        let averages: Dict = self.averages.iter().map(|(n, t)| (n.as_str().into(), t.into())).collect();
        let count = Value::Int(self.count as i64);
        Ok(Dict::from_iter([("averages".into(), averages.into()), ("n_averaged".into(), count)]).into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        self.restored = Some(state.clone());
        Ok(())
    }
}
