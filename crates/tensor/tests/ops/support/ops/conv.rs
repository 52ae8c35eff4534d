use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::{ConvOptions, ConvTransposeOptions, Padding, Sizes};

const KEYWORD: usize = usize::MAX;

fn spatial(a: &Args, name: &str, default: usize) -> Result<Sizes> {
    if a.has(KEYWORD, name) { Ok(Sizes::from(&a.sizes(KEYWORD, name)?[..])) } else { Ok(default.into()) }
}

fn options(a: &Args) -> Result<ConvOptions> {
    let padding = match a.text(KEYWORD, "padding") {
        Some("same") => Padding::Same,
        Some(_) => Padding::Valid,
        None => spatial(a, "padding", 0)?.into(),
    };
    let stride = spatial(a, "stride", 1)?;
    let options = ConvOptions::default().stride(stride).padding(padding).dilation(spatial(a, "dilation", 1)?);
    Ok(options.groups(a.size(KEYWORD, "groups", 1)?))
}

fn transposed(a: &Args) -> Result<ConvTransposeOptions> {
    Ok(ConvTransposeOptions::default()
        .stride(spatial(a, "stride", 1)?)
        .padding(spatial(a, "padding", 0)?)
        .output_padding(spatial(a, "output_padding", 0)?)
        .dilation(spatial(a, "dilation", 1)?)
        .groups(a.size(KEYWORD, "groups", 1)?))
}

super::ops! {
    "conv1d" => |a| a.t(0)?.conv1d(a.t(1)?, a.opt(2, "bias"), options(a)?);
    "conv2d" => |a| a.t(0)?.conv2d(a.t(1)?, a.opt(2, "bias"), options(a)?);
    "conv3d" => |a| a.t(0)?.conv3d(a.t(1)?, a.opt(2, "bias"), options(a)?);
    "conv_transpose1d" => |a| a.t(0)?.conv_transpose1d(a.t(1)?, a.opt(2, "bias"), transposed(a)?);
    "conv_transpose2d" => |a| a.t(0)?.conv_transpose2d(a.t(1)?, a.opt(2, "bias"), transposed(a)?);
    "conv_transpose3d" => |a| a.t(0)?.conv_transpose3d(a.t(1)?, a.opt(2, "bias"), transposed(a)?);
}
