//! Convolutions of few channels over small images (`kernels/conv_few.cu`). Libraries are tuned for many channels and
//! leave most of the device idle on these.

use crate::device::Gpu;
use crate::families::conv::Pass;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use rushlight_core::backend::Conv;
use rushlight_core::{DType, Result};

/// Maximum input and output channels; a thread keeps a register for each.
const MAX_CHANNELS: usize = 16;
/// Maximum taps over all channels.
const MAX_TAPS: usize = 512;
/// Maximum threads of a block.
const THREADS: usize = 512;
/// Shared memory per block that leaves room for two blocks.
const MAX_SHARED: usize = 100 << 10;
/// Pixels that a thread computes at a time.
const PIXELS: usize = 2;

/// Matches `Plane` in `conv_few.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Plane {
    size: [u32; 2],
    out: [u32; 2],
    before: [u32; 2],
}

/// Compile-time parameters of the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub dtype: DType,
    pub channels: [u16; 2],
    pub kernel: [u16; 2],
    /// Whether the kernel computes the gradient with respect to the input.
    pub flipped: bool,
    /// Threads that share a tap.
    pub slices: u16,
}

impl Form {
    fn taps(&self) -> usize {
        self.channels[0] as usize * self.kernel.iter().map(|&k| k as usize).product::<usize>()
    }

    /// Output channels, rounded up to vectors.
    fn lanes(&self) -> usize {
        (self.channels[1] as usize).next_multiple_of(4)
    }

    pub fn defines(&self, part: &str) -> Defines {
        Defines::default()
            .define(part, 1)
            .dtype("T", self.dtype)
            .define("W", wide_type(self.dtype))
            .define("CI", self.channels[0])
            .define("CO", self.channels[1])
            .define("KH", self.kernel[0])
            .define("KW", self.kernel[1])
            .define("FLIPPED", self.flipped as u8)
            .define("SLICES", self.slices)
    }
}

/// A convolution that these kernels support.
struct Problem {
    form: Form,
    plane: Plane,
    pixels: usize,
    /// Elements of a zero-padded image.
    image: usize,
    size: usize,
}

impl Problem {
    fn new(pass: Pass, s: &Conv, dtype: DType) -> Option<Self> {
        let plain = s.groups == 1
            && dtype.is_float()
            && s.stride == [1; 3]
            && s.dilation == [1; 3]
            && [s.input[0], s.kernel[0], s.output[0]] == [1; 3]
            && s.padding[0] == 0
            && s.in_channels.max(s.out_channels) <= MAX_CHANNELS;
        let [_, height, width] = s.kernel;
        let taps = s.in_channels.max(s.out_channels).checked_mul(height)?.checked_mul(width)?;
        if !plain || taps > MAX_TAPS || s.padding[1] >= height || s.padding[2] >= width {
            return None;
        }
        let flipped = pass == Pass::Input;
        let (channels, size, out, before) = if flipped {
            let before = [height - 1 - s.padding[1], width - 1 - s.padding[2]];
            ([s.out_channels, s.in_channels], s.output, s.input, before)
        } else {
            ([s.in_channels, s.out_channels], s.input, s.output, [s.padding[1], s.padding[2]])
        };
        let narrow = |v: [usize; 2]| v.map(|n| n as u32);
        let form = Form {
            dtype,
            channels: channels.map(|n| n as u16),
            kernel: [height as u16, width as u16],
            flipped,
            slices: 1,
        };
        let image = channels[0].checked_mul(out[1] + height - 1)?.checked_mul(out[2] + width - 1)?;
        Some(Self {
            form,
            plane: Plane { size: narrow([size[1], size[2]]), out: narrow([out[1], out[2]]), before: narrow(before) },
            pixels: out[1].checked_mul(out[2])?,
            image,
            size: if dtype == DType::F64 { 8 } else { 4 },
        })
    }

    /// Shared-memory bytes for an image and `extra` elements, if they fit.
    fn shared(&self, gpu: &Gpu, more: usize) -> Option<usize> {
        let bytes = self.image.checked_add(more)?.checked_mul(self.size)?;
        (bytes <= MAX_SHARED.min(gpu.shared_memory)).then_some(bytes)
    }
}

fn key(entry: &'static str, form: Form) -> Key {
    let Form { dtype, channels: [ci, co], kernel: [kh, kw], flipped, slices } = form;
    Key::new(Family::ConvFew, entry, [dtype as u16, ci, co, kh, kw, flipped as u16, slices])
}

/// Threads that share a tap in the gradient with respect to the weight.
fn slices(form: &Form) -> u16 {
    (THREADS / form.taps()).max(1) as u16
}

impl Gpu {
    fn conv_few_kernel(&self, entry: &'static str, part: &str, form: Form, shared: usize) -> Result<Function> {
        let function = self.function(key(entry, form), || form.defines(part))?;
        self.allow_shared(function, shared)?;
        Ok(function)
    }

    /// Output (with bias) or input gradient of a convolution of few channels. Returns whether these kernels support it.
    pub fn conv_few(&self, pass: Pass, s: &Conv, dtype: DType, [from, by, bias, to]: [u64; 4]) -> Result<bool> {
        let Some(problem) = Problem::new(pass, s, dtype) else { return Ok(false) };
        let Problem { form, plane, pixels, .. } = problem;
        let Some(shared) = problem.shared(self, form.taps() * form.lanes()) else { return Ok(false) };
        let function = self.conv_few_kernel("conv_few", "CORRELATE", form, shared)?;
        let threads = pixels.div_ceil(PIXELS).next_multiple_of(32).min(THREADS);
        let grid = Grid::line(s.batch, threads)?.shared(shared).spread();
        launch!(self, function, grid; plane, from, by, bias, to)?;
        Ok(true)
    }

    /// Weight gradient of a convolution of few channels. Returns whether these kernels support it.
    pub fn conv_few_weight(&self, s: &Conv, dtype: DType, [x, dy, dw]: [u64; 3]) -> Result<bool> {
        let Some(problem) = Problem::new(Pass::Weight, s, dtype) else { return Ok(false) };
        let Problem { mut form, plane, pixels, size, .. } = problem;
        let taps = form.taps();
        form.slices = slices(&form);
        let Some(image) = problem.shared(self, pixels * form.lanes()) else { return Ok(false) };
        let weights = taps * s.out_channels;
        let shared = image.max(form.slices as usize * weights * size);
        if shared > self.shared_memory || u32::try_from(s.batch).is_err() {
            return Ok(false);
        }
        let lines = s.batch.min(2 * self.properties.multiprocessors);
        let scratch = self.scratch(lines * weights * size)?;
        let (partial, batch, count) = (scratch.ptr, s.batch as u32, lines as u32);
        let function = self.conv_few_kernel("conv_few_weight", "WEIGHT", form, shared)?;
        let grid = Grid::line(lines, form.slices as usize * taps)?.shared(shared).spread();
        launch!(self, function, grid; plane, x, dy, partial, batch)?;
        let join = self.conv_few_kernel("conv_few_join", "WEIGHT", form, 0)?;
        let grid = Grid { threads: [32, 8], ..Grid::line(weights.div_ceil(32), 32)? };
        launch!(self, join, grid; partial, dw, count)?;
        Ok(true)
    }
}
