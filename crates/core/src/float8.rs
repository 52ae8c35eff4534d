//! The 8-bit float formats: conversion from and to `f32`, with PyTorch's rounding.

use crate::{DType, Element, Scalar};

/// The elements of a carried dtype as the engine's integer of the same size: the bits of `value` converted to `dtype`.
///
/// ```
/// use rushlight_core::{DType, Scalar, float8::carried_bits};
/// assert_eq!(carried_bits(Scalar::Float(1.5), DType::F8E4M3FN), 0x3c);
/// assert_eq!(carried_bits(Scalar::Int(-1), DType::U16), -1);
/// ```
pub fn carried_bits(value: Scalar, dtype: DType) -> i64 {
    match value {
        _ if dtype.is_float8() => i64::from(encode(dtype, value.to_f64() as f32)),
        Scalar::Float(v) => u64::from_f64(v) as i64,
        other => other.to_i64(),
    }
}

/// Rounds to the nearest value of a format with a sign, ties to the even mantissa.
///
/// `MAX` is the code of the largest finite value, `OVER` the code of larger values. With `UZ` the format has neither a
/// negative zero nor a sign of NaN: code 0x80 is NaN.
#[inline(always)]
fn rounded<const MANTISSA: u32, const BIAS: u32, const MAX: u32, const OVER: u32, const NAN: u32, const UZ: bool>(
    v: f32,
) -> u8 {
    let bits = v.to_bits();
    let (sign, a) = (bits >> 31 << 7, bits & 0x7fff_ffff);
    // Below the smallest normal number the addition of this power of two rounds to the format's fixed step.
    let magic = (127 - BIAS + 1 + 23 - MANTISSA) << 23;
    let subnormal = (f32::from_bits(a) + f32::from_bits(magic)).to_bits().wrapping_sub(magic);
    let shift = 23 - MANTISSA;
    let half = (1 << (shift - 1)) - 1 + ((a >> shift) & 1);
    let normal = (a.wrapping_add(half) >> shift).wrapping_sub((127 - BIAS) << MANTISSA);
    let code = if a < (127 - BIAS + 1) << 23 { subnormal } else { normal };
    let code = if code > MAX { OVER } else { code };
    let code = if a > 0x7f80_0000 { NAN } else { code };
    let sign = if UZ && (code == 0 || code == NAN) { 0 } else { sign };
    (code | sign) as u8
}

/// Rounds the magnitude to a power of two, ties away from zero.
#[inline(always)]
fn exponent_only(v: f32) -> u8 {
    let bits = v.to_bits() & 0x7fff_ffff;
    let (exponent, mantissa) = (bits >> 23, bits & 0x7f_ffff);
    let up = mantissa > 0x40_0000 || mantissa == 0x40_0000 && exponent > 0;
    if exponent == 0xff { 0xff } else { (exponent + u32::from(up)) as u8 }
}

macro_rules! formats {
    ($dtype:expr, $encode:ident => $body:expr) => {
        match $dtype {
            DType::F8E5M2 => {
                let $encode = rounded::<2, 15, 0x7b, 0x7c, 0x7f, false>;
                $body
            }
            DType::F8E4M3FNUZ => {
                let $encode = rounded::<3, 8, 0x7f, 0x80, 0x80, true>;
                $body
            }
            DType::F8E5M2FNUZ => {
                let $encode = rounded::<2, 16, 0x7f, 0x80, 0x80, true>;
                $body
            }
            DType::F8E8M0FNU => {
                let $encode = exponent_only;
                $body
            }
            _ => {
                let $encode = rounded::<3, 7, 0x7e, 0x7e, 0x7f, false>;
                $body
            }
        }
    };
}

/// The code of `v` in an 8-bit float dtype (any other counts as `float8_e4m3fn`).
pub fn encode(dtype: DType, v: f32) -> u8 {
    formats!(dtype, code_of => code_of(v))
}

/// The codes of `values`, up to the shorter slice's length.
pub fn encode_all(dtype: DType, values: &[f32], codes: &mut [u8]) {
    formats!(dtype, code_of => codes.iter_mut().zip(values).for_each(|(code, &v)| *code = code_of(v)))
}

/// The value of a code of an 8-bit float dtype (any other counts as `float8_e4m3fn`).
pub fn decode(dtype: DType, code: u8) -> f32 {
    const NAN: u32 = 0x7f80_0001;
    let sign = u32::from(code >> 7) << 31;
    let a = u32::from(code & 0x7f);
    let (mantissa, bias) = match dtype {
        DType::F8E8M0FNU => {
            return f32::from_bits(match code {
                0 => 0x40_0000,
                0xff => NAN,
                _ => u32::from(code) << 23,
            });
        }
        DType::F8E5M2 if a >= 0x7c => {
            let quiet = if a == 0x7c { 0 } else { 0x40_0000 };
            return f32::from_bits(sign | 0x7f80_0000 | quiet | (a & 3) << 21);
        }
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ if code == 0x80 => return f32::from_bits(NAN),
        DType::F8E5M2 => (2, 15),
        DType::F8E4M3FNUZ => (3, 8),
        DType::F8E5M2FNUZ => (2, 16),
        _ if a == 0x7f => return f32::from_bits(sign | 0x7ff0_0000),
        _ => (3, 7),
    };
    let exponent = a >> mantissa;
    let fraction = a & ((1 << mantissa) - 1);
    let magnitude = if exponent == 0 {
        // A whole number of the smallest steps, 2^(1 - bias - mantissa).
        fraction as f32 * f32::from_bits((127 + 1 - bias - mantissa) << 23)
    } else {
        f32::from_bits((exponent + 127 - bias) << 23 | fraction << (23 - mantissa))
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// The values of all codes of an 8-bit float dtype.
pub fn table(dtype: DType) -> [f32; 256] {
    std::array::from_fn(|code| decode(dtype, code as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [DType; 5] =
        [DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ, DType::F8E8M0FNU];

    #[test]
    fn codes_survive_a_round_trip() {
        for dtype in FORMATS {
            for code in 0..=255u8 {
                let v = decode(dtype, code);
                let back = encode(dtype, v);
                if v.is_nan() {
                    assert!(decode(dtype, back).is_nan(), "{dtype} {code:#x}");
                } else if !(dtype == DType::F8E8M0FNU && code == 0) {
                    assert_eq!(back, code, "{dtype} {v}");
                }
            }
        }
    }

    #[test]
    fn values_round_to_the_nearest_code() {
        for dtype in [DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ] {
            let values = table(dtype);
            let finite: Vec<f32> = (0..128).map(|i| values[i]).filter(|v| v.is_finite()).collect();
            for pair in finite.windows(2) {
                let middle = (pair[0] + pair[1]) / 2.0;
                assert_eq!(decode(dtype, encode(dtype, middle.next_down())), pair[0]);
                assert_eq!(decode(dtype, encode(dtype, middle.next_up())), pair[1]);
                assert_eq!(encode(dtype, middle) & 1, 0, "{dtype}: a tie goes to the even code");
            }
        }
    }
}
