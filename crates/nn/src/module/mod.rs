//! The `Module` trait: named parameters, buffers and submodules, and everything derived from them.

mod copy;
mod field;
mod load;
mod location;
mod once;
mod parameter;
mod summary;

pub use copy::Memo;
#[doc(hidden)]
pub use copy::{ByClone, ByRefusal, Setting};
pub use field::Field;
pub use load::LoadReport;
pub use location::InModule;
pub(crate) use location::{locate, path_of};
pub use parameter::{Buffer, Parameter, Training};
pub use summary::Summary;

use rushlight_core::Result;
use rushlight_tensor::Tensor;
pub use rushlight_tensor::To;
use rushlight_tensor::state::StateDict;
use std::any::Any;

/// One thing a module holds.
#[derive(Clone, Copy)]
pub enum Member<'a> {
    /// A learned tensor.
    Parameter(&'a Parameter),
    /// A tensor that is kept but not learned.
    Buffer(&'a Buffer),
    /// A submodule.
    Module(&'a dyn Module),
    /// The switch between training and evaluation.
    Training(&'a Training),
}

/// One thing a module holds, to be changed.
pub enum MemberMut<'a> {
    /// A learned tensor.
    Parameter(&'a mut Parameter),
    /// A tensor that is kept but not learned.
    Buffer(&'a mut Buffer),
    /// A submodule.
    Module(&'a mut dyn Module),
}

/// A neural network or a part of one.
///
/// `#[derive(Module)]` writes the three required methods from the struct's fields: [`Parameter`]s, [`Buffer`]s,
/// [`Training`] switches, other modules, and `Option`s, arrays and vectors of these; numbers, strings and `bool`s are
/// settings and skipped. For fields of other types say `#[module(skip)]`; `#[module(rename = "…")]` gives another name
/// in the state dict. A derived module is printed by `{}` and `{:?}` as PyTorch prints it.
pub trait Module: Any + Send + Sync {
    /// The type's name, for summaries: `Linear`.
    fn type_name(&self) -> &'static str;

    /// Calls `visit` with every direct member and its name, in order.
    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>));

    /// [`Module::members`] for changing them.
    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>));

    /// The settings that [`Module::repr`] shows, such as `in_features=20, out_features=1, bias=True`.
    fn extra_repr(&self) -> String {
        String::new()
    }

    /// Submodules and their names.
    fn named_children(&self) -> Vec<(String, &dyn Module)> {
        once::named_children(&self)
    }

    /// Submodules.
    fn children(&self) -> Vec<&dyn Module> {
        once::without_names(self.named_children())
    }

    /// Parameters by name, including submodules' (`layer.weight`). A tensor used twice is listed once, under its
    /// first name.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        once::named_parameters(&self)
    }

    /// All parameters, for an optimizer.
    fn parameters(&self) -> Vec<Tensor> {
        once::without_names(self.named_parameters())
    }

    /// Buffers by name, including submodules'.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        once::named_buffers(&self)
    }

    /// All buffers.
    fn buffers(&self) -> Vec<Tensor> {
        once::without_names(self.named_buffers())
    }

    /// Parameters and persistent buffers by name: the saved state. The tensors are the module's, not copies.
    fn state_dict(&self) -> StateDict {
        once::state_dict(&self)
    }

    /// Copies values from a state dict; every name must be there and no other. Nothing changes if it does not fit.
    fn load_state_dict(&self, state: &StateDict) -> Result<()> {
        load::load(&self, self.type_name(), state, true).map(|_| ())
    }

    /// [`Module::load_state_dict`] that skips missing and unexpected names and returns them. Shapes must
    /// still match.
    fn load_state_dict_partial(&self, state: &StateDict) -> Result<LoadReport> {
        load::load(&self, self.type_name(), state, false)
    }

    /// Switches this module and all in it to training: dropout drops, batch norm uses the batch's statistics.
    fn train(&self) {
        self.set_training(true);
    }

    /// Switches this module and all in it to evaluation.
    fn eval(&self) {
        self.set_training(false);
    }

    /// [`Module::train`] or [`Module::eval`].
    fn set_training(&self, training: bool) {
        once::set_training(&self, training);
    }

    /// Clears all gradients.
    fn zero_grad(&self) {
        once::zero_grad(&self.parameters());
    }

    /// Freezes (`false`) or unfreezes all parameters.
    fn requires_grad_(&self, requires_grad: bool) -> Result<()> {
        once::requires_grad_(self.parameters(), requires_grad)
    }

    /// Moves or converts parameters, their gradients and buffers in place; only floats change dtype. Optimizers made
    /// before hold the old tensors.
    fn to_(&mut self, target: To) -> Result<()> {
        let mut this = self;
        once::convert(&mut this, target, &mut Vec::new())?;
        // Leaves its name in each parameter, for errors.
        once::walk(&&*this, "", &mut |_, _| {});
        Ok(())
    }

    /// The module on another device or with another float dtype: `net.to(DType::BF16)?`, `net.to(device)?`.
    fn to(mut self, target: impl Into<To>) -> Result<Self>
    where
        Self: Sized,
    {
        self.to_(target.into())?;
        Ok(self)
    }

    /// A deep copy with its own parameters and buffers, as Python's `copy.deepcopy(model)`. Weights that were tied are
    /// tied in the copy; gradients are not copied.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_nn as nn; }
    /// use rushlight::nn::{Linear, Module, init};
    /// let layer = Linear::new(2, 3)?;
    /// let copy = layer.deepcopy()?;
    /// init::zeros_(&layer.weight)?;
    /// assert_ne!(copy.weight.abs()?.sum(..)?.item::<f32>()?, 0.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    fn deepcopy(&self) -> Result<Self>
    where
        Self: Sized,
    {
        Memo::default().module(self)
    }

    /// The copy that [`Module::deepcopy`] makes, in a box: `Ok(Box::new(Self { … }))`, with [`Memo::tensor`] and
    /// [`Memo::module`] for the parts.
    fn deepcopy_any(&self, memo: &mut Memo) -> Result<Box<dyn Any>> {
        let _ = memo;
        copy::unsupported(self)
    }

    /// Number of parameters.
    fn num_parameters(&self) -> usize {
        once::num_parameters(&self.parameters())
    }

    /// A table of the modules in here with their parameters.
    fn summary(&self) -> Summary {
        Summary::of(self.type_name(), &self.parameters(), &self.buffers(), self.named_children())
    }

    /// As PyTorch prints a model.
    fn repr(&self) -> String {
        summary::repr(self.type_name(), &self.extra_repr(), &self.named_children())
    }
}

