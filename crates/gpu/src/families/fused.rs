//! Fused pointwise steps: kernels whose text is made of the rows' text (`kernels/fused.cu`).
//!
//! A kernel is compiled in the background. Until it is ready the engine declines its call, whose default body then runs
//! the steps one by one.

use crate::device::Gpu;
use crate::families::pointwise::{Lanes, number, returning};
use crate::launch::cache;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, c_type, launch};
use crate::launch::nest::{Nest, in_memory_order, is_wide, loops, merged};
use rushlight_core::backend::{MAX_INPUTS, MAX_OUTPUTS, Step, StepArg, StepOp, Steps, call};
use rushlight_core::rows::Class;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Pointwise, Result, Scalar, View};
use std::collections::HashMap;
use std::fmt::Write;
use std::iter::once;
use std::sync::{Arc, LazyLock, Mutex, Weak};

const THREADS: usize = 128;
/// Most numbers and parameters that a kernel takes as arguments; further ones are part of its text.
const NUMBERS: usize = 32;
const PARAMS: usize = 32;

/// Matches `FusedArguments` in `fused_parts.cu`.
#[repr(C)]
pub(super) struct Arguments {
    inputs: [u64; MAX_INPUTS],
    outputs: [u64; MAX_OUTPUTS],
    numbers: [u64; NUMBERS],
    params: [f64; PARAMS],
}

impl Arguments {
    pub fn new(text: &Text, inputs: &[View], outputs: &[u64]) -> Self {
        let mut arguments = Arguments {
            inputs: [0; MAX_INPUTS],
            outputs: [0; MAX_OUTPUTS],
            numbers: [0; NUMBERS],
            params: [0.0; PARAMS],
        };
        for (to, x) in arguments.inputs.iter_mut().zip(inputs) {
            *to = x.ptr() as u64;
        }
        for (to, out) in arguments.outputs.iter_mut().zip(outputs) {
            *to = *out;
        }
        for (to, (value, dtype)) in arguments.numbers.iter_mut().zip(&text.numbers) {
            *to = number(*value, *dtype);
        }
        arguments.params[..text.params.len()].copy_from_slice(&text.params);
        arguments
    }
}

/// The text of a kernel, and the values it takes as arguments.
pub(super) struct Text {
    pub rows: String,
    pub parameters: String,
    /// The declaration of each step's value.
    pub steps: Vec<String>,
    /// The expressions of inputs that are not lane `v` of `x0`, `x1`…
    inputs: Vec<String>,
    numbers: Vec<(Scalar, DType)>,
    params: Vec<f64>,
    /// Of the text.
    hash: u128,
}

/// Texts of the steps that are in use, by address and expressions of inputs: a weak reference keeps an address from
/// being used again.
static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
type Texts = HashMap<(usize, Vec<String>), (Weak<Steps>, Arc<Text>)>;
/// From so many texts on, those of steps that are gone are dropped.
const TEXTS_KEPT: usize = 4096;

/// The dtype that a kernel computes in: that of its rows.
pub(super) fn compute(of: &Steps) -> DType {
    let row = |step: &&Step| matches!(step.op, StepOp::Row(_) | StepOp::Derivative(..));
    of.steps.iter().find(row).map_or(DType::F32, |step| step.compute)
}

/// The types that a kernel computes in.
pub(super) fn typed(of: &Steps) -> Defines {
    let compute = compute(of);
    let register = match compute {
        DType::I16 | DType::I8 | DType::U8 | DType::Bool => "i32",
        other => c_type(other),
    };
    Defines::default()
        .define("C", c_type(compute))
        .define("R", register)
        .define("REAL", compute.is_float() as u8)
        .define("INTEGER", !compute.is_float() as u8)
}

impl Text {
    pub fn new(of: &Steps) -> Self {
        Self::with_inputs(of, Vec::new())
    }

    /// The text of steps, made once.
    pub fn kept(of: &Arc<Steps>) -> Arc<Self> {
        Self::kept_with_inputs(of, Vec::new())
    }

    /// [`Text::with_inputs`], made once.
    pub fn kept_with_inputs(of: &Arc<Steps>, inputs: Vec<String>) -> Arc<Self> {
        let key = (Arc::as_ptr(of) as usize, inputs);
        if let Some((_, text)) = lock(&TEXTS).get(&key) {
            return text.clone();
        }
        let text = Arc::new(Self::with_inputs(of, key.1.clone()));
        let mut texts = lock(&TEXTS);
        if texts.len() >= TEXTS_KEPT {
            texts.retain(|_, (steps, _)| steps.strong_count() > 0);
        }
        texts.insert(key, (Arc::downgrade(of), text.clone()));
        text
    }

