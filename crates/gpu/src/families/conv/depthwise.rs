//! Depthwise convolutions of images with their channels innermost (`kernels/conv_depthwise.cu`). Libraries have kernels
//! for row-major ones only.

use crate::device::Gpu;
use crate::families::conv::Pass;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use rushlight_core::backend::Conv;
use rushlight_core::{DType, Result};

const THREADS: usize = 256;
/// Threads of a block that joins partial sums.
const JOIN_THREADS: usize = 1024;
/// Maximum taps along a dimension: a thread keeps a row of them in registers.
const MAX_TAPS: usize = 13;
/// Maximum input columns that a thread keeps.
const MAX_COLUMNS: usize = 24;
/// Output columns per thread that are tried.
const TILES: [usize; 5] = [8, 7, 6, 5, 4];
/// Blocks per multiprocessor that share the rows of a weight's gradient.
const BLOCKS: usize = 4;

/// Matches `Plane` in `conv_depthwise.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Plane {
    channels: u32,
    size: [u32; 2],
    out: [u32; 2],
    before: [i32; 2],
    stride: [u32; 2],
    dilation: [u32; 2],
}

/// Compile-time parameters of the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub dtype: DType,
    /// Channels per thread.
    pub vector: u16,
    /// Neighbouring threads with neighbouring channels.
    pub lanes: u16,
    /// Output columns per thread.
    pub tile: u16,
    pub kernel: [u16; 2],
    /// Stride and dilation of columns.
    pub steps: [u16; 2],
}

impl Form {
    pub fn defines(&self, part: &str) -> Defines {
        Defines::default()
            .define(part, 1)
            .dtype("T", self.dtype)
            .define("W", wide_type(self.dtype))
            .define("V", self.vector)
            .define("LANES", self.lanes)
            .define("TILE", self.tile)
            .define("KH", self.kernel[0])
            .define("KW", self.kernel[1])
            .define("STRIDE", self.steps[0])
            .define("DILATION", self.steps[1])
    }

    fn key(&self, entry: &'static str) -> Key {
        let Form { dtype, vector, lanes, tile, kernel: [kh, kw], steps: [stride, dilation] } = *self;
        Key::new(Family::ConvDepthwise, entry, [dtype as u16, vector, lanes, tile, kh, kw, stride, dilation])
    }
}

/// A convolution that these kernels support.
struct Problem {
    form: Form,
    plane: Plane,
    /// Rows of all output images.
    rows: usize,
    /// Groups of `lanes` vectors of channels.
    chunks: usize,
}

/// The largest of the tiles that leave the fewest columns of a row idle, if its input columns fit.
fn tile(width: usize, stride: usize, reach: usize) -> Option<usize> {
    let fits = |tile: usize| (tile - 1) * stride + reach <= MAX_COLUMNS;
    TILES.into_iter().filter(|&tile| fits(tile)).min_by_key(|&tile| width.next_multiple_of(tile))
}

impl Problem {
    fn new(pass: Pass, s: &Conv, dtype: DType, addresses: &[u64]) -> Option<Self> {
        let channels = s.in_channels;
        let is_depthwise = s.groups > 1
            && s.groups == channels
            && s.out_channels == channels
            && dtype.is_float()
            && [s.input[0], s.kernel[0], s.output[0], s.stride[0]] == [1; 4]
            && s.padding[0] == 0
            && s.kernel[1].max(s.kernel[2]) <= MAX_TAPS;
        let size = dtype.size();
        let vector = if channels.is_multiple_of(2) && addresses.iter().all(|a| a.is_multiple_of(2 * size as u64)) {
            2
        } else {
            1
        };
        let pair = |v: [usize; 3]| Some([u32::try_from(v[1]).ok()?, u32::try_from(v[2]).ok()?]);
        let signed = |v: [usize; 2]| Some([i32::try_from(v[0]).ok()?, i32::try_from(v[1]).ok()?]);
        if !is_depthwise {
            return None;
        }
        // The distance of the first tap from the last.
        let reach = [1, 2].map(|d| (s.kernel[d] - 1) * s.dilation[d]);
        let plain = s.stride[1..] == [1, 1];
        let before = signed([s.padding[1], s.padding[2]])?;
        let (from, to, before) = match pass {
            Pass::Input if plain => {
                let reach = signed(reach)?;
                (s.output, s.input, [reach[0] - before[0], reach[1] - before[1]])
            }
            Pass::Input => (s.output, s.input, before),
            _ => (s.input, s.output, before),
        };
        let (width, stride) = if pass == Pass::Input && !plain { (1, 1) } else { (to[2], s.stride[2]) };
        let tile = tile(width, stride, reach[1] + 1)?;
        // Kernels count weights in 32 bits.
        u32::try_from(channels.checked_mul(s.kernel[1] * s.kernel[2])?).ok()?;
        let vectors = channels / vector;
        let lanes = if vectors.is_multiple_of(32) || !vectors.is_multiple_of(16) { 32 } else { 16 };
        let form = Form {
            dtype,
            vector: vector as u16,
            lanes: lanes as u16,
            tile: tile as u16,
            kernel: [s.kernel[1] as u16, s.kernel[2] as u16],
            steps: [u16::try_from(s.stride[2]).ok()?, u16::try_from(s.dilation[2]).ok()?],
        };
        let plane = Plane {
            channels: channels as u32,
            size: pair(from)?,
            out: pair(to)?,
            before,
            stride: pair(s.stride)?,
            dilation: pair(s.dilation)?,
        };
        Some(Self { form, plane, rows: s.batch.checked_mul(to[1])?, chunks: vectors.div_ceil(lanes) })
    }

