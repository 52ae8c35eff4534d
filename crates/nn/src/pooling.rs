//! Pooling layers.

use crate::python::{boolean, one_or_tuple, tuple};
use crate::{Forward, Module};
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::{AvgPool, MaxPool, OutputSize, Sizes, Tensor};

/// The largest element of each window, over `D` spatial dimensions: [`MaxPool1d`], [`MaxPool2d`], [`MaxPool3d`].
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Forward, MaxPool2d};
/// use rushlight::Tensor;
/// let x = Tensor::arange(0.0, 16.0, 1.0)?.reshape([1, 4, 4])?;
/// let (y, indices) = MaxPool2d::new(2).forward_with_indices(&x)?;
/// assert_eq!(y.to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
/// assert_eq!(indices.to_vec::<i64>()?, [5, 7, 13, 15]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Copy, Module)]
#[module(type_name = "Self::kind", extra_repr = "Self::settings")]
pub struct MaxPoolNd<const D: usize> {
    #[module(skip)]
    kernel_size: Sizes,
    #[module(skip)]
    stride: Option<Sizes>,
    #[module(skip)]
    padding: Sizes,
    #[module(skip)]
    dilation: Sizes,
    ceil_mode: bool,
}

/// Maxima over windows of `[batch, channels, length]`; the batch may be missing.
pub type MaxPool1d = MaxPoolNd<1>;
/// Maxima over windows of `[batch, channels, height, width]`; the batch may be missing.
pub type MaxPool2d = MaxPoolNd<2>;
/// Maxima over windows of `[batch, channels, depth, height, width]`; the batch may be missing.
pub type MaxPool3d = MaxPoolNd<3>;

impl<const D: usize> MaxPoolNd<D> {
    /// Windows of a size, with that size as their stride.
    pub fn new(kernel_size: impl Into<Sizes>) -> Self {
        const { assert!(D >= 1 && D <= 3, "pooling is over one to three dimensions") };
        Self { kernel_size: kernel_size.into(), stride: None, padding: 0.into(), dilation: 1.into(), ceil_mode: false }
    }

    /// Steps of the window; its size by default.
    pub fn stride(mut self, stride: impl Into<Sizes>) -> Self {
        self.stride = Some(stride.into());
        self
    }

    setters! {
        /// Positions added on both sides, which never win; 0 by default.
        padding: into Sizes;
        /// Distance between the window's positions; 1 by default.
        dilation: into Sizes;
        /// Whether a last window that is only partly filled counts; false by default.
        ceil_mode: bool;
    }

    /// The maxima and their indices in the flattened input plane: PyTorch's `return_indices`.
    pub fn forward_with_indices(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
        match D {
            1 => input.max_pool1d_with_indices(self.window()),
            2 => input.max_pool2d_with_indices(self.window()),
            _ => input.max_pool3d_with_indices(self.window()),
        }
    }

    fn window(&self) -> MaxPool {
        let window =
            MaxPool::new(self.kernel_size).padding(self.padding).dilation(self.dilation).ceil_mode(self.ceil_mode);
        match self.stride {
            Some(stride) => window.stride(stride),
            None => window,
        }
    }

    fn kind(&self) -> &'static str {
        match D {
            1 => "MaxPool1d",
            2 => "MaxPool2d",
            _ => "MaxPool3d",
        }
    }

    fn settings(&self) -> String {
        format!(
            "kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}",
            one_or_tuple(self.kernel_size.as_slice()),
            one_or_tuple(self.stride.unwrap_or(self.kernel_size).as_slice()),
            one_or_tuple(self.padding.as_slice()),
            one_or_tuple(self.dilation.as_slice()),
            boolean(self.ceil_mode)
        )
    }
}

impl<const D: usize> Forward for MaxPoolNd<D> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        match D {
            1 => input.max_pool1d(self.window()),
            2 => input.max_pool2d(self.window()),
            _ => input.max_pool3d(self.window()),
        }
    }
}

/// The mean of each window, over `D` spatial dimensions: [`AvgPool1d`], [`AvgPool2d`], [`AvgPool3d`].
#[derive(Clone, Copy, Module)]
#[module(type_name = "Self::kind", extra_repr = "Self::settings")]
pub struct AvgPoolNd<const D: usize> {
    #[module(skip)]
    kernel_size: Sizes,
    #[module(skip)]
    stride: Option<Sizes>,
    #[module(skip)]
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Option<usize>,
}

/// Means over windows of `[batch, channels, length]`; the batch may be missing.
pub type AvgPool1d = AvgPoolNd<1>;
/// Means over windows of `[batch, channels, height, width]`; the batch may be missing.
pub type AvgPool2d = AvgPoolNd<2>;
/// Means over windows of `[batch, channels, depth, height, width]`; the batch may be missing.
pub type AvgPool3d = AvgPoolNd<3>;

impl<const D: usize> AvgPoolNd<D> {
    /// Windows of a size, with that size as their stride.
    pub fn new(kernel_size: impl Into<Sizes>) -> Self {
        const { assert!(D >= 1 && D <= 3, "pooling is over one to three dimensions") };
        Self {
            kernel_size: kernel_size.into(),
            stride: None,
            padding: 0.into(),
            ceil_mode: false,
            count_include_pad: true,
            divisor_override: None,
        }
    }

    /// Steps of the window; its size by default.
    pub fn stride(mut self, stride: impl Into<Sizes>) -> Self {
        self.stride = Some(stride.into());
        self
    }

    setters! {
        /// Zeros on both sides; 0 by default.
        padding: into Sizes;
        /// Whether a last window that is only partly filled counts; false by default.
        ceil_mode: bool;
        /// Whether padding counts in the mean; true by default.
        count_include_pad: bool;
    }

