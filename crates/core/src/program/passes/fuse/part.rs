//! Calls in the form of steps.

use crate::backend::call::{self, Numbers, Operand};
use crate::backend::{Call, RowReduce, StepOp};
use crate::program::Slot;
use crate::rows::Class;
use crate::{DType, Dims, Layout, Scalar};
use smallvec::SmallVec;

/// Lengths of rows whose reduction is a step, and the fewest of them: a group of threads keeps a row in registers. A
/// few short rows cost one group no more than a reduction by itself.
const COLUMNS: std::ops::RangeInclusive<usize> = 8..=8192;
const ROWS: usize = 32;
const SHORT: usize = 4096;

/// An argument before it is known where its value comes from.
pub enum Arg {
    Tensor(Slot),
    Number(Scalar),
    Unused,
}

/// A pointwise call in the form of a step.
pub struct Part {
    pub op: StepOp,
    pub compute: Option<DType>,
    pub args: SmallVec<[Arg; 3]>,
    pub params: Numbers,
    pub out: Slot,
}

fn argument(operand: &Operand<Slot>) -> Arg {
    match operand {
        Operand::Tensor(slot) => Arg::Tensor(slot.clone()),
        Operand::Scalar(number) => Arg::Number(*number),
    }
}

impl Part {
    /// Rows of integers are fused on GPUs only.
    pub fn new(call: &Call<Slot>, gpu: bool) -> Option<Self> {
        let real = |dtype: DType| matches!(dtype, DType::F32 | DType::F64);
        let suits = |c: &call::Pointwise<Slot>| match real(c.compute) {
            true => c.op.class() != Class::Bits,
            false => gpu && !c.compute.is_float() && is_known(c.compute),
        };
        let part = match call {
            Call::Pointwise(c) if suits(c) => Self {
                op: StepOp::Row(c.op),
                compute: Some(c.compute),
                args: c.inputs.iter().map(argument).collect(),
                params: c.params,
                out: c.out.clone(),
            },
            Call::PointwiseGrad(c) if real(c.compute) => Self {
                op: StepOp::Derivative(c.op, c.wrt as u8),
                compute: Some(c.compute),
                args: c.values.iter().map(|v| v.as_ref().map_or(Arg::Unused, argument)).collect(),
                params: c.params,
                out: c.out.clone(),
            },
            Call::Select(c) => Self {
                op: StepOp::Select,
                compute: None,
                args: SmallVec::from_iter([Arg::Tensor(c.condition.clone()), argument(&c.a), argument(&c.b)]),
                params: Numbers::default(),
                out: c.out.clone(),
            },
            Call::Copy(c) if in_one_order(&c.src.layout, &c.out.layout) => Self {
                op: StepOp::Copy,
                compute: None,
                args: SmallVec::from_iter([Arg::Tensor(c.src.clone())]),
                params: Numbers::default(),
                out: c.out.clone(),
            },
            _ => return None,
        };
        let known = part.tensors().chain([&part.out]).all(|slot| is_known(slot.dtype));
        (known && part.out.layout.numel() > 0).then_some(part)
    }

    /// A reduction of rows of a suitable length, which lie side by side in memory.
    pub fn reduced(c: &call::Reduce<Slot>) -> Option<Self> {
        let op = RowReduce::of(c.op)?;
        let float = matches!(c.x.dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
        let suits = float || c.x.dtype == DType::I64 && op == RowReduce::Sum;
        let layout = &c.x.layout;
        let first = first_of_row(layout.shape(), &c.reduced)?;
        let columns: usize = layout.shape()[first..].iter().product();
        let rows = layout.numel() / columns.max(1);
        let next = real_strides(layout).last() == Some(&1);
        if !suits || c.out.dtype != c.x.dtype || !is_rows(rows, columns) || !next {
            return None;
        }
        Some(Self {
            op: StepOp::Reduced(op),
            compute: None,
            args: SmallVec::from_iter([Arg::Tensor(c.x.clone())]),
            params: Numbers::default(),
            out: c.out.clone(),
        })
    }

    fn tensors(&self) -> impl Iterator<Item = &Slot> {
        self.args.iter().filter_map(|arg| match arg {
            Arg::Tensor(slot) => Some(slot),
            _ => None,
        })
    }

    /// The same over views of another shape.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let view = |slot: &Slot| Some(Slot { layout: slot.layout.view(shape)?, ..slot.clone() });
        let mut args = SmallVec::new();
        for arg in &self.args {
            args.push(match arg {
                Arg::Tensor(slot) => Arg::Tensor(view(slot)?),
                Arg::Number(number) => Arg::Number(*number),
                Arg::Unused => Arg::Unused,
            });
        }
        Some(Self { op: self.op, compute: self.compute, args, params: self.params, out: view(&self.out)? })
    }
}

/// Dtypes that every engine has kernels for.
fn is_known(dtype: DType) -> bool {
    use DType::*;
    matches!(dtype, F32 | F64 | F16 | BF16 | I64 | I32 | I16 | I8 | U8 | Bool)
}

/// Whether a walk in the memory order of `out` walks `src` forward, too. Other copies are transpositions, which engines
/// do in tiles.
fn in_one_order(src: &Layout, out: &Layout) -> bool {
    let mut dims: Dims = (0..out.rank()).filter(|&d| out.shape()[d] > 1).collect();
    dims.sort_by_key(|&d| std::cmp::Reverse(out.strides()[d]));
    let strides: Dims = dims.iter().map(|&d| src.strides()[d]).filter(|&s| s > 0).collect();
    strides.is_sorted_by(|a, b| a >= b)
}

/// Whether a fused kernel reduces so many rows of this length.
pub fn is_rows(rows: usize, columns: usize) -> bool {
    (rows >= ROWS || columns <= SHORT) && COLUMNS.contains(&columns)
}

/// Strides of the dimensions that have more than one element.
pub fn real_strides(layout: &Layout) -> Dims {
    (0..layout.rank()).filter(|&d| layout.shape()[d] > 1).map(|d| layout.strides()[d]).collect()
}

/// The first dimension of a row, if the marked dimensions are the last ones (but for those of one element).
pub fn first_of_row(shape: &[usize], reduced: &[bool]) -> Option<usize> {
    let first = (0..shape.len()).find(|&d| reduced[d] && shape[d] > 1)?;
    (first..shape.len()).all(|d| reduced[d] || shape[d] == 1).then_some(first)
}

/// Whether two layouts are the same elements in the same order.
pub fn same_elements(a: &Layout, b: &Layout) -> bool {
    a.shape() == b.shape() && a.offset() == b.offset() && real_strides(a) == real_strides(b)
}
