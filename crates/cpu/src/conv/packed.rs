//! Convolutions whose weights were brought into the kernels' layout once: those of programs with constant weights.
//!
//! Images have their channels first or last. Those between two such convolutions have them last: a pixel's channels
//! are then the left operand as they lie, and results are stored from registers, after bias, another addend and ReLU.

use super::Conv;
use super::element::{Compute, transpose_in, transpose_out};
use super::narrow::flat;
use super::product::{Epilogue, Product, Segment};
use super::scratch::{Kept, Scratch};
use super::weights::{Lanes, pack_to, packed_len};
use super::{packed_points, winograd};
use crate::pool;
use rushlight_core::DType;
use rushlight_core::sync::SendPtr;
use std::ops::Range;

pub(super) const WIDTH: usize = <f32 as Compute>::PANEL;

/// Elements of the left operand that a task reads, so that they stay in the L2 cache.
const TASK_ELEMENTS: usize = 1 << 18;
/// Pixels of a task.
const TASK_PIXELS: Range<usize> = 48..784;
/// Multiplications that pay for a task of their own.
const GRAIN: usize = 1 << 18;

/// Where the channels of an image are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Before rows and columns.
    First,
    /// After them.
    Last,
}

/// Images in memory.
#[derive(Clone, Copy, Debug)]
pub struct Image<P> {
    /// The first element.
    pub ptr: P,
    /// Their order.
    pub order: Order,
}

/// The tensors of `y = relu(x ⋆ w + bias + addend)`.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// The input.
    pub x: Image<*const f32>,
    /// A value for each output channel, or null.
    pub bias: *const f32,
    /// Images of the output's size.
    pub addend: Option<Image<*const f32>>,
    /// Whether negative results become zero.
    pub relu: bool,
    /// The output.
    pub y: Image<*mut f32>,
}

/// A convolution with its weights in the layout of the kernels.
pub struct PackedConv {
    pub(super) spec: Conv,
    pub(super) weights: Kept,
    by_points: bool,
}

/// The input as the kernels read it: channels last, with the padding around it.
pub(super) struct Padded {
    pub data: *const f32,
    /// The memory of a copy; `None` where the input itself can be read.
    _copy: Option<Scratch>,
}

impl PackedConv {
    /// Packs the weights of a convolution. `None` if there is no kernel for packed weights of its shape, or no memory.
    ///
    /// # Safety
    /// `w` is the contiguous weight that `c` describes.
    pub unsafe fn new(c: &Conv, w: *const f32) -> Option<Self> {
        let suits = c.dtype == DType::F32 && flat(c) && c.groups == 1 && c.out_channels.is_multiple_of(16);
        if !suits || c.is_empty() || c.in_channels * c.taps() < 16 {
            return None;
        }
        let by_points = winograd::suits(c) && c.in_channels.is_multiple_of(16);
        let len = if by_points { winograd::points_len(c) } else { packed_len::<f32>(c, Lanes::Outputs) };
        let weights = Kept::new(len)?;
        // SAFETY: the caller's promise, and there is room.
        unsafe {
            match by_points {
                true => winograd::points(c, w, weights.ptr()),
                false => pack_to(c, Lanes::Outputs, w, weights.ptr()),
            }
        }
        Some(Self { spec: *c, weights, by_points })
    }

    /// The convolution that it was made for.
    pub fn spec(&self) -> &Conv {
        &self.spec
    }

    /// Computes the convolution.
    ///
    /// # Safety
    /// The operands are contiguous in their orders and of the sizes of the spec; `y` overlaps none of the others.
    pub unsafe fn run(&self, o: &Operands) {
        let c = &self.spec;
        // SAFETY: the caller's promise; the copy has the addend's size.
        unsafe {
            let turned = match o.addend {
                Some(a) if a.order == Order::First => {
                    let size = [c.output[1], c.output[2]];
                    Some(padded(a, c.batch, c.out_channels, size, [0, 0], size))
                }
                _ => None,
            };
            let addend = match (&turned, o.addend) {
                (Some(copy), _) => copy.data,
                (None, Some(a)) => a.ptr,
                (None, None) => std::ptr::null(),
            };
            match self.by_points {
                true => packed_points::run(self, o, addend),
                false => self.direct(o, addend),
            }
        }
    }

