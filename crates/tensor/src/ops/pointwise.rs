//! Pointwise ops: rows of the op table, broadcast, promoted and recorded.

use super::carried;
use super::memory_order::in_memory_order;
use crate::Tensor;
use crate::announce::{self, announced};
use crate::arg::{Arg, default_dtype, result_type};
use crate::autograd::{Grads, Saved, mode, record, recording};
use crate::expr::{self, Value};
use rushlight_core::backend::{Operand, View, call};
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::rows::{Class, Trace};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Error, Layout, Pointwise, Result, Scalar};
use std::sync::LazyLock;

/// The values that each row's derivatives read, computed once.
static READS: LazyLock<Vec<[Trace; 3]>> =
    LazyLock::new(|| Pointwise::ALL.iter().map(|op| std::array::from_fn(|i| op.grad_reads(i))).collect());

/// The first tensor among the operands, and whether all others have its shape. Checks devices.
fn survey<'a>(name: &str, args: &[Arg<'a>]) -> Result<(&'a Tensor, bool)> {
    let mut first: Option<&Tensor> = None;
    let mut alike = true;
    for arg in args {
        let Arg::Tensor(t) = arg else { continue };
        match first {
            None => first = Some(t),
            Some(first) => {
                first.same_device(t, name)?;
                alike &= first.shape() == t.shape();
            }
        }
    }
    let first = first.ok_or_else(|| Error::value(format!("{name}: at least one operand must be a tensor")))?;
    Ok((first, alike))
}

/// Where operands live on different devices, tensors of the CPU without dimensions count as numbers: they are brought
/// to the others. `refusal` if there are none.
#[cold]
fn brought_together(args: &[Arg], refusal: Error) -> Result<SmallVec<[Option<Tensor>; 3]>> {
    let Some(target) = args.iter().filter_map(|a| a.tensor()).map(Tensor::device).find(|d| !d.is_cpu()) else {
        return Err(refusal);
    };
    let number = |t: &&Tensor| t.rank() == 0 && t.device().is_cpu();
    let moved = args.iter().map(|a| a.tensor().filter(number).map(|t| t.to(target)).transpose());
    let moved: SmallVec<[Option<Tensor>; 3]> = moved.collect::<Result<_>>()?;
    if moved.iter().any(Option::is_some) { Ok(moved) } else { Err(refusal) }
}

/// The operands with those that were moved in their places.
fn with_moved<'a>(args: &[Arg<'a>], moved: &'a [Option<Tensor>]) -> SmallVec<[Arg<'a>; 3]> {
    args.iter().zip(moved).map(|(a, m)| m.as_ref().map_or(*a, Arg::Tensor)).collect()
}

/// The shape the operands broadcast to.
fn common_shape(name: &str, args: &[Arg]) -> Result<Dims> {
    let mut shape = Dims::new();
    for t in args.iter().filter_map(|a| a.tensor()) {
        shape = broadcast_shapes(&shape, t.shape()).map_err(|e| e.within(name))?;
    }
    Ok(shape)
}

/// The dtypes an op computes in and gives for operands that combine in `common`.
fn dtypes(op: Pointwise, common: DType) -> Result<(DType, DType)> {
    Ok(match op.class() {
        Class::Num => (common.compute(), common),
        Class::Compare => (common.compute(), DType::Bool),
        Class::Real if common.is_float() => (common.compute(), common),
        Class::Real => (default_dtype().compute(), default_dtype()),
        Class::Test if common.is_float() => (common.compute(), DType::Bool),
        Class::Test => (DType::F32, DType::Bool),
        Class::Bits if common.is_float() => {
            return Err(Error::dtype(format!(
                "{}: not implemented for {common}; it takes integers and bool",
                op.name()
            )));
        }
        Class::Bits => (common.compute(), common),
    })
}

