//! Writes tensors' bytes to a file.

use crate::atomic::AtomicFile;
use rushlight_core::{Error, Result, Storage};
use rushlight_tensor::Tensor;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::thread;

/// Bytes copied from a device at a time.
const STAGE: usize = 4 << 20;

/// Minimum size for computing a checksum in a separate thread.
const LARGE: usize = 4 << 20;

/// Writes a temporary file and renames it to `path`. Small pieces are buffered; tensors are written directly.
pub(crate) fn save(path: &Path, write: impl FnOnce(&mut BufWriter<AtomicFile>) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, AtomicFile::create_to_replace(path)?);
    write(&mut out)?;
    out.into_inner().map_err(|e| Error::from(e.into_error()))?.replace()
}

/// The bytes of a tensor's elements in row-major order: which range of which tensor's storage. A tensor with gaps is
/// copied.
pub(crate) fn contiguous(tensor: &Tensor) -> Result<(Tensor, Range<usize>)> {
    let tensor = tensor.detach().contiguous()?;
    let size = tensor.dtype().size();
    let start = tensor.layout().offset() * size;
    let end = start + tensor.numel() * size;
    // An empty tensor may start past the end of its storage.
    let range = if start == end { 0..0 } else { start..end };
    Ok((tensor, range))
}

/// Writes a range of a storage, straight from memory where the host can see it.
pub(crate) fn write(storage: &Storage, range: Range<usize>, out: &mut impl Write) -> Result<()> {
    match host_bytes(storage, range.clone()) {
        Some(bytes) => Ok(out.write_all(bytes)?),
        None => staged(storage, range, |chunk| Ok(out.write_all(chunk)?)),
    }
}

/// Writes a range of a storage and gives its CRC-32. The checksum of large ranges is computed while the system takes
/// the bytes.
pub(crate) fn write_summed(storage: &Storage, range: Range<usize>, out: &mut impl Write) -> Result<u32> {
    let Some(bytes) = host_bytes(storage, range.clone()) else {
        let mut sum = crc32fast::Hasher::new();
        staged(storage, range, |chunk| {
            sum.update(chunk);
            Ok(out.write_all(chunk)?)
        })?;
        return Ok(sum.finalize());
    };
    if bytes.len() < LARGE {
        out.write_all(bytes)?;
        return Ok(crc32fast::hash(bytes));
    }
    thread::scope(|scope| {
        let sum = thread::Builder::new().name("rushlight-crc".into()).spawn_scoped(scope, || crc32fast::hash(bytes));
        out.write_all(bytes)?;
        Ok(sum.ok().and_then(|sum| sum.join().ok()).unwrap_or_else(|| crc32fast::hash(bytes)))
    })
}

fn host_bytes(storage: &Storage, range: Range<usize>) -> Option<&[u8]> {
    let fits = range.start <= range.end && range.end <= storage.bytes();
    // SAFETY: the range is within the storage, which is host memory and outlives the slice. Changing a tensor while
    // another thread saves it is the user's to prevent, as `Tensor` says.
    (storage.device().is_cpu() && fits)
        .then(|| unsafe { std::slice::from_raw_parts(storage.ptr().add(range.start), range.len()) })
}

fn staged(storage: &Storage, range: Range<usize>, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0; STAGE.min(range.len())];
    for start in range.clone().step_by(STAGE) {
        let chunk = &mut buffer[..STAGE.min(range.end - start)];
        storage.backend().download(storage, start, chunk)?;
        take(chunk)?;
    }
    Ok(())
}
