//! A store in a file on a shared file system.

use super::table::{Op, Outcome, Table};
use super::{DEFAULT_TIMEOUT, Store, frame, millis, timed_out};
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A store that appends its changes to a file; every process reads new records from its last position.
///
/// The file is readable by its owner alone. It is removed with the last store on it, once `world_size` processes have
/// dropped theirs.
pub struct FileStore {
    path: PathBuf,
    state: Mutex<State>,
    world_size: Option<usize>,
    /// Whether this store stands for a process; a clone does not.
    is_process: bool,
    timeout: AtomicU64,
}

struct State {
    file: Arc<File>,
    table: Table,
    /// Position up to which the file has been read.
    position: u64,
}

/// Counts processes that have finished with the file.
const LEFT: &str = "\0left";
/// Counts open stores on the file.
const OPEN: &str = "\0open";

impl FileStore {
    /// Opens the store in `path`, which is created if missing. All processes need the same path, and no earlier run may
    /// have left a file there.
    pub fn open(path: impl AsRef<Path>, world_size: Option<usize>) -> Result<Self> {
        Self::open_as(path, world_size, true)
    }

    fn open_as(path: impl AsRef<Path>, world_size: Option<usize>, is_process: bool) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path)
            .map_err(|e| Error::io(format!("FileStore: {} cannot be opened: {e}", path.display())))?;
        // A process that can read the file can join the job; one that can write to it is obeyed.
        let meta = file.metadata()?;
        // SAFETY: `geteuid` has no preconditions.
        if !meta.is_file() || meta.uid() != unsafe { libc::geteuid() } {
            return Err(Error::io(format!(
                "FileStore: {} is not a file of this user; choose another path: somebody else may have planted it",
                path.display()
            )));
        }
        if meta.mode() & 0o077 != 0 {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        let state = State { file: Arc::new(file), table: Table::default(), position: 0 };
        let timeout = AtomicU64::new(millis(DEFAULT_TIMEOUT));
        let store = Self { path, state: Mutex::new(state), world_size, is_process, timeout };
        store.add(OPEN, 1)?;
        Ok(store)
    }

    /// Whether the path still names this file: another run may have taken its place.
    fn is_in_place(&self) -> bool {
        let own = lock(&self.state).file.metadata();
        let there = std::fs::symlink_metadata(&self.path);
        matches!((own, there), (Ok(own), Ok(there)) if (own.dev(), own.ino()) == (there.dev(), there.ino()))
    }

    fn once(&self, op: Op, args: &[&[u8]]) -> Result<Outcome> {
        let mut state = lock(&self.state);
        let file = state.file.clone();
        let _lock = Lock::take(&file)?;
        state.catch_up().map_err(|e| e.within(&format!("FileStore {}", self.path.display())))?;
        let outcome = state.table.apply(op, args)?;
        // A queue without elements has not changed.
        if op.changes() && matches!(outcome, Outcome::Done(_)) {
            let record = frame::request(op, 0, args)?;
            (&*file).seek(SeekFrom::Start(state.position))?;
            (&*file).write_all(&record)?;
            state.position += record.len() as u64;
        }
        Ok(outcome)
    }
}

impl State {
    /// Applies the records of other processes. An unfinished record is cut off: under the lock no other process is
    /// writing.
    fn catch_up(&mut self) -> Result<()> {
        let length = self.file.metadata()?.len();
        if length < self.position {
            return Err(Error::io("the file became shorter; another run may have removed it"));
        }
        if length == self.position {
            return Ok(());
        }
        let mut bytes = Vec::new();
        (&*self.file).seek(SeekFrom::Start(self.position))?;
        (&*self.file).take(length - self.position).read_to_end(&mut bytes)?;
        let mut rest = bytes.as_slice();
        while let Some((body, used)) = frame::split(rest)? {
            let (op, _, args) = frame::parse_request(body)?;
            if op.changes() {
                self.table.apply(op, &args)?;
            }
            rest = &rest[used..];
            self.position += used as u64;
        }
        if !rest.is_empty() {
            self.file.set_len(self.position)?;
        }
        Ok(())
    }
}

/// An exclusive lock on the whole file, by `flock`: it belongs to this open file, so that threads exclude each other
/// too, and it ends with the process.
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    fn take(file: &'a File) -> Result<Self> {
        loop {
            // SAFETY: the descriptor is open as long as the file.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } == 0 {
                return Ok(Self(file));
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(Error::io(format!("FileStore: the file cannot be locked: {error}")));
            }
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

impl Store for FileStore {
    fn try_clone(self: Arc<Self>) -> Result<Arc<dyn Store>> {
        let store = Self::open_as(&self.path, self.world_size, false)?;
        store.set_timeout(self.timeout());
        Ok(Arc::new(store))
    }

    fn call(&self, op: Op, args: &[&[u8]], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let started = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            match self.once(op, args)? {
                // The counts of users are the store's own.
                Outcome::Done(values) if op == Op::ListKeys => {
                    return Ok(values.into_iter().filter(|key| key.first() != Some(&0)).collect());
                }
                Outcome::Done(values) => return Ok(values),
                Outcome::Blocked(_) if started.elapsed() >= timeout => return Err(timed_out(op, args, timeout)),
                Outcome::Blocked(_) => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.load(Relaxed))
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(millis(timeout), Relaxed);
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        let left = self.add(LEFT, i64::from(self.is_process));
        let open = self.add(OPEN, -1);
        if let (Some(world), Ok(left), Ok(0)) = (self.world_size, left, open)
            && left as usize >= world
            && self.is_in_place()
        {
            // Another process may have removed it first; errors are ignored.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