/// Layouts of the operands stretched to the output's shape.
fn stretch(args: &[Arg], shape: &[usize]) -> Result<SmallVec<[Option<Layout>; 3]>> {
    args.iter()
        .map(|a| match a {
            Arg::Tensor(t) if t.shape() != shape => t.layout().expand(shape).map(Some),
            _ => Ok(None),
        })
        .collect()
}

fn operands<'a>(args: &'a [Arg<'a>], stretched: &'a [Option<Layout>]) -> SmallVec<[Operand<'a>; 3]> {
    args.iter()
        .zip(stretched)
        .map(|(a, layout)| match (a, layout) {
            (Arg::Tensor(t), None) => Operand::Tensor(t.engine_view()),
            (Arg::Tensor(t), Some(layout)) => Operand::Tensor(t.view_as(layout)),
            (Arg::Scalar(s), _) => Operand::Scalar(*s),
        })
        .collect()
}

/// The layout of a result of operands that are not all row-major.
fn result_layout(args: &[Arg], stretched: &[Option<Layout>], shape: &[usize]) -> Layout {
    let of = |(a, layout): (&'_ Arg<'_>, &'_ Option<Layout>)| match (a, layout) {
        (Arg::Tensor(_), Some(layout)) => Some(layout.clone()),
        (Arg::Tensor(t), None) => Some(t.layout().clone()),
        (Arg::Scalar(_), _) => None,
    };
    let layouts: SmallVec<[Layout; 3]> = args.iter().zip(stretched).filter_map(of).collect();
    preserving(shape, &layouts.iter().collect::<SmallVec<[&Layout; 3]>>())
}

/// The layout of a pointwise result: the operands' own if they have the same.
fn preserving(shape: &[usize], layouts: &[&Layout]) -> Layout {
    match layouts {
        [first, rest @ ..] if rest.iter().all(|l| l.strides() == first.strides()) && first.is_dense() => {
            first.preserved()
        }
        _ => Layout::of_pointwise(shape, layouts),
    }
}

/// Runs a row with the dimensions in the order of the output's memory.
fn run_over(op: Pointwise, compute: DType, inputs: &[Operand], params: &[f64], out: &Tensor) -> Result<()> {
    if out.is_contiguous() {
        return out.run(row_call(op, compute, inputs, params, out.engine_view()));
    }
    let mut padded = [None; 5];
    padded.iter_mut().zip(inputs).for_each(|(slot, input)| *slot = Some(*input));
    in_memory_order(padded, out.engine_view(), |permuted, view| {
        let inputs: SmallVec<[Operand; 3]> = permuted.into_iter().flatten().collect();
        out.run(row_call(op, compute, &inputs, params, view))
    })
}

/// The call of a row.
#[inline]
fn row_call<'a>(
    op: Pointwise,
    compute: DType,
    inputs: &[Operand<'a>],
    params: &[f64],
    out: View<'a>,
) -> call::Pointwise<View<'a>> {
    call::Pointwise { op, compute, params: params.into(), inputs: inputs.into(), out }
}

#[inline]
fn tensors<'a>(args: &[Arg<'a>]) -> SmallVec<[&'a Tensor; 3]> {
    let mut found = SmallVec::new();
    for arg in args {
        if let Arg::Tensor(t) = arg {
            found.push(*t);
        }
    }
    found
}

fn requires_grad(arg: &Arg) -> bool {
    matches!(arg, Arg::Tensor(t) if t.requires_grad())
}

