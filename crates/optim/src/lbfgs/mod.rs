//! L-BFGS: a quasi-Newton method that keeps a few past steps and gradients.

mod strong_wolfe;

use crate::group::Builder;
use crate::optimizer::{Group, Optimizer, ParamGroup, check_params};
use crate::options::{Field, Options, options, require};
use rushlight_core::{Error, Result};
use rushlight_tensor::autograd::{enable_grad, no_grad};
use rushlight_tensor::state::{Dict, Key, Stateful, Value};
use rushlight_tensor::{Tensor, cat};
use std::collections::VecDeque;
use strong_wolfe::{Point, strong_wolfe};

/// How far to go along a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSearch {
    /// To a point that satisfies the strong Wolfe conditions.
    StrongWolfe,
}

impl Field for LineSearch {
    fn to_value(&self) -> Value {
        "strong_wolfe".into()
    }
    fn from_value(value: &Value) -> Result<Self> {
        match value.as_str()? {
            "strong_wolfe" => Ok(LineSearch::StrongWolfe),
            _ => Err(Error::value("only 'strong_wolfe' is supported")),
        }
    }
}

options! {
    /// Options of [`Lbfgs`].
    pub struct LbfgsOptions for "LBFGS" {
        /// Learning rate.
        lr: f64 = 1.0,
        /// Most iterations of a step.
        max_iter: usize = 20,
        /// Most evaluations of the loss in a step; by default five quarters of the iterations.
        max_eval: Option<usize> = None,
        /// A step ends when no element of the gradient is larger.
        tolerance_grad: f64 = 1e-7,
        /// A step ends when neither the loss nor a parameter changes more.
        tolerance_change: f64 = 1e-9,
        /// Past steps that are kept.
        history_size: usize = 100,
        /// How far to go along a direction; the learning rate says, if none.
        line_search_fn: Option<LineSearch> = None,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed {}
}

/// L-BFGS. It evaluates the loss several times a step, so it is used by [`step_closure`](Optimizer::step_closure):
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::{Lbfgs, LineSearch, Optimizer};
/// use rushlight::Tensor;
/// let x = Tensor::new([3.0f32, -4.0])?.requires_grad_(true)?;
/// let mut optimizer = Lbfgs::builder([x.clone()]).line_search_fn(Some(LineSearch::StrongWolfe)).build()?;
/// optimizer.step_closure(&mut || {
///     x.zero_grad();
///     let loss = (&x * &x).sum(..)?;
///     loss.backward()?;
///     Ok(loss)
/// })?;
/// assert!(x.to_vec::<f32>()?.iter().all(|x| x.abs() < 1e-3));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Lbfgs {
    group: Single,
    func_evals: i64,
    n_iter: i64,
    memory: Option<Memory>,
}

/// The one group of parameters.
struct Single {
    options: LbfgsOptions,
    params: Vec<Tensor>,
    extra: Dict,
}

/// State that one iteration passes to the next.
#[derive(Clone)]
struct Memory {
    direction: Tensor,
    step: f64,
    /// Changes of the gradient and of the parameters, and one over their product, oldest first.
    pairs: VecDeque<Pair>,
    /// The scale of the first guess at the inverse Hessian.
    scale: f64,
    grad: Tensor,
    loss: f64,
}

#[derive(Clone)]
struct Pair {
    grad: Tensor,
    step: Tensor,
    inverse: f64,
}

fn dot(a: &Tensor, b: &Tensor) -> Result<f64> {
    a.dot(b)?.item()
}

fn largest(a: &Tensor) -> Result<f64> {
    a.abs()?.max(..)?.item()
}

impl Lbfgs {
    /// All parameters as one vector.
    pub fn new(params: impl IntoIterator<Item = Tensor>, lr: f64) -> Result<Self> {
        Self::builder(params).lr(lr).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](Builder::build).
    pub fn builder(params: impl IntoIterator<Item = Tensor>) -> Builder<LbfgsOptions> {
        Builder::new(vec![ParamGroup::new(params)])
    }
}

