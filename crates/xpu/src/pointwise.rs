//! Pointwise ops and similar passes: copies, fills, selections. One kernel driver (`kernels/pointwise.cl`), compiled
//! once per op, dtypes and layout class.

use crate::device::Xpu;
use crate::driver::Arg;
use crate::program::{Argument, At, Defines, Family, Key, Kind, Number, converted, run, stored, tag, wide};
use crate::row_text::RowText;
use rushlight_core::rows::Class;
use rushlight_core::{DType, Operand, Pointwise, Result, Scalar, View};
use rushlight_gpu::launch::formula::{Formula, INPUTS, integer};
use rushlight_gpu::launch::nest::{Nest, in_memory_order, is_wide, loops, merged};

/// Work items per group.
const GROUP: usize = 128;
/// Maximum operands: inputs and the output.
const OPERANDS: usize = INPUTS + 1;
/// Elements from which a kernel for the op, the dtypes and the layout is compiled; smaller tensors use a generic kernel
/// shared by several ops.
const LARGE: usize = 1 << 14;
/// Rows of the op table per generic kernel.
const CHUNK: usize = 8;
/// Elements of the innermost loop from which it is a dimension of the launch.
const LONG_LOOP: usize = 64;

/// Layout of an operand's innermost loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The same element for all.
    None = 0,
    /// Side by side.
    One = 1,
    /// A stride passed to the kernel.
    Any = 2,
}

/// Compile-time parameters of a kernel: formula, dtypes, layout class.
#[derive(Clone, Copy, Debug)]
struct Form {
    formula: Formula,
    /// The dtype that inputs are converted to.
    compute: DType,
    out: DType,
    /// Dtype of each input; `None` for a scalar or a missing input.
    inputs: [Option<DType>; INPUTS],
    /// Whether an input is a scalar.
    numbers: [bool; INPUTS],
    /// Layouts of the output and the inputs if the innermost loop is a dimension of the launch.
    steps: Option<[Step; OPERANDS]>,
    narrow: bool,
}

