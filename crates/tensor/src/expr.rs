//! Op rows read as tensor expressions: the derivative of a row made of recorded ops, for second derivatives.

use crate::Tensor;
use rushlight_core::rows::{self, Conditions, In, Num, Params, Real, Visitor};
use rushlight_core::{Error, Pointwise, Result};
use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The values of an expression being built. Rows need `Copy` numbers, so the tensors are stored here and [`Ex`] indexes
/// them.
#[derive(Default)]
struct Arena {
    values: RefCell<Vec<Tensor>>,
    error: RefCell<Option<Error>>,
}

#[derive(Clone, Copy)]
enum Ex<'a> {
    Const(f64),
    Value(&'a Arena, usize),
}

impl Arena {
    fn put(&self, value: Result<Tensor>) -> Ex<'_> {
        match value {
            Ok(t) => {
                let mut values = self.values.borrow_mut();
                values.push(t);
                Ex::Value(self, values.len() - 1)
            }
            Err(e) => {
                self.error.borrow_mut().get_or_insert(e);
                Ex::Const(f64::NAN)
            }
        }
    }

    fn get(&self, id: usize) -> Tensor {
        self.values.borrow()[id].clone()
    }
}

impl<'a> Ex<'a> {
    fn unary(self, on_const: impl Fn(f64) -> f64, on_tensor: impl Fn(&Tensor) -> Result<Tensor>) -> Self {
        match self {
            Ex::Const(v) => Ex::Const(on_const(v)),
            Ex::Value(arena, id) => arena.put(on_tensor(&arena.get(id))),
        }
    }

    fn binary(self, b: Self, op: Pointwise, on_const: impl Fn(f64, f64) -> f64) -> Self {
        use crate::arg::Arg;
        use crate::ops::pointwise::pointwise;
        use rushlight_core::Scalar;
        match (self, b) {
            (Ex::Const(x), Ex::Const(y)) => Ex::Const(on_const(x, y)),
            (Ex::Value(arena, i), Ex::Const(y)) => {
                arena.put(pointwise(op, &[Arg::Tensor(&arena.get(i)), Arg::Scalar(Scalar::Float(y))], &[]))
            }
            (Ex::Const(x), Ex::Value(arena, j)) => {
                arena.put(pointwise(op, &[Arg::Scalar(Scalar::Float(x)), Arg::Tensor(&arena.get(j))], &[]))
            }
            (Ex::Value(arena, i), Ex::Value(_, j)) => {
                arena.put(pointwise(op, &[Arg::Tensor(&arena.get(i)), Arg::Tensor(&arena.get(j))], &[]))
            }
        }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident $f:expr;)*) => {$(
        impl $trait for Ex<'_> {
            type Output = Self;
            fn $method(self, b: Self) -> Self { self.binary(b, Pointwise::$op, $f) }
        }
    )*};
}
operators! {
    Add add Add |x, y| x + y;
    Sub sub Sub |x, y| x - y;
    Mul mul Mul |x, y| x * y;
    Div div Div |x, y| x / y;
}

impl Neg for Ex<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        self.unary(|v| -v, |t| t.neg())
    }
}

/// Comparisons of constants are 0 or 1.
fn truth(b: bool) -> f64 {
    b as u8 as f64
}

impl Conditions for Ex<'_> {
    fn both(a: Self, b: Self) -> Self {
        match (a, b) {
            (Ex::Const(c), other) | (other, Ex::Const(c)) => {
                if c != 0.0 {
                    other
                } else {
                    Ex::Const(0.0)
                }
            }
            (Ex::Value(arena, i), Ex::Value(_, j)) => arena.put(arena.get(i).logical_and(&arena.get(j))),
        }
    }
    fn not(a: Self) -> Self {
        a.unary(|v| truth(v == 0.0), |t| t.logical_not())
    }
}

impl<'a> Num for Ex<'a> {
    type Mask = Ex<'a>;
    fn lit(v: f64) -> Self {
        Ex::Const(v)
    }
    fn lt(self, b: Self) -> Self {
        self.binary(b, Pointwise::Lt, |x, y| truth(x < y))
    }
    fn le(self, b: Self) -> Self {
        self.binary(b, Pointwise::Le, |x, y| truth(x <= y))
    }
    fn eq(self, b: Self) -> Self {
        self.binary(b, Pointwise::Eq, |x, y| truth(x == y))
    }
    fn select(mask: Self, a: Self, b: Self) -> Self {
        use crate::arg::Arg;
        use rushlight_core::Scalar;
        match mask {
            Ex::Const(c) => {
                if c != 0.0 {
                    a
                } else {
                    b
                }
            }
            Ex::Value(arena, id) => {
                let tensor = |e: Ex| match e {
                    Ex::Const(_) => None,
                    Ex::Value(_, i) => Some(arena.get(i)),
                };
                let (ta, tb) = (tensor(a), tensor(b));
                fn arg<'t>(e: Ex, t: &'t Option<Tensor>) -> Arg<'t> {
                    match (e, t) {
                        (Ex::Const(v), _) => Arg::Scalar(Scalar::Float(v)),
                        (_, Some(t)) => Arg::Tensor(t),
                        (_, None) => Arg::Scalar(Scalar::Float(f64::NAN)),
                    }
                }
                let (a, b) = (arg(a, &ta), arg(b, &tb));
                arena.put(crate::ops::pointwise::select(&arena.get(id), a, b))
            }
        }
    }
    fn max(self, b: Self) -> Self {
        self.binary(b, Pointwise::Maximum, f64::max)
    }
    fn min(self, b: Self) -> Self {
        self.binary(b, Pointwise::Minimum, f64::min)
    }
    fn abs(self) -> Self {
        self.unary(f64::abs, |t| t.abs())
    }
    fn floor_div(self, b: Self) -> Self {
        self.binary(b, Pointwise::FloorDivide, |x, y| (x / y).floor())
    }
    fn trunc_div(self, b: Self) -> Self {
        self.binary(b, Pointwise::TruncDivide, |x, y| (x / y).trunc())
    }
    fn remainder(self, b: Self) -> Self {
        self.binary(b, Pointwise::Remainder, |x, y| x - y * (x / y).floor())
    }
    fn fmod(self, b: Self) -> Self {
        self.binary(b, Pointwise::Fmod, |x, y| x % y)
    }
    fn pow(self, b: Self) -> Self {
        self.binary(b, Pointwise::Pow, f64::powf)
    }
}

