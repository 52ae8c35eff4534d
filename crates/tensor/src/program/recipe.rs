//! Ops that are composed of many calls, run as programs: on a GPU their pointwise calls become one kernel.

use super::{Noted, Noting, Program, Runner, Slot, is_noting, passes};
use crate::Tensor;
use crate::autograd::{Meta, no_grad};
use rushlight_core::backend::{Call, Storage};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::lock;
use rushlight_core::{Device, Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// Most recipes that are kept.
const KEPT: usize = 512;

/// The op's name, its numbers, and what its inputs look like.
type Key = (&'static str, Device, SmallVec<[usize; 24]>);

/// A recorded op.
struct Recipe {
    runner: Runner,
    /// The buffer of each input that the program reads.
    inputs: Vec<Option<usize>>,
    /// Memory that every run reads.
    constants: Vec<(usize, Arc<Storage>)>,
    result: Slot,
}

/// Recipes; `None` where a function has to run by itself.
static RECIPES: LazyLock<Mutex<HashMap<Key, Option<Arc<Recipe>>>>> = LazyLock::new(Mutex::default);

/// Computes `f` without recording it for autograd. On a GPU its calls are recorded the first time and run as an
/// optimized program, then and later: the first time waits for the compiler, as other ops do. `f` depends on `numbers`
/// and on the inputs' elements, shapes, layouts and dtypes alone, reads no values on the host and draws no random
/// numbers.
pub(crate) fn recipe<const N: usize>(
    name: &'static str,
    numbers: &[i64],
    inputs: [&Tensor; N],
    f: impl FnOnce([&Tensor; N]) -> Result<Tensor>,
) -> Result<Tensor> {
    let mut f = Some(f);
    recipe_of(name, numbers, &inputs, &mut || match f.take() {
        Some(f) => f(inputs),
        None => Err(Error::value("a recipe computes its result once")),
    })
}

/// [`recipe`] without types that differ by op.
fn recipe_of(
    name: &'static str,
    numbers: &[i64],
    inputs: &[&Tensor],
    f: &mut dyn FnMut() -> Result<Tensor>,
) -> Result<Tensor> {
    no_grad(|| {
        let Some(key) = key(name, numbers, inputs) else { return f() };
        let known = lock(&RECIPES).get(&key).cloned();
        match known {
            Some(Some(recipe)) => recipe.run(inputs),
            Some(None) => f(),
            None => {
                let (out, recipe) = Recipe::record(inputs, f)?;
                let mut recipes = lock(&RECIPES);
                if recipes.len() >= KEPT {
                    recipes.clear();
                }
                recipes.insert(key, recipe.map(Arc::new));
                Ok(out)
            }
        }
    })
}

/// `None` where calls run one by one: on engines without launches, within a program that is being recorded, without
/// fusion.
fn key(name: &'static str, numbers: &[i64], inputs: &[&Tensor]) -> Option<Key> {
    let first = inputs.first()?;
    let device = first.device();
    let suits = |t: &&Tensor| t.device() == device && t.numel() > 0 && !t.dtype().is_carried();
    if !first.backend().features().launches || is_noting() || !inputs.iter().all(suits) || !passes::is_fusing() {
        return None;
    }
    let mut words: SmallVec<[usize; 24]> = numbers.iter().map(|&n| n as usize).collect();
    for t in inputs {
        let same = |other: &&Tensor| other.storage().ptr() == t.storage().ptr();
        let first = inputs.iter().position(same).unwrap_or(0);
        words.extend([t.dtype() as usize, first, t.storage().bytes(), t.layout().offset(), t.rank()]);
        words.extend(t.shape().iter().chain(t.layout().strides()).copied());
    }
    Some((name, device, words))
}

impl Recipe {
    /// Runs `f`, then the recipe; `None` if the calls alone do not repeat `f`.
    fn record(inputs: &[&Tensor], f: &mut dyn FnMut() -> Result<Tensor>) -> Result<(Tensor, Option<Self>)> {
        let noting = Noting::begin_holding();
        let out = f()?;
        let noted = noting.end();
        drop(noting);
        let recipe = Self::new(inputs, &out, noted)
            .inspect_err(|e| rushlight_core::info!("an op is not run as a program: {e}"))
            .ok()
            .flatten();
        let Some(recipe) = recipe else { return Ok((out, None)) };
        match recipe.run(inputs) {
            Ok(out) => Ok((out, Some(recipe))),
            Err(e) => {
                rushlight_core::info!("an op is not run as a program: {e}");
                Ok((out, None))
            }
        }
    }

    fn new(inputs: &[&Tensor], out: &Tensor, Noted { program, held, broken, .. }: Noted) -> Result<Option<Self>> {
        let buffer = |t: &Tensor| program.buffer_at(t.storage().ptr() as usize);
        let inputs: Vec<Option<usize>> = inputs.iter().map(|t| buffer(t)).collect();
        let Some(to) = buffer(out).filter(|&to| !program.buffers()[to].outside && broken.is_none()) else {
            return Ok(None);
        };
        let result = Slot { buffer: to, layout: out.layout().clone(), dtype: out.dtype() };
        let mut constants: Vec<_> = held.into_iter().filter(|(b, _)| !inputs.contains(&Some(*b))).collect();
        let program = without_constants(program.with_results([to]), to, &mut constants)?;
        let runner = Runner::optimized(&program)?.waiting();
        Ok(Some(Self { runner, inputs, constants, result }))
    }

    fn run(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let mut bound: Vec<(usize, Arc<Storage>)> = self.constants.clone();
        for (t, buffer) in inputs.iter().zip(&self.inputs) {
            bound.extend(buffer.map(|buffer| (buffer, t.storage().clone())));
        }
        let made = self.runner.run(&bound, &[self.result.buffer])?;
        let Slot { layout, dtype, .. } = self.result.clone();
        let storage =
            made.into_iter().next().ok_or_else(|| rushlight_core::Error::value("a program without result"))?;
        Ok(Tensor::from_parts(storage, layout, dtype, Meta::default()))
    }
}

/// Runs the calls that read nothing, and leaves them out: their results are constants.
fn without_constants(program: Program, result: usize, to: &mut Vec<(usize, Arc<Storage>)>) -> Result<Program> {
    let mut writes = vec![0; program.buffers().len()];
    for call in program.calls() {
        call.outputs().iter().for_each(|slot| writes[slot.buffer] += 1);
    }
    let own = |call: &Call<Slot>| match call {
        Call::Arange(c) if writes[c.out.buffer] == 1 && c.out.buffer != result => Some(c.out.buffer),
        _ => None,
    };
    let mut kept = Vec::with_capacity(program.calls().len());
    let mut constant = Vec::new();
    for call in program.calls() {
        let Some(buffer) = own(call) else {
            kept.push(call.clone());
            continue;
        };
        let alone = Program::new(program.buffers().to_vec(), vec![call.clone()]).with_results([buffer]);
        to.extend(Runner::new(alone)?.run(&[], &[buffer])?.into_iter().map(|storage| (buffer, storage)));
        constant.push(buffer);
    }
    let mut program = program.with_calls(kept);
    constant.into_iter().for_each(|buffer| program.set_outside(buffer));
    Ok(program)
}
