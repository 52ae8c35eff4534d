//! Arguments as Rust values, so that ops run without the interpreter.

use crate::{device, dtype};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Device, Error, Generator, Result, Scalar};
use rushlight_tensor::{Arg, Options, Tensor};
use std::sync::Arc;

pub type Ints = SmallVec<[i64; 6]>;

/// An argument after conversion. The signature decides which kinds are allowed.
#[derive(Clone)]
pub enum Value {
    None,
    Tensor(Tensor),
    Tensors(Vec<Tensor>),
    Scalar(Scalar),
    Ints(Ints),
    Floats(Vec<f64>),
    Str(String),
    DType(DType),
    Device(Device),
    Generator(Arc<Generator>),
    MemoryFormat(MemoryFormat),
}

/// The order of elements in memory that PyTorch's ops accept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryFormat {
    Contiguous,
    Preserve,
    ChannelsLast,
    ChannelsLast3d,
}

/// The arguments of one call in the order of its signature.
pub type Values = SmallVec<[Value; 8]>;

/// Reads an op's arguments from their list, one parameter after the other.
pub trait Take<'a>: Sized {
    fn take(values: &mut std::slice::Iter<'a, Value>) -> Result<Self>;
}

fn next<'a>(values: &mut std::slice::Iter<'a, Value>) -> Result<&'a Value> {
    values.next().ok_or_else(|| Error::value("internal error: the op takes more arguments than its signature has"))
}

#[cold]
fn mismatch<T>(wanted: &str) -> Result<T> {
    Err(Error::value(format!("internal error: the signature does not give {wanted} here")))
}

macro_rules! take {
    ($($t:ty, $wanted:literal: { $($pattern:pat => $value:expr),* $(,)? })*) => {$(
        impl<'a> Take<'a> for $t {
            #[inline]
            fn take(values: &mut std::slice::Iter<'a, Value>) -> Result<Self> {
                match next(values)? {
                    $($pattern => Ok($value),)*
                    _ => mismatch($wanted),
                }
            }
        }
    )*};
}

take! {
    &'a Tensor, "a tensor": { Value::Tensor(t) => t }
    Option<&'a Tensor>, "a tensor or None": { Value::Tensor(t) => Some(t), Value::None => None }
    Arg<'a>, "a tensor or a number": { Value::Tensor(t) => Arg::Tensor(t), Value::Scalar(s) => Arg::Scalar(*s) }
    Option<Arg<'a>>, "a tensor, a number or None": {
        Value::Tensor(t) => Some(Arg::Tensor(t)), Value::Scalar(s) => Some(Arg::Scalar(*s)), Value::None => None
    }
    &'a [Tensor], "tensors": { Value::Tensors(t) => t }
    Option<&'a [Tensor]>, "tensors or None": { Value::Tensors(t) => Some(t), Value::None => None }
    Scalar, "a number": { Value::Scalar(s) => *s }
    Option<Scalar>, "a number or None": { Value::Scalar(s) => Some(*s), Value::None => None }
    i64, "an integer": { Value::Scalar(s) => s.to_i64() }
    Option<i64>, "an integer or None": { Value::Scalar(s) => Some(s.to_i64()), Value::None => None }
    isize, "an integer": { Value::Scalar(s) => s.to_i64() as isize }
    Option<isize>, "an integer or None": { Value::Scalar(s) => Some(s.to_i64() as isize), Value::None => None }
    f64, "a float": { Value::Scalar(s) => s.to_f64() }
    Option<f64>, "a float or None": { Value::Scalar(s) => Some(s.to_f64()), Value::None => None }
    bool, "a bool": { Value::Scalar(s) => s.to_i64() != 0, Value::None => false }
    Option<bool>, "a bool or None": { Value::Scalar(s) => Some(s.to_i64() != 0), Value::None => None }
    &'a str, "a string": { Value::Str(s) => s }
    Option<&'a str>, "a string or None": { Value::Str(s) => Some(s), Value::None => None }
    &'a [i64], "integers": { Value::Ints(v) => v }
    Option<&'a [i64]>, "integers or None": { Value::Ints(v) => Some(v), Value::None => None }
    &'a [f64], "floats": { Value::Floats(v) => v }
    Option<&'a [f64]>, "floats or None": { Value::Floats(v) => Some(v), Value::None => None }
    DType, "a dtype": { Value::DType(d) => *d }
    Option<DType>, "a dtype or None": { Value::DType(d) => Some(*d), Value::None => None }
    Option<Device>, "a device or None": { Value::Device(d) => Some(*d), Value::None => None }
    Option<&'a Generator>, "a generator or None": { Value::Generator(g) => Some(g), Value::None => None }
    MemoryFormat, "a memory format": { Value::MemoryFormat(m) => *m, Value::None => MemoryFormat::Preserve }
    Option<MemoryFormat>, "a memory format or None": { Value::MemoryFormat(m) => Some(*m), Value::None => None }
}

