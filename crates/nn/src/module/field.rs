//! Field types of structs with `#[derive(Module)]`.

use super::{Buffer, Member, MemberMut, Memo, Module, Parameter, Training};
use rushlight_core::{Error, Result};

/// A field of a module: reports the members it is or holds.
///
/// A tensor is none, as it does not say whether it is learned or kept:
///
/// ```compile_fail,E0277
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// #[derive(rushlight::nn::Module)]
/// struct Net {
///     weight: rushlight::Tensor,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a module",
    label = "neither a module, a parameter nor a setting",
    note = "wrap a tensor in `Parameter` (learned) or `Buffer` (saved, not learned)",
    note = "derive `Module` for your own types, or put #[module(skip)] on a field that is only a setting"
)]
pub trait Field {
    /// Reports to `visit`.
    fn visit<'a>(&'a self, name: &str, visit: &mut dyn FnMut(&str, Member<'a>));
    /// Reports to `visit`, to be changed.
    fn visit_mut<'a>(&'a mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>));
    /// A deep copy: its tensors have their own memory.
    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self>
    where
        Self: Sized,
    {
        let _ = memo;
        Err(Error::unsupported(format!(
            "deepcopy: {} implements Field without deepcopy_field",
            std::any::type_name::<Self>()
        )))
    }
}

impl<M: Module> Field for M {
    fn visit<'a>(&'a self, name: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        visit(name, Member::Module(self));
    }

    fn visit_mut<'a>(&'a mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        visit(name, MemberMut::Module(self));
    }

    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
        memo.module(self)
    }
}

impl Field for Parameter {
    fn visit<'a>(&'a self, name: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        visit(name, Member::Parameter(self));
    }

    fn visit_mut<'a>(&'a mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        visit(name, MemberMut::Parameter(self));
    }

    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
        memo.parameter(self)
    }
}

impl Field for Buffer {
    fn visit<'a>(&'a self, name: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        visit(name, Member::Buffer(self));
    }

    fn visit_mut<'a>(&'a mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        visit(name, MemberMut::Buffer(self));
    }

    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
        memo.buffer(self)
    }
}

impl Field for Training {
    fn visit<'a>(&'a self, name: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        visit(name, Member::Training(self));
    }

    fn visit_mut<'a>(&'a mut self, _: &str, _: &mut dyn FnMut(&str, MemberMut<'a>)) {}

    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
        let _ = memo;
        Ok(self.clone())
    }
}

impl<F: Field> Field for Option<F> {
    fn visit<'a>(&'a self, name: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
        if let Some(field) = self {
            field.visit(name, visit);
        }
    }

    fn visit_mut<'a>(&'a mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        if let Some(field) = self {
            field.visit_mut(name, visit);
        }
    }

    fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
        self.as_ref().map(|field| field.deepcopy_field(memo)).transpose()
    }
}

macro_rules! several {
    ($([$($generic:tt)*] $ty:ty, |$copies:ident| $whole:expr;)*) => {$(
        /// The items are named `name.0`, `name.1`, …, as those of a module list.
        impl<$($generic)*> Field for $ty {
            fn visit<'a>(&'a self, name: &str, visit: &mut dyn FnMut(&str, Member<'a>)) {
                for (i, field) in self.iter().enumerate() {
                    field.visit(&format!("{name}.{i}"), visit);
                }
            }

            fn visit_mut<'a>(&'a mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
                for (i, field) in self.iter_mut().enumerate() {
                    field.visit_mut(&format!("{name}.{i}"), visit);
                }
            }

            fn deepcopy_field(&self, memo: &mut Memo) -> Result<Self> {
                let $copies: Vec<F> = self.iter().map(|field| field.deepcopy_field(memo)).collect::<Result<_>>()?;
                $whole
            }
        }
    )*};
}

several! {
    [F: Field] Vec<F>, |copies| Ok(copies);
    [F: Field, const N: usize] [F; N], |copies| copies.try_into().map_err(|_| Error::value("deepcopy: an array changed its length"));
}

macro_rules! settings {
    ($($ty:ty),*) => {$(
        /// A setting: nothing to report.
        impl Field for $ty {
            fn visit<'a>(&'a self, _: &str, _: &mut dyn FnMut(&str, Member<'a>)) {}
            fn visit_mut<'a>(&'a mut self, _: &str, _: &mut dyn FnMut(&str, MemberMut<'a>)) {}

            fn deepcopy_field(&self, _: &mut Memo) -> Result<Self> {
                Ok(self.clone())
            }
        }
    )*};
}

settings!(bool, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64, char, String, &'static str);
