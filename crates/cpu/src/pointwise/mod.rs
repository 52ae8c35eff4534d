//! Pointwise ops: a compiled loop per op and dtype, and a driver that feeds it operands of any strides and dtypes.

pub(crate) mod convert;
mod driver;
mod fused;
mod kernel;
pub(crate) mod produce;
pub(crate) mod stream;
pub(crate) mod transpose;
pub(crate) mod walk;

use crate::pool;
pub use driver::CHUNK;
pub(crate) use driver::scalar_bits;
use driver::{Job, UNUSED};
pub use fused::fused;
use kernel::{INPUTS, Kernel, SelectBody};
use rushlight_core::rows::Class;
use rushlight_core::{DType, Error, Operand, Pointwise, Result, View};
use std::mem::MaybeUninit;

/// Elements from which two threads pay.
pub(crate) const PARALLEL_FROM: usize = 32_768;
/// The same for ops that are bound by arithmetic.
pub(crate) const PARALLEL_FROM_HEAVY: usize = 8_192;

/// A row of the op table (see `call::Pointwise`).
pub fn pointwise(op: Pointwise, compute: DType, inputs: &[Operand], params: &[f64], out: View) -> Result<()> {
    let kernel = kernel::value(op, compute).ok_or_else(|| unavailable(op, compute))?;
    let class = op.class();
    let writes = if matches!(class, Class::Compare | Class::Test) { DType::Bool } else { compute };
    let mut padded = [None; INPUTS];
    for i in 0..inputs.len().min(INPUTS) {
        padded[i] = Some(inputs[i]);
    }
    let heavy = matches!(class, Class::Real);
    run(kernel, &padded, [compute; INPUTS], writes, params, out, heavy);
    Ok(())
}

/// The derivative of a row (see `call::PointwiseGrad`).
pub fn pointwise_grad(
    op: Pointwise,
    wrt: usize,
    compute: DType,
    values: [Option<Operand>; 5],
    params: &[f64],
    out: View,
) -> Result<()> {
    let kernel = kernel::derivative(op, wrt, compute).ok_or_else(|| unavailable(op, compute))?;
    let heavy = matches!(op.class(), Class::Real);
    run(kernel, &values, [compute; INPUTS], compute, params, out, heavy);
    Ok(())
}

/// `out = condition ? a : b` (see `call::Select`).
pub fn select(condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
    let kernel = match out.dtype().size() {
        1 => kernel::compiled::<SelectBody<u8>>(),
        2 => kernel::compiled::<SelectBody<u16>>(),
        4 => kernel::compiled::<SelectBody<u32>>(),
        _ => kernel::compiled::<SelectBody<u64>>(),
    };
    let mut reads = [out.dtype(); INPUTS];
    reads[0] = DType::Bool;
    let inputs = [Some(Operand::Tensor(condition)), Some(a), Some(b), None, None];
    run(kernel, &inputs, reads, out.dtype(), &[], out, false);
    Ok(())
}

#[cold]
fn unavailable(op: Pointwise, compute: DType) -> Error {
    Error::dtype(format!("{} is not defined for {compute}", op.name()))
}

#[inline]
fn run<'a>(
    kernel: Kernel,
    inputs: &[Option<Operand<'a>>; INPUTS],
    reads: [DType; INPUTS],
    writes: DType,
    params: &[f64],
    out: View<'a>,
    heavy: bool,
) {
    let mut padded = [0.0; 4];
    // At most four moves: a call to copy them would cost more.
    #[allow(clippy::manual_memcpy)]
    for i in 0..params.len().min(4) {
        padded[i] = params[i];
    }
    let parallel_from = if heavy { PARALLEL_FROM_HEAVY } else { PARALLEL_FROM };
    let job = Job { kernel, inputs, reads, writes, params: padded, out, parallel_from };
    if !run_flat(&job) {
        driver::run(&job);
    }
}

/// Maximum elements per kernel call.
const SMALL: usize = 64;
const _: () = assert!(SMALL <= CHUNK);

/// Runs the kernel if all tensors are contiguous and of the kernel's dtypes; otherwise returns false.
///
/// This is the hot path of small tensors: it avoids iterator adapters, which builds with little inlining would not
/// inline.
#[inline]
fn run_flat(job: &Job) -> bool {
    let (out, writes) = (job.out, job.writes);
    if out.dtype() != writes || !out.layout().is_contiguous() {
        return false;
    }
    let mut flat = Flat {
        kernel: job.kernel,
        inputs: [UNUSED.as_ptr().cast(); INPUTS],
        steps: [0; INPUTS],
        out: out.ptr(),
        out_step: writes.size(),
        params: job.params,
        in_place: false,
    };
    let mut numbers = [(0, 0); INPUTS];
    for i in 0..INPUTS {
        match &job.inputs[i] {
            None => {}
            Some(Operand::Tensor(view)) => {
                if view.dtype() != job.reads[i] || !view.layout().is_contiguous() {
                    return false;
                }
                flat.inputs[i] = view.ptr();
                flat.steps[i] = view.dtype().size();
                flat.in_place |= view.ptr() == out.ptr();
            }
            Some(Operand::Scalar(value)) => numbers[i] = (scalar_bits(*value, job.reads[i]), job.reads[i].size()),
        }
    }
    let n = out.numel();
    // SAFETY: tensors have `n` contiguous elements of the dtypes the kernel knows (the tensor layer has checked
    // shapes).
    unsafe {
        if n <= SMALL {
            flat.run::<SMALL>(&numbers, n, usize::MAX);
        } else {
            flat.run_large(&numbers, n, job.parallel_from);
        }
    }
    true
}

