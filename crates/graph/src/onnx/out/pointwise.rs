//! Pointwise ops, comparisons and products as ONNX nodes.

use super::super::proto::Attribute::{self, Float, Int, Str};
use super::call::{Call, tensor};
use super::graph::{Exporter, Val, common};
use super::write::number;
use crate::ivalue::IValue;
use rushlight_core::{DType, Result, Scalar};

pub(super) type Names = Result<Option<Vec<String>>>;

pub(super) fn one(name: String) -> Names {
    Ok(Some(vec![name]))
}

/// Ops of one operand with an ONNX operator of the same meaning.
const UNARY: [(&str, &str); 32] = [
    ("abs", "Abs"),
    ("acos", "Acos"),
    ("acosh", "Acosh"),
    ("asin", "Asin"),
    ("asinh", "Asinh"),
    ("atan", "Atan"),
    ("atanh", "Atanh"),
    ("ceil", "Ceil"),
    ("cos", "Cos"),
    ("cosh", "Cosh"),
    ("erf", "Erf"),
    ("exp", "Exp"),
    ("floor", "Floor"),
    ("log", "Log"),
    ("neg", "Neg"),
    ("negative", "Neg"),
    ("reciprocal", "Reciprocal"),
    ("relu", "Relu"),
    ("round", "Round"),
    ("sigmoid", "Sigmoid"),
    ("sign", "Sign"),
    ("sin", "Sin"),
    ("sinh", "Sinh"),
    ("softsign", "Softsign"),
    ("sqrt", "Sqrt"),
    ("tan", "Tan"),
    ("tanh", "Tanh"),
    ("hardswish", "HardSwish"),
    ("mish", "Mish"),
    ("expit", "Sigmoid"),
    ("absolute", "Abs"),
    ("arctan", "Atan"),
];

/// Ops of two operands, computed in the dtype of the result.
const BINARY: [(&str, &str); 10] = [
    ("add", "Add"),
    ("sub", "Sub"),
    ("subtract", "Sub"),
    ("mul", "Mul"),
    ("multiply", "Mul"),
    ("maximum", "Max"),
    ("minimum", "Min"),
    ("true_divide", "Div"),
    ("divide", "Div"),
    ("pow", "Pow"),
];

const COMPARISONS: [(&str, &str); 12] = [
    ("eq", "Equal"),
    ("ne", "Equal"),
    ("lt", "Less"),
    ("le", "LessOrEqual"),
    ("gt", "Greater"),
    ("ge", "GreaterOrEqual"),
    ("less", "Less"),
    ("greater", "Greater"),
    ("not_equal", "Equal"),
    ("logical_and", "And"),
    ("logical_or", "Or"),
    ("logical_xor", "Xor"),
];

fn find(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(n, _)| *n == name).map(|(_, op)| *op)
}

/// The second operand under its names in signatures.
fn second(c: &Call) -> Result<&Val> {
    match c.params.get(1) {
        Some((_, value)) if !value.is_none() => Ok(value),
        _ => c.need("other"),
    }
}

pub(super) fn emit(x: &mut Exporter, c: &Call) -> Names {
    if let Some(op) = find(&UNARY, &c.name) {
        let input = x.operand(c.first()?, c.dtype()?)?;
        return one(x.op(op, &[&input]));
    }
    if let Some(op) = find(&BINARY, &c.name) {
        let dtype = c.dtype()?;
        if dtype == DType::Bool {
            return c.refuse("bools");
        }
        let (a, mut b) = (x.operand(c.first()?, dtype)?, x.operand(second(c)?, dtype)?);
        let alpha = c.float("alpha", 1.0)?;
        if alpha != 1.0 {
            let alpha = x.float(alpha, dtype)?;
            b = x.op("Mul", &[&b, &alpha]);
        }
        return one(x.op(op, &[&a, &b]));
    }
    if let Some(op) = find(&COMPARISONS, &c.name) {
        let (a, b) = (c.first()?, second(c)?);
        let dtype = if matches!(op, "And" | "Or" | "Xor") { DType::Bool } else { common(&[a, b]) };
        // Less and Greater have no bools.
        let dtype = if dtype == DType::Bool && op.starts_with(['L', 'G']) { DType::I32 } else { dtype };
        let (a, b) = (x.operand(a, dtype)?, x.operand(b, dtype)?);
        let out = x.op(op, &[&a, &b]);
        return one(if matches!(c.name.as_str(), "ne" | "not_equal") { x.op("Not", &[&out]) } else { out });
    }
    if let Some(found) = activation(x, c)? {
        return one(found);
    }
    if let Some(found) = composed(x, c)? {
        return one(found);
    }
    products(x, c)
}

