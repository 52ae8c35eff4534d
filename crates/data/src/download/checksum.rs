//! Checksums of files.

use md5::Md5;
use rushlight_core::{Error, Result};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The expected checksum of a file, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// As torchvision lists them. Guards against accidents, not against an attacker.
    Md5(String),
    /// A cryptographic checksum.
    Sha256(String),
}

impl Checksum {
    /// An error unless the file has this checksum.
    pub fn verify(&self, path: &Path) -> Result<()> {
        let found = match self {
            Checksum::Md5(_) => digest::<Md5>(path),
            Checksum::Sha256(_) => digest::<Sha256>(path),
        }
        .map_err(|e| super::failed("read", path, &e))?;
        let (Checksum::Md5(wanted) | Checksum::Sha256(wanted)) = self;
        if found.eq_ignore_ascii_case(wanted) {
            return Ok(());
        }
        Err(Error::value(format!(
            "{} is damaged or another file: expected {self}, found {found}; delete it and fetch it again",
            path.display()
        )))
    }
}

fn digest<D: Digest>(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = D::new();
    let mut buffer = vec![0u8; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Checksum::Md5(hex) => write!(f, "MD5 {hex}"),
            Checksum::Sha256(hex) => write!(f, "SHA-256 {hex}"),
        }
    }
}
