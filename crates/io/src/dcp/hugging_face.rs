//! Hugging Face's sharded safetensors: read in any parts, written by several ranks together.

use super::metadata::{Chunk, Entry, Metadata, Place};
use super::read::Reader;
use crate::safetensors::{self, SafeTensors};
use crate::sink;
use rushlight_core::{DType, Dims, Error, Result};
use rushlight_tensor::Tensor;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const INDEX: &str = "model.safetensors.index.json";

/// The key under which PyTorch's ranks say which parts of tensors their files hold.
const SHARDING: &str = "DCP_SHARDING_INFO";

impl Reader {
    /// Opens a folder of safetensors: a model of Hugging Face's, in one file or several with an index, or the files of
    /// ranks that PyTorch's `HuggingFaceStorageWriter` wrote. Ranks then [`read`](Reader::read) any parts of tensors.
    pub fn open_safetensors(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let metadata =
            describe(folder).map_err(|e| e.within(&format!("safetensors of folder '{}'", folder.display())))?;
        Ok(Self::of_raw(folder.to_path_buf(), metadata))
    }
}

fn describe(folder: &Path) -> Result<Metadata> {
    let index = folder.join(INDEX);
    let mut files: Vec<String> = if index.exists() {
        safetensors::weight_map(&fs::read(&index)?)?.into_values().collect()
    } else {
        let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
        fs::read_dir(folder)?.flatten().filter_map(name).filter(|name| name.ends_with(".safetensors")).collect()
    };
    files.sort_unstable();
    files.dedup();
    if files.is_empty() {
        return Err(Error::io("it has no file *.safetensors"));
    }
    let mut found: Vec<(String, DType, Vec<Chunk>)> = Vec::new();
    let mut known = HashMap::new();
    for file in files {
        let opened = SafeTensors::open(folder.join(&file))?;
        let parts = sharding(&opened)?;
        for (name, dtype, sizes, range) in opened.places()? {
            let offsets = parts.get(&name).cloned().unwrap_or_else(|| vec![0; sizes.len()]);
            if offsets.len() != sizes.len() {
                return Err(Error::io(format!("'{name}' in '{file}' has {} offsets", offsets.len())));
            }
            let place = Place { file: file.clone(), offset: range.start as u64, length: range.len() as u64 };
            let chunk = Chunk { offsets: Dims::from_slice(&offsets), sizes: sizes.into(), place: Some(place) };
            let at = *known.entry(name.clone()).or_insert_with(|| {
                found.push((name.clone(), dtype, Vec::new()));
                found.len() - 1
            });
            if found[at].1 != dtype {
                return Err(Error::io(format!("'{name}' is {} in one file and {dtype} in '{file}'", found[at].1)));
            }
            found[at].2.push(chunk);
        }
    }
    let mut metadata = Metadata::default();
    for (name, dtype, chunks) in found {
        let mut size = chunks[0].sizes.clone();
        for chunk in &chunks {
            if chunk.sizes.len() != size.len() {
                return Err(Error::io(format!("parts of '{name}' have different numbers of dimensions")));
            }
            for dim in 0..size.len() {
                let end = chunk.offsets[dim].checked_add(chunk.sizes[dim]);
                size[dim] = size[dim].max(end.ok_or_else(|| Error::io(format!("an offset of '{name}' is too large")))?);
            }
        }
        metadata.insert(&name, Entry::Tensor { dtype, size, requires_grad: false, chunks })?;
    }
    metadata.check()?;
    Ok(metadata)
}

/// Where the parts of tensors in a rank's file start; empty for files of whole tensors.
fn sharding(file: &SafeTensors) -> Result<HashMap<String, Vec<usize>>> {
    let Some(text) = file.metadata().get(SHARDING) else { return Ok(HashMap::new()) };
    let wrong = || Error::io(format!("the entry {SHARDING} is malformed"));
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let mut found = HashMap::new();
    for (name, info) in parsed.as_object().ok_or_else(wrong)? {
        let offsets = info.get("saved_offsets").and_then(|o| o.as_array()).ok_or_else(wrong)?;
        let offset = |v: &serde_json::Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(wrong);
        found.insert(name.clone(), offsets.iter().map(offset).collect::<Result<Vec<_>>>()?);
    }
    Ok(found)
}

