//! Adafactor: squares of gradients by rows and columns.

use crate::group::{Algorithm, Composed, GroupOptimizer, Params, Scalars, SkipCondition, composed_step};
use crate::options::options;
use rushlight_core::{DType, Dims, Error, Result};
use rushlight_tensor::state::Value;
use rushlight_tensor::{Arg, Tensor};

/// Divides by root mean squares that are kept for rows and columns of a matrix only, and bounds the size of updates:
/// the state of a large matrix is small.
pub type Adafactor = GroupOptimizer<AdafactorOptions>;

options! {
    /// Options of [`Adafactor`].
    pub struct AdafactorOptions for "Adafactor" {
        /// Largest relative learning rate.
        lr: f64 = 1e-2,
        /// Power of the step that is the share of new squares.
        beta2_decay: f64 = -0.8,
        /// Least mean square (of the parameter's dtype if not said) and least scale of a parameter.
        eps: (Option<f64>, f64) = (None, 1e-3),
        /// Largest root mean square of an update.
        d: f64 = 1.0,
        /// How fast parameters shrink, relative to the learning rate.
        weight_decay: f64 = 0.0,
        /// Goes up the gradient.
        maximize: bool = false,
    }
    fixed { foreach: Value::None }
}

/// The distance from 1 to the next number.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => f32::EPSILON as f64,
    }
}

impl Algorithm for AdafactorOptions {
    const TENSORS: &'static [&'static str] = &["row_var", "col_var", "variance"];

    fn validate(&self) -> Result<()> {
        let rule = |ok: bool, what: String| if ok { Ok(()) } else { Err(Error::value(what)) };
        rule(self.lr >= 0.0, format!("Learning rate should be >= 0 but is: {}", self.lr))?;
        rule(self.beta2_decay <= 0.0, format!("beta2_decay should be <= 0 but is: {}", self.beta2_decay))?;
        let (square, scale) = self.eps;
        rule(square.is_none_or(|v| v >= 0.0), format!("epsilon1 should be >= 0 but is: {square:?}"))?;
        rule(scale >= 0.0, format!("epsilon2 should be >= 0 but is: {scale}"))?;
        rule(self.d >= 1.0, format!("Clipping threshold d should be >= 1 but is: {}", self.d))?;
        rule(self.weight_decay >= 0.0, format!("weight_decay should be >= 0 but is: {}", self.weight_decay))
    }

    fn keeps(&self) -> [bool; 3] {
        [true; 3]
    }

    /// Rows and columns of a matrix, all elements of a vector.
    fn kept_shape(&self, at: usize, param: &Tensor) -> Option<Dims> {
        let rank = param.rank();
        let mut shape = Dims::from_slice(param.shape());
        match (at, rank > 1) {
            (0, true) => shape[rank - 1] = 1,
            (1, true) => shape[rank - 2] = 1,
            (2, false) => {}
            _ => return None,
        }
        Some(shape)
    }

    fn step(groups: &mut [Params<Self>], grad_scale: Arg, skip: Option<SkipCondition>) -> Result<()> {
        composed_step(groups, grad_scale, skip)
    }
}

impl Composed for AdafactorOptions {
    fn step_one(&self, param: &Tensor, grad: &Tensor, scalars: &mut Scalars, kept: &[Option<Tensor>; 3]) -> Result<()> {
        let step = &mut scalars[0];
        *step += 1.0;
        if param.numel() == 0 {
            return Ok(());
        }
        let grad = if self.maximize { grad.neg()? } else { grad.clone() };
        let smallest_square = self.eps.0.unwrap_or_else(|| epsilon(param.dtype()));
        let share = step.powf(self.beta2_decay);
        let root_size = (param.numel() as f64).sqrt();
        let scale = (param.norm(2.0)?.item::<f64>()? / root_size).max(self.eps.1);
        let step_size = scale * self.lr.min(1.0 / step.sqrt());
        if self.weight_decay != 0.0 {
            param.mul_(1.0 - self.lr * self.weight_decay)?;
        }
        let squares = grad.square()?;
        let variance = match kept {
            [Some(rows), Some(columns), _] => {
                rows.lerp_(&squares.mean_dims(-1, true)?, share)?;
                columns.lerp_(&squares.mean_dims(-2, true)?, share)?;
                let mean = rows.mean_dims(-2, true)?.clamp_min(smallest_square)?;
                rows.matmul(columns)?.div(&mean)?
            }
            [_, _, Some(variance)] => variance.lerp_(&squares, share)?.clone(),
            _ => return Err(Error::value("Adafactor: state is missing")),
        };
        let update = variance.clamp_min(smallest_square * smallest_square)?.rsqrt()?.mul(&grad)?;
        let excess = (update.norm(2.0)?.item::<f64>()? / (root_size * self.d)).max(1.0);
        param.add_scaled_(&update, -step_size / excess)?;
        Ok(())
    }
}
