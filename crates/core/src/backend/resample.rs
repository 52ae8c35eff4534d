//! Resizing of planes: the input positions and weights of each output.

/// Interpolation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// The position below `(i + shift) * ratio`.
    Nearest {
        /// 0, or 0.5 for the nearest centre.
        shift: f32,
    },
    /// A straight line between two neighbours.
    Linear,
    /// A cubic through four neighbours.
    Cubic,
}

impl Sampling {
    /// Number of inputs per output along a dimension.
    pub fn taps(self) -> usize {
        match self {
            Sampling::Nearest { .. } => 1,
            Sampling::Linear => 2,
            Sampling::Cubic => 4,
        }
    }
}

/// One dimension's change of size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResampleAxis {
    /// Input size; at least one.
    pub input: usize,
    /// Output size; at least one.
    pub output: usize,
    /// Input positions per output position.
    pub ratio: f64,
    /// Whether output `i` samples at `i * ratio` instead of aligning the pixel centres.
    pub aligned: bool,
}

impl ResampleAxis {
    /// A dimension that is not resampled.
    pub fn unchanged(size: usize) -> Self {
        Self { input: size, output: size, ratio: 1.0, aligned: false }
    }

    /// The input position, between elements, of an output position: in `f64` if `exact`, else rounded to `f32` at each
    /// step, as PyTorch computes it for the tensor's precision.
    fn position(&self, i: usize, exact: bool) -> f64 {
        let round = |v: f64| if exact { v } else { v as f32 as f64 };
        let ratio = round(self.ratio);
        if self.aligned { round(ratio * i as f64) } else { round(round(ratio * (i as f64 + 0.5)) - 0.5) }
    }

    /// The input positions and weights of output `i`; the first [`Sampling::taps`] are valid.
    pub fn taps(&self, sampling: Sampling, i: usize, exact: bool) -> [(usize, f64); 4] {
        let last = self.input - 1;
        let round = |v: f64| if exact { v } else { v as f32 as f64 };
        let mut taps = [(0, 0.0); 4];
        match sampling {
            Sampling::Nearest { shift } => {
                taps[0] = ((((i as f32 + shift) * self.ratio as f32).floor() as usize).min(last), 1.0);
            }
            Sampling::Linear => {
                let at = self.position(i, exact).max(0.0);
                let first = (at as usize).min(last);
                let weight = round(at - first as f64).clamp(0.0, 1.0);
                taps[0] = (first, 1.0 - weight);
                taps[1] = ((first + 1).min(last), weight);
            }
            Sampling::Cubic => {
                /// PyTorch's coefficient of the cubic's slope.
                const A: f64 = -0.75;
                let near = |t: f64| ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0;
                let far = |t: f64| ((A * t - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A;
                let at = self.position(i, exact);
                let t = round(at - at.floor());
                let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
                for (k, (tap, weight)) in taps.iter_mut().zip(weights).enumerate() {
                    let place = (at.floor() as i64).saturating_add(k as i64 - 1).clamp(0, last as i64);
                    *tap = (place as usize, weight);
                }
            }
        }
        taps
    }
}

/// A change of size of up to three dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resample {
    /// The interpolation.
    pub sampling: Sampling,
    /// The dimensions, outermost first; missing ones have size one before and after.
    pub axes: [ResampleAxis; 3],
}
