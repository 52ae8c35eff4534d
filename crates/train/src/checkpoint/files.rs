//! A directory of checkpoints: single files, and directories of shards with a manifest.

use super::{Best, CheckpointInfo, Position};
use rushlight_core::{Error, Philox, Result};
use rushlight_io::atomic::AtomicFile;
use rushlight_io::{LoadOptions, pt};
use rushlight_tensor::state::{Dict, Key, Value};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "checkpoint-";
const MANIFEST: &str = "manifest.json";
pub const FORMAT: &str = "rushlight-checkpoint-1";
const SHARDED_FORMAT: &str = "rushlight-sharded-checkpoint-1";
const SHARD_FORMAT: &str = "rushlight-shard-1";

/// A checkpoint: a file, or a directory with a manifest. It may be damaged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub step: u64,
    pub path: PathBuf,
    pub is_folder: bool,
}

/// The base name of a checkpoint, without `.pt`.
pub fn name(step: u64) -> String {
    format!("{PREFIX}{step:012}")
}

/// The manifest of a directory of shards. It is written last and completes the checkpoint.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Unique for every save and stored in every shard.
    pub id: String,
    pub position: Position,
    pub metric: Option<f64>,
    /// Names and sizes of the files, by rank.
    pub shards: Vec<(String, u64)>,
}

