//! Operands that may be tensors or numbers, and the dtype they combine in.

use crate::Tensor;
use rushlight_core::half::{bf16, f16};
use rushlight_core::{DType, Error, Result, Scalar};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

static DEFAULT: AtomicU8 = AtomicU8::new(DType::F32 as u8);

/// The dtype of new floating-point tensors, of integers divided by integers, and of numbers among integers: `float32`
/// unless [`set_default_dtype`] has changed it.
#[inline]
pub fn default_dtype() -> DType {
    DType::ALL[DEFAULT.load(Relaxed) as usize]
}

/// Sets [`default_dtype`] for the whole process.
///
/// ```standalone_crate
/// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
/// use rushlight::{DType, Tensor, set_default_dtype};
/// set_default_dtype(DType::F64)?;
/// assert_eq!(Tensor::arange(0, 3, 1)?.sqrt()?.dtype(), DType::F64);
/// assert!(set_default_dtype(DType::I64).is_err());
/// # set_default_dtype(DType::F32)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn set_default_dtype(dtype: DType) -> Result<()> {
    if !dtype.is_float() || dtype.is_carried() {
        return Err(Error::dtype(format!(
            "set_default_dtype: only floating-point dtypes are supported as the default dtype, got {dtype}"
        )));
    }
    DEFAULT.store(dtype as u8, Relaxed);
    Ok(())
}

/// A tensor or a number, where PyTorch takes either.
#[derive(Clone, Copy)]
pub enum Arg<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number.
    Scalar(Scalar),
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(t: &'a Tensor) -> Self {
        Arg::Tensor(t)
    }
}

impl From<Scalar> for Arg<'_> {
    fn from(s: Scalar) -> Self {
        Arg::Scalar(s)
    }
}

macro_rules! from_number {
    ($($t:ty)*) => {$(
        impl From<$t> for Arg<'_> {
            fn from(v: $t) -> Self { Arg::Scalar(v.into()) }
        }
    )*};
}
from_number!(bool i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 f16 bf16);

impl<'a> Arg<'a> {
    pub(crate) fn tensor(self) -> Option<&'a Tensor> {
        match self {
            Arg::Tensor(t) => Some(t),
            Arg::Scalar(_) => None,
        }
    }

    pub(crate) fn dtype(self) -> DType {
        match self {
            Arg::Tensor(t) => t.dtype(),
            Arg::Scalar(Scalar::Float(_)) => default_dtype(),
            Arg::Scalar(Scalar::Complex(..)) => default_dtype().complex(),
            Arg::Scalar(s) => s.dtype(),
        }
    }
}

/// The dtype these operands combine in. Tensors with dimensions decide; zero-dim tensors, and after them numbers, count
/// only if they are of a higher kind (bool, integer, float, complex).
///
/// ```
/// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
/// use rushlight::DType;
/// use rushlight::{Tensor, result_type};
/// let x = Tensor::arange(0, 3, 1)?;
/// assert_eq!(result_type(&[(&x).into(), 2.into()]), DType::I64);
/// assert_eq!(result_type(&[(&x).into(), 2.5.into()]), DType::F32);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn result_type(args: &[Arg]) -> DType {
    // Nearly always: tensors of one dtype.
    if let [Arg::Tensor(first), rest @ ..] = args
        && rest.iter().all(|a| matches!(a, Arg::Tensor(t) if t.dtype() == first.dtype()))
    {
        return first.dtype();
    }
    let mut groups: [Option<DType>; 3] = [None; 3];
    for arg in args {
        let rank = match arg {
            Arg::Tensor(t) if t.rank() > 0 => 0,
            Arg::Tensor(_) => 1,
            Arg::Scalar(_) => 2,
        };
        let dtype = arg.dtype();
        groups[rank] = Some(groups[rank].map_or(dtype, |d| d.promote(dtype)));
    }
    let mut out: Option<DType> = None;
    for lower in groups.into_iter().flatten() {
        out = Some(match out {
            None => lower,
            Some(higher) if higher.is_float() && lower.is_complex() => higher.complex(),
            Some(higher) if lower.category() > higher.category() => higher.promote(lower),
            Some(higher) => higher,
        });
    }
    out.unwrap_or_else(default_dtype)
}

/// A number that is added to elements of a half type, rounded to that type as in PyTorch: sums beyond its range are
/// infinite though the exact sum may be within it. Numbers that multiply are not rounded.
#[inline]
pub(crate) fn addend(other: Arg, dtype: DType) -> Arg {
    match other {
        Arg::Scalar(s) if dtype == DType::F16 && !matches!(s, Scalar::Complex(..)) => {
            Arg::Scalar(Scalar::Float(f16::from_f64(s.to_f64()).to_f64()))
        }
        Arg::Scalar(s) if dtype == DType::BF16 && !matches!(s, Scalar::Complex(..)) => {
            Arg::Scalar(Scalar::Float(bf16::from_f64(s.to_f64()).to_f64()))
        }
        other => other,
    }
}
