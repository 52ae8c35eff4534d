//! Layer norm and RMS norm (`kernels/row_norm.cu`).

use crate::device::Gpu;
use crate::families::softmax::float;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch, wide_type};
use crate::launch::rows::Rows;
use rushlight_core::backend::{RowNorm, call};
use rushlight_core::{DType, Error, Result, View};

/// Number of blocks that fills the device.
const ENOUGH_BLOCKS: usize = 512;
/// Maximum rows per block, if there are enough.
const ROWS_OF_A_BLOCK: usize = 4;
/// Registers of a multiprocessor, and registers that a thread needs in addition to those of its columns.
const REGISTERS: usize = 65_536;
const OTHER_REGISTERS: usize = 32;

/// Address of an optional view; 0 if absent.
pub fn address(view: Option<View>) -> u64 {
    view.map_or(0, |v| v.ptr() as u64)
}

/// Common dtype of the parameters: the input's, or its statistics'.
pub fn parameter_dtype(call: &str, x: DType, parameters: &[Option<View>]) -> Result<DType> {
    let mut found = parameters.iter().flatten().map(|p| p.dtype());
    let first = found.next().unwrap_or(x);
    let statistics = if x == DType::F64 { DType::F64 } else { DType::F32 };
    if (first != x && first != statistics) || found.any(|d| d != first) {
        return Err(Error::dtype(format!("{call}: parameters must all be {x} or {statistics}")));
    }
    Ok(first)
}

impl Gpu {
    pub fn row_norm(&self, c: &call::RowNorm<View>) -> Result<()> {
        let call::RowNorm { ref spec, x, weight, bias, y, low, mean, rstd } = *c;
        float("row_norm", x.dtype())?;
        let (count, n, eps) = (spec.rows, spec.cols, spec.eps);
        if count == 0 {
            return Ok(());
        }
        let parameter = parameter_dtype("row_norm", x.dtype(), &[weight, bias])?;
        let (from, to) = (x.ptr() as u64, y.ptr() as u64);
        let rows = Rows::new(x.dtype(), n, &[from, to, address(low)]);
        let lower = low.map_or(x.dtype(), |l| l.dtype());
        let form = Form { rms: spec.rms, parameter, low: lower, gradient: x.dtype() };
        let key = Key::new(Family::RowNorm, "row_norm", form.tags(rows));
        let function = self.function(key, || form.defines(rows.defines()))?;
        let (w, b, mean, rstd) = (address(weight), address(bias), mean.ptr() as u64, rstd.ptr() as u64);
        let low = address(low);
        launch!(self, function, rows.grid(count)?; from, w, b, to, low, mean, rstd, count, n, eps)
    }

