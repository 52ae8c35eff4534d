//! `+ - * / %` and unary minus. Each gives a `Result`: write `(&a + &b)?`.

use crate::Tensor;
use rushlight_core::Result;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

macro_rules! operators {
    ($($trait:ident $method:ident $call:ident;)*) => {$(
        impl $trait<&Tensor> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, b: &Tensor) -> Result<Tensor> { self.$call(b) }
        }
        impl $trait<Tensor> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, b: Tensor) -> Result<Tensor> { self.$call(&b) }
        }
        impl $trait<&Tensor> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, b: &Tensor) -> Result<Tensor> { (&self).$call(b) }
        }
        impl $trait<Tensor> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, b: Tensor) -> Result<Tensor> { (&self).$call(&b) }
        }
        impl $trait<Result<Tensor>> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, b: Result<Tensor>) -> Result<Tensor> { self.$call(&b?) }
        }
        impl $trait<Result<Tensor>> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, b: Result<Tensor>) -> Result<Tensor> { (&self).$call(&b?) }
        }
        operators!(@number $trait $method $call f64 f32 i64 i32);
    )*};
    (@number $trait:ident $method:ident $call:ident $($t:ty)*) => {$(
        impl $trait<$t> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, b: $t) -> Result<Tensor> { self.$call(b) }
        }
        impl $trait<$t> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, b: $t) -> Result<Tensor> { (&self).$call(b) }
        }
    )*};
}

operators! {
    Add add add;
    Sub sub sub;
    Mul mul mul;
    Div div div;
    Rem rem remainder;
}

macro_rules! number_first {
    ($($trait:ident $method:ident |$t:ident, $v:ident| $call:expr;)*) => {$(
        number_first!(@types $trait $method $t $v ($call) f64 f32 i64 i32);
    )*};
    (@types $trait:ident $method:ident $t:ident $v:ident ($call:expr) $($n:ty)*) => {$(
        impl $trait<&Tensor> for $n {
            type Output = Result<Tensor>;
            fn $method(self, $t: &Tensor) -> Result<Tensor> { let $v = self; $call }
        }
        impl $trait<Tensor> for $n {
            type Output = Result<Tensor>;
            fn $method(self, $t: Tensor) -> Result<Tensor> { let $v = self; $call }
        }
    )*};
}

number_first! {
    Add add |t, v| t.add(v);
    Sub sub |t, v| t.rsub(v);
    Mul mul |t, v| t.mul(v);
    Div div |t, v| t.rdiv(v);
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}
