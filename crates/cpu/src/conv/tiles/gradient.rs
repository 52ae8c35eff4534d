//! The gradient by the weight: for every tap a product of the input, shifted by it, with the output's gradient, summed
//! over pixels.
//!
//! Rows of the left operand are input channels; their terms are pixels in order, which is the layout of an image except
//! for the shift. A copy shifted by columns serves all taps of a kernel column, because moving down a row is a constant
//! offset.

use super::super::Conv;
use super::super::scratch::Scratch;
use super::super::sums::Sums;
use super::kernel::{Block, ROWS, SIDE, STEP, Segment, TILE};
use super::layout::{WIDTH, rows_as_columns, steps};
use crate::amx::with_tiles;
use rushlight_core::half::bf16;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

/// Input channels per block.
const CHANNELS: usize = 64;
/// Maximum size of the copies, so that they stay in the L2 cache together with the sums.
const COPY_BYTES: usize = 768 << 10;
/// Copies of one row that are larger than this (kernels of hundreds of columns over long rows) do not pay.
const MAX_BYTES: usize = 16 << 20;

/// Split of the output's pixels into parts: some rows of one image, or some whole images. Depends on the problem's size
/// alone.
struct Parts {
    batch: usize,
    height: usize,
    /// Rows and images per part.
    rows: usize,
    images: usize,
    /// Whether copies serve all taps of a kernel column.
    shared: bool,
    /// Bytes of the copies.
    bytes: usize,
}

struct Part {
    images: Range<usize>,
    rows: Range<usize>,
}

impl Parts {
    fn new(c: &Conv) -> Self {
        let [_, height, width] = c.output;
        let shared = |rows: usize| {
            let whole = |rows: usize| (rows * width).is_multiple_of(STEP);
            c.stride[1] == 1 && whole(rows) && whole(height % rows)
        };
        let bytes = |rows: usize| {
            let reach = (c.kernel[1] - 1) * c.dilation[1];
            let left = if shared(rows) { c.kernel[2] * (rows + reach) } else { c.taps() * rows };
            (left * c.in_channels.min(CHANNELS) + rows * c.out_channels) * width * size_of::<bf16>()
        };
        let rows = (1..=height).rev().find(|&rows| bytes(rows) <= COPY_BYTES).unwrap_or(1);
        // Fewer rows may avoid copies for every tap.
        let rows = (rows.div_ceil(2)..=rows).rev().find(|&rows| shared(rows)).unwrap_or(rows);
        let images = if rows == height { (COPY_BYTES / bytes(height).max(1)).clamp(1, c.batch) } else { 1 };
        Self { batch: c.batch, height, rows, images, shared: shared(rows), bytes: images * bytes(rows) }
    }

    fn bands(&self) -> usize {
        self.height.div_ceil(self.rows)
    }

    fn len(&self) -> usize {
        self.batch.div_ceil(self.images) * self.bands()
    }

    fn part(&self, index: usize) -> Part {
        let (band, pack) = (index % self.bands(), index / self.bands());
        let cut = |i: usize, each: usize, all: usize| i * each..((i + 1) * each).min(all);
        Part { images: cut(pack, self.images, self.batch), rows: cut(band, self.rows, self.height) }
    }
}

/// The terms of a part, and their positions in the operands.
struct Terms {
    /// Row stride of the left operand.
    row: usize,
    /// Number of copies of the input: one per kernel column, or one per tap.
    copies: usize,
    /// Rows of an image's copy.
    copy_rows: usize,
    segments: Vec<Segment>,
    steps: usize,
}

impl Terms {
    fn new(c: &Conv, parts: &Parts, part: &Part) -> Self {
        let (rows, width, images) = (part.rows.len(), c.output[2], part.images.len());
        if parts.shared {
            let copy_rows = rows + (c.kernel[1] - 1) * c.dilation[1];
            let (image, steps) = (copy_rows * width, rows * width / STEP);
            let segments = (0..images).map(|i| Segment { a: i * image, b: i * steps * 2 * TILE }).collect();
            return Self { row: images * image + STEP, copies: c.kernel[2], copy_rows, segments, steps };
        }
        let steps = steps(images * rows * width);
        let segments = vec![Segment { a: 0, b: 0 }];
        Self { row: (steps + 1) * STEP, copies: c.taps(), copy_rows: rows, segments, steps }
    }

    /// Total steps of all segments.
    fn all_steps(&self) -> usize {
        self.segments.len() * self.steps
    }
}

