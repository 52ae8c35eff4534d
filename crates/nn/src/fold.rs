//! Sliding blocks of images as columns, and back.

use crate::python::one_or_tuple;
use crate::{Forward, Module};
use rushlight_core::{Error, Result};
use rushlight_tensor::autograd::is_grad_enabled;
use rushlight_tensor::{PadMode, Sizes, Tensor, stack};

/// Sliding blocks over a plane: their size and positions.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    kernel_size: Sizes,
    dilation: Sizes,
    padding: Sizes,
    stride: Sizes,
}

/// [`Blocks`] by dimension, on a plane of a size.
struct Grid {
    kernel: [usize; 2],
    dilation: [usize; 2],
    padding: [usize; 2],
    stride: [usize; 2],
    /// The plane with its padding.
    padded: [usize; 2],
    /// How many blocks there are.
    count: [usize; 2],
}

impl Blocks {
    fn new(kernel_size: Sizes) -> Self {
        Self { kernel_size, dilation: 1.into(), padding: 0.into(), stride: 1.into() }
    }

    fn settings(&self) -> String {
        let shown = |sizes: &Sizes| one_or_tuple(sizes.as_slice());
        format!(
            "kernel_size={}, dilation={}, padding={}, stride={}",
            shown(&self.kernel_size),
            shown(&self.dilation),
            shown(&self.padding),
            shown(&self.stride)
        )
    }

    fn on(&self, name: &str, plane: [usize; 2]) -> Result<Grid> {
        let kernel = self.kernel_size.per_dim::<2>(name, "kernel_size")?;
        let dilation = self.dilation.per_dim::<2>(name, "dilation")?;
        let padding = self.padding.per_dim::<2>(name, "padding")?;
        let stride = self.stride.per_dim::<2>(name, "stride")?;
        let (mut padded, mut count) = ([0; 2], [0; 2]);
        for d in 0..2 {
            let fit = || {
                if kernel[d] == 0 || dilation[d] == 0 || stride[d] == 0 {
                    return None;
                }
                let reach = dilation[d].checked_mul(kernel[d] - 1)?.checked_add(1)?;
                let whole = padding[d].checked_mul(2)?.checked_add(plane[d])?;
                isize::try_from(whole).ok()?;
                Some((whole, whole.checked_sub(reach)? / stride[d] + 1))
            };
            (padded[d], count[d]) = fit().ok_or_else(|| {
                Error::shape(format!("{name}: no block of {} fits on a plane of {plane:?}", self.settings()))
            })?;
        }
        Ok(Grid { kernel, dilation, padding, stride, padded, count })
    }
}

impl Grid {
    /// The positions that one place of the block has over all blocks, as a view of a padded plane.
    fn place(&self, padded: &Tensor, at: [usize; 2]) -> Result<Tensor> {
        let mut view = padded.clone();
        for (d, dim) in [(0, -2), (1, -1)] {
            let start = (at[d] * self.dilation[d]) as isize;
            let end = start + ((self.count[d] - 1) * self.stride[d] + 1) as isize;
            view = view.slice(dim, Some(start), Some(end), self.stride[d])?;
        }
        Ok(view)
    }

    /// All places and positions as one view, `[.., kernel rows, kernel columns, rows, columns]`.
    fn view(&self, padded: &Tensor) -> Result<Tensor> {
        let mut view = padded.clone();
        for d in 0..2 {
            // The block's rows become the last dimension, so that columns are the last but one.
            let reach = (self.kernel[d] - 1) * self.dilation[d] + 1;
            view = view.unfold(-2, reach, self.stride[d])?.slice(-1, None, None, self.dilation[d])?;
        }
        view.movedim([-2, -1], [-4, -3])
    }

    fn places(&self) -> impl Iterator<Item = [usize; 2]> {
        let [rows, columns] = self.kernel;
        (0..rows).flat_map(move |i| (0..columns).map(move |j| [i, j]))
    }

    /// Arguments of [`Tensor::pad`].
    fn pads(&self) -> [isize; 4] {
        let [rows, columns] = self.padding.map(|p| p as isize);
        [columns, columns, rows, rows]
    }
}

