//! Batch norm (`kernels/batch_norm.cu`).

use crate::device::Gpu;
use crate::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use crate::row_norm::{address, parameter_dtype};
use crate::softmax::float;
use rushlight_core::backend::BatchNorm;
use rushlight_core::{DType, Result, View};

const THREADS: usize = 256;
const ENOUGH_BLOCKS: usize = 512;
/// With fewer positions per image than this, neighbouring threads take neighbouring channels.
const FEW_POSITIONS: usize = 32;
/// Bytes of the largest partial result.
const PARTIAL: usize = 24;

/// How the elements of a channel are cut.
struct Pieces {
    across: bool,
    blocks: usize,
    piece: usize,
    pieces: usize,
    /// Elements of a channel.
    count: usize,
}

impl Pieces {
    fn new(spec: &BatchNorm) -> Self {
        let across = spec.space < FEW_POSITIONS;
        let count = spec.batch * spec.space;
        let blocks = if across { spec.channels.div_ceil(32) } else { spec.channels };
        let threads = if across { 8 } else { THREADS };
        let wanted = (ENOUGH_BLOCKS / blocks.max(1)).clamp(1, 256).min(count / (threads * 4)).max(1);
        let piece = count.div_ceil(wanted).max(1);
        Self { across, blocks, piece, pieces: count.div_ceil(piece).max(1), count }
    }
}

impl Gpu {
    fn batch_norm_kernel(&self, entry: &'static str, part: &str, x: DType, p: DType, across: bool) -> Result<Function> {
        let key = Key::new(Family::BatchNorm, entry, [x as u16, p as u16, across as u16]);
        self.function(key, || defines(part, x, p, across))
    }

    pub fn batch_norm(
        &self,
        spec: &BatchNorm,
        x: View,
        weight: Option<View>,
        bias: Option<View>,
        y: View,
        mean: View,
        rstd: View,
    ) -> Result<()> {
        float("batch_norm", x.dtype)?;
        let (channels, space, eps) = (spec.channels, spec.space, spec.eps);
        let count = spec.batch * channels * space;
        if count == 0 {
            return Ok(());
        }
        let p = parameter_dtype("batch_norm", x.dtype, &[weight, bias])?;
        let (from, to, mean, rstd) = (x.ptr() as u64, y.ptr() as u64, mean.ptr() as u64, rstd.ptr() as u64);
        if spec.training {
            let cut = Pieces::new(spec);
            let scratch = self.scratch(cut.pieces * channels * PARTIAL)?;
            let (partial, per_channel, piece, pieces) = (scratch.ptr, cut.count, cut.piece, cut.pieces);
            let f = self.batch_norm_kernel("batch_norm_statistics", "STATISTICS", x.dtype, p, cut.across)?;
            let grid = Grid::plane(cut.blocks, pieces, THREADS)?;
            launch!(self, f, grid; from, partial, channels, space, per_channel, piece)?;
            let f = self.batch_norm_kernel("batch_norm_finish", "STATISTICS", x.dtype, p, cut.across)?;
            launch!(self, f, Grid::line(channels.div_ceil(128), 128)?; partial, mean, rstd, channels, pieces, eps)?;
        }
        let f = self.batch_norm_kernel("batch_norm", "APPLY", x.dtype, p, false)?;
        let (w, b) = (address(weight), address(bias));
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, f, grid; from, w, b, to, mean, rstd, channels, space, count)
    }

    pub fn batch_norm_backward(
        &self,
        spec: &BatchNorm,
        dy: View,
        x: View,
        weight: Option<View>,
        mean: View,
        rstd: View,
        dx: Option<View>,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        float("batch_norm_backward", x.dtype)?;
        let (channels, space) = (spec.channels, spec.space);
        let count = spec.batch * channels * space;
        if channels == 0 {
            return Ok(());
        }
        let (g, from, mean, rstd) = (dy.ptr() as u64, x.ptr() as u64, mean.ptr() as u64, rstd.ptr() as u64);
        let sums = self.scratch(channels * PARTIAL)?;
        let totals = sums.ptr;
        if spec.training || dweight.is_some() || dbias.is_some() {
            let p = parameter_dtype("batch_norm_backward", x.dtype, &[dweight, dbias])?;
            let cut = Pieces::new(spec);
            let scratch = self.scratch(cut.pieces * channels * PARTIAL)?;
            let (partial, per_channel, piece, pieces) = (scratch.ptr, cut.count, cut.piece, cut.pieces);
            let f = self.batch_norm_kernel("batch_norm_sums", "BACKWARD", x.dtype, p, cut.across)?;
            let grid = Grid::plane(cut.blocks, pieces, THREADS)?;
            launch!(self, f, grid; g, from, mean, rstd, partial, channels, space, per_channel, piece)?;
            let f = self.batch_norm_kernel("batch_norm_join", "BACKWARD", x.dtype, p, cut.across)?;
            let (w, b) = (address(dweight), address(dbias));
            launch!(self, f, Grid::line(channels.div_ceil(128), 128)?; partial, totals, w, b, channels, pieces)?;
        }
        let Some(dx) = dx.filter(|_| count > 0) else { return Ok(()) };
        let p = parameter_dtype("batch_norm_backward", x.dtype, &[weight])?;
        let f = self.batch_norm_kernel("batch_norm_backward", "BACKWARD", x.dtype, p, false)?;
        let (w, to) = (address(weight), dx.ptr() as u64);
        let over = if spec.training { spec.batch * space } else { 0 };
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, f, grid; g, from, w, mean, rstd, totals, to, channels, space, count, over)
    }
}

pub fn defines(part: &str, x: DType, parameter: DType, across: bool) -> Defines {
    Defines::default()
        .define(part, 1)
        .define("WIDE", 1)
        .dtype("T", x)
        .define("W", wide_type(x))
        .dtype("P", parameter)
        .define("ACROSS", across as u8)
}