impl Form {
    fn key(&self) -> Key {
        let input = |i: usize| self.inputs[i].map_or(self.numbers[i] as u16, |dtype| 2 + dtype as u16);
        let steps = self.steps.map_or(u16::MAX, |steps| steps.iter().fold(0, |n, &s| n * 3 + s as u16));
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
                steps,
                self.narrow as u16,
            ],
        )
    }

    fn defines(&self) -> Defines {
        let raw = matches!(self.formula, Formula::Copy | Formula::Select);
        let real = !raw && self.compute.is_float();
        let register = wide(self.compute);
        let (mut declare, mut loads) = (String::new(), String::new());
        for i in 0..INPUTS {
            // The first input of a selection is the condition, whatever the others' dtype.
            let target = if self.formula == Formula::Select && i == 0 { DType::Bool } else { self.compute };
            if let Some(dtype) = self.inputs[i] {
                declare += &format!(", const __global {}* in{i}", stored(dtype));
                let load = converted(dtype, target, &format!("load_{}(in{i}, at[{}])", tag(dtype), i + 1));
                loads += &format!("const {} x{i} = {load}; ", wide(target));
            } else if self.numbers[i] {
                let carried = if target.is_float() { wide(target) } else { "long" };
                declare += &format!(", const {carried} in{i}");
                loads += &format!("const {0} x{i} = ({0})in{i}; ", wide(target));
            } else if !raw {
                loads += &format!("const R x{i} = 0; ");
            }
        }
        let (row, needs, params, result) = self.expression();
        for i in 0..params {
            declare += &format!(", const {} p{i}", if self.compute.is_float() { register } else { "long" });
        }
        let mut defines = Defines::default()
            .define("R", register)
            .define("R_IS_DOUBLE", (self.compute == DType::F64) as u8)
            .define("REAL", real as u8)
            .define("INTEGER", (!real && !raw) as u8)
            .dtype("OUT", self.out)
            .define("OPERANDS", OPERANDS)
            .define("GROUP", GROUP)
            .define("FAST", self.steps.is_some() as u8)
            .define("DECLARE", declare)
            .define("LOADS", loads)
            .define("ROW", row)
            .define("RESULT", result);
        for name in needs {
            defines = defines.define(&format!("NEEDS_{name}"), 1);
        }
        if let Some(steps) = self.steps {
            let mut inner = String::new();
            for (k, step) in steps.iter().enumerate() {
                inner += &match step {
                    Step::None => String::new(),
                    Step::One => format!("at[{k}] += inner; "),
                    Step::Any => format!("at[{k}] += (long)inner * nest.strides[{k}][0]; "),
                };
            }
            defines = defines.define("INNER_OFFSETS", inner);
        }
        if self.narrow { defines.define("NARROW", 1) } else { defines }
    }

    /// The op's function, the special functions it needs, the number of its parameters, and the expression of a result.
    fn expression(&self) -> (String, Vec<&'static str>, usize, String) {
        let row = match self.formula {
            Formula::Copy => {
                return (String::new(), Vec::new(), 0, converted(self.compute, self.out, "x0"));
            }
            Formula::Select => {
                let chosen = converted(self.compute, self.out, "(x0 ? x1 : x2)");
                return (String::new(), Vec::new(), 0, chosen);
            }
            Formula::Row(op) => RowText::value(op, "row_value"),
            Formula::Derivative(op, wrt) => RowText::derivative(op, wrt as usize, "row_value"),
        };
        let call = row.call("row_value", &(self.compute.size() * 8).to_string());
        let result = if row.truth {
            converted(DType::I32, self.out, &call)
        } else {
            // Truncates the excess bits of a small integer in a register.
            let narrowed = match self.compute {
                DType::I16 | DType::I8 | DType::U8 => converted(DType::I32, self.compute, &call),
                _ => call,
            };
            converted(self.compute, self.out, &narrowed)
        };
        (row.text, row.needs, row.params, result)
    }
}

/// Work items per group of the generic kernels.
const GROUP_ANY: usize = 16;
/// Codes of inputs that are not tensors, besides the dtypes'.
const NOTHING: u32 = 14;
const NUMBER: u32 = 15;

/// The number of a row's value, or of its derivative, in its generic kernel; 0 copies, 1 selects.
fn case(op: Pointwise, wrt: Option<usize>) -> u32 {
    (2 + (op as usize % CHUNK) * 4 + wrt.map_or(0, |wrt| wrt + 1)) as u32
}

/// Definitions of the generic kernel with the rows of a chunk of the table.
fn any_defines(chunk: Option<usize>, kind: Kind) -> Defines {
    let (mut rows, mut cases) = (String::new(), String::new());
    let mut needs = std::collections::BTreeSet::new();
    let mut add = |row: RowText, name: &str, number: u32| {
        rows += &format!("{} ", row.text);
        cases += &format!("case {number}: y = (R){}; break; ", row.call(name, "bits"));
        needs.extend(row.needs);
    };
    let ops = chunk.map_or(&[][..], |c| &Pointwise::ALL[c * CHUNK..((c + 1) * CHUNK).min(Pointwise::ALL.len())]);
    for &op in ops {
        let takes = match op.class() {
            Class::Real | Class::Test => kind != Kind::I64,
            Class::Bits => kind == Kind::I64,
            Class::Num | Class::Compare => true,
        };
        if takes {
            let name = format!("value_{}", op as usize);
            add(RowText::value(op, &name), &name, case(op, None));
        }
        if kind != Kind::I64 {
            for wrt in 0..op.grad_text().len() {
                let name = format!("derivative_{}_{wrt}", op as usize);
                add(RowText::derivative(op, wrt, &name), &name, case(op, Some(wrt)));
            }
        }
    }
    let defines = Defines::default()
        .kind(kind)
        .define("R_IS_DOUBLE", (kind == Kind::F64) as u8)
        .define("REAL", (kind != Kind::I64) as u8)
        .define("INTEGER", (kind == Kind::I64) as u8)
        .define("GROUP", GROUP_ANY)
        .define("NARROW", 1)
        .define("ROWS", rows)
        .define("CASES", cases);
    needs.iter().fold(defines, |defines, name| defines.define(&format!("NEEDS_{name}"), 1))
}

