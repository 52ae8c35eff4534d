//! The reverse of maximum pooling.

use crate::Module;
use crate::python::tuple;
use rushlight_core::{Error, Result};
use rushlight_tensor::{Sizes, Tensor};

/// Puts maxima back where they were, zeros elsewhere, over `D` spatial dimensions: [`MaxUnpool1d`], [`MaxUnpool2d`],
/// [`MaxUnpool3d`].
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{MaxPool2d, MaxUnpool2d};
/// use rushlight::Tensor;
/// let x = Tensor::arange(0.0, 16.0, 1.0)?.reshape([1, 4, 4])?;
/// let (y, indices) = MaxPool2d::new(2).forward_with_indices(&x)?;
/// let back = MaxUnpool2d::new(2).forward(&y, &indices)?;
/// assert_eq!(back.shape(), [1, 4, 4]);
/// assert_eq!(back.sum(..)?.item::<f32>()?, 5.0 + 7.0 + 13.0 + 15.0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Copy, Module)]
#[module(type_name = "Self::kind", extra_repr = "Self::settings")]
pub struct MaxUnpoolNd<const D: usize> {
    #[module(skip)]
    kernel_size: Sizes,
    #[module(skip)]
    stride: Option<Sizes>,
    #[module(skip)]
    padding: Sizes,
}

/// The reverse of [`MaxPool1d`](crate::MaxPool1d).
pub type MaxUnpool1d = MaxUnpoolNd<1>;
/// The reverse of [`MaxPool2d`](crate::MaxPool2d).
pub type MaxUnpool2d = MaxUnpoolNd<2>;
/// The reverse of [`MaxPool3d`](crate::MaxPool3d).
pub type MaxUnpool3d = MaxUnpoolNd<3>;

impl<const D: usize> MaxUnpoolNd<D> {
    /// For windows of a size, with that size as their stride.
    pub fn new(kernel_size: impl Into<Sizes>) -> Self {
        const { assert!(1 <= D && D <= 3, "pooling is over one to three dimensions") };
        Self { kernel_size: kernel_size.into(), stride: None, padding: 0.into() }
    }

    /// The pooling's steps; its window's size by default.
    pub fn stride(mut self, stride: impl Into<Sizes>) -> Self {
        self.stride = Some(stride.into());
        self
    }

    /// The pooling's padding; 0 by default.
    pub fn padding(mut self, padding: impl Into<Sizes>) -> Self {
        self.padding = padding.into();
        self
    }

    /// The maxima at their places, in a plane of the smallest size that the pooling may have had.
    pub fn forward(&self, input: &Tensor, indices: &Tensor) -> Result<Tensor> {
        let name = self.kind();
        let kernel = self.kernel_size.per_dim::<D>(name, "kernel_size")?;
        let stride = self.stride.unwrap_or(self.kernel_size).per_dim::<D>(name, "stride")?;
        let padding = self.padding.per_dim::<D>(name, "padding")?;
        let space = self.space(input)?;
        let mut sizes = [0; D];
        for d in 0..D {
            let size = || {
                let reach = space[d].checked_sub(1)?.checked_mul(stride[d])?.checked_add(kernel[d])?;
                reach.checked_sub(padding[d].checked_mul(2)?)
            };
            sizes[d] = size().ok_or_else(|| {
                Error::shape(format!("{name}: {} gives no output size for input {:?}", self.settings(), input.shape()))
            })?;
        }
        self.forward_to(input, indices, &sizes)
    }

    /// The maxima at their places, in a plane of these sizes.
    pub fn forward_to(&self, input: &Tensor, indices: &Tensor, output_size: &[usize]) -> Result<Tensor> {
        let name = self.kind();
        self.space(input)?;
        if indices.shape() != input.shape() || output_size.len() != D {
            return Err(Error::shape(format!(
                "{name}: expected indices of the input's shape {:?} and {D} output sizes, got indices of shape {:?} and {output_size:?}",
                input.shape(),
                indices.shape()
            )));
        }
        let lead = &input.shape()[..input.rank() - D];
        // PyTorch refuses empty channels and volumes, and takes empty planes.
        if D == 3 && input.shape()[input.rank() - 4..].contains(&0) {
            return Err(Error::shape(format!(
                "{name}: expected input to have non-zero size for non-batch dimensions, got shape {:?}",
                input.shape()
            )));
        }
        let area = output_size.iter().try_fold(1usize, |area, &size| area.checked_mul(size));
        let area = area.ok_or_else(|| Error::shape(format!("{name}: output sizes {output_size:?} are too large")))?;
        let flat = Tensor::zeros_with([lead, &[area]].concat(), (input.dtype(), input.device()))?;
        let start = lead.len() as isize;
        let placed = flat.scatter(start, &indices.flatten(start, -1)?, &input.flatten(start, -1)?);
        placed.map_err(|e| e.within(name))?.reshape(&[lead, output_size].concat())
    }

    fn space<'a>(&self, input: &'a Tensor) -> Result<&'a [usize]> {
        if input.rank() != D + 1 && input.rank() != D + 2 {
            return Err(Error::shape(format!(
                "{}: expected {}D or {}D input, got shape {:?}",
                self.kind(),
                D + 1,
                D + 2,
                input.shape()
            )));
        }
        Ok(&input.shape()[input.rank() - D..])
    }

    fn kind(&self) -> &'static str {
        ["MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"][D - 1]
    }

    fn settings(&self) -> String {
        let shown = |sizes: Sizes| match sizes.as_slice() {
            [one] => tuple(&[*one; D]),
            several => tuple(several),
        };
        format!(
            "kernel_size={}, stride={}, padding={}",
            shown(self.kernel_size),
            shown(self.stride.unwrap_or(self.kernel_size)),
            shown(self.padding)
        )
    }
}
