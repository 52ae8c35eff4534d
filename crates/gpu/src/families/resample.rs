//! Resizing of planes (`kernels/resample.cu`).

use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch};
use rushlight_core::backend::{Resample, Sampling};
use rushlight_core::{DType, Result, View};

const THREADS: usize = 256;

#[repr(C)]
struct Axis {
    input: u64,
    output: u64,
    ratio: f64,
    aligned: u32,
}

#[repr(C)]
struct Axes {
    axes: [Axis; 3],
    shift: f64,
}

impl Gpu {
    /// Resizes planes, or with `backward` computes the gradient of that from `x`, that of the output.
    pub fn resample(&self, spec: &Resample, x: View, y: View, backward: bool) -> Result<()> {
        let count = y.numel();
        if count == 0 {
            return Ok(());
        }
        let (code, shift) = match spec.sampling {
            Sampling::Nearest { shift } => (0, shift as f64),
            Sampling::Linear => (1, 0.0),
            Sampling::Cubic => (2, 0.0),
        };
        let axis = |i: usize| {
            let axis = &spec.axes[i];
            let (input, output) = (axis.input as u64, axis.output as u64);
            Axis { input, output, ratio: axis.ratio, aligned: axis.aligned as u32 }
        };
        let axes = Axes { axes: std::array::from_fn(axis), shift };
        let entry = if backward { "resample_backward" } else { "resample" };
        let key = Key::new(Family::Resample, entry, [code, x.dtype() as u16]);
        let function = self.function(key, || defines(code, x.dtype()))?;
        let (from, to) = (x.ptr() as u64, y.ptr() as u64);
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; axes, from, to, count)
    }
}

/// Definitions of both kernels: 0 is the nearest element, 1 linear, 2 cubic interpolation.
pub fn defines(code: u16, dtype: DType) -> Defines {
    Defines::default().define("WIDE", 1).dtype("T", dtype).define("SAMPLING", code).define("TAPS", 1 << code)
}
