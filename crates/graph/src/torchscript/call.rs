//! Calls of ops under aten's names, with arguments in aten's order.

use super::code::{Piece, float};
use super::functional;
use super::refused;
use super::types::{self, Ty};
use crate::ivalue::IValue;
use crate::ops::{self, Args, bind};
use crate::params::Kind;
use crate::value::{MemoryFormat, Value};
use rushlight_core::{Error, Result, Scalar};

/// An argument of a row: its parameter and its text.
pub(super) struct Argument {
    pub name: &'static str,
    pub is_keyword: bool,
    /// Whether the program gives it.
    pub is_given: bool,
    pub piece: Piece,
}

/// Ops of the table that aten lacks; `functional` has some of them by other names.
const ABSENT: [&str; 14] = [
    "cholesky",
    "qr",
    "unique",
    "_einsum_path",
    "_gammainc",
    "_gammaincc",
    "_zeta",
    "_nms",
    "_pool_regions",
    "_deform_conv2d",
    "_fractional_max_pool",
    "_bags",
    "_affine_grid",
    "_cell",
];

/// Ops that Python functions call by a name with an underscore.
const WRAPPED: [&str; 10] = [
    "_atleast_1d",
    "_atleast_2d",
    "_atleast_3d",
    "_block_diag",
    "_broadcast_tensors",
    "_cartesian_prod",
    "_chain_matmul",
    "_einsum",
    "_meshgrid",
    "_tensordot",
];

fn none(path: &str) -> Error {
    refused(&format!("the op '{path}'"))
}

/// The op's name in aten, without `torch.`.
fn bare(path: &str) -> Option<(&'static str, String)> {
    for (prefix, space) in [("linalg.", "linalg_"), ("special.", "special_"), ("fft.", "fft_"), ("nn.functional.", "")]
    {
        if let Some(name) = path.strip_prefix(prefix) {
            let home = if space.is_empty() { "functional" } else { "torch" };
            return Some((home, format!("{space}{name}")));
        }
    }
    let name = path
        .strip_prefix("torch.")
        .or_else(|| path.strip_prefix("ops.aten."))
        .or_else(|| path.strip_prefix("Tensor."))?;
    Some(("torch", name.to_string()))
}

/// A call of a path with arguments by position and by name.
pub(super) fn call(path: &str, args: &[Piece], keywords: &[(String, Piece)]) -> Result<Piece> {
    let types: Vec<Ty> = args.iter().map(|p| p.ty.clone()).collect();
    if let Some(found) = plain(path, args, &types) {
        return Ok(found);
    }
    let Some((home, name)) = bare(path) else { return Err(none(path)) };
    // Their elements' types would have to be known before there are any.
    if ["append", "extend", "insert", "pop", "clear", "_set_item"].contains(&name.as_str()) {
        return Err(refused("a list or dictionary that the program changes"));
    }
    if name.contains('.') || ABSENT.contains(&name.as_str()) {
        return Err(none(path));
    }
    let by_dim = matches!(types.get(1), Some(Ty::Int)) || keywords.iter().any(|(n, _)| n == "dim");
    let ty = types::result(name.trim_start_matches("linalg_"), &types, by_dim);
    let ty = if ty == Ty::Tensor { types::result(&name, &types, by_dim) } else { ty };
    // aten's own form: the arguments are in its order already.
    let is_own = path.starts_with("torch.") || path.starts_with("ops.aten.");
    if is_own && (ops::plain::find(&name).is_some() || ops::aten::find(&name).is_some()) {
        return Ok(Piece::new(verbatim(&name, args, keywords), ty));
    }
    let row = bind::row(path.strip_prefix("torch.").or_else(|| path.strip_prefix("ops.aten.")).unwrap_or(path));
    let Some(found) = row.map(|row| arguments(row, args, keywords)).transpose()?.flatten() else {
        return Err(none(path));
    };
    if let Some(text) = functional::write(home, &name, &found)? {
        return Ok(Piece::new(text, ty));
    }
    if home == "functional" {
        return Err(none(path));
    }
    let name = match WRAPPED.contains(&name.as_str()) {
        true => &name[1..],
        false if name.starts_with('_') => return Err(none(path)),
        false => &name,
    };
    generic(name, &found).map(|text| Piece::new(text, ty))
}

