//! Options by name: a table for each optimizer from which its builder, its state dict and its parameter groups are
//! made.

use rushlight_core::{Error, Result};
use rushlight_tensor::state::{Dict, Value};

/// The options of an optimizer, with PyTorch's names.
pub trait Options: Clone + Default + Send + Sync + 'static {
    /// The optimizer's name in messages.
    const NAME: &'static str;
    /// The learning rate.
    fn lr(&self) -> f64;
    /// Sets the learning rate, unchecked.
    fn set_lr(&mut self, lr: f64);
    /// All options by name, as a parameter group of PyTorch's holds them.
    fn to_dict(&self) -> Dict;
    /// Sets an option; false if there is none of that name.
    fn set(&mut self, name: &str, value: &Value) -> Result<bool>;
}

/// A value an option can have.
pub trait Field: Sized {
    /// The value in a state dict.
    fn to_value(&self) -> Value;
    /// The option read from a state dict.
    fn from_value(value: &Value) -> Result<Self>;
}

impl Field for f64 {
    fn to_value(&self) -> Value {
        Value::Float(*self)
    }
    fn from_value(value: &Value) -> Result<Self> {
        value.as_float()
    }
}

impl Field for bool {
    fn to_value(&self) -> Value {
        Value::Bool(*self)
    }
    fn from_value(value: &Value) -> Result<Self> {
        value.as_bool()
    }
}

impl Field for usize {
    fn to_value(&self) -> Value {
        Value::from(*self)
    }
    fn from_value(value: &Value) -> Result<Self> {
        value.as_usize()
    }
}

impl Field for Vec<f64> {
    fn to_value(&self) -> Value {
        Value::List(self.iter().map(|&x| x.into()).collect())
    }
    fn from_value(value: &Value) -> Result<Self> {
        value.as_list()?.iter().map(Value::as_float).collect()
    }
}

impl<T: Field> Field for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::None, T::to_value)
    }
    fn from_value(value: &Value) -> Result<Self> {
        if let Value::None = value { Ok(None) } else { T::from_value(value).map(Some) }
    }
}

/// Tuples of numbers.
fn floats<const N: usize>(value: &Value) -> Result<[f64; N]> {
    let items = value.as_list()?.iter().map(Value::as_float).collect::<Result<Vec<_>>>()?;
    let found = items.len();
    items.try_into().map_err(|_| Error::value(format!("state: expected {N} numbers, found {found}")))
}

impl Field for (f64, f64) {
    fn to_value(&self) -> Value {
        Value::Tuple(vec![self.0.into(), self.1.into()])
    }
    fn from_value(value: &Value) -> Result<Self> {
        floats(value).map(|[a, b]| (a, b))
    }
}

impl Field for (Option<f64>, f64) {
    fn to_value(&self) -> Value {
        Value::Tuple(vec![self.0.to_value(), self.1.into()])
    }
    fn from_value(value: &Value) -> Result<Self> {
        match value.as_list()? {
            [a, b] => Ok((Option::from_value(a)?, b.as_float()?)),
            items => Err(Error::value(format!("state: expected 2 numbers, found {}", items.len()))),
        }
    }
}

impl Field for (f64, f64, f64) {
    fn to_value(&self) -> Value {
        Value::Tuple(vec![self.0.into(), self.1.into(), self.2.into()])
    }
    fn from_value(value: &Value) -> Result<Self> {
        floats(value).map(|[a, b, c]| (a, b, c))
    }
}

/// Accepts an option of PyTorch that selects an implementation of the step and does not change its result.
pub fn check_fixed(name: &str, value: &Value) -> Result<()> {
    match (name, value) {
        ("differentiable", Value::Bool(true)) => Err(Error::unsupported(
            "differentiable: steps are not recorded; write the update with tensor ops to differentiate through it",
        )),
        _ => Ok(()),
    }
}

/// Defines an options struct: its defaults, its names, and the builder's setters. `fixed` entries say how PyTorch
/// carries out a step; they are written with their default and have no setter.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct $options:ident for $name:literal {
            $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr,)*
        }
        fixed { $($fixed:ident: $value:expr),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $options {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $options {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::options::Options for $options {
            const NAME: &'static str = $name;

            fn lr(&self) -> f64 {
                self.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }

            fn to_dict(&self) -> rushlight_tensor::state::Dict {
                let mut dict = rushlight_tensor::state::Dict::new();
                $(dict.insert(stringify!($field).into(), $crate::options::Field::to_value(&self.$field));)*
                $(dict.insert(stringify!($fixed).into(), $value);)*
                dict
            }

            fn set(&mut self, name: &str, value: &rushlight_tensor::state::Value) -> rushlight_core::Result<bool> {
                match name {
                    $(stringify!($field) => {
                        self.$field = $crate::options::Field::from_value(value).map_err(|e| e.within(concat!($name, ": ", stringify!($field))))?;
                    })*
                    $(stringify!($fixed) => $crate::options::check_fixed(name, value)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        impl $crate::Builder<$options> {
            $(
                $(#[$doc])*
                pub fn $field(mut self, $field: $type) -> Self {
                    self.options.$field = $field;
                    self
                }
            )*
        }
    };
}
pub(crate) use options;

/// PyTorch's error if a value is out of range.
pub fn require(ok: bool, what: &str, value: f64) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::value(format!("Invalid {what}: {value}"))) }
}

/// Checks the options common to Adam and its relatives.
pub fn require_adam(lr: f64, betas: (f64, f64), eps: f64, weight_decay: f64) -> Result<()> {
    require(lr >= 0.0, "learning rate", lr)?;
    require(eps >= 0.0, "epsilon value", eps)?;
    require((0.0..1.0).contains(&betas.0), "beta parameter at index 0", betas.0)?;
    require((0.0..1.0).contains(&betas.1), "beta parameter at index 1", betas.1)?;
    require(weight_decay >= 0.0, "weight_decay value", weight_decay)
}
