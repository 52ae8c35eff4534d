//! Layers and losses from PyTorch's names and keyword arguments.

use crate::options::Options;
use rushlight_core::Result;
use rushlight_nn::*;
use rushlight_tensor::{InterpolateMode, Padding, Tensor};

/// A module and its call.
pub struct Built {
    pub module: Box<dyn Module>,
    run: Box<dyn Fn(&dyn Module, &[Tensor]) -> Result<Vec<Tensor>>>,
}

impl Built {
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        (self.run)(self.module.as_ref(), inputs)
    }
}

/// A module called by a function.
fn called<M: Module>(module: M, run: impl Fn(&M, &[Tensor]) -> Result<Vec<Tensor>> + 'static) -> Result<Built> {
    let run = move |module: &dyn Module, inputs: &[Tensor]| run(module.downcast_ref::<M>().unwrap(), inputs);
    Ok(Built { module: Box::new(module), run: Box::new(run) })
}

/// A module of one input.
fn layer<F: Forward>(layer: F) -> Result<Built> {
    called(layer, |layer, x| Ok(vec![layer.forward(&x[0])?]))
}

/// A pooling layer that can also return indices.
fn with_indices<F: Forward>(
    layer: F,
    indices: bool,
    run: impl Fn(&F, &Tensor) -> Result<(Tensor, Tensor)> + 'static,
) -> Result<Built> {
    called(layer, move |layer, x| {
        if indices {
            return run(layer, &x[0]).map(|(y, i)| vec![y, i]);
        }
        Ok(vec![layer.forward(&x[0])?])
    })
}

/// Applies setters for the options that are given: `set!(builder, o, sizes: stride, padding; …)`.
macro_rules! set {
    ($builder:expr, $o:expr $(, $kind:ident: $($name:ident)+)*) => {{
        let mut builder = $builder;
        $($(
            if let Some(value) = $o.$kind(stringify!($name)) {
                builder = builder.$name(value);
            }
        )+)*
        builder
    }};
}

/// A layer whose weight has a parametrization.
fn normed(name: &str, o: &Options, module: impl Forward) -> Result<Built> {
    if name.starts_with("weight_norm") {
        let whole = o.value("by_dim").is_some_and(|dim| dim.is_null());
        let dim = if whole { None } else { Some(o.integer("by_dim").unwrap_or(0)) };
        return layer(weight_norm(module, "weight", dim)?);
    }
    let mut options = SpectralNormOptions::default();
    if let Some(n) = o.integer("by_n_power_iterations") {
        options = options.n_power_iterations(n as usize);
    }
    layer(spectral_norm(module, "weight", options)?)
}

fn padding(o: &Options) -> Padding {
    match o.text("padding") {
        Some("same") => Padding::Same,
        Some("valid") => Padding::Valid,
        Some(other) => panic!("padding {other}"),
        None => Padding::Zeros(o.sizes("padding").unwrap_or(0.into())),
    }
}

fn conv<const D: usize>(o: &Options) -> Result<Built> {
    let mode = match o.text("padding_mode") {
        None => PaddingMode::Zeros,
        Some("reflect") => PaddingMode::Reflect,
        Some("replicate") => PaddingMode::Replicate,
        Some("circular") => PaddingMode::Circular,
        Some(other) => panic!("padding_mode {other}"),
    };
    let builder =
        ConvNd::<D>::builder(o.count("in_channels"), o.count("out_channels"), o.sizes("kernel_size").unwrap());
    let builder = set!(builder, o, sizes: stride dilation);
    let builder = builder.padding(padding(o)).padding_mode(mode).bias(o.flag("bias", true));
    layer(builder.groups(o.integer("groups").unwrap_or(1) as usize).build()?)
}

fn conv_transpose<const D: usize>(o: &Options, output_size: Option<Vec<usize>>) -> Result<Built> {
    let kernel_size = o.sizes("kernel_size").unwrap();
    let builder = ConvTransposeNd::<D>::builder(o.count("in_channels"), o.count("out_channels"), kernel_size);
    let builder = set!(builder, o, sizes: stride padding output_padding dilation).bias(o.flag("bias", true));
    let conv = builder.groups(o.integer("groups").unwrap_or(1) as usize).build()?;
    called(conv, move |conv, x| match &output_size {
        Some(sizes) => Ok(vec![conv.forward_to(&x[0], sizes)?]),
        None => Ok(vec![conv.forward(&x[0])?]),
    })
}

