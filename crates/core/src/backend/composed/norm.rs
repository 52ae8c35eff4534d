//! Normalisation of rows and of channels.
//!
//! Both are one computation; the dimensions that statistics reduce and that parameters run along differ.

use super::array::{Array, apply};
use super::execute;
use crate::backend::{View, call};
use crate::{Pointwise, Result};

/// `(x - mean) * rstd`, or `x * rstd` without a mean.
fn normalised(x: &Array, mean: Option<&Array>, rstd: &Array) -> Result<Array<'static>> {
    match mean {
        Some(mean) => x.sub(mean)?.mul(rstd),
        None => x.mul(rstd),
    }
}

/// `1 / sqrt(mean(centred^2) + eps)` over some dimensions.
fn reciprocal_deviation(centred: &Array, over: &[usize], eps: f64) -> Result<Array<'static>> {
    centred.square()?.mean(over)?.add(eps)?.rsqrt()
}

/// `hat * weight + bias`, with parameters reshaped to broadcast, written to the outputs.
fn affine(hat: Array, [weight, bias]: [Option<View>; 2], shape: &[usize], outputs: &[&Array]) -> Result<()> {
    let mut y = hat;
    if let Some(weight) = weight {
        y = y.mul(&Array::dense(weight, shape)?)?;
    }
    if let Some(bias) = bias {
        y = y.add(&Array::dense(bias, shape)?)?;
    }
    outputs.iter().try_for_each(|out| y.copy_to(out))
}

/// The gradient of normalised elements from the gradient `g` of the result. Where statistics are part of the
/// computation, it loses its component along `hat` and, with `centred`, its mean.
fn gradient(g: Array, hat: &Array, rstd: &Array, over: Option<&[usize]>, centred: bool) -> Result<Array<'static>> {
    let Some(over) = over else { return g.mul(rstd) };
    let mut d = g.sub(&hat.mul(&g.mul(hat)?.mean(over)?)?)?;
    if centred {
        d = d.sub(&g.mean(over)?)?;
    }
    d.mul(rstd)
}

/// Default body of [`RowNorm`](call::RowNorm).
pub fn row_norm(c: &call::RowNorm<View>) -> Result<()> {
    let call::RowNorm { ref spec, x, weight, bias, y, low, mean, rstd } = *c;
    let (whole, column) = ([spec.rows, spec.cols], [spec.rows, 1]);
    let (x, y) = (Array::dense(x, &whole)?.wide()?, Array::dense(y, &whole)?);
    let low = low.map(|low| Array::dense(low, &whole)).transpose()?;
    let centre = if spec.rms { None } else { Some(x.mean(&[1])?) };
    let centred = match &centre {
        Some(centre) => x.sub(centre)?,
        None => x.clone(),
    };
    let scale = reciprocal_deviation(&centred, &[1], spec.eps)?;
    if let Some(centre) = centre {
        centre.copy_to(&Array::dense(mean, &column)?)?;
    }
    scale.copy_to(&Array::dense(rstd, &column)?)?;
    let outputs: Vec<&Array> = [Some(&y), low.as_ref()].into_iter().flatten().collect();
    affine(centred.mul(&scale)?, [weight, bias], &[spec.cols], &outputs)
}

/// Default body of [`RowNormBackward`](call::RowNormBackward).
pub fn row_norm_backward(c: &call::RowNormBackward<View>) -> Result<()> {
    let call::RowNormBackward { ref spec, dy, x, weight, mean, rstd, so_far, dx, low, dweight, dbias } = *c;
    let (whole, column) = ([spec.rows, spec.cols], [spec.rows, 1]);
    let (x, dy) = (Array::dense(x, &whole)?.wide()?, Array::dense(dy, &whole)?.wide()?);
    let mean = if spec.rms { None } else { Some(Array::dense(mean, &column)?) };
    let rstd = Array::dense(rstd, &column)?;
    let hat = normalised(&x, mean.as_ref(), &rstd)?;
    if dx.is_some() || low.is_some() {
        let g = match weight {
            Some(weight) => dy.mul(&Array::dense(weight, &[spec.cols])?)?,
            None => dy.clone(),
        };
        let mut d = gradient(g, &hat, &rstd, Some(&[1]), !spec.rms)?;
        if let Some(so_far) = so_far {
            d = d.add(&Array::dense(so_far, &whole)?)?;
        }
        for out in [dx, low].into_iter().flatten() {
            d.copy_to(&Array::dense(out, &whole)?)?;
        }
    }
    parameter_gradients(&dy, &hat, &[0], [dweight, dbias], &[1, spec.cols])
}

