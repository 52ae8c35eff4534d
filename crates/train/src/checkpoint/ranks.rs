//! How the ranks of a job save and restore one checkpoint: messages through the job's store.
//!
//! Writing continues in the background, concurrently with the program's collectives, so ranks communicate through the
//! job's store, never by collectives. No call blocks in the store, whose connection is shared: readers poll, at growing
//! intervals.

use super::files::{self, Entry, Manifest, Shard, Trouble};
use super::{Keep, Position};
use rushlight_core::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Marks the report of a rank that cannot read a checkpoint, which may be sound.
const UNREADABLE: &str = "restore (unreadable checkpoint)";

/// Keys and values that all ranks see.
pub trait Board: Send + Sync {
    fn post(&self, key: &str, text: &str) -> Result<()>;
    /// The value of a key, if it is set.
    fn look(&self, key: &str) -> Result<Option<String>>;
    fn remove(&self, key: &str) -> Result<()>;
    /// Adds 1 to a key's number.
    fn count(&self, key: &str) -> Result<i64>;
}

#[cfg(target_os = "linux")]
impl Board for Arc<dyn rushlight_dist::store::Store> {
    fn post(&self, key: &str, text: &str) -> Result<()> {
        self.set(key, text.as_bytes())
    }

    fn look(&self, key: &str) -> Result<Option<String>> {
        if !self.check(&[key])? {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&self.get(key)?).into_owned()))
    }

    fn remove(&self, key: &str) -> Result<()> {
        self.delete_key(key).map(drop)
    }

    fn count(&self, key: &str) -> Result<i64> {
        self.add(key, 1)
    }
}

/// Returns why the job cannot continue, if so.
pub type Failure = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// This rank among those that save together.
#[derive(Clone)]
pub struct Ranks {
    pub rank: usize,
    pub size: usize,
    pub board: Arc<dyn Board>,
    pub failure: Failure,
    /// Distinguishes several [`Checkpoints`](super::Checkpoints) of one job.
    pub prefix: String,
    /// Timeout for the slowest rank.
    pub patience: Duration,
}

impl std::fmt::Debug for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.size)
    }
}

/// A rank's report on its part: empty, or an error.
fn told(result: &Result<String>) -> String {
    match result {
        Ok(text) => format!("ok {text}"),
        Err(e) => format!("failed {e}"),
    }
}

fn heard(text: &str) -> Result<String> {
    match text.split_once(' ') {
        Some(("ok", rest)) => Ok(rest.to_owned()),
        Some(("failed", why)) => Err(Error::io(why.to_owned())),
        _ => Err(Error::io(format!("another rank said {text:?}; are all ranks of one version?"))),
    }
}

impl Ranks {
    fn key(&self, tail: &str) -> String {
        format!("{}/{tail}", self.prefix)
    }

    fn post(&self, tail: &str, text: &str) -> Result<()> {
        self.board.post(&self.key(tail), text)
    }

