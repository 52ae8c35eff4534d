//! Random fills and dropout: the numbers the CPU engine draws from the same stream (normals up to the last bits of the
//! logarithm).

use crate::device::Gpu;
use crate::launch::formula::{largest_below, words_below};
use crate::launch::kernel::{Defines, Family, Grid, Key, launch, wide_type};
use crate::launch::nest::Nest;
use rushlight_core::rng::Distribution;
use rushlight_core::{DType, Error, Philox, Result, View};

const THREADS: usize = 256;

#[repr(C)]
#[derive(Default)]
struct Numbers {
    a: f64,
    b: f64,
    top: f64,
    low: i64,
    range: u64,
    below: u32,
}

impl Gpu {
    pub fn random(&self, distribution: Distribution, stream: Philox, out: View) -> Result<()> {
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let narrow = matches!(out.dtype(), DType::F32 | DType::F16 | DType::BF16);
        let (kind, words, numbers) = match distribution {
            Distribution::Uniform { low, high } => {
                let top = largest_below(out.dtype(), low, high);
                (0, if narrow { 1 } else { 2 }, Numbers { a: low, b: high, top, ..Default::default() })
            }
            Distribution::Normal { mean, std } => {
                (1, if narrow { 1 } else { 2 }, Numbers { a: mean, b: std, ..Default::default() })
            }
            Distribution::Integers { low, high } => {
                let range = if high > low { high.wrapping_sub(low) as u64 } else { 0 };
                (2, 2, Numbers { low, range, ..Default::default() })
            }
            Distribution::Bernoulli { p } => {
                let words = if narrow || out.dtype() == DType::Bool { 1 } else { 2 };
                (3, words, Numbers { a: p, below: words_below(p), ..Default::default() })
            }
        };
        let key = Key::new(Family::Random, "random", [kind, words, out.dtype() as u16]);
        let function = self.function(key, || {
            let defines = Defines::default().define("RANDOM", 1).define("WIDE", 1).define("KIND", kind);
            defines.define("WORDS", words).dtype("OUT", out.dtype())
        })?;
        let nest = Nest::row_major(out.shape(), [out.strides()])?;
        let place = out.ptr() as u64;
        let grid = Grid::line(count.div_ceil(THREADS * 4 / words as usize), THREADS)?;
        let stream = [stream.seed, stream.offset];
        launch!(self, function, grid; nest, numbers, stream, place, count)
    }

    pub fn dropout(&self, x: View, p: f64, stream: Philox, out: View) -> Result<()> {
        if !out.dtype().is_float() || x.dtype() != out.dtype() {
            return Err(Error::dtype(format!(
                "dropout takes floats of one dtype, not {} to {}",
                x.dtype(),
                out.dtype()
            )));
        }
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let aligned = |v: View| v.layout().is_contiguous() && (v.ptr() as usize).is_multiple_of(4 * v.dtype().size());
        let dense = aligned(x) && aligned(out);
        let key = Key::new(Family::Random, "dropout", [out.dtype() as u16, dense as u16]);
        let function = self.function(key, || {
            let defines = Defines::default().define("DROPOUT", 1).define("WIDE", 1).define("WORDS", 1);
            defines.define("DENSE", dense as u8).dtype("T", out.dtype()).define("WIDE_T", wide_type(out.dtype()))
        })?;
        let nest = Nest::row_major(out.shape(), [x.strides(), out.strides()])?;
        let (from, to, below, keep) = (x.ptr() as u64, out.ptr() as u64, words_below(p), 1.0 - p);
        let grid = Grid::line(count.div_ceil(THREADS * 4), THREADS)?;
        let stream = [stream.seed, stream.offset];
        launch!(self, function, grid; nest, stream, below, keep, from, to, count)
    }
}
