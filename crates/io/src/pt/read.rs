//! From a `.pt` archive to values.

use super::globals::{Elements, Global};
use super::machine::{self, Arena, Object, Ref, Reply, World, corrupt};
use crate::LoadOptions;
use crate::source::{self, ByteOrder, Source};
use crate::zip::{Archive, Entry, Method};
use rushlight_core::{DType, Dims, Error, Result, Storage};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Dict, Key, Value};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Containers within containers that are read or written; more would be a danger to the stack of whoever walks them.
pub(super) const MAX_DEPTH: usize = 256;

/// How files of PyTorch before 1.6 begin: a pickled number.
const LEGACY: [u8; 4] = [0x80, 0x02, 0x8a, 0x0a];

pub(crate) fn load(source: &Source, options: &LoadOptions) -> Result<Value> {
    let bytes = source.bytes();
    if bytes.starts_with(&LEGACY) || bytes.get(257..262) == Some(b"ustar") {
        return Err(Error::unsupported(
            "the file has the format of PyTorch before 1.6. Convert it in Python: torch.save(torch.load(path), new_path)",
        ));
    }
    if !bytes.starts_with(b"PK") {
        return Err(Error::io("the file is not a zip archive, as torch.save writes"));
    }
    let archive = Archive::open(source)?;
    let root = match archive.entries.keys().find_map(|name| name.strip_suffix("/data.pkl")) {
        Some(root) => root.to_string(),
        None => return Err(Error::io("the archive has no record 'data.pkl': it was not written by torch.save")),
    };
    if archive.entries.contains_key(&format!("{root}/constants.pkl")) {
        return Err(Error::unsupported(
            "the file is a TorchScript archive. Save its tensors in Python: torch.save(torch.jit.load(path).state_dict(), new_path)",
        ));
    }
    if options.verify {
        for (name, entry) in &archive.entries {
            if crc32fast::hash(&bytes[entry.data.clone()]) != entry.crc {
                return Err(Error::io(format!("record '{name}' does not match its checksum: the file is damaged")));
            }
        }
    }
    let order = match archive.entries.get(&format!("{root}/byteorder")) {
        None => ByteOrder::Little,
        Some(entry) => match stored("byteorder", bytes, entry)? {
            b"little" => ByteOrder::Little,
            b"big" => ByteOrder::Big,
            _ => return Err(Error::io("record 'byteorder' is neither 'little' nor 'big'")),
        },
    };
    let pickle = stored("data.pkl", bytes, archive.get(&format!("{root}/data.pkl"))?)?;
    let mut reader = Reader {
        source,
        archive: &archive,
        root,
        order,
        storages: HashMap::new(),
        encoded_left: 4096 + 2 * pickle.len(),
    };
    let (arena, result) = machine::run(pickle, &mut reader)?;
    // Memo references let a small pickle spell a huge value: a list of lists of lists. What honest files share is small.
    let budget = 4096usize.saturating_add(pickle.len().saturating_mul(4));
    Builder { arena: &arena, path: Vec::new(), left: budget }.value(result)
}

fn stored<'a>(name: &str, bytes: &'a [u8], entry: &Entry) -> Result<&'a [u8]> {
    if entry.method != Method::Stored {
        return Err(Error::unsupported(format!(
            "record '{name}' is compressed, which torch.save never does; write the archive anew without compression"
        )));
    }
    Ok(&bytes[entry.data.clone()])
}

/// A storage of the file, looked into by any number of tensors.
pub(super) struct LoadedStorage {
    key: String,
    elements: Elements,
    /// Where its bytes lie.
    data: std::ops::Range<usize>,
    /// Made by the first tensor, which settles the dtype.
    made: OnceCell<(DType, Arc<Storage>)>,
}

struct Reader<'a> {
    source: &'a Source,
    archive: &'a Archive,
    root: String,
    order: ByteOrder,
    storages: HashMap<String, Rc<LoadedStorage>>,
    /// Bytes that `_codecs.encode` may still make: it copies its argument, which may be a memo reference.
    encoded_left: usize,
}

