//! Images and volumes sampled at any places, and the grids of affine maps.

use super::join::{Indexing, meshgrid};
use crate::{Tensor, where_};
use rushlight_core::{DType, Error, Result, setters};

/// How values between pixels are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridMode {
    /// A straight line between neighbours, in every dimension.
    #[default]
    Bilinear,
    /// The nearest pixel.
    Nearest,
    /// A cubic through four neighbours, in every dimension.
    Bicubic,
}

/// What lies outside of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridPadding {
    /// Zeros.
    #[default]
    Zeros,
    /// The nearest pixel of the image.
    Border,
    /// The image, mirrored at its edges.
    Reflection,
}

/// Optional arguments of [`Tensor::grid_sample`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GridSample {
    mode: GridMode,
    padding: GridPadding,
    align_corners: bool,
}

impl GridSample {
    setters! {
        /// How values between pixels are found; [`GridMode::Bilinear`] by default.
        mode: GridMode;
        /// What lies outside; [`GridPadding::Zeros`] by default.
        padding: GridPadding;
        /// Whether -1 and 1 are the centres of the corner pixels instead of their outer edges.
        align_corners: bool;
    }

    /// Coordinates between -1 and 1 as positions of pixels, along a dimension of `n`.
    fn pixels(&self, at: &Tensor, n: usize) -> Result<Tensor> {
        let at = at.add(1.0)?;
        if self.align_corners { at.div(2.0)?.mul(n as f64 - 1.0) } else { at.mul(n as f64)?.sub(1.0)?.div(2.0) }
    }

    /// Positions moved into the image, unless zeros are around it.
    fn padded(&self, at: &Tensor, n: usize) -> Result<Tensor> {
        let last = n as f64 - 1.0;
        match self.padding {
            GridPadding::Zeros => Ok(at.clone()),
            GridPadding::Border => at.clamp(0.0, last),
            GridPadding::Reflection => {
                let (low, span) = if self.align_corners { (0.0, last) } else { (-0.5, n as f64) };
                if span == 0.0 {
                    return at.mul(0.0);
                }
                let distance = at.sub(low)?.abs()?;
                let (turns, rest) = (distance.div(span)?.floor()?, distance.remainder(span)?);
                let even = turns.remainder(2.0)?.eq(0.0)?;
                where_(&even, &rest, &rest.rsub(span)?)?.add(low)?.clamp(0.0, last)
            }
        }
    }

    /// Along one dimension, the positions that a value is made of and their weights.
    fn taps(&self, at: &Tensor, n: usize) -> Result<Vec<(Tensor, Tensor)>> {
        let low = at.floor()?;
        let part = at.sub(&low)?;
        if self.mode == GridMode::Bilinear {
            return Ok(vec![(low.clone(), part.rsub(1.0)?), (low.add(1.0)?, part)]);
        }
        /// The slope at neighbours that PyTorch has chosen.
        const A: f64 = -0.75;
        let near = |t: &Tensor| t.mul(A + 2.0)?.sub(A + 3.0)?.mul(t)?.mul(t)?.add(1.0);
        let far = |t: &Tensor| t.mul(A)?.sub(5.0 * A)?.mul(t)?.add(8.0 * A)?.mul(t)?.sub(4.0 * A);
        let weights = [far(&part.add(1.0)?)?, near(&part)?, near(&part.rsub(1.0)?)?, far(&part.rsub(2.0)?)?];
        let place = |k: usize| self.padded(&low.add(k as f64 - 1.0)?, n);
        weights.into_iter().enumerate().map(|(k, weight)| Ok((place(k)?, weight))).collect()
    }
}

/// The elements of `image` (`[batch, channels, pixels]`) at integer coordinates, one tensor for each dimension; zero
/// outside.
pub(super) fn take(image: &Tensor, places: &[&Tensor], sizes: &[usize]) -> Result<Tensor> {
    let (mut inside, mut index): (Option<Tensor>, Option<Tensor>) = (None, None);
    for (at, &n) in places.iter().zip(sizes) {
        let here = at.ge(0.0)?.bitwise_and(&at.le(n as f64 - 1.0)?)?;
        inside = Some(match inside {
            Some(before) => before.bitwise_and(&here)?,
            None => here,
        });
        let at = at.nan_to_num(None, None, None)?.clamp(0.0, n as f64 - 1.0)?.to_dtype(DType::I64)?;
        index = Some(match index {
            Some(before) => before.mul(n as i64)?.add(&at)?,
            None => at,
        });
    }
    let (Some(inside), Some(index)) = (inside, index) else {
        return Err(Error::shape("grid_sample: expected a grid of two or three coordinates"));
    };
    let (batch, channels) = (image.shape()[0], image.shape()[1]);
    let count: usize = inside.shape()[1..].iter().product();
    let index = index.reshape([batch, 1, count])?.expand([batch, channels, count])?;
    let found = image.gather(2, &index)?.reshape(&[&[batch, channels], &inside.shape()[1..]].concat())?;
    // Selected, not multiplied: the weight of an infinite coordinate is NaN, which must not reach the image's gradient.
    where_(&inside.unsqueeze(1)?, &found, 0.0)
}