/// The first operand and its number of elements, if all operands are numbers that do not change its dtype or tensors of
/// its engine, dtype, shape and strides, which are row-major. Nearly every op on small tensors has such operands, so
/// they are looked at once.
#[inline]
fn uniform<'a>(args: &[Arg<'a>]) -> Option<(&'a Tensor, usize)> {
    let [Arg::Tensor(first), rest @ ..] = args else { return None };
    let (shape, strides) = (first.shape(), first.strides());
    let mut count = 1;
    for d in (0..shape.len().min(strides.len())).rev() {
        if strides[d] != count || shape[d] == 0 {
            return None;
        }
        count *= shape[d];
    }
    for arg in rest {
        match arg {
            Arg::Tensor(t) => {
                let (sizes, steps) = (t.shape(), t.strides());
                if t.dtype() != first.dtype()
                    || !std::ptr::addr_eq(t.backend(), first.backend())
                    || sizes.len() != shape.len()
                    || steps.len() != shape.len()
                {
                    return None;
                }
                for d in 0..shape.len() {
                    if sizes[d] != shape[d] || steps[d] != strides[d] {
                        return None;
                    }
                }
            }
            Arg::Scalar(Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_)) if first.dtype().is_float() => {}
            Arg::Scalar(_) => return None,
        }
    }
    Some((first, count))
}

/// An operand of a row, by its place. Places are constants where this is called, so that the call is built in registers
/// and written once.
#[inline(always)]
fn operand<'a>(args: &[Arg<'a>], at: usize) -> Operand<'a> {
    match args.get(at) {
        Some(Arg::Tensor(t)) => Operand::Tensor(t.engine_view()),
        Some(Arg::Scalar(s)) => Operand::Scalar(*s),
        None => Operand::default(),
    }
}

/// A row over operands of the output's shape.
#[inline(always)]
fn run_alike(op: Pointwise, compute: DType, args: &[Arg], params: &[f64], out: &Tensor) -> Result<()> {
    let number = |at: usize| params.get(at).copied().unwrap_or_default();
    out.run(call::Pointwise {
        op,
        compute,
        params: call::Numbers::first([number(0), number(1), number(2), number(3)], params.len()),
        inputs: call::Operands::first([operand(args, 0), operand(args, 1), operand(args, 2)], args.len()),
        out: out.engine_view(),
    })
}

/// Records a row that was run.
#[inline]
fn record_row(op: Pointwise, args: &[Arg], params: &[f64], compute: DType, out: &Tensor) -> Result<()> {
    if out.dtype().is_differentiable() && mode::is_grad_enabled() && args.iter().any(requires_grad) {
        let inputs = tensors(args);
        let backward = Backward::new(op, args, params, compute, |i| Ok(Saved::input(inputs[i])), Some(out))?;
        record(op.name(), &inputs, out, move |ctx, dy| backward.run(ctx, dy))?;
    }
    Ok(())
}

/// Runs a row and records it.
pub(crate) fn pointwise(op: Pointwise, args: &[Arg], params: &[f64]) -> Result<Tensor> {
    if announce::is_on() {
        return announce::op(announce::row(op, args, params), || pointwise(op, args, params));
    }
    if let Some((first, count)) = uniform(args)
        && !first.dtype().is_carried()
        && let Ok((compute, dtype)) = dtypes(op, first.dtype())
    {
        let out = first.uninit_alike(count, dtype)?;
        run_alike(op, compute, args, params, &out)?;
        record_row(op, args, params, compute, &out)?;
        return Ok(out);
    }
    if carried::involved(args) {
        return carried::row(op, args, params);
    }
    match dtypes(op, result_type(args)) {
        Ok((compute, dtype)) => pointwise_as(op, args, params, compute, dtype),
        // A shape mismatch is reported first.
        Err(refusal) => common_shape(op.name(), args).and(Err(refusal)),
    }
}

