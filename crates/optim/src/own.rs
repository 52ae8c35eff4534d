//! Optimizers of users: options, names of state, a step for one parameter.

use crate::group::{Algorithm, Composed, GroupOptimizer, Params, Scalars, SkipCondition, composed_step};
use crate::optimizer::ParamGroup;
use crate::options::Options;
use rushlight_core::{Error, Result};
use rushlight_tensor::{Arg, Tensor};

/// An optimizer of one's own: what it keeps for a parameter, and how it steps one. Parameter groups, schedules, loss
/// scaling, state dicts, checkpoints and the Trainer work as with any other optimizer.
///
/// ```
/// # mod rushlight { pub use rushlight_core::*; pub use rushlight_tensor::*; pub use rushlight_optim as optim; }
/// use rushlight::optim::{Optimizer, Rule, State, optimizer_options};
/// use rushlight::{Result, Tensor};
///
/// optimizer_options! {
///     /// Lion: the sign of an average gradient.
///     pub struct Lion {
///         lr: f64 = 1e-4,
///         betas: (f64, f64) = (0.9, 0.99),
///         weight_decay: f64 = 0.0,
///     }
/// }
///
/// impl Rule for Lion {
///     const KEPT: &'static [&'static str] = &["exp_avg"];
///
///     fn step_one(&self, param: &Tensor, grad: &Tensor, state: &State) -> Result<()> {
///         let average = state.tensor("exp_avg")?;
///         let update = average.lerp(grad, 1.0 - self.betas.0)?.sign()?;
///         param.mul_(1.0 - self.lr * self.weight_decay)?;
///         param.add_scaled_(&update, -self.lr)?;
///         average.lerp_(grad, 1.0 - self.betas.1)?;
///         Ok(())
///     }
/// }
///
/// let w = Tensor::new([3.0f32])?.requires_grad_(true)?;
/// let mut optimizer = Lion { lr: 0.1, ..Lion::default() }.optimizer([w.clone()])?;
/// for _ in 0..28 {
///     optimizer.zero_grad();
///     (&w * &w).sum(..)?.backward()?;
///     optimizer.step()?;
/// }
/// assert!(w.item::<f32>()?.abs() < 0.3);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub trait Rule: Options {
    /// Names of the tensors kept for each parameter, three at most. They have its shape, dtype and device, begin with
    /// zeros, and are entries of the state dict.
    const KEPT: &'static [&'static str] = &[];

    /// Checks the options, when the optimizer is made and whenever one changes.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Changes a parameter by its gradient, and what is kept for it. Nothing is recorded meanwhile.
    fn step_one(&self, param: &Tensor, grad: &Tensor, state: &State) -> Result<()>;

    /// The optimizer of these parameters with these options.
    fn optimizer(self, params: impl IntoIterator<Item = Tensor>) -> Result<GroupOptimizer<Self>> {
        self.optimizer_of_groups([ParamGroup::new(params)])
    }

    /// The optimizer of groups, whose own options go before these.
    fn optimizer_of_groups(self, groups: impl IntoIterator<Item = ParamGroup>) -> Result<GroupOptimizer<Self>> {
        let mut builder = GroupOptimizer::groups(groups);
        builder.options = self;
        builder.build()
    }
}

/// The state of one parameter in [`Rule::step_one`].
pub struct State<'a> {
    names: &'static [&'static str],
    kept: &'a [Option<Tensor>; 3],
    step: u64,
}

impl State<'_> {
    /// A tensor by its name in [`Rule::KEPT`].
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        let at = self.names.iter().position(|known| *known == name);
        at.and_then(|at| self.kept[at].as_ref()).ok_or_else(|| {
            Error::value(format!("optimizer: '{name}' is not among the names kept for a parameter, {:?}", self.names))
        })
    }

    /// The number of this step of the parameter, from 1.
    pub fn step(&self) -> u64 {
        self.step
    }
}

impl<R: Rule> Algorithm for R {
    const TENSORS: &'static [&'static str] = R::KEPT;

    fn validate(&self) -> Result<()> {
        const { assert!(R::KEPT.len() <= 3, "a rule keeps three tensors per parameter at most") }
        self.check()
    }

    fn keeps(&self) -> [bool; 3] {
        [0, 1, 2].map(|at| at < R::KEPT.len())
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        composed_step(groups, grad_scale, skip)
    }
}

impl<R: Rule> Composed for R {
    fn step_one(&self, param: &Tensor, grad: &Tensor, scalars: &mut Scalars, kept: &[Option<Tensor>; 3]) -> Result<()> {
        scalars[0] += 1.0;
        Rule::step_one(self, param, grad, &State { names: R::KEPT, kept, step: scalars[0] as u64 })
    }
}

/// Defines the options of a [`Rule`]: a struct with a default for each field and [`Options`] by name. One of them is
/// `lr: f64`. Fields are `f64`, `bool`, `usize`, `Vec<f64>`, tuples of two or three `f64`, and options of these.
#[macro_export]
macro_rules! optimizer_options {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $visibility struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::rule::Options for $name {
            const NAME: &'static str = stringify!($name);

            fn lr(&self) -> f64 {
                self.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }

            fn to_dict(&self) -> $crate::rule::Dict {
                let mut dict = $crate::rule::Dict::new();
                $(dict.insert(stringify!($field).into(), $crate::rule::OptionValue::to_value(&self.$field));)*
                dict
            }

            fn set(&mut self, name: &str, value: &$crate::rule::Value) -> $crate::rule::Result<bool> {
                match name {
                    $(stringify!($field) => {
                        self.$field = $crate::rule::OptionValue::from_value(value)
                            .map_err(|e| e.within(concat!(stringify!($name), ": ", stringify!($field))))?;
                    })*
                    _ => return ::std::result::Result::Ok(false),
                }
                ::std::result::Result::Ok(true)
            }
        }
    };
}
