//! Regions of feature maps: pooling of boxes, and convolutions that read from shifted places.

use super::grid::take;
use crate::autograd::no_grad;
use crate::{Tensor, where_};
use rushlight_core::{DType, Device, Error, Result, setters};

/// How [`Tensor::pool_regions`] makes a value of a bin of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionPooling {
    /// The mean of bilinear samples: RoIAlign.
    #[default]
    Align,
    /// The largest pixel of the bin, whose corners are rounded: RoIPool.
    Max,
    /// The mean of the bin's pixels, whose corners are rounded.
    Mean,
}

/// Optional arguments of [`Tensor::pool_regions`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolRegions {
    pooling: RegionPooling,
    spatial_scale: f64,
    sampling_ratio: usize,
    aligned: bool,
    position_sensitive: bool,
}

impl Default for PoolRegions {
    fn default() -> Self {
        let pooling = RegionPooling::Align;
        Self { pooling, spatial_scale: 1.0, sampling_ratio: 0, aligned: false, position_sensitive: false }
    }
}

impl PoolRegions {
    setters! {
        /// How a bin becomes a value; [`RegionPooling::Align`] by default.
        pooling: RegionPooling;
        /// Pixels of the feature map per unit of the boxes; 1 by default.
        spatial_scale: f64;
        /// Samples of a bin along each side; 0, the default, takes as many as the bin has pixels.
        sampling_ratio: usize;
        /// Whether a pixel's centre is half a unit from its corner.
        aligned: bool;
        /// Whether each bin reads channels of its own.
        position_sensitive: bool;
    }

    /// The pixels of `n` that each bin reads along one side of a box, with weights, in arithmetic of `round`.
    fn taps(&self, low: f64, high: f64, bins: usize, n: usize, round: fn(f64) -> f64) -> Vec<Vec<(usize, f64)>> {
        let (low, high) = (round(low * self.spatial_scale), round(high * self.spatial_scale));
        if self.pooling != RegionPooling::Align {
            // Corners half way between pixels go away from zero, as in C.
            let (low, high) = (low.round(), high.round());
            let extra = if self.pooling == RegionPooling::Max { 1.0 } else { 0.0 };
            let bin = round(round(high - low + extra).max(1.0) / bins as f64);
            let last = (n - usize::from(self.pooling == RegionPooling::Mean)) as f64;
            return (0..bins)
                .map(|at| {
                    let start = (round(at as f64 * bin).floor() + low).clamp(0.0, last);
                    let end = (round((at + 1) as f64 * bin).ceil() + low).clamp(0.0, last);
                    let count = (end - start).max(1.0);
                    (start as usize..end as usize).map(|pixel| (pixel, 1.0 / count)).collect()
                })
                .collect();
        }
        let shift = if self.aligned || self.position_sensitive { 0.5 } else { 0.0 };
        let (low, high) = (round(low - shift), round(high - shift));
        let side = round(high - low);
        let side = if self.aligned || self.position_sensitive { side } else { side.max(1.0) };
        let bin = round(side / bins as f64);
        let samples = if self.sampling_ratio > 0 { self.sampling_ratio } else { bin.ceil().max(0.0) as usize };
        (0..bins)
            .map(|at| {
                let mut found: Vec<(usize, f64)> = Vec::new();
                for sample in 0..samples {
                    let step = round(round((sample as f64 + 0.5) * bin) / samples as f64);
                    bilinear(round(round(low + round(at as f64 * bin)) + step), n, 1.0 / samples as f64, &mut found);
                }
                found
            })
            .collect()
    }
}

/// Adds the two pixels around a place, times a weight. A place more than a pixel outside has none.
fn bilinear(at: f64, n: usize, weight: f64, found: &mut Vec<(usize, f64)>) {
    if at.is_nan() || at < -1.0 || at > n as f64 {
        return;
    }
    let at = at.clamp(0.0, (n - 1) as f64);
    let low = at as usize;
    for (pixel, part) in [(low, 1.0 - (at - low as f64)), (low + 1, at - low as f64)] {
        if part == 0.0 {
            continue;
        }
        match found.iter_mut().find(|(known, _)| *known == pixel) {
            Some((_, sum)) => *sum += part * weight,
            None => found.push((pixel, part * weight)),
        }
    }
}

