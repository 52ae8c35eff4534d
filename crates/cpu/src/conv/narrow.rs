//! Convolutions with few channels: first layers, and grouped convolutions down to depthwise.

use super::Conv;
use super::direct::{linked, taps_of};
use super::element::Storage;
use super::narrow_kernel::{Accumulate, Correlate, LANES, ROWS, SLACK, accumulate, correlate, move_rows};
use super::planes::{Planes, Stretch};
use super::scratch::Scratch;
use super::sums::Sums;
use crate::pool;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

/// Maximum size of a band's planes, so that they stay in the L2 cache.
const BAND_BYTES: usize = 512 << 10;

/// Elements that the weight gradient processes between two updates of its sums.
const SWEEP_BYTES: usize = 48 << 10;

/// Minimum multiplications per task.
const GRAIN: usize = 1 << 18;

/// Whether the image is two-dimensional.
pub(super) fn flat(c: &Conv) -> bool {
    c.input[0] == 1 && c.kernel[0] == 1 && c.output[0] == 1 && c.padding[0] == 0
}

/// Whether there are few channels and rows are long enough for pixels as lanes.
pub(super) fn suits(c: &Conv) -> bool {
    let reach = (c.kernel[2] - 1) * c.dilation[2] / c.stride[2];
    flat(c)
        && c.group_inputs().min(c.group_outputs()) < 16
        && 2 * c.output[2] >= c.output[2] + reach
        && c.output[2] >= 4
}

/// Whether the weight gradient's partial sums stay in cache.
pub(super) fn suits_weight(c: &Conv) -> bool {
    suits(c) && c.group_inputs() * c.group_outputs() * c.taps() * LANES * size_of::<f32>() <= 256 << 10
}

/// Rows per band: all `rows`, or as many as keep `channels` planes of `per_row` elements a row in cache.
fn band_rows(rows: usize, stride: usize, reach: usize, per_row: usize) -> usize {
    let fit = BAND_BYTES / size_of::<f32>() / per_row.max(1);
    let most = fit.saturating_sub(reach).max(1) * stride;
    rows.div_ceil(rows.div_ceil(most))
}

/// Remainders modulo the stride of one dimension's taps; for each tap, its remainder and offset.
fn phases(c: &Conv, dim: usize) -> (Vec<usize>, Vec<(usize, usize)>) {
    let mut used: Vec<usize> = Vec::new();
    let taps = (0..c.kernel[dim]).map(|k| {
        let at = k * c.dilation[dim];
        let phase = at % c.stride[dim];
        let index = used.iter().position(|&p| p == phase).unwrap_or_else(|| {
            used.push(phase);
            used.len() - 1
        });
        (index, at / c.stride[dim])
    });
    let taps = taps.collect();
    (used, taps)
}

/// The planes from which output rows `rows` are computed, and the offset of each tap in them.
fn input_planes(c: &Conv, rows: Range<usize>) -> (Planes, Vec<usize>) {
    let stretches = |dim: usize, start: usize, count: usize| -> (Vec<Stretch>, Vec<(usize, usize)>) {
        let (used, taps) = phases(c, dim);
        let count = count + (c.kernel[dim] - 1) * c.dilation[dim] / c.stride[dim];
        let first = (start * c.stride[dim]) as isize - c.padding[dim] as isize;
        let stretch = |&p: &usize| Stretch { first: first + p as isize, count, step: c.stride[dim] };
        (used.iter().map(stretch).collect(), taps)
    };
    let (row_planes, row_taps) = stretches(1, rows.start, rows.len());
    let (col_planes, col_taps) = stretches(2, 0, c.output[2]);
    let planes = Planes { rows: row_planes, cols: col_planes, gap: 0 };
    let mut offsets = Vec::with_capacity(c.taps());
    for &(r, down) in &row_taps {
        for &(q, right) in &col_taps {
            offsets.push((r * planes.cols.len() + q) * planes.plane() + down * planes.pitch() + right);
        }
    }
    (planes, offsets)
}

/// Output rows per band, in the forward pass and in the weight gradient.
fn output_band(c: &Conv) -> usize {
    let reach = (c.kernel[1] - 1) * c.dilation[1] / c.stride[1];
    let width = c.output[2] + (c.kernel[2] - 1) * c.dilation[2] / c.stride[2];
    let copies = c.stride[1].min(c.kernel[1]) * c.stride[2].min(c.kernel[2]);
    band_rows(c.output[1], 1, reach, c.group_inputs() * copies * width)
}

