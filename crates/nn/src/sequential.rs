//! Layers one after the other.

use crate::{Forward, Member, MemberMut, Memo, Module, path_of};
use indexmap::IndexMap;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::any::Any;

/// Layers one after the other, each fed with the output of the one before.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, Linear, Module, ReLU, Sequential};
/// use rushlight::Tensor;
/// let net = Sequential::from((Linear::new(4, 8)?, ReLU, Linear::new(8, 2)?));
/// assert_eq!(net.forward(&Tensor::zeros([3, 4])?)?.shape(), [3, 2]);
/// assert_eq!(net.layer::<Linear>("2")?.weight.shape(), [2, 8]);
/// assert_eq!(net.state_dict().keys().collect::<Vec<_>>(), ["0.weight", "0.bias", "2.weight", "2.bias"]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: IndexMap<String, Box<dyn Forward>>,
}

/// The arguments of [`Sequential`]: a tuple of layers, or a vector or array of (boxed) ones.
pub trait Layers {
    /// The layers, boxed.
    fn into_boxes(self) -> Vec<Box<dyn Forward>>;
}

impl<F: Forward> Layers for Vec<F> {
    fn into_boxes(self) -> Vec<Box<dyn Forward>> {
        self.into_iter().map(|layer| Box::new(layer) as Box<dyn Forward>).collect()
    }
}

impl<F: Forward, const N: usize> Layers for [F; N] {
    fn into_boxes(self) -> Vec<Box<dyn Forward>> {
        self.into_iter().map(|layer| Box::new(layer) as Box<dyn Forward>).collect()
    }
}

macro_rules! tuples {
    ($(($($layer:ident)*))*) => {$(
        impl<$($layer: Forward),*> Layers for ($($layer,)*) {
            #[allow(non_snake_case)]
            fn into_boxes(self) -> Vec<Box<dyn Forward>> {
                let ($($layer,)*) = self;
                vec![$(Box::new($layer)),*]
            }
        }
    )*};
}

tuples! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L) (A B C D E F G H I J K L M)
    (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O) (A B C D E F G H I J K L M N O P)
}

impl Sequential {
    /// No layers yet; the output is the input then.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more layer, named by its position.
    #[doc(alias = "add")]
    pub fn append(mut self, layer: impl Forward) -> Self {
        self.push(layer);
        self
    }

    /// Adds a layer at the end, named by its position.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
    /// use rushlight::nn::{Linear, ReLU, Sequential};
    /// let mut net = Sequential::new();
    /// for _ in 0..3 {
    ///     net.push(Linear::new(8, 8)?);
    ///     net.push(ReLU);
    /// }
    /// assert_eq!(net.len(), 6);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn push(&mut self, layer: impl Forward) {
        // A name of the user's may be a number already.
        let name = (self.layers.len()..).map(|i| i.to_string()).find(|name| !self.layers.contains_key(name));
        self.layers.insert(name.unwrap_or_default(), Box::new(layer));
    }

    /// Appends a layer under the given name.
    pub fn add_module(mut self, name: &str, layer: impl Forward) -> Result<Self> {
        check_name("Sequential", name)?;
        if self.layers.contains_key(name) {
            return Err(Error::value(format!("Sequential: there is a layer '{name}' already")));
        }
        self.layers.insert(name.to_owned(), Box::new(layer));
        Ok(self)
    }

    /// Number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there are no layers.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The layer at a position.
    pub fn get(&self, index: usize) -> Option<&dyn Forward> {
        self.layers.get_index(index).map(|(_, layer)| layer.as_ref())
    }

    /// The layer of a name, as the type it is.
    pub fn layer<T: Module>(&self, name: &str) -> Result<&T> {
        let Some(layer) = self.layers.get(name) else {
            return Err(Error::value(format!("Sequential: there is no layer '{name}' among {:?}", self.names())));
        };
        let module: &dyn Module = layer.as_ref();
        module.downcast_ref().ok_or_else(|| {
            Error::value(format!(
                "Sequential: layer '{name}' is a {}, not a {}",
                module.type_name(),
                std::any::type_name::<T>()
            ))
        })
    }

    /// The layers' names, in order.
    pub fn names(&self) -> Vec<&str> {
        self.layers.keys().map(String::as_str).collect()
    }

    /// The layers, in order.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Forward> {
        self.layers.values().map(Box::as_ref)
    }
}

/// The layers under the names "0", "1", and so on.
impl<L: Layers> From<L> for Sequential {
    fn from(layers: L) -> Self {
        let named = |(i, layer): (usize, Box<dyn Forward>)| (i.to_string(), layer);
        Self { layers: layers.into_boxes().into_iter().enumerate().map(named).collect() }
    }
}

/// Names are parts of dotted ones.
pub(crate) fn check_name(container: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.contains('.') {
        return Err(Error::value(format!("{container}: a name must not be empty nor have a dot, got '{name}'")));
    }
    Ok(())
}

impl Module for Sequential {
    fn type_name(&self) -> &'static str {
        "Sequential"
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        for (name, layer) in &self.layers {
            visit(name, Member::Module(layer.as_ref()));
        }
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        for (name, layer) in &mut self.layers {
            visit(name, MemberMut::Module(layer.as_mut()));
        }
    }

    fn deepcopy_any(&self, memo: &mut Memo) -> Result<Box<dyn Any>> {
        let mut layers = IndexMap::new();
        for (name, layer) in &self.layers {
            layers.insert(name.clone(), memo.boxed(layer.as_ref())?);
        }
        Ok(Box::new(Self { layers }))
    }
}

crate::module::shown_by_repr!(Sequential);

impl Forward for Sequential {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut x = input.clone();
        for (name, layer) in &self.layers {
            x = layer.forward(&x).map_err(|e| self.locate(e, name))?;
        }
        Ok(x)
    }
}

impl Sequential {
    /// Adds the path of a layer, for those that have no parameter to know it by.
    #[cold]
    fn locate(&self, error: Error, layer: &str) -> Error {
        match path_of(self) {
            Some(path) if !path.is_empty() => error.in_module(format!("{path}.{layer}")),
            _ => error.in_module(layer),
        }
    }
}
