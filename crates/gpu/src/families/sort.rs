//! Sorting, top-k, and binary search (`kernels/sort.cu`).

use crate::device::{Gpu, Scratch};
use crate::families::scan::along;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch};
use crate::launch::nest::Nest;
use rushlight_core::backend::{Scan, call};
use rushlight_core::{DType, Dims, Error, Result, View};

const THREADS: usize = 256;
/// Maximum elements of a line that one thread picks from.
const SHORT: usize = 32;
/// Maximum elements per thread of a line that a block picks from, and of what it picks one by one.
const MAX_ITEMS: usize = 32;
const MAX_PICKED: usize = 64;
/// Picking more than this takes longer than sorting the line, if it fits into shared memory.
const FEW_PICKED: usize = 8;

/// How elements are sorted: the form of an item, and the bytes of its key that differ.
#[derive(Clone, Copy)]
pub struct Order {
    dtype: DType,
    /// Elements are offsets into a tensor, non-negative or -1.
    offsets: bool,
    /// A key of 32 bits and a position of 32 bits in one word; otherwise a word each.
    pub packed: bool,
    /// Digits of a key.
    passes: usize,
    descending: bool,
}

impl Order {
    /// Lines of `length` elements by value.
    pub fn values(dtype: DType, length: usize, descending: bool) -> Self {
        let bytes = dtype.size();
        Self { dtype, offsets: false, packed: bytes <= 4 && length < u32::MAX as usize, passes: bytes, descending }
    }

    /// `count` offsets below `end`, ascending, -1 last.
    pub fn offsets(count: usize, end: usize) -> Self {
        let packed = end < u32::MAX as usize && count < u32::MAX as usize;
        // One more than the largest offset, so that the digits of -1 are larger than all others'.
        let bits = usize::BITS - (end + 1).leading_zeros();
        let passes = if packed { bits.div_ceil(8) as usize } else { 8 };
        Self { dtype: DType::I64, offsets: true, packed, passes, descending: false }
    }

    /// Bytes of an item.
    fn item(self) -> usize {
        if self.packed { 8 } else { 16 }
    }

    /// Elements per thread of a tile that a block sorts in its shared memory.
    fn items(self) -> usize {
        if self.packed { 16 } else { 8 }
    }

    /// Bits of a key that descending order inverts.
    fn flip(self) -> u64 {
        if self.descending { u64::MAX >> (64 - 8 * self.passes) } else { 0 }
    }

    fn tags(self, items: usize) -> [u16; 4] {
        [self.dtype as u16, self.offsets as u16, self.packed as u16, items as u16]
    }

    pub fn defines(self, entry: &str, items: usize) -> Defines {
        defines(entry, self.dtype)
            .define("OFFSETS", self.offsets as u8)
            .define("PACKED", self.packed as u8)
            .define("ITEMS", items)
    }
}

/// Lines of a tensor along a dimension.
struct Lines<'a> {
    x: View<'a>,
    length: usize,
    step: usize,
    shape: Dims,
    strides: Dims,
}

impl Gpu {
    pub fn sort(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        self.sort_to(x, dim, descending, values, indices)
    }

    pub fn topk(&self, x: View, dim: usize, largest: bool, values: View, indices: View) -> Result<()> {
        let (length, kept) = (x.shape().get(dim).copied().unwrap_or(1), values.shape().get(dim).copied().unwrap_or(1));
        let order = Order::values(x.dtype(), length, largest);
        let most = if length <= order.items() * THREADS { FEW_PICKED } else { MAX_PICKED };
        if values.numel() > 0 && length > SHORT && length <= MAX_ITEMS * THREADS && kept <= most {
            return self.topk_rows(x, dim, largest, values, indices);
        }
        self.sort_to(x, dim, largest, values, indices)
    }

    /// The first of short lines, a line to a thread.
    fn topk_short(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        let (length, [x_step], shape, [x_rest]) = along(x.shape(), dim, [x.strides()]);
        let (kept, [value_step, index_step], _, [value_rest, index_rest]) =
            along(values.shape(), dim, [values.strides(), indices.strides()]);
        let lines: usize = shape.iter().product();
        let short = length.next_power_of_two().max(8);
        let key = Key::new(Family::Sort, "topk_short", [x.dtype() as u16, short as u16]);
        let function = self.function(key, || defines("TOPK_SHORT", x.dtype()).define("SHORT", short))?;
        let nest = Nest::row_major(&shape, [&x_rest, &value_rest, &index_rest])?;
        let (from, to, at, down) = (x.ptr() as u64, values.ptr() as u64, indices.ptr() as u64, descending as u32);
        let grid = Grid::line(lines.div_ceil(128), 128)?;
        launch!(self, function, grid; nest, from, to, at, lines, length, kept, x_step, value_step, index_step, down)
    }

