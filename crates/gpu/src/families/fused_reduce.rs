//! Sums of values of pointwise steps (`kernels/fused_reduce.cu`). As with `fused`, the engine declines a call until its
//! kernel is compiled.

use crate::device::Gpu;
use crate::families::fused::{Arguments, Text, compute, typed};
use crate::families::pointwise::Lanes;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, c_type, launch, wide_type};
use crate::launch::nest::{Loops, Nest, is_wide, loops, merged};
use rushlight_core::backend::{Reduce, Step, StepArg, StepOp, Steps, call};
use rushlight_core::{DType, Dims, Layout, Pointwise, Result, View};
use std::fmt::Write;

const THREADS: usize = 256;
/// Maximum inputs of a kernel: two nests are among its arguments.
const INPUTS: usize = 8;
/// Blocks per multiprocessor that saturate memory.
const ENOUGH_BLOCKS: usize = 8;
/// Minimum turns of a thread before an output is split into pieces.
const TURNS: usize = 8;

/// How threads share the work, and how they walk memory.
#[derive(Debug)]
struct Walk {
    /// Whether neighbouring threads have neighbouring outputs.
    along: bool,
    lanes: usize,
    modes: Vec<Lanes>,
    threads_in: usize,
    wide: bool,
    operands: usize,
    out: DType,
}

fn defines(of: &Steps, text: &Text, inputs: &[DType], walk: &Walk) -> Defines {
    let value = of.stores.first().copied().unwrap_or(0);
    let sum = of.steps.get(value as usize).map_or(DType::F32, |step| step.out);
    let nest = if walk.along { "kept" } else { "reduced" };
    let mut loads = String::new();
    for (i, dtype) in inputs.iter().enumerate() {
        let (c, k, mode) = (c_type(*dtype), 1 + i, walk.modes[i] as u8);
        _ = write!(
            loads,
            "{c} x{i}[LANES]; \
             fused_load<{c}, {mode}>(in.inputs[{i}], offsets[{k}], (idx)({nest}.strides[{k}][0] / LANES), x{i}); "
        );
    }
    let defines = typed(of)
        .define("OPERANDS", walk.operands)
        .define("LANES", walk.lanes)
        .define("ALONG", walk.along as u8)
        .define("THREADS_IN", walk.threads_in)
        .define("THREADS_OUT", THREADS / walk.threads_in)
        .define("A", wide_type(sum))
        .define("OUT", c_type(walk.out))
        .define("VALUE", format!("t{value}"))
        .define("ROW", &text.rows)
        .define("PARAMETERS", &text.parameters)
        .define("LOADS", loads)
        .define("STEPS", text.steps.concat());
    if walk.wide { defines.define("WIDE", 1) } else { defines }
}

/// The kernel of a text, which its hash identifies.
fn kernel(gpu: &Gpu, of: &Steps, text: &Text, inputs: &[DType], walk: &Walk) -> Result<Function> {
    let modes: Vec<u8> = walk.modes.iter().map(|mode| *mode as u8).collect();
    let Walk { along, lanes, threads_in, wide, operands, out, .. } = walk;
    let form = format!("{inputs:?} {modes:?} {along} {lanes} {threads_in} {wide} {operands} {out}");
    let stores = format!("{:?} {}", of.stores, compute(of));
    let tags = text.tags(&[&form, &stores]);
    gpu.function(Key::new(Family::FusedReduce, "fused_reduce", tags), || defines(of, text, inputs, walk))
}

fn product<const N: usize>(loops: &Loops<N>) -> usize {
    loops.iter().map(|l| l.0).product()
}

/// A reduction to be run.
struct Plan<const N: usize> {
    kept: Loops<N>,
    reduced: Loops<N>,
    walk: Walk,
    pieces: usize,
    piece: usize,
    /// Elements per output.
    length: usize,
}