    /// Divides sums by `divisor` instead of the window's size.
    pub fn divisor_override(mut self, divisor: usize) -> Self {
        self.divisor_override = Some(divisor);
        self
    }

    fn window(&self) -> AvgPool {
        let mut window = AvgPool::new(self.kernel_size)
            .padding(self.padding)
            .ceil_mode(self.ceil_mode)
            .count_include_pad(self.count_include_pad);
        if let Some(stride) = self.stride {
            window = window.stride(stride);
        }
        if let Some(divisor) = self.divisor_override {
            window = window.divisor_override(divisor);
        }
        window
    }

    fn kind(&self) -> &'static str {
        match D {
            1 => "AvgPool1d",
            2 => "AvgPool2d",
            _ => "AvgPool3d",
        }
    }

    fn settings(&self) -> String {
        // PyTorch keeps one-dimensional sizes as tuples here.
        let shown = |sizes: Sizes| if D == 1 { tuple(sizes.as_slice()) } else { one_or_tuple(sizes.as_slice()) };
        format!(
            "kernel_size={}, stride={}, padding={}",
            shown(self.kernel_size),
            shown(self.stride.unwrap_or(self.kernel_size)),
            shown(self.padding)
        )
    }
}

impl<const D: usize> Forward for AvgPoolNd<D> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        match D {
            1 => input.avg_pool1d(self.window()),
            2 => input.avg_pool2d(self.window()),
            _ => input.avg_pool3d(self.window()),
        }
    }
}

/// Layers that pool to a given size.
macro_rules! adaptive {
    ($($(#[$doc:meta])* $name:ident $forward:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Module)]
        #[module(extra_repr = "Self::settings")]
        pub struct $name {
            #[module(skip)]
            output_size: OutputSize,
        }

        impl $name {
            /// The layer for an output size, one number or one per dimension; `None` keeps the input's.
            pub fn new(output_size: impl Into<OutputSize>) -> Self {
                Self { output_size: output_size.into() }
            }

            fn settings(&self) -> String {
                let size = |size: &Option<usize>| size.map_or_else(|| "None".to_owned(), |n| n.to_string());
                let sizes: Vec<String> = self.output_size.as_slice().iter().map(size).collect();
                format!("output_size={}", one_or_tuple(&sizes))
            }
        }

        impl Forward for $name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                $forward(input, self.output_size.clone())
            }
        }
    )*};
}

adaptive! {
    /// Means of `[batch, channels, length]` to a given length.
    AdaptiveAvgPool1d Tensor::adaptive_avg_pool1d;
    /// Means of `[batch, channels, height, width]` to a given height and width.
    AdaptiveAvgPool2d Tensor::adaptive_avg_pool2d;
    /// Means of `[batch, channels, depth, height, width]` to a given depth, height and width.
    AdaptiveAvgPool3d Tensor::adaptive_avg_pool3d;
    /// Maxima of `[batch, channels, length]` to a given length.
    AdaptiveMaxPool1d Tensor::adaptive_max_pool1d;
    /// Maxima of `[batch, channels, height, width]` to a given height and width.
    AdaptiveMaxPool2d Tensor::adaptive_max_pool2d;
    /// Maxima of `[batch, channels, depth, height, width]` to a given depth, height and width; the batch may be
    /// missing.
    AdaptiveMaxPool3d |input, size| Ok(adaptive_max_pool3d(input, size)?.0);
}

impl AdaptiveMaxPool1d {
    /// The maxima and their indices in the input: PyTorch's `return_indices`.
    pub fn forward_with_indices(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
        input.adaptive_max_pool1d_with_indices(self.output_size.clone())
    }
}

impl AdaptiveMaxPool2d {
    /// The maxima and their indices in the flattened input plane: PyTorch's `return_indices`.
    pub fn forward_with_indices(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
        input.adaptive_max_pool2d_with_indices(self.output_size.clone())
    }
}

impl AdaptiveMaxPool3d {
    /// The maxima and their indices in the flattened input volume: PyTorch's `return_indices`.
    pub fn forward_with_indices(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
        adaptive_max_pool3d(input, self.output_size.clone())
    }
}

/// The windows of each dimension depend on that one alone: maxima within planes, then over the depth.
fn adaptive_max_pool3d(input: &Tensor, output_size: OutputSize) -> Result<(Tensor, Tensor)> {
    let (rank, shape) = (input.rank(), input.shape());
    let wrong = || Error::shape(format!("AdaptiveMaxPool3d: no output size {output_size:?} for input {shape:?}"));
    if !(4..=5).contains(&rank) || input.numel() == 0 {
        return Err(wrong());
    }
    let (outer, &[depth, height, width]) = shape.split_last_chunk().ok_or_else(wrong)?;
    let sizes = match output_size.as_slice() {
        [all] => [*all; 3],
        &[d, h, w] => [d, h, w],
        _ => return Err(wrong()),
    };
    let [d, h, w] = [(0, depth), (1, height), (2, width)].map(|(i, size)| sizes[i].unwrap_or(size));
    let planes = input.reshape([outer.iter().product(), depth, height, width])?;
    let (best, places) = planes.adaptive_max_pool2d_with_indices([h, w])?;
    // The depth last, as the one dimension of a pooling.
    let by_depth = |t: &Tensor| t.flatten(2, 3)?.transpose(1, 2);
    let (best, depths) = by_depth(&best)?.adaptive_max_pool1d_with_indices(d)?;
    let places = by_depth(&places)?.gather(-1, &depths)?.add(&depths.mul((height * width) as i64)?)?;
    let whole = |t: &Tensor| t.transpose(1, 2)?.reshape(&[outer, &[d, h, w]].concat()[..]);
    Ok((whole(&best)?, whole(&places)?))
}