/// Results with the same taps: every `step`-th row and column from `first` on.
struct Class {
    taps: Vec<usize>,
    /// Offset in the planes of each tap of each source channel.
    offsets: Vec<usize>,
    rows: Stretch,
    cols: Stretch,
}

/// Offsets in every channel's planes, from those in one channel.
fn in_every_channel(planes: &Planes, channels: usize, offsets: &[usize]) -> Vec<usize> {
    let mut all = Vec::with_capacity(channels * offsets.len());
    for channel in 0..channels {
        all.extend(offsets.iter().map(|offset| channel * planes.channel() + offset));
    }
    all
}

/// Weights of one class: for each block of result channels `[source channel][tap][channel of the block]`.
///
/// `at(result, source)` is the offset in `w` of the taps of a pair of channels.
fn pack(class: &Class, to: usize, from: usize, w: &[f32], at: impl Fn(usize, usize) -> usize, dst: &mut Vec<f32>) {
    for block in blocks(to) {
        for source in 0..from {
            for &tap in &class.taps {
                dst.extend(block.clone().map(|result| w[at(result, source) + tap]));
            }
        }
    }
}

/// Result channels, split into equal blocks of at most [`ROWS`].
fn blocks(to: usize) -> impl Iterator<Item = Range<usize>> {
    let count = to.div_ceil(ROWS);
    (0..count).map(move |block| to * block / count..to * (block + 1) / count)
}

/// One band of one group of an image, computed class by class.
struct Band<'a> {
    planes: &'a Planes,
    /// Channels of the result.
    to: usize,
    classes: &'a [Class],
    /// Width of a row of the result.
    width: usize,
    /// Channel stride of the result.
    plane: usize,
}

impl Band<'_> {
    /// # Safety
    /// `copy` holds the planes, `weights` the packed classes, `bias` is null or one value a result channel; `dst` is
    /// the first row of the band.
    unsafe fn run<T: Storage<Compute = f32>>(&self, copy: *const f32, weights: &[f32], bias: *const f32, dst: *mut T) {
        let mut at = 0;
        for class in self.classes {
            let (rows, cols) = (class.rows.count, class.cols.count);
            if rows == 0 || cols == 0 {
                at += self.to * class.offsets.len();
                continue;
            }
            let pixels = (rows - 1) * self.planes.pitch() + cols;
            let out_pitch = pixels.next_multiple_of(SLACK);
            let mut out = Scratch::new::<f32>(ROWS * out_pitch);
            for block in blocks(self.to) {
                let mut start = [0.0; ROWS];
                // SAFETY: the planes hold every tap of these pixels, plus slack; the rows belong to this band.
                unsafe {
                    if !bias.is_null() {
                        block.clone().enumerate().for_each(|(i, channel)| start[i] = *bias.add(channel));
                    }
                    correlate(&Correlate {
                        image: copy,
                        offsets: &class.offsets,
                        weights: weights[at..].as_ptr(),
                        bias: start,
                        rows: block.len(),
                        out: out.ptr(),
                        out_pitch,
                        pixels,
                    });
                    for (i, channel) in block.clone().enumerate() {
                        self.write(out.ptr::<f32>().add(i * out_pitch), class, dst.add(channel * self.plane));
                    }
                }
                at += block.len() * class.offsets.len();
            }
        }
    }

    /// Drops the row ends and copies the rest to the result.
    ///
    /// # Safety
    /// `out` has the class's pixels at the planes' pitch, `dst` is a channel's first row.
    unsafe fn write<T: Storage<Compute = f32>>(&self, out: *const f32, class: &Class, dst: *mut T) {
        let (rows, cols, pitch) = (class.rows, class.cols, self.planes.pitch());
        // SAFETY: the class's rows and columns are within the result.
        unsafe {
            let dst = dst.add(rows.first as usize * self.width + cols.first as usize);
            let dst_pitch = rows.step * self.width;
            if T::DIRECT && cols.step == 1 {
                return move_rows((out, pitch), (dst.cast(), dst_pitch), rows.count, cols.count);
            }
            for row in 0..rows.count {
                let (out, dst) = (out.add(row * pitch), dst.add(row * dst_pitch));
                if cols.step == 1 {
                    T::narrow(out, dst, cols.count);
                } else {
                    (0..cols.count).for_each(|i| T::narrow(out.add(i), dst.add(i * cols.step), 1));
                }
            }
        }
    }
}

