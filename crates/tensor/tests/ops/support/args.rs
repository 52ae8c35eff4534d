//! The arguments of a recorded call, read by the dispatch tables.

use super::data::dtype;
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::{Arg, Tensor};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// One argument.
#[derive(Clone)]
pub enum Item {
    Tensor(Tensor),
    List(Vec<Option<Tensor>>),
    Value(Value),
    /// A non-finite number, which JSON cannot represent.
    Float(f64),
}

/// Positional and keyword arguments. Reads are recorded, so that a table that ignores an argument is
/// found out.
#[derive(Clone, Default)]
pub struct Args {
    pub inputs: Vec<Item>,
    pub kwargs: BTreeMap<String, Item>,
    asked: RefCell<BTreeSet<String>>,
}

static NULL: Item = Item::Value(Value::Null);

fn wrong(what: &str, key: impl std::fmt::Display) -> Error {
    Error::value(format!("golden argument {key} is not {what}"))
}

impl Args {
    pub fn new(inputs: Vec<Item>, kwargs: BTreeMap<String, Item>) -> Self {
        Self { inputs, kwargs, asked: RefCell::default() }
    }

    /// Every tensor among the positional arguments, in order.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut out = Vec::new();
        self.clone().map_tensors(|t| {
            out.push(t.clone());
            t.clone()
        });
        out
    }

    /// The same call with every positional tensor changed, in the order of [`Args::tensors`].
    pub fn map_tensors(mut self, mut change: impl FnMut(&Tensor) -> Tensor) -> Self {
        for item in &mut self.inputs {
            match item {
                Item::Tensor(t) => *t = change(t),
                Item::List(parts) => parts.iter_mut().flatten().for_each(|t| *t = change(t)),
                Item::Value(_) | Item::Float(_) => {}
            }
        }
        self
    }

    /// Arguments that the last call did not read.
    pub fn ignored(&self) -> Vec<String> {
        let all = (0..self.inputs.len()).map(|i| i.to_string()).chain(self.kwargs.keys().cloned());
        let asked = self.asked.borrow();
        all.filter(|key| !asked.contains(key)).collect()
    }

    /// A positional argument, or one by name.
    fn item(&self, at: usize, name: &str) -> &Item {
        let mut asked = self.asked.borrow_mut();
        if let Some(item) = self.inputs.get(at) {
            asked.insert(at.to_string());
            return item;
        }
        if let Some(item) = self.kwargs.get(name) {
            asked.insert(name.to_string());
            return item;
        }
        &NULL
    }

    fn value(&self, at: usize, name: &str) -> &Value {
        match self.item(at, name) {
            Item::Value(v) => v,
            _ => &Value::Null,
        }
    }

    pub fn count(&self) -> usize {
        self.inputs.len()
    }

    /// A tensor.
    pub fn t(&self, at: usize) -> Result<&Tensor> {
        self.opt(at, "").ok_or_else(|| wrong("a tensor", at))
    }

    /// An optional tensor.
    pub fn opt(&self, at: usize, name: &str) -> Option<&Tensor> {
        match self.item(at, name) {
            Item::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// A list of optional tensors.
    pub fn list(&self, at: usize) -> Result<Vec<Option<&Tensor>>> {
        match self.item(at, "") {
            Item::List(parts) => Ok(parts.iter().map(|p| p.as_ref()).collect()),
            _ => Err(wrong("a list of tensors", at)),
        }
    }

    /// A list of tensors.
    pub fn all(&self, at: usize) -> Result<Vec<&Tensor>> {
        Ok(self.list(at)?.into_iter().flatten().collect())
    }

    /// A tensor or a number.
    pub fn arg(&self, at: usize) -> Result<Arg<'_>> {
        match self.item(at, "") {
            Item::Tensor(t) => Ok(Arg::Tensor(t)),
            _ => self.scalar(at, "").map(Arg::Scalar),
        }
    }

    /// Whether an argument is present and not null.
    pub fn has(&self, at: usize, name: &str) -> bool {
        !matches!(self.item(at, name), Item::Value(Value::Null))
    }

    /// A number of its own kind.
    pub fn scalar(&self, at: usize, name: &str) -> Result<Scalar> {
        match self.item(at, name) {
            Item::Float(f) => Ok(Scalar::Float(*f)),
            Item::Value(Value::Bool(b)) => Ok(Scalar::Bool(*b)),
            Item::Value(Value::Number(n)) => Ok(match n.as_i64() {
                Some(i) => Scalar::Int(i),
                None => Scalar::Float(n.as_f64().unwrap_or(f64::NAN)),
            }),
            _ => Err(wrong("a number", format!("{at} {name}"))),
        }
    }

    pub fn scalar_or(&self, at: usize, name: &str, default: impl Into<Scalar>) -> Result<Scalar> {
        if self.has(at, name) { self.scalar(at, name) } else { Ok(default.into()) }
    }

    pub fn f64(&self, at: usize, name: &str, default: f64) -> Result<f64> {
        Ok(self.scalar_or(at, name, default)?.to_f64())
    }

    pub fn opt_f64(&self, at: usize, name: &str) -> Result<Option<f64>> {
        if self.has(at, name) { self.scalar(at, name).map(|s| Some(s.to_f64())) } else { Ok(None) }
    }

    pub fn int(&self, at: usize, name: &str, default: i64) -> Result<i64> {
        match self.value(at, name) {
            Value::Null => Ok(default),
            v => v.as_i64().ok_or_else(|| wrong("an integer", format!("{at} {name}"))),
        }
    }

    /// An integer that PyTorch takes as a dimension or signed offset.
    pub fn dim(&self, at: usize, name: &str, default: isize) -> Result<isize> {
        self.int(at, name, default as i64).map(|v| v as isize)
    }

    /// An unsigned integer in our API.
    pub fn size(&self, at: usize, name: &str, default: usize) -> Result<usize> {
        usize::try_from(self.int(at, name, default as i64)?).map_err(|_| wrong("a size", format!("{at} {name}")))
    }

    pub fn opt_dim(&self, at: usize, name: &str) -> Result<Option<isize>> {
        if self.has(at, name) { self.dim(at, name, 0).map(Some) } else { Ok(None) }
    }

    /// One integer or a list of them; null is an empty list.
    pub fn dims(&self, at: usize, name: &str) -> Result<Vec<isize>> {
        ints(self.value(at, name)).ok_or_else(|| wrong("a list of integers", format!("{at} {name}")))
    }

    /// One size or a list of them.
    pub fn sizes(&self, at: usize, name: &str) -> Result<Vec<usize>> {
        self.dims(at, name)?
            .into_iter()
            .map(|d| usize::try_from(d).map_err(|_| wrong("a size", format!("{at} {name}"))))
            .collect()
    }

    /// Whether an argument is a list.
    pub fn is_list(&self, at: usize, name: &str) -> bool {
        self.value(at, name).is_array()
    }

    /// A list of lists of integers.
    pub fn nested(&self, at: usize, name: &str) -> Result<Vec<Vec<isize>>> {
        let lists = self.value(at, name).as_array().ok_or_else(|| wrong("a list", name))?;
        lists.iter().map(|v| ints(v).ok_or_else(|| wrong("a list of lists", name))).collect()
    }

    /// A list of optional integers.
    pub fn holes(&self, at: usize, name: &str) -> Result<Vec<Option<usize>>> {
        let one = |v: &Value| match v {
            Value::Null => Ok(None),
            v => v.as_u64().map(|d| Some(d as usize)).ok_or_else(|| wrong("a size", name)),
        };
        match self.value(at, name) {
            Value::Array(list) => list.iter().map(one).collect(),
            v => Ok(vec![one(v)?]),
        }
    }

    /// One float or a list of them.
    pub fn floats(&self, at: usize, name: &str) -> Result<Vec<f64>> {
        let one = |v: &Value| v.as_f64().ok_or_else(|| wrong("a number", name));
        match self.value(at, name) {
            Value::Null => Ok(Vec::new()),
            Value::Array(list) => list.iter().map(one).collect(),
            v => Ok(vec![one(v)?]),
        }
    }

    pub fn flag(&self, at: usize, name: &str, default: bool) -> Result<bool> {
        match self.value(at, name) {
            Value::Null => Ok(default),
            v => v.as_bool().ok_or_else(|| wrong("a bool", name)),
        }
    }

    pub fn text(&self, at: usize, name: &str) -> Option<&str> {
        self.value(at, name).as_str()
    }

    pub fn dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.text(usize::MAX, name) {
            None => Ok(None),
            Some(text) => dtype(text).map(Some).ok_or_else(|| wrong("a dtype", name)),
        }
    }
}

fn ints(v: &Value) -> Option<Vec<isize>> {
    match v {
        Value::Null => Some(Vec::new()),
        Value::Array(list) => list.iter().map(|d| d.as_i64().map(|d| d as isize)).collect(),
        v => v.as_i64().map(|d| vec![d as isize]),
    }
}