/// [`pointwise`] with the dtypes decided by the caller.
pub(crate) fn pointwise_as(
    op: Pointwise,
    args: &[Arg],
    params: &[f64],
    compute: DType,
    dtype: DType,
) -> Result<Tensor> {
    if announce::is_on() {
        return announce::op(announce::row(op, args, params), || pointwise_as(op, args, params, compute, dtype));
    }
    let (first, alike) = match survey(op.name(), args) {
        Ok(found) => found,
        Err(refusal) => {
            let moved = brought_together(args, refusal)?;
            return pointwise_as(op, &with_moved(args, &moved), params, compute, dtype);
        }
    };
    let row_major = args.iter().all(|a| !matches!(a, Arg::Tensor(t) if !t.is_contiguous()));
    let out = if alike && row_major {
        let out = first.uninit_like(first.shape(), dtype)?;
        if out.numel() > 0 {
            run_alike(op, compute, args, params, &out)?;
        }
        out
    } else {
        let shape = common_shape(op.name(), args)?;
        let stretched = stretch(args, &shape)?;
        let out = if row_major {
            first.uninit_like(&shape, dtype)?
        } else {
            first.uninit_in(result_layout(args, &stretched, &shape), dtype)?
        };
        if out.numel() > 0 {
            run_over(op, compute, &operands(args, &stretched), params, &out)?;
        }
        out
    };
    record_row(op, args, params, compute, &out)?;
    Ok(out)
}

fn same_shape(name: &str, x: &Tensor, shape: &[usize]) -> Result<()> {
    if *shape == *x.shape() {
        return Ok(());
    }
    Err(Error::shape(format!(
        "{name}_: output with shape {:?} doesn't match the broadcast shape {shape:?}; an in-place op cannot grow its tensor",
        x.shape(),
    )))
}

/// Runs a row over the elements of `x`, its first operand, and records it.
pub(crate) fn pointwise_inplace(op: Pointwise, x: &Tensor, others: &[Arg], params: &[f64]) -> Result<()> {
    let name = op.name();
    let mut args: SmallVec<[Arg; 3]> = smallvec![Arg::Tensor(x)];
    args.extend_from_slice(others);
    if announce::is_on() {
        let row = announce::row(op, &args, params);
        let told = announce::Op { target: Some(x.clone()), ..row };
        return announce::op(told, || pointwise_inplace(op, x, others, params));
    }
    if carried::involved(&args) {
        return carried::row_inplace(op, x, others, params);
    }
    let common = result_type(&args);
    // A bitwise op returns the operands' common dtype; the check that it is not a float follows.
    let (compute, dtype) = match op.class() {
        Class::Bits if common.category() > x.dtype().category() => (common, common),
        _ => match dtypes(op, common) {
            Ok(found) => found,
            Err(refusal) => {
                x.check_inplace(name, &tensors(&args))?;
                let shape = common_shape(name, &args)?;
                return same_shape(name, x, &shape).and(Err(refusal));
            }
        },
    };
    if dtype.category() > x.dtype().category() {
        return Err(Error::dtype(format!(
            "{name}_: result type {dtype} can't be cast to the tensor's own type {}; use {name} without the underscore",
            x.dtype()
        )));
    }
    if let Err(refusal) = survey(name, &args) {
        if x.device().is_cpu() {
            return Err(refusal);
        }
        let moved = brought_together(&args, refusal)?;
        return pointwise_inplace(op, x, &with_moved(&args, &moved)[1..], params);
    }
    let shape = common_shape(name, &args)?;
    same_shape(name, x, &shape)?;
    let inputs = tensors(&args);
    x.check_inplace(name, &inputs)?;
    x.check_overlap(name, &inputs)?;
    let record = x.dtype().is_differentiable() && recording(&inputs);
    // Taken before the change: the old value's edge and the values that the derivatives read.
    let edges = if record { crate::autograd::edges(&inputs)? } else { SmallVec::new() };
    let backward = if record {
        let save = |i: usize| if i == 0 { Saved::overwritten(x) } else { Ok(Saved::input(inputs[i])) };
        Some(Backward::new(op, &args, params, compute, save, None)?)
    } else {
        None
    };
    if x.numel() > 0 {
        // An operand that overlaps the output other than exactly is read from a copy.
        let copies = args
            .iter()
            .map(|a| match a.tensor() {
                Some(t) if t.shares_storage(x) && t.layout() != x.layout() => t.detach().copy().map(Some),
                _ => Ok(None),
            })
            .collect::<Result<SmallVec<[_; 3]>>>()?;
        let safe: SmallVec<[Arg; 3]> =
            args.iter().zip(&copies).map(|(a, copy)| copy.as_ref().map_or(*a, Arg::Tensor)).collect();
        let stretched = stretch(&safe, &shape)?;
        x.run(row_call(op, compute, &operands(&safe, &stretched), params, x.engine_view()))?;
    }
    match backward {
        None => x.changed_unrecorded(),
        Some(mut backward) => {
            x.count_change();
            backward.save_output(x);
            x.new_history(
                name,
                edges,
                Box::new(move |ctx, grads| match grads.into_iter().next().flatten() {
                    Some(dy) => backward.run(ctx, &dy),
                    None => Ok(Grads::new()),
                }),
            );
        }
    }
    Ok(())
}

