//! Indexing by tensors: reading, writing and adding blocks, gather and scatter (`kernels/index.cl`).
//!
//! Values with duplicate indices are accumulated in order by one work item. Results do not depend on timing.

use crate::device::{Temporary, Xpu};
use crate::driver::Kernel;
use crate::program::{At, Defines, Family, Key, Kind, Number, run};
use rushlight_core::backend::Scatter;
use rushlight_core::{DType, Dims, Operand, Result, Scalar, View};
use rushlight_gpu::launch::nest::{Nest, loops, merged};

const GROUP: usize = 64;
/// From this many lines on, or with lines up to [`SHORT_LINE`], each work item scatters a line.
const MANY_LINES: usize = 256;
const SHORT_LINE: usize = 64;

/// An unsigned type of the element's size, and its tag.
fn moved(dtype: DType) -> (&'static str, u16) {
    match dtype.size() {
        1 => ("uchar", 1),
        2 => ("ushort", 2),
        4 => ("uint", 4),
        _ => ("ulong", 8),
    }
}

/// The accumulation op as a code of `fold.cl`. For `bool`, the sum is "or" and the product "and".
fn code(op: Scatter, dtype: DType) -> u32 {
    match (op, dtype) {
        (Scatter::Set, _) => 0,
        (Scatter::Add, DType::Bool) | (Scatter::Max, _) => 3,
        (Scatter::Mul, DType::Bool) | (Scatter::Min, _) => 4,
        (Scatter::Add, _) => 1,
        (Scatter::Mul, _) => 2,
    }
}

/// A shape without `dim`, with the strides of some operands: the size and strides along `dim`, then the rest.
fn along<const N: usize>(shape: &[usize], dim: usize, strides: [&[usize]; N]) -> (usize, [usize; N], Dims, [Dims; N]) {
    if shape.is_empty() {
        return (1, [0; N], Dims::new(), std::array::from_fn(|_| Dims::new()));
    }
    let without =
        |list: &[usize]| -> Dims { list.iter().enumerate().filter(|(d, _)| *d != dim).map(|(_, s)| *s).collect() };
    (shape[dim], strides.map(|s| s[dim]), without(shape), strides.map(without))
}

/// Strides of an indexed tensor's blocks, in it and in the dense tensor.
struct Blocks {
    outer: Nest<1>,
    inner: Nest<2>,
    positions: usize,
    block: usize,
}

impl Blocks {
    /// `indexed` has `count` leading dimensions that are indexed.
    fn new(indexed: View, count: usize, dense: View) -> Result<Self> {
        let split = dense.shape().len() + count - indexed.shape().len();
        let (outer_shape, inner_shape) = dense.shape().split_at(split);
        let (outer_strides, dense_strides) = dense.strides().split_at(split);
        let inner = merged(&loops(inner_shape, [&indexed.strides()[count..], dense_strides]));
        let outer = merged(&loops(outer_shape, [outer_strides]));
        Ok(Self {
            outer: Nest::new(&outer)?,
            inner: Nest::new(&inner)?,
            positions: outer_shape.iter().product(),
            block: inner_shape.iter().product(),
        })
    }
}

impl Xpu {
    /// Offsets of the blocks selected by the index tensors.
    fn resolve(&self, indices: &[View], indexed: View) -> Result<Temporary> {
        let count = indices[0].numel();
        let offsets = self.temporary(&[count], DType::I64)?;
        let kernel = self.kernel(Key::new(Family::Index, "resolve", []), || Defines::default().define("RESOLVE", 1))?;
        let (to, fault) = (At(offsets.view().ptr() as u64), At(self.fault()));
        for (d, index) in indices.iter().enumerate() {
            let nest = Nest::row_major(index.shape(), [index.strides()])?;
            let (size, stride) = (indexed.shape()[d], indexed.strides()[d]);
            let (from, is_first) = (At(index.ptr() as u64), (d == 0) as u32);
            run!(self, kernel, [count.div_ceil(GROUP), 1, 1], [GROUP, 1, 1];
                nest, from, size, stride, is_first, to, count, fault)?;
        }
        Ok(offsets)
    }

