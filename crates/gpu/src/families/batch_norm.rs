//! Batch norm (`kernels/batch_norm.cu`).

use crate::device::Gpu;
use crate::families::chain::{Normalised, stage};
use crate::families::row_norm::{address, parameter_dtype};
use crate::families::softmax::float;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use rushlight_core::backend::{BatchNorm, call};
use rushlight_core::{DType, Result, View};

const THREADS: usize = 256;
/// Blocks per multiprocessor, enough to keep the memory system busy.
const ENOUGH_BLOCKS: usize = 4;
/// Minimum vectors per thread.
const PER_THREAD: usize = 8;
/// Maximum bytes of partial results.
const PARTIAL: usize = 24;

/// Matches `Cut` in `batch_norm.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Cut {
    channels: usize,
    space: usize,
    count: usize,
    piece: usize,
}

/// How threads share the elements: compile-time parameters of the kernels apart from dtypes.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub lanes: u16,
    /// Adjacent vectors handled by one block.
    pub channels: u16,
    pub across: bool,
    pub wide: bool,
}

impl Share {
    /// Launch configuration for tensors at these addresses, split into a number of pieces.
    fn new(gpu: &Gpu, spec: &BatchNorm, dtype: DType, addresses: &[u64]) -> (Self, Cut, usize) {
        let width = 16 / dtype.size();
        let aligned = addresses.iter().all(|a| a.is_multiple_of(16));
        let across = spec.space == 1;
        let vectors = aligned && if across { spec.channels } else { spec.space }.is_multiple_of(width);
        let lanes = if vectors { width } else { 1 };
        let (channels, space) = if across { (spec.channels / lanes, 1) } else { (spec.channels, spec.space / lanes) };
        // Adjacent threads take adjacent vectors, of one channel or of several.
        let beside = if across { channels.next_power_of_two().min(32) } else { 1 };
        let (blocks, count) = (channels.div_ceil(beside), spec.batch * space);
        let wanted = (ENOUGH_BLOCKS * gpu.properties.multiprocessors).div_ceil(blocks.max(1));
        let pieces = wanted.min(count / (THREADS / beside * PER_THREAD)).clamp(1, 65_535);
        let piece = count.div_ceil(pieces).max(1);
        // Positions overshoot the end by up to one block.
        let wide = spec.batch * spec.channels * spec.space > i32::MAX as usize - (1 << 20);
        let share = Self { lanes: lanes as u16, channels: beside as u16, across, wide };
        (share, Cut { channels, space, count, piece }, count.div_ceil(piece).max(1))
    }

    pub fn grid(&self, cut: &Cut, pieces: usize) -> Result<Grid> {
        Grid::plane(cut.channels.div_ceil(self.channels as usize), pieces, THREADS)
    }
}

/// Launch configuration of the kernel that combines pieces: 32 channels by 32 threads each.
fn joining(channels: usize) -> Result<Grid> {
    Ok(Grid { threads: [32, 32], ..Grid::line(channels.div_ceil(32), 32)? })
}

impl Gpu {
    fn batch_norm_kernel(&self, entry: &'static str, part: &str, x: DType, p: DType, share: Share) -> Result<Function> {
        self.function(key(entry, x, p, share), || defines(part, x, p, share))
    }

