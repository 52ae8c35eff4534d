//! Compiled kernels on disk, so that a second run of a program compiles nothing.
//!
//! A file is named by a hash of everything its contents depend on, is written to a temporary file and renamed, and
//! carries a checksum: a concurrent writer writes the same, and a damaged file is recompiled.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A directory of compiled kernels.
pub struct Cache {
    /// The environment variable that names the directory; empty for none.
    pub variable: &'static str,
    /// The directory's name in `rushlight` in the user's cache directory, where the variable is not set.
    pub folder: &'static str,
    /// How the files' names end.
    pub extension: &'static str,
    /// The first bytes of a file.
    pub magic: &'static [u8; 8],
}

/// The cache of kernels of NVIDIA's and AMD's GPUs.
pub static KERNELS: Cache =
    Cache { variable: "RUSHLIGHT_CUDA_CACHE", folder: "cuda", extension: "cubin", magic: b"RLCUBIN1" };

/// The magic and the checksum.
const HEADER: usize = 8 + 16;

/// FNV-1a over 128 bits: stable across versions and machines, and collision-free in practice.
pub fn hash(parts: &[&[u8]]) -> u128 {
    let mut h = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58du128;
    for part in parts {
        // Hash each part's length too, so that moving a boundary changes the hash.
        for &byte in (part.len() as u64).to_le_bytes().iter().chain(part.iter()) {
            h = (h ^ byte as u128).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
    h
}

impl Cache {
    fn directory(&self) -> Option<PathBuf> {
        if let Some(path) = std::env::var_os(self.variable) {
            return (!path.is_empty()).then(|| path.into());
        }
        let base = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
        Some(base.join("rushlight").join(self.folder))
    }

    /// The image stored under a hash, if its checksum matches.
    pub fn read(&self, key: u128) -> Option<Vec<u8>> {
        self.read_in(&self.directory()?, key)
    }

    /// Stores an image. Failure is no error: the next run compiles again.
    pub fn write(&self, key: u128, image: &[u8]) {
        if let Some(directory) = self.directory() {
            self.write_in(&directory, key, image);
        }
    }

    fn file(&self, directory: &Path, key: u128) -> PathBuf {
        directory.join(format!("{key:032x}.{}", self.extension))
    }

    fn read_in(&self, directory: &Path, key: u128) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.file(directory, key)).ok()?;
        let (header, image) = bytes.split_at_checked(HEADER)?;
        let whole = header[..8] == *self.magic && header[8..] == hash(&[image]).to_le_bytes();
        whole.then(|| image.to_vec())
    }

    fn write_in(&self, directory: &Path, key: u128, image: &[u8]) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if std::fs::create_dir_all(directory).is_err() {
            return;
        }
        let name = format!("{key:032x}.{}.{}.part", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let part = directory.join(name);
        let bytes = [self.magic.as_slice(), &hash(&[image]).to_le_bytes(), image].concat();
        if std::fs::write(&part, bytes).is_err() || std::fs::rename(&part, self.file(directory, key)).is_err() {
            let _ = std::fs::remove_file(&part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_not_read() {
        let directory = std::env::temp_dir().join(format!("rushlight-cubin-{}", std::process::id()));
        let image: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        let key = hash(&[b"source", b"sm_90"]);
        assert!(KERNELS.read_in(&directory, key).is_none());
        KERNELS.write_in(&directory, key, &image);
        KERNELS.write_in(&directory, key, &image);
        assert_eq!(KERNELS.read_in(&directory, key).as_deref(), Some(&image[..]));
        let path = KERNELS.file(&directory, key);
        let good = std::fs::read(&path).unwrap();
        for damage in [good[..good.len() - 1].to_vec(), good[..10].to_vec(), Vec::new(), {
            let mut flipped = good.clone();
            flipped[500] ^= 1;
            flipped
        }] {
            std::fs::write(&path, damage).unwrap();
            assert!(KERNELS.read_in(&directory, key).is_none());
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "no temporary file is left");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn boundaries_count() {
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b"ab"]), hash(&[b"ab", b""]));
    }
}
