//! Pooling over three spatial dimensions: over the planes first, then over the depth. Maxima and averages of windows
//! are computed from the results of their planes, and so are window sizes.

use super::{AvgPool, MaxPool, OutputSize};
use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{record, recording};
use crate::ops::norm::wide;
use crate::ops::sizes::Sizes;
use rushlight_core::{Error, Result};

/// A window's part along the depth, as one over planes of a single column, and its part over the planes.
struct Parts {
    depth: Sizes,
    plane: Sizes,
}

impl Parts {
    fn new(sizes: [usize; 3], unused: usize) -> Self {
        let [d, h, w] = sizes;
        Self { depth: [d, unused].into(), plane: [h, w].into() }
    }
}

impl MaxPool {
    fn parts(self, op: &str) -> Result<(MaxPool, MaxPool)> {
        let kernel = Parts::new(self.kernel.spread_positive(op, "kernel_size", 3)?, 1);
        let stride = Parts::new(self.stride.unwrap_or(self.kernel).spread_positive(op, "stride", 3)?, 1);
        let padding = Parts::new(self.padding.spread(op, "padding", 3, 0)?, 0);
        let dilation = Parts::new(self.dilation.spread_positive(op, "dilation", 3)?, 1);
        let ceil = self.ceil_mode;
        Ok((
            MaxPool::new(kernel.depth)
                .stride(stride.depth)
                .padding(padding.depth)
                .dilation(dilation.depth)
                .ceil_mode(ceil),
            MaxPool::new(kernel.plane)
                .stride(stride.plane)
                .padding(padding.plane)
                .dilation(dilation.plane)
                .ceil_mode(ceil),
        ))
    }
}

impl AvgPool {
    fn parts(self, op: &str) -> Result<(AvgPool, AvgPool)> {
        let kernel = Parts::new(self.kernel.spread_positive(op, "kernel_size", 3)?, 1);
        let stride = Parts::new(self.stride.unwrap_or(self.kernel).spread_positive(op, "stride", 3)?, 1);
        let padding = Parts::new(self.padding.spread(op, "padding", 3, 0)?, 0);
        let with = |window: AvgPool, divisor_override| AvgPool {
            ceil_mode: self.ceil_mode,
            count_include_pad: self.count_include_pad,
            divisor_override,
            ..window
        };
        let depth = AvgPool::new(kernel.depth).stride(stride.depth).padding(padding.depth);
        let plane = AvgPool::new(kernel.plane).stride(stride.plane).padding(padding.plane);
        // A divisor of one makes sums of the planes.
        Ok((with(depth, self.divisor_override), with(plane, self.divisor_override.map(|_| 1))))
    }
}

impl OutputSize {
    fn parts(&self, op: &str) -> Result<(OutputSize, OutputSize)> {
        match self.0[..] {
            [all] => Ok((OutputSize(vec![all, None]), OutputSize(vec![all, all]))),
            [d, h, w] => Ok((OutputSize(vec![d, None]), OutputSize(vec![h, w]))),
            ref given => {
                Err(Error::value(format!("{op}: output_size must be 1 or 3 numbers, but {} were given", given.len())))
            }
        }
    }
}

/// A tensor `[…, depth, height, width]` as planes, and after them as columns along the depth.
struct Volume {
    lead: Vec<usize>,
    planes: Tensor,
}

impl Volume {
    fn new(op: &str, x: &Tensor) -> Result<Self> {
        x.needs_float(op)?;
        if !(4..=5).contains(&x.rank()) || x.shape()[1..].contains(&0) {
            return Err(Error::shape(format!(
                "{op}: expected 4D or 5D (batch mode) tensor with optional 0 dim batch size for input, but got: {:?}",
                x.shape()
            )));
        }
        let (lead, space) = x.shape().split_at(x.rank() - 3);
        let planes = x.reshape([lead.iter().product(), space[0], space[1], space[2]])?;
        Ok(Self { lead: lead.to_vec(), planes })
    }

    /// Pooled planes with the columns along the depth as planes' rows.
    fn columns(pooled: &Tensor) -> Result<Tensor> {
        let s = pooled.shape();
        pooled.reshape([s[0], 1, s[1], s[2] * s[3]])
    }

    /// Pooled columns in the shape of the result; `planes` are the pooled planes.
    fn assemble(&self, columns: &Tensor, planes: &Tensor) -> Result<Tensor> {
        let space = [columns.shape()[2], planes.shape()[2], planes.shape()[3]];
        columns.reshape(&[&self.lead[..], &space].concat())
    }
}

impl Tensor {
    /// The largest element of each window over `[batch, channels, depth, height, width]`; the batch dimension may be
    /// missing.
    pub fn max_pool3d(&self, window: impl Into<MaxPool>) -> Result<Tensor> {
        Ok(self.max_pool3d_with_indices(window)?.0)
    }

