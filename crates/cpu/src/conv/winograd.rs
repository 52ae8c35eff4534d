//! 3 × 3 convolutions of stride one by Winograd's minimal filtering: a quarter of the multiplications.
//!
//! Each group of tiles goes through all steps while it is in cache: channel-last slab, image transform, one product per
//! point, result transform, output.

use super::Conv;
use super::direct::contract;
use super::element::{Compute, Storage, transpose_out};
use super::product::{Product, Segment};
use super::scratch::Scratch;
use super::slab::Slab;
use super::sums::Sums;
use super::weights::{Lanes, pack};
use super::winograd_transform::{Filter, Image, Outcome, POINTS, Square, Transform, transform};
use crate::pool;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

/// Outputs of a tile in each direction.
pub(super) const TILE: usize = 4;

/// Tiles per group.
const GROUP: usize = 48;

/// Maximum bytes of transformed weights at a time.
const WEIGHT_BYTES: usize = 10 << 20;

/// Channels of a weight panel transformed per task.
const PIECE: usize = 16;

const WIDTH: usize = <f32 as Compute>::PANEL;

/// Point stride: one cache line more than the data, because equal distances would use only a few cache sets.
pub(super) fn point_stride(len: usize) -> usize {
    len + 16
}

/// Whether the convolution has the right shape, and is large enough to gain from the transforms.
pub(super) fn suits(c: &Conv) -> bool {
    let shape = c.kernel == [1, 3, 3]
        && c.stride == [1; 3]
        && c.dilation == [1; 3]
        && c.groups == 1
        && c.input[0] == 1
        && c.padding[0] == 0;
    let [_, height, width] = c.output;
    let tiles = height.div_ceil(TILE) * width.div_ceil(TILE);
    // Tiles that overhang the image, and transforms shared by few channels, cancel the gain.
    let full = height * width * 9 >= tiles * POINTS * 2;
    shape && full && c.in_channels >= 16 && c.out_channels >= 16 && c.batch * tiles >= 16
}

/// Whether the forward pass and the input gradient gain, too: they transform all weights, which few tiles of many
/// channels do not pay for.
pub(super) fn suits_images(c: &Conv) -> bool {
    let tiles = c.output[1].div_ceil(TILE) * c.output[2].div_ceil(TILE);
    suits(c) && c.batch * tiles >= (c.in_channels * c.out_channels / 1024).min(64)
}

/// Split of a pass's output into tiles, and of the tiles into groups: some tile rows of one image, or some whole
/// images.
struct Tiling {
    batch: usize,
    /// Tile rows and columns of an image.
    tiles: [usize; 2],
    bands: usize,
    packs: usize,
}

struct Group {
    images: Range<usize>,
    /// Tile rows.
    rows: Range<usize>,
}

impl Tiling {
    fn new(batch: usize, size: [usize; 2]) -> Self {
        let tiles = size.map(|s| s.div_ceil(TILE));
        let bands = tiles[0].div_ceil((GROUP / tiles[1]).clamp(1, tiles[0]));
        let packs = if bands > 1 { batch } else { batch.div_ceil((GROUP / (tiles[0] * tiles[1])).max(1)) };
        Self { batch, tiles, bands, packs }
    }

    fn groups(&self) -> usize {
        self.bands * self.packs
    }

    fn group(&self, index: usize) -> Group {
        let (band, pack) = (index % self.bands, index / self.bands);
        Group {
            images: self.batch * pack / self.packs..self.batch * (pack + 1) / self.packs,
            rows: self.tiles[0] * band / self.bands..self.tiles[0] * (band + 1) / self.bands,
        }
    }

    /// Tiles of the largest group.
    fn most(&self) -> usize {
        self.batch.div_ceil(self.packs) * self.tiles[0].div_ceil(self.bands) * self.tiles[1]
    }
}

impl Group {
    fn tiles_per_image(&self, tiling: &Tiling) -> usize {
        self.rows.len() * tiling.tiles[1]
    }