    /// The first few of longer lines, a line to a block.
    fn topk_rows(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        let (length, [x_step], shape, [x_rest]) = along(x.shape(), dim, [x.strides()]);
        let (kept, [value_step, index_step], _, [value_rest, index_rest]) =
            along(values.shape(), dim, [values.strides(), indices.strides()]);
        let lines: usize = shape.iter().product();
        let items = length.div_ceil(THREADS).next_power_of_two();
        let key = Key::new(Family::Sort, "topk_rows", [x.dtype() as u16, items as u16]);
        let function = self.function(key, || defines("TOPK_ROWS", x.dtype()).define("ITEMS", items))?;
        let nest = Nest::row_major(&shape, [&x_rest, &value_rest, &index_rest])?;
        let (from, to, at, down) = (x.ptr() as u64, values.ptr() as u64, indices.ptr() as u64, descending as u32);
        let grid = Grid::line(lines, THREADS)?;
        launch!(self, function, grid; nest, from, to, at, length, kept, x_step, value_step, index_step, down)
    }

    /// Sorts lines and writes as many elements of each as the outputs hold.
    fn sort_to(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        if values.numel() == 0 {
            return Ok(());
        }
        let (length, [step], shape, [strides]) = along(x.shape(), dim, [x.strides()]);
        if length <= SHORT {
            return self.topk_short(x, dim, descending, values, indices);
        }
        let (kept, [value_step, index_step], _, [value_rest, index_rest]) =
            along(values.shape(), dim, [values.strides(), indices.strides()]);
        let order = Order::values(x.dtype(), length, descending);
        let nest = Nest::row_major(&shape, [&strides, &value_rest, &index_rest])?;
        let count: usize = shape.iter().product();
        let (from, to, at) = (x.ptr() as u64, values.ptr() as u64, indices.ptr() as u64);
        if length <= order.items() * THREADS {
            let (function, passes) = (self.sort_block(order, length)?, order.passes as u32);
            let (items, flip) = (0u64, order.flip());
            let grid = Grid::line(count, THREADS)?;
            return launch!(self, function, grid;
                nest, from, to, at, items, length, kept, step, value_step, index_step, flip, passes);
        }
        let items = self.radix_sorted(order, &Lines { x, length, step, shape, strides })?;
        let key = Key::new(Family::Sort, "sort_gather", order.tags(0));
        let gather = self.function(key, || order.defines("SORT_GATHER", 1))?;
        let items = items.ptr;
        let grid = Grid::line((count * kept).div_ceil(THREADS), THREADS)?;
        launch!(self, gather, grid; nest, items, from, to, at, count, length, kept, step, value_step, index_step)
    }

    /// The kernel that sorts lines of `length` in shared memory.
    fn sort_block(&self, order: Order, length: usize) -> Result<Function> {
        let items = length.div_ceil(THREADS).next_power_of_two();
        let key = Key::new(Family::Sort, "sort_block", order.tags(items));
        self.function(key, || order.defines("SORT_BLOCK", items))
    }

    /// The distinct elements of short vectors. Returns whether there is a kernel for the length.
    pub fn unique(&self, c: &call::Unique<View>) -> Result<bool> {
        let (length, dtype) = (c.x.numel(), c.x.dtype());
        let order = Order::values(dtype, length, false);
        if length > order.items() * THREADS {
            return Ok(false);
        }
        let items = length.div_ceil(THREADS).next_power_of_two();
        let key = Key::new(Family::Sort, "unique_block", order.tags(items));
        let function = self.function(key, || unique_defines(order, items))?;
        let [from, values, inverse, counts, count] =
            [c.x, c.values, c.inverse, c.counts, c.count].map(|view| view.ptr() as u64);
        let (grid, passes) = (Grid::line(1, THREADS)?, order.passes as u32);
        launch!(self, function, grid; from, values, inverse, counts, count, length, passes)?;
        Ok(true)
    }

