//! Norms written out as pointwise calls and reductions of rows, where they fuse with what is around them.
//!
//! A layer norm's kernel reads its input from memory and writes its result there. Written out, the norm is part of one
//! call `fused_rows` with the residual addition before it and the scale, the shift and the casts after it, and a later
//! reader of its result can compute that again. A norm stays one call where any of its intermediate values would have
//! to be stored, and where its gradients include those of parameters, which its kernel computes on the way.

use super::fuse::{fuse, is_rows, is_step};
use super::{is_fusing, recompute, uses};
use crate::backend::call::{self, Numbers, Operand, Operands};
use crate::backend::{Call, Reduce, RowNorm};
use crate::program::{Program, Slot};
use crate::{DType, Device, Dims, Pointwise, Scalar};
use std::collections::HashSet;
use std::ops::Range;

/// How often the norms that do not fuse are left out before all are.
const ROUNDS: usize = 4;

/// Writes norms out that become part of one call with their neighbours.
pub fn norms(program: &Program) -> Program {
    let on_gpu = program.buffers().iter().any(|b| matches!(b.device, Device::Cuda(_)));
    if !is_fusing() || !on_gpu {
        return program.clone();
    }
    let mut chosen = candidates(program);
    for _ in 0..ROUNDS {
        if chosen.is_empty() {
            break;
        }
        let (out, values) = expanded(program, &chosen);
        let trial = fuse(&recompute(&out));
        let stored: HashSet<usize> = trial.calls().iter().flat_map(|call| uses(call).1).map(|s| s.buffer).collect();
        let failed: Vec<usize> =
            values.into_iter().filter(|(_, own)| own.clone().any(|b| stored.contains(&b))).map(|(at, _)| at).collect();
        if failed.is_empty() {
            return out;
        }
        failed.iter().for_each(|at| _ = chosen.remove(at));
    }
    program.clone()
}

/// The positions of norms that can be written out and have a neighbour to fuse with.
fn candidates(program: &Program) -> HashSet<usize> {
    let count = program.buffers().len();
    let (mut made, mut read, mut stepped) = (vec![false; count], vec![false; count], vec![false; count]);
    for call in program.calls() {
        let (reads, writes) = uses(call);
        for slot in reads {
            read[slot.buffer] = true;
            stepped[slot.buffer] |= is_step(call);
        }
        writes.iter().for_each(|slot| made[slot.buffer] = is_step(call));
    }
    let fits = |(_, call): &(usize, &Call<Slot>)| match call {
        Call::RowNorm(c) => {
            let low_alone = c.low.is_some() && !read[c.y.buffer] && !program.is_result(c.y.buffer);
            let neighbour = made[c.x.buffer] || stepped[c.y.buffer] || low_alone;
            neighbour && Rows::new(&c.spec, &c.x).is_some()
        }
        Call::RowNormBackward(c) => {
            let Some(dx) = c.dx.as_ref().filter(|_| c.dweight.is_none() && c.dbias.is_none()) else { return false };
            let neighbour = made[c.dy.buffer] || stepped[dx.buffer];
            neighbour && [&c.x, &c.dy].into_iter().all(|x| Rows::new(&c.spec, x).is_some())
        }
        _ => false,
    };
    program.calls().iter().enumerate().filter(fits).map(|(at, _)| at).collect()
}

/// The program with the norms at these positions written out, and for each the buffers of its intermediate values.
fn expanded(program: &Program, chosen: &HashSet<usize>) -> (Program, Vec<(usize, Range<usize>)>) {
    let mut out = program.clone();
    let (mut calls, mut values) = (Vec::with_capacity(program.calls().len()), Vec::new());
    for (at, call) in program.calls().iter().enumerate() {
        let first = out.buffers().len();
        let written = match call {
            _ if !chosen.contains(&at) => None,
            Call::RowNorm(c) => Writer::new(&mut out, &c.spec, &c.x).and_then(|mut w| w.forward(c)),
            Call::RowNormBackward(c) => Writer::new(&mut out, &c.spec, &c.x).and_then(|mut w| w.backward(c)),
            _ => None,
        };
        match written {
            Some(written) => {
                values.push((at, first..out.buffers().len()));
                calls.extend(written);
            }
            // An RMS norm that is written out has no mean, and its gradients read none.
            None => calls.push(match call {
                Call::RowNormBackward(c) if c.spec.rms => {
                    call::RowNormBackward { mean: c.rstd.clone(), ..c.clone() }.into()
                }
                other => other.clone(),
            }),
        }
    }
    (out.with_calls(calls), values)
}

