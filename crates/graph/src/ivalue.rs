//! Values of programs, named as PyTorch names them.

use indexmap::IndexMap;
use rushlight_core::{DType, Device, Error, Result};
use rushlight_io::records::Item;
use rushlight_tensor::Tensor;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value of a program. Lists, dictionaries and objects are references, as in Python.
#[derive(Clone)]
pub enum IValue {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text.
    Str(Arc<str>),
    /// A tensor.
    Tensor(Tensor),
    /// A list.
    List(Arc<Mutex<Vec<IValue>>>),
    /// A tuple.
    Tuple(Arc<[IValue]>),
    /// A dictionary in order.
    Dict(Arc<Mutex<Vec<(IValue, IValue)>>>),
    /// An object of a class.
    Object(Arc<Object>),
    /// A dtype.
    DType(DType),
    /// A device.
    Device(Device),
    /// A function, by name.
    Function(Arc<str>),
}

/// An object: a module or another class's.
pub struct Object {
    /// The class's full name.
    pub class: String,
    fields: Mutex<IndexMap<String, IValue>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Object {
    /// An object with fields.
    pub fn new(class: impl Into<String>, fields: impl IntoIterator<Item = (String, IValue)>) -> Self {
        Self { class: class.into(), fields: Mutex::new(fields.into_iter().collect()) }
    }

    /// A field.
    pub fn get(&self, name: &str) -> Option<IValue> {
        lock(&self.fields).get(name).cloned()
    }

    /// Sets a field.
    pub fn set(&self, name: &str, value: IValue) {
        lock(&self.fields).insert(name.to_string(), value);
    }

    /// All fields.
    pub fn fields(&self) -> Vec<(String, IValue)> {
        lock(&self.fields).iter().map(|(n, v)| (n.clone(), v.clone())).collect()
    }
}

impl IValue {
    /// A list.
    pub fn list(items: impl IntoIterator<Item = IValue>) -> Self {
        Self::List(Arc::new(Mutex::new(items.into_iter().collect())))
    }

    /// A tuple.
    pub fn tuple(items: impl IntoIterator<Item = IValue>) -> Self {
        Self::Tuple(items.into_iter().collect())
    }

    /// A dictionary.
    pub fn dict(entries: impl IntoIterator<Item = (IValue, IValue)>) -> Self {
        Self::Dict(Arc::new(Mutex::new(entries.into_iter().collect())))
    }

