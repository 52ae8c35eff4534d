//! Weight gradients, summed over the batch in an order that does not depend on the number of threads.

use super::Conv;
use super::element::{Compute, Storage, transpose_out};
use super::scratch::Scratch;
use crate::pool;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

/// Accumulator of a weight gradient: `blocks` independent blocks, each a sum over `parts` of the batch.
///
/// The parts are split by the problem's size alone and added in order: the bits do not depend on the number of threads.
pub(super) struct Sums {
    pub blocks: usize,
    /// Elements of a block.
    pub block: usize,
    pub parts: usize,
}

impl Sums {
    /// Number of splits: enough tasks for a few threads, without sums larger than the activations.
    pub(super) fn splits(&self) -> usize {
        16usize.div_ceil(self.blocks.max(1)).min(self.parts).max(1)
    }

    /// Runs `add(block, parts, sum)` over the pool; the sums start at zero.
    ///
    /// # Safety
    /// `add` writes only to its sum.
    pub(super) unsafe fn collect<E: Compute>(&self, add: impl Fn(usize, Range<usize>, *mut E) + Sync) -> Scratch {
        let splits = self.splits();
        let mut sums = Scratch::new::<E>(splits * self.blocks * self.block);
        let shared = SendPtr::new(sums.ptr::<E>());
        pool::parallel_for(splits * self.blocks, |task| {
            let (block, split) = (task % self.blocks, task / self.blocks);
            let range = self.parts * split / splits..self.parts * (split + 1) / splits;
            // SAFETY: the sum of this task.
            let sum = unsafe { shared.get().add(task * self.block) };
            // SAFETY: as above; zero bytes are zeros.
            unsafe { std::ptr::write_bytes(sum, 0, self.block) };
            add(block, range, sum);
        });
        sums
    }

    /// Adds the splits in order and writes the gradient. `place` maps a block to its panel of filters and its first
    /// input channel; a block has `channels` of them (the last of a panel may have fewer) and is laid out `[input
    /// channel][tap][lane]`.
    ///
    /// # Safety
    /// `sums` comes from [`collect`](Self::collect), `dw` is the weight's gradient, and the places are all of it, each
    /// once.
    pub(super) unsafe fn finish<T: Storage>(
        &self,
        sums: *mut T::Compute,
        c: &Conv,
        dw: *mut T,
        channels: usize,
        place: impl Fn(usize) -> (usize, usize) + Sync,
    ) {
        let (inputs, taps, outputs, width) = (c.group_inputs(), c.taps(), c.group_outputs(), T::Compute::PANEL);
        let panels = outputs.div_ceil(width);
        let (sums, dw, splits) = (SendPtr::new(sums), SendPtr::new(dw), self.splits());
        let (block, all) = (channels * taps * width, self.blocks * self.block);
        pool::parallel_for(all / block, |index| {
            let (panel, first) = place(index);
            let (group, panel) = (panel / panels, panel % panels);
            let rows = (inputs - first).min(channels) * taps;
            let lanes = (outputs - panel * width).min(width);
            // SAFETY: this block of every split, and its filters' part of the gradient.
            unsafe {
                let total = sums.get().add(index * block);
                for split in 1..splits {
                    let part = total.add(split * all);
                    for i in 0..rows * width {
                        *total.add(i) += *part.add(i);
                    }
                }
                let dst = dw.get().add(((group * outputs + panel * width) * inputs + first) * taps);
                transpose_out::<T>(total, width, rows, lanes, dst, inputs * taps, std::ptr::null());
            }
        });
    }
}
