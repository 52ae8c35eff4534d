//! Convolution, pooling, normalisation, attention and interpolation.

use crate::support::args::Args;
use rushlight_core::{Error, Result};
use rushlight_tensor::{
    AttentionOptions, AvgPool, BatchNormOptions, ConvOptions, ConvTransposeOptions, InstanceNormOptions,
    InterpolateMode, InterpolateOptions, MaxPool, OutputSize, Padding, Sizes, Tensor,
};

/// Sizes of a window argument, if given.
fn sizes(a: &Args, at: usize, name: &str) -> Result<Option<Sizes>> {
    if a.has(at, name) { Ok(Some(a.sizes(at, name)?.as_slice().into())) } else { Ok(None) }
}

fn conv(a: &Args) -> Result<ConvOptions> {
    let mut options = ConvOptions::default().groups(a.size(6, "groups", 1)?);
    if let Some(stride) = sizes(a, 3, "stride")? {
        options = options.stride(stride);
    }
    if let Some(dilation) = sizes(a, 5, "dilation")? {
        options = options.dilation(dilation);
    }
    match a.text(4, "padding") {
        Some("same") => Ok(options.padding(Padding::Same)),
        Some("valid") => Ok(options.padding(Padding::Valid)),
        Some(other) => Err(Error::value(format!("padding {other}"))),
        None => Ok(match sizes(a, 4, "padding")? {
            Some(padding) => options.padding(padding),
            None => options,
        }),
    }
}

fn transposed(a: &Args) -> Result<ConvTransposeOptions> {
    let mut options = ConvTransposeOptions::default().groups(a.size(6, "groups", 1)?);
    if let Some(stride) = sizes(a, 3, "stride")? {
        options = options.stride(stride);
    }
    if let Some(padding) = sizes(a, 4, "padding")? {
        options = options.padding(padding);
    }
    if let Some(padding) = sizes(a, 5, "output_padding")? {
        options = options.output_padding(padding);
    }
    Ok(match sizes(a, 7, "dilation")? {
        Some(dilation) => options.dilation(dilation),
        None => options,
    })
}

fn max_window(a: &Args) -> Result<MaxPool> {
    let kernel = sizes(a, 1, "kernel_size")?.ok_or_else(|| Error::value("no kernel"))?;
    let mut window = MaxPool::new(kernel).ceil_mode(a.flag(5, "ceil_mode", false)?);
    if let Some(stride) = sizes(a, 2, "stride")? {
        window = window.stride(stride);
    }
    if let Some(padding) = sizes(a, 3, "padding")? {
        window = window.padding(padding);
    }
    Ok(match sizes(a, 4, "dilation")? {
        Some(dilation) => window.dilation(dilation),
        None => window,
    })
}

fn avg_window(a: &Args) -> Result<AvgPool> {
    let kernel = sizes(a, 1, "kernel_size")?.ok_or_else(|| Error::value("no kernel"))?;
    let mut window = AvgPool::new(kernel).ceil_mode(a.flag(4, "ceil_mode", false)?);
    window = window.count_include_pad(a.flag(5, "count_include_pad", true)?);
    if let Some(stride) = sizes(a, 2, "stride")? {
        window = window.stride(stride);
    }
    if let Some(padding) = sizes(a, 3, "padding")? {
        window = window.padding(padding);
    }
    Ok(match a.has(6, "divisor_override") {
        true => window.divisor_override(a.size(6, "divisor_override", 1)?),
        false => window,
    })
}

type Plain<W> = fn(&Tensor, W) -> Result<Tensor>;
type Indexed<W> = fn(&Tensor, W) -> Result<(Tensor, Tensor)>;

/// Pooling that gives indices too if asked.
fn pooled<W>(a: &Args, window: W, plain: Plain<W>, indexed: Indexed<W>) -> Result<Vec<Tensor>> {
    match a.flag(usize::MAX, "return_indices", false)? {
        true => indexed(a.t(0)?, window).map(|(y, indices)| vec![y, indices]),
        false => Ok(vec![plain(a.t(0)?, window)?]),
    }
}

fn output_size(a: &Args) -> Result<OutputSize> {
    Ok(a.holes(1, "output_size")?.as_slice().into())
}

fn batch_norm(a: &Args) -> Result<Vec<Tensor>> {
    let training = a.flag(5, "training", false)?;
    // The running statistics are changed in place: on copies, as a case may be run more than once.
    let copy = |t: Option<&Tensor>| t.map(|t| t.copy()).transpose();
    let (mean, var) = (copy(a.opt(1, "running_mean"))?, copy(a.opt(2, "running_var"))?);
    let options = BatchNormOptions::default()
        .running_mean(mean.as_ref())
        .running_var(var.as_ref())
        .weight(a.opt(3, "weight"))
        .bias(a.opt(4, "bias"))
        .training(training)
        .momentum(a.f64(6, "momentum", 0.1)?)
        .eps(a.f64(7, "eps", 1e-5)?);
    let mut out = vec![a.t(0)?.batch_norm(&options)?];
    if training {
        out.extend(mean.into_iter().chain(var));
    }
    Ok(out)
}

fn instance_norm(a: &Args) -> Result<Tensor> {
    let options = InstanceNormOptions::default()
        .running_mean(a.opt(1, "running_mean"))
        .running_var(a.opt(2, "running_var"))
        .weight(a.opt(3, "weight"))
        .bias(a.opt(4, "bias"))
        .use_input_stats(a.flag(5, "use_input_stats", true)?)
        .momentum(a.f64(6, "momentum", 0.1)?)
        .eps(a.f64(7, "eps", 1e-5)?);
    a.t(0)?.instance_norm(&options)
}

