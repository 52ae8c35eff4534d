//! Values while a program is read, and kinds of ops.

use crate::ivalue::IValue;

/// Ops that are not computed ahead: random ones, those that change their arguments, those with an effect.
pub(crate) fn is_kept(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    let is_random = name.contains("rand") || name.contains("dropout");
    // Ops of other libraries may do anything.
    let is_foreign = path.starts_with("ops.") && !path.starts_with("ops.prim.") && !path.starts_with("ops.aten.");
    let has_effect = matches!(name, "RaiseException" | "warn" | "Print" | "print" | "is_grad_enabled");
    is_random
        || is_foreign
        || has_effect
        || matches!(name, "bernoulli" | "multinomial" | "normal")
        || is_in_place(path)
        || changes_containers(path)
}

pub(crate) fn is_in_place(path: &str) -> bool {
    path.ends_with('_') && !path.ends_with("__")
}

/// Ops that change the list or dictionary that they are given.
pub(crate) fn changes_containers(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    matches!(
        name,
        "append"
            | "extend"
            | "insert"
            | "insert_"
            | "pop"
            | "popitem"
            | "clear"
            | "remove"
            | "reverse"
            | "update"
            | "setdefault"
            | "_set_item"
            | "Delete"
    )
}

/// Questions about a tensor that its contents do not answer.
pub(super) fn asks_for_shape(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    let is_prim = path.starts_with("ops.prim.")
        && matches!(name, "dtype" | "device" | "is_cuda" | "is_nested" | "is_sparse" | "is_quantized" | "layout");
    is_prim
        || matches!(
            name,
            "dim" | "size" | "len" | "numel" | "is_floating_point" | "is_complex" | "__is__" | "__isnot__"
        )
}

/// A value while a program is read.
#[derive(Clone)]
pub(super) enum Value {
    Known(IValue),
    /// A variable of the new function, and whether it may be `None`.
    Variable(String, bool),
    Tuple(Vec<Value>),
    List(Vec<Value>),
}

impl Value {
    pub(super) fn none() -> Self {
        Value::Known(IValue::None)
    }

    pub(super) fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Variable(a, _), Value::Variable(b, _)) => a == b,
            (Value::Known(a), Value::Known(b)) => {
                std::mem::discriminant(a) == std::mem::discriminant(b) && (a.is(b) || is_plain(a) && a.same(b))
            }
            (Value::Tuple(a), Value::Tuple(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b)),
            _ => false,
        }
    }
}

/// Whether a value has no identity.
fn is_plain(value: &IValue) -> bool {
    use IValue::*;
    matches!(value, None | Bool(_) | Int(_) | Float(_) | Str(_) | DType(_) | Device(_))
}

pub(super) fn has_tensors(value: &IValue) -> bool {
    let mut found = Vec::new();
    value.tensors(&mut found);
    !found.is_empty()
}