    /// Waits for a message of rank `from`.
    fn read(&self, tail: &str, from: usize, since: Instant) -> Result<String> {
        let key = self.key(tail);
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(text) = self.board.look(&key)? {
                return Ok(text);
            }
            if let Some(why) = (self.failure)() {
                return Err(Error::io(why));
            }
            if since.elapsed() > self.patience {
                let seconds = self.patience.as_secs_f32();
                return Err(Error::io(format!("rank {from} did not do its part within {seconds} s")));
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(200));
        }
    }

    /// Collects every rank's report on rank 0; all ranks return its verdict.
    fn agree(
        &self,
        tail: &str,
        own: Result<String>,
        decide: impl FnOnce(Vec<String>) -> Result<()>,
        give_up: impl FnOnce(),
    ) -> Result<()> {
        let since = Instant::now();
        let verdict = format!("{tail}/verdict");
        if self.rank > 0 {
            self.post(&format!("{tail}/{}", self.rank), &told(&own))?;
            return heard(&self.read(&verdict, 0, since)?).map(drop);
        }
        let mut parts = vec![own.map_err(|e| e.within("rank 0"))];
        for rank in 1..self.size {
            let text = self.read(&format!("{tail}/{rank}"), rank, since);
            parts.push(text.and_then(|text| heard(&text)).map_err(|e| e.within(&format!("rank {rank}"))));
        }
        // If several ranks fail, the lowest rank's error is reported.
        let result = parts.into_iter().collect::<Result<Vec<_>>>().and_then(decide);
        if result.is_err() {
            give_up();
        }
        self.post(&verdict, &told(&result.clone().map(|()| String::new())))?;
        result
    }

    fn forget(&self, tail: &str, also: &[&str]) {
        let mut keys = vec![format!("{tail}/verdict")];
        keys.extend((1..self.size).map(|rank| format!("{tail}/{rank}")));
        keys.extend(also.iter().map(|name| format!("{tail}/{name}")));
        for key in keys {
            // Keys that are not removed cost a few bytes.
            let _ = self.board.remove(&self.key(&key));
        }
    }

    /// Writes this rank's shard of save number `save`; rank 0 completes the checkpoint when all shards are written. The
    /// result is the same on every rank.
    pub fn save(
        &self,
        save: u64,
        directory: &Path,
        position: Position,
        metric: Option<f64>,
        shard: Shard,
        fingerprint: u64,
        keep: Keep,
    ) -> Result<()> {
        let tail = format!("save/{save}");
        let folder = directory.join(files::name(position.step));
        let (rank, size) = (self.rank, self.size);
        let (id, own) = if rank == 0 {
            let id = new_id();
            let made = make_folder(&folder);
            self.post(&format!("{tail}/id"), &id)?;
            (id, made)
        } else {
            let id = self.read(&format!("{tail}/id"), 0, Instant::now())?;
            (id, make_folder(&folder))
        };
        let file = format!("shard-{rank:05}-of-{size:05}-{id}.pt");
        let own = own.and_then(|()| {
            let bytes = files::write(&Shard { id: id.clone(), ..shard }.into_value(), &folder.join(&file))?;
            Ok(format!("{fingerprint:016x} {bytes} {file}"))
        });
        let decide = |parts: Vec<String>| {
            let mut shards = Vec::with_capacity(size);
            for (rank, part) in parts.iter().enumerate() {
                let mut words = part.splitn(3, ' ');
                let (print, bytes, file) =
                    (words.next().unwrap_or(""), words.next().unwrap_or(""), words.next().unwrap_or(""));
                if print != format!("{fingerprint:016x}") {
                    return Err(Error::value(format!(
                        "rank {rank}'s state has tensors of other dtypes or shapes than rank 0's; parts that differ between \
                         ranks are saved by SaveOptions::sharded"
                    )));
                }
                let bytes: u64 =
                    bytes.parse().map_err(|_| Error::io(format!("rank {rank} reported a shard of {bytes:?} bytes")))?;
                await_file(&folder.join(file), bytes, rank)?;
                shards.push((file.to_owned(), bytes));
            }
            Manifest { id: id.clone(), position, metric, shards }.commit(&folder)?;
            files::prune(directory, keep.newest, keep.best)
        };
        let give_up = || {
            // Remove the partial files to free disk space. An older checkpoint of the same step stays.
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().contains(&id) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
            let _ = std::fs::remove_dir(&folder);
        };
        let result = self.agree(&tail, own, decide, give_up);
        if rank == 0 && save > 0 {
            // Every rank has begun this save, so none reads the keys of the previous one any more.
            self.forget(&format!("save/{}", save - 1), &["id"]);
        }
        result.map_err(|e| e.within(&format!("save '{}'", folder.display())))
    }

    /// Finds the newest complete checkpoint together, and the damaged ones before it. Ranks share the work of checking
    /// checksums.
    pub fn find(&self, restore: u64, directory: &Path) -> Result<(Option<Entry>, Vec<(Entry, Error)>)> {
        let mut skipped = Vec::new();
        let mut candidates = if self.rank == 0 { Some(files::list(directory)) } else { None };
        for attempt in 0u64.. {
            let tail = format!("restore/{restore}/{attempt}");
            let since = Instant::now();
            let announced = format!("{tail}/entry");
            let entry = match &mut candidates {
                Some(Ok(entries)) => {
                    let entry = entries.pop();
                    let text = entry.as_ref().map_or("none".to_owned(), |e| {
                        let kind = if e.is_folder { "folder" } else { "file" };
                        format!("{kind} {} {}", e.step, e.path.file_name().unwrap_or_default().to_string_lossy())
                    });
                    self.post(&announced, &told(&Ok(text)))?;
                    entry
                }
                Some(Err(e)) => {
                    self.post(&announced, &told(&Err(e.clone())))?;
                    return Err(e.clone());
                }
                None => {
                    let text = heard(&self.read(&announced, 0, since)?)?;
                    let words: Vec<&str> = text.splitn(3, ' ').collect();
                    match words[..] {
                        [kind, step, name] => Some(Entry {
                            step: step.parse().map_err(|_| Error::io(format!("rank 0 announced {text:?}")))?,
                            path: directory.join(name),
                            is_folder: kind == "folder",
                        }),
                        _ => None,
                    }
                }
            };
            let Some(entry) = entry else { return Ok((None, skipped)) };
            let own = match files::judge(&entry, self.rank, self.size) {
                Ok(()) => Ok(String::new()),
                Err(Trouble::Damaged(e)) => Err(e),
                Err(Trouble::Unreadable(e)) => Err(e.within(UNREADABLE)),
            };
            match self.agree(&tail, own, |_| Ok(()), || {}) {
                Ok(()) => return Ok((Some(entry), skipped)),
                Err(e) if (self.failure)().is_some() || e.to_string().contains(UNREADABLE) => return Err(e),
                Err(e) => skipped.push((entry, e)),
            }
        }
        unreachable!("the loop ends when there are no more candidates")
    }
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io(format!("cannot make '{}': {e}", folder.display())))?;
    // The folder's own name must survive a loss of power too.
    if let Some(parent) = folder.parent()
        && let Ok(parent) = std::fs::File::open(parent)
    {
        let _ = parent.sync_all();
    }
    Ok(())
}

/// Waits until a file written by another rank is visible here: network file systems may take seconds.
fn await_file(path: &Path, bytes: u64, rank: usize) -> Result<()> {
    let since = Instant::now();
    loop {
        match std::fs::metadata(path) {
            Ok(meta) if meta.len() == bytes => return Ok(()),
            _ if since.elapsed() < Duration::from_secs(15) => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                return Err(Error::io(format!(
                    "rank {rank} has written '{}', which rank 0 does not see; checkpoints of a job need a directory that all \
                     its nodes share",
                    path.display()
                )));
            }
        }
    }
}

fn new_id() -> String {
    use std::hash::{BuildHasher, Hasher};
    // The standard library's hasher has random keys.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u128(std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos()));
    format!("{:016x}", hasher.finish())
}