fn attention(a: &Args) -> Result<Tensor> {
    let options = AttentionOptions::default()
        .attn_mask(a.opt(3, "attn_mask"))
        .dropout_p(a.f64(4, "dropout_p", 0.0)?)
        .is_causal(a.flag(5, "is_causal", false)?)
        .scale(a.opt_f64(6, "scale")?)
        .enable_gqa(a.flag(7, "enable_gqa", false)?);
    a.t(0)?.scaled_dot_product_attention(a.t(1)?, a.t(2)?, &options)
}

fn interpolate(a: &Args) -> Result<Tensor> {
    let options = match sizes(a, 1, "size")? {
        Some(size) => InterpolateOptions::size(size),
        None => InterpolateOptions::scale_factor(a.floats(2, "scale_factor")?),
    };
    let mode = match a.text(3, "mode") {
        None | Some("nearest") => InterpolateMode::Nearest,
        Some("nearest-exact") => InterpolateMode::NearestExact,
        Some("linear") => InterpolateMode::Linear,
        Some("bilinear") => InterpolateMode::Bilinear,
        Some(other) => return Err(Error::value(format!("interpolate: {other}"))),
    };
    let align = if a.has(4, "align_corners") { Some(a.flag(4, "align_corners", false)?) } else { None };
    let recompute = a.flag(5, "recompute_scale_factor", false)?;
    a.t(0)?.interpolate(&options.mode(mode).align_corners(align).recompute_scale_factor(recompute))
}

/// Softmax and its kin, with the dtype to compute in.
macro_rules! softmax {
    ($a:ident $plain:ident $with:ident) => {
        match $a.dtype("dtype")? {
            Some(dtype) => $a.t(0)?.$with($a.dim(1, "dim", -1)?, dtype),
            None => $a.t(0)?.$plain($a.dim(1, "dim", -1)?),
        }
    };
}

super::ops! {
    "conv1d" => |a| a.t(0)?.conv1d(a.t(1)?, a.opt(2, "bias"), conv(a)?);
    "conv2d" => |a| a.t(0)?.conv2d(a.t(1)?, a.opt(2, "bias"), conv(a)?);
    "conv3d" => |a| a.t(0)?.conv3d(a.t(1)?, a.opt(2, "bias"), conv(a)?);
    "conv_transpose1d" => |a| a.t(0)?.conv_transpose1d(a.t(1)?, a.opt(2, "bias"), transposed(a)?);
    "conv_transpose2d" => |a| a.t(0)?.conv_transpose2d(a.t(1)?, a.opt(2, "bias"), transposed(a)?);
    "conv_transpose3d" => |a| a.t(0)?.conv_transpose3d(a.t(1)?, a.opt(2, "bias"), transposed(a)?);
    "max_pool1d" => |a| pooled(a, max_window(a)?, |x, w| x.max_pool1d(w), |x, w| x.max_pool1d_with_indices(w));
    "max_pool2d" => |a| pooled(a, max_window(a)?, |x, w| x.max_pool2d(w), |x, w| x.max_pool2d_with_indices(w));
    "avg_pool1d" => |a| a.t(0)?.avg_pool1d(avg_window(a)?);
    "avg_pool2d" => |a| a.t(0)?.avg_pool2d(avg_window(a)?);
    "adaptive_avg_pool1d" => |a| a.t(0)?.adaptive_avg_pool1d(output_size(a)?);
    "adaptive_avg_pool2d" => |a| a.t(0)?.adaptive_avg_pool2d(output_size(a)?);
    "adaptive_max_pool1d" => |a| {
        pooled(a, output_size(a)?, |x, s| x.adaptive_max_pool1d(s), |x, s| x.adaptive_max_pool1d_with_indices(s))
    };
    "adaptive_max_pool2d" => |a| {
        pooled(a, output_size(a)?, |x, s| x.adaptive_max_pool2d(s), |x, s| x.adaptive_max_pool2d_with_indices(s))
    };
    "softmax" => |a| softmax!(a softmax softmax_with);
    "log_softmax" => |a| softmax!(a log_softmax log_softmax_with);
    "softmin" => |a| softmax!(a softmin softmin_with);
    "layer_norm" => |a| {
        a.t(0)?.layer_norm(&a.sizes(1, "normalized_shape")?, a.opt(2, "weight"), a.opt(3, "bias"), a.f64(4, "eps", 1e-5)?)
    };
    "rms_norm" => |a| a.t(0)?.rms_norm(&a.sizes(1, "normalized_shape")?, a.opt(2, "weight"), a.opt_f64(3, "eps")?);
    "batch_norm" => |a| batch_norm(a);
    "group_norm" => |a| a.t(0)?.group_norm(a.size(1, "num_groups", 1)?, a.opt(2, "weight"), a.opt(3, "bias"), a.f64(4, "eps", 1e-5)?);
    "instance_norm" => |a| instance_norm(a);
    "normalize" => |a| a.t(0)?.normalize(a.f64(1, "p", 2.0)?, a.dim(2, "dim", 1)?, a.f64(3, "eps", 1e-12)?);
    "cosine_similarity" => |a| a.t(0)?.cosine_similarity(a.t(1)?, a.dim(2, "dim", 1)?, a.f64(3, "eps", 1e-8)?);
    "cdist" => |a| a.t(0)?.cdist(a.t(1)?, a.f64(2, "p", 2.0)?);
    "scaled_dot_product_attention" => |a| attention(a);
    "interpolate" => |a| interpolate(a);
}
