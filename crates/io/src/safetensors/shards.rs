//! Checkpoints of several files with an index, as Hugging Face's libraries write them.

use super::{Metadata, SafeTensors};
use crate::{LoadOptions, sink};
use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// The largest index that is read.
const MAX_INDEX: u64 = 100_000_000;

/// Reads a checkpoint: a folder with `model.safetensors.index.json` or `model.safetensors`, or the path of an index.
pub fn load_sharded(path: impl AsRef<Path>) -> Result<StateDict> {
    load_sharded_with(path, &LoadOptions::default())
}

/// Reads a checkpoint; see [`load_sharded`].
pub fn load_sharded_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<StateDict> {
    let path = path.as_ref();
    read(path, options).map_err(|e| e.within(&format!("safetensors::load_sharded '{}'", path.display())))
}

fn read(path: &Path, options: &LoadOptions) -> Result<StateDict> {
    let index = if path.is_dir() { path.join(INDEX) } else { path.to_path_buf() };
    let folder = index.parent().unwrap_or(Path::new("")).to_path_buf();
    if path.is_dir() && !index.exists() {
        return super::load_with(folder.join(SINGLE), options);
    }
    let mut text = Vec::new();
    File::open(&index)?.take(MAX_INDEX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_INDEX {
        return Err(Error::io(format!("the index has more than {MAX_INDEX} bytes")));
    }
    let mut shards: HashMap<String, SafeTensors> = HashMap::new();
    let mut tensors = StateDict::new();
    for (name, file) in weight_map(&text)? {
        let shard = match shards.get(&file) {
            Some(shard) => shard,
            None => {
                let shard = SafeTensors::open_with(folder.join(&file), options)?;
                shards.entry(file.clone()).or_insert(shard)
            }
        };
        let tensor = shard.tensor(&name).map_err(|e| e.within(&format!("shard '{file}'")))?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// Which file holds which tensor. Only files in the index's own folder are accepted.
pub(crate) fn weight_map(index: &[u8]) -> Result<IndexMap<String, String>> {
    let index: serde_json::Value =
        serde_json::from_slice(index).map_err(|e| Error::io(format!("the index is not JSON: {e}")))?;
    let entries = index
        .get("weight_map")
        .and_then(|map| map.as_object())
        .ok_or_else(|| Error::io("the index has no object 'weight_map'"))?;
    let file_of = |(name, file): (&String, &serde_json::Value)| {
        let file = file.as_str().filter(|f| {
            let path = Path::new(f);
            path.file_name() == Some(path.as_os_str()) && !f.contains('\\')
        });
        let file = file.ok_or_else(|| {
            Error::io(format!("the index puts tensor '{name}' in something that is not a file beside it"))
        })?;
        Ok((name.clone(), file.to_string()))
    };
    entries.iter().map(file_of).collect()
}

/// Writes a checkpoint into a folder: one `model.safetensors` if it fits `max_shard_size` bytes, else shards of at most
/// that size (or of one tensor) and then their index.
///
/// Files appear complete, the index last. Use a new folder for each save: shards of an earlier one are not
/// removed.
pub fn save_sharded(tensors: &StateDict, folder: impl AsRef<Path>, max_shard_size: usize) -> Result<()> {
    let folder = folder.as_ref();
    write(tensors, folder, max_shard_size)
        .map_err(|e| e.within(&format!("safetensors::save_sharded '{}'", folder.display())))
}

fn write(tensors: &StateDict, folder: &Path, max_shard_size: usize) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut shards: Vec<Vec<(&str, &Tensor)>> = vec![Vec::new()];
    let (mut filled, mut total) = (0usize, 0usize);
    for (name, tensor) in tensors {
        let bytes = tensor.numel() * tensor.dtype().size();
        if filled > 0 && filled.saturating_add(bytes) > max_shard_size {
            shards.push(Vec::new());
            filled = 0;
        }
        if let Some(shard) = shards.last_mut() {
            shard.push((name, tensor));
        }
        filled += bytes;
        total += bytes;
    }
    // Readers of Python's libraries look for this entry.
    let metadata = Metadata::from_iter([("format".to_string(), "pt".to_string())]);
    if shards.len() == 1 {
        return super::save_with_metadata(tensors, &metadata, folder.join(SINGLE));
    }
    let mut weight_map = serde_json::Map::new();
    let count = shards.len();
    for (i, shard) in shards.iter().enumerate() {
        let file = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
        let path: PathBuf = folder.join(&file);
        sink::save(&path, |out| super::write_named(shard, &metadata, out))?;
        weight_map.extend(shard.iter().map(|(name, _)| (name.to_string(), file.as_str().into())));
    }
    let index = serde_json::json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
    sink::save(&folder.join(INDEX), |out| Ok(out.write_all(format!("{index:#}\n").as_bytes())?))
}
