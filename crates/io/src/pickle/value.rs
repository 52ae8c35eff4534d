//! From a pickle's objects to values.

use super::globals::{Elements, Global};
use super::machine::{Arena, Object, Ref, Reply, corrupt};
use crate::source;
use rushlight_core::{Dims, Error, Result};
use rushlight_tensor::state::{Dict, Key, Value};

/// Containers within containers that are read or written; deeper ones could overflow the stack of a recursive reader.
pub(crate) const MAX_DEPTH: usize = 256;

/// Calls that make containers and bytes.
pub(crate) struct Containers {
    /// Bytes that may still be copied from one object to another: the same one may be copied again and again.
    copies_left: usize,
}

impl Containers {
    pub(crate) fn of(pickle: &[u8]) -> Self {
        Self { copies_left: 4096usize.saturating_add(pickle.len().saturating_mul(2)) }
    }

    /// Counts bytes that are about to be copied.
    pub(crate) fn copy(&mut self, bytes: usize) -> Result<()> {
        self.copies_left = self.copies_left.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    pub(crate) fn call(&mut self, arena: &Arena, function: Global, args: &[Ref]) -> Result<Reply> {
        use Global::*;
        let object = match (function, args) {
            (Dictionary, []) => Object::Dict(Vec::new()),
            (OrderedDictionary, []) => Object::OrderedDict(Default::default()),
            (Dictionary | OrderedDictionary, &[items]) if matches!(arena.get(items), Object::Dict(_)) => {
                return Ok(Reply::Same(items));
            }
            (DefaultDict, [] | [_]) => Object::Dict(Vec::new()),
            (Set, []) => Object::Set(Vec::new()),
            (Set, &[items]) if matches!(arena.get(items), Object::List(_) | Object::Set(_)) => {
                return Ok(Reply::Same(items));
            }
            (Bytes | Bytearray, []) => Object::Bytes(Box::default()),
            (Encode | Bytearray, &[text, codec]) => self.encode(arena, text, codec)?,
            (Bytearray, &[bytes]) if matches!(arena.get(bytes), Object::Bytes(_)) => return Ok(Reply::Same(bytes)),
            (function, args) => {
                return Err(corrupt(format_args!("a call of {function:?} with {} arguments", args.len())));
            }
        };
        Ok(Reply::New(object))
    }

    fn encode(&mut self, arena: &Arena, text: Ref, codec: Ref) -> Result<Object> {
        let (Object::Str(text), Object::Str(codec)) = (arena.get(text), arena.get(codec)) else {
            return Err(corrupt("bytes that are not spelled as text"));
        };
        if !matches!(&**codec, "latin1" | "latin-1") {
            return Err(corrupt("bytes in an encoding other than latin1"));
        }
        self.copy(text.len())?;
        let bytes: Result<Box<[u8]>, _> = text.chars().map(u8::try_from).collect();
        Ok(Object::Bytes(bytes.map_err(|_| corrupt("bytes above 255"))?))
    }
}

pub(crate) fn size(arena: &Arena, r: Ref) -> Result<usize> {
    match arena.get(r) {
        &Object::Int(x) => usize::try_from(x).map_err(|_| corrupt(format_args!("{x} as a size, stride or offset"))),
        other => Err(corrupt(format_args!("{} as a size, stride or offset", other.kind()))),
    }
}

pub(crate) fn dims(arena: &Arena, r: Ref) -> Result<Dims> {
    match arena.get(r) {
        Object::Tuple(items) if items.len() <= source::MAX_RANK => items.iter().map(|&i| size(arena, i)).collect(),
        Object::Tuple(items) => {
            Err(Error::io(format!("a tensor of {} dimensions; at most {} are read", items.len(), source::MAX_RANK)))
        }
        other => Err(corrupt(format_args!("{} as a shape", other.kind()))),
    }
}

fn too_large() -> Error {
    Error::io("the pickle spells a value many times its own size: it is damaged or hostile")
}

/// An object as a value.
pub(crate) fn value(arena: &Arena, object: Ref, pickle_bytes: usize) -> Result<Value> {
    // Memo references let a small pickle describe a huge value, such as nested lists of lists. Real files share only
    // small values.
    let left = 4096usize.saturating_add(pickle_bytes.saturating_mul(4));
    Builder { arena, path: Vec::new(), left }.value(object)
}

/// Turns objects into values, as a tree.
struct Builder<'a> {
    arena: &'a Arena,
    /// Containers under way, outermost first.
    path: Vec<Ref>,
    /// The remaining budget, in values and sixteenths of bytes.
    left: usize,
}

impl Builder<'_> {
    fn pay(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(1 + bytes / 16).ok_or_else(too_large)?;
        Ok(())
    }

    fn entries(&mut self, entries: &[(Ref, Ref)]) -> Result<Dict> {
        let mut dict = Dict::new();
        for &(key, value) in entries {
            let key = self.key(key)?;
            dict.insert(key, self.value(value)?);
        }
        Ok(dict)
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
                let dict = self.entries(entries)?;
                self.path.pop();
                Value::Dict(dict)
            }
            Object::OrderedDict(ordered) => {
                self.enter(r)?;
                let dict = self.entries(&ordered.entries)?;
                let attributes = match ordered.attributes.map(|r| arena.get(r)) {
                    Some(Object::Dict(entries)) => self.entries(entries)?,
                    _ => Dict::new(),
                };
                self.path.pop();
                Value::Dict(dict.ordered(attributes))
            }
            Object::Global(Global::DType(Elements::Known(dtype))) => self.plain(format!("torch.{dtype}").into())?,
            Object::Global(Global::DType(Elements::Unknown(name))) => self.plain(format!("torch.{name}").into())?,
            other @ (Object::Global(_)
            | Object::Storage(_)
            | Object::ElementType(_)
            | Object::Array
            | Object::Instance(..)
            | Object::Script(..)) => {
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
