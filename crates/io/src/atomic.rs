//! Atomic file writes: a file appears complete or not at all.

use crate::temporary;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

/// After how many bytes the disk is set to work.
const STRETCH: usize = 32 << 20;

/// A file written beside its destination and moved there when it is complete.
///
/// Until [`commit`](AtomicFile::commit) or [`replace`](AtomicFile::replace) succeeds, the destination keeps its old
/// contents. A file dropped before that is removed; leftovers of a killed process are removed by the next one that
/// writes the same file. A file that replaces another keeps its permissions. Readers that have the old file open or
/// mapped keep the old contents.
///
/// ```
/// # mod rushlight { pub use rushlight_io as io; }
/// use rushlight::io::atomic::AtomicFile;
/// use std::io::Write;
/// let path = std::env::temp_dir().join(format!("rushlight-doc-{}.txt", std::process::id()));
/// let mut file = AtomicFile::create(&path)?;
/// file.write_all(b"whole")?;
/// assert!(!path.exists());
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"whole");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    file: File,
    temporary: PathBuf,
    destination: PathBuf,
    moved: bool,
    /// Whether the end of the work will wait for the disk.
    waits: bool,
    /// Bytes written since the disk was last set to work.
    pending: usize,
    /// The thread that sets the disk to work.
    flusher: Option<Flusher>,
    /// Dropped after the change of name.
    _replaced: Option<Replaced>,
}

impl AtomicFile {
    /// Starts a file that will become `path`. If `path` is a link, the file it points to will be replaced.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::create_unnamed(path).map_err(|e| Error::io(format!("cannot write '{}': {e}", path.display())))
    }

    /// Starts a file that will be put in place by [`replace`](AtomicFile::replace), not by
    /// [`commit`](AtomicFile::commit).
    pub(crate) fn create_to_replace(path: &Path) -> Result<Self> {
        let mut file = Self::create(path)?;
        file.waits = file.destination.exists();
        Ok(file)
    }

    fn create_unnamed(path: &Path) -> io::Result<Self> {
        let (destination, replaced) = match fs::metadata(path) {
            Ok(meta) if !meta.is_file() => return Err(io::Error::other("it exists and is not a regular file")),
            Ok(meta) => (fs::canonicalize(path)?, Some(meta)),
            Err(_) => (path.to_path_buf(), None),
        };
        let (file, temporary) = temporary::create(&destination, replaced.is_some())?;
        let _replaced = Replaced::expect(&destination);
        let file =
            Self { file, temporary, destination, moved: false, waits: true, pending: 0, flusher: None, _replaced };
        if let Some(replaced) = &replaced {
            temporary::adopt(&file.file, replaced)?;
        }
        Ok(file)
    }

    /// Puts the file in place so that it survives a loss of power: the bytes are on the disk before the name changes,
    /// and the change of name before this returns.
    pub fn commit(self) -> Result<()> {
        let path = self.destination.clone();
        self.finish(true).map_err(|e| Error::io(format!("cannot write '{}': {e}", path.display())))
    }

    /// Puts the file in place without waiting for the disk: whole for every process at any moment, but a loss of power
    /// soon after may lose it.
    pub fn replace(self) -> Result<()> {
        let path = self.destination.clone();
        self.finish(false).map_err(|e| Error::io(format!("cannot write '{}': {e}", path.display())))
    }

    fn finish(mut self, durable: bool) -> io::Result<()> {
        if let Some(flusher) = self.flusher.take() {
            flusher.finish(durable)?;
        }
        if durable {
            self.file.sync_all()?;
        }
        fs::rename(&self.temporary, &self.destination)?;
        self.moved = true;
        if durable && cfg!(unix) {
            File::open(temporary::folder(&self.destination))?.sync_all()?;
        }
        Ok(())
    }
}

/// Removes the unfinished files of killed processes in a folder. Files that are
/// still being written stay. Files of other nodes that share the file system are removed after a day
/// without a write.
pub fn remove_leftovers(folder: impl AsRef<Path>) {
    temporary::remove_dead(folder.as_ref());
}

/// A large file that another is about to replace.
#[derive(Debug)]
struct Replaced(Option<File>);

impl Replaced {
    /// Takes the file's pages out of the cache, for the new file to take: memory that is in use already is much quicker
    /// than fresh one, above all in virtual machines.
    fn expect(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        // Elsewhere an open file could not be replaced.
        if !cfg!(unix) || file.metadata().ok()?.len() < STRETCH as u64 {
            return None;
        }
        #[cfg(target_os = "linux")]
        if let Ok(file) = file.try_clone() {
            aside(move || {
                use std::os::fd::AsRawFd;
                // SAFETY: the file is open; the call takes no memory. That it is only advice is as well: nothing
                // depends on it.
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            });
        }
        Some(Self(Some(file)))
    }
}