fn max_pool<const D: usize>(o: &Options) -> Result<Built> {
    let pool = MaxPoolNd::<D>::new(o.sizes("kernel_size").unwrap()).ceil_mode(o.flag("ceil_mode", false));
    let pool = set!(pool, o, sizes: stride padding dilation);
    with_indices(pool, o.flag("return_indices", false), MaxPoolNd::forward_with_indices)
}

fn max_unpool<const D: usize>(o: &Options, output_size: Option<Vec<usize>>) -> Result<Built> {
    let unpool = set!(MaxUnpoolNd::<D>::new(o.sizes("kernel_size").unwrap()), o, sizes: stride padding);
    called(unpool, move |unpool, x| match &output_size {
        Some(sizes) => Ok(vec![unpool.forward_to(&x[0], &x[1], sizes)?]),
        None => Ok(vec![unpool.forward(&x[0], &x[1])?]),
    })
}

fn avg_pool<const D: usize>(o: &Options) -> Result<Built> {
    let mut pool = AvgPoolNd::<D>::new(o.sizes("kernel_size").unwrap()).ceil_mode(o.flag("ceil_mode", false));
    pool = set!(pool, o, sizes: stride padding).count_include_pad(o.flag("count_include_pad", true));
    if let Some(divisor) = o.integer("divisor_override") {
        pool = pool.divisor_override(divisor as usize);
    }
    layer(pool)
}

fn batch_norm<const D: usize>(o: &Options) -> Result<Built> {
    let builder = set!(BatchNormNd::<D>::builder(o.count("num_features")), o, number: eps);
    let builder = builder.momentum(o.optional("momentum", Some(0.1))).affine(o.flag("affine", true));
    let track = o.flag("track_running_stats", true);
    layer(builder.bias(o.flag("bias", true)).track_running_stats(track).build()?)
}

fn instance_norm<const D: usize>(o: &Options) -> Result<Built> {
    let builder = set!(InstanceNormNd::<D>::builder(o.count("num_features")), o, number: eps);
    let builder = builder.momentum(o.optional("momentum", Some(0.1))).affine(o.flag("affine", false));
    let track = o.flag("track_running_stats", false);
    layer(builder.bias(o.flag("bias", true)).track_running_stats(track).build()?)
}

fn embedding(o: &Options) -> Result<Built> {
    let builder = Embedding::builder(o.count("num_embeddings"), o.count("embedding_dim"));
    let builder = set!(builder, o, integer: padding_idx, number: max_norm norm_type);
    layer(builder.scale_grad_by_freq(o.flag("scale_grad_by_freq", false)).build()?)
}

fn embedding_bag(o: &Options) -> Result<Built> {
    let mode = match o.text("mode") {
        Some("sum") => BagMode::Sum,
        Some("max") => BagMode::Max,
        _ => BagMode::Mean,
    };
    let builder = EmbeddingBag::builder(o.count("num_embeddings"), o.count("embedding_dim")).mode(mode);
    let builder = set!(builder, o, integer: padding_idx, number: max_norm);
    let builder = builder.include_last_offset(o.flag("include_last_offset", false));
    let bag = builder.scale_grad_by_freq(o.flag("scale_grad_by_freq", false)).build()?;
    called(bag, |bag, x| Ok(vec![bag.forward_with(&x[0], x.get(1), x.get(2))?]))
}

fn upsample(o: &Options) -> Result<Built> {
    let mode = match o.text("mode") {
        None => InterpolateMode::Nearest,
        Some("nearest-exact") => InterpolateMode::NearestExact,
        Some("linear") => InterpolateMode::Linear,
        Some("bilinear") => InterpolateMode::Bilinear,
        Some("trilinear") => InterpolateMode::Trilinear,
        Some("bicubic") => InterpolateMode::Bicubic,
        Some(other) => panic!("mode {other}"),
    };
    let mut up = set!(Upsample::new().mode(mode), o, sizes: size);
    if let Some(factor) = o.value("scale_factor") {
        let one = || vec![factor.as_f64().unwrap()];
        let several = |items: &Vec<serde_json::Value>| items.iter().map(|f| f.as_f64().unwrap()).collect();
        up = up.scale_factor(factor.as_array().map_or_else(one, several));
    }
    if let Some(align) = o.value("align_corners") {
        up = up.align_corners(align.as_bool().unwrap());
    }
    layer(up.recompute_scale_factor(o.flag("recompute_scale_factor", false)))
}

