//! ONNX's Resize: along each dimension a matrix of the weights that inputs have in outputs.

use super::ops::*;
use crate::ops::Args;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

struct Settings {
    mode: String,
    coordinates: String,
    nearest: String,
    cubic: f64,
    exclude: bool,
    antialias: bool,
}

impl Settings {
    /// The position in the input of an output's position.
    fn source(&self, at: f64, scale: f64, input: f64, output: f64) -> Result<f64> {
        Ok(match self.coordinates.as_str() {
            "half_pixel" => (at + 0.5) / scale - 0.5,
            "half_pixel_symmetric" => {
                // Sizes that the scale does not give exactly are centred.
                let centre = input / 2.0;
                let offset = centre * (1.0 - output / (input * scale));
                offset + (at + 0.5) / scale - 0.5
            }
            "pytorch_half_pixel" => {
                if output > 1.0 {
                    (at + 0.5) / scale - 0.5
                } else {
                    0.0
                }
            }
            "align_corners" => {
                if output > 1.0 {
                    at * (input - 1.0) / (output - 1.0)
                } else {
                    0.0
                }
            }
            "asymmetric" => at / scale,
            other => return Err(Error::unsupported(format!("Resize with the coordinates '{other}'"))),
        })
    }

    fn kernel(&self, x: f64) -> f64 {
        let (x, a) = (x.abs(), self.cubic);
        match self.mode.as_str() {
            "linear" => (1.0 - x).max(0.0),
            _ if x < 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            _ if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            _ => 0.0,
        }
    }

    /// The weights of the inputs for one output.
    fn row(&self, at: usize, scale: f64, input: usize, output: usize) -> Result<Vec<f64>> {
        let mut row = vec![0.0; input];
        let position = self.source(at as f64, scale, input as f64, output as f64)?;
        let clip = |i: i64| i.clamp(0, input as i64 - 1) as usize;
        if self.mode == "nearest" {
            let index = match self.nearest.as_str() {
                "round_prefer_floor" => (position - 0.5).ceil(),
                "round_prefer_ceil" => (position + 0.5).floor(),
                "floor" => position.floor(),
                "ceil" => position.ceil(),
                other => return Err(Error::unsupported(format!("Resize with the mode '{other}'"))),
            };
            row[clip(index as i64)] = 1.0;
            return Ok(row);
        }
        let shrink = if self.antialias && scale < 1.0 { scale } else { 1.0 };
        let reach = (if self.mode == "linear" { 1.0 } else { 2.0 }) / shrink;
        let (first, last) = ((position - reach).floor() as i64, (position + reach).ceil() as i64);
        let mut total = 0.0;
        for i in first..=last {
            let weight = self.kernel((i as f64 - position) * shrink);
            if (self.exclude || self.antialias) && !(0..input as i64).contains(&i) {
                continue;
            }
            row[clip(i)] += weight;
            total += weight;
        }
        if (self.exclude || self.antialias) && total != 0.0 {
            row.iter_mut().for_each(|w| *w /= total);
        }
        Ok(row)
    }
}

pub(super) fn resize(a: &Args) -> Found {
    let x = t(a, 0)?;
    let settings = Settings {
        mode: text(a, "mode", "nearest")?,
        coordinates: text(a, "coordinate_transformation_mode", "half_pixel")?,
        nearest: text(a, "nearest_mode", "round_prefer_floor")?,
        cubic: float(a, "cubic_coeff_a", -0.75)?,
        exclude: int(a, "exclude_outside", 0)? != 0,
        antialias: int(a, "antialias", 0)? != 0,
    };
    float(a, "extrapolation_value", 0.0)?;
    let rank = x.rank() as i64;
    let axes = ints(a, "axes")?.unwrap_or_else(|| (0..rank).collect());
    let scales = opt(a, 2).filter(|t| t.numel() > 0).map(|t| t.to_dtype(DType::F64)?.to_vec::<f64>()).transpose()?;
    let sizes = opt(a, 3).filter(|t| t.numel() > 0).map(|t| t.to_dtype(DType::I64)?.to_vec::<i64>()).transpose()?;
    let policy = text(a, "keep_aspect_ratio_policy", "stretch")?;
    let given = scales.as_ref().map_or_else(|| sizes.as_ref().map_or(0, Vec::len), Vec::len);
    if given != axes.len() {
        return Err(Error::value(format!("Resize: {given} sizes for {} dimensions", axes.len())));
    }
    let dims = axes.iter().map(|&d| (if d < 0 { d + rank } else { d }) as isize).collect::<Vec<_>>();
    let mut plan = Vec::new();
    for (at, &dim) in dims.iter().enumerate() {
        let input = x.size(dim)?;
        plan.push(match (&scales, &sizes) {
            (Some(scales), _) => ((input as f64 * scales[at]).floor().max(0.0) as usize, scales[at]),
            (None, Some(sizes)) => (sizes[at].max(0) as usize, sizes[at] as f64 / input as f64),
            _ => return Err(Error::value("Resize without scales or sizes")),
        });
    }
    if policy != "stretch" && sizes.is_some() {
        let all = plan.iter().map(|p| p.1);
        let scale = if policy == "not_larger" { all.fold(f64::INFINITY, f64::min) } else { all.fold(0.0, f64::max) };
        for (p, &dim) in plan.iter_mut().zip(&dims) {
            *p = ((x.size(dim)? as f64 * scale + 0.5).floor() as usize, scale);
        }
    }
    let mut out = if x.dtype().is_float() { x.clone() } else { x.to_dtype(DType::F64)? };
    for (&(size, scale), &dim) in plan.iter().zip(&dims) {
        let input = out.size(dim)?;
        if size == input && scale == 1.0 {
            continue;
        }
        if input.saturating_mul(size) > 1 << 28 {
            return Err(Error::value("Resize: the sizes are too large"));
        }
        let mut matrix = Vec::with_capacity(input * size);
        for at in 0..size {
            matrix.extend(settings.row(at, scale, input, size)?);
        }
        let matrix = Tensor::new_with(&matrix[..], DType::F64)?.reshape([size, input])?.to_dtype(out.dtype())?;
        let moved = out.movedim([dim], [-1])?;
        out = op("matmul", vec![moved.into(), matrix.t()?.into()])?.movedim([-1], [dim])?;
    }
    some(out.to_dtype(x.dtype())?)
}
