//! Tensor algebra over an engine's primitives, used by the default bodies.

use super::execute;
use crate::backend::{Backend, Operand, Reduce, Storage, View, call};
use crate::layout::broadcast_shapes;
use crate::rows::Class;
use crate::{DType, Dims, Layout, Pointwise, Result, Scalar};
use smallvec::SmallVec;
use std::rc::Rc;

/// A view that owns its layout, over memory that is borrowed from the caller or
/// shared scratch memory. Cloning shares the memory.
#[derive(Clone)]
pub struct Array<'a> {
    memory: Memory<'a>,
    layout: Layout,
    dtype: DType,
}

#[derive(Clone)]
enum Memory<'a> {
    Caller(&'a Storage),
    Scratch(Rc<Storage>),
}

/// An input of an op: an array that broadcasts to the output's shape, or a number.
#[derive(Clone, Copy)]
pub enum Arg<'a> {
    Array(&'a Array<'a>),
    Number(Scalar),
}

impl<'a, 'b: 'a> From<&'a Array<'b>> for Arg<'a> {
    fn from(array: &'a Array<'b>) -> Self {
        Arg::Array(array)
    }
}

impl From<f64> for Arg<'_> {
    fn from(v: f64) -> Self {
        Arg::Number(Scalar::Float(v))
    }
}

impl From<i64> for Arg<'_> {
    fn from(v: i64) -> Self {
        Arg::Number(Scalar::Int(v))
    }
}

/// The shape that arrays among the arguments broadcast to, and the dtype of the first.
fn joint(args: &[Arg]) -> Result<(Dims, DType)> {
    let (mut shape, mut dtype) = (Dims::new(), None);
    for arg in args {
        if let Arg::Array(array) = arg {
            shape = broadcast_shapes(&shape, array.shape())?;
            dtype = dtype.or(Some(array.dtype));
        }
    }
    Ok((shape, dtype.unwrap_or(DType::F32)))
}

/// Calls `f` with the arguments as operands of the given shape.
fn with_operands<T>(args: &[Arg], shape: &[usize], f: impl FnOnce(&[Operand]) -> Result<T>) -> Result<T> {
    let mut layouts: SmallVec<[Option<Layout>; 3]> = SmallVec::new();
    for arg in args {
        layouts.push(match arg {
            Arg::Array(array) => Some(array.layout.expand(shape)?),
            Arg::Number(_) => None,
        });
    }
    let operands: SmallVec<[Operand; 3]> = args
        .iter()
        .zip(&layouts)
        .map(|(arg, layout)| match (arg, layout) {
            (Arg::Array(array), Some(layout)) => Operand::Tensor(array.view_as(layout)),
            (Arg::Array(array), None) => Operand::Tensor(array.view()),
            (Arg::Number(number), _) => Operand::Scalar(*number),
        })
        .collect();
    f(&operands)
}

/// `out = op(args)`, computed in the first array's compute type. The output may be one of the arguments.
pub fn apply(op: Pointwise, args: &[Arg], out: &Array) -> Result<()> {
    let compute = joint(args)?.1.compute();
    with_operands(args, out.shape(), |operands| {
        execute(call::Pointwise { op, compute, inputs: operands.into(), params: Default::default(), out: out.view() })
    })
}

/// `out = condition ? a : b`. The output may be one of the arguments.
pub fn choose<'b>(condition: &Array, a: impl Into<Arg<'b>>, b: impl Into<Arg<'b>>, out: &Array) -> Result<()> {
    let condition = condition.expand(out.shape())?;
    with_operands(&[a.into(), b.into()], out.shape(), |operands| {
        execute(call::Select { condition: condition.view(), a: operands[0], b: operands[1], out: out.view() })
    })
}

/// `out = alpha * a @ b + beta * out` of `[batch, m, k]` and `[batch, k, n]`; sizes of one broadcast.
pub fn product(alpha: f64, a: &Array, b: &Array, beta: f64, out: &Array) -> Result<()> {
    let batch = out.shape()[0];
    let (a, b) = (a.expand(&[batch, a.shape()[1], a.shape()[2]])?, b.expand(&[batch, b.shape()[1], b.shape()[2]])?);
    let activation = Default::default();
    execute(call::MatMul { a: a.view(), b: b.view(), out: out.view(), bias: None, alpha, beta, activation })
}

macro_rules! unary {
    ($($name:ident $op:ident;)*) => {$(
        pub fn $name(&self) -> Result<Array<'static>> {
            Self::map(Pointwise::$op, &[Arg::Array(self)])
        }
    )*};
}

