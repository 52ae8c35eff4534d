//! Checkpoints: everything a run needs to go on as if it had never stopped.

use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Philox, Result};
use rushlight_io::atomic::{AtomicFile, remove_leftovers};
use rushlight_io::{LoadOptions, pt};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::{Dict, Key, Stateful, Value};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

const PREFIX: &str = "checkpoint-";
/// Names of entries that are ours.
const RESERVED: [&str; 4] = ["format", "epoch", "step", "random"];
const FORMAT: &str = "rushlight-checkpoint-1";

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The epoch the run is in.
    pub epoch: u64,
    /// Optimizer steps done since the start of the run.
    pub step: u64,
}

/// What [`Checkpoints::restore`] found.
#[derive(Debug)]
pub struct Restored {
    /// Where the run goes on.
    pub position: Position,
    /// The file it came from.
    pub path: PathBuf,
    /// Newer files that were damaged, and what was wrong with them. They are kept under the same name with `.damaged` after it.
    pub skipped: Vec<(PathBuf, Error)>,
}

/// The checkpoints of a run: files in a directory, each whole and checksummed.
///
/// A checkpoint holds the state of every part it is given (model, optimizer, scheduler, scaler, loader), the position, and the state of the random
/// generator. A run killed at any moment goes on from the newest whole checkpoint and ends with the same weights, bit by bit. The files are
/// `.pt` files: `torch.load` reads them.
///
/// ```
/// use rushlight_nn::{Forward, Linear, Module};
/// use rushlight_tensor::Tensor;
/// use rushlight_train::{Checkpoints, Position};
/// # let directory = std::env::temp_dir().join(format!("rushlight-doc-checkpoints-{}", std::process::id()));
/// let mut model = Linear::new(20, 1).build()?;
/// let mut checkpoints = Checkpoints::new(&directory).keep(2).build()?;
/// let start = match checkpoints.restore(&mut [("model", &mut model)])? {
///     Some(restored) => restored.position,
///     None => Position::default(),
/// };
/// // … train …
/// checkpoints.save(Position { epoch: 1, step: 64 }, &[("model", &model)])?;
/// # checkpoints.finish()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # assert_eq!(start, Position::default());
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    keep: usize,
    background: bool,
    writing: Option<JoinHandle<Result<()>>>,
}

/// The options of [`Checkpoints`].
#[derive(Clone, Debug)]
pub struct CheckpointsBuilder {
    directory: PathBuf,
    keep: usize,
    background: bool,
}

impl CheckpointsBuilder {
    /// How many checkpoints stay; older ones are removed after a new one is whole. Three unless said otherwise: the newest may be damaged.
    pub fn keep(mut self, keep: usize) -> Self {
        self.keep = keep;
        self
    }

    /// Writes on another thread: [`Checkpoints::save`] returns when the state is copied. An error shows at the next call.
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Makes the directory if it is not there.
    pub fn build(self) -> Result<Checkpoints> {
        if self.keep == 0 {
            return Err(Error::value("Checkpoints: keep must be at least 1"));
        }
        std::fs::create_dir_all(&self.directory)
            .map_err(|e| Error::io(format!("Checkpoints: cannot make '{}': {e}", self.directory.display())))?;
        remove_leftovers(&self.directory);
        Ok(Checkpoints { directory: self.directory, keep: self.keep, background: self.background, writing: None })
    }
}

impl Checkpoints {
    /// Checkpoints in a directory.
    pub fn new(directory: impl Into<PathBuf>) -> CheckpointsBuilder {
        CheckpointsBuilder { directory: directory.into(), keep: 3, background: false }
    }

    /// Saves all parts, the position and the random state, then removes checkpoints beyond the number to keep.
    pub fn save(&mut self, position: Position, parts: &[(&str, &dyn Stateful)]) -> Result<()> {
        self.finish()?;
        check_names(parts.iter().map(|(name, _)| *name))?;
        let random = default_generator().state();
        let mut state = Dict::new();
        state.insert("format".into(), FORMAT.into());
        state.insert("epoch".into(), bits(position.epoch));
        state.insert("step".into(), bits(position.step));
        let random = [("seed", random.seed), ("offset", random.offset)];
        state
            .insert("random".into(), random.map(|(k, v)| (Key::from(k), bits(v))).into_iter().collect::<Dict>().into());
        for (name, part) in parts {
            state.insert((*name).into(), part.state().map_err(|e| e.within(&format!("save part '{name}'")))?);
        }
        let path = self.directory.join(format!("{PREFIX}{:012}.pt", position.step));
        let (directory, keep) = (self.directory.clone(), self.keep);
        if !self.background {
            return write(&Value::Dict(state), &path).and_then(|()| prune(&directory, keep));
        }
        // Training goes on changing the tensors: the thread gets its own.
        let copy = no_grad(|| detached(&Value::Dict(state), &mut HashMap::new()))?;
        let thread = std::thread::Builder::new().name("checkpoint".into());
        let writing = thread.spawn(move || write(&copy, &path).and_then(|()| prune(&directory, keep)));
        self.writing = Some(writing.map_err(|e| Error::io(format!("Checkpoints: cannot start a thread: {e}")))?);
        Ok(())
    }

