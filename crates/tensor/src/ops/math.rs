//! Pointwise functions: names and arguments over rows of the op table.

use super::operands::{alike, any, float, no_zero_divisor, not_bools, number, underivable};
use super::operators::{forward, forward_operand};
use super::pointwise::{pointwise, pointwise_as, pointwise_inplace};
use crate::Tensor;
use crate::announce::announced;
use crate::arg::{Arg, addend, result_type};
use crate::autograd::recording;
use rushlight_core::{DType, Error, Pointwise, Result};

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $inplace:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name(&self) -> Result<Tensor> {
                pointwise(Pointwise::$op, &[Arg::Tensor(self)], &[])
            }

            #[doc = concat!("[`Tensor::", stringify!($name), "`] in place.")]
            pub fn $inplace(&self) -> Result<&Tensor> {
                pointwise_inplace(Pointwise::$op, self, &[], &[])?;
                Ok(self)
            }
        )*}

        forward! { $($name();)* }
    };
}

unary! {
    /// e to the power of each element.
    exp exp_ Exp;
    /// Two to the power of each element.
    exp2 exp2_ Exp2;
    /// `exp(x) - 1`, exact near zero.
    expm1 expm1_ Expm1;
    /// Natural logarithm.
    log log_ Log;
    /// Binary logarithm.
    log2 log2_ Log2;
    /// Decimal logarithm.
    log10 log10_ Log10;
    /// `log(1 + x)`, exact near zero.
    log1p log1p_ Log1p;
    /// Square root.
    sqrt sqrt_ Sqrt;
    /// `1 / sqrt(x)`.
    rsqrt rsqrt_ Rsqrt;
    /// `1 / x`.
    reciprocal reciprocal_ Reciprocal;
    /// Sine.
    sin sin_ Sin;
    /// Cosine.
    cos cos_ Cos;
    /// Tangent.
    tan tan_ Tan;
    /// Inverse sine.
    asin asin_ Asin;
    /// Inverse cosine.
    acos acos_ Acos;
    /// Inverse tangent.
    atan atan_ Atan;
    /// Hyperbolic sine.
    sinh sinh_ Sinh;
    /// Hyperbolic cosine.
    cosh cosh_ Cosh;
    /// Hyperbolic tangent.
    tanh tanh_ Tanh;
    /// Inverse hyperbolic sine.
    asinh asinh_ Asinh;
    /// Inverse hyperbolic cosine.
    acosh acosh_ Acosh;
    /// Inverse hyperbolic tangent.
    atanh atanh_ Atanh;
    /// `sin(pi x) / (pi x)`.
    sinc sinc_ Sinc;
    /// Error function.
    erf erf_ Erf;
    /// `1 - erf(x)`.
    erfc erfc_ Erfc;
    /// Inverse error function.
    erfinv erfinv_ Erfinv;
    /// Logarithm of the gamma function's magnitude.
    lgamma lgamma_ Lgamma;
    /// Derivative of `lgamma`.
    digamma digamma_ Digamma;
    /// Logistic function.
    sigmoid sigmoid_ Sigmoid;
}

/// Ops of floats only.
macro_rules! unary_of_floats {
    ($($(#[$doc:meta])* $name:ident $inplace:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name(&self) -> Result<Tensor> {
                self.needs_float(stringify!($name))?;
                pointwise(Pointwise::$op, &[Arg::Tensor(self)], &[])
            }

            #[doc = concat!("[`Tensor::", stringify!($name), "`] in place.")]
            pub fn $inplace(&self) -> Result<&Tensor> {
                self.needs_float(stringify!($name))?;
                pointwise_inplace(Pointwise::$op, self, &[], &[])?;
                Ok(self)
            }
        )*}

        forward! { $($name();)* }
    };
}

unary_of_floats! {
    /// `log(sigmoid(x))`.
    logsigmoid logsigmoid_ Logsigmoid;
    /// GELU by the error function. For the tanh form see [`Tensor::gelu_tanh`].
    gelu gelu_ Gelu;
    /// GELU by its tanh approximation: PyTorch's `gelu(x, approximate="tanh")`.
    gelu_tanh gelu_tanh_ GeluTanh;
    /// `x * sigmoid(x)`.
    silu silu_ Silu;
    /// `x * tanh(softplus(x))`.
    mish mish_ Mish;
    /// The self-normalising `elu`.
    selu selu_ Selu;
    /// `x * relu6(x + 3) / 6`.
    hardswish hardswish_ Hardswish;
    /// `relu6(x + 3) / 6`.
    hardsigmoid hardsigmoid_ Hardsigmoid;
    /// Fractional part.
    frac frac_ Frac;
}