    fn tiles(&self, tiling: &Tiling) -> usize {
        self.images.len() * self.tiles_per_image(tiling)
    }

    /// One square per tile of an image; `pitch` is the tile stride on the point side.
    fn squares(&self, tiling: &Tiling, slab: &Slab, pitch: usize) -> Vec<Square> {
        let cols = tiling.tiles[1];
        (0..self.tiles_per_image(tiling))
            .map(|t| {
                let src = TILE * (t / cols * slab.row_pitch() + t % cols * slab.pitch());
                Square { src, dst: t * pitch, rows: 6, cols: 6 }
            })
            .collect()
    }
}

/// A tensor that is processed tile by tile: the channels of one block, and the image stride.
struct Source<T> {
    data: *const T,
    channels: usize,
    image_stride: usize,
    size: [usize; 2],
}

/// Transforms the tiles of a group to points, `dst[point][tile][channel]`; a tile of `reach` pixels starts `pad` before
/// its output.
///
/// # Safety
/// The source is as described; `dst` has room for every point.
unsafe fn to_points<T: Storage<Compute = f32>, M: super::winograd_transform::Map>(
    source: &Source<T>,
    tiling: &Tiling,
    group: &Group,
    pad: [isize; 2],
    dst: *mut f32,
    (pitch, stride): (usize, usize),
) {
    let overlap = M::FROM - TILE;
    let [height, width] = source.size;
    let rows = ((TILE * group.rows.start) as isize - pad[0], TILE * group.rows.len() + overlap);
    let cols = (-pad[1], TILE * tiling.tiles[1] + overlap);
    let slab = Slab::new(source.channels, [1, height, width], vec![0], rows, cols);
    let squares = group.squares(tiling, &slab, pitch);
    let mut copy = Scratch::new::<f32>(slab.room());
    let copy = copy.ptr::<f32>();
    // SAFETY: the slab covers every tile of the group.
    unsafe {
        slab.clear(copy);
        for (i, image) in group.images.clone().enumerate() {
            slab.fill(source.data.add(image * source.image_stride), copy);
            transform::<M>(&Transform {
                src: copy,
                src_strides: (slab.row_pitch() as isize, slab.pitch() as isize),
                dst: dst.add(i * squares.len() * pitch),
                dst_strides: (6 * stride, stride),
                squares: &squares,
                lanes: source.channels,
            });
        }
    }
}

/// A pass that maps images to images: the forward pass, or the input gradient as a convolution of the output's
/// gradient.
struct Pass {
    batch: usize,
    from: usize,
    to: usize,
    from_size: [usize; 2],
    to_size: [usize; 2],
    pad: [isize; 2],
    /// The panels' lanes: the channels of the result.
    lanes: Lanes,
}

/// Operands of a pass; `points` are the transformed weights of the current panels.
struct Operands<T> {
    src: *const T,
    points: *const f32,
    bias: *const f32,
    dst: *mut T,
}

// SAFETY: tasks read all but `dst`, of which each writes a part of its own.
unsafe impl<T> Sync for Operands<T> {}

/// # Safety
/// The pointers are the tensors `c` describes; `bias` may be null.
pub(super) unsafe fn forward<T: Storage<Compute = f32>>(c: &Conv, x: *const T, w: *const T, bias: *const T, y: *mut T) {
    let pass = Pass::forward(c);
    // SAFETY: the tensors of the pass.
    unsafe {
        let mut wide = c.widen_bias(bias);
        let bias = wide.as_mut().map_or(std::ptr::null(), |b| b.ptr::<f32>().cast_const());
        pass.run(c, x, w, bias, y);
    }
}