/// The setters of both layers.
macro_rules! block_options {
    ($layer:ident) => {
        impl $layer {
            /// Distance between the block's places; 1 by default.
            pub fn dilation(mut self, dilation: impl Into<Sizes>) -> Self {
                self.blocks.dilation = dilation.into();
                self
            }

            /// Zeros on both sides of the image; 0 by default.
            pub fn padding(mut self, padding: impl Into<Sizes>) -> Self {
                self.blocks.padding = padding.into();
                self
            }

            /// Steps of the block; 1 by default.
            pub fn stride(mut self, stride: impl Into<Sizes>) -> Self {
                self.blocks.stride = stride.into();
                self
            }
        }
    };
}

/// The blocks of images `[batch, channels, height, width]` as columns `[batch, channels · block, blocks]`; the batch
/// may be missing.
#[derive(Clone, Copy, Module)]
#[module(extra_repr = "Self::settings")]
pub struct Unfold {
    #[module(skip)]
    blocks: Blocks,
}

block_options!(Unfold);

impl Unfold {
    /// Blocks of a size.
    pub fn new(kernel_size: impl Into<Sizes>) -> Self {
        Self { blocks: Blocks::new(kernel_size.into()) }
    }

    fn settings(&self) -> String {
        self.blocks.settings()
    }
}

impl Forward for Unfold {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let name = "Unfold";
        let (&[.., channels, height, width], 3 | 4) = (input.shape(), input.rank()) else {
            return Err(Error::shape(format!("{name}: expected 3D or 4D input, got shape {:?}", input.shape())));
        };
        let grid = self.blocks.on(name, [height, width])?;
        let padded = input.pad(&grid.pads(), PadMode::default())?;
        let mut shape = input.shape()[..input.rank() - 3].to_vec();
        shape.extend([channels * grid.kernel[0] * grid.kernel[1], grid.count[0] * grid.count[1]]);
        if !(is_grad_enabled() && input.requires_grad()) {
            return grid.view(&padded)?.reshape(&shape);
        }
        // Gradients of places are added one by one: those of the one view overlap.
        let places = grid.places().map(|at| grid.place(&padded, at)).collect::<Result<Vec<_>>>()?;
        stack(&places.iter().collect::<Vec<_>>(), -3)?.reshape(&shape)
    }
}

/// The reverse of [`Unfold`]: columns summed where blocks overlap.
#[derive(Clone, Copy, Module)]
#[module(extra_repr = "Self::settings")]
pub struct Fold {
    #[module(skip)]
    output_size: Sizes,
    #[module(skip)]
    blocks: Blocks,
}

block_options!(Fold);

impl Fold {
    /// Images of a height and width from blocks of a size.
    pub fn new(output_size: impl Into<Sizes>, kernel_size: impl Into<Sizes>) -> Self {
        Self { output_size: output_size.into(), blocks: Blocks::new(kernel_size.into()) }
    }

    fn settings(&self) -> String {
        format!("output_size={}, {}", one_or_tuple(self.output_size.as_slice()), self.blocks.settings())
    }
}

impl Forward for Fold {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let name = "Fold";
        let plane = self.output_size.per_dim::<2>(name, "output_size")?;
        let grid = self.blocks.on(name, plane)?;
        let (block, [rows, columns]) = (grid.kernel[0].saturating_mul(grid.kernel[1]), grid.count);
        let (lead, channels) = match input.shape() {
            [lead @ .., depth, blocks]
                if lead.len() < 2 && depth.is_multiple_of(block) && *blocks == rows.saturating_mul(columns) =>
            {
                (lead, depth / block)
            }
            shape => {
                return Err(Error::shape(format!(
                    "{name}: expected input [batch, channels · {block}, {rows} · {columns}] or without the batch, got shape {shape:?}"
                )));
            }
        };
        let parts = input.reshape(&[lead, &[channels, block, rows, columns]].concat())?;
        let image =
            Tensor::zeros_with([lead, &[channels], &grid.padded[..]].concat(), (input.dtype(), input.device()))?;
        for (i, at) in grid.places().enumerate() {
            grid.place(&image, at)?.add_(&parts.select(-3, i as isize)?)?;
        }
        image.pad(&grid.pads().map(|side| -side), PadMode::default())
    }
}
