//! Convolution of any shape: channel-last slabs of the image times panels of the weight, one tap after the other.

use super::Conv;
use super::element::{Compute, Storage, transpose_in, transpose_out};
use super::product::{Product, Segment};
use super::scratch::{Scratch, Shared};
use super::slab::Slab;
use super::weights;
use crate::pool;
use std::ops::Range;

/// Slabs are cut so that they stay in the second-level cache.
const SLAB_BYTES: usize = 512 << 10;

/// Rows of a panel that stay in the first-level cache while many pixels pass by.
const DEPTH: usize = 128;

/// How many output rows (of a convolution reading `per_row` elements a row, with `reach` rows beyond the first) a slab serves.
fn rows_per_slab<E>(rows: usize, stride: usize, reach: usize, per_row: usize) -> usize {
    let fit = SLAB_BYTES / (per_row * size_of::<E>()).max(1);
    let most = (fit.saturating_sub(reach + 1) / stride + 1).min(rows).max(1);
    rows.div_ceil(rows.div_ceil(most).max(1)).max(1)
}

/// How many ways to cut the panels of one slab so that all threads have work.
fn panel_cuts(tasks: usize, panels: usize) -> usize {
    (2 * pool::num_threads()).div_ceil(tasks.max(1)).min(panels).max(1)
}

/// `out[c_rows[i]] = Σ_taps Σ_channels slab · panel`, in stretches short enough to keep the panel's rows cached.
///
/// # Safety
/// As the formula of [`Product`] says, with segments of `depth`.
pub(super) unsafe fn contract<E: Compute>(p: &Product<E>) {
    if p.segments.is_empty() || p.depth == 0 {
        for &row in p.c_rows {
            // SAFETY: a row of `c` is `PANEL` wide.
            unsafe { std::ptr::write_bytes(p.c.add(row), 0, E::PANEL) }
        }
        return;
    }
    let chunks = p.depth.div_ceil(DEPTH);
    let mut accumulate = p.accumulate;
    let mut segments = Vec::with_capacity(p.segments.len());
    for chunk in 0..chunks {
        let (start, end) = (p.depth * chunk / chunks, p.depth * (chunk + 1) / chunks);
        for group in p.segments.chunks((DEPTH / (end - start)).max(1)) {
            segments.clear();
            segments.extend(group.iter().map(|s| Segment { a: s.a + start * p.a_step, b: s.b + start * E::PANEL }));
            // SAFETY: a part of the caller's product.
            unsafe { E::product(&Product { segments: &segments, depth: end - start, accumulate, ..*p }) };
            accumulate = true;
        }
    }
}

/// The slab an output row range of the forward pass reads.
fn input_slab(c: &Conv, depth: usize, rows: Range<usize>) -> Slab {
    let planes =
        (0..c.kernel[0]).map(|k| (depth * c.stride[0] + k * c.dilation[0]) as isize - c.padding[0] as isize).collect();
    let row = (rows.start * c.stride[1]) as isize - c.padding[1] as isize;
    let row_count = (rows.len() - 1) * c.stride[1] + (c.kernel[1] - 1) * c.dilation[1] + 1;
    let col_count = (c.output[2] - 1) * c.stride[2] + (c.kernel[2] - 1) * c.dilation[2] + 1;
    Slab::new(c.group_inputs(), c.input, planes, (row, row_count), (-(c.padding[2] as isize), col_count))
}

/// Offset of every tap in an input slab.
fn tap_offsets(c: &Conv, slab: &Slab) -> Vec<usize> {
    let [kd, kh, kw] = c.kernel;
    (0..kd * kh * kw)
        .map(|tap| {
            let (d, h, w) = (tap / (kh * kw), tap / kw % kh, tap % kw);
            d * slab.plane_pitch() + h * c.dilation[1] * slab.row_pitch() + w * c.dilation[2] * slab.pitch()
        })
        .collect()
}