/// A tensor's name, dtype and whole shape.
pub type Described = (String, DType, Vec<usize>);

struct PlannedFile {
    name: String,
    header: Vec<u8>,
    /// Bytes of the file.
    length: u64,
}

/// A model in Hugging Face's layout that ranks write together, none of them the whole: one rank [creates](Self::create)
/// the files, each [writes](Self::write) its parts into them, one [commits](Self::commit).
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_core::DType; pub use rushlight_io as io; }
/// use rushlight::io::dcp::{Reader, SafetensorsPlan};
/// use rushlight::{DType, Tensor};
/// let folder = std::env::temp_dir().join(format!("rushlight-doc-hf-{}", std::process::id()));
/// let plan = SafetensorsPlan::new(&[("weight".into(), DType::F32, vec![4, 3])], 5_000_000_000)?;
/// plan.create(&folder)?;
/// // Two ranks, each with two of four rows.
/// for rank in 0..2 {
///     plan.write(&folder, "weight", &[2 * rank, 0], &Tensor::full([2, 3], rank as f32)?)?;
/// }
/// plan.commit(&folder)?;
/// let whole = rushlight::io::safetensors::load(folder.join("model.safetensors"))?;
/// assert_eq!(whole["weight"].shape(), [4, 3]);
/// let reader = Reader::open_safetensors(&folder)?;
/// assert_eq!(reader.read("weight", &[1, 0], &[2, 1])?.to_vec::<f32>()?, [0.0, 1.0]);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct SafetensorsPlan {
    files: Vec<PlannedFile>,
    /// Of each tensor the file, the first byte in it, and what it is.
    places: HashMap<String, (usize, u64, DType, Vec<usize>)>,
    /// Names in order, for the index.
    names: Vec<String>,
    total: usize,
}

fn bytes_of((name, dtype, shape): &Described) -> Result<usize> {
    let count = shape.iter().try_fold(dtype.size(), |n, &size| n.checked_mul(size));
    count.ok_or_else(|| Error::shape(format!("safetensors: '{name}' of shape {shape:?} is too large")))
}

impl SafetensorsPlan {
    /// Files of at most `max_shard_size` bytes (or of one tensor). All ranks must pass the same tensors in the same
    /// order.
    pub fn new(tensors: &[Described], max_shard_size: usize) -> Result<Self> {
        let mut shards: Vec<Vec<&Described>> = vec![Vec::new()];
        let (mut filled, mut total) = (0usize, 0usize);
        for tensor in tensors {
            let bytes = bytes_of(tensor)?;
            if filled > 0 && filled.saturating_add(bytes) > max_shard_size {
                shards.push(Vec::new());
                filled = 0;
            }
            if let Some(shard) = shards.last_mut() {
                shard.push(tensor);
            }
            filled += bytes;
            total += bytes;
        }
        Self::of(&shards, total)
    }

    /// Files by number, from 1 on: `numbers` has one for each tensor.
    pub fn with_files(tensors: &[Described], numbers: &[usize]) -> Result<Self> {
        let count = numbers.iter().copied().max().unwrap_or(1);
        if numbers.len() != tensors.len() || numbers.contains(&0) {
            return Err(Error::value("safetensors: each tensor needs the number of its file, from 1 on"));
        }
        let mut shards: Vec<Vec<&Described>> = vec![Vec::new(); count];
        let mut total = 0;
        for (tensor, number) in tensors.iter().zip(numbers) {
            total += bytes_of(tensor)?;
            shards[number - 1].push(tensor);
        }
        Self::of(&shards, total)
    }

