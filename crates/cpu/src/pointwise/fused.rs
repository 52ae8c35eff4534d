//! Fused pointwise steps: each chunk of all inputs goes through all steps in the first-level cache.

use super::convert::{Convert, converter};
use super::driver::{CHUNK, UNUSED, scalar_bits};
use super::kernel::{self, INPUTS, Kernel, SelectBody};
use super::walk::{Strided, by_output_stride, inner, inner_stride, is_dense, offset};
use super::{PARALLEL_FROM, PARALLEL_FROM_HEAVY, splat, unavailable};
use crate::pool;
use rushlight_core::backend::{MAX_INPUTS, MAX_OUTPUTS, Step, StepArg, StepOp, call};
use rushlight_core::layout::Nest;
use rushlight_core::rows::Class;
use rushlight_core::{DType, Error, Result, Scalar, View};

/// Operands of the loop nest; the first output is the last.
const OPERANDS: usize = MAX_INPUTS + MAX_OUTPUTS;
/// Bytes of a chunk's buffer. The padding gives adjacent buffers different page offsets.
const ROOM: usize = CHUNK * 8 + 192;
/// Shorter rows are processed several at a time.
const SHORT_ROW: usize = 256;

/// Where the elements of a chunk are.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// An input's own memory.
    Input(usize),
    /// An output's own memory.
    Output(usize),
    /// A buffer of the task.
    Buffer(usize),
    /// Nowhere: the kernel does not read it.
    Unused,
}

/// Work on one chunk.
enum Work {
    /// Copies elements of an input to a buffer.
    Gather {
        input: usize,
        to: usize,
    },
    Convert {
        from: Place,
        to: Place,
        convert: Convert,
    },
    Kernel {
        kernel: Kernel,
        args: [Place; INPUTS],
        to: Place,
        params: [f64; 4],
    },
    /// Copies a value to an output.
    Store {
        from: Place,
        output: usize,
    },
}

/// A value: its place and dtype.
#[derive(Clone, Copy)]
struct Value {
    place: Place,
    dtype: DType,
}

struct Plan {
    nest: Nest<OPERANDS>,
    inputs: Vec<Strided>,
    outputs: Vec<Strided>,
    /// Numbers: the buffer, the bits and the size of an element.
    numbers: Vec<(usize, u64, usize)>,
    /// Inputs that are the same for every chunk: the input and its buffer.
    constants: Vec<(usize, usize)>,
    works: Vec<Work>,
    buffers: usize,
    /// Positions per chunk if rows are short (whole rows), else 0: chunks then stay within a row.
    span: usize,
}

/// Buffers by number, given back after their last use.
#[derive(Default)]
struct Buffers {
    free: Vec<usize>,
    count: usize,
}