macro_rules! binary {
    ($($name:ident $op:ident;)*) => {$(
        pub fn $name<'b>(&'b self, other: impl Into<Arg<'b>>) -> Result<Array<'static>> {
            Self::map(Pointwise::$op, &[Arg::Array(self), other.into()])
        }
    )*};
}

impl<'a> Array<'a> {
    /// The caller's view.
    pub fn of(view: View<'a>) -> Self {
        Self { memory: Memory::Caller(view.storage()), layout: view.layout().clone(), dtype: view.dtype() }
    }

    /// The memory of a dense view, in memory order, under a shape.
    pub fn dense(view: View<'a>, shape: &[usize]) -> Result<Self> {
        let layout = Layout::contiguous(shape)?.with_offset(view.layout().offset());
        View::new(view.storage(), &layout, view.dtype())?;
        Ok(Self { memory: Memory::Caller(view.storage()), layout, dtype: view.dtype() })
    }

    /// Scratch memory, uninitialised and contiguous.
    pub fn scratch(engine: &'static dyn Backend, shape: &[usize], dtype: DType) -> Result<Array<'static>> {
        let layout = Layout::contiguous(shape)?;
        let storage = engine.alloc(layout.numel() * dtype.size())?;
        Ok(Array { memory: Memory::Scratch(Rc::new(storage)), layout, dtype })
    }

    /// Scratch memory of the engine of this array.
    pub fn uninit(&self, shape: &[usize], dtype: DType) -> Result<Array<'static>> {
        Array::scratch(self.engine(), shape, dtype)
    }

