//! `+ - * / %`, `& | ^`, unary `-` and `!` on tensors and numbers.
//!
//! An operator can fail, and Rust allows `?` only on types of the standard library. So operators give an [`Expr`],
//! which holds the value or the first error; a whole formula needs one `?`, after [`Expr::eval`] or after a method such
//! as `sum`.

use super::view::IntoShape;
use crate::Tensor;
use crate::arg::Arg;
use crate::ops::sizes::{Along, AsDims};
use rushlight_core::half::{bf16, f16};
use rushlight_core::{Element, Result, Scalar};
use std::iter::Sum;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};
use std::ops::{AddAssign, DivAssign, MulAssign, RemAssign, SubAssign};

/// The value of a formula of operators, or the first error in it.
///
/// Operands are tensors, other expressions, results of methods and numbers of any kind. Each operator computes at once
/// and is recorded for autograd as the method of its name; after an error the rest of the formula does nothing.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::Tensor;
/// let (a, b) = (Tensor::new([1.0f32, 2.0])?, Tensor::new([3.0f32, 4.0])?);
/// let y = (&a * &b + &a / 2.0 - 1).eval()?;
/// assert_eq!(y.to_vec::<f32>()?, [2.5, 8.0]);
/// let loss = ((&a - &b).square()? * 0.5).mean(..)?;
/// assert_eq!(loss.item::<f32>()?, 2.0);
/// let wrong = (&a * Tensor::zeros([3])? + 1.0).eval();
/// assert_eq!(wrong.unwrap_err().to_string().split(':').next(), Some("mul"));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// A formula has the pointwise methods and the usual reductions of a tensor, so that it needs no `eval` before them.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::Tensor;
/// let (a, b) = (Tensor::new([1.0f32, 2.0])?, Tensor::new([3.0f32, 1.0])?);
/// assert_eq!((&a - &b).maximum(&b / 2.0)?.to_vec::<f32>()?, [1.5, 1.0]);
/// assert_eq!((&a * 2.0).leaky_relu(0.1)?.gt(3)?.to_vec::<bool>()?, [false, true]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// `+=`, `-=`, `*=` and `/=` replace the value and do not change the operands. PyTorch's in-place `x += y` on a
/// tensor is [`x.add_(&y)?`](Tensor::add_).
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Expr, Tensor};
/// let mut total = Expr::from(Tensor::scalar(0.0)?);
/// for i in 0..3 {
///     total += Tensor::scalar(i)? * 0.5;
/// }
/// assert_eq!(total.item::<f32>()?, 1.5);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// A number may be the left operand if it is an `f64`, an `i64`, a literal of either (`1.0 - &x`) or a [`Scalar`]:
/// `Scalar::from(v) - &x` works for all other kinds.
#[derive(Clone, Debug)]
#[must_use = "an expression holds its error until `eval()?` or a method with `?` returns it"]
pub struct Expr(Result<Tensor>);

/// Right operands of an operator: tensors, expressions, results of methods, numbers of any kind.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be combined with a tensor",
    note = "operands are tensors, `Expr`s, `Result<Tensor>`s and numbers"
)]
pub trait Operand: Sized {
    /// Calls `f` with the operand, or returns the error it holds.
    fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T>;
}

impl Operand for &Tensor {
    #[inline]
    fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T> {
        f(Arg::Tensor(self))
    }
}

impl Operand for Tensor {
    #[inline]
    fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T> {
        f(Arg::Tensor(&self))
    }
}

impl Operand for &Expr {
    fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T> {
        f(Arg::Tensor(self.get()?))
    }
}

impl Operand for Expr {
    #[inline]
    fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T> {
        f(Arg::Tensor(&self.0?))
    }
}

impl Operand for Result<Tensor> {
    #[inline]
    fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T> {
        f(Arg::Tensor(&self?))
    }
}

impl Operand for &Result<Tensor> {
    fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T> {
        f(Arg::Tensor(self.as_ref().map_err(Clone::clone)?))
    }
}