/// Optional arguments of [`Tensor::deform_conv2d`], for height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeformConv {
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

impl Default for DeformConv {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1] }
    }
}

impl DeformConv {
    setters! {
        /// Steps of the kernel; 1 by default.
        stride: [usize; 2];
        /// Zeros on both sides; none by default.
        padding: [usize; 2];
        /// Distance between the kernel's taps; 1 by default.
        dilation: [usize; 2];
    }
}

/// What the bins of regions read, as many pixels each: rows of a matrix and their weights.
struct Bins {
    /// Numbers of the regions.
    regions: Vec<usize>,
    /// By pixel, then by region and bin.
    rows: Vec<Vec<i64>>,
    weights: Vec<Vec<f64>>,
}

impl Tensor {
    /// Values of `[height, width]` bins of boxes of feature maps `[batch, channels, height, width]`. A row of `boxes`
    /// is the number of an image, then two corners, x first. The result is `[boxes, channels, height, width]`; boxes
    /// have no gradient.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{PoolRegions, Tensor};
    /// let image = Tensor::arange(0.0, 16.0, 1.0)?.reshape([1, 1, 4, 4])?;
    /// let boxes = Tensor::new([[0.0, 0.0, 0.0, 2.0, 2.0]])?;
    /// let found = image.pool_regions(&boxes, [1, 1], PoolRegions::default().aligned(true))?;
    /// assert_eq!(found.item::<f32>()?, 2.5);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn pool_regions(&self, boxes: &Tensor, size: [usize; 2], options: PoolRegions) -> Result<Tensor> {
        let (shape, places) = (self.shape(), boxes.shape());
        if shape.len() != 4 || places.len() != 2 || places[1] != 5 || size.contains(&0) || shape[2..].contains(&0) {
            return Err(Error::shape(format!(
                "pool_regions: expected maps [batch, channels, height, width], boxes [n, 5] and bins, got maps {shape:?}, boxes {places:?} \
                 and bins {size:?}"
            )));
        }
        let (batch, channels, height, width, count) = (shape[0], shape[1], shape[2], shape[3], places[0]);
        let cells = size[0] * size[1];
        let parts = if options.position_sensitive { cells } else { 1 };
        if channels % parts != 0 {
            return Err(Error::shape(format!(
                "pool_regions: {channels} input channels must be a multiple of the {cells} bins"
            )));
        }
        let outputs = channels / parts;
        let boxes = no_grad(|| boxes.to(Device::Cpu)?.to_dtype(DType::F64)?.to_vec::<f64>())?;
        let single = |x: f64| f64::from(x as f32);
        let round: fn(f64) -> f64 = if self.dtype() == DType::F64 { |x| x } else { single };
        let mut groups: Vec<((usize, usize), Bins)> = Vec::new();
        for (region, place) in boxes.chunks_exact(5).enumerate() {
            let image = place[0] as usize;
            if place[0] < 0.0 || image >= batch {
                return Err(Error::value(format!(
                    "pool_regions: box {region} is of image {}, but there are {batch}",
                    place[0]
                )));
            }
            let down = options.taps(place[2], place[4], size[0], height, round);
            let across = options.taps(place[1], place[3], size[1], width, round);
            let most = |taps: &[Vec<(usize, f64)>]| taps.iter().map(Vec::len).max().unwrap_or(0);
            let extent = (most(&down), most(&across));
            let at = groups.iter().position(|(known, _)| *known == extent).unwrap_or_else(|| {
                let pixels = extent.0 * extent.1;
                let empty = Bins { regions: vec![], rows: vec![vec![]; pixels], weights: vec![vec![]; pixels] };
                groups.push((extent, empty));
                groups.len() - 1
            });
            let bins = &mut groups[at].1;
            bins.regions.push(region);
            for (cell, (y, x)) in down.iter().flat_map(|y| across.iter().map(move |x| (y, x))).enumerate() {
                let part = if options.position_sensitive { cell } else { 0 };
                let first = (image * parts + part) * height * width;
                // A bin with fewer pixels reads its first one again, with no weight.
                let row = |i: usize, j: usize| match (y.get(i).or(y.first()), x.get(j).or(x.first())) {
                    (Some(y), Some(x)) => (first + y.0 * width + x.0) as i64,
                    _ => first as i64,
                };
                for (k, (rows, weights)) in bins.rows.iter_mut().zip(&mut bins.weights).enumerate() {
                    let (i, j) = (k / extent.1, k % extent.1);
                    rows.push(row(i, j));
                    weights.push(y.get(i).zip(x.get(j)).map_or(0.0, |(y, x)| y.1 * x.1));
                }
            }
        }
        // One row per pixel, so that a bin reads whole rows.
        let matrix = self
            .reshape([batch, outputs, parts, height * width])?
            .permute([0, 2, 3, 1])?
            .reshape([batch * parts * height * width, outputs])?;
        let mut found = Vec::with_capacity(groups.len());
        let mut order = vec![0_i64; count];
        let mut done = 0;
        for (_, bins) in &groups {
            for region in &bins.regions {
                order[*region] = done;
                done += 1;
            }
            found.push(pooled(&matrix, bins, cells, options.pooling == RegionPooling::Max)?);
        }
        if found.is_empty() {
            return Tensor::zeros_with([0, outputs, size[0], size[1]], (self.dtype(), self.device()));
        }
        let found = crate::cat(&found.iter().collect::<Vec<_>>(), 0)?.reshape([count, cells, outputs])?;
        let found = found.index_select(0, &Tensor::from_slice(&order, [count])?.to(self.device())?)?;
        found.permute([0, 2, 1])?.reshape([count, outputs, size[0], size[1]])?.contiguous()
    }

    /// A 2-d convolution whose every tap is shifted: `offset` has, for each offset group and tap, a shift down and one
    /// across for each output pixel; `mask`, if given, a factor. Groups follow from the shapes.
    pub fn deform_conv2d(
        &self,
        offset: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        mask: Option<&Tensor>,
        options: DeformConv,
    ) -> Result<Tensor> {
        let DeformConv { stride, padding, dilation } = options;
        let wrong = |what: String| Err(Error::shape(format!("deform_conv2d: {what}")));
        let (&[batch, channels, height, width], &[outputs, per_group, kh, kw], &[shifts, shift_channels, oh, ow]) =
            (self.shape(), weight.shape(), offset.shape())
        else {
            return wrong(format!(
                "expected input, weight and offset of 4 dimensions, got {:?}, {:?} and {:?}",
                self.shape(),
                weight.shape(),
                offset.shape()
            ));
        };
        let (taps, pixels) = (kh * kw, oh * ow);
        if per_group == 0 || taps == 0 || stride.contains(&0) || channels % per_group != 0 {
            return wrong(format!("weight {:?} does not fit an input of {channels} channels", weight.shape()));
        }
        let groups = channels / per_group;
        let offset_groups = shift_channels / (2 * taps);
        let size = |n: usize, d: usize, k: usize| {
            (n + 2 * padding[d]).checked_sub(dilation[d] * (k - 1) + 1).map(|rest| rest / stride[d] + 1)
        };
        if shifts != batch
            || offset_groups == 0
            || shift_channels != offset_groups * 2 * taps
            || channels % offset_groups != 0
            || outputs % groups != 0
            || (size(height, 0, kh), size(width, 1, kw)) != (Some(oh), Some(ow))
        {
            return wrong(format!(
                "offset {:?} does not fit input {:?} and weight {:?}: expected [batch, 2 * offset groups * {taps}, output height, output width]",
                offset.shape(),
                self.shape(),
                weight.shape()
            ));
        }
        if let Some(mask) = mask.filter(|m| m.shape() != [batch, offset_groups * taps, oh, ow]) {
            return wrong(format!(
                "expected a mask [{batch}, {}, {oh}, {ow}], got {:?}",
                offset_groups * taps,
                mask.shape()
            ));
        }
        let like = (offset.dtype(), offset.device());
        // Places of the taps without their shifts, [taps, pixels].
        let place = |d: usize, taps_along: usize, out: usize| -> Result<Tensor> {
            let pixel = Tensor::arange_with(0, out, 1, like)?.mul(stride[d] as f64)?.sub(padding[d] as f64)?;
            let tap = Tensor::arange_with(0, taps_along, 1, like)?.mul(dilation[d] as f64)?;
            let (tap, pixel) = if d == 0 {
                (tap.reshape([kh, 1, 1, 1])?, pixel.reshape([1, 1, oh, 1])?)
            } else {
                (tap.reshape([1, kw, 1, 1])?, pixel.reshape([1, 1, 1, ow])?)
            };
            tap.add(&pixel)?.expand([kh, kw, oh, ow])?.reshape([1, taps, pixels])
        };
        let shift = offset.reshape([batch * offset_groups, taps, 2, pixels])?;
        let y = shift.select(2, 0)?.add(&place(0, kh, oh)?)?;
        let x = shift.select(2, 1)?.add(&place(1, kw, ow)?)?;
        let image = self.reshape([batch * offset_groups, channels / offset_groups, height * width])?;
        let mut columns: Option<Tensor> = None;
        let (top, left) = (y.floor()?.detach(), x.floor()?.detach());
        for (down, right) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
            let (row, column) = (top.add(down)?, left.add(right)?);
            let weight = |at: &Tensor, pixel: &Tensor| at.sub(pixel)?.abs()?.rsub(1.0);
            let weight = weight(&y, &row)?.mul(&weight(&x, &column)?)?.to_dtype(self.dtype())?.unsqueeze(1)?;
            let piece = take(&image, &[&row, &column], &[height, width])?.mul(&weight)?;
            columns = Some(match columns {
                Some(sum) => sum.add(&piece)?,
                None => piece,
            });
        }
        let Some(mut columns) = columns else { return wrong("no corners".into()) };
        if let Some(mask) = mask {
            columns = columns.mul(&mask.reshape([batch * offset_groups, 1, taps, pixels])?)?;
        }
        let columns = columns.reshape([batch, groups, per_group * taps, pixels])?;
        let weight = weight.reshape([1, groups, outputs / groups, per_group * taps])?;
        let found = weight.matmul(&columns)?.reshape([batch, outputs, oh, ow])?;
        match bias {
            Some(bias) => found.add(&bias.reshape([1, outputs, 1, 1])?),
            None => Ok(found),
        }
    }
}

