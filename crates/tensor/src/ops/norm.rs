//! Normalisation of rows: layer, RMS, group and instance norm. Fused kernels, composed ops for second derivatives.

use crate::announce::announced;
use crate::autograd::{Ctx, Grads, Saved, no_grad, record, recording};
use crate::{Tensor, amp};
use rushlight_core::backend::{RowNorm, View, call};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Error, Result};

/// The dtype statistics are kept in, and composed forms are computed in.
pub(crate) fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The gradients of a normalisation, by input.
pub(crate) struct NormGrads {
    pub(crate) dx: Option<Tensor>,
    pub(crate) dweight: Option<Tensor>,
    pub(crate) dbias: Option<Tensor>,
}

impl NormGrads {
    /// Memory for the wanted gradients.
    pub(crate) fn uninit(x: &Tensor, affine_shape: &[usize], needs: [bool; 3]) -> Result<Self> {
        let made = |wanted: bool, shape: &[usize]| wanted.then(|| x.uninit_like(shape, x.dtype())).transpose();
        let dx = made(needs[0], x.shape())?;
        Ok(Self { dx, dweight: made(needs[1], affine_shape)?, dbias: made(needs[2], affine_shape)? })
    }

    /// The gradients of an empty input.
    pub(crate) fn zeroed(self) -> Result<Self> {
        for g in [&self.dx, &self.dweight, &self.dbias].into_iter().flatten() {
            g.zero_()?;
        }
        Ok(self)
    }

    pub(crate) fn views(&self) -> [Option<View<'_>>; 3] {
        [&self.dx, &self.dweight, &self.dbias].map(|g| g.as_ref().map(|t| t.engine_view()))
    }
}

/// Which inputs a recorded normalisation has besides `x`, and which need gradients.
#[derive(Clone, Copy)]
pub(crate) struct Affine {
    pub(crate) weight: bool,
    pub(crate) bias: bool,
}

impl Affine {
    /// Whether `x`, weight and bias need gradients.
    pub(crate) fn needs(self, ctx: &Ctx) -> [bool; 3] {
        [ctx.needs(0), self.weight && ctx.needs(1), self.bias && ctx.needs(1 + usize::from(self.weight))]
    }

    /// The gradients in the order of the recorded inputs.
    pub(crate) fn arrange(self, grads: NormGrads) -> Grads {
        let mut out: Grads = smallvec![grads.dx];
        if self.weight {
            out.push(grads.dweight);
        }
        if self.bias {
            out.push(grads.dbias);
        }
        out
    }
}

/// Saved values of a row normalisation's backward.
struct RowBackward {
    spec: RowNorm,
    x: Saved,
    weight: Option<Saved>,
    mean: Tensor,
    rstd: Tensor,
    /// Half dtype in which matrix products will read the gradient.
    low: Option<DType>,
}

impl RowBackward {
    /// One pass of the engine.
    fn fused(&self, ctx: &Ctx, dy: &Tensor, needs: [bool; 3]) -> Result<NormGrads> {
        let x = ctx.get(&self.x)?;
        let weight = self.weight.as_ref().map(|w| ctx.get(w)).transpose()?;
        let dy = dy.contiguous()?;
        let grads = NormGrads::uninit(&x, weight.as_ref().map_or(&[self.spec.cols], |w| w.shape()), needs)?;
        if x.numel() == 0 {
            return grads.zeroed();
        }
        let [dx, dweight, dbias] = grads.views();
        let so_far = if needs[0] { ctx.take_sum(0, |t| t.dtype() == x.dtype() && t.is_contiguous()) } else { None };
        let so_far = so_far.as_ref().map(|t| t.engine_view());
        let low = self.low.filter(|_| needs[0]).map(|d| x.uninit_like(x.shape(), d)).transpose()?;
        let lower = low.as_ref().map(|t| t.engine_view());
        let (w, mean, rstd) =
            (weight.as_ref().map(|w| w.engine_view()), self.mean.engine_view(), self.rstd.engine_view());
        let (spec, dy) = (&self.spec, dy.engine_view());
        x.run(call::RowNormBackward {
            spec: *spec,
            dy,
            x: x.engine_view(),
            weight: w,
            mean,
            rstd,
            so_far,
            dx,
            low: lower,
            dweight,
            dbias,
        })?;
        if let (Some(dx), Some(low)) = (&grads.dx, low) {
            dx.keep_lowered(low);
        }
        Ok(grads)
    }

