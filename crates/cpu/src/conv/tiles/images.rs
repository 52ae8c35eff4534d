//! Forward pass and input gradient: both sum taps of a source image for every pixel of a target.
//!
//! The images of a task are in a slab `[row][column][image][channel]`: all pixels of a target row, of all images, are
//! tile rows with a constant stride, whatever the image's width.

use super::super::Conv;
use super::super::direct::taps_of;
use super::super::element::transpose_out;
use super::super::scratch::Scratch;
use super::super::weights::Lanes;
use super::kernel::{Block, ROWS, SIDE, STEP, Segment, TILE};
use super::layout::{channels_last, pack_weights, steps};
use crate::amx::with_tiles;
use crate::pool;
use rushlight_core::half::bf16;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

/// Maximum size of a slab, so that it stays in the L2 cache with the weights of a panel.
const SLAB_BYTES: usize = 640 << 10;

/// Maximum number of sums, so that they stay in the L1 cache until they are written.
const SUMS_BYTES: usize = 24 << 10;

/// Target positions of one dimension with the same taps: the `m`-th is `first + m · step` and reads `m · advance +
/// offset` of the source for each tap.
struct Class {
    first: usize,
    count: usize,
    /// Position in the kernel, and offset.
    taps: Vec<(usize, isize)>,
}

/// One dimension of a pass.
struct Axis {
    source: usize,
    target: usize,
    step: usize,
    advance: usize,
    classes: Vec<Class>,
}

impl Axis {
    fn forward(c: &Conv, dim: usize) -> Self {
        let offset = |k: usize| (k * c.dilation[dim]) as isize - c.padding[dim] as isize;
        let taps = (0..c.kernel[dim]).map(|k| (k, offset(k))).collect();
        let (source, target) = (c.input[dim], c.output[dim]);
        let classes = vec![Class { first: 0, count: target, taps }];
        Self { source, target, step: 1, advance: c.stride[dim], classes }
    }

    fn backward(c: &Conv, dim: usize) -> Self {
        let (source, target, step) = (c.output[dim], c.input[dim], c.stride[dim]);
        let class = |first| Class { first, count: (target - first).div_ceil(step), taps: taps_of(c, dim, first) };
        Self { source, target, step, advance: 1, classes: (0..step.min(target)).map(class).collect() }
    }

    /// Number of positions of the longest class.
    fn len(&self) -> usize {
        self.target.div_ceil(self.step)
    }

    /// First source position that positions `m` of all classes read, and their number.
    fn reads(&self, m: Range<usize>) -> (isize, usize) {
        let (mut low, mut high) = (isize::MAX, isize::MIN);
        for class in &self.classes {
            for &(_, offset) in class.taps.iter().filter(|_| class.count > m.start) {
                low = low.min((m.start * self.advance) as isize + offset);
                high = high.max(((m.end.min(class.count) - 1) * self.advance) as isize + offset + 1);
            }
        }
        if low < high { (low, (high - low) as usize) } else { (0, 0) }
    }
}

/// The forward pass or the input gradient.
struct Pass {
    batch: usize,
    from: usize,
    to: usize,
    rows: Axis,
    cols: Axis,
    /// Columns of the kernel.
    kernel: usize,
    taps: usize,
}

/// Images, weights, bias or null, results.
#[derive(Clone, Copy)]
struct Operands {
    src: SendPtr<u16>,
    weight: SendPtr<u16>,
    bias: SendPtr<f32>,
    dst: SendPtr<bf16>,
}

/// # Safety
/// [`suits`](super::suits), and the pointers are the tensors `c` describes; `bias` may be null.
pub(in super::super) unsafe fn forward(c: &Conv, x: *const u16, w: *const u16, bias: *const bf16, y: *mut bf16) {
    let pass = Pass::new(c, (c.in_channels, c.out_channels), Axis::forward);
    // SAFETY: the tensors of the pass.
    unsafe {
        let (mut weight, mut bias) = (pack_weights(c, Lanes::Outputs, w), c.widen_bias(bias));
        let bias = bias.as_mut().map_or(std::ptr::null(), |b| b.ptr::<f32>().cast_const());
        pass.run(x, weight.ptr(), bias, y);
    }
}

/// # Safety
/// As [`forward`].
pub(in super::super) unsafe fn backward_input(c: &Conv, dy: *const u16, w: *const u16, dx: *mut bf16) {
    let pass = Pass::new(c, (c.out_channels, c.in_channels), Axis::backward);
    // SAFETY: the tensors of the pass.
    unsafe {
        let mut weight = pack_weights(c, Lanes::Inputs, w);
        pass.run(dy, weight.ptr(), std::ptr::null(), dx);
    }
}

