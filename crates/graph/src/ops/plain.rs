//! Ops on plain values: numbers, strings, lists, dictionaries, and questions about tensors.

use super::{Args, Own};
use crate::ivalue::IValue;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::sync::{Arc, PoisonError};

type Found = Result<Option<IValue>>;

fn some(value: impl Into<IValue>) -> Found {
    Ok(Some(value.into()))
}

/// Elements that a loop visits: of a list, tuple or tensor, keys of a dictionary, characters of a string.
pub fn elements(value: &IValue) -> Result<Vec<IValue>> {
    match value {
        IValue::Dict(entries) => {
            Ok(entries.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(k, _)| k.clone()).collect())
        }
        IValue::Str(s) => Ok(s.chars().map(|c| IValue::from(c.to_string().as_str())).collect()),
        other => other.items(),
    }
}

fn position(index: i64, length: usize) -> Result<usize> {
    let at = if index < 0 { index + length as i64 } else { index };
    usize::try_from(at)
        .ok()
        .filter(|&at| at < length)
        .ok_or_else(|| Error::index(format!("index {index} is out of range for {length} elements")))
}

/// `value[index]`.
pub fn get_item(value: &IValue, index: &IValue) -> Result<IValue> {
    match value {
        IValue::Dict(entries) => {
            let entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
            let found = entries.iter().find(|(k, _)| k.same(index)).map(|(_, v)| v.clone());
            found.ok_or_else(|| Error::value(format!("the dictionary has no key {index}")))
        }
        IValue::Tensor(t) => match index {
            IValue::Int(i) => Ok(IValue::Tensor(t.select(0, *i as isize)?)),
            other => Err(Error::unsupported(format!(
                "a tensor indexed by {}; programs use select, slice and index",
                other.kind()
            ))),
        },
        IValue::Object(object) => {
            let fields = object.fields();
            Ok(fields[position(index.to_int()?, fields.len())?].1.clone())
        }
        IValue::Str(_) => {
            let items = elements(value)?;
            Ok(items[position(index.to_int()?, items.len())?].clone())
        }
        other => {
            let items = other.items()?;
            Ok(items[position(index.to_int()?, items.len())?].clone())
        }
    }
}

/// `value[index] = item`.
pub fn set_item(value: &IValue, index: &IValue, item: IValue) -> Result<()> {
    match value {
        IValue::List(items) => {
            let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
            let at = position(index.to_int()?, items.len())?;
            items[at] = item;
            Ok(())
        }
        IValue::Dict(entries) => {
            let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
            match entries.iter_mut().find(|(k, _)| k.same(index)) {
                Some((_, old)) => *old = item,
                None => entries.push((index.clone(), item)),
            }
            Ok(())
        }
        IValue::Tensor(t) => {
            let part = t.select(0, index.to_int()? as isize)?;
            super::call("Tensor.copy_", vec![IValue::Tensor(part), item]).map(drop)
        }
        other => Err(Error::value(format!("items of {} cannot be set", other.kind()))),
    }
}

fn is_number(value: &IValue) -> bool {
    matches!(value, IValue::Bool(_) | IValue::Int(_) | IValue::Float(_))
}

fn is_float(value: &IValue) -> bool {
    matches!(value, IValue::Float(_))
}

/// Arithmetic of two numbers.
fn arithmetic(args: &Args, ints: fn(i64, i64) -> Option<i64>, floats: fn(f64, f64) -> f64) -> Found {
    match &args.list[..] {
        [a, b, ..] if is_number(a) && is_number(b) => {
            if is_float(a) || is_float(b) {
                return some(floats(a.to_float()?, b.to_float()?));
            }
            match ints(a.to_int()?, b.to_int()?) {
                Some(value) => some(value),
                None => Err(Error::value("integer overflow or division by zero")),
            }
        }
        _ => Ok(None),
    }
}

fn compare(args: &Args, test: fn(std::cmp::Ordering) -> bool) -> Found {
    use std::cmp::Ordering;
    let order = match &args.list[..] {
        [IValue::Str(a), IValue::Str(b)] => Some(a.cmp(b)),
        [a, b] if is_float(a) && is_number(b) || is_float(b) && is_number(a) => {
            a.to_float()?.partial_cmp(&b.to_float()?)
        }
        [a, b] if is_number(a) && is_number(b) => Some(a.to_int()?.cmp(&b.to_int()?)),
        _ => return Ok(None),
    };
    some(order.is_some_and(|o: Ordering| test(o)))
}

