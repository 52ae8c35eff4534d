use crate::support::args::Args;
use rushlight_core::{Error, Pointwise, Result, Scalar};
use rushlight_tensor::{Arg, Tensor};

/// `a + alpha * b` and its difference; `b` may be a number.
fn scaled(a: &Args, sign: i64) -> Result<Tensor> {
    let x = a.t(0)?;
    let alpha = a.scalar_or(2, "alpha", 1)?;
    let alpha = match alpha {
        Scalar::Float(f) => Scalar::Float(f * sign as f64),
        other => Scalar::Int(other.to_i64().wrapping_mul(sign)),
    };
    match a.arg(1)? {
        Arg::Tensor(t) => x.add_scaled(t, alpha),
        Arg::Scalar(Scalar::Float(f)) => x.add(f * alpha.to_f64()),
        Arg::Scalar(s) => match alpha {
            Scalar::Float(f) => x.add(s.to_f64() * f),
            other => x.add(s.to_i64().wrapping_mul(other.to_i64())),
        },
    }
}

/// Ops that PyTorch also accepts with a number on the left: the number becomes a zero-dim tensor that promotes like a
/// number.
fn number_left(
    a: &Args,
    tensor: fn(&Tensor, Arg) -> Result<Tensor>,
    number: fn(&Tensor, Scalar) -> Result<Tensor>,
) -> Result<Tensor> {
    match a.arg(0)? {
        Arg::Tensor(x) => tensor(x, a.arg(1)?),
        Arg::Scalar(s) => number(a.t(1)?, s),
    }
}

fn divide(a: &Args) -> Result<Tensor> {
    match a.text(2, "rounding_mode") {
        None => a.t(0)?.div(a.arg(1)?),
        Some("floor") => a.t(0)?.div_floor(a.arg(1)?),
        Some("trunc") => a.t(0)?.trunc_divide(a.arg(1)?),
        Some(other) => Err(Error::value(format!("{}: rounding mode {other}", Pointwise::Div.name()))),
    }
}

super::ops! {
    "add" => |a| if a.has(2, "alpha") { scaled(a, 1) } else { a.t(0)?.add(a.arg(1)?) };
    "sub" => |a| if a.has(2, "alpha") { scaled(a, -1) } else { a.t(0)?.sub(a.arg(1)?) };
    "mul" => |a| a.t(0)?.mul(a.arg(1)?);
    "div" => |a| divide(a);
    "true_divide" => |a| a.t(0)?.div(a.arg(1)?);
    "floor_divide" => |a| a.t(0)?.floor_divide(a.arg(1)?);
    "remainder" => |a| number_left(a, |x, y| x.remainder(y), |y, s| y.rremainder(s));
    "fmod" => |a| a.t(0)?.fmod(a.arg(1)?);
    "pow" => |a| number_left(a, |x, y| x.pow(y), |y, s| y.rpow(s));
    "maximum" => |a| a.t(0)?.maximum(a.arg(1)?);
    "minimum" => |a| a.t(0)?.minimum(a.arg(1)?);
    "fmax" => |a| a.t(0)?.fmax(a.arg(1)?);
    "fmin" => |a| a.t(0)?.fmin(a.arg(1)?);
    "atan2" => |a| a.t(0)?.atan2(a.arg(1)?);
    "hypot" => |a| a.t(0)?.hypot(a.arg(1)?);
    "copysign" => |a| a.t(0)?.copysign(a.arg(1)?);
    "logaddexp" => |a| a.t(0)?.logaddexp(a.arg(1)?);
    "logaddexp2" => |a| a.t(0)?.logaddexp2(a.arg(1)?);
    "xlogy" => |a| number_left(a, |x, y| x.xlogy(y), |y, s| y.rxlogy(s));
    "heaviside" => |a| a.t(0)?.heaviside(a.arg(1)?);
    "bitwise_left_shift" => |a| a.t(0)?.bitwise_left_shift(a.arg(1)?);
    "bitwise_right_shift" => |a| a.t(0)?.bitwise_right_shift(a.arg(1)?);
    "bitwise_and" => |a| a.t(0)?.bitwise_and(a.arg(1)?);
    "bitwise_or" => |a| a.t(0)?.bitwise_or(a.arg(1)?);
    "bitwise_xor" => |a| a.t(0)?.bitwise_xor(a.arg(1)?);
    "eq" => |a| a.t(0)?.eq(a.arg(1)?);
    "ne" => |a| a.t(0)?.ne(a.arg(1)?);
    "lt" => |a| a.t(0)?.lt(a.arg(1)?);
    "le" => |a| a.t(0)?.le(a.arg(1)?);
    "gt" => |a| a.t(0)?.gt(a.arg(1)?);
    "ge" => |a| a.t(0)?.ge(a.arg(1)?);
    "logical_and" => |a| a.t(0)?.logical_and(a.t(1)?);
    "logical_or" => |a| a.t(0)?.logical_or(a.t(1)?);
    "logical_xor" => |a| a.t(0)?.logical_xor(a.t(1)?);
    "isclose" => |a| {
        a.t(0)?.isclose(a.t(1)?, a.f64(2, "rtol", 1e-5)?, a.f64(3, "atol", 1e-8)?, a.flag(4, "equal_nan", false)?)
    };
}