    /// # Safety
    /// As [`run`](Self::run), with the addend's channels last, or null.
    unsafe fn direct(&self, o: &Operands, addend: *const f32) {
        let c = &self.spec;
        let [_, rows, cols] = c.output;
        let inner = [c.input[1], c.input[2]];
        let size = [inner[0] + 2 * c.padding[1], inner[1] + 2 * c.padding[2]];
        // SAFETY: the input has this size.
        let input = unsafe { padded(o.x, c.batch, c.in_channels, inner, [c.padding[1], c.padding[2]], size) };
        let per_image = rows * cols;
        let pixels = c.batch * per_image;
        let (pitch, image) = (size[1] * c.in_channels, size[0] * size[1] * c.in_channels);
        let (down, right) = (c.stride[1] * pitch, c.stride[2] * c.in_channels);
        // Adjacent taps of adjacent pixels are one run of memory.
        let joined = c.dilation[2] == 1;
        let (across, depth) = if joined { (1, c.kernel[2] * c.in_channels) } else { (c.kernel[2], c.in_channels) };
        let segments: Vec<Segment> = (0..c.kernel[1] * across)
            .map(|s| Segment {
                a: s / across * c.dilation[1] * pitch + s % across * c.dilation[2] * c.in_channels,
                b: s * depth * WIDTH,
            })
            .collect();
        let panels = c.out_channels.div_ceil(WIDTH);
        let panel_len = c.taps() * c.in_channels * WIDTH;
        let blocks = blocks(pixels, panels, c.in_channels * c.stride[1] * c.stride[2], c.taps() * c.in_channels);
        let (x, weights, y) = (SendPtr::of(input.data), SendPtr::of(self.weights.ptr()), SendPtr::new(o.y.ptr));
        let (bias, addend) = (SendPtr::of(o.bias), SendPtr::of(addend));
        let (order, relu) = (o.y.order, o.relu);
        pool::parallel_for(panels * blocks, |task| {
            let (panel, block) = (task / blocks, task % blocks);
            let range = pixels * block / blocks..pixels * (block + 1) / blocks;
            let lanes = (c.out_channels - panel * WIDTH).min(WIDTH);
            let a_rows: Vec<usize> = range
                .clone()
                .map(|p| {
                    let (i, p) = (p / per_image, p % per_image);
                    i * image + p / cols * down + p % cols * right
                })
                .collect();
            let last: Vec<usize> = range.clone().map(|p| p * c.out_channels).collect();
            let epilogue = Epilogue {
                bias: if bias.get().is_null() { bias.get() } else { bias.at(panel * WIDTH) },
                addend: if addend.get().is_null() { addend.get() } else { addend.at(panel * WIDTH) },
                rows: &last,
                relu,
            };
            let mut stage = None;
            let first: Vec<usize>;
            let (to, c_rows) = match order {
                Order::Last => (y.at(panel * WIDTH), &last),
                Order::First => {
                    first = (0..range.len()).map(|p| p * WIDTH).collect();
                    (stage.insert(Scratch::new::<f32>(range.len() * WIDTH)).ptr(), &first)
                }
            };
            // SAFETY: these pixels of this panel's channels are the task's; every tap of a pixel is in the padded
            // input.
            unsafe {
                f32::product(&Product {
                    a: x.get().cast_const(),
                    a_rows: &a_rows,
                    a_step: 1,
                    b: weights.at(panel * panel_len).cast_const(),
                    segments: &segments,
                    depth,
                    c: to,
                    c_rows,
                    lanes,
                    accumulate: false,
                    epilogue: Some(&epilogue),
                });
                if order == Order::First {
                    store_first(c, to, range, panel, lanes, y.get());
                }
            }
        });
    }
}

/// Number of parts of the pixels: their inputs stay in cache, and all threads have work.
fn blocks(pixels: usize, panels: usize, per_pixel: usize, depth: usize) -> usize {
    let fit = (TASK_ELEMENTS / per_pixel.max(1)).clamp(TASK_PIXELS.start, TASK_PIXELS.end);
    let wanted = (4 * pool::num_threads()).div_ceil(panels);
    let least = (GRAIN / (depth * WIDTH).max(1)).max(TASK_PIXELS.start);
    pixels.div_ceil(fit).max(wanted.min(pixels / least)).max(1)
}

/// Moves a panel's results of some pixels, `[pixel][lane]`, to images with their channels first.
///
/// # Safety
/// `from` has a row of `WIDTH` for each pixel of the range; `y` are the images of `c`'s output.
pub(super) unsafe fn store_first(
    c: &Conv,
    from: *const f32,
    range: Range<usize>,
    panel: usize,
    lanes: usize,
    y: *mut f32,
) {
    let plane = c.output_size();
    let mut at = range.start;
    while at < range.end {
        let (image, pixel) = (at / plane, at % plane);
        let count = (plane - pixel).min(range.end - at);
        // SAFETY: `count` pixels of one image.
        unsafe {
            let to = y.add((image * c.out_channels + panel * WIDTH) * plane + pixel);
            let from = from.add((at - range.start) * WIDTH);
            transpose_out::<f32>(from, WIDTH, count, lanes, to, plane, std::ptr::null());
        }
        at += count;
    }
}

/// Images with their channels last, `before` pixels of zeros before them and the rest of `size` after them.
///
/// # Safety
/// The images have these channels and this inner size, and outlive the result.
pub(super) unsafe fn padded(
    images: Image<*const f32>,
    batch: usize,
    channels: usize,
    inner: [usize; 2],
    before: [usize; 2],
    size: [usize; 2],
) -> Padded {
    if images.order == Order::Last && inner == size {
        return Padded { data: images.ptr, _copy: None };
    }
    let row = size[1] * channels;
    let mut copy = Scratch::new::<f32>(batch * size[0] * row + 16);
    let data = copy.ptr::<f32>();
    let (to, from) = (SendPtr::new(data), SendPtr::of(images.ptr));
    let at: Vec<usize> = (0..inner[1]).map(|col| col * channels).collect();
    let grain = (GRAIN / 16 / row.max(1)).max(1);
    pool::parallel_ranges(batch * size[0], grain, |start, end| {
        for index in start..end {
            let (image, line) = (index / size[0], index % size[0]);
            let to = to.at(index * row);
            // SAFETY: one row of the copy, and the input row that lies in it.
            unsafe {
                let Some(line) = line.checked_sub(before[0]).filter(|line| *line < inner[0]) else {
                    std::ptr::write_bytes(to, 0, row);
                    continue;
                };
                let (left, used) = (before[1] * channels, inner[1] * channels);
                std::ptr::write_bytes(to, 0, left);
                std::ptr::write_bytes(to.add(left + used), 0, row - left - used);
                match images.order {
                    Order::Last => {
                        let from = from.at((image * inner[0] + line) * used);
                        std::ptr::copy_nonoverlapping(from.cast_const(), to.add(left), used);
                    }
                    Order::First => {
                        let plane = inner[0] * inner[1];
                        let from = from.at(image * channels * plane + line * inner[1]).cast_const();
                        transpose_in::<f32>(from, plane, channels, to.add(left), &at);
                    }
                }
            }
        }
    });
    Padded { data, _copy: Some(copy) }
}
