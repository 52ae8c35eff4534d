//! A layer's options in the goldens: PyTorch's keyword arguments.

use rushlight_tensor::{OutputSize, Reduction, Sizes, Tensor};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Options by name; every one must be read.
pub struct Options {
    values: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Tensor>,
    asked: RefCell<BTreeSet<String>>,
}

impl Options {
    pub fn new(values: &Value, tensors: BTreeMap<String, Tensor>) -> Self {
        let values = values.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        Self { values, tensors, asked: RefCell::default() }
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.values.get(name)
    }

    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.tensors.get(name)
    }

    /// A required number.
    pub fn count(&self, name: &str) -> usize {
        self.value(name).unwrap().as_u64().unwrap() as usize
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.value(name).map(|v| v.as_f64().unwrap())
    }

    pub fn integer(&self, name: &str) -> Option<isize> {
        self.value(name).map(|v| v.as_i64().unwrap() as isize)
    }

    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.value(name).map_or(default, |v| v.as_bool().unwrap())
    }

    /// A float that may be given as `None`.
    pub fn optional(&self, name: &str, default: Option<f64>) -> Option<f64> {
        self.value(name).map_or(default, Value::as_f64)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name).and_then(Value::as_str)
    }

    pub fn integers(&self, name: &str) -> Option<Vec<isize>> {
        self.value(name).map(|v| match v.as_array() {
            Some(items) => items.iter().map(|i| i.as_i64().unwrap() as isize).collect(),
            None => vec![v.as_i64().unwrap() as isize],
        })
    }

    pub fn counts(&self, name: &str) -> Option<Vec<usize>> {
        self.integers(name).map(|v| v.into_iter().map(|i| i as usize).collect())
    }

    pub fn sizes(&self, name: &str) -> Option<Sizes> {
        self.counts(name).map(|v| Sizes::from(v.as_slice()))
    }

    pub fn output_size(&self) -> OutputSize {
        let value = self.value("output_size").unwrap();
        match value.as_array() {
            Some(items) => {
                let sizes: Vec<Option<usize>> = items.iter().map(|i| i.as_u64().map(|n| n as usize)).collect();
                OutputSize::from(sizes.as_slice())
            }
            None => OutputSize::from(value.as_u64().unwrap() as usize),
        }
    }

    pub fn reduction(&self) -> Reduction {
        match self.text("reduction") {
            None | Some("mean") => Reduction::Mean,
            Some("sum") => Reduction::Sum,
            Some("none") => Reduction::None,
            Some("batchmean") => Reduction::BatchMean,
            Some(other) => panic!("reduction {other}"),
        }
    }

    /// Fails if an option was not read: the test would not cover it.
    pub fn all_asked(&self, layer: &str) {
        for name in self.values.keys().chain(self.tensors.keys()) {
            assert!(self.asked.borrow().contains(name), "{layer}: option {name} is not used");
        }
    }
}
