//! Sorting, top-k, and binary search (`kernels/sort.cu`).

use crate::device::{Gpu, Scratch};
use crate::families::scan::along;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch};
use crate::launch::nest::Nest;
use rushlight_core::{DType, Error, Result, View};

/// Maximum elements sorted in shared memory.
const RUN: usize = 1024;
const THREADS: usize = 256;
/// Maximum elements of a line that one thread picks from.
const SHORT: usize = 32;
/// Maximum elements per thread of a line that a block picks from, and of what it picks.
const MAX_ITEMS: usize = 32;
const MAX_PICKED: usize = 64;
/// Bytes of a sort key and a position.
const ITEM: usize = 16;

impl Gpu {
    fn sort_kernel(&self, entry: &'static str, define: &str, dtype: DType) -> Result<Function> {
        let key = Key::new(Family::Sort, entry, [dtype as u16]);
        self.function(key, || defines(define, dtype))
    }

    pub fn sort(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        self.sort_to(x, dim, descending, values, indices)
    }

    pub fn topk(&self, x: View, dim: usize, largest: bool, values: View, indices: View) -> Result<()> {
        let (length, kept) = (x.shape().get(dim).copied().unwrap_or(1), values.shape().get(dim).copied().unwrap_or(1));
        if values.numel() > 0 && length <= SHORT {
            return self.topk_short(x, dim, largest, values, indices);
        }
        if values.numel() > 0 && length <= MAX_ITEMS * THREADS && kept <= MAX_PICKED {
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
        let (length, [x_step], shape, [x_rest]) = along(x.shape(), dim, [x.strides()]);
        let (kept, [value_step, index_step], _, [value_rest, index_rest]) =
            along(values.shape(), dim, [values.strides(), indices.strides()]);
        let lines: usize = shape.iter().product();
        let items = self.sorted_items(x, length, x_step, &shape, &x_rest, descending)?;
        let gather = self.sort_kernel("sort_gather", "SORT_GATHER", x.dtype())?;
        let nest = Nest::row_major(&shape, [&x_rest, &value_rest, &index_rest])?;
        let (from, to, at, items) = (x.ptr() as u64, values.ptr() as u64, indices.ptr() as u64, items.ptr);
        let grid = Grid::line((lines * kept).div_ceil(THREADS), THREADS)?;
        launch!(self, gather, grid; nest, items, from, to, at, lines, length, kept, x_step, value_step, index_step)
    }

    /// The sorted items of each line.
    fn sorted_items(
        &self,
        x: View,
        length: usize,
        step: usize,
        shape: &[usize],
        strides: &[usize],
        descending: bool,
    ) -> Result<Scratch<'_>> {
        let lines: usize = shape.iter().product();
        let total = lines
            .checked_mul(length)
            .and_then(|n| n.checked_mul(ITEM))
            .ok_or_else(|| Error::out_of_memory("sort: too many elements"))?;
        let runs = length.div_ceil(RUN);
        let mut items = self.scratch(total)?;
        let function = self.sort_kernel("sort_runs", "SORT_RUNS", x.dtype())?;
        let nest = Nest::row_major(shape, [strides])?;
        let (from, to, down) = (x.ptr() as u64, items.ptr, descending as u32);
        let grid = Grid::line(lines * runs, 512)?;
        launch!(self, function, grid; nest, from, step, length, runs, down, to)?;
        let mut width = RUN;
        while width < length {
            let next = self.scratch(total)?;
            let merge = self.sort_kernel("sort_merge", "SORT_MERGE", DType::U8)?;
            let (from, to) = (items.ptr, next.ptr);
            let grid = Grid::line((lines * length).div_ceil(THREADS), THREADS)?;
            launch!(self, merge, grid; from, to, lines, length, width)?;
            items = next;
            width *= 2;
        }
        Ok(items)
    }

    /// The sorted items of a contiguous line of `i64`, ascending: a sort key and a position each, 16 bytes.
    pub fn sorted_line(&self, x: View) -> Result<Scratch<'_>> {
        self.sorted_items(x, x.numel(), 1, &[], &[], false)
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

/// Compile-time definitions of the kernel.
pub fn defines(entry: &str, dtype: DType) -> Defines {
    Defines::default().define(entry, 1).define("WIDE", 1).dtype("T", dtype)
}
