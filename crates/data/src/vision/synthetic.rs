//! Synthetic images that a network can learn to classify.

use super::LabeledImages;
use crate::rng::SampleRng;
use rushlight_core::{Result, layout::checked_numel};
use rushlight_tensor::Tensor;
use std::f32::consts::TAU;

/// Images of stripes: a class has its own direction, width and colours; each image its own phase and noise.
pub(super) fn stripes(count: usize, size: [usize; 3], classes: Vec<String>, seed: u64) -> Result<LabeledImages> {
    let [channels, height, width] = size;
    let total = checked_numel(&[count, channels, height, width])?;
    let mut pixels = Vec::new();
    pixels
        .try_reserve_exact(total)
        .map_err(|_| rushlight_core::Error::out_of_memory(format!("synthetic: no memory for {count} images")))?;
    let mut labels = Vec::with_capacity(count);
    for i in 0..count {
        let mut rng = SampleRng::for_sample(seed, 0, i, 0);
        let label = i % classes.len();
        let angle = label as f32 * TAU / 2.0 / classes.len() as f32;
        let waves = 2.0 + (label % 3) as f32;
        let phase = rng.uniform() as f32 * TAU;
        for channel in 0..channels {
            let tint = 0.5 + 0.3 * (label as f32 * 1.7 + channel as f32 * 2.1).sin();
            for y in 0..height {
                for x in 0..width {
                    let (u, v) = (x as f32 / width as f32, y as f32 / height as f32);
                    let wave = (TAU * waves * (u * angle.cos() + v * angle.sin()) + phase).sin();
                    let noise = rng.uniform() as f32 - 0.5;
                    pixels.push(((tint + 0.2 * wave + 0.2 * noise).clamp(0.0, 1.0) * 255.0) as u8);
                }
            }
        }
        labels.push(label as i64);
    }
    LabeledImages::new(Tensor::from_slice(&pixels, [count, channels, height, width])?, labels, classes)
}
