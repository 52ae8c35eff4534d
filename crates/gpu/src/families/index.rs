//! Indexing by tensors: reading, writing and adding blocks, gather and scatter, and finding nonzero elements
//! (`kernels/index.cu`).
//!
//! Values with duplicate indices are accumulated in an order that does not depend on timing: offsets are sorted, then
//! runs of equal ones are summed up in chunks; of few offsets each is compared with all. Sums of integers are the same
//! in any order: they use atomics.

use crate::device::{Gpu, Temporary};
use crate::families::scan::along;
use crate::families::sort::Order;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch, wide_type};
use crate::launch::nest::{Loops, MAX_RANK, Nest, loops, merged};
use rushlight_core::backend::{Scan, Scatter};
use rushlight_core::{DType, Dims, Error, Operand, Result, Scalar, View};

const THREADS: usize = 256;
/// Maximum index tensors per call.
const MAX_INDICES: usize = 8;
/// Elements that one block checks for zeros.
const NONZERO_BLOCK: usize = 1024;
/// Of more blocks than this, a scan adds up the counts.
const NONZERO_SUMMED: usize = 4096;
/// Lines up to this length are scattered by one thread each.
const SHORT_LINE: usize = 64;
/// From this many lines on, longer ones are too.
const MANY_LINES: usize = 4096;
/// Least elements per thread, and most blocks per multiprocessor, of a histogram.
const HISTOGRAM_ITEMS: usize = 4;
const HISTOGRAM_BLOCKS: usize = 8;
/// Maximum positions whose equals are found without sorting, and positions per block then.
const FEW: usize = 2048;
const FEW_PER_BLOCK: usize = 4;
/// Bounds of the sorted positions that one thread accumulates.
const CHUNKS: (usize, usize) = (8, 256);

#[repr(C)]
struct Dimensions {
    indices: [u64; MAX_INDICES],
    sizes: [u64; MAX_INDICES],
    strides: [u64; MAX_INDICES],
}

#[repr(C)]
struct Shape {
    rank: u32,
    sizes: [u64; MAX_RANK],
}

/// The C type that moves `bytes` at once.
fn moved(bytes: usize) -> &'static str {
    match bytes {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "u64",
        _ => "Vec16",
    }
}

/// Indices into one dimension of a size and a stride; `step` is the stride between them.
struct Chosen<'a> {
    index: View<'a>,
    step: usize,
    size: usize,
    stride: usize,
}

/// Strides of an indexed tensor's blocks, in it and in the dense tensor.
struct Blocks {
    /// Elements moved at once.
    width: usize,
    outer: Nest<1>,
    inner: Nest<2>,
    positions: usize,
    block: usize,
    /// Elements of the indexed tensor that positions select from.
    targets: usize,
    /// Elements that offsets of positions are multiples of.
    unit: usize,
}

impl Blocks {
    /// `indexed` has `count` leading dimensions that are indexed. With `vector`, 16 bytes are moved at once where
    /// alignment allows it.
    fn new(indexed: View, count: usize, dense: View, vector: bool) -> Result<Self> {
        let split = dense.shape().len() + count - indexed.shape().len();
        let (outer_shape, inner_shape) = dense.shape().split_at(split);
        let (outer_strides, dense_strides) = dense.strides().split_at(split);
        let (selected, indexed_strides) = indexed.strides().split_at(count);
        let outer = loops(outer_shape, [outer_strides]);
        let inner = loops(inner_shape, [indexed_strides, dense_strides]);
        let targets = indexed.shape()[..count].iter().product();
        Self::of(&outer, &inner, selected, [indexed, dense], vector, targets)
    }

