//! Calls of ops by name.

use crate::dispatch::{Home, Op, Variant};
use crate::handle::{self, all, borrow, give, put, rl_tensor, slice};
use crate::params::{Kind, default, kind, split};
use crate::status::{rl_status, text};
use crate::value::{Ints, MemoryFormat, Out, Value, Values};
use crate::values::*;
use crate::{device, dtype, rows};
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result, Scalar};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::is_grad_enabled;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::mem::ManuallyDrop;
use std::sync::{LazyLock, Mutex};

/// One parameter of a signature.
struct Param {
    name: &'static str,
    text: &'static str,
    kind: Kind,
    nullable: bool,
    default: Option<Value>,
}

/// A variant of an op with its signature parsed.
struct Form {
    variant: &'static Variant,
    params: Vec<Param>,
}

/// An op, or one signature of it. Never freed.
pub struct rl_op {
    name: String,
    op: &'static Op,
    forms: Vec<Form>,
    /// Computed, then copied to the first argument.
    inplace: bool,
    /// Whether the first argument is changed.
    changes: bool,
}

/// The values of a call. Tensors are the caller's references, which outlive the call: none is counted or freed.
struct Bound(ManuallyDrop<Values>);

impl Bound {
    /// # Safety
    /// `handle` is alive until this list is dropped.
    #[inline]
    unsafe fn push_tensor(&mut self, handle: *mut rl_tensor) {
        // SAFETY: `clear` forgets the tensor, so the reference stays the handle's.
        self.0.push(Value::Tensor(unsafe { handle::take(handle) }));
    }

    fn clear(&mut self) {
        for value in self.0.drain(..) {
            match value {
                Value::Tensor(tensor) => std::mem::forget(tensor),
                other => drop(other),
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.clear();
        // SAFETY: not used again. The list is empty, but may own memory.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl Form {
    fn parse(variant: &'static Variant) -> Result<Form> {
        let malformed = || Error::value(format!("malformed signature '{}'", variant.text));
        let mut params = Vec::new();
        for (ty, name, value, _) in split(variant.text) {
            let (kind, nullable) = kind(ty).ok_or_else(malformed)?;
            let default = match value {
                Some(value) => Some(default(value, kind).ok_or_else(malformed)?),
                None => None,
            };
            params.push(Param { name, text: ty, kind, nullable, default });
        }
        Ok(Form { variant, params })
    }
}

/// The namespaces and their prefixes in names.
const SPACES: [(&str, Home); 5] = [
    ("Tensor.", Home::Method),
    ("nn.functional.", Home::Functional),
    ("linalg.", Home::Linalg),
    ("special.", Home::Special),
    ("fft.", Home::Fft),
];

static FOUND: LazyLock<Mutex<HashMap<String, &'static rl_op>>> = LazyLock::new(Default::default);

/// The op of a name: `add`, `Tensor.add_`, `nn.functional.relu`, or one with its signature.
fn find(text: &str) -> Result<&'static rl_op> {
    let mut found = lock(&FOUND);
    if let Some(known) = found.get(text) {
        return Ok(known);
    }
    let bare = text.strip_prefix("torch.").unwrap_or(text);
    let (home, bare) = SPACES
        .iter()
        .find_map(|(prefix, home)| Some((*home, bare.strip_prefix(prefix)?)))
        .unwrap_or((Home::Torch, bare));
    let name = bare.split_once('(').map_or(bare, |(name, _)| name);
    let signature = bare.contains('(').then_some(bare);
    let entry = |home: Home, name: &str| {
        let all = rows::TABLES.iter().flat_map(|table| table.iter().map(|entry| entry.op));
        all.filter(|op| op.homes.contains(&home)).find(|op| op.name.trim_start_matches("r#") == name)
    };
    let (op, inplace) = match (entry(home, name), name.strip_suffix('_')) {
        (Some(op), _) => (op, false),
        (None, Some(plain)) if home == Home::Method => {
            (entry(Home::Inplace, plain).ok_or_else(|| missing(text))?, true)
        }
        _ => return Err(missing(text)),
    };
    let variants =
        op.variants.iter().filter(|v| signature.is_none_or(|wanted| parameters(v.text) == parameters(wanted)));
    let forms = variants.map(Form::parse).collect::<Result<Vec<_>>>()?;
    if forms.is_empty() {
        return Err(missing(text));
    }
    let made: &'static rl_op = Box::leak(Box::new(rl_op {
        name: name.to_string(),
        op,
        forms,
        inplace,
        changes: inplace || name.ends_with('_'),
    }));
    found.insert(text.to_string(), made);
    Ok(made)
}

