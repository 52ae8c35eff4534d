//! Convolution: windows unfolded to columns, a matrix product, and back.
//!
//! All three passes share one form. `x` unfolds to `columns [groups, in_channels / groups * taps, images * positions]`,
//! the weight is `[groups, out_channels / groups, in_channels / groups * taps]`, and `y` is their product. Images are
//! processed in batches.

use super::array::{Array, apply, product};
use super::execute;
use super::per_block;
use crate::backend::{Conv, View, call};
use crate::{DType, Error, Layout, Pointwise, Result};

impl Conv {
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    fn positions(&self) -> usize {
        self.output.iter().product()
    }

    /// Rows of the columns, for each group.
    fn depth(&self) -> usize {
        self.in_channels / self.groups * self.taps()
    }

    fn weight_shape(&self) -> [usize; 3] {
        [self.groups, self.out_channels / self.groups, self.depth()]
    }

    /// Padded input sizes; windows may reach past the padding.
    fn padded(&self) -> Result<[usize; 3]> {
        let mut sizes = [0; 3];
        for d in 0..3 {
            let with_padding = self.padding[d].checked_mul(2).and_then(|p| p.checked_add(self.input[d]));
            let reach = (self.output[d].max(1) - 1)
                .checked_mul(self.stride[d])
                .and_then(|r| r.checked_add((self.kernel[d].max(1) - 1).checked_mul(self.dilation[d])? + 1));
            let (Some(with_padding), Some(reach)) = (with_padding, reach) else {
                return Err(Error::out_of_memory(format!(
                    "conv: padding {:?} makes images of {:?} too large to work on in memory",
                    self.padding, self.input
                )));
            };
            sizes[d] = with_padding.max(reach);
        }
        Ok(sizes)
    }

    /// Number of images unfolded at once.
    fn images(&self) -> usize {
        per_block(self.batch, self.groups * self.depth() * self.positions())
    }

    /// Zeroed padded memory for some images, and the part of it inside the padding.
    fn padded_images(&self, like: &Array, images: usize, dtype: DType) -> Result<[Array<'static>; 2]> {
        let [depth, height, width] = self.padded()?;
        let whole = like.full(&[images, self.in_channels, depth, height, width], dtype, 0.0)?;
        let inner = (0..3).fold(whole.clone(), |a, d| a.slice(2 + d, self.padding[d], self.input[d]));
        Ok([whole, inner])
    }

    /// The elements under tap `tap` of all windows of padded images: `[in_channels, images, output..]`.
    fn under_tap<'a>(&self, padded: &Array<'a>, tap: [usize; 3]) -> Array<'a> {
        let mut layout = padded.layout().transpose(0, 1);
        for d in 0..3 {
            layout = layout.slice(2 + d, tap[d] * self.dilation[d], self.output[d], self.stride[d]);
        }
        padded.with(layout)
    }

    /// Calls `f` with the number and position of each tap.
    fn each_tap(&self, mut f: impl FnMut(usize, [usize; 3]) -> Result<()>) -> Result<()> {
        let [_, height, width] = self.kernel;
        (0..self.taps()).try_for_each(|i| f(i, [i / (height * width), i / width % height, i % width]))
    }

    /// Memory for columns: as the product's operand, and as `[in_channels, taps, images, output..]`.
    fn columns(&self, like: &Array, images: usize, dtype: DType) -> Result<[Array<'static>; 2]> {
        let [depth, height, width] = self.output;
        let split = [self.in_channels, self.taps(), images, depth, height, width];
        let by_tap = like.uninit(&split, dtype)?;
        let whole = by_tap.with(Layout::contiguous(&[self.groups, self.depth(), images * self.positions()])?);
        Ok([whole, by_tap])
    }

    /// Some images of `x` unfolded.
    fn unfolded(&self, x: &Array) -> Result<Array<'static>> {
        let (images, dtype) = (x.shape()[0], x.dtype().compute());
        let [padded, inner] = self.padded_images(x, images, dtype)?;
        x.copy_to(&inner)?;
        let [columns, by_tap] = self.columns(x, images, dtype)?;
        self.each_tap(|i, tap| self.under_tap(&padded, tap).copy_to(&by_tap.select(1, i)))?;
        Ok(columns)
    }

    /// Some images of `y` as `[groups, out_channels / groups, images * positions]`.
    fn rows(&self, y: &Array) -> Result<Array<'static>> {
        let images = y.shape()[0];
        let rows = y.transpose(0, 1).copied(y.dtype().compute())?;
        Ok(rows.with(Layout::contiguous(&[self.groups, self.out_channels / self.groups, images * self.positions()])?))
    }
}

