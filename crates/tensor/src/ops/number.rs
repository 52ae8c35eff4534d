//! Conversion of numbers to elements of a dtype.

use rushlight_core::half::{bf16, f16};
use rushlight_core::{DType, Error, Result, Scalar};

/// The smallest and largest value of an integer dtype.
pub(crate) fn range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I32 => (i32::MIN as i64, i32::MAX as i64),
        DType::I16 => (i16::MIN as i64, i16::MAX as i64),
        DType::I8 => (i8::MIN as i64, i8::MAX as i64),
        DType::U8 => (0, u8::MAX as i64),
        DType::U16 => (0, u16::MAX as i64),
        DType::U32 => (0, u32::MAX as i64),
        // Numbers are `i64`: the upper half of the range is not theirs.
        DType::U64 => (0, i64::MAX),
        DType::Bool => (0, 1),
        _ => (i64::MIN, i64::MAX),
    }
}

/// The largest finite value of a float dtype.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::MAX.to_f64(),
        DType::BF16 => bf16::MAX.to_f64(),
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
}

/// Whether a dtype can represent a number, up to rounding. As in PyTorch, a negative integer fits an unsigned
/// dtype if its magnitude does, and wraps; infinities and NaN fit every float dtype.
fn fits(value: Scalar, dtype: DType) -> bool {
    let (low, high) = range(dtype);
    match value {
        _ if dtype == DType::Bool => true,
        Scalar::Bool(_) => true,
        _ if dtype.is_complex() => true,
        Scalar::Complex(re, im) => im == 0.0 && fits(Scalar::Float(re), dtype),
        // Conversion saturates, or returns the format's overflow value.
        _ if dtype.is_float8() => true,
        _ if dtype.is_float() => !value.to_f64().is_finite() || value.to_f64().abs() <= largest(dtype),
        Scalar::Unsigned(_) => dtype == DType::U64,
        Scalar::Int(v) if matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) => {
            (-high..=high).contains(&v)
        }
        Scalar::Float(v) if dtype == DType::U64 => v >= 0.0 && v < 2.0 * high as f64,
        Scalar::Int(v) => (low..=high).contains(&v),
        // The largest `int64` rounds up to a float that is out of range.
        Scalar::Float(v) => v >= low as f64 && if dtype == DType::I64 { v < high as f64 } else { v <= high as f64 },
    }
}

/// The number as an element of the dtype, or an error that names the call.
///
/// ```
/// # mod rushlight { pub use rushlight_core::{DType, Scalar}; pub use rushlight_tensor::*; }
/// use rushlight::{DType, Scalar};
/// use rushlight::fitting;
/// assert_eq!(fitting("fill_", Scalar::Int(200), DType::U8)?, Scalar::Int(200));
/// assert!(fitting("fill_", Scalar::Int(300), DType::U8).is_err());
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn fitting(name: &str, value: Scalar, dtype: DType) -> Result<Scalar> {
    if fits(value, dtype) {
        return Ok(match value {
            // Engines cut floats off, which would make false of a half.
            Scalar::Float(v) if dtype == DType::Bool => Scalar::Bool(v != 0.0),
            Scalar::Complex(..) if dtype == DType::Bool => Scalar::Bool(!value.is_zero()),
            Scalar::Complex(re, _) if !dtype.is_complex() => Scalar::Float(re),
            value => value,
        });
    }
    let number = match value {
        Scalar::Float(v) => v.to_string(),
        Scalar::Unsigned(v) => v.to_string(),
        Scalar::Complex(re, im) => format!("({re},{im})"),
        other => other.to_i64().to_string(),
    };
    Err(Error::value(format!("{name}: value {number} cannot be converted to type {dtype} without overflow")))
}

/// A bound as a number of the dtype. A bound outside an integer's range is replaced by the end of the range, which
/// bounds the same elements.
pub(crate) fn saturated(value: Scalar, dtype: DType) -> Scalar {
    if dtype.is_float() {
        return value;
    }
    let (low, high) = range(dtype);
    match value {
        Scalar::Unsigned(_) if dtype == DType::U64 => value,
        Scalar::Unsigned(_) => Scalar::Int(high),
        _ => Scalar::Int(value.to_i64().clamp(low, high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_as_in_pytorch() {
        for (value, dtype, expected) in [
            (Scalar::Int(300), DType::U8, false),
            (Scalar::Int(-1), DType::U8, true),
            (Scalar::Float(-1.0), DType::U8, false),
            (Scalar::Int(-129), DType::I8, false),
            (Scalar::Float(2.7), DType::I64, true),
            (Scalar::Float(9.3e18), DType::I64, false),
            (Scalar::Float(9223372036854775807.0), DType::I64, false),
            (Scalar::Float(f64::NAN), DType::I32, false),
            (Scalar::Float(f64::INFINITY), DType::F16, true),
            (Scalar::Int(70000), DType::F16, false),
            (Scalar::Float(1e300), DType::F32, false),
            (Scalar::Int(300), DType::Bool, true),
        ] {
            assert_eq!(fits(value, dtype), expected, "{value:?} as {dtype}");
        }
    }

    #[test]
    fn bounds_end_at_the_range() {
        assert_eq!(saturated(Scalar::Int(300), DType::U8), Scalar::Int(255));
        assert_eq!(saturated(Scalar::Int(-300), DType::U8), Scalar::Int(0));
        assert_eq!(saturated(Scalar::Float(1e30), DType::I32), Scalar::Int(i32::MAX as i64));
    }
}
