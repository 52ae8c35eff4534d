//! Compiled programs on disk, so that a second run compiles nothing.
//!
//! A file is named by a hash of its text and of the properties of the device and its driver, is written to a temporary
//! file and renamed, and carries a checksum: a damaged file is recompiled.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MAGIC: &[u8; 8] = b"RLOPENCL";
const HEADER: usize = MAGIC.len() + 16;

/// The variable that names the directory; empty for none.
const DIRECTORY: &str = "RUSHLIGHT_XPU_CACHE";

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

/// Directory of compiled programs: [`DIRECTORY`], else `rushlight/xpu` in the user's cache directory.
fn directory() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(DIRECTORY) {
        return (!path.is_empty()).then(|| path.into());
    }
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(base.join("rushlight").join("xpu"))
}

/// The image stored under a hash, if its checksum matches.
pub fn read(key: u128) -> Option<Vec<u8>> {
    read_in(&directory()?, key)
}

/// Stores an image. Failure is no error: the next run compiles again.
pub fn write(key: u128, image: &[u8]) {
    if let Some(directory) = directory() {
        write_in(&directory, key, image);
    }
}

fn file(directory: &Path, key: u128) -> PathBuf {
    directory.join(format!("{key:032x}.cl.bin"))
}

fn read_in(directory: &Path, key: u128) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file(directory, key)).ok()?;
    let (header, image) = bytes.split_at_checked(HEADER)?;
    let whole = header[..8] == *MAGIC && header[8..] == hash(&[image]).to_le_bytes();
    whole.then(|| image.to_vec())
}

fn write_in(directory: &Path, key: u128, image: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if std::fs::create_dir_all(directory).is_err() {
        return;
    }
    let name = format!("{key:032x}.{}.{}.part", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let part = directory.join(name);
    let bytes = [MAGIC.as_slice(), &hash(&[image]).to_le_bytes(), image].concat();
    if std::fs::write(&part, bytes).is_err() || std::fs::rename(&part, file(directory, key)).is_err() {
        let _ = std::fs::remove_file(&part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_not_read() {
        let directory = std::env::temp_dir().join(format!("rushlight-xpu-{}", std::process::id()));
        let (image, key) = ([7u8; 100], hash(&[b"text", b"device"]));
        write_in(&directory, key, &image);
        assert_eq!(read_in(&directory, key).as_deref(), Some(&image[..]));
        let mut bytes = std::fs::read(file(&directory, key)).unwrap();
        bytes[50] ^= 1;
        std::fs::write(file(&directory, key), bytes).unwrap();
        assert!(read_in(&directory, key).is_none());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