/// The values of some regions, `[regions * cells, channels]`: the weighted sum of the rows that each bin reads, or the
/// greatest of them.
fn pooled(matrix: &Tensor, bins: &Bins, cells: usize, greatest: bool) -> Result<Tensor> {
    let (count, channels, device) = (bins.regions.len() * cells, matrix.shape()[1], matrix.device());
    let index = |rows: &[i64]| Tensor::from_slice(rows, [count])?.to(device);
    let factors = |weights: &[f64]| Tensor::from_slice(weights, [count, 1])?.to_dtype(matrix.dtype())?.to(device);
    if greatest {
        // Which row is greatest is decided first: the gradient goes to that row alone.
        let mut best: Option<(Tensor, Tensor)> = None;
        no_grad(|| -> Result<()> {
            for rows in &bins.rows {
                let rows = index(rows)?;
                let here = matrix.index_select(0, &rows)?;
                let rows = rows.unsqueeze(1)?.expand([count, channels])?;
                best = Some(match &best {
                    Some((value, at)) => {
                        let better = here.gt(value)?;
                        (where_(&better, &here, value)?, where_(&better, &rows, at)?)
                    }
                    None => (here, rows.contiguous()?),
                });
            }
            Ok(())
        })?;
        if let Some((_, at)) = best {
            // A bin that reads nothing is zero.
            let any: Vec<f64> = bins.weights[0].iter().map(|w| f64::from(u8::from(*w > 0.0))).collect();
            return matrix.gather(0, &at)?.mul(&factors(&any)?);
        }
    }
    let mut sum: Option<Tensor> = None;
    for (rows, weights) in bins.rows.iter().zip(&bins.weights) {
        let piece = matrix.index_select(0, &index(rows)?)?.mul(&factors(weights)?)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&piece)?,
            None => piece,
        });
    }
    match sum {
        Some(sum) => Ok(sum),
        None => Tensor::zeros_with([count, channels], (matrix.dtype(), device)),
    }
}