    pub fn batch_norm(&self, c: &call::BatchNorm<View>) -> Result<()> {
        let call::BatchNorm { ref spec, x, weight, bias, y, mean, rstd } = *c;
        float("batch_norm", x.dtype())?;
        let (channels, eps) = (spec.channels, spec.eps);
        if spec.batch * channels * spec.space == 0 {
            return Ok(());
        }
        let p = parameter_dtype("batch_norm", x.dtype(), &[weight, bias])?;
        let [mean_block, rstd_block] = [mean, rstd].map(|v| v.storage().ptr() as u64);
        let (from, to, mean, rstd) = (x.ptr() as u64, y.ptr() as u64, mean.ptr() as u64, rstd.ptr() as u64);
        let (share, cut, pieces) = Share::new(self, spec, x.dtype(), &[from, to]);
        if spec.training {
            let scratch = self.scratch(pieces * channels * PARTIAL)?;
            let partial = scratch.ptr;
            let f = self.batch_norm_kernel("batch_norm_statistics", "STATISTICS", x.dtype(), p, share)?;
            launch!(self, f, share.grid(&cut, pieces)?; from, partial, cut)?;
            let f = self.batch_norm_kernel("batch_norm_finish", "STATISTICS", x.dtype(), p, share)?;
            launch!(self, f, joining(channels)?; partial, mean, rstd, channels, pieces, eps)?;
        }
        let start = |v: Option<View>| v.map_or(0, |v| v.storage().ptr() as u64);
        let norm = Normalised {
            dtype: x.dtype(),
            parameter: p,
            share,
            cut,
            pieces,
            elements: y.numel(),
            x: from,
            weight: address(weight),
            bias: address(bias),
            mean,
            rstd,
            y: to,
            blocks: [start(Some(x)), start(weight), start(bias), mean_block, rstd_block],
        };
        self.hold_chain(norm, to == y.storage().ptr() as u64)
    }

    /// Updates running statistics from a batch's.
    pub fn batch_norm_running(&self, c: &call::BatchNormRunning<View>) -> Result<bool> {
        let call::BatchNormRunning { ref spec, momentum, mean, rstd, running_mean, running_var } = *c;
        let running = [running_mean, running_var];
        let dtype = mean.dtype();
        if running.iter().any(|v| v.dtype() != dtype || !v.layout().is_contiguous())
            || !matches!(dtype, DType::F32 | DType::F64)
        {
            return Ok(false);
        }
        let key = Key::new(Family::BatchNorm, "batch_norm_running", [dtype as u16]);
        let share = Share { lanes: 1, channels: 1, across: false, wide: false };
        let function = self.function(key, || defines("RUNNING", dtype, dtype, share))?;
        let count = spec.batch * spec.space;
        let scale = count as f64 / count.saturating_sub(1).max(1) as f64;
        let (channels, eps) = (spec.channels, spec.eps);
        let [from, by, to_mean, to_var] = [mean, rstd, running[0], running[1]].map(|v| v.ptr() as u64);
        let grid = Grid::line(channels.div_ceil(THREADS), THREADS)?;
        let apart = |out: View| self.is_apart_from_chain(&[Some(mean), Some(rstd)], out);
        if self.queue.has_pending() && running.iter().all(|&v| apart(v)) {
            let mut args = [
                (&raw const from).cast_mut().cast::<std::ffi::c_void>(),
                (&raw const by).cast_mut().cast(),
                (&raw const to_mean).cast_mut().cast(),
                (&raw const to_var).cast_mut().cast(),
                (&raw const channels).cast_mut().cast(),
                (&raw const eps).cast_mut().cast(),
                (&raw const scale).cast_mut().cast(),
                (&raw const momentum).cast_mut().cast(),
            ];
            // SAFETY: the kernel's parameters, in order, of eight bytes each, and views within their storages.
            unsafe { self.launch_ahead(function, grid, &mut args, &[8; 8])? };
        } else {
            launch!(self, function, grid; from, by, to_mean, to_var, channels, eps, scale, momentum)?;
        }
        Ok(true)
    }