impl World for Reader<'_> {
    fn persistent(&mut self, arena: &Arena, id: Ref) -> Result<Object> {
        let fail = || corrupt("a reference to something that is not a storage");
        let Object::Tuple(id) = arena.get(id) else { return Err(fail()) };
        let &[tag, class, key, _location, numel] = &id[..] else { return Err(fail()) };
        let (Object::Str(tag), &Object::Global(Global::Storage(elements)), Object::Str(key)) =
            (arena.get(tag), arena.get(class), arena.get(key))
        else {
            return Err(fail());
        };
        if &**tag != "storage" {
            return Err(fail());
        }
        let numel = size(arena, numel)?;
        let width = match elements {
            Elements::Known(dtype) => dtype.size(),
            Elements::Untyped => 1,
            Elements::Unknown(name) => return Err(unknown_dtype(name)),
        };
        if !self.storages.contains_key(&**key) {
            let name = format!("{}/data/{key}", self.root);
            let entry = self.archive.get(&name)?;
            stored(&name, self.source.bytes(), entry)?;
            let loaded =
                LoadedStorage { key: key.to_string(), elements, data: entry.data.clone(), made: OnceCell::new() };
            self.storages.insert(key.to_string(), Rc::new(loaded));
        }
        let loaded = self.storages.get(&**key).ok_or_else(fail)?;
        if numel.checked_mul(width).is_none_or(|bytes| bytes > loaded.data.len()) {
            return Err(Error::io(format!(
                "storage '{key}' should have {numel} elements of {width} bytes, but its record has {} bytes",
                loaded.data.len()
            )));
        }
        if loaded.elements == elements {
            return Ok(Object::Storage(loaded.clone()));
        }
        if loaded.data.is_empty() {
            // PyTorch shares the one empty storage between dtypes.
            let empty =
                LoadedStorage { key: key.to_string(), elements, data: loaded.data.clone(), made: OnceCell::new() };
            return Ok(Object::Storage(Rc::new(empty)));
        }
        Err(Error::unsupported(format!("storage '{key}' is used with two dtypes")))
    }

    fn call(&mut self, arena: &Arena, function: Global, args: &[Ref]) -> Result<Reply> {
        use Global::*;
        let object = match (function, args) {
            (Dictionary, []) => Object::Dict(Vec::new()),
            (Dictionary, &[items]) if matches!(arena.get(items), Object::Dict(_)) => return Ok(Reply::Same(items)),
            (DefaultDict, [] | [_]) => Object::Dict(Vec::new()),
            (Set, []) => Object::Set(Vec::new()),
            (Set, &[items]) if matches!(arena.get(items), Object::List(_) | Object::Set(_)) => {
                return Ok(Reply::Same(items));
            }
            (Size, &[sizes]) if matches!(arena.get(sizes), Object::Tuple(_)) => return Ok(Reply::Same(sizes)),
            (Device, &[name] | &[name, _]) if matches!(arena.get(name), Object::Str(_)) => self.device(arena, args)?,
            (Bytes | Bytearray, []) => Object::Bytes(Box::default()),
            (Encode | Bytearray, &[text, codec]) => self.encode(arena, text, codec)?,
            (Bytearray, &[bytes]) if matches!(arena.get(bytes), Object::Bytes(_)) => return Ok(Reply::Same(bytes)),
            (RebuildTensor, &[storage, offset, sizes, strides]) => {
                self.tensor(arena, storage, offset, sizes, strides, None, false)?
            }
            (RebuildTensorV2, &[storage, offset, sizes, strides, grad, _hooks, ref metadata @ ..]) => {
                no_metadata(arena, metadata)?;
                self.tensor(arena, storage, offset, sizes, strides, None, truth(arena, grad)?)?
            }
            (RebuildTensorV3, &[storage, offset, sizes, strides, grad, _hooks, dtype, ref metadata @ ..]) => {
                no_metadata(arena, metadata)?;
                let dtype = dtype_of(arena, dtype)?;
                self.tensor(arena, storage, offset, sizes, strides, Some(dtype), truth(arena, grad)?)?
            }
            (RebuildParameter, &[data, grad, _hooks]) | (RebuildParameterWithState, &[data, grad, _hooks, _]) => {
                let grad = truth(arena, grad)?;
                Object::Tensor(tensor_of(arena, data)?.detach().requires_grad_(grad)?)
            }
            (RebuildOnDevice, &[data, dtype, _device, grad]) => {
                let (data, dtype) = (tensor_of(arena, data)?, dtype_of(arena, dtype)?);
                if data.dtype() != dtype {
                    return Err(Error::unsupported(format!("a {} tensor that should be {dtype}", data.dtype())));
                }
                Object::Tensor(data.detach().requires_grad_(truth(arena, grad)?)?)
            }
            (RebuildFromType, &[inner, class, args, _state]) => {
                match (arena.get(inner), arena.get(class), arena.get(args)) {
                    (&Object::Global(inner), &Object::Global(Class), Object::Tuple(args))
                        if inner != RebuildFromType =>
                    {
                        return self.call(arena, inner, args);
                    }
                    _ => return Err(corrupt("a tensor of a class of its own")),
                }
            }
            (function, args) => {
                return Err(corrupt(format_args!("a call of {function:?} with {} arguments", args.len())));
            }
        };
        Ok(Reply::New(object))
    }
}