/// Ops that do not change integers.
macro_rules! rounding {
    ($($(#[$doc:meta])* $name:ident $inplace:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name(&self) -> Result<Tensor> {
                if self.dtype().is_int() {
                    return self.copy();
                }
                self.not_bool(stringify!($name))?;
                pointwise(Pointwise::$op, &[Arg::Tensor(self)], &[])
            }

            #[doc = concat!("[`Tensor::", stringify!($name), "`] in place.")]
            pub fn $inplace(&self) -> Result<&Tensor> {
                if !self.dtype().is_int() {
                    pointwise_inplace(Pointwise::$op, self, &[], &[])?;
                }
                Ok(self)
            }
        )*}

        forward! { $($name();)* }
    };
}

rounding! {
    /// Largest integer not above each element.
    floor floor_ Floor;
    /// Smallest integer not below each element.
    ceil ceil_ Ceil;
    /// Nearest integer, ties to even.
    round round_ Round;
    /// Integer part.
    trunc trunc_ Trunc;
}

macro_rules! unary_with_params {
    ($($(#[$doc:meta])* $name:ident ($($p:ident),*) $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name(&self, $($p: f64),*) -> Result<Tensor> {
                self.needs_float(stringify!($name))?;
                pointwise(Pointwise::$op, &[Arg::Tensor(self)], &[$($p),*])
            }
        )*}

        forward! { $($name($($p: f64),*);)* }
    };
}

unary_with_params! {
    /// `x`, or `negative_slope * x` below zero; PyTorch's default slope is 0.01.
    leaky_relu(negative_slope) LeakyRelu;
    /// `x`, or `alpha * (exp(x) - 1)` below zero; PyTorch's default alpha is 1.
    elu(alpha) Elu;
    /// `log(1 + exp(beta x)) / beta`, `x` where `beta x > threshold`; PyTorch's defaults are 1 and 20.
    softplus(beta, threshold) Softplus;
    /// Zero within `lambda` of zero; PyTorch's default is 0.5.
    hardshrink(lambda) Hardshrink;
}

/// The second operand of a binary row as the row computes with it.
#[inline(always)]
fn operand<'a>(op: Pointwise, x: &Tensor, other: Arg<'a>) -> Arg<'a> {
    if matches!(op, Pointwise::Add | Pointwise::Sub) { addend(other, x.dtype()) } else { other }
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $inplace:ident $op:ident $check:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name<'a>(&self, other: impl Into<Arg<'a>>) -> Result<Tensor> {
                let other = operand(Pointwise::$op, self, other.into());
                $check(stringify!($name), self, other)?;
                pointwise(Pointwise::$op, &[Arg::Tensor(self), other], &[])
            }

            #[doc = concat!("[`Tensor::", stringify!($name), "`] in place.")]
            pub fn $inplace<'a>(&self, other: impl Into<Arg<'a>>) -> Result<&Tensor> {
                let other = operand(Pointwise::$op, self, other.into());
                $check(stringify!($name), self, other)?;
                pointwise_inplace(Pointwise::$op, self, &[other], &[])?;
                Ok(self)
            }
        )*}

        forward_operand! { $($name)* }
    };
}

