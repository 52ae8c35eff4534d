//! `torch.nn.functional`: products, convolutions, pooling, normalisation, resizing, attention.

use super::integers;
use crate::value::{Out, Sizes, Value, size, sizes};
use crate::{error, rows};
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::{
    AttentionOptions, AvgPool, BatchNormOptions, ConvOptions, ConvTransposeOptions, InstanceNormOptions,
    InterpolateMode, InterpolateOptions, MaxPool, OutputSize, PadMode, Padding, Tensor,
};

fn spatial(values: &[i64]) -> Result<rushlight_tensor::Sizes> {
    Ok(rushlight_tensor::Sizes::from(&sizes(values)?[..]))
}

fn conv_options(stride: &[i64], padding: &Value, dilation: &[i64], groups: i64) -> Result<ConvOptions> {
    let padding = match padding {
        Value::Str(word) if word == "same" => Padding::Same,
        Value::Str(word) if word == "valid" => Padding::Valid,
        Value::Str(word) => {
            return Err(Error::value(format!("Invalid padding string '{word}': should be 'valid' or 'same'")));
        }
        Value::Ints(sizes) => Padding::Zeros(spatial(sizes)?),
        _ => Padding::Valid,
    };
    Ok(ConvOptions::default()
        .stride(spatial(stride)?)
        .padding(padding)
        .dilation(spatial(dilation)?)
        .groups(size(groups, "groups")?))
}

fn transpose_options(
    stride: &[i64],
    padding: &[i64],
    output_padding: &[i64],
    groups: i64,
    dilation: &[i64],
) -> Result<ConvTransposeOptions> {
    Ok(ConvTransposeOptions::default()
        .stride(spatial(stride)?)
        .padding(spatial(padding)?)
        .output_padding(spatial(output_padding)?)
        .groups(size(groups, "groups")?)
        .dilation(spatial(dilation)?))
}

fn max_pool(
    kernel: &[i64],
    stride: Option<&[i64]>,
    padding: &[i64],
    dilation: &[i64],
    ceil_mode: bool,
) -> Result<MaxPool> {
    let window =
        MaxPool::new(spatial(kernel)?).padding(spatial(padding)?).dilation(spatial(dilation)?).ceil_mode(ceil_mode);
    match stride {
        Some(stride) if !stride.is_empty() => Ok(window.stride(spatial(stride)?)),
        _ => Ok(window),
    }
}

fn avg_pool(
    kernel: &[i64],
    stride: Option<&[i64]>,
    padding: &[i64],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Option<i64>,
) -> Result<AvgPool> {
    let mut window = AvgPool::new(spatial(kernel)?)
        .padding(spatial(padding)?)
        .ceil_mode(ceil_mode)
        .count_include_pad(count_include_pad);
    if let Some(stride) = stride.filter(|s| !s.is_empty()) {
        window = window.stride(spatial(stride)?);
    }
    match divisor {
        Some(0) => Err(Error::value("divisor must be not zero")),
        Some(divisor) => Ok(window.divisor_override(size(divisor, "divisor_override")?)),
        None => Ok(window),
    }
}

/// -1 means the input's size: Python passes `None` as -1.
fn output_size(values: &[i64]) -> Result<OutputSize> {
    let sizes = values
        .iter()
        .map(|&v| if v == -1 { Ok(None) } else { size(v, "output_size").map(Some) })
        .collect::<Result<Vec<_>>>()?;
    Ok(OutputSize::from(&sizes[..]))
}

fn pad(input: &Tensor, padding: &[i64], mode: &str, value: Option<Scalar>) -> Result<Tensor> {
    let mode = match mode {
        // PyTorch's value is a float for every dtype.
        "constant" => PadMode::Constant(Scalar::Float(value.map_or(0.0, Scalar::to_f64))),
        "reflect" => PadMode::Reflect,
        "replicate" => PadMode::Replicate,
        "circular" => PadMode::Circular,
        other => return Err(Error::unsupported(format!("Unrecognised padding mode {other}"))),
    };
    let padded = padding.len() / 2;
    if padded > input.rank() {
        return Err(Error::shape(format!(
            "Padding length should be less than or equal to two times the input dimension but got padding length {} and input of dimension {}",
            padding.len(),
            input.rank()
        )));
    }
    if !matches!(mode, PadMode::Constant(_))
        && !(1..=3).contains(&padded) | !(padded + 1..=padded + 2).contains(&input.rank())
    {
        return Err(Error::unsupported(format!(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: padding size {} is not supported for {}D input tensor.",
            padding.len(),
            input.rank()
        )));
    }
    // Sizes that PyTorch's kernels refuse: all but the batch must have elements.
    let batch = input.rank().saturating_sub(padded + 1);
    if matches!(mode, PadMode::Reflect | PadMode::Replicate) && input.shape()[batch..].contains(&0) {
        return Err(Error::shape(format!(
            "Expected {}D or {}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {:?}",
            padded + 1,
            padded + 2,
            input.shape()
        )));
    }
    input.pad(&crate::value::dims(padding), mode)
}