/// Sums of `dy * hat` and of `dy`, over everything but the parameters' dimension.
fn parameter_gradients(
    dy: &Array,
    hat: &Array,
    over: &[usize],
    [dweight, dbias]: [Option<View>; 2],
    shape: &[usize],
) -> Result<()> {
    if let Some(dweight) = dweight {
        dy.mul(hat)?.sum(over)?.copy_to(&Array::dense(dweight, shape)?)?;
    }
    if let Some(dbias) = dbias {
        dy.sum(over)?.copy_to(&Array::dense(dbias, shape)?)?;
    }
    Ok(())
}

/// The dimensions that batch norm's statistics reduce.
const OVER: [usize; 2] = [0, 2];

/// Default body of [`BatchNorm`](call::BatchNorm).
pub fn batch_norm(c: &call::BatchNorm<View>) -> Result<()> {
    let call::BatchNorm { ref spec, x, weight, bias, y, mean, rstd } = *c;
    let (whole, channels) = ([spec.batch, spec.channels, spec.space], [1, spec.channels, 1]);
    let (x, y) = (Array::dense(x, &whole)?.wide()?, Array::dense(y, &whole)?);
    let (mean, rstd) = (Array::dense(mean, &channels)?, Array::dense(rstd, &channels)?);
    if spec.training {
        let centre = x.mean(&OVER)?;
        centre.copy_to(&mean)?;
        reciprocal_deviation(&x.sub(&centre)?, &OVER, spec.eps)?.copy_to(&rstd)?;
    }
    let hat = normalised(&x, Some(&mean), &rstd)?;
    affine(hat, [weight, bias], &channels, &[&y])
}

/// Default body of [`BatchNormBackward`](call::BatchNormBackward).
pub fn batch_norm_backward(c: &call::BatchNormBackward<View>) -> Result<()> {
    let call::BatchNormBackward { ref spec, relu, dy, x, weight, bias, mean, rstd, dx, dweight, dbias } = *c;
    let (whole, channels) = ([spec.batch, spec.channels, spec.space], [1, spec.channels, 1]);
    let (x, dy) = (Array::dense(x, &whole)?.wide()?, Array::dense(dy, &whole)?.wide()?);
    let (mean, rstd) = (Array::dense(mean, &channels)?, Array::dense(rstd, &channels)?);
    let hat = normalised(&x, Some(&mean), &rstd)?;
    if relu {
        let y = hat.uninit(&whole, hat.dtype())?;
        affine(hat, [weight, bias], &channels, &[&y])?;
        let masked = y.gt(0.0)?.choose(&dy, 0.0, c.dy.dtype())?;
        return execute(call::BatchNormBackward { relu: false, dy: masked.view(), ..*c });
    }
    if let Some(dx) = dx {
        let g = match weight {
            Some(weight) => dy.mul(&Array::dense(weight, &channels)?)?,
            None => dy.clone(),
        };
        let over = spec.training.then_some(&OVER[..]);
        gradient(g, &hat, &rstd, over, true)?.copy_to(&Array::dense(dx, &whole)?)?;
    }
    parameter_gradients(&dy, &hat, &OVER, [dweight, dbias], &channels)
}

/// Default body of [`BatchNormRunning`](call::BatchNormRunning).
pub fn batch_norm_running(c: &call::BatchNormRunning<View>) -> Result<()> {
    let count = c.spec.batch * c.spec.space;
    let unbiased = count as f64 / count.saturating_sub(1).max(1) as f64;
    // The variance from the reciprocal deviation, then unbiased.
    let variance = Array::of(c.rstd).square()?.reciprocal()?.sub(c.spec.eps)?.mul(unbiased)?;
    for (running, now) in [(c.running_mean, &Array::of(c.mean)), (c.running_var, &variance)] {
        let running = Array::of(running);
        apply(Pointwise::Lerp, &[(&running).into(), now.into(), c.momentum.into()], &running)?;
    }
    Ok(())
}