/// The weight as `f32`.
///
/// # Safety
/// `w` is the weight of `c`.
unsafe fn widen_weight<T: Storage<Compute = f32>>(c: &Conv, w: *const T) -> Vec<f32> {
    let mut wide = vec![0.0; c.out_channels * c.group_inputs() * c.taps()];
    // SAFETY: both have that many elements.
    unsafe { T::widen(w, wide.as_mut_ptr(), wide.len()) };
    wide
}

/// Images and groups per task, given the multiplications of each.
pub(super) fn grain(multiplications: usize) -> usize {
    (GRAIN / multiplications.max(1)).max(1)
}

/// # Safety
/// The pointers are the tensors `c` describes; `bias` may be null.
pub(super) unsafe fn forward<T: Storage<Compute = f32>>(c: &Conv, x: *const T, w: *const T, bias: *const T, y: *mut T) {
    let (from, to, taps) = (c.group_inputs(), c.group_outputs(), c.taps());
    // SAFETY: the weight and bias of `c`.
    let (w, mut wide) = unsafe { (widen_weight(c, w), c.widen_bias(bias)) };
    let bias = SendPtr::of(wide.as_mut().map_or(std::ptr::null(), |b| b.ptr::<f32>().cast_const()));
    let (x, y) = (SendPtr::of(x), SendPtr::new(y));
    let [_, height, width] = c.output;
    let rows = output_band(c);
    for start in (0..height).step_by(rows) {
        let rows = rows.min(height - start);
        let (planes, offsets) = input_planes(c, start..start + rows);
        let classes = [Class {
            taps: (0..taps).collect(),
            offsets: in_every_channel(&planes, from, &offsets),
            rows: Stretch { first: 0, count: rows, step: 1 },
            cols: Stretch { first: 0, count: width, step: 1 },
        }];
        let mut packed = Vec::with_capacity(w.len());
        for group in 0..c.groups {
            pack(
                &classes[0],
                to,
                from,
                &w,
                |result, source| ((group * to + result) * from + source) * taps,
                &mut packed,
            );
        }
        let band = Band { planes: &planes, to, classes: &classes, width, plane: c.output_size() };
        pool::parallel_ranges(c.batch * c.groups, grain(from * to * taps * rows * width), |first, last| {
            let mut copy = Scratch::new::<f32>(planes.room(from));
            let copy = copy.ptr::<f32>();
            // SAFETY: the groups `first..last` are this task's.
            unsafe {
                planes.clear(copy, from);
                for index in first..last {
                    let group = index % c.groups;
                    planes.fill(x.get().add(index * from * c.input_size()), [c.input[1], c.input[2]], from, copy);
                    let weights = &packed[group * from * to * taps..(group + 1) * from * to * taps];
                    let bias = if bias.get().is_null() { bias.get() } else { bias.get().add(group * to) };
                    band.run(copy, weights, bias, y.get().add(index * to * c.output_size() + start * width));
                }
            }
        });
    }
}

/// The classes of input positions in rows `rows`, over planes of the output's gradient.
fn input_classes(c: &Conv, rows: Range<usize>, planes: &Planes) -> Vec<Class> {
    let (top, left) = (planes.rows[0].first, planes.cols[0].first);
    let every = |first: usize, end: usize, stride: usize, base: usize| Stretch {
        first: (first - base) as isize,
        count: (end - first).div_ceil(stride),
        step: stride,
    };
    let mut classes = Vec::new();
    for row in rows.start..(rows.start + c.stride[1]).min(rows.end) {
        for col in 0..c.stride[2].min(c.input[2]) {
            let col_taps = taps_of(c, 2, col);
            let (mut taps, mut offsets) = (Vec::new(), Vec::new());
            for (kh, oh) in taps_of(c, 1, row) {
                for &(kw, ow) in &col_taps {
                    taps.push(kh * c.kernel[2] + kw);
                    offsets.push((oh - top) as usize * planes.pitch() + (ow - left) as usize);
                }
            }
            classes.push(Class {
                taps,
                offsets: in_every_channel(planes, c.group_outputs(), &offsets),
                rows: every(row, rows.end, c.stride[1], rows.start),
                cols: every(col, c.input[2], c.stride[2], 0),
            });
        }
    }
    classes
}