    /// Waits until a checkpoint being written in the background is whole.
    pub fn finish(&mut self) -> Result<()> {
        match self.writing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::io("Checkpoints: the thread that wrote the last checkpoint died")),
        }
    }

    /// Restores all parts and the random state from the newest whole checkpoint; `None` if there is none yet. Damaged files are passed over and
    /// reported. If none of the files there is whole, that is an error: a run must not start over unasked.
    pub fn restore(&mut self, parts: &mut [(&str, &mut dyn Stateful)]) -> Result<Option<Restored>> {
        self.finish()?;
        check_names(parts.iter().map(|(name, _)| *name))?;
        let mut skipped = Vec::new();
        for path in self.list()?.into_iter().rev() {
            let state = match read(&path) {
                Ok(state) => state,
                Err(e) => {
                    skipped.push((path, e));
                    continue;
                }
            };
            let within = |e: Error| e.within(&format!("restore '{}'", path.display()));
            let number = |v: &Value, key: &str| -> Result<u64> { Ok(v.get(key)?.as_int()? as u64) };
            let (position, random) = (|| {
                let random = state.get("random")?;
                let random = Philox { seed: number(random, "seed")?, offset: number(random, "offset")? };
                Ok((Position { epoch: number(&state, "epoch")?, step: number(&state, "step")? }, random))
            })()
            .map_err(within)?;
            for (name, part) in parts.iter_mut() {
                let saved = state.get(*name).map_err(within)?;
                part.load_state(saved).map_err(|e| within(e.within(&format!("part '{name}'"))))?;
            }
            default_generator().set_state(random);
            // Later checkpoints of this run have lower numbers than the damaged ones: those must not be taken for the newest.
            for (damaged, _) in &skipped {
                set_aside(damaged)?;
            }
            // A run killed after writing its last checkpoint had no time to.
            prune(&self.directory, self.keep)?;
            return Ok(Some(Restored { position, path, skipped }));
        }
        if skipped.is_empty() {
            return Ok(None);
        }
        let reasons: Vec<String> = skipped.iter().map(|(path, e)| format!("{}: {e}", path.display())).collect();
        Err(Error::io(format!(
            "restore: every checkpoint in '{}' is damaged; remove them to start over ({})",
            self.directory.display(),
            reasons.join("; ")
        )))
    }

    /// The files, oldest first. They may be damaged.
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        list(&self.directory)
    }
}

impl Drop for Checkpoints {
    /// Waits for the last checkpoint.
    fn drop(&mut self) {
        if let Err(e) = self.finish() {
            eprintln!("rushlight: the last checkpoint was not saved: {e}");
        }
    }
}

/// An unsigned number as the integer with its bits.
fn bits(number: u64) -> Value {
    Value::Int(number as i64)
}

fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        if RESERVED.contains(&name) || !seen.insert(name) {
            return Err(Error::value(format!("Checkpoints: '{name}' cannot name a part: it is taken")));
        }
    }
    Ok(())
}

fn write(state: &Value, path: &Path) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    pt::write(state, &mut file).map_err(|e| e.within(&format!("save '{}'", path.display())))?;
    file.commit()
}

/// A whole checkpoint, every checksum compared.
fn read(path: &Path) -> Result<Value> {
    let state = pt::load_with(path, &LoadOptions::default().verify(true))?;
    match state.get("format").and_then(Value::as_str) {
        Ok(FORMAT) => Ok(state),
        Ok(other) => Err(Error::io(format!("its format is '{other}', this version reads '{FORMAT}'"))),
        Err(_) => Err(Error::io("it is not a checkpoint")),
    }
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e: std::io::Error| Error::io(format!("Checkpoints: cannot list '{}': {e}", directory.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let step = name.strip_prefix(PREFIX).and_then(|n| n.strip_suffix(".pt")).and_then(|n| n.parse::<u64>().ok());
        if let Some(step) = step {
            found.push((step, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Gives a damaged file a name that is never read.
fn set_aside(path: &Path) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    std::fs::rename(path, name).map_err(|e| Error::io(format!("cannot set '{}' aside: {e}", path.display())))
}

/// Removes all but the newest `keep`.
fn prune(directory: &Path, keep: usize) -> Result<()> {
    let files = list(directory)?;
    for old in &files[..files.len().saturating_sub(keep)] {
        std::fs::remove_file(old).map_err(|e| Error::io(format!("cannot remove '{}': {e}", old.display())))?;
    }
    Ok(())
}

/// A copy of a state with tensors of its own; tensors that are one stay one.
fn detached(value: &Value, copies: &mut HashMap<usize, Tensor>) -> Result<Value> {
    let list = |items: &[Value], copies: &mut _| items.iter().map(|v| detached(v, copies)).collect::<Result<Vec<_>>>();
    Ok(match value {
        Value::Tensor(t) => Value::Tensor(match copies.get(&t.id()) {
            Some(copy) => copy.clone(),
            None => {
                let copy = t.detach().copy()?;
                copies.insert(t.id(), copy.clone());
                copy
            }
        }),
        Value::List(items) => Value::List(list(items, copies)?),
        Value::Tuple(items) => Value::Tuple(list(items, copies)?),
        Value::Dict(d) => {
            Value::Dict(d.iter().map(|(k, v)| Ok((k.clone(), detached(v, copies)?))).collect::<Result<Dict>>()?)
        }
        plain => plain.clone(),
    })
}
