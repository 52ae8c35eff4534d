//! Checkpoints: everything a run needs to continue as if it had never stopped.

mod files;
mod ranks;
mod shards;

use files::{Entry, Shard, Trouble};
use ranks::Ranks;
use rushlight_core::rng::default_generator;
use rushlight_core::{Error, Philox, Result};
use rushlight_io::atomic::remove_leftovers;
use rushlight_tensor::state::{Dict, Stateful, Value};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Reserved names of entries.
const RESERVED: [&str; 6] = ["format", "epoch", "step", "random", "metric", "sharded"];

/// Position of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The epoch the run is in.
    pub epoch: u64,
    /// Optimizer steps done since the start of the run.
    pub step: u64,
}

/// Which metric is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Best {
    /// The lowest, as of a loss.
    Lowest,
    /// The highest, as of an accuracy.
    Highest,
}

/// Options of [`Checkpoints::save_with`]: values saved in addition to the parts.
#[derive(Clone, Copy, Default)]
pub struct SaveOptions<'a> {
    metric: Option<f64>,
    sharded: &'a [(&'a str, &'a dyn Stateful)],
}

impl<'a> SaveOptions<'a> {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The metric that [`CheckpointsBuilder::keep_best`] compares. In a job of several ranks, rank 0's counts.
    pub fn metric(mut self, metric: f64) -> Self {
        self.metric = Some(metric);
        self
    }

    /// Per-rank parts: an optimizer's shard, a sampler's position. [`Restored::load_sharded`] reads them back.
    pub fn sharded(mut self, parts: &'a [(&'a str, &'a dyn Stateful)]) -> Self {
        self.sharded = parts;
        self
    }
}

/// The result of [`Checkpoints::restore`].
#[derive(Debug)]
pub struct Restored {
    /// Position at which the run continues.
    pub position: Position,
    /// The file or directory it was loaded from.
    pub path: PathBuf,
    /// Newer checkpoints that were damaged, and their errors. They are renamed with a suffix `.damaged`.
    pub skipped: Vec<(PathBuf, Error)>,
    /// The metric saved with it.
    pub metric: Option<f64>,
    /// Number of ranks that saved it.
    pub world_size: usize,
    entry: Entry,
    rank: usize,
    size: usize,
}

impl Restored {
    /// Restores this rank's shard of a part saved with [`SaveOptions::sharded`]. The world must have the same size
    /// as then. [`Restored::shards`] returns all shards to a program that can repartition them.
    pub fn load_sharded(&self, name: &str, part: &mut dyn Stateful) -> Result<()> {
        let within = |e: Error| e.within(&format!("restore '{}', part '{name}'", self.path.display()));
        if self.world_size != self.size {
            return Err(within(Error::value(format!(
                "{} ranks saved a shard each, now there are {}; start as many ranks, or cut the shards anew \
                 (Restored::shards has all of them)",
                self.world_size, self.size
            ))));
        }
        let shards = self.shards(name)?;
        part.load_state(&shards[self.rank]).map_err(within)
    }

    /// The shards of a per-rank part, by rank.
    pub fn shards(&self, name: &str) -> Result<Vec<Value>> {
        files::sharded(&self.entry, name).map_err(|e| e.within(&format!("restore '{}'", self.path.display())))
    }
}

