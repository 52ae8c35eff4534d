//! The forms in which a call holds views: one, perhaps one, a list, an operand that may be a number.
//!
//! Each form is a module with its type (`Of`), a visit and a map; the table of calls names it.

use super::table::MatMul;
use crate::backend::{AttentionInputs, CrossEntropyInputs, UpdateOf};
use crate::{Pointwise, Scalar};
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
pub type Numbers = Few<f64, 4>;
/// The inputs of a pointwise row.
pub type Operands<V> = Few<Operand<V>, 3>;

/// A tensor or a number.
#[derive(Clone, Copy, Debug)]
pub enum Operand<V> {
    /// A tensor of the output's shape (expanded where it broadcasts).
    Tensor(V),
    /// A number.
    Scalar(Scalar),
}

impl<V> Default for Operand<V> {
    #[inline]
    fn default() -> Self {
        Operand::Scalar(Scalar::Int(0))
    }
}

/// Up to `N` values, in place: small tensors pay for every move and for what must be dropped.
#[derive(Clone, Copy)]
pub struct Few<T, const N: usize> {
    all: [T; N],
    count: u8,
}

impl<T, const N: usize> Few<T, N> {
    /// The first `count` of `N` values.
    #[inline(always)]
    pub fn first(all: [T; N], count: usize) -> Self {
        Self { all, count: count.min(N) as u8 }
    }
}

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    #[inline(always)]
    fn default() -> Self {
        Self { all: [T::default(); N], count: 0 }
    }
}

impl<T: Copy + Default, const N: usize> From<&[T]> for Few<T, N> {
    /// Takes `N` at most: no row has more.
    #[inline(always)]
    fn from(values: &[T]) -> Self {
        let mut all = [T::default(); N];
        // A few moves: a call to copy them would cost more.
        #[allow(clippy::manual_memcpy)]
        for i in 0..values.len().min(N) {
            all[i] = values[i];
        }
        Self::first(all, values.len())
    }
}

const _: () = {
    let mut i = 0;
    while i < Pointwise::ALL.len() {
        assert!(Pointwise::ALL[i].params().len() <= 4 && Pointwise::ALL[i].inputs().len() <= 3);
        i += 1;
    }
};

impl<T, const N: usize> std::ops::Deref for Few<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.all[..self.count as usize]
    }
}

impl<T: PartialEq, const N: usize> PartialEq for Few<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: std::fmt::Debug, const N: usize> std::fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
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
            pub(in crate::backend::call) fn map<'s, $V, W>($x: &'s Of<$V>, $access: Access, $f: &mut dyn FnMut(Access, &'s $V) -> W) -> Of<W> {
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