/// The value itself, for parameters that are of several kinds.
impl<'a> Take<'a> for &'a Value {
    fn take(values: &mut std::slice::Iter<'a, Value>) -> Result<Self> {
        next(values)
    }
}

/// Sizes: integers that may not be negative.
pub struct Sizes(pub SmallVec<[usize; 6]>);

impl<'a> Take<'a> for Sizes {
    fn take(values: &mut std::slice::Iter<'a, Value>) -> Result<Self> {
        sizes(<&[i64]>::take(values)?).map(Sizes)
    }
}

/// Integers as sizes.
pub fn sizes(ints: &[i64]) -> Result<SmallVec<[usize; 6]>> {
    ints.iter()
        .map(|&i| {
            usize::try_from(i)
                .map_err(|_| Error::shape(format!("negative size {i} in {ints:?}; sizes cannot be negative")))
        })
        .collect()
}

/// One integer as a size.
pub fn size(value: i64, name: &str) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::value(format!("{name} must not be negative, got {value}")))
}

/// Integers as dimensions.
pub fn dims(ints: &[i64]) -> SmallVec<[isize; 6]> {
    ints.iter().map(|&i| i as isize).collect()
}

/// The arguments of `**factory`: properties of a new tensor.
#[derive(Default)]
pub struct Factory {
    pub dtype: Option<DType>,
    pub device: Option<Device>,
    pub requires_grad: bool,
    pin_memory: bool,
}

impl<'a> Take<'a> for Factory {
    fn take(values: &mut std::slice::Iter<'a, Value>) -> Result<Self> {
        let dtype = Take::take(values)?;
        // There is one layout.
        let (_layout, device) = (next(values)?, Take::take(values)?);
        let pin: Option<bool> = Take::take(values)?;
        Ok(Factory { dtype, device, requires_grad: Take::take(values)?, pin_memory: pin.unwrap_or(false) })
    }
}

impl Factory {
    /// Options for a new tensor: the default dtype unless one is given.
    pub fn options(&self) -> Options {
        self.options_or(dtype::default())
    }

    pub fn options_or(&self, otherwise: DType) -> Options {
        Options::from(self.dtype.unwrap_or(otherwise)).device(self.device.unwrap_or_else(device::default))
    }

    /// Options like a tensor's.
    pub fn options_like(&self, like: &Tensor) -> Options {
        Options::from(self.dtype.unwrap_or(like.dtype())).device(self.device.unwrap_or(like.device()))
    }

    /// Moves a tensor made on the CPU to the requested device.
    pub fn placed(&self, tensor: Tensor) -> Result<Tensor> {
        tensor.to(self.device.unwrap_or_else(device::default))
    }

    pub fn finish(&self, tensor: Tensor) -> Result<Tensor> {
        let tensor = if self.pin_memory { device::pinned(&tensor)? } else { tensor };
        if self.requires_grad { tensor.requires_grad_(true) } else { Ok(tensor) }
    }
}

/// The result of an op.
pub enum Out {
    Tensor(Tensor),
    /// The first argument itself, changed in place.
    First,
    Tuple(Vec<Tensor>),
    List(Vec<Tensor>),
    /// A tuple whose fields have names, as `torch.return_types` has them.
    Named(&'static str, Vec<Tensor>),
    Scalar(Scalar),
    None,
}

impl From<Tensor> for Out {
    fn from(t: Tensor) -> Self {
        Out::Tensor(t)
    }
}

impl From<&Tensor> for Out {
    fn from(_: &Tensor) -> Self {
        Out::First
    }
}

impl From<Vec<Tensor>> for Out {
    fn from(t: Vec<Tensor>) -> Self {
        Out::Tuple(t)
    }
}

impl From<(Tensor, Tensor)> for Out {
    fn from(t: (Tensor, Tensor)) -> Self {
        Out::Tuple(vec![t.0, t.1])
    }
}

impl From<(Tensor, Tensor, Tensor)> for Out {
    fn from(t: (Tensor, Tensor, Tensor)) -> Self {
        Out::Tuple(vec![t.0, t.1, t.2])
    }
}

impl From<Scalar> for Out {
    fn from(s: Scalar) -> Self {
        Out::Scalar(s)
    }
}

impl From<bool> for Out {
    fn from(b: bool) -> Self {
        Out::Scalar(Scalar::Bool(b))
    }
}

impl From<i64> for Out {
    fn from(i: i64) -> Self {
        Out::Scalar(Scalar::Int(i))
    }
}

impl From<f64> for Out {
    fn from(v: f64) -> Self {
        Out::Scalar(Scalar::Float(v))
    }
}

impl From<()> for Out {
    fn from(_: ()) -> Self {
        Out::None
    }
}
