//! Convolutions. Few channels: dedicated kernels (`conv_few`). One-pixel kernels: matrix products (`conv_pixels`).
//! Depthwise ones of channels-last images: dedicated kernels (`conv_depthwise`). Otherwise the vendor's library if
//! installed, else matrix products over unfolded images, or direct convolution if groups make the matrices small
//! (`kernels/conv.cu`).
pub(crate) mod depthwise;
pub(crate) mod few;
mod pixels;

use crate::device::{Gpu, Temporary};
use crate::families::matmul::Gemm;
use crate::families::row_norm::address;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use crate::vendor::driver::DevicePtr;
use rushlight_core::backend::{Conv, allow_tf32_conv};
use rushlight_core::{DType, Error, Layout, Result, View};

const THREADS: usize = 256;
/// Maximum bytes of unfolded images; more images are processed in batches.
const MAX_COLUMNS: usize = 1 << 29;

/// Matches `Conv` in `conv.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Geometry {
    channels: [u64; 4],
    sizes: [[i64; 3]; 6],
}

fn geometry(s: &Conv) -> Geometry {
    Geometry {
        channels: [s.batch, s.in_channels, s.out_channels, s.groups].map(|v| v as u64),
        sizes: [s.input, s.kernel, s.output, s.stride, s.padding, s.dilation].map(|d| d.map(|v| v as i64)),
    }
}

fn volume(d: [usize; 3]) -> usize {
    d.iter().product()
}

/// Whether a tensor is dense in channels-last order.
pub fn channels_last(v: View) -> bool {
    let (shape, strides) = (v.shape(), v.strides());
    let mut step = 1;
    shape.len() > 2
        && [1].into_iter().chain((2..shape.len()).rev()).chain([0]).all(|d| {
            let dense = shape[d] == 1 || strides[d] == step;
            step *= shape[d];
            dense
        })
}

/// The common memory order of a convolution's tensors.
fn order(views: [View; 3]) -> Order {
    let first = views.iter().all(|v| v.layout().is_contiguous());
    if !first && views.iter().all(|&v| channels_last(v)) { Order::ChannelsLast } else { Order::ChannelsFirst }
}

/// The matrices of a convolution without groups.
struct Columns {
    /// Rows of the unfolded images: input channels times taps.
    rows: usize,
    /// Output pixels per image.
    pixels: usize,
    /// Images per batch.
    images: usize,
    /// Whether the images are their own columns, so that unfolding copies nothing.
    plain: bool,
}

impl Columns {
    fn new(s: &Conv, dtype: DType) -> Result<Self> {
        let (rows, pixels) = (s.in_channels * volume(s.kernel), volume(s.output));
        let bytes = rows
            .checked_mul(pixels)
            .and_then(|n| n.checked_mul(dtype.size()))
            .ok_or_else(|| Error::out_of_memory("conv: one image's columns do not fit memory"))?;
        let plain = s.kernel == [1; 3] && s.stride == [1; 3] && s.padding == [0; 3];
        let images = if plain { s.batch } else { (MAX_COLUMNS / bytes.max(1)).clamp(1, s.batch.max(1)) };
        Ok(Self { rows, pixels, images, plain })
    }
}

/// A product that is part of a convolution.
pub fn product(dtype: DType, batch: usize, m: usize, n: usize, k: usize) -> Gemm {
    Gemm { tf32: allow_tf32_conv(), ..Gemm::plain(dtype, batch, m, n, k) }
}

/// Columns: the images themselves, or unfolded ones.
enum Unfolded {
    Plain(u64),
    Made(Temporary),
}

impl Unfolded {
    fn ptr(&self) -> u64 {
        match self {
            Unfolded::Plain(ptr) => *ptr,
            Unfolded::Made(columns) => columns.view().ptr() as u64,
        }
    }
}

/// The three computations of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The output.
    Forward,
    /// The gradient with respect to the input.
    Input,
    /// The gradient with respect to the weight.
    Weight,
}

