//! Convolution of any shape: channel-last slabs of the image times panels of the weight, one tap after the other.

use super::Conv;
use super::element::{Compute, Storage, transpose_in, transpose_out};
use super::product::{Product, Segment};
use super::scratch::Scratch;
use super::slab::Slab;
use super::sums::Sums;
use super::weights::{Lanes, pack_all};
use crate::pool;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

/// Maximum size of a slab, so that it stays in the L2 cache.
const SLAB_BYTES: usize = 512 << 10;

/// Maximum rows of a panel, so that it stays in the L1 cache while many pixels are processed.
const DEPTH: usize = 128;

/// How many output rows (of a convolution reading `per_row` elements a row, with `reach` rows beyond the first) a slab
/// serves.
fn rows_per_slab<E>(rows: usize, stride: usize, reach: usize, per_row: usize) -> usize {
    let fit = SLAB_BYTES / (per_row * size_of::<E>()).max(1);
    let most = (fit.saturating_sub(reach + 1) / stride + 1).min(rows).max(1);
    rows.div_ceil(rows.div_ceil(most).max(1)).max(1)
}

/// Number of parts into which the panels of one slab are split so that all threads have work.
fn panel_cuts(tasks: usize, panels: usize) -> usize {
    (2 * pool::num_threads()).div_ceil(tasks.max(1)).min(panels).max(1)
}

/// Minimum pixels that pay for loading the weights.
const PIXELS: usize = 96;

/// Number of small images that are processed together.
fn images_together(c: &Conv, pixels: usize) -> usize {
    PIXELS.div_ceil(pixels.max(1)).clamp(1, c.batch)
}

/// Number of packs into which the batch is split, an equal share for every thread.
fn packs(c: &Conv, together: usize) -> usize {
    c.batch.div_ceil(together).next_multiple_of(pool::num_threads()).min(c.batch)
}

/// The same rows in each of `images` copies with this stride.
fn in_every_image(rows: &[usize], images: usize, stride: usize) -> Vec<usize> {
    (0..images).flat_map(|image| rows.iter().map(move |row| row + image * stride)).collect()
}

/// `out[c_rows[i]] = Σ_taps Σ_channels slab · panel`, in ranges short enough to keep the panel's rows cached.
///
/// # Safety
/// As the formula of [`Product`] says, with segments of `depth`. There is no epilogue.
pub(super) unsafe fn contract<E: Compute>(p: &Product<E>) {
    debug_assert!(p.epilogue.is_none());
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

/// The slab that the forward pass reads for a range of output rows.
fn input_slab(c: &Conv, depth: usize, rows: Range<usize>) -> Slab {
    let planes =
        (0..c.kernel[0]).map(|k| (depth * c.stride[0] + k * c.dilation[0]) as isize - c.padding[0] as isize).collect();
    let row = (rows.start * c.stride[1]) as isize - c.padding[1] as isize;
    let row_count = (rows.len() - 1) * c.stride[1] + (c.kernel[1] - 1) * c.dilation[1] + 1;
    let col_count = (c.output[2] - 1) * c.stride[2] + (c.kernel[2] - 1) * c.dilation[2] + 1;
    Slab::new(c.group_inputs(), c.input, planes, (row, row_count), (-(c.padding[2] as isize), col_count))
}

/// Offset of every tap in an input slab.
pub(super) fn tap_offsets(c: &Conv, slab: &Slab) -> Vec<usize> {
    let [kd, kh, kw] = c.kernel;
    (0..kd * kh * kw)
        .map(|tap| {
            let (d, h, w) = (tap / (kh * kw), tap / kw % kh, tap % kw);
            d * slab.plane_pitch() + h * c.dilation[1] * slab.row_pitch() + w * c.dilation[2] * slab.pitch()
        })
        .collect()
}

/// Output rows per slab, in the forward pass and in the weight gradient.
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
    let (mut packed, mut bias_wide) = unsafe { (pack_all(c, Lanes::Outputs, w), c.widen_bias(bias)) };
    let bias = bias_wide.as_mut().map_or(std::ptr::null(), |b| b.ptr::<E<T>>().cast_const());
    let (weight, bias) = (SendPtr::of(packed.ptr::<E<T>>()), SendPtr::of(bias));
    let (x, y) = (SendPtr::of(x), SendPtr::new(y));

    let [depths, height, cols] = c.output;
    let rows = output_rows::<E<T>>(c);
    let slabs = height.div_ceil(rows);
    let packs = packs(c, images_together(c, rows * cols));
    let boxes = packs * c.groups * depths * slabs;
    let cuts = panel_cuts(boxes, panels);
    pool::parallel_for(boxes * cuts, |task| {
        let (cut, task) = (task % cuts, task / cuts);
        let (slab_index, task) = (task % slabs, task / slabs);
        let (depth, task) = (task % depths, task / depths);
        let (group, pack) = (task % c.groups, task / c.groups);
        let images = c.batch * pack / packs..c.batch * (pack + 1) / packs;
        let start = slab_index * rows;
        let rows = rows.min(height - start);
        let slab = input_slab(c, depth, start..start + rows);
        let pixels = rows * cols;
        let mut copy = Scratch::new::<E<T>>(images.len() * slab.room());
        let mut out = Scratch::new::<E<T>>(images.len() * pixels * width);
        let (a_step, row_step) = (c.stride[2] * slab.pitch(), c.stride[1] * slab.row_pitch());
        let a_rows: Vec<usize> = (0..pixels).map(|p| p / cols * row_step + p % cols * a_step).collect();
        let a_rows = in_every_image(&a_rows, images.len(), slab.room());
        let c_rows: Vec<usize> = (0..images.len() * pixels).map(|p| p * width).collect();
        let offsets = tap_offsets(c, &slab);
        let segments: Vec<Segment> =
            offsets.iter().enumerate().map(|(tap, &a)| Segment { a, b: tap * inputs * width }).collect();
        // SAFETY: the slab holds every pixel and tap of these rows; this task alone writes these rows of these
        // channels.
        unsafe {
            for (i, image) in images.clone().enumerate() {
                let copy = copy.ptr::<E<T>>().add(i * slab.room());
                slab.clear(copy);
                slab.fill(x.get().add((image * c.in_channels + group * inputs) * c.input_size()), copy);
            }
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
                    epilogue: None,
                });
                let channel = group * outputs + panel * width;
                let bias = if bias.get().is_null() { std::ptr::null() } else { bias.get().add(channel).cast_const() };
                for (i, image) in images.clone().enumerate() {
                    let at = ((image * c.out_channels + channel) * depths + depth) * height * cols + start * cols;
                    let out = out.ptr::<E<T>>().add(i * pixels * width);
                    transpose_out::<T>(out, width, pixels, lanes, y.get().add(at), c.output_size(), bias);
                }
            }
        }
    });
}