    /// The kind of a value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Tensor(_) => "Tensor",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::Object(_) => "object",
            Self::DType(_) => "dtype",
            Self::Device(_) => "device",
            Self::Function(_) => "function",
        }
    }

    fn wrong<T>(&self, wanted: &str) -> Result<T> {
        Err(Error::value(format!("expected {wanted}, got {}", self.kind())))
    }

    /// The tensor.
    pub fn to_tensor(&self) -> Result<Tensor> {
        match self {
            Self::Tensor(t) => Ok(t.clone()),
            other => other.wrong("a tensor"),
        }
    }

    /// An integer; a tensor of one element is read.
    pub fn to_int(&self) -> Result<i64> {
        match self {
            Self::Int(i) => Ok(*i),
            Self::Bool(b) => Ok(i64::from(*b)),
            Self::Float(x) => Ok(*x as i64),
            Self::Tensor(t) => t.item::<i64>(),
            Self::DType(d) => Ok(i64::from(crate::dtype::number(*d))),
            other => other.wrong("an integer"),
        }
    }

    /// A float; a tensor of one element is read.
    pub fn to_float(&self) -> Result<f64> {
        match self {
            Self::Float(x) => Ok(*x),
            Self::Int(i) => Ok(*i as f64),
            Self::Bool(b) => Ok(f64::from(u8::from(*b))),
            Self::Tensor(t) => t.item::<f64>(),
            Self::Str(s) => s.trim().parse().map_err(|_| Error::value(format!("'{s}' is not a number"))),
            other => other.wrong("a number"),
        }
    }

    /// A truth value, as Python's `bool` gives it.
    pub fn truth(&self) -> Result<bool> {
        Ok(match self {
            Self::None => false,
            Self::Bool(b) => *b,
            Self::Int(i) => *i != 0,
            Self::Float(x) => *x != 0.0,
            Self::Str(s) => !s.is_empty(),
            Self::Tensor(t) => t.item::<f64>()? != 0.0,
            Self::List(items) => !lock(items).is_empty(),
            Self::Tuple(items) => !items.is_empty(),
            Self::Dict(entries) => !lock(entries).is_empty(),
            _ => true,
        })
    }

    /// The text.
    pub fn to_str(&self) -> Result<Arc<str>> {
        match self {
            Self::Str(s) => Ok(s.clone()),
            other => other.wrong("a string"),
        }
    }

    /// Elements of a list or tuple.
    pub fn items(&self) -> Result<Vec<IValue>> {
        match self {
            Self::List(items) => Ok(lock(items).clone()),
            Self::Tuple(items) => Ok(items.to_vec()),
            Self::Tensor(t) if t.rank() > 0 => Ok(t.unbind(0)?.into_iter().map(IValue::Tensor).collect()),
            other => other.wrong("a list"),
        }
    }

    /// Integers of a list.
    pub fn ints(&self) -> Result<Vec<i64>> {
        match self {
            Self::Int(i) => Ok(vec![*i]),
            Self::Tensor(t) if t.rank() == 1 => t.to_dtype(DType::I64)?.to_vec(),
            other => other.items()?.iter().map(IValue::to_int).collect(),
        }
    }

    /// Tensors in this value, nested ones included.
    pub fn tensors(&self, out: &mut Vec<Tensor>) {
        match self {
            Self::Tensor(t) => out.push(t.clone()),
            Self::List(items) => lock(items).iter().for_each(|v| v.tensors(out)),
            Self::Tuple(items) => items.iter().for_each(|v| v.tensors(out)),
            Self::Dict(entries) => lock(entries).iter().for_each(|(_, v)| v.tensors(out)),
            _ => {}
        }
    }

    /// The same, with tensors mapped.
    pub fn map(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<IValue> {
        Ok(match self {
            Self::Tensor(t) => Self::Tensor(f(t)?),
            Self::List(items) => {
                let items = lock(items).clone();
                Self::list(items.iter().map(|v| v.map(f)).collect::<Result<Vec<_>>>()?)
            }
            Self::Tuple(items) => Self::tuple(items.iter().map(|v| v.map(f)).collect::<Result<Vec<_>>>()?),
            Self::Dict(entries) => {
                let entries = lock(entries).clone();
                Self::dict(entries.into_iter().map(|(k, v)| Ok((k, v.map(f)?))).collect::<Result<Vec<_>>>()?)
            }
            other => other.clone(),
        })
    }

    /// Whether two values are equal, as Python's `==` has it for plain values.
    pub fn same(&self, other: &IValue) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Bool(_) | Self::Int(_), Self::Bool(_) | Self::Int(_)) => self.to_int().ok() == other.to_int().ok(),
            (Self::Bool(_) | Self::Int(_) | Self::Float(_), Self::Bool(_) | Self::Int(_) | Self::Float(_)) => {
                self.to_float().ok() == other.to_float().ok()
            }
            (Self::DType(_), Self::Int(_)) | (Self::Int(_), Self::DType(_)) => {
                self.to_int().ok() == other.to_int().ok()
            }
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::DType(a), Self::DType(b)) => a == b,
            (Self::Device(a), Self::Device(b)) => a == b,
            (Self::List(_) | Self::Tuple(_), Self::List(_) | Self::Tuple(_)) => match (self.items(), other.items()) {
                (Ok(a), Ok(b)) => a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.same(b)),
                _ => false,
            },
            _ => self.is(other),
        }
    }

    /// Whether two values are one object.
    pub fn is(&self, other: &IValue) -> bool {
        match (self, other) {
            (Self::Tensor(a), Self::Tensor(b)) => a.id() == b.id(),
            (Self::List(a), Self::List(b)) => Arc::ptr_eq(a, b),
            (Self::Dict(a), Self::Dict(b)) => Arc::ptr_eq(a, b),
            (Self::Object(a), Self::Object(b)) => Arc::ptr_eq(a, b),
            (Self::Function(a), Self::Function(b)) => a == b,
            (Self::Tensor(_) | Self::Object(_), _) | (_, Self::Tensor(_) | Self::Object(_)) => false,
            (Self::List(_) | Self::Dict(_), _) | (_, Self::List(_) | Self::Dict(_)) => false,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b) && a.same(b),
        }
    }

    /// A value of an archive. Objects that occur twice stay one.
    pub fn from_item(item: &Item, seen: &mut std::collections::HashMap<usize, Arc<Object>>) -> IValue {
        match item {
            Item::None => Self::None,
            Item::Bool(b) => Self::Bool(*b),
            Item::Int(i) => Self::Int(*i),
            Item::Float(x) => Self::Float(*x),
            Item::Str(s) => Self::Str(s.clone()),
            Item::Tensor(t) => Self::Tensor(t.clone()),
            Item::Tuple(items) => Self::tuple(items.iter().map(|i| Self::from_item(i, seen))),
            Item::List(items) => Self::list(items.iter().map(|i| Self::from_item(i, seen))),
            Item::Dict(entries) => {
                Self::dict(entries.iter().map(|(k, v)| (Self::from_item(k, seen), Self::from_item(v, seen))))
            }
            Item::Object(object) => {
                let key = Arc::as_ptr(object) as usize;
                if let Some(made) = seen.get(&key) {
                    return Self::Object(made.clone());
                }
                let fields: Vec<_> = object.fields.iter().map(|(n, v)| (n.clone(), Self::from_item(v, seen))).collect();
                let made = Arc::new(Object::new(object.class.clone(), fields));
                seen.insert(key, made.clone());
                Self::Object(made)
            }
        }
    }
}