    /// Blocks by their loops: those over positions, in the dense tensor, and those within a block, in both tensors.
    /// `selected` are the strides of the indexed dimensions.
    fn of(
        outer: &Loops<1>,
        inner: &Loops<2>,
        selected: &[usize],
        tensors: [View; 2],
        vector: bool,
        targets: usize,
    ) -> Result<Self> {
        let (mut outer, mut inner) = (merged(outer), merged(inner));
        let positions = outer.iter().map(|l| l.0).product();
        let block: usize = inner.iter().map(|l| l.0).product();
        let width = 16 / tensors[0].dtype().size();
        let fits = vector
            && inner.len() == 1
            && inner[0].1 == [1, 1]
            && block.is_multiple_of(width)
            && outer.iter().all(|l| l.1[0].is_multiple_of(width))
            && selected.iter().all(|s| s.is_multiple_of(width))
            && tensors.iter().all(|v| (v.ptr() as usize).is_multiple_of(16));
        let width = if fits { width } else { 1 };
        if fits {
            inner[0].0 /= width;
            outer.iter_mut().for_each(|l| l.1[0] /= width);
        }
        let unit = selected.iter().fold(0, |a, &b| greatest_divisor(a, b)).max(1);
        Ok(Self {
            unit,
            width,
            outer: Nest::new(&outer)?,
            inner: Nest::new(&inner)?,
            positions,
            block: block / width,
            targets,
        })
    }
}

