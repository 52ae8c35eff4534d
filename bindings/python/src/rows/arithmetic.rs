//! Arithmetic of two or three operands.

use crate::rows;
use crate::value::Out;
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::{Arg, Tensor, result_type, where_};

/// `input + alpha * other`. Fast path: `alpha` is one.
fn add(input: &Tensor, other: Arg, alpha: Scalar) -> Result<Tensor> {
    match other {
        _ if alpha == Scalar::Int(1) => input.add(other),
        Arg::Tensor(t) => input.add_scaled(t, alpha),
        Arg::Scalar(s) => input.add(product(s, alpha)),
    }
}

fn add_(input: &Tensor, other: Arg, alpha: Scalar) -> Result<()> {
    match other {
        _ if alpha == Scalar::Int(1) => input.add_(other)?,
        Arg::Tensor(t) => input.add_scaled_(t, alpha)?,
        Arg::Scalar(s) => input.add_(product(s, alpha))?,
    };
    Ok(())
}

fn product(a: Scalar, b: Scalar) -> Scalar {
    match (a, b) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => Scalar::Float(a.to_f64() * b.to_f64()),
        _ => Scalar::Int(a.to_i64().wrapping_mul(b.to_i64())),
    }
}

fn minus(alpha: Scalar) -> Scalar {
    match alpha {
        // The op that uses it reports the error.
        Scalar::Bool(_) => alpha,
        alpha => product(alpha, Scalar::Int(-1)),
    }
}

/// `other - alpha * input`.
fn rsub(input: &Tensor, other: Arg, alpha: Scalar) -> Result<Tensor> {
    match other {
        Arg::Tensor(other) => sub(other, Arg::Tensor(input), alpha),
        Arg::Scalar(other) if alpha == Scalar::Int(1) => input.rsub(other),
        Arg::Scalar(other) => sub(&number_tensor(other, input)?, Arg::Tensor(input), alpha),
    }
}

/// Rejects bool before the factor is checked.
fn no_bool(input: &Tensor, other: Arg) -> Result<()> {
    let is_bool = matches!(other, Arg::Scalar(Scalar::Bool(_)))
        || matches!(other, Arg::Tensor(t) if t.dtype() == DType::Bool)
        || input.dtype() == DType::Bool;
    if is_bool { Err(Error::dtype("sub: not implemented for bool: use bitwise_xor or logical_not")) } else { Ok(()) }
}

fn sub(input: &Tensor, other: Arg, alpha: Scalar) -> Result<Tensor> {
    no_bool(input, other)?;
    if alpha == Scalar::Int(1) { input.sub(other) } else { add(input, other, minus(alpha)) }
}

fn div(input: &Tensor, other: Arg, rounding_mode: Option<&str>) -> Result<Tensor> {
    match rounding_mode {
        None => input.div(other),
        // Of halves PyTorch truncates the rounded quotient.
        Some("trunc")
            if matches!(input.dtype(), DType::F16 | DType::BF16)
                && !matches!(other, Arg::Tensor(t) if t.dtype() != input.dtype()) =>
        {
            input.div(other)?.trunc()
        }
        Some("trunc") => input.trunc_divide(other),
        Some("floor") => input.div_floor(other),
        Some(mode) => Err(Error::value(format!(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{mode}'"
        ))),
    }
}

fn div_(input: &Tensor, other: Arg, rounding_mode: Option<&str>) -> Result<()> {
    match rounding_mode {
        None => input.div_(other)?,
        Some("trunc") => input.trunc_divide_(other)?,
        Some("floor") => input.div_floor_(other)?,
        Some(_) => return div(input, other, rounding_mode).map(drop),
    };
    Ok(())
}

/// An in-place op: the first argument is the result.
fn first(done: Result<()>) -> Result<Out> {
    done.map(|()| Out::First)
}

/// A number as a tensor, where PyTorch takes two numbers.
fn number(number: Scalar) -> Result<Tensor> {
    Tensor::full_with([], number, rushlight_tensor::Options::from(number.dtype()))
}

/// A number as a tensor, on the device of the other operand.
fn beside(input: Scalar, other: Arg) -> Result<Tensor> {
    match other {
        Arg::Tensor(other) => number_tensor(input, other),
        Arg::Scalar(_) => number(input),
    }
}