fn activation(x: &mut Exporter, c: &Call) -> Result<Option<String>> {
    let names = [
        "silu",
        "gelu",
        "leaky_relu",
        "elu",
        "selu",
        "celu",
        "hardtanh",
        "relu6",
        "hardsigmoid",
        "prelu",
        "logsigmoid",
        "softplus",
        "threshold",
        "glu",
        "softmax",
        "_softmax",
        "log_softmax",
        "_log_softmax",
        "softmin",
        "tanhshrink",
        "hardshrink",
        "rrelu",
    ];
    if !names.contains(&c.name.as_str()) {
        return Ok(None);
    }
    let dtype = c.dtype()?;
    let (input, rank) = (c.input()?, c.input()?[0].rank());
    let a = x.operand(c.first()?, dtype)?;
    let alpha = |c: &Call, name: &str, otherwise: f64| -> Result<(&'static str, Attribute)> {
        Ok(("alpha", Float(c.float(name, otherwise)? as f32)))
    };
    Ok(Some(match c.name.as_str() {
        "silu" => {
            let gate = x.op("Sigmoid", &[&a]);
            x.op("Mul", &[&a, &gate])
        }
        "gelu" => gelu(x, &a, dtype, &c.text("approximate", "none")?)?,
        "leaky_relu" => x.node("LeakyRelu", &[&a], vec![alpha(c, "negative_slope", 0.01)?]),
        "elu" => x.node("Elu", &[&a], vec![alpha(c, "alpha", 1.0)?]),
        "celu" => x.node("Celu", &[&a], vec![alpha(c, "alpha", 1.0)?]),
        "selu" => x.op("Selu", &[&a]),
        "hardtanh" => clip(x, &a, dtype, c.float("min_val", -1.0)?, c.float("max_val", 1.0)?)?,
        "relu6" => clip(x, &a, dtype, 0.0, 6.0)?,
        "hardsigmoid" => x.node("HardSigmoid", &[&a], vec![("alpha", Float(1.0 / 6.0)), ("beta", Float(0.5))]),
        "rrelu" => {
            let middle = (c.float("lower", 1.0 / 8.0)? + c.float("upper", 1.0 / 3.0)?) / 2.0;
            x.node("LeakyRelu", &[&a], vec![("alpha", Float(middle as f32))])
        }
        "prelu" => {
            let weight = tensor(c.need("weight")?)?;
            let mut slope = x.name(&weight)?;
            if weight[0].numel() > 1 && rank > 2 {
                let axes = x.ints(&(1..rank as i64 - 1).collect::<Vec<_>>())?;
                slope = x.op("Unsqueeze", &[&slope, &axes]);
            }
            x.op("PRelu", &[&a, &slope])
        }
        "logsigmoid" => {
            let a = x.op("Neg", &[&a]);
            let soft = x.op("Softplus", &[&a]);
            x.op("Neg", &[&soft])
        }
        "softplus" => {
            let (beta, limit) = (c.float("beta", 1.0)?, c.float("threshold", 20.0)?);
            let factor = x.float(beta, dtype)?;
            let scaled = x.op("Mul", &[&a, &factor]);
            let soft = x.op("Softplus", &[&scaled]);
            let soft = x.op("Div", &[&soft, &factor]);
            let limit = x.float(limit, dtype)?;
            let over = x.op("Greater", &[&scaled, &limit]);
            x.op("Where", &[&over, &a, &soft])
        }
        "threshold" => {
            let (limit, value) = (x.float(c.float("threshold", 0.0)?, dtype)?, x.float(c.float("value", 0.0)?, dtype)?);
            let over = x.op("Greater", &[&a, &limit]);
            x.op("Where", &[&over, &a, &value])
        }
        "tanhshrink" => {
            let t = x.op("Tanh", &[&a]);
            x.op("Sub", &[&a, &t])
        }
        "hardshrink" => {
            let lambda = c.float("lambd", 0.5)? as f32;
            x.node("Shrink", &[&a], vec![("lambd", Float(lambda)), ("bias", Float(0.0))])
        }
        "glu" => {
            let dim = c.dim("dim", -1, rank)?;
            if input.iter().any(|t| t.shape()[dim] != input[0].shape()[dim]) {
                return c.refuse("a dynamic size in its dimension");
            }
            let attributes = vec![("axis", Int(dim as i64)), ("num_outputs", Int(2))];
            let halves = x.nodes("Split", &[&a], attributes, 2);
            let gate = x.op("Sigmoid", &[&halves[1]]);
            x.op("Mul", &[&halves[0], &gate])
        }
        name => {
            let legacy = if matches!(rank, 0 | 1 | 3) { 0 } else { 1 };
            let dim = c.dim("dim", legacy, rank)? as i64;
            let a = if name == "softmin" { x.op("Neg", &[&a]) } else { a };
            let op = if name.contains("log") { "LogSoftmax" } else { "Softmax" };
            x.node(op, &[&a], vec![("axis", Int(dim))])
        }
    }))
}

