//! The `Optimizer` trait and parameter groups.

use rushlight_core::{Error, Result};
use rushlight_tensor::autograd::enable_grad;
use rushlight_tensor::capture::Readback;
use rushlight_tensor::state::{Stateful, Value};
use rushlight_tensor::{Tensor, foreach};
use std::sync::Arc;

/// Changes parameters by their gradients.
///
/// `step` changes every parameter that has a gradient; those without are left alone, and so is their state. Optimizers
/// hold handles to the parameters: the model keeps using the same tensors. A state dict has PyTorch's keys, so either
/// side loads the other's.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::{Optimizer, Sgd};
/// use rushlight::Tensor;
/// let w = Tensor::new([1.0f32])?.requires_grad_(true)?;
/// let mut optimizer = Sgd::builder([w.clone()]).lr(0.1).momentum(0.9).build()?;
/// for _ in 0..100 {
///     let loss = (&w * &w).sum(..)?;
///     optimizer.zero_grad();
///     loss.backward()?;
///     optimizer.step()?;
/// }
/// assert!(w.item::<f32>()?.abs() < 0.01);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait Optimizer: Stateful + Send {
    /// Changes the parameters once.
    fn step(&mut self) -> Result<()>;

    /// [`step`](Optimizer::step) with all gradients multiplied by `grad_scale`, a tensor of one element, within the
    /// same pass where the optimizer can. The gradients may or may not keep their values.
    fn step_scaled(&mut self, grad_scale: &Tensor) -> Result<()> {
        let grads: Vec<Tensor> = self.params().iter().filter_map(Tensor::grad).collect();
        foreach::scale_(&grads.iter().collect::<Vec<_>>(), grad_scale)?;
        self.step()
    }

    /// [`step`](Optimizer::step) within a captured step, left out at each replay that finds `readback` not zero;
    /// gradients are multiplied by `grad_scale` if there is one. For [`GradScaler`](crate::GradScaler).
    fn step_unless(&mut self, found_inf: &Tensor, readback: &Arc<Readback>, grad_scale: Option<&Tensor>) -> Result<()> {
        let _ = (found_inf, readback, grad_scale);
        Err(Error::unsupported("GradScaler: this optimizer cannot be part of a captured step; run without capture"))
    }

    /// Computes the loss by `closure`, which also clears the gradients and calls `backward`, then steps. Optimizers
    /// that evaluate the loss several times a step ([`Lbfgs`](crate::Lbfgs)) can only be used so.
    fn step_closure(&mut self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        let loss = enable_grad(&mut *closure)?;
        self.step()?;
        Ok(loss)
    }

    /// The parameter groups.
    fn param_groups(&self) -> Vec<&dyn Group>;

    /// The parameter groups, to change their options.
    fn param_groups_mut(&mut self) -> Vec<&mut dyn Group>;

    /// Adds parameters later, for example layers that are no longer frozen.
    fn add_param_group(&mut self, group: ParamGroup) -> Result<()>;

    /// Clears all gradients.
    fn zero_grad(&self) {
        for group in self.param_groups() {
            group.for_each_param(&mut |p| p.zero_grad());
        }
    }

    /// All parameters, group by group.
    fn params(&self) -> Vec<Tensor> {
        let mut params = Vec::new();
        for group in self.param_groups() {
            group.for_each_param(&mut |p| params.push(p.clone()));
        }
        params
    }

    /// The learning rate of the first group.
    fn lr(&self) -> f64 {
        self.param_groups().first().map_or(0.0, |g| g.lr())
    }

    /// Sets the learning rate of all groups.
    fn set_lr(&mut self, lr: f64) -> Result<()> {
        self.param_groups_mut().into_iter().try_for_each(|g| g.set("lr", lr.into()))
    }

    /// State and options with PyTorch's keys. Tensors are shared, not copied.
    fn state_dict(&self) -> Result<Value> {
        self.state()
    }

    /// Goes back to a state, this library's or PyTorch's. Tensors are copied. Nothing changes if the state does not
    /// fit.
    fn load_state_dict(&mut self, state_dict: &Value) -> Result<()> {
        self.load_state(state_dict)
    }
}

/// The parameters of an optimizer that share their options.
pub trait Group: Send {
    /// Calls a closure with each parameter.
    fn for_each_param(&self, f: &mut dyn FnMut(&Tensor));
    /// The learning rate.
    fn lr(&self) -> f64;
    /// Sets the learning rate; schedules do, so it may be anything.
    fn set_lr(&mut self, lr: f64);
    /// An option, or another value that a schedule has stored here, by PyTorch's name.
    fn get(&self, name: &str) -> Option<Value>;
    /// Sets an option. Other names are kept with the group and its state dict, as PyTorch does.
    fn set(&mut self, name: &str, value: Value) -> Result<()>;
}

/// Parameters with options of their own, for [`groups`](crate::GroupOptimizer::groups).
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::{AdamW, Optimizer, ParamGroup};
/// use rushlight::Tensor;
/// let (weight, bias) = (Tensor::ones([2, 2])?.requires_grad_(true)?, Tensor::ones([2])?.requires_grad_(true)?);
/// let groups = [ParamGroup::new([weight]), ParamGroup::new([bias]).weight_decay(0.0)];
/// let optimizer = AdamW::groups(groups).lr(3e-4).weight_decay(0.1).build()?;
/// assert_eq!(optimizer.param_groups()[1].get("weight_decay").unwrap().as_float()?, 0.0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ParamGroup {
    pub(crate) params: Vec<Tensor>,
    pub(crate) options: Vec<(String, Value)>,
}

impl ParamGroup {
    /// Parameters with the optimizer's options.
    pub fn new(params: impl IntoIterator<Item = Tensor>) -> Self {
        Self { params: params.into_iter().collect(), options: Vec::new() }
    }

    /// Sets any option of the optimizer by name; a name it does not have is an error when it is built.
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.options.push((name.into(), value.into()));
        self
    }

    /// The learning rate.
    pub fn lr(self, lr: f64) -> Self {
        self.option("lr", lr)
    }

    /// Weight decay.
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        self.option("weight_decay", weight_decay)
    }

    /// Momentum.
    pub fn momentum(self, momentum: f64) -> Self {
        self.option("momentum", momentum)
    }

    /// Decay of the averages.
    pub fn betas(self, betas: (f64, f64)) -> Self {
        self.option("betas", Value::Tuple(vec![betas.0.into(), betas.1.into()]))
    }
}

/// Refuses parameters that no optimizer accepts: computed tensors and duplicates.
pub(crate) fn check_params<'a>(known: impl Iterator<Item = &'a Tensor> + Clone, params: &[Tensor]) -> Result<()> {
    for (i, p) in params.iter().enumerate() {
        if !p.is_leaf() {
            return Err(Error::value("can't optimize a non-leaf Tensor"));
        }
        if params[..i].iter().any(|q| q.is_same(p)) {
            return Err(Error::value("a parameter group contains a parameter twice"));
        }
        if known.clone().any(|q| q.is_same(p)) {
            return Err(Error::value("some parameters appear in more than one parameter group"));
        }
    }
    Ok(())
}