/// Prints modules, by `{}` and `{:?}`, as PyTorch does. `#[derive(Module)]` does the same.
macro_rules! shown_by_repr {
    ([$($generic:tt)*] $type:ty) => {
        $crate::module::shown_by_repr!(@one Debug [$($generic)*] $type);
        $crate::module::shown_by_repr!(@one Display [$($generic)*] $type);
    };
    (@one $trait:ident [$($generic:tt)*] $type:ty) => {
        impl<$($generic)*> std::fmt::$trait for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&$crate::Module::repr(self))
            }
        }
    };
    ($type:ty) => {
        $crate::module::shown_by_repr!([] $type);
    };
}
pub(crate) use shown_by_repr;

shown_by_repr!(dyn Module);
shown_by_repr!(dyn Forward);

/// A module of one input and one output: the items of `Sequential`.
pub trait Forward: Module {
    /// The output for an input.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;
}

/// A boxed module is that module: parts of several kinds can be in one list.
impl<M: Module + ?Sized> Module for Box<M> {
    fn type_name(&self) -> &'static str {
        (**self).type_name()
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        (**self).members(visit);
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        (**self).members_mut(visit);
    }

    fn extra_repr(&self) -> String {
        (**self).extra_repr()
    }

    fn deepcopy_any(&self, memo: &mut Memo) -> Result<Box<dyn Any>> {
        Ok(Box::new(memo.boxed::<M>(self)?))
    }
}

impl<F: Forward + ?Sized> Forward for Box<F> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        (**self).forward(input)
    }
}

impl dyn Module {
    /// This module as a `T`, if it is one or a box of one.
    pub fn downcast_ref<T: Module>(&self) -> Option<&T> {
        let any = self as &dyn Any;
        if let Some(boxed) = any.downcast_ref::<Box<dyn Module>>() {
            return boxed.as_ref().downcast_ref();
        }
        if let Some(boxed) = any.downcast_ref::<Box<dyn Forward>>() {
            return (boxed.as_ref() as &dyn Module).downcast_ref();
        }
        any.downcast_ref().or_else(|| any.downcast_ref::<Box<T>>().map(Box::as_ref))
    }

    /// Calls `f` with every module in here, children first, then this one: `net.apply(…)` of PyTorch.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_nn as nn; }
    /// use rushlight::nn::{Linear, Module, init};
    /// let layer = Linear::new(2, 3)?;
    /// (&layer as &dyn Module).apply(&mut |m| match m.downcast_ref::<Linear>() {
    ///     Some(linear) => init::ones_(&linear.weight),
    ///     None => Ok(()),
    /// })?;
    /// assert_eq!(layer.weight.sum(..)?.item::<f32>()?, 6.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn apply(&self, f: &mut dyn FnMut(&dyn Module) -> Result<()>) -> Result<()> {
        for child in self.children() {
            child.apply(f)?;
        }
        f(self)
    }

    /// Every module in here with its dotted name, this one first under the empty name.
    pub fn named_modules(&self) -> Vec<(String, &dyn Module)> {
        let mut found = vec![(String::new(), self)];
        once::walk(&self, "", &mut |name, member| {
            if let Member::Module(m) = member {
                found.push((name.to_owned(), m));
            }
        });
        found
    }
}
