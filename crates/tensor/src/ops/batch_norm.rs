//! Batch normalisation.

use super::norm::{Affine, NormGrads, check_per_channel, unbiased_variance, wide};
use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{Ctx, Saved, no_grad, record_masked, recording};
use rushlight_core::backend::{BatchNorm, call};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Error, Layout, Result, setters};

/// The arguments of [`Tensor::batch_norm`] besides the input.
#[derive(Clone, Copy)]
pub struct BatchNormOptions<'a> {
    running_mean: Option<&'a Tensor>,
    running_var: Option<&'a Tensor>,
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
}

impl Default for BatchNormOptions<'_> {
    fn default() -> Self {
        Self {
            running_mean: None,
            running_var: None,
            weight: None,
            bias: None,
            training: false,
            momentum: 0.1,
            eps: 1e-5,
        }
    }
}

impl<'a> BatchNormOptions<'a> {
    setters! {
        /// The running mean: read in evaluation, updated in place in training.
        running_mean: into Option<&'a Tensor>;
        /// The running variance (unbiased): read in evaluation, updated in place in training.
        running_var: into Option<&'a Tensor>;
        /// Scale by channel.
        weight: into Option<&'a Tensor>;
        /// Shift by channel.
        bias: into Option<&'a Tensor>;
        /// Whether statistics come from the batch; `false` by default.
        training: bool;
        /// The weight of the batch's statistics in the running ones; 0.1 by default.
        momentum: f64;
        /// Added to the variance; 1e-5 by default.
        eps: f64;
    }
}

/// The arguments of [`Tensor::instance_norm`] besides the input.
#[derive(Clone, Copy)]
pub struct InstanceNormOptions<'a> {
    pub(crate) running_mean: Option<&'a Tensor>,
    pub(crate) running_var: Option<&'a Tensor>,
    pub(crate) weight: Option<&'a Tensor>,
    pub(crate) bias: Option<&'a Tensor>,
    pub(crate) use_input_stats: bool,
    pub(crate) momentum: f64,
    pub(crate) eps: f64,
}

impl Default for InstanceNormOptions<'_> {
    fn default() -> Self {
        Self {
            running_mean: None,
            running_var: None,
            weight: None,
            bias: None,
            use_input_stats: true,
            momentum: 0.1,
            eps: 1e-5,
        }
    }
}

impl<'a> InstanceNormOptions<'a> {
    setters! {
        /// The running mean, updated in place from the input's statistics.
        running_mean: into Option<&'a Tensor>;
        /// The running variance (unbiased), updated in place from the input's statistics.
        running_var: into Option<&'a Tensor>;
        /// Scale by channel.
        weight: into Option<&'a Tensor>;
        /// Shift by channel.
        bias: into Option<&'a Tensor>;
        /// Whether statistics come from the input; `true` by default.
        use_input_stats: bool;
        /// The weight of the input's statistics in the running ones; 0.1 by default.
        momentum: f64;
        /// Added to the variance; 1e-5 by default.
        eps: f64;
    }

    /// Normalisation by running statistics, which is batch norm's in evaluation.
    pub(crate) fn running(&self) -> BatchNormOptions<'a> {
        BatchNormOptions {
            running_mean: self.running_mean,
            running_var: self.running_var,
            weight: self.weight,
            bias: self.bias,
            training: false,
            momentum: self.momentum,
            eps: self.eps,
        }
    }
}

/// The sizes and the layout as an engine meets them: with channels innermost every position is an image.
fn in_memory(spec: BatchNorm, x: &Tensor) -> Result<(BatchNorm, Layout)> {
    if x.is_contiguous() {
        return Ok((spec, x.layout().clone()));
    }
    let rows = spec.batch * spec.space;
    let layout = Layout::contiguous(&[rows, spec.channels])?.with_offset(x.layout().offset());
    Ok((BatchNorm { batch: rows, space: 1, ..spec }, layout))
}

/// The elements in an order that engines read: row-major, or channels last if `x` has that order.
fn readable(x: &Tensor, channels_last: bool) -> Result<Tensor> {
    if channels_last { x.to_channels_last() } else { x.contiguous() }
}

/// Moves running statistics towards a batch's.
fn update_running(
    spec: &BatchNorm,
    running: [Option<&Tensor>; 2],
    momentum: f64,
    mean: &Tensor,
    rstd: &Tensor,
) -> Result<()> {
    if let [Some(to_mean), Some(to_var)] = running {
        let fits = |t: &Tensor| t.dtype() == mean.dtype() && t.is_contiguous();
        if fits(to_mean) && fits(to_var) && !to_mean.shares_storage(to_var) {
            mean.run(call::BatchNormRunning {
                spec: *spec,
                momentum,
                mean: mean.engine_view(),
                rstd: rstd.engine_view(),
                running_mean: to_mean.engine_view(),
                running_var: to_var.engine_view(),
            })?;
            to_mean.changed_unrecorded();
            to_var.changed_unrecorded();
            return Ok(());
        }
    }
    if let Some(running) = running[0] {
        running.lerp_(mean, momentum)?;
    }
    if let Some(running) = running[1] {
        running.lerp_(&unbiased_variance(rstd, spec.eps, spec.batch * spec.space)?, momentum)?;
    }
    Ok(())
}

