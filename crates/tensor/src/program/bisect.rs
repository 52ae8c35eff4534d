//! Names the pass, and the call, after which a program computes something else than what was recorded.

use super::{Program, Runner, passes};
use crate::Tensor;
use crate::autograd::{Meta, no_grad};
use rushlight_core::backend::{Call, Storage};
use rushlight_core::{DType, Layout, Philox, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The variable that makes every run of an optimized program compare itself with the recorded one:
/// `RUSHLIGHT_BISECT=1`. Reports go to standard error.
pub const BISECT: &str = "RUSHLIGHT_BISECT";

pub(super) fn is_on() -> bool {
    std::env::var_os(BISECT).is_some_and(|v| v != "0")
}

/// Where the results of a program begin to differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The pass after which they do.
    pub pass: &'static str,
    /// The first call of the program after that pass whose result differs, with its place, if one can be named.
    pub call: Option<(usize, String)>,
    /// The result.
    pub buffer: usize,
    /// The largest distance of an element, relative to the largest element.
    pub error: f64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pass, call, buffer, error } = self;
        write!(f, "after the pass `{pass}` the result %{buffer} is off by {error:.1e}")?;
        match call {
            Some((at, name)) => write!(f, "; the first call that differs is number {at}, {name}"),
            None => Ok(()),
        }
    }
}

/// A run of a program to be repeated on the same memory.
pub struct Run<'a> {
    pub bound: &'a [(usize, Arc<Storage>)],
    /// Where the calls' random streams began, and where they begin now.
    pub streams: Option<(Philox, Philox)>,
}

/// The values of buffers, by number.
type Values = BTreeMap<usize, Vec<f64>>;

/// The dtype that each buffer is last written in, and how often it is written.
fn written(program: &Program) -> BTreeMap<usize, (DType, usize)> {
    let mut found = BTreeMap::new();
    for slot in program.calls().iter().flat_map(Call::outputs) {
        let entry = found.entry(slot.buffer).or_insert((slot.dtype, 0));
        *entry = (slot.dtype, entry.1 + 1);
    }
    found
}

/// Bytes as a vector of a dtype.
fn tensor(storage: &Arc<Storage>, dtype: DType) -> Result<Tensor> {
    let layout = Layout::contiguous(&[storage.bytes() / dtype.size()])?;
    Ok(Tensor::from_parts(storage.clone(), layout, dtype, Meta::default()))
}

impl Run<'_> {
    /// Everything that a program writes, run on copies.
    fn values(&self, program: &Program) -> Result<Values> {
        let copy = |(b, s): &(usize, Arc<Storage>)| {
            let copied = no_grad(|| tensor(s, DType::U8)?.copy())?;
            Ok((*b, copied.storage().clone()))
        };
        let bound = self.bound.iter().map(copy).collect::<Result<Vec<_>>>()?;
        let written = written(program);
        let own: Vec<usize> = written.keys().copied().filter(|b| !program.buffers()[*b].outside).collect();
        let mut runner = Runner::new(program.clone())?;
        if let Some((start, _)) = self.streams {
            runner = runner.random_from(start);
        }
        let memory = runner.run_at(&bound, &own, self.streams.map(|s| s.1))?;
        let outside = bound.into_iter().filter(|(b, _)| written.contains_key(b));
        own.into_iter().zip(memory).chain(outside).map(|(b, s)| Ok((b, tensor(&s, written[&b].0)?.to_vec()?))).collect()
    }
}

/// How far a value may be off, relative to the largest element: a few roundings of its dtype.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-11,
        DType::F32 => 1e-4,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 0.0,
    }
}

/// The largest distance of two values, relative to the largest element.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let scale = b.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs())).max(1e-30);
    let off = |(a, b): (&f64, &f64)| match a == b || a.is_nan() && b.is_nan() {
        true => 0.0,
        false if a.is_finite() && b.is_finite() => (a - b).abs() / scale,
        false => f64::INFINITY,
    };
    if a.len() != b.len() { f64::INFINITY } else { a.iter().zip(b).map(off).fold(0.0, f64::max) }
}

/// Runs a program as it is and after each of some passes, all on copies of the same memory. `None` if all agree.
pub fn bisect(program: &Program, run: &Run, all: &[passes::Pass]) -> Result<Option<Difference>> {
    let recorded = run.values(program)?;
    let mut current = program.clone();
    for (pass, apply) in all {
        current = apply(&current);
        let (values, dtypes) = (run.values(&current)?, written(&current));
        let off = |b: &usize| {
            let error = distance(&values[b], recorded.get(b)?);
            (error > tolerance(dtypes[b].0)).then_some(error)
        };
        let results = values.keys().filter(|b| current.is_result(**b));
        let Some((buffer, error)) = results.filter_map(|b| Some((*b, off(b)?))).next() else { continue };
        // A buffer that is written once has one value in both programs.
        let once = |b: &usize| dtypes[b].1 == 1 && off(b).is_some();
        let call = current.calls().iter().position(|call| call.outputs().iter().any(|slot| once(&slot.buffer)));
        let call = call.map(|at| (at, name(&current.calls()[at])));
        return Ok(Some(Difference { pass, call, buffer, error }));
    }
    Ok(None)
}

/// A call's name, with the steps of a fused one.
fn name<V>(call: &Call<V>) -> String {
    match call {
        Call::Fused(c) => format!("fused ({})", c.of.names()),
        Call::FusedReduce(c) => format!("fused_reduce ({})", c.of.names()),
        Call::FusedRows(c) => format!("fused_rows ({})", c.of.names()),
        _ => call.op_name().into_owned(),
    }
}
