//! Exported models: programs with their weights, run without their source.

use crate::device;
use crate::handle::{put, slice};
use crate::object::rl_object;
use crate::status::{rl_status, text};
use rushlight_core::{Error, Result};
use rushlight_graph::{IValue, Model, extra_files};
use rushlight_io::records::Records;
use rushlight_tensor::state::{Dict, Key, StateDict, Value};
use std::ffi::c_char;
use std::path::Path;

/// A loaded model.
pub struct rl_model(Model);

/// Most nested containers of a value.
const MAX_DEPTH: usize = 100;

fn deep() -> Error {
    Error::value("a value of a model is nested too deeply")
}

pub fn argument(value: &Value, depth: usize) -> Result<IValue> {
    if depth > MAX_DEPTH {
        return Err(deep());
    }
    let all = |items: &[Value]| items.iter().map(|v| argument(v, depth + 1)).collect::<Result<Vec<_>>>();
    Ok(match value {
        Value::None => IValue::None,
        Value::Bool(b) => IValue::Bool(*b),
        Value::Int(i) => IValue::Int(*i),
        Value::Float(x) => IValue::Float(*x),
        Value::Str(s) => IValue::from(s.as_str()),
        Value::Tensor(t) => IValue::Tensor(t.clone()),
        Value::List(items) => IValue::list(all(items)?),
        Value::Tuple(items) => IValue::tuple(all(items)?),
        Value::Dict(dict) => {
            let entries = dict.iter().map(|(k, v)| Ok((IValue::from(k.to_string().as_str()), argument(v, depth + 1)?)));
            IValue::dict(entries.collect::<Result<Vec<_>>>()?)
        }
        other => return Err(Error::value(format!("a model does not take {}", other.kind()))),
    })
}

pub fn result(value: &IValue, depth: usize) -> Result<Value> {
    if depth > MAX_DEPTH {
        return Err(deep());
    }
    Ok(match value {
        IValue::None => Value::None,
        IValue::Bool(b) => Value::Bool(*b),
        IValue::Int(i) => Value::Int(*i),
        IValue::Float(x) => Value::Float(*x),
        IValue::Str(s) => Value::Str(s.to_string()),
        IValue::Tensor(t) => Value::Tensor(t.clone()),
        IValue::List(_) => Value::List(value.items()?.iter().map(|v| result(v, depth + 1)).collect::<Result<_>>()?),
        IValue::Tuple(_) => Value::Tuple(value.items()?.iter().map(|v| result(v, depth + 1)).collect::<Result<_>>()?),
        IValue::Dict(entries) => {
            let entries = rushlight_core::sync::lock(entries).clone();
            let mut dict = Dict::new();
            for (key, value) in &entries {
                dict.insert(Key::from(key.to_string().as_str()), result(value, depth + 1)?);
            }
            Value::Dict(dict)
        }
        IValue::Object(object) => {
            let mut dict = Dict::new();
            for (key, value) in object.fields() {
                dict.insert(Key::from(key.as_str()), result(&value, depth + 1)?);
            }
            Value::Dict(dict)
        }
        IValue::DType(_) => Value::Int(value.to_int()?),
        IValue::Device(device) => Value::Str(device.to_string()),
        other => return Err(Error::unsupported(format!("a model that returns {}", other.kind()))),
    })
}

unsafe fn inside<'a>(model: *const rl_model) -> Result<&'a Model> {
    // SAFETY: null or a live model, by the header.
    unsafe { model.as_ref() }.map(|m| &m.0).ok_or_else(|| Error::value("the model is null"))
}

fn boxed(model: Model) -> *mut rl_model {
    Box::into_raw(Box::new(rl_model(model)))
}

fn dict(state: StateDict) -> *mut rl_object {
    let mut out = Dict::new();
    state.into_iter().for_each(|(name, tensor)| drop(out.insert(Key::from(name.as_str()), Value::Tensor(tensor))));
    Box::into_raw(Box::new(rl_object(Value::Dict(out))))
}

/// Writes a model in the format of the path's ending.
fn save(model: &Model, path: &str, files: &[(String, Vec<u8>)]) -> Result<()> {
    match Path::new(path).extension().and_then(|e| e.to_str()) {
        Some("pt" | "pth" | "ts") => model.save_torchscript_with(path, files),
        _ => model.save_with(path, files),
    }
}

/// Writes the bytes of a file in an archive, or null.
///
/// # Safety
/// Places for the results, or null.
unsafe fn extra(archive: &Records, name: &str, out: *mut *mut u8, count: *mut usize) -> Result<()> {
    let found = extra_files(archive, &[name.to_string()])?.pop().flatten();
    let (bytes, size) = match found {
        Some(bytes) => {
            let size = bytes.len();
            (Box::into_raw(bytes.into_boxed_slice()).cast(), size)
        }
        None => (std::ptr::null_mut(), 0),
    };
    // SAFETY: by this function's contract.
    unsafe {
        put(out, bytes)?;
        put(count, size)
    }
}