/// Rows of the output one slab serves, forward and in the weight gradient.
fn output_rows<E>(c: &Conv) -> usize {
    let cols = (c.output[2] - 1) * c.stride[2] + (c.kernel[2] - 1) * c.dilation[2] + 1;
    let per_row = c.kernel[0] * cols * c.group_inputs().next_multiple_of(16);
    rows_per_slab::<E>(c.output[1], c.stride[1], (c.kernel[1] - 1) * c.dilation[1], per_row)
}

/// # Safety
/// The pointers are the tensors `c` describes; `bias` may be null.
pub(super) unsafe fn forward<T: Storage>(c: &Conv, x: *const T, w: *const T, bias: *const T, y: *mut T) {
    type E<T> = <T as Storage>::Compute;
    let width = E::<T>::PANEL;
    let (taps, inputs, outputs) = (c.taps(), c.group_inputs(), c.group_outputs());
    let panels = outputs.div_ceil(width);
    // SAFETY: `w` is the weight, `bias` the bias of `c`.
    let (mut packed, mut bias_wide) = unsafe { (weights::by_output(c, w), c.widen_bias(bias)) };
    let bias = bias_wide.as_mut().map_or(std::ptr::null(), |b| b.ptr::<E<T>>().cast_const());
    let (weight, bias) = (Shared::of(packed.ptr::<E<T>>()), Shared::of(bias));
    let (x, y) = (Shared::of(x), Shared::new(y));

    let [depths, height, cols] = c.output;
    let rows = output_rows::<E<T>>(c);
    let slabs = height.div_ceil(rows);
    let boxes = c.batch * c.groups * depths * slabs;
    let cuts = panel_cuts(boxes, panels);
    pool::parallel_for(boxes * cuts, |task| {
        let (cut, task) = (task % cuts, task / cuts);
        let (slab_index, task) = (task % slabs, task / slabs);
        let (depth, task) = (task % depths, task / depths);
        let (group, image) = (task % c.groups, task / c.groups);
        let start = slab_index * rows;
        let rows = rows.min(height - start);
        let slab = input_slab(c, depth, start..start + rows);
        let pixels = rows * cols;
        let mut copy = Scratch::new::<E<T>>(slab.room());
        let mut out = Scratch::new::<E<T>>(pixels * width);
        let (a_step, row_step) = (c.stride[2] * slab.pitch(), c.stride[1] * slab.row_pitch());
        let a_rows: Vec<usize> = (0..pixels).map(|p| p / cols * row_step + p % cols * a_step).collect();
        let c_rows: Vec<usize> = (0..pixels).map(|p| p * width).collect();
        let offsets = tap_offsets(c, &slab);
        let segments: Vec<Segment> =
            offsets.iter().enumerate().map(|(tap, &a)| Segment { a, b: tap * inputs * width }).collect();
        // SAFETY: the slab holds every pixel and tap of these rows; this task alone writes these rows of these channels.
        unsafe {
            slab.clear(copy.ptr::<E<T>>());
            slab.fill(x.get().add((image * c.in_channels + group * inputs) * c.input_size()), copy.ptr());
            for panel in panels * cut / cuts..panels * (cut + 1) / cuts {
                let lanes = (outputs - panel * width).min(width);
                contract(&Product {
                    a: copy.ptr(),
                    a_rows: &a_rows,
                    a_step: 1,
                    b: weight.get().add((group * panels + panel) * taps * inputs * width),
                    segments: &segments,
                    depth: inputs,
                    c: out.ptr(),
                    c_rows: &c_rows,
                    lanes,
                    accumulate: false,
                });
                let channel = group * outputs + panel * width;
                let at = ((image * c.out_channels + channel) * depths + depth) * height * cols + start * cols;
                let bias = if bias.get().is_null() { std::ptr::null() } else { bias.get().add(channel).cast_const() };
                transpose_out::<T>(out.ptr(), width, pixels, lanes, y.get().add(at), c.output_size(), bias);
            }
        }
    });
}