    /// With these expressions of the inputs.
    pub fn with_inputs(of: &Steps, inputs: Vec<String>) -> Self {
        let mut text = Self {
            rows: String::new(),
            parameters: String::new(),
            steps: Vec::new(),
            inputs,
            numbers: Vec::new(),
            params: Vec::new(),
            hash: 0,
        };
        let compute = compute(of);
        for (t, step) in of.steps.iter().enumerate() {
            let out = c_type(step.out);
            let value = match step.op {
                StepOp::Row(op) => {
                    let names = op.inputs().to_vec();
                    text.row(t, step, op, op.text(), &names, compute)
                }
                StepOp::Derivative(op, wrt) => {
                    let body = op.grad_text().get(wrt as usize).copied().unwrap_or("ZERO");
                    let mut names = vec!["dy"];
                    names.extend((0..3).map(|i| op.inputs().get(i).copied().unwrap_or(["", "unused1", "unused2"][i])));
                    names.push("y");
                    text.row(t, step, op, body, &names, compute)
                }
                StepOp::Select => {
                    let [a, b] = [1, 2].map(|k| text.argument(step.args.get(k), step.out));
                    let condition = match step.args.first() {
                        Some(StepArg::Input(x)) => text.input(*x),
                        Some(StepArg::Step(t)) => format!("t{t}"),
                        _ => "1".into(),
                    };
                    format!("plain({condition}) != 0 ? convert<{out}>({a}) : convert<{out}>({b})")
                }
                StepOp::Copy => format!("convert<{out}>({})", text.argument(step.args.first(), step.out)),
                StepOp::Reduced(_) => {
                    // Declared by the kernel that reduces; this is what it reduces.
                    let value = text.argument(step.args.first(), step.out);
                    text.steps.push(value);
                    continue;
                }
            };
            text.steps.push(format!("const {out} t{t} = {value}; "));
        }
        let steps = text.steps.concat();
        text.hash = cache::hash(&[text.rows.as_bytes(), text.parameters.as_bytes(), steps.as_bytes()]);
        text
    }

    fn input(&self, x: u16) -> String {
        self.inputs.get(x as usize).cloned().unwrap_or_else(|| format!("x{x}[v]"))
    }

    /// A hash of the text and of what else decides about the kernel.
    pub fn tags(&self, more: &[&str]) -> [u16; 8] {
        let own = self.hash.to_le_bytes();
        let parts: SmallVec<[&[u8]; 4]> = once(&own[..]).chain(more.iter().map(|part| part.as_bytes())).collect();
        let hash = cache::hash(&parts);
        std::array::from_fn(|i| (hash >> (16 * i)) as u16)
    }

    /// An argument as an expression; a number is one of `dtype`.
    fn argument(&mut self, arg: Option<&StepArg>, dtype: DType) -> String {
        match arg {
            Some(StepArg::Input(x)) => self.input(*x),
            Some(StepArg::Step(t)) => format!("t{t}"),
            Some(StepArg::Number(value)) => {
                let (n, c) = (self.numbers.len(), c_type(dtype));
                if n >= NUMBERS {
                    return format!("Number<{c}>::of({:#x}ULL)", number(*value, dtype));
                }
                self.numbers.push((*value, dtype));
                _ = write!(self.parameters, "const {c} n{n} = Number<{c}>::of(in.numbers[{n}]); ");
                format!("n{n}")
            }
            Some(StepArg::Unused) | None => format!("({})0", c_type(dtype)),
        }
    }

    /// The value of a row, whose function is added.
    fn row(&mut self, t: usize, step: &Step, op: Pointwise, body: &str, names: &[&str], compute: DType) -> String {
        let truth = matches!(op.class(), Class::Compare | Class::Test) && matches!(step.op, StepOp::Row(_));
        let parameters: Vec<String> = names.iter().chain(op.params()).map(|name| format!("R {name}")).collect();
        let result = if truth { "bool" } else { "R" };
        _ = write!(
            self.rows,
            "__device__ inline {result} row{t}({}) {{ {} }} ",
            parameters.join(", "),
            returning(body)
        );
        let mut args: Vec<String> = (0..names.len())
            .map(|k| format!("(R)plain(convert<C>({}))", self.argument(step.args.get(k), compute)))
            .collect();
        for k in 0..op.params().len() {
            let (p, value) = (self.params.len(), step.params.get(k).copied().unwrap_or(0.0));
            if p >= PARAMS {
                args.push(format!("(R)__longlong_as_double({:#x}LL)", value.to_bits()));
                continue;
            }
            self.params.push(value);
            _ = write!(self.parameters, "const R p{p} = (R)in.params[{p}]; ");
            args.push(format!("p{p}"));
        }
        let (call, out) = (format!("rl::row{t}({})", args.join(", ")), c_type(step.out));
        match truth {
            true => format!("convert<{out}>((i32){call})"),
            false => format!("convert<{out}>(convert<C>({call}))"),
        }
    }
}

