//! Plain pickles of Python 2 and 3: numbers, strings, containers and NumPy arrays, as CIFAR's batches are.
//!
//! No code is run: a pickle may name only the classes of containers and arrays. Any other name is an error that
//! mentions it. Arrays become tensors. Strings of Python 2 become text if they are UTF-8, and bytes if not.

pub(crate) mod globals;
pub(crate) mod machine;
mod numpy;
pub(crate) mod value;

use crate::source::Source;
use globals::Global;
use machine::{Arena, Object, Ref, Reply, World, corrupt};
use rushlight_core::{Error, Result};
use rushlight_tensor::state::Value;
use std::path::Path;
use value::Containers;

/// Reads a file written by `pickle.dump` with protocol 2 or later.
pub fn load(path: impl AsRef<Path>) -> Result<Value> {
    let path = path.as_ref();
    Source::open(path, false)
        .and_then(|source| read(source.bytes()))
        .map_err(|e| e.within(&format!("pickle::load '{}'", path.display())))
}

/// Reads a pickle that is already in memory.
pub fn from_bytes(bytes: &[u8]) -> Result<Value> {
    read(bytes).map_err(|e| e.within("pickle::from_bytes"))
}

fn read(bytes: &[u8]) -> Result<Value> {
    let (arena, result) = machine::run(bytes, &mut Plain(Containers::of(bytes)))?;
    value::value(&arena, result, bytes.len())
}

/// The names that a plain pickle may use.
struct Plain(Containers);

impl World for Plain {
    fn find(&self, module: &str, name: &str) -> Option<Global> {
        globals::python(module, name).or_else(|| globals::numpy(module, name))
    }

    fn persistent(&mut self, _: &Arena, _: Ref) -> Result<Object> {
        Err(Error::unsupported("a reference to something outside of the pickle"))
    }

    fn call(&mut self, arena: &Arena, function: Global, args: &[Ref]) -> Result<Reply> {
        Ok(Reply::New(match (function, args) {
            (Global::ReconstructArray, [_, _, _]) => Object::Array,
            (Global::NumpyDType, &[name, ..]) => numpy::element_type(arena, name)?,
            _ => return self.0.call(arena, function, args),
        }))
    }

    fn build(&mut self, arena: &Arena, target: Ref, state: Ref) -> Result<Reply> {
        Ok(match *arena.get(target) {
            Object::Dict(_) | Object::OrderedDict(_) => Reply::Same(target),
            Object::Array => Reply::New(numpy::array(arena, state, &mut self.0)?),
            Object::ElementType(elements) => Reply::New(numpy::with_order(arena, elements, state)?),
            ref other => return Err(corrupt(format_args!("it sets the state of {}", other.kind()))),
        })
    }
}
