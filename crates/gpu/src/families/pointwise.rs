//! Pointwise ops and similar passes: copies, fills, selections. One kernel driver (`kernels/pointwise.cu`), compiled
//! once per op, dtypes and layout class.

use crate::device::Gpu;
pub use crate::launch::formula::Formula;
use crate::launch::formula::{INPUTS, integer};
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, c_type, launch};
use crate::launch::nest::{Nest, in_memory_order, is_wide, loops, merged};
use crate::vendor::driver::Handle;
use rushlight_core::rows::Class;
use rushlight_core::{DType, Operand, Pointwise, Result, Scalar, View};

/// Threads per block: small blocks keep a multiprocessor's memory units busier.
const THREADS: usize = 128;
/// Maximum operands: inputs and the output.
const OPERANDS: usize = INPUTS + 1;

/// Compile-time parameters of a kernel: formula, dtypes, layout class.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub formula: Formula,
    /// The dtype that inputs are converted to.
    pub compute: DType,
    pub out: DType,
    /// Dtype and lane layout of each input; `None` for a scalar or a missing input.
    pub inputs: [Option<(DType, Lanes)>; INPUTS],
    pub lanes: u16,
    pub one_loop: bool,
    pub wide: bool,
}

/// Layout, in one input, of the adjacent elements that a thread computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Side by side.
    Next = 0,
    /// The same element for all lanes.
    Same = 1,
    /// Strided.
    Apart = 2,
}

#[repr(C)]
struct Inputs {
    tensors: [u64; INPUTS],
    numbers: [u64; INPUTS],
    params: [f64; 4],
}

/// A launch with its arguments.
pub struct Prepared {
    pub function: Function,
    grid: Grid,
    nest: Nest<OPERANDS>,
    inputs: Inputs,
    place: u64,
    count: usize,
}

impl Prepared {
    /// Issues the launch on a stream.
    pub fn launch(&self, gpu: &Gpu, stream: Handle) -> Result<()> {
        let Prepared { function, grid, nest, inputs, place, count } = self;
        let mut args = [
            (&raw const *nest).cast_mut().cast::<std::ffi::c_void>(),
            (&raw const *inputs).cast_mut().cast(),
            (&raw const *place).cast_mut().cast(),
            (&raw const *count).cast_mut().cast(),
        ];
        let handle = function.load(gpu)?;
        gpu.enter()?;
        // SAFETY: the kernel's parameters, in order; their memory is not reused before this is
        // issued.
        unsafe { gpu.launch_now(handle, *grid, stream, &mut args) }
    }
}

impl Form {
    fn key(&self) -> Key {
        let input = |i: usize| self.inputs[i].map_or(0, |(dtype, lanes)| (1 + dtype as u16) | ((lanes as u16) << 8));
        Key::new(
            Family::Pointwise,
            "pointwise",
            [
                self.formula.number(),
                self.compute as u16 | (self.out as u16) << 8,
                input(0),
                input(1),
                input(2),
                input(3),
                input(4),
                self.lanes | (self.one_loop as u16) << 8 | (self.wide as u16) << 9,
            ],
        )
    }

    /// Definitions that specialise the driver's text.
    pub fn defines(&self) -> Defines {
        let raw = matches!(self.formula, Formula::Copy | Formula::Select);
        let compute = c_type(self.compute);
        let register = match self.compute {
            _ if raw => compute,
            DType::I16 | DType::I8 | DType::U8 | DType::Bool => "i32",
            _ => compute,
        };
        let real = !raw && self.compute.is_float();
        let mut loads = String::new();
        for (i, input) in self.inputs.iter().enumerate() {
            // The first input of a selection is the condition, whatever the others' dtype.
            let condition = self.formula == Formula::Select && i == 0;
            loads += &match input {
                Some(_) if condition => "for (int v = 0; v < LANES; v++) \
                     condition[u][v] = ((const u8*)in.tensors[0])[offsets[u][1] + v * (idx)(nest.strides[1][0] / LANES)]; "
                    .to_string(),
                Some((dtype, lanes)) => format!(
                    "load<{}, {}>(in.tensors[{i}], offsets[u][{}], (idx)(nest.strides[{}][0] / LANES), x[{i}][u]); ",
                    c_type(*dtype),
                    *lanes as u8,
                    i + 1,
                    i + 1
                ),
                None => format!("for (int v = 0; v < LANES; v++) x[{i}][u][v] = (R)Number<C>::of(in.numbers[{i}]); "),
            };
        }
        let (row, parameters, result) = self.expression();
        let mut defines = Defines::default()
            .define("C", compute)
            .define("R", register)
            .define("REAL", real as u8)
            .define("INTEGER", (!real && !raw) as u8)
            .dtype("OUT", self.out)
            .define("OPERANDS", OPERANDS)
            .define("INPUTS", INPUTS)
            .define("LANES", self.lanes)
            .define("THREADS", THREADS)
            .define("UNROLL", if self.lanes > 1 { 2 } else { 1 })
            .define("ROW", row)
            .define("PARAMETERS", parameters)
            .define("LOADS", loads)
            .define("RESULT", result);
        if self.one_loop {
            defines = defines.define("ONE_LOOP", 1);
        }
        if self.wide {
            defines = defines.define("WIDE", 1);
        }
        defines
    }