impl Buffers {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

/// Pointwise steps in one pass (see `call::Fused`). Returns whether it did: more operands than the nest has are
/// declined.
pub fn fused(c: &call::Fused<View>) -> Result<bool> {
    let Some(&first) = c.outs.first() else { return Ok(true) };
    if c.inputs.len() > MAX_INPUTS || c.outs.len() > MAX_OUTPUTS || c.of.stores.len() != c.outs.len() {
        return Ok(false);
    }
    let numel = first.numel();
    if numel == 0 {
        return Ok(true);
    }
    let plan = Plan::new(c)?;
    let heavy = c.of.steps.iter().any(|step| match step.op {
        StepOp::Row(op) | StepOp::Derivative(op, _) => op.class() == Class::Real,
        _ => false,
    });
    let chunks = plan.chunks(numel);
    let from = if heavy { PARALLEL_FROM_HEAVY } else { PARALLEL_FROM };
    let tasks = if numel < from { 1 } else { pool::num_threads() * 4 };
    pool::parallel_ranges(chunks, chunks.div_ceil(tasks), |a, b| {
        // SAFETY: views are within their storages and have the nest's shape; tasks write disjoint chunks.
        unsafe { plan.run(numel, a, b) }
    });
    Ok(true)
}

/// The kernel of a step, and the dtype it writes.
fn kernel_of(step: &Step) -> Result<Option<(Kernel, DType)>> {
    Ok(match step.op {
        StepOp::Row(op) => {
            let truth = matches!(op.class(), Class::Compare | Class::Test);
            let kernel = kernel::value(op, step.compute).ok_or_else(|| unavailable(op, step.compute))?;
            Some((kernel, if truth { DType::Bool } else { step.compute }))
        }
        StepOp::Derivative(op, wrt) => {
            let kernel = kernel::derivative(op, wrt as usize, step.compute);
            Some((kernel.ok_or_else(|| unavailable(op, step.compute))?, step.compute))
        }
        StepOp::Select => Some((
            match step.out.size() {
                1 => kernel::compiled::<SelectBody<u8>>(),
                2 => kernel::compiled::<SelectBody<u16>>(),
                4 => kernel::compiled::<SelectBody<u32>>(),
                _ => kernel::compiled::<SelectBody<u64>>(),
            },
            step.out,
        )),
        StepOp::Copy => None,
        StepOp::Reduced(_) => return Err(Error::unsupported("fused: a reduction of rows is no pointwise step")),
    })
}

/// The dtype that a step reads its argument `k` in.
fn read_dtype(step: &Step, k: usize) -> DType {
    match step.op {
        StepOp::Row(_) | StepOp::Derivative(..) => step.compute,
        StepOp::Select if k == 0 => DType::Bool,
        StepOp::Select | StepOp::Copy | StepOp::Reduced(_) => step.out,
    }
}

impl Plan {
    fn new(c: &call::Fused<View>) -> Result<Self> {
        let first = c.outs[0];
        let zero = rushlight_core::Dims::from_elem(0, first.shape().len());
        let mut strides = [&zero[..]; OPERANDS];
        for (i, x) in c.inputs.iter().enumerate() {
            strides[i] = x.strides();
        }
        for (k, out) in c.outs.iter().enumerate() {
            strides[OPERANDS - 1 - k] = out.strides();
        }
        let nest = by_output_stride(first.shape(), strides);
        let cols = inner(&nest);
        let span = if nest.shape.len() > 1 && cols < SHORT_ROW { CHUNK / cols * cols } else { 0 };
        let contiguous = |i: usize| if span > 0 { is_dense(&nest, i) } else { inner_stride(&nest, i) == 1 };
        let same = |i: usize| {
            let outer = &nest.strides[i][..nest.shape.len() - 1];
            outer.iter().all(|&s| s == 0) && (span > 0 || inner_stride(&nest, i) == 0)
        };
        let raw = |view: &View| {
            let dtype = view.dtype();
            Strided { ptr: view.ptr(), size: dtype.size(), convert: converter(dtype, dtype) }
        };
        let mut plan = Self {
            inputs: c.inputs.iter().map(raw).collect(),
            outputs: c.outs.iter().map(raw).collect(),
            numbers: Vec::new(),
            constants: Vec::new(),
            works: Vec::new(),
            buffers: 0,
            span,
            nest: nest.clone(),
        };
        let mut buffers = Buffers::default();
        let mut inputs = Vec::with_capacity(c.inputs.len());
        for (i, x) in c.inputs.iter().enumerate() {
            let place = if contiguous(i) {
                Place::Input(i)
            } else {
                let to = buffers.take();
                match same(i) {
                    true => plan.constants.push((i, to)),
                    false => plan.works.push(Work::Gather { input: i, to }),
                }
                Place::Buffer(to)
            };
            inputs.push(Value { place, dtype: x.dtype() });
        }
        // The step after which a value is not used: those of outputs that are copied last stay.
        let mut last = vec![0; c.of.steps.len()];
        for (i, step) in c.of.steps.iter().enumerate() {
            step.args.iter().for_each(|arg| {
                if let StepArg::Step(t) = arg {
                    last[*t as usize] = i;
                }
            });
        }
        c.of.stores.iter().for_each(|t| last[*t as usize] = usize::MAX);
        // An output over an input is written at the end of a chunk, when all steps have read the input.
        let direct = |k: usize| {
            let out = c.outs[k];
            contiguous(OPERANDS - 1 - k) && !c.inputs.iter().any(|x| x.storage().ptr() == out.storage().ptr())
        };
        let mut values: Vec<Value> = Vec::with_capacity(c.of.steps.len());
        let mut stores = Vec::new();
        for (i, step) in c.of.steps.iter().enumerate() {
            let mut args = [Place::Unused; INPUTS];
            let (mut temporary, mut copied) = (Vec::new(), step.out);
            for (k, arg) in step.args.iter().enumerate().take(INPUTS) {
                let wanted = read_dtype(step, k);
                let value = match arg {
                    StepArg::Input(x) => inputs.get(*x as usize).copied(),
                    StepArg::Step(t) => values.get(*t as usize).copied(),
                    StepArg::Number(number) => {
                        args[k] = plan.number(&mut buffers, *number, wanted);
                        continue;
                    }
                    StepArg::Unused => continue,
                };
                let value = value.ok_or_else(|| Error::value("fused: an argument that is not there"))?;
                args[k] = value.place;
                if step.op == StepOp::Copy {
                    copied = value.dtype;
                } else if value.dtype != wanted {
                    let to = buffers.take();
                    temporary.push(to);
                    let convert = converter(value.dtype, wanted);
                    plan.works.push(Work::Convert { from: value.place, to: Place::Buffer(to), convert });
                    args[k] = Place::Buffer(to);
                }
            }
            let store = c.of.stores.iter().position(|t| *t as usize == i);
            let place = match store {
                Some(k) if direct(k) => Place::Output(k),
                _ => Place::Buffer(buffers.take()),
            };
            match kernel_of(step)? {
                None => {
                    let convert = converter(copied, step.out);
                    plan.works.push(Work::Convert { from: args[0], to: place, convert });
                }
                Some((kernel, writes)) => {
                    let mut params = [0.0; 4];
                    for (p, value) in params.iter_mut().zip(step.params.iter()) {
                        *p = *value;
                    }
                    if writes == step.out {
                        plan.works.push(Work::Kernel { kernel, args, to: place, params });
                    } else {
                        let to = Place::Buffer(buffers.take());
                        plan.works.push(Work::Kernel { kernel, args, to, params });
                        plan.works.push(Work::Convert { from: to, to: place, convert: converter(writes, step.out) });
                        if let Place::Buffer(b) = to {
                            temporary.push(b);
                        }
                    }
                }
            }
            for (k, t) in c.of.stores.iter().enumerate() {
                if *t as usize == i && place != Place::Output(k) {
                    stores.push(Work::Store { from: place, output: k });
                }
            }
            buffers.free.append(&mut temporary);
            values.push(Value { place, dtype: step.out });
            for (t, value) in values.iter().enumerate() {
                if let (true, Place::Buffer(b)) = (last[t] == i || (t == i && last[t] < i), value.place) {
                    buffers.free.push(b);
                }
            }
        }
        plan.works.append(&mut stores);
        plan.buffers = buffers.count;
        Ok(plan)
    }