/// The rows of a norm as the last dimensions of its input.
struct Rows {
    shape: Dims,
    /// The first dimension of a row.
    first: usize,
}

impl Rows {
    /// `None` if a fused kernel has no such rows.
    fn new(spec: &RowNorm, x: &Slot) -> Option<Self> {
        let shape = Dims::from_slice(x.layout.shape());
        let mut columns = 1;
        let first = (0..shape.len()).rev().find(|&d| {
            columns *= shape[d];
            columns == spec.cols
        })?;
        (x.dtype.is_float() && x.layout.is_contiguous() && is_rows(spec.rows, spec.cols))
            .then_some(Self { shape, first })
    }
}

/// Writes a norm as calls on new values.
struct Writer<'a> {
    program: &'a mut Program,
    rows: Rows,
    /// The dtype of statistics.
    wide: DType,
    device: Device,
    calls: Vec<Call<Slot>>,
}

impl<'a> Writer<'a> {
    fn new(program: &'a mut Program, spec: &RowNorm, x: &Slot) -> Option<Self> {
        let rows = Rows::new(spec, x)?;
        let device = program.buffers().get(x.buffer)?.device;
        let wide = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        Some(Self { program, rows, wide, device, calls: Vec::new() })
    }

    fn forward(&mut self, c: &call::RowNorm<Slot>) -> Option<Vec<Call<Slot>>> {
        let (x, y) = (self.widened(&c.x)?, self.whole(&c.y)?);
        let rstd = self.per_row(&c.rstd)?;
        let centred = match c.spec.rms {
            true => x,
            false => {
                let mean = self.per_row(&c.mean)?;
                self.mean(&x, &mean);
                self.row(Pointwise::Sub, &x, &self.spread(&mean)?)?
            }
        };
        let squares = self.row(Pointwise::Mul, &centred, &centred)?;
        let variance = self.value_per_row()?;
        self.mean(&squares, &variance);
        let shifted = self.value_per_row()?;
        let eps = Operand::Scalar(Scalar::Float(c.spec.eps));
        self.pointwise(Pointwise::Add, &[Operand::Tensor(variance), eps], shifted.clone());
        self.pointwise(Pointwise::Rsqrt, &[Operand::Tensor(shifted)], rstd.clone());
        let factors: Vec<(Pointwise, Slot)> = [
            Some((Pointwise::Mul, self.spread(&rstd)?)),
            c.weight.as_ref().map(|w| Some((Pointwise::Mul, self.per_column(w)?))).unwrap_or_default(),
            c.bias.as_ref().map(|b| Some((Pointwise::Add, self.per_column(b)?))).unwrap_or_default(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let mut value = centred;
        for (i, (op, factor)) in factors.iter().enumerate() {
            let to = if i + 1 == factors.len() { y.clone() } else { self.value()? };
            self.pointwise(*op, &[value, factor.clone()].map(Operand::Tensor), to.clone());
            value = to;
        }
        self.lowered(&y, c.low.as_ref())
    }

    fn backward(&mut self, c: &call::RowNormBackward<Slot>) -> Option<Vec<Call<Slot>>> {
        let (x, dy, dx) = (self.widened(&c.x)?, self.widened(&c.dy)?, self.whole(c.dx.as_ref()?)?);
        let rstd = self.per_row(&c.rstd)?;
        let rstd = self.spread(&rstd)?;
        let centred = match c.spec.rms {
            true => x,
            false => {
                let mean = self.per_row(&c.mean)?;
                self.row(Pointwise::Sub, &x, &self.spread(&mean)?)?
            }
        };
        let hat = self.row(Pointwise::Mul, &centred, &rstd)?;
        let g = match &c.weight {
            Some(weight) => self.row(Pointwise::Mul, &dy, &self.per_column(weight)?)?,
            None => dy,
        };
        let products = self.row(Pointwise::Mul, &g, &hat)?;
        let along = self.value_per_row()?;
        self.mean(&products, &along);
        let part = self.row(Pointwise::Mul, &hat, &self.spread(&along)?)?;
        let mut rest = self.row(Pointwise::Sub, &g, &part)?;
        if !c.spec.rms {
            let plain = self.value_per_row()?;
            self.mean(&g, &plain);
            rest = self.row(Pointwise::Sub, &rest, &self.spread(&plain)?)?;
        }
        match &c.so_far {
            Some(so_far) => {
                let scaled = self.row(Pointwise::Mul, &rest, &rstd)?;
                let so_far = self.whole(so_far)?;
                self.pointwise(Pointwise::Add, &[scaled, so_far].map(Operand::Tensor), dx.clone());
            }
            None => self.pointwise(Pointwise::Mul, &[rest, rstd].map(Operand::Tensor), dx.clone()),
        }
        self.lowered(&dx, c.low.as_ref())
    }

    /// The calls, with one more for a copy of the result in a lower dtype.
    fn lowered(&mut self, result: &Slot, low: Option<&Slot>) -> Option<Vec<Call<Slot>>> {
        if let Some(low) = low {
            let out = self.whole(low)?;
            self.calls.push(call::Copy { src: result.clone(), out }.into());
        }
        Some(std::mem::take(&mut self.calls))
    }

    fn view(&self, slot: &Slot, shape: &[usize]) -> Option<Slot> {
        Some(Slot { layout: slot.layout.view(shape)?, ..slot.clone() })
    }

    fn whole(&self, slot: &Slot) -> Option<Slot> {
        self.view(slot, &self.rows.shape)
    }

    fn row_shape(&self) -> Dims {
        self.rows.shape.iter().enumerate().map(|(d, &n)| if d < self.rows.first { n } else { 1 }).collect()
    }

    fn per_row(&self, slot: &Slot) -> Option<Slot> {
        self.view(slot, &self.row_shape())
    }

    /// A value per row or per column for every element.
    fn spread(&self, slot: &Slot) -> Option<Slot> {
        Some(Slot { layout: slot.layout.expand(&self.rows.shape).ok()?, ..slot.clone() })
    }

    fn per_column(&self, slot: &Slot) -> Option<Slot> {
        self.spread(&self.view(slot, &self.rows.shape[self.rows.first..])?)
    }

    /// A new value of this shape.
    fn made(&mut self, shape: &[usize]) -> Option<Slot> {
        let layout = crate::Layout::contiguous(shape).ok()?;
        let buffer = self.program.value(self.device, layout.numel() * self.wide.size());
        Some(Slot { buffer, layout, dtype: self.wide })
    }

    fn value(&mut self) -> Option<Slot> {
        let shape = self.rows.shape.clone();
        self.made(&shape)
    }

    fn value_per_row(&mut self) -> Option<Slot> {
        let shape = self.row_shape();
        self.made(&shape)
    }

    /// In the dtype of statistics.
    fn widened(&mut self, slot: &Slot) -> Option<Slot> {
        let src = self.whole(slot)?;
        if src.dtype == self.wide {
            return Some(src);
        }
        let out = self.value()?;
        self.calls.push(call::Copy { src, out: out.clone() }.into());
        Some(out)
    }

    fn mean(&mut self, x: &Slot, out: &Slot) {
        let reduced = (0..self.rows.shape.len()).map(|d| d >= self.rows.first).collect();
        self.calls.push(call::Reduce { op: Reduce::Mean, reduced, x: x.clone(), out: out.clone() }.into());
    }

    fn pointwise(&mut self, op: Pointwise, inputs: &[Operand<Slot>], out: Slot) {
        let none = || Operand::Scalar(Scalar::Int(0));
        let all = [0, 1, 2].map(|i| inputs.get(i).cloned().unwrap_or_else(none));
        let inputs = Operands::first(all, inputs.len());
        self.calls.push(call::Pointwise { op, compute: self.wide, params: Numbers::default(), inputs, out }.into());
    }

    /// A new value of two.
    fn row(&mut self, op: Pointwise, a: &Slot, b: &Slot) -> Option<Slot> {
        let out = self.value()?;
        self.pointwise(op, &[a.clone(), b.clone()].map(Operand::Tensor), out.clone());
        Some(out)
    }
}
