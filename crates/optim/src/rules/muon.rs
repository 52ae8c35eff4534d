//! Muon: momentum, orthogonalised.

use crate::group::{Algorithm, Composed, GroupOptimizer, Params, Scalars, SkipCondition, composed_step};
use crate::options::{Field, options};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::state::Value;
use rushlight_tensor::{Arg, Tensor};

/// Muon: the momentum of a matrix is replaced by the nearest orthogonal one, by Newton-Schulz iterations in bfloat16.
/// For the matrices of hidden layers; embeddings, biases and heads are better left to [`AdamW`](crate::AdamW).
pub type Muon = GroupOptimizer<MuonOptions>;

/// How the learning rate follows the shape of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdjustLr {
    /// Times the root of rows over columns, where that exceeds one.
    Original,
    /// Times 0.2 times the root of the larger size, so that updates are as large as AdamW's.
    MatchRmsAdamW,
    /// Times the root of rows over columns.
    SpectralUnclamped,
}

impl AdjustLr {
    const NAMES: [(AdjustLr, &'static str); 3] = [
        (AdjustLr::Original, "original"),
        (AdjustLr::MatchRmsAdamW, "match_rms_adamw"),
        (AdjustLr::SpectralUnclamped, "spectral_unclamped"),
    ];

    fn ratio(self, rows: usize, columns: usize) -> f64 {
        let (rows, columns) = (rows as f64, columns as f64);
        match self {
            AdjustLr::Original => (rows / columns).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamW => 0.2 * rows.max(columns).sqrt(),
            AdjustLr::SpectralUnclamped => (rows / columns).sqrt(),
        }
    }
}

impl Field for AdjustLr {
    fn to_value(&self) -> Value {
        Self::NAMES.iter().find(|(f, _)| f == self).map_or(Value::None, |(_, name)| (*name).into())
    }
    fn from_value(value: &Value) -> Result<Self> {
        let name = value.as_str()?;
        let known = Self::NAMES.iter().find(|(_, known)| *known == name);
        known
            .map(|(f, _)| *f)
            .ok_or_else(|| Error::value(format!("Adjust learning rate function {name} is not supported")))
    }
}

options! {
    /// Options of [`Muon`].
    pub struct MuonOptions for "Muon" {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// How fast parameters shrink, relative to the learning rate.
        weight_decay: f64 = 0.1,
        /// Share of the average gradient that stays.
        momentum: f64 = 0.95,
        /// Nesterov's momentum: looks ahead by one update.
        nesterov: bool = true,
        /// Coefficients of the iterations' polynomial.
        ns_coefficients: (f64, f64, f64) = (3.4445, -4.7750, 2.0315),
        /// The least norm to divide by.
        eps: f64 = 1e-7,
        /// Iterations.
        ns_steps: usize = 5,
        /// How the learning rate follows the shape; [`AdjustLr::Original`] if not said.
        adjust_lr_fn: Option<AdjustLr> = None,
    }
    fixed {}
}

impl Algorithm for MuonOptions {
    const SCALARS: &'static [&'static str] = &[];
    const TENSORS: &'static [&'static str] = &["momentum_buffer"];

    fn validate(&self) -> Result<()> {
        let at_least_zero = |what: &str, value: f64| {
            if value >= 0.0 { Ok(()) } else { Err(Error::value(format!("{what} should be >= 0 but is: {value}"))) }
        };
        at_least_zero("Learning rate", self.lr)?;
        at_least_zero("momentum", self.momentum)?;
        at_least_zero("weight decay", self.weight_decay)?;
        if self.ns_steps >= 100 {
            return Err(Error::value("Number of steps must be less than 100 for computational efficiency"));
        }
        Ok(())
    }

    fn check_param(&self, param: &Tensor) -> Result<()> {
        if param.rank() == 2 {
            return Ok(());
        }
        Err(Error::value(format!(
            "Muon only supports 2D parameters whereas we found a parameter with size: {:?}; give it to AdamW",
            param.shape()
        )))
    }

    fn keeps(&self) -> [bool; 3] {
        [true, false, false]
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        composed_step(groups, grad_scale, skip)
    }
}

impl Composed for MuonOptions {
    fn step_one(&self, param: &Tensor, grad: &Tensor, _: &mut Scalars, kept: &[Option<Tensor>; 3]) -> Result<()> {
        let (&[rows, columns], [Some(buffer), ..]) = (param.shape(), kept) else { return self.check_param(param) };
        if param.numel() == 0 {
            return Ok(());
        }
        buffer.lerp_(grad, 1.0 - self.momentum)?;
        let update = if self.nesterov { grad.lerp(buffer, self.momentum)? } else { buffer.clone() };
        let update = self.orthogonal(&update)?.to_dtype(param.dtype())?;
        let ratio = self.adjust_lr_fn.unwrap_or(AdjustLr::Original).ratio(rows, columns);
        param.mul_(1.0 - self.lr * self.weight_decay)?;
        param.add_scaled_(&update, -self.lr * ratio)?;
        Ok(())
    }
}

impl MuonOptions {
    /// Near the orthogonal matrix nearest to `x`: singular values go to about one.
    fn orthogonal(&self, x: &Tensor) -> Result<Tensor> {
        let (a, b, c) = self.ns_coefficients;
        let tall = x.shape()[0] > x.shape()[1];
        let x = x.to_dtype(DType::BF16)?;
        let mut x = if tall { x.t()? } else { x };
        x = x.div(&x.norm(2.0)?.clamp_min(self.eps)?)?;
        for _ in 0..self.ns_steps {
            let gram = x.matmul(&x.t()?)?;
            let update = gram.addmm(&gram, &gram, b, c)?;
            x = x.addmm(&update, &x, a, 1.0)?;
        }
        if tall { x.t() } else { Ok(x) }
    }
}
