use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::{BatchNormOptions, InstanceNormOptions, Tensor};

const KEYWORD: usize = usize::MAX;

/// The output, and running statistics that were updated. They are copies: a case may be run again.
fn batch_norm(a: &Args) -> Result<Vec<Tensor>> {
    let copy = |t: Option<&Tensor>| t.map(|t| t.detach().copy()).transpose();
    let (mean, var) = (copy(a.opt(1, "running_mean"))?, copy(a.opt(2, "running_var"))?);
    let training = a.flag(KEYWORD, "training", false)?;
    let options = BatchNormOptions::default()
        .running_mean(mean.as_ref())
        .running_var(var.as_ref())
        .weight(a.opt(3, "weight"))
        .bias(a.opt(4, "bias"))
        .training(training)
        .momentum(a.f64(KEYWORD, "momentum", 0.1)?)
        .eps(a.f64(KEYWORD, "eps", 1e-5)?);
    let mut out = vec![a.t(0)?.batch_norm(&options)?];
    if training {
        out.extend(mean);
        out.extend(var);
    }
    Ok(out)
}

fn instance_norm(a: &Args) -> Result<Tensor> {
    let options = InstanceNormOptions::default()
        .running_mean(a.opt(1, "running_mean"))
        .running_var(a.opt(2, "running_var"))
        .weight(a.opt(3, "weight"))
        .bias(a.opt(4, "bias"))
        .use_input_stats(a.flag(KEYWORD, "use_input_stats", true)?)
        .eps(a.f64(KEYWORD, "eps", 1e-5)?);
    a.t(0)?.instance_norm(&options)
}

super::ops! {
    "softmax" => |a| match a.dtype("dtype")? {
        Some(dtype) => a.t(0)?.softmax_with(a.dim(1, "dim", 0)?, dtype),
        None => a.t(0)?.softmax(a.dim(1, "dim", 0)?),
    };
    "log_softmax" => |a| match a.dtype("dtype")? {
        Some(dtype) => a.t(0)?.log_softmax_with(a.dim(1, "dim", 0)?, dtype),
        None => a.t(0)?.log_softmax(a.dim(1, "dim", 0)?),
    };
    "softmin" => |a| match a.dtype("dtype")? {
        Some(dtype) => a.t(0)?.softmin_with(a.dim(1, "dim", 0)?, dtype),
        None => a.t(0)?.softmin(a.dim(1, "dim", 0)?),
    };
    "layer_norm" => |a| {
        let eps = a.f64(KEYWORD, "eps", 1e-5)?;
        a.t(0)?.layer_norm(&a.sizes(1, "normalized_shape")?, a.opt(2, "weight"), a.opt(3, "bias"), eps)
    };
    "rms_norm" => |a| a.t(0)?.rms_norm(&a.sizes(1, "normalized_shape")?, a.opt(2, "weight"), a.opt_f64(KEYWORD, "eps")?);
    "batch_norm" => |a| batch_norm(a);
    "group_norm" => |a| {
        a.t(0)?.group_norm(a.size(1, "num_groups", 1)?, a.opt(2, "weight"), a.opt(3, "bias"), a.f64(KEYWORD, "eps", 1e-5)?)
    };
    "instance_norm" => |a| instance_norm(a);
    "normalize" => |a| a.t(0)?.normalize(a.f64(1, "p", 2.0)?, a.dim(2, "dim", 1)?, a.f64(3, "eps", 1e-12)?);
    "cosine_similarity" => |a| a.t(0)?.cosine_similarity(a.t(1)?, a.dim(2, "dim", 1)?, a.f64(3, "eps", 1e-8)?);
    "cdist" => |a| a.t(0)?.cdist(a.t(1)?, a.f64(2, "p", 2.0)?);
}
