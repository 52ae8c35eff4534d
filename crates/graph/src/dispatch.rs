//! The op table's rows as this crate has them: PyTorch's signatures and functions. The rows are the Python front's.

use crate::value::{Out, Value};
use rushlight_core::Result;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::is_grad_enabled;

/// Namespace in which PyTorch has an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    Torch,
    Method,
    /// `Tensor.name_`, through a copy: ops with a real in-place form have a separate row.
    Inplace,
    Functional,
    Linalg,
    Special,
    Fft,
}

/// One signature and its function.
pub struct Variant {
    pub text: &'static str,
    pub call: fn(&[Value]) -> Result<Out>,
}

/// A row.
pub struct Op {
    pub name: &'static str,
    pub homes: &'static [Home],
    pub variants: &'static [Variant],
}

/// An entry of a table.
pub struct Entry {
    pub op: &'static Op,
}

/// Rows of the op table: `name [homes] "signature" |argument: type, …| body; …`, each with a doc comment.
#[macro_export]
#[doc(hidden)]
macro_rules! rows {
    ($table:ident: $($(#[doc = $doc:literal])* $name:ident [$($home:ident)*] $($text:tt |$($arg:ident: $ty:ty),*| $body:expr),+;)*) => {
        pub static $table: &[$crate::dispatch::Entry] = &[$({
            use $crate::dispatch::{Entry, Home, Op, Variant};
            static OP: Op = Op {
                name: stringify!($name),
                homes: &[$(Home::$home),*],
                variants: &[$(Variant {
                    text: $text,
                    call: |values| {
                        #[allow(unused_mut, unused_variables)]
                        let mut values = values.iter();
                        $(let $arg: $ty = $crate::value::Take::take(&mut values)?;)*
                        let out = $body?;
                        Ok($crate::value::Out::from(out))
                    },
                }),+],
            };
            Entry { op: &OP }
        }),*];
    };
}

/// The input of an in-place op: a copy if the change is recorded, because the gradient may need the old value.
pub fn original(tensor: &Tensor) -> Result<Tensor> {
    if is_grad_enabled() && tensor.requires_grad() { tensor.copy() } else { Ok(tensor.clone()) }
}