/// The kernel positions that link input positions `at, at + stride, …` of one dimension with outputs, each with the output
/// position it gives to `at`.
pub(super) fn taps_of(c: &Conv, dim: usize, at: usize) -> Vec<(usize, isize)> {
    let stride = c.stride[dim] as isize;
    (0..c.kernel[dim])
        .filter_map(|k| {
            let n = (at + c.padding[dim]) as isize - (k * c.dilation[dim]) as isize;
            (n.rem_euclid(stride) == 0).then(|| (k, n.div_euclid(stride)))
        })
        .collect()
}

/// First output position, and how many, that inputs `range` of one dimension are linked with.
pub(super) fn linked(c: &Conv, dim: usize, range: Range<usize>) -> (isize, usize) {
    let stride = c.stride[dim] as isize;
    let reach = ((c.kernel[dim] - 1) * c.dilation[dim]) as isize;
    let low = ((range.start + c.padding[dim]) as isize - reach).div_euclid(stride);
    let high = ((range.end - 1 + c.padding[dim]) as isize).div_euclid(stride);
    (low, (high - low + 1) as usize)
}

/// # Safety
/// The pointers are the tensors `c` describes.
pub(super) unsafe fn backward_input<T: Storage>(c: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    type E<T> = <T as Storage>::Compute;
    let width = E::<T>::PANEL;
    let (taps, inputs, outputs) = (c.taps(), c.group_inputs(), c.group_outputs());
    let panels = inputs.div_ceil(width);
    // SAFETY: `w` is the weight of `c`.
    let mut packed = unsafe { weights::by_input(c, w) };
    let weight = Shared::of(packed.ptr::<E<T>>());
    let (dy, dx) = (Shared::of(dy), Shared::new(dx));

    let [depths, height, cols] = c.input;
    let (col, col_count) = linked(c, 2, 0..cols);
    let per_row = c.kernel[0] * col_count * outputs.next_multiple_of(16);
    let reach = (c.kernel[1] - 1) * c.dilation[1] / c.stride[1] + 1;
    // The slab's rows advance once every `stride` rows of the input.
    let rows = rows_per_slab::<E<T>>(height.div_ceil(c.stride[1]), 1, reach, per_row) * c.stride[1];
    let slabs = height.div_ceil(rows);
    let boxes = c.batch * c.groups * depths * slabs;
    let cuts = panel_cuts(boxes, panels);
    pool::parallel_for(boxes * cuts, |task| {
        let (cut, task) = (task % cuts, task / cuts);
        let (slab_index, task) = (task % slabs, task / slabs);
        let (depth, task) = (task % depths, task / depths);
        let (group, image) = (task % c.groups, task / c.groups);
        let start = slab_index * rows;
        let rows = rows.min(height - start);
        let depth_taps = taps_of(c, 0, depth);
        let (row, row_count) = linked(c, 1, start..start + rows);
        let planes = depth_taps.iter().map(|&(_, plane)| plane).collect();
        let slab = Slab::new(outputs, c.output, planes, (row, row_count), (col, col_count));
        let pixels = rows * cols;
        let mut copy = Scratch::new::<E<T>>(slab.room());
        let mut out = Scratch::new::<E<T>>(pixels * width);
        // Input positions of equal remainder modulo the stride see the same taps, one output apart.
        let mut classes = Vec::new();
        for first_row in start..(start + c.stride[1]).min(start + rows) {
            let row_taps = taps_of(c, 1, first_row);
            for first_col in 0..c.stride[2].min(cols) {
                let col_taps = taps_of(c, 2, first_col);
                let mut segments = Vec::with_capacity(depth_taps.len() * row_taps.len() * col_taps.len());
                for (plane, &(kd, _)) in depth_taps.iter().enumerate() {
                    for &(kh, oh) in &row_taps {
                        for &(kw, ow) in &col_taps {
                            let tap = (kd * c.kernel[1] + kh) * c.kernel[2] + kw;
                            let a = plane * slab.plane_pitch()
                                + (oh - row) as usize * slab.row_pitch()
                                + (ow - col) as usize * slab.pitch();
                            segments.push(Segment { a, b: tap * outputs * width });
                        }
                    }
                }
                let (mut a_rows, mut c_rows) = (Vec::new(), Vec::new());
                for (i, r) in (first_row..start + rows).step_by(c.stride[1]).enumerate() {
                    for (j, q) in (first_col..cols).step_by(c.stride[2]).enumerate() {
                        a_rows.push(i * slab.row_pitch() + j * slab.pitch());
                        c_rows.push(((r - start) * cols + q) * width);
                    }
                }
                classes.push((segments, a_rows, c_rows));
            }
        }
        // SAFETY: the slab holds every output linked with these rows; this task alone writes these rows of these channels.
        unsafe {
            slab.clear(copy.ptr::<E<T>>());
            slab.fill(dy.get().add((image * c.out_channels + group * outputs) * c.output_size()), copy.ptr());
            for panel in panels * cut / cuts..panels * (cut + 1) / cuts {
                let lanes = (inputs - panel * width).min(width);
                for (segments, a_rows, c_rows) in &classes {
                    contract(&Product {
                        a: copy.ptr(),
                        a_rows,
                        a_step: 1,
                        b: weight.get().add((group * panels + panel) * taps * outputs * width),
                        segments,
                        depth: outputs,
                        c: out.ptr(),
                        c_rows,
                        lanes,
                        accumulate: false,
                    });
                }
                let channel = group * inputs + panel * width;
                let at = ((image * c.in_channels + channel) * depths + depth) * height * cols + start * cols;
                let dst = dx.get().add(at);
                transpose_out::<T>(out.ptr(), width, pixels, lanes, dst, c.input_size(), std::ptr::null());
            }
        }
    });
}

