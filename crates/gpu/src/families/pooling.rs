//! Maximum and average pooling (`kernels/pool.cu`).

use crate::device::Gpu;
use crate::families::conv::channels_last;
use crate::families::softmax::float;
use crate::launch::kernel::{Defines, Family, Grid, Key, wide_type};
use rushlight_core::backend::{Pool, Reduce, Window};
use rushlight_core::{DType, Error, Result, View};
use std::ffi::c_void;

const THREADS: usize = 256;

/// Matches `Axis` in `pool.cu`; its integers have 32 bits if that is enough.
#[repr(C)]
#[derive(Clone, Copy)]
struct Axis<N> {
    input: N,
    output: N,
    kernel: N,
    stride: N,
    padding: N,
    dilation: N,
}

/// Matches `Window` in `pool.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Geometry<N> {
    y: Axis<N>,
    x: Axis<N>,
    planes: N,
    divisor: N,
    channels: N,
    include_pad: u32,
}

impl Axis<i64> {
    fn narrow(self) -> Axis<i32> {
        let Axis { input, output, kernel, stride, padding, dilation } = self;
        let [input, output, kernel, stride, padding, dilation] =
            [input, output, kernel, stride, padding, dilation].map(|n| n as i32);
        Axis { input, output, kernel, stride, padding, dilation }
    }

    /// An upper bound of positions, measured from the padding's start, and of products of two.
    fn bound(&self) -> i64 {
        let reach = self.kernel.saturating_mul(self.dilation).saturating_add(self.padding).saturating_add(self.stride);
        let whole = self.input.max(self.output).saturating_add(1);
        whole.saturating_mul(whole.max(self.stride)).saturating_add(reach)
    }
}

impl Geometry<i64> {
    fn is_wide(&self) -> bool {
        let plane = (self.y.input.max(self.y.output)).saturating_mul(self.x.input.max(self.x.output));
        let largest = [plane.saturating_mul(self.planes), self.y.bound(), self.x.bound(), self.divisor];
        // Positions overshoot the end by up to one block.
        largest.into_iter().any(|n| n > i32::MAX as i64 - (1 << 20))
    }

    fn narrow(self) -> Geometry<i32> {
        let [planes, divisor, channels] = [self.planes, self.divisor, self.channels].map(|n| n as i32);
        Geometry { y: self.y.narrow(), x: self.x.narrow(), planes, divisor, channels, include_pad: self.include_pad }
    }
}

fn geometry(call: &str, spec: &Pool) -> Result<(Geometry<i64>, Taps)> {
    let (mut divisor, mut include_pad, mut taps) = (0, 0, Taps::Adaptive);
    let mut axes = [0, 1].map(|d| Axis {
        input: spec.input[d] as i64,
        output: spec.output[d] as i64,
        kernel: 1,
        stride: 1,
        padding: 0,
        dilation: 1,
    });
    if let Window::Fixed { kernel, stride, padding, dilation, count_include_pad, divisor_override } = spec.window {
        for (d, axis) in axes.iter_mut().enumerate() {
            if kernel[d] == 0 || stride[d] == 0 || dilation[d] == 0 {
                return Err(Error::value(format!(
                    "{call}: kernel size, stride and dilation must be greater than zero"
                )));
            }
            axis.kernel = kernel[d] as i64;
            axis.stride = stride[d] as i64;
            axis.padding = padding[d] as i64;
            axis.dilation = dilation[d] as i64;
        }
        if divisor_override == Some(0) {
            return Err(Error::value(format!("{call}: divisor must be not zero")));
        }
        divisor = divisor_override.unwrap_or(0) as i64;
        include_pad = count_include_pad as u32;
        taps = if dilation == [1; 2] { Taps::Dense } else { Taps::Dilated };
    }
    let [y, x] = axes;
    Ok((Geometry { y, x, planes: spec.planes as i64, divisor, channels: 1, include_pad }, taps))
}

/// The geometry of pooling windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taps {
    /// The windows depend on the output's size (adaptive pooling).
    Adaptive,
    /// Without gaps.
    Dense,
    /// With gaps.
    Dilated,
}