fn number_tensor(number: Scalar, like: &Tensor) -> Result<Tensor> {
    Tensor::full_with([], number, rushlight_tensor::Options::from(number.dtype()).device(like.device()))
}

rows! { ROWS:
    /// Sum of two tensors, the second times `alpha`.
    add [Torch Method]
        "add(Tensor input, Tensor|Number other, *, Number alpha=1)" |input: &Tensor, other: Arg, alpha: Scalar| add(input, other, alpha),
        "add(Number input, Tensor other, *, Number alpha=1)" |input: Scalar, other: &Tensor, alpha: Scalar|
            other.mul(alpha)?.add(input),
        "add(Number input, Number other, *, Number alpha=1)" |input: Scalar, other: Scalar, alpha: Scalar| add(&number(input)?, other.into(), alpha);
    /// `add` in place.
    add_ [Method]
        "add_(Tensor input, Tensor|Number other, *, Number alpha=1)" |input: &Tensor, other: Arg, alpha: Scalar| first(add_(input, other, alpha));
    /// Difference of two tensors, the second times `alpha`.
    sub [Torch Method]
        "sub(Tensor input, Tensor|Number other, *, Number alpha=1)" |input: &Tensor, other: Arg, alpha: Scalar| sub(input, other, alpha),
        "sub(Number input, Tensor other, *, Number alpha=1)" |input: Scalar, other: &Tensor, alpha: Scalar| other.mul(alpha)?.rsub(input),
        "sub(Number input, Number other, *, Number alpha=1)" |input: Scalar, other: Scalar, alpha: Scalar| sub(&number(input)?, other.into(), alpha);
    /// `sub` in place.
    sub_ [Method]
        "sub_(Tensor input, Tensor|Number other, *, Number alpha=1)" |input: &Tensor, other: Arg, alpha: Scalar|
            first(no_bool(input, other).and_then(|()| if alpha == Scalar::Int(1) { input.sub_(other).map(drop) } else { add_(input, other, minus(alpha)) }));
    /// Another name of `sub`.
    subtract [Torch Method Inplace]
        "subtract(Tensor input, Tensor|Number other, *, Number alpha=1)" |input: &Tensor, other: Arg, alpha: Scalar| sub(input, other, alpha),
        "subtract(Number input, Tensor|Number other, *, Number alpha=1)" |input: Scalar, other: Arg, alpha: Scalar| sub(&beside(input, other)?, other, alpha);
    /// `other - input`, the input times `alpha`.
    rsub [Torch]
        "rsub(Tensor input, Tensor|Number other, *, Number alpha=1)" |input: &Tensor, other: Arg, alpha: Scalar|
            rsub(input, other, alpha);
    /// Product of two tensors.
    mul [Torch Method]
        "mul(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.mul(other),
        "mul(Number input, Tensor other)" |input: Scalar, other: &Tensor| other.mul(input),
        "mul(Number input, Number other)" |input: Scalar, other: Scalar| number(input)?.mul(other);
    /// `mul` in place.
    mul_ [Method]
        "mul_(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.mul_(other);
    /// Another name of `mul`.
    multiply [Torch Method Inplace]
        "multiply(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.mul(other),
        "multiply(Number input, Tensor|Number other)" |input: Scalar, other: Arg| beside(input, other)?.mul(other);
    /// Quotient of two tensors, rounded by `rounding_mode`.
    div [Torch Method]
        "div(Tensor input, Tensor|Number other, *, str? rounding_mode=None)" |input: &Tensor, other: Arg, rounding_mode: Option<&str>|
            div(input, other, rounding_mode),
        "div(Number input, Tensor other, *, str? rounding_mode=None)" |input: Scalar, other: &Tensor, rounding_mode: Option<&str>|
            div(&number_tensor(input, other)?, other.into(), rounding_mode),
        "div(Number input, Number other, *, str? rounding_mode=None)" |input: Scalar, other: Scalar, rounding_mode: Option<&str>|
            div(&number(input)?, other.into(), rounding_mode);
    /// `div` in place.
    div_ [Method]
        "div_(Tensor input, Tensor|Number other, *, str? rounding_mode=None)" |input: &Tensor, other: Arg, rounding_mode: Option<&str>|
            first(div_(input, other, rounding_mode));
    /// Another name of `div`.
    divide [Torch Method Inplace]
        "divide(Tensor input, Tensor|Number other, *, str? rounding_mode=None)" |input: &Tensor, other: Arg, rounding_mode: Option<&str>|
            div(input, other, rounding_mode),
        "divide(Number input, Tensor|Number other, *, str? rounding_mode=None)" |input: Scalar, other: Arg, rounding_mode: Option<&str>|
            div(&beside(input, other)?, other, rounding_mode);
    /// `div` without rounding.
    true_divide [Torch Method Inplace]
        "true_divide(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.div(other),
        "true_divide(Number input, Tensor|Number other)" |input: Scalar, other: Arg| beside(input, other)?.div(other);
    /// Quotient rounded down.
    floor_divide [Torch Method Inplace]
        "floor_divide(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.floor_divide(other),
        "floor_divide(Number input, Tensor|Number other)" |input: Scalar, other: Arg| beside(input, other)?.floor_divide(other);
    /// Remainder with the sign of the divisor, as Python's `%`.
    remainder [Torch Method Inplace]
        "remainder(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.remainder(other),
        "remainder(Number input, Tensor other)" |input: Scalar, other: &Tensor| other.rremainder(input);
    /// Remainder with the sign of the dividend, as C's `fmod`.
    fmod [Torch Method Inplace]
        "fmod(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.fmod(other);
    /// Raises elements to a power.
    pow [Torch Method]
        "pow(Tensor input, Tensor|Number exponent)" |input: &Tensor, exponent: Arg| input.pow(exponent),
        "pow(Number self, Tensor exponent)" |input: Scalar, exponent: &Tensor| exponent.rpow(input);
    /// `pow` in place.
    pow_ [Method]
        "pow_(Tensor input, Tensor|Number exponent)" |input: &Tensor, exponent: Arg| input.pow_(exponent);
    /// `pow` in double precision.
    float_power [Torch Method]
        "float_power(Tensor input, Tensor|Number exponent)" |input: &Tensor, exponent: Arg|
            input.to_dtype(widest(input.dtype()))?.pow(doubled(exponent)?.arg()),
        "float_power(Number self, Tensor exponent)" |input: Scalar, exponent: &Tensor|
            exponent.to_dtype(widest(exponent.dtype()))?.rpow(match input {
                Scalar::Complex(..) => input,
                input => Scalar::Float(input.to_f64()),
            });
    /// The larger of two elements; NaN if either is.
    maximum [Torch Method]
        "maximum(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.maximum(other);
    /// The smaller of two elements; NaN if either is.
    minimum [Torch Method]
        "minimum(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.minimum(other);
    /// The larger of two elements, ignoring NaN.
    fmax [Torch Method]
        "fmax(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.fmax(other);
    /// The smaller of two elements, ignoring NaN.
    fmin [Torch Method]
        "fmin(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.fmin(other);
    /// Angle of the point `(other, input)`.
    atan2 [Torch Method Inplace]
        "atan2(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.atan2(other);
    /// Another name of `atan2`.
    arctan2 [Torch Method Inplace]
        "arctan2(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.atan2(other);
    /// `sqrt(input^2 + other^2)`.
    hypot [Torch Method Inplace]
        "hypot(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.hypot(other);
    /// Magnitude of the first operand with the sign of the second.
    copysign [Torch Method Inplace]
        "copysign(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.copysign(other);
    /// `log(exp(input) + exp(other))`.
    logaddexp [Torch Method]
        "logaddexp(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.logaddexp(other);
    /// `log2(2^input + 2^other)`.
    logaddexp2 [Torch Method]
        "logaddexp2(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.logaddexp2(other);
    /// `input * log(other)`, zero where the input is zero.
    xlogy [Torch Method Inplace Special]
        "xlogy(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.xlogy(other),
        "xlogy(Number self, Tensor other)" |input: Scalar, other: &Tensor| other.rxlogy(input);
    /// `input * log1p(other)`, zero where the input is zero.
    xlog1py [Special]
        "xlog1py(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| xlog1py(input, other),
        "xlog1py(Number input, Tensor other)" |input: Scalar, other: &Tensor| xlog1py(&number_tensor(input, other)?, other.into());
    /// The next number towards another.
    nextafter [Torch Method Inplace]
        "nextafter(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.nextafter(other);
    /// 0 below zero, 1 above, `values` at zero.
    heaviside [Torch Method Inplace]
        "heaviside(Tensor input, Tensor values)" |input: &Tensor, values: &Tensor| input.heaviside(values);
    /// Bitwise and; logical for bool.
    bitwise_and [Torch Method Inplace]
        "bitwise_and(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.bitwise_and(other),
        "bitwise_and(Number self, Tensor other)" |input: Scalar, other: &Tensor| other.bitwise_and(input);
    /// Bitwise or; logical for bool.
    bitwise_or [Torch Method Inplace]
        "bitwise_or(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.bitwise_or(other),
        "bitwise_or(Number self, Tensor other)" |input: Scalar, other: &Tensor| other.bitwise_or(input);
    /// Bitwise exclusive or; logical for bool.
    bitwise_xor [Torch Method Inplace]
        "bitwise_xor(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.bitwise_xor(other),
        "bitwise_xor(Number self, Tensor other)" |input: Scalar, other: &Tensor| other.bitwise_xor(input);
    /// Bitwise complement; logical for bool.
    bitwise_not [Torch Method Inplace]
        "bitwise_not(Tensor input)" |input: &Tensor| input.bitwise_not();
    /// Shift left.
    bitwise_left_shift [Torch Method Inplace]
        "bitwise_left_shift(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.bitwise_left_shift(other);
    /// Arithmetic shift right.
    bitwise_right_shift [Torch Method Inplace]
        "bitwise_right_shift(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.bitwise_right_shift(other);
    /// Linear interpolation: `input + weight * (end - input)`.
    lerp [Torch Method Inplace]
        "lerp(Tensor input, Tensor end, Tensor|Number weight)" |input: &Tensor, end: &Tensor, weight: Arg| lerp(input, end, weight);
    /// `input + value * tensor1 * tensor2`.
    addcmul [Torch Method]
        "addcmul(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)" |input: &Tensor, tensor1: &Tensor, tensor2: &Tensor, value: Scalar|
            input.addcmul(tensor1, tensor2, value),
        "addcmul(Tensor input, Number value, Tensor tensor1, Tensor tensor2)" |input: &Tensor, value: Scalar, tensor1: &Tensor, tensor2: &Tensor|
            input.addcmul(tensor1, tensor2, value);
    /// `addcmul` in place.
    addcmul_ [Method]
        "addcmul_(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)" |input: &Tensor, tensor1: &Tensor, tensor2: &Tensor, value: Scalar|
            input.addcmul_(tensor1, tensor2, value),
        "addcmul_(Tensor input, Number value, Tensor tensor1, Tensor tensor2)" |input: &Tensor, value: Scalar, tensor1: &Tensor, tensor2: &Tensor|
            input.addcmul_(tensor1, tensor2, value);
    /// `input + value * tensor1 / tensor2`.
    addcdiv [Torch Method]
        "addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)" |input: &Tensor, tensor1: &Tensor, tensor2: &Tensor, value: Scalar|
            input.addcdiv(tensor1, tensor2, value),
        "addcdiv(Tensor input, Number value, Tensor tensor1, Tensor tensor2)" |input: &Tensor, value: Scalar, tensor1: &Tensor, tensor2: &Tensor|
            input.addcdiv(tensor1, tensor2, value);
    /// `addcdiv` in place.
    addcdiv_ [Method]
        "addcdiv_(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)" |input: &Tensor, tensor1: &Tensor, tensor2: &Tensor, value: Scalar|
            input.addcdiv_(tensor1, tensor2, value),
        "addcdiv_(Tensor input, Number value, Tensor tensor1, Tensor tensor2)" |input: &Tensor, value: Scalar, tensor1: &Tensor, tensor2: &Tensor|
            input.addcdiv_(tensor1, tensor2, value);
    /// Greatest common divisor.
    gcd [Torch Method Inplace]
        "gcd(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| gcd(input, other);
    /// Least common multiple.
    lcm [Torch Method Inplace]
        "lcm(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| lcm(input, other);
}