/// The memory order of a convolution's images and weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Row-major.
    ChannelsFirst,
    /// Channels last.
    ChannelsLast,
}

impl Gpu {
    /// Runs one of the three computations in the vendor's library, given the addresses of input, weight and output (or
    /// their gradients); `false` if there is no library or it does not support the problem.
    fn conv_library(&self, pass: Pass, s: &Conv, dtype: DType, order: Order, data: [DevicePtr; 3]) -> Result<bool> {
        self.enter()?;
        let new = || self.driver.relaxed(|| self.libraries.convolutions());
        match self.convolutions.get_or_init(new) {
            Some(library) if dtype.is_float() => library.convolve(self, pass, s, dtype, order, data),
            _ => Ok(false),
        }
    }

    fn conv_kernel(&self, entry: &'static str, part: &str, dtype: DType) -> Result<Function> {
        self.function(Key::new(Family::Conv, entry, [dtype as u16]), || defines(part, dtype))
    }

    /// Whether a convolution uses the direct kernel.
    fn is_direct(spec: &Conv, dtype: DType) -> bool {
        spec.groups > 1 || !dtype.is_float()
    }

    /// Columns of some images, `[images, rows, pixels]`, or `[rows, images, pixels]` if `rows_first`.
    fn unfold(
        &self,
        s: &Conv,
        c: &Columns,
        x: View,
        first: usize,
        images: usize,
        rows_first: bool,
    ) -> Result<Unfolded> {
        let size = x.dtype().size();
        let from = x.ptr() as u64 + (first * s.in_channels * volume(s.input) * size) as u64;
        if c.plain && (!rows_first || images == 1) {
            return Ok(Unfolded::Plain(from));
        }
        let columns = self.temporary(&[images, c.rows, c.pixels], x.dtype())?;
        let function = self.conv_kernel("unfold", "UNFOLD", x.dtype())?;
        let (geometry, to) = (geometry(s), columns.view().ptr() as u64);
        let (image_step, row_step) =
            if rows_first { (c.pixels, images * c.pixels) } else { (c.rows * c.pixels, c.pixels) };
        let grid = Grid::line((images * c.rows * c.pixels).div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; geometry, from, to, images, image_step, row_step)?;
        Ok(Unfolded::Made(columns))
    }

    pub fn conv_forward(&self, spec: &Conv, x: View, w: View, bias: Option<View>, y: View) -> Result<()> {
        let count = y.numel();
        if count == 0 {
            return Ok(());
        }
        let mut pixels = volume(spec.output);
        let some = volume(spec.input) * spec.in_channels > 0;
        let (from, by, to) = (x.ptr() as u64, w.ptr() as u64, y.ptr() as u64);
        let order = order([x, w, y]);
        let plain = order == Order::ChannelsFirst && some;
        if plain && self.conv_few(Pass::Forward, spec, x.dtype(), [from, by, address(bias), to])? {
            return Ok(());
        }
        let last = order == Order::ChannelsLast;
        if last && some && self.conv_depthwise(Pass::Forward, spec, x.dtype(), [from, by, address(bias), to])? {
            return Ok(());
        }
        if (last && self.conv_pixels(Pass::Forward, spec, x, w, y, false)?)
            || (some && self.conv_library(Pass::Forward, spec, x.dtype(), order, [from, by, to])?)
        {
            // Only the bias is left to be added.
            if last {
                pixels = 1;
            }
        } else if last {
            let (x, w, out) = (self.packed(x)?, self.packed(w)?, self.temporary(y.shape(), y.dtype())?);
            self.conv_forward(spec, x.view(), w.view(), bias, out.view())?;
            return self.copy(out.view(), y);
        } else if Self::is_direct(spec, x.dtype()) || !some {
            let function = self.conv_kernel("conv_direct", "DIRECT", x.dtype())?;
            let g = geometry(spec);
            launch!(self, function, Grid::line(count.div_ceil(THREADS), THREADS)?; g, from, by, to)?;
        } else {
            let c = Columns::new(spec, x.dtype())?;
            for first in (0..spec.batch).step_by(c.images) {
                let images = c.images.min(spec.batch - first);
                let columns = self.unfold(spec, &c, x, first, images, false)?;
                let out = y.ptr() as u64 + (first * spec.out_channels * pixels * y.dtype().size()) as u64;
                self.gemm(Gemm {
                    a: w.ptr() as u64,
                    a_strides: [0, c.rows, 1],
                    b: columns.ptr(),
                    b_strides: [c.rows * pixels, pixels, 1],
                    out,
                    out_strides: [spec.out_channels * pixels, pixels, 1],
                    ..product(x.dtype(), images, spec.out_channels, pixels, c.rows)
                })?;
            }
        }
        let Some(bias) = bias else { return Ok(()) };
        let function = self.conv_kernel("conv_bias", "BIAS", x.dtype())?;
        let (to, b, channels) = (y.ptr() as u64, bias.ptr() as u64, spec.out_channels);
        launch!(self, function, Grid::line(count.div_ceil(THREADS), THREADS)?; to, b, channels, pixels, count)
    }

