//! Convolution: forward, input gradient, weight gradient and bias gradient.
//!
//! All paths copy a part of the image into scratch memory, in the layout of their kernel, and round once when they
//! write the result. `f32` and `f64` are computed in their own type, `f16` in `f32`, and so is bf16 on machines without
//! AMX. The channel-last path (`direct`) supports every shape.

mod bias;
mod depthwise;
mod depthwise_kernel;
mod direct;
mod element;
mod narrow;
mod narrow_kernel;
mod packed;
mod packed_points;
mod patches;
mod planes;
mod product;
mod scratch;
mod simd;
mod slab;
mod sums;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod transpose;
mod weights;
mod winograd;
mod winograd_transform;

use element::Storage;
pub use packed::{Image, Operands, Order, PackedConv};
use rushlight_core::DType;
use rushlight_core::half::{bf16, f16};
pub(crate) use scratch::Scratch;

/// A convolution over up to three spatial dimensions. All tensors are contiguous, channels before space, and of one
/// dtype.
///
/// The caller has checked that the sizes fit together: `output` follows from the others, `groups` divides both channel
/// counts, and no size of the kernel, stride or dilation is zero.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// `F32`, `F64`, `BF16` or `F16`; the half types are computed in `f32`.
    pub dtype: DType,
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Independent groups of channels.
    pub groups: usize,
    /// Depth, height and width of the input; unused dimensions are 1.
    pub input: [usize; 3],
    /// Size of the kernel.
    pub kernel: [usize; 3],
    /// Size of the output.
    pub output: [usize; 3],
    /// Step of the kernel.
    pub stride: [usize; 3],
    /// Zeros on both sides of the input.
    pub padding: [usize; 3],
    /// Distance between the kernel's taps.
    pub dilation: [usize; 3],
}

impl Conv {
    /// Weights for each pair of channels.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Pixels of an input channel.
    pub fn input_size(&self) -> usize {
        self.input.iter().product()
    }

    /// Pixels of an output channel.
    pub fn output_size(&self) -> usize {
        self.output.iter().product()
    }

    /// Input channels of a group.
    pub fn group_inputs(&self) -> usize {
        self.in_channels / self.groups
    }

    /// Output channels of a group.
    pub fn group_outputs(&self) -> usize {
        self.out_channels / self.groups
    }

    /// The bias in the compute type, if there is one.
    ///
    /// # Safety
    /// `bias` is null or the bias.
    unsafe fn widen_bias<T: Storage>(&self, bias: *const T) -> Option<Scratch> {
        if bias.is_null() {
            return None;
        }
        let mut wide = Scratch::new::<T::Compute>(self.out_channels);
        // SAFETY: both have a value for each output channel.
        unsafe { T::widen(bias, wide.ptr(), self.out_channels) };
        Some(wide)
    }

    /// Whether a tensor is empty, so that there is nothing to compute.
    fn is_empty(&self) -> bool {
        [self.batch, self.in_channels, self.out_channels, self.groups, self.input_size(), self.output_size()]
            .contains(&0)
    }
}

/// Dispatch of a storage type: types that compute in `f32` have more paths.
trait Paths: Storage {
    /// # Safety
    /// For all three: the pointers are the tensors `c` describes, none of them empty; `bias` may be null.
    unsafe fn forward(c: &Conv, x: *const Self, w: *const Self, bias: *const Self, y: *mut Self);
    unsafe fn backward_input(c: &Conv, dy: *const Self, w: *const Self, dx: *mut Self);
    unsafe fn backward_weight(c: &Conv, x: *const Self, dy: *const Self, dw: *mut Self);
}