/// Python's own functions, and TorchScript's.
fn plain(path: &str, args: &[Piece], types: &[Ty]) -> Option<Piece> {
    let texts: Vec<&str> = args.iter().map(|p| p.text.as_str()).collect();
    let text = format!("{path}({})", texts.join(", "));
    let ty = match path {
        "int" | "len" | "ops.prim.dtype" => Ty::Int,
        "float" => Ty::Float,
        "bool"
        | "ops.prim.is_cuda"
        | "ops.prim.is_nested"
        | "ops.prim.is_mkldnn"
        | "ops.prim.is_quantized"
        | "ops.prim.is_sparse"
        | "ops.prim.is_xpu"
        | "ops.prim.is_meta"
        | "ops.prim.is_mps"
        | "ops.prim.requires_grad" => Ty::Bool,
        "ops.prim.layout" => Ty::Int,
        "ops.prim.data" => Ty::Tensor,
        "ops.prim.RaiseException" => Ty::None,
        "unchecked_cast" | "ops.prim.unchecked_cast" | "ops.prim.unchecked_unwrap_optional" => {
            return args.last().cloned();
        }
        "str" | "ops.prim.type" => Ty::Str,
        "list" => types.first().cloned().unwrap_or(Ty::Tensor),
        "range" => Ty::list(Ty::Int),
        "min" | "max" | "ops.prim.min" | "ops.prim.max" => types.first().map(|t| match t {
            Ty::List(inner) => (**inner).clone(),
            other => other.clone(),
        })?,
        "ops.prim.NumToTensor" => Ty::Tensor,
        "ops.prim.device" => Ty::Device,
        "ops.prim.shape" => Ty::list(Ty::Int),
        "torch.device" => Ty::Device,
        _ => return None,
    };
    Some(Piece::new(text, ty))
}

fn verbatim(name: &str, args: &[Piece], keywords: &[(String, Piece)]) -> String {
    let mut parts: Vec<String> = args.iter().map(|p| p.text.clone()).collect();
    if let ("tensor" | "scalar_tensor", Some(dtype)) = (name, args.get(1)) {
        parts[1] = format!("dtype={}", dtype.text);
    }
    parts.extend(keywords.iter().map(|(n, p)| format!("{n}={}", p.text)));
    format!("torch.{name}({})", parts.join(", "))
}

/// The arguments of the form that takes these types, by the row's parameters.
fn arguments(row: &'static bind::Row, args: &[Piece], keywords: &[(String, Piece)]) -> Result<Option<Vec<Argument>>> {
    let example = |piece: &Piece| match &piece.value {
        Some(value) => Ok(value.clone()),
        None => match &piece.items {
            Some(items) => Ok(IValue::list(
                items.iter().map(|p| p.value.clone().map_or_else(|| p.ty.example(), Ok)).collect::<Result<Vec<_>>>()?,
            )),
            None => piece.ty.example(),
        },
    };
    let given = Args {
        list: args.iter().map(example).collect::<Result<_>>()?,
        keywords: keywords.iter().map(|(n, p)| Ok((n.clone(), example(p)?))).collect::<Result<_>>()?,
        asked: Default::default(),
    };
    let Some(found) = bind::parameters(row, &given) else { return Ok(None) };
    let mut out = Vec::new();
    for parameter in found {
        let (piece, is_given) = match parameter.source {
            bind::Source::At(at) => (args[at].clone(), true),
            bind::Source::Rest(at) => {
                let texts: Vec<&str> = args[at..].iter().map(|p| p.text.as_str()).collect();
                (Piece::new(format!("[{}]", texts.join(", ")), Ty::list(Ty::Int)), true)
            }
            bind::Source::Keyword(at) => (keywords[at].1.clone(), true),
            bind::Source::Default(value) => (default(&value)?, false),
        };
        let piece = fitted(piece, parameter.kind)?;
        out.push(Argument { name: parameter.name, is_keyword: parameter.is_keyword, is_given, piece });
    }
    Ok(Some(out))
}