impl Manifest {
    /// Writes the manifest, which completes the checkpoint, and removes files of earlier saves of this step.
    pub fn commit(&self, folder: &Path) -> Result<()> {
        let shards: Vec<_> = self.shards.iter().map(|(file, bytes)| json!({"file": file, "bytes": bytes})).collect();
        // As text: JSON has no infinity.
        let metric = self.metric.map(|metric| format!("{metric:?}"));
        let text = json!({
            "format": SHARDED_FORMAT, "id": self.id, "epoch": self.position.epoch, "step": self.position.step,
            "metric": metric, "shards": shards,
        });
        let mut file = AtomicFile::create(folder.join(MANIFEST))?;
        file.write_all(format!("{text:#}\n").as_bytes())?;
        file.commit()?;
        let named: HashSet<&str> = self.shards.iter().map(|(file, _)| file.as_str()).chain([MANIFEST]).collect();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_none_or(|name| !named.contains(name)) {
                // A stray file is harmless.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read(&path).map_err(|e| Error::io(format!("cannot read '{}': {e}", path.display())))?;
        let bad = |what: &str| Error::io(format!("'{}' is malformed ({what})", path.display()));
        let v: serde_json::Value = serde_json::from_slice(&text).map_err(|e| bad(&e.to_string()))?;
        match v["format"].as_str() {
            Some(SHARDED_FORMAT) => {}
            Some(other) => {
                return Err(Error::io(format!("its format is '{other}', this version reads '{SHARDED_FORMAT}'")));
            }
            None => return Err(bad("format")),
        }
        let number = |v: &serde_json::Value, name: &str| v[name].as_u64().ok_or_else(|| bad(name));
        let mut shards = Vec::new();
        for shard in v["shards"].as_array().ok_or_else(|| bad("shards"))? {
            let file = shard["file"].as_str().filter(|f| !f.contains('/') && *f != "..").ok_or_else(|| bad("file"))?;
            shards.push((file.to_owned(), number(shard, "bytes")?));
        }
        if shards.is_empty() {
            return Err(bad("shards"));
        }
        Ok(Self {
            id: v["id"].as_str().ok_or_else(|| bad("id"))?.to_owned(),
            position: Position { epoch: number(&v, "epoch")?, step: number(&v, "step")? },
            metric: v["metric"].as_str().and_then(|m| m.parse().ok()),
            shards,
        })
    }
}

/// A rank's shard as a value.
pub struct Shard {
    pub id: String,
    pub random: Philox,
    /// The state without its tensors: in the first shard only.
    pub skeleton: Option<Value>,
    /// Tensors by their number.
    pub tensors: Vec<(usize, Value)>,
    /// Parts that belong to this rank only.
    pub sharded: Dict,
}

impl Shard {
    pub fn into_value(self) -> Value {
        let tensors: Dict = self.tensors.into_iter().map(|(number, t)| (Key::Int(number as i64), t)).collect();
        let entries = [
            ("format", SHARD_FORMAT.into()),
            ("id", Value::Str(self.id)),
            ("random", random_value(self.random)),
            ("state", self.skeleton.unwrap_or(Value::None)),
            ("tensors", tensors.into()),
            ("sharded", self.sharded.into()),
        ];
        entries.into_iter().map(|(k, v)| (Key::from(k), v)).collect::<Dict>().into()
    }
}

/// Opens a shard. With `verify`, every checksum is compared.
pub fn read_shard(folder: &Path, manifest: &Manifest, rank: usize, verify: bool) -> Result<Value> {
    let (file, bytes) = &manifest.shards[rank];
    let path = folder.join(file);
    let failed = |e: Error| e.within(&format!("shard '{}'", path.display()));
    let found = std::fs::metadata(&path).map_err(|e| failed(Error::io(e.to_string())))?.len();
    if found != *bytes {
        return Err(failed(Error::io(format!("it has {found} bytes, the manifest says {bytes}"))));
    }
    let shard = pt::load_with(&path, &LoadOptions::default().verify(verify)).map_err(failed)?;
    let is_ours = shard.get("format").and_then(Value::as_str).is_ok_and(|format| format == SHARD_FORMAT)
        && shard.get("id").and_then(Value::as_str).is_ok_and(|id| id == manifest.id);
    if is_ours { Ok(shard) } else { Err(failed(Error::io("it belongs to another checkpoint"))) }
}

/// A loaded checkpoint.
pub struct Loaded {
    pub position: Position,
    pub metric: Option<f64>,
    /// Random generators of the ranks that saved it.
    pub random: Vec<Philox>,
    /// Parts by name.
    pub state: Value,
}

/// Reads a checkpoint of either kind. Files are mapped; with `verify`, every checksum of a single file is checked.
pub fn load(entry: &Entry, verify: bool) -> Result<Loaded> {
    if !entry.is_folder {
        let state = read_file(&entry.path, verify)?;
        let position = Position { epoch: number(&state, "epoch")?, step: number(&state, "step")? };
        return Ok(Loaded {
            position,
            metric: file_metric(&state),
            random: vec![random_from(state.get("random")?)?],
            state,
        });
    }
    let manifest = Manifest::read(&entry.path)?;
    let (mut tensors, mut random, mut skeleton) = (HashMap::new(), Vec::new(), None);
    for rank in 0..manifest.shards.len() {
        let shard = read_shard(&entry.path, &manifest, rank, false)?;
        random.push(random_from(shard.get("random")?)?);
        for (key, value) in shard.get("tensors")?.as_dict()? {
            let Key::Int(number) = key else { return Err(Error::io("a shard's tensors have names, not numbers")) };
            tensors.insert(*number as usize, value.as_tensor()?.clone());
        }
        if rank == 0 {
            skeleton = Some(shard.get("state")?.clone());
        }
    }
    let state = super::shards::join(&skeleton.unwrap_or(Value::None), &tensors)?;
    Ok(Loaded { position: manifest.position, metric: manifest.metric, random, state })
}

/// Position and metric of a checkpoint.
pub fn info(entry: &Entry) -> Result<CheckpointInfo> {
    if entry.is_folder {
        let manifest = Manifest::read(&entry.path)?;
        return Ok(CheckpointInfo { position: manifest.position, metric: manifest.metric });
    }
    let state = read_file(&entry.path, false)?;
    let position = Position { epoch: number(&state, "epoch")?, step: number(&state, "step")? };
    Ok(CheckpointInfo { position, metric: file_metric(&state) })
}

fn read_file(path: &Path, verify: bool) -> Result<Value> {
    let state = pt::load_with(path, &LoadOptions::default().verify(verify))?;
    match state.get("format").and_then(Value::as_str) {
        Ok(FORMAT) => Ok(state),
        Ok(other) => Err(Error::io(format!("its format is '{other}', this version reads '{FORMAT}'"))),
        Err(_) => Err(Error::io("it is not a checkpoint")),
    }
}

/// Checks the checksums of the shards assigned to `rank` of `ranks`; a single file is assigned to rank 0.
pub fn verify(entry: &Entry, rank: usize, ranks: usize) -> Result<()> {
    if !entry.is_folder {
        return if rank == 0 { read_file(&entry.path, true).map(drop) } else { Ok(()) };
    }
    let manifest = Manifest::read(&entry.path)?;
    (rank..manifest.shards.len()).step_by(ranks).try_for_each(|i| read_shard(&entry.path, &manifest, i, true).map(drop))
}

/// Why a checkpoint cannot be used.
pub enum Trouble {
    /// Its bytes are wrong.
    Damaged(Error),
    /// The file system does not give its bytes; they may be sound.
    Unreadable(Error),
}

/// Pauses before a checkpoint is read again.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// [`verify`], again if it fails: only a checkpoint that can be read, twice, and is wrong counts as damaged.
pub fn judge(entry: &Entry, rank: usize, ranks: usize) -> std::result::Result<(), Trouble> {
    let mut pauses = PAUSES.iter();
    let mut wrong = false;
    loop {
        let Err(e) = verify(entry, rank, ranks) else { return Ok(()) };
        let trouble = match read_through(entry, rank, ranks) {
            Ok(()) if wrong => return Err(Trouble::Damaged(e)),
            Ok(()) => {
                wrong = true;
                continue;
            }
            Err(e) => Trouble::Unreadable(Error::io(format!(
                "'{}' cannot be read ({e}); it is kept, because it may be sound. Try again when the file system answers",
                entry.path.display()
            ))),
        };
        match pauses.next() {
            Some(pause) => std::thread::sleep(*pause),
            None => return Err(trouble),
        }
    }
}

/// Reads the files assigned to a rank, for the error of the system. A missing or truncated file is no such error.
fn read_through(entry: &Entry, rank: usize, ranks: usize) -> std::io::Result<()> {
    let files: Vec<PathBuf> = match Manifest::read(&entry.path) {
        _ if !entry.is_folder && rank == 0 => vec![entry.path.clone()],
        _ if !entry.is_folder => Vec::new(),
        Ok(manifest) => {
            let own = (rank..manifest.shards.len()).step_by(ranks);
            own.map(|i| entry.path.join(&manifest.shards[i].0)).chain([entry.path.join(MANIFEST)]).collect()
        }
        Err(_) => vec![entry.path.join(MANIFEST)],
    };
    files.iter().try_for_each(|path| {
        let copied = std::fs::File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
        copied.map(drop).or_else(missing_is_fine)
    })
}

/// Per-rank parts, of all ranks.
pub fn sharded(entry: &Entry, part: &str) -> Result<Vec<Value>> {
    let of = |state: &Value| -> Result<Value> { Ok(state.get("sharded")?.get(part)?.clone()) };
    if !entry.is_folder {
        return Ok(vec![of(&read_file(&entry.path, false)?)?]);
    }
    let manifest = Manifest::read(&entry.path)?;
    (0..manifest.shards.len()).map(|rank| of(&read_shard(&entry.path, &manifest, rank, false)?)).collect()
}

/// Writes a value atomically. Returns the size.
pub fn write(state: &Value, path: &Path) -> Result<u64> {
    let mut file = AtomicFile::create(path)?;
    pt::write(state, &mut file).map_err(|e| e.within(&format!("save '{}'", path.display())))?;
    file.commit()?;
    let size = std::fs::metadata(path).map_err(|e| Error::io(format!("cannot write '{}': {e}", path.display())))?;
    Ok(size.len())
}

/// An unsigned number as the integer with its bits.
pub fn bits(number: u64) -> Value {
    Value::Int(number as i64)
}

pub fn number(v: &Value, key: &str) -> Result<u64> {
    Ok(v.get(key)?.as_int()? as u64)
}

pub fn random_value(random: Philox) -> Value {
    let entries = [("seed", random.seed), ("offset", random.offset)];
    entries.map(|(k, v)| (Key::from(k), bits(v))).into_iter().collect::<Dict>().into()
}

fn random_from(v: &Value) -> Result<Philox> {
    Ok(Philox { seed: number(v, "seed")?, offset: number(v, "offset")? })
}

fn file_metric(state: &Value) -> Option<f64> {
    state.as_dict().ok()?.get(&Key::from("metric"))?.as_float().ok()
}

/// The step in a name, and whether the name is a directory's.
fn parse(name: &str) -> Option<(u64, bool)> {
    let rest = name.strip_prefix(PREFIX)?;
    let (digits, is_folder) = rest.strip_suffix(".pt").map_or((rest, true), |digits| (digits, false));
    Some((digits.parse().ok()?, is_folder))
}

fn scan(directory: &Path) -> Result<Vec<Entry>> {
    let failed = |e: std::io::Error| Error::io(format!("Checkpoints: cannot list '{}': {e}", directory.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some((step, is_folder)) = path.file_name().and_then(|n| n.to_str()).and_then(parse)
            && path.is_dir() == is_folder
        {
            found.push(Entry { step, path, is_folder });
        }
    }
    found.sort();
    Ok(found)
}

/// Directories without a manifest are incomplete saves.
fn is_complete(entry: &Entry) -> bool {
    !entry.is_folder || entry.path.join(MANIFEST).exists()
}

/// The checkpoints, oldest first.
pub fn list(directory: &Path) -> Result<Vec<Entry>> {
    Ok(scan(directory)?.into_iter().filter(is_complete).collect())
}

/// Removes directories of incomplete saves.
pub fn remove_incomplete(directory: &Path) -> Result<()> {
    scan(directory)?.iter().filter(|entry| !is_complete(entry)).try_for_each(remove)
}

/// Renames a damaged checkpoint so that it is never read.
pub fn set_aside(path: &Path) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    let name = PathBuf::from(name);
    if name.is_dir() {
        // Left by an earlier failure at the same step: a directory cannot be renamed over it.
        let _ = std::fs::remove_dir_all(&name);
    }
    std::fs::rename(path, name).map_err(|e| Error::io(format!("cannot set '{}' aside: {e}", path.display())))
}

fn remove(entry: &Entry) -> Result<()> {
    let removed = if entry.is_folder {
        // Without its manifest the directory is no checkpoint any more, whatever happens next.
        let manifest = std::fs::remove_file(entry.path.join(MANIFEST));
        manifest.or_else(missing_is_fine).and_then(|()| std::fs::remove_dir_all(&entry.path))
    } else {
        std::fs::remove_file(&entry.path)
    };
    removed.or_else(missing_is_fine).map_err(|e| Error::io(format!("cannot remove '{}': {e}", entry.path.display())))
}

fn missing_is_fine(e: std::io::Error) -> std::io::Result<()> {
    if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) }
}

