use crate::support::args::Args;
use rushlight_core::{Error, Result};
use rushlight_tensor::{InterpolateMode, InterpolateOptions, Sizes, Tensor};

const KEYWORD: usize = usize::MAX;

fn interpolate(a: &Args) -> Result<Tensor> {
    let options = if a.has(KEYWORD, "size") {
        InterpolateOptions::size(Sizes::from(&a.sizes(KEYWORD, "size")?[..]))
    } else {
        InterpolateOptions::scale_factor(a.floats(KEYWORD, "scale_factor")?)
    };
    let mode = match a.text(KEYWORD, "mode") {
        None | Some("nearest") => InterpolateMode::Nearest,
        Some("nearest-exact") => InterpolateMode::NearestExact,
        Some("linear") => InterpolateMode::Linear,
        Some("bilinear") => InterpolateMode::Bilinear,
        Some("trilinear") => InterpolateMode::Trilinear,
        Some("bicubic") => InterpolateMode::Bicubic,
        Some(other) => return Err(Error::value(format!("unknown interpolation mode '{other}'"))),
    };
    let align = if a.has(KEYWORD, "align_corners") { Some(a.flag(KEYWORD, "align_corners", false)?) } else { None };
    let recompute = a.flag(KEYWORD, "recompute_scale_factor", false)?;
    a.t(0)?.interpolate(&options.mode(mode).align_corners(align).recompute_scale_factor(recompute))
}

super::ops! {
    "interpolate" => |a| interpolate(a);
}