/// The sides of a padding layer: one number or all.
fn sides<const N: usize>(o: &Options) -> Sides<N> {
    match o.integers("padding").unwrap().as_slice() {
        [one] => Sides::from(*one),
        all => Sides::from(<[isize; N]>::try_from(all).unwrap()),
    }
}

fn pads(name: &str, o: &Options) -> Option<Result<Built>> {
    macro_rules! pads {
        ($($layer:ident $n:literal;)*) => {
            match name {
                $(stringify!($layer) => layer($layer::new(sides::<$n>(o))),)*
                "ConstantPad1d" => layer(ConstantPad1d::new(sides::<2>(o), o.number("value").unwrap())),
                "ConstantPad2d" => layer(ConstantPad2d::new(sides::<4>(o), o.number("value").unwrap())),
                "ConstantPad3d" => layer(ConstantPad3d::new(sides::<6>(o), o.number("value").unwrap())),
                _ => return None,
            }
        };
    }
    Some(pads! {
        ZeroPad1d 2; ZeroPad2d 4; ZeroPad3d 6; ReflectionPad1d 2; ReflectionPad2d 4; ReflectionPad3d 6;
        ReplicationPad1d 2; ReplicationPad2d 4; ReplicationPad3d 6; CircularPad1d 2; CircularPad2d 4; CircularPad3d 6;
    })
}

fn activations(name: &str, o: &Options) -> Option<Result<Built>> {
    macro_rules! plain {
        ($($layer:ident)*) => {
            match name {
                $(stringify!($layer) => return Some(layer($layer)),)*
                _ => {}
            }
        };
    }
    plain!(ReLU ReLU6 SELU SiLU Mish Sigmoid LogSigmoid Tanh Tanhshrink Softsign Hardsigmoid Hardswish Softmax2d Identity);
    let dim = || o.integer("dim").unwrap();
    Some(match name {
        "LeakyReLU" => layer(set!(LeakyReLU::new(), o, number: negative_slope)),
        "ELU" => layer(set!(ELU::new(), o, number: alpha)),
        "CELU" => layer(set!(CELU::new(), o, number: alpha)),
        "Softplus" => layer(set!(Softplus::new(), o, number: beta threshold)),
        "Softshrink" => layer(set!(Softshrink::new(), o, number: lambd)),
        "Hardshrink" => layer(set!(Hardshrink::new(), o, number: lambd)),
        "Hardtanh" => layer(set!(Hardtanh::new(), o, number: min_val max_val)),
        "RReLU" => layer(set!(RReLU::new(), o, number: lower upper)),
        "Threshold" => layer(Threshold::new(o.number("threshold").unwrap(), o.number("value").unwrap())),
        "GELU" => layer(match o.text("approximate") {
            Some("tanh") => GELU::new().approximate(Approximate::Tanh),
            _ => GELU::new(),
        }),
        "PReLU" => {
            let builder = set!(PReLU::builder(), o, number: init);
            let count = o.integer("num_parameters").unwrap_or(1) as usize;
            builder.num_parameters(count).build().and_then(layer)
        }
        "Softmax" => layer(Softmax::new(dim())),
        "LogSoftmax" => layer(LogSoftmax::new(dim())),
        "Softmin" => layer(Softmin::new(dim())),
        "GLU" => layer(set!(GLU::new(), o, integer: dim)),
        _ => return None,
    })
}