macro_rules! numbers {
    ($($t:ty)*) => {$(
        impl Operand for $t {
            #[inline]
            fn with<T>(self, f: impl FnOnce(Arg<'_>) -> Result<T>) -> Result<T> {
                f(Arg::Scalar(self.into()))
            }
        }
    )*};
}
numbers!(bool i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 f16 bf16 Scalar);

impl Expr {
    /// The value, or the first error of the formula.
    #[inline]
    pub fn eval(self) -> Result<Tensor> {
        self.0
    }

    pub(crate) fn get(&self) -> Result<&Tensor> {
        self.0.as_ref().map_err(Clone::clone)
    }
}

/// Methods of [`Tensor`] on the value of a formula, so that it needs no `eval` before them. The macros that define
/// methods for rows of the op table call this too.
macro_rules! forward {
    ($($name:ident $(<$generic:ident: $bound:ident>)? ($($arg:ident: $ty:ty),*) $(-> $out:ty)?;)*) => {
        impl $crate::Expr {$(
            #[doc = concat!("[`Tensor::", stringify!($name), "`] of the value.")]
            pub fn $name $(<$generic: $bound>)? (&self, $($arg: $ty),*) -> $crate::ops::operators::forward!(@out $($out)?) {
                self.get()?.$name($($arg),*)
            }
        )*}
    };
    (@out) => { rushlight_core::Result<$crate::Tensor> };
    (@out $out:ty) => { $out };
}
pub(crate) use forward;

/// [`forward`] for methods that take another operand: a tensor, a number or a formula.
macro_rules! forward_operand {
    ($($name:ident)*) => {
        impl $crate::Expr {$(
            #[doc = concat!("[`Tensor::", stringify!($name), "`] of the value.")]
            pub fn $name(&self, other: impl $crate::Operand) -> rushlight_core::Result<$crate::Tensor> {
                let value = self.get()?;
                other.with(|other| value.$name(other))
            }
        )*}
    };
}
pub(crate) use forward_operand;

forward! {
    abs(); neg(); sign(); square(); relu(); relu6(); softsign(); tanhshrink();
    i0(); i0e(); i1(); i1e(); erfcx(); log_ndtr();
    logical_not(); bitwise_not();
    polygamma(n: i64);
    logit(eps: Option<f64>);
    round_decimals(decimals: i32);
    nan_to_num(nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>);
    prelu(weight: &Tensor);
    celu(alpha: f64);
    softshrink(lambda: f64);
    hardtanh(min_val: impl Into<Scalar>, max_val: impl Into<Scalar>);
    threshold(threshold: impl Into<Scalar>, value: impl Into<Scalar>);
    rpow(base: impl Into<Scalar>);
    rsub(a: impl Into<Scalar>);
    rdiv(a: impl Into<Scalar>);
    rremainder(a: impl Into<Scalar>);
    rxlogy(a: impl Into<Scalar>);
    zeta(q: &Tensor);
    gammainc(x: &Tensor);
    gammaincc(x: &Tensor);
    nextafter(other: &Tensor);
    logical_and(other: &Tensor);
    logical_or(other: &Tensor);
    logical_xor(other: &Tensor);
    add_scaled(other: &Tensor, alpha: impl Into<Scalar>);
    addcmul(a: &Tensor, b: &Tensor, value: impl Into<Scalar>);
    addcdiv(a: &Tensor, b: &Tensor, value: impl Into<Scalar>);
    sum(dims: impl AsDims); mean(dims: impl AsDims); any(dims: impl AsDims); all(dims: impl AsDims);
    sum_dims(dims: impl AsDims, keepdim: bool);
    mean_dims(dims: impl AsDims, keepdim: bool);
    max<D: Along>(dim: D) -> Result<D::Output>;
    min<D: Along>(dim: D) -> Result<D::Output>;
    softmax(dim: isize);
    log_softmax(dim: isize);
    matmul(other: &Tensor);
    t();
    transpose(a: isize, b: isize);
    reshape(shape: impl IntoShape);
    unsqueeze(dim: isize);
    contiguous();
    item<T: Element>() -> Result<T>;
    to_vec<T: Element>() -> Result<Vec<T>>;
    backward() -> Result<()>;
}

forward_operand! { pow clamp_min clamp_max }

impl Expr {
    /// [`Tensor::clamp`] of the value.
    pub fn clamp(&self, min: impl Operand, max: impl Operand) -> Result<Tensor> {
        let value = self.get()?;
        min.with(|min| max.with(|max| value.clamp(min, max)))
    }

    /// [`Tensor::lerp`] of the value.
    pub fn lerp(&self, end: &Tensor, weight: impl Operand) -> Result<Tensor> {
        let value = self.get()?;
        weight.with(|weight| value.lerp(end, weight))
    }

    /// [`Tensor::masked_fill`] of the value.
    pub fn masked_fill(&self, mask: &Tensor, fill: impl Operand) -> Result<Tensor> {
        let value = self.get()?;
        fill.with(|fill| value.masked_fill(mask, fill))
    }
}

impl From<Tensor> for Expr {
    fn from(value: Tensor) -> Self {
        Expr(Ok(value))
    }
}

impl From<&Tensor> for Expr {
    fn from(value: &Tensor) -> Self {
        Expr(Ok(value.clone()))
    }
}

impl From<Result<Tensor>> for Expr {
    fn from(value: Result<Tensor>) -> Self {
        Expr(value)
    }
}

impl From<Expr> for Result<Tensor> {
    fn from(value: Expr) -> Self {
        value.0
    }
}

/// The sum of tensors that broadcast; a zero if there are none.
impl<R: Operand> Sum<R> for Expr {
    fn sum<I: Iterator<Item = R>>(iter: I) -> Self {
        let mut total: Option<Expr> = None;
        for item in iter {
            total = Some(match total {
                None => Expr(item.with(|a| match a {
                    Arg::Tensor(t) => Ok(t.clone()),
                    Arg::Scalar(s) => Tensor::scalar(s),
                })),
                Some(sum) => sum + item,
            });
        }
        total.unwrap_or_else(|| Expr(Tensor::scalar(0.0)))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $call:ident;)*) => {$(
        // One implementation for operands of every kind: a literal's type needs no annotation then.
        impl<R: Operand> $trait<R> for &Tensor {
            type Output = Expr;
            #[inline]
            fn $method(self, b: R) -> Expr { Expr(b.with(|b| self.$call(b))) }
        }
        impl<R: Operand> $trait<R> for Tensor {
            type Output = Expr;
            #[inline]
            fn $method(self, b: R) -> Expr { Expr(b.with(|b| Tensor::$call(&self, b))) }
        }
        impl<R: Operand> $trait<R> for Expr {
            type Output = Expr;
            #[inline]
            fn $method(self, b: R) -> Expr { Expr(self.0.and_then(|a| b.with(|b| Tensor::$call(&a, b)))) }
        }
        impl<R: Operand> $trait<R> for &Expr {
            type Output = Expr;
            fn $method(self, b: R) -> Expr { Expr(self.get().and_then(|a| b.with(|b| a.$call(b)))) }
        }
        operators!(@result $trait $method $call &Tensor, Tensor, Expr, &Expr);
    )*};
    // The result of a method as the left operand: `x.exp() + &y`.
    (@result $trait:ident $method:ident $call:ident $($right:ty),*) => {$(
        impl $trait<$right> for Result<Tensor> {
            type Output = Expr;
            fn $method(self, b: $right) -> Expr { Expr(self).$method(b) }
        }
    )*};
}

