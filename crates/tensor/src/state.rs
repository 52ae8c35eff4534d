//! State: tensors and plain values in nested containers. State dicts, optimizer states, checkpoints and `.pt`
//! files consist of it.

use crate::Tensor;
use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Named tensors in order: a module's state dict.
pub type StateDict = IndexMap<String, Tensor>;

/// A dictionary in order of insertion. Keys are strings or integers, as in PyTorch's state dicts.
///
/// It dereferences to an [`IndexMap`]. Files distinguish Python's `dict` from its `OrderedDict`, which PyTorch's state
/// dicts are; [`Dict::ordered`] makes the latter.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::state::{Dict, Key};
/// let plain = Dict::from_iter([("a".into(), 1.into())]);
/// let ordered = plain.clone().ordered(Dict::new());
/// assert!(!plain.is_ordered() && ordered.is_ordered());
/// assert_eq!(ordered[&Key::from("a")].as_int()?, 1);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Dict {
    entries: IndexMap<Key, Value>,
    /// The attributes of an `OrderedDict`; `None` for a `dict`.
    attributes: Option<Box<Dict>>,
}

impl Dict {
    /// An empty `dict`.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same entries as an `OrderedDict` with these attributes, such as `_metadata` of a state dict.
    pub fn ordered(mut self, attributes: Dict) -> Self {
        self.attributes = Some(Box::new(attributes));
        self
    }

    /// Whether Python has this as an `OrderedDict`.
    pub fn is_ordered(&self) -> bool {
        self.attributes.is_some()
    }

    /// The attributes of an `OrderedDict`.
    pub fn attributes(&self) -> Option<&Dict> {
        self.attributes.as_deref()
    }
}

impl Deref for Dict {
    type Target = IndexMap<Key, Value>;
    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl DerefMut for Dict {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.entries
    }
}

impl FromIterator<(Key, Value)> for Dict {
    fn from_iter<I: IntoIterator<Item = (Key, Value)>>(entries: I) -> Self {
        Self { entries: entries.into_iter().collect(), attributes: None }
    }
}

impl Extend<(Key, Value)> for Dict {
    fn extend<I: IntoIterator<Item = (Key, Value)>>(&mut self, entries: I) {
        self.entries.extend(entries);
    }
}

impl IntoIterator for Dict {
    type Item = (Key, Value);
    type IntoIter = indexmap::map::IntoIter<Key, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<'a> IntoIterator for &'a Dict {
    type Item = (&'a Key, &'a Value);
    type IntoIter = indexmap::map::Iter<'a, Key, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl<'a> IntoIterator for &'a mut Dict {
    type Item = (&'a Key, &'a mut Value);
    type IntoIter = indexmap::map::IterMut<'a, Key, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter_mut()
    }
}

impl fmt::Debug for Dict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// A key of a [`Dict`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A name.
    Str(String),
    /// A number, as PyTorch's optimizers use for parameters.
    Int(i64),
}

/// A tensor, a plain value, or a container of them.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::state::{Dict, Value};
/// let mut state = Dict::new();
/// state.insert("epoch".into(), 3.into());
/// state.insert("lr".into(), 0.1.into());
/// let state = Value::from(state);
/// assert_eq!(state.get("epoch")?.as_int()?, 3);
/// assert!(state.get("step").unwrap_err().to_string().contains("no entry 'step'"));
/// assert_eq!(format!("{:?}", Value::Tuple(vec![1.into()])), "(1,)");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub enum Value {
    /// Python's `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text.
    Str(String),
    /// Raw bytes.
    Bytes(Vec<u8>),
    /// A tensor.
    Tensor(Tensor),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A dictionary.
    Dict(Dict),
}

/// Something whose state can be saved and restored.
pub trait Stateful {
    /// The state now. Tensors are shared, not copied.
    fn state(&self) -> Result<Value>;
    /// Goes back to a state. Nothing changes if the state does not fit.
    fn load_state(&mut self, state: &Value) -> Result<()>;
}