impl Gpu {
    /// Offsets of the blocks selected by the index tensors, in units of `width` elements.
    fn resolve(&self, indices: &[View], indexed: View, width: usize) -> Result<Temporary> {
        if indices.len() > MAX_INDICES || indices.is_empty() {
            return Err(Error::unsupported(format!(
                "indexing by {} tensors at once: on CUDA between 1 and {MAX_INDICES}; index in several steps",
                indices.len()
            )));
        }
        let shape = indices[0].shape();
        let count: usize = shape.iter().product();
        let offsets = self.temporary(&[count], DType::I64)?;
        let mut dims = Dimensions { indices: [0; MAX_INDICES], sizes: [0; MAX_INDICES], strides: [0; MAX_INDICES] };
        for (d, view) in indices.iter().enumerate() {
            dims.indices[d] = view.ptr() as u64;
            dims.sizes[d] = indexed.shape()[d] as u64;
            dims.strides[d] = (indexed.strides()[d] / width) as u64;
        }
        let none: [usize; 0] = [];
        let nest = Nest::<MAX_INDICES>::row_major(
            shape,
            std::array::from_fn(|d| indices.get(d).map_or(&none[..], |v| v.strides())),
        )?;
        let function = self.function(Key::new(Family::Index, "resolve", []), || defines("RESOLVE"))?;
        let (used, to, fault) = (indices.len() as u32, offsets.view().ptr() as u64, self.fault());
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; nest, dims, used, to, count, fault)?;
        Ok(offsets)
    }

    /// Moves blocks between an indexed and a dense tensor.
    fn move_blocks(&self, indexed: View, indices: &[View], dense: View, put: bool) -> Result<()> {
        if dense.numel() == 0 {
            return Ok(());
        }
        let blocks = Blocks::new(indexed, indices.len(), dense, true)?;
        // One tensor of indices is read by the kernel itself, unless that could write to the indices.
        let direct = indices.len() == 1 && indices[0].layout().is_contiguous() && (!put || indexed.dtype().is_float());
        let offsets = if direct { None } else { Some(self.resolve(indices, indexed, blocks.width)?) };
        let bytes = indexed.dtype().size() * blocks.width;
        let key = Key::new(Family::Index, "move", [put as u16, bytes as u16, direct as u16]);
        let function = self.function(key, || move_defines(put, bytes, direct))?;
        let Blocks { outer, inner, positions, block, width, .. } = blocks;
        let count = positions * block;
        let at = offsets.as_ref().map_or_else(|| indices[0].ptr(), |t| t.view().ptr()) as u64;
        let (a, b, fault) = (indexed.ptr() as u64, dense.ptr() as u64, self.fault());
        let (size, stride) = match direct {
            true => (indexed.shape()[0], indexed.strides()[0] / width),
            false => (0, 0),
        };
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; outer, inner, at, a, b, count, block, size, stride, fault)
    }

    pub fn index(&self, x: View, indices: &[View], out: View) -> Result<()> {
        self.move_blocks(x, indices, out, false)
    }

    pub fn index_put(&self, indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
        if !accumulate {
            return self.move_blocks(out, indices, values, true);
        }
        if values.numel() == 0 {
            return Ok(());
        }
        if let [index] = indices
            && index.layout().is_contiguous()
            && few(index.numel(), out.shape()[0])
        {
            let blocks = Blocks::new(out, 1, values, out.dtype().is_float())?;
            let chosen = Chosen { index: *index, step: 1, size: out.shape()[0], stride: out.strides()[0] };
            return self.segments_few(Scatter::Add, chosen, &blocks, values, out);
        }
        let blocks = Blocks::new(out, indices.len(), values, out.dtype().is_float())?;
        let offsets = self.resolve(indices, out, blocks.unit)?;
        self.segments(Scatter::Add, &offsets, &blocks, Operand::Tensor(values), out)
    }

    /// Accumulates values at the positions given by offsets.
    fn segments(&self, op: Scatter, offsets: &Temporary, blocks: &Blocks, values: Operand, out: View) -> Result<()> {
        let Blocks { width, outer, inner, positions, block, targets, unit } = *blocks;
        let order = Order::offsets(positions, out.layout().span()?.div_ceil(unit));
        let items = self.sorted_offsets(order, offsets.view())?;
        let (code, dtype) = (code(op, out.dtype()), out.dtype());
        let kernel = |entry| {
            let key = Key::new(Family::Index, entry, [code, dtype as u16, order.packed as u16, width as u16]);
            self.function(key, || segments_defines(code, dtype, order.packed, width))
        };
        let (function, join) = (kernel("segments")?, kernel("segments_join")?);
        let (from, number) = source(values, dtype);
        // A run's chunks are joined one after the other, so both should be few.
        let chunk = ((positions / targets.max(1)) as f64).sqrt() as usize;
        let chunk = chunk.clamp(CHUNKS.0, CHUNKS.1);
        let chunks = positions.div_ceil(chunk);
        let parts = chunks * block * width * wide_size(dtype);
        let (heads, tails) = (self.scratch(parts)?, self.scratch(parts)?);
        let (at, to, heads, tails) = (items.ptr, out.ptr() as u64, heads.ptr, tails.ptr);
        let unit = unit / width;
        let grid = Grid::line((chunks * block).div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; outer, inner, at, from, number, to, unit, heads, tails, positions, block, chunk)?;
        launch!(self, join, grid; inner, at, to, unit, heads, tails, positions, block, chunk)
    }

    /// [`Gpu::segments`] for few positions.
    fn segments_few(&self, op: Scatter, chosen: Chosen, blocks: &Blocks, values: View, out: View) -> Result<()> {
        let Blocks { width, outer, inner, positions, block, .. } = *blocks;
        let (code, dtype) = (code(op, out.dtype()), out.dtype());
        let key = Key::new(Family::Index, "segments_few", [code, dtype as u16, width as u16]);
        let function = self.function(key, || fold_defines("SEGMENTS_FEW", code, dtype).define("LANES", width))?;
        let Chosen { index, step, size, stride } = chosen;
        let (at, from, to, fault) = (index.ptr() as u64, values.ptr() as u64, out.ptr() as u64, self.fault());
        let (stride, count) = (stride / width, positions as u32);
        // Enough blocks for all multiprocessors, as long as each has columns.
        let across = positions.div_ceil(FEW_PER_BLOCK);
        let down = (2 * self.properties.multiprocessors).div_ceil(across).clamp(1, block.div_ceil(32).min(1024));
        let grid = Grid::plane(across, down, THREADS)?;
        launch!(self, function, grid; outer, inner, at, step, size, stride, from, to, count, block, fault)
    }

    pub fn gather(&self, x: View, dim: usize, index: View, out: View) -> Result<()> {
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let (size, [stride], _, _) = along(x.shape(), dim, [x.strides()]);
        // The indexed dimension gets stride zero: the index alone moves along it.
        let mut x_strides = Dims::from_slice(x.strides());
        if let Some(s) = x_strides.get_mut(dim) {
            *s = 0;
        }
        let nest = Nest::row_major(out.shape(), [out.strides(), index.strides(), &x_strides])?;
        let bytes = x.dtype().size();
        let key = Key::new(Family::Index, "gather", [bytes as u16]);
        let function = self.function(key, || gather_defines(bytes))?;
        let (from, at, to, fault) = (x.ptr() as u64, index.ptr() as u64, out.ptr() as u64, self.fault());
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; nest, from, at, to, size, stride, count, fault)
    }

    pub fn scatter(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        if index.numel() == 0 {
            return Ok(());
        }
        let zeros = Dims::from_elem(0, index.shape().len());
        let src_strides = if let Operand::Tensor(view) = src { view.strides() } else { &zeros[..] };
        let (size, [stride], _, _) = along(out.shape(), dim, [out.strides()]);
        let (length, [_, index_step, src_step], shape, [o, i, s]) =
            along(index.shape(), dim, [out.strides(), index.strides(), src_strides]);
        let lines: usize = shape.iter().product();
        // Accumulation by one thread rounds at every step, which is too inexact for half types.
        let half = matches!(out.dtype(), DType::F16 | DType::BF16) && op != Scatter::Set && length > 1;
        if length > SHORT_LINE && op == Scatter::Add && matches!(out.dtype(), DType::I32 | DType::I64) {
            return self.scatter_sum(dim, index, src, out);
        }
        let same = shape.iter().zip(&i).all(|(&n, &step)| n == 1 || step == 0);
        if length > SHORT_LINE && lines > 1 && same {
            return self.scatter_blocks(op, dim, index, src, out);
        }
        if half || (length > SHORT_LINE && lines < MANY_LINES) {
            return self.scatter_sorted(op, dim, index, src, out);
        }
        let (code, dtype) = (code(op, out.dtype()), out.dtype());
        let key = Key::new(Family::Index, "scatter", [code, dtype as u16]);
        let function = self.function(key, || fold_defines("SCATTER", code, dtype))?;
        let nest = Nest::row_major(&shape, [&o, &i, &s])?;
        let (from, number) = source(src, dtype);
        let (at, to, fault) = (index.ptr() as u64, out.ptr() as u64, self.fault());
        let grid = Grid::line(lines.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; nest, at, from, number, to, lines, length, size, stride, index_step, src_step, fault)
    }

    /// Sums of integers.
    fn scatter_sum(&self, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        let (size, [stride], _, _) = along(out.shape(), dim, [out.strides()]);
        let mut out_strides = Dims::from_slice(out.strides());
        if let Some(s) = out_strides.get_mut(dim) {
            *s = 0;
        }
        let zeros = Dims::from_elem(0, index.shape().len());
        let src_strides = if let Operand::Tensor(view) = src { view.strides() } else { &zeros[..] };
        let nest = Nest::row_major(index.shape(), [&out_strides, index.strides(), src_strides])?;
        let dtype = out.dtype();
        let function = self.function(Key::new(Family::Index, "scatter_sum", [dtype as u16]), || sum_defines(dtype))?;
        let (from, number) = source(src, dtype);
        let (at, to, fault, count) = (index.ptr() as u64, out.ptr() as u64, self.fault(), index.numel());
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; nest, at, from, number, to, count, size, stride, fault)
    }

    /// Scatter whose lines all have the same indices: whole blocks go to the same places, as by `index_put`.
    fn scatter_blocks(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        let zeros = Dims::from_elem(0, index.shape().len());
        let src_strides = if let Operand::Tensor(view) = src { view.strides() } else { &zeros[..] };
        let (size, [stride], _, _) = along(out.shape(), dim, [out.strides()]);
        let (length, [_, index_step, src_step], shape, [o, _, s]) =
            along(index.shape(), dim, [out.strides(), index.strides(), src_strides]);
        let (outer, inner) = (loops(&[length], [&[src_step]]), loops(&shape, [&o, &s]));
        let vector = out.dtype().is_float() && matches!(src, Operand::Tensor(_));
        let values = if let Operand::Tensor(view) = src { view } else { out };
        let blocks = Blocks::of(&outer, &inner, &[stride], [out, values], vector, size)?;
        if matches!(src, Operand::Tensor(_)) && few(length, size) {
            let chosen = Chosen { index, step: index_step, size, stride };
            return self.segments_few(op, chosen, &blocks, values, out);
        }
        let offsets = self.line_offsets(&[length], [&[index_step], &[0]], index, (size, stride / blocks.unit))?;
        self.segments(op, &offsets, &blocks, src, out)
    }

    /// Offsets into a scatter's output of the elements of an index tensor.
    fn line_offsets(
        &self,
        shape: &[usize],
        strides: [&[usize]; 2],
        index: View,
        (size, stride): (usize, usize),
    ) -> Result<Temporary> {
        let count: usize = shape.iter().product();
        let offsets = self.temporary(&[count], DType::I64)?;
        let nest = Nest::row_major(shape, strides)?;
        let function = self.function(Key::new(Family::Index, "resolve_line", []), || defines("RESOLVE_LINE"))?;
        let (at, to, fault) = (index.ptr() as u64, offsets.view().ptr() as u64, self.fault());
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; nest, at, size, stride, to, count, fault)?;
        Ok(offsets)
    }

    /// Scatter for long and few lines, and for half types: sorts the indices, so that many threads share a line.
    fn scatter_sorted(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        let (size, [stride], _, _) = along(out.shape(), dim, [out.strides()]);
        let mut out_strides = Dims::from_slice(out.strides());
        if let Some(s) = out_strides.get_mut(dim) {
            *s = 0;
        }
        let count = index.numel();
        let offsets = self.line_offsets(index.shape(), [index.strides(), &out_strides], index, (size, stride))?;
        let zeros = Dims::from_elem(0, index.shape().len());
        let src_strides = if let Operand::Tensor(view) = src { view.strides() } else { &zeros[..] };
        let blocks = Blocks {
            width: 1,
            outer: Nest::row_major(index.shape(), [src_strides])?,
            inner: Nest::row_major(&[], [&[], &[]])?,
            positions: count,
            block: 1,
            targets: out.numel(),
            unit: 1,
        };
        self.segments(op, &offsets, &blocks, src, out)
    }

    /// Counts of elements in bins of equal width.
    pub fn histogram(&self, x: View, low: f64, high: f64, out: View) -> Result<()> {
        self.fill(Scalar::Int(0), out)?;
        let (count, bins) = (x.numel(), out.numel());
        if count == 0 {
            return Ok(());
        }
        let dtype = x.dtype();
        let key = Key::new(Family::Index, "histogram", [dtype as u16]);
        let function = self.function(key, || defines("HISTOGRAM").dtype("T", dtype))?;
        let nest = Nest::row_major(x.shape(), [x.strides()])?;
        let (from, to) = (x.ptr() as u64, out.ptr() as u64);
        let blocks =
            count.div_ceil(THREADS * HISTOGRAM_ITEMS).min(self.properties.multiprocessors.max(1) * HISTOGRAM_BLOCKS);
        let grid = Grid::line(blocks, THREADS)?;
        launch!(self, function, grid; nest, from, count, low, high, bins, to)
    }

    pub fn nonzero(&self, x: View, out: View) -> Result<()> {
        let (count, rank) = (x.numel(), x.shape().len());
        if out.numel() == 0 {
            return Ok(());
        }
        if rank > MAX_RANK {
            return Err(Error::unsupported(format!("nonzero: CUDA takes up to {MAX_RANK} dimensions, not {rank}")));
        }
        let blocks = count.div_ceil(NONZERO_BLOCK);
        let counts = self.temporary(&[blocks], DType::I64)?;
        let nest = Nest::row_major(x.shape(), [x.strides()])?;
        let key = |entry| Key::new(Family::Index, entry, [x.dtype() as u16]);
        let counter = self.function(key("nonzero_count"), || defines("NONZERO").dtype("T", x.dtype()))?;
        let (from, into) = (x.ptr() as u64, counts.view().ptr() as u64);
        let grid = Grid::line(blocks, THREADS)?;
        launch!(self, counter, grid; nest, from, count, into)?;
        // Few counts are added up by each block.
        let sums = if blocks > NONZERO_SUMMED { Some(self.temporary(&[blocks], DType::I64)?) } else { None };
        if let Some(sums) = &sums {
            self.scan(Scan::Sum, counts.view(), 0, sums.view(), None)?;
        }
        let writer = self.function(key("nonzero"), || defines("NONZERO").dtype("T", x.dtype()))?;
        let mut shape = Shape { rank: rank as u32, sizes: [1; MAX_RANK] };
        for (size, &s) in shape.sizes.iter_mut().zip(x.shape()) {
            *size = s as u64;
        }
        let (summed, to) = (sums.is_some() as u32, out.ptr() as u64);
        let before = sums.as_ref().unwrap_or(&counts).view().ptr() as u64;
        let (row_step, step) = (out.strides()[0], out.strides()[1]);
        launch!(self, writer, grid; nest, shape, from, count, before, summed, to, row_step, step)
    }
}

