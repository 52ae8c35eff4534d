//! Pointwise steps with reductions of rows (`kernels/fused_rows.cu`). As with `fused`, the engine declines a call until
//! its kernel is compiled.
//!
//! A kernel walks a row once for each reduction that needs the one before, and once to store. Inputs stay in registers
//! in between if they fit; steps are computed again.

use crate::device::Gpu;
use crate::families::fused::{Arguments, Text, compute, typed};
use crate::families::pointwise::Lanes;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, c_type, launch, wide_type};
use crate::launch::nest::{Loops, Nest, is_wide, loops, merged};
use rushlight_core::backend::{RowReduce, Step, StepArg, StepOp, Steps, call};
use rushlight_core::{DType, Dims, Pointwise, Result, Scalar, View};
use std::fmt::Write;
use std::sync::Arc;

/// Maximum inputs and outputs together: two nests are among a kernel's arguments.
const OPERANDS: usize = 16;
/// Threads of a block of short rows, and the most of a row.
const THREADS: usize = 128;
const MAX_THREADS: usize = 512;
/// Bytes of inputs that a thread keeps in registers.
const KEPT_BYTES: usize = 256;

/// How threads share the work, and how they walk memory.
#[derive(Debug)]
struct Walk {
    lanes: usize,
    modes: Vec<Lanes>,
    /// Inputs and outputs with one value per row.
    row_inputs: Vec<bool>,
    row_outs: Vec<bool>,
    threads: usize,
    turns: usize,
    /// Whether inputs stay in registers.
    keep: bool,
    wide: bool,
    operands: usize,
}

impl Walk {
    /// The expressions of the inputs.
    fn inputs(&self) -> Vec<String> {
        let one = |(i, per_row): (usize, &bool)| match (per_row, self.keep) {
            (true, _) => format!("x{i}"),
            (false, true) => format!("x{i}[s][v]"),
            (false, false) => format!("x{i}[v]"),
        };
        self.row_inputs.iter().enumerate().map(one).collect()
    }
}

/// Writes a kernel's body.
struct Body<'a> {
    of: &'a Steps,
    text: &'a Text,
    inputs: &'a [DType],
    walk: &'a Walk,
    per_row: Vec<bool>,
    loaded: Vec<bool>,
    out: String,
}

