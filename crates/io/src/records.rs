//! Archives of named records, and the objects in TorchScript's archives.
//!
//! The record names and sizes come from the file and are checked. Objects of TorchScript classes are plain
//! data here: a class
//! name and fields. No code is run.

use crate::pickle::machine::{Arena, Object as Pickled, Ref, corrupt};
use crate::source::Source;
use crate::zip::{Archive, Entry, Method, Writer};
use crate::{npz, pt, sink};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Most nested containers in an archive's objects.
const MAX_DEPTH: usize = 200;
/// Bytes that one compressed record may unpack to.
const MAX_INFLATED: usize = 1 << 28;

/// A zip archive, opened for reading.
pub struct Records {
    source: Source,
    archive: Archive,
}

impl Records {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Source::open(path, false).and_then(Self::parse).map_err(|e| e.within(&format!("'{}'", path.display())))
    }

    /// Reads an archive that is already in memory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Source::from_bytes(bytes).and_then(Self::parse)
    }

    fn parse(source: Source) -> Result<Self> {
        if !source.bytes().starts_with(b"PK") {
            return Err(Error::io("the file is not a zip archive"));
        }
        let archive = Archive::open(&source)?;
        Ok(Self { source, archive })
    }

    /// Names of the records in the order of the archive.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.archive.entries.keys().map(String::as_str)
    }

    /// The bytes of a record, unpacked if it is compressed.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let entry = self.archive.get(name)?;
        self.entry(entry).map_err(|e| e.within(&format!("record '{name}'")))
    }

    fn entry(&self, entry: &Entry) -> Result<Vec<u8>> {
        let packed = &self.source.bytes()[entry.data.clone()];
        let bytes = match entry.method {
            Method::Stored => packed.to_vec(),
            Method::Deflated => {
                if entry.size > MAX_INFLATED || entry.size / 1032 > packed.len() {
                    return Err(Error::io(format!("{} bytes cannot unpack to {}", packed.len(), entry.size)));
                }
                let mut out = vec![0; entry.size];
                npz::inflate(packed, &mut out)?;
                out
            }
            Method::Other(method) => return Err(Error::unsupported(format!("compression method {method}"))),
        };
        npz::check_sum(&bytes, entry)?;
        Ok(bytes)
    }

    /// The text of a record.
    pub fn text(&self, name: &str) -> Result<String> {
        String::from_utf8(self.bytes(name)?).map_err(|_| Error::io(format!("record '{name}' is not UTF-8")))
    }

    /// The object tree of a TorchScript archive's pickle: `data` (the module) or `constants`, below the folder `root`.
    pub fn script_objects(&self, root: &str, part: &str) -> Result<Item> {
        let (arena, result, classes) = pt::script(&self.source, &self.archive, root, part)?;
        Builder { arena: &arena, classes: &classes, made: HashMap::new(), depth: 0 }.item(result)
    }
}

/// Writes an archive of uncompressed records; `path` is replaced when all is written.
pub fn write(path: impl AsRef<Path>, records: &[(&str, &[u8])]) -> Result<()> {
    sink::save(path.as_ref(), |out| {
        let mut writer = Writer::new(out);
        for (name, bytes) in records {
            writer.bytes(name, bytes)?;
        }
        writer.finish()
    })
}

pub use crate::pt::Script;

/// Writes a TorchScript archive; `path` is replaced when all is written.
pub fn write_script(path: impl AsRef<Path>, script: &Script) -> Result<()> {
    sink::save(path.as_ref(), |out| crate::pt::write_script(script, out))
}

/// A value in a TorchScript archive. Lists, dictionaries and objects that occur twice are shared.
#[derive(Clone)]
pub enum Item {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text.
    Str(Arc<str>),
    /// A tensor.
    Tensor(Tensor),
    /// A tuple.
    Tuple(Arc<[Item]>),
    /// A list.
    List(Arc<[Item]>),
    /// A dictionary.
    Dict(Arc<[(Item, Item)]>),
    /// An object of a class.
    Object(Arc<Object>),
}

/// An object: its class and its fields.
pub struct Object {
    /// The class's full name, such as `__torch__.torch.nn.modules.linear.Linear`.
    pub class: String,
    /// Fields in order.
    pub fields: Vec<(String, Item)>,
}

struct Builder<'a> {
    arena: &'a Arena,
    classes: &'a [String],
    made: HashMap<Ref, Item>,
    depth: usize,
}

impl Builder<'_> {
    fn items(&mut self, items: &[Ref]) -> Result<Arc<[Item]>> {
        items.iter().map(|&i| self.item(i)).collect()
    }

    fn entries(&mut self, entries: &[(Ref, Ref)]) -> Result<Arc<[(Item, Item)]>> {
        entries.iter().map(|&(k, v)| Ok((self.item(k)?, self.item(v)?))).collect()
    }

    fn item(&mut self, r: Ref) -> Result<Item> {
        if let Some(made) = self.made.get(&r) {
            return Ok(made.clone());
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(corrupt("containers are nested too deeply, or contain themselves"));
        }
        let arena = self.arena;
        let made = match arena.get(r) {
            Pickled::None => Item::None,
            &Pickled::Bool(b) => Item::Bool(b),
            &Pickled::Int(i) => Item::Int(i),
            &Pickled::Float(x) => Item::Float(x),
            Pickled::Str(text) => Item::Str((**text).into()),
            Pickled::Tensor(tensor) => Item::Tensor(tensor.clone()),
            Pickled::Tuple(items) => Item::Tuple(self.items(items)?),
            Pickled::List(items) | Pickled::Set(items) => Item::List(self.items(items)?),
            Pickled::Dict(entries) => Item::Dict(self.entries(entries)?),
            Pickled::OrderedDict(dict) => Item::Dict(self.entries(&dict.entries)?),
            &Pickled::Script(class, state) => self.object(class, state)?,
            other => return Err(corrupt(format_args!("{} as a value", other.kind()))),
        };
        self.depth -= 1;
        self.made.insert(r, made.clone());
        Ok(made)
    }

    fn object(&mut self, class: u32, state: Option<Ref>) -> Result<Item> {
        let class = self.classes.get(class as usize).cloned().unwrap_or_default();
        let mut fields = Vec::new();
        if let Some(state) = state {
            let Pickled::Dict(entries) = self.arena.get(state) else {
                return Err(Error::unsupported(format!("objects of '{class}', whose state is not a dictionary")));
            };
            for &(key, value) in entries {
                let Pickled::Str(name) = self.arena.get(key) else { return Err(corrupt("a field without a name")) };
                fields.push((name.to_string(), self.item(value)?));
            }
        }
        Ok(Item::Object(Arc::new(Object { class, fields })))
    }
}