/// # Safety
/// The pointers are the tensors `c` describes.
pub(super) unsafe fn backward_input<T: Storage<Compute = f32>>(c: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    let pass = Pass {
        batch: c.batch,
        from: c.out_channels,
        to: c.in_channels,
        from_size: [c.output[1], c.output[2]],
        to_size: [c.input[1], c.input[2]],
        pad: [2 - c.padding[1] as isize, 2 - c.padding[2] as isize],
        lanes: Lanes::Inputs,
    };
    // SAFETY: the tensors of the pass.
    unsafe {
        pass.run(c, dy, w, std::ptr::null(), dx);
    }
}

/// Elements of all transformed weights.
pub(super) fn points_len(c: &Conv) -> usize {
    c.out_channels.div_ceil(WIDTH) * POINTS * c.in_channels * WIDTH
}

/// Transforms all weights to points, `[panel][point][channel][lane]`.
///
/// # Safety
/// `w` is the weight of `c`; `to` has room for all points.
pub(super) unsafe fn points(c: &Conv, w: *const f32, to: *mut f32) {
    let pass = Pass::forward(c);
    let (w, to) = (SendPtr::of(w), SendPtr::new(to));
    let pieces = pass.from.div_ceil(PIECE);
    pool::parallel_for(pass.to.div_ceil(WIDTH) * pieces, |task| {
        let (panel, start) = (task / pieces, task % pieces * PIECE);
        // SAFETY: these channels of this panel are the task's.
        unsafe {
            let points = to.get().add(panel * POINTS * pass.from * WIDTH);
            pass.weights(c, w.get().cast_const(), panel, start..(start + PIECE).min(pass.from), points);
        }
    });
}

impl Pass {
    fn forward(c: &Conv) -> Self {
        Pass {
            batch: c.batch,
            from: c.in_channels,
            to: c.out_channels,
            from_size: [c.input[1], c.input[2]],
            to_size: [c.output[1], c.output[2]],
            pad: [c.padding[1] as isize, c.padding[2] as isize],
            lanes: Lanes::Outputs,
        }
    }

    /// # Safety
    /// `src` and `dst` are the images of the pass, `w` the weight of `c`, `bias` null or a value for each channel.
    unsafe fn run<T: Storage<Compute = f32>>(
        &self,
        c: &Conv,
        src: *const T,
        w: *const T,
        bias: *const f32,
        dst: *mut T,
    ) {
        let tiling = Tiling::new(self.batch, self.to_size);
        let panels = self.to.div_ceil(WIDTH);
        let panel_len = self.from * WIDTH;
        let together = (WEIGHT_BYTES / (POINTS * panel_len * size_of::<f32>())).clamp(1, panels);
        let mut points = Scratch::new::<f32>(together * POINTS * panel_len);
        let operands = Operands { src, points: points.ptr::<f32>(), bias, dst };
        let (w, points) = (SendPtr::of(w), SendPtr::new(points.ptr::<f32>()));
        let pieces = self.from.div_ceil(PIECE);
        for first in (0..panels).step_by(together) {
            let panels = first..(first + together).min(panels);
            pool::parallel_for(panels.len() * pieces, |task| {
                let (panel, start) = (task / pieces, task % pieces * PIECE);
                let channels = start..(start + PIECE).min(self.from);
                // SAFETY: these channels of this panel are the task's.
                unsafe {
                    let points = points.get().add(panel * POINTS * panel_len);
                    self.weights(c, w.get().cast_const(), first + panel, channels, points);
                }
            });
            pool::parallel_for(tiling.groups(), |index| {
                // SAFETY: the output of these tiles and panels is this task's.
                unsafe { self.group(&tiling, &tiling.group(index), panels.clone(), &operands) }
            });
        }
    }

