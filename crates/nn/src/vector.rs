//! All parameters as one vector.

use rushlight_core::{Error, Result};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{Tensor, cat};

/// The parameters' elements one after the other: PyTorch's `nn.utils.parameters_to_vector`.
///
/// ```
/// # mod rushlight { pub use rushlight_nn as nn; }
/// use rushlight::nn::{Linear, Module, parameters_to_vector, vector_to_parameters};
/// let layer = Linear::new(3, 2)?;
/// let vector = parameters_to_vector(&layer.parameters())?;
/// assert_eq!(vector.shape(), [8]);
/// vector_to_parameters(&vector.mul(2.0)?, &layer.parameters())?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn parameters_to_vector(parameters: &[Tensor]) -> Result<Tensor> {
    let flat = parameters.iter().map(|p| p.reshape([-1isize])).collect::<Result<Vec<_>>>()?;
    cat(&flat.iter().collect::<Vec<_>>(), 0)
}

/// Copies a vector's elements into the parameters, in their order: PyTorch's `nn.utils.vector_to_parameters`.
pub fn vector_to_parameters(vector: &Tensor, parameters: &[Tensor]) -> Result<()> {
    let total = parameters.iter().map(Tensor::numel).sum::<usize>();
    if vector.shape() != [total] {
        return Err(Error::shape(format!(
            "vector_to_parameters: a vector of {total} elements is needed, got shape {:?}",
            vector.shape()
        )));
    }
    no_grad(|| {
        let mut start = 0;
        for parameter in parameters {
            let part = vector.narrow(0, start as isize, parameter.numel())?;
            parameter.detach().copy_(&part.reshape(parameter.shape())?)?;
            start += parameter.numel();
        }
        Ok(())
    })
}