impl From<Tensor> for IValue {
    fn from(t: Tensor) -> Self {
        Self::Tensor(t)
    }
}

impl From<&Tensor> for IValue {
    fn from(t: &Tensor) -> Self {
        Self::Tensor(t.clone())
    }
}

impl From<&str> for IValue {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<i64> for IValue {
    fn from(i: i64) -> Self {
        Self::Int(i)
    }
}

impl From<bool> for IValue {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<f64> for IValue {
    fn from(x: f64) -> Self {
        Self::Float(x)
    }
}

impl fmt::Display for IValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, items: &[IValue]| {
            items.iter().enumerate().try_for_each(|(i, v)| write!(f, "{}{v}", if i > 0 { ", " } else { "" }))
        };
        match self {
            Self::None => f.write_str("None"),
            Self::Bool(b) => f.write_str(if *b { "True" } else { "False" }),
            Self::Int(i) => write!(f, "{i}"),
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Str(s) => f.write_str(s),
            Self::Tensor(t) => write!(f, "{}{:?}", t.dtype(), t.shape()),
            Self::List(items) => {
                let items = lock(items).clone();
                f.write_str("[")?;
                joined(f, &items)?;
                f.write_str("]")
            }
            Self::Tuple(items) => {
                f.write_str("(")?;
                joined(f, items)?;
                f.write_str(if items.len() == 1 { ",)" } else { ")" })
            }
            Self::Dict(entries) => {
                f.write_str("{")?;
                for (i, (k, v)) in lock(entries).iter().enumerate() {
                    write!(f, "{}{k}: {v}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
            Self::Object(object) => write!(f, "<{}>", object.class),
            Self::DType(d) => write!(f, "torch.{d}"),
            Self::Device(d) => write!(f, "{d}"),
            Self::Function(name) => write!(f, "<function {name}>"),
        }
    }
}