fn interpolate(
    input: &Tensor,
    target: Option<&[i64]>,
    scale: Option<&[f64]>,
    mode: &str,
    align_corners: Option<bool>,
    recompute: Option<bool>,
    antialias: bool,
) -> Result<Tensor> {
    let space = input.rank().saturating_sub(2);
    let fits = |count: usize| count == 1 || count == space;
    if target.is_some_and(|t| !fits(t.len())) || scale.is_some_and(|s| !fits(s.len())) {
        return Err(error::value(format!(
            "Input and output must have the same number of spatial dimensions, but got input {:?} and size {target:?} or scale factors {scale:?}",
            input.shape()
        )));
    }
    if mode == "area" {
        let wanted = match (target, scale) {
            (Some(t), _) => t.to_vec(),
            (None, Some(s)) => {
                let spatial = &input.shape()[2.min(input.rank())..];
                spatial
                    .iter()
                    .enumerate()
                    .map(|(i, &n)| (n as f64 * s.get(i).or(s.first()).copied().unwrap_or(1.0)) as i64)
                    .collect()
            }
            _ => return Err(error::value("either size or scale_factor should be defined")),
        };
        let wanted = output_size(&wanted)?;
        return match input.rank() {
            3 => input.adaptive_avg_pool1d(wanted),
            4 => input.adaptive_avg_pool2d(wanted),
            _ => input.adaptive_avg_pool3d(wanted),
        };
    }
    let mode = match mode {
        "nearest" => InterpolateMode::Nearest,
        "nearest-exact" => InterpolateMode::NearestExact,
        "linear" => InterpolateMode::Linear,
        "bilinear" => InterpolateMode::Bilinear,
        "trilinear" => InterpolateMode::Trilinear,
        "bicubic" => InterpolateMode::Bicubic,
        "lanczos" => InterpolateMode::Lanczos,
        other => return Err(Error::unsupported(format!("interpolate: mode '{other}' is not supported"))),
    };
    let is_lanczos = mode == InterpolateMode::Lanczos && input.rank() == 4;
    let filtered = matches!(mode, InterpolateMode::Bilinear | InterpolateMode::Bicubic | InterpolateMode::Lanczos);
    if antialias && !(filtered && input.rank() == 4) {
        return Err(error::value(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input",
        ));
    }
    if is_lanczos && align_corners == Some(true) {
        return Err(error::value("Lanczos mode does not support align_corners=True"));
    }
    if is_lanczos && !antialias {
        return Err(error::value("Lanczos mode requires antialias=True"));
    }
    let fits = match mode {
        InterpolateMode::Nearest | InterpolateMode::NearestExact => input.rank() > 2,
        InterpolateMode::Linear => input.rank() == 3,
        InterpolateMode::Bilinear | InterpolateMode::Bicubic | InterpolateMode::Lanczos => input.rank() == 4,
        InterpolateMode::Trilinear => input.rank() == 5,
    };
    if fits && input.shape()[1] == 0 {
        return Err(Error::shape(format!(
            "Non-empty {}D data tensor expected but got a tensor with sizes {:?}",
            input.rank(),
            input.shape()
        )));
    }
    let options = match (target, scale) {
        (Some(_), Some(_)) => return Err(error::value("only one of size or scale_factor should be defined")),
        (Some(target), None) => InterpolateOptions::size(spatial(target)?),
        (None, Some(scale)) => InterpolateOptions::scale_factor(scale),
        (None, None) => return Err(error::value("either size or scale_factor should be defined")),
    };
    input.interpolate(
        &options
            .mode(mode)
            .align_corners(align_corners)
            .recompute_scale_factor(recompute.unwrap_or(false))
            .antialias(antialias),
    )
}