/// Whether a kernel compares all positions' indices, which select from `size` entries, instead of sorting them.
fn few(positions: usize, size: usize) -> bool {
    positions <= FEW && size < u32::MAX as usize
}

/// The greatest common divisor.
fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Bytes of [`wide_type`].
fn wide_size(dtype: DType) -> usize {
    if matches!(dtype, DType::F32 | DType::F16 | DType::BF16) { 4 } else { 8 }
}

/// The accumulation op as a code of `index.cu`. For `bool`, the sum is "or" and the product "and".
fn code(op: Scatter, dtype: DType) -> u16 {
    match (op, dtype) {
        (Scatter::Set, _) => 0,
        (Scatter::Add, DType::Bool) | (Scatter::Max, _) => 3,
        (Scatter::Mul, DType::Bool) | (Scatter::Min, _) => 4,
        (Scatter::Add, _) => 1,
        (Scatter::Mul, _) => 2,
    }
}

/// Address of a source's elements (0 for a scalar) and the scalar's bits in the accumulation type.
fn source(src: Operand, dtype: DType) -> (u64, u64) {
    match src {
        Operand::Tensor(view) => (view.ptr() as u64, 0),
        Operand::Scalar(value) if dtype.is_float() => (0, value.to_f64().to_bits()),
        Operand::Scalar(value) if dtype == DType::Bool => {
            (0, (value != Scalar::Int(0) && value.to_f64() != 0.0) as u64)
        }
        Operand::Scalar(value) => (0, value.to_i64() as u64),
    }
}

pub fn defines(entry: &str) -> Defines {
    Defines::default().define(entry, 1).define("WIDE", 1)
}

pub fn move_defines(put: bool, bytes: usize, direct: bool) -> Defines {
    defines("MOVE").define("PUT", put as u8).define("DIRECT", direct as u8).define("E", moved(bytes))
}

pub fn gather_defines(bytes: usize) -> Defines {
    defines("GATHER").define("E", moved(bytes))
}

/// Definitions of the kernel that sums integers.
pub fn sum_defines(dtype: DType) -> Defines {
    defines("SCATTER_SUM").dtype("T", dtype).define("A", if dtype == DType::I32 { "u32" } else { "u64" })
}

pub fn segments_defines(code: u16, dtype: DType, packed: bool, width: usize) -> Defines {
    fold_defines("SEGMENTS", code, dtype).define("PACKED", packed as u8).define("LANES", width)
}

pub fn fold_defines(entry: &str, code: u16, dtype: DType) -> Defines {
    defines(entry).define("OP_CODE", code).dtype("T", dtype).define("W", wide_type(dtype))
}
