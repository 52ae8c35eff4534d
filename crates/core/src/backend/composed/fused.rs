//! Fused steps, one by one.

use super::execute;
use crate::backend::call::{self, List, Operand, Operands};
use crate::backend::{Call, Reduce, StepArg, StepOp, Steps, Storage, View};
use crate::{Dims, Layout, Result, Scalar};

/// The default body of `fused_reduce`: the value, then its sum.
pub fn fused_reduce(c: &call::FusedReduce<View>) -> Result<()> {
    let value = c.of.stores.first().and_then(|t| c.of.steps.get(*t as usize));
    let (Some(first), Some(value)) = (c.inputs.first(), value) else {
        return Err(crate::Error::value("fused_reduce: no inputs, or no value to reduce"));
    };
    let layout = Layout::contiguous(first.shape())?;
    let memory = first.storage().backend().alloc((layout.numel() * value.out.size()).max(1))?;
    let x = View::new(&memory, &layout, value.out)?;
    let mut inputs = List::new();
    for input in &c.inputs {
        inputs.push(*input);
    }
    execute(call::Fused { of: c.of.clone(), inputs, outs: [x].into_iter().collect() })?;
    let op = if c.mean { Reduce::Mean } else { Reduce::Sum };
    execute(call::Reduce { op, reduced: c.reduced.clone(), x, out: c.out })
}

/// The default body of `fused`.
pub fn fused(c: &call::Fused<View>) -> Result<()> {
    match c.outs.first() {
        Some(first) => one_by_one(&c.of, &c.inputs, &c.outs, first.shape(), &[]),
        None => Ok(()),
    }
}

/// The default body of `fused_rows`.
pub fn fused_rows(c: &call::FusedRows<View>) -> Result<()> {
    match c.inputs.first() {
        Some(first) => one_by_one(&c.of, &c.inputs, &c.outs, first.shape(), &c.reduced),
        None => Err(crate::Error::value("fused_rows: no inputs")),
    }
}

/// The layouts of a call's values: one per element, or one per row.
struct Layouts {
    whole: Layout,
    rows: Layout,
    /// A value per row, read once per element.
    expanded: Layout,
    /// Of inputs that have one value per row.
    inputs: Vec<Option<Layout>>,
}

impl Layouts {
    fn new(inputs: &[View], shape: &[usize], reduced: &[bool]) -> Result<Self> {
        let marked = |d: usize| reduced.get(d).copied().unwrap_or(false);
        let row_shape: Dims = shape.iter().enumerate().map(|(d, &n)| if marked(d) { 1 } else { n }).collect();
        let rows = Layout::contiguous(&row_shape)?;
        let narrowed = |x: &View| {
            let one = (0..shape.len()).all(|d| !marked(d) || shape[d] == 1 || x.strides()[d] == 0);
            let is_row = one && !reduced.is_empty();
            is_row.then(|| Layout::strided(&row_shape, x.strides(), x.layout().offset())).transpose()
        };
        Ok(Self {
            whole: Layout::contiguous(shape)?,
            expanded: rows.expand(shape)?,
            rows,
            inputs: inputs.iter().map(narrowed).collect::<Result<_>>()?,
        })
    }
}