fn batch_norm(
    input: &Tensor,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<Tensor> {
    // No elements and no channels.
    if input.rank() == 1 && input.numel() == 0 {
        return Ok(input.clone());
    }
    // One value has no variance.
    if training && input.rank() > 1 && input.numel() == input.shape()[1] {
        return Err(error::value(format!(
            "Expected more than 1 value per channel when training, got input size torch.Size({:?})",
            input.shape()
        )));
    }
    let options = BatchNormOptions::default()
        .running_mean(running_mean)
        .running_var(running_var)
        .weight(weight)
        .bias(bias)
        .training(training)
        .momentum(momentum)
        .eps(eps);
    input.batch_norm(&options)
}

fn instance_norm(input: &Tensor, options: &InstanceNormOptions, use_input_stats: bool) -> Result<Tensor> {
    if use_input_stats && input.rank() >= 2 && input.shape()[2..].iter().product::<usize>() == 1 {
        return Err(error::value(format!(
            "Expected more than 1 spatial element when training, got input size torch.Size({:?})",
            input.shape()
        )));
    }
    input.instance_norm(options)
}

fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    dropout_p: f64,
    is_causal: bool,
    scale: Option<f64>,
    enable_gqa: bool,
) -> Result<Tensor> {
    let options = AttentionOptions::default()
        .attn_mask(mask)
        .dropout_p(dropout_p)
        .is_causal(is_causal)
        .scale(scale)
        .enable_gqa(enable_gqa);
    query.scaled_dot_product_attention(key, value, &options)
}

/// Whether an adaptive pooling averages images without elements to one value: PyTorch takes a plain mean, NaN.
fn mean_of_nothing(input: &Tensor, output: &[i64], dims: usize) -> bool {
    let empty = input.rank().checked_sub(dims).is_some_and(|lead| input.shape()[lead..].contains(&0));
    empty && (1..=2).contains(&(input.rank() - dims)) && output.iter().all(|&n| n == 1)
}

/// PyTorch counts the values of a group before it looks whether the groups divide the channels.
fn group_norm(input: &Tensor, groups: i64, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let groups = size(groups, "group_norm: num_groups")?;
    if let [batch, channels, rest @ ..] = input.shape()
        && groups > 0
        && batch * channels / groups * rest.iter().product::<usize>() == 1
    {
        return Err(crate::error::value(format!(
            "Expected more than 1 value per channel when training, got input size {:?}",
            [&[batch * channels / groups, groups], rest].concat()
        )));
    }
    // Halves beside single precision parameters are rounded once.
    let halves = matches!(input.dtype(), DType::F16 | DType::BF16);
    if halves && [weight, bias].into_iter().flatten().all(|t| t.dtype() == DType::F32) && weight.or(bias).is_some() {
        return input.to_dtype(DType::F32)?.group_norm(groups, weight, bias, eps)?.to_dtype(input.dtype());
    }
    input.group_norm(groups, weight, bias, eps)
}

fn embedding(
    input: &Tensor,
    weight: &Tensor,
    padding_idx: Option<i64>,
    max_norm: Option<f64>,
    norm_type: f64,
    by_freq: bool,
    sparse: bool,
) -> Result<Tensor> {
    if sparse {
        return Err(Error::unsupported("embedding: sparse gradients are not supported; use sparse=False"));
    }
    if let Some(limit) = max_norm {
        // Scales the selected rows down in place, as PyTorch does.
        rushlight_tensor::autograd::no_grad(|| -> Result<()> {
            let rows = input.flatten(0, -1)?.unique()?;
            let used = weight.index_select(0, &rows)?;
            let norms = used.norm_dims(norm_type, [1], true)?;
            let factor = rushlight_tensor::where_(&norms.gt(limit)?, &norms.add(1e-7)?.rdiv(limit)?, 1.0)?;
            weight.detach().index_copy_(0, &rows, &used.mul(&factor)?)?;
            Ok(())
        })?;
    }
    if weight.numel() == 0 && weight.rank() == 2 && weight.shape()[0] == 0 && input.numel() > 0 {
        return Err(Error::shape("embedding: index_select(): self indexing axis dim should be positive"));
    }
    weight.embedding(input, padding_idx.map(|i| i as isize), by_freq)
}