/// Everything a row's backward needs.
struct Backward {
    op: Pointwise,
    params: SmallVec<[f64; 2]>,
    compute: DType,
    /// Inputs in row order.
    inputs: SmallVec<[Input; 2]>,
    output: Option<Saved>,
    wants_output: bool,
}

struct Input {
    dtype: DType,
    /// The shape to sum a gradient down to, where broadcasting changed it.
    shape: Option<Box<Dims>>,
    kept: Kept,
}

enum Kept {
    Nothing,
    Tensor(Saved),
    Number(Scalar),
}

impl Backward {
    fn new(
        op: Pointwise,
        args: &[Arg],
        params: &[f64],
        compute: DType,
        save: impl Fn(usize) -> Result<Saved>,
        out: Option<&Tensor>,
    ) -> Result<Self> {
        let reads = &READS[op as usize];
        // All that any wanted derivative reads. Loops, not collected iterators: every small op passes here.
        let mut mask = 0;
        for (arg, read) in args.iter().zip(reads) {
            if requires_grad(arg) {
                mask |= read.mask;
            }
        }
        let full = match (out, args.first()) {
            (Some(out), _) => Some(out.shape()),
            (None, Some(Arg::Tensor(first))) => Some(first.shape()),
            _ => None,
        };
        let mut inputs = SmallVec::new();
        let mut tensor = 0;
        for (i, arg) in args.iter().enumerate() {
            inputs.push(match arg {
                Arg::Scalar(s) => Input { dtype: compute, shape: None, kept: Kept::Number(*s) },
                Arg::Tensor(t) => {
                    let kept = if mask & (2 << i) != 0 { Kept::Tensor(save(tensor)?) } else { Kept::Nothing };
                    tensor += 1;
                    let grown = full.is_some_and(|full| t.shape() != full);
                    let shape = grown.then(|| Box::new(Dims::from_slice(t.shape())));
                    Input { dtype: t.dtype(), shape, kept }
                }
            });
        }
        let wants_output = mask & 16 != 0;
        let output = out.filter(|_| wants_output).map(|o| Saved::output(o, 0));
        Ok(Self { op, params: SmallVec::from_slice(params), compute, inputs, output, wants_output })
    }

    /// For in-place ops, whose output exists only after the change.
    fn save_output(&mut self, out: &Tensor) {
        if self.wants_output {
            self.output = Some(Saved::output(out, 0));
        }
    }

    fn run(&self, ctx: &crate::autograd::Ctx, dy: &Tensor) -> Result<Grads> {
        let reads = &READS[self.op as usize];
        let mut out = Grads::new();
        let mut edge = 0;
        for (i, input) in self.inputs.iter().enumerate() {
            if matches!(input.kept, Kept::Number(_)) {
                continue;
            }
            let needed = ctx.needs(edge);
            edge += 1;
            if !needed {
                out.push(None);
                continue;
            }
            let grad = if reads[i].mask == 1 && reads[i].untouched || self.is_taken_as_mask(ctx, dy)? {
                dy.clone()
            } else if ctx.recording() {
                self.derive(ctx, i, dy, reads[i])?
            } else {
                self.kernel(ctx, i, dy, reads[i])?
            };
            let grad = match &input.shape {
                Some(shape) => grad.sum_to_size(shape)?,
                None => grad,
            };
            out.push(Some(if grad.dtype() == input.dtype { grad } else { grad.to_dtype(input.dtype)? }));
        }
        Ok(out)
    }

