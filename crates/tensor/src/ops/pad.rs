//! Padding the last dimensions.

use super::index::{Plan, index_read};
use crate::announce::{Value, announced};
use crate::autograd::{Meta, no_grad, record, recording};
use crate::{Tensor, amp};
use rushlight_core::backend::call;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Layout, Result, Scalar};
use std::sync::Arc;

/// Contents of the padding of [`Tensor::pad`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// A number.
    Constant(Scalar),
    /// The elements mirrored at the first and last, which are not repeated.
    Reflect,
    /// The first and last element.
    Replicate,
    /// The elements from the other end.
    Circular,
}

impl Default for PadMode {
    fn default() -> Self {
        PadMode::Constant(Scalar::Float(0.0))
    }
}

/// The padded size of a dimension.
fn grown(size: usize, before: isize, after: isize) -> Option<usize> {
    size.checked_add_signed(before).and_then(|s| s.checked_add_signed(after)).or_else(|| {
        // A large crop on one side may be made up for on the other.
        usize::try_from((size as isize).checked_add(before)?.checked_add(after)?).ok()
    })
}

impl Tensor {
    /// Elements put before and after the last dimensions: `padding` is the last dimension's before and after, then the
    /// one before it, and so on. Negative padding cuts.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{PadMode, Tensor};
    /// let x = Tensor::new([[1i64, 2, 3]])?;
    /// assert_eq!(x.pad(&[1, 1], PadMode::Constant(0.into()))?.to_vec::<i64>()?, [0, 1, 2, 3, 0]);
    /// assert_eq!(x.pad(&[2, 0], PadMode::Reflect)?.to_vec::<i64>()?, [3, 2, 1, 2, 3]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn pad(&self, padding: &[isize], mode: PadMode) -> Result<Tensor> {
        if let (Some(cast), PadMode::Reflect | PadMode::Replicate) = (amp::full(), mode) {
            return cast.run(|| cast.of(self)?.pad(padding, mode));
        }
        if !padding.len().is_multiple_of(2) || padding.len() / 2 > self.rank() {
            return Err(Error::value(format!(
                "pad: padding {padding:?} must have two entries per padded dimension, of at most {} for shape {:?}",
                self.rank(),
                self.shape()
            )));
        }
        let mut sides = vec![(0isize, 0isize); self.rank()];
        for (pair, side) in padding.chunks_exact(2).zip(sides.iter_mut().rev()) {
            *side = (pair[0], pair[1]);
        }
        let mut shape = Dims::new();
        for (d, (&size, &(before, after))) in self.shape().iter().zip(&sides).enumerate() {
            shape.push(grown(size, before, after).ok_or_else(|| {
                Error::value(format!(
                    "pad: the input size {size}, plus negative padding {before} and {after}, resulted in a negative output size \
                     at dimension {d}"
                ))
            })?);
        }
        let (how, value) = match mode {
            PadMode::Constant(value) => ("constant", Value::from(value)),
            PadMode::Reflect => ("reflect", Value::None),
            PadMode::Replicate => ("replicate", Value::None),
            PadMode::Circular => ("circular", Value::None),
        };
        announced!("nn.functional.pad", [self, padding, how, value]; self.pad(padding, mode));
        match mode {
            PadMode::Constant(value) => self.pad_constant(&sides, &shape, value),
            PadMode::Circular => self.pad_by_index(&sides, &shape, mode),
            _ => self.pad_by_index(&sides, &shape, mode)?.in_format_of(self),
        }
    }

    fn pad_constant(&self, sides: &[(isize, isize)], shape: &[usize], value: Scalar) -> Result<Tensor> {
        // A number where nothing is put need not be an element.
        let value = if sides.iter().all(|&(before, after)| before <= 0 && after <= 0) { Scalar::Int(0) } else { value };
        let out = if self.suggests_channels_last() {
            let out = self.uninit_in(Layout::channels_last(shape)?, self.dtype())?;
            out.fill_(value)?;
            out
        } else {
            Tensor::full_with(shape, value, (self.dtype(), self.device()))?
        };
        let (mut from, mut to) = (self.layout().clone(), out.layout().clone());
        for (d, &(before, after)) in sides.iter().enumerate() {
            let kept = grown(self.shape()[d], before.min(0), after.min(0)).ok_or_else(|| {
                Error::value(format!(
                    "pad: padding ({before}, {after}) cuts more than dimension {d} of {:?} has",
                    self.shape()
                ))
            })?;
            from = from.slice(d, before.min(0).unsigned_abs(), kept, 1);
            to = to.slice(d, before.max(0).unsigned_abs(), kept, 1);
        }
        if from.numel() > 0 {
            out.run(call::Copy { src: self.view_as(&from), out: out.view_as(&to) })?;
        }
        if self.dtype().is_differentiable() && recording(&[self]) {
            let back: Vec<isize> = sides.iter().rev().flat_map(|&(before, after)| [-before, -after]).collect();
            record("constant_pad_nd", &[self], &out, move |_, dy| {
                Ok(smallvec![Some(dy.pad(&back, PadMode::default())?)])
            })?;
        }
        Ok(out)
    }

    fn pad_by_index(&self, sides: &[(isize, isize)], shape: &[usize], mode: PadMode) -> Result<Tensor> {
        let Some(first) = sides.iter().position(|&s| s != (0, 0)) else { return self.copy() };
        // The gradient takes the planes one by one, and other devices copy lists of places from the host.
        let most = if self.device().is_cpu() && !recording(&[self]) { isize::MAX } else { MAX_PLANES };
        if let Some(planes) = Planes::new(sides, self.shape(), mode, most) {
            return planes.pad(self, shape);
        }
        let mut list = vec![None; first];
        for (d, &(before, after)) in sides.iter().enumerate().skip(first) {
            let n = self.shape()[d] as isize;
            let limit = match mode {
                PadMode::Reflect => n - 1,
                PadMode::Circular => n,
                _ if n == 0 => 0,
                _ => isize::MAX,
            };
            if before > limit || after > limit {
                return Err(Error::value(format!(
                    "pad: padding size should be {} the corresponding input dimension, but got: padding ({before}, {after}) at \
                     dimension {d} of input {:?}",
                    if mode == PadMode::Reflect { "less than" } else { "at most" },
                    self.shape()
                )));
            }
            if shape[d] == 0 && mode != PadMode::Circular {
                return Err(Error::value(format!(
                    "pad: padding ({before}, {after}) leaves nothing of dimension {d} of input {:?}",
                    self.shape()
                )));
            }
            // Elements cut off by a negative side do not wrap around to the other end.
            let (cut, kept) = (-before.min(0), n + before.min(0) + after.min(0));
            if mode == PadMode::Circular && kept <= 0 && shape[d] > 0 {
                return Err(Error::value(format!(
                    "pad: circular padding ({before}, {after}) leaves nothing of dimension {d} of input {:?} to repeat",
                    self.shape()
                )));
            }
            // Created on the device: a captured step cannot copy from the host.
            let options = (DType::I64, self.device());
            let place = Tensor::arange_with(-before as i64, -before as i64 + shape[d] as i64, 1, options)?;
            let last = (n - 1) as i64;
            let line = match mode {
                // Mirrored at the first element, then at the last.
                PadMode::Reflect => place.abs()?.rsub(last)?.abs()?.rsub(last)?,
                PadMode::Circular => place.sub(cut as i64)?.remainder(kept.max(1) as i64)?.add(cut as i64)?,
                _ => place.clamp(0, last.max(0))?,
            };
            let mut along: Dims = smallvec![1; sides.len() - first];
            along[d - first] = shape[d];
            list.push(Some(line.reshape(&along)?));
        }
        index_read("pad", self, Arc::new(Plan::new(self, &list)?))
    }
}