/// A signature without its name: rows with an underscore have the name of a Python function in it.
fn parameters(signature: &str) -> &str {
    &signature[signature.find('(').unwrap_or(0)..]
}

#[cold]
fn missing(text: &str) -> Error {
    Error::unsupported(format!(
        "this version of Rushlight has no op '{text}'; rl_op_count and rl_op_signature list those it has"
    ))
}

/// A value of an argument that is not one tensor; `None` if it does not fit the parameter.
///
/// # Safety
/// The pointers of `value` are what its kind says.
unsafe fn convert(value: &rl_value, param: &Param) -> Result<Option<Value>> {
    // SAFETY: each field is read only for the kind that has it; pointers are the caller's promise.
    unsafe {
        let data = &value.data;
        let number = || value.scalar();
        let real = || number().filter(|s| !matches!(s, Scalar::Complex(..)));
        let int = || if value.kind == RL_INT { Some(data.integer) } else { None };
        let list = |repeat: usize| match value.kind {
            RL_INTS => {
                let ints = slice(data.integers, value.count);
                Some(Value::Ints(if let (&[one], 2..) = (ints, repeat) {
                    Ints::from_elem(one, repeat)
                } else {
                    Ints::from_slice(ints)
                }))
            }
            RL_INT => Some(Value::Ints(Ints::from_elem(data.integer, repeat.max(1)))),
            _ => None,
        };
        let string = || match value.kind {
            RL_STRING => {
                let bytes = slice(data.text.cast::<u8>(), value.count);
                std::str::from_utf8(bytes).ok().map(|s| Value::Str(s.to_string()))
            }
            _ => None,
        };
        if value.kind == RL_NONE {
            return Ok(param.nullable.then_some(Value::None));
        }
        Ok(match param.kind {
            Kind::Tensor => None,
            Kind::TensorOrNumber => number().map(Value::Scalar),
            Kind::Tensors if value.kind == RL_TENSORS => Some(Value::Tensors(all(data.tensors, value.count)?)),
            Kind::Tensors => None,
            Kind::Number => number().map(Value::Scalar),
            Kind::Int => int().map(|i| Value::Scalar(Scalar::Int(i))),
            Kind::Ints(repeat) | Kind::IntsOrNone(repeat) => list(repeat),
            Kind::VarInts => list(1),
            Kind::Float => real().map(|s| Value::Scalar(Scalar::Float(s.to_f64()))),
            Kind::Floats => match value.kind {
                RL_FLOATS => Some(Value::Floats(slice(data.numbers, value.count).to_vec())),
                _ => real().map(|s| Value::Floats(vec![s.to_f64()])),
            },
            Kind::Bool if value.kind == RL_BOOL => number().map(Value::Scalar),
            Kind::Bool => None,
            Kind::Str => string(),
            Kind::StrOrInts => string().or_else(|| list(1)),
            Kind::DType if value.kind == RL_DTYPE => Some(Value::DType(dtype::of(data.integer as i32)?)),
            Kind::Device if value.kind == RL_DEVICE => {
                Some(Value::Device(device::of(data.integer as i32, value.count)?))
            }
            Kind::MemoryFormat if value.kind == RL_MEMORY_FORMAT => Some(Value::MemoryFormat(match data.integer {
                0 => MemoryFormat::Contiguous,
                1 => MemoryFormat::Preserve,
                2 => MemoryFormat::ChannelsLast,
                3 => MemoryFormat::ChannelsLast3d,
                other => return Err(Error::value(format!("there is no memory format {other}"))),
            })),
            Kind::DType | Kind::Device | Kind::Generator | Kind::Layout | Kind::MemoryFormat => None,
        })
    }
}

fn kind_name(kind: rl_kind) -> &'static str {
    KINDS.iter().find(|(_, k, _)| *k == kind).map_or("a value of unknown kind", |(name, _, _)| name)
}