fn losses(name: &str, o: &Options) -> Option<Result<Built>> {
    let r = o.reduction();
    macro_rules! two {
        ($loss:expr) => {
            called($loss.reduction(r), |loss, x| Ok(vec![loss.forward(&x[0], &x[1])?]))
        };
    }
    macro_rules! three {
        ($loss:expr) => {
            called($loss.reduction(r), |loss, x| Ok(vec![loss.forward(&x[0], &x[1], &x[2])?]))
        };
    }
    let ignored = || o.integer("ignore_index").map_or(-100, |i| i as i64);
    Some(match name {
        "CrossEntropyLoss" => {
            let loss = set!(CrossEntropyLoss::new(), o, tensor: weight, number: label_smoothing);
            two!(loss.ignore_index(ignored()))
        }
        "NLLLoss" => two!(set!(NLLLoss::new(), o, tensor: weight).ignore_index(ignored())),
        "MSELoss" => two!(MSELoss::new()),
        "L1Loss" => two!(L1Loss::new()),
        "SmoothL1Loss" => two!(set!(SmoothL1Loss::new(), o, number: beta)),
        "HuberLoss" => two!(set!(HuberLoss::new(), o, number: delta)),
        "BCELoss" => two!(set!(BCELoss::new(), o, tensor: weight)),
        "BCEWithLogitsLoss" => two!(set!(BCEWithLogitsLoss::new(), o, tensor: weight pos_weight)),
        "KLDivLoss" => two!(KLDivLoss::new().log_target(o.flag("log_target", false))),
        "PoissonNLLLoss" => {
            let loss = set!(PoissonNLLLoss::new(), o, number: eps);
            two!(loss.log_input(o.flag("log_input", true)).full(o.flag("full", false)))
        }
        "GaussianNLLLoss" => three!(set!(GaussianNLLLoss::new(), o, number: eps).full(o.flag("full", false))),
        "CosineEmbeddingLoss" => three!(set!(CosineEmbeddingLoss::new(), o, number: margin)),
        "MarginRankingLoss" => three!(set!(MarginRankingLoss::new(), o, number: margin)),
        "HingeEmbeddingLoss" => two!(set!(HingeEmbeddingLoss::new(), o, number: margin)),
        "SoftMarginLoss" => two!(SoftMarginLoss::new()),
        "TripletMarginLoss" => {
            three!(set!(TripletMarginLoss::new(), o, number: margin p eps).swap(o.flag("swap", false)))
        }
        "MultiMarginLoss" => {
            let loss = set!(MultiMarginLoss::new(), o, number: margin, tensor: weight);
            two!(loss.p(o.integer("p").unwrap_or(1) as u32))
        }
        "MultiLabelMarginLoss" => two!(MultiLabelMarginLoss::new()),
        "MultiLabelSoftMarginLoss" => two!(set!(MultiLabelSoftMarginLoss::new(), o, tensor: weight)),
        _ => return None,
    })
}

fn dropouts(name: &str, o: &Options) -> Option<Result<Built>> {
    macro_rules! dropouts {
        ($($layer:ident)*) => {
            match name {
                $(stringify!($layer) => $layer::new(o.number("p").unwrap()).and_then(layer),)*
                _ => return None,
            }
        };
    }
    Some(dropouts!(Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout))
}

