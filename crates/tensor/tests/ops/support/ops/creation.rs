use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::{Options, Tensor};

fn options(a: &Args) -> Result<Options> {
    Ok(a.dtype("dtype")?.map(Options::from).unwrap_or_default())
}

super::ops! {
    "arange" => |a| match a.count() {
        1 => Tensor::arange_with(0, a.scalar(0, "end")?, 1, options(a)?),
        _ => Tensor::arange_with(a.scalar(0, "start")?, a.scalar(1, "end")?, a.scalar_or(2, "step", 1)?, options(a)?),
    };
    "linspace" => |a| Tensor::linspace_with(a.f64(0, "start", 0.0)?, a.f64(1, "end", 0.0)?, a.size(2, "steps", 0)?, options(a)?);
    "logspace" => |a| {
        let base = a.f64(3, "base", 10.0)?;
        Tensor::logspace_with(a.f64(0, "start", 0.0)?, a.f64(1, "end", 0.0)?, a.size(2, "steps", 0)?, base, options(a)?)
    };
    "eye" => |a| {
        let n = a.size(0, "n", 0)?;
        Tensor::eye_with(n, a.size(1, "m", n)?, options(a)?)
    };
    "zeros" => |a| Tensor::zeros_with(a.sizes(0, "size")?, options(a)?);
    "ones" => |a| Tensor::ones_with(a.sizes(0, "size")?, options(a)?);
    "full" => |a| Tensor::full_with(a.sizes(0, "size")?, a.scalar(1, "value")?, options(a)?);
}