    /// Transforms some channels of a panel to points, `[point][channel][lane]`.
    ///
    /// # Safety
    /// `w` is the weight of `c`; `points` has room for the whole panel.
    unsafe fn weights<T: Storage<Compute = f32>>(
        &self,
        c: &Conv,
        w: *const T,
        panel: usize,
        channels: Range<usize>,
        points: *mut f32,
    ) {
        let tap = channels.len() * WIDTH;
        let mut packed = Scratch::new::<f32>(9 * tap);
        let squares: Vec<Square> =
            (0..channels.len()).map(|i| Square { src: i * WIDTH, dst: i * WIDTH, rows: 6, cols: 6 }).collect();
        // The input gradient is a convolution with the kernel rotated by 180°.
        let (start, sign) = if self.lanes == Lanes::Inputs { (8 * tap, -1) } else { (0, 1) };
        // SAFETY: nine taps of these channels, forwards or backwards.
        unsafe {
            pack(c, self.lanes, w, (0, panel), channels.clone(), packed.ptr(), tap);
            transform::<Filter<3>>(&Transform {
                src: packed.ptr::<f32>().add(start),
                src_strides: (3 * sign * tap as isize, sign * tap as isize),
                dst: points.add(channels.start * WIDTH),
                dst_strides: (6 * self.from * WIDTH, self.from * WIDTH),
                squares: &squares,
                lanes: WIDTH,
            });
        }
    }

    /// Runs all steps for a group of tiles and some panels of the result's channels.
    ///
    /// # Safety
    /// The operands are those of [`run`](Self::run).
    unsafe fn group<T: Storage<Compute = f32>>(
        &self,
        tiling: &Tiling,
        group: &Group,
        panels: Range<usize>,
        operands: &Operands<T>,
    ) {
        let tiles = group.tiles(tiling);
        let per_image = group.tiles_per_image(tiling);
        let pitch = self.from.next_multiple_of(16);
        let (left_stride, out_stride) = (point_stride(tiles * pitch), point_stride(tiles * WIDTH));
        let mut left = Scratch::new::<f32>(POINTS * left_stride);
        let mut product = Scratch::new::<f32>(POINTS * out_stride);
        let [height, width] = self.to_size;
        let first_row = TILE * group.rows.start;
        let rows = (TILE * group.rows.end).min(height) - first_row;
        let mut out = Scratch::new::<f32>(rows * width * WIDTH);
        let (left, product, out) = (left.ptr::<f32>(), product.ptr::<f32>(), out.ptr::<f32>());

        let from_plane = self.from_size[0] * self.from_size[1];
        let source = Source {
            data: operands.src,
            channels: self.from,
            image_stride: self.from * from_plane,
            size: self.from_size,
        };
        let a_rows: Vec<usize> = (0..tiles).map(|t| t * pitch).collect();
        let c_rows: Vec<usize> = (0..tiles).map(|t| t * WIDTH).collect();
        let squares: Vec<Square> = (0..per_image)
            .map(|t| {
                let (row, col) = (TILE * (t / tiling.tiles[1]), TILE * (t % tiling.tiles[1]));
                Square { src: t * WIDTH, dst: (row * width + col) * WIDTH, rows: rows - row, cols: width - col }
            })
            .collect();
        // SAFETY: the buffers were made for this group; the output written is the group's.
        unsafe {
            to_points::<T, Image>(&source, tiling, group, self.pad, left, (pitch, left_stride));
            for (index, panel) in panels.enumerate() {
                let lanes = (self.to - panel * WIDTH).min(WIDTH);
                for point in 0..POINTS {
                    contract(&Product {
                        a: left.add(point * left_stride),
                        a_rows: &a_rows,
                        a_step: 1,
                        b: operands.points.add((index * POINTS + point) * self.from * WIDTH),
                        segments: &[Segment { a: 0, b: 0 }],
                        depth: self.from,
                        c: product.add(point * out_stride),
                        c_rows: &c_rows,
                        lanes,
                        accumulate: false,
                        epilogue: None,
                    });
                }
                let bias = operands.bias;
                let bias = if bias.is_null() { bias } else { bias.add(panel * WIDTH) };
                for (i, image) in group.images.clone().enumerate() {
                    transform::<Outcome<4>>(&Transform {
                        src: product.add(i * per_image * WIDTH),
                        src_strides: (6 * out_stride as isize, out_stride as isize),
                        dst: out,
                        dst_strides: (width * WIDTH, WIDTH),
                        squares: &squares,
                        lanes,
                    });
                    let at = (image * self.to + panel * WIDTH) * height * width + first_row * width;
                    transpose_out::<T>(out, WIDTH, rows * width, lanes, operands.dst.add(at), height * width, bias);
                }
            }
        }
    }
}

