//! Reads parts of a distributed checkpoint, whichever ranks wrote them.

use super::metadata::{Chunk, Entry, Metadata, Place};
use super::{METADATA, pickled};
use crate::pt;
use crate::source::Source;
use rushlight_core::{Dims, Error, Result};
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
    files: Mutex<HashMap<String, Arc<crate::source::OpenFile>>>,
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
        Ok(Self { folder, metadata, files: Mutex::default() })
    }

    /// What the checkpoint has.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn within(&self, name: &str) -> impl Fn(Error) -> Error {
        let what = format!("checkpoint '{}': '{name}'", self.folder.display());
        move |e| e.within(&what)
    }

    /// The bytes of a place.
    fn bytes(&self, place: &Place) -> Result<Vec<u8>> {
        let file = {
            let mut files = self.files.lock().unwrap_or_else(|e| e.into_inner());
            match files.get(&place.file) {
                Some(file) => file.clone(),
                None => {
                    let file = Arc::new(crate::source::OpenFile::open(&self.folder.join(&place.file))?);
                    files.insert(place.file.clone(), file.clone());
                    file
                }
            }
        };
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
                    let part = match self.value(chunk.place.as_ref())? {
                        Value::Tensor(part) => part,
                        _ => return Err(Error::io("a part of it is no tensor")),
                    };
                    if part.shape() != &chunk.sizes[..] || part.dtype() != *dtype {
                        return Err(Error::io(format!(
                            "a part of it is {} {:?}, the checkpoint says {dtype} {:?}",
                            part.dtype(),
                            part.shape(),
                            chunk.sizes
                        )));
                    }
                    let (mut to, mut from) = (out.clone(), part);
                    for (dim, (&at, &n)) in start.iter().zip(&common).enumerate() {
                        to = to.narrow(dim as isize, (at - offsets[dim]) as isize, n)?;
                        from = from.narrow(dim as isize, (at - chunk.offsets[dim]) as isize, n)?;
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