fn local_response_norm(input: &Tensor, width: i64, alpha: f64, beta: f64, k: f64) -> Result<Tensor> {
    let width = size(width, "local_response_norm: size")?;
    if input.rank() < 3 {
        return Err(Error::shape(format!(
            "Expected 3D or higher dimensionality input (got {} dimensions)",
            input.rank()
        )));
    }
    let squares = input.square()?.movedim([1], [-1])?;
    let padded =
        squares.pad(&[(width / 2) as isize, ((width.max(1) - 1) / 2) as isize], PadMode::Constant(Scalar::Int(0)))?;
    let sums = padded.unfold(-1, width, 1)?.sum(-1)?.movedim([-1], [1])?;
    input.div(&sums.mul(alpha / width as f64)?.add(k)?.pow(beta)?)
}

fn shuffle(input: &Tensor, factor: i64, up: bool) -> Result<Tensor> {
    use rushlight_nn::Forward;
    let factor = size(factor, "pixel_shuffle: factor")?;
    let out = match up {
        true => rushlight_nn::PixelShuffle::new(factor).forward(input)?,
        false => rushlight_nn::PixelUnshuffle::new(factor).forward(input)?,
    }
    .in_format_of(input)?;
    // A factor of one moves nothing, but the result is a tensor of its own.
    if out.shares_storage(input) { out.copy() } else { Ok(out) }
}

fn one_hot(input: &Tensor, num_classes: i64) -> Result<Tensor> {
    if input.dtype() != rushlight_core::DType::I64 {
        return Err(Error::value(format!(
            "one_hot is only applicable to index tensor of type int64, not {}",
            input.dtype()
        )));
    }
    input.one_hot(if num_classes == -1 { None } else { Some(size(num_classes, "one_hot: num_classes")?) })
}

fn lp_pool(
    input: &Tensor,
    norm_type: f64,
    kernel: &[i64],
    stride: Option<&[i64]>,
    ceil_mode: bool,
    two: bool,
) -> Result<Tensor> {
    let powers = input.pow(norm_type)?;
    let window = avg_pool(kernel, stride, &[0], ceil_mode, true, None)?;
    let count: f64 = kernel.iter().map(|&k| k as f64).product();
    let count = if two && kernel.len() == 1 { count * count } else { count };
    let mean = if two { powers.avg_pool2d(window)? } else { powers.avg_pool1d(window)? };
    mean.sign()?.mul(&mean.abs()?.relu()?)?.mul(count)?.pow(1.0 / norm_type)
}

fn unfold(input: &Tensor, kernel: &[i64], dilation: &[i64], padding: &[i64], stride: &[i64]) -> Result<Tensor> {
    if input.rank() < 3 {
        let message = format!("unfold: expected images, 3D or 4D, but got shape {:?}", input.shape());
        // PyTorch reads the size of a third dimension, unless the second has none.
        return Err(if input.rank() == 2 && input.shape()[1] == 0 {
            Error::shape(message)
        } else {
            Error::index(message)
        });
    }
    if input.shape()[input.rank() - 3..].contains(&0) {
        return Err(Error::shape(format!(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {:?}",
            input.shape()
        )));
    }
    use rushlight_nn::Forward;
    rushlight_nn::Unfold::new(spatial(kernel)?)
        .dilation(spatial(dilation)?)
        .padding(spatial(padding)?)
        .stride(spatial(stride)?)
        .forward(input)
}

fn fold(
    input: &Tensor,
    output: &[i64],
    kernel: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
) -> Result<Tensor> {
    use rushlight_nn::Forward;
    rushlight_nn::Fold::new(spatial(output)?, spatial(kernel)?)
        .dilation(spatial(dilation)?)
        .padding(spatial(padding)?)
        .stride(spatial(stride)?)
        .forward(input)
}

fn unpool<const D: usize>(
    input: &Tensor,
    indices: &Tensor,
    kernel: &[i64],
    stride: Option<&[i64]>,
    padding: &[i64],
    output: Option<&[i64]>,
) -> Result<Tensor> {
    let mut layer = rushlight_nn::MaxUnpoolNd::<D>::new(spatial(kernel)?).padding(spatial(padding)?);
    if let Some(stride) = stride.filter(|s| !s.is_empty()) {
        layer = layer.stride(spatial(stride)?);
    }
    match output {
        None => layer.forward(input, indices),
        // The leading dimensions are optional.
        Some(output) => layer.forward_to(input, indices, &sizes(&output[output.len().saturating_sub(D)..])?),
    }
}

