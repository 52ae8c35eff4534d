//! Parameters in PyTorch's signature strings: types, names, defaults. Without the interpreter, so that the C front
//! reads the same strings.

use crate::value::Value;
use rushlight_core::Scalar;

/// The type of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Tensor,
    Tensors,
    TensorOrNumber,
    Number,
    Int,
    /// A list of integers; a single one is repeated this many times (0: a single one is rejected).
    Ints(usize),
    /// The same, but an element may be `None`, which becomes -1.
    IntsOrNone(usize),
    /// Separate integers, or a list of them.
    VarInts,
    Float,
    Floats,
    Bool,
    Str,
    /// A string or a list of integers, as for the padding of convolutions.
    StrOrInts,
    DType,
    Device,
    Generator,
    Layout,
    MemoryFormat,
}

/// The arguments of functions that make tensors.
const FACTORY: &str =
    "dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool requires_grad=False";

/// The type of a parameter and whether it may be `None`.
pub fn kind(text: &str) -> Option<(Kind, bool)> {
    let (text, nullable) = match text.strip_suffix('?') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let kind = match text {
        "Tensor" => Kind::Tensor,
        "Tensor[]" => Kind::Tensors,
        "Tensor|Number" => Kind::TensorOrNumber,
        "Number" => Kind::Number,
        "int" => Kind::Int,
        "int[]" => Kind::Ints(0),
        "int..." => Kind::VarInts,
        "float" => Kind::Float,
        "float[]" => Kind::Floats,
        "bool" => Kind::Bool,
        "str" => Kind::Str,
        "str|int[]" => Kind::StrOrInts,
        "dtype" => Kind::DType,
        "device" => Kind::Device,
        "Generator" => Kind::Generator,
        "layout" => Kind::Layout,
        "memory_format" => Kind::MemoryFormat,
        _ => match text.strip_prefix("int?[") {
            Some(count) => Kind::IntsOrNone(count.strip_suffix(']')?.parse().ok()?),
            None => Kind::Ints(text.strip_prefix("int[")?.strip_suffix(']')?.parse().ok()?),
        },
    };
    Some((kind, nullable))
}

/// The value of a default.
pub fn default(text: &str, kind: Kind) -> Option<Value> {
    Some(match (text, kind) {
        ("None", _) => Value::None,
        ("True", _) => Value::Scalar(Scalar::Bool(true)),
        ("False", _) => Value::Scalar(Scalar::Bool(false)),
        ("inf", _) => Value::Scalar(Scalar::Float(f64::INFINITY)),
        (_, Kind::Str | Kind::StrOrInts) if text.starts_with('\'') => Value::Str(text.trim_matches('\'').to_string()),
        (_, Kind::Ints(_) | Kind::VarInts | Kind::StrOrInts) => {
            let inner = text.trim_matches(['(', ')', ' ']);
            let items = inner.split(',').map(str::trim).filter(|s| !s.is_empty());
            let ints = items.map(|s| s.parse().ok()).collect::<Option<Vec<i64>>>()?;
            let count = if let Kind::Ints(n) = kind { n } else { 0 };
            match (&ints[..], count) {
                (&[one], 1..) => Value::Ints(vec![one; count].into()),
                _ => Value::Ints(ints.into()),
            }
        }
        _ => match text.parse::<i64>() {
            Ok(i) if kind != Kind::Float => Value::Scalar(Scalar::Int(i)),
            _ => Value::Scalar(Scalar::Float(text.parse().ok()?)),
        },
    })
}

/// Parameters as written: (type, name, default, keyword only).
pub fn split(text: &'static str) -> Vec<(&'static str, &'static str, Option<&'static str>, bool)> {
    let inner = text.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).map_or("", |(inner, _)| inner);
    let mut pieces = commas(inner);
    if pieces.last() == Some(&"**factory") {
        pieces.pop();
        pieces.push("*");
        pieces.extend(commas(FACTORY));
    }
    let (mut out, mut keyword_only) = (Vec::new(), false);
    for piece in pieces {
        match piece {
            "*" => keyword_only = true,
            "" => {}
            _ => out.push(one(piece, keyword_only)),
        }
    }
    out
}

fn one(piece: &'static str, keyword_only: bool) -> (&'static str, &'static str, Option<&'static str>, bool) {
    let (head, default) = match piece.split_once('=') {
        Some((head, default)) => (head, Some(default)),
        None => (piece, None),
    };
    let (ty, name) = head.trim().rsplit_once(' ').unwrap_or(("", head));
    (ty, name, default, keyword_only)
}

/// Splits at commas outside brackets.
fn commas(text: &'static str) -> Vec<&'static str> {
    let (mut depth, mut start, mut out) = (0i32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(text[start..].trim());
    out
}