    fn taps(&self) -> usize {
        self.form.kernel.iter().map(|&k| k as usize).product()
    }

    /// Bytes of all weights in the type they are accumulated in.
    fn weights(&self) -> usize {
        self.taps() * self.plane.channels as usize * if self.form.dtype == DType::F64 { 8 } else { 4 }
    }
}

impl Gpu {
    fn depthwise_kernel(&self, entry: &'static str, part: &str, form: Form) -> Result<Function> {
        self.function(form.key(entry), || form.defines(part))
    }

    /// Output (with bias) or input gradient of a depthwise convolution of channels-last images. Returns whether these
    /// kernels support it.
    pub fn conv_depthwise(&self, pass: Pass, s: &Conv, dtype: DType, [from, by, bias, to]: [u64; 4]) -> Result<bool> {
        let Some(problem) = Problem::new(pass, s, dtype, &[from, bias, to]) else { return Ok(false) };
        let Problem { form, plane, rows, chunks } = problem;
        let plain = s.stride[1..] == [1, 1];
        let scratch = self.scratch(problem.weights())?;
        let (weights, channels, taps) = (scratch.ptr, plane.channels, problem.taps() as u32);
        let flipped = (pass == Pass::Input && plain) as u32;
        let arrange = self.depthwise_kernel("depthwise_arrange", "ARRANGE", form)?;
        let grid = Grid::line((channels as usize * problem.taps()).div_ceil(THREADS), THREADS)?;
        launch!(self, arrange, grid; by, weights, channels, taps, flipped)?;
        if pass == Pass::Input && !plain {
            let function = self.depthwise_kernel("depthwise_spread", "SPREAD", form)?;
            let count = rows * plane.out[1] as usize * (channels as usize / form.vector as usize);
            launch!(self, function, Grid::line(count.div_ceil(THREADS), THREADS)?; plane, from, weights, to, count)?;
            return Ok(true);
        }
        // The gradient by the input is a convolution of stride one, as this one is.
        let function = self.depthwise_kernel("depthwise", "CORRELATE", form)?;
        let tiles = (plane.out[1] as usize).div_ceil(form.tile as usize);
        let blocks = rows.div_ceil(THREADS / form.lanes as usize) * tiles * chunks;
        launch!(self, function, Grid::line(blocks, THREADS)?; plane, from, weights, bias, to, rows)?;
        Ok(true)
    }

    /// Weight gradient of a depthwise convolution of channels-last images. Returns whether these kernels support it.
    pub fn conv_depthwise_weight(&self, s: &Conv, dtype: DType, [x, dy, dw]: [u64; 3]) -> Result<bool> {
        let Some(problem) = Problem::new(Pass::Weight, s, dtype, &[x, dy]) else { return Ok(false) };
        let Problem { form, plane, rows, chunks } = problem;
        let splits = (BLOCKS * self.properties.multiprocessors).div_ceil(chunks).min(rows).max(1);
        let scratch = self.scratch(splits * problem.weights())?;
        let (partial, channels, count) = (scratch.ptr, plane.channels, splits as u32);
        let function = self.depthwise_kernel("depthwise_weight", "WEIGHT", form)?;
        let grid = Grid::line(splits * chunks, form.lanes as usize * form.kernel[0] as usize)?;
        launch!(self, function, grid; plane, x, dy, partial, rows, count)?;
        let join = self.depthwise_kernel("depthwise_join", "WEIGHT", form)?;
        let grid = Grid::line((channels as usize * problem.taps()).div_ceil(32), JOIN_THREADS)?;
        launch!(self, join, grid; partial, dw, channels, count)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::tile;

    #[test]
    fn tiles_divide_rows() {
        // ConvNeXt's images, with seven taps.
        assert_eq!([7, 14, 28, 56, 112].map(|width| tile(width, 1, 7)), [7, 7, 7, 8, 8].map(Some));
        // Strided: as many columns as fit.
        assert_eq!(tile(56, 2, 3), Some(8));
        assert_eq!(tile(56, 2, 13), Some(4));
        assert_eq!(tile(56, 3, 22), None);
    }
}