/// The checkpoints of a run in a directory, each complete and checksummed.
///
/// A checkpoint holds the state of every part it is given (model, optimizer, scheduler, scaler, loader), the position,
/// and the state of the random generator. A run killed at any moment continues from the newest complete checkpoint and
/// ends with the same weights, bit by bit.
///
/// A single process writes one file per checkpoint, `checkpoint-STEP.pt`, which `torch.load` reads.
///
/// ```
/// # mod rushlight {
/// #     pub use rushlight_tensor::*;
/// #     pub use rushlight_nn as nn;
/// #     pub use rushlight_train as train;
/// # }
/// use rushlight::nn::{Forward, Linear, Module};
/// use rushlight::Tensor;
/// use rushlight::train::{Checkpoints, Position};
/// # let directory = std::env::temp_dir().join(format!("rushlight-doc-checkpoints-{}", std::process::id()));
/// let mut model = Linear::new(20, 1)?;
/// let mut checkpoints = Checkpoints::builder(&directory).keep(2).build()?;
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
///
/// # Jobs of several ranks
///
/// With [`CheckpointsBuilder::world`] all ranks save one checkpoint together, in a directory that their nodes share.
/// Every rank calls `save` and `restore` alike; `parts` must be the same on every rank, as in data-parallel training.
/// Each rank writes its share of the tensors to a file in a directory `checkpoint-STEP`; when all are on disk, rank 0
/// writes `manifest.json`. A directory without a manifest is not a checkpoint, so a job killed in the middle of a save
/// continues from the previous one.
///
/// A checkpoint is restored by any number of ranks, including one. Random generators continue if the
/// world has the same size; additional ranks get their own streams, derived from rank 0's.
///
/// ```no_run
/// # mod rushlight { pub use rushlight_dist as dist; }
/// # use rushlight_nn::Linear;
/// # use rushlight_train::{Best, Checkpoints, Position, SaveOptions};
/// let world = rushlight::dist::init()?;
/// let mut model = Linear::new(20, 1)?;
/// let mut checkpoints = Checkpoints::builder("run1")
///     .world(&world)
///     .background(true)
///     .keep(2)
///     .keep_best(1, Best::Lowest)
///     .build()?;
/// checkpoints.restore(&mut [("model", &mut model)])?;
/// # let (position, loss) = (Position::default(), 0.5);
/// checkpoints.save_with(position, &[("model", &model)], SaveOptions::new().metric(loss))?;
/// checkpoints.finish()?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// # Full and failing disks
///
/// A save that fails on any rank fails on all, removes its files and keeps the earlier checkpoints.
/// The error comes from `save`, or with [`CheckpointsBuilder::background`] from the next `save` or
/// [`Checkpoints::finish`]. [`CheckpointsBuilder::tolerate`] prints it instead and continues.
#[derive(Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    keep: Keep,
    background: bool,
    tolerate: usize,
    failures: usize,
    ranks: Option<Ranks>,
    saves: u64,
    restores: u64,
    writing: Option<JoinHandle<Result<()>>>,
}

/// Number of checkpoints kept.
#[derive(Clone, Copy, Debug)]
struct Keep {
    newest: usize,
    best: Option<(usize, Best)>,
}

/// The options of [`Checkpoints`].
#[derive(Clone, Debug)]
pub struct CheckpointsBuilder {
    directory: PathBuf,
    keep: Keep,
    background: bool,
    tolerate: usize,
    ranks: Option<Ranks>,
}

impl CheckpointsBuilder {
    /// Number of checkpoints to keep; older ones are removed after a new one is complete. Three by default: the newest
    /// may be damaged.
    pub fn keep(mut self, keep: usize) -> Self {
        self.keep.newest = keep;
        self
    }

    /// The number of checkpoints kept for the best metric ([`SaveOptions::metric`]), besides the newest.
    pub fn keep_best(mut self, count: usize, best: Best) -> Self {
        self.keep.best = Some((count, best));
        self
    }

    /// Writes on another thread: [`Checkpoints::save`] returns when the state is copied (in a job of several ranks,
    /// this rank's share). An error is reported by the next call. A save waits for the previous one.
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Number of consecutive failed saves that are tolerated. Failures are printed; the last complete checkpoint stays
    /// the newest. Zero by default. [`Checkpoints::finish`] returns every error.
    pub fn tolerate(mut self, failures: usize) -> Self {
        self.tolerate = failures;
        self
    }

    /// The ranks that save together: all ranks of a world. In a world of one this has no effect. Ranks that have
    /// several `Checkpoints` must build them in the same order.
    #[cfg(all(target_os = "linux", feature = "dist"))]
    pub fn world(mut self, world: &rushlight_dist::World) -> Self {
        use std::sync::Arc;
        if world.size() > 1 {
            self.ranks = Some(Ranks {
                rank: world.rank(),
                size: world.size(),
                board: Arc::new(world.store().clone()),
                failure: Arc::new(world.failure()),
                prefix: String::new(),
                patience: world.timeout(),
            });
        }
        self
    }