/// Functions of one variable: their names on tensors. Rows apply them to constants only if the result is
/// discarded or exact, so `std`'s value suffices (NaN if `std` has no such function).
macro_rules! functions {
    ($($name:ident $std:expr;)*) => {
        impl Real for Ex<'_> {
            $(fn $name(self) -> Self { self.unary($std, |t| t.$name()) })*
            fn atan2(self, x: Self) -> Self { self.binary(x, Pointwise::Atan2, f64::atan2) }
            fn copysign(self, b: Self) -> Self { self.binary(b, Pointwise::Copysign, f64::copysign) }
            // No derivative steps bits.
            fn step_bits(self, _: Self) -> Self { Ex::Const(f64::NAN) }
            fn polygamma(n: Self, x: Self) -> Self {
                let order = match n { Ex::Const(v) => v, Ex::Value(..) => f64::NAN };
                x.unary(|_| f64::NAN, |t| t.polygamma(order as i64))
            }
        }
    };
}
functions! {
    exp f64::exp; exp2 f64::exp2; expm1 f64::exp_m1; log f64::ln; log2 f64::log2; log10 f64::log10; log1p f64::ln_1p;
    sqrt f64::sqrt; sin f64::sin; cos f64::cos; tan f64::tan; asin f64::asin; acos f64::acos; atan f64::atan;
    sinh f64::sinh; cosh f64::cosh; tanh f64::tanh; asinh f64::asinh; acosh f64::acosh; atanh f64::atanh;
    erf |_| f64::NAN; erfc |_| f64::NAN; erfinv |_| f64::NAN; normal_cdf |_| f64::NAN;
    lgamma |_| f64::NAN; digamma |_| f64::NAN;
    sigmoid |v: f64| 1.0 / (1.0 + (-v).exp());
    floor f64::floor; ceil f64::ceil; round f64::round_ties_even; trunc f64::trunc;
}

impl Tensor {
    fn normal_cdf(&self) -> Result<Tensor> {
        self.mul(-std::f64::consts::FRAC_1_SQRT_2)?.erfc()?.mul(0.5).eval()
    }
}

/// A value that a derivative may read: a tensor or a number.
#[derive(Clone)]
pub(crate) enum Value {
    Tensor(Tensor),
    Number(f64),
}

/// The derivative of a row by input `wrt`, as recorded ops. Values that the row does not read may be `None`.
pub(crate) fn derivative(op: Pointwise, wrt: usize, values: [Option<Value>; 5], params: &[f64]) -> Result<Tensor> {
    struct Derive<'a>(usize, Ex<'a>, In<Ex<'a>>, Ex<'a>, Params<Ex<'a>>);
    impl<'a> Derive<'a> {
        fn run<O: rows::Row>(self) -> Ex<'a> {
            let Derive(wrt, dy, x, y, p) = self;
            match wrt {
                0 => O::grad::<_, 0>(dy, x, y, p),
                1 => O::grad::<_, 1>(dy, x, y, p),
                _ => O::grad::<_, 2>(dy, x, y, p),
            }
        }
    }
    impl<'a> Visitor for Derive<'a> {
        type Out = Ex<'a>;
        fn num<O: rows::NumRow>(self) -> Ex<'a> {
            self.run::<O>()
        }
        fn real<O: rows::RealRow>(self) -> Ex<'a> {
            self.run::<O>()
        }
        fn compare<O: rows::CompareRow>(self) -> Ex<'a> {
            self.run::<O>()
        }
        fn test<O: rows::TestRow>(self) -> Ex<'a> {
            self.run::<O>()
        }
        fn bits<O: rows::BitsRow>(self) -> Ex<'a> {
            self.run::<O>()
        }
    }

    let arena = Arena::default();
    let shape_of = values[0].clone();
    let mut ex = values.into_iter().map(|v| match v {
        Some(Value::Tensor(t)) => arena.put(Ok(t)),
        Some(Value::Number(v)) => Ex::Const(v),
        None => Ex::Const(0.0),
    });
    let mut next = || ex.next().unwrap_or(Ex::Const(0.0));
    let (dy, x, y) = (next(), [next(), next(), next()], next());
    let p: Params<Ex> = std::array::from_fn(|i| Ex::Const(params.get(i).copied().unwrap_or(0.0)));
    let out = op.visit(Derive(wrt, dy, x, y, p));
    if let Some(e) = arena.error.borrow_mut().take() {
        return Err(e);
    }
    match (out, shape_of) {
        (Ex::Value(_, id), _) => Ok(arena.get(id)),
        (Ex::Const(v), Some(Value::Tensor(dy))) => dy.full_like(v),
        (Ex::Const(_), _) => Err(Error::autograd(format!("{}: derivative without a gradient", op.name()))),
    }
}