impl Body<'_> {
    /// How many reductions, one after another, a step needs.
    fn phases(&self) -> Vec<usize> {
        let mut phases: Vec<usize> = Vec::with_capacity(self.of.steps.len());
        for step in &self.of.steps {
            let of = |arg: &StepArg| if let StepArg::Step(t) = arg { phases[*t as usize] } else { 0 };
            let before = step.args.iter().map(of).max().unwrap_or(0);
            phases.push(before + matches!(step.op, StepOp::Reduced(_)) as usize);
        }
        phases
    }

    /// Marks the steps that arguments need within a row, and the inputs.
    fn mark(&self, args: &[StepArg], steps: &mut [bool], inputs: &mut [bool]) {
        for arg in args {
            match arg {
                StepArg::Input(x) if !self.walk.row_inputs[*x as usize] => inputs[*x as usize] = true,
                StepArg::Step(t) if !self.per_row[*t as usize] && !steps[*t as usize] => {
                    steps[*t as usize] = true;
                    self.mark(&self.of.steps[*t as usize].args, steps, inputs);
                }
                _ => {}
            }
        }
    }

    /// A loop over the row that computes what `args` need, then `each` for every lane. `before` and `after` enclose the
    /// lanes of a vector.
    fn walk_row(&mut self, args: &[StepArg], before: &str, each: &str, after: &str) {
        let (mut steps, mut inputs) = (vec![false; self.of.steps.len()], vec![false; self.inputs.len()]);
        self.mark(args, &mut steps, &mut inputs);
        let Walk { keep, turns, threads, .. } = *self.walk;
        let mut loads = String::new();
        for i in (0..inputs.len()).filter(|&i| inputs[i] && !self.loaded[i]) {
            let (c, k, mode) = (c_type(self.inputs[i]), self.walk.row_outs.len() + i, self.walk.modes[i] as u8);
            let to = if keep { format!("x{i}[s]") } else { format!("x{i}") };
            if keep {
                _ = write!(self.out, "{c} x{i}[{turns}][LANES]; ");
            } else {
                _ = write!(loads, "{c} x{i}[LANES]; ");
            }
            _ = write!(
                loads,
                "fused_load<{c}, {mode}>(in.inputs[{i}], base[{k}] + o[{k}], (idx)(along.strides[{k}][0] / LANES), {to}); "
            );
        }
        if keep {
            inputs.iter().zip(&mut self.loaded).for_each(|(needed, loaded)| *loaded |= needed);
        }
        let unroll = if keep { "unroll" } else { "unroll 1" };
        let values: String = (0..steps.len()).filter(|&t| steps[t]).map(|t| &self.text.steps[t][..]).collect();
        let offsets = match loads.is_empty() && after.is_empty() {
            true => "",
            false => "idx o[OPERANDS]; along.offsets((idx)at, o); ",
        };
        _ = write!(
            self.out,
            "_Pragma(\"{unroll}\") for (int s = 0; s < {turns}; s++) {{ u32 at = lane + s * {threads}; \
             if (at < vectors) {{ {offsets}{loads}{before}_Pragma(\"unroll\") \
             for (int v = 0; v < LANES; v++) {{ {values}{each}}} {after}}} }} "
        );
    }

    fn write(mut self) -> String {
        let (of, outs) = (self.of, self.walk.row_outs.len());
        let phases = self.phases();
        for (i, dtype) in self.inputs.iter().enumerate().filter(|(i, _)| self.walk.row_inputs[*i]) {
            let c = c_type(*dtype);
            _ = write!(self.out, "const {c} x{i} = ((const {c}*)in.inputs[{i}])[base[{}]]; ", outs + i);
        }
        for phase in 0..=phases.iter().copied().max().unwrap_or(0) {
            let reduced = |t: &usize| phases[*t] == phase && matches!(of.steps[*t].op, StepOp::Reduced(_));
            let reduced: Vec<usize> = (0..of.steps.len()).filter(reduced).collect();
            let (mut args, mut each) = (Vec::new(), String::new());
            for &t in &reduced {
                let step = &of.steps[t];
                let (a, op, first) = reduction(step);
                _ = write!(self.out, "{a} a{t} = {first}; ");
                _ = write!(each, "a{t} = {op}::merge(a{t}, convert<{a}>({})); ", self.text.steps[t]);
                args.extend(step.args.iter().copied());
            }
            if !reduced.is_empty() {
                self.walk_row(&args, "", &each, "");
            }
            for &t in &reduced {
                let step = &of.steps[t];
                let (a, op, _) = reduction(step);
                let mean =
                    if step.op == StepOp::Reduced(RowReduce::Mean) { format!(" / ({a})count") } else { "".into() };
                _ = write!(
                    self.out,
                    "a{t} = group_reduce<{op}, {}>(a{t}, ({a}*)shared); const {} t{t} = convert<{}>(a{t}{mean}); ",
                    self.walk.threads,
                    c_type(step.out),
                    c_type(step.out)
                );
            }
            for t in (0..of.steps.len()).filter(|&t| phases[t] == phase && self.per_row[t]) {
                if !matches!(of.steps[t].op, StepOp::Reduced(_)) {
                    self.out.push_str(&self.text.steps[t]);
                }
            }
        }
        let (mut args, mut before, mut each, mut after) = (Vec::new(), String::new(), String::new(), String::new());
        for (k, t) in of.stores.iter().enumerate() {
            let c = c_type(of.steps[*t as usize].out);
            if self.walk.row_outs[k] {
                _ = write!(self.out, "if (lane == 0) (({c}*)in.outputs[{k}])[base[{k}]] = t{t}; ");
                continue;
            }
            args.push(StepArg::Step(*t));
            _ = write!(before, "Vec<{c}, LANES> y{k}; ");
            _ = write!(each, "y{k}.v[v] = t{t}; ");
            _ = write!(after, "*(Vec<{c}, LANES>*)(({c}*)in.outputs[{k}] + base[{k}] + o[{k}]) = y{k}; ");
        }
        if !args.is_empty() {
            self.walk_row(&args, &before, &each, &after);
        }
        self.out
    }
}