    /// Creates the directory if it is missing. Nothing in it is changed before the first save, which removes unfinished
    /// checkpoints of killed runs: a program that only reads may be built beside a running job.
    pub fn build(self) -> Result<Checkpoints> {
        if self.keep.newest == 0 {
            return Err(Error::value("Checkpoints: keep must be at least 1"));
        }
        std::fs::create_dir_all(&self.directory)
            .map_err(|e| Error::io(format!("Checkpoints: cannot make '{}': {e}", self.directory.display())))?;
        let Self { directory, keep, background, tolerate, mut ranks } = self;
        if let Some(ranks) = &mut ranks {
            let built = ranks.board.count(&format!("rushlight-checkpoints/built/{}", ranks.rank))?;
            ranks.prefix = format!("rushlight-checkpoints/{built}");
        }
        let (failures, saves, restores, writing) = (0, 0, 0, None);
        Ok(Checkpoints { directory, keep, background, tolerate, failures, ranks, saves, restores, writing })
    }
}

impl Checkpoints {
    /// Checkpoints in a directory.
    pub fn new(directory: impl Into<PathBuf>) -> Result<Self> {
        Self::builder(directory).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](CheckpointsBuilder::build).
    pub fn builder(directory: impl Into<PathBuf>) -> CheckpointsBuilder {
        let keep = Keep { newest: 3, best: None };
        CheckpointsBuilder { directory: directory.into(), keep, background: false, tolerate: 0, ranks: None }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Saves all parts, the position and the random state, then removes checkpoints beyond the number to keep.
    pub fn save(&mut self, position: Position, parts: &[(&str, &dyn Stateful)]) -> Result<()> {
        self.save_with(position, parts, SaveOptions::new())
    }

    /// [`Checkpoints::save`] with a metric, or with per-rank parts.
    pub fn save_with(
        &mut self,
        position: Position,
        parts: &[(&str, &dyn Stateful)],
        options: SaveOptions,
    ) -> Result<()> {
        let before = self.finish();
        self.judge(before)?;
        // Other ranks write nothing before rank 0 has begun a save.
        if self.saves == 0 && self.ranks.as_ref().is_none_or(|ranks| ranks.rank == 0) {
            remove_leftovers(&self.directory);
            files::remove_incomplete(&self.directory)?;
        }
        check_names(parts.iter().chain(options.sharded).map(|(name, _)| *name))?;
        let random = default_generator().state();
        let state = states(parts)?;
        let sharded = states(options.sharded)?;
        let write: Box<dyn FnOnce() -> Result<()> + Send> = match &self.ranks {
            Some(ranks) => self.shard_writer(ranks, position, options.metric, random, state, sharded)?,
            None => self.file_writer(position, options.metric, random, state, sharded)?,
        };
        self.saves += 1;
        if !self.background {
            let now = write();
            return self.judge(now);
        }
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(write);
        self.writing = Some(thread.map_err(|e| Error::io(format!("Checkpoints: cannot start a thread: {e}")))?);
        Ok(())
    }

    /// Removes all but the best checkpoints ([`CheckpointsBuilder::keep_best`]): training is complete, so the newest is
    /// not needed to continue. Does nothing on ranks other than 0.
    pub(crate) fn keep_only_best(&mut self) -> Result<()> {
        self.finish()?;
        if self.ranks.as_ref().is_some_and(|ranks| ranks.rank != 0) {
            return Ok(());
        }
        files::prune(&self.directory, 0, self.keep.best)
    }

    /// Prepares the deferred writing of a one-file checkpoint.
    fn file_writer(
        &self,
        position: Position,
        metric: Option<f64>,
        random: Philox,
        parts: Dict,
        sharded: Dict,
    ) -> Result<Box<dyn FnOnce() -> Result<()> + Send>> {
        let mut state = Dict::new();
        state.insert("format".into(), files::FORMAT.into());
        state.insert("epoch".into(), files::bits(position.epoch));
        state.insert("step".into(), files::bits(position.step));
        state.insert("random".into(), files::random_value(random));
        if let Some(metric) = metric {
            state.insert("metric".into(), metric.into());
        }
        if !sharded.is_empty() {
            state.insert("sharded".into(), sharded.into());
        }
        state.extend(parts);
        let state = Value::Dict(state);
        // Training continues to change the tensors, so the thread gets copies.
        let state = if self.background { shards::copied(&state)? } else { state };
        let path = self.directory.join(format!("{}.pt", files::name(position.step)));
        let (directory, keep) = (self.directory.clone(), self.keep);
        Ok(Box::new(move || {
            files::write(&state, &path)?;
            files::prune(&directory, keep.newest, keep.best)
        }))
    }

    /// Prepares the deferred writing of this rank's shard. Copies only this rank's tensors.
    fn shard_writer(
        &self,
        ranks: &Ranks,
        position: Position,
        metric: Option<f64>,
        random: Philox,
        parts: Dict,
        sharded: Dict,
    ) -> Result<Box<dyn FnOnce() -> Result<()> + Send>> {
        let split = shards::split(&parts.into())?;
        let writers = shards::assign(&split.tensors, ranks.size);
        let fingerprint = shards::fingerprint(&split.tensors);
        let mut tensors = Vec::new();
        for (number, tensor) in split.tensors.iter().enumerate().filter(|(number, _)| writers[*number] == ranks.rank) {
            let tensor = if self.background { shards::copy_of(tensor)? } else { tensor.clone() };
            tensors.push((number, Value::Tensor(tensor)));
        }
        let sharded = Value::Dict(sharded);
        let sharded = if self.background { shards::copied(&sharded)? } else { sharded };
        let Value::Dict(sharded) = sharded else { return Err(Error::value("Checkpoints: a dictionary was expected")) };
        let skeleton = (ranks.rank == 0).then_some(split.skeleton);
        let shard = Shard { id: String::new(), random, skeleton, tensors, sharded };
        let (ranks, directory, keep, save) = (ranks.clone(), self.directory.clone(), self.keep, self.saves);
        Ok(Box::new(move || ranks.save(save, &directory, position, metric, shard, fingerprint, keep)))
    }

    /// Counts a save's result, and returns the error if there were too many in a row.
    fn judge(&mut self, result: Result<()>) -> Result<()> {
        let Err(e) = result else {
            self.failures = 0;
            return Ok(());
        };
        self.failures += 1;
        if self.failures > self.tolerate {
            return Err(e);
        }
        if self.ranks.as_ref().is_none_or(|ranks| ranks.rank == 0) {
            rushlight_core::warn!(
                "a checkpoint was not saved, the one before stays the newest; failure {} in a row, {} are tolerated: {e}",
                self.failures,
                self.tolerate
            );
        }
        Ok(())
    }

    /// Waits until a background save is complete.
    pub fn finish(&mut self) -> Result<()> {
        match self.writing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::io("Checkpoints: the thread that wrote the last checkpoint died")),
        }
    }

    /// Whether a checkpoint is being written.
    pub fn is_writing(&self) -> bool {
        self.writing.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Restores all parts and the random state from the newest complete checkpoint; `None` if there is no checkpoint
    /// yet. Damaged files are skipped and reported. If all checkpoints are damaged, that is an error: a run must not
    /// silently start over. So is one that the file system does not give, after some attempts: it may be sound, and
    /// stays.
    pub fn restore(&mut self, parts: &mut [(&str, &mut dyn Stateful)]) -> Result<Option<Restored>> {
        self.finish()?;
        check_names(parts.iter().map(|(name, _)| *name))?;
        let (rank, size) = self.ranks.as_ref().map_or((0, 1), |ranks| (ranks.rank, ranks.size));
        let (found, skipped) = match &self.ranks {
            Some(ranks) => ranks.find(self.restores, &self.directory)?,
            None => find(&self.directory)?,
        };
        self.restores += 1;
        let skipped: Vec<(PathBuf, Error)> = skipped.into_iter().map(|(entry, e)| (entry.path, e)).collect();
        let Some(entry) = found else {
            if skipped.is_empty() {
                return Ok(None);
            }
            let reasons: Vec<String> = skipped.iter().map(|(path, e)| format!("{}: {e}", path.display())).collect();
            return Err(Error::io(format!(
                "restore: every checkpoint in '{}' is damaged; remove them to start over ({})",
                self.directory.display(),
                reasons.join("; ")
            )));
        };
        let within = |e: Error| e.within(&format!("restore '{}'", entry.path.display()));
        let loaded = files::load(&entry, false).map_err(within)?;
        for (name, part) in parts.iter_mut() {
            let saved = loaded.state.get(*name).map_err(within)?;
            part.load_state(saved).map_err(|e| within(e.within(&format!("part '{name}'"))))?;
        }
        default_generator().set_state(stream(&loaded.random, rank));
        if rank == 0 {
            // Later checkpoints of this run have lower numbers than the damaged ones, which must not be mistaken for
            // the newest.
            for (damaged, _) in &skipped {
                files::set_aside(damaged)?;
            }
        }
        let world_size = loaded.random.len();
        let (position, metric, path) = (loaded.position, loaded.metric, entry.path.clone());
        Ok(Some(Restored { position, path, skipped, metric, world_size, entry, rank, size }))
    }

    /// The checkpoints, oldest first: files, or directories of shards. They may be damaged.
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        Ok(files::list(&self.directory)?.into_iter().map(|entry| entry.path).collect())
    }

    /// The checkpoint whose metric is the best, if there is one with a metric.
    pub fn best(&self, best: Best) -> Result<Option<PathBuf>> {
        let metrics =
            files::list(&self.directory)?.into_iter().filter_map(|entry| Some((files::metric(&entry)?, entry)));
        let sign = if best == Best::Lowest { 1.0 } else { -1.0 };
        let found = metrics.filter(|(m, _)| !m.is_nan()).min_by(|(a, _), (b, _)| (sign * a).total_cmp(&(sign * b)));
        Ok(found.map(|(_, entry)| entry.path))
    }
}