    /// A buffer filled with a number, made once for each number and dtype.
    fn number(&mut self, buffers: &mut Buffers, number: Scalar, dtype: DType) -> Place {
        let (bits, size) = (scalar_bits(number, dtype), dtype.size());
        if let Some((b, ..)) = self.numbers.iter().find(|(_, known, of)| *known == bits && *of == size) {
            return Place::Buffer(*b);
        }
        // Never one that another step has used: it keeps its elements for all chunks.
        buffers.count += 1;
        self.numbers.push((buffers.count - 1, bits, size));
        Place::Buffer(buffers.count - 1)
    }

    fn pieces(&self) -> usize {
        inner(&self.nest).div_ceil(CHUNK)
    }

    fn chunks(&self, numel: usize) -> usize {
        if self.span > 0 { numel.div_ceil(self.span) } else { numel / inner(&self.nest) * self.pieces() }
    }

    /// First position and length of a chunk.
    fn chunk(&self, numel: usize, index: usize) -> (usize, usize) {
        if self.span > 0 {
            let start = index * self.span;
            return (start, self.span.min(numel - start));
        }
        let (cols, pieces) = (inner(&self.nest), self.pieces());
        let (row, piece) = (index / pieces, index % pieces);
        let col = piece * CHUNK;
        (row * cols + col, CHUNK.min(cols - col))
    }

    /// Runs chunks `first..last`.
    ///
    /// # Safety
    /// The pointers and the nest describe elements that may be read, or that no other thread writes meanwhile.
    unsafe fn run(&self, numel: usize, first: usize, last: usize) {
        // Whole cache lines, so that the first is aligned.
        let mut memory: Vec<Line> = Vec::with_capacity(self.buffers * ROOM / size_of::<Line>());
        let memory = memory.as_mut_ptr().cast::<u8>();
        let buffer = |i: usize| memory.wrapping_add(i * ROOM);
        let longest = if self.span > 0 { self.span.min(numel) } else { CHUNK.min(inner(&self.nest)) };
        // SAFETY: the caller's; no chunk is longer than CHUNK, and a buffer has room for as many.
        unsafe {
            for &(b, bits, size) in &self.numbers {
                splat(bits, size, longest, buffer(b));
            }
            for &(i, b) in &self.constants {
                self.inputs[i].gather(&self.nest, i, 0, longest, buffer(b), self.inputs[i].size);
            }
        }
        for index in first..last {
            let (start, len) = self.chunk(numel, index);
            let at = |place: Place| match place {
                Place::Input(i) => self.inputs[i].ptr.wrapping_add(offset(&self.nest, i, start) * self.inputs[i].size),
                Place::Output(k) => {
                    let out = &self.outputs[k];
                    out.ptr.wrapping_add(offset(&self.nest, OPERANDS - 1 - k, start) * out.size)
                }
                Place::Buffer(b) => buffer(b),
                Place::Unused => UNUSED.as_ptr().cast_mut().cast(),
            };
            for work in &self.works {
                // SAFETY: every place has `len` elements of the dtype that the work reads or writes. A value has a
                // place that no argument of its step has.
                unsafe {
                    match work {
                        Work::Gather { input, to } => {
                            let x = &self.inputs[*input];
                            x.gather(&self.nest, *input, start, len, buffer(*to), x.size);
                        }
                        Work::Convert { from, to, convert } => convert(1, len, at(*from), [len, 1], at(*to), [len, 1]),
                        Work::Kernel { kernel, args, to, params } => {
                            kernel(len, &args.map(|arg| at(arg).cast_const()), at(*to), params);
                        }
                        Work::Store { from, output } => {
                            let out = &self.outputs[*output];
                            out.scatter(&self.nest, OPERANDS - 1 - output, start, len, at(*from), out.size);
                        }
                    }
                }
            }
        }
    }
}

/// A cache line.
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "memory of buffers")] [u8; 64]);
const _: () = assert!(ROOM.is_multiple_of(size_of::<Line>()));