/// The type of a reduction's sums, its operation, and its start.
fn reduction(step: &Step) -> (&'static str, &'static str, &'static str) {
    let (a, double) = (wide_type(step.out), step.out == DType::F64);
    match step.op {
        StepOp::Reduced(RowReduce::Max) => {
            (a, "Largest", if double { "-(double)INFINITY" } else { "-(float)INFINITY" })
        }
        StepOp::Reduced(RowReduce::Min) => (a, "Smallest", if double { "(double)INFINITY" } else { "(float)INFINITY" }),
        _ => (a, "Sum", "0"),
    }
}

fn defines(of: &Steps, text: &Text, inputs: &[DType], walk: &Walk) -> Defines {
    let (per_row, loaded) = (of.per_row(&walk.row_inputs), vec![false; inputs.len()]);
    let body = Body { of, text, inputs, walk, per_row, loaded, out: String::new() }.write();
    let defines = typed(of)
        .define("OPERANDS", walk.operands)
        .define("LANES", walk.lanes)
        .define("THREADS", walk.block())
        .define("TPR", walk.threads)
        .define("ROW", &text.rows)
        .define("PARAMETERS", &text.parameters)
        .define("BODY", body);
    if walk.wide { defines.define("WIDE", 1) } else { defines }
}

impl Walk {
    /// Threads of a block: rows of more than a warp have one each.
    fn block(&self) -> usize {
        if self.threads > 32 { self.threads } else { THREADS }
    }
}

fn product<const N: usize>(loops: &Loops<N>) -> usize {
    loops.iter().map(|l| l.0).product()
}

/// A call to be run.
struct Plan<const N: usize> {
    kept: Loops<N>,
    along: Loops<N>,
    walk: Walk,
    /// Elements of a row.
    length: usize,
}

