//! From values to a `.pt` archive.

use crate::pickle::value::MAX_DEPTH;
use crate::sink;
use crate::zip::Writer;
use rushlight_core::{DType, Error, Result, Storage};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Dict, Key, Value};
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

/// The folder inside the archive. PyTorch takes the file's name, but reads any.
pub(super) const ROOT: &str = "archive";

pub(super) fn write(value: &Value, out: &mut impl Write) -> Result<()> {
    let mut pickler = Pickler::default();
    pickler.out.extend([0x80, 2]);
    pickler.value(value, 0)?;
    pickler.out.push(b'.');

    let mut archive = Writer::new(out);
    archive.bytes(&format!("{ROOT}/data.pkl"), &pickler.out)?;
    archive.bytes(&format!("{ROOT}/.format_version"), b"1")?;
    archive.bytes(&format!("{ROOT}/.storage_alignment"), b"64")?;
    archive.bytes(&format!("{ROOT}/byteorder"), b"little")?;
    pickler.write_storages("data", &mut archive)?;
    archive.bytes(&format!("{ROOT}/version"), b"3\n")?;
    let (names, contents) = archive.digest();
    archive.bytes(&format!("{ROOT}/.data/serialization_id"), format!("{names:020}{contents:020}").as_bytes())?;
    archive.finish()
}

/// Writes one pickle and collects the storages of its tensors.
#[derive(Default)]
pub(super) struct Pickler {
    pub out: Vec<u8>,
    /// Places in the memo of strings (by text) and of names (by `module\nname\n`).
    memo: HashMap<Box<str>, u32>,
    pub storages: Vec<(Arc<Storage>, DType)>,
    numbers: HashMap<*const Storage, usize>,
}

