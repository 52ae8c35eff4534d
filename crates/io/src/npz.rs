//! NumPy's `.npz` files: a zip archive of `.npy` files.

use crate::source::Source;
use crate::zip::{Archive, Entry, Method, Writer};
use crate::{LoadOptions, npy, sink};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;
use std::io::Write;
use std::path::Path;

/// Reads the arrays of a file written by `numpy.savez`, `numpy.savez_compressed` or [`save`].
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    load_with(path, &LoadOptions::default())
}

/// Reads the arrays of a file; see [`load`]. Aligned arrays that are not compressed are views of the read file,
/// others are copied.
pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<StateDict> {
    let path = path.as_ref();
    Source::open(path, options.mmap)
        .and_then(|source| load_source(&source, options))
        .map_err(|e| e.within(&format!("npz::load '{}'", path.display())))
}

/// Reads the contents of a file that are already in memory.
pub fn from_bytes(bytes: &[u8]) -> Result<StateDict> {
    Source::from_bytes(bytes)
        .and_then(|source| load_source(&source, &LoadOptions::default()))
        .map_err(|e| e.within("npz::from_bytes"))
}

pub(crate) fn load_source(source: &Source, options: &LoadOptions) -> Result<StateDict> {
    let archive = Archive::open(source)?;
    let mut inflatable = options.max_inflated.unwrap_or_else(|| (source.len() as u64).saturating_mul(64).max(1 << 30));
    let mut tensors = StateDict::new();
    for (name, entry) in &archive.entries {
        let tensor =
            array(source, entry, options, &mut inflatable).map_err(|e| e.within(&format!("entry '{name}'")))?;
        tensors.insert(name.strip_suffix(".npy").unwrap_or(name).to_string(), tensor);
    }
    Ok(tensors)
}

fn array(source: &Source, entry: &Entry, options: &LoadOptions, inflatable: &mut u64) -> Result<Tensor> {
    let packed = &source.bytes()[entry.data.clone()];
    match entry.method {
        Method::Stored => {
            if options.verify {
                check_sum(packed, entry)?;
            }
            npy::parse(source, entry.data.clone())
        }
        Method::Deflated => {
            *inflatable = inflatable.checked_sub(entry.size as u64).ok_or_else(|| {
                Error::io(format!(
                    "it unpacks to {} bytes, more than is allowed for a file of this size; see LoadOptions::max_inflated",
                    entry.size
                ))
            })?;
            // Deflate never does better than 1032 to 1: refuse a larger claim before allocating memory for it.
            if entry.size / 1032 > packed.len() {
                return Err(Error::io(format!("{} bytes cannot unpack to {}", packed.len(), entry.size)));
            }
            let unpacked = Source::filled(entry.size, |out| inflate(packed, out))?;
            check_sum(unpacked.bytes(), entry)?;
            npy::parse(&unpacked, 0..entry.size)
        }
        Method::Other(method) => Err(Error::unsupported(format!(
            "compression method {method}; numpy.savez and numpy.savez_compressed write 0 and 8"
        ))),
    }
}

pub(crate) fn check_sum(bytes: &[u8], entry: &Entry) -> Result<()> {
    if crc32fast::hash(bytes) == entry.crc {
        return Ok(());
    }
    Err(Error::io("its contents do not match their checksum: the file is damaged"))
}

/// Unpacks into a buffer that must be filled exactly.
pub(crate) fn inflate(packed: &[u8], out: &mut [u8]) -> Result<()> {
    let mut state = Box::<DecompressorOxide>::default();
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, _, written) = decompress(&mut state, packed, out, 0, flags);
    if status == TINFLStatus::Done && written == out.len() {
        return Ok(());
    }
    Err(Error::io("its compressed bytes are damaged"))
}

/// Writes tensors as `numpy.savez` does, to a temporary file that then replaces `path`. `bfloat16`, which NumPy
/// lacks, is an error.
pub fn save(tensors: &StateDict, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    sink::save(path, |out| write(tensors, out)).map_err(|e| e.within(&format!("npz::save '{}'", path.display())))
}

/// Writes tensors as `numpy.savez` does, to anything that takes bytes in order.
pub fn write(tensors: &StateDict, out: &mut impl Write) -> Result<()> {
    let mut archive = Writer::new(out);
    for (name, tensor) in tensors {
        if name.len() > 1 << 15 {
            return Err(Error::value(format!("a name of {} bytes does not fit a zip archive", name.len())));
        }
        let header = npy::header(tensor).map_err(|e| e.within(&format!("tensor '{name}'")))?;
        let (tensor, range) = sink::contiguous(tensor)?;
        archive.entry(&format!("{name}.npy"), (header.len() + range.len()) as u64, |out| {
            out.write_all(&header)?;
            let data = sink::write_summed(tensor.storage(), range.clone(), out)?;
            let mut sum = crc32fast::Hasher::new();
            sum.update(&header);
            sum.combine(&crc32fast::Hasher::new_with_initial_len(data, range.len() as u64));
            Ok(sum.finalize())
        })?;
    }
    archive.finish()
}
