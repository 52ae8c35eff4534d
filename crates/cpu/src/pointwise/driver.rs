//! Runs a kernel over strided operands of any dtype: in chunks that fit the first-level cache, over the pool.

use super::convert::converter;
use super::kernel::{INPUTS, Kernel};
use super::stream::copy_past_cache;
use super::walk::{Strided, by_output_stride, inner, inner_stride, is_dense, offset};
use crate::pool;
use rushlight_core::layout::Nest;
use rushlight_core::{DType, Operand, Scalar, View, with_dtype};
use std::mem::MaybeUninit;

/// Elements a kernel is called with at most.
pub const CHUNK: usize = 1024;
/// Shorter rows are processed several at a time.
const SHORT_ROW: usize = 256;
/// Outputs from this size on bypass the caches: their start would be evicted anyway.
pub(super) const STREAM_BYTES: usize = 32 << 20;

/// Target of the pointers of unused inputs.
pub(super) static UNUSED: [u64; CHUNK] = [0; CHUNK];

/// A kernel and its operands.
pub(super) struct Job<'a> {
    pub kernel: Kernel,
    pub inputs: &'a [Option<Operand<'a>>; INPUTS],
    /// The dtypes the kernel reads.
    pub reads: [DType; INPUTS],
    /// The dtype the kernel writes.
    pub writes: DType,
    pub params: [f64; 4],
    pub out: View<'a>,
    /// Minimum elements for a second thread to pay.
    pub parallel_from: usize,
}

/// How a kernel gets a chunk of an input.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    /// Read in place: the memory has the kernel's layout and dtype.
    Direct,
    /// The same for every chunk: gathered once per task.
    Constant,
    /// Gathered for every chunk.
    Gather,
    /// The op has no such input.
    Unused,
}

/// A buffer for a chunk. The padding gives adjacent buffers different page offsets.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Buffer {
    _room: [MaybeUninit<u64>; CHUNK + 24],
}

struct Plan {
    kernel: Kernel,
    params: [f64; 4],
    nest: Nest<{ INPUTS + 1 }>,
    inputs: [Strided; INPUTS],
    access: [Access; INPUTS],
    read_size: [usize; INPUTS],
    out: Strided,
    write_size: usize,
    /// Whether the kernel writes to the output directly.
    out_direct: bool,
    /// Whether chunks, gathered in a buffer, bypass the caches.
    stream: bool,
    /// Positions per chunk if rows are short (whole rows), else 0: chunks then stay within a row.
    span: usize,
}

/// The bytes of a number in a dtype.
pub(crate) fn scalar_bits(value: Scalar, dtype: DType) -> u64 {
    let mut bits = 0u64;
    // SAFETY: every element fits the eight bytes of `bits`.
    with_dtype!(dtype, T => unsafe { (&raw mut bits).cast::<T>().write(value.to::<T>()) });
    bits
}