fn same(args: &Args, equal: bool) -> Found {
    match &args.list[..] {
        [IValue::Tensor(_), _] | [_, IValue::Tensor(_)] => Ok(None),
        [a, b] => some(a.same(b) == equal),
        _ => Ok(None),
    }
}

fn tensor(args: &Args) -> Option<&Tensor> {
    match args.list.first() {
        Some(IValue::Tensor(t)) => Some(t),
        _ => None,
    }
}

fn sizes(t: &Tensor) -> IValue {
    IValue::list(t.shape().iter().map(|&n| IValue::Int(n as i64)))
}

fn floor_mod(a: i64, b: i64) -> Option<i64> {
    let r = a.checked_rem(b)?;
    Some(if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

fn unary(args: &Args, f: fn(f64) -> f64) -> Found {
    match &args.list[..] {
        [a] if is_number(a) => some(f(a.to_float()?)),
        _ => Ok(None),
    }
}

fn rounded(args: &Args, f: fn(f64) -> f64) -> Found {
    match &args.list[..] {
        [a] if is_number(a) => some(f(a.to_float()?) as i64),
        _ => Ok(None),
    }
}

/// The extreme of numbers in a list, or of two.
fn extreme(args: &Args, first: fn(f64, f64) -> bool) -> Found {
    let items = match &args.list[..] {
        [a, b] if is_number(a) && is_number(b) => args.list.clone(),
        [IValue::List(_)] => args.list[0].items()?,
        _ => return Ok(None),
    };
    let mut best: Option<IValue> = None;
    for item in items {
        if !is_number(&item) {
            return Ok(None);
        }
        if best.as_ref().is_none_or(|b| first(item.to_float().unwrap_or(0.0), b.to_float().unwrap_or(0.0))) {
            best = Some(item);
        }
    }
    best.map(Some).ok_or_else(|| Error::value("an empty list has no minimum or maximum"))
}

fn length(args: &Args) -> Found {
    match args.list.first() {
        Some(IValue::Tensor(t)) => some(t.size(0)? as i64),
        Some(value) => some(elements(value)?.len() as i64),
        None => Ok(None),
    }
}

/// `text.format(…)`.
fn format(args: &Args) -> Found {
    let Some(IValue::Str(text)) = args.list.first() else { return Ok(None) };
    let mut out = String::new();
    let mut values = args.list[1..].iter();
    let mut rest: &str = text;
    while let Some(at) = rest.find("{}") {
        out.push_str(&rest[..at]);
        if let Some(value) = values.next() {
            out.push_str(&value.to_string());
        }
        rest = &rest[at + 2..];
    }
    out.push_str(rest);
    some(out.as_str())
}

fn list_slice(args: &Args) -> Found {
    let value = match args.list.first() {
        Some(value @ (IValue::List(_) | IValue::Tuple(_) | IValue::Str(_))) => value,
        _ => return Ok(None),
    };
    let items = elements(value)?;
    let n = items.len() as i64;
    let step = args.get(3, "step").map_or(Ok(1), IValue::to_int)?;
    if step <= 0 {
        return Err(Error::value("slices of lists need a positive step"));
    }
    let clip = |v: Option<&IValue>, otherwise: i64| match v {
        None | Some(IValue::None) => Ok(otherwise),
        Some(v) => v.to_int().map(|i| (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n)),
    };
    let (start, end) = (clip(args.get(1, "start"), 0)?, clip(args.get(2, "end"), n)?);
    let part: Vec<IValue> = items
        .into_iter()
        .enumerate()
        .filter(|(i, _)| (*i as i64) >= start && (*i as i64) < end && (*i as i64 - start) % step == 0)
        .map(|(_, v)| v)
        .collect();
    Ok(Some(match value {
        IValue::List(_) => IValue::list(part),
        IValue::Tuple(_) => IValue::tuple(part),
        _ => IValue::from(part.iter().map(ToString::to_string).collect::<String>().as_str()),
    }))
}

fn with_list(args: &Args, change: impl FnOnce(&mut Vec<IValue>) -> Result<IValue>) -> Found {
    match args.list.first() {
        Some(IValue::List(items)) => change(&mut items.lock().unwrap_or_else(PoisonError::into_inner)).map(Some),
        _ => Ok(None),
    }
}

fn dictionary(args: &Args, part: fn(&(IValue, IValue)) -> IValue) -> Found {
    match args.list.first() {
        Some(IValue::Dict(entries)) => {
            Ok(Some(IValue::list(entries.lock().unwrap_or_else(PoisonError::into_inner).iter().map(part))))
        }
        _ => Ok(None),
    }
}

/// Ops of `torch.` on plain values; those also on tensors give `None` for them.
pub fn find(name: &str) -> Option<Own> {
    Some(match name {
        "size" => |a| match (tensor(a), a.get(1, "dim")) {
            (Some(t), None | Some(IValue::None)) => Ok(Some(sizes(t))),
            (Some(t), Some(dim)) => some(t.size(dim.to_int()? as isize)? as i64),
            _ => Ok(None),
        },
        "sym_size" => |a| match (tensor(a), a.get(1, "dim")) {
            (Some(t), Some(dim)) => some(t.size(dim.to_int()? as isize)? as i64),
            _ => Ok(None),
        },
        "dim" => |a| tensor(a).map_or(Ok(None), |t| some(t.rank() as i64)),
        "numel" => |a| tensor(a).map_or(Ok(None), |t| some(t.numel() as i64)),
        "is_grad_enabled" => |_| some(rushlight_tensor::autograd::is_grad_enabled()),
        "is_autocast_enabled" | "is_scripting" | "is_tracing" => |_| some(false),
        "len" => length,
        "format" => format,
        "append" => |a| {
            let item = a.need(1, "el")?.clone();
            with_list(a, |items| {
                items.push(item);
                Ok(IValue::None)
            })
        },
        "extend" => |a| {
            let more = a.need(1, "other")?.items()?;
            with_list(a, |items| {
                items.extend(more);
                Ok(IValue::None)
            })
        },
        "insert" => |a| {
            let (at, item) = (a.need(1, "idx")?.to_int()?, a.need(2, "el")?.clone());
            with_list(a, |items| {
                let n = items.len() as i64;
                let at = (if at < 0 { at + n } else { at }).clamp(0, n) as usize;
                items.insert(at, item);
                Ok(IValue::None)
            })
        },
        "pop" => |a| {
            let at = a.get(1, "idx").map_or(Ok(-1), IValue::to_int)?;
            with_list(a, |items| {
                let at = position(at, items.len())?;
                Ok(items.remove(at))
            })
        },
        "clear" => |a| {
            with_list(a, |items| {
                items.clear();
                Ok(IValue::None)
            })
        },
        "reverse" => |a| {
            with_list(a, |items| {
                items.reverse();
                Ok(IValue::None)
            })
        },
        "list" => |a| Ok(Some(IValue::list(elements(a.need(0, "l")?)?))),
        "keys" => |a| dictionary(a, |(k, _)| k.clone()),
        "values" => |a| dictionary(a, |(_, v)| v.clone()),
        "items" => |a| dictionary(a, |(k, v)| IValue::tuple([k.clone(), v.clone()])),
        "__getitem__" => |a| get_item(a.need(0, "value")?, a.need(1, "index")?).map(Some),
        "_set_item" => |a| {
            set_item(a.need(0, "value")?, a.need(1, "index")?, a.need(2, "item")?.clone())?;
            some(IValue::None)
        },
        "__contains__" => |a| {
            let item = a.need(1, "item")?;
            match a.need(0, "container")? {
                IValue::Str(text) => some(text.contains(&*item.to_str()?)),
                container => some(elements(container)?.iter().any(|v| v.same(item))),
            }
        },
        "__is__" => |a| some(a.need(0, "a")?.is(a.need(1, "b")?)),
        "__isnot__" => |a| some(!a.need(0, "a")?.is(a.need(1, "b")?)),
        "__not__" => |a| some(!a.need(0, "a")?.truth()?),
        "__and__" => |a| match &a.list[..] {
            [IValue::Bool(x), IValue::Bool(y)] => some(*x && *y),
            [IValue::Int(x), IValue::Int(y)] => some(x & y),
            _ => Ok(None),
        },
        "__or__" => |a| match &a.list[..] {
            [IValue::Bool(x), IValue::Bool(y)] => some(*x || *y),
            [IValue::Int(x), IValue::Int(y)] => some(x | y),
            _ => Ok(None),
        },
        "add" => |a| match &a.list[..] {
            [x @ (IValue::List(_) | IValue::Tuple(_)), y] => {
                let mut items = x.items()?;
                items.extend(y.items()?);
                Ok(Some(if let IValue::List(_) = x { IValue::list(items) } else { IValue::tuple(items) }))
            }
            [IValue::Str(x), IValue::Str(y)] => some(format!("{x}{y}").as_str()),
            _ => arithmetic(a, i64::checked_add, |x, y| x + y),
        },
        "sub" => |a| arithmetic(a, i64::checked_sub, |x, y| x - y),
        "mul" => |a| match &a.list[..] {
            [x @ IValue::List(_), IValue::Int(n)] => {
                let items = x.items()?;
                let n = usize::try_from(*n).unwrap_or(0);
                if items.len().saturating_mul(n) > 1 << 20 {
                    return Err(Error::value("a list of more than a million elements"));
                }
                Ok(Some(IValue::list(std::iter::repeat_n(items, n).flatten())))
            }
            _ => arithmetic(a, i64::checked_mul, |x, y| x * y),
        },
        "div" => |a| match &a.list[..] {
            [x, y] if is_number(x) && is_number(y) => some(x.to_float()? / y.to_float()?),
            _ => Ok(None),
        },
        "floordiv" => |a| match &a.list[..] {
            [IValue::Tensor(_), ..] | [_, IValue::Tensor(_)] => super::call("floor_divide", a.list.clone()).map(Some),
            _ => arithmetic(a, floor_div, |x, y| (x / y).floor()),
        },
        "floor_divide" => |a| arithmetic(a, floor_div, |x, y| (x / y).floor()),
        "remainder" => |a| arithmetic(a, floor_mod, |x, y| x - (x / y).floor() * y),
        "fmod" => |a| arithmetic(a, i64::checked_rem, |x, y| x % y),
        "pow" => |a| match &a.list[..] {
            [IValue::Int(x), IValue::Int(y)] if *y >= 0 => {
                match u32::try_from(*y).ok().and_then(|y| x.checked_pow(y)) {
                    Some(v) => some(v),
                    None => Err(Error::value("integer overflow")),
                }
            }
            [x, y] if is_number(x) && is_number(y) => some(x.to_float()?.powf(y.to_float()?)),
            _ => Ok(None),
        },
        "neg" => |a| match &a.list[..] {
            [IValue::Int(x)] => some(x.wrapping_neg()),
            [IValue::Float(x)] => some(-x),
            [IValue::Bool(x)] => some(-i64::from(*x)),
            _ => Ok(None),
        },
        "abs" => |a| match &a.list[..] {
            [IValue::Int(x)] => some(x.wrapping_abs()),
            [IValue::Float(x)] => some(x.abs()),
            _ => Ok(None),
        },
        "sqrt" => |a| unary(a, f64::sqrt),
        "exp" => |a| unary(a, f64::exp),
        "log" => |a| unary(a, f64::ln),
        "floor" => |a| rounded(a, f64::floor),
        "ceil" => |a| rounded(a, f64::ceil),
        "round" => |a| rounded(a, f64::round_ties_even),
        "eq" => |a| same(a, true),
        "ne" => |a| same(a, false),
        "lt" => |a| compare(a, |o| o.is_lt()),
        "le" => |a| compare(a, |o| o.is_le()),
        "gt" => |a| compare(a, |o| o.is_gt()),
        "ge" => |a| compare(a, |o| o.is_ge()),
        "any" => |a| match &a.list[..] {
            [items @ IValue::List(_)] => some(items.items()?.iter().any(|v| v.truth().unwrap_or(false))),
            _ => Ok(None),
        },
        "all" => |a| match &a.list[..] {
            [items @ IValue::List(_)] => some(items.items()?.iter().all(|v| v.truth().unwrap_or(false))),
            _ => Ok(None),
        },
        "slice" => list_slice,
        "warn" => |_| some(IValue::None),
        "Int" | "IntImplicit" => |a| a.need(0, "a")?.to_int().map(|i| Some(i.into())),
        "Float" | "FloatImplicit" => |a| a.need(0, "a")?.to_float().map(|x| Some(x.into())),
        "Bool" => |a| a.need(0, "a")?.truth().map(|b| Some(b.into())),
        "ScalarImplicit" | "Number" | "item" => |a| match a.need(0, "a")? {
            IValue::Tensor(t) if t.dtype().is_float() => t.item::<f64>().map(|x| Some(x.into())),
            IValue::Tensor(t) if t.dtype() == rushlight_core::DType::Bool => t.item::<bool>().map(|x| Some(x.into())),
            other => other.to_int().map(|i| Some(i.into())),
        },
        "device" => |a| match a.need(0, "name")? {
            IValue::Str(name) => super::bind::device(name).map(|d| Some(IValue::Device(d))),
            IValue::Device(d) => Ok(Some(IValue::Device(*d))),
            _ => Ok(None),
        },
        "join" => |a| match &a.list[..] {
            [IValue::Str(by), items] => {
                let parts: Vec<String> = items.items()?.iter().map(ToString::to_string).collect();
                some(parts.join(by).as_str())
            }
            _ => Ok(None),
        },
        "get_fastpath_enabled" => |_| some(false),
        _ => return None,
    })
}

/// `ops.prim.…`.
pub(super) fn prim(name: &str) -> Option<Own> {
    Some(match name {
        "NumToTensor" => |a| match a.need(0, "a")? {
            IValue::Float(x) => Ok(Some(Tensor::scalar(*x)?.into())),
            IValue::Bool(b) => Ok(Some(Tensor::scalar(*b)?.into())),
            other => Ok(Some(Tensor::scalar(other.to_int()?)?.into())),
        },
        "RaiseException" => |a| Err(Error::value(format!("the program raised an error: {}", a.need(0, "message")?))),
        "dtype" => |a| tensor(a).map_or(Ok(None), |t| some(i64::from(crate::dtype::number(t.dtype())))),
        "device" => |a| tensor(a).map_or(Ok(None), |t| Ok(Some(IValue::Device(t.device())))),
        "requires_grad" => |a| tensor(a).map_or(Ok(None), |t| some(t.requires_grad())),
        "is_cuda" => |a| tensor(a).map_or(Ok(None), |t| some(matches!(t.device(), rushlight_core::Device::Cuda(_)))),
        "is_nested" | "is_mkldnn" | "is_quantized" | "is_sparse" | "is_xpu" | "is_meta" | "is_mps" => |_| some(false),
        "layout" => |_| some(0i64),
        "type" => |a| match a.need(0, "device")? {
            IValue::Device(d) => some(d.to_string().split(':').next().unwrap_or("")),
            _ => Ok(None),
        },
        "shape" => |a| tensor(a).map_or(Ok(None), |t| Ok(Some(sizes(t)))),
        "data" => |a| tensor(a).map_or(Ok(None), |t| Ok(Some(t.detach().into()))),
        "min" => |a| extreme(a, |x, y| x < y),
        "max" => |a| extreme(a, |x, y| x > y),
        "abs" | "neg" => |a| match &a.list[..] {
            [IValue::Int(x)] => some(x.abs()),
            _ => Ok(None),
        },
        "unchecked_cast" | "unchecked_unwrap_optional" => |a| Ok(Some(a.need(0, "a")?.clone())),
        "rangelist" => |a| Ok(Some(IValue::list((0..a.need(0, "n")?.to_int()?).map(IValue::Int)))),
        _ => return None,
    })
}

/// Functions of Python.
pub(super) fn builtin(name: &str) -> Option<Own> {
    Some(match name {
        "int" => |a| a.need(0, "x")?.to_int().map(|i| Some(i.into())),
        "float" => |a| a.need(0, "x")?.to_float().map(|x| Some(x.into())),
        "bool" => |a| a.need(0, "x")?.truth().map(|b| Some(b.into())),
        "str" => |a| some(a.need(0, "x")?.to_string().as_str()),
        "len" => length,
        "list" => |a| Ok(Some(IValue::list(elements(a.need(0, "x")?)?))),
        "min" => |a| extreme(a, |x, y| x < y),
        "max" => |a| extreme(a, |x, y| x > y),
        "print" => |_| some(IValue::None),
        "range" => |a| {
            let n = a.need(0, "n")?.to_int()?;
            if n > 1 << 20 {
                return Err(Error::value("a list of more than a million elements"));
            }
            Ok(Some(IValue::list((0..n).map(IValue::Int))))
        },
        _ => return None,
    })
}

/// A list's elements as tensors.
pub(crate) fn tensors(value: &IValue) -> Result<Vec<Tensor>> {
    value.items()?.iter().map(IValue::to_tensor).collect()
}

impl From<Arc<str>> for IValue {
    fn from(text: Arc<str>) -> Self {
        IValue::Str(text)
    }
}
