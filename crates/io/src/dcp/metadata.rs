//! What a distributed checkpoint consists of.

use rushlight_core::{DType, Dims, Error, Result};
use rushlight_tensor::Tensor;
use std::collections::HashMap;

/// Where bytes are: a file of the folder and a range of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name.
    pub file: String,
    /// Where the bytes start.
    pub offset: u64,
    /// How many there are.
    pub length: u64,
}

/// A part of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it starts in the tensor.
    pub offsets: Dims,
    /// Its shape.
    pub sizes: Dims,
    /// Where it is.
    pub place: Option<Place>,
}

/// An entry of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A tensor in parts.
    Tensor {
        /// Its dtype.
        dtype: DType,
        /// The whole shape.
        size: Dims,
        /// Whether it was a parameter that needs gradients.
        requires_grad: bool,
        /// The parts.
        chunks: Vec<Chunk>,
    },
    /// Another value, as `torch.save` writes it.
    Bytes(Option<Place>),
}

/// A step of the path to a value in a nested state dict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A key of a dictionary.
    Key(String),
    /// An index of a list.
    Index(i64),
}

/// Entries by name, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    pub(super) entries: Vec<(String, Entry)>,
    pub(super) paths: Vec<(String, Vec<Step>)>,
    index: HashMap<String, usize>,
}

/// A value that a rank writes: a part of a tensor, or the bytes of anything else.
#[derive(Clone, Debug)]
pub struct Part {
    pub(super) name: String,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Tensor { size: Dims, offsets: Dims, requires_grad: bool, data: Tensor },
    Bytes(Vec<u8>),
}

impl Part {
    /// A part of a tensor of shape `size`, which starts at `offsets`. It must not change until it is written.
    pub fn tensor(name: &str, size: &[usize], offsets: &[usize], data: &Tensor) -> Result<Self> {
        let shape = data.shape();
        let fits = size.len() == shape.len()
            && offsets.len() == shape.len()
            && (0..size.len()).all(|i| offsets[i].checked_add(shape[i]).is_some_and(|end| end <= size[i]));
        if !fits {
            return Err(Error::shape(format!(
                "checkpoint: '{name}' of shape {size:?} has no part of shape {shape:?} at {offsets:?}"
            )));
        }
        let requires_grad = data.requires_grad();
        let mut data = data.detach().contiguous()?;
        // A view would be written with its whole storage.
        if data.storage().bytes() != data.numel() * data.dtype().size() {
            data = data.copy()?;
        }
        let content = Content::Tensor { size: size.into(), offsets: offsets.into(), requires_grad, data };
        Ok(Self { name: name.into(), content })
    }

    /// Bytes of `torch.save`.
    pub fn bytes(name: &str, bytes: Vec<u8>) -> Self {
        Self { name: name.into(), content: Content::Bytes(bytes) }
    }
}

impl Metadata {
    /// Entries by name.
    pub fn entries(&self) -> &[(String, Entry)] {
        &self.entries
    }

    /// The entry of a name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.index.get(name).map(|&i| &self.entries[i].1)
    }

    /// Paths of names in the nested state dict they were flattened from.
    pub fn paths(&self) -> &[(String, Vec<Step>)] {
        &self.paths
    }

    /// Sets the path of a name.
    pub fn set_path(&mut self, name: &str, path: Vec<Step>) {
        match self.paths.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = path,
            None => self.paths.push((name.into(), path)),
        }
    }

    /// Sets the paths of all names.
    pub fn set_paths(&mut self, paths: Vec<(String, Vec<Step>)>) {
        self.paths = paths;
    }

    pub(super) fn add(&mut self, part: &Part, place: Place) -> Result<()> {
        let entry = match &part.content {
            Content::Bytes(_) => Entry::Bytes(Some(place)),
            Content::Tensor { size, offsets, requires_grad, data } => Entry::Tensor {
                dtype: data.dtype(),
                size: size.clone(),
                requires_grad: *requires_grad,
                chunks: vec![Chunk { offsets: offsets.clone(), sizes: data.shape().into(), place: Some(place) }],
            },
        };
        self.insert(&part.name, entry)
    }

    /// Adds an entry, or its parts to the entry of that name. A part that is there already stays.
    pub fn insert(&mut self, name: &str, entry: Entry) -> Result<()> {
        let Some(&i) = self.index.get(name) else {
            self.index.insert(name.into(), self.entries.len());
            self.entries.push((name.into(), entry));
            return Ok(());
        };
        match (&mut self.entries[i].1, entry) {
            (
                Entry::Tensor { dtype, size, chunks, .. },
                Entry::Tensor { dtype: other_dtype, size: other_size, chunks: more, .. },
            ) => {
                if (*dtype, &*size) != (other_dtype, &other_size) {
                    return Err(Error::value(format!(
                        "checkpoint: ranks disagree about '{name}': {dtype} {size:?} and {other_dtype} {other_size:?}"
                    )));
                }
                let mut known: std::collections::HashSet<Dims> = chunks.iter().map(|c| c.offsets.clone()).collect();
                chunks.extend(more.into_iter().filter(|chunk| known.insert(chunk.offsets.clone())));
                Ok(())
            }
            (Entry::Bytes(_), Entry::Bytes(_)) => Ok(()),
            _ => {
                Err(Error::value(format!("checkpoint: '{name}' is a tensor on one rank and another value on another")))
            }
        }
    }

    /// Adds what another rank wrote.
    pub fn extend(&mut self, other: Metadata) -> Result<()> {
        for (name, entry) in other.entries {
            self.insert(&name, entry)?;
        }
        for (name, path) in other.paths {
            if !self.paths.iter().any(|(known, _)| *known == name) {
                self.paths.push((name, path));
            }
        }
        Ok(())
    }

    /// Checks that the parts of every tensor cover it.
    pub fn check(&self) -> Result<()> {
        for (name, entry) in &self.entries {
            if let Entry::Tensor { size, chunks, .. } = entry {
                let whole: usize = size.iter().product();
                let parts: usize = chunks.iter().map(|chunk| chunk.sizes.iter().product::<usize>()).sum();
                if parts != whole {
                    return Err(Error::value(format!(
                        "checkpoint: the parts of '{name}' have {parts} elements, its shape {size:?} has {whole}"
                    )));
                }
            }
        }
        Ok(())
    }
}
