//! Operand checks that several ops share.

use super::number::fitting;
use crate::Tensor;
use crate::arg::{Arg, result_type};
use crate::autograd::{no_grad, record, recording};
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::{DType, Error, Result, Scalar};

pub(crate) fn any(_: &str, _: &Tensor, _: Arg) -> Result<()> {
    Ok(())
}

/// PyTorch refuses `-` with a bool on either side, which would be neither difference nor negation.
pub(crate) fn not_bools(name: &str, a: &Tensor, b: Arg) -> Result<()> {
    if a.dtype() == DType::Bool || b.dtype() == DType::Bool {
        return Err(Error::dtype(format!(
            "{name}: not implemented for bool: subtraction of bool is not supported; use bitwise_xor, logical_xor or logical_not"
        )));
    }
    Ok(())
}

/// An error unless the operands combine in a dtype other than bool.
pub(crate) fn number(name: &str, a: &Tensor, b: Arg) -> Result<()> {
    match result_type(&[Arg::Tensor(a), b]) {
        DType::Bool => {
            // A shape mismatch is reported first.
            if let Arg::Tensor(b) = b {
                broadcast_shapes(a.shape(), b.shape()).map_err(|e| e.within(name))?;
            }
            Err(Error::dtype(format!("{name}: not implemented for bool")))
        }
        _ => Ok(()),
    }
}

/// An error unless the operands combine in a float dtype.
pub(crate) fn float(name: &str, a: &Tensor, b: Arg) -> Result<()> {
    match result_type(&[Arg::Tensor(a), b]) {
        dtype if dtype.is_differentiable() => Ok(()),
        dtype => Err(Error::dtype(format!("{name}: not implemented for {dtype}; it takes floats"))),
    }
}

/// An error unless tensors have one dtype.
pub(crate) fn alike(name: &str, a: &Tensor, b: Arg) -> Result<()> {
    match b {
        Arg::Tensor(b) if b.dtype() != a.dtype() => {
            Err(Error::value(format!("{name}: expected tensors of one dtype, but got {} and {}", a.dtype(), b.dtype())))
        }
        _ => Ok(()),
    }
}

/// Integer division by zero is an error, as in PyTorch; float division is not.
pub(crate) fn no_zero_divisor(name: &str, a: &Tensor, b: Arg) -> Result<()> {
    number(name, a, b)?;
    if result_type(&[Arg::Tensor(a), b]).is_float() {
        return Ok(());
    }
    let bad = match b {
        _ if a.numel() == 0 => false,
        Arg::Scalar(s) => s.to_i64() == 0,
        Arg::Tensor(t) if !crate::capture::may_read(t.device()) => false,
        Arg::Tensor(t) => crate::autograd::no_grad(|| t.eq(0)?.any(..)?.item::<bool>())?,
    };
    if bad { Err(zero_divisor(name)) } else { Ok(()) }
}

pub(crate) fn zero_divisor(name: &str) -> Error {
    Error::value(format!("{name}: integer division by zero (\"ZeroDivisionError\")"))
}

/// The factor of a sum's second operand, which must be of the kind that the operands combine in.
pub(crate) fn alpha_of(name: &str, a: &Tensor, b: &Tensor, alpha: Scalar) -> Result<Scalar> {
    let dtype = result_type(&[Arg::Tensor(a), Arg::Tensor(b)]);
    match alpha {
        Scalar::Float(_) if !dtype.is_differentiable() => Err(Error::value(format!(
            "{name}: for integral input tensors, argument alpha must not be a floating point number"
        ))),
        Scalar::Bool(_) if dtype != DType::Bool => {
            Err(Error::value(format!("{name}: boolean alpha only supported for boolean results")))
        }
        alpha if dtype == DType::Bool => Ok(Scalar::Bool(alpha.to_i64() != 0)),
        alpha => fitting(name, alpha, dtype),
    }
}

/// Integers divided by integers are refused: PyTorch once rounded them.
pub(crate) fn no_whole_quotient(a: &Tensor, b: &Tensor) -> Result<()> {
    if result_type(&[Arg::Tensor(a), Arg::Tensor(b)]).is_differentiable() {
        return Ok(());
    }
    Err(Error::value(
        "addcdiv: integer division with addcdiv is not supported; use floats, or addcmul with a reciprocal",
    ))
}

/// The factor of a product of integers as one of them: parameters of rows are floats, which do not hold all integers.
/// `None` if the operands combine in a float dtype.
pub(crate) fn whole_factor(name: &str, args: &[Arg], value: Scalar) -> Result<Option<i64>> {
    let dtype = result_type(args);
    if dtype == DType::Bool {
        return Err(Error::dtype(format!("{name}: not implemented for bool")));
    }
    let value = fitting(name, value, dtype)?;
    Ok((!dtype.is_differentiable()).then(|| value.to_i64()))
}

/// Integers to negative integer powers are no integers.
pub(crate) fn no_negative_exponent(name: &str, a: &Tensor, b: Arg) -> Result<()> {
    if let (false, Arg::Scalar(Scalar::Int(e))) = (a.dtype().is_differentiable(), b)
        && e < 0
    {
        return Err(Error::value(format!(
            "{name}: integers to negative integer powers are not allowed; convert to a float first"
        )));
    }
    Ok(())
}

/// The result of an op without a derivative: it requires gradients as its inputs do, but a backward pass that reaches
/// it is an error.
pub(crate) fn underivable(
    name: &'static str,
    inputs: &[&Tensor],
    op: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    let out = no_grad(op)?;
    if out.dtype().is_differentiable() && recording(inputs) {
        record(name, inputs, &out, move |_, _| {
            let message = format!("the derivative for {name} is not implemented");
            // PyTorch's class of exception where an op is not one of its kernels.
            Err(if name.starts_with("unique") { Error::unsupported(message) } else { Error::autograd(message) })
        })?;
    }
    Ok(out)
}
