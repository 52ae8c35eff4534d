use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::{AvgPool, MaxPool, OutputSize, Sizes, Tensor};

const KEYWORD: usize = usize::MAX;

fn sizes(a: &Args, name: &str) -> Result<Sizes> {
    Ok(Sizes::from(&a.sizes(KEYWORD, name)?[..]))
}

fn max_window(a: &Args) -> Result<MaxPool> {
    let mut window = MaxPool::new(sizes(a, "kernel_size")?).ceil_mode(a.flag(KEYWORD, "ceil_mode", false)?);
    if a.has(KEYWORD, "stride") {
        window = window.stride(sizes(a, "stride")?);
    }
    if a.has(KEYWORD, "padding") {
        window = window.padding(sizes(a, "padding")?);
    }
    if a.has(KEYWORD, "dilation") {
        window = window.dilation(sizes(a, "dilation")?);
    }
    Ok(window)
}

fn avg_window(a: &Args) -> Result<AvgPool> {
    let mut window = AvgPool::new(sizes(a, "kernel_size")?)
        .ceil_mode(a.flag(KEYWORD, "ceil_mode", false)?)
        .count_include_pad(a.flag(KEYWORD, "count_include_pad", true)?);
    if a.has(KEYWORD, "stride") {
        window = window.stride(sizes(a, "stride")?);
    }
    if a.has(KEYWORD, "padding") {
        window = window.padding(sizes(a, "padding")?);
    }
    if a.has(KEYWORD, "divisor_override") {
        window = window.divisor_override(a.size(KEYWORD, "divisor_override", 1)?);
    }
    Ok(window)
}

fn output_size(a: &Args) -> Result<OutputSize> {
    Ok(OutputSize::from(&a.holes(1, "output_size")?[..]))
}

/// The values, and the indices if requested.
fn wanted(a: &Args, (values, indices): (Tensor, Tensor)) -> Result<Vec<Tensor>> {
    Ok(if a.flag(KEYWORD, "return_indices", false)? { vec![values, indices] } else { vec![values] })
}

super::ops! {
    "max_pool1d" => |a| wanted(a, a.t(0)?.max_pool1d_with_indices(max_window(a)?)?);
    "max_pool2d" => |a| wanted(a, a.t(0)?.max_pool2d_with_indices(max_window(a)?)?);
    "max_pool3d" => |a| wanted(a, a.t(0)?.max_pool3d_with_indices(max_window(a)?)?);
    "avg_pool1d" => |a| a.t(0)?.avg_pool1d(avg_window(a)?);
    "avg_pool2d" => |a| a.t(0)?.avg_pool2d(avg_window(a)?);
    "avg_pool3d" => |a| a.t(0)?.avg_pool3d(avg_window(a)?);
    "adaptive_max_pool1d" => |a| wanted(a, a.t(0)?.adaptive_max_pool1d_with_indices(output_size(a)?)?);
    "adaptive_max_pool2d" => |a| wanted(a, a.t(0)?.adaptive_max_pool2d_with_indices(output_size(a)?)?);
    "adaptive_avg_pool1d" => |a| a.t(0)?.adaptive_avg_pool1d(output_size(a)?);
    "adaptive_avg_pool2d" => |a| a.t(0)?.adaptive_avg_pool2d(output_size(a)?);
    "adaptive_avg_pool3d" => |a| a.t(0)?.adaptive_avg_pool3d(output_size(a)?);
}