/// Most lines and planes that padding copies one by one.
const MAX_PLANES: isize = 16;

/// Narrow padding by elements of the tensor: the body is copied whole, then one plane after the other from within the
/// result.
#[derive(Clone)]
struct Planes {
    /// The body's shape.
    body: Dims,
    /// Padding before and after each dimension.
    sides: Vec<(usize, usize)>,
    mode: PadMode,
}

impl Planes {
    /// `None` for padding that cuts, adds more than `most` planes, or is refused.
    fn new(sides: &[(isize, isize)], shape: &[usize], mode: PadMode, most: isize) -> Option<Self> {
        let planes: isize = sides.iter().map(|&(before, after)| before.saturating_add(after)).sum();
        let fits = |(&size, &(before, after)): (&usize, &(isize, isize))| {
            let limit = match mode {
                PadMode::Reflect => size as isize - 1,
                PadMode::Circular => size as isize,
                _ => isize::MAX,
            };
            size > 0 && (0..=limit).contains(&before) && (0..=limit).contains(&after)
        };
        let narrow = planes <= most && shape.iter().zip(sides).all(fits);
        let sides = sides.iter().map(|&(before, after)| (before as usize, after as usize)).collect();
        narrow.then(|| Planes { body: Dims::from_slice(shape), sides, mode })
    }

