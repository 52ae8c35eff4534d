//! Reading a growing file, with detection of truncation and replacement.

use super::beneath::Root;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum bytes read from a file at once.
const PIECE: usize = 1 << 20;

/// Identifies a file: device and inode.
type Identity = (u64, u64);

/// A file and the position up to which it was read.
#[derive(Debug)]
pub struct Tail {
    root: Root,
    path: PathBuf,
    offset: u64,
    identity: Option<Identity>,
    /// Size and modification time at the last read: an unchanged file is not opened again.
    seen: Option<(u64, Option<SystemTime>)>,
    /// Minimum bytes that the reader needs next.
    needed: usize,
    /// Whether the reader cannot use the bytes so far: the file is read again when it changes.
    waiting: bool,
}

/// The result of polling a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Grown {
    /// Nothing new.
    Nothing,
    /// The file was truncated or replaced: everything read so far is void, and the next call restarts.
    Reset,
    /// Bytes from the offset on.
    Bytes(Vec<u8>),
}

#[cfg(unix)]
fn identity(metadata: &std::fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> Identity {
    (0, 0)
}

impl Tail {
    /// Starts at the beginning of a file below a directory.
    pub fn new(root: &Root, path: PathBuf) -> Self {
        Self { root: root.clone(), path, offset: 0, identity: None, seen: None, needed: 0, waiting: false }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of the next piece.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads appended bytes. A removed file is a reset; an unreadable one has no new bytes.
    pub fn poll(&mut self) -> Grown {
        let Ok(mut file) = self.open_changed() else {
            return if self.offset > 0 && !self.path.exists() { self.reset() } else { Grown::Nothing };
        };
        let Some((file, size)) = &mut file else { return Grown::Nothing };
        if *size < self.offset || self.seen.is_none() && self.offset > 0 {
            return self.reset();
        }
        let want = PIECE.max(self.needed);
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(self.offset)).and_then(|_| file.take(want as u64).read_to_end(&mut bytes));
        if read.is_err() || bytes.is_empty() {
            return Grown::Nothing;
        }
        Grown::Bytes(bytes)
    }

    /// Opens the file if it may have more. The identity is the opened file's, so a replacement in between is
    /// noticed.
    fn open_changed(&mut self) -> std::io::Result<Option<(File, u64)>> {
        let metadata = std::fs::metadata(&self.path)?;
        let state = Some((metadata.len(), metadata.modified().ok()));
        let read = self.waiting || self.offset >= metadata.len();
        if self.seen == state && read && self.identity == Some(identity(&metadata)) {
            return Ok(None);
        }
        let file = self.root.open(&self.path)?;
        let metadata = file.metadata()?;
        let replaced = self.identity.replace(identity(&metadata)).is_some_and(|known| known != identity(&metadata));
        self.seen = if replaced { None } else { Some((metadata.len(), metadata.modified().ok())) };
        Ok(Some((file, metadata.len())))
    }

    fn reset(&mut self) -> Grown {
        *self = Self::new(&self.root.clone(), std::mem::take(&mut self.path));
        Grown::Reset
    }

    /// Reports the number of bytes consumed and the minimum size of the next piece.
    pub fn consume(&mut self, bytes: usize, needed: usize) {
        self.offset += bytes as u64;
        self.needed = needed;
        self.waiting = false;
    }

    /// Whether a piece of `bytes` bytes reached the end of the file.
    pub fn is_end(&self, bytes: usize) -> bool {
        bytes < PIECE.max(self.needed)
    }

    /// The rest of the file cannot be used until it changes.
    pub fn wait(&mut self) {
        self.waiting = true;
    }

    /// Restarts at the beginning.
    pub fn restart(&mut self) {
        *self = Self::new(&self.root.clone(), std::mem::take(&mut self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_grows_is_cut_and_replaced() {
        let path = std::env::temp_dir().join(format!("rushlight-tail-{}", std::process::id()));
        let mut tail = Tail::new(&Root::new(&std::env::temp_dir()), path.clone());
        assert_eq!(tail.poll(), Grown::Nothing);
        std::fs::write(&path, "one\ntw").unwrap();
        assert_eq!(tail.poll(), Grown::Bytes(b"one\ntw".to_vec()));
        tail.consume(4, 0);
        assert_eq!(tail.poll(), Grown::Bytes(b"tw".to_vec()));
        tail.wait();
        assert_eq!(tail.poll(), Grown::Nothing);
        std::fs::write(&path, "on").unwrap();
        assert_eq!(tail.poll(), Grown::Reset);
        assert_eq!(tail.poll(), Grown::Bytes(b"on".to_vec()));
        tail.consume(2, 0);
        assert_eq!(tail.poll(), Grown::Nothing);
        let other = path.with_extension("new");
        std::fs::write(&other, "longer than before\n").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(tail.poll(), Grown::Reset);
        assert_eq!(tail.poll(), Grown::Bytes(b"longer than before\n".to_vec()));
        tail.consume(19, 0);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(tail.poll(), Grown::Reset);
        assert_eq!(tail.poll(), Grown::Nothing);
    }
}