/// # Safety
/// The pointers are the tensors `c` describes.
pub(super) unsafe fn backward_weight<T: Storage<Compute = f32>>(c: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    let tiling = Tiling::new(c.batch, [c.output[1], c.output[2]]);
    let panels = c.out_channels.div_ceil(WIDTH);
    let block = c.in_channels.next_multiple_of(16).min(WIDTH);
    let blocks = c.in_channels.div_ceil(block);
    let sums = Sums { blocks: panels * blocks, block: block * 9 * WIDTH, parts: tiling.groups() };
    let (x, dy) = (SendPtr::of(x), SendPtr::of(dy));
    let pad = [c.padding[1] as isize, c.padding[2] as isize];
    let most = tiling.most();
    // SAFETY: a task writes to the sum it is given and to nothing else.
    let mut partial = unsafe {
        sums.collect::<f32>(|index, parts, sum| {
            let (panel, first) = (index / blocks, index % blocks * block);
            let channels = (c.in_channels - first).min(block);
            let lanes = (c.out_channels - panel * WIDTH).min(WIDTH);
            let (left_stride, right_stride) = (point_stride(most * block), point_stride(most * WIDTH));
            let sum_stride = point_stride(block * WIDTH);
            let mut left = Scratch::new::<f32>(POINTS * left_stride);
            let mut right = Scratch::new::<f32>(POINTS * right_stride);
            let mut product = Scratch::new::<f32>(POINTS * sum_stride);
            let (left, right, product) = (left.ptr::<f32>(), right.ptr::<f32>(), product.ptr::<f32>());
            let images = Source {
                data: x.get().add(first * c.input_size()).cast_const(),
                channels,
                image_stride: c.in_channels * c.input_size(),
                size: [c.input[1], c.input[2]],
            };
            let gradients = Source {
                data: dy.get().add(panel * WIDTH * c.output_size()).cast_const(),
                channels: lanes,
                image_stride: c.out_channels * c.output_size(),
                size: [c.output[1], c.output[2]],
            };
            let a_rows: Vec<usize> = (0..channels).collect();
            let c_rows: Vec<usize> = (0..channels).map(|i| i * WIDTH).collect();
            let start = parts.start;
            for part in parts {
                let group = tiling.group(part);
                to_points::<T, Image>(&images, &tiling, &group, pad, left, (block, left_stride));
                to_points::<T, Filter<4>>(&gradients, &tiling, &group, [0, 0], right, (WIDTH, right_stride));
                for point in 0..POINTS {
                    contract(&Product {
                        a: left.add(point * left_stride),
                        a_rows: &a_rows,
                        a_step: block,
                        b: right.add(point * right_stride),
                        segments: &[Segment { a: 0, b: 0 }],
                        depth: group.tiles(&tiling),
                        c: product.add(point * sum_stride),
                        c_rows: &c_rows,
                        lanes,
                        accumulate: part > start,
                        epilogue: None,
                    });
                }
            }
            let squares: Vec<Square> =
                (0..channels).map(|i| Square { src: i * WIDTH, dst: i * 9 * WIDTH, rows: 3, cols: 3 }).collect();
            transform::<Outcome<3>>(&Transform {
                src: product,
                src_strides: (6 * sum_stride as isize, sum_stride as isize),
                dst: sum,
                dst_strides: (3 * WIDTH, WIDTH),
                squares: &squares,
                lanes,
            });
        })
    };
    // SAFETY: `dw` is the weight's gradient.
    unsafe { sums.finish(partial.ptr::<f32>(), c, dw, block, |index| (index / blocks, index % blocks * block)) }
}
