//! Reads parts of a distributed checkpoint, whichever ranks wrote them.

use super::metadata::{Chunk, Entry, Metadata, Place};
use super::{METADATA, pickled};
use crate::pt;
use crate::source::{self, OpenFile, Source};
use rushlight_core::{DType, Dims, Error, Result, layout};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// An open checkpoint. Files are opened once, and only those that hold something that is read.
pub struct Reader {
    folder: PathBuf,
    metadata: Metadata,
    files: Mutex<HashMap<String, Arc<OpenFile>>>,
    /// Whether parts are the elements' bytes, as in safetensors, and not written by `torch.save`.
    is_raw: bool,
}

impl Reader {
    /// Opens a committed checkpoint.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_path_buf();
        let path = folder.join(METADATA);
        if !path.exists() {
            return Err(Error::io(format!(
                "'{}' is no distributed checkpoint: it has no file {METADATA}, which is written last",
                folder.display()
            )));
        }
        let metadata = Source::open(&path, false)
            .and_then(|source| pickled::read(source.bytes()))
            .map_err(|e| e.within(&format!("checkpoint '{}'", path.display())))?;
        Ok(Self { folder, metadata, files: Mutex::default(), is_raw: false })
    }

    /// A folder whose files hold the elements' bytes.
    pub(super) fn of_raw(folder: PathBuf, metadata: Metadata) -> Self {
        Self { folder, metadata, files: Mutex::default(), is_raw: true }
    }

    /// What the checkpoint has.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn within(&self, name: &str) -> impl Fn(Error) -> Error {
        let what = format!("checkpoint '{}': '{name}'", self.folder.display());
        move |e| e.within(&what)
    }

    fn file(&self, name: &str) -> Result<Arc<OpenFile>> {
        let mut files = self.files.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(file) = files.get(name) {
            return Ok(file.clone());
        }
        let file = Arc::new(OpenFile::open(&self.folder.join(name))?);
        files.insert(name.into(), file.clone());
        Ok(file)
    }

    /// The rows of a part that a region needs, and the first of them: of raw files only their bytes are read.
    fn rows(&self, chunk: &Chunk, dtype: DType, start: &[usize], common: &[usize]) -> Result<(Tensor, usize)> {
        if !self.is_raw {
            return match self.value(chunk.place.as_ref())? {
                Value::Tensor(part) if part.shape() == &chunk.sizes[..] && part.dtype() == dtype => Ok((part, 0)),
                Value::Tensor(part) => Err(Error::io(format!(
                    "a part of it is {} {:?}, the checkpoint says {dtype} {:?}",
                    part.dtype(),
                    part.shape(),
                    chunk.sizes
                ))),
                _ => Err(Error::io("a part of it is no tensor")),
            };
        }
        let place = chunk.place.as_ref().ok_or_else(|| Error::io("the checkpoint does not say where it is"))?;
        let mut shape = chunk.sizes.clone();
        let mut first = 0;
        if let Some(rows) = shape.first_mut() {
            (*rows, first) = (common[0], start[0] - chunk.offsets[0]);
        }
        let row = chunk.sizes.iter().skip(1).product::<usize>() * dtype.size();
        let begin = place.offset as usize + first * row;
        let length = shape.iter().product::<usize>() * dtype.size();
        let storage = self.file(&place.file)?.storage(begin..begin + length, dtype)?;
        let part = source::tensor(&storage, &shape, &layout::contiguous_strides(&shape), 0, dtype)?;
        Ok((part, first))
    }

    /// The bytes of a place.
    fn bytes(&self, place: &Place) -> Result<Vec<u8>> {
        let file = self.file(&place.file)?;
        let outside = || Error::io(format!("file '{}' is shorter than the checkpoint says", place.file));
        let end = place.offset.checked_add(place.length).filter(|&end| end <= file.len() as u64).ok_or_else(outside)?;
        file.read(place.offset as usize..end as usize)
    }

    fn value(&self, place: Option<&Place>) -> Result<Value> {
        let place = place.ok_or_else(|| Error::io("the checkpoint does not say where it is"))?;
        pt::from_bytes(&self.bytes(place)?)
    }

    /// The bytes of a value that is no tensor, as `torch.save` wrote them.
    pub fn saved(&self, name: &str) -> Result<Vec<u8>> {
        match self.metadata.get(name) {
            Some(Entry::Bytes(Some(place))) => self.bytes(place).map_err(self.within(name)),
            Some(_) => Err(self.within(name)(Error::value("it is a tensor, or was not written"))),
            None => Err(self.missing(name)),
        }
    }

    /// A value that is no tensor.
    pub fn object(&self, name: &str) -> Result<Value> {
        let bytes = self.saved(name)?;
        pt::from_bytes(&bytes).map_err(self.within(name))
    }

    fn missing(&self, name: &str) -> Error {
        let names: Vec<&str> = self.metadata.entries().iter().take(5).map(|(name, _)| name.as_str()).collect();
        Error::value(format!(
            "checkpoint '{}' has no '{name}'; it has {} entries, such as {names:?}",
            self.folder.display(),
            self.metadata.entries().len()
        ))
    }

    /// A whole tensor.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        match self.metadata.get(name) {
            Some(Entry::Tensor { size, .. }) => self.read(name, &vec![0; size.len()], size),
            Some(_) => Err(self.within(name)(Error::value("it is no tensor"))),
            None => Err(self.missing(name)),
        }
    }

    /// The part of a tensor that starts at `offsets` and has the shape `sizes`, put together from the parts that were
    /// written.
    pub fn read(&self, name: &str, offsets: &[usize], sizes: &[usize]) -> Result<Tensor> {
        let Some(Entry::Tensor { dtype, size, chunks, .. }) = self.metadata.get(name) else {
            return Err(match self.metadata.get(name) {
                Some(_) => self.within(name)(Error::value("it is no tensor")),
                None => self.missing(name),
            });
        };
        let fits = offsets.len() == size.len()
            && sizes.len() == size.len()
            && (0..size.len()).all(|i| offsets[i].checked_add(sizes[i]).is_some_and(|end| end <= size[i]));
        if !fits {
            return Err(self.within(name)(Error::shape(format!(
                "its shape is {size:?}; there is no part of shape {sizes:?} at {offsets:?}"
            ))));
        }
        let read = || {
            no_grad(|| {
                let out = Tensor::empty_with(sizes, *dtype)?;
                let mut found = 0;
                for chunk in chunks {
                    let Some((start, common)) = overlap(chunk, offsets, sizes) else { continue };
                    found += common.iter().product::<usize>();
                    let (part, first) = self.rows(chunk, *dtype, &start, &common)?;
                    let (mut to, mut from) = (out.clone(), part);
                    for (dim, (&at, &n)) in start.iter().zip(&common).enumerate() {
                        to = to.narrow(dim as isize, (at - offsets[dim]) as isize, n)?;
                        let skipped = chunk.offsets[dim] + if dim == 0 { first } else { 0 };
                        from = from.narrow(dim as isize, (at - skipped) as isize, n)?;
                    }
                    to.copy_(&from)?;
                }
                if found != sizes.iter().product::<usize>() {
                    return Err(Error::io("the parts that were written do not cover it"));
                }
                Ok(out)
            })
        };
        read().map_err(self.within(name))
    }
}

/// Where a part and a region overlap: the start in the tensor and the shape; a scalar always does.
fn overlap(chunk: &Chunk, offsets: &[usize], sizes: &[usize]) -> Option<(Dims, Dims)> {
    let (mut start, mut common) = (Dims::new(), Dims::new());
    for dim in 0..sizes.len() {
        let from = chunk.offsets[dim].max(offsets[dim]);
        let to = (chunk.offsets[dim] + chunk.sizes[dim]).min(offsets[dim] + sizes[dim]);
        if from >= to {
            return None;
        }
        start.push(from);
        common.push(to - from);
    }
    Some((start, common))
}