impl<const N: usize> Plan<N> {
    /// `None` if there is nothing to do.
    fn new(c: &call::FusedRows<View>) -> Option<Self> {
        let shape = c.inputs[0].shape();
        let marked = |d: usize| c.reduced[d] && shape[d] > 1;
        let row_out = |out: &View| (0..shape.len()).any(|d| marked(d) && out.shape()[d] == 1);
        let row_input = |x: &View| (0..shape.len()).all(|d| !marked(d) || x.strides()[d] == 0);
        let row_outs: Vec<bool> = c.outs.iter().map(row_out).collect();
        let row_inputs: Vec<bool> = c.inputs.iter().map(row_input).collect();
        let views: Vec<View> = c.outs.iter().chain(&c.inputs).copied().collect();
        let per_row: Vec<bool> = row_outs.iter().chain(&row_inputs).copied().collect();
        // The strides of a size of one say nothing.
        let strides: Vec<Dims> = views
            .iter()
            .map(|v| (0..shape.len()).map(|d| if v.shape()[d] == 1 { 0 } else { v.strides()[d] }).collect())
            .collect();
        let all = loops::<N>(shape, std::array::from_fn(|k| strides.get(k).map_or(&[][..], |s| &s[..])));
        let mut marks = (0..shape.len()).filter(|&d| shape[d] != 1).map(|d| c.reduced[d]);
        let (mut kept, mut along): (Loops<N>, Loops<N>) = (Loops::new(), Loops::new());
        for one in all {
            if marks.next().unwrap_or(false) { along.push(one) } else { kept.push(one) }
        }
        let length = product(&along);
        if length == 0 || product(&kept) == 0 {
            return None;
        }
        // The operand whose memory order is followed: the largest.
        let span = |v: &View| v.layout().span().unwrap_or(0) - v.layout().offset();
        let main = (0..views.len()).rev().filter(|&k| !per_row[k]).max_by_key(|&k| span(&views[k])).unwrap_or(0);
        for part in [&mut kept, &mut along] {
            part.sort_by_key(|l| std::cmp::Reverse(l.1[main]));
            *part = merged(part);
        }
        let wide = is_wide(&kept) || is_wide(&along) || views.iter().any(|v| span(v) > i32::MAX as usize);
        let (inner, outer) = along.split_last()?;
        let own = || (0..views.len()).filter(|&k| !per_row[k]);
        let largest = own().map(|k| views[k].dtype().size()).max().unwrap_or(8);
        let width = 16 / largest;
        let next = |k: usize| {
            inner.1[k] == 1
                && (views[k].ptr() as usize).is_multiple_of(width * views[k].dtype().size())
                && outer.iter().chain(kept.iter()).all(|l| l.1[k].is_multiple_of(width))
        };
        let stored = own().filter(|&k| k < c.outs.len()).all(next);
        let lanes = if inner.0.is_multiple_of(width) && next(main) && stored { width } else { 1 };
        let mode = |k: usize| match inner.1[k] {
            _ if lanes == 1 => Lanes::Next,
            0 => Lanes::Same,
            _ if next(k) => Lanes::Next,
            _ => Lanes::Apart,
        };
        let modes: Vec<Lanes> = (c.outs.len()..views.len()).map(mode).collect();
        if let Some(last) = along.last_mut() {
            last.0 /= lanes;
            last.1 = last.1.map(|s| s * lanes);
        }
        let vectors = length / lanes;
        let threads = match vectors {
            0..=32 => vectors.next_power_of_two(),
            _ => vectors.div_ceil(2).next_power_of_two().clamp(32, MAX_THREADS),
        };
        let turns = vectors.div_ceil(threads);
        let bytes: usize = own().filter(|&k| k >= c.outs.len()).map(|k| views[k].dtype().size() * lanes * turns).sum();
        let keep = bytes <= KEPT_BYTES;
        let walk = Walk { lanes, modes, row_inputs, row_outs, threads, turns, keep, wide, operands: N };
        Some(Self { kept, along, walk, length })
    }

    fn function(&self, gpu: &Gpu, c: &call::FusedRows<View>, text: &Text) -> Result<Function> {
        let dtypes: Vec<DType> = c.inputs.iter().map(|x| x.dtype()).collect();
        let form = format!("{dtypes:?} {:?}", self.walk);
        let stores =
            format!("{:?} {} {:?}", c.of.stores, compute(&c.of), c.of.steps.iter().map(|s| s.op).collect::<Vec<_>>());
        let tags = text.tags(&[&form, &stores]);
        gpu.function(Key::new(Family::FusedRows, "fused_rows", tags), || defines(&c.of, text, &dtypes, &self.walk))
    }

    fn text(&self, of: &Arc<Steps>) -> Arc<Text> {
        Text::kept_with_inputs(of, self.walk.inputs())
    }

    /// Runs the kernel. Returns whether it did: not while it is being compiled.
    fn run(&self, gpu: &Gpu, c: &call::FusedRows<View>) -> Result<bool> {
        let text = self.text(&c.of);
        let outputs: Vec<u64> = c.outs.iter().map(|out| out.ptr() as u64).collect();
        let arguments = Arguments::new(&text, &c.inputs, &outputs);
        let function = self.function(gpu, c, &text)?;
        if !function.is_compiled() {
            return Ok(false);
        }
        let (kept, along) = (Nest::new(&self.kept)?, Nest::new(&self.along)?);
        let (rows, vectors, count) = (product(&self.kept), self.length / self.walk.lanes, self.length as f64);
        let grid = Grid::line(rows.div_ceil(self.walk.block() / self.walk.threads), self.walk.block())?;
        launch!(gpu, function, grid; kept, along, arguments, rows, vectors, count)?;
        Ok(true)
    }
}