/// Removes all but the newest `keep` and, if configured, the best. One checkpoint always stays.
pub fn prune(directory: &Path, keep: usize, best: Option<(usize, Best)>) -> Result<()> {
    let entries = list(directory)?;
    let old = entries.len().saturating_sub(keep);
    let mut kept: HashSet<&Path> = entries[old..].iter().map(|entry| entry.path.as_path()).collect();
    if let Some((count, best)) = best.filter(|_| old > 0) {
        let mut ranked: Vec<(f64, &Entry)> =
            entries.iter().filter_map(|entry| Some((metric(entry)?, entry))).filter(|(m, _)| !m.is_nan()).collect();
        let sign = if best == Best::Lowest { 1.0 } else { -1.0 };
        // On a tie, the newer one.
        ranked.sort_by(|(a, x), (b, y)| (sign * a).total_cmp(&(sign * b)).then(y.step.cmp(&x.step)));
        kept.extend(ranked.iter().take(count).map(|(_, entry)| entry.path.as_path()));
    }
    if kept.is_empty() {
        kept.extend(entries.last().map(|entry| entry.path.as_path()));
    }
    entries.iter().filter(|entry| !kept.contains(entry.path.as_path())).try_for_each(remove)
}

/// The metric that a checkpoint was saved with.
pub fn metric(entry: &Entry) -> Option<f64> {
    if entry.is_folder {
        Manifest::read(&entry.path).ok()?.metric
    } else {
        file_metric(&read_file(&entry.path, false).ok()?)
    }
}