impl Pass {
    fn new(c: &Conv, (from, to): (usize, usize), axis: fn(&Conv, usize) -> Axis) -> Self {
        Self { batch: c.batch, from, to, rows: axis(c, 1), cols: axis(c, 2), kernel: c.kernel[2], taps: c.taps() }
    }

    /// Image stride of a pixel's channels: whole steps, chosen so that images do not share a few sets of the
    /// cache.
    fn pitch(&self) -> usize {
        let pitch = self.from.next_multiple_of(STEP);
        if pitch.is_multiple_of(128) { pitch + STEP } else { pitch }
    }

    /// Images per task, and positions per row class.
    fn cut(&self) -> (usize, usize) {
        let all = self.rows.len();
        let row_bytes = self.cols.reads(0..self.cols.len()).1 * self.pitch() * 2;
        let image = |rows: usize| (self.rows.reads(0..rows).1 * row_bytes).max(1);
        if image(all) <= SLAB_BYTES {
            return ((SLAB_BYTES / image(all)).clamp(1, self.batch), all);
        }
        let fit = (1..=all).take_while(|&rows| image(rows) <= SLAB_BYTES).last().unwrap_or(1);
        (1, all.div_ceil(all.div_ceil(fit)))
    }

    /// # Safety
    /// The pointers are the pass's tensors, the weight packed.
    unsafe fn run(&self, src: *const u16, weight: *const u16, bias: *const f32, dst: *mut bf16) {
        let operands = Operands {
            src: SendPtr::of(src),
            weight: SendPtr::of(weight),
            bias: SendPtr::of(bias),
            dst: SendPtr::new(dst),
        };
        let (together, rows) = self.cut();
        let threads = pool::num_threads();
        let packs = self.batch.div_ceil(together).next_multiple_of(threads).min(self.batch);
        let bands = self.rows.len().div_ceil(rows);
        let panels = self.to.div_ceil(SIDE);
        // If there are fewer slabs than threads, several tasks build the same slab.
        let cuts = if packs * bands < threads { threads.div_ceil(packs * bands).min(panels) } else { 1 };
        pool::parallel_for(packs * bands * cuts, |task| {
            let (cut, task) = (task % cuts, task / cuts);
            let (band, pack) = (task % bands, task / bands);
            let images = self.batch * pack / packs..self.batch * (pack + 1) / packs;
            let rows = band * rows..((band + 1) * rows).min(self.rows.len());
            let panels = panels * cut / cuts..panels * (cut + 1) / cuts;
            // SAFETY: the tiles are there, and these rows of these images and channels are the task's.
            unsafe { with_tiles(|| self.task(images, rows, panels, operands)) }
        });
    }

    /// # Safety
    /// As [`run`](Self::run), within [`with_tiles`].
    unsafe fn task(&self, images: Range<usize>, rows: Range<usize>, panels: Range<usize>, operands: Operands) {
        let slab = Slab::new(self, images.len(), rows.clone());
        let mut copy = Scratch::new::<u16>(slab.room());
        let copy = copy.ptr::<u16>();
        let plane = self.rows.source * self.cols.source;
        // SAFETY: the slab has room for these images.
        unsafe {
            slab.clear(self, copy);
            slab.fill(self, operands.src.get().add(images.start * self.from * plane), copy);
        }
        let per_row = self.rows.step * self.cols.target * images.len() * SIDE * size_of::<f32>();
        let together = (SUMS_BYTES / per_row.max(1)).clamp(1, rows.len());
        let chunks: Vec<Chunk> = rows
            .clone()
            .step_by(together)
            .map(|start| Chunk::new(self, &slab, start..(start + together).min(rows.end)))
            .collect();
        let sums = chunks.iter().map(|chunk| chunk.sums).max().unwrap_or(0) + 2 * ROWS;
        let mut sums = Scratch::new::<f32>(sums * SIDE);
        let mut ordered = Scratch::new::<f32>(together * self.rows.step * self.cols.target * SIDE);
        for panel in panels {
            for chunk in &chunks {
                // SAFETY: the buffers are large enough for every chunk, and its pixels are the task's.
                unsafe {
                    let weight = operands.weight.get().add(panel * self.taps * steps(self.from) * 2 * TILE);
                    chunk.multiply(self, &slab, copy, weight, sums.ptr());
                    chunk.write(self, images.clone(), panel, sums.ptr(), ordered.ptr(), operands);
                }
            }
        }
    }
}

/// Slab: the copy of some rows of some images, channels last.
struct Slab {
    images: usize,
    /// Strides of image, pixel and row.
    pitch: usize,
    pixel: usize,
    row: usize,
    /// First source row and column, and their numbers.
    rows: (isize, usize),
    cols: (isize, usize),
    /// Columns with equal remainder modulo the advance are adjacent: their maximum number, and the advance.
    alike: usize,
    advance: usize,
    /// Position of the row classes at which the slab begins.
    first: usize,
}