    /// Whether this is a ReLU of an op that applies the mask to the gradient itself.
    fn is_taken_as_mask(&self, ctx: &crate::autograd::Ctx, dy: &Tensor) -> Result<bool> {
        let (Pointwise::Relu, Some(output), [input]) = (self.op, &self.output, &self.inputs[..]) else {
            return Ok(false);
        };
        Ok(!ctx.recording()
            && input.dtype == dy.dtype()
            && input.shape.is_none()
            && ctx.offer_mask(0, &ctx.get(output)?))
    }

    /// The derivative's own kernel: one pass.
    fn kernel(&self, ctx: &crate::autograd::Ctx, wrt: usize, dy: &Tensor, reads: Trace) -> Result<Tensor> {
        let mut held: SmallVec<[(usize, Tensor); 4]> = SmallVec::new();
        let mut values: [Option<Operand>; 5] = [None; 5];
        for (i, input) in self.inputs.iter().enumerate() {
            match &input.kept {
                Kept::Tensor(saved) if reads.mask & (2 << i) != 0 => held.push((i + 1, ctx.get(saved)?)),
                Kept::Number(s) => values[i + 1] = Some(Operand::Scalar(*s)),
                _ => {}
            }
        }
        if reads.mask & 16 != 0
            && let Some(saved) = &self.output
        {
            held.push((4, ctx.get(saved)?));
        }
        let compute = if self.compute == DType::F64 { DType::F64 } else { DType::F32 };
        let row_major = dy.is_contiguous() && held.iter().all(|(_, t)| t.is_contiguous());
        if row_major && held.iter().all(|(_, t)| t.shape() == dy.shape()) {
            let out = dy.uninit_like(dy.shape(), dy.dtype())?;
            if out.numel() > 0 {
                values[0] = Some(Operand::Tensor(dy.engine_view()));
                for (slot, t) in &held {
                    values[*slot] = Some(Operand::Tensor(t.engine_view()));
                }
                let (op, params, view) = (self.op, self.params[..].into(), out.engine_view());
                out.run(call::PointwiseGrad { op, wrt, compute, values, params, out: view })?;
            }
            return Ok(out);
        }
        let stretched = |t: &Tensor| (t.shape() != dy.shape()).then(|| t.layout().expand(dy.shape())).transpose();
        let layouts = held.iter().map(|(_, t)| stretched(t)).collect::<Result<SmallVec<[Option<Layout>; 4]>>>()?;
        let out = if row_major {
            dy.uninit_like(dy.shape(), dy.dtype())?
        } else {
            let mut all: SmallVec<[&Layout; 4]> = smallvec![dy.layout()];
            all.extend(held.iter().zip(&layouts).map(|((_, t), layout)| layout.as_ref().unwrap_or(t.layout())));
            dy.uninit_in(preserving(dy.shape(), &all), dy.dtype())?
        };
        if out.numel() > 0 {
            values[0] = Some(Operand::Tensor(dy.engine_view()));
            for ((slot, t), layout) in held.iter().zip(&layouts) {
                values[*slot] = Some(Operand::Tensor(match layout {
                    Some(layout) => t.view_as(layout),
                    None => t.engine_view(),
                }));
            }
            in_memory_order(values, out.engine_view(), |values, view| {
                let (op, params) = (self.op, self.params[..].into());
                out.run(call::PointwiseGrad { op, wrt, compute, values, params, out: view })
            })?;
        }
        Ok(out)
    }

