//! Op rows: every pointwise op of the library is one row of the table in `table.rs`, with one meaning for all engines.
//!
//! A row states the op's class (which decides dtypes), its inputs and parameters, its value and the derivative by each
//! input:
//!
//! ```text
//! real Exp exp(x) { exp(x) } => { { dy * y } }
//! ```
//!
//! From it come the [`Pointwise`] code, a type implementing [`NumRow`], [`RealRow`], [`CompareRow`], [`TestRow`] or
//! [`BitsRow`] for engines that compile Rust, and the expression's text for engines that compile C. In the expressions,
//! `dy` is the incoming gradient, `y` the op's own output, `lit(v)` a constant, `ZERO` and `ONE` two often-used ones.

mod num;
mod table;
mod update;

pub use num::{Conditions, Num, Real, Trace, functions};
pub use table::{Pointwise, op};
pub use update::{FACTORS, Lane, RuleState, RuleVisitor, UpdateRow, UpdateRule, update_row};

/// Input and output dtypes of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Any number in, the same out.
    Num,
    /// Floats in and out; integers are converted to the default float.
    Real,
    /// Any numbers in, `bool` out.
    Compare,
    /// Floats (or integers converted to floats) in, `bool` out.
    Test,
    /// Integers or `bool` in, the same out.
    Bits,
}

/// Inputs of a row, padded to three.
pub type In<R> = [R; 3];
/// Parameters of a row, padded to four.
pub type Params<R> = [R; 4];

/// Implemented by every row.
pub trait Row: Copy + Default + Send + Sync + 'static {
    /// The row's code.
    const OP: Pointwise;
    /// The derivative by input `I`, given the incoming gradient, the inputs and the output. Zero if the op has no such
    /// input.
    fn grad<R: Real, const I: usize>(dy: R, x: In<R>, y: R, p: Params<R>) -> R;
}

/// A row of class [`Class::Num`].
pub trait NumRow: Row {
    /// The value.
    fn eval<N: Num>(x: In<N>, p: Params<N>) -> N;
}

/// A row of class [`Class::Real`].
pub trait RealRow: Row {
    /// The value.
    fn eval<R: Real>(x: In<R>, p: Params<R>) -> R;
}

/// A row of class [`Class::Compare`].
pub trait CompareRow: Row {
    /// The truth value.
    fn eval<N: Num>(x: In<N>, p: Params<N>) -> N::Mask;
}

/// A row of class [`Class::Test`].
pub trait TestRow: Row {
    /// The truth value.
    fn eval<R: Real>(x: In<R>, p: Params<R>) -> R::Mask;
}

/// Bitwise operations of integers and `bool`.
pub trait Bits: Copy {
    /// And.
    fn and(self, b: Self) -> Self;
    /// Or.
    fn or(self, b: Self) -> Self;
    /// Exclusive or.
    fn xor(self, b: Self) -> Self;
    /// Shift left; a count out of range gives zero.
    fn shl(self, b: Self) -> Self;
    /// Arithmetic shift right; a count out of range gives the sign.
    fn shr(self, b: Self) -> Self;
}

/// A row of class [`Class::Bits`].
pub trait BitsRow: Row {
    /// The value.
    fn eval<B: Bits>(x: In<B>) -> B;
}

/// A visitor of the type behind a [`Pointwise`] code, by class.
pub trait Visitor {
    /// The result.
    type Out;
    /// For a [`NumRow`].
    fn num<O: NumRow>(self) -> Self::Out;
    /// For a [`RealRow`].
    fn real<O: RealRow>(self) -> Self::Out;
    /// For a [`CompareRow`].
    fn compare<O: CompareRow>(self) -> Self::Out;
    /// For a [`TestRow`].
    fn test<O: TestRow>(self) -> Self::Out;
    /// For a [`BitsRow`].
    fn bits<O: BitsRow>(self) -> Self::Out;
}

impl Pointwise {
    /// The values that the derivative by input `wrt` reads (see [`Trace`]).
    pub fn grad_reads(self, wrt: usize) -> Trace {
        struct Reads(usize);
        fn trace<O: Row>(wrt: usize) -> Trace {
            let x = [Trace::value(1), Trace::value(2), Trace::value(3)];
            let (dy, y, p) = (Trace::value(0), Trace::value(4), [Trace::lit(0.0); 4]);
            match wrt {
                0 => O::grad::<_, 0>(dy, x, y, p),
                1 => O::grad::<_, 1>(dy, x, y, p),
                _ => O::grad::<_, 2>(dy, x, y, p),
            }
        }
        impl Visitor for Reads {
            type Out = Trace;
            fn num<O: NumRow>(self) -> Trace {
                trace::<O>(self.0)
            }
            fn real<O: RealRow>(self) -> Trace {
                trace::<O>(self.0)
            }
            fn compare<O: CompareRow>(self) -> Trace {
                trace::<O>(self.0)
            }
            fn test<O: TestRow>(self) -> Trace {
                trace::<O>(self.0)
            }
            fn bits<O: BitsRow>(self) -> Trace {
                trace::<O>(self.0)
            }
        }
        self.visit(Reads(wrt))
    }
}