    pub fn conv_backward_input(&self, spec: &Conv, dy: View, w: View, dx: View) -> Result<()> {
        let count = dx.numel();
        if count == 0 {
            return Ok(());
        }
        let (from, by, to) = (dy.ptr() as u64, w.ptr() as u64, dx.ptr() as u64);
        let order = order([dx, w, dy]);
        let plain = order == Order::ChannelsFirst && dy.numel() > 0;
        if plain && self.conv_few(Pass::Input, spec, dy.dtype(), [from, by, 0, to])? {
            return Ok(());
        }
        let last = order == Order::ChannelsLast;
        if last && dy.numel() > 0 && self.conv_depthwise(Pass::Input, spec, dy.dtype(), [from, by, 0, to])? {
            return Ok(());
        }
        if (last && self.conv_pixels(Pass::Input, spec, dx, w, dy, false)?)
            || (dy.numel() > 0 && self.conv_library(Pass::Input, spec, dy.dtype(), order, [to, by, from])?)
        {
            return Ok(());
        }
        if last {
            let (dy, w, out) = (self.packed(dy)?, self.packed(w)?, self.temporary(dx.shape(), dx.dtype())?);
            self.conv_backward_input(spec, dy.view(), w.view(), out.view())?;
            return self.copy(out.view(), dx);
        }
        if Self::is_direct(spec, dy.dtype()) || dy.numel() == 0 {
            let function = self.conv_kernel("conv_direct_input", "DIRECT", dy.dtype())?;
            let g = geometry(spec);
            return launch!(self, function, Grid::line(count.div_ceil(THREADS), THREADS)?; g, from, by, to);
        }
        // Columns of half types are terms of sums, so they are widened to `f32`.
        let wide = if dy.dtype().size() == 2 { DType::F32 } else { dy.dtype() };
        let c = Columns::new(spec, wide)?;
        let size = dy.dtype().size();
        let input = spec.in_channels * volume(spec.input);
        for first in (0..spec.batch).step_by(c.images) {
            let images = c.images.min(spec.batch - first);
            let to = dx.ptr() as u64 + (first * input * size) as u64;
            let made = if c.plain { None } else { Some(self.temporary(&[images, c.rows, c.pixels], wide)?) };
            let columns = made.as_ref().map_or(to, |t| t.view().ptr() as u64);
            self.gemm(Gemm {
                a: w.ptr() as u64,
                a_strides: [0, 1, c.rows],
                b: dy.ptr() as u64 + (first * spec.out_channels * c.pixels * size) as u64,
                b_strides: [spec.out_channels * c.pixels, c.pixels, 1],
                out: columns,
                out_dtype: if c.plain { dy.dtype() } else { wide },
                out_strides: [c.rows * c.pixels, c.pixels, 1],
                ..product(dy.dtype(), images, c.rows, c.pixels, spec.out_channels)
            })?;
            if !c.plain {
                let function = self.conv_kernel("fold", "UNFOLD", dy.dtype())?;
                let (geometry, image_step, row_step) = (geometry(spec), c.rows * c.pixels, c.pixels);
                let grid = Grid::line((images * input).div_ceil(THREADS), THREADS)?;
                launch!(self, function, grid; geometry, columns, to, images, image_step, row_step)?;
            }
        }
        Ok(())
    }

