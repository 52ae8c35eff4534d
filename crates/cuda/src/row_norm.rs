//! Layer norm and RMS norm (`kernels/row_norm.cu`).

use crate::device::Gpu;
use crate::kernel::{Defines, Family, Grid, Key, launch, wide_type};
use crate::rows::Rows;
use crate::softmax::float;
use rushlight_core::backend::RowNorm;
use rushlight_core::{DType, Error, Result, View};

/// Blocks from which on a device is busy.
const ENOUGH_BLOCKS: usize = 512;

/// Address of something that may not be there.
pub fn address(view: Option<View>) -> u64 {
    view.map_or(0, |v| v.ptr() as u64)
}

/// The dtype that parameters have in common: the input's, or that of its statistics.
pub fn parameter_dtype(call: &str, x: DType, parameters: &[Option<View>]) -> Result<DType> {
    let mut found = parameters.iter().flatten().map(|p| p.dtype);
    let first = found.next().unwrap_or(x);
    let statistics = if x == DType::F64 { DType::F64 } else { DType::F32 };
    if (first != x && first != statistics) || found.any(|d| d != first) {
        return Err(Error::dtype(format!("{call}: parameters must all be {x} or {statistics}")));
    }
    Ok(first)
}

impl Gpu {
    pub fn row_norm(
        &self,
        spec: &RowNorm,
        x: View,
        weight: Option<View>,
        bias: Option<View>,
        y: View,
        mean: View,
        rstd: View,
    ) -> Result<()> {
        float("row_norm", x.dtype)?;
        let (count, n, eps) = (spec.rows, spec.cols, spec.eps);
        if count == 0 {
            return Ok(());
        }
        let parameter = parameter_dtype("row_norm", x.dtype, &[weight, bias])?;
        let (from, to) = (x.ptr() as u64, y.ptr() as u64);
        let rows = Rows::new(x.dtype, n, &[from, to]);
        let [a, b, c, d] = rows.tags();
        let key = Key::new(Family::RowNorm, "row_norm", [spec.rms as u16, parameter as u16, a, b, c, d]);
        let function = self.function(key, || defines(rows.defines(), spec.rms, parameter))?;
        let (w, b, mean, rstd) = (address(weight), address(bias), mean.ptr() as u64, rstd.ptr() as u64);
        launch!(self, function, rows.grid(count)?; from, w, b, to, mean, rstd, count, n, eps)
    }

    pub fn row_norm_backward(
        &self,
        spec: &RowNorm,
        dy: View,
        x: View,
        weight: Option<View>,
        mean: View,
        rstd: View,
        dx: Option<View>,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        float("row_norm_backward", x.dtype)?;
        let (count, n) = (spec.rows, spec.cols);
        let (g, from, mean, rstd) = (dy.ptr() as u64, x.ptr() as u64, mean.ptr() as u64, rstd.ptr() as u64);
        if let Some(dx) = dx.filter(|_| count > 0) {
            let parameter = parameter_dtype("row_norm_backward", x.dtype, &[weight])?;
            let (w, to) = (address(weight), dx.ptr() as u64);
            let rows = Rows::new(x.dtype, n, &[g, from, to]);
            let [a, b, c, d] = rows.tags();
            let key = Key::new(Family::RowNorm, "row_norm_backward", [spec.rms as u16, parameter as u16, a, b, c, d]);
            let function = self.function(key, || defines(rows.defines(), spec.rms, parameter))?;
            launch!(self, function, rows.grid(count)?; g, from, w, mean, rstd, to, count, n)?;
        }
        if (dweight.is_none() && dbias.is_none()) || n == 0 {
            return Ok(());
        }
        let parameter = parameter_dtype("row_norm_backward", x.dtype, &[dweight, dbias])?;
        let tags = [spec.rms as u16, parameter as u16, x.dtype as u16];
        let across = n.div_ceil(32);
        let piece = count.div_ceil((ENOUGH_BLOCKS / across).clamp(1, 256)).next_multiple_of(8).max(8);
        let pieces = count.div_ceil(piece);
        let size = if x.dtype == DType::F64 { 8 } else { 4 };
        let scratch = self.scratch(pieces * 2 * n * size)?;
        let partial = scratch.ptr;
        let sums = self.function(Key::new(Family::RowNorm, "row_norm_columns", tags), || {
            defines(column_defines("COLUMNS", x.dtype), spec.rms, parameter)
        })?;
        let grid = Grid { threads: [32, 8], ..Grid::plane(across, pieces, 32)? };
        launch!(self, sums, grid; g, from, mean, rstd, partial, count, n, piece)?;
        let join = self.function(Key::new(Family::RowNorm, "row_norm_join", tags), || {
            defines(column_defines("COLUMNS_JOIN", x.dtype), spec.rms, parameter)
        })?;
        let (w, b) = (address(dweight), address(dbias));
        launch!(self, join, Grid::line(n.div_ceil(128), 128)?; partial, w, b, n, pieces)
    }
}

pub fn defines(base: Defines, rms: bool, parameter: DType) -> Defines {
    base.define("RMS", rms as u8).dtype("P", parameter)
}

pub fn column_defines(entry: &str, dtype: DType) -> Defines {
    Defines::default().define(entry, 1).define("WIDE", 1).dtype("T", dtype).define("W", wide_type(dtype))
}