/// Whether tiles are efficient for the gradient with respect to the weight.
pub(in super::super) fn suits_weight(c: &Conv) -> bool {
    super::suits(c) && Parts::new(c).bytes <= MAX_BYTES
}

/// # Safety
/// [`suits_weight`], and the pointers are the tensors `c` describes.
pub(in super::super) unsafe fn backward_weight(c: &Conv, x: *const u16, dy: *const u16, dw: *mut bf16) {
    let parts = Parts::new(c);
    let channels = c.in_channels.next_multiple_of(SIDE).min(CHANNELS);
    let blocks = c.in_channels.div_ceil(channels);
    let panels = c.out_channels.div_ceil(WIDTH);
    let block = panels * channels * c.taps() * WIDTH;
    let sums = Sums { blocks, block, parts: parts.len() };
    let (x, dy) = (SendPtr::of(x), SendPtr::of(dy));
    // SAFETY: a task writes only to its own sum; the tiles are configured.
    let mut partial = unsafe {
        sums.collect::<f32>(|block, range, sum| {
            with_tiles(|| {
                for part in range.map(|index| parts.part(index)) {
                    let first = block * channels;
                    let terms = Terms::new(c, &parts, &part);
                    let mut left = Scratch::new::<u16>(terms.copies * channels * terms.row);
                    let mut right = Scratch::new::<u16>(panels * 2 * terms.all_steps() * 2 * TILE);
                    let exist = channels.min(c.in_channels - first);
                    copy_input(c, &parts, &part, &terms, x.get(), (first, exist, channels), left.ptr());
                    copy_gradient(c, &part, &terms, dy.get(), right.ptr());
                    add_products(c, &parts, &terms, left.ptr(), right.ptr(), channels, sum);
                }
            })
        })
    };
    // SAFETY: `dw` is the weight's gradient; blocks are panels, one range of channels after the other.
    unsafe {
        sums.finish(partial.ptr::<f32>(), c, dw, channels, |index| (index % panels, index / panels * channels));
    }
}

/// Fills the left operand, `[copy][channel][term]`, with `exist` channels from `first` on; there is room for
/// `channels`.
///
/// # Safety
/// `x` is the input of `c`, `dst` large enough.
unsafe fn copy_input(
    c: &Conv,
    parts: &Parts,
    part: &Part,
    terms: &Terms,
    x: *const u16,
    (first, exist, channels): (usize, usize, usize),
    dst: *mut u16,
) {
    let width = c.output[2];
    let image_len = terms.copy_rows * width;
    let used = part.images.len() * image_len;
    for copy in 0..terms.copies {
        let (kh, kw) = if parts.shared { (0, copy) } else { (copy / c.kernel[2], copy % c.kernel[2]) };
        let from = |dim: usize, out: usize, k: usize| {
            (out * c.stride[dim] + k * c.dilation[dim]) as isize - c.padding[dim] as isize
        };
        let shift = Shift {
            size: [c.input[1], c.input[2]],
            first: [from(1, part.rows.start, kh), from(2, 0, kw)],
            step: [c.stride[1], c.stride[2]],
            count: [terms.copy_rows, width],
        };
        for channel in 0..exist {
            // SAFETY: the channel's row of the copy, whose last terms may belong to no pixel.
            unsafe {
                let dst = dst.add((copy * channels + channel) * terms.row);
                for (i, image) in part.images.clone().enumerate() {
                    let src = x.add((image * c.in_channels + first + channel) * c.input_size());
                    shift.copy(src, dst.add(i * image_len));
                }
                std::ptr::write_bytes(dst.add(used), 0, terms.row - used);
            }
        }
    }
}

/// The pixels of a copy: `count` rows and columns of a plane from `first` on, zero outside.
struct Shift {
    size: [usize; 2],
    first: [isize; 2],
    step: [usize; 2],
    count: [usize; 2],
}

