//! Maximum pooling over windows at random places.

use crate::Tensor;
use rushlight_core::{DType, Dims, Error, Result};

impl Tensor {
    /// The largest elements of `output` windows of a size at random places, over the last dimensions, and their indices
    /// in a plane. `samples` (`[batch, channels, dimensions]`, between 0 and 1) chooses the places.
    pub fn fractional_max_pool(
        &self,
        kernel: &[usize],
        output: &[usize],
        samples: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let dims = kernel.len();
        let name = format!("fractional_max_pool{dims}d");
        if !matches!(dims, 2 | 3) || output.len() != dims || self.rank() != dims + 1 && self.rank() != dims + 2 {
            return Err(Error::shape(format!(
                "{name}: expected input of {} or {} dimensions and as many sizes of windows as of outputs, got input {:?}, \
                 windows {kernel:?} and outputs {output:?}",
                dims + 1,
                dims + 2,
                self.shape()
            )));
        }
        let (lead, size) = self.shape().split_at(self.rank() - dims);
        let fits = |d: usize| output[d] >= 1 && kernel[d] >= 1 && output[d] + kernel[d] - 1 <= size[d];
        if !(0..dims).all(fits) {
            return Err(Error::shape(format!(
                "{name}: {output:?} windows of {kernel:?} do not fit in an input of {size:?}"
            )));
        }
        let planes: usize = lead.iter().product();
        if samples.numel() != planes * dims {
            return Err(Error::shape(format!(
                "{name}: expected {dims} samples for each of {planes} planes, got samples {:?}",
                samples.shape()
            )));
        }
        let compute = if samples.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let samples = samples.detach().to_dtype(compute)?.reshape([planes, dims])?;
        // Positions of all elements of all windows: planes, then windows, then elements, dimension by dimension.
        let mut index: Option<Tensor> = None;
        for d in 0..dims {
            // In two dimensions the last one uses the first random number.
            let sample = samples.narrow(1, if dims == 2 { 1 - d as isize } else { d as isize }, 1)?;
            let stride: usize = size[d + 1..].iter().product();
            let along = starts(&sample, size[d], kernel[d], output[d])?
                .unsqueeze(-1)?
                .add(&Tensor::arange_with(0, kernel[d], 1, (DType::I64, self.device()))?)?
                .mul(stride as i64)?;
            let mut shape: Dims = std::iter::once(planes).chain(std::iter::repeat_n(1, 2 * dims)).collect();
            (shape[1 + d], shape[1 + dims + d]) = (output[d], kernel[d]);
            let along = along.reshape(&shape)?;
            index = Some(match index {
                Some(before) => before.add(&along)?,
                None => along,
            });
        }
        let index = index.ok_or_else(|| Error::shape(format!("{name}: no dimensions")))?;
        let (windows, elements): (usize, usize) = (output.iter().product(), kernel.iter().product());
        let index = index.reshape([planes, windows * elements])?;
        let flat = self.reshape([planes, size.iter().product()])?;
        let (largest, at) = flat.gather(1, &index)?.reshape([planes, windows, elements])?.max_dim(-1, false)?;
        let places = index.reshape([planes, windows, elements])?.gather(-1, &at.unsqueeze(-1)?)?;
        let shape = [lead, output].concat();
        Ok((largest.reshape(&shape)?, places.reshape(&shape)?))
    }
}

/// First positions of windows along a dimension, `[planes, count]`: fractional steps from a random start `[planes, 1]`.
fn starts(sample: &Tensor, size: usize, kernel: usize, count: usize) -> Result<Tensor> {
    let last = (size - kernel) as i64;
    let end = sample.mul(0.0)?.to_dtype(DType::I64)?.add(last)?;
    if count == 1 {
        return Ok(end);
    }
    let step = last as f64 / (count - 1) as f64;
    let whole = |t: &Tensor| t.mul(step)?.to_dtype(DType::I64);
    let counter = Tensor::arange_with(0, count - 1, 1, (sample.dtype(), sample.device()))?;
    Tensor::cat(&[&whole(&sample.add(&counter)?)?.sub(&whole(sample)?)?, &end], 1)
}