/// Saved values of a batch normalisation's backward.
struct Backward {
    spec: BatchNorm,
    /// The dtype of weight and bias.
    affine: DType,
    x: Saved,
    weight: Option<Saved>,
    mean: Tensor,
    rstd: Tensor,
    /// The bias and its version, for gradients of a ReLU that follows.
    bias: Option<(Tensor, u32)>,
}

impl Backward {
    /// Gradients from the output's gradient, or from the gradient of a following ReLU if `ctx.mask` holds its output.
    fn run(&self, ctx: &Ctx, dy: &Tensor, needs: [bool; 3]) -> Result<NormGrads> {
        let unchanged = self.bias.as_ref().is_none_or(|(bias, version)| bias.version() == *version);
        match ctx.mask {
            Some(_) if unchanged => self.fused(ctx, dy, needs, true),
            Some(positive) => self.fused(ctx, &super::compare::where_(&positive.gt(0.0)?, dy, 0.0)?, needs, false),
            None => self.fused(ctx, dy, needs, false),
        }
    }

    /// One pass of the engine.
    fn fused(&self, ctx: &Ctx, dy: &Tensor, needs: [bool; 3], relu: bool) -> Result<NormGrads> {
        let x = ctx.get(&self.x)?;
        let weight = self.weight.as_ref().map(|w| ctx.get(w)).transpose()?;
        let dy = readable(dy, !x.is_contiguous())?;
        let per_channel = |wanted: bool| wanted.then(|| x.uninit_like(&[self.spec.channels], self.affine)).transpose();
        let dx = if needs[0] { Some(x.uninit_preserving(x.dtype())?) } else { None };
        let grads = NormGrads { dx, dweight: per_channel(needs[1])?, dbias: per_channel(needs[2])? };
        if x.numel() == 0 {
            return grads.zeroed();
        }
        let [dx, dweight, dbias] = grads.views();
        let (spec, layout) = in_memory(self.spec, &x)?;
        let (dy_layout, dx_layout) = (layout.clone().with_offset(dy.layout().offset()), layout.clone().with_offset(0));
        let dx = dx.map(|dx| dx.with_layout(&dx_layout)).transpose()?;
        let (w, mean, rstd) =
            (weight.as_ref().map(|w| w.engine_view()), self.mean.engine_view(), self.rstd.engine_view());
        x.run(call::BatchNormBackward {
            spec,
            relu,
            dy: dy.view_as(&dy_layout),
            x: x.view_as(&layout),
            weight: w,
            bias: self.bias.as_ref().filter(|_| relu).map(|(bias, _)| bias.engine_view()),
            mean,
            rstd,
            dx,
            dweight,
            dbias,
        })?;
        Ok(grads)
    }

    /// The same as recorded ops.
    fn composed(&self, ctx: &Ctx, dy: &Tensor, needs: [bool; 3]) -> Result<NormGrads> {
        const OVER: [isize; 2] = [0, 2];
        let original = ctx.get(&self.x)?;
        let (shape, dtype, wide) = (original.shape(), original.dtype(), wide(original.dtype()));
        let spread = |t: &Tensor| t.reshape([self.spec.batch, self.spec.channels, self.spec.space])?.to_dtype(wide);
        let per_channel = |t: &Tensor| t.reshape([self.spec.channels, 1])?.to_dtype(wide);
        let (x, dy) = (spread(&original)?, spread(dy)?);
        let (centred, rstd) = if self.spec.training {
            let centred = x.sub(&x.mean_dims(OVER, true)?)?;
            let rstd = centred.square()?.mean_dims(OVER, true)?.add(self.spec.eps)?.rsqrt()?;
            (centred, rstd)
        } else {
            (x.sub(&per_channel(&self.mean)?)?, per_channel(&self.rstd)?)
        };
        let hat = centred.mul(&rstd)?;
        let dx = if needs[0] {
            let mut g = dy.clone();
            if let Some(w) = &self.weight {
                g = g.mul(&per_channel(&ctx.get(w)?)?)?;
            }
            if self.spec.training {
                let slope = g.mul(&hat)?.mean_dims(OVER, true)?;
                g = g.sub(&g.mean_dims(OVER, true)?)?.sub(&hat.mul(&slope)?)?;
            }
            Some(g.mul(&rstd)?.reshape(shape)?.to_dtype(dtype)?)
        } else {
            None
        };
        let channels = |t: &Tensor| t.sum(OVER)?.to_dtype(self.affine);
        let dweight = if needs[1] { Some(channels(&dy.mul(&hat)?)?) } else { None };
        let dbias = if needs[2] { Some(channels(&dy)?) } else { None };
        Ok(NormGrads { dx, dweight, dbias })
    }
}