fn gelu(x: &mut Exporter, a: &str, dtype: DType, approximate: &str) -> Result<String> {
    if x.opset >= 20 {
        return Ok(x.node("Gelu", &[a], vec![("approximate", Str(approximate.to_string()))]));
    }
    let inner = if approximate == "tanh" {
        let (three, factor) = (x.float(3.0, dtype)?, x.float(0.044715, dtype)?);
        let cube = x.op("Pow", &[a, &three]);
        let cube = x.op("Mul", &[&cube, &factor]);
        let sum = x.op("Add", &[a, &cube]);
        let root = x.float((2.0 / std::f64::consts::PI).sqrt(), dtype)?;
        let sum = x.op("Mul", &[&sum, &root]);
        x.op("Tanh", &[&sum])
    } else {
        let root = x.float(std::f64::consts::SQRT_2, dtype)?;
        let scaled = x.op("Div", &[a, &root]);
        x.op("Erf", &[&scaled])
    };
    let (unit, half) = (x.float(1.0, dtype)?, x.float(0.5, dtype)?);
    let shifted = x.op("Add", &[&inner, &unit]);
    let product = x.op("Mul", &[a, &shifted]);
    Ok(x.op("Mul", &[&product, &half]))
}

fn clip(x: &mut Exporter, a: &str, dtype: DType, low: f64, high: f64) -> Result<String> {
    let (low, high) = (x.float(low, dtype)?, x.float(high, dtype)?);
    Ok(x.op("Clip", &[a, &low, &high]))
}