    /// The same as recorded ops.
    fn composed(&self, ctx: &Ctx, dy: &Tensor, needs: [bool; 3]) -> Result<NormGrads> {
        let original = ctx.get(&self.x)?;
        let (shape, dtype, wide) = (original.shape(), original.dtype(), wide(original.dtype()));
        let rows = |t: &Tensor| t.reshape([self.spec.rows, self.spec.cols])?.to_dtype(wide);
        let (x, dy) = (rows(&original)?, rows(dy)?);
        let centred = if self.spec.rms { x } else { x.sub(&x.mean_dims([1], true)?)? };
        let rstd = centred.square()?.mean_dims([1], true)?.add(self.spec.eps)?.rsqrt()?;
        let hat = centred.mul(&rstd)?;
        let weight = self.weight.as_ref().map(|w| ctx.get(w)).transpose()?;
        let affine_shape = Dims::from_slice(weight.as_ref().map_or(&[self.spec.cols], |w| w.shape()));
        let dx = if needs[0] {
            let g = match &weight {
                Some(w) => dy.mul(&w.reshape([self.spec.cols])?.to_dtype(wide)?)?,
                None => dy.clone(),
            };
            let mut d = g.sub(&hat.mul(&g.mul(&hat)?.mean_dims([1], true)?)?)?;
            if !self.spec.rms {
                d = d.sub(&g.mean_dims([1], true)?)?;
            }
            Some(d.mul(&rstd)?.reshape(shape)?.to_dtype(dtype)?)
        } else {
            None
        };
        let columns = |t: &Tensor| t.sum(0)?.reshape(&affine_shape)?.to_dtype(dtype);
        let dweight = if needs[1] { Some(columns(&dy.mul(&hat)?)?) } else { None };
        let dbias = if needs[2] { Some(columns(&dy)?) } else { None };
        Ok(NormGrads { dx, dweight, dbias })
    }
}

/// Rows of `cols` elements normalised, with their means and reciprocal deviations; the means and deviations are not
/// differentiable.
fn row_norm(
    name: &'static str,
    x: &Tensor,
    cols: usize,
    (weight, bias): (Option<&Tensor>, Option<&Tensor>),
    eps: f64,
    rms: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    let x = x.contiguous()?;
    // The kernel sees rows of one dimension. Gradients are reshaped to the shape given here.
    let row = |t: &Tensor| if t.rank() == 1 { t.contiguous() } else { t.reshape([cols])?.contiguous() };
    let (weight, bias) = (weight.map(row).transpose()?, bias.map(row).transpose()?);
    let spec = RowNorm { rows: x.numel() / cols.max(1), cols, eps, rms };
    let y = x.uninit_like(x.shape(), x.dtype())?;
    let (mean, rstd) = (x.uninit_like(&[spec.rows], wide(x.dtype()))?, x.uninit_like(&[spec.rows], wide(x.dtype()))?);
    // In mixed precision a product that reads halves usually follows, so the kernel also writes a half-precision copy
    // if the engine supports it.
    let low = amp::autocast_dtype()
        .filter(|_| x.dtype() == DType::F32 && x.backend().features().wide_outputs && y.numel() > 0);
    if y.numel() > 0 {
        let (w, b) = (weight.as_ref().map(|w| w.engine_view()), bias.as_ref().map(|b| b.engine_view()));
        let copy = low.map(|dtype| y.uninit_like(y.shape(), dtype)).transpose()?;
        let lower = copy.as_ref().map(|t| t.engine_view());
        y.run(call::RowNorm {
            spec,
            x: x.engine_view(),
            weight: w,
            bias: b,
            y: y.engine_view(),
            low: lower,
            mean: mean.engine_view(),
            rstd: rstd.engine_view(),
        })?;
        if let Some(copy) = copy {
            y.keep_lowered(copy);
        }
    }
    let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![&x];
    inputs.extend(weight.as_ref());
    inputs.extend(bias.as_ref());
    if recording(&inputs) {
        let affine = Affine { weight: weight.is_some(), bias: bias.is_some() };
        let backward = RowBackward {
            spec,
            x: Saved::input(&x),
            weight: weight.as_ref().map(Saved::input),
            mean: mean.clone(),
            rstd: rstd.clone(),
            low,
        };
        record(name, &inputs, &y, move |ctx, dy| {
            let needs = affine.needs(ctx);
            let grads =
                if ctx.recording() { backward.composed(ctx, dy, needs)? } else { backward.fused(ctx, dy, needs)? };
            Ok(affine.arrange(grads))
        })?;
    }
    Ok((y, mean, rstd))
}