/// PyTorch checks the planes of `avg_pool2d` before the whole shape.
fn with_planes(input: &Tensor, dims: usize) -> Result<()> {
    if dims == 2 && input.rank() < 3 {
        return Err(Error::index(format!("avg_pool2d: expected planes, but got input of shape {:?}", input.shape())));
    }
    Ok(())
}

/// The output of an adaptive pooling over a number of dimensions, which the input must have.
fn adaptive_size(input: &Tensor, output: &[i64], dims: usize) -> Result<OutputSize> {
    if !input.dtype().is_float() {
        return Err(Error::dtype(format!("adaptive pooling: not implemented for '{}'", input.dtype())));
    }
    if dims > 1 && input.rank() <= dims {
        return Err(error::value(format!("Input dimension should be at least {}, not {}", dims + 1, input.rank())));
    }
    output_size(output)
}

/// PyTorch has kernels of two and three dimensions for the largest of integers; in one it has them with indices only.
fn takes_integers(dims: usize, input: &Tensor) -> Result<()> {
    match input.dtype() {
        dtype if dims == 1 && !dtype.is_float() => Err(Error::dtype(format!(
            "max_pool1d: not implemented for {dtype}; pass return_indices=True or convert to float"
        ))),
        _ => Ok(()),
    }
}

/// Rows of pooling for one number of dimensions.
macro_rules! pooling {
    ($table:ident, $d:literal, $max:ident $max_indices:ident $avg:ident $adaptive_avg:ident) => {
        rows! { $table:
            /// Largest elements of windows.
            $max [Torch] { concat!(stringify!($max), "(Tensor input, int[", $d, "] kernel_size, int[", $d, "]? stride=None, int[", $d, "] padding=0, int[", $d,
                "] dilation=1, bool ceil_mode=False)") }
                |input: &Tensor, kernel: &[i64], stride: Option<&[i64]>, padding: &[i64], dilation: &[i64], ceil_mode: bool|
                takes_integers($d, input).and_then(|()| max_pool(kernel, stride, padding, dilation, ceil_mode)).and_then(|window| {
                    match integers::in_doubles(stringify!($max), input)? {
                        Some(x) => x.$max(window)?.to_dtype(input.dtype()),
                        None => input.$max(window),
                    }
                });
            /// Largest elements of windows, and their indices.
            $max_indices [Functional] { concat!(stringify!($max_indices), "(Tensor input, int[", $d, "] kernel_size, int[", $d, "]? stride=None, int[", $d,
                "] padding=0, int[", $d, "] dilation=1, bool ceil_mode=False, bool return_indices=False)") }
                |input: &Tensor, kernel: &[i64], stride: Option<&[i64]>, padding: &[i64], dilation: &[i64], ceil_mode: bool, _indices: bool|
                max_pool(kernel, stride, padding, dilation, ceil_mode).and_then(|window| match integers::in_doubles(stringify!($max), input)? {
                    Some(x) => x.$max_indices(window).and_then(|(y, places)| Ok((y.to_dtype(input.dtype())?, places))),
                    None => input.$max_indices(window),
                });
            /// Largest elements of windows; with `return_indices` also their indices.
            $max [Functional] { concat!(stringify!($max), "(Tensor input, int[", $d, "] kernel_size, int[", $d, "]? stride=None, int[", $d,
                "] padding=0, int[", $d, "] dilation=1, bool ceil_mode=False, bool return_indices=False)") }
                |input: &Tensor, kernel: &[i64], stride: Option<&[i64]>, padding: &[i64], dilation: &[i64], ceil_mode: bool, indices: bool| {
                    if !indices {
                        takes_integers($d, input)?;
                    }
                    let window = max_pool(kernel, stride, padding, dilation, ceil_mode)?;
                    let doubles = integers::in_doubles(stringify!($max), input)?;
                    let x = doubles.as_ref().unwrap_or(input);
                    match indices {
                        true => x.$max_indices(window).and_then(|(y, places)| Ok(Out::from((y.to_dtype(input.dtype())?, places)))),
                        false => x.$max(window)?.to_dtype(input.dtype()).map(Out::from),
                    }
                };
            /// Means of windows.
            $avg [Torch Functional] { concat!(stringify!($avg), "(Tensor input, int[", $d, "] kernel_size, int[", $d, "]? stride=None, int[", $d,
                "] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)") }
                |input: &Tensor, kernel: &[i64], stride: Option<&[i64]>, padding: &[i64], ceil_mode: bool, include: bool, divisor: Option<i64>|
                with_planes(input, $d).and_then(|()| {
                    let window = avg_pool(kernel, stride, padding, ceil_mode, include, divisor.map(i64::abs))?;
                    let doubles = if $d < 3 { integers::in_doubles(stringify!($avg), input)? } else { None };
                    let means = doubles.as_ref().unwrap_or(input).$avg(window)?;
                    let means = if divisor.is_some_and(|d| d < 0) { means.neg()? } else { means };
                    if doubles.is_some() { integers::truncated(&means, input.dtype()) } else { Ok(means) }
                });
            /// Means of a given number of windows.
            $adaptive_avg [Torch Functional] { concat!(stringify!($adaptive_avg), "(Tensor input, int?[", $d, "] output_size)") }
                |input: &Tensor, output: &[i64]| match mean_of_nothing(input, output, $d) {
                    true => input.mean_dims(&(1..=$d).map(|d: isize| -d).collect::<Vec<_>>(), true),
                    false => input.$adaptive_avg(adaptive_size(input, output, $d)?),
                };
        }
    };
}

