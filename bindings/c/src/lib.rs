//! The C interface: opaque handles, a status from every call that can fail, every op by name.
//!
//! | module | what |
//! |---|---|
//! | `api` | the macro that declares a function, contains panics and describes it for the header |
//! | `status` | status codes, the thread's last message |
//! | `handle`, `values` | tensors as pointers, arguments as tagged values |
//! | `dispatch`, `call` | the op table, binding of arguments, calls |
//! | `tensor`, `index`, `print` | properties, memory, indexing, LibTorch's text form |
//! | `autograd`, `function` | differentiation, hooks, functions with a backward of the caller's |
//! | `object` | state dicts and `.pt` files |
//! | `optim` | optimizers |
//! | `model`, `library` | exported models, ops of other libraries |
//! | `device` | devices, seeds, threads |
//!
//! The op table is the Python front's: the same source files, compiled with this crate's [`rows!`].

// C names.
#![allow(non_camel_case_types)]
// Every function takes pointers from C; the header and each function's text say what they must be.
#![allow(clippy::missing_safety_doc)]

#[macro_use]
mod api;
mod autograd;
mod call;
mod device;
mod dispatch;
mod dtype;
mod error;
mod function;
mod handle;
mod index;
mod library;
mod model;
mod object;
mod optim;
#[path = "../../python/src/params.rs"]
mod params;
mod print;
#[path = "../../python/src/rows/mod.rs"]
mod rows;
mod status;
mod tensor;
// Generators of random numbers and names of results are Python's.
#[allow(dead_code)]
#[path = "../../python/src/value.rs"]
mod value;
mod values;

pub use api::Declaration;
pub use dispatch::{Home, Returned};
pub use dtype::NUMBERS as DTYPES;
pub use handle::{give, rl_tensor, take};
pub use status::{CODES, rl_status};
pub use values::{KINDS, rl_kind, rl_value};

/// Version of the binary interface; it changes when a function or a struct changes in a way that old programs see.
pub const ABI_VERSION: u32 = 1;

/// The declarations of all functions, by section of the header.
pub fn declarations() -> Vec<(&'static str, &'static [Declaration])> {
    vec![
        ("Versions, errors, devices", device::API),
        ("Tensors", tensor::API),
        ("Text", print::API),
        ("Indexing", index::API),
        ("Ops", call::API),
        ("Autograd", autograd::API),
        ("Functions with a backward of their own", function::API),
        ("State dicts and files", object::API),
        ("Optimizers", optim::API),
        ("Exported models", model::API),
        ("Ops of other libraries", library::API),
    ]
}

/// A row of the op table, for generators of other languages' declarations.
pub struct Row {
    pub name: &'static str,
    pub homes: &'static [Home],
    pub doc: &'static str,
    /// Signatures and the kinds of their results.
    pub variants: Vec<(&'static str, Returned)>,
}

/// All ops.
pub fn ops() -> Vec<Row> {
    let rows = rows::TABLES.iter().flat_map(|table| table.iter());
    rows.map(|entry| Row {
        name: entry.op.name.trim_start_matches("r#"),
        homes: entry.op.homes,
        doc: entry.op.doc,
        variants: entry.op.variants.iter().map(|v| (v.text, v.returned)).collect(),
    })
    .collect()
}

/// A signature's parameters: type, name, default, keyword only.
pub fn parameters(signature: &'static str) -> Vec<(&'static str, &'static str, Option<&'static str>, bool)> {
    params::split(signature)
}
