//! The forms in which a call holds views: one, perhaps one, a list, an operand that may be a number.
//!
//! Each form is a module with its type (`Of`), a visit and a map; the table of calls names it.

use super::table::MatMul;
use crate::Scalar;
use crate::backend::{AttentionInputs, CrossEntropyInputs, UpdateOf};
use smallvec::SmallVec;

/// How a call uses a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// An input.
    Read,
    /// An output; its elements before the call do not matter.
    Write,
    /// Both.
    Change,
}

/// Several views; few of them need no heap.
pub type List<V> = SmallVec<[V; 4]>;
/// One mark per dimension.
pub type Marks = SmallVec<[bool; 6]>;
/// The parameters of a pointwise row.
pub type Numbers = SmallVec<[f64; 4]>;

/// A tensor or a number.
#[derive(Clone, Copy, Debug)]
pub enum Operand<V> {
    /// A tensor of the output's shape (expanded where it broadcasts).
    Tensor(V),
    /// A number.
    Scalar(Scalar),
}

/// Up to three operands, in place.
#[derive(Clone, Copy, Debug)]
pub struct Operands<V> {
    all: [Operand<V>; 3],
    count: u8,
}

impl<V> Operands<V> {
    /// The first `count` of three operands.
    #[inline]
    pub fn first(all: [Operand<V>; 3], count: usize) -> Self {
        Self { all, count: count.min(3) as u8 }
    }
}

impl<V: Copy> From<&[Operand<V>]> for Operands<V> {
    /// Takes three at most: no row has more inputs.
    #[inline]
    fn from(operands: &[Operand<V>]) -> Self {
        let none = Operand::Scalar(Scalar::Int(0));
        let all = [0, 1, 2].map(|i| operands.get(i).copied().unwrap_or(none));
        Self::first(all, operands.len())
    }
}

impl<V> std::ops::Deref for Operands<V> {
    type Target = [Operand<V>];

    #[inline]
    fn deref(&self) -> &[Operand<V>] {
        &self.all[..self.count as usize]
    }
}

/// Declares a form: its type, and how to visit and map it.
macro_rules! form {
    ($(#[$doc:meta])* $form:ident<$V:ident> = $Of:ty; $x:ident $access:ident $f:ident { $($visit:tt)* } { $($map:tt)* }) => {
        $(#[$doc])*
        pub mod $form {
            use super::*;
            /// The type of this form.
            pub type Of<$V> = $Of;

            #[inline]
            #[allow(unused_variables)]
            pub(in crate::backend::call) fn visit<'s, $V>($x: &'s Of<$V>, $access: Access, $f: &mut dyn FnMut(Access, &'s $V)) {
                $($visit)*
            }

            #[inline]
            #[allow(unused_variables)]
            pub(in crate::backend::call) fn map<$V, W>($x: &Of<$V>, $access: Access, $f: &mut dyn FnMut(Access, &$V) -> W) -> Of<W> {
                $($map)*
            }
        }
    };
}

form! {
    /// A view.
    one<V> = V; x access f { f(access, x) } { f(access, x) }
}
form! {
    /// A view, or none.
    maybe<V> = Option<V>; x access f { if let Some(x) = x { f(access, x) } } { x.as_ref().map(|x| f(access, x)) }
}
form! {
    /// Views.
    list<V> = List<V>; x access f { x.iter().for_each(|x| f(access, x)) } { x.iter().map(|x| f(access, x)).collect() }
}
form! {
    /// A view or a number.
    operand<V> = Operand<V>; x access f {
        if let Operand::Tensor(x) = x { f(access, x) }
    } {
        match x {
            Operand::Tensor(x) => Operand::Tensor(f(access, x)),
            Operand::Scalar(s) => Operand::Scalar(*s),
        }
    }
}
form! {
    /// A view, a number, or nothing.
    maybe_operand<V> = Option<Operand<V>>; x access f {
        if let Some(x) = x { operand::visit(x, access, f) }
    } {
        x.as_ref().map(|x| operand::map(x, access, f))
    }
}
form! {
    /// The inputs of a pointwise row.
    operands<V> = Operands<V>; x access f {
        x.iter().for_each(|x| operand::visit(x, access, f))
    } {
        let all = [0, 1, 2].map(|i| match x.get(i) {
            Some(x) => operand::map(x, access, f),
            None => Operand::Scalar(Scalar::Int(0)),
        });
        Operands::first(all, x.len())
    }
}
form! {
    /// The values that a derivative may read: the gradient, three inputs, the output.
    values<V> = [Option<Operand<V>>; 5]; x access f {
        x.iter().for_each(|x| maybe_operand::visit(x, access, f))
    } {
        [0, 1, 2, 3, 4].map(|i| maybe_operand::map(&x[i], access, f))
    }
}
form! {
    /// A matrix product within a larger call; it brings its own accesses.
    product<V> = MatMul<V>; x access f { x.visit(f) } { x.map(f) }
}
form! {
    /// The inputs of attention.
    attention<V> = AttentionInputs<V>; x access f { x.visit(f) } { x.map(f) }
}
form! {
    /// The inputs of a cross-entropy.
    entropy<V> = CrossEntropyInputs<V>; x access f { x.visit(f) } { x.map(f) }
}
form! {
    /// The parameters of an optimizer's step.
    updates<V> = Vec<UpdateOf<V>>; x access f {
        x.iter().for_each(|x| x.visit(f))
    } {
        x.iter().map(|x| x.map(f)).collect()
    }
}
