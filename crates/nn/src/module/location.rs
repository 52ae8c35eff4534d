//! Where a module is in its model, for errors: `transformer.h.7.attn.c_proj`.
//!
//! Rust's modules do not know their owners. So every walk over a model (`parameters`, `state_dict`, `to`, `eval`, …)
//! leaves the dotted name in each parameter and training switch it meets. The error path alone reads it: a forward pass
//! that succeeds pays nothing.

use super::{Member, Module};
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::sync::{Arc, Mutex};

/// The longest dotted name under which a walk has met its owner.
#[derive(Default)]
pub(crate) struct Location(Mutex<Option<Arc<str>>>);

impl Location {
    /// Remembers a name, unless a walk that started further out gave a longer one.
    pub(super) fn note(&self, name: &str) {
        let mut known = lock(&self.0);
        if known.as_ref().is_none_or(|known| known.len() < name.len()) {
            *known = Some(name.into());
        }
    }

    fn get(&self) -> Option<Arc<str>> {
        lock(&self.0).clone()
    }
}

/// Errors that say in which module they happened.
///
/// Layers and models of this crate do so themselves. Your own module adds its path to errors of its own
/// arithmetic:
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, InModule, Linear, Module};
/// use rushlight::Tensor;
/// # use rushlight_core::Result;
/// #[derive(Module)]
/// struct Block {
///     proj: Linear,
/// }
///
/// impl Forward for Block {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         let x = x.reshape([2, 3]).in_module(self)?;
///         self.proj.forward(&x)
///     }
/// }
///
/// #[derive(Module)]
/// struct Net {
///     blocks: Vec<Block>,
/// }
///
/// let net = Net { blocks: vec![Block { proj: Linear::new(3, 1)? }, Block { proj: Linear::new(4, 1)? }]
/// }; net.eval();
/// let in_block = net.blocks[0].forward(&Tensor::ones([5])?).unwrap_err();
/// assert_eq!(in_block.module(), Some("blocks.0"));
/// let in_layer = net.blocks[1].forward(&Tensor::ones([6])?).unwrap_err();
/// assert_eq!(in_layer.module(), Some("blocks.1.proj"));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// Paths are known once any method has walked over the whole model: making an optimizer, loading, `to`, `train` or
/// `eval`.
pub trait InModule: Sized {
    /// The same result; an error has the module's path, unless a module inside has added its own.
    fn in_module(self, module: &dyn Module) -> Self;
}

impl<T> InModule for Result<T> {
    #[inline]
    fn in_module(self, module: &dyn Module) -> Self {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(located(error, module)),
        }
    }
}

#[cold]
fn located(error: Error, module: &dyn Module) -> Error {
    if error.module().is_some() {
        return error;
    }
    match path_of(module) {
        Some(path) if path.is_empty() => error.in_module(module.type_name()),
        Some(path) => error.in_module(path),
        None => error,
    }
}

/// A module's path, from the name that a walk has left in something it holds. `None` if no walk has met it.
pub(crate) fn path_of(module: &dyn Module) -> Option<String> {
    let mut found = None;
    search(module, "", &mut found);
    found
}

fn search(module: &dyn Module, prefix: &str, found: &mut Option<String>) {
    module.members(&mut |name, member| {
        if found.is_some() {
            return;
        }
        let within = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        let location = match member {
            Member::Parameter(p) => p.location(),
            Member::Training(t) => t.location(),
            Member::Module(child) => return search(child, &within, found),
            Member::Buffer(_) => return,
        };
        let Some(full) = location.get() else { return };
        *found = full.strip_suffix(within.as_str()).map(|path| path.trim_end_matches('.').to_owned());
    });
}

/// Runs a forward pass; an error has the module's path.
#[inline]
pub(crate) fn locate<T>(module: &dyn Module, forward: impl FnOnce() -> Result<T>) -> Result<T> {
    forward().in_module(module)
}