impl Slab {
    fn new(pass: &Pass, images: usize, rows: Range<usize>) -> Self {
        let (cols, advance, pitch) = (pass.cols.reads(0..pass.cols.len()), pass.cols.advance, pass.pitch());
        let (alike, pixel) = (cols.1.div_ceil(advance), images * pitch);
        let row = alike * advance * pixel;
        Self { images, pitch, pixel, row, cols, alike, advance, first: rows.start, rows: pass.rows.reads(rows) }
    }

    /// The position of a column in its row.
    fn column(&self, column: usize) -> usize {
        (column % self.advance * self.alike + column / self.advance) * self.pixel
    }

    fn len(&self) -> usize {
        self.rows.1 * self.row
    }

    /// Scratch elements: the slab, plus room for unused rows of the last tile and for pixels that are cut off.
    fn room(&self) -> usize {
        self.len() + self.pixel.max(ROWS * self.pitch)
    }

    /// Zeroes the positions that the images do not cover.
    ///
    /// # Safety
    /// `dst` has [`room`](Self::room) elements.
    unsafe fn clear(&self, pass: &Pass, dst: *mut u16) {
        let outside = |at: isize, size: usize| at < 0 || at >= size as isize;
        for row in 0..self.rows.1 {
            if outside(self.rows.0 + row as isize, pass.rows.source) {
                // SAFETY: a row of the slab.
                unsafe { std::ptr::write_bytes(dst.add(row * self.row), 0, self.row) };
                continue;
            }
            for column in (0..self.cols.1).filter(|&c| outside(self.cols.0 + c as isize, pass.cols.source)) {
                // SAFETY: a pixel of the slab.
                unsafe { std::ptr::write_bytes(dst.add(row * self.row + self.column(column)), 0, self.pixel) };
            }
        }
    }

    /// Destinations of the pixels of the source rows `rows`, in the slab's first image.
    fn places(&self, rows: Range<usize>, width: usize) -> Vec<usize> {
        let dump = self.len();
        let place = |row: usize, column: usize| match usize::try_from(column as isize - self.cols.0) {
            Ok(column) if column < self.cols.1 => {
                (row as isize - self.rows.0) as usize * self.row + self.column(column)
            }
            _ => dump,
        };
        rows.flat_map(|row| (0..width).map(move |column| place(row, column))).collect()
    }

    /// Copies images, the first of which starts at `src`.
    ///
    /// # Safety
    /// The images are there, and `dst` has [`room`](Self::room) elements.
    unsafe fn fill(&self, pass: &Pass, src: *const u16, dst: *mut u16) {
        let [height, width] = [pass.rows.source, pass.cols.source];
        let first = self.rows.0.clamp(0, height as isize) as usize;
        let last = (self.rows.0 + self.rows.1 as isize).clamp(first as isize, height as isize) as usize;
        let at = self.places(first..last, width);
        for image in 0..self.images {
            for channel in (0..pass.from).step_by(STEP) {
                // SAFETY: rows `first..last` of channels that exist.
                unsafe {
                    let src = src.add(((image * pass.from + channel) * height + first) * width);
                    let dst = dst.add(image * self.pitch + channel);
                    channels_last(src, height * width, pass.from - channel, dst, &at);
                }
            }
        }
    }
}

/// Some rows of the target: positions `rows` of every row class.
struct Chunk {
    rows: Range<usize>,
    parts: Vec<Part>,
    /// Number of sums of all parts: pixels times images.
    sums: usize,
}

/// The pixels of a chunk with the same taps.
struct Part {
    /// Their row and column classes.
    row: usize,
    col: usize,
    segments: Vec<Segment>,
    /// First row of each tile, in the slab and in the sums.
    tiles: Vec<(usize, usize)>,
    /// Start and number of its sums, `[row][column][image]`.
    sums: Range<usize>,
}