operators! {
    Add add add;
    Sub sub sub;
    Mul mul mul;
    Div div div;
    Rem rem remainder;
    BitAnd bitand bitwise_and;
    BitOr bitor bitwise_or;
    BitXor bitxor bitwise_xor;
}

macro_rules! assigning {
    ($($trait:ident $method:ident $call:ident;)*) => {$(
        impl<R: Operand> $trait<R> for Expr {
            fn $method(&mut self, b: R) {
                if let Ok(a) = &self.0 {
                    self.0 = b.with(|b| a.$call(b));
                }
            }
        }
    )*};
}

assigning! {
    AddAssign add_assign add;
    SubAssign sub_assign sub;
    MulAssign mul_assign mul;
    DivAssign div_assign div;
    RemAssign rem_assign remainder;
}

/// A number on the left. Only one float and one integer type, else the type of a literal would be ambiguous.
macro_rules! number_first {
    ($($trait:ident $method:ident $call:ident;)*) => {$(
        number_first!(@right $trait $method $call &Tensor, Tensor, Expr, &Expr);
    )*};
    (@right $trait:ident $method:ident $call:ident $($right:ty),*) => {$(
        number_first!(@left $trait $method $call $right; f64, i64, Scalar);
    )*};
    (@left $trait:ident $method:ident $call:ident $right:ty; $($left:ty),*) => {$(
        impl $trait<$right> for $left {
            type Output = Expr;
            fn $method(self, b: $right) -> Expr { Expr(number_on_left(self.into(), b, Tensor::$call)) }
        }
    )*};
}

number_first! {
    Add add add_number;
    Sub sub rsub;
    Mul mul mul_number;
    Div div rdiv;
    Rem rem rremainder;
}

fn number_on_left(a: Scalar, b: impl Operand, op: impl FnOnce(&Tensor, Scalar) -> Result<Tensor>) -> Result<Tensor> {
    b.with(|b| match b {
        Arg::Tensor(b) => op(b, a),
        Arg::Scalar(b) => op(&Tensor::scalar(b)?, a),
    })
}

impl Tensor {
    fn add_number(&self, a: Scalar) -> Result<Tensor> {
        self.add(a)
    }

    fn mul_number(&self, a: Scalar) -> Result<Tensor> {
        self.mul(a)
    }
}

macro_rules! one_operand {
    ($($trait:ident $method:ident $call:ident;)*) => {$(
        impl $trait for &Tensor {
            type Output = Expr;
            fn $method(self) -> Expr { Expr(self.$call()) }
        }
        impl $trait for Tensor {
            type Output = Expr;
            fn $method(self) -> Expr { Expr(Tensor::$call(&self)) }
        }
        impl $trait for Expr {
            type Output = Expr;
            fn $method(self) -> Expr { Expr(self.0.and_then(|a| Tensor::$call(&a))) }
        }
    )*};
}

one_operand! {
    Neg neg neg;
    Not not bitwise_not;
}
