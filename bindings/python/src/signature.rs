//! PyTorch's signature strings, parsed when a function is first called.
//!
//! `add(Tensor input, Tensor|Number other, *, Number alpha=1)`: types before names, `?` for arguments that may be
//! `None`, `int[2]` for a list that one number fills, `int...` for numbers given one by one or as one list, `*` before
//! arguments that must be named. `**factory` means the arguments of every function that makes a tensor.

pub use crate::params::{Kind, split};

use crate::params::{default, kind};
use crate::value::Value;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// One parameter of a signature.
pub struct Param {
    pub name: &'static str,
    /// The interned name, so that keywords are found by address.
    pub interned: Py<PyString>,
    pub kind: Kind,
    pub nullable: bool,
    pub default: Option<Value>,
    pub keyword_only: bool,
}

/// A signature, ready for binding arguments.
pub struct Signature {
    pub params: Vec<Param>,
    pub positional: usize,
}

impl Signature {
    /// Parses a signature. `None` if it is malformed, which a test of the whole table rules out.
    pub fn parse(py: Python<'_>, text: &'static str) -> Option<Signature> {
        let mut params = Vec::new();
        for (ty, name, value, keyword_only) in split(text) {
            let (kind, nullable) = kind(ty)?;
            let default = match value {
                Some(value) => Some(default(value, kind)?),
                None => None,
            };
            params.push(Param {
                name,
                interned: PyString::intern(py, name).unbind(),
                kind,
                nullable,
                default,
                keyword_only,
            });
        }
        let positional = params.iter().take_while(|p| !p.keyword_only).count();
        Some(Signature { params, positional })
    }
}

impl Param {
    /// The type's name in PyTorch's messages.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Tensor | Kind::TensorOrNumber => "Tensor",
            Kind::Tensors => "tuple of Tensors",
            Kind::Number => "Number",
            Kind::Int => "int",
            Kind::Ints(_) | Kind::IntsOrNone(_) | Kind::VarInts => "tuple of ints",
            Kind::Float => "float",
            Kind::Floats => "tuple of floats",
            Kind::Bool => "bool",
            Kind::Str => "str",
            Kind::StrOrInts => "str or tuple of ints",
            Kind::DType => "torch.dtype",
            Kind::Device => "torch.device",
            Kind::Generator => "torch.Generator",
            Kind::Layout => "torch.layout",
            Kind::MemoryFormat => "torch.memory_format",
        }
    }
}
