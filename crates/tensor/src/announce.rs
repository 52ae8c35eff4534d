//! Ops of this layer, announced to a listener under the names that exported programs have for them.
//!
//! An op announces its name and arguments before it runs and its results after; what it calls inside is not announced.
//! A composed op announces nothing itself: its parts do. A call of an engine outside of any announced op is announced
//! as such, so a listener never misses work on tensors it follows.
//!
//! The listener counts as a recorded program ([`crate::program`]), so without one an op looks at a number that is zero.

use crate::Tensor;
use crate::arg::Arg;
use crate::ops::conv::Padding;
use crate::ops::loss::Reduction;
use crate::ops::pool::OutputSize;
use crate::ops::sizes::Sizes;
use crate::program::{Noting, any_recordings};
use rushlight_core::backend::{Call, View};
use rushlight_core::{DType, Device, Pointwise, Result, Scalar};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// An argument of an announced op.
#[derive(Clone, Debug)]
pub enum Value {
    /// Absent.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer, such as a size or a dimension.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word.
    Text(&'static str),
    /// A dtype.
    DType(DType),
    /// A device.
    Device(Device),
    /// A tensor.
    Tensor(Tensor),
    /// A number where the op of the name takes a tensor: one without dimensions, of a dtype.
    Number(Scalar, DType),
    /// Several.
    List(Vec<Value>),
}

/// An op that is about to run.
#[derive(Debug)]
pub struct Op {
    /// Its name in programs: `torch.matmul`, `nn.functional.linear`.
    pub name: Cow<'static, str>,
    /// Arguments by position.
    pub args: Vec<Value>,
    /// Arguments by name.
    pub keywords: Vec<(&'static str, Value)>,
    /// The tensor that the result overwrites.
    pub target: Option<Tensor>,
}

/// Hears of the ops of a thread.
pub trait Listener {
    /// An op is about to run.
    fn begin(&mut self, op: Op) -> Result<()>;
    /// The op has run.
    fn end(&mut self, results: &[Tensor]) -> Result<()>;
    /// An engine runs a call that belongs to no announced op.
    fn call(&mut self, call: &Call<View>);
    /// The device does work that is no call of an engine's: a kernel of the user's, a collective.
    fn foreign(&mut self, what: &'static str);
    /// The host reads a tensor's elements.
    fn read(&mut self, tensor: &Tensor) -> Result<()>;
}

type Shared = Rc<RefCell<dyn Listener>>;

thread_local! {
    static LISTENER: RefCell<Option<Shared>> = const { RefCell::new(None) };
    /// Whether ops are announced: there is a listener, and no announced op is running.
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// Whether an op that runs now has to announce itself.
#[inline(always)]
pub fn is_on() -> bool {
    any_recordings() && is_open()
}

#[cold]
fn is_open() -> bool {
    IS_OPEN.try_with(Cell::get).unwrap_or(false)
}

/// Restores whether ops are announced.
struct Restore(bool);

impl Restore {
    fn set(open: bool) -> Self {
        Self(IS_OPEN.replace(open))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = IS_OPEN.try_with(|open| open.set(self.0));
    }
}

/// Runs `f`, whose ops `listener` hears of, on this thread. Ops of a listener within it are not announced to one
/// around it.
pub fn listen<T>(listener: Shared, f: impl FnOnce() -> T) -> T {
    struct Previous(Option<Shared>);
    impl Drop for Previous {
        fn drop(&mut self) {
            let _ = LISTENER.try_with(|listener| listener.replace(self.0.take()));
        }
    }
    let _noting = Noting::begin(None);
    let _previous = Previous(LISTENER.replace(Some(listener)));
    let _restore = Restore::set(true);
    f()
}

/// Tells the listener. Its own ops are not announced.
fn tell<T>(f: impl FnOnce(&mut dyn Listener) -> T) -> Option<T> {
    let listener = LISTENER.with_borrow(|listener| listener.clone())?;
    let _quiet = Restore::set(false);
    let mut listener = listener.try_borrow_mut().ok()?;
    Some(f(&mut *listener))
}

/// Tells the listener of a call that no op has announced.
#[cold]
pub(crate) fn call(call: &Call<View>) {
    if is_open() {
        tell(|listener| listener.call(call));
    }
}

/// Tells the listener of work that is no call.
#[cold]
pub(crate) fn foreign(what: &'static str) {
    if is_open() {
        tell(|listener| listener.foreign(what));
    }
}

/// Tells the listener that the host reads a tensor.
#[cold]
pub(crate) fn read(tensor: &Tensor) -> Result<()> {
    tell(|listener| listener.read(tensor)).unwrap_or(Ok(()))
}

/// What an op returns.
pub trait Results {
    /// The tensors in it, in order.
    fn tensors(&self) -> Vec<Tensor>;
}

impl Results for Tensor {
    fn tensors(&self) -> Vec<Tensor> {
        vec![self.clone()]
    }
}

impl Results for &Tensor {
    fn tensors(&self) -> Vec<Tensor> {
        vec![Tensor::clone(self)]
    }
}

impl Results for (Tensor, Tensor) {
    fn tensors(&self) -> Vec<Tensor> {
        vec![self.0.clone(), self.1.clone()]
    }
}

impl Results for Vec<Tensor> {
    fn tensors(&self) -> Vec<Tensor> {
        self.clone()
    }
}

impl Results for () {
    fn tensors(&self) -> Vec<Tensor> {
        Vec::new()
    }
}

/// Announces an op and runs it.
#[cold]
pub fn op<T: Results>(op: Op, run: impl FnOnce() -> Result<T>) -> Result<T> {
    tell(|listener| listener.begin(op)).unwrap_or(Ok(()))?;
    let quiet = Restore::set(false);
    let out = run()?;
    drop(quiet);
    tell(|listener| listener.end(&out.tensors())).unwrap_or(Ok(()))?;
    Ok(out)
}

/// Announces the op that the rest of the function is, if someone listens, and returns its result.
///
/// `announced!("torch.narrow", [self, dim, start, length], self.narrow(dim, start, length))`; arguments by name follow
/// the list: `announced!("torch.sum", [self], dtype = dtype, …)`.
macro_rules! announced {
    ($name:expr, [$($arg:expr),* $(,)?] $(, $keyword:ident = $value:expr)* ; $run:expr) => {
        if $crate::announce::is_on() {
            let op = $crate::announce::Op {
                name: $name.into(),
                args: vec![$($crate::announce::Value::from($arg)),*],
                keywords: vec![$((stringify!($keyword), $crate::announce::Value::from($value))),*],
                target: None,
            };
            return $crate::announce::op(op, || $run);
        }
    };
}
pub(crate) use announced;

macro_rules! from {
    ($($t:ty: $v:ident => $value:expr;)*) => {$(
        impl From<$t> for Value {
            fn from($v: $t) -> Self {
                $value
            }
        }
    )*};
}

from! {
    bool: v => Value::Bool(v);
    i64: v => Value::Int(v);
    isize: v => Value::Int(v as i64);
    usize: v => Value::Int(v as i64);
    f64: v => Value::Float(v);
    DType: v => Value::DType(v);
    Device: v => Value::Device(v);
    &'static str: v => Value::Text(v);
    &Tensor: v => Value::Tensor(v.clone());
    &[usize]: v => Value::List(v.iter().map(|&n| Value::from(n)).collect());
    &[isize]: v => Value::List(v.iter().map(|&n| Value::from(n)).collect());
    &[&Tensor]: v => Value::List(v.iter().map(|&t| Value::from(t)).collect());
    Vec<Value>: v => Value::List(v);
}

impl From<Scalar> for Value {
    fn from(v: Scalar) -> Self {
        match v {
            Scalar::Bool(b) => Value::Bool(b),
            Scalar::Int(i) => Value::Int(i),
            Scalar::Float(x) => Value::Float(x),
            // No form of a program: the listener refuses it.
            other => Value::Number(other, DType::C128),
        }
    }
}

impl From<Arg<'_>> for Value {
    fn from(v: Arg<'_>) -> Self {
        match v {
            Arg::Tensor(t) => Value::Tensor(t.clone()),
            Arg::Scalar(s) => s.into(),
        }
    }
}

impl From<Sizes> for Value {
    fn from(v: Sizes) -> Self {
        match v.as_slice() {
            [one] => Value::from(*one),
            several => Value::from(several),
        }
    }
}

impl From<Padding> for Value {
    fn from(v: Padding) -> Self {
        match v {
            Padding::Zeros(sizes) => sizes.into(),
            Padding::Same => Value::Text("same"),
            Padding::Valid => Value::Text("valid"),
        }
    }
}

impl From<&OutputSize> for Value {
    fn from(v: &OutputSize) -> Self {
        match v.as_slice() {
            [Some(one)] => Value::from(*one),
            several => Value::List(several.iter().map(|&n| Value::from(n)).collect()),
        }
    }
}

impl From<Reduction> for Value {
    fn from(v: Reduction) -> Self {
        Value::Text(match v {
            Reduction::None => "none",
            Reduction::Mean => "mean",
            Reduction::Sum => "sum",
            Reduction::BatchMean => "batchmean",
        })
    }
}

/// Dimensions of a reduction; none given are all.
pub(crate) fn dims(dims: &[isize]) -> Value {
    if dims.is_empty() { Value::None } else { Value::from(dims) }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(v: Option<T>) -> Self {
        v.map_or(Value::None, Into::into)
    }
}

/// Rows whose second operand may be a number in programs.
fn takes_number(op: Pointwise) -> bool {
    use Pointwise::*;
    matches!(
        op,
        Add | Sub
            | Mul
            | Div
            | FloorDivide
            | TruncDivide
            | Remainder
            | Fmod
            | Pow
            | Eq
            | Ne
            | Lt
            | Le
            | Gt
            | Ge
            | BitwiseAnd
            | BitwiseOr
            | BitwiseXor
            | ClampMin
            | ClampMax
            | Lerp
    )
}

/// The op that a row of the table is in programs.
pub(crate) fn row(op: Pointwise, args: &[Arg], params: &[f64]) -> Op {
    use Pointwise::*;
    let dtype = crate::arg::result_type(args);
    let of_number = |s: Scalar| match s {
        Scalar::Bool(_) => Value::Number(s, DType::Bool),
        Scalar::Int(_) if !dtype.is_float() => Value::Number(s, dtype),
        _ => Value::Number(s, if dtype.is_float() { dtype } else { crate::default_dtype() }),
    };
    let mut values: Vec<Value> = Vec::with_capacity(args.len() + params.len());
    for (i, arg) in args.iter().enumerate() {
        values.push(match arg {
            Arg::Scalar(s) if i == 0 || !takes_number(op) && op != Clamp => of_number(*s),
            other => Value::from(*other),
        });
    }
    let mut keywords = Vec::new();
    let numbers = |values: &mut Vec<Value>| values.extend(params.iter().map(|&p| Value::Float(p)));
    let functional = |op: Pointwise| Cow::Owned(format!("nn.functional.{}", op.name()));
    let name: Cow<'static, str> = match op {
        ClampBetween => {
            numbers(&mut values);
            "torch.clamp".into()
        }
        TruncDivide => {
            keywords.push(("rounding_mode", Value::Text("trunc")));
            "torch.div".into()
        }
        Addcmul | Addcdiv => {
            keywords.push(("value", Value::Float(params.first().copied().unwrap_or(1.0))));
            if op == Addcmul { "torch.addcmul" } else { "torch.addcdiv" }.into()
        }
        RoundDecimals => {
            let decimals = params.first().map_or(0, |p| p.log10().round() as i64);
            keywords.push(("decimals", Value::Int(decimals)));
            "torch.round".into()
        }
        Polygamma => {
            values.insert(0, Value::Int(params.first().map_or(0, |&n| n as i64)));
            "torch.polygamma".into()
        }
        Logit => {
            values.push(params.first().filter(|&&eps| eps >= 0.0).copied().into());
            "torch.logit".into()
        }
        NanToNum => {
            numbers(&mut values);
            "torch.nan_to_num".into()
        }
        Nextafter => "torch.nextafter".into(),
        GeluTanh => {
            keywords.push(("approximate", Value::Text("tanh")));
            "nn.functional.gelu".into()
        }
        SmoothL1Loss | HuberLoss => {
            keywords.push(("reduction", Value::Text("none")));
            let key = if op == HuberLoss { "delta" } else { "beta" };
            keywords.push((key, Value::Float(params.first().copied().unwrap_or(1.0))));
            functional(op)
        }
        KlDivLog => {
            keywords.push(("reduction", Value::Text("none")));
            keywords.push(("log_target", Value::Bool(true)));
            "nn.functional.kl_div".into()
        }
        MseLoss | L1Loss | BinaryCrossEntropy | BinaryCrossEntropyWithLogits | KlDiv => {
            keywords.push(("reduction", Value::Text("none")));
            functional(op)
        }
        Relu | Gelu | Silu | Mish | Elu | Selu | Celu | LeakyRelu | Hardswish | Hardsigmoid | Hardtanh | Hardshrink
        | Softshrink | Softplus | Softsign | Tanhshrink | Threshold | Logsigmoid => {
            numbers(&mut values);
            functional(op)
        }
        _ => Cow::Owned(format!("torch.{}", op.name())),
    };
    Op { name, args: values, keywords, target: None }
}
