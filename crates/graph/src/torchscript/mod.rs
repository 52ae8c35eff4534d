//! TorchScript archives, written: a program as code that PyTorch's `torch.jit.load` reads.
//!
//! A model that was read from an archive keeps its code and objects. Any other program becomes a class: weights are
//! attributes of modules by their names, and each op is called under aten's name with arguments in its order.

mod call;
mod code;
mod functional;
mod types;

use crate::ivalue::{IValue, Object};
use crate::model::Model;
use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use rushlight_io::records::{self, Item, Script};
use rushlight_tensor::Tensor;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// The namespace of classes.
const SPACE: &str = "__torch__";

impl Model {
    /// Writes an archive that PyTorch's `torch.jit.load` reads. An op that TorchScript lacks is an error; `.rlm` and
    /// ONNX files may have it.
    pub fn save_torchscript(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_torchscript_with(path, &[])
    }

    /// The same with further files in the archive's folder `extra`, which [`extra_files`](crate::extra_files) reads.
    pub fn save_torchscript_with(&self, path: impl AsRef<Path>, extra: &[(String, Vec<u8>)]) -> Result<()> {
        let mut items = Items::default();
        let (module, constants, code) = match &self.root {
            Some(root) if root.class.starts_with("__torch__.") => {
                let constants = self.unit.constants.iter().map(|c| items.item(c)).collect::<Result<Vec<_>>>()?;
                (items.object(root)?, constants, self.unit.sources.clone())
            }
            _ => {
                let flat;
                let model = match self.root.is_none() && self.unit.functions().count() == 1 {
                    true => self,
                    false => {
                        flat = crate::inline::flat(self).ok_or_else(|| {
                            refused("a program with loops of unknown length or objects of its own in several functions")
                        })?;
                        &flat
                    }
                };
                let mut tree = Tree::default();
                for (name, tensor) in &model.unit.weights {
                    tree.insert(name, items.tensor(tensor)?)?;
                }
                tree.name_classes("Model", &mut HashSet::new());
                let function = code::Code::new(model, &tree).function(model.entry("forward")?)?;
                let mut text = String::new();
                tree.write(&mut text, &function);
                (tree.item(), Vec::new(), vec![(SPACE.to_string(), text)])
            }
        };
        records::write_script(path, &Script { module: &module, constants: &constants, code: &code, extra })
    }
}

/// The error for what an archive cannot hold.
fn refused(what: &str) -> Error {
    Error::unsupported(format!(
        "a TorchScript archive cannot hold {what}; write a .rlm file, or an ONNX file (torch.onnx.export)"
    ))
}

/// Modules by the parts of the weights' names.
#[derive(Default)]
struct Tree {
    class: String,
    tensors: IndexMap<String, Tensor>,
    modules: IndexMap<String, Tree>,
}

/// Whether text is a name that code may have after a dot.
fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// An attribute of an expression.
fn attribute(object: &str, name: &str) -> String {
    match is_identifier(name) {
        true => format!("{object}.{name}"),
        false => format!("getattr({object}, {})", crate::model::quoted(name)),
    }
}

impl Tree {
    fn insert(&mut self, name: &str, tensor: Tensor) -> Result<()> {
        let taken = || refused(&format!("a weight '{name}' beside weights below that name"));
        match name.split_once('.') {
            Some((first, _)) if self.tensors.contains_key(first) => Err(taken()),
            Some((first, rest)) => self.modules.entry(first.to_string()).or_default().insert(rest, tensor),
            None if self.modules.contains_key(name) => Err(taken()),
            None => {
                self.tensors.insert(name.to_string(), tensor);
                Ok(())
            }
        }
    }

    fn name_classes(&mut self, name: &str, taken: &mut HashSet<String>) {
        let mut class: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        while !taken.insert(class.clone()) {
            class.push('_');
        }
        for (inner, tree) in &mut self.modules {
            tree.name_classes(&format!("{class}_{inner}"), taken);
        }
        self.class = format!("{SPACE}.{class}");
    }

