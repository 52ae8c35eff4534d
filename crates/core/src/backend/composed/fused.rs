//! Fused steps, one by one.

use super::execute;
use crate::backend::call::{self, List, Operand, Operands};
use crate::backend::{Call, Reduce, StepArg, StepOp, Storage, View};
use crate::{Layout, Result, Scalar};

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

/// The default body of `fused`. A step whose value is an output is computed in scratch memory as well: later steps may
/// read an input that an output overwrites.
pub fn fused(c: &call::Fused<View>) -> Result<()> {
    let Some(first) = c.outs.first() else { return Ok(()) };
    let engine = first.storage().backend();
    let shape = first.shape();
    let layout = Layout::contiguous(shape)?;
    let numel = layout.numel();
    if numel == 0 {
        return Ok(());
    }
    let mut last = vec![0; c.of.steps.len()];
    for (i, step) in c.of.steps.iter().enumerate() {
        for arg in &step.args {
            if let StepArg::Step(t) = arg {
                last[*t as usize] = i;
            }
        }
    }
    c.of.stores.iter().for_each(|t| last[*t as usize] = c.of.steps.len());
    let mut values: Vec<Option<Storage>> = Vec::with_capacity(c.of.steps.len());
    for (i, step) in c.of.steps.iter().enumerate() {
        let value = engine.alloc(numel * step.out.size())?;
        let out = View::new(&value, &layout, step.out)?;
        let operand = |arg: &StepArg| -> Result<Option<Operand<View>>> {
            Ok(match arg {
                StepArg::Input(x) => c.inputs.get(*x as usize).map(|view| Operand::Tensor(*view)),
                StepArg::Step(t) => match (values.get(*t as usize), c.of.steps.get(*t as usize)) {
                    (Some(Some(value)), Some(of)) => Some(Operand::Tensor(View::new(value, &layout, of.out)?)),
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
        };
        execute(made)?;
        values.push(Some(value));
        for (t, value) in values.iter_mut().enumerate() {
            if last[t] <= i {
                *value = None;
            }
        }
    }
    for (out, t) in c.outs.iter().zip(&c.of.stores) {
        let step = &c.of.steps[*t as usize];
        if let Some(Some(value)) = values.get(*t as usize) {
            execute(call::Copy { src: View::new(value, &layout, step.out)?, out: *out })?;
        }
    }
    Ok(())
}
