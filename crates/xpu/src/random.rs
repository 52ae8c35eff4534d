//! Random fills and dropout: the numbers the CPU engine draws from the same stream, bit by bit.

use crate::device::Xpu;
use crate::program::{At, Defines, Family, Key, Kind, Number, run, wide};
use rushlight_core::rng::Distribution;
use rushlight_core::{DType, Error, Philox, Result, View};
use rushlight_gpu::launch::formula::{largest_below, words_below};
use rushlight_gpu::launch::nest::Nest;

const GROUP: usize = 64;

impl Xpu {
    pub fn random(&self, distribution: Distribution, stream: Philox, out: View) -> Result<()> {
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let narrow = matches!(out.dtype(), DType::F32 | DType::F16 | DType::BF16);
        let words = |narrow: bool| if narrow { 1u16 } else { 2 };
        // Kind, words per element, dtype of the drawn values, and the kernel's scalars.
        let drawn = if narrow { DType::F32 } else { DType::F64 };
        let (kind, words, values, numbers, low, range, below) = match distribution {
            Distribution::Uniform { low, high } => {
                let top = largest_below(out.dtype(), low, high);
                (0, words(narrow), drawn, [low, high - low, top], 0, 0, 0)
            }
            Distribution::Normal { mean, std } => (1, words(narrow), drawn, [mean, std, 0.0], 0, 0, 0),
            Distribution::Integers { low, high } => {
                let range = if high > low { high.wrapping_sub(low) as u64 } else { 0 };
                (2, 2, DType::I64, [0.0; 3], low, range, 0)
            }
            Distribution::Bernoulli { p } => {
                let words = words(narrow || out.dtype() == DType::Bool);
                let below = if words == 1 {
                    words_below(p) as u64
                } else {
                    const SPAN: f64 = 9_007_199_254_740_992.0;
                    (p * SPAN).ceil().clamp(0.0, SPAN) as u64
                };
                (3, words, DType::Bool, [0.0; 3], 0, 0, below)
            }
        };
        self.require(&[out.dtype(), values])?;
        let carried = if values == DType::F64 { DType::F64 } else { DType::F32 };
        let key = Key::new(Family::Random, "random", [kind, words]);
        let kernel = self.kernel(key, || {
            Defines::default()
                .define("RANDOM", 1)
                .define("KIND", kind)
                .define("WORDS", words)
                .define("N", wide(carried))
                .kind(Kind::of(values))
                .any("OUT", 0)
        })?;
        let nest = Nest::row_major(out.shape(), [out.strides()])?;
        let [a, b, top] = numbers.map(|n| Number::float(n, carried));
        let (to, codes) = (At(out.ptr() as u64), out.dtype() as u32);
        let groups = count.div_ceil(GROUP * 4 / words as usize);
        run!(self, kernel, [groups, 1, 1], [GROUP, 1, 1];
            nest, a, b, top, low, range, below, stream.seed, stream.offset, to, count, codes)
    }

    pub fn dropout(&self, x: View, p: f64, stream: Philox, out: View) -> Result<()> {
        if !out.dtype().is_float() || x.dtype() != out.dtype() {
            return Err(Error::dtype(format!(
                "dropout takes floats of one dtype, not {} to {}",
                x.dtype(),
                out.dtype()
            )));
        }
        self.require(&[x.dtype()])?;
        let count = out.numel();
        if count == 0 {
            return Ok(());
        }
        let dense = x.layout().is_contiguous() && out.layout().is_contiguous();
        let kernel = self.kernel(Key::new(Family::Random, "dropout", [out.dtype() as u16, dense as u16]), || {
            Defines::default()
                .define("DROPOUT", 1)
                .define("WORDS", 1)
                .define("KIND", 0)
                .define("DENSE", dense as u8)
                .kind(Kind::of(out.dtype()))
                .dtype("T", out.dtype())
        })?;
        let nest = Nest::row_major(out.shape(), [x.strides(), out.strides()])?;
        let (below, keep) = (words_below(p), Number::float(1.0 - p, out.dtype()));
        let (from, to, codes) = (At(x.ptr() as u64), At(out.ptr() as u64), out.dtype() as u32);
        run!(self, kernel, [count.div_ceil(GROUP * 4), 1, 1], [GROUP, 1, 1];
            nest, stream.seed, stream.offset, below, keep, from, to, count, codes)
    }
}
