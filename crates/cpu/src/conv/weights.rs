//! Weights rearranged into panels, the right operands of the inner product.

use super::Conv;
use super::element::{Compute, Storage, transpose_in};
use super::scratch::Scratch;
use crate::pool;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

/// The channels that are lanes of a panel; the others are its rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lanes {
    /// Output channels, for the forward pass.
    Outputs,
    /// Input channels, for the input gradient.
    Inputs,
}

impl Lanes {
    /// Channels of a group along the lanes and along the rows.
    fn channels(self, c: &Conv) -> (usize, usize) {
        match self {
            Lanes::Outputs => (c.group_outputs(), c.group_inputs()),
            Lanes::Inputs => (c.group_inputs(), c.group_outputs()),
        }
    }
}

/// Packs rows `rows` of one panel: tap `t` of row `r` goes to `dst[t·tap_stride + (r − rows.start)·PANEL ..]`.
///
/// # Safety
/// `w` is the weight of `c`, the panel exists in the group, `dst` has room.
pub(super) unsafe fn pack<T: Storage>(
    c: &Conv,
    lanes: Lanes,
    w: *const T,
    (group, panel): (usize, usize),
    rows: Range<usize>,
    dst: *mut T::Compute,
    tap_stride: usize,
) {
    let (taps, inputs, outputs) = (c.taps(), c.group_inputs(), c.group_outputs());
    let width = T::Compute::PANEL;
    let first = panel * width;
    let count = (lanes.channels(c).0 - first).min(width);
    match lanes {
        Lanes::Outputs => {
            let at: Vec<usize> = (0..rows.len() * taps).map(|j| j % taps * tap_stride + j / taps * width).collect();
            // SAFETY: `count` filters of the group, each a row of `inputs · taps` elements.
            unsafe {
                let src = w.add(((group * outputs + first) * inputs + rows.start) * taps);
                transpose_in::<T>(src, inputs * taps, count, dst, &at);
            }
        }
        // The lanes are adjacent already.
        Lanes::Inputs if taps == 1 => {
            for (i, output) in rows.enumerate() {
                // SAFETY: `count` input channels of one filter.
                unsafe { T::widen(w.add((group * outputs + output) * inputs + first), dst.add(i * width), count) };
            }
        }
        Lanes::Inputs => {
            let at: Vec<usize> = (0..taps).map(|tap| tap * tap_stride).collect();
            for (i, output) in rows.enumerate() {
                // SAFETY: `count` input channels of one filter, each a row of `taps` elements.
                unsafe {
                    let src = w.add(((group * outputs + output) * inputs + first) * taps);
                    transpose_in::<T>(src, taps, count, dst.add(i * width), &at);
                }
            }
        }
    }
}

/// All panels of all groups: `[group][panel][tap][row][lane]`.
///
/// # Safety
/// `w` is the weight of `c`.
pub(super) unsafe fn pack_all<T: Storage>(c: &Conv, lanes: Lanes, w: *const T) -> Scratch {
    let mut packed = Scratch::new::<T::Compute>(packed_len::<T>(c, lanes));
    // SAFETY: `w` is the weight, and there is room for all panels.
    unsafe { pack_to(c, lanes, w, packed.ptr()) };
    packed
}

/// Elements of all panels.
pub(super) fn packed_len<T: Storage>(c: &Conv, lanes: Lanes) -> usize {
    let (across, rows) = lanes.channels(c);
    c.groups * across.div_ceil(T::Compute::PANEL) * c.taps() * rows * T::Compute::PANEL
}

/// [`pack_all`] to memory of the caller.
///
/// # Safety
/// `w` is the weight of `c`; `to` has room for all panels.
pub(super) unsafe fn pack_to<T: Storage>(c: &Conv, lanes: Lanes, w: *const T, to: *mut T::Compute) {
    let (across, rows) = lanes.channels(c);
    let width = T::Compute::PANEL;
    let panels = across.div_ceil(width);
    let panel_len = c.taps() * rows * width;
    let (src, dst) = (SendPtr::of(w), SendPtr::new(to));
    // A piece is large enough for a task, and small enough that a single panel can be split.
    let piece = 64;
    let pieces = rows.div_ceil(piece);
    pool::parallel_for(c.groups * panels * pieces, |task| {
        let (index, start) = (task / pieces, task % pieces * piece);
        let range = start..(start + piece).min(rows);
        // SAFETY: these rows of this panel are the task's.
        unsafe {
            let dst = dst.get().add(index * panel_len + start * width);
            pack(c, lanes, src.get().cast_const(), (index / panels, index % panels), range, dst, rows * width);
        }
    });
}
