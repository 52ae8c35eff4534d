//! Convolution and pooling of integers, which PyTorch has on the CPU: computed in double precision while that is exact.

use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

/// Doubles represent all integers up to this one.
const EXACT: f64 = (1u64 << 53) as f64;

/// The largest magnitude among a tensor's elements.
fn magnitude(t: &Tensor) -> Result<f64> {
    if t.numel() == 0 {
        return Ok(0.0);
    }
    let (low, high) = (t.min(..)?.item::<i64>()?, t.max(..)?.item::<i64>()?);
    Ok(low.unsigned_abs().max(high.unsigned_abs()) as f64)
}

fn too_large(name: &str) -> Error {
    Error::unsupported(format!(
        "{name}: integers are computed in double precision, which cannot represent results beyond 2^53; convert the operands to float"
    ))
}

/// Integers as doubles; `None` for floats, and for bool, which no kernel takes.
pub fn in_doubles(name: &str, input: &Tensor) -> Result<Option<Tensor>> {
    if !input.dtype().is_int() {
        return Ok(None);
    }
    if input.dtype() == DType::I64 && magnitude(input)? > EXACT {
        return Err(too_large(name));
    }
    input.to_dtype(DType::F64).map(Some)
}

/// The operands of a convolution of integers as doubles, if each sum of `terms` products is exact; `None` for floats.
#[allow(clippy::type_complexity)]
pub fn doubles(
    name: &str,
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    terms: usize,
) -> Result<Option<(Tensor, Tensor, Option<Tensor>)>> {
    let dtype = input.dtype();
    if !dtype.is_int() || weight.dtype() != dtype || bias.is_some_and(|b| b.dtype() != dtype) {
        return Ok(None);
    }
    let offset = bias.map_or(Ok(0.0), magnitude)?;
    if magnitude(input)? * magnitude(weight)? * terms as f64 + offset > EXACT {
        return Err(too_large(name));
    }
    let bias = bias.map(|b| b.to_dtype(DType::F64)).transpose()?;
    Ok(Some((input.to_dtype(DType::F64)?, weight.to_dtype(DType::F64)?, bias)))
}

/// Quotients of integers, cut off. Doubles may round a whole quotient to just below it.
pub fn truncated(quotients: &Tensor, dtype: DType) -> Result<Tensor> {
    quotients.add(&quotients.sign()?.mul(1e-7)?)?.trunc()?.to_dtype(dtype)
}
