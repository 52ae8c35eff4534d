//! TorchScript archives, as `torch.jit.save` writes them: objects as pickles, code as text.

use super::write::{Pickler, ROOT};
use crate::pickle::value::MAX_DEPTH;
use crate::records::Item;
use crate::zip::Writer;
use rushlight_core::{Error, Result};
use std::io::Write;

/// The version of the operators: forms of ops older than it would be translated by PyTorch's reader.
const VERSION: &[u8] = b"10\n";

/// What an archive holds.
pub struct Script<'a> {
    /// The module: an object.
    pub module: &'a Item,
    /// Values that the code calls `CONSTANTS.c0`, ….
    pub constants: &'a [Item],
    /// Texts by namespace, such as `__torch__`.
    pub code: &'a [(String, String)],
    /// Further files by name.
    pub extra: &'a [(String, Vec<u8>)],
}

pub(crate) fn write(script: &Script, out: &mut impl Write) -> Result<()> {
    let mut data = Pickler::default();
    data.out.extend([0x80, 2]);
    data.item(script.module, 0)?;
    data.out.push(b'.');
    let mut constants = Pickler::default();
    constants.out.extend([0x80, 2, b'(']);
    script.constants.iter().try_for_each(|item| constants.item(item, 1))?;
    constants.out.extend(b"t.");

    let mut archive = Writer::new(out);
    archive.bytes(&format!("{ROOT}/data.pkl"), &data.out)?;
    archive.bytes(&format!("{ROOT}/byteorder"), b"little")?;
    data.write_storages("data", &mut archive)?;
    for (namespace, text) in script.code {
        archive.bytes(&format!("{ROOT}/code/{}.py", namespace.replace('.', "/")), text.as_bytes())?;
    }
    archive.bytes(&format!("{ROOT}/constants.pkl"), &constants.out)?;
    constants.write_storages("constants", &mut archive)?;
    for (name, bytes) in script.extra {
        archive.bytes(&format!("{ROOT}/extra/{name}"), bytes)?;
    }
    archive.bytes(&format!("{ROOT}/version"), VERSION)?;
    let (names, contents) = archive.digest();
    archive.bytes(&format!("{ROOT}/.data/serialization_id"), format!("{names:020}{contents:020}").as_bytes())?;
    archive.finish()
}

impl Pickler {
    fn item(&mut self, item: &Item, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::value(format!("the module nests more than {MAX_DEPTH} deep")));
        }
        match item {
            Item::None => self.out.push(b'N'),
            Item::Bool(b) => self.bool(*b),
            Item::Int(i) => self.int(*i),
            Item::Float(x) => {
                self.out.push(b'G');
                self.out.extend(x.to_be_bytes());
            }
            Item::Str(text) => self.text(text)?,
            Item::Tensor(tensor) => self.tensor(tensor)?,
            Item::Tuple(items) => {
                self.out.push(b'(');
                items.iter().try_for_each(|item| self.item(item, depth + 1))?;
                self.out.push(b't');
            }
            Item::List(items) => self.list(items, depth)?,
            Item::Dict(entries) => {
                self.out.extend(b"}(");
                for (key, value) in entries.iter() {
                    self.item(key, depth + 1)?;
                    self.item(value, depth + 1)?;
                }
                self.out.push(b'u');
            }
            Item::Object(object) => {
                let (module, name) = object.class.rsplit_once('.').unwrap_or(("__torch__", &object.class));
                self.global(module, name);
                // An object of the class, made of nothing, then its fields.
                self.out.extend([b')', 0x81, b'}', b'(']);
                for (name, value) in &object.fields {
                    self.text(name)?;
                    self.item(value, depth + 1)?;
                }
                self.out.extend(b"ub");
            }
        }
        Ok(())
    }

    /// A list: those of one plain type have a function that makes them, which says the type.
    fn list(&mut self, items: &[Item], depth: usize) -> Result<()> {
        let of = |wanted: fn(&Item) -> bool| !items.is_empty() && items.iter().all(wanted);
        let maker = match () {
            () if of(|i| matches!(i, Item::Int(_))) => Some("build_intlist"),
            () if of(|i| matches!(i, Item::Float(_))) => Some("build_doublelist"),
            () if of(|i| matches!(i, Item::Bool(_))) => Some("build_boollist"),
            () if of(|i| matches!(i, Item::Tensor(_))) => Some("build_tensorlist"),
            () => None,
        };
        if let Some(maker) = maker {
            self.global("torch.jit._pickle", maker);
        }
        self.out.extend(b"](");
        items.iter().try_for_each(|item| self.item(item, depth + 1))?;
        self.out.push(b'e');
        if maker.is_some() {
            self.out.extend([0x85, b'R']);
        }
        Ok(())
    }
}