    /// The expression of a weight in a method.
    fn weight(&self, name: &str) -> String {
        name.split('.').fold("self".to_string(), |object, part| attribute(&object, part))
    }

    /// The classes, innermost first; the outermost one has the method.
    fn write(&self, out: &mut String, method: &str) {
        self.modules.values().for_each(|tree| tree.write(out, ""));
        let listed = |parameters: bool| {
            let names = self.tensors.iter().filter(|(_, t)| t.requires_grad() == parameters);
            names.map(|(n, _)| format!("{}, ", crate::model::quoted(n))).collect::<String>()
        };
        let name = self.class.rsplit('.').next().unwrap_or_default();
        out.push_str(&format!("class {name}(Module):\n"));
        out.push_str(&format!("  __parameters__ = [{}]\n  __buffers__ = [{}]\n", listed(true), listed(false)));
        let fields = self.tensors.keys().map(|n| (n, "Tensor".to_string()));
        for (name, ty) in fields.chain(self.modules.iter().map(|(n, tree)| (n, tree.class.clone()))) {
            out.push_str(&match is_identifier(name) {
                true => format!("  {name} : {ty}\n"),
                false => format!("  __annotations__[{}] = {ty}\n", crate::model::quoted(name)),
            });
        }
        out.push_str("  training : bool\n");
        out.push_str(method);
    }

    fn item(&self) -> Item {
        let tensors = self.tensors.iter().map(|(n, t)| (n.clone(), Item::Tensor(t.clone())));
        let modules = self.modules.iter().map(|(n, tree)| (n.clone(), tree.item()));
        let fields = tensors.chain(modules).chain([("training".to_string(), Item::Bool(false))]).collect();
        Item::Object(Arc::new(records::Object { class: self.class.clone(), fields }))
    }
}

/// Values as items of an archive. A tensor that occurs twice stays one.
#[derive(Default)]
struct Items {
    tensors: HashMap<usize, Tensor>,
}

impl Items {
    /// A tensor with memory of its own: an archive holds whole storages.
    fn tensor(&mut self, tensor: &Tensor) -> Result<Tensor> {
        if let Some(known) = self.tensors.get(&tensor.id()) {
            return Ok(known.clone());
        }
        let plain = tensor.detach();
        let made = match plain.storage().bytes() == plain.numel() * plain.dtype().size() {
            true => plain,
            false => plain.copy()?,
        };
        let made = made.requires_grad_(tensor.requires_grad())?;
        self.tensors.insert(tensor.id(), made.clone());
        Ok(made)
    }

    fn object(&mut self, object: &Object) -> Result<Item> {
        let fields = object.fields().iter().map(|(n, v)| Ok((n.clone(), self.item(v)?))).collect::<Result<Vec<_>>>()?;
        Ok(Item::Object(Arc::new(records::Object { class: object.class.clone(), fields })))
    }

    fn item(&mut self, value: &IValue) -> Result<Item> {
        let mut all = |values: Vec<IValue>| values.iter().map(|v| self.item(v)).collect::<Result<Arc<[Item]>>>();
        Ok(match value {
            IValue::None => Item::None,
            IValue::Bool(b) => Item::Bool(*b),
            IValue::Int(i) => Item::Int(*i),
            IValue::Float(x) => Item::Float(*x),
            IValue::Str(s) => Item::Str(s.clone()),
            IValue::Tensor(t) => Item::Tensor(self.tensor(t)?),
            IValue::Tuple(_) => Item::Tuple(all(value.items()?)?),
            IValue::List(_) => Item::List(all(value.items()?)?),
            IValue::Dict(entries) => {
                let entries = entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
                let made = entries.iter().map(|(k, v)| Ok((self.item(k)?, self.item(v)?)));
                Item::Dict(made.collect::<Result<_>>()?)
            }
            IValue::Object(object) => self.object(object)?,
            IValue::DType(dtype) => Item::Int(i64::from(crate::dtype::number(*dtype))),
            other => return Err(refused(&format!("{} as an attribute", other.kind()))),
        })
    }
}