    pub fn batch_norm_backward(&self, c: &call::BatchNormBackward<View>) -> Result<()> {
        let call::BatchNormBackward { ref spec, dy, x, weight, mean, rstd, dx, dweight, dbias, relu, bias } = *c;
        float("batch_norm_backward", x.dtype())?;
        let channels = spec.channels;
        if channels == 0 {
            return Ok(());
        }
        let (g, from, mean, rstd) = (dy.ptr() as u64, x.ptr() as u64, mean.ptr() as u64, rstd.ptr() as u64);
        let mut addresses = vec![g, from];
        addresses.extend(dx.map(|v| v.ptr() as u64));
        let (share, cut, pieces) = Share::new(self, spec, x.dtype(), &addresses);
        let sums = self.scratch(channels * PARTIAL)?;
        let totals = sums.ptr;
        let sums_run = spec.training || dweight.is_some() || dbias.is_some();
        // Allocate before claiming the mask: the memory that the mask reads must not be reused.
        let scratch = self.scratch(pieces * channels * PARTIAL)?;
        // A deferred gradient of a ReLU, fused into this pass.
        let masked = if sums_run && !relu { self.take_mask(dy) } else { None };
        let all = if relu { [weight, bias] } else { [None; 2] };
        let (w, bias, relu) = match relu {
            true => (address(weight), address(bias), 1),
            false if masked.is_some() => (address(weight), 0, MASKED),
            false => (address(weight), 0, 0),
        };
        let kernel = |entry, p, relu: u16| {
            let Share { lanes, channels, across, wide } = share;
            let tags = [x.dtype() as u16, p as u16, lanes, channels, across as u16, wide as u16, relu];
            self.function(Key::new(Family::BatchNorm, entry, tags), || backward_defines(x.dtype(), p, share, relu))
        };
        if sums_run {
            let p = parameter_dtype("batch_norm_backward", x.dtype(), &[dweight, dbias, all[0], all[1]])?;
            let partial = scratch.ptr;
            let f = kernel("batch_norm_sums", p, relu)?;
            let (positive, to) = masked.as_ref().map_or((0, 0), |mask| (mask.positive, mask.to));
            let source = masked.as_ref().map_or(g, |mask| mask.dy);
            let grid = share.grid(&cut, pieces)?;
            launch!(self, f, grid; source, from, w, bias, mean, rstd, positive, to, partial, cut)?;
            let f = kernel("batch_norm_join", p, 0)?;
            let (dw, db) = (address(dweight), address(dbias));
            launch!(self, f, joining(channels)?; partial, totals, dw, db, channels, pieces)?;
        }
        let Some(dx) = dx.filter(|_| cut.count > 0) else { return Ok(()) };
        let p = parameter_dtype("batch_norm_backward", x.dtype(), &[weight, all[1]])?;
        let f = kernel("batch_norm_backward", p, relu & 1)?;
        let to = dx.ptr() as u64;
        let over = if spec.training { spec.batch * spec.space } else { 0 };
        launch!(self, f, share.grid(&cut, pieces)?; g, from, w, bias, mean, rstd, totals, to, cut, over)
    }
}

/// The kernel that normalises and applies the fused ops.
pub fn chain_kernel(gpu: &Gpu, x: DType, p: DType, share: Share, stages: u16) -> Result<Function> {
    let Share { lanes, channels, across, wide } = share;
    let tags = [x as u16, p as u16, lanes, channels, across as u16, wide as u16, stages];
    gpu.function(Key::new(Family::BatchNorm, "batch_norm", tags), || chain_defines(x, p, share, stages))
}

/// Definitions of the gradients' kernels.
pub fn backward_defines(x: DType, p: DType, share: Share, relu: u16) -> Defines {
    defines("BACKWARD", x, p, share).define("RELU", relu & 1).define("MASKED", (relu == MASKED) as u8)
}

/// The sums fuse the mask of a deferred ReLU gradient and write that gradient.
pub const MASKED: u16 = 2;

/// Definitions of the fused ReLU.
pub fn chain_defines(x: DType, p: DType, share: Share, stages: u16) -> Defines {
    let is = |bit: u16| (stages & bit != 0) as u8;
    defines("APPLY", x, p, share)
        .define("KEEP", is(stage::KEEP))
        .define("ADD", is(stage::ADD))
        .define("KEEP_SUM", is(stage::KEEP_SUM))
        .define("RELU", is(stage::RELU))
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