/// Half types and `f32`: channels as lanes for small depthwise images, products of matrices for `f32` windows that do
/// not overlap, pixels as lanes for few channels, AMX tiles for bf16, Winograd's filtering for most 3 × 3 kernels.
macro_rules! single_paths {
    ($($t:ty),*) => {$(
        // SAFETY (all blocks): the arguments are passed on.
        impl Paths for $t {
            unsafe fn forward(c: &Conv, x: *const $t, w: *const $t, bias: *const $t, y: *mut $t) {
                match () {
                    _ if depthwise::suits(c) => unsafe { depthwise::forward(c, x, w, bias, y) },
                    _ if patches::suits_forward(c) && unsafe { patches::forward(c, x, w, bias, y) } => {}
                    _ if narrow::suits(c) => unsafe { narrow::forward(c, x, w, bias, y) },
                    #[cfg(target_arch = "x86_64")]
                    _ if tiles::suits(c) => unsafe { tiles::forward(c, x.cast(), w.cast(), bias.cast(), y.cast()) },
                    _ if winograd::suits_images(c) => unsafe { winograd::forward(c, x, w, bias, y) },
                    _ => unsafe { direct::forward(c, x, w, bias, y) },
                }
            }
            unsafe fn backward_input(c: &Conv, dy: *const $t, w: *const $t, dx: *mut $t) {
                match () {
                    _ if depthwise::suits(c) => unsafe { depthwise::backward_input(c, dy, w, dx) },
                    _ if patches::suits(c) && unsafe { patches::backward_input(c, dy, w, dx) } => {}
                    _ if narrow::suits(c) => unsafe { narrow::backward_input(c, dy, w, dx) },
                    #[cfg(target_arch = "x86_64")]
                    _ if tiles::suits(c) => unsafe { tiles::backward_input(c, dy.cast(), w.cast(), dx.cast()) },
                    _ if winograd::suits_images(c) => unsafe { winograd::backward_input(c, dy, w, dx) },
                    _ => unsafe { direct::backward_input(c, dy, w, dx) },
                }
            }
            unsafe fn backward_weight(c: &Conv, x: *const $t, dy: *const $t, dw: *mut $t) {
                match () {
                    _ if depthwise::suits(c) => unsafe { depthwise::backward_weight(c, x, dy, dw) },
                    _ if patches::suits_weight(c) && unsafe { patches::backward_weight(c, x, dy, dw) } => {}
                    _ if narrow::suits_weight(c) => unsafe { narrow::backward_weight(c, x, dy, dw) },
                    #[cfg(target_arch = "x86_64")]
                    _ if tiles::suits_weight(c) => unsafe { tiles::backward_weight(c, x.cast(), dy.cast(), dw.cast()) },
                    _ if winograd::suits(c) => unsafe { winograd::backward_weight(c, x, dy, dw) },
                    _ => unsafe { direct::backward_weight(c, x, dy, dw) },
                }
            }
        }
    )*};
}
single_paths!(f32, bf16, f16);

// SAFETY (all blocks): the arguments are passed on.
impl Paths for f64 {
    unsafe fn forward(c: &Conv, x: *const f64, w: *const f64, bias: *const f64, y: *mut f64) {
        unsafe { direct::forward(c, x, w, bias, y) }
    }
    unsafe fn backward_input(c: &Conv, dy: *const f64, w: *const f64, dx: *mut f64) {
        unsafe { direct::backward_input(c, dy, w, dx) }
    }
    unsafe fn backward_weight(c: &Conv, x: *const f64, dy: *const f64, dw: *mut f64) {
        unsafe { direct::backward_weight(c, x, dy, dw) }
    }
}

/// Runs `$body` with `$T` bound to the element type of a floating dtype.
macro_rules! with_float {
    ($c:expr, $T:ident => $body:expr) => {
        match $c.dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::BF16 => {
                type $T = bf16;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            other => panic!("conv: {other} is not a floating type"),
        }
    };
}

/// `y = x ⋆ w + bias`, with `w` laid out `[out, in / groups, kernel…]`.
///
/// # Safety
/// The pointers are contiguous tensors of the sizes and the dtype `c` says, `y` overlapping none of the others; `bias`
/// may be null.
pub unsafe fn forward(c: &Conv, x: *const u8, w: *const u8, bias: *const u8, y: *mut u8) {
    if c.batch * c.out_channels * c.output_size() == 0 {
        return;
    }
    // SAFETY: the dtype says what the pointers point to.
    with_float!(c, T => unsafe { T::forward(c, x.cast(), w.cast(), bias.cast(), y.cast()) })
}

/// The gradient of the input, which is also the forward pass of the transposed convolution.
///
/// # Safety
/// As [`forward`], with `dx` written.
pub unsafe fn backward_input(c: &Conv, dy: *const u8, w: *const u8, dx: *mut u8) {
    if c.is_empty() {
        // SAFETY: zero bytes are zeros of every dtype.
        return unsafe { std::ptr::write_bytes(dx, 0, c.batch * c.in_channels * c.input_size() * c.dtype.size()) };
    }
    // SAFETY: the dtype says what the pointers point to.
    with_float!(c, T => unsafe { T::backward_input(c, dy.cast(), w.cast(), dx.cast()) })
}

/// The gradient of the weight. The result does not depend on the number of threads.
///
/// # Safety
/// As [`forward`], with `dw` written.
pub unsafe fn backward_weight(c: &Conv, x: *const u8, dy: *const u8, dw: *mut u8) {
    if c.is_empty() {
        let len = c.out_channels * c.in_channels / c.groups.max(1) * c.taps();
        // SAFETY: zero bytes are zeros of every dtype.
        return unsafe { std::ptr::write_bytes(dw, 0, len * c.dtype.size()) };
    }
    // SAFETY: the dtype says what the pointers point to.
    with_float!(c, T => unsafe { T::backward_weight(c, x.cast(), dy.cast(), dw.cast()) })
}

/// The gradient of the bias: the sum of `dy` over batch and space.
///
/// # Safety
/// `dy` is a contiguous tensor of the sizes and the dtype `c` says, `db` has an element for each output channel.
pub unsafe fn backward_bias(c: &Conv, dy: *const u8, db: *mut u8) {
    // SAFETY: the dtype says what the pointers point to.
    with_float!(c, T => unsafe { bias::backward::<T>(c, dy.cast(), db.cast()) })
}