binary! {
    /// Sum, broadcast.
    add add_ Add any;
    /// Difference, broadcast.
    sub sub_ Sub not_bools;
    /// Product, broadcast.
    mul mul_ Mul any;
    /// True quotient: integers give floats. For rounded quotients see [`Tensor::floor_divide`] and
    /// [`Tensor::trunc_divide`].
    div div_ Div any;
    /// Quotient rounded down: `div(other, rounding_mode="floor")`. Its derivative is zero.
    div_floor div_floor_ FloorDivide no_zero_divisor;
    /// Quotient rounded towards zero, like `div(other, rounding_mode="trunc")`.
    trunc_divide trunc_divide_ TruncDivide no_zero_divisor;
    /// Remainder with the sign of the divisor, as Python's `%`.
    remainder remainder_ Remainder no_zero_divisor;
    /// Remainder with the sign of the dividend, as C's `fmod`.
    fmod fmod_ Fmod no_zero_divisor;
    /// The larger of the two; NaN if either is.
    maximum maximum_ Maximum any;
    /// The smaller of the two; NaN if either is.
    minimum minimum_ Minimum any;
    /// The larger of the two, ignoring NaN.
    fmax fmax_ Fmax any;
    /// The smaller of the two, ignoring NaN.
    fmin fmin_ Fmin any;
    /// Angle of the point `(other, self)`.
    atan2 atan2_ Atan2 any;
    /// `sqrt(self^2 + other^2)` without overflow.
    hypot hypot_ Hypot float;
    /// `self` with the sign of `other`.
    copysign copysign_ Copysign any;
    /// `log(exp(self) + exp(other))`.
    logaddexp logaddexp_ Logaddexp float;
    /// `log2(2^self + 2^other)`.
    logaddexp2 logaddexp2_ Logaddexp2 float;
    /// `self * log(other)`, zero where `self` is zero.
    xlogy xlogy_ Xlogy any;
    /// Bitwise and; logical for bool.
    bitwise_and bitwise_and_ BitwiseAnd any;
    /// Bitwise or; logical for bool.
    bitwise_or bitwise_or_ BitwiseOr any;
    /// Bitwise exclusive or; logical for bool.
    bitwise_xor bitwise_xor_ BitwiseXor any;
    /// Shift left.
    bitwise_left_shift bitwise_left_shift_ BitwiseLeftShift number;
    /// Arithmetic shift right.
    bitwise_right_shift bitwise_right_shift_ BitwiseRightShift number;
}

/// Ops whose derivative PyTorch does not have: they compute as others do, and a backward pass that reaches them is an
/// error.
macro_rules! without_derivative {
    ($($(#[$doc:meta])* $name:ident $inplace:ident $op:ident $check:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name<'a>(&self, other: impl Into<Arg<'a>>) -> Result<Tensor> {
                let (name, other) = (stringify!($name), other.into());
                $check(name, self, other)?;
                let inputs: Vec<&Tensor> = [Some(self), other.tensor()].into_iter().flatten().collect();
                underivable(name, &inputs, || pointwise(Pointwise::$op, &[Arg::Tensor(self), other], &[]))
            }

            #[doc = concat!("[`Tensor::", stringify!($name), "`] in place.")]
            pub fn $inplace<'a>(&self, other: impl Into<Arg<'a>>) -> Result<&Tensor> {
                let other = other.into();
                let inputs: Vec<&Tensor> = [Some(self), other.tensor()].into_iter().flatten().collect();
                if recording(&inputs) && result_type(&[Arg::Tensor(self), other]).category() <= self.dtype().category() {
                    return self.copy_(&self.copy()?.$name(other)?);
                }
                $check(stringify!($inplace), self, other)?;
                pointwise_inplace(Pointwise::$op, self, &[other], &[])?;
                Ok(self)
            }
        )*}

        forward_operand! { $($name)* }
    };
}

without_derivative! {
    /// Quotient rounded down, as [`Tensor::div_floor`]; PyTorch has no derivative of it.
    floor_divide floor_divide_ FloorDivide no_zero_divisor;
    /// 0 below zero, 1 above, `other` at zero.
    heaviside heaviside_ Heaviside alike;
}

impl Tensor {
    pub(crate) fn not_bool(&self, name: &str) -> Result<()> {
        if self.dtype() == DType::Bool {
            return Err(Error::dtype(format!(
                "{name}: not implemented for bool; convert to a number with to_dtype first"
            )));
        }
        Ok(())
    }