impl<const N: usize> Plan<N> {
    /// `None` if there is nothing to reduce.
    fn new(gpu: &Gpu, c: &call::FusedReduce<View>) -> Result<Option<Self>> {
        let shape = c.inputs[0].shape();
        // Dense partial sums have the order of a row-major output.
        let dense = Layout::contiguous(c.out.shape())?;
        let strides = |k: usize| match k {
            0 => dense.strides(),
            k => c.inputs.get(k - 1).map_or(&[][..], |x| x.strides()),
        };
        let all = loops::<N>(shape, std::array::from_fn(strides));
        let mut marks = (0..shape.len()).filter(|&d| shape[d] != 1).map(|d| c.reduced[d]);
        // The input whose memory order is followed: the first that has all elements, if there is one.
        let whole = |x: &View| x.layout().span().unwrap_or(0);
        let main = 1 + (0..c.inputs.len()).rev().max_by_key(|&i| whole(&c.inputs[i])).unwrap_or(0);
        let (mut kept, mut reduced): (Loops<N>, Loops<N>) = (Loops::new(), Loops::new());
        for (size, strides) in all {
            let part = if marks.next().unwrap_or(false) { &mut reduced } else { &mut kept };
            part.push((size, strides));
        }
        let length = product(&reduced);
        if length == 0 || product(&kept) == 0 {
            return Ok(None);
        }
        for part in [&mut kept, &mut reduced] {
            part.sort_by_key(|l| std::cmp::Reverse(l.1[main]));
            *part = merged(part);
        }
        let least = |loops: &Loops<N>| {
            loops.iter().filter(|l| l.0 > 1 && l.1[main] > 0).map(|l| l.1[main]).min().unwrap_or(usize::MAX)
        };
        let along = least(&kept) < least(&reduced);
        let wide = is_wide(&kept) || is_wide(&reduced) || c.inputs.iter().any(|x| whole(x) > i32::MAX as usize);
        let (lanes, modes) = lanes(c, if along { [&kept, &reduced] } else { [&reduced, &kept] }, main);
        let walked = if along { &mut kept } else { &mut reduced };
        if let Some(last) = walked.last_mut() {
            last.0 /= lanes;
            last.1 = last.1.map(|s| s * lanes);
        }
        let (outputs, turns) = (product(&kept), product(&reduced));
        let threads_in = match along {
            true => (THREADS / outputs.next_power_of_two().min(32)).min(turns.div_ceil(2).next_power_of_two()),
            false => turns.div_ceil(2).next_power_of_two().min(THREADS),
        };
        let blocks = outputs.div_ceil(THREADS / threads_in);
        let enough = ENOUGH_BLOCKS * gpu.properties.multiprocessors;
        let pieces = (enough / blocks).clamp(1, 2048).min(turns / (threads_in * TURNS)).max(1);
        let piece = turns.div_ceil(pieces);
        let pieces = turns.div_ceil(piece);
        let sum = if c.out.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let out = if pieces > 1 { sum } else { c.out.dtype() };
        let walk = Walk { along, lanes, modes, threads_in, wide, operands: N, out };
        Ok(Some(Self { kept, reduced, walk, pieces, piece, length }))
    }

    fn function(&self, gpu: &Gpu, c: &call::FusedReduce<View>, text: &Text) -> Result<Function> {
        let dtypes: Vec<DType> = c.inputs.iter().map(|x| x.dtype()).collect();
        kernel(gpu, &c.of, text, &dtypes, &self.walk)
    }

    /// Runs the kernel. Returns whether it did: not while it is being compiled.
    fn run(&self, gpu: &Gpu, c: &call::FusedReduce<View>) -> Result<bool> {
        let text = Text::kept(&c.of);
        // The kernel writes a dense result.
        let whole: Dims = [self.pieces].into_iter().chain(c.out.shape().iter().copied()).collect();
        let direct = self.pieces == 1 && c.out.layout().is_contiguous();
        let made = if direct { None } else { Some(gpu.temporary(&whole, self.walk.out)?) };
        let to = made.as_ref().map_or(c.out.ptr(), |t| t.view().ptr()) as u64;
        let arguments = Arguments::new(&text, &c.inputs, &[to]);
        let function = self.function(gpu, c, &text)?;
        if !function.is_compiled() {
            return Ok(false);
        }
        let (kept, reduced) = (Nest::new(&self.kept)?, Nest::new(&self.reduced)?);
        let (outputs, turns, piece) = (product(&self.kept), product(&self.reduced), self.piece);
        let (all, count) = (c.out.numel(), if c.mean { self.length as f64 } else { 1.0 });
        let grid = Grid::plane(outputs.div_ceil(THREADS / self.walk.threads_in), self.pieces, THREADS)?;
        launch!(gpu, function, grid; kept, reduced, arguments, outputs, turns, piece, all, count)?;
        let Some(made) = made else { return Ok(true) };
        let mut marks = vec![false; whole.len()];
        marks[0] = true;
        let out = c.out.layout().unsqueeze(0);
        gpu.reduce(Reduce::Sum, made.view(), &marks, c.out.with_layout(&out)?)?;
        Ok(true)
    }
}

