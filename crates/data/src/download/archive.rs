//! Unpacking `.tar.gz` archives that need not be trusted.

use super::failed;
use flate2::read::MultiGzDecoder;
use rushlight_core::{Error, Result};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Component, Path, PathBuf};

const BLOCK: usize = 512;

/// How much an archive may write.
#[derive(Clone, Copy, Debug)]
pub struct UnpackLimits {
    /// Bytes of all files together.
    pub bytes: u64,
    /// Files and folders.
    pub entries: usize,
}

impl Default for UnpackLimits {
    /// Four gibibytes in a hundred thousand entries.
    fn default() -> Self {
        Self { bytes: 4 << 30, entries: 100_000 }
    }
}

/// Unpacks the files and folders of an archive into a folder and gives the files' paths. Entries that would be outside
/// the folder, links and devices are refused.
pub fn unpack_tar_gz(archive: &Path, folder: &Path, limits: UnpackLimits) -> Result<Vec<PathBuf>> {
    let file = File::open(archive).map_err(|e| failed("open", archive, &e))?;
    let mut tar = Tar { input: MultiGzDecoder::new(BufReader::new(file)), archive };
    fs::create_dir_all(folder).map_err(|e| failed("create", folder, &e))?;
    let (mut files, mut entries, mut bytes) = (Vec::new(), 0usize, 0u64);
    while let Some(entry) = tar.next_entry()? {
        entries += 1;
        bytes = bytes.saturating_add(entry.size);
        if entries > limits.entries || bytes > limits.bytes {
            return Err(tar
                .refuse(&format!("holds more than the {} bytes in {} entries allowed", limits.bytes, limits.entries)));
        }
        match entry.kind {
            b'0' | 0 => {
                let path = folder.join(tar.safe_path(&entry.name)?);
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent).map_err(|e| failed("create", parent, &e))?;
                }
                tar.write_file(&path, entry.size)?;
                files.push(path);
            }
            b'5' => {
                let path = folder.join(tar.safe_path(&entry.name)?);
                fs::create_dir_all(&path).map_err(|e| failed("create", &path, &e))?;
                tar.skip(entry.padded_size())?;
            }
            // Extended attributes: times and owners, which are of no interest. A long name would come this way too.
            b'x' | b'g' => {
                let text = tar.read_bounded(entry.size)?;
                if [&b" path="[..], b" size=", b" linkpath="].iter().any(|key| contains(&text, key)) {
                    return Err(tar.refuse("has extended names or sizes, which are not supported; unpack it with tar"));
                }
                tar.skip(entry.padded_size() - entry.size)?;
            }
            kind => {
                return Err(tar.refuse(&format!(
                    "has an entry '{}' of kind '{}'; only plain files and folders are unpacked",
                    entry.name.escape_debug(),
                    (kind as char).escape_debug()
                )));
            }
        }
    }
    Ok(files)
}

fn contains(text: &[u8], key: &[u8]) -> bool {
    text.windows(key.len()).any(|w| w == key)
}

struct Entry {
    name: String,
    size: u64,
    kind: u8,
}

impl Entry {
    fn padded_size(&self) -> u64 {
        self.size.div_ceil(BLOCK as u64).saturating_mul(BLOCK as u64)
    }
}

struct Tar<'a> {
    input: MultiGzDecoder<BufReader<File>>,
    archive: &'a Path,
}

/// Text up to the first zero byte.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = text(field);
    u64::from_str_radix(text.trim_matches(' '), 8).ok()
}

impl Tar<'_> {
    #[cold]
    fn refuse(&self, why: &str) -> Error {
        Error::value(format!("unpack: {} {why}", self.archive.display()))
    }

    #[cold]
    fn broken(&self, error: &std::io::Error) -> Error {
        Error::io(format!("unpack: {} is cut off or damaged: {error}", self.archive.display()))
    }

    fn next_entry(&mut self) -> Result<Option<Entry>> {
        let mut block = [0u8; BLOCK];
        self.input.read_exact(&mut block).map_err(|e| self.broken(&e))?;
        if block.iter().all(|&b| b == 0) {
            return Ok(None);
        }
        // The checksum counts its own field as spaces.
        let sum: u64 =
            block.iter().enumerate().map(|(i, &b)| if (148..156).contains(&i) { 32 } else { b as u64 }).sum();
        if octal(&block[148..156]) != Some(sum) {
            return Err(self.refuse("has a damaged header, or is no tar archive"));
        }
        let size = octal(&block[124..136]).ok_or_else(|| self.refuse("has a header without a size"))?;
        let mut name = text(&block[..100]);
        if &block[257..262] == b"ustar" && block[345] != 0 && block[262] == 0 {
            name = format!("{}/{name}", text(&block[345..500]));
        }
        Ok(Some(Entry { name, size, kind: block[156] }))
    }

    fn safe_path(&self, name: &str) -> Result<PathBuf> {
        let mut path = PathBuf::new();
        for component in Path::new(name).components() {
            match component {
                Component::Normal(part) => path.push(part),
                Component::CurDir => {}
                _ => {
                    return Err(self.refuse(&format!("has an entry '{}' outside its own folder", name.escape_debug())));
                }
            }
        }
        if path.as_os_str().is_empty() && name.is_empty() {
            return Err(self.refuse("has an entry without a name"));
        }
        Ok(path)
    }

    fn write_file(&mut self, path: &Path, size: u64) -> Result<()> {
        let mut out = File::create(path).map_err(|e| failed("create", path, &e))?;
        let written =
            std::io::copy(&mut self.input.by_ref().take(size), &mut out).map_err(|e| failed("write", path, &e))?;
        if written != size {
            return Err(self.refuse("is cut off"));
        }
        self.skip(size.div_ceil(BLOCK as u64) * BLOCK as u64 - size)
    }

    fn read_bounded(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > 1 << 20 {
            return Err(self.refuse("has an extended header of more than a mebibyte"));
        }
        let mut bytes = vec![0; size as usize];
        self.input.read_exact(&mut bytes).map_err(|e| self.broken(&e))?;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let skipped =
            std::io::copy(&mut self.input.by_ref().take(bytes), &mut std::io::sink()).map_err(|e| self.broken(&e))?;
        if skipped == bytes { Ok(()) } else { Err(self.refuse("is cut off")) }
    }
}