/// Runs steps one by one. A step whose value is an output is computed in scratch memory as well: later steps may read
/// an input that an output overwrites.
fn one_by_one(of: &Steps, inputs: &[View], outs: &[View], shape: &[usize], reduced: &[bool]) -> Result<()> {
    let Some(first) = outs.first() else { return Ok(()) };
    let engine = first.storage().backend();
    let layouts = Layouts::new(inputs, shape, reduced)?;
    if layouts.whole.numel() == 0 {
        return Ok(());
    }
    let row_inputs: Vec<bool> = layouts.inputs.iter().map(Option::is_some).collect();
    let per_row = if reduced.is_empty() { vec![false; of.steps.len()] } else { of.per_row(&row_inputs) };
    let mut last = vec![0; of.steps.len()];
    for (i, step) in of.steps.iter().enumerate() {
        for arg in &step.args {
            if let StepArg::Step(t) = arg {
                last[*t as usize] = i;
            }
        }
    }
    of.stores.iter().for_each(|t| last[*t as usize] = of.steps.len());
    let mut values: Vec<Option<Storage>> = Vec::with_capacity(of.steps.len());
    for (i, step) in of.steps.iter().enumerate() {
        let reduces = matches!(step.op, StepOp::Reduced(_));
        let layout = if per_row[i] { &layouts.rows } else { &layouts.whole };
        let value = engine.alloc(layout.numel() * step.out.size())?;
        let out = View::new(&value, layout, step.out)?;
        // A value per row is computed of such values; other steps read those once per element.
        let by_row = per_row[i] && !reduces;
        let operand = |arg: &StepArg| -> Result<Option<Operand<View>>> {
            Ok(match arg {
                StepArg::Input(x) => match (inputs.get(*x as usize), layouts.inputs.get(*x as usize)) {
                    (Some(view), Some(Some(row))) if by_row => Some(Operand::Tensor(view.with_layout(row)?)),
                    (view, _) => view.map(|view| Operand::Tensor(*view)),
                },
                StepArg::Step(t) => match (values.get(*t as usize), of.steps.get(*t as usize)) {
                    (Some(Some(value)), Some(from)) => {
                        let layout = match (per_row[*t as usize], by_row) {
                            (true, true) => &layouts.rows,
                            (true, false) => &layouts.expanded,
                            (false, _) => &layouts.whole,
                        };
                        Some(Operand::Tensor(View::new(value, layout, from.out)?))
                    }
                    _ => None,
                },
                StepArg::Number(number) => Some(Operand::Scalar(*number)),
                StepArg::Unused => None,
            })
        };
        let args = step.args.iter().map(operand).collect::<Result<Vec<_>>>()?;
        let arg = |k: usize| args.get(k).copied().flatten();
        let number = Operand::Scalar(Scalar::Int(0));
        let made: Call<View> = match step.op {
            StepOp::Row(op) => {
                let inputs = Operands::first([0, 1, 2].map(|k| arg(k).unwrap_or(number)), args.len());
                call::Pointwise { op, compute: step.compute, params: step.params, inputs, out }.into()
            }
            StepOp::Derivative(op, wrt) => {
                let values = [0, 1, 2, 3, 4].map(arg);
                let (wrt, params) = (wrt as usize, step.params);
                call::PointwiseGrad { op, wrt, compute: step.compute, params, values, out }.into()
            }
            StepOp::Select => match arg(0) {
                Some(Operand::Tensor(condition)) => {
                    let [a, b] = [1, 2].map(|k| arg(k).unwrap_or(number));
                    call::Select { condition, a, b, out }.into()
                }
                _ => return Err(crate::Error::value("fused: a selection without a condition")),
            },
            StepOp::Copy => match arg(0) {
                Some(Operand::Tensor(src)) => call::Copy { src, out }.into(),
                Some(Operand::Scalar(value)) => call::Fill { value, out }.into(),
                None => return Err(crate::Error::value("fused: a copy of nothing")),
            },
            StepOp::Reduced(op) => match arg(0) {
                Some(Operand::Tensor(x)) => {
                    call::Reduce { op: op.op(), reduced: reduced.iter().copied().collect(), x, out }.into()
                }
                _ => return Err(crate::Error::value("fused: a reduction of nothing")),
            },
        };
        execute(made)?;
        values.push(Some(value));
        for (t, value) in values.iter_mut().enumerate() {
            if last[t] <= i {
                *value = None;
            }
        }
    }
    for (out, t) in outs.iter().zip(&of.stores) {
        let t = *t as usize;
        if let Some(Some(value)) = values.get(t) {
            let layout = match per_row[t] {
                true if out.shape() == layouts.rows.shape() => &layouts.rows,
                true => &layouts.expanded,
                false => &layouts.whole,
            };
            execute(call::Copy { src: View::new(value, layout, of.steps[t].out)?, out: *out })?;
        }
    }
    Ok(())
}
