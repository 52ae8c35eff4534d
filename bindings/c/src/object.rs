//! State dicts and `.pt` files: tensors and plain values in nested containers.

use crate::handle::{borrow, give, put, rl_tensor, slice};
use crate::status::{rl_status, text};
use crate::values::*;
use rushlight_core::{Error, Result};
use rushlight_io::{LoadOptions, pt};
use rushlight_tensor::state::{Dict, Key, Value};
use std::ffi::{CString, c_char};

/// A value of a file: None, a bool, a number, text, a tensor, a list, a tuple or a dict.
pub struct rl_object(pub Value);

/// A plain value of an argument.
///
/// # Safety
/// The pointers of `value` are what its kind says.
pub unsafe fn plain(value: &rl_value) -> Result<Value> {
    // SAFETY: each field is read only for the kind that has it.
    unsafe {
        let data = &value.data;
        Ok(match value.kind {
            RL_NONE => Value::None,
            RL_BOOL => Value::Bool(data.integer != 0),
            RL_INT => Value::Int(data.integer),
            RL_FLOAT => Value::Float(data.number),
            RL_TENSOR => Value::Tensor(borrow(data.tensor)?.clone()),
            RL_FLOATS => Value::Tuple(slice(data.numbers, value.count).iter().map(|&f| f.into()).collect()),
            RL_INTS => Value::List(slice(data.integers, value.count).iter().map(|&i| Value::Int(i)).collect()),
            RL_STRING => {
                let bytes = slice(data.text.cast::<u8>(), value.count);
                Value::Str(String::from_utf8_lossy(bytes).into_owned())
            }
            other => return Err(Error::value(format!("a value of kind {other} cannot be stored"))),
        })
    }
}

unsafe fn inside<'a>(object: *const rl_object) -> Result<&'a Value> {
    // SAFETY: null or a live object, by the header.
    unsafe { object.as_ref() }.map(|o| &o.0).ok_or_else(|| Error::value("the object is null"))
}

fn boxed(value: Value) -> *mut rl_object {
    Box::into_raw(Box::new(rl_object(value)))
}

