//! The safetensors format: a JSON header, then the bytes of tensors.
//!
//! ```
//! # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_io as io; }
//! use rushlight::io::safetensors::{self, SafeTensors};
//! use rushlight::{Tensor, state::StateDict};
//! let state = StateDict::from_iter([("bias".to_string(), Tensor::new([1.0f32, 2.0])?)]);
//! let path = std::env::temp_dir().join(format!("rushlight-doc-{}.safetensors", std::process::id()));
//! safetensors::save(&state, &path)?;
//! let file = SafeTensors::open(&path)?;
//! assert_eq!(file.names().collect::<Vec<_>>(), ["bias"]);
//! assert_eq!(file.tensor("bias")?.to_vec::<f32>()?, [1.0, 2.0]);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), rushlight_core::Error>(())
//! ```

mod header;
mod shards;

pub(crate) use shards::weight_map;
pub use shards::{load_sharded, load_sharded_with, save_sharded};

use crate::LoadOptions;
use crate::sink;
use crate::source::{self, ByteOrder, OpenFile, Source};
use header::Header;
use rushlight_core::{DType, Error, Result, Storage, layout};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Text metadata of a file.
pub type Metadata = BTreeMap<String, String>;

/// An open file whose tensors are created on demand.
///
/// A tensor's bytes are read when it is first asked for, or lie in the mapped file ([`LoadOptions::mmap`]). Asking
/// twice for a name gives tensors that share memory.
pub struct SafeTensors {
    contents: Contents,
    header: Header,
    /// Where the tensors' bytes begin.
    start: usize,
    storages: Vec<OnceLock<Arc<Storage>>>,
}

/// Where the bytes of tensors are.
enum Contents {
    /// In memory: mapped or read.
    Memory(Source),
    /// In a file, from which each tensor is read.
    File(OpenFile),
}

impl SafeTensors {
    /// Opens a file and reads its header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &LoadOptions::default())
    }

    /// Opens a file and reads its header.
    pub fn open_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Self> {
        let path = path.as_ref();
        let opened = if options.mmap {
            Source::open(path, true).and_then(Self::parse)
        } else {
            OpenFile::open(path).and_then(Self::of_file)
        };
        opened.map_err(|e| e.within(&format!("safetensors '{}'", path.display())))
    }

    /// Reads the contents of a file that are already in memory. They are copied.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Source::from_bytes(bytes).and_then(Self::parse).map_err(|e| e.within("safetensors::from_bytes"))
    }

    pub(crate) fn parse(source: Source) -> Result<Self> {
        let (header, start) = Header::read(source.bytes())?;
        Ok(Self::new(Contents::Memory(source), header, start))
    }

    fn of_file(file: OpenFile) -> Result<Self> {
        let len = file.len();
        let start = Header::end(&file.read(0..len.min(8))?, len)?;
        let header = Header::parse(&file.read(8..start)?, len - start)?;
        Ok(Self::new(Contents::File(file), header, start))
    }

    fn new(contents: Contents, header: Header, start: usize) -> Self {
        let storages = header.tensors.iter().map(|_| OnceLock::new()).collect();
        Self { contents, header, start, storages }
    }

    /// The names of the tensors, in the header's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.tensors.keys().map(String::as_str)
    }

    /// The text metadata; empty if the file has none.
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// A tensor's dtype, as the file names it (`F32`, `BF16`, `F8_E4M3`, …), and its shape.
    pub fn info(&self, name: &str) -> Result<(&str, &[usize])> {
        let (_, info) = self.find(name)?;
        Ok((&info.dtype, &info.shape))
    }

    /// One tensor.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let (index, info) = self.find(name)?;
        self.make(index, info).map_err(|e| e.within(&format!("tensor '{name}'")))
    }

    /// All tensors, in the header's order.
    pub fn tensors(&self) -> Result<StateDict> {
        self.names().map(|name| Ok((name.to_string(), self.tensor(name)?))).collect()
    }

    /// Name, dtype, shape and bytes within the file of every tensor.
    pub(crate) fn places(&self) -> Result<Vec<(String, DType, Vec<usize>, std::ops::Range<usize>)>> {
        let place = |(name, info): (&String, &header::TensorInfo)| {
            let dtype = dtype_of(&info.dtype)
                .ok_or_else(|| Error::dtype(format!("'{name}': dtype '{}' is not supported", info.dtype)))?;
            Ok((name.clone(), dtype, info.shape.to_vec(), self.start + info.begin..self.start + info.end))
        };
        self.header.tensors.iter().map(place).collect()
    }

    fn find(&self, name: &str) -> Result<(usize, &header::TensorInfo)> {
        let found = self.header.tensors.get_full(name);
        found.map(|(index, _, info)| (index, info)).ok_or_else(|| {
            let known: Vec<&str> = self.names().take(10).collect();
            Error::value(format!(
                "safetensors: no tensor '{name}'; the file has {} such as {known:?}",
                self.storages.len()
            ))
        })
    }

    fn make(&self, index: usize, info: &header::TensorInfo) -> Result<Tensor> {
        let dtype = dtype_of(&info.dtype).ok_or_else(|| {
            Error::dtype(format!("dtype '{}' is not supported; convert it before saving", info.dtype))
        })?;
        let storage = match self.storages[index].get() {
            Some(storage) => storage,
            None => {
                let range = self.start + info.begin..self.start + info.end;
                let storage = match &self.contents {
                    Contents::Memory(source) => source.storage(range, dtype, ByteOrder::Little)?,
                    Contents::File(file) => file.storage(range, dtype)?,
                };
                self.storages[index].get_or_init(|| storage)
            }
        };
        source::tensor(storage, &info.shape, &layout::contiguous_strides(&info.shape), 0, dtype)
    }
}