impl Reader<'_> {
    fn device(&mut self, arena: &Arena, args: &[Ref]) -> Result<Object> {
        let name = match arena.get(args[0]) {
            Object::Str(name) if name.len() <= 32 => name,
            _ => return Err(corrupt("a device without a name")),
        };
        Ok(Object::Str(match args.get(1) {
            Some(&index) => format!("{name}:{}", size(arena, index)?).into(),
            None => name.clone(),
        }))
    }

    fn encode(&mut self, arena: &Arena, text: Ref, codec: Ref) -> Result<Object> {
        let (Object::Str(text), Object::Str(codec)) = (arena.get(text), arena.get(codec)) else {
            return Err(corrupt("bytes that are not spelled as text"));
        };
        if !matches!(&**codec, "latin1" | "latin-1") {
            return Err(corrupt("bytes in an encoding other than latin1"));
        }
        self.encoded_left = self.encoded_left.checked_sub(text.len()).ok_or_else(too_large)?;
        let bytes: Result<Box<[u8]>, _> = text.chars().map(u8::try_from).collect();
        Ok(Object::Bytes(bytes.map_err(|_| corrupt("bytes above 255"))?))
    }

    fn tensor(
        &mut self,
        arena: &Arena,
        storage: Ref,
        offset: Ref,
        sizes: Ref,
        strides: Ref,
        dtype: Option<DType>,
        requires_grad: bool,
    ) -> Result<Object> {
        let Object::Storage(loaded) = arena.get(storage) else {
            return Err(corrupt(format_args!("a tensor over {}", arena.get(storage).kind())));
        };
        let dtype = match (dtype, loaded.elements) {
            (Some(dtype), Elements::Untyped) => dtype,
            (None, Elements::Untyped) => DType::U8,
            (None, Elements::Known(dtype)) => dtype,
            (Some(dtype), Elements::Known(have)) if dtype == have => dtype,
            _ => return Err(Error::unsupported(format!("storage '{}' is used with two dtypes", loaded.key))),
        };
        let (made_as, memory) = match loaded.made.get() {
            Some(made) => made,
            None => {
                let whole = loaded.data.len() / dtype.size() * dtype.size();
                let range = loaded.data.start..loaded.data.start + whole;
                let memory = self.source.storage(range, dtype, self.order)?;
                loaded.made.get_or_init(|| (dtype, memory))
            }
        };
        if *made_as != dtype {
            return Err(Error::unsupported(format!("storage '{}' is used with two dtypes", loaded.key)));
        }
        let tensor = source::tensor(memory, &dims(arena, sizes)?, &dims(arena, strides)?, size(arena, offset)?, dtype)
            .map_err(|e| e.within(&format!("a tensor over storage '{}'", loaded.key)))?;
        Ok(Object::Tensor(if requires_grad { tensor.requires_grad_(true)? } else { tensor }))
    }
}

fn size(arena: &Arena, r: Ref) -> Result<usize> {
    match arena.get(r) {
        &Object::Int(x) => usize::try_from(x).map_err(|_| corrupt(format_args!("{x} as a size, stride or offset"))),
        other => Err(corrupt(format_args!("{} as a size, stride or offset", other.kind()))),
    }
}

fn dims(arena: &Arena, r: Ref) -> Result<Dims> {
    match arena.get(r) {
        Object::Tuple(items) if items.len() <= source::MAX_RANK => items.iter().map(|&i| size(arena, i)).collect(),
        Object::Tuple(items) => {
            Err(Error::io(format!("a tensor of {} dimensions; at most {} are read", items.len(), source::MAX_RANK)))
        }
        other => Err(corrupt(format_args!("{} as a shape", other.kind()))),
    }
}

fn truth(arena: &Arena, r: Ref) -> Result<bool> {
    match arena.get(r) {
        &Object::Bool(b) => Ok(b),
        other => Err(corrupt(format_args!("{} as a truth value", other.kind()))),
    }
}

