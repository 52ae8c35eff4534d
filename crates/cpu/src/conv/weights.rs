//! Weights rearranged into panels, the right operands of the inner product.

use super::Conv;
use super::element::{Compute, Storage, transpose_in};
use super::scratch::{Scratch, Shared};
use crate::pool;

/// `[group][panel of output channels][tap][input channel][lane]`: what the forward pass multiplies with.
///
/// # Safety
/// `w` is the weight of `c`.
pub(super) unsafe fn by_output<T: Storage>(c: &Conv, w: *const T) -> Scratch {
    let (taps, inputs, outputs) = (c.taps(), c.group_inputs(), c.group_outputs());
    let width = T::Compute::PANEL;
    let panels = outputs.div_ceil(width);
    let mut packed = Scratch::new::<T::Compute>(c.groups * panels * taps * inputs * width);
    let (src, dst) = (Shared::of(w), Shared::new(packed.ptr::<T::Compute>()));
    let at: Vec<usize> = (0..inputs * taps).map(|j| (j % taps * inputs + j / taps) * width).collect();
    pool::parallel_for(c.groups * panels, |task| {
        let (group, first) = (task / panels, task % panels * width);
        let count = (outputs - first).min(width);
        // SAFETY: the rows are `count` output channels of this group, the panel is this task's.
        unsafe {
            let src = src.get().add((group * outputs + first) * inputs * taps);
            transpose_in::<T>(src, inputs * taps, count, dst.get().add(task * taps * inputs * width), &at);
        }
    });
    packed
}

/// `[group][panel of input channels][tap][output channel][lane]`: what the input gradient multiplies with.
///
/// # Safety
/// `w` is the weight of `c`.
pub(super) unsafe fn by_input<T: Storage>(c: &Conv, w: *const T) -> Scratch {
    let (taps, inputs, outputs) = (c.taps(), c.group_inputs(), c.group_outputs());
    let width = T::Compute::PANEL;
    let panels = inputs.div_ceil(width);
    let mut packed = Scratch::new::<T::Compute>(c.groups * panels * taps * outputs * width);
    let (src, dst) = (Shared::of(w), Shared::new(packed.ptr::<T::Compute>()));
    let at: Vec<usize> = (0..taps).map(|tap| tap * outputs * width).collect();
    pool::parallel_for(c.groups * panels, |task| {
        let (group, first) = (task / panels, task % panels * width);
        let count = (inputs - first).min(width);
        for output in 0..outputs {
            // SAFETY: the rows are `count` input channels of one filter, the panel is this task's.
            unsafe {
                let src = src.get().add(((group * outputs + output) * inputs + first) * taps);
                let dst = dst.get().add((task * taps * outputs + output) * width);
                transpose_in::<T>(src, taps, count, dst, &at);
            }
        }
    });
    packed
}