/// Whether the input is half and the parameters are `f32`; the normalisation then runs in `f32`.
fn mixed(name: &str, x: &Tensor, params: &[(&str, Option<&Tensor>)]) -> Result<bool> {
    let mut mixed = false;
    for (what, t) in params.iter().filter_map(|(what, t)| t.map(|t| (what, t))) {
        x.same_device(t, name)?;
        if t.dtype() == x.dtype() {
            continue;
        }
        if t.dtype() != DType::F32 || !matches!(x.dtype(), DType::F16 | DType::BF16) {
            return Err(Error::dtype(format!(
                "{name}: expected {what} of dtype {} as the input (or float32 for a half input), but got {}",
                x.dtype(),
                t.dtype()
            )));
        }
        mixed = true;
    }
    Ok(mixed)
}

impl Tensor {
    /// Normalises over the last dimensions, of sizes `normalized_shape`, to mean 0 and variance 1; then scales and
    /// shifts. PyTorch's default for `eps` is 1e-5.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let y = Tensor::new([[1.0f32, 3.0]])?.layer_norm(&[2], None, None, 0.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn layer_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        announced!(
            "nn.functional.layer_norm", [self, normalized_shape, weight, bias, eps];
            self.layer_norm(normalized_shape, weight, bias, eps)
        );
        self.row_norm_checked("layer_norm", normalized_shape, weight, bias, eps, false)
    }

    /// Divides by the root mean square over the last dimensions, of sizes `normalized_shape`; then scales.
    /// The default `eps` is the machine epsilon of the compute dtype.
    pub fn rms_norm(&self, normalized_shape: &[usize], weight: Option<&Tensor>, eps: Option<f64>) -> Result<Tensor> {
        announced!(
            "nn.functional.rms_norm", [self, normalized_shape, weight, eps];
            self.rms_norm(normalized_shape, weight, eps)
        );
        let default = if self.dtype().real() == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 };
        self.row_norm_checked("rms_norm", normalized_shape, weight, None, eps.unwrap_or(default), true)
    }

    /// As PyTorch has it: the squares are the numbers', not those of their magnitudes.
    fn complex_rms_norm(&self, dims: usize, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let dims: Vec<isize> = (1..=dims as isize).map(|d| -d).collect();
        let y = self.mul(&self.square()?.mean_dims(dims, true)?.add(eps)?.rsqrt()?)?;
        weight.map_or(Ok(y.clone()), |weight| y.mul(weight))
    }

    fn row_norm_checked(
        &self,
        name: &'static str,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
        rms: bool,
    ) -> Result<Tensor> {
        self.needs_float(name)?;
        if normalized_shape.is_empty() {
            return Err(Error::shape(format!("{name}: expected normalized_shape to be at least 1-dimensional")));
        }
        if !self.shape().ends_with(normalized_shape) {
            return Err(Error::shape(format!(
                "{name}: given normalized_shape={normalized_shape:?}, expected input whose last dimensions are of these sizes, but got input \
                 of size {:?}",
                self.shape()
            )));
        }
        for (what, t) in [("weight", weight), ("bias", bias)] {
            if let Some(t) = t.filter(|t| t.shape() != normalized_shape) {
                return Err(Error::shape(format!(
                    "{name}: expected {what} to be of same shape as normalized_shape, but got {what} of shape {:?} and \
                     normalized_shape = {normalized_shape:?}",
                    t.shape()
                )));
            }
        }
        if rms && self.is_complex() {
            return self.complex_rms_norm(normalized_shape.len(), weight, eps);
        }
        if mixed(name, self, &[("weight", weight), ("bias", bias)])? {
            let widened = |t: Option<&Tensor>| t.map(|t| t.to_dtype(DType::F32)).transpose();
            let (weight, bias) = (widened(weight)?, widened(bias)?);
            let y = self.to_dtype(DType::F32)?.row_norm_checked(
                name,
                normalized_shape,
                weight.as_ref(),
                bias.as_ref(),
                eps,
                rms,
            )?;
            return y.to_dtype(self.dtype());
        }
        let cols = normalized_shape.iter().product();
        Ok(row_norm(name, self, cols, (weight, bias), eps, rms)?.0)
    }

    /// Normalises `[batch, channels, ..]` over each of `num_groups` groups of channels of each image; then scales and
    /// shifts by channel. PyTorch's default for `eps` is 1e-5.
    pub fn group_norm(
        &self,
        num_groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let name = "group_norm";
        announced!(
            "nn.functional.group_norm", [self, num_groups, weight, bias, eps];
            self.group_norm(num_groups, weight, bias, eps)
        );
        self.needs_float(name)?;
        if self.rank() < 2 {
            return Err(Error::shape(format!(
                "{name}: expected at least 2 dimensions for input tensor but received {}",
                self.rank()
            )));
        }
        if num_groups == 0 || !self.shape()[1].is_multiple_of(num_groups) {
            return Err(Error::shape(format!(
                "{name}: expected number of channels in input to be divisible by num_groups, but got input of shape {:?} and \
                 num_groups={num_groups}",
                self.shape()
            )));
        }
        check_per_channel(name, self, &[("weight", weight), ("bias", bias)])?;
        let cols = self.shape()[1] / num_groups * self.shape()[2..].iter().product::<usize>();
        mixed(name, self, &[("weight", weight), ("bias", bias)])?;
        let (y, ..) = row_norm(name, self, cols, (None, None), eps, false)?;
        scale_channels(&y, weight, bias)?.to_dtype(self.dtype())?.in_format_of(self)
    }

    /// Normalises each channel of each image over its positions, and updates running statistics where given; without
    /// `use_input_stats` it normalises by the running statistics instead.
    pub fn instance_norm(&self, options: &super::batch_norm::InstanceNormOptions) -> Result<Tensor> {
        let name = "instance_norm";
        let (weight, bias, eps) = (options.weight, options.bias, options.eps);
        let (mean, var, batch, momentum) =
            (options.running_mean, options.running_var, options.use_input_stats, options.momentum);
        announced!(
            "nn.functional.instance_norm", [self, mean, var, weight, bias, batch, momentum, eps];
            self.instance_norm(options)
        );
        self.needs_float(name)?;
        if self.rank() < 3 {
            return Err(Error::shape(format!(
                "{name}: expected an input of at least 3 dimensions, got shape {:?}",
                self.shape()
            )));
        }
        if !options.use_input_stats {
            return self.batch_norm(&options.running());
        }
        let (batch, channels) = (self.shape()[0], self.shape()[1]);
        let positions: usize = self.shape()[2..].iter().product();
        if positions == 1 {
            return Err(Error::value(format!(
                "{name}: expected more than 1 spatial element when training, got input size {:?}",
                self.shape()
            )));
        }
        let statistics = [("running_mean", options.running_mean), ("running_var", options.running_var)];
        check_per_channel(name, self, &[("weight", weight), ("bias", bias)])?;
        check_per_channel(name, self, &statistics)?;
        mixed(name, self, &[("weight", weight), ("bias", bias)])?;
        let (y, mean, rstd) = row_norm(name, self, positions, (None, None), eps, false)?;
        if self.numel() > 0 {
            no_grad(|| -> Result<()> {
                let over_batch = |t: &Tensor| t.reshape([batch, channels])?.mean_dims([0], true)?.reshape([channels]);
                if let Some(running) = options.running_mean {
                    running.lerp_(&over_batch(&mean)?, options.momentum)?;
                }
                if let Some(running) = options.running_var {
                    let var = unbiased_variance(&rstd, eps, positions)?;
                    running.lerp_(&over_batch(&var)?, options.momentum)?;
                }
                Ok(())
            })?;
        }
        scale_channels(&y, weight, bias)?.to_dtype(self.dtype())
    }

    /// Divided by its `p`-norm along `dim`, or by `eps` where that is larger. PyTorch's defaults are 2, 1 and 1e-12.
    pub fn normalize(&self, p: f64, dim: isize, eps: f64) -> Result<Tensor> {
        self.needs_float("normalize")?;
        let length = self.norm_dims(p, [dim], true)?;
        self.div(&length.clamp_min(eps)?)
    }
}