    /// Moves blocks between an indexed and a dense tensor.
    fn move_blocks(&self, indexed: View, indices: &[View], dense: View, put: bool) -> Result<()> {
        if dense.numel() == 0 {
            return Ok(());
        }
        let Blocks { outer, inner, positions, block } = Blocks::new(indexed, indices.len(), dense)?;
        let offsets = self.resolve(indices, indexed)?;
        let (element, size) = moved(indexed.dtype());
        let kernel = self.kernel(Key::new(Family::Index, "move", [put as u16, size]), || {
            Defines::default().define("MOVE", 1).define("PUT", put as u8).define("E", element)
        })?;
        let (at, a, b) = (At(offsets.view().ptr() as u64), At(indexed.ptr() as u64), At(dense.ptr() as u64));
        let items = if block == 1 { 1 } else { GROUP };
        run!(self, kernel, [block.div_ceil(items), positions, 1], [items, 1, 1]; outer, inner, at, a, b, block)
    }

    pub fn index(&self, x: View, indices: &[View], out: View) -> Result<()> {
        self.move_blocks(x, indices, out, false)
    }

    pub fn index_put(&self, indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
        if values.numel() == 0 {
            return Ok(());
        }
        // Overwriting also runs in order: of equal indices the last wins.
        let op = if accumulate { Scatter::Add } else { Scatter::Set };
        if accumulate && matches!(out.dtype(), DType::F16 | DType::BF16) {
            // A sum of halves is rounded once.
            let wide = self.temporary(out.shape(), DType::F32)?;
            self.copy(out, wide.view())?;
            let blocks = Blocks::new(wide.view(), indices.len(), values)?;
            let offsets = self.resolve(indices, wide.view())?;
            self.fold_blocks(op, &offsets, &blocks, Operand::Tensor(values), wide.view())?;
            return self.copy(wide.view(), out);
        }
        let blocks = Blocks::new(out, indices.len(), values)?;
        let offsets = self.resolve(indices, out)?;
        self.fold_blocks(op, &offsets, &blocks, Operand::Tensor(values), out)
    }