impl Drop for Checkpoints {
    /// Waits for the last checkpoint.
    fn drop(&mut self) {
        if let Err(e) = self.finish() {
            rushlight_core::warn!("the last checkpoint was not saved: {e}");
        }
    }
}

/// Reads a checkpoint that a run has saved: a file, or a directory of shards, which are merged. The result has an entry
/// for each part; [`rushlight_io::save`] writes it as one `.pt` file.
pub fn load_checkpoint(path: impl AsRef<Path>) -> Result<Value> {
    let path = path.as_ref();
    let entry = Entry { step: 0, path: path.to_path_buf(), is_folder: path.is_dir() };
    let within = |e: Error| e.within(&format!("load_checkpoint '{}'", path.display()));
    files::verify(&entry, 0, 1).and_then(|()| files::load(&entry, false)).map(|loaded| loaded.state).map_err(within)
}

/// Where a checkpoint was saved, and with which metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointInfo {
    /// Epochs and steps done.
    pub position: Position,
    /// The metric saved with it.
    pub metric: Option<f64>,
}

/// Reads position and metric of a checkpoint: a file, or a directory of shards. Its tensors are not read.
pub fn checkpoint_info(path: impl AsRef<Path>) -> Result<CheckpointInfo> {
    let path = path.as_ref();
    let entry = Entry { step: 0, path: path.to_path_buf(), is_folder: path.is_dir() };
    files::info(&entry).map_err(|e| e.within(&format!("checkpoint_info '{}'", path.display())))
}