/// Neighbours that a thread computes along the innermost of `walked`, and how it loads those of each input.
fn lanes<const N: usize>(
    c: &call::FusedReduce<View>,
    [walked, others]: [&Loops<N>; 2],
    main: usize,
) -> (usize, Vec<Lanes>) {
    let one = (1, vec![Lanes::Next; c.inputs.len()]);
    let Some((inner, outer)) = walked.split_last() else { return one };
    let largest = c.inputs.iter().map(|x| x.dtype().size()).max().unwrap_or(8);
    let width = (16 / largest).min(8);
    if width < 2 || inner.1[main] != 1 || !inner.0.is_multiple_of(width) {
        return one;
    }
    let mode = |(i, x): (usize, &View)| {
        let k = i + 1;
        let aligned = || {
            (x.ptr() as usize).is_multiple_of(width * x.dtype().size())
                && outer.iter().chain(others.iter()).all(|l| l.1[k].is_multiple_of(width))
        };
        match inner.1[k] {
            0 => Lanes::Same,
            1 if aligned() => Lanes::Next,
            _ => Lanes::Apart,
        }
    };
    let modes: Vec<Lanes> = c.inputs.iter().enumerate().map(mode).collect();
    if matches!(modes[main - 1], Lanes::Next) { (width, modes) } else { one }
}

/// Calls `$f` with the number of operands that nests are compiled for.
macro_rules! with_operands {
    ($c:expr, $N:ident => $f:expr) => {
        match $c.inputs.len() {
            0..=3 => {
                const $N: usize = 4;
                $f
            }
            _ => {
                const $N: usize = INPUTS + 1;
                $f
            }
        }
    };
}

fn fits(c: &call::FusedReduce<View>) -> bool {
    (1..=INPUTS).contains(&c.inputs.len()) && c.of.stores.len() == 1
}

impl Gpu {
    /// Sums a value of steps. Returns whether it did: not while the kernel is being compiled.
    pub fn fused_reduce(&self, c: &call::FusedReduce<View>) -> Result<bool> {
        if !fits(c) {
            return Ok(false);
        }
        with_operands!(c, N => match Plan::<N>::new(self, c)? {
            Some(plan) => plan.run(self, c),
            None => Ok(false),
        })
    }

    /// Starts the compilation of the kernel. Returns whether it is done, or there is none to wait for.
    pub fn prepare_fused_reduce(&self, c: &call::FusedReduce<View>) -> Result<bool> {
        if !fits(c) {
            return Ok(true);
        }
        with_operands!(c, N => match Plan::<N>::new(self, c)? {
            Some(plan) => Ok(plan.function(self, c, &Text::kept(&c.of))?.is_compiled()),
            None => Ok(true),
        })
    }
}

/// A sum of steps, for the catalogue.
pub fn example(along: bool, lanes: usize) -> Defines {
    let none: [f64; 0] = [];
    let step = |op, out, args: [StepArg; 2]| Step {
        op: StepOp::Row(op),
        compute: DType::F32,
        out,
        args: args.into_iter().collect(),
        params: none[..].into(),
    };
    let (input, value) = (StepArg::Input, StepArg::Step);
    let of = Steps {
        steps: vec![
            step(Pointwise::Sub, DType::BF16, [input(0), input(1)]),
            step(Pointwise::Mul, DType::BF16, [value(0), value(0)]),
        ],
        stores: [1].into_iter().collect(),
    };
    let modes = vec![Lanes::Next, if lanes > 1 { Lanes::Same } else { Lanes::Next }];
    let out = if along { DType::F32 } else { DType::BF16 };
    let walk = Walk { along, lanes, modes, threads_in: if along { 8 } else { 256 }, wide: along, operands: 4, out };
    defines(&of, &Text::new(&of), &[DType::BF16, DType::F32], &walk)
}