/// A scalar in the encoding of a kernel with this arithmetic.
fn number(value: Scalar, dtype: DType) -> Number {
    if dtype.is_float() {
        return Number::float(value.to_f64(), dtype);
    }
    Number::I64(integer(value, dtype))
}

impl Xpu {
    /// Runs a formula over all elements of `out`.
    fn formula(
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
        let mut views: [Option<View>; INPUTS] = [None; INPUTS];
        let mut values: [Option<Number>; INPUTS] = [const { None }; INPUTS];
        for (i, operand) in operands.iter().enumerate() {
            match operand {
                Some(Operand::Tensor(view)) => views[i] = Some(*view),
                Some(Operand::Scalar(value)) => values[i] = Some(number(*value, compute)),
                None => {}
            }
        }
        if out.numel() < LARGE {
            return self.formula_any(formula, compute, views, values, params, out);
        }
        let mut dtypes = vec![compute, out.dtype()];
        dtypes.extend(views.iter().flatten().map(|v| v.dtype()));
        self.require(&dtypes)?;
        let none: [usize; 0] = [];
        let strides: [&[usize]; OPERANDS] =
            std::array::from_fn(
                |k| if k == 0 { out.strides() } else { views[k - 1].map_or(&none[..], |v| v.strides()) },
            );
        let loops = merged(&in_memory_order(loops(out.shape(), strides)));
        let (inner, steps) = *loops.last().unwrap_or(&(1, [0; OPERANDS]));
        let rows = out.numel() / inner.max(1);
        let fast = inner >= LONG_LOOP;
        let form = Form {
            formula,
            compute,
            out: out.dtype(),
            inputs: std::array::from_fn(|i| views[i].map(|v| v.dtype())),
            numbers: std::array::from_fn(|i| values[i].is_some()),
            steps: fast.then(|| {
                steps.map(|step| match step {
                    0 => Step::None,
                    1 => Step::One,
                    _ => Step::Any,
                })
            }),
            narrow: !is_wide(&loops),
        };
        let kernel = self.kernel(form.key(), || form.defines())?;
        let nest = Nest::new(&loops)?;
        let count = out.numel();
        let carried: Vec<Number> = match () {
            _ if compute.is_float() => params.iter().map(|&p| Number::float(p, compute)).collect(),
            _ => params.iter().map(|&p| Number::I64(p as i64)).collect(),
        };
        let to = At(out.ptr() as u64);
        let places = views.map(|v| At(v.map_or(0, |v| v.ptr() as u64)));
        let mut args: Vec<Arg> = vec![nest.arg(), count.arg(), to.arg()];
        for i in 0..INPUTS {
            match (&views[i], &values[i]) {
                (Some(_), _) => args.push(places[i].arg()),
                (None, Some(value)) => args.push(value.arg()),
                _ => {}
            }
        }
        args.extend(carried.iter().map(|p| p.arg()));
        let groups = if fast { [inner.div_ceil(GROUP), rows, 1] } else { [count.div_ceil(GROUP), 1, 1] };
        // SAFETY: the arguments are those that `defines` declares; accesses follow the views' layouts.
        unsafe { self.launch(kernel, groups, [GROUP, 1, 1], &args) }
    }

