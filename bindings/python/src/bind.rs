//! Binding of a call's arguments to a signature, and PyTorch's messages for calls that fit none.

use crate::convert::{convert, int};
use crate::dispatch::{Call, Op};
use crate::signature::{Kind, Param, Signature};
use crate::value::{Value, Values};
use pyo3::prelude::*;
use rushlight_core::smallvec::SmallVec;

/// Why a call does not fit a signature.
pub enum Misfit {
    Signature(String),
    Raised(PyErr),
}

impl From<PyErr> for Misfit {
    fn from(error: PyErr) -> Self {
        Misfit::Raised(error)
    }
}

/// Aliases of argument names that PyTorch accepts for NumPy compatibility.
fn alias(name: &str) -> Option<&'static str> {
    Some(match name {
        "axis" => "dim",
        "keepdims" => "keepdim",
        "a" | "x" | "x1" | "self" => "input",
        "x2" => "other",
        _ => return None,
    })
}

/// Binds and converts the arguments of a call.
pub fn bind(call: &Call<'_, '_>, name: &str, signature: &Signature, method: bool) -> Result<Values, Misfit> {
    let params = &signature.params;
    let mut slots: SmallVec<[Option<&Bound<'_, PyAny>>; 8]> = SmallVec::new();
    slots.resize(params.len(), None);
    let given = &call.positional[..];
    // Separate numbers form the last positional parameter.
    let spread = params.iter().take(signature.positional).position(|p| p.kind == Kind::VarInts);
    let mut spread_ints = None;
    match spread {
        Some(at) if given.len() > at && (given.len() > at + 1 || int(given[at])?.is_some()) => {
            let ints = given[at..].iter().map(|&o| int(o)).collect::<PyResult<Option<crate::value::Ints>>>()?;
            match ints {
                Some(ints) => spread_ints = Some((at, ints)),
                None if given.len() > signature.positional => {
                    return Err(Misfit::Signature(wrong_type(name, &params[at], at, given[at], method)));
                }
                None => {}
            }
        }
        _ => {}
    }
    let taken = spread_ints.as_ref().map_or(given.len(), |(at, _)| *at);
    if taken > signature.positional {
        return Err(Misfit::Signature(format!(
            "{name}() takes {} positional argument{} but {} were given",
            signature.positional - method as usize,
            if signature.positional - method as usize == 1 { "" } else { "s" },
            given.len() - method as usize
        )));
    }
    for (slot, object) in slots.iter_mut().zip(&given[..taken]) {
        *slot = Some(object);
    }
    for &(key, object) in &call.named {
        let at = params.iter().position(|p| p.interned.is(key)).or_else(|| {
            let text = key.to_string();
            params.iter().position(|p| p.name == text).or_else(|| {
                let other = alias(&text)?;
                params.iter().position(|p| p.name == other)
            })
        });
        let Some(at) = at else {
            return Err(Misfit::Signature(format!("{name}() got an unexpected keyword argument '{key}'")));
        };
        if slots[at].is_some() || spread_ints.as_ref().is_some_and(|(s, _)| *s == at) {
            return Err(Misfit::Signature(format!("{name}() got multiple values for argument '{key}'")));
        }
        slots[at] = Some(object);
    }
    let mut values = Values::new();
    for (at, (param, slot)) in params.iter().zip(&slots).enumerate() {
        let value = match (slot, &param.default) {
            (Some(object), _) => match convert(object, param)? {
                Some(value) => value,
                None => return Err(Misfit::Signature(wrong_type(name, param, at, object, method))),
            },
            (None, _) if spread_ints.as_ref().is_some_and(|(s, _)| *s == at) => {
                Value::Ints(spread_ints.take().map(|(_, ints)| ints).unwrap_or_default())
            }
            (None, Some(default)) => default.clone(),
            (None, None) => {
                let missing: Vec<String> = params
                    .iter()
                    .zip(&slots)
                    .filter(|(p, s)| s.is_none() && p.default.is_none())
                    .map(|(p, _)| format!("\"{}\"", p.name))
                    .collect();
                return Err(Misfit::Signature(format!(
                    "{name}() missing {} required positional arguments: {}",
                    missing.len(),
                    missing.join(", ")
                )));
            }
        };
        values.push(value);
    }
    Ok(values)
}

/// Name of an object's class.
pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_string(), |n| n.to_string())
}

fn wrong_type(name: &str, param: &Param, at: usize, object: &Bound<'_, PyAny>, method: bool) -> String {
    let position = if param.keyword_only { String::new() } else { format!(" (position {})", at + 1 - method as usize) };
    format!("{name}(): argument '{}'{position} must be {}, not {}", param.name, param.type_name(), type_name(object))
}

/// PyTorch's message for a call that fits no signature.
pub fn combination(call: &Call<'_, '_>, op: &Op) -> PyResult<String> {
    let mut got: Vec<String> = call.positional.iter().map(|o| type_name(o)).collect();
    got.extend(call.named.iter().map(|(name, o)| format!("{name}={}", type_name(o))));
    let mut text = format!(
        "{}() received an invalid combination of arguments - got ({}), but expected one of:",
        op.name,
        got.join(", ")
    );
    for variant in op.variants {
        text.push_str(&format!("\n * {}", &variant.text[variant.text.find('(').unwrap_or(0)..]));
    }
    Ok(text)
}
