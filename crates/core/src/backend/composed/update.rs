//! Optimizer steps for engines without a fused kernel: the rows of `rows/update.rs`, one op at a time.

use super::array::{Arg, Array};
use crate::backend::{Operand, ParamUpdate, View, call};
use crate::rows::{FACTORS, Lane, RuleVisitor, UpdateRow};
use crate::{Error, Pointwise, Result};
use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Sub};

/// A factor given as a number or as a tensor of one element, to broadcast against anything.
pub fn with_factor<T>(op: &str, factor: Operand, f: impl FnOnce(Arg) -> Result<T>) -> Result<T> {
    match factor {
        Operand::Scalar(number) => f(Arg::Number(number)),
        Operand::Tensor(view) if view.numel() == 1 => f(Arg::Array(&Array::of(view).reshape(&[])?)),
        Operand::Tensor(view) => {
            Err(Error::shape(format!("{op}: a factor must have one element, this one has shape {:?}", view.shape())))
        }
    }
}

/// Default body of [`Update`](call::Update).
pub fn update(c: &call::Update<View>) -> Result<()> {
    let call::Update { ref updates, grad_scale, .. } = *c;
    if !c.live.is_empty() || c.found_inf.is_some() {
        return Err(Error::unsupported("update: a recorded step needs an engine that keeps its numbers"));
    }
    with_factor("update", grad_scale, |scale| updates.iter().try_for_each(|update| step(update, scale)))
}

/// The arrays of a formula in evaluation. Rows need `Copy` values, so the arrays are stored here and [`Value`] names
/// them.
#[derive(Default)]
struct Arena<'v> {
    arrays: RefCell<Vec<Array<'v>>>,
    error: RefCell<Option<Error>>,
}

#[derive(Clone, Copy)]
enum Value<'a, 'v> {
    Number(f64),
    Array(&'a Arena<'v>, usize),
}

impl<'v> Arena<'v> {
    fn put(&self, array: Result<Array<'v>>) -> Value<'_, 'v> {
        match array {
            Ok(array) => {
                let mut arrays = self.arrays.borrow_mut();
                arrays.push(array);
                Value::Array(self, arrays.len() - 1)
            }
            Err(e) => {
                self.error.borrow_mut().get_or_insert(e);
                Value::Number(f64::NAN)
            }
        }
    }

    fn get(&self, at: usize) -> Array<'v> {
        self.arrays.borrow()[at].clone()
    }
}

impl<'a, 'v> Value<'a, 'v> {
    fn unary(self, op: Pointwise, number: impl Fn(f64) -> f64) -> Self {
        match self {
            Value::Number(x) => Value::Number(number(x)),
            Value::Array(arena, at) => arena.put(Array::map(op, &[Arg::Array(&arena.get(at))])),
        }
    }

    fn binary(self, b: Self, op: Pointwise, number: impl Fn(f64, f64) -> f64) -> Self {
        match (self, b) {
            (Value::Number(x), Value::Number(y)) => Value::Number(number(x, y)),
            (Value::Array(arena, i), Value::Number(y)) => {
                arena.put(Array::map(op, &[Arg::Array(&arena.get(i)), y.into()]))
            }
            (Value::Number(x), Value::Array(arena, j)) => {
                arena.put(Array::map(op, &[x.into(), Arg::Array(&arena.get(j))]))
            }
            (Value::Array(arena, i), Value::Array(_, j)) => {
                arena.put(Array::map(op, &[Arg::Array(&arena.get(i)), Arg::Array(&arena.get(j))]))
            }
        }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $f:expr;)*) => {$(
        impl $trait for Value<'_, '_> {
            type Output = Self;
            fn $method(self, b: Self) -> Self {
                self.binary(b, Pointwise::$trait, $f)
            }
        }
    )*};
}
operators! {
    Add add |x, y| x + y;
    Sub sub |x, y| x - y;
    Mul mul |x, y| x * y;
    Div div |x, y| x / y;
}

impl Lane for Value<'_, '_> {
    fn fma(a: Self, b: Self, c: Self) -> Self {
        a * b + c
    }
    fn sqrt(self) -> Self {
        self.unary(Pointwise::Sqrt, f64::sqrt)
    }
    fn max(self, b: Self) -> Self {
        self.binary(b, Pointwise::Maximum, f64::max)
    }
    fn abs(self) -> Self {
        self.unary(Pointwise::Abs, f64::abs)
    }
}

/// A row's step over whole arrays.
struct Step<'s, 'a, 'v> {
    param: &'s mut Value<'a, 'v>,
    grad: Value<'a, 'v>,
    state: &'s mut [Value<'a, 'v>; 3],
    factors: [f64; FACTORS],
}

impl RuleVisitor for Step<'_, '_, '_> {
    fn visit<O: UpdateRow, const STATES: u8>(self) {
        O::step::<_, STATES>(self.param, self.grad, self.state, &self.factors.map(Value::Number));
    }
}

/// Converted to the compute type.
fn array(view: View) -> Result<Array> {
    Array::of(view).wide()
}

fn step(update: &ParamUpdate, scale: Arg) -> Result<()> {
    let arena = Arena::default();
    let start = array(update.param)?.mul(update.shrink)?;
    let mut grad = array(update.grad)?.mul(scale)?;
    if update.maximize {
        grad = grad.neg()?;
    }
    // Without weight decay the parameter is not read: infinity times zero would be NaN.
    if update.weight_decay != 0.0 {
        grad = grad.add(&start.mul(update.weight_decay)?)?;
    }
    let (mut param, grad) = (arena.put(Ok(start)), arena.put(Ok(grad)));
    let mut state = update.state.map(|view| view.map_or(Value::Number(0.0), |view| arena.put(array(view))));
    let factors = update.rule.factors();
    if !update.rule.visit(update.present(), Step { param: &mut param, grad, state: &mut state, factors }) {
        return Err(update.misfit());
    }
    if let Some(e) = arena.error.take() {
        return Err(e);
    }
    let targets = std::iter::once(Some(update.param)).chain(update.state);
    for (target, value) in targets.zip(std::iter::once(param).chain(state)) {
        if let (Some(view), Value::Array(arena, at)) = (target, value) {
            arena.get(at).copy_to(&Array::of(view))?;
        }
    }
    Ok(())
}