/// Ops that are a few nodes.
fn composed(x: &mut Exporter, c: &Call) -> Result<Option<String>> {
    let Ok(out) = c.result() else { return Ok(None) };
    let dtype = out[0].dtype();
    let number_of = |x: &mut Exporter, v: f64| x.float(v, dtype);
    Ok(Some(match c.name.as_str() {
        "rsqrt" => {
            let a = x.operand(c.first()?, dtype)?;
            let root = x.op("Sqrt", &[&a]);
            x.op("Reciprocal", &[&root])
        }
        "square" => {
            let a = x.operand(c.first()?, dtype)?;
            x.op("Mul", &[&a, &a])
        }
        "expm1" | "log1p" => {
            let (a, unit) = (x.operand(c.first()?, dtype)?, number_of(x, 1.0)?);
            if c.name == "expm1" {
                let e = x.op("Exp", &[&a]);
                x.op("Sub", &[&e, &unit])
            } else {
                let sum = x.op("Add", &[&a, &unit]);
                x.op("Log", &[&sum])
            }
        }
        "log2" | "log10" => {
            let (a, base) = (x.operand(c.first()?, dtype)?, if c.name == "log2" { 2f64 } else { 10f64 });
            let (log, base) = (x.op("Log", &[&a]), number_of(x, base.ln())?);
            x.op("Div", &[&log, &base])
        }
        "exp2" => {
            let (a, two) = (x.operand(c.first()?, dtype)?, number_of(x, 2.0)?);
            x.op("Pow", &[&two, &a])
        }
        "erfc" => {
            let (a, unit) = (x.operand(c.first()?, dtype)?, number_of(x, 1.0)?);
            let e = x.op("Erf", &[&a]);
            x.op("Sub", &[&unit, &e])
        }
        "rsub" => {
            let (a, b) = (x.operand(c.first()?, dtype)?, x.operand(second(c)?, dtype)?);
            let alpha = number_of(x, c.float("alpha", 1.0)?)?;
            let a = x.op("Mul", &[&a, &alpha]);
            x.op("Sub", &[&b, &a])
        }
        "div" => divide(x, c, &c.text("rounding_mode", "")?)?,
        "floor_divide" | "__floordiv__" => divide(x, c, "floor")?,
        "remainder" | "fmod" => {
            let (a, b) = (x.operand(c.first()?, dtype)?, x.operand(second(c)?, dtype)?);
            if c.name == "fmod" || !dtype.is_float() {
                x.node("Mod", &[&a, &b], vec![("fmod", Int(i64::from(c.name == "fmod")))])
            } else {
                let q = x.op("Div", &[&a, &b]);
                let q = x.op("Floor", &[&q]);
                let q = x.op("Mul", &[&q, &b]);
                x.op("Sub", &[&a, &q])
            }
        }
        "isnan" => {
            let a = x.name(&c.input()?)?;
            x.op("IsNaN", &[&a])
        }
        "isinf" => {
            let a = x.name(&c.input()?)?;
            x.op("IsInf", &[&a])
        }
        "logical_not" => {
            let a = x.operand(c.first()?, DType::Bool)?;
            x.op("Not", &[&a])
        }
        "bitwise_not" | "bitwise_and" | "bitwise_or" | "bitwise_xor" | "__and__" | "__or__" | "__xor__" => {
            let a = x.operand(c.first()?, dtype)?;
            if c.name == "bitwise_not" {
                x.op(if dtype == DType::Bool { "Not" } else { "BitwiseNot" }, &[&a])
            } else {
                let b = x.operand(second(c)?, dtype)?;
                let op = match (c.name.trim_matches('_').trim_start_matches("bitwise_"), dtype == DType::Bool) {
                    ("and", true) => "And",
                    ("or", true) => "Or",
                    (_, true) => "Xor",
                    ("and", false) => "BitwiseAnd",
                    ("or", false) => "BitwiseOr",
                    (_, false) => "BitwiseXor",
                };
                x.op(op, &[&a, &b])
            }
        }
        "where" => {
            let condition = c.need("condition")?;
            let (Some(a), Some(b)) = (c.get("input").or(c.get("self")), c.get("other")) else { return Ok(None) };
            let (a, b) = (x.operand(a, dtype)?, x.operand(b, dtype)?);
            let condition = x.operand(condition, DType::Bool)?;
            x.op("Where", &[&condition, &a, &b])
        }
        "masked_fill" => {
            let (a, value) = (x.operand(c.first()?, dtype)?, x.operand(c.need("value")?, dtype)?);
            let mask = x.operand(c.need("mask")?, DType::Bool)?;
            x.op("Where", &[&mask, &value, &a])
        }
        "clamp" | "clip" | "clamp_min" | "clamp_max" => clamp(x, c)?,
        "lerp" => {
            let (a, b) = (x.operand(c.first()?, dtype)?, x.operand(c.need("end")?, dtype)?);
            let weight = x.operand(c.need("weight")?, dtype)?;
            let d = x.op("Sub", &[&b, &a]);
            let d = x.op("Mul", &[&d, &weight]);
            x.op("Add", &[&a, &d])
        }
        "addcmul" | "addcdiv" => {
            let a = x.operand(c.need("input")?, dtype)?;
            let (p, q) = (x.operand(c.need("tensor1")?, dtype)?, x.operand(c.need("tensor2")?, dtype)?);
            let value = number_of(x, c.float("value", 1.0)?)?;
            let r = x.op(if c.name == "addcmul" { "Mul" } else { "Div" }, &[&p, &q]);
            let r = x.op("Mul", &[&r, &value]);
            x.op("Add", &[&a, &r])
        }
        "to" | "_to_copy" | "type" | "type_as" | "float" | "double" | "half" | "bfloat16" | "long" | "int"
        | "short" | "bool" | "byte" | "char" => x.operand(c.first()?, dtype)?,
        "clone" | "contiguous" | "detach" | "alias" | "lift_fresh" | "lift_fresh_copy" | "cpu" | "cuda" => {
            x.name(&c.input()?)?
        }
        name if name.contains("dropout") => x.name(&c.input()?)?,
        "copy" | "copy_" => {
            let source = x.operand(c.need("src")?, dtype)?;
            let sizes = x.shape_of(&out)?;
            let shape = x.sizes(&sizes)?;
            x.op("Expand", &[&source, &shape])
        }
        "fill" | "zero" => {
            let value = match c.get("value") {
                Some(value) => x.operand(value, dtype)?,
                None => x.scalar(Scalar::Int(0), dtype)?,
            };
            let sizes = x.shape_of(&out)?;
            let shape = x.sizes(&sizes)?;
            x.op("Expand", &[&value, &shape])
        }
        "mse_loss" | "l1_loss" => {
            let (a, b) = (x.operand(c.need("input")?, dtype)?, x.operand(c.need("target")?, dtype)?);
            let d = x.op("Sub", &[&a, &b]);
            let d = if c.name == "mse_loss" { x.op("Mul", &[&d, &d]) } else { x.op("Abs", &[&d]) };
            match c.text("reduction", "mean")?.as_str() {
                "none" => d,
                how => {
                    let op = if how == "mean" { "ReduceMean" } else { "ReduceSum" };
                    x.node(op, &[&d], vec![("keepdims", Int(0))])
                }
            }
        }
        _ => return Ok(None),
    }))
}

