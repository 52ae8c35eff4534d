//! PyTorch's `.pt` files: written by `torch.save`, read by `torch.load(weights_only=True)`.
//!
//! ```
//! # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_io as io; }
//! use rushlight::io::pt;
//! use rushlight::{Tensor, state::{Dict, Value}};
//! let mut checkpoint = Dict::new();
//! checkpoint.insert("weight".into(), Tensor::new([[1.0f32, 2.0]])?.into());
//! checkpoint.insert("epoch".into(), 3.into());
//! let path = std::env::temp_dir().join(format!("rushlight-doc-{}.pt", std::process::id()));
//! pt::save(&Value::from(checkpoint), &path)?;
//! let back = pt::load(&path)?;
//! assert_eq!(back.get("epoch")?.as_int()?, 3);
//! assert_eq!(back.get("weight")?.as_tensor()?.to_vec::<f32>()?, [1.0, 2.0]);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), rushlight_core::Error>(())
//! ```
//!
//! **Reading** runs no code: the pickle inside may name only the classes of tensors and containers. Any other name
//! is an error that mentions it. Tensors are views of one copy of the file, or of the mapped file
//! ([`LoadOptions::mmap`]), on the CPU wherever they were saved (but see [`LoadOptions::gpus`]), and share memory where
//! they did.
//! Types that [`Value`] lacks become the nearest one: sets become lists, `torch.Size` a tuple, dtypes and
//! devices strings. Attributes that Python code put on tensors and the `_metadata` of state dicts are left out.
//!
//! **Writing** keeps strides, shared storages, `requires_grad` and the name of the device. As in PyTorch, a view saves
//! its whole storage: save a [`copy`](rushlight_tensor::Tensor::copy) of a small part of something large.

mod read;
mod script;
mod write;

use crate::LoadOptions;
use crate::sink;
use crate::source::Source;
pub(crate) use read::{LoadedStorage, script};
use rushlight_core::Result;
use rushlight_tensor::state::Value;
pub use script::Script;
pub(crate) use script::write as write_script;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

/// Reads a file written by `torch.save` or [`save`].
pub fn load(path: impl AsRef<Path>) -> Result<Value> {
    load_with(path, &LoadOptions::default())
}

/// The value of a source.
pub(crate) fn load_source(source: &Source, options: &LoadOptions) -> Result<Value> {
    read::load(source, options).map(|(value, _)| value)
}

/// Reads a file written by `torch.save` or [`save`].
pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Value> {
    load_marked(path, options).map(|(value, _)| value)
}

/// [`load_with`] and the ids ([`Tensor::id`](rushlight_tensor::Tensor::id)) of the tensors that were saved as
/// parameters, for front ends that tell them from other tensors.
pub fn load_marked(path: impl AsRef<Path>, options: &LoadOptions) -> Result<(Value, HashSet<usize>)> {
    let path = path.as_ref();
    Source::open(path, options.mmap)
        .and_then(|source| read::load(&source, options))
        .map_err(|e| e.within(&format!("pt::load '{}'", path.display())))
}

/// Reads the contents of a `.pt` file that are already in memory.
pub fn from_bytes(bytes: &[u8]) -> Result<Value> {
    from_bytes_with(bytes, &LoadOptions::default())
}

/// Reads the contents of a `.pt` file that are already in memory.
pub fn from_bytes_with(bytes: &[u8], options: &LoadOptions) -> Result<Value> {
    from_bytes_marked(bytes, options).map(|(value, _)| value)
}

/// [`from_bytes_with`] and the ids of the tensors that were saved as parameters.
pub fn from_bytes_marked(bytes: &[u8], options: &LoadOptions) -> Result<(Value, HashSet<usize>)> {
    Source::from_bytes(bytes).and_then(|source| read::load(&source, options)).map_err(|e| e.within("pt::from_bytes"))
}

/// Writes a value as `torch.save` would: to a temporary file that then replaces `path`. For a file that survives a
/// power loss, write to an [`AtomicFile`](crate::atomic::AtomicFile) with [`write()`] and commit it.
pub fn save(value: &Value, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    sink::save(path, |out| write::write(value, out)).map_err(|e| e.within(&format!("pt::save '{}'", path.display())))
}

/// Writes a value as `torch.save` would, to anything that takes bytes in order.
pub fn write(value: &Value, out: &mut impl Write) -> Result<()> {
    write::write(value, out).map_err(|e| e.within("pt::write"))
}