/// The unbiased variance of `count` values from the saved values of a normalisation.
pub(crate) fn unbiased_variance(rstd: &Tensor, eps: f64, count: usize) -> Result<Tensor> {
    let scale = count as f64 / count.saturating_sub(1).max(1) as f64;
    rstd.square()?.reciprocal()?.sub(eps)?.clamp_min(0.0)?.mul(scale)
}

/// Every parameter has one element per channel (dimension 1) of `x`.
pub(crate) fn check_per_channel(name: &str, x: &Tensor, params: &[(&str, Option<&Tensor>)]) -> Result<()> {
    let channels = x.shape()[1];
    for (what, t) in params {
        if let Some(t) = t.filter(|t| t.shape() != [channels]) {
            return Err(Error::shape(format!(
                "{name}: {what} should contain {channels} elements, one per channel, not shape {:?}",
                t.shape()
            )));
        }
    }
    Ok(())
}

/// `y * weight + bias` by channel (dimension 1), in one pass.
fn scale_channels(y: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    let mut shape: Dims = smallvec![1; y.rank() - 1];
    shape[0] = y.shape()[1];
    let per_channel = |t: &Tensor| t.reshape(&shape);
    match (weight, bias) {
        (None, None) => Ok(y.clone()),
        (Some(w), None) => y.mul(&per_channel(w)?),
        (None, Some(b)) => y.add(&per_channel(b)?),
        (Some(w), Some(b)) => per_channel(b)?.addcmul(y, &per_channel(w)?, 1.0),
    }
}
