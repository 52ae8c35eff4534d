//! PyTorch's distributed checkpoints (`torch.distributed.checkpoint`): a folder with one file of shards from each rank
//! and `.metadata`, which says where each part of each tensor is.
//!
//! Each rank writes its parts to files of its own. One rank then writes `.metadata`, by one rename, which makes the
//! checkpoint valid: a folder without it is none. Readers need not have the writers' number or layout: [`Reader::read`]
//! gives any part of a tensor, from whichever files hold it.
//!
//! ```
//! # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_io as io; }
//! use rushlight::io::dcp::{self, Metadata, Part, Reader};
//! use rushlight::{Tensor, state::Value};
//! let folder = std::env::temp_dir().join(format!("rushlight-doc-dcp-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! let mut metadata = Metadata::default();
//! // Two ranks, each with two of four rows.
//! for rank in 0..2 {
//!     let rows = Tensor::full([2, 3], rank as f32)?;
//!     let part = Part::tensor("weight", &[4, 3], &[2 * rank, 0], &rows)?;
//!     metadata.extend(dcp::write_parts(&folder, &dcp::file_name(rank, 0), &[part])?)?;
//! }
//! dcp::commit(&folder, &metadata)?;
//! let reader = Reader::open(&folder)?;
//! assert_eq!(reader.read("weight", &[1, 0], &[2, 1])?.to_vec::<f32>()?, [0.0, 1.0]);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), rushlight_core::Error>(())
//! ```
//!
//! Models of Hugging Face's are read and written by the same parts: [`Reader::open_safetensors`], [`SafetensorsPlan`].
//!
//! Files are not trusted: no code of a pickle runs, as for [`pt`].

#[cfg(unix)]
mod hugging_face;
mod metadata;
mod pickled;
mod read;

#[cfg(unix)]
pub use hugging_face::{Described, SafetensorsPlan};
pub use metadata::{Chunk, Entry, Metadata, Part, Place, Step};
pub use read::Reader;

use crate::atomic::AtomicFile;
use crate::pt;
use rushlight_core::{Error, Result};
use rushlight_tensor::state::Value;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The file that makes a folder a checkpoint.
pub const METADATA: &str = ".metadata";

/// PyTorch's name of a rank's file.
pub fn file_name(rank: usize, number: usize) -> String {
    format!("__{rank}_{number}.distcp")
}

/// Counts the bytes written.
struct Counted<W> {
    out: W,
    count: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.count += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Writes parts to one file of a checkpoint's folder, durably, and says where each is.
pub fn write_parts(folder: impl AsRef<Path>, file: &str, parts: &[Part]) -> Result<Metadata> {
    let path = folder.as_ref().join(file);
    let write = || {
        let mut out = Counted { out: BufWriter::with_capacity(1 << 16, AtomicFile::create(&path)?), count: 0 };
        let mut metadata = Metadata::default();
        for part in parts {
            let start = out.count;
            match &part.content {
                metadata::Content::Tensor { data, .. } => pt::write(&Value::Tensor(data.clone()), &mut out)?,
                metadata::Content::Bytes(bytes) => out.write_all(bytes)?,
            }
            let place = Place { file: file.into(), offset: start, length: out.count - start };
            metadata.add(part, place)?;
        }
        out.out.into_inner().map_err(|e| Error::from(e.into_error()))?.commit()?;
        Ok(metadata)
    };
    write().map_err(|e: Error| e.within(&format!("checkpoint '{}'", path.display())))
}

/// Makes a checkpoint valid: writes `.metadata` after everything it names is on the disk.
pub fn commit(folder: impl AsRef<Path>, metadata: &Metadata) -> Result<()> {
    let path = folder.as_ref().join(METADATA);
    let write = || {
        metadata.check()?;
        let mut out = AtomicFile::create(&path)?;
        out.write_all(&pickled::write(metadata)?)?;
        out.commit()
    };
    write().map_err(|e: Error| e.within(&format!("checkpoint '{}'", path.display())))
}