/// Binds arguments to a form, in `values`, which is empty; the text says why they do not fit.
///
/// # Safety
/// As for [`convert`].
unsafe fn bind(form: &Form, args: &[rl_value], values: &mut Bound) -> Result<Result<(), String>> {
    if args.len() > form.params.len() {
        return Ok(Err(format!("takes {} arguments, got {}", form.params.len(), args.len())));
    }
    for (at, param) in form.params.iter().enumerate() {
        let value = match args.get(at).filter(|v| v.kind != RL_DEFAULT) {
            Some(value) if value.kind == RL_TENSOR && matches!(param.kind, Kind::Tensor | Kind::TensorOrNumber) => {
                // SAFETY: the field of this kind.
                let handle = unsafe { value.data.tensor };
                match handle.is_null() {
                    true if param.nullable => Value::None,
                    true => return Err(handle::undefined()),
                    false => {
                        // SAFETY: the caller keeps its arguments alive during the call.
                        unsafe { values.push_tensor(handle) };
                        continue;
                    }
                }
            }
            // SAFETY: by this function's contract.
            Some(value) => match unsafe { convert(value, param)? } {
                Some(value) => value,
                None => {
                    let (name, text, found) = (param.name, param.text, kind_name(value.kind));
                    return Ok(Err(format!("argument {} '{name}' must be {text}, not {found}", at + 1)));
                }
            },
            None => match &param.default {
                Some(default) => default.clone(),
                None => return Ok(Err(format!("argument {} '{}' is missing", at + 1, param.name))),
            },
        };
        values.0.push(value);
    }
    Ok(Ok(()))
}

/// Runs an in-place op that has no kernel of its own: computes, then copies to the first argument, `target`.
fn inplace(op: &Op, variant: &Variant, values: &mut Bound, target: &Tensor) -> Result<()> {
    let keep = is_grad_enabled() && values.0.iter().any(|v| matches!(v, Value::Tensor(t) if t.requires_grad()));
    let Some(first @ Value::Tensor(_)) = values.0.first_mut() else {
        return Err(Error::value(format!("{}_: the first argument must be a tensor", op.name)));
    };
    // Gradients of any operand may need the values that are overwritten. The copy is the list's own during the call; a
    // panic leaks it.
    let before = if keep { target.copy()? } else { target.clone() };
    std::mem::forget(std::mem::replace(first, Value::Tensor(before)));
    let computed = (variant.call)(&values.0);
    values.0[0] = Value::None;
    let Out::Tensor(result) = computed? else {
        return Err(Error::unsupported(format!("{}_: this form has no in-place variant", op.name)));
    };
    if result.shape() != target.shape() {
        return Err(Error::shape(format!(
            "output with shape {:?} doesn't match the broadcast shape {:?}",
            target.shape(),
            result.shape()
        )));
    }
    if result.dtype().category() > target.dtype().category() {
        return Err(Error::dtype(format!(
            "result type {} can't be cast to the desired output type {}",
            result.dtype(),
            target.dtype()
        )));
    }
    target.copy_(&result).map(drop)
}

/// A result as a value.
fn result(out: Out, first: Option<&Value>) -> Result<rl_value> {
    Ok(match out {
        Out::Tensor(t) => rl_value::tensor(give(t)),
        Out::First => match first {
            Some(Value::Tensor(t)) => rl_value::tensor(give(t.clone())),
            _ => rl_value::none(),
        },
        Out::Tuple(t) | Out::List(t) | Out::Named(_, t) => tensors(t),
        Out::Scalar(s) => s.into(),
        Out::None => rl_value::none(),
    })
}

/// Tensors as an array of handles that `rl_value_free` frees.
pub fn tensors(tensors: Vec<Tensor>) -> rl_value {
    let handles: Box<[*mut rl_tensor]> = tensors.into_iter().map(give).collect();
    let count = handles.len();
    rl_value { kind: RL_TENSORS, data: rl_data { tensors: Box::into_raw(handles).cast() }, count }
}

