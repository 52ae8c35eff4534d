//! The op table's rows as this crate has them: PyTorch's signatures, functions, and the kinds of their results.

use crate::value::{Out, Value};
use rushlight_core::{Result, Scalar};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::is_grad_enabled;

/// Namespace in which PyTorch has an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// `torch::name`.
    Torch,
    /// `Tensor::name`.
    Method,
    /// `Tensor::name_`, through a copy: ops with a real in-place form have a separate row.
    Inplace,
    /// `torch::nn::functional::name`.
    Functional,
    /// `torch::linalg::name`.
    Linalg,
    /// `torch::special::name`.
    Special,
    /// `torch::fft::name`.
    Fft,
}

/// The kind of an op's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returned {
    Tensor,
    /// The first argument.
    First,
    Two,
    Three,
    Tensors,
    Number,
    Bool,
    Int,
    Float,
    Nothing,
    /// Depends on the arguments.
    Any,
}

/// One signature and its function.
pub struct Variant {
    pub text: &'static str,
    pub call: fn(&[Value]) -> Result<Out>,
    pub returned: Returned,
}

/// A row.
pub struct Op {
    pub name: &'static str,
    pub homes: &'static [Home],
    pub doc: &'static str,
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
                doc: concat!("" $(, $doc, "\n")*),
                variants: &[$(Variant {
                    text: $text,
                    call: |values| {
                        #[allow(unused_mut, unused_variables)]
                        let mut values = values.iter();
                        $(let $arg: $ty = $crate::value::Take::take(&mut values)?;)*
                        let out = $body?;
                        Ok($crate::value::Out::from(out))
                    },
                    // Never called: its type tells the kind of the result.
                    returned: $crate::dispatch::returned(|values| {
                        #[allow(unused_mut, unused_variables)]
                        let mut values = values.iter();
                        $(let $arg: $ty = $crate::value::Take::take(&mut values)?;)*
                        let out = $body?;
                        Ok($crate::dispatch::mark(out))
                    }),
                }),+],
            };
            Entry { op: &OP }
        }),*];
    };
}

/// The kind of a type that ops return.
pub trait Returns {
    type Mark: Mark;
}

/// A kind as a type.
pub trait Mark {
    const RETURNED: Returned;
    fn new() -> Self;
}

macro_rules! returns {
    ($($kind:ident $mark:ident: $($ty:ty),*;)*) => {$(
        pub struct $mark;
        impl Mark for $mark {
            const RETURNED: Returned = Returned::$kind;
            fn new() -> Self {
                $mark
            }
        }
        $(impl Returns for $ty { type Mark = $mark; })*
    )*};
}

returns! {
    Tensor OneTensor: Tensor;
    First FirstArgument: &Tensor;
    Two TwoTensors: (Tensor, Tensor);
    Three ThreeTensors: (Tensor, Tensor, Tensor);
    Tensors SomeTensors: Vec<Tensor>;
    Number SomeNumber: Scalar;
    Bool SomeBool: bool;
    Int SomeInt: i64;
    Float SomeFloat: f64;
    Nothing NoResult: ();
    Any AnyResult: Out;
}

/// The mark of a value's type.
pub fn mark<T: Returns>(_: T) -> T::Mark {
    T::Mark::new()
}

/// The kind of a function's result.
pub const fn returned<M: Mark>(_: fn(&[Value]) -> Result<M>) -> Returned {
    M::RETURNED
}

/// The input of an in-place op: a copy if the change is recorded, because the gradient may need the old value.
pub fn original(tensor: &Tensor) -> Result<Tensor> {
    if is_grad_enabled() && tensor.requires_grad() { tensor.copy() } else { Ok(tensor.clone()) }
}