fn default(value: &Value) -> Result<Piece> {
    Ok(match value {
        Value::Scalar(Scalar::Bool(b)) => Piece::literal(IValue::Bool(*b))?,
        Value::Scalar(Scalar::Float(x)) => Piece::literal(IValue::Float(*x))?,
        Value::Scalar(s) => Piece::literal(IValue::Int(s.to_i64()))?,
        Value::Ints(list) => {
            let texts: Vec<String> = list.iter().map(i64::to_string).collect();
            Piece::new(format!("[{}]", texts.join(", ")), Ty::list(Ty::Int))
        }
        Value::Str(s) => Piece::literal(s.as_str().into())?,
        Value::DType(d) => Piece::literal(IValue::DType(*d))?,
        Value::Device(d) => Piece::literal(IValue::Device(*d))?,
        Value::MemoryFormat(m) => Piece::literal(IValue::Int(match m {
            MemoryFormat::Contiguous => 0,
            MemoryFormat::Preserve => 1,
            MemoryFormat::ChannelsLast => 2,
            MemoryFormat::ChannelsLast3d => 3,
        }))?,
        _ => Piece::literal(IValue::None)?,
    })
}

/// An argument as aten's type wants it: floats with a point, lists where Python takes one number.
fn fitted(piece: Piece, kind: Kind) -> Result<Piece> {
    if piece.is_none() {
        return Ok(piece);
    }
    let real = |piece: &Piece| match &piece.value {
        Some(value) => value.to_float().map(float),
        None if piece.ty == Ty::Float => Ok(piece.text.clone()),
        None => Ok(format!("float({})", piece.text)),
    };
    Ok(match kind {
        Kind::Float => Piece { text: real(&piece)?, ty: Ty::Float, ..piece },
        Kind::Ints(count) | Kind::IntsOrNone(count) if piece.ty == Ty::Int => {
            let texts = vec![piece.text.as_str(); count.max(1)];
            Piece::new(format!("[{}]", texts.join(", ")), Ty::list(Ty::Int))
        }
        Kind::Ints(count @ 2..) | Kind::IntsOrNone(count @ 2..) => match &piece.items {
            Some(items) if items.len() == 1 => {
                let texts = vec![items[0].text.as_str(); count];
                Piece::new(format!("[{}]", texts.join(", ")), Ty::list(Ty::Int))
            }
            Some(items) if items.iter().any(Piece::is_none) => {
                return Err(refused("a size that stays as it is (None in adaptive pooling)"));
            }
            _ => listed(piece),
        },
        Kind::Ints(_) | Kind::IntsOrNone(_) | Kind::StrOrInts | Kind::Tensors => listed(piece),
        Kind::VarInts if piece.ty == Ty::Int => Piece::new(format!("[{}]", piece.text), Ty::list(Ty::Int)),
        Kind::VarInts => listed(piece),
        Kind::Floats => match &piece.items {
            Some(items) => {
                let texts = items.iter().map(real).collect::<Result<Vec<_>>>()?;
                Piece { text: format!("[{}]", texts.join(", ")), ..piece }
            }
            None if piece.ty.is_number() => Piece { text: format!("[{}]", real(&piece)?), ..piece },
            None => piece,
        },
        _ => piece,
    })
}

/// A tuple that is written out, as a list.
fn listed(piece: Piece) -> Piece {
    match (&piece.items, &piece.ty) {
        (Some(items), Ty::Tuple(_)) => {
            let texts: Vec<&str> = items.iter().map(|p| p.text.as_str()).collect();
            let text = format!("[{}]", texts.join(", "));
            Piece { text, ..piece }
        }
        _ => piece,
    }
}

/// A call with the row's parameters: those by name alone are by name in aten too.
fn generic(name: &str, arguments: &[Argument]) -> Result<String> {
    let positional: Vec<&Argument> = arguments.iter().filter(|a| !a.is_keyword).collect();
    let count = positional.iter().rposition(|a| a.is_given).map_or(0, |at| at + 1);
    let mut parts: Vec<String> = positional[..count].iter().map(|a| a.piece.text.clone()).collect();
    for argument in arguments.iter().filter(|a| a.is_keyword && a.is_given) {
        match (argument.name, &argument.piece.value) {
            ("requires_grad", Some(IValue::Bool(false))) | (_, Some(IValue::None)) => {}
            ("requires_grad", _) => return Err(refused("a new tensor with requires_grad")),
            _ => parts.push(format!("{}={}", argument.name, argument.piece.text)),
        }
    }
    Ok(format!("torch.{name}({})", parts.join(", ")))
}
