//! ONNX's operators over the op table: pointwise ones, reductions, comparisons.

use crate::IValue;
use crate::ops::{Args, call, call_with};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

pub(super) type Found = Result<Option<IValue>>;
type Own = fn(&Args) -> Found;

/// A required input.
pub(super) fn t(a: &Args, at: usize) -> Result<Tensor> {
    match a.list.get(at) {
        Some(IValue::Tensor(t)) => Ok(t.clone()),
        _ => Err(Error::value(format!("input {at} is missing"))),
    }
}

/// An optional input.
pub(super) fn opt(a: &Args, at: usize) -> Option<Tensor> {
    match a.list.get(at) {
        Some(IValue::Tensor(t)) => Some(t.clone()),
        _ => None,
    }
}

/// An attribute.
pub(super) fn attr<'a>(a: &'a Args, name: &str) -> Option<&'a IValue> {
    a.asked.borrow_mut().push(name.to_string());
    a.keywords.iter().find(|(n, _)| n == name).map(|(_, v)| v)
}

pub(super) fn int(a: &Args, name: &str, otherwise: i64) -> Result<i64> {
    attr(a, name).map_or(Ok(otherwise), IValue::to_int)
}

pub(super) fn float(a: &Args, name: &str, otherwise: f64) -> Result<f64> {
    attr(a, name).map_or(Ok(otherwise), IValue::to_float)
}

pub(super) fn ints(a: &Args, name: &str) -> Result<Option<Vec<i64>>> {
    attr(a, name).map(IValue::ints).transpose()
}

pub(super) fn text(a: &Args, name: &str, otherwise: &str) -> Result<String> {
    attr(a, name).map_or(Ok(otherwise.to_string()), |v| v.to_str().map(|s| s.to_string()))
}

/// Integers of an input, or of the attribute that older versions had.
pub(super) fn ints_at(a: &Args, at: usize, name: &str) -> Result<Option<Vec<i64>>> {
    match opt(a, at) {
        Some(t) => t.reshape([t.numel()])?.to_dtype(DType::I64)?.to_vec().map(Some),
        None => ints(a, name),
    }
}

pub(super) fn list(values: &[i64]) -> IValue {
    IValue::list(values.iter().map(|&i| IValue::Int(i)))
}

pub(super) fn some(t: Tensor) -> Found {
    Ok(Some(t.into()))
}

/// Calls a row of the table on tensors.
pub(super) fn op(name: &str, args: Vec<IValue>) -> Result<Tensor> {
    call(name, args)?.to_tensor()
}

fn unary(a: &Args, name: &str) -> Found {
    some(op(name, vec![t(a, 0)?.into()])?)
}

fn binary(a: &Args, name: &str) -> Found {
    some(op(name, vec![t(a, 0)?.into(), t(a, 1)?.into()])?)
}

fn fold(a: &Args, name: &str) -> Result<Tensor> {
    let mut out = t(a, 0)?;
    for at in 1..a.list.len() {
        out = op(name, vec![out.into(), t(a, at)?.into()])?;
    }
    Ok(out)
}

/// A reduction over axes, all if none are given.
fn reduce(a: &Args, run: impl Fn(&Tensor, &[i64], bool) -> Result<Tensor>) -> Found {
    let x = t(a, 0)?;
    let axes = ints_at(a, 1, "axes")?.unwrap_or_default();
    let (noop, keep) = (int(a, "noop_with_empty_axes", 0)? != 0, int(a, "keepdims", 1)? != 0);
    if axes.is_empty() && noop {
        return some(run(&x, &[], true)?);
    }
    let axes = if axes.is_empty() { (0..x.rank() as i64).collect() } else { axes };
    some(run(&x, &axes, keep)?)
}

fn along(name: &str, x: &Tensor, axes: &[i64], keep: bool) -> Result<Tensor> {
    if axes.is_empty() {
        return Ok(x.clone());
    }
    op(name, vec![x.into(), list(axes), keep.into()])
}

fn product(x: &Tensor, axes: &[i64], keep: bool) -> Result<Tensor> {
    let rank = x.rank() as i64;
    let mut axes: Vec<i64> = axes.iter().map(|&d| if d < 0 { d + rank } else { d }).collect();
    axes.sort_unstable();
    let mut out = x.clone();
    for &axis in axes.iter().rev() {
        out = op("prod", vec![out.into(), axis.into(), keep.into()])?;
    }
    out.to_dtype(x.dtype())
}

fn sum(x: &Tensor, axes: &[i64], keep: bool) -> Result<Tensor> {
    along("sum", x, axes, keep)?.to_dtype(x.dtype())
}

fn arg_extreme(a: &Args, name: &str) -> Found {
    let (x, axis, keep) = (t(a, 0)?, int(a, "axis", 0)?, int(a, "keepdims", 1)? != 0);
    if int(a, "select_last_index", 0)? == 0 {
        return some(op(name, vec![x.into(), axis.into(), keep.into()])?);
    }
    let last = x.size(axis as isize)? as i64 - 1;
    let flipped = op("flip", vec![x.into(), list(&[axis])])?;
    let at = op(name, vec![flipped.into(), axis.into(), keep.into()])?;
    some(op("rsub", vec![at.into(), last.into()])?)
}