impl Drop for Replaced {
    /// Held open over the change of name, the old file is freed here and not by `rename`: aside, as that takes as long
    /// as writing it.
    fn drop(&mut self) {
        let file = self.0.take();
        aside(move || drop(file));
    }
}

/// Runs optional work in a separate thread.
fn aside(work: impl FnOnce() + Send + 'static) {
    // Without a thread the work is dropped, and with it the file it holds.
    let _ = thread::Builder::new().name("rushlight-free".into()).spawn(work);
}

/// A thread that writes a file back to the disk while more is written.
///
/// The kernel reports a failed write-back once to an open file. The thread may be told first, so it keeps the error for
/// the one who commits.
#[derive(Debug)]
struct Flusher {
    wake: mpsc::SyncSender<()>,
    thread: thread::JoinHandle<()>,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl Flusher {
    fn start(sync: impl Fn() -> io::Result<()> + Send + 'static) -> Option<Self> {
        let (wake, woken) = mpsc::sync_channel(1);
        let error = Arc::new(Mutex::new(None));
        let slot = error.clone();
        let flush = move || {
            while woken.recv().is_ok() {
                if let Err(e) = sync() {
                    *lock(&slot) = Some(e);
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("rushlight-flush".into()).spawn(flush).ok()?;
        Some(Self { wake, thread, error })
    }

    /// The error of a write-back, once.
    fn take_error(&self) -> io::Result<()> {
        taken(&self.error)
    }

    /// Ends the thread, and returns its error: the one so far, or with `wait` also of a write-back under way.
    fn finish(self, wait: bool) -> io::Result<()> {
        let Self { wake, thread, error } = self;
        drop(wake);
        if wait && thread.join().is_err() {
            return Err(io::Error::other("the thread that writes back died"));
        }
        taken(&error)
    }
}

fn taken(slot: &Mutex<Option<io::Error>>) -> io::Result<()> {
    match lock(slot).take() {
        Some(e) => Err(io::Error::new(e.kind(), format!("the disk did not take what was written ({e})"))),
        None => Ok(()),
    }
}

impl AtomicFile {
    /// Starts writing back to disk in the background while more is written. Otherwise `commit` would wait for the disk
    /// after the writing, and so would some file systems (ext4) when a file replaces another.
    fn flush_in_background(&mut self) -> io::Result<()> {
        if self.flusher.is_none() {
            let Ok(file) = self.file.try_clone() else { return Ok(()) };
            self.flusher = Flusher::start(move || file.sync_data());
        }
        if let Some(flusher) = &self.flusher {
            flusher.take_error()?;
            // A full channel means that the thread will look once more anyway.
            let _ = flusher.wake.try_send(());
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(&bytes[..bytes.len().min(STRETCH)])?;
        self.pending += n;
        if self.waits && self.pending >= STRETCH {
            self.pending = 0;
            self.flush_in_background()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.moved {
            // A failure cannot be reported here, and a stray temporary file is harmless.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write-back that fails in the background: the file is not put in place, whoever was told of the error.
    #[test]
    fn a_failed_write_back_is_an_error_of_commit() {
        let path = std::env::temp_dir().join(format!("rushlight-write-back-{}", std::process::id()));
        fs::write(&path, b"old").unwrap();
        let failing = || Flusher::start(|| Err(io::Error::from_raw_os_error(5)));
        for durable in [true, false] {
            let mut file = AtomicFile::create(&path).unwrap();
            file.write_all(b"new").unwrap();
            file.flusher = failing();
            file.flusher.as_ref().unwrap().wake.send(()).unwrap();
            if !durable {
                while file.flusher.as_ref().unwrap().error.lock().unwrap().is_none() {
                    thread::yield_now();
                }
            }
            let message = if durable { file.commit() } else { file.replace() }.unwrap_err().to_string();
            assert!(message.contains("the disk did not take"), "{message}");
            assert_eq!(fs::read(&path).unwrap(), b"old");
        }
        // A later write fails as well: nothing more is written to a broken disk.
        let mut file = AtomicFile::create(&path).unwrap();
        file.flusher = failing();
        file.flusher.as_ref().unwrap().wake.send(()).unwrap();
        while file.flusher.as_ref().unwrap().error.lock().unwrap().is_none() {
            thread::yield_now();
        }
        assert!(file.write_all(&vec![0; STRETCH + 1]).is_err());
        drop(file);
        fs::remove_file(&path).unwrap();
    }
}
