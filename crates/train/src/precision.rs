//! Numeric precision of a run.

use rushlight_core::backend::set_allow_tf32;
use rushlight_core::{DType, Error, Result};
use rushlight_nn::{Module, To};
use rushlight_optim::GradScaler;
use rushlight_tensor::{AutocastGuard, Tensor, set_autocast};
use std::fmt;
use std::str::FromStr;

/// Precision of a run, with Lightning's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// `32-true`: everything in `f32`.
    #[default]
    F32,
    /// `tf32`: parameters in `f32`, products on tensor cores that round their inputs to TF32. On CPUs the same as
    /// [`Precision::F32`].
    Tf32,
    /// `64-true`: parameters and data in `f64`.
    F64,
    /// `bf16-mixed`: parameters in `f32`, products in `bf16`.
    Bf16Mixed,
    /// `16-mixed`: parameters in `f32`, products in `f16`, the loss scaled so that small gradients do not underflow.
    F16Mixed,
    /// `bf16-true`: parameters and data in `bf16`.
    Bf16True,
    /// `16-true`: parameters and data in `f16`.
    F16True,
}

const NAMES: [(Precision, &str, &[&str]); 7] = [
    (Precision::F32, "32-true", &["32", "f32", "fp32", "float32"]),
    (Precision::Tf32, "tf32", &[]),
    (Precision::F64, "64-true", &["64", "f64", "float64"]),
    (Precision::Bf16Mixed, "bf16-mixed", &["bf16"]),
    (Precision::F16Mixed, "16-mixed", &["16", "f16", "fp16"]),
    (Precision::Bf16True, "bf16-true", &[]),
    (Precision::F16True, "16-true", &[]),
];

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(precision, ..)| precision == self).map_or("", |(_, name, _)| name);
        f.write_str(name)
    }
}

/// Lightning's names, and the short ones: `f32`, `tf32`, `bf16`, `16-mixed`, `bf16-true`.
impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = NAMES.iter().find(|(_, name, others)| *name == text || others.contains(&text));
        found.map(|(precision, ..)| *precision).ok_or_else(|| {
            let known: Vec<&str> = NAMES.iter().map(|(_, name, _)| *name).collect();
            Error::value(format!("Trainer: unknown precision '{text}'; known are {}", known.join(", ")))
        })
    }
}

impl Precision {
    /// The dtype of `autocast`.
    pub fn autocast(self) -> Option<DType> {
        match self {
            Precision::Bf16Mixed => Some(DType::BF16),
            Precision::F16Mixed => Some(DType::F16),
            _ => None,
        }
    }

    /// The dtype of parameters and floating-point data, if the model is converted.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Precision::F64 => Some(DType::F64),
            Precision::Bf16True => Some(DType::BF16),
            Precision::F16True => Some(DType::F16),
            _ => None,
        }
    }

    /// Turns autocast on until the guard is dropped.
    pub(crate) fn enter(self) -> Result<AutocastGuard> {
        set_autocast(self.autocast())
    }

    /// The scaler that the precision needs.
    pub(crate) fn scaler(self) -> Option<GradScaler> {
        (self == Precision::F16Mixed).then(GradScaler::new)
    }

    /// Converts a model, and enables TF32 for products if requested.
    pub(crate) fn prepare(self, model: &mut impl Module) -> Result<()> {
        if self == Precision::Tf32 {
            set_allow_tf32(true);
        }
        self.dtype().map_or(Ok(()), |dtype| model.to_(To::from(dtype)))
    }

    /// Converts a tensor of a batch for the model.
    pub(crate) fn convert(self, tensor: &Tensor) -> Result<Tensor> {
        match self.dtype() {
            Some(dtype) if tensor.is_floating_point() && tensor.dtype() != dtype => tensor.to_dtype(dtype),
            _ => Ok(tensor.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (precision, name, others) in NAMES {
            assert_eq!(precision.to_string(), name);
            for text in others.iter().chain([&name]) {
                assert_eq!(text.parse::<Precision>().unwrap(), precision);
            }
        }
        assert!("8-bit".parse::<Precision>().unwrap_err().to_string().contains("bf16-mixed"));
    }
}