    /// Scratch memory of an array's shape, dtype and order in memory; the array has no gaps.
    pub fn uninit_like(&self, like: &Array) -> Result<Array<'static>> {
        let scratch = self.uninit(like.shape(), like.dtype)?;
        Ok(scratch.with(like.layout.clone().with_offset(0)))
    }

    /// Scratch memory with one value everywhere.
    pub fn full(&self, shape: &[usize], dtype: DType, value: f64) -> Result<Array<'static>> {
        let out = self.uninit(shape, dtype)?;
        out.fill(value)?;
        Ok(out)
    }

    /// `0, 1, …, n - 1` as `i64` in scratch memory.
    pub fn counting(&self, n: usize) -> Result<Array<'static>> {
        let out = self.uninit(&[n], DType::I64)?;
        execute(call::Arange { start: Scalar::Int(0), step: Scalar::Int(1), out: out.view() })?;
        Ok(out)
    }

    /// Numbers of the host in scratch memory.
    pub fn uploaded(&self, shape: &[usize], values: &[i64]) -> Result<Array<'static>> {
        let out = self.uninit(shape, DType::I64)?;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        self.engine().upload(&bytes, out.storage(), 0)?;
        Ok(out)
    }

    fn storage(&self) -> &Storage {
        match &self.memory {
            Memory::Caller(storage) => storage,
            Memory::Scratch(storage) => storage,
        }
    }

    pub fn engine(&self) -> &'static dyn Backend {
        self.storage().backend()
    }

    pub fn view(&self) -> View<'_> {
        self.view_as(&self.layout)
    }

    fn view_as<'v>(&'v self, layout: &'v Layout) -> View<'v> {
        // SAFETY: layouts come from checked views or whole scratch memory, and from there by slicing, permuting and
        // expanding, which stay within.
        unsafe { View::new_unchecked(self.storage(), layout, self.dtype) }
    }

    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    // ---- views

    /// The same memory under a layout that is within it.
    pub fn with(&self, layout: Layout) -> Self {
        Self { memory: self.memory.clone(), layout, dtype: self.dtype }
    }

    pub fn permute(&self, order: &[usize]) -> Self {
        self.with(self.layout.permute(order))
    }

    pub fn transpose(&self, a: usize, b: usize) -> Self {
        self.with(self.layout.transpose(a, b))
    }

    pub fn unsqueeze(&self, dim: usize) -> Self {
        self.with(self.layout.unsqueeze(dim))
    }

    /// `len` entries of a dimension from `start` on.
    pub fn slice(&self, dim: usize, start: usize, len: usize) -> Self {
        self.with(self.layout.slice(dim, start, len, 1))
    }

    /// One entry of a dimension, which is removed.
    pub fn select(&self, dim: usize, index: usize) -> Self {
        self.with(self.layout.select(dim, index))
    }

    pub fn expand(&self, shape: &[usize]) -> Result<Self> {
        Ok(self.with(self.layout.expand(shape)?))
    }

    /// The same elements under another shape: the same memory where strides can express it, else a copy. Not for
    /// outputs.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        match self.layout.view(shape) {
            Some(layout) => Ok(self.with(layout)),
            None => {
                let copy = self.uninit(self.shape(), self.dtype)?;
                self.copy_to(&copy)?;
                let layout = Layout::contiguous(shape)?;
                Ok(copy.with(layout))
            }
        }
    }

    // ---- values

    pub fn fill(&self, value: f64) -> Result<()> {
        execute(call::Fill { value: Scalar::Float(value), out: self.view() })
    }

    /// Copies the elements, broadcasting and converting them.
    pub fn copy_to(&self, out: &Array) -> Result<()> {
        let from = self.expand(out.shape())?;
        execute(call::Copy { src: from.view(), out: out.view() })
    }

    /// The elements converted to a dtype: this array itself if it has it, else a contiguous copy.
    pub fn to(&self, dtype: DType) -> Result<Self> {
        if self.dtype == dtype { Ok(self.clone()) } else { Ok(self.copied(dtype)?) }
    }

    /// A contiguous copy.
    pub fn copied(&self, dtype: DType) -> Result<Array<'static>> {
        let out = self.uninit(self.shape(), dtype)?;
        self.copy_to(&out)?;
        Ok(out)
    }

    /// Converted to the compute type.
    pub fn wide(&self) -> Result<Self> {
        self.to(self.dtype.compute())
    }

    /// The bytes of a contiguous array.
    pub fn download(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.numel() * self.dtype.size()];
        self.engine().download(self.storage(), self.layout.offset() * self.dtype.size(), &mut bytes)?;
        Ok(bytes)
    }

    // ---- algebra

    /// A row of the op table, to scratch memory.
    pub fn map(op: Pointwise, args: &[Arg]) -> Result<Array<'static>> {
        let (shape, dtype) = joint(args)?;
        let result = match op.class() {
            Class::Compare | Class::Test => DType::Bool,
            Class::Bits => dtype,
            Class::Num | Class::Real => dtype.compute(),
        };
        let first = args.iter().find_map(|arg| if let Arg::Array(array) = arg { Some(*array) } else { None });
        let Some(first) = first else {
            return Err(crate::Error::value(format!("{}: no array among the inputs", op.name())));
        };
        let out = first.uninit(&shape, result)?;
        apply(op, args, &out)?;
        Ok(out)
    }

    binary! {
        add Add;
        sub Sub;
        mul Mul;
        div Div;
        floor_divide FloorDivide;
        remainder Remainder;
        eq Eq;
        ne Ne;
        lt Lt;
        gt Gt;
        ge Ge;
        le Le;
        or BitwiseOr;
        logaddexp Logaddexp;
    }

    unary! {
        neg Neg;
        square Square;
        rsqrt Rsqrt;
        exp Exp;
        log Log;
        isnan Isnan;
        isfinite Isfinite;
        floor Floor;
        tanh Tanh;
        reciprocal Reciprocal;
    }

    /// `self ? a : b` of a `bool` array, into scratch memory of a dtype.
    pub fn choose<'b>(&'b self, a: impl Into<Arg<'b>>, b: impl Into<Arg<'b>>, dtype: DType) -> Result<Array<'static>> {
        let (a, b) = (a.into(), b.into());
        let out = self.uninit(&joint(&[Arg::Array(self), a, b])?.0, dtype)?;
        choose(self, a, b, &out)?;
        Ok(out)
    }

    /// Reduces some dimensions, which stay with size one.
    pub fn reduce(&self, op: Reduce, dims: &[usize]) -> Result<Array<'static>> {
        let mut shape = Dims::from_slice(self.shape());
        let mut reduced: SmallVec<[bool; 6]> = SmallVec::from_elem(false, shape.len());
        for &dim in dims {
            shape[dim] = 1;
            reduced[dim] = true;
        }
        let dtype = match op {
            Reduce::Any | Reduce::All => DType::Bool,
            Reduce::CountNonzero => DType::I64,
            _ => self.dtype,
        };
        let out = self.uninit(&shape, dtype)?;
        execute(call::Reduce { op, x: self.view(), reduced: call::Marks::from_slice(&reduced), out: out.view() })?;
        Ok(out)
    }

    pub fn sum(&self, dims: &[usize]) -> Result<Array<'static>> {
        self.reduce(Reduce::Sum, dims)
    }

    pub fn mean(&self, dims: &[usize]) -> Result<Array<'static>> {
        self.reduce(Reduce::Mean, dims)
    }
}