pooling! { POOL1, 1, max_pool1d max_pool1d_with_indices avg_pool1d adaptive_avg_pool1d }
pooling! { POOL2, 2, max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d }
pooling! { POOL3, 3, max_pool3d max_pool3d_with_indices avg_pool3d adaptive_avg_pool3d }

macro_rules! adaptive_max {
    ($table:ident, $d:literal, $adaptive_max:ident $adaptive_max_indices:ident) => {
        rows! { $table:
            /// Largest elements of a given number of windows; with `return_indices` also their indices.
            $adaptive_max [Functional] { concat!(stringify!($adaptive_max), "(Tensor input, int?[", $d, "] output_size, bool return_indices=False)") }
                |input: &Tensor, output: &[i64], indices: bool| {
                    let output = adaptive_size(input, output, $d)?;
                    if indices { input.$adaptive_max_indices(output).map(Out::from) } else { input.$adaptive_max(output).map(Out::from) }
                };
            /// Largest elements of a given number of windows, and their indices.
            $adaptive_max_indices [Functional] { concat!(stringify!($adaptive_max_indices), "(Tensor input, int?[", $d, "] output_size, bool return_indices=False)") }
                |input: &Tensor, output: &[i64], _indices: bool| input.$adaptive_max_indices(adaptive_size(input, output, $d)?);
        }
    };
}

adaptive_max! { ADAPTIVE1, 1, adaptive_max_pool1d adaptive_max_pool1d_with_indices }
adaptive_max! { ADAPTIVE2, 2, adaptive_max_pool2d adaptive_max_pool2d_with_indices }

/// Rows of convolution for one number of dimensions.
macro_rules! convolution {
    ($table:ident, $d:literal, $conv:ident $transpose:ident) => {
        rows! { $table:
            /// Convolution.
            $conv [Torch Functional] { concat!(stringify!($conv), "(Tensor input, Tensor weight, Tensor? bias=None, int[", $d,
                "] stride=1, str|int[] padding=0, int[", $d, "] dilation=1, int groups=1)") }
                |input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, stride: &[i64], padding: &Value, dilation: &[i64], groups: i64|
                conv_options(stride, padding, dilation, groups).and_then(|options| {
                    let window: usize = weight.shape().iter().skip(1).product();
                    match integers::doubles(stringify!($conv), input, weight, bias, window)? {
                        Some((x, w, b)) => x.$conv(&w, b.as_ref(), options)?.to_dtype(input.dtype()),
                        None => input.$conv(weight, bias, options),
                    }
                });
            /// Transposed convolution.
            $transpose [Torch Functional] { concat!(stringify!($transpose), "(Tensor input, Tensor weight, Tensor? bias=None, int[", $d, "] stride=1, int[", $d,
                "] padding=0, int[", $d, "] output_padding=0, int groups=1, int[", $d, "] dilation=1)") }
                |input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, stride: &[i64], padding: &[i64], extra: &[i64], groups: i64, dilation: &[i64]|
                transpose_options(stride, padding, extra, groups, dilation).and_then(|options| {
                    match integers::doubles(stringify!($transpose), input, weight, bias, weight.numel())? {
                        Some((x, w, b)) => x.$transpose(&w, b.as_ref(), options)?.to_dtype(input.dtype()),
                        None => input.$transpose(weight, bias, options),
                    }
                });
        }
    };
}