/// # Safety
/// The pointers are the tensors `c` describes.
pub(super) unsafe fn backward_input<T: Storage<Compute = f32>>(c: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    let (from, to, taps) = (c.group_outputs(), c.group_inputs(), c.taps());
    // SAFETY: the weight of `c`.
    let w = unsafe { widen_weight(c, w) };
    let (dy, dx) = (SendPtr::of(dy), SendPtr::new(dx));
    let [_, height, width] = c.input;
    let (left, pitch) = linked(c, 2, 0..width);
    let reach = (c.kernel[1] - 1) * c.dilation[1] / c.stride[1] + 1;
    let rows = band_rows(height.div_ceil(c.stride[1]), 1, reach, from * pitch) * c.stride[1];
    for start in (0..height).step_by(rows) {
        let rows = rows.min(height - start);
        let (top, count) = linked(c, 1, start..start + rows);
        let planes = Planes {
            rows: vec![Stretch { first: top, count, step: 1 }],
            cols: vec![Stretch { first: left, count: pitch, step: 1 }],
            gap: 0,
        };
        let classes = input_classes(c, start..start + rows, &planes);
        let mut packed = Vec::with_capacity(w.len());
        let per_group = from * to * classes.iter().map(|class| class.taps.len()).sum::<usize>();
        for group in 0..c.groups {
            for class in &classes {
                pack(class, to, from, &w, |result, source| ((group * from + source) * to + result) * taps, &mut packed);
            }
        }
        let band = Band { planes: &planes, to, classes: &classes, width, plane: c.input_size() };
        pool::parallel_ranges(c.batch * c.groups, grain(per_group * rows * width / classes.len()), |first, last| {
            let mut copy = Scratch::new::<f32>(planes.room(from));
            let copy = copy.ptr::<f32>();
            // SAFETY: the groups `first..last` are this task's.
            unsafe {
                planes.clear(copy, from);
                for index in first..last {
                    let group = index % c.groups;
                    planes.fill(dy.get().add(index * from * c.output_size()), [c.output[1], c.output[2]], from, copy);
                    let weights = &packed[group * per_group..(group + 1) * per_group];
                    let dst = dx.get().add(index * to * c.input_size() + start * width);
                    band.run(copy, weights, std::ptr::null(), dst);
                }
            }
        });
    }
}

/// # Safety
/// The pointers are the tensors `c` describes.
pub(super) unsafe fn backward_weight<T: Storage<Compute = f32>>(c: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    let (inputs, outputs, taps) = (c.group_inputs(), c.group_outputs(), c.taps());
    let height = c.output[1];
    let band = output_band(c);
    let bands = height.div_ceil(band);
    // Small images are processed several at a time, so that the sums stay in registers longer.
    let volume = (inputs * c.input_size() + outputs * c.output_size()) * size_of::<f32>();
    let together = if bands > 1 { 1 } else { (SWEEP_BYTES / volume).clamp(1, c.batch) };
    let packs = c.batch.div_ceil(together);
    let sums = Sums { blocks: c.groups, block: inputs * taps * outputs * LANES, parts: packs * bands };
    let (x, dy) = (SendPtr::of(x), SendPtr::of(dy));
    // SAFETY: a task adds to the sum it is given and to nothing else.
    let mut partial = unsafe {
        sums.collect::<f32>(|group, parts, sum| {
            let mut current: Option<Sweep> = None;
            for part in parts {
                let (index, pack) = (part % bands, part / bands);
                // Which elements must be zero changes only between bands.
                let sweep = match &mut current {
                    Some(sweep) if bands == 1 => sweep,
                    _ => {
                        drop(current.take());
                        let start = index * band;
                        current.insert(Sweep::new(c, start..(start + band).min(height), together))
                    }
                };
                let images = pack * together..((pack + 1) * together).min(c.batch);
                sweep.run(c, group, images, x.get().cast_const(), dy.get().cast_const(), sum);
            }
        })
    };
    // SAFETY: as laid out by `accumulate`; `dw` is the weight's gradient.
    unsafe { close::<T>(&sums, partial.ptr(), c, dw) }
}