api! {
    /// Reads a .rlm file, an archive of PyTorch's torch.jit or torch.export, or an ONNX file. It runs no code of the
    /// file but the ops of this library.
    fn rl_model_load(path: *const c_char, out: *mut *mut rl_model) -> rl_status, try {
        // SAFETY: a string and a place for the result, as the header says.
        unsafe { put(out, boxed(Model::load(text(path, "the path")?)?)) }
    }
    /// Reads the bytes of such a file.
    fn rl_model_load_bytes(bytes: *const u8, count: usize, out: *mut *mut rl_model) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, boxed(Model::from_bytes(slice(bytes, count))?)) }
    }
    /// Frees a model; null is allowed.
    fn rl_model_free(model: *mut rl_model) -> (), (()) {
        if !model.is_null() {
            // SAFETY: made by this module, and not used again.
            drop(unsafe { Box::from_raw(model) });
        }
    }
    /// Calls a method ("forward") with the entries of a list; rl_object_free frees the result.
    fn rl_model_call(
        model: *const rl_model, method: *const c_char, arguments: *const rl_object, out: *mut *mut rl_object,
    ) -> rl_status, try {
        // SAFETY: live objects and a string.
        let (model, method, list) = unsafe { (inside(model)?, text(method, "the method")?, arguments.as_ref()) };
        let Some(Value::List(items)) = list.map(|o| &o.0) else {
            return Err(Error::value("the arguments of a model are not a list"));
        };
        let args = items.iter().map(|v| argument(v, 0)).collect::<Result<Vec<_>>>()?;
        let value = result(&model.call(method, args, Vec::new())?, 0)?;
        // SAFETY: a place for the result.
        unsafe { put(out, Box::into_raw(Box::new(rl_object(value)))) }
    }
    /// Sets the mode of the model's modules: training or evaluation.
    fn rl_model_train(model: *const rl_model, mode: bool) -> rl_status, try {
        // SAFETY: a live model.
        unsafe { inside(model)? }.train(mode);
        Ok(())
    }
    /// The weights as a dict of tensors that share memory with the model; parameters are those that require gradients.
    fn rl_model_state(model: *const rl_model, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, dict(inside(model)?.state_dict())) }
    }
    /// A copy of the model with its weights on a device, by the device's kind and index.
    fn rl_model_to(model: *const rl_model, kind: i32, index: usize, out: *mut *mut rl_model) -> rl_status, try {
        // SAFETY: as above.
        let (program, weights) = unsafe { inside(model)? }.archive()?;
        let to = device::of(kind, index)?;
        let mut moved = StateDict::new();
        for (name, tensor) in weights {
            let grad = tensor.requires_grad();
            moved.insert(name, tensor.detach().to(to)?.requires_grad_(grad)?);
        }
        // SAFETY: a place for the result.
        unsafe { put(out, boxed(Model::parse(&program, moved)?)) }
    }
    /// A program for inference: constants and batch norms folded.
    fn rl_model_freeze(model: *const rl_model, out: *mut *mut rl_model) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, boxed(inside(model)?.freeze()?)) }
    }
    /// Writes a .rlm file, or a TorchScript archive if the path ends in .pt, .pth or .ts.
    fn rl_model_save(model: *const rl_model, path: *const c_char) -> rl_status, try {
        // SAFETY: as above.
        unsafe { save(inside(model)?, text(path, "the path")?, &[]) }
    }
    /// The same with further files: names, and the bytes of each.
    fn rl_model_save_with(
        model: *const rl_model, path: *const c_char, names: *const *const c_char, contents: *const *const u8,
        sizes: *const usize, count: usize,
    ) -> rl_status, try {
        // SAFETY: as above, and three arrays of `count`.
        unsafe {
            let files = slice(names, count).iter().zip(slice(contents, count)).zip(slice(sizes, count));
            let files = files.map(|((&name, &bytes), &size)| {
                Ok((text(name, "the name of a file")?.to_string(), slice(bytes, size).to_vec()))
            });
            save(inside(model)?, text(path, "the path")?, &files.collect::<Result<Vec<_>>>()?)
        }
    }
    /// A further file of a model's archive: its bytes, which rl_bytes_free frees; null if there is none of that name.
    fn rl_model_extra(path: *const c_char, name: *const c_char, out: *mut *mut u8, count: *mut usize) -> rl_status, try {
        // SAFETY: strings and places for the results, as the header says.
        unsafe { extra(&Records::open(text(path, "the path")?)?, text(name, "the name of a file")?, out, count) }
    }
    /// The same of an archive's bytes.
    fn rl_model_extra_bytes(
        bytes: *const u8, size: usize, name: *const c_char, out: *mut *mut u8, count: *mut usize,
    ) -> rl_status, try {
        // SAFETY: as above.
        unsafe { extra(&Records::from_bytes(slice(bytes, size))?, text(name, "the name of a file")?, out, count) }
    }
}