/// A tensor of images, or a weight, with all three spatial dimensions.
fn five(view: View) -> Array {
    let mut array = Array::of(view);
    while array.shape().len() < 5 {
        array = array.unsqueeze(2);
    }
    array
}

/// The weight as the product takes it.
fn weight<'a>(spec: &Conv, w: View<'a>) -> Result<Array<'a>> {
    Array::of(w).wide()?.reshape(&spec.weight_shape())
}

/// Calls `f` with the first and the number of the images of each block.
fn each_block(spec: &Conv, mut f: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
    let step = spec.images();
    (0..spec.batch).step_by(step).try_for_each(|first| f(first, step.min(spec.batch - first)))
}

/// Default body of [`ConvForward`](call::ConvForward).
pub fn conv_forward(c: &call::ConvForward<View>) -> Result<()> {
    let call::ConvForward { ref spec, x, w, bias, y } = *c;
    let (x, w, y) = (five(x), weight(spec, w)?, five(y));
    let [depth, height, width] = spec.output;
    let bias = bias.map(|b| Array::dense(b, &[spec.out_channels, 1, 1, 1, 1])).transpose()?;
    each_block(spec, |first, images| {
        let columns = spec.unfolded(&x.slice(0, first, images))?;
        let rows = x.uninit(&[spec.groups, w.shape()[1], images * spec.positions()], w.dtype())?;
        product(1.0, &w, &columns, 0.0, &rows)?;
        let rows = rows.with(Layout::contiguous(&[spec.out_channels, images, depth, height, width])?);
        let y = y.slice(0, first, images).transpose(0, 1);
        match &bias {
            Some(bias) => apply(Pointwise::Add, &[(&rows).into(), bias.into()], &y),
            None => rows.copy_to(&y),
        }
    })
}

/// Default body of [`ConvBackwardInput`](call::ConvBackwardInput).
pub fn conv_backward_input(c: &call::ConvBackwardInput<View>) -> Result<()> {
    let call::ConvBackwardInput { ref spec, accumulate, dy, w, dx } = *c;
    if accumulate {
        // The gradient by itself, which the engine may have a kernel for, in the order of `dx`.
        let sum = Array::of(dx);
        let alone = sum.uninit_like(&sum)?;
        execute(call::ConvBackwardInput { accumulate: false, dx: alone.view(), ..*c })?;
        return apply(Pointwise::Add, &[(&sum).into(), (&alone).into()], &sum);
    }
    let (dy, w, dx) = (five(dy), weight(spec, w)?, five(dx));
    each_block(spec, |first, images| {
        let rows = spec.rows(&dy.slice(0, first, images))?;
        let [columns, by_tap] = spec.columns(&dy, images, w.dtype())?;
        product(1.0, &w.transpose(1, 2), &rows, 0.0, &columns)?;
        let [padded, inner] = spec.padded_images(&dy, images, w.dtype())?;
        spec.each_tap(|i, tap| {
            let seen = spec.under_tap(&padded, tap);
            apply(Pointwise::Add, &[(&seen).into(), (&by_tap.select(1, i)).into()], &seen)
        })?;
        inner.copy_to(&dx.slice(0, first, images))
    })
}

/// Default body of [`ConvBackwardWeight`](call::ConvBackwardWeight).
pub fn conv_backward_weight(c: &call::ConvBackwardWeight<View>) -> Result<()> {
    let call::ConvBackwardWeight { ref spec, x, dy, dw } = *c;
    let (x, dy, dw) = (five(x), five(dy), five(dw));
    let sum = x.full(&spec.weight_shape(), x.dtype().compute(), 0.0)?;
    each_block(spec, |first, images| {
        let columns = spec.unfolded(&x.slice(0, first, images))?;
        let rows = spec.rows(&dy.slice(0, first, images))?;
        product(1.0, &rows, &columns.transpose(1, 2), 1.0, &sum)
    })?;
    sum.reshape(dw.shape())?.copy_to(&dw)
}