/// Compile-time parameters of the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub dtype: DType,
    pub taps: Taps,
    pub wide: bool,
    /// Whether the channels are innermost.
    pub last: bool,
    /// Channels per thread.
    pub lanes: u16,
}

impl Form {
    fn key(&self, entry: &'static str) -> Key {
        let Form { dtype, taps, wide, last, lanes } = *self;
        Key::new(Family::Pool, entry, [dtype as u16, taps as u16, wide as u16, last as u16, lanes])
    }

    pub fn defines(&self) -> Defines {
        let defines = if self.wide { Defines::default().define("WIDE", 1) } else { Defines::default() };
        defines
            .dtype("T", self.dtype)
            .define("W", wide_type(self.dtype))
            .define("ADAPTIVE", (self.taps == Taps::Adaptive) as u8)
            .define("DILATED", (self.taps == Taps::Dilated) as u8)
            .define("LAST", self.last as u8)
            .define("LANES", self.lanes)
    }
}

impl Gpu {
    /// Runs a kernel over the elements of `over`; `tensors` are its arguments after the geometry, all row-major or all
    /// with their channels innermost.
    fn run_pool<const N: usize>(&self, entry: &'static str, spec: &Pool, over: View, tensors: [View; N]) -> Result<()> {
        let dtype = over.dtype();
        float(entry, dtype)?;
        let (mut geometry, taps) = geometry(entry, spec)?;
        let last = tensors.iter().any(|v| !v.layout().is_contiguous());
        if last && !tensors.iter().all(|&v| channels_last(v)) {
            return Err(Error::unsupported(format!("{entry}: tensors in different memory orders")));
        }
        let addresses = tensors.map(|v| v.ptr() as u64);
        let mut lanes = 1;
        if last {
            let channels = over.shape().get(1).copied().unwrap_or(1);
            geometry.channels = channels as i64;
            let width = 16 / dtype.size();
            if channels.is_multiple_of(width) && addresses.iter().all(|a| a.is_multiple_of(16)) {
                lanes = width;
            }
        }
        let form = Form { dtype, taps, wide: geometry.is_wide(), last, lanes: lanes as u16 };
        let function = self.function(form.key(entry), || form.defines())?;
        let narrow = geometry.narrow();
        let (first, size) = if form.wide {
            ((&raw const geometry).cast::<c_void>(), size_of_val(&geometry))
        } else {
            ((&raw const narrow).cast(), size_of_val(&narrow))
        };
        let (mut args, mut sizes) = (vec![first.cast_mut()], vec![size]);
        args.extend(addresses.iter().map(|a| (&raw const *a).cast_mut().cast::<c_void>()));
        sizes.resize(args.len(), size_of::<u64>());
        let grid = Grid::line((over.numel() / lanes).div_ceil(THREADS), THREADS)?;
        // SAFETY: the kernels take a geometry of the width they were compiled for, then these addresses, of views
        // within their storages.
        unsafe { self.launch(function, grid, &mut args, &sizes) }
    }

    pub fn max_pool(&self, spec: &Pool, x: View, y: View, indices: View) -> Result<()> {
        self.run_pool("max_pool", spec, y, [x, y, indices])
    }

    pub fn max_pool_backward(&self, spec: &Pool, dy: View, indices: View, dx: View) -> Result<()> {
        self.run_pool("max_pool_backward", spec, dx, [dy, indices, dx])
    }

    pub fn avg_pool(&self, spec: &Pool, x: View, y: View) -> Result<()> {
        let ends = |v: View, sizes: [usize; 2]| v.shape().ends_with(&sizes);
        if spec.window == Window::Adaptive
            && ends(y, [1, 1])
            && ends(x, spec.input)
            && x.shape().len() == y.shape().len()
        {
            // A window per plane: few outputs of many elements.
            let marks: Vec<bool> = (0..x.shape().len()).map(|d| d + 2 >= x.shape().len()).collect();
            return self.reduce(Reduce::Mean, x, &marks, y);
        }
        self.run_pool("avg_pool", spec, y, [x, y])
    }

    pub fn avg_pool_backward(&self, spec: &Pool, dy: View, dx: View) -> Result<()> {
        self.run_pool("avg_pool_backward", spec, dx, [dy, dx])
    }
}