unsafe fn call(op: &rl_op, args: &[rl_value]) -> Result<rl_value> {
    let mut failure = None;
    let mut values = Bound(ManuallyDrop::new(Values::new()));
    for form in &op.forms {
        values.clear();
        // SAFETY: by the caller's contract.
        if let Err(why) = unsafe { bind(form, args, &mut values)? } {
            failure.get_or_insert(why);
            continue;
        }
        if op.changes {
            // PyTorch refuses a leaf before it looks at the other arguments.
            if let Some(Value::Tensor(target)) = values.0.first() {
                target.check_leaf_change(&op.name)?;
            }
        }
        if op.inplace {
            // SAFETY: the first argument was bound as a tensor, so the handle is alive.
            let target = unsafe { borrow(args[0].data.tensor)?.clone() };
            inplace(op.op, form.variant, &mut values, &target)?;
            return Ok(rl_value::tensor(give(target)));
        }
        return result((form.variant.call)(&values.0)?, values.0.first());
    }
    let mut message = format!("{}(): {}", op.name, failure.unwrap_or_default());
    if op.forms.len() > 1 {
        message.push_str("; expected one of:");
        op.forms.iter().for_each(|f| message.push_str(&format!("\n * {}", f.variant.text)));
    }
    Err(Error::value(message))
}

static SIGNATURES: LazyLock<Vec<CString>> = LazyLock::new(|| {
    let all = rows::TABLES.iter().flat_map(|table| table.iter().map(|entry| entry.op));
    let prefix = |home: Home| SPACES.iter().find(|(_, h)| *h == home).map(|(prefix, _)| *prefix);
    let lines = all.flat_map(|op| {
        op.homes.iter().flat_map(move |&home| {
            let name = op.name.trim_start_matches("r#");
            op.variants.iter().map(move |v| match home {
                Home::Inplace => format!("Tensor.{name}_{}", parameters(v.text)),
                home => format!("{}{name}{}", prefix(home).unwrap_or(""), parameters(v.text)),
            })
        })
    });
    lines.map(|line| CString::new(line).unwrap_or_default()).collect()
});

api! {
    /// Finds an op: "add", "Tensor.add_", "nn.functional.relu", "linalg.norm". A name with its signature, as
    /// rl_op_signature gives it, is that overload alone. Ops live as long as the program. Finding an op takes a lock:
    /// keep the result.
    fn rl_op_find(name: *const c_char, out: *mut *const rl_op) -> rl_status, try {
        // SAFETY: a string and a place for the result, as the header says.
        unsafe { put(out, find(text(name, "the op's name")?)? as *const rl_op) }
    }
    /// Calls an op with arguments in the order of its signature; those left out have their defaults. The result is a
    /// tensor, several, a number, or nothing; rl_value_free frees it.
    fn rl_call(op: *const rl_op, args: *const rl_value, count: usize, out: *mut rl_value) -> rl_status, try {
        if op.is_null() {
            return Err(Error::value("rl_call: the op is null"));
        }
        // SAFETY: an op, arguments and a place for the result, as the header says.
        unsafe { put(out, call(&*op, slice(args, count))?) }
    }
    /// Frees what a result holds.
    fn rl_value_free(value: *mut rl_value) -> (), (()) {
        // SAFETY: null, or a result of this library that nothing has freed.
        unsafe {
            let Some(held) = value.as_mut() else { return };
            match held.kind {
                RL_TENSOR if !held.data.tensor.is_null() => drop(handle::take(held.data.tensor)),
                RL_TENSORS => {
                    let handles = std::ptr::slice_from_raw_parts_mut(held.data.tensors.cast_mut(), held.count);
                    Box::from_raw(handles).iter().for_each(|&h| drop(handle::take(h)));
                }
                RL_COMPLEX => drop(Box::from_raw(held.data.numbers.cast::<[f64; 2]>().cast_mut())),
                _ => {}
            }
            *held = rl_value::none();
        }
    }
    /// Frees the array of a result of kind RL_TENSORS, but not its tensors: the caller has taken them.
    fn rl_value_free_array(value: *mut rl_value) -> (), (()) {
        // SAFETY: as above.
        unsafe {
            let Some(held) = value.as_mut() else { return };
            if held.kind == RL_TENSORS {
                drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(held.data.tensors.cast_mut(), held.count)));
            }
            *held = rl_value::none();
        }
    }
    /// The number of signatures of ops.
    fn rl_op_count() -> usize, (0) {
        SIGNATURES.len()
    }
    /// A signature of an op with its namespace, by number; null if there are not so many.
    fn rl_op_signature(at: usize) -> *const c_char, (std::ptr::null()) {
        SIGNATURES.get(at).map_or(std::ptr::null(), |text| text.as_ptr())
    }
}