/// # Safety
/// The pointers are the tensors `c` describes.
pub(super) unsafe fn backward_weight<T: Storage>(c: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    type E<T> = <T as Storage>::Compute;
    let width = E::<T>::PANEL;
    let (taps, inputs, outputs) = (c.taps(), c.group_inputs(), c.group_outputs());
    let panels = outputs.div_ceil(width);
    let [depths, height, cols] = c.output;
    let slab_rows = output_rows::<E<T>>(c);
    let slabs = height.div_ceil(slab_rows);
    let boxes = c.batch * depths * slabs;
    let (x, dy) = (Shared::of(x), Shared::of(dy));
    let sums = Sums { blocks: c.groups * panels, block: inputs * taps * width, parts: boxes };
    // SAFETY: a task adds to the sum it is given and to nothing else; the sums are laid out as `finish` expects.
    let mut partial = unsafe {
        sums.collect::<E<T>>(|block, boxes, sum| {
            let (group, panel) = (block / panels, block % panels);
            let lanes = (outputs - panel * width).min(width);
            for index in boxes {
                let (slab_index, rest) = (index % slabs, index / slabs);
                let (depth, image) = (rest % depths, rest / depths);
                let start = slab_index * slab_rows;
                let rows = slab_rows.min(height - start);
                let slab = input_slab(c, depth, start..start + rows);
                let mut left = Scratch::new::<E<T>>(slab.room());
                let mut right = Scratch::new::<E<T>>(rows * cols * width);
                slab.clear(left.ptr::<E<T>>());
                slab.fill(x.get().add((image * c.in_channels + group * inputs) * c.input_size()), left.ptr());
                let channel = image * c.out_channels + group * outputs + panel * width;
                let src = dy.get().add((channel * depths + depth) * height * cols + start * cols);
                let at: Vec<usize> = (0..rows * cols).map(|p| p * width).collect();
                transpose_in::<T>(src, c.output_size(), lanes, right.ptr(), &at);
                add_products(c, &slab, rows, left.ptr(), right.ptr(), sum, lanes);
            }
        })
    };
    // SAFETY: `dw` is the weight's gradient.
    unsafe { sums.finish(partial.ptr::<E<T>>(), c, dw) }
}