    /// The same for small tensors, by the generic kernel.
    fn formula_any(
        &self,
        formula: Formula,
        compute: DType,
        views: [Option<View>; INPUTS],
        values: [Option<Number>; INPUTS],
        params: &[f64],
        out: View,
    ) -> Result<()> {
        let kind = Kind::of(compute);
        let mut dtypes = vec![compute, out.dtype()];
        dtypes.extend(views.iter().flatten().map(|v| v.dtype()));
        self.require(&dtypes)?;
        let (chunk, op) = match formula {
            Formula::Copy => (None, 0),
            Formula::Select => (None, 1),
            Formula::Row(op) => (Some(op as usize / CHUNK), case(op, None)),
            Formula::Derivative(op, wrt) => (Some(op as usize / CHUNK), case(op, Some(wrt as usize))),
        };
        let key = Key::new(Family::PointwiseAny, "pointwise_any", [chunk.map_or(u16::MAX, |c| c as u16), kind as u16]);
        let kernel = self.kernel(key, || any_defines(chunk, kind))?;
        let none: [usize; 0] = [];
        let strides: [&[usize]; OPERANDS] =
            std::array::from_fn(
                |k| if k == 0 { out.strides() } else { views[k - 1].map_or(&none[..], |v| v.strides()) },
            );
        let nest = Nest::new(&merged(&in_memory_order(loops(out.shape(), strides))))?;
        let codes = (0..INPUTS).fold(0u32, |codes, i| {
            let code = match (&views[i], &values[i]) {
                (Some(view), _) => view.dtype() as u32,
                (None, Some(_)) => NUMBER,
                _ => NOTHING,
            };
            codes | code << (4 * i)
        });
        let numbers = values.map(|v| v.unwrap_or(kind.number(0.0)));
        let params: [Number; 4] = std::array::from_fn(|i| kind.number(params.get(i).copied().unwrap_or(0.0)));
        let (count, to) = (out.numel(), At(out.ptr() as u64));
        // An input that a row does not read gets any valid address.
        let [a, b, c, d, e] = views.map(|v| At(v.map_or(to.0, |v| v.ptr() as u64)));
        let [n0, n1, n2, n3, n4] = numbers;
        let [p0, p1, p2, p3] = params;
        let (out_code, mode) = (out.dtype() as u32, compute as u32);
        run!(self, kernel, [count.div_ceil(GROUP_ANY), 1, 1], [GROUP_ANY, 1, 1];
            nest, count, to, a, b, c, d, e, n0, n1, n2, n3, n4, p0, p1, p2, p3, codes, out_code, mode, op)
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
        self.formula(Formula::Derivative(op, wrt as u8), compute, values, params, out)
    }

    pub fn select(&self, condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
        let operands = [Some(Operand::Tensor(condition)), Some(a), Some(b), None, None];
        self.formula(Formula::Select, out.dtype(), operands, &[], out)
    }

    pub fn fill(&self, value: Scalar, out: View) -> Result<()> {
        self.formula(Formula::Copy, out.dtype(), [Some(Operand::Scalar(value)), None, None, None, None], &[], out)
    }

    pub fn copy(&self, src: View, out: View) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        if src.dtype() == out.dtype() && src.layout().is_contiguous() && out.layout().is_contiguous() {
            let bytes = out.numel() * out.dtype().size();
            if src.ptr() == out.ptr() {
                return Ok(());
            }
            // Drivers of CPUs copy on one core.
            const SHARED_OUT: usize = 1 << 20;
            if self.driver.abilities().is_cpu && bytes >= SHARED_OUT {
                let kernel = self.kernel(Key::new(Family::Copy, "copy_bytes", []), Defines::default)?;
                let each = bytes.div_ceil(8 * self.driver.abilities().compute_units.max(1)).next_multiple_of(4096);
                let (from, to) = (At(src.ptr() as u64), At(out.ptr() as u64));
                return run!(self, kernel, [bytes.div_ceil(each), 1, 1], [1, 1, 1]; from, to, bytes, each);
            }
            // SAFETY: both views are contiguous and of this many bytes.
            unsafe { self.driver.copy(self.queue(), out.ptr() as u64, src.ptr() as u64, bytes, false)? };
            return self.launched();
        }
        self.formula(Formula::Copy, out.dtype(), [Some(Operand::Tensor(src)), None, None, None, None], &[], out)
    }
}