    /// Adds the gradient with respect to the input to `dx`; `false` unless it is a single product.
    pub fn conv_backward_input_add(&self, spec: &Conv, dy: View, w: View, dx: View) -> Result<bool> {
        let one = dx.numel() > 0 && spec.stride == [1; 3] && order([dx, w, dy]) == Order::ChannelsLast;
        Ok(one && self.conv_pixels(Pass::Input, spec, dx, w, dy, true)?)
    }

    pub fn conv_backward_weight(&self, spec: &Conv, x: View, dy: View, dw: View) -> Result<()> {
        let count = dw.numel();
        if count == 0 {
            return Ok(());
        }
        let (from, by, to) = (x.ptr() as u64, dy.ptr() as u64, dw.ptr() as u64);
        let some = x.numel() > 0 && dy.numel() > 0;
        let order = order([x, dw, dy]);
        let plain = order == Order::ChannelsFirst && some;
        if plain && self.conv_few_weight(spec, x.dtype(), [from, by, to])? {
            return Ok(());
        }
        let last = order == Order::ChannelsLast;
        if last && some && self.conv_depthwise_weight(spec, x.dtype(), [from, by, to])? {
            return Ok(());
        }
        if (last && self.conv_pixels(Pass::Weight, spec, x, dw, dy, false)?)
            || (some && self.conv_library(Pass::Weight, spec, x.dtype(), order, [from, to, by])?)
        {
            return Ok(());
        }
        if last {
            let (x, dy, out) = (self.packed(x)?, self.packed(dy)?, self.temporary(dw.shape(), dw.dtype())?);
            self.conv_backward_weight(spec, x.view(), dy.view(), out.view())?;
            return self.copy(out.view(), dw);
        }
        if Self::is_direct(spec, x.dtype()) || !some {
            let function = self.conv_kernel("conv_direct_weight", "DIRECT", x.dtype())?;
            let g = geometry(spec);
            return launch!(self, function, Grid::line(count, THREADS)?; g, from, by, to);
        }
        let c = Columns::new(spec, x.dtype())?;
        let (channels, pixels) = (spec.out_channels, c.pixels);
        for first in (0..spec.batch).step_by(c.images) {
            let images = c.images.min(spec.batch - first);
            // One product over all images: their channels are arranged side by side, like the columns.
            let columns = self.unfold(spec, &c, x, first, images, true)?;
            let offset = dy.layout().offset() + first * channels * pixels;
            let turned = Layout::strided(&[channels, images, pixels], &[pixels, channels * pixels, 1], offset)?;
            let dy = self.packed(dy.with_layout(&turned)?)?;
            let length = images * pixels;
            self.gemm(Gemm {
                a: dy.view().ptr() as u64,
                a_strides: [0, length, 1],
                b: columns.ptr(),
                b_strides: [0, 1, length],
                out: dw.ptr() as u64,
                out_strides: [0, c.rows, 1],
                beta: if first == 0 { 0.0 } else { 1.0 },
                ..product(x.dtype(), 1, channels, c.rows, length)
            })?;
        }
        Ok(())
    }
}

pub fn defines(part: &str, dtype: DType) -> Defines {
    Defines::default().define(part, 1).define("WIDE", 1).dtype("T", dtype).define("W", wide_type(dtype))
}