fn divide(a: &Args) -> Found {
    let (x, y) = (t(a, 0)?, t(a, 1)?);
    if x.dtype().is_float() {
        return binary(a, "div");
    }
    some(call_with("div", vec![x.into(), y.into()], &[("rounding_mode", "trunc".into())])?.to_tensor()?)
}

fn scaled(a: &Args, name: &str, key: &str, otherwise: f64) -> Found {
    some(op(name, vec![t(a, 0)?.into(), float(a, key, otherwise)?.into()])?)
}

fn clip(a: &Args) -> Found {
    let x = t(a, 0)?;
    let bound = |at: usize, name: &str| match opt(a, at) {
        Some(t) => IValue::Tensor(t),
        None => attr(a, name).cloned().unwrap_or(IValue::None),
    };
    let mut out = x.clone();
    for (value, name) in [(bound(1, "min"), "maximum"), (bound(2, "max"), "minimum")] {
        let limit = match value {
            IValue::Tensor(t) => t,
            IValue::None => continue,
            other => Tensor::scalar(other.to_float()?)?.to_dtype(x.dtype())?,
        };
        out = op(name, vec![out.into(), limit.into()])?;
    }
    some(out)
}

fn cast(a: &Args, to: DType) -> Found {
    some(t(a, 0)?.to_dtype(to)?)
}