    /// The derivative as recorded ops, for `create_graph`.
    fn derive(&self, ctx: &crate::autograd::Ctx, wrt: usize, dy: &Tensor, reads: Trace) -> Result<Tensor> {
        let mut values: [Option<Value>; 5] = [Some(Value::Tensor(dy.clone())), None, None, None, None];
        for (i, input) in self.inputs.iter().enumerate() {
            match &input.kept {
                Kept::Tensor(saved) if reads.mask & (2 << i) != 0 => {
                    values[i + 1] = Some(Value::Tensor(ctx.get(saved)?.to_dtype(dy.dtype())?));
                }
                Kept::Number(s) => values[i + 1] = Some(Value::Number(s.to_f64())),
                _ => {}
            }
        }
        if reads.mask & 16 != 0
            && let Some(saved) = &self.output
        {
            values[4] = Some(Value::Tensor(ctx.get(saved)?));
        }
        let out = expr::derivative(self.op, wrt, values, &self.params)?;
        if out.shape() == dy.shape() { Ok(out) } else { out.expand(dy.shape()) }
    }
}

/// `condition ? a : b`, recorded.
pub(crate) fn select(condition: &Tensor, a: Arg, b: Arg) -> Result<Tensor> {
    let name = "where";
    announced!("torch.where", [condition, a, b]; select(condition, a, b));
    if condition.dtype() != DType::Bool {
        return Err(Error::dtype(format!(
            "{name}: expected condition to be a bool tensor, but got {}",
            condition.dtype()
        )));
    }
    let dtype = result_type(&[a, b]);
    if carried::involved(&[a, b]) && [a, b].iter().any(|side| matches!(side, Arg::Tensor(t) if t.dtype() != dtype)) {
        return carried::with_one_dtype([a, b], |[a, b]| select(condition, a, b));
    }
    let args = [Arg::Tensor(condition), a, b];
    if let Err(refusal) = survey(name, &args) {
        let moved = brought_together(&args, refusal)?;
        return match with_moved(&args, &moved)[..] {
            [Arg::Tensor(condition), a, b] => select(condition, a, b),
            _ => Err(Error::value("where: the condition must be a tensor")),
        };
    }
    let shape = common_shape(name, &args)?;
    let stretched = stretch(&args, &shape)?;
    let out = if args.iter().all(|a| !matches!(a, Arg::Tensor(t) if !t.is_contiguous())) {
        condition.uninit_like(&shape, dtype)?
    } else {
        condition.uninit_in(result_layout(&args, &stretched, &shape), dtype)?
    };
    if out.numel() > 0 {
        let ops = operands(&args, &stretched);
        in_memory_order([Some(ops[0]), Some(ops[1]), Some(ops[2]), None, None], out.engine_view(), |inputs, view| {
            match inputs {
                [Some(Operand::Tensor(condition)), Some(a), Some(b), ..] => {
                    out.run(call::Select { condition, a, b, out: view })
                }
                _ => Err(Error::value("where: the condition must be a tensor")),
            }
        })?;
    }
    let inputs = tensors(&[a, b]);
    if dtype.is_differentiable() && recording(&inputs) {
        let condition = Saved::input(condition);
        let shapes: [Option<(Dims, DType)>; 2] =
            [a, b].map(|x| x.tensor().map(|t| (Dims::from_slice(t.shape()), t.dtype())));
        record(name, &inputs, &out, move |ctx, dy| {
            let condition = ctx.get(&condition)?;
            let mut grads = Grads::new();
            for (i, side) in shapes.iter().enumerate() {
                let Some((shape, dtype)) = side else { continue };
                if !ctx.needs(grads.len()) {
                    grads.push(None);
                    continue;
                }
                let zero = Arg::Scalar(Scalar::Float(0.0));
                let g = if i == 0 {
                    select(&condition, Arg::Tensor(dy), zero)?
                } else {
                    select(&condition, zero, Arg::Tensor(dy))?
                };
                grads.push(Some(g.sum_to_size(shape)?.to_dtype(*dtype)?));
            }
            Ok(grads)
        })?;
    }
    Ok(out)
}