impl Chunk {
    fn new(pass: &Pass, slab: &Slab, rows: Range<usize>) -> Self {
        let (mut parts, mut sums) = (Vec::new(), 0);
        let tap_len = steps(pass.from) * 2 * TILE;
        let top = (slab.first * pass.rows.advance) as isize - slab.rows.0;
        for (row, row_class) in pass.rows.classes.iter().enumerate() {
            let rows = rows.start..rows.end.min(row_class.count);
            for (col, col_class) in pass.cols.classes.iter().enumerate().filter(|_| !rows.is_empty()) {
                let (mut segments, mut tiles, first) = (Vec::new(), Vec::new(), sums);
                for &(kh, down) in &row_class.taps {
                    for &(kw, right) in &col_class.taps {
                        let column = slab.column((right - slab.cols.0) as usize);
                        let a = (top + down) as usize * slab.row + column;
                        segments.push(Segment { a, b: (kh * pass.kernel + kw) * tap_len });
                    }
                }
                let run = col_class.count * slab.images;
                for m in rows.clone() {
                    let start = (m - slab.first) * pass.rows.advance * slab.row;
                    tiles.extend((0..run).step_by(ROWS).map(|i| (start + i * slab.pitch, sums + i)));
                    sums += run;
                }
                parts.push(Part { row, col, segments, tiles, sums: first..sums });
            }
        }
        Self { rows, parts, sums }
    }

    /// Computes the sums of 32 channels. A partial tile writes beyond its sums; the sums after it are computed later.
    ///
    /// # Safety
    /// `copy` is the slab filled, `weight` a packed panel, `sums` has room for two tiles more than the chunk's sums;
    /// within [`with_tiles`].
    unsafe fn multiply(&self, pass: &Pass, slab: &Slab, copy: *const u16, weight: *const u16, sums: *mut f32) {
        for part in &self.parts {
            // SAFETY: sums of the chunk; tiles and segments are within the slab.
            unsafe {
                if part.segments.is_empty() {
                    std::ptr::write_bytes(sums.add(part.sums.start * SIDE), 0, part.sums.len() * SIDE);
                    continue;
                }
                for pair in part.tiles.chunks(2) {
                    let (a, c) = pair[0];
                    // An odd last tile is multiplied twice, with the same result.
                    let (next_a, next_c) = *pair.last().unwrap_or(&pair[0]);
                    let block = Block {
                        a: [copy.add(a), copy.add(next_a)],
                        a_row: slab.pitch,
                        b: weight,
                        segments: &part.segments,
                        steps: steps(pass.from),
                        c: [sums.add(c * SIDE), sums.add(next_c * SIDE)],
                        c_row: SIDE,
                        accumulate: false,
                    };
                    block.run();
                }
            }
        }
    }

    /// Rounds the sums and writes them to the target.
    ///
    /// # Safety
    /// `sums` are those of the panel, `ordered` has room for all pixels of the chunk in one image.
    unsafe fn write(
        &self,
        pass: &Pass,
        images: Range<usize>,
        panel: usize,
        sums: *const f32,
        ordered: *mut f32,
        operands: Operands,
    ) {
        let (step, width) = (pass.rows.step, pass.cols.target);
        let plane = pass.rows.target * width;
        let target = self.rows.start * step..(self.rows.end * step).min(pass.rows.target);
        let lanes = (pass.to - panel * SIDE).min(SIDE);
        let count = images.len();
        for (i, image) in images.enumerate() {
            // SAFETY: the chunk's pixels of this image.
            unsafe {
                let at = (image * pass.to + panel * SIDE) * plane + target.start * width;
                let bias = operands.bias.get().cast_const();
                let bias = if bias.is_null() { bias } else { bias.add(panel * SIDE) };
                let (from, pixel) = match self.parts.as_slice() {
                    [_] => (sums.add(i * SIDE), count * SIDE),
                    parts => {
                        for part in parts {
                            part.place(pass, self.rows.start, (i, count), sums, ordered);
                        }
                        (ordered.cast_const(), SIDE)
                    }
                };
                transpose_out::<bf16>(
                    from,
                    pixel,
                    target.len() * width,
                    lanes,
                    operands.dst.get().add(at),
                    plane,
                    bias,
                );
            }
        }
    }
}

impl Part {
    /// Copies the sums of one image of `count` to their positions among the chunk's pixels.
    ///
    /// # Safety
    /// As [`Chunk::write`].
    unsafe fn place(
        &self,
        pass: &Pass,
        start: usize,
        (image, count): (usize, usize),
        sums: *const f32,
        ordered: *mut f32,
    ) {
        let (row_class, col_class) = (&pass.rows.classes[self.row], &pass.cols.classes[self.col]);
        let width = pass.cols.target;
        for (index, sum) in self.sums.clone().skip(image).step_by(count).enumerate() {
            let (m, column) = (index / col_class.count, index % col_class.count);
            let row = m * pass.rows.step + row_class.first;
            let to = row * width + column * pass.cols.step + col_class.first;
            debug_assert!(start * pass.rows.step + row < pass.rows.target);
            // SAFETY: a pixel of the chunk.
            unsafe { std::ptr::copy_nonoverlapping(sums.add(sum * SIDE), ordered.add(to * SIDE), SIDE) };
        }
    }
}