impl std::fmt::Debug for SafeTensors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = match &self.contents {
            Contents::Memory(source) => source.len(),
            Contents::File(file) => file.len(),
        };
        write!(f, "SafeTensors({} tensors in {bytes} bytes)", self.storages.len())
    }
}

fn dtype_of(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|&d| name_of(d) == name && !is_nameless(d))
}

fn is_nameless(dtype: DType) -> bool {
    matches!(dtype, DType::C32 | DType::C128)
}

fn name_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
        DType::U16 => "U16",
        DType::U32 => "U32",
        DType::U64 => "U64",
        DType::F8E4M3FN => "F8_E4M3",
        DType::F8E5M2 => "F8_E5M2",
        DType::F8E4M3FNUZ => "F8_E4M3FNUZ",
        DType::F8E5M2FNUZ => "F8_E5M2FNUZ",
        DType::F8E8M0FNU => "F8_E8M0",
        DType::C64 => "C64",
        // Names of our own, which the writer refuses: the format has no others.
        DType::C32 => "C32",
        DType::C128 => "C128",
    }
}

/// Reads all tensors of a file.
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    load_with(path, &LoadOptions::default())
}

/// Reads all tensors of a file.
pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<StateDict> {
    let path = path.as_ref();
    let within = |e: Error| e.within(&format!("safetensors::load '{}'", path.display()));
    SafeTensors::parse(Source::open(path, options.mmap).map_err(within)?)
        .and_then(|file| file.tensors())
        .map_err(within)
}

/// Writes tensors to a file, by way of a temporary file that then replaces `path`. Tensors that share memory are
/// written separately.
pub fn save(tensors: &StateDict, path: impl AsRef<Path>) -> Result<()> {
    save_with_metadata(tensors, &Metadata::new(), path)
}

/// Writes tensors and text to a file; see [`save`].
pub fn save_with_metadata(tensors: &StateDict, metadata: &Metadata, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let named: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    sink::save(path, |out| write_named(&named, metadata, out))
        .map_err(|e| e.within(&format!("safetensors::save '{}'", path.display())))
}

/// Writes tensors and text to anything that takes bytes in order, such as an [`AtomicFile`](crate::atomic::AtomicFile).
pub fn write(tensors: &StateDict, metadata: &Metadata, out: &mut impl Write) -> Result<()> {
    let named: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    write_named(&named, metadata, out).map_err(|e| e.within("safetensors::write"))
}

fn write_named(tensors: &[(&str, &Tensor)], metadata: &Metadata, out: &mut impl Write) -> Result<()> {
    // Wide elements first: then every tensor is aligned without padding, which the format does not allow.
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(tensors[i].1.dtype().size()));
    let described: Vec<_> = tensors.iter().map(|(name, t)| (*name, t.dtype(), t.shape())).collect();
    out.write_all(&header::encode(&described, &order, metadata)?.0)?;
    for i in order {
        let (tensor, range) = sink::contiguous(tensors[i].1)?;
        sink::write(tensor.storage(), range, out)?;
    }
    Ok(out.flush()?)
}

/// The first bytes of a file of tensors that are written later, and where each one's begin after them.
pub(crate) fn header_of(tensors: &[(&str, DType, &[usize])]) -> Result<(Vec<u8>, Vec<usize>)> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(tensors[i].1.size()));
    header::encode(tensors, &order, &Metadata::from_iter([("format".to_string(), "pt".to_string())]))
}
