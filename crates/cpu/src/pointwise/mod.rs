//! Pointwise ops: a compiled loop per op and dtype, and a driver that brings operands of any strides and dtypes to it.

pub(crate) mod convert;
mod driver;
mod kernel;
pub(crate) mod produce;
pub(crate) mod stream;
pub(crate) mod transpose;
pub(crate) mod walk;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use driver::{CHUNK, scalar_bits};
use driver::{Job, UNUSED};
use kernel::{INPUTS, Kernel, SelectBody};
use rushlight_core::rows::Class;
use rushlight_core::{DType, Error, Operand, Pointwise, Result, View};
use std::mem::MaybeUninit;

/// Elements from which on two threads are worth it.
pub(crate) const PARALLEL_FROM: usize = 32_768;
/// The same for ops that compute more than they move.
pub(crate) const PARALLEL_FROM_HEAVY: usize = 8_192;

/// A row of the op table (see `Backend::pointwise`).
pub fn pointwise(op: Pointwise, compute: DType, inputs: &[Operand], params: &[f64], out: View) -> Result<()> {
    let kernel = kernel::value(op, compute).ok_or_else(|| unavailable(op, compute))?;
    let class = op.class();
    let writes = if matches!(class, Class::Compare | Class::Test) { DType::Bool } else { compute };
    let mut padded = [None; INPUTS];
    for (slot, input) in padded.iter_mut().zip(inputs) {
        *slot = Some(*input);
    }
    let heavy = matches!(class, Class::Real);
    run(kernel, padded, [compute; INPUTS], writes, params, out, heavy);
    Ok(())
}

/// The derivative of a row (see `Backend::pointwise_grad`).
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
    run(kernel, values, [compute; INPUTS], compute, params, out, heavy);
    Ok(())
}

/// `out = condition ? a : b` (see `Backend::select`).
pub fn select(condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
    let kernel = match out.dtype.size() {
        1 => kernel::compiled::<SelectBody<u8>>(),
        2 => kernel::compiled::<SelectBody<u16>>(),
        4 => kernel::compiled::<SelectBody<u32>>(),
        _ => kernel::compiled::<SelectBody<u64>>(),
    };
    let mut reads = [out.dtype; INPUTS];
    reads[0] = DType::Bool;
    let inputs = [Some(Operand::Tensor(condition)), Some(a), Some(b), None, None];
    run(kernel, inputs, reads, out.dtype, &[], out, false);
    Ok(())
}

#[cold]
fn unavailable(op: Pointwise, compute: DType) -> Error {
    Error::dtype(format!("{} is not defined for {compute}", op.name()))
}

fn run(
    kernel: Kernel,
    inputs: [Option<Operand>; INPUTS],
    reads: [DType; INPUTS],
    writes: DType,
    params: &[f64],
    out: View,
    heavy: bool,
) {
    let mut padded = [0.0; 4];
    padded[..params.len().min(4)].copy_from_slice(&params[..params.len().min(4)]);
    if out.numel() <= SMALL && run_small(kernel, &inputs, &reads, writes, &padded, out) {
        return;
    }
    let parallel_from = if heavy { PARALLEL_FROM_HEAVY } else { PARALLEL_FROM };
    driver::run(&Job { kernel, inputs, reads, writes, params: padded, out, parallel_from });
}

/// Up to this many elements go straight to the kernel if they are contiguous.
const SMALL: usize = 64;
const _: () = assert!(SMALL <= CHUNK);

/// Runs the kernel in one call if all tensors are contiguous and of the kernel's dtypes; else does nothing and says so.
fn run_small(
    kernel: Kernel,
    inputs: &[Option<Operand>; INPUTS],
    reads: &[DType; INPUTS],
    writes: DType,
    params: &[f64; 4],
    out: View,
) -> bool {
    if out.dtype != writes || !out.layout.is_contiguous() {
        return false;
    }
    let n = out.numel();
    let mut numbers: [[MaybeUninit<u64>; SMALL]; INPUTS] = [[MaybeUninit::uninit(); SMALL]; INPUTS];
    let mut pointers = [UNUSED.as_ptr().cast::<u8>(); INPUTS];
    let mut in_place = false;
    for (i, input) in inputs.iter().enumerate() {
        match input {
            None => {}
            Some(Operand::Tensor(view)) => {
                if view.dtype != reads[i] || !view.layout.is_contiguous() {
                    return false;
                }
                pointers[i] = view.ptr();
                in_place |= pointers[i] == out.ptr().cast_const();
            }
            Some(Operand::Scalar(value)) => {
                let bits = scalar_bits(*value, reads[i]);
                let to = numbers[i].as_mut_ptr();
                // SAFETY: `n <= SMALL` elements of at most eight bytes fit the buffer.
                unsafe { splat(bits, reads[i].size(), n, to.cast()) };
                pointers[i] = to.cast_const().cast();
            }
        }
    }
    let mut result: [MaybeUninit<u64>; SMALL] = [MaybeUninit::uninit(); SMALL];
    // SAFETY: every input has `n` contiguous elements of the dtype the kernel reads (the tensor floor has checked shapes), the
    // output as many of the dtype it writes; a buffer stands between an output and an input it overwrites.
    unsafe {
        if in_place {
            kernel(n, &pointers, result.as_mut_ptr().cast(), params);
            result.as_ptr().cast::<u8>().copy_to_nonoverlapping(out.ptr(), n * writes.size());
        } else {
            kernel(n, &pointers, out.ptr(), params);
        }
    }
    true
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