/// The newest complete checkpoint, and the damaged ones before it.
fn find(directory: &Path) -> Result<(Option<Entry>, Vec<(Entry, Error)>)> {
    let mut skipped = Vec::new();
    for entry in files::list(directory)?.into_iter().rev() {
        match files::judge(&entry, 0, 1) {
            Ok(()) => return Ok((Some(entry), skipped)),
            Err(Trouble::Damaged(e)) => skipped.push((entry, e)),
            Err(Trouble::Unreadable(e)) => return Err(e.within("restore")),
        }
    }
    Ok((None, skipped))
}

/// The random stream of a rank: the saved one, or a new one with its own seed for an additional rank.
fn stream(saved: &[Philox], rank: usize) -> Philox {
    let first = saved.first().copied().unwrap_or(Philox { seed: 0, offset: 0 });
    saved.get(rank).copied().unwrap_or_else(|| {
        let seed = first.seed ^ (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Philox { seed, offset: first.offset }
    })
}

fn states(parts: &[(&str, &dyn Stateful)]) -> Result<Dict> {
    let state = |(name, part): &(&str, &dyn Stateful)| {
        Ok(((*name).into(), part.state().map_err(|e| e.within(&format!("save part '{name}'")))?))
    };
    parts.iter().map(state).collect()
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