    /// Where the body begins and ends in the result along a dimension.
    fn body(&self, d: usize) -> (usize, usize) {
        (self.sides[d].0, self.sides[d].0 + self.body[d])
    }

    /// Where in the result's body the element at a place along a dimension comes from.
    fn source(&self, d: usize, to: usize) -> usize {
        let ((start, end), n) = (self.body(d), self.body[d]);
        match self.mode {
            _ if (start..end).contains(&to) => to,
            PadMode::Reflect if to < start => 2 * start - to,
            PadMode::Reflect => 2 * (end - 1) - to,
            PadMode::Circular if to < start => to + n,
            PadMode::Circular => to - n,
            _ => to.clamp(start, end - 1),
        }
    }

    /// Calls `visit` for each plane to copy, in order. A source plane is complete by then; a copy covers the extent
    /// filled so far in the other dimensions.
    fn each(
        &self,
        whole: &Layout,
        mut visit: impl FnMut(&Layout, &Layout) -> Result<()>,
        backwards: bool,
    ) -> Result<()> {
        let dims: Vec<usize> = (0..self.body.len()).rev().collect();
        let order: Vec<usize> = if backwards { dims.into_iter().rev().collect() } else { dims };
        for d in order {
            // Dimensions after this one are whole already, those before it have their bodies only.
            let mut there = whole.clone();
            for before in 0..d {
                there = there.slice(before, self.body(before).0, self.body[before], 1);
            }
            let (start, end) = self.body(d);
            for i in 0..self.sides[d].0 + self.sides[d].1 {
                let to = if i < start { i } else { end + i - start };
                let from = self.source(d, to);
                visit(&there.slice(d, from, 1, 1), &there.slice(d, to, 1, 1))?;
            }
        }
        Ok(())
    }

    /// The layout of the body within the result.
    fn within(&self, whole: &Layout) -> Layout {
        (0..self.body.len()).fold(whole.clone(), |l, d| l.slice(d, self.body(d).0, self.body[d], 1))
    }

    fn pad(self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let out = x.uninit_like(shape, x.dtype())?;
        if out.numel() > 0 {
            let first = self.sides.iter().position(|&side| side != (0, 0)).unwrap_or(0);
            let places = |d: usize| (0..shape[d]).map(|to| self.source(d, to) - self.sides[d].0).collect();
            let sources: Vec<Vec<usize>> = (first..shape.len()).map(places).collect();
            out.run(call::PadFrom { sources: sources.into(), x: x.engine_view(), out: out.engine_view() })?;
        }
        if x.dtype().is_differentiable() && recording(&[x]) {
            record("pad", &[x], &out, move |_, dy| Ok(smallvec![Some(self.clone().gather(dy)?)]))?;
        }
        Ok(out)
    }

    /// The gradient: adds up the gradients of all copies of an element.
    fn gather(self, dy: &Tensor) -> Result<Tensor> {
        let sums = no_grad(|| -> Result<Tensor> {
            let sums = dy.detach().contiguous()?.copy()?;
            let plane = |layout: &Layout| {
                Tensor::from_parts(sums.0.storage.clone(), layout.clone(), sums.dtype(), Meta::default())
            };
            self.each(sums.layout(), |from, to| plane(from).add_(&plane(to)).map(|_| ()), true)?;
            plane(&self.within(sums.layout())).contiguous()
        })?;
        if recording(&[dy]) {
            let shape = Dims::from_slice(dy.shape());
            record("pad_backward", &[dy], &sums, move |_, d| Ok(smallvec![Some(self.clone().pad(d, &shape)?)]))?;
        }
        Ok(sums)
    }
}