    /// The op's function, the declarations of its parameters, and the expression of a result.
    pub fn expression(&self) -> (String, String, String) {
        let (op, text, names) = match self.formula {
            Formula::Copy => return (String::new(), String::new(), "convert<OUT>(x[0][u][v])".into()),
            Formula::Select => {
                return (
                    String::new(),
                    "u8 condition[UNROLL][LANES];".into(),
                    "convert<OUT>(condition[u][v] ? x[1][u][v] : x[2][u][v])".into(),
                );
            }
            Formula::Row(op) => (op, op.text(), op.inputs().to_vec()),
            Formula::Derivative(op, wrt) => {
                let text = op.grad_text().get(wrt as usize).copied().unwrap_or("ZERO");
                let mut names = vec!["dy"];
                names.extend((0..3).map(|i| op.inputs().get(i).copied().unwrap_or(["", "unused1", "unused2"][i])));
                names.push("y");
                (op, text, names)
            }
        };
        let truth = matches!(op.class(), Class::Compare | Class::Test) && matches!(self.formula, Formula::Row(_));
        let arguments: Vec<String> = names.iter().chain(op.params()).map(|name| format!("R {name}")).collect();
        let row = format!(
            "__device__ inline {} row_value({}) {{ {} }}",
            if truth { "bool" } else { "R" },
            arguments.join(", "),
            returning(text)
        );
        let parameters: String =
            (0..op.params().len()).map(|i| format!("const R param{i} = (R)in.params[{i}]; ")).collect();
        let mut values: Vec<String> = (0..names.len()).map(|i| format!("x[{i}][u][v]")).collect();
        values.extend((0..op.params().len()).map(|i| format!("param{i}")));
        let call = format!("rl::row_value({})", values.join(", "));
        // Through the compute dtype: truncates the excess bits of a small integer in a register.
        let result =
            if truth { format!("convert<OUT>((i32){call})") } else { format!("convert<OUT>(convert<C>({call}))") };
        (row, parameters, result)
    }
}

/// A row's text as the body of a C function. Rows are sequences of `let` and a final expression; bitwise rows call
/// methods whose names are reserved in C.
pub fn returning(text: &str) -> String {
    let text = ["and", "or", "xor", "shl", "shr"]
        .iter()
        .fold(text.replace('\n', " "), |t, name| t.replace(&format!("a.{name}(b)"), &format!("bits_{name}(a, b)")));
    match text.rsplit_once(';') {
        Some((before, last)) => format!("{before}; return {last};"),
        None => format!("return {text};"),
    }
}

/// A scalar's bits in the encoding of `Number` in `prelude.cu`: an integer for integer types, else a double.
pub fn number(value: Scalar, dtype: DType) -> u64 {
    if dtype.is_float() {
        return value.to_f64().to_bits();
    }
    integer(value, dtype) as u64
}

/// Lanes of one thread: as many as 16 bytes of the largest element hold, if alignment allows loading them
/// at once.
fn lanes(loops: &crate::launch::nest::Loops<OPERANDS>, out: View, inputs: &[Option<View>; INPUTS]) -> usize {
    let Some((inner, outer)) = loops.split_last() else { return 1 };
    let largest = inputs.iter().flatten().map(|v| v.dtype().size()).chain([out.dtype().size()]).max().unwrap_or(8);
    let width = 16 / largest;
    let fits = |view: View, k: usize| {
        (view.ptr() as usize).is_multiple_of(width * view.dtype().size())
            && outer.iter().all(|l| l.1[k].is_multiple_of(width))
    };
    let dense = inner.0 % width == 0 && inner.1[0] == 1 && fits(out, 0);
    let loadable = || (0..INPUTS).all(|i| inputs[i].is_none_or(|view| inner.1[i + 1] != 1 || fits(view, i + 1)));
    if width > 1 && dense && loadable() { width } else { 1 }
}