/// Expands the table. The names in brackets are those the rows' expressions use.
macro_rules! rows {
    (
        [$dy:ident $y:ident $lit:ident $zero:ident $one:ident]
        $(
            $(#[$doc:meta])*
            $class:ident $Name:ident $name:ident ( $($x:ident),+ $(; $($p:ident),+)? ) { $($body:tt)* }
            $(=> { $({ $($g:tt)* })+ })?
        )*
    ) => {
        /// A pointwise op.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Pointwise { $($(#[$doc])* $Name,)* }

        /// One type per row, for engines that compile Rust.
        pub mod op {
            $($(#[$doc])* #[derive(Clone, Copy, Default)] pub struct $Name;)*
        }

        impl Pointwise {
            /// Every op, in table order.
            pub const ALL: &[Pointwise] = &[$(Pointwise::$Name),*];

            /// The op's name, PyTorch's where it has one.
            pub const fn name(self) -> &'static str {
                match self { $(Pointwise::$Name => stringify!($name)),* }
            }

            /// Which dtypes it takes and gives.
            pub const fn class(self) -> $crate::rows::Class {
                match self { $(Pointwise::$Name => rows!(@class $class)),* }
            }

            /// The names of its inputs.
            pub const fn inputs(self) -> &'static [&'static str] {
                match self { $(Pointwise::$Name => &[$(stringify!($x)),+]),* }
            }

            /// The names of its parameters.
            pub const fn params(self) -> &'static [&'static str] {
                match self { $(Pointwise::$Name => &[$($(stringify!($p)),+)?]),* }
            }

            /// The value's expression as text.
            pub const fn text(self) -> &'static str {
                match self { $(Pointwise::$Name => stringify!($($body)*)),* }
            }

            /// The derivatives' expressions as text, one per input; empty for ops without.
            pub const fn grad_text(self) -> &'static [&'static str] {
                match self { $(Pointwise::$Name => &[$($(stringify!($($g)*)),+)?]),* }
            }

            /// Calls the visitor with the op's type.
            pub fn visit<V: $crate::rows::Visitor>(self, visitor: V) -> V::Out {
                match self { $(Pointwise::$Name => rows!(@visit $class visitor $Name)),* }
            }
        }

        $(
            impl $crate::rows::Row for op::$Name {
                const OP: Pointwise = Pointwise::$Name;
                #[inline(always)]
                #[allow(unused_variables, unused_assignments, unused_mut, non_snake_case)]
                fn grad<R: Real, const I: usize>($dy: R, x: In<R>, $y: R, p: Params<R>) -> R {
                    let $lit = |v: f64| R::lit(v);
                    let ($zero, $one) = (R::lit(0.0), R::lit(1.0));
                    let [$($x,)+ ..] = x;
                    $(let [$($p,)+ ..] = p;)?
                    let mut i = 0;
                    $($(
                        if I == i {
                            return { $($g)* };
                        }
                        i += 1;
                    )+)?
                    $zero
                }
            }
            rows!(@eval $class $Name [$lit $zero $one] [$($x)+] [$($($p)+)?] { $($body)* });
        )*
    };
    (@class num) => { $crate::rows::Class::Num };
    (@class real) => { $crate::rows::Class::Real };
    (@class compare) => { $crate::rows::Class::Compare };
    (@class test) => { $crate::rows::Class::Test };
    (@class bits) => { $crate::rows::Class::Bits };
    (@visit num $v:ident $Name:ident) => { $v.num::<op::$Name>() };
    (@visit real $v:ident $Name:ident) => { $v.real::<op::$Name>() };
    (@visit compare $v:ident $Name:ident) => { $v.compare::<op::$Name>() };
    (@visit test $v:ident $Name:ident) => { $v.test::<op::$Name>() };
    (@visit bits $v:ident $Name:ident) => { $v.bits::<op::$Name>() };
    (@eval num $($rest:tt)*) => { rows!(@body NumRow, Num, N, N, $($rest)*); };
    (@eval real $($rest:tt)*) => { rows!(@body RealRow, Real, R, R, $($rest)*); };
    (@eval compare $($rest:tt)*) => { rows!(@body CompareRow, Num, N, N::Mask, $($rest)*); };
    (@eval test $($rest:tt)*) => { rows!(@body TestRow, Real, R, R::Mask, $($rest)*); };
    (@eval bits $Name:ident [$lit:ident $zero:ident $one:ident] [$($x:ident)+] [] { $($body:tt)* }) => {
        impl $crate::rows::BitsRow for op::$Name {
            #[inline(always)]
            fn eval<B: Bits>(x: In<B>) -> B {
                let [$($x,)+ ..] = x;
                $($body)*
            }
        }
    };
    (@body $Trait:ident, $Bound:ident, $T:ident, $Out:ty, $Name:ident [$lit:ident $zero:ident $one:ident] [$($x:ident)+] [$($p:ident)*] { $($body:tt)* }) => {
        impl $crate::rows::$Trait for op::$Name {
            #[inline(always)]
            #[allow(unused_variables, non_snake_case)]
            fn eval<$T: $Bound>(x: In<$T>, p: Params<$T>) -> $Out {
                let $lit = |v: f64| $T::lit(v);
                let ($zero, $one) = ($T::lit(0.0), $T::lit(1.0));
                let [$($x,)+ ..] = x;
                let [$($p,)* ..] = p;
                $($body)*
            }
        }
    };
}
pub(crate) use rows;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_say_what_they_read() {
        assert_eq!(Pointwise::Exp.grad_reads(0).mask, 0b10001);
        assert_eq!(Pointwise::Mul.grad_reads(0).mask, 0b00101);
        assert!(Pointwise::Add.grad_reads(1).untouched);
        assert_eq!(Pointwise::Floor.grad_reads(0).mask, 0);
    }

    #[test]
    fn text_is_the_expression() {
        assert_eq!(Pointwise::Exp.text(), "exp(x)");
        assert_eq!(Pointwise::Mul.grad_text(), ["dy * b", "dy * a"]);
        assert_eq!(Pointwise::LeakyRelu.params(), ["slope"]);
    }
}