/// Adds one slab's share to `sum`, laid out `[input channel][tap][lane]`.
///
/// # Safety
/// `left` is the slab's copy, `right` the output gradient of its pixels, panel-wide; `sum` is as large as said.
unsafe fn add_products<E: Compute>(
    c: &Conv,
    slab: &Slab,
    rows: usize,
    left: *const E,
    right: *const E,
    sum: *mut E,
    lanes: usize,
) {
    let (taps, inputs, cols) = (c.taps(), c.group_inputs(), c.output[2]);
    let a_rows: Vec<usize> = (0..inputs).collect();
    let c_rows: Vec<usize> = (0..inputs).map(|i| i * taps * E::PANEL).collect();
    let (a_step, row_step) = (c.stride[2] * slab.pitch(), c.stride[1] * slab.row_pitch());
    let rows: Vec<Segment> = (0..rows).map(|r| Segment { a: r * row_step, b: r * cols * E::PANEL }).collect();
    let offsets = tap_offsets(c, slab);
    for group in rows.chunks((DEPTH / cols).max(1)) {
        for (tap, &offset) in offsets.iter().enumerate() {
            // SAFETY: the slab has every tap of every pixel of these rows.
            unsafe {
                contract(&Product {
                    a: left.add(offset),
                    a_rows: &a_rows,
                    a_step,
                    b: right,
                    segments: group,
                    depth: cols,
                    c: sum.add(tap * E::PANEL),
                    c_rows: &c_rows,
                    lanes,
                    accumulate: true,
                });
            }
        }
    }
}

/// A weight gradient being summed: `blocks` independent blocks, an equal number to a panel, each a sum over `parts` of the batch.
///
/// The parts are split by the problem's size alone and added in order: the bits do not depend on the number of threads.
pub(super) struct Sums {
    pub blocks: usize,
    /// Elements of a block.
    pub block: usize,
    pub parts: usize,
}

impl Sums {
    /// Enough tasks for a few threads, without sums that outgrow the activations.
    pub(super) fn splits(&self) -> usize {
        16usize.div_ceil(self.blocks.max(1)).min(self.parts).max(1)
    }

    /// Runs `add(block, parts, sum)` over the pool; the sums are zero at first.
    ///
    /// # Safety
    /// `add` writes only to its sum.
    pub(super) unsafe fn collect<E: Compute>(&self, add: impl Fn(usize, Range<usize>, *mut E) + Sync) -> Scratch {
        let splits = self.splits();
        let mut sums = Scratch::new::<E>(splits * self.blocks * self.block);
        let shared = Shared::new(sums.ptr::<E>());
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

    /// Adds the splits in order and writes the gradient; sums are laid out `[input channel][tap][lane]`.
    ///
    /// # Safety
    /// `sums` comes from [`collect`](Self::collect), `dw` is the weight's gradient.
    pub(super) unsafe fn finish<T: Storage>(&self, sums: *mut T::Compute, c: &Conv, dw: *mut T) {
        let (rows, outputs, width) = (c.group_inputs() * c.taps(), c.group_outputs(), T::Compute::PANEL);
        let panels = outputs.div_ceil(width);
        let (sums, dw, splits) = (Shared::new(sums), Shared::new(dw), self.splits());
        let per_panel = self.blocks * self.block / (c.groups * panels);
        pool::parallel_for(c.groups * panels, |task| {
            let (group, panel) = (task / panels, task % panels);
            let lanes = (outputs - panel * width).min(width);
            // SAFETY: this task's panel of every split, and its filters of the gradient.
            unsafe {
                let total = sums.get().add(task * per_panel);
                for split in 1..splits {
                    let part = total.add(split * self.blocks * self.block);
                    for i in 0..per_panel {
                        *total.add(i) += *part.add(i);
                    }
                }
                let dst = dw.get().add((group * outputs + panel * width) * rows);
                transpose_out::<T>(total, width, rows, lanes, dst, rows, std::ptr::null());
            }
        });
    }
}