impl Value {
    /// The kind of value, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "a bool",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Str(_) => "a string",
            Value::Bytes(_) => "bytes",
            Value::Tensor(_) => "a tensor",
            Value::List(_) => "a list",
            Value::Tuple(_) => "a tuple",
            Value::Dict(_) => "a dictionary",
        }
    }

    #[cold]
    fn not(&self, wanted: &str) -> Error {
        Error::value(format!("state: expected {wanted}, found {}", self.kind()))
    }

    /// An entry of a dictionary.
    pub fn get(&self, key: impl Into<Key>) -> Result<&Value> {
        let (key, dict) = (key.into(), self.as_dict()?);
        dict.get(&key).ok_or_else(|| {
            let known: Vec<String> = dict.keys().take(20).map(|k| format!("'{k}'")).collect();
            Error::value(format!("state: no entry '{key}'; it has {}", known.join(", ")))
        })
    }

    /// A truth value.
    pub fn as_bool(&self) -> Result<bool> {
        if let Value::Bool(b) = self { Ok(*b) } else { Err(self.not("a bool")) }
    }

    /// An integer; a tensor of one integer counts.
    pub fn as_int(&self) -> Result<i64> {
        match self {
            Value::Int(i) => Ok(*i),
            Value::Tensor(t) if t.numel() == 1 && !t.is_floating_point() => t.item(),
            other => Err(other.not("an integer")),
        }
    }

    /// A number that counts something.
    pub fn as_usize(&self) -> Result<usize> {
        let i = self.as_int()?;
        usize::try_from(i).map_err(|_| Error::value(format!("state: expected a count, found {i}")))
    }

    /// A float; integers and tensors of one element count.
    pub fn as_float(&self) -> Result<f64> {
        match self {
            Value::Float(f) => Ok(*f),
            Value::Int(i) => Ok(*i as f64),
            Value::Tensor(t) if t.numel() == 1 => t.item(),
            other => Err(other.not("a number")),
        }
    }

    /// Text.
    pub fn as_str(&self) -> Result<&str> {
        if let Value::Str(s) = self { Ok(s) } else { Err(self.not("a string")) }
    }

    /// Raw bytes.
    pub fn as_bytes(&self) -> Result<&[u8]> {
        if let Value::Bytes(b) = self { Ok(b) } else { Err(self.not("bytes")) }
    }

    /// A tensor.
    pub fn as_tensor(&self) -> Result<&Tensor> {
        if let Value::Tensor(t) = self { Ok(t) } else { Err(self.not("a tensor")) }
    }

    /// The items of a list or tuple.
    pub fn as_list(&self) -> Result<&[Value]> {
        match self {
            Value::List(items) | Value::Tuple(items) => Ok(items),
            other => Err(other.not("a list")),
        }
    }

    /// A dictionary.
    pub fn as_dict(&self) -> Result<&Dict> {
        if let Value::Dict(d) = self { Ok(d) } else { Err(self.not("a dictionary")) }
    }

    /// A dictionary of tensors by name, as modules load.
    pub fn to_state_dict(&self) -> Result<StateDict> {
        self.as_dict()?
            .iter()
            .map(|(key, value)| match (key, value) {
                (Key::Str(name), Value::Tensor(t)) => Ok((name.clone(), t.clone())),
                (key, other) => Err(Error::value(format!(
                    "state: a state dict holds tensors by name, but entry '{key}' is {}",
                    other.kind()
                ))),
            })
            .collect()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Str(s) => f.write_str(s),
            Key::Int(i) => write!(f, "{i}"),
        }
    }
}

/// As Python prints it, tensors by dtype and shape.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.write_str("None"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(i) => write!(f, "{i}"),
            Value::Float(x) => write!(f, "{x:?}"),
            Value::Str(s) => write!(f, "{s:?}"),
            Value::Bytes(b) => write!(f, "{} bytes", b.len()),
            Value::Tensor(t) => write!(f, "Tensor({} {:?})", t.dtype(), t.shape()),
            Value::List(items) => f.debug_list().entries(items).finish(),
            Value::Tuple(items) => {
                // `debug_tuple` writes nothing at all for an empty one.
                f.write_str("(")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item:?}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(if items.len() == 1 { ",)" } else { ")" })
            }
            Value::Dict(d) => d.fmt(f),
        }
    }
}

macro_rules! conversions {
    ($($from:ty => $to:ty, |$x:ident| $value:expr;)*) => {$(
        impl From<$from> for $to {
            fn from($x: $from) -> Self {
                $value
            }
        }
    )*};
}

conversions! {
    &str => Key, |x| Key::Str(x.into());
    String => Key, |x| Key::Str(x);
    i64 => Key, |x| Key::Int(x);
    bool => Value, |x| Value::Bool(x);
    i64 => Value, |x| Value::Int(x);
    i32 => Value, |x| Value::Int(x.into());
    f64 => Value, |x| Value::Float(x);
    &str => Value, |x| Value::Str(x.into());
    String => Value, |x| Value::Str(x);
    Tensor => Value, |x| Value::Tensor(x);
    &Tensor => Value, |x| Value::Tensor(x.clone());
    Vec<Value> => Value, |x| Value::List(x);
    Dict => Value, |x| Value::Dict(x);
    &Dict => Value, |x| Value::Dict(x.clone());
    &Value => Value, |x| x.clone();
    StateDict => Value, |x| Value::Dict(x.into_iter().map(|(k, t)| (Key::Str(k), Value::Tensor(t))).collect());
    &StateDict => Value, |x| Value::Dict(x.iter().map(|(k, t)| (Key::Str(k.clone()), Value::Tensor(t.clone()))).collect());
}

impl From<usize> for Value {
    /// Sizes and counts; none that memory can hold exceeds an `i64`.
    fn from(x: usize) -> Self {
        Value::Int(i64::try_from(x).unwrap_or(i64::MAX))
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(x: Option<T>) -> Self {
        x.map_or(Value::None, Into::into)
    }
}