    fn of(shards: &[Vec<&Described>], total: usize) -> Result<Self> {
        let mut plan = Self { files: Vec::new(), places: HashMap::new(), names: Vec::new(), total };
        for (i, shard) in shards.iter().enumerate() {
            let name = match shards.len() {
                1 => "model.safetensors".to_string(),
                count => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
            };
            let described: Vec<_> = shard.iter().map(|(name, dtype, shape)| (&name[..], *dtype, &shape[..])).collect();
            let (header, begins) = safetensors::header_of(&described)?;
            let mut length = header.len() as u64;
            for (tensor, begin) in shard.iter().zip(begins) {
                let (name, dtype, shape) = tensor;
                let start = header.len() as u64 + begin as u64;
                length = length.max(start + bytes_of(tensor)? as u64);
                if plan.places.insert(name.clone(), (i, start, *dtype, shape.clone())).is_some() {
                    return Err(Error::value(format!("safetensors: two tensors are named '{name}'")));
                }
                plan.names.push(name.clone());
            }
            plan.files.push(PlannedFile { name, header, length });
        }
        Ok(plan)
    }

    fn partial(&self, folder: &Path, file: usize) -> PathBuf {
        folder.join(format!(".{}.partial", self.files[file].name))
    }

    /// Creates the files, on one rank, before any writes. They get their names at the commit.
    pub fn create(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder)?;
        for (i, file) in self.files.iter().enumerate() {
            let mut out = File::create(self.partial(folder, i))?;
            out.write_all(&file.header)?;
            out.set_len(file.length)?;
        }
        Ok(())
    }

    /// Writes a part of a tensor, which starts at `offsets`.
    pub fn write(&self, folder: impl AsRef<Path>, name: &str, offsets: &[usize], part: &Tensor) -> Result<()> {
        let Some((file, start, dtype, shape)) = self.places.get(name) else {
            return Err(Error::value(format!("safetensors: the plan has no tensor '{name}'")));
        };
        let sizes = part.shape();
        let fits = sizes.len() == shape.len()
            && offsets.len() == shape.len()
            && (0..shape.len()).all(|i| offsets[i].checked_add(sizes[i]).is_some_and(|end| end <= shape[i]));
        if !fits || part.dtype() != *dtype {
            return Err(Error::shape(format!(
                "safetensors: '{name}', {dtype} of shape {shape:?}, has no part of {} {sizes:?} at {offsets:?}",
                part.dtype()
            )));
        }
        if part.numel() == 0 {
            return Ok(());
        }
        let path = self.partial(folder.as_ref(), *file);
        let out = OpenOptions::new().write(true).open(&path)?;
        let (part, range) = sink::contiguous(part)?;
        let mut bytes = Vec::with_capacity(range.len());
        sink::write(part.storage(), range, &mut bytes)?;
        // Trailing dimensions that the part has whole are one run of bytes.
        let whole = (0..shape.len()).rev().take_while(|&d| sizes[d] == shape[d]).count();
        let split = (shape.len() - whole).saturating_sub(1);
        let run = sizes[split..].iter().product::<usize>() * dtype.size();
        let mut place = vec![0usize; split];
        for chunk in bytes.chunks(run.max(1)) {
            let at =
                (0..shape.len()).fold(0, |at, d| at * shape[d] + offsets[d] + if d < split { place[d] } else { 0 });
            out.write_all_at(chunk, start + (at * dtype.size()) as u64)?;
            for d in (0..split).rev() {
                place[d] += 1;
                if place[d] < sizes[d] {
                    break;
                }
                place[d] = 0;
            }
        }
        Ok(out.sync_data()?)
    }

    /// Makes the files valid, on one rank, when all ranks have written: they get their names, the index last.
    pub fn commit(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        for (i, file) in self.files.iter().enumerate() {
            let partial = self.partial(folder, i);
            File::open(&partial)?.sync_all()?;
            fs::rename(&partial, folder.join(&file.name))?;
        }
        if self.files.len() > 1 {
            let file = |name: &String| (name.clone(), self.files[self.places[name].0].name.clone().into());
            let weight_map: serde_json::Map<String, serde_json::Value> = self.names.iter().map(file).collect();
            let index = serde_json::json!({ "metadata": { "total_size": self.total }, "weight_map": weight_map });
            sink::save(&folder.join(INDEX), |out| Ok(out.write_all(format!("{index:#}\n").as_bytes())?))?;
        }
        Ok(File::open(folder)?.sync_all()?)
    }
}