impl Gpu {
    /// Runs a formula over all elements of `out`.
    pub fn formula(
        &self,
        formula: Formula,
        compute: DType,
        operands: [Option<Operand>; INPUTS],
        params: &[f64],
        out: View,
    ) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let Prepared { function, grid, nest, inputs, place, count } =
            self.prepared(formula, compute, operands, params, out)?;
        let views = operands.map(|operand| match operand {
            Some(Operand::Tensor(view)) => Some(view),
            _ => None,
        });
        if self.queue.has_pending() && self.is_apart_from_chain(&views, out) {
            let mut args = [
                (&raw const nest).cast_mut().cast::<std::ffi::c_void>(),
                (&raw const inputs).cast_mut().cast(),
                (&raw const place).cast_mut().cast(),
                (&raw const count).cast_mut().cast(),
            ];
            let sizes = [size_of_val(&nest), size_of_val(&inputs), size_of_val(&place), size_of_val(&count)];
            // SAFETY: the kernel's parameters, in order, and views within their storages.
            return unsafe { self.launch_ahead(function, grid, &mut args, &sizes) };
        }
        launch!(self, function, grid; nest, inputs, place, count)
    }

    /// The launch that runs a formula over all elements of `out`.
    fn prepared(
        &self,
        formula: Formula,
        compute: DType,
        operands: [Option<Operand>; INPUTS],
        params: &[f64],
        out: View,
    ) -> Result<Prepared> {
        let mut inputs = Inputs { tensors: [0; INPUTS], numbers: [0; INPUTS], params: [0.0; 4] };
        inputs.params[..params.len().min(4)].copy_from_slice(&params[..params.len().min(4)]);
        let mut views: [Option<View>; INPUTS] = [None; INPUTS];
        for (i, operand) in operands.iter().enumerate() {
            match operand {
                Some(Operand::Tensor(view)) => {
                    views[i] = Some(*view);
                    inputs.tensors[i] = view.ptr() as u64;
                }
                Some(Operand::Scalar(value)) => inputs.numbers[i] = number(*value, compute),
                None => {}
            }
        }
        let none: [usize; 0] = [];
        let strides: [&[usize]; OPERANDS] =
            std::array::from_fn(
                |k| if k == 0 { out.strides() } else { views[k - 1].map_or(&none[..], |v| v.strides()) },
            );
        let mut loops = merged(&in_memory_order(loops(out.shape(), strides)));
        let wide = is_wide(&loops);
        let lanes = lanes(&loops, out, &views);
        let inner = loops.last().map_or([0; OPERANDS], |l| l.1);
        if let Some(last) = loops.last_mut() {
            last.0 /= lanes;
            last.1 = last.1.map(|s| s * lanes);
        }
        let form = Form {
            formula,
            compute,
            out: out.dtype(),
            inputs: std::array::from_fn(|i| {
                views[i].map(|view| {
                    let how = match inner[i + 1] {
                        _ if lanes == 1 => Lanes::Next,
                        1 => Lanes::Next,
                        0 => Lanes::Same,
                        _ => Lanes::Apart,
                    };
                    (view.dtype(), how)
                })
            }),
            lanes: lanes as u16,
            one_loop: loops.len() == 1,
            wide,
        };
        let function = self.function(form.key(), || form.defines())?;
        let nest = Nest::new(&loops)?;
        let count = out.numel() / lanes;
        let per_block = THREADS * if lanes > 1 { 2 } else { 1 };
        let grid = Grid::line(count.div_ceil(per_block), THREADS)?;
        let place = out.ptr() as u64;
        Ok(Prepared { function, grid, nest, inputs, place, count })
    }

    pub fn pointwise(
        &self,
        op: Pointwise,
        compute: DType,
        inputs: &[Operand],
        params: &[f64],
        out: View,
    ) -> Result<()> {
        let (formula, operands) = Formula::of_row(op, compute, inputs)?;
        if matches!(op, Pointwise::Add | Pointwise::Relu) && self.join_chain(op, compute, inputs, out) {
            return Ok(());
        }
        self.formula(formula, compute, operands, params, out)
    }

    pub fn pointwise_grad(
        &self,
        op: Pointwise,
        wrt: usize,
        compute: DType,
        values: [Option<Operand>; INPUTS],
        params: &[f64],
        out: View,
    ) -> Result<()> {
        let formula = Formula::Derivative(op, wrt as u8);
        if let (Pointwise::Relu, [Some(Operand::Tensor(dy)), .., Some(Operand::Tensor(y))]) = (op, values)
            && self.hold_mask(|| self.prepared(formula, compute, values, params, out), dy, y, out)?
        {
            return Ok(());
        }
        self.formula(formula, compute, values, params, out)
    }

    pub fn select(&self, condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
        let operands = [Some(Operand::Tensor(condition)), Some(a), Some(b), None, None];
        self.formula(Formula::Select, out.dtype(), operands, &[], out)
    }

    pub fn fill(&self, value: Scalar, out: View) -> Result<()> {
        self.formula(Formula::Copy, out.dtype(), [Some(Operand::Scalar(value)), None, None, None, None], &[], out)
    }
}