    /// `x` where positive, else `x * weight`; `weight` has one element, or one per channel (dimension 1).
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        alike("prelu", self, Arg::Tensor(weight))?;
        announced!("nn.functional.prelu", [self, weight]; self.prelu(weight));
        if weight.numel() == 1 {
            return pointwise(Pointwise::Prelu, &[Arg::Tensor(self), Arg::Tensor(&weight.reshape([0usize; 0])?)], &[]);
        }
        let channels = self.shape().get(1.min(self.rank().saturating_sub(1))).copied().unwrap_or(1);
        if weight.rank() != 1 || weight.numel() != channels {
            return Err(Error::shape(format!(
                "prelu: weight of shape {:?} must have one element or one per channel of the input {:?} ({channels})",
                weight.shape(),
                self.shape()
            )));
        }
        let mut shape = vec![1; self.rank()];
        shape[1.min(self.rank() - 1)] = channels;
        pointwise(Pointwise::Prelu, &[Arg::Tensor(self), Arg::Tensor(&weight.reshape(&shape)?)], &[])
    }

    /// The polygamma function of order `n`.
    pub fn polygamma(&self, n: i64) -> Result<Tensor> {
        if n < 0 {
            return Err(Error::value(format!("polygamma: the order must not be negative, got {n}")));
        }
        if n == 0 {
            return self.digamma();
        }
        pointwise(Pointwise::Polygamma, &[Arg::Tensor(self)], &[n as f64])
    }

    /// `log(x / (1 - x))`; with `eps`, `x` is first kept between `eps` and `1 - eps`.
    pub fn logit(&self, eps: Option<f64>) -> Result<Tensor> {
        pointwise(Pointwise::Logit, &[Arg::Tensor(self)], &[eps.unwrap_or(-1.0)])
    }

    /// Nearest multiple of `10^-decimals`.
    pub fn round_decimals(&self, decimals: i32) -> Result<Tensor> {
        if decimals == 0 || self.dtype().is_int() {
            return self.round();
        }
        pointwise(Pointwise::RoundDecimals, &[Arg::Tensor(self)], &[10f64.powi(decimals)])
    }

    /// `x / (1 + |x|)`; of integers, whose sum wraps, the quotient.
    pub fn softsign(&self) -> Result<Tensor> {
        self.not_bool("softsign")?;
        if !self.dtype().is_float() {
            return self.div(&self.abs()?.add(1)?);
        }
        pointwise(Pointwise::Softsign, &[Arg::Tensor(self)], &[])
    }

    /// [`Tensor::softsign`] in place.
    pub fn softsign_(&self) -> Result<&Tensor> {
        pointwise_inplace(Pointwise::Softsign, self, &[], &[])?;
        Ok(self)
    }

    /// `x - tanh(x)`.
    pub fn tanhshrink(&self) -> Result<Tensor> {
        self.not_bool("tanhshrink")?;
        pointwise(Pointwise::Tanhshrink, &[Arg::Tensor(self)], &[])
    }

    /// [`Tensor::tanhshrink`] in place.
    pub fn tanhshrink_(&self) -> Result<&Tensor> {
        pointwise_inplace(Pointwise::Tanhshrink, self, &[], &[])?;
        Ok(self)
    }

    /// NaN, infinity and its negative replaced; by default 0 and the dtype's largest and smallest finite values.
    pub fn nan_to_num(&self, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
        let max = match self.dtype() {
            DType::F64 | DType::C128 => f64::MAX,
            DType::F32 | DType::C64 => f32::MAX as f64,
            DType::F16 => 65504.0,
            DType::BF16 => rushlight_core::half::bf16::MAX.to_f64(),
            _ => return self.copy(),
        };
        let params = [nan.unwrap_or(0.0), posinf.unwrap_or(max), neginf.unwrap_or(-max)];
        pointwise(Pointwise::NanToNum, &[Arg::Tensor(self)], &params)
    }

    /// The error PyTorch gives for an op that takes floats only.
    pub(crate) fn needs_float(&self, name: &str) -> Result<()> {
        if self.is_complex() || self.dtype().is_float() && !self.dtype().is_carried() {
            return Ok(());
        }
        Err(Error::dtype(format!(
            "{name}: not implemented for {}: expected a floating point tensor; convert it with to_dtype",
            self.dtype()
        )))
    }

    /// A row with two inputs and parameters; losses use it.
    pub(crate) fn row(&self, op: Pointwise, other: &Tensor, params: &[f64]) -> Result<Tensor> {
        let args = [Arg::Tensor(self), Arg::Tensor(other)];
        let common = result_type(&args);
        let dtype = if common.is_float() { common } else { crate::default_dtype() };
        if super::carried::involved(&args) {
            return super::carried::row(op, &args, params);
        }
        pointwise_as(op, &args, params, dtype.compute(), dtype)
    }
}
