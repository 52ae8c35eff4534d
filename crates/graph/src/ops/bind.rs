//! Binding of a program's values to the signatures of the op table.

use super::Args;
use crate::dispatch::{Home, Op, Variant};
use crate::ivalue::IValue;
use crate::params::{Kind, default, kind, split};
use crate::rows;
use crate::value::{Ints, MemoryFormat, Out, Value, Values};
use rushlight_core::{Device, Error, Result, Scalar};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::is_grad_enabled;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

struct Param {
    name: &'static str,
    kind: Kind,
    nullable: bool,
    default: Option<Value>,
}

struct Form {
    op: &'static Op,
    variant: &'static Variant,
    params: Vec<Param>,
    /// Parameters that may be given by position.
    positional: usize,
    inplace: bool,
}

/// All signatures that a name may mean, in the order in which they are tried.
pub struct Row {
    name: String,
    forms: Vec<Form>,
}

static FOUND: LazyLock<Mutex<HashMap<String, &'static Row>>> = LazyLock::new(Default::default);

fn parse(op: &'static Op, variant: &'static Variant, inplace: bool) -> Option<Form> {
    let mut params = Vec::new();
    let mut positional = 0;
    for (ty, name, value, keyword_only) in split(variant.text) {
        let (kind, nullable) = kind(ty)?;
        let default = match value {
            Some(value) => Some(default(value, kind)?),
            None => None,
        };
        positional += usize::from(!keyword_only);
        params.push(Param { name, kind, nullable, default });
    }
    Some(Form { op, variant, params, positional, inplace })
}

/// The rows of a name: `add`, `Tensor.add_`, `nn.functional.relu`, `linalg.norm`.
pub fn row(name: &str) -> Option<&'static Row> {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = found.get(name) {
        return Some(known);
    }
    let (homes, bare): (&[Home], &str) = if let Some(bare) = name.strip_prefix("Tensor.") {
        (&[Home::Method], bare)
    } else if let Some(bare) = name.strip_prefix("nn.functional.") {
        (&[Home::Functional], bare)
    } else if let Some(bare) = name.strip_prefix("linalg.").or_else(|| name.strip_prefix("linalg_")) {
        (&[Home::Linalg], bare)
    } else if let Some(bare) = name.strip_prefix("special.").or_else(|| name.strip_prefix("special_")) {
        (&[Home::Special], bare)
    } else if let Some(bare) = name.strip_prefix("fft.").or_else(|| name.strip_prefix("fft_")) {
        (&[Home::Fft], bare)
    } else {
        (&[Home::Torch, Home::Method, Home::Functional], name)
    };
    let mut forms = Vec::new();
    for &home in homes {
        for op in rows::TABLES.iter().flat_map(|table| table.iter().map(|entry| entry.op)) {
            let known = forms.iter().any(|f: &Form| std::ptr::eq(f.op, op));
            if op.name.trim_start_matches("r#") == bare && op.homes.contains(&home) && !known {
                forms.extend(op.variants.iter().filter_map(|v| parse(op, v, false)));
            }
        }
    }
    if let (true, Some(plain)) = (forms.is_empty(), bare.strip_suffix('_')) {
        for home in [Home::Inplace, Home::Functional] {
            for op in rows::TABLES.iter().flat_map(|table| table.iter().map(|entry| entry.op)) {
                if forms.is_empty() && op.name.trim_start_matches("r#") == plain && op.homes.contains(&home) {
                    forms.extend(op.variants.iter().filter_map(|v| parse(op, v, true)));
                }
            }
        }
    }
    if forms.is_empty() {
        return None;
    }
    // Rows live as long as the program; there are at most as many as names in the table.
    let made: &'static Row = Box::leak(Box::new(Row { name: name.to_string(), forms }));
    found.insert(name.to_string(), made);
    Some(made)
}

fn number(value: &IValue) -> Option<Scalar> {
    Some(match value {
        IValue::Bool(b) => Scalar::Bool(*b),
        IValue::Int(i) => Scalar::Int(*i),
        IValue::Float(x) => Scalar::Float(*x),
        _ => return None,
    })
}

/// A number, which a tensor without dimensions gives too.
fn read(value: &IValue) -> Option<Scalar> {
    match value {
        IValue::Tensor(t) if t.rank() == 0 && !t.requires_grad() => match t.dtype() {
            d if d.is_float() => t.item::<f64>().ok().map(Scalar::Float),
            rushlight_core::DType::Bool => t.item::<bool>().ok().map(Scalar::Bool),
            _ => t.item::<i64>().ok().map(Scalar::Int),
        },
        other => number(other),
    }
}

fn int(value: &IValue) -> Option<i64> {
    match value {
        IValue::Int(i) => Some(*i),
        IValue::Tensor(t) if t.rank() == 0 && !t.dtype().is_float() => t.item::<i64>().ok(),
        _ => None,
    }
}