/// Scratch copies of one band of the weight gradient.
struct Sweep {
    images: Planes,
    gradients: Planes,
    offsets: Vec<usize>,
    rows: usize,
    image_copies: Scratch,
    gradient_copies: Scratch,
}

impl Sweep {
    fn new(c: &Conv, rows: Range<usize>, together: usize) -> Self {
        let (inputs, outputs) = (c.group_inputs(), c.group_outputs());
        let (images, offsets) = input_planes(c, rows.clone());
        let gradients = Planes {
            rows: vec![Stretch { first: rows.start as isize, count: rows.len(), step: 1 }],
            cols: vec![Stretch { first: 0, count: images.pitch(), step: 1 }],
            gap: SLACK,
        };
        let mut image_copies = Scratch::new::<f32>(together * images.room(inputs));
        let mut gradient_copies = Scratch::new::<f32>(together * gradients.room(outputs));
        for i in 0..together {
            // SAFETY: room for `together` copies of each.
            unsafe {
                images.clear(image_copies.ptr::<f32>().add(i * images.room(inputs)), inputs);
                gradients.clear(gradient_copies.ptr::<f32>().add(i * gradients.room(outputs)), outputs);
            }
        }
        let offsets = in_every_channel(&images, inputs, &offsets);
        Self { images, gradients, offsets, rows: rows.len(), image_copies, gradient_copies }
    }

    /// Adds the contribution of some images, at most as many as the sweep was sized for.
    ///
    /// # Safety
    /// `x` and `dy` are the tensors of `c`, `sum` is laid out as [`Accumulate`] says.
    unsafe fn run<T: Storage<Compute = f32>>(
        &mut self,
        c: &Conv,
        group: usize,
        range: Range<usize>,
        x: *const T,
        dy: *const T,
        sum: *mut f32,
    ) {
        let (inputs, outputs) = (c.group_inputs(), c.group_outputs());
        let (image_stride, gradient_stride) = (self.images.room(inputs), self.gradients.room(outputs));
        let [_, height, width] = c.output;
        let (left, right) = (self.image_copies.ptr::<f32>(), self.gradient_copies.ptr::<f32>());
        // SAFETY: the copies have room, and were cleared, for each image.
        unsafe {
            for (i, image) in range.clone().enumerate() {
                let pair = image * c.groups + group;
                let from = x.add(pair * inputs * c.input_size());
                self.images.fill(from, [c.input[1], c.input[2]], inputs, left.add(i * image_stride));
                let from = dy.add(pair * outputs * c.output_size());
                self.gradients.fill(from, [height, width], outputs, right.add(i * gradient_stride));
            }
            accumulate(&Accumulate {
                image: left,
                image_stride,
                offsets: &self.offsets,
                gradient: right,
                gradient_stride,
                images: range.len(),
                pitch: self.gradients.channel(),
                filters: outputs,
                sums: sum,
                pixels: (self.rows - 1) * self.gradients.pitch() + width,
            });
        }
    }
}

/// Adds the splits in order, then the lanes, and writes the gradient.
///
/// # Safety
/// `sums` are laid out `[split][group][input channel, tap][filter][lane]`, `dw` is the weight's gradient.
unsafe fn close<T: Storage<Compute = f32>>(plan: &Sums, sums: *const f32, c: &Conv, dw: *mut T) {
    let (rows, outputs) = (c.group_inputs() * c.taps(), c.group_outputs());
    let (sums, dw) = (SendPtr::of(sums), SendPtr::new(dw));
    pool::parallel_for(c.out_channels, |filter| {
        let (group, output) = (filter / outputs, filter % outputs);
        for row in 0..rows {
            let mut lanes = [0f32; LANES];
            for split in 0..plan.splits() {
                let at = (split * plan.blocks + group) * plan.block + (row * outputs + output) * LANES;
                for (i, lane) in lanes.iter_mut().enumerate() {
                    // SAFETY: within the sums.
                    *lane += unsafe { *sums.get().add(at + i) };
                }
            }
            let total: f32 = lanes.iter().sum();
            // SAFETY: this task's filter.
            unsafe { T::narrow(&total, dw.get().add(filter * rows + row), 1) };
        }
    });
}