fn divide(x: &mut Exporter, c: &Call, rounding: &str) -> Result<String> {
    let dtype = c.dtype()?;
    // Whole numbers are rounded in double precision: ONNX divides them towards zero.
    let is_whole = !dtype.is_float() && rounding == "floor";
    let wide = if is_whole { DType::F64 } else { dtype };
    let (a, b) = (x.operand(c.first()?, wide)?, x.operand(second(c)?, wide)?);
    let q = x.op("Div", &[&a, &b]);
    Ok(match rounding {
        "floor" => {
            let q = x.op("Floor", &[&q]);
            if is_whole { x.cast(&q, dtype)? } else { q }
        }
        "trunc" if dtype.is_float() => {
            let (sign, size) = (x.op("Sign", &[&q]), x.op("Abs", &[&q]));
            let size = x.op("Floor", &[&size]);
            x.op("Mul", &[&sign, &size])
        }
        _ => q,
    })
}

fn clamp(x: &mut Exporter, c: &Call) -> Result<String> {
    let dtype = c.dtype()?;
    let a = x.operand(c.first()?, dtype)?;
    let (low, high) = (c.get("min"), c.get("max"));
    let is_number = |v: Option<&Val>| v.is_none_or(|v| matches!(v, Val::Plain(_)));
    if is_number(low) && is_number(high) {
        let mut bound = |v: Option<&Val>| v.map_or(Ok(String::new()), |v| x.operand(v, dtype));
        let (low, high) = (bound(low)?, bound(high)?);
        return Ok(if high.is_empty() { x.op("Clip", &[&a, &low]) } else { x.op("Clip", &[&a, &low, &high]) });
    }
    let mut out = a;
    for (value, op) in [(low, "Max"), (high, "Min")] {
        if let Some(value) = value {
            let limit = x.operand(value, dtype)?;
            out = x.op(op, &[&out, &limit]);
        }
    }
    Ok(out)
}

