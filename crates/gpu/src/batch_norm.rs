//! Batch norm (`kernels/batch_norm.cu`).

use crate::device::Gpu;
use crate::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use crate::row_norm::{address, parameter_dtype};
use crate::softmax::float;
use rushlight_core::backend::BatchNorm;
use rushlight_core::{DType, Result, View};

const THREADS: usize = 256;
/// Blocks for every multiprocessor: enough loads are then under way.
const ENOUGH_BLOCKS: usize = 4;
/// Vectors that a thread should have at least.
const PER_THREAD: usize = 8;
/// Bytes of the largest partial result.
const PARTIAL: usize = 24;

/// The same as `Cut` in `batch_norm.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Cut {
    channels: usize,
    space: usize,
    count: usize,
    piece: usize,
}

/// How threads share the elements: a compiled form of the kernels, but for dtypes.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub lanes: u16,
    /// Vectors side by side in a block.
    pub channels: u16,
    pub across: bool,
    pub wide: bool,
}

impl Share {
    /// For tensors at these addresses, and how they are cut into pieces: so many.
    fn new(gpu: &Gpu, spec: &BatchNorm, dtype: DType, addresses: &[u64]) -> (Self, Cut, usize) {
        let width = 16 / dtype.size();
        let aligned = addresses.iter().all(|a| a.is_multiple_of(16));
        let across = spec.space == 1;
        let vectors = aligned && if across { spec.channels } else { spec.space }.is_multiple_of(width);
        let lanes = if vectors { width } else { 1 };
        let (channels, space) = if across { (spec.channels / lanes, 1) } else { (spec.channels, spec.space / lanes) };
        // Neighbouring threads take neighbouring vectors, of one channel or of several.
        let beside = if across { channels.next_power_of_two().min(32) } else { 1 };
        let (blocks, count) = (channels.div_ceil(beside), spec.batch * space);
        let wanted = (ENOUGH_BLOCKS * gpu.properties.multiprocessors).div_ceil(blocks.max(1));
        let pieces = wanted.min(count / (THREADS / beside * PER_THREAD)).clamp(1, 65_535);
        let piece = count.div_ceil(pieces).max(1);
        // Positions are counted a block past the end.
        let wide = spec.batch * spec.channels * spec.space > i32::MAX as usize - (1 << 20);
        let share = Self { lanes: lanes as u16, channels: beside as u16, across, wide };
        (share, Cut { channels, space, count, piece }, count.div_ceil(piece).max(1))
    }

    fn grid(&self, cut: &Cut, pieces: usize) -> Result<Grid> {
        Grid::plane(cut.channels.div_ceil(self.channels as usize), pieces, THREADS)
    }
}

/// The launch that joins pieces: 32 channels by 32 threads each.
fn joining(channels: usize) -> Result<Grid> {
    Ok(Grid { threads: [32, 32], ..Grid::line(channels.div_ceil(32), 32)? })
}

impl Gpu {
    fn batch_norm_kernel(&self, entry: &'static str, part: &str, x: DType, p: DType, share: Share) -> Result<Function> {
        self.function(key(entry, x, p, share), || defines(part, x, p, share))
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
        let (channels, eps) = (spec.channels, spec.eps);
        if spec.batch * channels * spec.space == 0 {
            return Ok(());
        }
        let p = parameter_dtype("batch_norm", x.dtype, &[weight, bias])?;
        let (from, to, mean, rstd) = (x.ptr() as u64, y.ptr() as u64, mean.ptr() as u64, rstd.ptr() as u64);
        let (share, cut, pieces) = Share::new(self, spec, x.dtype, &[from, to]);
        if spec.training {
            let scratch = self.scratch(pieces * channels * PARTIAL)?;
            let partial = scratch.ptr;
            let f = self.batch_norm_kernel("batch_norm_statistics", "STATISTICS", x.dtype, p, share)?;
            launch!(self, f, share.grid(&cut, pieces)?; from, partial, cut)?;
            let f = self.batch_norm_kernel("batch_norm_finish", "STATISTICS", x.dtype, p, share)?;
            launch!(self, f, joining(channels)?; partial, mean, rstd, channels, pieces, eps)?;
        }
        let f = self.batch_norm_kernel("batch_norm", "APPLY", x.dtype, p, share)?;
        let (w, b) = (address(weight), address(bias));
        launch!(self, f, share.grid(&cut, pieces)?; from, w, b, to, mean, rstd, cut)
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
        let channels = spec.channels;
        if channels == 0 {
            return Ok(());
        }
        let (g, from, mean, rstd) = (dy.ptr() as u64, x.ptr() as u64, mean.ptr() as u64, rstd.ptr() as u64);
        let mut addresses = vec![g, from];
        addresses.extend(dx.map(|v| v.ptr() as u64));
        let (share, cut, pieces) = Share::new(self, spec, x.dtype, &addresses);
        let sums = self.scratch(channels * PARTIAL)?;
        let totals = sums.ptr;
        if spec.training || dweight.is_some() || dbias.is_some() {
            let p = parameter_dtype("batch_norm_backward", x.dtype, &[dweight, dbias])?;
            let scratch = self.scratch(pieces * channels * PARTIAL)?;
            let partial = scratch.ptr;
            let f = self.batch_norm_kernel("batch_norm_sums", "BACKWARD", x.dtype, p, share)?;
            launch!(self, f, share.grid(&cut, pieces)?; g, from, mean, rstd, partial, cut)?;
            let f = self.batch_norm_kernel("batch_norm_join", "BACKWARD", x.dtype, p, share)?;
            let (w, b) = (address(dweight), address(dbias));
            launch!(self, f, joining(channels)?; partial, totals, w, b, channels, pieces)?;
        }
        let Some(dx) = dx.filter(|_| cut.count > 0) else { return Ok(()) };
        let p = parameter_dtype("batch_norm_backward", x.dtype, &[weight])?;
        let f = self.batch_norm_kernel("batch_norm_backward", "BACKWARD", x.dtype, p, share)?;
        let (w, to) = (address(weight), dx.ptr() as u64);
        let over = if spec.training { spec.batch * spec.space } else { 0 };
        launch!(self, f, share.grid(&cut, pieces)?; g, from, w, mean, rstd, totals, to, cut, over)
    }
}

fn key(entry: &'static str, x: DType, p: DType, share: Share) -> Key {
    let Share { lanes, channels, across, wide } = share;
    Key::new(Family::BatchNorm, entry, [x as u16, p as u16, lanes, channels, across as u16, wide as u16])
}

/// Definitions of a part of the kernels.
pub fn defines(part: &str, x: DType, parameter: DType, share: Share) -> Defines {
    let defines = if share.wide { Defines::default().define("WIDE", 1) } else { Defines::default() };
    defines
        .define(part, 1)
        .dtype("T", x)
        .define("W", wide_type(x))
        .dtype("P", parameter)
        .define("LANES", share.lanes)
        .define("CHANNELS", share.channels)
        .define("ACROSS", share.across as u8)
}