/// How a kernel walks memory.
struct Walk {
    lanes: usize,
    modes: Vec<Lanes>,
    one_loop: bool,
    wide: bool,
    operands: usize,
}

fn defines(of: &Steps, text: &Text, inputs: &[DType], walk: &Walk) -> Defines {
    let outputs = of.stores.len();
    let (mut loads, mut results, mut stores) = (String::new(), String::new(), String::new());
    let mut steps = text.steps.concat();
    for (i, dtype) in inputs.iter().enumerate() {
        let (c, k, mode) = (c_type(*dtype), outputs + i, walk.modes[i] as u8);
        _ = write!(
            loads,
            "{c} x{i}[LANES]; \
             fused_load<{c}, {mode}>(in.inputs[{i}], offsets[{k}], (idx)(nest.strides[{k}][0] / LANES), x{i}); "
        );
    }
    for (k, t) in of.stores.iter().enumerate() {
        let c = c_type(of.steps[*t as usize].out);
        _ = write!(results, "Vec<{c}, LANES> y{k}; ");
        _ = write!(steps, "y{k}.v[v] = t{t}; ");
        _ = write!(stores, "*(Vec<{c}, LANES>*)(({c}*)in.outputs[{k}] + offsets[{k}]) = y{k}; ");
    }
    let mut defines = typed(of)
        .define("OPERANDS", walk.operands)
        .define("LANES", walk.lanes)
        .define("THREADS", THREADS)
        .define("ROW", &text.rows)
        .define("PARAMETERS", &text.parameters)
        .define("LOADS", loads)
        .define("RESULTS", results)
        .define("STEPS", steps)
        .define("STORES", stores);
    if walk.one_loop {
        defines = defines.define("ONE_LOOP", 1);
    }
    if walk.wide {
        defines = defines.define("WIDE", 1);
    }
    defines
}

/// A launch with its arguments.
struct Prepared<const N: usize> {
    function: Function,
    grid: Grid,
    nest: Nest<N>,
    arguments: Arguments,
    count: usize,
}

impl<const N: usize> Prepared<N> {
    fn new(gpu: &Gpu, c: &call::Fused<View>) -> Result<Self> {
        let (text, out) = (Text::kept(&c.of), c.outs[0]);
        let outputs: Vec<u64> = c.outs.iter().map(|out| out.ptr() as u64).collect();
        let arguments = Arguments::new(&text, &c.inputs, &outputs);
        let views: Vec<View> = c.outs.iter().chain(&c.inputs).copied().collect();
        let none: [usize; 0] = [];
        let strides: [&[usize]; N] = std::array::from_fn(|k| views.get(k).map_or(&none[..], |v| v.strides()));
        let mut loops = merged(&in_memory_order(loops(out.shape(), strides)));
        let wide = is_wide(&loops);
        let (inner, outer) = match loops.split_last() {
            Some((inner, outer)) => (*inner, outer),
            None => ((1, [0; N]), &loops[..]),
        };
        let largest = views.iter().map(|v| v.dtype().size()).max().unwrap_or(8);
        let width = 16 / largest;
        let aligned = |k: usize, view: &View| {
            (view.ptr() as usize).is_multiple_of(width * view.dtype().size())
                && outer.iter().all(|l| l.1[k].is_multiple_of(width))
        };
        let vectors = inner.0 % width == 0
            && views.iter().enumerate().all(|(k, v)| match inner.1[k] {
                1 => aligned(k, v),
                _ => k >= c.outs.len(),
            });
        let lanes = if vectors { width } else { 1 };
        let mode = |k: usize| match inner.1[k] {
            _ if lanes == 1 => Lanes::Next,
            1 => Lanes::Next,
            0 => Lanes::Same,
            _ => Lanes::Apart,
        };
        let modes = (c.outs.len()..views.len()).map(mode).collect();
        if let Some(last) = loops.last_mut() {
            last.0 /= lanes;
            last.1 = last.1.map(|s| s * lanes);
        }
        let walk = Walk { lanes, modes, one_loop: loops.len() == 1, wide, operands: N };
        let dtypes: Vec<DType> = c.inputs.iter().map(|x| x.dtype()).collect();
        let function = kernel(gpu, &c.of, &text, &dtypes, &walk)?;
        let count = out.numel() / lanes;
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        Ok(Self { function, grid, nest: Nest::new(&loops)?, arguments, count })
    }
}

