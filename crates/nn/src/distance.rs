//! Layers that compare two inputs.

use crate::Module;
use rushlight_core::{Result, setters};
use rushlight_tensor::Tensor;

/// The cosine of the angle between vectors along a dimension.
#[derive(Clone, Copy, Module)]
pub struct CosineSimilarity {
    dim: isize,
    eps: f64,
}

impl CosineSimilarity {
    /// Along dimension 1 by default.
    pub fn new() -> Self {
        Self { dim: 1, eps: 1e-8 }
    }

    /// The dimension of the vectors; 1 by default.
    pub fn dim(mut self, dim: isize) -> Self {
        self.dim = dim;
        self
    }

    /// The smallest length that counts; 1e-8 by default.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// The cosines.
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        x1.cosine_similarity(x2, self.dim, self.eps)
    }
}

impl Default for CosineSimilarity {
    fn default() -> Self {
        Self::new()
    }
}

/// The `p`-norm of the difference over the last dimension.
#[derive(Clone, Copy, Module)]
pub struct PairwiseDistance {
    p: f64,
    eps: f64,
    keepdim: bool,
}

impl PairwiseDistance {
    /// Euclidean by default.
    pub fn new() -> Self {
        Self { p: 2.0, eps: 1e-6, keepdim: false }
    }

    setters! {
        /// The norm; 2 by default.
        p: f64;
        /// Added to differences; 1e-6 by default.
        eps: f64;
        /// Whether the last dimension stays, of size one; false by default.
        keepdim: bool;
    }

    /// The distances.
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        x1.pairwise_distance(x2, self.p, self.eps, self.keepdim)
    }
}

impl Default for PairwiseDistance {
    fn default() -> Self {
        Self::new()
    }
}