impl Builder<LbfgsOptions> {
    /// The optimizer.
    pub fn build(self) -> Result<Lbfgs> {
        let params: Vec<Tensor> = self.groups.into_iter().flat_map(|g| g.params).collect();
        let Some(first) = params.first() else { return Err(Error::value("optimizer got an empty parameter list")) };
        check_params([].iter(), &params)?;
        if params.iter().any(|p| p.dtype() != first.dtype() || p.device() != first.device()) {
            return Err(Error::value("LBFGS: all parameters must have one dtype and be on one device"));
        }
        let mut options = self.options;
        require(options.lr >= 0.0, "learning rate", options.lr)?;
        options.max_eval = options.max_eval.or(Some(options.max_iter.saturating_mul(5) / 4));
        Ok(Lbfgs { group: Single { options, params, extra: Dict::new() }, func_evals: 0, n_iter: 0, memory: None })
    }
}

impl Single {
    /// All gradients as one vector; negative to maximize.
    fn flat_grad(&self) -> Result<Tensor> {
        let parts = self.params.iter().map(|p| match p.grad() {
            Some(grad) => grad.reshape([p.numel()]),
            None => p.zeros_like()?.reshape([p.numel()]),
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let flat = cat(&parts.iter().collect::<Vec<_>>(), 0)?;
        if self.options.maximize { flat.neg() } else { Ok(flat) }
    }

    fn loss(&self, loss: &Tensor) -> Result<f64> {
        let loss: f64 = loss.item()?;
        Ok(if self.options.maximize { -loss } else { loss })
    }

    /// Moves the parameters along a direction.
    fn advance(&self, step: f64, direction: &Tensor) -> Result<()> {
        let mut at = 0;
        for p in &self.params {
            let part = direction.narrow(0, at as isize, p.numel())?.reshape(p.shape())?;
            p.add_scaled_(&part, step)?;
            at += p.numel();
        }
        Ok(())
    }

    /// Loss and gradient at a step along a direction. The parameters stay at that point.
    fn evaluate(
        &self,
        closure: &mut dyn FnMut() -> Result<Tensor>,
        start: &[Tensor],
        step: f64,
        direction: &Tensor,
    ) -> Result<Point> {
        self.advance(step, direction)?;
        let evaluated = enable_grad(&mut *closure).and_then(|loss| Ok((self.loss(&loss)?, self.flat_grad()?)));
        // Also when the closure fails.
        self.params.iter().zip(start).try_for_each(|(p, old)| p.copy_(old).map(drop))?;
        let (loss, grad) = evaluated?;
        Ok(Point { step, loss, slope: dot(&grad, direction)?, grad })
    }
}

impl Memory {
    /// The next direction from the gradient: the two-loop recursion.
    fn next_direction(&mut self, grad: &Tensor, history_size: usize) -> Result<()> {
        let (y, s) = (grad.sub(&self.grad)?, self.direction.mul(self.step)?);
        let ys = dot(&y, &s)?;
        if ys > 1e-10 {
            if self.pairs.len() >= history_size {
                self.pairs.pop_front();
            }
            self.scale = ys / dot(&y, &y)?;
            self.pairs.push_back(Pair { grad: y, step: s, inverse: 1.0 / ys });
        }
        let q = grad.neg()?;
        let mut along = Vec::with_capacity(self.pairs.len());
        for pair in self.pairs.iter().rev() {
            let a = dot(&pair.step, &q)? * pair.inverse;
            q.add_scaled_(&pair.grad, -a)?;
            along.push(a);
        }
        let r = q.mul(self.scale)?;
        for (pair, a) in self.pairs.iter().zip(along.into_iter().rev()) {
            let b = dot(&pair.grad, &r)? * pair.inverse;
            r.add_scaled_(&pair.step, a - b)?;
        }
        self.direction = r;
        Ok(())
    }
}

impl Lbfgs {
    /// One step, gradients not being recorded.
    fn minimize(&mut self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        let (group, options) = (&self.group, self.group.options.clone());
        let max_eval = options.max_eval.unwrap_or(options.max_iter.saturating_mul(5) / 4);
        let first_loss = enable_grad(&mut *closure)?;
        let mut loss = group.loss(&first_loss)?;
        let mut evals = 1;
        self.func_evals += 1;
        let mut grad = group.flat_grad()?;
        if grad.numel() == 0 || largest(&grad)? <= options.tolerance_grad {
            return Ok(first_loss);
        }
        for iteration in 1..=options.max_iter {
            self.n_iter += 1;
            let fresh = self.memory.is_none();
            let memory = match &mut self.memory {
                None => self.memory.insert(Memory {
                    direction: grad.neg()?,
                    step: 0.0,
                    pairs: VecDeque::new(),
                    scale: 1.0,
                    grad: grad.clone(),
                    loss,
                }),
                Some(memory) => {
                    memory.next_direction(&grad, options.history_size)?;
                    (memory.grad, memory.loss) = (grad.clone(), loss);
                    memory
                }
            };
            memory.step = options.lr;
            if fresh {
                memory.step *= (1.0 / grad.abs()?.sum(..)?.item::<f64>()?).min(1.0);
            }
            let slope = dot(&grad, &memory.direction)?;
            if slope > -options.tolerance_change {
                break;
            }
            let mut done = false;
            match options.line_search_fn {
                Some(LineSearch::StrongWolfe) => {
                    let start = group.params.iter().map(|p| p.detach().copy()).collect::<Result<Vec<_>>>()?;
                    let direction = &memory.direction;
                    let mut objective = |step: f64| group.evaluate(closure, &start, step, direction);
                    let origin = Point { step: 0.0, loss, slope, grad };
                    let reach = largest(direction)?;
                    let (point, used) =
                        strong_wolfe(&mut objective, origin, memory.step, reach, max_eval.saturating_sub(evals))?;
                    memory.step = point.step;
                    (loss, grad) = (point.loss, point.grad);
                    group.advance(memory.step, &memory.direction)?;
                    done = largest(&grad)? <= options.tolerance_grad;
                    evals += used;
                    self.func_evals += used as i64;
                }
                None => {
                    group.advance(memory.step, &memory.direction)?;
                    if iteration != options.max_iter {
                        // The last point is not evaluated: the next step begins with that.
                        loss = group.loss(&enable_grad(&mut *closure)?)?;
                        grad = group.flat_grad()?;
                        done = largest(&grad)? <= options.tolerance_grad;
                        evals += 1;
                        self.func_evals += 1;
                    }
                }
            }
            if evals >= max_eval
                || done
                || largest(&memory.direction.mul(memory.step)?)? <= options.tolerance_change
                || (loss - memory.loss).abs() < options.tolerance_change
            {
                break;
            }
        }
        Ok(first_loss)
    }
}

impl Group for Single {
    fn for_each_param(&self, f: &mut dyn FnMut(&Tensor)) {
        self.params.iter().for_each(f);
    }

    fn lr(&self) -> f64 {
        self.options.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.options.lr = lr;
    }

    fn get(&self, name: &str) -> Option<Value> {
        let key = Key::from(name);
        self.extra.get(&key).cloned().or_else(|| self.options.to_dict().swap_remove(&key))
    }

    fn set(&mut self, name: &str, value: Value) -> Result<()> {
        let mut options = self.options.clone();
        if options.set(name, &value)? {
            require(options.lr >= 0.0, "learning rate", options.lr)?;
            self.options = options;
        } else {
            self.extra.insert(name.into(), value);
        }
        Ok(())
    }
}

impl Optimizer for Lbfgs {
    fn step(&mut self) -> Result<()> {
        Err(Error::unsupported("LBFGS evaluates the loss several times a step: use step_closure"))
    }

    fn step_closure(&mut self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        no_grad(|| self.minimize(closure))
    }

    fn param_groups(&self) -> Vec<&dyn Group> {
        vec![&self.group]
    }

    fn param_groups_mut(&mut self) -> Vec<&mut dyn Group> {
        vec![&mut self.group]
    }

    fn add_param_group(&mut self, _: ParamGroup) -> Result<()> {
        Err(Error::unsupported("LBFGS doesn't support per-parameter options (parameter groups)"))
    }
}

/// With PyTorch's keys but for `al`, which holds nothing from one step to the next.
impl Stateful for Lbfgs {
    fn state(&self) -> Result<Value> {
        let mut state = Dict::new();
        if self.func_evals > 0 {
            state.insert(0.into(), self.kept().into());
        }
        let mut group = self.group.options.to_dict();
        group.extend(self.group.extra.clone());
        group.insert("params".into(), Value::List((0..self.group.params.len()).map(Value::from).collect()));
        let groups = Value::List(vec![group.into()]);
        Ok(Dict::from_iter([("state".into(), state.into()), ("param_groups".into(), groups)]).into())
    }

    fn load_state(&mut self, state: &Value) -> Result<()> {
        let groups = state.get("param_groups")?.as_list()?;
        let [group] = groups else {
            return Err(Error::value("loaded state dict has a different number of parameter groups"));
        };
        let ids = group.get("params")?.as_list()?;
        if ids.len() != self.group.params.len() {
            return Err(Error::value(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
            ));
        }
        let (mut options, mut extra) = (self.group.options.clone(), Dict::new());
        for (key, value) in group.as_dict()? {
            if *key != Key::from("params") && !options.set(&key.to_string(), value)? {
                extra.insert(key.clone(), value.clone());
            }
        }
        require(options.lr >= 0.0, "learning rate", options.lr)?;
        let first = Key::Int(ids.first().map_or(Ok(0), Value::as_int)?);
        let (func_evals, n_iter, memory) = match state.get("state")?.as_dict()?.get(&first) {
            Some(kept) => self.group.load_kept(kept, true)?,
            None => (0, 0, None),
        };
        (self.group.options, self.group.extra) = (options, extra);
        (self.func_evals, self.n_iter, self.memory) = (func_evals, n_iter, memory);
        Ok(())
    }
}

impl Lbfgs {
    /// An optimizer that continues from the value of [`kept`](Self::kept) and shares its tensors. For front ends that
    /// keep parameters, options and state themselves.
    pub fn resume(params: Vec<Tensor>, options: LbfgsOptions, kept: &Value) -> Result<Self> {
        let group = Single { options, params, extra: Dict::new() };
        let (func_evals, n_iter, memory) = match kept.as_dict()?.is_empty() {
            true => (0, 0, None),
            false => group.load_kept(kept, false)?,
        };
        Ok(Self { group, func_evals, n_iter, memory })
    }

    /// The state with PyTorch's keys, but for `al`, which holds nothing from one step to the next. Tensors are shared.
    pub fn kept(&self) -> Dict {
        let mut kept = Dict::new();
        kept.insert("func_evals".into(), self.func_evals.into());
        kept.insert("n_iter".into(), self.n_iter.into());
        if let Some(m) = &self.memory {
            let tensors = |of: fn(&Pair) -> &Tensor| Value::List(m.pairs.iter().map(|p| of(p).into()).collect());
            kept.insert("d".into(), (&m.direction).into());
            kept.insert("t".into(), m.step.into());
            kept.insert("old_dirs".into(), tensors(|p| &p.grad));
            kept.insert("old_stps".into(), tensors(|p| &p.step));
            kept.insert("ro".into(), Value::List(m.pairs.iter().map(|p| p.inverse.into()).collect()));
            kept.insert("H_diag".into(), m.scale.into());
            kept.insert("prev_flat_grad".into(), (&m.grad).into());
            kept.insert("prev_loss".into(), m.loss.into());
        }
        kept
    }
}

impl Single {
    /// Evaluations, iterations and memory from a saved state.
    fn load_kept(&self, kept: &Value, copy: bool) -> Result<(i64, i64, Option<Memory>)> {
        let memory = match kept.as_dict()?.contains_key(&Key::from("d")) {
            true => Some(self.load_memory(kept, copy)?),
            false => None,
        };
        Ok((kept.get("func_evals")?.as_int()?, kept.get("n_iter")?.as_int()?, memory))
    }

    fn load_memory(&self, kept: &Value, copy: bool) -> Result<Memory> {
        let numel: usize = self.params.iter().map(|p| p.numel()).sum();
        let dtype = self.params.first().map_or(rushlight_core::DType::F32, |p| p.dtype());
        let vector = |value: &Value| {
            let t = value.as_tensor()?;
            if t.shape() != [numel] {
                return Err(Error::shape(format!("LBFGS: a saved vector has shape {:?}, not [{numel}]", t.shape())));
            }
            let t = no_grad(|| t.detach().to_dtype(dtype))?;
            if copy { no_grad(|| t.copy()) } else { Ok(t) }
        };
        let (grads, steps) = (kept.get("old_dirs")?.as_list()?, kept.get("old_stps")?.as_list()?);
        let inverses = kept.get("ro")?.as_list()?;
        if grads.len() != steps.len() || grads.len() != inverses.len() {
            return Err(Error::value("LBFGS: old_dirs, old_stps and ro differ in length"));
        }
        let pair = |((grad, step), inverse): ((&Value, &Value), &Value)| {
            Ok(Pair { grad: vector(grad)?, step: vector(step)?, inverse: inverse.as_float()? })
        };
        Ok(Memory {
            direction: vector(kept.get("d")?)?,
            step: kept.get("t")?.as_float()?,
            pairs: grads.iter().zip(steps).zip(inverses).map(pair).collect::<Result<_>>()?,
            scale: kept.get("H_diag")?.as_float()?,
            grad: vector(kept.get("prev_flat_grad")?)?,
            loss: kept.get("prev_loss")?.as_float()?,
        })
    }
}