/// A kernel over contiguous memory.
struct Flat {
    kernel: Kernel,
    inputs: [*const u8; INPUTS],
    /// Strides in bytes; zero for inputs that are the same for every chunk.
    steps: [usize; INPUTS],
    out: *mut u8,
    out_step: usize,
    params: [f64; 4],
    /// Whether the output is one of the inputs.
    in_place: bool,
}

// SAFETY: addresses; the caller of `run` guarantees the accesses.
unsafe impl Sync for Flat {}

impl Flat {
    /// [`Flat::run`] in long chunks. Not inlined: their buffers would make every small op touch pages of
    /// stack.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(never)]
    unsafe fn run_large(self, numbers: &[(u64, usize); INPUTS], n: usize, parallel_from: usize) {
        // SAFETY: the caller's.
        unsafe { self.run::<CHUNK>(numbers, n, parallel_from) }
    }

    /// Runs the kernel over `n` elements, at most `LEN` at a time; `numbers` are the values and sizes of inputs that
    /// are numbers.
    ///
    /// # Safety
    /// Inputs with a step have `n` elements of that size, the output has room for `n`.
    #[inline(always)]
    unsafe fn run<const LEN: usize>(mut self, numbers: &[(u64, usize); INPUTS], n: usize, parallel_from: usize) {
        let mut splats: [[MaybeUninit<u64>; LEN]; INPUTS] = [[MaybeUninit::uninit(); LEN]; INPUTS];
        for i in 0..INPUTS {
            let (bits, size) = numbers[i];
            if size > 0 {
                // SAFETY: the buffer has room for `LEN` elements of eight bytes.
                unsafe { splat(bits, size, n.min(LEN), splats[i].as_mut_ptr().cast()) };
                self.inputs[i] = splats[i].as_ptr().cast();
            }
        }
        if n <= LEN {
            // SAFETY: the caller's.
            return unsafe { self.chunk::<LEN>(n, &self.inputs, self.out, false) };
        }
        let stream = n * self.out_step >= driver::STREAM_BYTES;
        let chunks = n.div_ceil(LEN);
        let tasks = if n < parallel_from { 1 } else { pool::num_threads() * 4 };
        pool::parallel_ranges(chunks, chunks.div_ceil(tasks), |first, last| {
            // SAFETY: the caller's; tasks write disjoint ranges.
            unsafe { self.chunks::<LEN>(first * LEN, n.min(last * LEN), stream) }
        });
    }

    /// Runs the kernel over elements `from..to`.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn chunks<const LEN: usize>(&self, from: usize, to: usize, stream: bool) {
        for start in (from..to).step_by(LEN) {
            let inputs = std::array::from_fn(|i| self.inputs[i].wrapping_add(start * self.steps[i]));
            let out = self.out.wrapping_add(start * self.out_step);
            // SAFETY: the ranges are within the caller's guarantee.
            unsafe { self.chunk::<LEN>(LEN.min(to - start), &inputs, out, stream) };
        }
        if stream {
            stream::fence();
        }
    }

    /// Runs the kernel over `len` elements, at most `LEN`.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn chunk<const LEN: usize>(&self, len: usize, inputs: &[*const u8; INPUTS], out: *mut u8, stream: bool) {
        let mut buffer: [MaybeUninit<u64>; LEN] = [MaybeUninit::uninit(); LEN];
        let result = buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's; a buffer separates an output from an input it overwrites, since kernels promise the
        // compiler that the two differ.
        unsafe {
            if self.in_place || stream {
                (self.kernel)(len, inputs, result, &self.params);
                if stream {
                    stream::copy_past_cache(result, out, len * self.out_step);
                } else {
                    result.copy_to_nonoverlapping(out, len * self.out_step);
                }
            } else {
                (self.kernel)(len, inputs, out, &self.params);
            }
        }
    }
}

/// Writes `n` copies of the low `size` bytes of `bits`.
///
/// # Safety
/// `to` is aligned for and has room for `n` elements of `size` bytes.
unsafe fn splat(bits: u64, size: usize, n: usize, to: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        match size {
            1 => std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<u8>>(), n).fill(MaybeUninit::new(bits as u8)),
            2 => std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<u16>>(), n).fill(MaybeUninit::new(bits as u16)),
            4 => std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<u32>>(), n).fill(MaybeUninit::new(bits as u32)),
            _ => std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<u64>>(), n).fill(MaybeUninit::new(bits)),
        }
    }
}