impl Tensor {
    /// Pixels of images `[batch, channels, height, width]`, or voxels of volumes, at the places of
    /// `grid` (`[batch, .., 2]` or `[batch, .., 3]`, x first): -1 and 1 are the image's edges.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{GridSample, Tensor};
    /// let image = Tensor::arange(0.0, 4.0, 1.0)?.reshape([1, 1, 2, 2])?;
    /// let centre = Tensor::zeros([1, 1, 1, 2])?;
    /// assert_eq!(image.grid_sample(&centre, GridSample::default())?.item::<f32>()?, 1.5);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn grid_sample(&self, grid: &Tensor, options: GridSample) -> Result<Tensor> {
        let rank = self.rank();
        if !matches!(rank, 4 | 5) || grid.rank() != rank {
            return Err(Error::shape(format!(
                "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got {rank} and {}",
                grid.rank()
            )));
        }
        let (batch, sizes) = (self.shape()[0], &self.shape()[2..]);
        if grid.shape()[0] != batch || grid.shape()[rank - 1] != sizes.len() {
            return Err(Error::shape(format!(
                "grid_sampler(): expected grid of batch size {batch} and {} coordinates in its last dimension, but got sizes {:?}",
                sizes.len(),
                grid.shape()
            )));
        }
        if sizes.contains(&0) {
            return Err(Error::shape(format!(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {:?}",
                self.shape()
            )));
        }
        // As in PyTorch, where sampling is one op that saves both, the backward pass raises if either was changed in
        // place.
        let (input, grid) = (self.watched("grid_sampler", &[grid])?, grid.watched("grid_sampler", &[self])?);
        let image = input.reshape([batch as isize, input.shape()[1] as isize, -1])?;
        let mut places = Vec::with_capacity(sizes.len());
        for (d, &n) in sizes.iter().enumerate() {
            // The grid's last coordinate belongs to the first dimension.
            let at = options.pixels(&grid.select(-1, -1 - d as isize)?, n)?;
            places.push(if options.mode == GridMode::Bicubic { at } else { options.padded(&at, n)? });
        }
        if options.mode == GridMode::Nearest {
            let nearest = places.iter().map(Tensor::round).collect::<Result<Vec<_>>>()?;
            let out = take(&image, &nearest.iter().collect::<Vec<_>>(), sizes)?;
            if !grid.requires_grad() {
                return Ok(out);
            }
            // The place does not matter to the value; PyTorch's gradient with respect to it is zero, not missing.
            let always = Tensor::ones_with(places[0].shape(), (DType::Bool, places[0].device()))?;
            return out.add(&where_(&always, 0.0, &places[0])?.to_dtype(out.dtype())?.unsqueeze(1)?);
        }
        let taps = places
            .iter()
            .zip(sizes)
            .map(|(at, &n)| options.taps(at, n))
            .collect::<Result<Vec<Vec<(Tensor, Tensor)>>>>()?;
        let corners: usize = taps.iter().map(Vec::len).product();
        let mut sum: Option<Tensor> = None;
        for corner in 0..corners {
            // The digits of `corner`, of the last dimension first.
            let (mut rest, mut chosen) = (corner, Vec::with_capacity(sizes.len()));
            for along in taps.iter().rev() {
                chosen.push(&along[rest % along.len()]);
                rest /= along.len();
            }
            chosen.reverse();
            let mut weight = chosen[0].1.clone();
            for (_, w) in &chosen[1..] {
                weight = weight.mul(w)?;
            }
            let found = take(&image, &chosen.iter().map(|(at, _)| at).collect::<Vec<_>>(), sizes)?;
            let piece = found.mul(&weight.to_dtype(self.dtype())?.unsqueeze(1)?)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&piece)?,
                None => piece,
            });
        }
        sum.ok_or_else(|| Error::shape("grid_sample: expected a grid of two or three coordinates"))
    }

    /// The grid by which [`Tensor::grid_sample`] applies affine maps to an output of `size`: maps `[batch, 2, 3]` for
    /// images (`[batch, channels, height, width]`), `[batch, 3, 4]` for volumes.
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Result<Tensor> {
        let name = "affine_grid";
        self.needs_float(name)?;
        if !matches!(size.len(), 4 | 5) {
            return Err(Error::unsupported(format!(
                "{name} only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {size:?}."
            )));
        }
        let (batch, sizes) = (size[0], &size[2..]);
        let d = sizes.len();
        if self.shape() != [batch, d, d + 1] || size.contains(&0) {
            return Err(Error::shape(format!(
                "{name}: expected a batch of {d}D affine matrices of shape {batch}x{d}x{} for size {size:?}, without \
                 zeros; got {:?}",
                d + 1,
                self.shape()
            )));
        }
        let options = (self.dtype(), self.device());
        let line = |&n: &usize| {
            let at =
                if n > 1 { Tensor::linspace_with(-1.0, 1.0, n, options)? } else { Tensor::zeros_with([1], options)? };
            if align_corners { Ok(at) } else { at.mul((n - 1) as f64)?.div(n as f64) }
        };
        let lines = sizes.iter().map(line).collect::<Result<Vec<_>>>()?;
        // Coordinates are in the order of the matrices' columns: x, y, and z for volumes.
        let mut places = meshgrid(&lines.iter().collect::<Vec<_>>(), Indexing::Ij)?;
        places.reverse();
        places.push(places[0].ones_like()?);
        let points = Tensor::stack(&places.iter().collect::<Vec<_>>(), -1)?.reshape([1, -1, d as isize + 1])?;
        points.matmul(&self.transpose(1, 2)?)?.reshape(&[&[batch], sizes, &[d]].concat())
    }
}