    pub fn row_norm_backward(&self, c: &call::RowNormBackward<View>) -> Result<()> {
        let call::RowNormBackward { ref spec, dy, x, weight, mean, rstd, so_far, dx, low, dweight, dbias } = *c;
        float("row_norm_backward", x.dtype())?;
        let (count, n) = (spec.rows, spec.cols);
        let (g, from, mean, rstd) = (dy.ptr() as u64, x.ptr() as u64, mean.ptr() as u64, rstd.ptr() as u64);
        let wants_columns = (dweight.is_some() || dbias.is_some()) && n > 0;
        let size = if x.dtype() == DType::F64 { 8 } else { 4 };
        let wants_rows = (dx.is_some() || low.is_some()) && count > 0;
        let (to, summed) = (address(dx), address(so_far));
        let rows = Rows::new(x.dtype(), n, &[g, from, summed, to, address(low)]);
        // Only the kernels over rows read gradients of a lower dtype.
        if dy.dtype() != x.dtype() && wants_columns && (!wants_rows || rows.steps == 0) {
            let wide = self.temporary(dy.shape(), x.dtype())?;
            self.copy(dy, wide.view())?;
            return self.row_norm_backward(&call::RowNormBackward { dy: wide.view(), ..*c });
        }
        if wants_rows {
            let parameter = parameter_dtype("row_norm_backward", x.dtype(), &[weight])?;
            let (w, so_far) = (address(weight), summed);
            let lower = low.map_or(x.dtype(), |l| l.dtype());
            let form = Form { rms: spec.rms, parameter, low: lower, gradient: dy.dtype() };
            let low = address(low);
            let kernel = |entry: &'static str, rows: Rows| {
                let key = Key::new(Family::RowNorm, entry, form.tags(rows));
                self.function(key, || form.defines(rows.defines()))
            };
            if wants_columns && rows.steps > 0 {
                let rows = rows.spread(n);
                let whole = rows.grid(count)?;
                let (blocks, multiprocessors) = (whole.blocks[0] as usize, self.properties.multiprocessors);
                // As many blocks as run concurrently: per column, a thread keeps a factor, two sums and three elements.
                let columns = (rows.steps * rows.lanes) as usize;
                let registers = OTHER_REGISTERS + columns * 3 + columns * 3 * x.dtype().size() / 4;
                let at_once = (REGISTERS / (registers * whole.threads[0] as usize)).clamp(2, 8);
                let (least, most) = (2 * multiprocessors, at_once * multiprocessors);
                let lines = blocks.div_ceil(ROWS_OF_A_BLOCK).clamp(least, most).min(blocks);
                let grid = Grid { blocks: [lines as u32, 1, 1], ..whole };
                let scratch = self.scratch(lines * 2 * n * size)?;
                let partial = scratch.ptr;
                let function = kernel("row_norm_gradients", rows)?;
                launch!(self, function, grid; g, from, w, mean, rstd, so_far, to, low, partial, count, n)?;
                return self.row_norm_join(spec, x.dtype(), partial, lines, dweight, dbias);
            }
            let function = kernel("row_norm_backward", rows)?;
            launch!(self, function, rows.grid(count)?; g, from, w, mean, rstd, so_far, to, low, count, n)?;
        }
        if !wants_columns {
            return Ok(());
        }
        let across = n.div_ceil(32);
        let piece = count.div_ceil((ENOUGH_BLOCKS / across).clamp(1, 256)).next_multiple_of(8).max(8);
        let pieces = count.div_ceil(piece);
        let scratch = self.scratch(pieces * 2 * n * size)?;
        let partial = scratch.ptr;
        let sums = self
            .function(Key::new(Family::RowNorm, "row_norm_columns", [spec.rms as u16, x.dtype() as u16]), || {
                defines(column_defines("COLUMNS", x.dtype()), spec.rms, x.dtype())
            })?;
        let grid = Grid { threads: [32, 8], ..Grid::plane(across, pieces, 32)? };
        launch!(self, sums, grid; g, from, mean, rstd, partial, count, n, piece)?;
        self.row_norm_join(spec, x.dtype(), partial, pieces, dweight, dbias)
    }

    /// Sums the partial results to the parameters' gradients.
    fn row_norm_join(
        &self,
        spec: &RowNorm,
        dtype: DType,
        partial: u64,
        lines: usize,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        let parameter = parameter_dtype("row_norm_backward", dtype, &[dweight, dbias])?;
        let (key, text) = joining(dtype, spec.rms, parameter);
        let join = self.function(key, || text)?;
        let (n, w, b) = (spec.cols, address(dweight), address(dbias));
        let grid = Grid { threads: [8, 128], ..Grid::plane(n.div_ceil(8), 2, 8)? };
        launch!(self, join, grid; partial, w, b, n, lines)
    }
}

/// The kernel that sums partial results.
fn joining(dtype: DType, rms: bool, parameter: DType) -> (Key, Defines) {
    let key = Key::new(Family::RowNorm, "row_norm_join", [parameter as u16, dtype as u16]);
    (key, defines(column_defines("COLUMNS_JOIN", dtype), rms, parameter))
}

pub fn defines(base: Defines, rms: bool, parameter: DType) -> Defines {
    base.define("RMS", rms as u8).dtype("P", parameter)
}

/// Compile-time parameters of the row kernels.
#[derive(Clone, Copy)]
pub struct Form {
    pub rms: bool,
    pub parameter: DType,
    /// The dtype of a second copy of the result.
    pub low: DType,
    /// The dtype of incoming gradients.
    pub gradient: DType,
}

impl Form {
    fn tags(self, rows: Rows) -> [u16; 8] {
        let [a, b, c, d] = rows.tags();
        [self.rms as u16, self.parameter as u16, self.low as u16, self.gradient as u16, a, b, c, d]
    }

    pub fn defines(self, base: Defines) -> Defines {
        defines(base, self.rms, self.parameter).dtype("L", self.low).dtype("G", self.gradient)
    }
}

pub fn column_defines(entry: &str, dtype: DType) -> Defines {
    Defines::default().define(entry, 1).define("WIDE", 1).dtype("T", dtype).define("W", wide_type(dtype))
}
