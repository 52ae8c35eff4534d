//! A compilation unit: the functions, classes, constants and weights that a program may use.

use crate::interpret::Interpreter;
use crate::ivalue::IValue;
use crate::script::ast::{Class, Expr, Function};
use crate::script::{Definitions, parse};
use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;
use std::sync::Arc;

/// Functions, classes, constants and weights.
#[derive(Default)]
pub struct Unit {
    /// The texts with their namespaces, as they were read.
    pub(crate) sources: Vec<(String, String)>,
    functions: IndexMap<String, Arc<Function>>,
    classes: IndexMap<String, Arc<Class>>,
    /// Methods by class and name.
    methods: IndexMap<String, Arc<Function>>,
    pub(crate) constants: Vec<IValue>,
    pub(crate) weights: StateDict,
}

impl Unit {
    /// A unit of weights alone.
    pub fn with_weights(weights: StateDict) -> Self {
        Self { weights, ..Self::default() }
    }

    /// Adds the definitions of a text.
    pub fn define(&mut self, namespace: &str, text: &str) -> Result<()> {
        let Definitions { functions, classes } = parse(text, namespace)
            .map_err(|e| if namespace.is_empty() { e } else { e.within(&format!("code of '{namespace}'")) })?;
        for function in functions {
            if self.functions.insert(function.name.clone(), function.clone()).is_some() {
                return Err(Error::value(format!("function '{}' is defined twice", function.name)));
            }
        }
        for class in classes {
            for method in &class.methods {
                self.methods.insert(method.name.clone(), method.clone());
            }
            self.classes.insert(class.name.clone(), class);
        }
        self.sources.push((namespace.to_string(), text.to_string()));
        Ok(())
    }

    /// A function by its full name.
    pub fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.get(name)
    }

    /// A class by its full name.
    pub fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(name)
    }

    /// All classes.
    pub fn classes(&self) -> impl Iterator<Item = &Arc<Class>> {
        self.classes.values()
    }

    /// All functions outside of classes.
    pub fn functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.functions.values()
    }

    /// A method of a class.
    pub fn method(&self, class: &str, name: &str) -> Option<&Arc<Function>> {
        self.methods.get(&format!("{class}.{name}"))
    }

    pub(crate) fn weight(&self, name: &str) -> Result<IValue> {
        let found = self.weights.get(name).map(IValue::from);
        found.ok_or_else(|| Error::value(format!("the program uses weight '{name}', which its archive lacks")))
    }

    /// The value of a name that is not a variable.
    pub(crate) fn path(&self, path: &str) -> Result<IValue> {
        if let Some(index) = path.strip_prefix("CONSTANTS.c").and_then(|n| n.parse::<usize>().ok()) {
            return self.constants.get(index).cloned().ok_or_else(|| Error::value(format!("there is no '{path}'")));
        }
        if let Some(dtype) = path.strip_prefix("torch.").and_then(crate::dtype::named) {
            return Ok(IValue::DType(dtype));
        }
        if let Some(name) = path.strip_prefix("torch.") {
            match name {
                "strided" | "contiguous_format" => return Ok(IValue::Int(0)),
                "preserve_format" => return Ok(IValue::Int(1)),
                "channels_last" => return Ok(IValue::Int(2)),
                "channels_last_3d" => return Ok(IValue::Int(3)),
                _ => {}
            }
        }
        if self.functions.contains_key(path) || self.classes.contains_key(path) {
            return Ok(IValue::Function(path.into()));
        }
        if let Some((class, name)) = path.rsplit_once('.')
            && let Some(class) = self.classes.get(class)
        {
            return self.constant(class, name);
        }
        Err(Error::value(format!("the program uses '{path}', which is not defined")))
    }

    fn constant(&self, class: &Class, name: &str) -> Result<IValue> {
        let found = class.constants.iter().find(|(n, _)| n == name);
        let (_, expr) =
            found.ok_or_else(|| Error::value(format!("an object of '{}' has no field '{name}'", class.name)))?;
        self.literal(expr)
    }

    /// A field of an object, or a constant of its class; an attribute of a tensor.
    pub(crate) fn attribute(&self, value: &IValue, name: &str) -> Result<IValue> {
        match value {
            IValue::Object(object) => match (object.get(name), self.classes.get(&object.class)) {
                (Some(value), _) => Ok(value),
                (None, Some(class)) => self.constant(class, name),
                (None, None) => Err(Error::value(format!("an object of '{}' has no field '{name}'", object.class))),
            },
            IValue::Tensor(t) => match name {
                "shape" => Ok(IValue::list(t.shape().iter().map(|&n| IValue::Int(n as i64)))),
                "dtype" => Ok(IValue::DType(t.dtype())),
                "device" => Ok(IValue::Device(t.device())),
                "ndim" => Ok(IValue::Int(t.rank() as i64)),
                "T" | "mT" => Ok(t.transpose(-2, -1)?.into()),
                _ => Err(Error::value(format!("a tensor's attribute '{name}' is not supported in programs"))),
            },
            other => Err(Error::value(format!("{} has no attribute '{name}'", other.kind()))),
        }
    }

    /// The value of an expression without variables.
    pub(crate) fn literal(&self, expr: &Expr) -> Result<IValue> {
        let all = |items: &[Expr]| items.iter().map(|e| self.literal(e)).collect::<Result<Vec<_>>>();
        Ok(match expr {
            Expr::Literal(value) => value.clone(),
            Expr::List(items) => IValue::list(all(items)?),
            Expr::Tuple(items) => IValue::tuple(all(items)?),
            Expr::Dict(entries) => {
                let entries = entries.iter().map(|(k, v)| Ok((self.literal(k)?, self.literal(v)?)));
                IValue::dict(entries.collect::<Result<Vec<_>>>()?)
            }
            Expr::Cast(_, inner) => self.literal(inner)?,
            Expr::Path(path) => self.path(path)?,
            Expr::Call(call) => match (&call.target, &all(&call.args)?[..]) {
                (Expr::Path(path), [IValue::Str(name)]) if path == "weight" => self.weight(name)?,
                (Expr::Path(path), args @ [IValue::Str(_)]) if path == "torch.device" => {
                    crate::ops::resolve(path)?.call(args.to_vec(), Vec::new())?
                }
                (Expr::Path(path), [IValue::Str(class), IValue::Dict(_)]) if path == "object" => {
                    let Expr::Dict(entries) = &call.args[1] else {
                        return Err(Error::value("object() takes a class and a dictionary"));
                    };
                    let mut fields = Vec::new();
                    for (name, value) in entries {
                        fields.push((self.literal(name)?.to_str()?.to_string(), self.literal(value)?));
                    }
                    IValue::Object(Arc::new(crate::ivalue::Object::new(&**class, fields)))
                }
                _ => return Err(Error::value("a constant is not a plain value")),
            },
            _ => return Err(Error::value("a constant is not a plain value")),
        })
    }

    /// Calls a function.
    pub fn call(&self, name: &str, args: Vec<IValue>, keywords: Vec<(String, IValue)>) -> Result<IValue> {
        let function = self.function(name).ok_or_else(|| Error::value(format!("there is no function '{name}'")))?;
        Interpreter::new(self).function(function, args, keywords)
    }

    /// The weights by name.
    pub fn weights(&self) -> &StateDict {
        &self.weights
    }

    /// Adds or replaces a weight.
    pub fn set_weight(&mut self, name: &str, tensor: Tensor) {
        self.weights.insert(name.to_string(), tensor);
    }
}