api! {
    /// An object of a plain value or a tensor.
    fn rl_object_new(value: *const rl_value, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: a value and a place for the result, as the header says.
        unsafe {
            let value = value.as_ref().ok_or_else(|| Error::value("the value is null"))?;
            put(out, boxed(plain(value)?))
        }
    }
    /// An empty dict; `ordered`: Python's OrderedDict, which state dicts of modules are.
    fn rl_object_dict(ordered: bool) -> *mut rl_object, (std::ptr::null_mut()) {
        boxed(Value::Dict(if ordered { Dict::new().ordered(Dict::new()) } else { Dict::new() }))
    }
    /// An empty list.
    fn rl_object_list() -> *mut rl_object, (std::ptr::null_mut()) {
        boxed(Value::List(Vec::new()))
    }
    /// An empty tuple.
    fn rl_object_tuple() -> *mut rl_object, (std::ptr::null_mut()) {
        boxed(Value::Tuple(Vec::new()))
    }
    /// Frees an object; null is allowed.
    fn rl_object_free(object: *mut rl_object) -> (), (()) {
        if !object.is_null() {
            // SAFETY: made by this module, and not used again.
            drop(unsafe { Box::from_raw(object) });
        }
    }
    /// Adds an entry to a dict (with `key`) or to a list or a tuple (`key` is null). Takes `entry` over.
    fn rl_object_add(object: *mut rl_object, key: *const c_char, entry: *mut rl_object) -> rl_status, try {
        if entry.is_null() {
            return Err(Error::value("the entry is null"));
        }
        // SAFETY: live objects; `entry` is not used again.
        let (object, entry) = unsafe { (object.as_mut(), Box::from_raw(entry).0) };
        match object.map(|o| &mut o.0) {
            Some(Value::List(items) | Value::Tuple(items)) => items.push(entry),
            Some(Value::Dict(dict)) => {
                // SAFETY: a string.
                let key = unsafe { text(key, "the key")? };
                dict.insert(Key::from(key), entry);
            }
            _ => return Err(Error::value("only dicts, lists and tuples have entries")),
        }
        Ok(())
    }
    /// The number of entries of a dict, a list or a tuple; 0 for others.
    fn rl_object_count(object: *const rl_object) -> usize, (0) {
        // SAFETY: null or a live object.
        match unsafe { inside(object) } {
            Ok(Value::Dict(dict)) => dict.len(),
            Ok(Value::List(items) | Value::Tuple(items)) => items.len(),
            _ => 0,
        }
    }
    /// Whether the object is a dict.
    fn rl_object_is_dict(object: *const rl_object) -> bool, (false) {
        // SAFETY: as above.
        matches!(unsafe { inside(object) }, Ok(Value::Dict(_)))
    }
    /// Whether the object is a tuple.
    fn rl_object_is_tuple(object: *const rl_object) -> bool, (false) {
        // SAFETY: as above.
        matches!(unsafe { inside(object) }, Ok(Value::Tuple(_)))
    }
    /// Whether the object is a list.
    fn rl_object_is_list(object: *const rl_object) -> bool, (false) {
        // SAFETY: as above.
        matches!(unsafe { inside(object) }, Ok(Value::List(_)))
    }
    /// The key of a dict's entry by place; rl_string_free frees it. Null if there is none.
    fn rl_object_key(object: *const rl_object, at: usize) -> *mut c_char, (std::ptr::null_mut()) {
        // SAFETY: as above.
        let key = match unsafe { inside(object) } {
            Ok(Value::Dict(dict)) => dict.get_index(at).map(|(key, _)| key.to_string()),
            _ => None,
        };
        key.map_or(std::ptr::null_mut(), |key| CString::new(key).unwrap_or_default().into_raw())
    }
    /// An entry by place, as an object of its own.
    fn rl_object_entry(object: *const rl_object, at: usize, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: as above.
        let entry = match unsafe { inside(object)? } {
            Value::Dict(dict) => dict.get_index(at).map(|(_, value)| value),
            Value::List(items) | Value::Tuple(items) => items.get(at),
            other => return Err(Error::value(format!("{} has no entries", other.kind()))),
        };
        let entry = entry.ok_or_else(|| Error::new(rushlight_core::ErrorKind::Index, format!("there is no entry {at}")))?;
        // SAFETY: a place for the result.
        unsafe { put(out, boxed(entry.clone())) }
    }
    /// An entry of a dict by key, as an object of its own; null if there is none.
    fn rl_object_find(object: *const rl_object, key: *const c_char, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: as above.
        let (object, key) = unsafe { (inside(object)?, text(key, "the key")?) };
        let found = object.as_dict()?.get(&Key::from(key));
        // SAFETY: a place for the result.
        unsafe { put(out, found.map_or(std::ptr::null_mut(), |value| boxed(value.clone()))) }
    }
    /// The tensor or the plain value of an object; rl_value_free frees it. Text belongs to the object.
    fn rl_object_value(object: *const rl_object, out: *mut rl_value) -> rl_status, try {
        // SAFETY: as above.
        let value = match unsafe { inside(object)? } {
            Value::None => rl_value::none(),
            Value::Bool(b) => rl_value::integer(RL_BOOL, *b as i64),
            Value::Int(i) => rl_value::integer(RL_INT, *i),
            Value::Float(f) => rl_value::float(*f),
            Value::Tensor(t) => rl_value::tensor(give(t.clone())),
            Value::Str(s) => rl_value { kind: RL_STRING, data: rl_data { text: s.as_ptr().cast() }, count: s.len() },
            other => return Err(Error::value(format!("{} is not a plain value", other.kind()))),
        };
        // SAFETY: a place for the result.
        unsafe { put(out, value) }
    }
    /// Writes a file that PyTorch's `torch.load` reads.
    fn rl_save(object: *const rl_object, path: *const c_char) -> rl_status, try {
        // SAFETY: as above.
        unsafe { pt::save(inside(object)?, text(path, "the path")?) }
    }
    /// Reads a file of `torch.save`. It runs no code of the file.
    fn rl_load(path: *const c_char, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: as above.
        unsafe {
            let value = rushlight_io::load_with(text(path, "the path")?, &LoadOptions::default())?;
            put(out, boxed(value))
        }
    }
    /// The bytes of a file as rl_save would write it; rl_bytes_free frees them.
    fn rl_save_bytes(object: *const rl_object, out: *mut *mut u8, count: *mut usize) -> rl_status, try {
        // SAFETY: as above.
        unsafe {
            let mut bytes = Vec::new();
            pt::write(inside(object)?, &mut bytes)?;
            put(count, bytes.len())?;
            put(out, Box::into_raw(bytes.into_boxed_slice()).cast())
        }
    }
    /// Frees the bytes of rl_save_bytes.
    fn rl_bytes_free(bytes: *mut u8, count: usize) -> (), (()) {
        if !bytes.is_null() {
            // SAFETY: made by `rl_save_bytes` with this length.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes, count)) });
        }
    }
    /// Reads the bytes of a file of `torch.save`.
    fn rl_load_bytes(bytes: *const u8, count: usize, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, boxed(pt::from_bytes_with(slice(bytes, count), &LoadOptions::default())?)) }
    }
    /// The tensor of a handle as an object.
    fn rl_object_tensor(tensor: *const rl_tensor, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, boxed(Value::Tensor(borrow(tensor)?.clone()))) }
    }
}