/// Kernel positions that connect the input positions `at, at + stride, …` of one dimension to outputs, each with the
/// output position that it connects to `at`.
pub(super) fn taps_of(c: &Conv, dim: usize, at: usize) -> Vec<(usize, isize)> {
    let stride = c.stride[dim] as isize;
    (0..c.kernel[dim])
        .filter_map(|k| {
            let n = (at + c.padding[dim]) as isize - (k * c.dilation[dim]) as isize;
            (n.rem_euclid(stride) == 0).then(|| (k, n.div_euclid(stride)))
        })
        .collect()
}

/// First output position connected to the inputs `range` of one dimension, and their number.
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
    let mut packed = unsafe { pack_all(c, Lanes::Inputs, w) };
    let weight = SendPtr::of(packed.ptr::<E<T>>());
    let (dy, dx) = (SendPtr::of(dy), SendPtr::new(dx));

    let [depths, height, cols] = c.input;
    let (col, col_count) = linked(c, 2, 0..cols);
    let per_row = c.kernel[0] * col_count * outputs.next_multiple_of(16);
    let reach = (c.kernel[1] - 1) * c.dilation[1] / c.stride[1] + 1;
    // The slab's rows advance once per `stride` rows of the input.
    let rows = rows_per_slab::<E<T>>(height.div_ceil(c.stride[1]), 1, reach, per_row) * c.stride[1];
    let slabs = height.div_ceil(rows);
    let packs = packs(c, images_together(c, rows * cols / (c.stride[1] * c.stride[2])));
    let boxes = packs * c.groups * depths * slabs;
    let cuts = panel_cuts(boxes, panels);
    pool::parallel_for(boxes * cuts, |task| {
        let (cut, task) = (task % cuts, task / cuts);
        let (slab_index, task) = (task % slabs, task / slabs);
        let (depth, task) = (task % depths, task / depths);
        let (group, pack) = (task % c.groups, task / c.groups);
        let images = c.batch * pack / packs..c.batch * (pack + 1) / packs;
        let start = slab_index * rows;
        let rows = rows.min(height - start);
        let depth_taps = taps_of(c, 0, depth);
        let (row, row_count) = linked(c, 1, start..start + rows);
        let planes = depth_taps.iter().map(|&(_, plane)| plane).collect();
        let slab = Slab::new(outputs, c.output, planes, (row, row_count), (col, col_count));
        let pixels = rows * cols;
        let mut copy = Scratch::new::<E<T>>(images.len() * slab.room());
        let mut out = Scratch::new::<E<T>>(images.len() * pixels * width);
        // Input positions with equal remainder modulo the stride have the same taps, one output apart.
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
                let a_rows = in_every_image(&a_rows, images.len(), slab.room());
                let c_rows = in_every_image(&c_rows, images.len(), pixels * width);
                classes.push((segments, a_rows, c_rows));
            }
        }
        // SAFETY: the slab holds every output connected to these rows; this task alone writes these rows of these
        // channels.
        unsafe {
            for (i, image) in images.clone().enumerate() {
                let copy = copy.ptr::<E<T>>().add(i * slab.room());
                slab.clear(copy);
                slab.fill(dy.get().add((image * c.out_channels + group * outputs) * c.output_size()), copy);
            }
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
                        epilogue: None,
                    });
                }
                let channel = group * inputs + panel * width;
                for (i, image) in images.clone().enumerate() {
                    let at = ((image * c.in_channels + channel) * depths + depth) * height * cols + start * cols;
                    let (out, dst) = (out.ptr::<E<T>>().add(i * pixels * width), dx.get().add(at));
                    transpose_out::<T>(out, width, pixels, lanes, dst, c.input_size(), std::ptr::null());
                }
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
    let together = images_together(c, slab_rows * cols);
    let boxes = c.batch.div_ceil(together) * depths * slabs;
    let (x, dy) = (SendPtr::of(x), SendPtr::of(dy));
    let sums = Sums { blocks: c.groups * panels, block: inputs * taps * width, parts: boxes };
    // SAFETY: a task writes only to its own sum; the sums are laid out as `finish` expects.
    let mut partial = unsafe {
        sums.collect::<E<T>>(|block, boxes, sum| {
            let (group, panel) = (block / panels, block % panels);
            let lanes = (outputs - panel * width).min(width);
            for index in boxes {
                let (slab_index, rest) = (index % slabs, index / slabs);
                let (depth, pack) = (rest % depths, rest / depths);
                let images = pack * together..((pack + 1) * together).min(c.batch);
                let start = slab_index * slab_rows;
                let rows = slab_rows.min(height - start);
                let slab = input_slab(c, depth, start..start + rows);
                let pixels = rows * cols;
                let at: Vec<usize> = (0..pixels).map(|p| p * width).collect();
                let mut left = Scratch::new::<E<T>>(images.len() * slab.room());
                let mut right = Scratch::new::<E<T>>(images.len() * pixels * width);
                for (i, image) in images.clone().enumerate() {
                    let left = left.ptr::<E<T>>().add(i * slab.room());
                    slab.clear(left);
                    slab.fill(x.get().add((image * c.in_channels + group * inputs) * c.input_size()), left);
                    let channel = image * c.out_channels + group * outputs + panel * width;
                    let src = dy.get().add((channel * depths + depth) * height * cols + start * cols);
                    let right = right.ptr::<E<T>>().add(i * pixels * width);
                    transpose_in::<T>(src, c.output_size(), lanes, right, &at);
                }
                add_products(c, &slab, (images.len(), rows), left.ptr(), right.ptr(), sum, lanes);
            }
        })
    };
    // SAFETY: `dw` is the weight's gradient.
    unsafe { sums.finish(partial.ptr::<E<T>>(), c, dw, inputs, |panel| (panel, 0)) }
}

/// Adds the contribution of the same rows of some images to `sum`, laid out `[input channel][tap][lane]`.
///
/// # Safety
/// `left` are the slab's copies, `right` the output gradient of their pixels, panel-wide; `sum` is as large as said.
unsafe fn add_products<E: Compute>(
    c: &Conv,
    slab: &Slab,
    (images, rows): (usize, usize),
    left: *const E,
    right: *const E,
    sum: *mut E,
    lanes: usize,
) {
    let (taps, inputs, cols) = (c.taps(), c.group_inputs(), c.output[2]);
    let a_rows: Vec<usize> = (0..inputs).collect();
    let c_rows: Vec<usize> = (0..inputs).map(|i| i * taps * E::PANEL).collect();
    let (a_step, row_step) = (c.stride[2] * slab.pitch(), c.stride[1] * slab.row_pitch());
    let rows: Vec<Segment> = (0..images * rows)
        .map(|r| Segment { a: r / rows * slab.room() + r % rows * row_step, b: r * cols * E::PANEL })
        .collect();
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
                    epilogue: None,
                });
            }
        }
    }
}