    /// [`Tensor::max_pool3d`] and where in its volume each maximum was found, `int64`.
    pub fn max_pool3d_with_indices(&self, window: impl Into<MaxPool>) -> Result<(Tensor, Tensor)> {
        let (op, w) = ("max_pool3d", window.into());
        announced!(
            "nn.functional.max_pool3d_with_indices", [self, w.kernel, w.stride, w.padding, w.dilation, w.ceil_mode];
            self.max_pool3d_with_indices(w)
        );
        let (depth, plane) = w.parts(op)?;
        let volume = Volume::new(op, self)?;
        let (planes, in_plane) = plane.problem(op, 2, &volume.planes)?.max(&volume.planes)?;
        let columns = Volume::columns(&planes)?;
        let (values, in_column) = depth.problem(op, 2, &columns)?.max(&columns)?;
        let flat = |t: &Tensor| t.reshape([t.shape()[0], t.numel() / t.shape()[0].max(1)]);
        let chosen = flat(&in_plane)?.gather(1, &flat(&in_column)?)?.reshape(in_column.shape())?;
        let (column, area) = (columns.shape()[3].max(1), self.shape()[self.rank() - 2..].iter().product::<usize>());
        let indices = in_column.floor_divide(column)?.mul(area)?.add(&chosen)?;
        Ok((volume.assemble(&values, &planes)?, volume.assemble(&indices, &planes)?))
    }

    /// The average of each window over `[batch, channels, depth, height, width]`; the batch dimension may be missing.
    pub fn avg_pool3d(&self, window: impl Into<AvgPool>) -> Result<Tensor> {
        let (op, window) = ("avg_pool3d", window.into());
        let (include, divisor) = (window.count_include_pad, window.divisor_override);
        announced!(
            "nn.functional.avg_pool3d",
            [self, window.kernel, window.stride, window.padding, window.ceil_mode, include, divisor];
            self.avg_pool3d(window)
        );
        let kernel = window.kernel.spread_positive(op, "kernel_size", 3)?;
        if self.rank() >= 3 && self.shape()[self.rank() - 3..].iter().zip(kernel).any(|(&size, k)| size < k) {
            return Err(Error::shape(format!("{op}: input {:?} smaller than kernel size {kernel:?}", self.shape())));
        }
        let (depth, plane) = window.parts(op)?;
        // Half types are rounded once, at the end.
        let volume = Volume::new(op, &self.to_dtype(wide(self.dtype()))?)?;
        let planes = plane.problem(op, 2, &volume.planes)?.average(&volume.planes)?;
        let columns = Volume::columns(&planes)?;
        let means = depth.problem(op, 2, &columns)?.average(&columns)?;
        volume.assemble(&means, &planes)?.to_dtype(self.dtype())
    }

    /// The result of an adaptive pooling to a size of zero. It has no gradient: PyTorch refuses the backward pass.
    fn pooled_to_nothing(&self, op: &'static str, output_size: &OutputSize) -> Result<Option<Tensor>> {
        if !output_size.0.contains(&Some(0)) {
            return Ok(None);
        }
        let volume = Volume::new(op, self)?;
        let (sizes, space) = (&output_size.0, &self.shape()[self.rank() - 3..]);
        let wanted = |i: usize| sizes.get(if sizes.len() == 1 { 0 } else { i }).copied().flatten().unwrap_or(space[i]);
        let out = self.uninit_like(&[&volume.lead[..], &[wanted(0), wanted(1), wanted(2)]].concat(), self.dtype())?;
        if recording(&[self]) {
            record(op, &[self], &out, move |_, dy| {
                Err(Error::shape(format!(
                    "{op}_backward: expected a gradient of non-zero size for non-batch dimensions, but got sizes {:?}",
                    dy.shape()
                )))
            })?;
        }
        Ok(Some(out))
    }

    /// Averages of `[batch, channels, depth, height, width]` in windows that give an output of the wanted size.
    pub fn adaptive_avg_pool3d(&self, output_size: impl Into<OutputSize>) -> Result<Tensor> {
        let op = "adaptive_avg_pool3d";
        let output_size = output_size.into();
        announced!("nn.functional.adaptive_avg_pool3d", [self, &output_size]; self.adaptive_avg_pool3d(output_size));
        if let Some(out) = self.pooled_to_nothing(op, &output_size)? {
            return Ok(out);
        }
        let (depth, plane) = output_size.parts(op)?;
        let volume = Volume::new(op, &self.to_dtype(wide(self.dtype()))?)?;
        let planes = plane.problem(op, 2, &volume.planes)?.average(&volume.planes)?;
        let columns = Volume::columns(&planes)?;
        let means = depth.problem(op, 2, &columns)?.average(&columns)?;
        volume.assemble(&means, &planes)?.to_dtype(self.dtype())
    }
}
