//! Padding as layers.

use crate::python::{float, tuple};
use crate::{Forward, Module};
use rushlight_core::{Error, Result};
use rushlight_tensor::{PadMode, Tensor};

/// How much is added at the `N` sides of the last dimensions, the last one's first: one number for all, or one each.
/// Negative numbers cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides<const N: usize>([isize; N]);

impl<const N: usize> From<isize> for Sides<N> {
    fn from(side: isize) -> Self {
        Self([side; N])
    }
}

impl<const N: usize> From<[isize; N]> for Sides<N> {
    fn from(sides: [isize; N]) -> Self {
        Self(sides)
    }
}

/// Layers that pad with one mode: name, number of sides, the mode, and whether the rank is checked.
macro_rules! pads {
    ($($(#[$doc:meta])* $name:ident $sides:literal $mode:expr, $check:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Module)]
        #[module(extra_repr = "Self::settings")]
        pub struct $name {
            padding: [isize; $sides],
        }

        impl $name {
            /// Pads by one number at all sides or one at each: left, right, top, bottom, front, back.
            pub fn new(padding: impl Into<Sides<$sides>>) -> Self {
                Self { padding: padding.into().0 }
            }

            fn settings(&self) -> String {
                tuple(&self.padding)
            }
        }

        impl Forward for $name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                $check(stringify!($name), $sides / 2, input)?;
                input.pad(&self.padding, $mode).map_err(|e| e.within(stringify!($name)))
            }
        }
    )*};
}

/// Constants go around anything.
fn any_rank(_: &str, _: usize, _: &Tensor) -> Result<()> {
    Ok(())
}

/// Checks the rank for modes that repeat the input: they must know the spatial dimensions.
fn spatial(name: &str, dims: usize, input: &Tensor) -> Result<()> {
    if input.rank() == dims + 1 || input.rank() == dims + 2 {
        return Ok(());
    }
    Err(Error::shape(format!("{name}: expected {}D or {}D input, got shape {:?}", dims + 1, dims + 2, input.shape())))
}

pads! {
    /// Zeros around the last dimension.
    ZeroPad1d 2 PadMode::default(), any_rank;
    /// Zeros around the last two dimensions.
    ZeroPad2d 4 PadMode::default(), any_rank;
    /// Zeros around the last three dimensions.
    ZeroPad3d 6 PadMode::default(), any_rank;
    /// The input mirrored at the ends of its last dimension.
    ReflectionPad1d 2 PadMode::Reflect, spatial;
    /// The input mirrored at the borders of its last two dimensions.
    ReflectionPad2d 4 PadMode::Reflect, spatial;
    /// The input mirrored at the borders of its last three dimensions.
    ReflectionPad3d 6 PadMode::Reflect, spatial;
    /// The ends of the last dimension, repeated.
    ReplicationPad1d 2 PadMode::Replicate, spatial;
    /// The borders of the last two dimensions, repeated.
    ReplicationPad2d 4 PadMode::Replicate, spatial;
    /// The borders of the last three dimensions, repeated.
    ReplicationPad3d 6 PadMode::Replicate, spatial;
    /// The last dimension goes round.
    CircularPad1d 2 PadMode::Circular, spatial;
    /// The last two dimensions go round.
    CircularPad2d 4 PadMode::Circular, spatial;
    /// The last three dimensions go round.
    CircularPad3d 6 PadMode::Circular, spatial;
}

/// Layers that pad with a number.
macro_rules! constant_pads {
    ($($(#[$doc:meta])* $name:ident $sides:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Module)]
        #[module(extra_repr = "Self::settings")]
        pub struct $name {
            padding: [isize; $sides],
            value: f64,
        }

        impl $name {
            /// Pads by one number at all sides or one at each: left, right, top, bottom, front, back.
            pub fn new(padding: impl Into<Sides<$sides>>, value: f64) -> Self {
                Self { padding: padding.into().0, value }
            }

            fn settings(&self) -> String {
                format!("padding={}, value={}", tuple(&self.padding), float(self.value))
            }
        }

        impl Forward for $name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.pad(&self.padding, PadMode::Constant(self.value.into())).map_err(|e| e.within(stringify!($name)))
            }
        }
    )*};
}

constant_pads! {
    /// A number around the last dimension.
    ConstantPad1d 2;
    /// A number around the last two dimensions.
    ConstantPad2d 4;
    /// A number around the last three dimensions.
    ConstantPad3d 6;
}