/// An operator by name.
pub(crate) fn find(name: &str) -> Option<Own> {
    let families: [fn(&str) -> Option<Own>; 5] = [
        super::ops_shape::find,
        super::ops_nn::find,
        super::ops_model::find,
        super::ops_quant::find,
        super::ops_more::find,
    ];
    if let Some(found) = families.iter().find_map(|find| find(name)) {
        return Some(found);
    }
    macro_rules! table {
        ($how:ident: $($onnx:literal $row:literal),* $(,)?) => {
            match name {
                $($onnx => return Some(|a| $how(a, $row)),)*
                _ => {}
            }
        };
    }
    table!(unary: "Abs" "abs", "Acos" "acos", "Acosh" "acosh", "Asin" "asin", "Asinh" "asinh", "Atan" "atan", "Atanh" "atanh",
        "Ceil" "ceil", "Cos" "cos", "Cosh" "cosh", "Erf" "erf", "Exp" "exp", "Floor" "floor", "IsNaN" "isnan", "Log" "log",
        "Neg" "neg", "Not" "logical_not", "Reciprocal" "reciprocal", "Relu" "relu", "Round" "round", "Sigmoid" "sigmoid",
        "Sign" "sign", "Sin" "sin", "Sinh" "sinh", "Softplus" "softplus", "Softsign" "softsign", "Sqrt" "sqrt", "Tan" "tan",
        "Tanh" "tanh", "HardSwish" "hardswish", "Mish" "mish", "BitwiseNot" "bitwise_not", "Det" "det");
    table!(binary: "Add" "add", "Sub" "sub", "Mul" "mul", "MatMul" "matmul", "And" "logical_and", "Or" "logical_or",
        "Xor" "logical_xor", "Equal" "eq", "Greater" "gt", "GreaterOrEqual" "ge", "Less" "lt", "LessOrEqual" "le",
        "BitwiseAnd" "bitwise_and", "BitwiseOr" "bitwise_or", "BitwiseXor" "bitwise_xor");
    Some(match name {
        "Identity" => |a| some(t(a, 0)?),
        "Div" => divide,
        "Pow" => |a| {
            let (x, y) = (t(a, 0)?, t(a, 1)?);
            let wide = if x.dtype().is_float() { y.to_dtype(x.dtype())? } else { y };
            some(op("pow", vec![x.clone().into(), wide.into()])?.to_dtype(x.dtype())?)
        },
        "Mod" => |a| binary(a, if int(a, "fmod", 0)? != 0 { "fmod" } else { "remainder" }),
        "BitShift" => |a| {
            binary(a, if text(a, "direction", "")? == "LEFT" { "bitwise_left_shift" } else { "bitwise_right_shift" })
        },
        "Max" => |a| some(fold(a, "maximum")?),
        "Min" => |a| some(fold(a, "minimum")?),
        "Sum" => |a| some(fold(a, "add")?),
        "Mean" => |a| some(op("div", vec![fold(a, "add")?.into(), (a.list.len() as i64).into()])?),
        "ReduceSum" => |a| reduce(a, sum),
        "ReduceMean" => |a| reduce(a, |x, d, k| along("mean", x, d, k)),
        "ReduceMax" => |a| {
            reduce(a, |x, d, k| match x.dtype() {
                DType::Bool => along("amax", &x.to_dtype(DType::U8)?, d, k)?.to_dtype(DType::Bool),
                _ => along("amax", x, d, k),
            })
        },
        "ReduceMin" => |a| {
            reduce(a, |x, d, k| match x.dtype() {
                DType::Bool => along("amin", &x.to_dtype(DType::U8)?, d, k)?.to_dtype(DType::Bool),
                _ => along("amin", x, d, k),
            })
        },
        "ReduceProd" => |a| reduce(a, product),
        "ReduceL1" => |a| reduce(a, |x, d, k| sum(&x.abs()?, d, k)),
        "ReduceL2" => |a| reduce(a, |x, d, k| sum(&x.square()?, d, k)?.sqrt()),
        "ReduceSumSquare" => |a| reduce(a, |x, d, k| sum(&x.square()?, d, k)),
        "ReduceLogSum" => |a| reduce(a, |x, d, k| sum(x, d, k)?.log()),
        "ReduceLogSumExp" => |a| reduce(a, |x, d, k| along("logsumexp", x, d, k)),
        "ArgMax" => |a| arg_extreme(a, "argmax"),
        "ArgMin" => |a| arg_extreme(a, "argmin"),
        "LeakyRelu" => |a| scaled(a, "nn.functional.leaky_relu", "alpha", 0.01),
        "Elu" => |a| scaled(a, "nn.functional.elu", "alpha", 1.0),
        "Celu" => |a| scaled(a, "nn.functional.celu", "alpha", 1.0),
        "ThresholdedRelu" => |a| {
            let x = t(a, 0)?;
            let above = op("gt", vec![x.clone().into(), float(a, "alpha", 1.0)?.into()])?;
            some(op("mul", vec![x.clone().into(), above.to_dtype(x.dtype())?.into()])?)
        },
        "Selu" => |a| {
            let (x, alpha, gamma) =
                (t(a, 0)?, float(a, "alpha", 1.6732632423543772)?, float(a, "gamma", 1.0507009873554805)?);
            let y = op("nn.functional.elu", vec![x.into(), alpha.into()])?;
            some(op("mul", vec![y.into(), gamma.into()])?)
        },
        "HardSigmoid" => |a| {
            let y = op("mul", vec![t(a, 0)?.into(), float(a, "alpha", 0.2)?.into()])?;
            let y = op("add", vec![y.into(), float(a, "beta", 0.5)?.into()])?;
            some(op("clamp", vec![y.into(), 0.0.into(), 1.0.into()])?)
        },
        "Gelu" => |a| {
            let how = text(a, "approximate", "none")?;
            some(
                call_with("nn.functional.gelu", vec![t(a, 0)?.into()], &[("approximate", how.as_str().into())])?
                    .to_tensor()?,
            )
        },
        "Swish" => |a| {
            let x = t(a, 0)?;
            let gate = op("sigmoid", vec![op("mul", vec![x.clone().into(), float(a, "alpha", 1.0)?.into()])?.into()])?;
            some(op("mul", vec![x.into(), gate.into()])?)
        },
        "Shrink" => |a| {
            let (x, bias, lambd) = (t(a, 0)?, float(a, "bias", 0.0)?, float(a, "lambd", 0.5)?);
            let wide = x.to_dtype(DType::F64)?;
            let low = op("lt", vec![wide.clone().into(), (-lambd).into()])?.to_dtype(DType::F64)?;
            let high = op("gt", vec![wide.clone().into(), lambd.into()])?.to_dtype(DType::F64)?;
            let up = op("mul", vec![op("add", vec![wide.clone().into(), bias.into()])?.into(), low.into()])?;
            let down = op("mul", vec![op("sub", vec![wide.into(), bias.into()])?.into(), high.into()])?;
            some(op("add", vec![up.into(), down.into()])?.to_dtype(x.dtype())?)
        },
        "PRelu" => |a| {
            let (x, slope) = (t(a, 0)?, t(a, 1)?);
            let negative = op("mul", vec![x.clone().into(), slope.into()])?;
            let low = op("lt", vec![x.clone().into(), 0i64.into()])?;
            some(op("where", vec![low.into(), negative.into(), x.into()])?)
        },
        "IsInf" => |a| {
            let x = t(a, 0)?;
            let (low, high) = (int(a, "detect_negative", 1)? != 0, int(a, "detect_positive", 1)? != 0);
            let at = |value: f64| op("eq", vec![x.clone().into(), value.into()]);
            some(match (low, high) {
                (true, true) => op("isinf", vec![x.clone().into()])?,
                (true, false) => at(f64::NEG_INFINITY)?,
                (false, true) => at(f64::INFINITY)?,
                (false, false) => op("ne", vec![x.clone().into(), x.clone().into()])?.logical_and(&at(0.0)?)?,
            })
        },
        "Clip" => clip,
        "Cast" => |a| cast(a, super::proto::dtype(int(a, "to", 1)?)?),
        "CastLike" => |a| cast(a, t(a, 1)?.dtype()),
        "Where" => |a| some(op("where", vec![t(a, 0)?.into(), t(a, 1)?.into(), t(a, 2)?.into()])?),
        "Einsum" => |a| {
            let parts = a.list.iter().map(IValue::to_tensor).collect::<Result<Vec<_>>>()?;
            let equation = text(a, "equation", "")?.replace(' ', "");
            some(rushlight_tensor::einsum(&equation, &parts.iter().collect::<Vec<_>>())?)
        },
        _ => return None,
    })
}
