//! Maximum and average pooling (`kernels/pool.cu`).

use crate::device::Gpu;
use crate::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use crate::softmax::float;
use rushlight_core::backend::{Pool, Window};
use rushlight_core::{DType, Error, Result, View};

const THREADS: usize = 256;

/// The same as `Axis` in `pool.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Axis {
    input: i64,
    output: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
}

/// The same as `Window` in `pool.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Geometry {
    y: Axis,
    x: Axis,
    planes: u64,
    divisor: i64,
    include_pad: u32,
}

fn geometry(call: &str, spec: &Pool) -> Result<(Geometry, bool)> {
    let (mut divisor, mut include_pad, mut adaptive) = (0, 0, true);
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
        adaptive = false;
    }
    let [y, x] = axes;
    Ok((Geometry { y, x, planes: spec.planes as u64, divisor, include_pad }, adaptive))
}

impl Gpu {
    fn pool_kernel(&self, entry: &'static str, dtype: DType, adaptive: bool) -> Result<Function> {
        float(entry, dtype)?;
        let key = Key::new(Family::Pool, entry, [dtype as u16, adaptive as u16]);
        self.function(key, || defines(dtype, adaptive))
    }

    pub fn max_pool(&self, spec: &Pool, x: View, y: View, indices: View) -> Result<()> {
        let (geometry, adaptive) = geometry("max_pool", spec)?;
        let function = self.pool_kernel("max_pool", x.dtype, adaptive)?;
        let (from, to, at) = (x.ptr() as u64, y.ptr() as u64, indices.ptr() as u64);
        launch!(self, function, Grid::line(y.numel().div_ceil(THREADS), THREADS)?; geometry, from, to, at)
    }

    pub fn max_pool_backward(&self, spec: &Pool, dy: View, indices: View, dx: View) -> Result<()> {
        let (geometry, adaptive) = geometry("max_pool_backward", spec)?;
        let function = self.pool_kernel("max_pool_backward", dx.dtype, adaptive)?;
        let (from, at, to) = (dy.ptr() as u64, indices.ptr() as u64, dx.ptr() as u64);
        launch!(self, function, Grid::line(dx.numel().div_ceil(THREADS), THREADS)?; geometry, from, at, to)
    }

    pub fn avg_pool(&self, spec: &Pool, x: View, y: View) -> Result<()> {
        let (geometry, adaptive) = geometry("avg_pool", spec)?;
        let function = self.pool_kernel("avg_pool", x.dtype, adaptive)?;
        let (from, to) = (x.ptr() as u64, y.ptr() as u64);
        launch!(self, function, Grid::line(y.numel().div_ceil(THREADS), THREADS)?; geometry, from, to)
    }

    pub fn avg_pool_backward(&self, spec: &Pool, dy: View, dx: View) -> Result<()> {
        let (geometry, adaptive) = geometry("avg_pool_backward", spec)?;
        let function = self.pool_kernel("avg_pool_backward", dx.dtype, adaptive)?;
        let (from, to) = (dy.ptr() as u64, dx.ptr() as u64);
        launch!(self, function, Grid::line(dx.numel().div_ceil(THREADS), THREADS)?; geometry, from, to)
    }
}

pub fn defines(dtype: DType, adaptive: bool) -> Defines {
    Defines::default()
        .define("WIDE", 1)
        .dtype("T", dtype)
        .define("W", wide_type(dtype))
        .define("ADAPTIVE", adaptive as u8)
}