fn tensor_of(arena: &Arena, r: Ref) -> Result<&Tensor> {
    match arena.get(r) {
        Object::Tensor(tensor) => Ok(tensor),
        other => Err(corrupt(format_args!("a parameter made of {}", other.kind()))),
    }
}

fn dtype_of(arena: &Arena, r: Ref) -> Result<DType> {
    match arena.get(r) {
        &Object::Global(Global::DType(Elements::Known(dtype))) => Ok(dtype),
        &Object::Global(Global::DType(Elements::Unknown(name))) => Err(unknown_dtype(name)),
        other => Err(corrupt(format_args!("{} as a dtype", other.kind()))),
    }
}

fn no_metadata(arena: &Arena, metadata: &[Ref]) -> Result<()> {
    match metadata.first().map(|&r| arena.get(r)) {
        None | Some(Object::None) => Ok(()),
        Some(Object::Dict(entries)) if entries.is_empty() => Ok(()),
        _ => Err(Error::unsupported("a tensor with a pending conjugation or negation; save tensor.resolve_neg()")),
    }
}

fn unknown_dtype(name: &str) -> Error {
    Error::dtype(format!(
        "the file holds a tensor of '{name}', a dtype that is not supported; convert it before saving"
    ))
}

fn too_large() -> Error {
    Error::io("data.pkl spells a value many times its own size: it is damaged or hostile")
}

/// Turns objects into values, as a tree.
struct Builder<'a> {
    arena: &'a Arena,
    /// Containers under way, outermost first.
    path: Vec<Ref>,
    /// What may still be made, in values and sixteenths of bytes.
    left: usize,
}

impl Builder<'_> {
    fn pay(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(1 + bytes / 16).ok_or_else(too_large)?;
        Ok(())
    }

    fn value(&mut self, r: Ref) -> Result<Value> {
        let arena = self.arena;
        Ok(match arena.get(r) {
            Object::None => self.plain(Value::None)?,
            &Object::Bool(b) => self.plain(b.into())?,
            &Object::Int(i) => self.plain(i.into())?,
            &Object::Float(x) => self.plain(x.into())?,
            Object::Str(text) => {
                self.pay(text.len())?;
                Value::Str(text.to_string())
            }
            Object::Bytes(bytes) => {
                self.pay(bytes.len())?;
                Value::Bytes(bytes.to_vec())
            }
            Object::Tensor(tensor) => self.plain(tensor.into())?,
            Object::Tuple(items) => Value::Tuple(self.items(r, items)?),
            Object::List(items) | Object::Set(items) => Value::List(self.items(r, items)?),
            Object::Dict(entries) => {
                self.enter(r)?;
                let mut dict = Dict::new();
                for &(key, value) in entries {
                    let key = self.key(key)?;
                    dict.insert(key, self.value(value)?);
                }
                self.path.pop();
                Value::Dict(dict)
            }
            Object::Global(Global::DType(Elements::Known(dtype))) => self.plain(format!("torch.{dtype}").into())?,
            Object::Global(Global::DType(Elements::Unknown(name))) => self.plain(format!("torch.{name}").into())?,
            other @ (Object::Global(_) | Object::Storage(_)) => {
                return Err(Error::unsupported(format!(
                    "the file holds {} where a value is expected; save tensors and plain values",
                    other.kind()
                )));
            }
        })
    }

    fn plain(&mut self, value: Value) -> Result<Value> {
        self.pay(0)?;
        Ok(value)
    }

    fn enter(&mut self, r: Ref) -> Result<()> {
        self.pay(0)?;
        if self.path.contains(&r) {
            return Err(Error::unsupported("the file holds a container that contains itself"));
        }
        if self.path.len() == MAX_DEPTH {
            return Err(Error::unsupported(format!("the file nests containers more than {MAX_DEPTH} deep")));
        }
        self.path.push(r);
        Ok(())
    }

    fn items(&mut self, r: Ref, items: &[Ref]) -> Result<Vec<Value>> {
        self.enter(r)?;
        let values = items.iter().map(|&item| self.value(item)).collect();
        self.path.pop();
        values
    }

    fn key(&mut self, r: Ref) -> Result<Key> {
        match self.arena.get(r) {
            Object::Str(text) => {
                self.pay(text.len())?;
                Ok(Key::Str(text.to_string()))
            }
            &Object::Int(i) => {
                self.pay(0)?;
                Ok(Key::Int(i))
            }
            other => Err(Error::unsupported(format!(
                "a dictionary with {} as a key; strings and integers are read",
                other.kind()
            ))),
        }
    }
}
