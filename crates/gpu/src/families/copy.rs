//! Copies and sequences.

use crate::device::Gpu;
use crate::families::pointwise::Formula;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch};
use crate::launch::nest::{Loops, Nest, in_memory_order, is_wide, loops, merged};
use rushlight_core::{DType, Dims, Operand, Result, Scalar, View};

const THREADS: usize = 256;
/// Tiles of a transposing copy have this many vectors a side.
const TILE: usize = 32;

/// Elements of a thread of a copy with reversed dimensions: `EACH` in `copy.cu`.
const FLIPPED: usize = 4;

/// The integer dtype of an element's size, for moves.
fn unsigned(dtype: DType) -> DType {
    [DType::U8, DType::I16, DType::I32, DType::I64][dtype.size().trailing_zeros() as usize]
}

/// Definitions of the kernel that transposes by moves of `vector` elements.
pub fn transpose_defines(dtype: DType, vector: usize) -> Defines {
    Defines::default().define("TRANSPOSE", 1).define("VECTOR", vector).dtype("T", dtype)
}

/// Definitions of the kernel that reverses dimensions.
pub fn flip_defines(dtype: DType) -> Defines {
    Defines::default().define("FLIP", 1).define("WIDE", 1).dtype("T", dtype)
}

impl Gpu {
    pub fn copy(&self, src: View, out: View) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        if src.dtype() == out.dtype() {
            let bytes = out.numel() * out.dtype().size();
            if src.layout().is_contiguous() && out.layout().is_contiguous() {
                let (from, to) = (src.ptr() as u64, out.ptr() as u64);
                return self.submit(move |gpu, stream| {
                    // SAFETY: both views are within their storages.
                    unsafe { gpu.driver.copy_on_device(to, from, bytes, stream) }
                });
            }
            if self.transposed(src, out)? {
                return Ok(());
            }
        }
        self.formula(Formula::Copy, out.dtype(), [Some(Operand::Tensor(src)), None, None, None, None], &[], out)
    }

    /// Tiled copy for input and output that are dense along different dimensions. Returns whether it applied.
    fn transposed(&self, src: View, out: View) -> Result<bool> {
        let all = merged(&in_memory_order(loops(out.shape(), [out.strides(), src.strides()])));
        let Some((inner, outer)) = all.split_last() else { return Ok(false) };
        let Some(at) = outer.iter().position(|l| l.1[1] == 1 && l.0 >= TILE / 2) else { return Ok(false) };
        let row = outer[at];
        let batch: Loops<2> =
            outer.iter().enumerate().filter(|&(i, _)| i != at).map(|(_, &(n, [o, s]))| (n, [s, o])).collect();
        let batches = batch.iter().map(|l| l.0).product::<usize>();
        // Small elements are moved together, if rows and columns begin and end with whole vectors.
        let whole = (4 / out.dtype().size()).max(1);
        let dense = [row.0, inner.0, inner.1[1], row.1[0]].iter().all(|n| n.is_multiple_of(whole))
            && batch.iter().all(|l| l.1.iter().all(|n| n.is_multiple_of(whole)))
            && [src, out].iter().all(|v| (v.ptr() as usize).is_multiple_of(whole * out.dtype().size()));
        let vector = if dense { whole } else { 1 };
        let row_tiles = row.0.div_ceil(TILE * vector);
        if inner.1[0] != 1 || inner.0 < TILE / 2 || is_wide(&all) || row_tiles.saturating_mul(batches) > 65_535 {
            return Ok(false);
        }
        let unsigned = unsigned(out.dtype());
        let key = Key::new(Family::Copy, "transpose", [unsigned as u16, vector as u16]);
        let function = self.function(key, || transpose_defines(unsigned, vector))?;
        let nest = Nest::new(&merged(&batch))?;
        let (x, y) = (src.ptr() as u64, out.ptr() as u64);
        let (rows, columns) = (row.0 as u32, inner.0 as u32);
        let (x_step, out_step) = (inner.1[1] as u64, row.1[0] as u64);
        let blocks = [inner.0.div_ceil(TILE * vector) as u32, (row_tiles * batches) as u32, 1];
        let grid = Grid { blocks, threads: [TILE as u32, 8], shared: 0, spread: false };
        launch!(self, function, grid; nest, x, y, rows, columns, x_step, out_step)?;
        Ok(true)
    }

    /// A copy with some dimensions reversed.
    pub fn flip(&self, x: View, flipped: &[bool], out: View) -> Result<()> {
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let (mut start, mut strides) = (0, Dims::from_slice(x.strides()));
        for (d, stride) in strides.iter_mut().enumerate().filter(|(d, _)| flipped[*d]) {
            start += (x.shape()[d] - 1) * *stride;
            *stride = stride.wrapping_neg();
        }
        let unsigned = unsigned(out.dtype());
        let key = Key::new(Family::Copy, "flip", [unsigned as u16]);
        let function = self.function(key, || flip_defines(unsigned))?;
        // Loops with negative strides are not merged.
        let nest = Nest::new(&loops(out.shape(), [out.strides(), &strides]))?;
        let (from, to) = (x.ptr() as u64 + (start * x.dtype().size()) as u64, out.ptr() as u64);
        launch!(self, function, Grid::line(count.div_ceil(THREADS * FLIPPED), THREADS)?; nest, from, to, count)
    }

    pub fn arange(&self, start: Scalar, step: Scalar, out: View) -> Result<()> {
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let float = out.dtype().is_float();
        let key = Key::new(Family::Copy, "arange", [out.dtype() as u16]);
        let function = self.function(key, || {
            let defines = Defines::default().define("ARANGE", 1).define("WIDE", 1);
            defines.define("NUM", if float { "double" } else { "i64" }).dtype("OUT", out.dtype())
        })?;
        let nest = Nest::row_major(out.shape(), [out.strides()])?;
        let bits = |s: Scalar| if float { s.to_f64().to_bits() } else { s.to_i64() as u64 };
        let (start, step, place) = (bits(start), bits(step), out.ptr() as u64);
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; nest, start, step, place, count)
    }
}