/// Calls `$f` with the number of operands that nests are compiled for.
macro_rules! with_operands {
    ($c:expr, $N:ident => $f:expr) => {
        match $c.inputs.len() + $c.outs.len() {
            0..=4 => {
                const $N: usize = 4;
                $f
            }
            5..=8 => {
                const $N: usize = 8;
                $f
            }
            _ => {
                const $N: usize = OPERANDS;
                $f
            }
        }
    };
}

fn fits(c: &call::FusedRows<View>) -> bool {
    !c.inputs.is_empty() && c.inputs.len() + c.outs.len() <= OPERANDS && c.outs.len() == c.of.stores.len()
}

impl Gpu {
    /// Runs steps that reduce rows. Returns whether it did: not while the kernel is being compiled.
    pub fn fused_rows(&self, c: &call::FusedRows<View>) -> Result<bool> {
        if !fits(c) {
            return Ok(false);
        }
        with_operands!(c, N => match Plan::<N>::new(c) {
            Some(plan) => plan.run(self, c),
            None => Ok(false),
        })
    }

    /// Starts the compilation of the kernel. Returns whether it is done, or there is none to wait for.
    pub fn prepare_fused_rows(&self, c: &call::FusedRows<View>) -> Result<bool> {
        if !fits(c) {
            return Ok(true);
        }
        with_operands!(c, N => match Plan::<N>::new(c) {
            Some(plan) => Ok(plan.function(self, c, &plan.text(&c.of))?.is_compiled()),
            None => Ok(true),
        })
    }
}

/// A norm and a largest value, for the catalogue.
pub fn example(lanes: usize) -> Defines {
    let none: [f64; 0] = [];
    let step = |op, out, args: &[StepArg]| Step {
        op,
        compute: DType::F32,
        out,
        args: args.iter().copied().collect(),
        params: none[..].into(),
    };
    let (input, value) = (StepArg::Input, StepArg::Step);
    let steps = vec![
        step(StepOp::Row(Pointwise::Square), DType::F32, &[input(0)]),
        step(StepOp::Reduced(RowReduce::Mean), DType::F32, &[value(0)]),
        step(StepOp::Row(Pointwise::Add), DType::F32, &[value(1), StepArg::Number(Scalar::Float(1e-5))]),
        step(StepOp::Row(Pointwise::Rsqrt), DType::F32, &[value(2)]),
        step(StepOp::Row(Pointwise::Mul), DType::BF16, &[input(0), value(3)]),
        step(StepOp::Reduced(RowReduce::Max), DType::BF16, &[value(4)]),
        step(StepOp::Reduced(RowReduce::Min), DType::F32, &[input(1)]),
        step(StepOp::Row(Pointwise::Sub), DType::F32, &[value(4), value(5)]),
        step(StepOp::Row(Pointwise::Mul), DType::F32, &[value(7), input(1)]),
    ];
    let of = Steps { steps, stores: [3, 8, 6].into_iter().collect() };
    let walk = Walk {
        lanes,
        modes: vec![Lanes::Next; 2],
        row_inputs: vec![false; 2],
        row_outs: vec![true, false, true],
        threads: if lanes > 1 { 256 } else { 16 },
        turns: 2,
        keep: lanes > 1,
        wide: lanes == 1,
        operands: 8,
    };
    let text = Text::with_inputs(&of, walk.inputs());
    defines(&of, &text, &[DType::BF16, DType::F32], &walk)
}
