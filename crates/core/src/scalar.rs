//! Scalars.

use crate::{DType, Element};
use half::{bf16, f16};

/// A Rust number passed where PyTorch takes a Python number. Its kind (bool, integer, float, complex) takes part in
/// type promotion, its width does not.
///
/// ```
/// # mod rushlight { pub use rushlight_core::{DType, Scalar}; }
/// use rushlight::{DType, Scalar};
/// assert_eq!(Scalar::from(2.5).dtype(), DType::F32);
/// assert_eq!(Scalar::from(2).to_f64(), 2.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer beyond the range of `i64`.
    Unsigned(u64),
    /// A float.
    Float(f64),
    /// A complex number: its real and its imaginary part.
    Complex(f64, f64),
}

impl Scalar {
    /// The dtype a tensor made of this number alone would have.
    pub fn dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Unsigned(_) => DType::U64,
            Scalar::Float(_) => DType::F32,
            Scalar::Complex(..) => DType::C64,
        }
    }

    /// The value as a float; the real part of a complex number.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(v) => v as u8 as f64,
            Scalar::Int(v) => v as f64,
            Scalar::Unsigned(v) => v as f64,
            Scalar::Float(v) | Scalar::Complex(v, _) => v,
        }
    }

    /// The value as an integer; floats truncate, integers beyond the range wrap.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(v) => v as i64,
            Scalar::Int(v) => v,
            Scalar::Unsigned(v) => v as i64,
            Scalar::Float(v) | Scalar::Complex(v, _) => v as i64,
        }
    }

    /// The imaginary part; zero for real numbers.
    pub fn imag(self) -> f64 {
        match self {
            Scalar::Complex(_, im) => im,
            _ => 0.0,
        }
    }

    /// Whether this is zero in all its parts.
    pub fn is_zero(self) -> bool {
        self.to_f64() == 0.0 && self.imag() == 0.0
    }

    /// The value as an element.
    pub fn to<T: Element>(self) -> T {
        match self {
            Scalar::Float(v) | Scalar::Complex(v, _) => T::from_f64(v),
            Scalar::Unsigned(v) if T::DTYPE.is_float() => T::from_f64(v as f64),
            other => T::from_i64(other.to_i64()),
        }
    }
}

impl From<u64> for Scalar {
    fn from(v: u64) -> Self {
        i64::try_from(v).map_or(Scalar::Unsigned(v), Scalar::Int)
    }
}

impl From<usize> for Scalar {
    fn from(v: usize) -> Self {
        Scalar::from(v as u64)
    }
}

macro_rules! from {
    ($($t:ty => $kind:ident($v:ident $e:expr);)*) => {$(
        impl From<$t> for Scalar {
            fn from($v: $t) -> Self { Scalar::$kind($e) }
        }
    )*};
}

from! {
    bool => Bool(v v);
    i8 => Int(v v as i64);
    i16 => Int(v v as i64);
    i32 => Int(v v as i64);
    i64 => Int(v v);
    isize => Int(v v as i64);
    u8 => Int(v v as i64);
    u16 => Int(v v as i64);
    u32 => Int(v v as i64);
    f32 => Float(v v as f64);
    f64 => Float(v v);
    f16 => Float(v v.to_f64());
    bf16 => Float(v v.to_f64());
}