    /// The sorted items of long lines.
    fn radix_sorted(&self, order: Order, lines: &Lines) -> Result<Scratch<'_>> {
        let (length, step, flip) = (lines.length, lines.step, order.flip());
        let count: usize = lines.shape.iter().product();
        let total = count
            .checked_mul(length)
            .and_then(|n| n.checked_mul(order.item()))
            .ok_or_else(|| Error::out_of_memory("sort: too many elements"))?;
        let tiles = length.div_ceil(order.items() * THREADS);
        let counts = self.temporary(&[count, 256 * tiles], DType::I64)?;
        let sums = self.temporary(&[count, 256 * tiles], DType::I64)?;
        let kernel = |entry, define| {
            let key = Key::new(Family::Sort, entry, order.tags(order.items()));
            self.function(key, || order.defines(define, order.items()))
        };
        let (counter, scatter) = (kernel("radix_count", "RADIX_COUNT")?, kernel("radix_scatter", "RADIX_SCATTER")?);
        let nest = Nest::row_major(&lines.shape, [&lines.strides])?;
        let (x, seen, until) = (lines.x.ptr() as u64, counts.view().ptr() as u64, sums.view().ptr() as u64);
        let grid = Grid::line(count * tiles, THREADS)?;
        let mut sorted = [self.scratch(total)?, self.scratch(if order.passes > 1 { total } else { 0 })?];
        let mut items = 0u64;
        for pass in 0..order.passes {
            let (shift, out) = (8 * pass as u32, sorted[0].ptr);
            launch!(self, counter, grid; nest, x, step, items, length, tiles, flip, shift, seen)?;
            self.scan(Scan::Sum, counts.view(), 1, sums.view(), None)?;
            launch!(self, scatter, grid; nest, x, step, items, length, tiles, flip, shift, seen, until, out)?;
            items = out;
            sorted.swap(0, 1);
        }
        let [_, last] = sorted;
        Ok(last)
    }

    /// The sorted items of a contiguous line of offsets: a key and a position each, as the order packs them.
    pub fn sorted_offsets(&self, order: Order, x: View) -> Result<Scratch<'_>> {
        let length = x.numel();
        if length > order.items() * THREADS {
            let (shape, strides) = (Dims::new(), Dims::new());
            return self.radix_sorted(order, &Lines { x, length, step: 1, shape, strides });
        }
        let out = self.scratch(length * order.item())?;
        let (function, passes) = (self.sort_block(order, length)?, order.passes as u32);
        let nest = Nest::<3>::row_major(&[], [&[], &[], &[]])?;
        let (from, nothing, items, flip, step) = (x.ptr() as u64, 0u64, out.ptr, 0u64, 1usize);
        let grid = Grid::line(1, THREADS)?;
        launch!(self, function, grid; nest, from, nothing, nothing, items, length, length, step, step, step, flip, passes)?;
        Ok(out)
    }

    pub fn searchsorted(&self, sorted: View, values: View, right: bool, out: View) -> Result<()> {
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let last = out.shape().len().saturating_sub(1);
        let (columns, [value_step, out_step], shape, [value_rest, out_rest]) =
            along(out.shape(), last, [values.strides(), out.strides()]);
        let sorted_last = sorted.shape().len().saturating_sub(1);
        let (length, [sorted_step], _, [sorted_rest]) = along(sorted.shape(), sorted_last, [sorted.strides()]);
        let none: [usize; 0] = [];
        let sorted_rest = if sorted.shape().len() == 1 { &none[..] } else { &sorted_rest[..] };
        let key = Key::new(Family::Sort, "searchsorted", [sorted.dtype() as u16, out.dtype() as u16]);
        let function = self.function(key, || defines("SEARCH", sorted.dtype()).dtype("OUT", out.dtype()))?;
        let nest = Nest::row_major(&shape, [sorted_rest, &value_rest, &out_rest])?;
        let (a, b, c, right) = (sorted.ptr() as u64, values.ptr() as u64, out.ptr() as u64, right as u32);
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; nest, a, b, c, count, columns, length, sorted_step, value_step, out_step, right)
    }
}

/// Definitions of the kernel that finds distinct elements.
pub fn unique_defines(order: Order, items: usize) -> Defines {
    order.defines("UNIQUE_BLOCK", items).define("IS_FLOAT", order.dtype.is_float() as u8)
}

/// Compile-time definitions of the kernel.
pub fn defines(entry: &str, dtype: DType) -> Defines {
    Defines::default().define(entry, 1).define("WIDE", 1).dtype("T", dtype)
}
