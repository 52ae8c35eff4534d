//! File formats: safetensors, PyTorch's `.pt`, NumPy's `npy` and `npz`.
//!
//! | module | files | what they hold |
//! |---|---|---|
//! | [`safetensors`] | `.safetensors`, sharded checkpoints | named tensors and text metadata |
//! | [`pt`] | `.pt`, `.pth`, `.ckpt`, `.bin` | any [`Value`]: nested containers of tensors and plain values |
//! | [`dcp`] | folders with `.metadata` and `.distcp` files | PyTorch's distributed checkpoints |
//! | [`npy`] | `.npy` | one tensor |
//! | [`npz`] | `.npz` | named tensors |
//! | [`pickle`] | `.pkl` and others | any [`Value`] without PyTorch's tensors; NumPy's arrays |
//! | [`records`] | archives of a model: TorchScript's, `.pt2`, `.rlm` | named records; TorchScript's objects |
//! | [`atomic`] | any | files that appear whole or not at all |
//!
//! Tensors are copies of what a file held when it was read; [`safetensors::SafeTensors`] reads each tensor on demand.
//! [`LoadOptions::mmap`] maps files instead: opening one then takes no time and no memory until its tensors are used.
//!
//! Files are not trusted. Reading one returns values or an error: no code is run, and memory use
//! stays proportional to the file's size.

#[cfg(target_endian = "big")]
compile_error!("rushlight-io writes the memory of tensors unchanged, so the machine must be little-endian");

pub mod atomic;
pub mod dcp;
pub mod npy;
pub mod npz;
pub mod pickle;
pub mod pt;
pub mod records;
pub mod safetensors;
mod sink;
mod source;
mod temporary;
mod zip;

use rushlight_core::{Device, Error, Result};
use rushlight_tensor::state::Value;
use source::Source;
use std::path::Path;

/// How files are read.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    mmap: bool,
    verify: bool,
    max_inflated: Option<u64>,
    gpus: (Device, usize),
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { mmap: false, verify: false, max_inflated: None, gpus: (Device::Cpu, 0) }
    }
}

impl LoadOptions {
    /// Whether tensors look into the mapped file instead of a copy read now (the default). Tensors of a mapped file may
    /// be changed in place without touching the file. The file must not be shortened or written over in place while
    /// tensors of it live: the process would be killed (`SIGBUS`) or see other numbers. Replacing or removing it on a
    /// local disk, as every `save` here does, is safe.
    pub fn mmap(mut self, mmap: bool) -> Self {
        self.mmap = mmap;
        self
    }

    /// Compares the contents with the checksums in the file, which means reading all of it. Off by default, as in
    /// PyTorch. Of the formats here `.pt` and `.npz` have checksums; compressed entries are always compared.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// How many bytes the compressed entries of one `.npz` may unpack to. By default 1 GiB or 64 times the file,
    /// whichever is more.
    pub fn max_inflated(mut self, bytes: u64) -> Self {
        self.max_inflated = Some(bytes);
        self
    }

    /// Puts tensors of a `.pt` file that were saved from a GPU on the GPU of the same number, if it exists:
    /// the machine has `count` of the kind of `first`. The file may come from another vendor's machine. By default all
    /// tensors are loaded to the CPU.
    pub fn gpus(mut self, first: Device, count: usize) -> Self {
        self.gpus = (first, count);
        self
    }
}

/// Reads any of the formats, detected by their contents: a dictionary of tensors, a tensor (`npy`), or whatever a `.pt`
/// file holds. A folder, or a path that ends in `.index.json`, is read as a sharded checkpoint.
pub fn load(path: impl AsRef<Path>) -> Result<Value> {
    load_with(path, &LoadOptions::default())
}

/// Reads any of the formats; see [`load`].
pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Value> {
    let path = path.as_ref();
    let is_index = path.file_name().is_some_and(|n| n.to_string_lossy().ends_with(".index.json"));
    if is_index || path.is_dir() {
        return Ok(safetensors::load_sharded_with(path, options)?.into());
    }
    let read = |source: Source| {
        let bytes = source.bytes();
        if bytes.starts_with(b"\x93NUMPY") {
            return Ok(npy::load_source(&source)?.into());
        }
        if bytes.starts_with(b"PK") {
            let archive = zip::Archive::open(&source)?;
            let is_npz = !archive.entries.is_empty() && archive.entries.keys().all(|name| name.ends_with(".npy"));
            return if is_npz {
                Ok(npz::load_source(&source, options)?.into())
            } else {
                pt::load_source(&source, options)
            };
        }
        if bytes.get(8) == Some(&b'{') {
            return Ok(safetensors::SafeTensors::parse(source)?.tensors()?.into());
        }
        // Old and foreign files with PyTorch's endings go to the reader that can identify them.
        pt::load_source(&source, options).map_err(|e| match e.kind() {
            rushlight_core::ErrorKind::Unsupported => e,
            _ => Error::io("the file is neither safetensors nor a .pt, .npy or .npz file"),
        })
    };
    Source::open(path, options.mmap).and_then(read).map_err(|e| e.within(&format!("load '{}'", path.display())))
}

/// Writes a value in the format of the path's extension: `.safetensors` and `.npz` take dictionaries of tensors by
/// name, `.npy` a tensor, `.pt`, `.pth`, `.ckpt` and `.bin` anything.
///
/// ```
/// # mod rushlight { pub use {rushlight_io as io, rushlight_tensor::Tensor, rushlight_tensor::state::StateDict}; }
/// use rushlight::{StateDict, Tensor, io};
/// # let folder = std::env::temp_dir().join(format!("rushlight-save-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let state = StateDict::from_iter([("weight".to_owned(), Tensor::ones([2, 3])?)]);
/// io::save(&state, folder.join("model.safetensors"))?;
/// assert_eq!(io::load(folder.join("model.safetensors"))?.to_state_dict()?["weight"].shape(), [2, 3]);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn save(value: impl Into<Value>, path: impl AsRef<Path>) -> Result<()> {
    let (value, path) = (value.into(), path.as_ref());
    match path.extension().and_then(|e| e.to_str()) {
        Some("safetensors") => safetensors::save(&value.to_state_dict()?, path),
        Some("npz") => npz::save(&value.to_state_dict()?, path),
        Some("npy") => npy::save(value.as_tensor()?, path),
        Some("pt" | "pth" | "ckpt" | "bin") => pt::save(&value, path),
        _ => Err(Error::value(format!(
            "save '{}': the extension selects the format; use .safetensors, .pt, .npy or .npz",
            path.display()
        ))),
    }
}