    /// The kernel that accumulates values of a dtype, or a scalar, at positions of another.
    fn fold_kernel(
        &self,
        entry: &'static str,
        define: &str,
        value: Option<DType>,
        out: DType,
    ) -> Result<&'static Kernel> {
        let kind = Kind::of(out);
        let key = Key::new(Family::Fold, entry, [kind as u16, value.is_some() as u16]);
        self.kernel(key, || {
            let defines = Defines::default().define(define, 1).define("HAS_VALUES", value.is_some() as u8);
            defines.kind(kind).any("T", 0).any("OUT", 4)
        })
    }

    fn fold_blocks(&self, op: Scatter, offsets: &Temporary, blocks: &Blocks, src: Operand, out: View) -> Result<()> {
        let code = code(op, out.dtype());
        let (values, from, number) = source(src, out);
        let kernel = self.fold_kernel("fold", "FOLD", values, out.dtype())?;
        let codes = values.unwrap_or(out.dtype()) as u32 | (out.dtype() as u32) << 4;
        let &Blocks { outer, inner, positions, block } = blocks;
        // If blocks alone do not fill the device, destinations are split too; each slice reads all offsets.
        let busy = self.driver.abilities().compute_units.max(1) * if self.driver.abilities().is_cpu { 1 } else { 64 };
        let slices = busy.div_ceil(block).min(positions.div_ceil(64)).max(1);
        let extent = out.layout().span()?.saturating_sub(out.layout().offset()).max(1);
        let span = extent.div_ceil(slices);
        let (at, to) = (At(offsets.view().ptr() as u64), At(out.ptr() as u64));
        let items = if block < GROUP { 1 } else { GROUP };
        run!(self, kernel, [block.div_ceil(items), slices, 1], [items, 1, 1];
            outer, inner, at, from, number, to, positions, block, span, codes, code)
    }

    pub fn gather(&self, x: View, dim: usize, index: View, out: View) -> Result<()> {
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let (size, [stride], _, _) = along(x.shape(), dim, [x.strides()]);
        let mut x_strides = Dims::from_slice(x.strides());
        if let Some(s) = x_strides.get_mut(dim) {
            *s = 0;
        }
        let nest = Nest::row_major(out.shape(), [out.strides(), index.strides(), &x_strides])?;
        let (element, bytes) = moved(x.dtype());
        let kernel = self.kernel(Key::new(Family::Index, "gather", [bytes]), || {
            Defines::default().define("GATHER", 1).define("E", element)
        })?;
        let (from, at, to, fault) =
            (At(x.ptr() as u64), At(index.ptr() as u64), At(out.ptr() as u64), At(self.fault()));
        run!(self, kernel, [count.div_ceil(GROUP), 1, 1], [GROUP, 1, 1];
            nest, from, at, to, size, stride, count, fault)
    }

    pub fn scatter(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        if index.numel() == 0 {
            return Ok(());
        }
        if op != Scatter::Set && matches!(out.dtype(), DType::F16 | DType::BF16) {
            // Accumulated halves are rounded once.
            let wide = self.temporary(out.shape(), DType::F32)?;
            self.copy(out, wide.view())?;
            self.scatter(op, dim, index, src, wide.view())?;
            return self.copy(wide.view(), out);
        }
        let zeros = Dims::from_elem(0, index.shape().len());
        let src_strides = if let Operand::Tensor(view) = src { view.strides() } else { &zeros[..] };
        let (size, [stride], _, _) = along(out.shape(), dim, [out.strides()]);
        let (length, [_, index_step, value_step], shape, [o, i, s]) =
            along(index.shape(), dim, [out.strides(), index.strides(), src_strides]);
        let lines: usize = shape.iter().product();
        if length > SHORT_LINE && lines < MANY_LINES {
            return self.scatter_lines(op, dim, index, src, out);
        }
        let code = code(op, out.dtype());
        let (values, from, number) = source(src, out);
        let kernel = self.fold_kernel("scatter", "SCATTER", values, out.dtype())?;
        let codes = values.unwrap_or(out.dtype()) as u32 | (out.dtype() as u32) << 4;
        let nest = Nest::row_major(&shape, [&o, &i, &s])?;
        let (at, to, fault) = (At(index.ptr() as u64), At(out.ptr() as u64), At(self.fault()));
        run!(self, kernel, [lines.div_ceil(GROUP), 1, 1], [GROUP, 1, 1];
            nest, at, from, number, to, lines, length, size, stride, index_step, value_step, fault, codes, code)
    }

    /// Scatter with too few lines for a work item each: destinations are split instead.
    fn scatter_lines(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        let (size, [stride], _, _) = along(out.shape(), dim, [out.strides()]);
        let mut out_strides = Dims::from_slice(out.strides());
        if let Some(s) = out_strides.get_mut(dim) {
            *s = 0;
        }
        let count = index.numel();
        let offsets = self.temporary(&[count], DType::I64)?;
        let nest = Nest::row_major(index.shape(), [index.strides(), &out_strides])?;
        let kernel =
            self.kernel(Key::new(Family::Index, "resolve_line", []), || Defines::default().define("RESOLVE_LINE", 1))?;
        let (at, to, fault) = (At(index.ptr() as u64), At(offsets.view().ptr() as u64), At(self.fault()));
        run!(self, kernel, [count.div_ceil(GROUP), 1, 1], [GROUP, 1, 1]; nest, at, size, stride, to, count, fault)?;
        let zeros = Dims::from_elem(0, index.shape().len());
        let src_strides = if let Operand::Tensor(view) = src { view.strides() } else { &zeros[..] };
        let blocks = Blocks {
            outer: Nest::row_major(index.shape(), [src_strides])?,
            inner: Nest::row_major(&[], [&[], &[]])?,
            positions: count,
            block: 1,
        };
        self.fold_blocks(op, &offsets, &blocks, src, out)
    }
}

/// A source's dtype and elements, or the scalar's bits, in the accumulation type.
fn source(src: Operand, out: View) -> (Option<DType>, At, Number) {
    match src {
        Operand::Tensor(view) => {
            let none = if out.dtype().is_float() { Number::float(0.0, out.dtype()) } else { Number::I64(0) };
            (Some(view.dtype()), At(view.ptr() as u64), none)
        }
        // An unused argument gets any valid address.
        Operand::Scalar(value) if out.dtype().is_float() => {
            (None, At(out.ptr() as u64), Number::float(value.to_f64(), out.dtype()))
        }
        Operand::Scalar(value) if out.dtype() == DType::Bool => {
            let truth = value != Scalar::Int(0) && value.to_f64() != 0.0;
            (None, At(out.ptr() as u64), Number::I64(truth as i64))
        }
        Operand::Scalar(value) => (None, At(out.ptr() as u64), Number::I64(value.to_i64())),
    }
}