impl Tensor {
    /// Normalises each channel (dimension 1) by the mean and variance of the batch, in training, or the running ones.
    ///
    /// In training, running statistics are updated in place.
    ///
    /// ```
    /// # use rushlight_tensor::{BatchNormOptions, Tensor};
    /// let x = Tensor::new([[1.0f32], [3.0]])?;
    /// let y = x.batch_norm(&BatchNormOptions::default().training(true).eps(0.0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn batch_norm(&self, options: &BatchNormOptions) -> Result<Tensor> {
        let name = "batch_norm";
        let &BatchNormOptions { running_mean, running_var, weight, bias, training, momentum, eps } = options;
        announced!(
            "nn.functional.batch_norm", [self, running_mean, running_var, weight, bias, training, momentum, eps];
            self.batch_norm(options)
        );
        self.needs_float(name)?;
        if self.rank() < 2 {
            return Err(Error::shape(format!(
                "{name}: expected an input of at least 2 dimensions, got shape {:?}",
                self.shape()
            )));
        }
        let (batch, channels) = (self.shape()[0], self.shape()[1]);
        let space: usize = self.shape()[2..].iter().product();
        if training && batch * space == 1 {
            return Err(Error::value(format!(
                "{name}: expected more than 1 value per channel when training, got input size {:?}",
                self.shape()
            )));
        }
        let statistics = [("running_mean", running_mean), ("running_var", running_var)];
        let parameters = [("weight", weight), ("bias", bias)];
        check_per_channel(name, self, &statistics)?;
        check_per_channel(name, self, &parameters)?;
        let stat = wide(self.dtype());
        for (what, t) in statistics.iter().chain(&parameters) {
            let Some(t) = t else { continue };
            self.same_device(t, name)?;
            if t.dtype() != self.dtype() && t.dtype() != stat {
                return Err(Error::dtype(format!(
                    "{name}: expected {what} of dtype {} as the input, but got {}",
                    self.dtype(),
                    t.dtype()
                )));
            }
        }
        let x = readable(self, self.suggests_channels_last())?;
        // Parameters of a half input may be f32; engines that do not take them so get them in the input's dtype.
        let alike = [weight, bias].iter().flatten().all(|t| t.dtype() == stat);
        let per_channel = if alike && x.backend().features().wide_batch_norm_parameters { stat } else { x.dtype() };
        let own = |t: Option<&Tensor>| t.map(|t| t.to_dtype(per_channel)?.contiguous()).transpose();
        let (weight, bias) = (own(weight)?, own(bias)?);
        let (mean, rstd) = if training {
            (x.uninit_like(&[channels], stat)?, x.uninit_like(&[channels], stat)?)
        } else {
            let (Some(mean), Some(var)) = (running_mean, running_var) else {
                return Err(Error::value(format!(
                    "{name}: running_mean and running_var must be defined in evaluation mode"
                )));
            };
            no_grad(|| -> Result<_> {
                Ok((mean.to_dtype(stat)?.contiguous()?, var.to_dtype(stat)?.add(eps)?.rsqrt()?.contiguous()?))
            })?
        };
        let spec = BatchNorm { batch, channels, space, eps, training };
        let y = x.uninit_preserving(x.dtype())?;
        if y.numel() > 0 {
            let (w, b) = (weight.as_ref().map(|w| w.engine_view()), bias.as_ref().map(|b| b.engine_view()));
            let (spec, layout) = in_memory(spec, &x)?;
            let y_layout = layout.clone().with_offset(0);
            let (from, to) = (x.view_as(&layout), y.view_as(&y_layout));
            y.run(call::BatchNorm {
                spec,
                x: from,
                weight: w,
                bias: b,
                y: to,
                mean: mean.engine_view(),
                rstd: rstd.engine_view(),
            })?;
            if training {
                no_grad(|| update_running(&spec, [running_mean, running_var], momentum, &mean, &rstd))?;
            }
        }
        let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![&x];
        inputs.extend(weight.as_ref());
        inputs.extend(bias.as_ref());
        if recording(&inputs) {
            let affine = Affine { weight: weight.is_some(), bias: bias.is_some() };
            // The statistics of an evaluation may change in place before backward: they are kept as copies.
            let kept = |t: &Tensor| if training { Ok(t.clone()) } else { no_grad(|| t.copy()) };
            let backward = Backward {
                spec,
                affine: per_channel,
                x: Saved::input(&x),
                weight: weight.as_ref().map(Saved::input),
                mean: kept(&mean)?,
                rstd: rstd.clone(),
                bias: bias.as_ref().map(|b| (b.clone(), b.version())),
            };
            let takes_mask = x.backend().features().batch_norm_relu;
            record_masked(takes_mask, name, &inputs, &y, move |ctx, dy| {
                let needs = affine.needs(ctx);
                let grads =
                    if ctx.recording() { backward.composed(ctx, dy, needs)? } else { backward.run(ctx, dy, needs)? };
                Ok(affine.arrange(grads))
            })?;
        }
        Ok(y)
    }
}