impl Pickler {
    /// Writes the storages to a folder of the archive.
    pub fn write_storages<W: Write>(&self, folder: &str, archive: &mut Writer<'_, W>) -> Result<()> {
        for (i, (storage, dtype)) in self.storages.iter().enumerate() {
            let bytes = storage.bytes() / dtype.size() * dtype.size();
            let name = format!("{ROOT}/{folder}/{i}");
            archive.entry(&name, bytes as u64, |out| sink::write_summed(storage, 0..bytes, out))?;
        }
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::value(format!("the value nests containers more than {MAX_DEPTH} deep")));
        }
        match value {
            Value::None => self.out.push(b'N'),
            Value::Bool(b) => self.bool(*b),
            Value::Int(i) => self.int(*i),
            Value::Float(x) => {
                self.out.push(b'G');
                self.out.extend(x.to_be_bytes());
            }
            Value::Str(text) => self.text(text)?,
            Value::Bytes(bytes) => {
                // Protocol 2 has no bytes: PyTorch's reader takes text of code points below 256.
                self.global("_codecs", "encode");
                let text: String = bytes.iter().map(|&b| char::from(b)).collect();
                self.text(&text)?;
                self.text("latin1")?;
                self.out.extend([0x86, b'R']);
            }
            Value::Tensor(tensor) => self.tensor(tensor)?,
            Value::List(items) => {
                self.out.extend(b"](");
                self.items(items, depth)?;
                self.out.push(b'e');
            }
            Value::Tuple(items) => {
                self.out.push(b'(');
                self.items(items, depth)?;
                self.out.push(b't');
            }
            Value::Dict(dict) => {
                if dict.is_ordered() {
                    self.global("collections", "OrderedDict");
                    self.out.extend(b")R");
                } else {
                    self.out.push(b'}');
                }
                self.entries(dict, depth)?;
                if let Some(attributes) = dict.attributes().filter(|attributes| !attributes.is_empty()) {
                    self.out.push(b'}');
                    self.entries(attributes, depth)?;
                    self.out.push(b'b');
                }
            }
        }
        Ok(())
    }

    fn entries(&mut self, dict: &Dict, depth: usize) -> Result<()> {
        self.out.push(b'(');
        for (key, value) in dict {
            match key {
                Key::Str(text) => self.text(text)?,
                Key::Int(i) => self.int(*i),
            }
            self.value(value, depth + 1)?;
        }
        self.out.push(b'u');
        Ok(())
    }

    fn items(&mut self, items: &[Value], depth: usize) -> Result<()> {
        items.iter().try_for_each(|item| self.value(item, depth + 1))
    }

    pub fn bool(&mut self, b: bool) {
        self.out.push(if b { 0x88 } else { 0x89 });
    }

    pub fn int(&mut self, i: i64) {
        if let Ok(x) = u8::try_from(i) {
            self.out.extend([b'K', x]);
        } else if let Ok(x) = u16::try_from(i) {
            self.out.push(b'M');
            self.out.extend(x.to_le_bytes());
        } else if let Ok(x) = i32::try_from(i) {
            self.out.push(b'J');
            self.out.extend(x.to_le_bytes());
        } else {
            self.out.extend([0x8a, 8]);
            self.out.extend(i.to_le_bytes());
        }
    }

    /// Text, by its memo where it was written before.
    pub fn text(&mut self, text: &str) -> Result<()> {
        if self.recall(text) {
            return Ok(());
        }
        let n = u32::try_from(text.len()).map_err(|_| Error::value("a string or bytes of more than 4 GiB"))?;
        self.out.push(b'X');
        self.out.extend(n.to_le_bytes());
        self.out.extend(text.as_bytes());
        // Long text is not worth the memory of comparing it.
        if text.len() <= 128 {
            self.memoize(text);
        }
        Ok(())
    }

    pub fn global(&mut self, module: &str, name: &str) {
        // No other string can be mistaken for this one, because it is memoized only as a name.
        let line = format!("\0{module}\n{name}\n");
        if !self.recall(&line) {
            self.out.push(b'c');
            self.out.extend(&line.as_bytes()[1..]);
            self.memoize(&line);
        }
    }

    fn recall(&mut self, text: &str) -> bool {
        let Some(&slot) = self.memo.get(text) else { return false };
        self.slot(b'h', b'j', slot);
        true
    }

    fn memoize(&mut self, text: &str) {
        let slot = self.memo.len() as u32;
        self.memo.insert(text.into(), slot);
        self.slot(b'q', b'r', slot);
    }

    fn slot(&mut self, short: u8, long: u8, slot: u32) {
        if let Ok(slot) = u8::try_from(slot) {
            self.out.extend([short, slot]);
        } else {
            self.out.push(long);
            self.out.extend(slot.to_le_bytes());
        }
    }

    pub fn tensor(&mut self, tensor: &Tensor) -> Result<()> {
        let (storage, dtype) = (tensor.storage(), tensor.dtype());
        let next = self.storages.len();
        let number = *self.numbers.entry(Arc::as_ptr(storage)).or_insert(next);
        if number == next {
            self.storages.push((storage.clone(), dtype));
        } else if self.storages[number].1 != dtype {
            return Err(Error::unsupported(format!(
                "two tensors share memory as {} and as {dtype}, which the format cannot express; save a copy() of one",
                self.storages[number].1
            )));
        }
        // A dtype without a storage class is stored as untyped bytes plus the dtype's name.
        let class = storage_class(dtype);
        self.global("torch._utils", if class.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" });
        self.out.extend(b"((");
        self.text("storage")?;
        match class {
            Some(class) => self.global("torch", class),
            None => self.global("torch.storage", "UntypedStorage"),
        }
        self.text(&number.to_string())?;
        self.text(&storage.device().to_string())?;
        self.int((storage.bytes() / if class.is_some() { dtype.size() } else { 1 }) as i64);
        self.out.extend(b"tQ");
        self.int(tensor.layout().offset() as i64);
        for dims in [tensor.shape(), tensor.strides()] {
            self.out.push(b'(');
            dims.iter().for_each(|&d| self.int(d as i64));
            self.out.push(b't');
        }
        self.bool(tensor.requires_grad());
        self.global("collections", "OrderedDict");
        self.out.extend(b")R");
        if class.is_none() {
            self.global("torch", dtype.name());
        }
        self.out.extend(b"tR");
        Ok(())
    }
}

/// PyTorch's class of storages of a dtype; the newer dtypes have none.
fn storage_class(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "FloatStorage",
        DType::F64 => "DoubleStorage",
        DType::F16 => "HalfStorage",
        DType::BF16 => "BFloat16Storage",
        DType::I64 => "LongStorage",
        DType::I32 => "IntStorage",
        DType::I16 => "ShortStorage",
        DType::I8 => "CharStorage",
        DType::U8 => "ByteStorage",
        DType::Bool => "BoolStorage",
        DType::C64 => "ComplexFloatStorage",
        DType::C128 => "ComplexDoubleStorage",
        _ => return None,
    })
}
