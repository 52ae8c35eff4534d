//! Lists and dictionaries of modules and parameters. A `Vec` or an array as a field of a module does as well as a list
//! here.

use crate::sequential::check_name;
use crate::{Field, Forward, Member, MemberMut, Memo, Module, Parameter};
use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use std::any::Any;
use std::ops::{Deref, DerefMut};

/// Modules by number: of one type, or boxed of several.
///
/// ```
/// # mod rushlight { pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, Linear, Module, ModuleList};
/// let blocks = (0..3).map(|_| Linear::new(4, 4)).collect::<Result<ModuleList<_>, _>>()?;
/// assert_eq!(blocks.len(), 3);
/// assert_eq!(blocks.named_parameters()[4].0, "2.weight");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct ModuleList<M = Box<dyn Forward>>(Vec<M>);

/// Parameters by number.
#[derive(Default)]
pub struct ParameterList(Vec<Parameter>);

/// The common part of the two lists: vectors whose items are named by position.
macro_rules! lists {
    ($([$($generic:tt)*] $list:ty, $item:ty, $member:ident $name:literal $(, $extra:expr)?;)*) => {$(
        impl<$($generic)*> From<Vec<$item>> for $list {
            fn from(items: Vec<$item>) -> Self {
                Self(items)
            }
        }

        impl<$($generic)*> FromIterator<$item> for $list {
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> Self {
                Self(items.into_iter().collect())
            }
        }

        impl<$($generic)*> Deref for $list {
            type Target = Vec<$item>;

            fn deref(&self) -> &Vec<$item> {
                &self.0
            }
        }

        impl<$($generic)*> DerefMut for $list {
            fn deref_mut(&mut self) -> &mut Vec<$item> {
                &mut self.0
            }
        }

        impl<'a, $($generic)*> IntoIterator for &'a $list {
            type Item = &'a $item;
            type IntoIter = std::slice::Iter<'a, $item>;

            fn into_iter(self) -> Self::IntoIter {
                self.0.iter()
            }
        }

        impl<$($generic)*> Module for $list {
            fn type_name(&self) -> &'static str {
                $name
            }

            fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
                for (i, item) in self.0.iter().enumerate() {
                    visit(&i.to_string(), Member::$member(item));
                }
            }

            fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
                for (i, item) in self.0.iter_mut().enumerate() {
                    visit(&i.to_string(), MemberMut::$member(item));
                }
            }

            fn deepcopy_any(&self, memo: &mut Memo) -> Result<Box<dyn Any>> {
                let items = self.0.iter().map(|item| Field::deepcopy_field(item, memo)).collect::<Result<Vec<_>>>()?;
                Ok(Box::new(Self(items)))
            }

            $(
                fn extra_repr(&self) -> String {
                    let lines = self.0.iter().enumerate().map(|(i, p)| $extra(&i.to_string(), p));
                    lines.collect::<Vec<String>>().join("\n")
                }
            )?
        }
    )*};
}

lists! {
    [M: Module] ModuleList<M>, M, Module "ModuleList";
    [] ParameterList, Parameter, Parameter "ParameterList", parameter_line;
}

crate::module::shown_by_repr!([M: Module] ModuleList<M>);
crate::module::shown_by_repr!(ParameterList);
crate::module::shown_by_repr!([M: Module] ModuleDict<M>);
crate::module::shown_by_repr!(ParameterDict);

impl<M> ModuleList<M> {
    /// No modules yet; `push` adds one. It is a `Vec` in use, and is made of one by `from` or `collect`.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<M> Default for ModuleList<M> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// `(name): Parameter containing: [float32 of size 2x3]`.
fn parameter_line(name: &str, parameter: &Parameter) -> String {
    let sizes: Vec<String> = parameter.shape().iter().map(usize::to_string).collect();
    format!("({name}): Parameter containing: [{} of size {}]", parameter.dtype(), sizes.join("x"))
}

/// Modules by name, in order of insertion.
///
/// ```
/// # mod rushlight { pub use rushlight_nn as nn; }
/// use rushlight::nn::{Linear, Module, ModuleDict};
/// let heads = ModuleDict::try_from([("policy", Linear::new(8, 4)?), ("value", Linear::new(8, 1)?)])?;
/// assert_eq!(heads.get("value")?.weight.shape(), [1, 8]);
/// assert_eq!(heads.named_parameters()[0].0, "policy.weight");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct ModuleDict<M = Box<dyn Forward>>(IndexMap<String, M>);

/// Parameters by name, in order of insertion.
#[derive(Default)]
pub struct ParameterDict(IndexMap<String, Parameter>);

/// The common part of the two dictionaries.
macro_rules! dictionaries {
    ($([$($generic:tt)*] $dict:ty, $item:ty, $member:ident $name:literal $(, $extra:expr)?;)*) => {$(
        impl<$($generic)*> $dict {
            /// Inserts an item under a name and returns the item it replaces.
            pub fn insert(&mut self, name: impl Into<String>, item: $item) -> Result<Option<$item>> {
                let name = name.into();
                check_name($name, &name)?;
                Ok(self.0.insert(name, item))
            }

            /// Takes an item out; the others keep their order.
            pub fn remove(&mut self, name: &str) -> Option<$item> {
                self.0.shift_remove(name)
            }

            /// The item of a name.
            pub fn get(&self, name: &str) -> Result<&$item> {
                self.0.get(name).ok_or_else(|| {
                    let names: Vec<&String> = self.0.keys().collect();
                    Error::value(format!("{}: there is no '{name}' among {names:?}", $name))
                })
            }

            /// Whether there is an item of a name.
            pub fn contains_key(&self, name: &str) -> bool {
                self.0.contains_key(name)
            }

            /// Number of items.
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Names and items.
            pub fn iter(&self) -> impl Iterator<Item = (&str, &$item)> {
                self.0.iter().map(|(name, item)| (name.as_str(), item))
            }
        }

        impl<S: Into<String>, const N: usize, $($generic)*> TryFrom<[(S, $item); N]> for $dict {
            type Error = Error;

            fn try_from(items: [(S, $item); N]) -> Result<Self> {
                let mut dict = Self::default();
                for (name, item) in items {
                    dict.insert(name, item)?;
                }
                Ok(dict)
            }
        }

        impl<$($generic)*> Module for $dict {
            fn type_name(&self) -> &'static str {
                $name
            }

            fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
                for (name, item) in &self.0 {
                    visit(name, Member::$member(item));
                }
            }

            fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
                for (name, item) in &mut self.0 {
                    visit(name, MemberMut::$member(item));
                }
            }

            fn deepcopy_any(&self, memo: &mut Memo) -> Result<Box<dyn Any>> {
                let copied = |(name, item): (&String, &$item)| Ok((name.clone(), Field::deepcopy_field(item, memo)?));
                Ok(Box::new(Self(self.0.iter().map(copied).collect::<Result<_>>()?)))
            }

            $(
                fn extra_repr(&self) -> String {
                    self.0.iter().map(|(name, p)| $extra(name, p)).collect::<Vec<String>>().join("\n")
                }
            )?
        }
    )*};
}

dictionaries! {
    [M: Module] ModuleDict<M>, M, Module "ModuleDict";
    [] ParameterDict, Parameter, Parameter "ParameterDict", parameter_line;
}

impl<M> Default for ModuleDict<M> {
    fn default() -> Self {
        Self(IndexMap::new())
    }
}
