//! Linear and bilinear maps, with PyTorch's layout of weights.

use super::matmul::{Blend, check_operands, check_rank, gradient_columns, gradient_product, multiply};
use crate::announce::announced;
use crate::autograd::{Saved, no_grad, record, recording};
use crate::{Tensor, amp};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{Dims, Error, Layout, Result};

impl Tensor {
    /// `self @ weight.T + bias` for any leading dimensions; `weight` is `[out_features, in_features]`, or
    /// `[in_features]`.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let (x, w) = (Tensor::ones([2, 5, 3])?, Tensor::ones([4, 3])?);
    /// assert_eq!(x.linear(&w, Some(&Tensor::zeros([4])?))?.shape(), [2, 5, 4]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let name = "linear";
        if let Some(cast) = amp::lower() {
            return cast.run(|| cast.of(self)?.linear(&cast.of(weight)?, cast.of_option(bias)?.as_ref()));
        }
        announced!("nn.functional.linear", [self, weight, bias]; self.linear(weight, bias));
        if weight.rank() == 1 {
            let out = self.matmul(weight).map_err(|e| e.within(name))?;
            return bias.map_or(Ok(out.clone()), |b| out.add(b));
        }
        check_rank(name, "weight", weight, 2)?;
        check_operands(name, self, weight)?;
        if self.is_complex() {
            let out = self.matmul(&weight.transpose(0, 1)?).map_err(|e| e.within(name))?;
            return bias.map_or(Ok(out.clone()), |b| out.add(b));
        }
        let Some((&k, lead)) = self.shape().split_last() else {
            return Err(Error::shape("linear: both arguments to linear need to be at least 1D, but the input is 0D"));
        };
        let (n, features) = (weight.shape()[0], weight.shape()[1]);
        let rows: usize = lead.iter().product();
        if k != features {
            return Err(Error::shape(format!(
                "{name}: mat1 and mat2 shapes cannot be multiplied ({rows}x{k} and {features}x{n})"
            )));
        }
        if let Some(bias) = bias {
            check_operands(name, self, bias)?;
            if bias.rank() > 1 || bias.shape() != [n] {
                // A bias of another shape broadcasts, as in PyTorch.
                return self.linear(weight, None)?.add(bias);
            }
        }
        let mut shape = Dims::from_slice(lead);
        shape.push(n);
        if self.layout().view(&[rows, k]).is_none() && recording(&[self, weight]) {
            // The backward pass reads the rows again: it keeps their copy, not the input.
            return self.reshape([rows, k])?.linear(weight, bias)?.reshape(&shape);
        }
        let out = self.uninit_like(&shape, self.dtype())?;
        let matrix = Layout::contiguous(&[rows, n])?;
        let flat = no_grad(|| self.reshape([rows, k]))?;
        let target = Tensor::from_parts(out.0.storage.clone(), matrix, out.dtype(), Default::default());
        let transposed = no_grad(|| weight.transpose(0, 1))?;
        multiply(&flat, &transposed, &target, &Blend::with_bias(bias))?;
        let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![self, weight];
        inputs.extend(bias);
        if self.dtype().is_differentiable() && recording(&inputs) {
            let saved_x = weight.requires_grad().then(|| Saved::input(self));
            let saved_w = self.requires_grad().then(|| Saved::input(weight));
            let (shape, has_bias) = (Dims::from_slice(self.shape()), bias.is_some());
            record(name, &inputs, &out, move |ctx, dy| {
                let dy = dy.reshape([rows, n])?;
                let dx = match &saved_w {
                    Some(w) if ctx.needs(0) => Some(gradient_product(ctx, 0, &dy, &ctx.get(w)?, &shape)?),
                    _ => None,
                };
                let dw = match &saved_x {
                    Some(x) if ctx.needs(1) => {
                        let x = ctx.get(x)?.reshape([rows, k])?;
                        Some(gradient_product(ctx, 1, &dy.transpose(0, 1)?, &x, &[n, k])?)
                    }
                    _ => None,
                };
                let mut grads = smallvec![dx, dw];
                if has_bias {
                    grads.push(if ctx.needs(2) { Some(gradient_columns(ctx, 2, &dy)?) } else { None });
                }
                Ok(grads)
            })?;
        }
        Ok(out)
    }

    /// `sum over i, j of self[.., i] * weight[o, i, j] * other[.., j] + bias[o]`.
    pub fn bilinear(&self, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        check_rank("bilinear", "weight", weight, 3)?;
        let (&[o, i, j], Some((&in1, lead)), Some((&in2, lead2))) = (
            &[weight.shape()[0], weight.shape()[1], weight.shape()[2]],
            self.shape().split_last(),
            other.shape().split_last(),
        ) else {
            return Err(Error::shape("bilinear: inputs need at least one dimension"));
        };
        if lead != lead2 || in1 != i || in2 != j {
            return Err(Error::shape(format!(
                "bilinear: inputs of shapes {:?} and {:?} must agree in all but the last dimension, which must be {i} and {j} for a weight \
                 of shape {:?}",
                self.shape(),
                other.shape(),
                weight.shape()
            )));
        }
        let rows: usize = lead.iter().product();
        let by_input = weight.permute([1, 0, 2])?.reshape([i, o * j])?;
        let partial = self.reshape([rows, i])?.mm(&by_input)?.reshape([rows, o, j])?;
        let mut shape = Dims::from_slice(lead);
        shape.push(o);
        let out = partial.bmm(&other.reshape([rows, j, 1])?)?.reshape(&shape)?;
        bias.map_or(Ok(out.clone()), |b| out.add(b))
    }
}
