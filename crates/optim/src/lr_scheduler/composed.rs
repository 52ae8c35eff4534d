//! Schedules made of schedules.

use super::{LinearLR, LrScheduler, number};
use crate::options::Field;
use crate::{Group, Optimizer};
use rushlight_core::{Error, Result};
use rushlight_tensor::capture::refuse_host;
use rushlight_tensor::state::{Dict, Stateful, Value};

fn rates(optimizer: &dyn Optimizer) -> Vec<f64> {
    optimizer.param_groups().iter().map(|g| g.lr()).collect()
}

fn states(schedulers: &[Box<dyn LrScheduler>]) -> Result<Value> {
    schedulers.iter().map(|s| s.state()).collect::<Result<Vec<_>>>().map(Value::from)
}

/// Loads all, or, if one does not fit, none.
fn load_all(schedulers: &mut [Box<dyn LrScheduler>], state: &Value) -> Result<()> {
    let loaded = state.get("_schedulers")?.as_list()?;
    if loaded.len() != schedulers.len() {
        return Err(Error::value(format!("the state is of {} schedules, not {}", loaded.len(), schedulers.len())));
    }
    let before = schedulers.iter().map(|s| s.state()).collect::<Result<Vec<_>>>()?;
    for (i, new) in loaded.iter().enumerate() {
        if let Err(e) = schedulers[i].load_state(new) {
            schedulers.iter_mut().zip(&before).take(i).try_for_each(|(s, old)| s.load_state(old))?;
            return Err(e);
        }
    }
    Ok(())
}

/// One schedule after another: each but the first takes over at its milestone.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::lr_scheduler::{CosineAnnealingLR, LinearLR, SequentialLR};
/// use rushlight::optim::{Optimizer, Sgd};
/// use rushlight::Tensor;
/// let mut optimizer = Sgd::new([Tensor::ones([2])?.requires_grad_(true)?], 0.1)?;
/// let rise = LinearLR::builder().start_factor(0.1).total_iters(10).build(&mut optimizer)?;
/// let fall = CosineAnnealingLR::new(&mut optimizer, 90)?;
/// let scheduler = SequentialLR::new(&mut optimizer, vec![Box::new(rise), Box::new(fall)], vec![10])?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct SequentialLR {
    schedulers: Vec<Box<dyn LrScheduler>>,
    milestones: Vec<i64>,
    last_epoch: i64,
    last_lr: Vec<f64>,
}

impl SequentialLR {
    /// Schedules built for `optimizer`, and the steps at which the second and later ones begin.
    pub fn new(
        optimizer: &mut dyn Optimizer,
        schedulers: Vec<Box<dyn LrScheduler>>,
        milestones: Vec<usize>,
    ) -> Result<Self> {
        if schedulers.is_empty() {
            return Err(Error::value("SequentialLR expects at least one scheduler, but got no scheduler."));
        }
        if milestones.len() + 1 != schedulers.len() {
            return Err(Error::value(format!(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, but got \
                 number of schedulers {} and the number of milestones to be equal to {}",
                schedulers.len(),
                milestones.len()
            )));
        }
        let milestones = milestones.into_iter().map(|m| i64::try_from(m).unwrap_or(i64::MAX)).collect();
        let mut sequence = Self { schedulers, milestones, last_epoch: 0, last_lr: Vec::new() };
        sequence.undo();
        sequence.begin(optimizer)?;
        Ok(sequence)
    }

    /// A rate that rises linearly for `steps` steps, from `1 / steps` of its value on, and then follows a schedule
    /// built for `optimizer`.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
    /// use rushlight::optim::lr_scheduler::{CosineAnnealingLR, SequentialLR};
    /// use rushlight::optim::{Optimizer, Sgd};
    /// use rushlight::Tensor;
    /// let mut optimizer = Sgd::new([Tensor::ones([2])?.requires_grad_(true)?], 1.0)?;
    /// let cosine = CosineAnnealingLR::new(&mut optimizer, 90)?;
    /// let scheduler = SequentialLR::warmup(&mut optimizer, 10, Box::new(cosine))?;
    /// assert_eq!(optimizer.lr(), 0.1);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn warmup(optimizer: &mut dyn Optimizer, steps: usize, then: Box<dyn LrScheduler>) -> Result<Self> {
        let steps = steps.max(1);
        let rise =
            LinearLR::builder().start_factor(1.0 / steps as f64).total_iters((steps - 1).max(1)).build(optimizer)?;
        Self::new(optimizer, vec![Box::new(rise), then], vec![steps])
    }

    /// Which schedule it is the turn of.
    fn turn(&self, epoch: i64) -> usize {
        self.milestones.partition_point(|&m| m <= epoch)
    }
}

