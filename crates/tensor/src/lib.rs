//! Tensors and automatic differentiation.
//!
//! [`Tensor`] is dynamic in shape, dtype and device. Ops are methods with PyTorch's names; each returns a
//! [`Result`](rushlight_core::Result). [`autograd`] steers recording and differentiation.

mod amp;
pub mod announce;
mod arg;
pub mod autograd;
pub mod capture;
mod clip;
pub mod compile;
mod device;
mod display;
mod engine;
mod expr;
pub mod foreach;
pub mod kernel;
mod memory;
mod meta;
mod ops;
pub mod profile;
pub mod program;
mod recordings;
pub mod state;
mod stream;
mod tensor;

pub use amp::{AutocastGuard, autocast, autocast_dtype, set_autocast, without_autocast};
pub use arg::{Arg, default_dtype, result_type, set_default_dtype};
pub use capture::{Capture, Step, StepOutput, capture};
pub use clip::{NormOptions, clip_grad_norm_, clip_grad_norm_with, clip_grad_value_, get_total_norm};
pub use compile::{Compile, Compiled, compile};
pub use device::BestDevice;
pub use display::{PrintOptions, printoptions, set_printoptions};
pub use memory::{empty_cache, memory_stats, reset_peak_memory, synchronize};
pub use ops::attention::AttentionOptions;
pub use ops::bags::BagMode;
pub use ops::batch_norm::{BatchNormOptions, InstanceNormOptions};
pub use ops::carried::unpromoted;
pub use ops::cast::To;
pub use ops::compare::where_;
pub use ops::complex::{complex, polar};
pub use ops::conv::{ConvOptions, ConvTransposeOptions, Padding};
pub use ops::create::{Literal, Options, TensorData};
pub use ops::cross_entropy::CrossEntropyOptions;
pub use ops::ctc::{CtcTargets, ctc_losses};
pub use ops::einsum::einsum;
pub use ops::fft::FftNorm;
pub use ops::gather::ScatterReduce;
pub use ops::grid::{GridMode, GridPadding, GridSample};
pub use ops::indexing::IndexItem::{Ellipsis, NewAxis};
pub use ops::indexing::{IndexItem, IntoIndex, slice};
pub use ops::interpolate::{InterpolateMode, InterpolateOptions};
pub use ops::join::{Indexing, block_diag, cartesian_prod, cat, dstack, hstack, meshgrid, stack, vstack};
pub use ops::linalg::{MatrixNorm, RankTolerance, SolveTriangular, lu_unpack};
pub use ops::loss::{Reduction, TripletMargin};
pub use ops::number::fitting;
pub use ops::operators::{Expr, Operand};
pub use ops::pad::PadMode;
pub use ops::pool::{AvgPool, MaxPool, OutputSize};
pub use ops::rearrange::{tril_indices, triu_indices};
#[doc(hidden)]
pub use ops::recurrent::{LstmStates, lstm_backward, lstm_forward};
pub use ops::regions::{DeformConv, PoolRegions, RegionPooling};
pub use ops::search::Unique;
pub use ops::sizes::{Along, AsDims, Sizes};
pub use ops::view::IntoShape;
pub use stream::{Event, Stream};
pub use tensor::Tensor;

/// For the tests in `tests/rules`: inside the library they would compile it twice.
#[doc(hidden)]
pub mod internals {
    pub use crate::program::bisect::{Run, bisect};
    pub use crate::recordings::{Form, Placed, Recordings, Shaped, Tensors, replayed};
}