impl Shift {
    /// # Safety
    /// `src` is a plane of the size said, `dst` has room for all pixels.
    unsafe fn copy(&self, src: *const u16, dst: *mut u16) {
        let ([height, width], [rows, cols]) = (self.size, self.count);
        // Columns within the plane.
        let inside = |at: isize, size: usize| at >= 0 && at < size as isize;
        let column = |j: usize| self.first[1] + (j * self.step[1]) as isize;
        let left = (0..cols).take_while(|&j| column(j) < 0).count();
        let right = (left..cols).take_while(|&j| column(j) < width as isize).count() + left;
        let mut row = 0;
        while row < rows {
            let at = self.first[0] + (row * self.step[0]) as isize;
            // SAFETY: pixels of the copy; those read are within the plane.
            unsafe {
                let to = dst.add(row * cols);
                if !inside(at, height) {
                    std::ptr::write_bytes(to, 0, cols);
                    row += 1;
                    continue;
                }
                if self.step == [1, 1] && cols == width && left < right {
                    // Copies all rows within the plane at once; elements that wrap around to the next row are then set
                    // to zero.
                    let count = (rows - row).min(height - at as usize);
                    let (from, skip) = (at * width as isize + self.first[1], left);
                    let end = (count - 1) * cols + right;
                    std::ptr::copy_nonoverlapping(src.offset(from + skip as isize), to.add(skip), end - skip);
                    for j in (0..left).chain(right..cols) {
                        for r in 0..count {
                            *to.add(r * cols + j) = 0;
                        }
                    }
                    row += count;
                    continue;
                }
                let from = src.add(at as usize * width);
                std::ptr::write_bytes(to, 0, left);
                for j in left..right {
                    *to.add(j) = *from.offset(column(j));
                }
                std::ptr::write_bytes(to.add(right), 0, cols - right);
            }
            row += 1;
        }
    }
}

/// Fills the right operand: `[32 channels][step][two tiles]`.
///
/// # Safety
/// `dy` is the output's gradient, `dst` large enough.
unsafe fn copy_gradient(c: &Conv, part: &Part, terms: &Terms, dy: *const u16, dst: *mut u16) {
    let (width, plane) = (c.output[2], c.output_size());
    let pixels = part.rows.len() * width;
    let mut stage = Scratch::new::<u16>(ROWS * terms.steps * STEP);
    let stage = stage.ptr::<u16>();
    for first in (0..c.out_channels.next_multiple_of(WIDTH)).step_by(ROWS) {
        let count = c.out_channels.saturating_sub(first).min(ROWS);
        let at = first / SIDE * terms.all_steps() * 2 * TILE + first % SIDE / ROWS * TILE;
        // SAFETY: channels that exist, if any.
        unsafe {
            let source = |image: usize, channel: usize| {
                dy.add((image * c.out_channels + channel) * plane + part.rows.start * width)
            };
            if pixels.is_multiple_of(STEP) {
                for (i, image) in part.images.clone().enumerate() {
                    let steps = pixels / STEP;
                    let from = source(image, first.min(c.out_channels - 1));
                    rows_as_columns(from, plane, count, steps, dst.add(at + i * steps * 2 * TILE));
                }
                continue;
            }
            let row = terms.steps * STEP;
            for channel in 0..count {
                let to = stage.add(channel * row);
                for (i, image) in part.images.clone().enumerate() {
                    std::ptr::copy_nonoverlapping(source(image, first + channel), to.add(i * pixels), pixels);
                }
                let used = part.images.len() * pixels;
                std::ptr::write_bytes(to.add(used), 0, row - used);
            }
            rows_as_columns(stage, row, count, terms.steps, dst.add(at));
        }
    }
}

/// Adds a part's contribution to the sums, laid out `[panel][channel][tap][lane]`.
///
/// # Safety
/// The operands are filled, and there are tiles.
unsafe fn add_products(
    c: &Conv,
    parts: &Parts,
    terms: &Terms,
    left: *const u16,
    right: *const u16,
    channels: usize,
    sum: *mut f32,
) {
    let (taps, width) = (c.taps(), c.output[2]);
    for lane in (0..c.out_channels).step_by(SIDE) {
        for tap in 0..taps {
            let (copy, offset) =
                if parts.shared { (tap % c.kernel[2], tap / c.kernel[2] * c.dilation[1] * width) } else { (tap, 0) };
            for channel in (0..channels).step_by(SIDE) {
                // SAFETY: within the operands and the sums.
                unsafe {
                    let a = left.add((copy * channels + channel) * terms.row + offset);
                    let row = (lane / WIDTH * channels + channel) * taps + tap;
                    let to = sum.add(row * WIDTH + lane % WIDTH);
                    let block = Block {
                        a: [a, a.add(ROWS * terms.row)],
                        a_row: terms.row,
                        b: right.add(lane / SIDE * terms.all_steps() * 2 * TILE),
                        segments: &terms.segments,
                        steps: terms.steps,
                        c: [to, to.add(ROWS * taps * WIDTH)],
                        c_row: taps * WIDTH,
                        accumulate: true,
                    };
                    block.run();
                }
            }
        }
    }
}