impl LrScheduler for SequentialLR {
    fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        refuse_host("a schedule's step")?;
        let epoch = self.last_epoch + 1;
        let turn = self.turn(epoch);
        let scheduler = &mut self.schedulers[turn];
        if turn > 0 && self.milestones[turn - 1] == epoch {
            scheduler.restart(optimizer)?;
        } else {
            scheduler.step(optimizer)?;
        }
        self.last_lr = scheduler.get_last_lr().to_vec();
        self.last_epoch = epoch;
        Ok(())
    }

    fn get_last_lr(&self) -> &[f64] {
        &self.last_lr
    }

    fn undo(&mut self) {
        self.schedulers.iter_mut().for_each(|s| s.undo());
    }

    fn begin(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        let mut groups: Vec<&mut dyn Group> = optimizer.param_groups_mut();
        for group in &mut groups {
            let lr = number(&**group, "initial_lr")?;
            group.set_lr(lr);
        }
        let turn = self.turn(0);
        self.schedulers[turn].begin(optimizer)?;
        self.last_lr = self.schedulers[turn].get_last_lr().to_vec();
        self.last_epoch = 0;
        Ok(())
    }

    fn restart(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.begin(optimizer)
    }
}

impl Stateful for SequentialLR {
    fn state(&self) -> Result<Value> {
        let mut state = Dict::new();
        state.insert("_milestones".into(), Value::List(self.milestones.iter().map(|&m| m.into()).collect()));
        state.insert("last_epoch".into(), self.last_epoch.into());
        state.insert("_last_lr".into(), self.last_lr.to_value());
        state.insert("_schedulers".into(), states(&self.schedulers)?);
        Ok(state.into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let milestones = state.get("_milestones")?.as_list()?.iter().map(Value::as_int).collect::<Result<Vec<_>>>()?;
        if milestones.len() != self.milestones.len() {
            return Err(Error::value(format!(
                "the state has {} milestones, not {}",
                milestones.len(),
                self.milestones.len()
            )));
        }
        let last_epoch = state.get("last_epoch")?.as_int()?;
        let last_lr = Vec::from_value(state.get("_last_lr")?)?;
        load_all(&mut self.schedulers, state)?;
        (self.milestones, self.last_epoch, self.last_lr) = (milestones, last_epoch, last_lr);
        Ok(())
    }
}

/// Several schedules at once: each multiplies the rate the one before leaves.
pub struct ChainedScheduler {
    schedulers: Vec<Box<dyn LrScheduler>>,
    last_lr: Vec<f64>,
}

impl ChainedScheduler {
    /// Schedules built for `optimizer`, in the order of application.
    pub fn new(optimizer: &mut dyn Optimizer, schedulers: Vec<Box<dyn LrScheduler>>) -> Result<Self> {
        if schedulers.is_empty() {
            return Err(Error::value(
                "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.",
            ));
        }
        Ok(Self { schedulers, last_lr: rates(optimizer) })
    }
}

impl LrScheduler for ChainedScheduler {
    fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.schedulers.iter_mut().try_for_each(|s| s.step(optimizer))?;
        self.last_lr = rates(optimizer);
        Ok(())
    }

    fn get_last_lr(&self) -> &[f64] {
        &self.last_lr
    }

    fn undo(&mut self) {
        self.schedulers.iter_mut().for_each(|s| s.undo());
    }

    fn begin(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.schedulers.iter_mut().try_for_each(|s| s.begin(optimizer))?;
        self.last_lr = rates(optimizer);
        Ok(())
    }

    fn restart(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.begin(optimizer)
    }
}

impl Stateful for ChainedScheduler {
    fn state(&self) -> Result<Value> {
        let mut state = Dict::new();
        state.insert("_last_lr".into(), self.last_lr.to_value());
        state.insert("_schedulers".into(), states(&self.schedulers)?);
        Ok(state.into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let last_lr = Vec::from_value(state.get("_last_lr")?)?;
        load_all(&mut self.schedulers, state)?;
        self.last_lr = last_lr;
        Ok(())
    }
}
