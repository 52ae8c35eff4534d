//! Running reductions along a dimension.

use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch};
use crate::launch::nest::{Nest, is_wide, loops, merged};
use rushlight_core::backend::Scan;
use rushlight_core::{DType, Dims, Error, Result, View};

const THREADS: usize = 256;
/// Number of lines from which each gets its own thread.
const MANY_LINES: usize = 2048;
/// Elements that a block scans at a time, `TILE` in `scan.cu`.
const TILE: usize = 2048;
/// Bytes of a `Carry` in `scan.cu`.
const CARRY: usize = 16;
/// Blocks per multiprocessor that share long lines.
const BLOCKS: usize = 4;

/// Size and strides along a dimension, and the shape and strides of the other dimensions. A zero-dim tensor is one line
/// of one element.
pub fn along<const N: usize>(
    shape: &[usize],
    dim: usize,
    strides: [&[usize]; N],
) -> (usize, [usize; N], Dims, [Dims; N]) {
    let size = shape.get(dim).copied().unwrap_or(1);
    let steps = std::array::from_fn(|k| strides[k].get(dim).copied().unwrap_or(1));
    let rest = |d: &[usize]| -> Dims { d.iter().enumerate().filter(|(i, _)| *i != dim).map(|(_, &v)| v).collect() };
    (size, steps, rest(shape), std::array::from_fn(|k| rest(strides[k])))
}

impl Gpu {
    pub fn scan(&self, op: Scan, x: View, dim: usize, out: View, indices: Option<View>) -> Result<()> {
        if op == Scan::LogSumExp && !x.dtype().is_float() {
            return Err(Error::dtype(format!("logcumsumexp: takes floats, not {}", x.dtype())));
        }
        if x.numel() == 0 {
            return Ok(());
        }
        let index_strides = indices.map_or(out.strides(), |i| i.strides());
        let (length, steps, shape, strides) = along(x.shape(), dim, [x.strides(), out.strides(), index_strides]);
        let loops = merged(&loops(&shape, [&strides[0], &strides[1], &strides[2]]));
        let count: usize = shape.iter().product();
        let per_thread = count >= MANY_LINES && steps[0] != 1;
        let wide =
            is_wide(&loops) || x.layout().span()? > i32::MAX as usize || out.layout().span()? > i32::MAX as usize;
        let code = op as u16;
        let key = Key::new(
            Family::Scan,
            "scan",
            [code, x.dtype() as u16, out.dtype() as u16, per_thread as u16, wide as u16],
        );
        let function = self.function(key, || defines(code, x.dtype(), out.dtype(), per_thread, wide))?;
        let nest = Nest::new(&loops)?;
        let (from, to, at) = (x.ptr() as u64, out.ptr() as u64, indices.map_or(0, |i| i.ptr() as u64));
        let [x_step, out_step, index_step] = steps;
        let (chunk, chunks) = if per_thread { (length, 1) } else { self.scan_chunks(length, count) };
        let blocks = if per_thread { count.div_ceil(THREADS) } else { count * chunks };
        let scratch = if chunks > 1 { Some(self.scratch(blocks * CARRY)?) } else { None };
        let carries = scratch.as_ref().map_or(0, |s| s.ptr);
        if chunks > 1 {
            let kernel = |entry| {
                let key = Key::new(Family::Scan, entry, [code, x.dtype() as u16, out.dtype() as u16, 0, wide as u16]);
                self.function(key, || defines(code, x.dtype(), out.dtype(), false, wide))
            };
            let function = kernel("scan_chunks")?;
            let grid = Grid::line(blocks, THREADS)?;
            launch!(self, function, grid; nest, from, length, x_step, carries, chunk, chunks)?;
            let function = kernel("scan_carries")?;
            launch!(self, function, Grid::line(count, THREADS)?; carries, chunks)?;
        }
        let grid = Grid::line(blocks, THREADS)?;
        launch!(
            self, function, grid;
            nest, from, to, at, count, length, x_step, out_step, index_step, carries, chunk, chunks
        )
    }

    /// Elements of a chunk, and chunks of a line: one, unless lines are too few to keep the device busy.
    fn scan_chunks(&self, length: usize, lines: usize) -> (usize, usize) {
        let parts = (BLOCKS * self.properties.multiprocessors) / lines.max(1);
        if parts < 2 || length < 4 * TILE {
            return (length, 1);
        }
        let chunk = length.div_ceil(parts).next_multiple_of(TILE);
        (chunk, length.div_ceil(chunk))
    }
}

/// Compile-time definitions of the kernel.
pub fn defines(code: u16, x: DType, out: DType, per_thread: bool, wide: bool) -> Defines {
    let defines = Defines::default()
        .define("OP_CODE", code)
        .dtype("T", x)
        .dtype("OUT", out)
        .define("W", if x.is_float() { "double" } else { "i64" })
        .define("LINE_PER_THREAD", per_thread as u8);
    if wide { defines.define("WIDE", 1) } else { defines }
}
