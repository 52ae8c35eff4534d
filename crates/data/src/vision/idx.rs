//! The idx format of the MNIST files: a header with sizes, then bytes.

use crate::download::failed;
use flate2::read::MultiGzDecoder;
use rushlight_core::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Larger than any real file of this kind; a header that claims more is refused.
const MAX_BYTES: usize = 1 << 28;

/// Sizes and bytes of an idx file, unpacked if its name ends in `.gz`. The file must have `rank` dimensions.
pub(super) fn read_idx(path: &Path, rank: usize) -> Result<(Vec<usize>, Vec<u8>)> {
    let file = BufReader::new(File::open(path).map_err(|e| failed("open", path, &e))?);
    if path.extension().is_some_and(|e| e == "gz") {
        parse(&mut MultiGzDecoder::new(file), path, rank)
    } else {
        parse(&mut { file }, path, rank)
    }
}

fn parse(input: &mut impl Read, path: &Path, rank: usize) -> Result<(Vec<usize>, Vec<u8>)> {
    let damaged = |why: String| Error::value(format!("idx: {} is damaged or cut off: {why}", path.display()));
    let mut word = || {
        let mut bytes = [0u8; 4];
        input.read_exact(&mut bytes).map(|()| u32::from_be_bytes(bytes)).map_err(|e| damaged(e.to_string()))
    };
    // Two zero bytes, the type (8 is unsigned bytes), the number of dimensions.
    let magic = word()?;
    if magic != 0x0800 + rank as u32 {
        return Err(damaged(format!(
            "it starts with {magic:#010x} instead of {:#010x}, unsigned bytes in {rank} dimensions",
            0x0800 + rank
        )));
    }
    let sizes: Vec<usize> = (0..rank).map(|_| Ok(word()? as usize)).collect::<Result<_>>()?;
    let total = sizes
        .iter()
        .try_fold(1usize, |n, &size| n.checked_mul(size))
        .filter(|&n| n <= MAX_BYTES)
        .ok_or_else(|| damaged(format!("it claims sizes {sizes:?}, more than {MAX_BYTES} bytes")))?;
    // Grows with the data read, not with the claimed size; reads one byte more to detect excess data.
    let mut bytes = Vec::new();
    input.take(total as u64 + 1).read_to_end(&mut bytes).map_err(|e| damaged(e.to_string()))?;
    if bytes.len() != total {
        let found = if bytes.len() > total { "more".into() } else { bytes.len().to_string() };
        return Err(damaged(format!("its sizes {sizes:?} need {total} bytes, it has {found}")));
    }
    Ok((sizes, bytes))
}