fn ints(value: &IValue, repeat: usize) -> Option<Value> {
    let list: Ints = match value {
        IValue::List(_) | IValue::Tuple(_) => value.items().ok()?.iter().map(int).collect::<Option<_>>()?,
        other => return int(other).map(|i| Value::Ints(Ints::from_elem(i, repeat.max(1)))),
    };
    match (&list[..], repeat) {
        (&[one], 2..) => Some(Value::Ints(Ints::from_elem(one, repeat))),
        _ => Some(Value::Ints(list)),
    }
}

fn tensors(value: &IValue) -> Option<Vec<Tensor>> {
    let items = match value {
        IValue::List(_) | IValue::Tuple(_) => value.items().ok()?,
        _ => return None,
    };
    items.into_iter().map(|v| if let IValue::Tensor(t) = v { Some(t) } else { None }).collect()
}

/// A device's name as a device.
pub fn device(name: &str) -> Result<Device> {
    let (kind, index) = name.split_once(':').unwrap_or((name, "0"));
    let index = index.parse().map_err(|_| Error::device(format!("'{name}' is not a device")))?;
    match kind {
        "cpu" => Ok(Device::Cpu),
        "cuda" => Ok(Device::Cuda(index)),
        "xpu" => Ok(Device::Xpu(index)),
        "meta" => Ok(Device::Meta),
        _ => Err(Error::device(format!("device '{name}' is not supported; use cpu, cuda or xpu"))),
    }
}

fn convert(value: &IValue, param: &Param) -> Option<Value> {
    if matches!(value, IValue::None) {
        return param.nullable.then_some(Value::None);
    }
    Some(match param.kind {
        Kind::Tensor => match value {
            IValue::Tensor(t) => Value::Tensor(t.clone()),
            _ => return None,
        },
        Kind::TensorOrNumber => match value {
            IValue::Tensor(t) => Value::Tensor(t.clone()),
            other => Value::Scalar(number(other)?),
        },
        Kind::Tensors => Value::Tensors(tensors(value)?),
        Kind::Number => Value::Scalar(read(value)?),
        Kind::Int => Value::Scalar(Scalar::Int(int(value)?)),
        Kind::Ints(repeat) => {
            let list = ints(value, repeat)?;
            // aten's empty list stands for the default, as the stride of pooling.
            match (&list, repeat, &param.default) {
                (Value::Ints(v), 1.., Some(default)) if v.is_empty() => default.clone(),
                _ => list,
            }
        }
        Kind::IntsOrNone(repeat) => match value {
            IValue::List(_) | IValue::Tuple(_) => {
                let items = value.items().ok()?;
                let list = items.iter().map(|v| if matches!(v, IValue::None) { Some(-1) } else { int(v) });
                Value::Ints(list.collect::<Option<_>>()?)
            }
            other => ints(other, repeat)?,
        },
        Kind::VarInts => ints(value, 1)?,
        Kind::Float => Value::Scalar(Scalar::Float(read(value)?.to_f64())),
        Kind::Floats => match value {
            IValue::List(_) | IValue::Tuple(_) => {
                let items = value.items().ok()?;
                Value::Floats(items.iter().map(|v| read(v).map(|s| s.to_f64())).collect::<Option<_>>()?)
            }
            other => Value::Floats(vec![number(other)?.to_f64()]),
        },
        Kind::Bool => match value {
            IValue::Bool(b) => Value::Scalar(Scalar::Bool(*b)),
            _ => return None,
        },
        Kind::Str => match value {
            IValue::Str(s) => Value::Str(s.to_string()),
            _ => return None,
        },
        Kind::StrOrInts => match value {
            IValue::Str(s) => Value::Str(s.to_string()),
            other => ints(other, 1)?,
        },
        Kind::DType => match value {
            IValue::DType(d) => Value::DType(*d),
            IValue::Int(i) => Value::DType(crate::dtype::of(*i).ok()?),
            _ => return None,
        },
        Kind::Device => match value {
            IValue::Device(d) => Value::Device(*d),
            IValue::Str(s) => Value::Device(device(s).ok()?),
            _ => return None,
        },
        // There is one layout.
        Kind::Layout => Value::None,
        Kind::MemoryFormat => Value::MemoryFormat(match value {
            IValue::Int(0) => MemoryFormat::Contiguous,
            IValue::Int(1) => MemoryFormat::Preserve,
            IValue::Int(2) => MemoryFormat::ChannelsLast,
            IValue::Int(3) => MemoryFormat::ChannelsLast3d,
            _ => return None,
        }),
        Kind::Generator => return None,
    })
}

