//! Code shared by cuDNN and MIOpen: a convolution in the libraries' terms, and descriptors that are destroyed with
//! their plan.

use crate::families::conv::Order;
use crate::vendor::driver::Handle;
use rushlight_core::backend::Conv;
use std::ffi::c_int;

/// Maximum number of cached plans.
pub const MAX_PLANS: usize = 1024;
/// Maximum workspace of a plan.
pub const WORKSPACE: usize = 1 << 30;

/// Descriptors, each with the function that destroys it.
#[derive(Default)]
pub struct Descriptors(Vec<(unsafe extern "C" fn(Handle) -> i32, Handle)>);

impl Descriptors {
    /// Takes ownership of a descriptor.
    ///
    /// # Safety
    /// `destroy` is the descriptor's destructor, and no call uses the descriptor after this is dropped.
    pub unsafe fn push(&mut self, destroy: unsafe extern "C" fn(Handle) -> i32, descriptor: Handle) {
        self.0.push((destroy, descriptor));
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for (destroy, descriptor) in self.0.drain(..) {
            // SAFETY: as promised when it was pushed.
            unsafe { destroy(descriptor) };
        }
    }
}

/// The numbers a plan depends on.
pub fn numbers(s: &Conv) -> [usize; 22] {
    let mut out = [0; 22];
    out[..4].copy_from_slice(&[s.batch, s.in_channels, s.out_channels, s.groups]);
    for (i, d) in [s.input, s.kernel, s.output, s.stride, s.padding, s.dilation].iter().enumerate() {
        out[4 + 3 * i..][..3].copy_from_slice(d);
    }
    out
}

/// A dense tensor: sizes and strides, batch and channels first.
pub struct Dense {
    /// Sizes.
    pub sizes: Vec<c_int>,
    /// Strides in elements.
    pub strides: Vec<c_int>,
}

impl Dense {
    /// `None` if a size exceeds the libraries' integers.
    fn new(sizes: Vec<c_int>, order: Order) -> Option<Self> {
        let last = sizes.len() - 1;
        let inside_out: Vec<usize> = match order {
            Order::ChannelsFirst => (0..=last).rev().collect(),
            Order::ChannelsLast => [1].into_iter().chain((2..=last).rev()).chain([0]).collect(),
        };
        let (mut strides, mut step) = (vec![1; sizes.len()], 1);
        for d in inside_out {
            strides[d] = step;
            step = c_int::checked_mul(step, sizes[d])?;
        }
        Some(Self { sizes, strides })
    }
}

/// A convolution's tensors and windows. Depth is omitted for two dimensions.
pub struct Shapes {
    /// Images.
    pub x: Dense,
    /// Filters.
    pub w: Dense,
    /// Results.
    pub y: Dense,
    /// One entry per spatial dimension.
    pub padding: Vec<c_int>,
    /// As above.
    pub stride: Vec<c_int>,
    /// As above.
    pub dilation: Vec<c_int>,
}

impl Shapes {
    /// `None` if a number exceeds the libraries' integers.
    pub fn new(s: &Conv, order: Order) -> Option<Self> {
        if !numbers(s).iter().all(|&n| c_int::try_from(n).is_ok()) {
            return None;
        }
        let from = (s.input[0] == 1 && s.kernel[0] == 1 && s.padding[0] == 0) as usize;
        let space = |d: [usize; 3]| d[from..].iter().map(|&n| n as c_int).collect::<Vec<_>>();
        let dense = |lead: [usize; 2], d: [usize; 3]| {
            Dense::new(lead.iter().map(|&n| n as c_int).chain(space(d)).collect(), order)
        };
        Some(Self {
            x: dense([s.batch, s.in_channels], s.input)?,
            w: dense([s.out_channels, s.in_channels / s.groups.max(1)], s.kernel)?,
            y: dense([s.batch, s.out_channels], s.output)?,
            padding: space(s.padding),
            stride: space(s.stride),
            dilation: space(s.dilation),
        })
    }
}