/// Products of matrices.
fn products(x: &mut Exporter, c: &Call) -> Names {
    let scale = |x: &mut Exporter, name: &str, factor: f64, dtype: DType| -> Result<String> {
        if factor == 1.0 {
            return Ok(name.to_string());
        }
        let factor = x.float(factor, dtype)?;
        Ok(x.op("Mul", &[name, &factor]))
    };
    match c.name.as_str() {
        "matmul" | "mm" | "bmm" | "mv" | "dot" | "__matmul__" | "inner" => {
            let dtype = c.dtype()?;
            if c.name == "inner" && c.input()?[0].rank() != 1 {
                return c.refuse("matrices");
            }
            let (a, b) = (x.operand(c.first()?, dtype)?, x.operand(second(c)?, dtype)?);
            one(x.op("MatMul", &[&a, &b]))
        }
        "outer" | "ger" => {
            let dtype = c.dtype()?;
            let (a, b) = (x.operand(c.first()?, dtype)?, x.operand(second(c)?, dtype)?);
            let (first, last) = (x.ints(&[0])?, x.ints(&[1])?);
            let (a, b) = (x.op("Unsqueeze", &[&a, &last]), x.op("Unsqueeze", &[&b, &first]));
            one(x.op("Mul", &[&a, &b]))
        }
        "linear" => {
            let (input, weight) = (c.input()?, tensor(c.need("weight")?)?);
            let bias = c.tensor("bias")?;
            let a = x.name(&input)?;
            if input[0].rank() == 2 && weight[0].rank() == 2 && input[0].dtype() == DType::F32 {
                let w = x.name(&weight)?;
                let attributes = vec![("transB", Int(1))];
                return one(match bias {
                    Some(bias) => {
                        let b = x.name(&bias)?;
                        x.node("Gemm", &[&a, &w, &b], attributes)
                    }
                    None => x.node("Gemm", &[&a, &w], attributes),
                });
            }
            let w = if weight[0].rank() == 2 { x.transpose(&weight)? } else { x.name(&weight)? };
            let product = x.op("MatMul", &[&a, &w]);
            one(match bias {
                Some(bias) => {
                    let b = x.name(&bias)?;
                    x.op("Add", &[&product, &b])
                }
                None => product,
            })
        }
        "addmm" | "baddbmm" | "addmv" => {
            let dtype = c.dtype()?;
            let factors = [("mat1", "mat2"), ("batch1", "batch2"), ("mat", "vec")];
            let Some((p, q)) = factors.iter().find_map(|(p, q)| Some((c.get(p)?, c.get(q)?))) else { return Ok(None) };
            let (a, p, q) = (x.operand(c.first()?, dtype)?, x.operand(p, dtype)?, x.operand(q, dtype)?);
            let product = x.op("MatMul", &[&p, &q]);
            let product = scale(x, &product, c.float("alpha", 1.0)?, dtype)?;
            let a = scale(x, &a, c.float("beta", 1.0)?, dtype)?;
            one(x.op("Add", &[&product, &a]))
        }
        "einsum" => {
            let Some(items) = c.params.get(1).and_then(|(_, v)| v.items()) else { return Ok(None) };
            let dtype = c.dtype()?;
            let names = items.iter().map(|v| x.operand(v, dtype)).collect::<Result<Vec<_>>>()?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let equation: String = c.first()?.on(0).to_str()?.chars().filter(|c| !c.is_whitespace()).collect();
            one(x.node("Einsum", &names, vec![("equation", Str(equation))]))
        }
        "one_hot" => {
            let depth = c.need("num_classes")?;
            if matches!(depth, Val::Plain(IValue::Int(n)) if *n < 0) {
                return c.refuse("a number of classes that depends on the values; pass num_classes");
            }
            let (a, depth) = (x.name(&c.input()?)?, x.size(depth)?);
            let values = x.ints(&[0, 1])?;
            one(x.node("OneHot", &[&a, &depth, &values], vec![("axis", Int(-1))]))
        }
        "cumsum" => {
            let input = c.input()?;
            let (a, dtype) = (x.operand(c.first()?, c.dtype()?)?, c.dtype()?);
            let dim = c.dim("dim", 0, input[0].rank())?;
            let axis = x.scalar(Scalar::Int(dim as i64), DType::I64)?;
            number(dtype)?;
            one(x.op("CumSum", &[&a, &axis]))
        }
        _ => Ok(None),
    }
}