/// An operand in double precision.
enum Doubled {
    Tensor(Tensor),
    Number(Scalar),
}

impl Doubled {
    fn arg(&self) -> Arg<'_> {
        match self {
            Doubled::Tensor(t) => Arg::Tensor(t),
            Doubled::Number(v) => Arg::Scalar(*v),
        }
    }
}

fn doubled(operand: Arg) -> Result<Doubled> {
    Ok(match operand {
        Arg::Tensor(t) => Doubled::Tensor(t.to_dtype(widest(t.dtype()))?),
        Arg::Scalar(s @ Scalar::Complex(..)) => Doubled::Number(s),
        Arg::Scalar(s) => Doubled::Number(Scalar::Float(s.to_f64())),
    })
}

/// The widest dtype of a dtype's kind, real or complex.
fn widest(dtype: DType) -> DType {
    if dtype.is_complex() { DType::C128 } else { DType::F64 }
}

/// PyTorch requires tensors of one dtype; a 0-dim weight may have another. It checks the shapes before it reports a
/// missing kernel for integers.
fn lerp(input: &Tensor, end: &Tensor, weight: Arg) -> Result<Tensor> {
    let tensor_weight = if let Arg::Tensor(weight) = weight { Some(weight) } else { None };
    let others = [Some(end), tensor_weight.filter(|w| w.rank() > 0)];
    if let Some(other) = others.into_iter().flatten().find(|t| t.dtype() != input.dtype()) {
        return Err(Error::value(format!("lerp: expected dtype {} but got {}", input.dtype(), other.dtype())));
    }
    let shape = rushlight_core::layout::broadcast_shapes(input.shape(), end.shape()).map_err(|e| e.within("lerp"))?;
    if let Some(weight) = tensor_weight {
        rushlight_core::layout::broadcast_shapes(&shape, weight.shape()).map_err(|e| e.within("lerp"))?;
    }
    input.lerp(end, weight)
}