/// The kernel of a text, which its hash identifies.
fn kernel(gpu: &Gpu, of: &Steps, text: &Text, inputs: &[DType], walk: &Walk) -> Result<Function> {
    let modes: Vec<u8> = walk.modes.iter().map(|mode| *mode as u8).collect();
    let form = format!("{inputs:?} {modes:?} {} {} {} {}", walk.lanes, walk.one_loop, walk.wide, walk.operands);
    let stores = format!("{:?} {}", of.stores, compute(of));
    gpu.function(Key::new(Family::Fused, "fused", text.tags(&[&form, &stores])), || defines(of, text, inputs, walk))
}

/// Calls `$f` with the number of operands that a nest is compiled for.
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
            9..=14 => {
                const $N: usize = 14;
                $f
            }
            _ => {
                const $N: usize = MAX_INPUTS + MAX_OUTPUTS;
                $f
            }
        }
    };
}

fn fits(c: &call::Fused<View>) -> bool {
    c.inputs.len() <= MAX_INPUTS && c.outs.len() <= MAX_OUTPUTS && c.outs.len() == c.of.stores.len()
}

impl Gpu {
    /// Runs fused steps. Returns whether it did: not while the kernel is being compiled.
    pub fn fused(&self, c: &call::Fused<View>) -> Result<bool> {
        if c.outs.first().is_none_or(|out| out.numel() == 0) {
            return Ok(true);
        }
        if !fits(c) {
            return Ok(false);
        }
        with_operands!(c, N => {
            let Prepared { function, grid, nest, arguments, count } = Prepared::<N>::new(self, c)?;
            if !function.is_compiled() {
                return Ok(false);
            }
            launch!(self, function, grid; nest, arguments, count)?;
            Ok(true)
        })
    }

    /// Starts the compilation of the kernel. Returns whether it is done, or there is none to wait for.
    pub fn prepare_fused(&self, c: &call::Fused<View>) -> Result<bool> {
        if c.outs.first().is_none_or(|out| out.numel() == 0) || !fits(c) {
            return Ok(true);
        }
        with_operands!(c, N => {
            Ok(Prepared::<N>::new(self, c)?.function.is_compiled())
        })
    }
}

/// Steps of every kind, for the catalogue.
pub fn example(lanes: usize) -> Defines {
    let step = |op: StepOp, out: DType, args: &[StepArg], params: &[f64]| Step {
        op,
        compute: DType::F32,
        out,
        args: args.iter().copied().collect(),
        params: params[..].into(),
    };
    let (input, value) = (StepArg::Input, StepArg::Step);
    let unused = StepArg::Unused;
    let of = Steps {
        steps: vec![
            step(StepOp::Row(Pointwise::Mul), DType::BF16, &[input(0), input(1)], &[]),
            step(StepOp::Row(Pointwise::Gt), DType::Bool, &[value(0), StepArg::Number(Scalar::Float(0.5))], &[]),
            step(StepOp::Select, DType::BF16, &[value(1), value(0), StepArg::Number(Scalar::Int(0))], &[]),
            step(
                StepOp::Derivative(Pointwise::Gelu, 0),
                DType::F32,
                &[value(2), input(1), unused, unused, unused],
                &[],
            ),
            step(StepOp::Row(Pointwise::LeakyRelu), DType::F32, &[value(3)], &[0.1]),
            step(StepOp::Copy, DType::F16, &[value(4)], &[]),
        ],
        stores: [1, 5].into_iter().collect(),
    };
    let walk = Walk {
        lanes,
        modes: vec![Lanes::Next, if lanes > 1 { Lanes::Same } else { Lanes::Next }],
        one_loop: lanes > 1,
        wide: false,
        operands: 4,
    };
    defines(&of, &Text::new(&of), &[DType::BF16, DType::F32], &walk)
}
