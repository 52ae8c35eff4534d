//! Functions of one tensor, element by element.

use crate::rows;
use crate::value::Out;
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::{Arg, Tensor, result_type, where_};

/// Functions that have an in-place form of their own.
macro_rules! unary {
    ($table:ident: $($(#[doc = $doc:literal])* $name:ident $inplace:ident [$($home:ident)*] $function:ident $function_:ident;)*) => {
        rows! { $table: $(
            $(#[doc = $doc])*
            $name [Torch Method $($home)*] { concat!(stringify!($name), "(Tensor input)") } |input: &Tensor| input.$function();
            #[doc = "In place."]
            $inplace [Torch Method] { concat!(stringify!($inplace), "(Tensor input)") } |input: &Tensor| input.$function_();
        )* }
    };
}

unary! { UNARY:
    /// e to the power of each element.
    exp exp_ [] exp exp_;
    /// Two to the power of each element.
    exp2 exp2_ [Special] exp2 exp2_;
    /// `exp(x) - 1`, exact near zero.
    expm1 expm1_ [Special] expm1 expm1_;
    /// Natural logarithm.
    log log_ [] log log_;
    /// Binary logarithm.
    log2 log2_ [] log2 log2_;
    /// Decimal logarithm.
    log10 log10_ [] log10 log10_;
    /// `log(1 + x)`, exact near zero.
    log1p log1p_ [Special] log1p log1p_;
    /// Square root.
    sqrt sqrt_ [] sqrt sqrt_;
    /// `1 / sqrt(x)`.
    rsqrt rsqrt_ [] rsqrt rsqrt_;
    /// `x * x`.
    square square_ [] square square_;
    /// `1 / x`.
    reciprocal reciprocal_ [] reciprocal reciprocal_;
    /// Sine.
    sin sin_ [] sin sin_;
    /// Cosine.
    cos cos_ [] cos cos_;
    /// Tangent.
    tan tan_ [] tan tan_;
    /// Inverse sine.
    asin asin_ [] asin asin_;
    /// Inverse sine.
    arcsin arcsin_ [] asin asin_;
    /// Inverse cosine.
    acos acos_ [] acos acos_;
    /// Inverse cosine.
    arccos arccos_ [] acos acos_;
    /// Inverse tangent.
    atan atan_ [] atan atan_;
    /// Inverse tangent.
    arctan arctan_ [] atan atan_;
    /// Hyperbolic sine.
    sinh sinh_ [] sinh sinh_;
    /// Hyperbolic cosine.
    cosh cosh_ [] cosh cosh_;
    /// Hyperbolic tangent.
    tanh tanh_ [Functional] tanh tanh_;
    /// Inverse hyperbolic sine.
    asinh asinh_ [] asinh asinh_;
    /// Inverse hyperbolic sine.
    arcsinh arcsinh_ [] asinh asinh_;
    /// Inverse hyperbolic cosine.
    acosh acosh_ [] acosh acosh_;
    /// Inverse hyperbolic cosine.
    arccosh arccosh_ [] acosh acosh_;
    /// Inverse hyperbolic tangent.
    atanh atanh_ [] atanh atanh_;
    /// Inverse hyperbolic tangent.
    arctanh arctanh_ [] atanh atanh_;
    /// `sin(pi x) / (pi x)`.
    sinc sinc_ [Special] sinc sinc_;
    /// Error function.
    erf erf_ [Special] erf erf_;
    /// `1 - erf(x)`.
    erfc erfc_ [Special] erfc erfc_;
    /// Inverse error function.
    erfinv erfinv_ [Special] erfinv erfinv_;
    /// Logarithm of the gamma function's magnitude.
    lgamma lgamma_ [] lgamma lgamma_;
    /// Derivative of `lgamma`.
    digamma digamma_ [Special] digamma digamma_;
    /// Logistic function.
    sigmoid sigmoid_ [Functional] sigmoid sigmoid_;
    /// The positive part.
    relu relu_ [] relu relu_;
    /// The self-normalising `elu`.
    selu selu_ [] selu selu_;
    /// Fractional part.
    frac frac_ [] frac frac_;
    /// Largest integer not above each element.
    floor floor_ [] floor floor_;
    /// Smallest integer not below each element.
    ceil ceil_ [] ceil ceil_;
    /// Integer part.
    trunc trunc_ [] trunc trunc_;
    /// Integer part.
    fix fix_ [] trunc trunc_;
    /// Negation.
    neg neg_ [] neg neg_;
    /// Negation.
    negative negative_ [] neg neg_;
    /// Magnitude.
    abs abs_ [] abs abs_;
    /// Magnitude.
    absolute absolute_ [] abs abs_;
}

fn round(input: &Tensor, decimals: i64) -> Result<Tensor> {
    match decimals {
        0 => input.round(),
        _ => input.round_decimals(decimals.clamp(-400, 400) as i32),
    }
}

/// PyTorch's clamp takes either bound alone.
pub fn clamp(input: &Tensor, min: Option<Arg>, max: Option<Arg>) -> Result<Tensor> {
    input.clamp_bounds(min, max)
}

/// PyTorch has no kernel for bools between two tensors of bools.
fn number_bounds(input: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>) -> Result<()> {
    let (Some(min), Some(max)) = (min, max) else { return Ok(()) };
    if [input, min, max].iter().all(|t| t.dtype() == DType::Bool) {
        let bounds = rushlight_core::layout::broadcast_shapes(min.shape(), max.shape())?;
        rushlight_core::layout::broadcast_shapes(input.shape(), &bounds)?;
        return Err(Error::dtype("clamp: not implemented for bool bounds; use & and |"));
    }
    Ok(())
}

fn clamp_(input: &Tensor, min: Option<Arg>, max: Option<Arg>) -> Result<Out> {
    input.clamp_bounds_(min, max).map(|_| Out::First)
}

fn float(input: &Tensor) -> Result<Tensor> {
    if input.dtype().is_differentiable() { Ok(input.clone()) } else { input.to_dtype(crate::dtype::default()) }
}

/// The conjugate; a real tensor is its own.
fn conj(input: &Tensor) -> Result<Out> {
    if input.dtype().is_complex() { input.conj().map(Out::Tensor) } else { Ok(Out::First) }
}

rows! { ROWS:
    /// -1, 0 or 1 by sign.
    sign [Torch Method Inplace] "sign(Tensor input)" |input: &Tensor| input.sign();
    /// -1, 0 or 1 by sign.
    sgn [Torch Method Inplace] "sgn(Tensor input)" |input: &Tensor| input.sgn();
    /// Whether the sign bit is set.
    signbit [Torch Method] "signbit(Tensor input)" |input: &Tensor| signbit(input);
    /// The tensor itself.
    positive [Torch Method] "positive(Tensor input)" |input: &Tensor| match input.dtype() {
        DType::Bool => Err(Error::dtype("positive: not implemented for bool")),
        _ => Ok(input.clone()),
    };
    /// The nearest integer, ties to even, or the nearest number with `decimals` decimals.
    round [Torch Method Inplace Special] "round(Tensor input, *, int decimals=0)" |input: &Tensor, decimals: i64| round(input, decimals);
    /// Clamps elements between bounds; either bound may be missing.
    clamp [Torch Method]
        "clamp(Tensor input, Tensor? min=None, Tensor? max=None)" |input: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>|
            number_bounds(input, min, max).and_then(|()| clamp(input, min.map(Arg::Tensor), max.map(Arg::Tensor))),
        "clamp(Tensor input, Number? min=None, Number? max=None)" |input: &Tensor, min: Option<Scalar>, max: Option<Scalar>|
            clamp(input, min.map(Arg::Scalar), max.map(Arg::Scalar));
    /// `clamp` in place.
    clamp_ [Torch Method]
        "clamp_(Tensor input, Tensor? min=None, Tensor? max=None)" |input: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>|
            clamp_(input, min.map(Arg::Tensor), max.map(Arg::Tensor)),
        "clamp_(Tensor input, Number? min=None, Number? max=None)" |input: &Tensor, min: Option<Scalar>, max: Option<Scalar>|
            clamp_(input, min.map(Arg::Scalar), max.map(Arg::Scalar));
    /// Another name of `clamp`.
    clip [Torch Method]
        "clip(Tensor input, Tensor? min=None, Tensor? max=None)" |input: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>|
            clamp(input, min.map(Arg::Tensor), max.map(Arg::Tensor)),
        "clip(Tensor input, Number? min=None, Number? max=None)" |input: &Tensor, min: Option<Scalar>, max: Option<Scalar>|
            clamp(input, min.map(Arg::Scalar), max.map(Arg::Scalar));
    /// `clip` in place.
    clip_ [Torch Method]
        "clip_(Tensor input, Tensor? min=None, Tensor? max=None)" |input: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>|
            clamp_(input, min.map(Arg::Tensor), max.map(Arg::Tensor)),
        "clip_(Tensor input, Number? min=None, Number? max=None)" |input: &Tensor, min: Option<Scalar>, max: Option<Scalar>|
            clamp_(input, min.map(Arg::Scalar), max.map(Arg::Scalar));
    /// `clamp_min` in place.
    clamp_min_ [Torch Method] "clamp_min_(Tensor input, Tensor|Number min)" |input: &Tensor, min: Arg| clamp_(input, Some(min), None);
    /// `clamp_max` in place.
    clamp_max_ [Torch Method] "clamp_max_(Tensor input, Tensor|Number max)" |input: &Tensor, max: Arg| clamp_(input, None, Some(max));
    /// Elements not below a bound.
    clamp_min [Torch Method] "clamp_min(Tensor input, Tensor|Number min)" |input: &Tensor, min: Arg| input.clamp_min(min);
    /// Elements not above a bound.
    clamp_max [Torch Method] "clamp_max(Tensor input, Tensor|Number max)" |input: &Tensor, max: Arg| input.clamp_max(max);
    /// NaN and infinities replaced by numbers.
    nan_to_num [Torch Method Inplace] "nan_to_num(Tensor input, float? nan=None, float? posinf=None, float? neginf=None)"
        |input: &Tensor, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>| input.nan_to_num(nan, posinf, neginf);
    /// Inverse of the logistic function.
    logit [Torch Method Inplace Special] "logit(Tensor input, float? eps=None)" |input: &Tensor, eps: Option<f64>| logit(input, eps);
    /// Logistic function.
    expit [Special] "expit(Tensor input)" |input: &Tensor| input.sigmoid();
    /// Derivatives of the digamma function.
    polygamma [Torch Special] "polygamma(int n, Tensor input)" |n: i64, input: &Tensor| input.polygamma(n);
    /// Logarithm of the gamma function's magnitude.
    gammaln [Special] "gammaln(Tensor input)" |input: &Tensor| input.lgamma();
    /// Derivative of the logarithm of the gamma function.
    psi [Special] "psi(Tensor input)" |input: &Tensor| input.digamma();
    /// Logarithm of the multivariate gamma function.
    mvlgamma [Torch Method Inplace] "mvlgamma(Tensor input, int p)" |input: &Tensor, p: i64| mvlgamma(input, p);
    /// Logarithm of the multivariate gamma function.
    multigammaln [Special] "multigammaln(Tensor input, int p)" |input: &Tensor, p: i64| mvlgamma(input, p);
    /// Distribution function of the normal distribution.
    ndtr [Special] "ndtr(Tensor input)" |input: &Tensor| float(input)?.mul(std::f64::consts::FRAC_1_SQRT_2)?.erf()?.add(1.0)?.mul(0.5);
    /// Inverse of `ndtr`.
    ndtri [Special] "ndtri(Tensor input)" |input: &Tensor| ndtri(input);
    /// `-x * log(x)`: the entropy of each element.
    entr [Special] "entr(Tensor input)" |input: &Tensor| entr(input);
    /// Degrees as radians.
    deg2rad [Torch Method Inplace] "deg2rad(Tensor input)" |input: &Tensor| float(input)?.mul(std::f64::consts::PI / 180.0);
    /// Radians as degrees.
    rad2deg [Torch Method Inplace] "rad2deg(Tensor input)" |input: &Tensor| float(input)?.mul(180.0 / std::f64::consts::PI);
    /// Complex conjugates; real elements as they are.
    conj [Torch Method] "conj(Tensor input)" |input: &Tensor| conj(input);
    /// Complex conjugates; real elements as they are.
    conj_physical [Torch Method Inplace] "conj_physical(Tensor input)" |input: &Tensor| input.conj();
    /// The elements, none of which is conjugated lazily.
    resolve_conj [Torch Method] "resolve_conj(Tensor input)" |_input: &Tensor| Ok::<_, Error>(Out::First);
    /// The elements, none of which is negated lazily.
    resolve_neg [Torch Method] "resolve_neg(Tensor input)" |_input: &Tensor| Ok::<_, Error>(Out::First);
    /// The angle of complex numbers; of real ones pi for negative ones, else zero.
    angle [Torch Method] "angle(Tensor input)" |input: &Tensor| angle(input);
    /// Mantissa and exponent with `input = mantissa * 2**exponent`.
    frexp [Torch Method] "frexp(Tensor input)" |input: &Tensor| frexp(input);
    /// `input * 2**other`.
    ldexp [Torch Method Inplace] "ldexp(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| ldexp(input, other);
    /// `x`, or `alpha * (exp(x) - 1)` below zero.
    celu [Torch] "celu(Tensor input, Number alpha=1.0)" |input: &Tensor, alpha: f64| input.celu(alpha);
    /// `x` above `threshold`, else `value`.
    threshold [Torch] "threshold(Tensor input, Number threshold, Number value)" |input: &Tensor, threshold: Scalar, value: Scalar|
        input.threshold(threshold, value);
    /// Zero within `lambd` of zero.
    hardshrink [Torch Method Functional] "hardshrink(Tensor input, Number lambd=0.5)" |input: &Tensor, lambd: f64| hardshrink(input, lambd);
    /// `x`, or `weight * x` below zero.
    prelu [Torch Method Functional] "prelu(Tensor input, Tensor weight)" |input: &Tensor, weight: &Tensor| input.prelu(weight);
    /// `log(sigmoid(x))`.
    logsigmoid [Functional] "logsigmoid(Tensor input)" |input: &Tensor| input.logsigmoid();
    /// Differences between neighbours by the spacing of the grid, along one dimension at a time.
    gradient [Torch] "gradient(Tensor input, *, Number spacing=1, int[1]? dim=None, int edge_order=1)"
        |input: &Tensor, spacing: f64, dim: Option<&[i64]>, edge_order: i64| gradient(input, Spacing::Even(spacing), dim, edge_order),
        "gradient(Tensor input, *, Tensor[] spacing, int[1]? dim=None, int edge_order=1)"
        |input: &Tensor, spacing: &[Tensor], dim: Option<&[i64]>, edge_order: i64| gradient(input, Spacing::Points(spacing), dim, edge_order),
        "gradient(Tensor input, *, float[] spacing, int[1]? dim=None, int edge_order=1)"
        |input: &Tensor, spacing: &[f64], dim: Option<&[i64]>, edge_order: i64| gradient(input, Spacing::Each(spacing), dim, edge_order);
}

/// The positions of a grid's points.
enum Spacing<'a> {
    /// At this distance, along every dimension.
    Even(f64),
    /// At a distance for each dimension.
    Each(&'a [f64]),
    /// At coordinates for each dimension.
    Points(&'a [Tensor]),
}

/// With `eps` above one half the bounds cross: the lower one is applied first, as in PyTorch.
fn logit(input: &Tensor, eps: Option<f64>) -> Result<Tensor> {
    match eps {
        Some(eps) if eps > 0.5 => {
            let x = float(input)?;
            let bounded = where_(&x.lt(eps)?, eps, &where_(&x.gt(1.0 - eps)?, 1.0 - eps, &x)?)?;
            bounded.to_dtype(x.dtype())?.logit(None)
        }
        eps => input.logit(eps),
    }
}

fn signbit(input: &Tensor) -> Result<Tensor> {
    if input.is_complex() {
        return Err(Error::dtype("signbit: is not implemented for complex tensors."));
    }
    if !input.dtype().is_float() {
        // Carried unsigned dtypes have no comparisons and no negative numbers.
        return if input.dtype().is_carried() { input.ne(input) } else { input.lt(0) };
    }
    input.signbit()
}

/// Infinity is a real number, whose angle is zero.
fn angle(input: &Tensor) -> Result<Tensor> {
    if !input.dtype().is_float() {
        return input.angle();
    }
    where_(&input.isinf()?, &input.sign()?, input)?.angle()
}

/// The quantile, computed in double precision: near one, the argument of `erfinv` has lost half of the digits.
fn ndtri(input: &Tensor) -> Result<Tensor> {
    let x = float(input)?;
    let root = std::f64::consts::SQRT_2;
    x.to_dtype(DType::F64)?.mul(2.0)?.sub(1.0)?.erfinv()?.mul(root)?.to_dtype(x.dtype())
}

/// The bound has the input's precision.
fn hardshrink(input: &Tensor, lambd: f64) -> Result<Tensor> {
    if !matches!(input.dtype(), DType::F16 | DType::BF16) {
        return input.hardshrink(lambd);
    }
    let rounded = Tensor::full_with([], Scalar::Float(lambd), rushlight_tensor::Options::from(input.dtype()))?;
    input.hardshrink(rounded.to_dtype(DType::F64)?.item::<f64>()?)
}

/// The factor has the promoted dtype, so that an integer exponent does not widen a half.
fn ldexp(input: &Tensor, other: &Tensor) -> Result<Tensor> {
    let common = result_type(&[input.into(), other.into()]);
    let float = if common.is_differentiable() { common } else { crate::dtype::default() };
    if matches!(float, DType::F16 | DType::BF16) {
        // A power of two may be beyond the range of a half, and the product within it.
        let power = other.to_dtype(DType::F32)?.exp2()?;
        return input.to_dtype(DType::F32)?.mul(&power)?.to_dtype(float);
    }
    input.mul(&other.to_dtype(float)?.exp2()?)
}

fn mvlgamma(input: &Tensor, p: i64) -> Result<Tensor> {
    if p < 1 {
        return Err(Error::value(format!("mvlgamma: p has to be greater than or equal to 1, got {p}")));
    }
    if p > 4096 {
        return Err(Error::value(format!("mvlgamma: p of {p} is more than the 4096 dimensions that are supported")));
    }
    let constant = (p * (p - 1)) as f64 / 4.0 * std::f64::consts::PI.ln();
    let mut sum = float(input)?.lgamma()?.add(constant)?;
    for j in 1..p {
        sum = sum.add(&float(input)?.sub(j as f64 / 2.0)?.lgamma()?)?;
    }
    Ok(sum)
}

fn entr(input: &Tensor) -> Result<Tensor> {
    let x = float(input)?;
    let inner = x.xlogy(&x)?.neg()?;
    where_(&x.lt(0)?, f64::NEG_INFINITY, &inner)
}

fn frexp(input: &Tensor) -> Result<Out> {
    if !input.dtype().is_float() {
        return Err(Error::dtype(format!("torch.frexp() only supports floating-point dtypes, not {}", input.dtype())));
    }
    if input.dtype() != DType::F64 {
        // Double precision has powers of two for all numbers of a smaller dtype, also below its normal ones.
        let Out::Named(names, parts) = frexp(&input.to_dtype(DType::F64)?)? else {
            return Err(Error::value("frexp: internal error: two results expected"));
        };
        return Ok(Out::Named(names, vec![parts[0].to_dtype(input.dtype())?, parts[1].clone()]));
    }
    let zero = input.eq(0)?.logical_or(&input.isfinite()?.logical_not()?)?;
    let safe = where_(&zero, 1.0, input)?;
    let exponent = safe.abs()?.log2()?.floor()?.add(1.0)?;
    // The logarithm may be off by one next to powers of two: correct it.
    let mantissa = safe.mul(&exponent.neg()?.exp2()?)?;
    let (large, small) = (mantissa.abs()?.ge(1.0)?, mantissa.abs()?.lt(0.5)?);
    let step = large.to_dtype(input.dtype())?.sub(&small.to_dtype(input.dtype())?)?;
    let exponent = exponent.add(&step)?;
    let mantissa = where_(&zero, input, &mantissa.mul(&step.neg()?.exp2()?)?)?;
    let exponent = where_(&zero, 0.0, &exponent)?.to_dtype(DType::I32)?;
    Ok(Out::Named("mantissa exponent", vec![mantissa, exponent]))
}

fn gradient(input: &Tensor, spacing: Spacing, dim: Option<&[i64]>, edge_order: i64) -> Result<Out> {
    if edge_order != 1 {
        return Err(Error::unsupported("torch.gradient: only edge_order=1 is supported"));
    }
    let all: Vec<i64> = (0..input.rank() as i64).collect();
    let dims = dim.unwrap_or(&all);
    let given = match spacing {
        Spacing::Even(_) => dims.len(),
        Spacing::Each(list) => list.len(),
        Spacing::Points(list) => list.len(),
    };
    if given != dims.len() {
        return Err(Error::value(format!(
            "torch.gradient expected spacing to be unspecified, a scalar or a list of length {}, but got a list of length {given}",
            dims.len()
        )));
    }
    let mut out = Vec::new();
    for (i, &d) in dims.iter().enumerate() {
        let d = d as isize;
        let n = input.size(d)?;
        if n < 2 {
            return Err(Error::shape(format!("torch.gradient expected each dimension size to be at least 2, got {n}")));
        }
        let x = float(input)?;
        let spacing = match spacing {
            Spacing::Even(spacing) => spacing,
            Spacing::Each(list) => list[i],
            Spacing::Points(list) => {
                out.push(gradient_at(&x, &list[i], d, n)?);
                continue;
            }
        };
        let inner = x.narrow(d, 2, n - 2)?.sub(&x.narrow(d, 0, n - 2)?)?.div(2.0 * spacing)?;
        let first = x.narrow(d, 1, 1)?.sub(&x.narrow(d, 0, 1)?)?.div(spacing)?;
        let last = x.narrow(d, n as isize - 1, 1)?.sub(&x.narrow(d, n as isize - 2, 1)?)?.div(spacing)?;
        out.push(rushlight_tensor::cat(&[&first, &inner, &last], d)?);
    }
    Ok(Out::List(out))
}

/// The gradient along one dimension at arbitrary coordinates: second order inside, first order at the ends.
fn gradient_at(x: &Tensor, points: &Tensor, d: isize, n: usize) -> Result<Tensor> {
    if points.rank() != 1 || points.numel() != n {
        return Err(Error::shape(format!(
            "torch.gradient expected the coordinates of a dimension of size {n} to be a tensor of one dimension and that size, got shape {:?}",
            points.shape()
        )));
    }
    let mut shape = vec![1isize; x.rank()];
    let at = if d < 0 { d + x.rank() as isize } else { d } as usize;
    shape[at] = n as isize - 1;
    let points = points.to_dtype(x.dtype())?;
    let distances = points.narrow(0, 1, n - 1)?.sub(&points.narrow(0, 0, n - 1)?)?.reshape(&shape)?;
    let slopes = x.narrow(d, 1, n - 1)?.sub(&x.narrow(d, 0, n - 1)?)?.div(&distances)?;
    let (first, last) = (slopes.narrow(d, 0, 1)?, slopes.narrow(d, n as isize - 2, 1)?);
    let (before, after) = (distances.narrow(d, 0, n - 2)?, distances.narrow(d, 1, n - 2)?);
    let (left, right) = (slopes.narrow(d, 0, n - 2)?, slopes.narrow(d, 1, n - 2)?);
    // Each slope is weighted by the distance of the other neighbour: the nearer neighbour has more weight.
    let inner = left.mul(&after)?.add(&right.mul(&before)?)?.div(&before.add(&after)?)?;
    rushlight_tensor::cat(&[&first, &inner, &last], d)
}