/// The values of a form's parameters; `None` if the arguments do not fit.
fn bind(form: &Form, args: &Args) -> Option<Values> {
    // Separate integers: `x.view(2, 3)`.
    let spread = form
        .params
        .iter()
        .position(|p| p.kind == Kind::VarInts)
        .filter(|&at| args.list.len() > at + 1 && args.list[at..].iter().all(|v| int(v).is_some()));
    let given = match spread {
        Some(at) => at + 1,
        None => args.list.len(),
    };
    if given > form.positional {
        return None;
    }
    let mut values = Values::new();
    let mut used = 0;
    for (at, param) in form.params.iter().enumerate() {
        let named = args.keywords.iter().find(|(n, _)| n == param.name || (at == 0 && (n == "self" || n == "input")));
        let value = match (at < given && at < form.positional, named) {
            (true, Some(_)) => return None,
            (true, None) if spread == Some(at) => {
                Some(Value::Ints(args.list[at..].iter().map(int).collect::<Option<_>>()?))
            }
            (true, None) => Some(convert(&args.list[at], param)?),
            (false, Some((_, value))) => {
                used += 1;
                Some(convert(value, param)?)
            }
            (false, None) => None,
        };
        values.push(match value {
            Some(value) => value,
            None => param.default.clone()?,
        });
    }
    (used == args.keywords.len()).then_some(values)
}

/// Where the value of a parameter comes from.
pub enum Source {
    /// A positional argument.
    At(usize),
    /// All positional arguments from this one on.
    Rest(usize),
    /// A keyword.
    Keyword(usize),
    /// Its default.
    Default(Value),
}

/// A parameter of a form, and where its value comes from.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Whether it is given by name alone.
    pub is_keyword: bool,
    /// Where the value comes from.
    pub source: Source,
}

/// The parameters of the first form that takes the arguments.
pub fn parameters(row: &Row, args: &Args) -> Option<Vec<Parameter>> {
    let form = row.forms.iter().find(|form| bind(form, args).is_some())?;
    let spread = form.params.iter().position(|p| p.kind == Kind::VarInts).filter(|&at| args.list.len() > at + 1);
    let mut out = Vec::new();
    for (at, param) in form.params.iter().enumerate() {
        let named =
            args.keywords.iter().position(|(n, _)| n == param.name || (at == 0 && (n == "self" || n == "input")));
        let source = match (spread, named) {
            (Some(rest), _) if rest == at => Source::Rest(at),
            (None, _) if at < args.list.len() => Source::At(at),
            (Some(rest), _) if at < rest => Source::At(at),
            (_, Some(index)) => Source::Keyword(index),
            (_, None) => Source::Default(param.default.clone()?),
        };
        out.push(Parameter { name: param.name, kind: param.kind, is_keyword: at >= form.positional, source });
    }
    Some(out)
}

/// Runs an in-place op that has no kernel of its own: computes, then copies.
fn inplace(form: &Form, values: &mut Values) -> Result<IValue> {
    let keep = is_grad_enabled() && values.iter().any(|v| matches!(v, Value::Tensor(t) if t.requires_grad()));
    let Some(Value::Tensor(first)) = values.first_mut() else {
        return Err(Error::value("the first argument must be a tensor"));
    };
    // Gradients of any operand may need the values that are overwritten.
    let before = if keep { first.copy()? } else { first.clone() };
    let target = std::mem::replace(first, before);
    let Out::Tensor(result) = (form.variant.call)(values)? else {
        return Err(Error::unsupported("this form has no in-place variant"));
    };
    if result.shape() != target.shape() {
        return Err(Error::shape(format!(
            "output with shape {:?} doesn't match the broadcast shape {:?}",
            target.shape(),
            result.shape()
        )));
    }
    target.copy_(&result)?;
    Ok(IValue::Tensor(target))
}

/// Calls the first form that takes the arguments.
pub fn call(row: &Row, args: &Args) -> Result<IValue> {
    for form in &row.forms {
        let Some(mut values) = bind(form, args) else { continue };
        if form.inplace {
            return inplace(form, &mut values);
        }
        return Ok(match (form.variant.call)(&values)? {
            Out::Tensor(t) => IValue::Tensor(t),
            Out::First => match values.into_iter().next() {
                Some(Value::Tensor(t)) => IValue::Tensor(t),
                _ => IValue::None,
            },
            Out::Tuple(all) | Out::Named(_, all) => IValue::tuple(all.into_iter().map(IValue::Tensor)),
            Out::List(all) => IValue::list(all.into_iter().map(IValue::Tensor)),
            Out::Scalar(Scalar::Bool(b)) => IValue::Bool(b),
            Out::Scalar(Scalar::Float(x)) => IValue::Float(x),
            Out::Scalar(s) => IValue::Int(s.to_i64()),
            Out::None => IValue::None,
        });
    }
    let mut given: Vec<String> = args.list.iter().map(describe).collect();
    given.extend(args.keywords.iter().map(|(n, v)| format!("{n}={}", describe(v))));
    let mut message = format!("no form takes ({}); '{}' has", given.join(", "), row.name);
    row.forms.iter().for_each(|f| message.push_str(&format!("\n * {}", f.variant.text)));
    Err(Error::value(message))
}

fn describe(value: &IValue) -> String {
    match value {
        IValue::Tensor(_) => "Tensor".into(),
        IValue::Object(_) => "object".into(),
        IValue::Str(s) => format!("'{}'", s.chars().take(40).collect::<String>()),
        other => other.to_string().chars().take(60).collect(),
    }
}