/// The layer of a name; `output_size` is an argument of its call.
pub fn build(name: &str, o: &Options, output_size: Option<Vec<usize>>) -> Result<Built> {
    if let Some(built) = activations(name, o).or_else(|| pads(name, o)).or_else(|| losses(name, o)) {
        return built;
    }
    if let Some(built) = dropouts(name, o) {
        return built;
    }
    let affine = || o.flag("affine", true);
    let bias = || o.flag("bias", true);
    let blocks = || o.sizes("kernel_size").unwrap();
    match name {
        "Linear" => layer(Linear::builder(o.count("in_features"), o.count("out_features")).bias(bias()).build()?),
        "Bilinear" => {
            let builder = Bilinear::builder(o.count("in1_features"), o.count("in2_features"), o.count("out_features"));
            called(builder.bias(bias()).build()?, |b, x| Ok(vec![b.forward(&x[0], &x[1])?]))
        }
        "Flatten" => layer(set!(Flatten::new(), o, integer: start_dim end_dim)),
        "Unflatten" => layer(Unflatten::new(o.integer("dim").unwrap(), o.integers("unflattened_size").unwrap())),
        "PixelShuffle" => layer(PixelShuffle::new(o.count("upscale_factor"))),
        "PixelUnshuffle" => layer(PixelUnshuffle::new(o.count("downscale_factor"))),
        "ChannelShuffle" => layer(ChannelShuffle::new(o.count("groups"))),
        "Conv1d" => conv::<1>(o),
        "Conv2d" => conv::<2>(o),
        "Conv3d" => conv::<3>(o),
        "ConvTranspose1d" => conv_transpose::<1>(o, output_size),
        "ConvTranspose2d" => conv_transpose::<2>(o, output_size),
        "ConvTranspose3d" => conv_transpose::<3>(o, output_size),
        "MaxPool1d" => max_pool::<1>(o),
        "MaxPool2d" => max_pool::<2>(o),
        "MaxPool3d" => max_pool::<3>(o),
        "MaxUnpool1d" => max_unpool::<1>(o, output_size),
        "MaxUnpool2d" => max_unpool::<2>(o, output_size),
        "AvgPool1d" => avg_pool::<1>(o),
        "AvgPool2d" => avg_pool::<2>(o),
        "AvgPool3d" => avg_pool::<3>(o),
        "AdaptiveAvgPool1d" => layer(AdaptiveAvgPool1d::new(o.output_size())),
        "AdaptiveAvgPool2d" => layer(AdaptiveAvgPool2d::new(o.output_size())),
        "AdaptiveAvgPool3d" => layer(AdaptiveAvgPool3d::new(o.output_size())),
        "AdaptiveMaxPool1d" => {
            let indices = o.flag("return_indices", false);
            with_indices(AdaptiveMaxPool1d::new(o.output_size()), indices, AdaptiveMaxPool1d::forward_with_indices)
        }
        "AdaptiveMaxPool2d" => {
            let indices = o.flag("return_indices", false);
            with_indices(AdaptiveMaxPool2d::new(o.output_size()), indices, AdaptiveMaxPool2d::forward_with_indices)
        }
        "AdaptiveMaxPool3d" => {
            let indices = o.flag("return_indices", false);
            with_indices(AdaptiveMaxPool3d::new(o.output_size()), indices, AdaptiveMaxPool3d::forward_with_indices)
        }
        "weight_norm(Linear)" | "spectral_norm(Linear)" => {
            let linear = Linear::builder(o.count("in_features"), o.count("out_features")).bias(bias()).build()?;
            normed(name, o, linear)
        }
        "weight_norm(Conv2d)" | "spectral_norm(Conv2d)" => {
            let sizes = (o.count("in_channels"), o.count("out_channels"), o.count("kernel_size"));
            normed(name, o, Conv2d::new(sizes.0, sizes.1, sizes.2)?)
        }
        "spectral_norm(ConvTranspose2d)" => {
            let sizes = (o.count("in_channels"), o.count("out_channels"), o.count("kernel_size"));
            normed(name, o, ConvTranspose2d::new(sizes.0, sizes.1, sizes.2)?)
        }
        "BatchNorm1d" => batch_norm::<1>(o),
        "BatchNorm2d" => batch_norm::<2>(o),
        "BatchNorm3d" => batch_norm::<3>(o),
        "InstanceNorm1d" => instance_norm::<1>(o),
        "InstanceNorm2d" => instance_norm::<2>(o),
        "InstanceNorm3d" => instance_norm::<3>(o),
        "LayerNorm" => {
            let builder = LayerNorm::builder(o.counts("normalized_shape").unwrap().as_slice());
            let builder = set!(builder, o, number: eps).bias(bias());
            layer(builder.elementwise_affine(o.flag("elementwise_affine", true)).build()?)
        }
        "RMSNorm" => {
            let builder = RMSNorm::builder(o.counts("normalized_shape").unwrap().as_slice()).eps(o.number("eps"));
            layer(builder.elementwise_affine(o.flag("elementwise_affine", true)).build()?)
        }
        "GroupNorm" => {
            let builder = GroupNorm::builder(o.count("num_groups"), o.count("num_channels"));
            layer(set!(builder, o, number: eps).affine(affine()).bias(bias()).build()?)
        }
        "Embedding" => embedding(o),
        "EmbeddingBag" => embedding_bag(o),
        "Upsample" => upsample(o),
        "Unfold" => layer(set!(Unfold::new(blocks()), o, sizes: dilation padding stride)),
        "Fold" => layer(set!(Fold::new(o.sizes("output_size").unwrap(), blocks()), o, sizes: dilation padding stride)),
        "CosineSimilarity" => {
            let similarity = set!(CosineSimilarity::new(), o, integer: dim, number: eps);
            called(similarity, |s, x| Ok(vec![s.forward(&x[0], &x[1])?]))
        }
        "PairwiseDistance" => {
            let distance = set!(PairwiseDistance::new(), o, number: p eps).keepdim(o.flag("keepdim", false));
            called(distance, |d, x| Ok(vec![d.forward(&x[0], &x[1])?]))
        }
        other => panic!("no layer {other}"),
    }
}