/// Euclid's algorithm on whole tensors, until all remainders are zero: about ninety rounds at most.
fn gcd(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    rushlight_core::layout::broadcast_shapes(a.shape(), b.shape()).map_err(|e| e.within("gcd"))?;
    let common = result_type(&[a.into(), b.into()]);
    if !common.is_int() {
        return Err(Error::dtype(format!("gcd: not implemented for {} and {}; integers only", a.dtype(), b.dtype())));
    }
    let (mut a, mut b) = (a.to_dtype(common)?.abs()?, b.to_dtype(common)?.abs()?);
    // The magnitude of the smallest integer overflows; the order and the sign of remainders are PyTorch's.
    while a.ne(0)?.any(..)?.item::<bool>()? {
        let done = a.eq(0)?;
        let rest = b.fmod(&where_(&done, 1, &a)?)?;
        b = where_(&done, &b, &a)?;
        a = where_(&done, 0, &rest)?;
    }
    b.add(&a)
}

fn lcm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let common = result_type(&[a.into(), b.into()]);
    if matches!(common, DType::I8 | DType::U8 | DType::I16) {
        // Small integers are computed as wider ones, and wrap in the end.
        let divisor = gcd(a, b)?.to_dtype(DType::I64)?;
        let divisor = where_(&divisor.eq(0)?, 1, &divisor)?;
        let (a, b) = (a.to_dtype(DType::I64)?, b.to_dtype(DType::I64)?);
        return a.trunc_divide(&divisor)?.mul(&b)?.abs()?.to_dtype(common);
    }
    let divisor = gcd(a, b)?;
    let divisor = where_(&divisor.eq(0)?, 1, &divisor)?;
    a.trunc_divide(&divisor)?.mul(b)?.abs()
}

fn xlog1py(input: &Tensor, other: Arg) -> Result<Tensor> {
    let other = match other {
        Arg::Tensor(t) => t.clone(),
        Arg::Scalar(s) => number_tensor(s, input)?,
    };
    let common = result_type(&[input.into(), (&other).into()]);
    let common = if common.is_float() { common } else { crate::dtype::default() };
    // Where there is no logarithm, zero times it is zero, and so is its gradient.
    let has_none = input.eq(0)?.logical_and(&other.le(-1)?)?;
    let product = input.to_dtype(common)?.mul(&where_(&has_none, 0.0, &other.to_dtype(common)?)?.log1p()?)?;
    where_(&input.eq(0)?.logical_and(&other.isnan()?.logical_not()?)?, 0.0, &product)
}
