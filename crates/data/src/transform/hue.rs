//! Turning the colours of an image.

use super::image_size;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

/// The image with its hues rotated by `shift` of the colour circle, between -0.5 and 0.5. Grey images are
/// unchanged.
pub fn adjust_hue(image: &Tensor, shift: f64) -> Result<Tensor> {
    if !(-0.5..=0.5).contains(&shift) {
        return Err(Error::value(format!("adjust_hue: the shift must be between -0.5 and 0.5, got {shift}")));
    }
    let (channels, height, width) = image_size("adjust_hue", image)?;
    match channels {
        1 => return Ok(image.clone()),
        3 => {}
        n => return Err(Error::shape(format!("adjust_hue: expects an image of 1 or 3 channels, got {n}"))),
    }
    let bytes = image.dtype() == DType::U8;
    let mut pixels = image.to_dtype(DType::F32)?.to_vec::<f32>()?;
    if bytes {
        pixels.iter_mut().for_each(|p| *p /= 255.0);
    }
    let (red, rest) = pixels.split_at_mut(height * width);
    let (green, blue) = rest.split_at_mut(height * width);
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let (h, s, v) = to_hsv(*r, *g, *b);
        (*r, *g, *b) = to_rgb((h + shift as f32).rem_euclid(1.0), s, v);
    }
    if !bytes {
        return Tensor::from_slice(&pixels, [3, height, width]);
    }
    // torchvision's way back to bytes, which gives each of the 256 values an equal share of [0, 1].
    let bytes: Vec<u8> = pixels.iter().map(|p| (p * 255.999) as u8).collect();
    Tensor::from_slice(&bytes, [3, height, width])
}

/// Hue, saturation and value, in torchvision's order of operations.
fn to_hsv(r: f32, g: f32, b: f32) -> (f32, f32, f32) {
    let (max, min) = (r.max(g).max(b), r.min(g).min(b));
    let range = max - min;
    if range == 0.0 {
        return (0.0, 0.0, max);
    }
    let (rc, gc, bc) = ((max - r) / range, (max - g) / range, (max - b) / range);
    let sector = if max == r {
        bc - gc
    } else if max == g {
        2.0 + rc - bc
    } else {
        4.0 + gc - rc
    };
    ((sector / 6.0 + 1.0) % 1.0, range / max, max)
}

fn to_rgb(h: f32, s: f32, v: f32) -> (f32, f32, f32) {
    let sector = (h * 6.0).floor();
    let within = h * 6.0 - sector;
    let p = (v * (1.0 - s)).clamp(0.0, 1.0);
    let q = (v * (1.0 - s * within)).clamp(0.0, 1.0);
    let t = (v * (1.0 - s * (1.0 - within))).clamp(0.0, 1.0);
    match sector as i32 % 6 {
        0 => (v, t, p),
        1 => (q, v, p),
        2 => (p, v, t),
        3 => (p, q, v),
        4 => (t, p, v),
        _ => (v, p, q),
    }
}