/// Runs the job. Shapes have been checked: every input has the output's.
pub(super) fn run(job: &Job) {
    let numel = job.out.numel();
    if numel == 0 {
        return;
    }
    let zero = rushlight_core::Dims::from_elem(0, job.out.shape().len());
    // Numbers are inputs of stride zero, in the dtype the kernel reads.
    let mut numbers = [0u64; INPUTS];
    let mut inputs =
        [Strided { ptr: UNUSED.as_ptr() as *mut u8, size: 0, convert: converter(DType::U8, DType::U8) }; INPUTS];
    let mut strides = [&zero[..]; INPUTS + 1];
    for i in 0..INPUTS {
        match job.inputs[i] {
            Some(Operand::Tensor(view)) => {
                let convert = converter(view.dtype(), job.reads[i]);
                inputs[i] = Strided { ptr: view.ptr(), size: view.dtype().size(), convert };
                strides[i] = view.strides();
            }
            Some(Operand::Scalar(value)) => {
                numbers[i] = scalar_bits(value, job.reads[i]);
                let convert = converter(job.reads[i], job.reads[i]);
                inputs[i] = Strided { ptr: (&raw mut numbers[i]).cast(), size: job.reads[i].size(), convert };
            }
            None => {}
        }
    }
    strides[INPUTS] = job.out.strides();
    let nest = by_output_stride(job.out.shape(), strides);
    let cols = inner(&nest);
    let span = if nest.shape.len() > 1 && cols < SHORT_ROW { CHUNK / cols * cols } else { 0 };
    // Whether a chunk of operand `i` is contiguous memory.
    let contiguous = |i: usize| if span > 0 { is_dense(&nest, i) } else { inner_stride(&nest, i) == 1 };

    let access = std::array::from_fn(|i| match job.inputs[i] {
        None => Access::Unused,
        Some(Operand::Tensor(view)) if view.dtype() == job.reads[i] && contiguous(i) => Access::Direct,
        Some(_) => {
            let outer = &nest.strides[i][..nest.shape.len() - 1];
            let same_rows = outer.iter().all(|&s| s == 0);
            let same = same_rows && (span > 0 || inner_stride(&nest, i) == 0);
            if same { Access::Constant } else { Access::Gather }
        }
    });
    let in_place = |i: usize| access[i] == Access::Direct && inputs[i].ptr == job.out.ptr();
    let fits = job.out.dtype() == job.writes && contiguous(INPUTS);
    let stream = fits && numel * job.writes.size() >= STREAM_BYTES;
    let plan = Plan {
        kernel: job.kernel,
        params: job.params,
        inputs,
        access,
        read_size: job.reads.map(DType::size),
        out: Strided {
            ptr: job.out.ptr(),
            size: job.out.dtype().size(),
            convert: converter(job.writes, job.out.dtype()),
        },
        write_size: job.writes.size(),
        out_direct: fits && !stream && !(0..INPUTS).any(in_place),
        stream,
        span,
        nest,
    };
    let chunks = plan.chunks(numel);
    let tasks = if numel < job.parallel_from { 1 } else { pool::num_threads() * 4 };
    pool::parallel_ranges(chunks, chunks.div_ceil(tasks), |first, last| {
        // SAFETY: views are within their storages and have the nest's shape; tasks write disjoint chunks.
        unsafe { plan.run(numel, first, last) }
    });
}

impl Plan {
    /// Chunks per row, if rows are long.
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
        let mut buffers = [Buffer { _room: [MaybeUninit::uninit(); CHUNK + 24] }; INPUTS + 1];
        // One for each input and one for the output, each with room for CHUNK elements of up to eight bytes.
        let buffers = buffers.as_mut_ptr();
        let buffer = |i: usize| buffers.wrapping_add(i).cast::<u8>();
        let longest = if self.span > 0 { self.span.min(numel) } else { CHUNK.min(inner(&self.nest)) };
        for i in 0..INPUTS {
            if self.access[i] == Access::Constant {
                // SAFETY: the caller's; no chunk is longer than CHUNK.
                unsafe { self.inputs[i].gather(&self.nest, i, 0, longest, buffer(i), self.read_size[i]) }
            }
        }
        for index in first..last {
            let (start, len) = self.chunk(numel, index);
            let at =
                |i: usize, operand: &Strided| operand.ptr.wrapping_add(offset(&self.nest, i, start) * operand.size);
            let pointers = std::array::from_fn(|i| match self.access[i] {
                Access::Direct => at(i, &self.inputs[i]).cast_const(),
                Access::Unused => UNUSED.as_ptr().cast(),
                Access::Constant => buffer(i).cast_const(),
                Access::Gather => {
                    // SAFETY: as above.
                    unsafe { self.inputs[i].gather(&self.nest, i, start, len, buffer(i), self.read_size[i]) }
                    buffer(i).cast_const()
                }
            });
            // SAFETY: inputs and output have `len` elements; a buffer separates an output from an input it overwrites.
            unsafe {
                if self.out_direct {
                    (self.kernel)(len, &pointers, at(INPUTS, &self.out), &self.params);
                    continue;
                }
                let result = buffer(INPUTS);
                (self.kernel)(len, &pointers, result, &self.params);
                if self.stream {
                    copy_past_cache(result, at(INPUTS, &self.out), len * self.write_size);
                } else {
                    self.out.scatter(&self.nest, INPUTS, start, len, result, self.write_size);
                }
            }
        }
        if self.stream {
            super::stream::fence();
        }
    }
}