convolution! { CONV1, 1, conv1d conv_transpose1d }
convolution! { CONV2, 2, conv2d conv_transpose2d }
convolution! { CONV3, 3, conv3d conv_transpose3d }

rows! { ROWS:
    /// `input @ weight.T + bias`.
    linear [Functional] "linear(Tensor input, Tensor weight, Tensor? bias=None)" |input: &Tensor, weight: &Tensor, bias: Option<&Tensor>| input.linear(weight, bias);
    /// `input1 @ weight @ input2 + bias`, per output.
    bilinear [Torch Functional] "bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None)"
        |input1: &Tensor, input2: &Tensor, weight: &Tensor, bias: Option<&Tensor>| input1.bilinear(input2, weight, bias);
    /// Rows of a table by index.
    embedding [Functional] "embedding(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None, float norm_type=2.0, bool scale_grad_by_freq=False, bool sparse=False)"
        |input: &Tensor, weight: &Tensor, padding_idx: Option<i64>, max_norm: Option<f64>, norm_type: f64, by_freq: bool, sparse: bool|
        {
            if !matches!(input.dtype(), DType::I32 | DType::I64) {
                return Err(Error::value(format!("embedding: expected indices of int64 or int32, got {}", input.dtype())));
            }
            embedding(input, weight, padding_idx, max_norm, norm_type, by_freq, sparse)
        };
    /// One-hot rows of class indices.
    one_hot [Functional] "one_hot(Tensor tensor, int num_classes=-1)" |input: &Tensor, num_classes: i64| one_hot(input, num_classes);
    /// Pads with elements on each side.
    pad [Functional] "pad(Tensor input, int[] pad, str mode='constant', Number? value=None)" |input: &Tensor, padding: &[i64], mode: &str, value: Option<Scalar>|
        pad(input, padding, mode, value);
    /// Resizes by interpolation.
    interpolate [Functional]
        "interpolate(Tensor input, int[1]? size=None, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False)"
        |input: &Tensor, target: Option<&[i64]>, scale: Option<&[f64]>, mode: &str, align: Option<bool>, recompute: Option<bool>, antialias: bool|
        interpolate(input, target, scale, mode, align, recompute, antialias);
    /// Resizes by interpolation.
    upsample [Functional] "upsample(Tensor input, int[1]? size=None, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None)"
        |input: &Tensor, target: Option<&[i64]>, scale: Option<&[f64]>, mode: &str, align: Option<bool>| interpolate(input, target, scale, mode, align, None, false);
    /// Normalisation over batches.
    batch_norm [Functional] "batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05)"
        |input: &Tensor, mean: Option<&Tensor>, var: Option<&Tensor>, weight: Option<&Tensor>, bias: Option<&Tensor>, training: bool, momentum: f64, eps: f64|
        batch_norm(input, mean, var, weight, bias, training, momentum, eps);
    /// Normalisation of each instance.
    instance_norm [Functional] "instance_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-05)"
        |input: &Tensor, mean: Option<&Tensor>, var: Option<&Tensor>, weight: Option<&Tensor>, bias: Option<&Tensor>, stats: bool, momentum: f64, eps: f64|
        instance_norm(input, &InstanceNormOptions::default().running_mean(mean).running_var(var).weight(weight).bias(bias).use_input_stats(stats).momentum(momentum).eps(eps), stats);
    /// Normalisation over the last dimensions.
    layer_norm [Torch Functional] "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)"
        |input: &Tensor, shape: Sizes, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64| input.layer_norm(&shape.0, weight, bias, eps);
    /// Division by the root of the mean square.
    rms_norm [Torch Functional] "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)"
        |input: &Tensor, shape: Sizes, weight: Option<&Tensor>, eps: Option<f64>| input.rms_norm(&shape.0, weight, eps);
    /// Normalisation over groups of channels.
    group_norm [Torch Functional] "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)"
        |input: &Tensor, groups: i64, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64| group_norm(input, groups, weight, bias, eps);
    /// Normalisation over neighbouring channels.
    local_response_norm [Functional] "local_response_norm(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0)"
        |input: &Tensor, width: i64, alpha: f64, beta: f64, k: f64| local_response_norm(input, width, alpha, beta, k);
    /// Divides by a norm.
    normalize [Functional] "normalize(Tensor input, float p=2.0, int dim=1, float eps=1e-12)" |input: &Tensor, p: f64, dim: isize, eps: f64| input.normalize(p, dim, eps);
    /// Softmax of scaled products of queries and keys, times values.
    scaled_dot_product_attention [Functional]
        "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, float? scale=None, bool enable_gqa=False)"
        |query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>, dropout_p: f64, is_causal: bool, scale: Option<f64>, enable_gqa: bool|
        attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
    /// Cosine of the angle between vectors.
    cosine_similarity [Torch Functional] "cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08)" |x1: &Tensor, x2: &Tensor, dim: isize, eps: f64|
        x1.cosine_similarity(x2, dim, eps);
    /// Distances of pairs of vectors.
    pairwise_distance [Torch Functional] "pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False)"
        |x1: &Tensor, x2: &Tensor, p: f64, eps: f64, keepdim: bool| x1.pairwise_distance(x2, p, eps, keepdim);
    /// Rearranges channels into pixels.
    pixel_shuffle [Torch Functional] "pixel_shuffle(Tensor input, int upscale_factor)" |input: &Tensor, factor: i64| shuffle(input, factor, true);
    /// Rearranges pixels into channels.
    pixel_unshuffle [Torch Functional] "pixel_unshuffle(Tensor input, int downscale_factor)" |input: &Tensor, factor: i64| shuffle(input, factor, false);
    /// Interleaves the channels of groups.
    channel_shuffle [Torch Functional] "channel_shuffle(Tensor input, int groups)" |input: &Tensor, groups: i64|
        rushlight_nn::Forward::forward(&rushlight_nn::ChannelShuffle::new(size(groups, "channel_shuffle: groups")?), input)?.in_format_of(input);
    /// Windows of images as columns.
    unfold [Functional] "unfold(Tensor input, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1)"
        |input: &Tensor, kernel: &[i64], dilation: &[i64], padding: &[i64], stride: &[i64]| unfold(input, kernel, dilation, padding, stride);
    /// Sums columns into images.
    fold [Functional] "fold(Tensor input, int[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1)"
        |input: &Tensor, output: &[i64], kernel: &[i64], dilation: &[i64], padding: &[i64], stride: &[i64]| fold(input, output, kernel, dilation, padding, stride);
    /// Power means of windows.
    lp_pool1d [Functional] "lp_pool1d(Tensor input, float norm_type, int[1] kernel_size, int[1]? stride=None, bool ceil_mode=False)"
        |input: &Tensor, p: f64, kernel: &[i64], stride: Option<&[i64]>, ceil_mode: bool| lp_pool(input, p, kernel, stride, ceil_mode, false);
    /// Power means of windows.
    lp_pool2d [Functional] "lp_pool2d(Tensor input, float norm_type, int[2] kernel_size, int[2]? stride=None, bool ceil_mode=False)"
        |input: &Tensor, p: f64, kernel: &[i64], stride: Option<&[i64]>, ceil_mode: bool| lp_pool(input, p, kernel, stride, ceil_mode, true);
    /// Writes pooled elements back to their positions.
    max_unpool1d [Functional] "max_unpool1d(Tensor input, Tensor indices, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[]? output_size=None)"
        |input: &Tensor, indices: &Tensor, kernel: &[i64], stride: Option<&[i64]>, padding: &[i64], output: Option<&[i64]>|
        unpool::<1>(input, indices, kernel, stride, padding, output);
    /// Writes pooled elements back to their positions.
    max_unpool2d [Functional] "max_unpool2d(Tensor input, Tensor indices, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[]? output_size=None)"
        |input: &Tensor, indices: &Tensor, kernel: &[i64], stride: Option<&[i64]>, padding: &[i64], output: Option<&[i64]>|
        unpool::<2>(input, indices, kernel, stride, padding, output);
    /// Writes pooled elements back to their positions.
    max_unpool3d [Functional] "max_unpool3d(Tensor input, Tensor indices, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, int[]? output_size=None)"
        |input: &Tensor, indices: &Tensor, kernel: &[i64], stride: Option<&[i64]>, padding: &[i64], output: Option<&[i64]>|
        unpool::<3>(input, indices, kernel, stride, padding, output);
}
