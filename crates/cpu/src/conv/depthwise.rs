//! Depthwise convolutions over small images: a vector holds one pixel of adjacent channels.
//!
//! Rows of small images are shorter than a vector of pixels, and a single channel has too little work to pay for its
//! preparation. Larger images use pixels as lanes (`narrow`), which needs no transposing copies.

use super::Conv;
use super::depthwise_kernel::{Accumulate, CHANNELS, Combine, accumulate, combine};
use super::direct::{linked, tap_offsets, taps_of};
use super::element::{Storage, transpose_in, transpose_out};
use super::narrow::{flat, grain};
use super::scratch::Scratch;
use super::slab::Slab;
use super::sums::Sums;
use crate::pool;
use rushlight_core::sync::SendPtr;

/// Maximum pixels of the input or output.
const PIXELS: usize = 256;

/// Whether the convolution is depthwise and the images are small.
pub(super) fn suits(c: &Conv) -> bool {
    flat(c)
        && c.groups == c.in_channels
        && c.groups == c.out_channels
        && c.groups > 1
        && c.input_size().max(c.output_size()) <= PIXELS
}

/// Number of blocks of [`CHANNELS`] channels; the last may be smaller.
fn blocks(c: &Conv) -> usize {
    c.groups.div_ceil(CHANNELS)
}

/// Channels of a block.
fn channels(c: &Conv, block: usize) -> usize {
    (c.groups - block * CHANNELS).min(CHANNELS)
}

/// Slab layouts of a full block and of the last block.
struct Slabs([Slab; 2]);

impl Slabs {
    fn new(c: &Conv, image: [usize; 3], rows: (isize, usize), cols: (isize, usize)) -> Self {
        let last = channels(c, blocks(c) - 1);
        Slabs([CHANNELS, last].map(|channels| Slab::new(channels, image, vec![0], rows, cols)))
    }

    /// The whole padded input.
    fn input(c: &Conv) -> Self {
        let stretch = |dim: usize| {
            let count = (c.output[dim] - 1) * c.stride[dim] + (c.kernel[dim] - 1) * c.dilation[dim] + 1;
            (-(c.padding[dim] as isize), count)
        };
        Self::new(c, c.input, stretch(1), stretch(2))
    }

    /// All output positions that depend on some input.
    fn output(c: &Conv) -> Self {
        Self::new(c, c.output, linked(c, 1, 0..c.input[1]), linked(c, 2, 0..c.input[2]))
    }

    fn of(&self, c: &Conv, block: usize) -> &Slab {
        &self.0[usize::from(channels(c, block) < CHANNELS)]
    }

    /// Either layout: they differ only in the number of channels.
    fn any(&self) -> &Slab {
        &self.0[0]
    }
}

/// Offset in an input slab of each output pixel's window.
fn pixel_offsets(c: &Conv, slab: &Slab) -> Vec<usize> {
    let (row, col) = (c.stride[1] * slab.row_pitch(), c.stride[2] * slab.pitch());
    (0..c.output_size()).map(|p| p / c.output[2] * row + p % c.output[2] * col).collect()
}

/// Packed weights, for each block `[tap][channel]`.
///
/// # Safety
/// `w` is the weight of `c`.
unsafe fn pack<T: Storage<Compute = f32>>(c: &Conv, w: *const T) -> Vec<f32> {
    let taps = c.taps();
    let mut packed = vec![0.0; blocks(c) * taps * CHANNELS];
    let at: Vec<usize> = (0..taps).map(|tap| tap * CHANNELS).collect();
    for (block, to) in packed.chunks_exact_mut(taps * CHANNELS).enumerate() {
        // SAFETY: the filters of this block, and its part of the copy.
        unsafe { transpose_in(w.add(block * CHANNELS * taps), taps, channels(c, block), to.as_mut_ptr(), &at) };
    }
    packed
}

/// Results with the same taps.
struct Class {
    /// Start in the slab, and index among the results, of each result.
    pixels: Vec<usize>,
    places: Vec<usize>,
    /// Tap offsets in the slab and in the packed weights.
    taps: Vec<(usize, usize)>,
}

/// Loops over images and blocks of channels; each slab is combined class by class.
///
/// # Safety
/// `src` has channels of the slabs' image and `dst` channels of `size` pixels for every image; `weights` are packed;
/// the classes cover every result once. `bias` is null or has a value for each channel.
unsafe fn run<T: Storage<Compute = f32>>(
    c: &Conv,
    slabs: &Slabs,
    classes: &[Class],
    weights: &[f32],
    bias: *const f32,
    (src, src_size): (*const T, usize),
    (dst, size): (*mut T, usize),
) {
    let (blocks, taps) = (blocks(c), c.taps());
    let (src, dst, bias) = (SendPtr::of(src), SendPtr::new(dst), SendPtr::of(bias));
    pool::parallel_ranges(c.batch * blocks, grain(size * taps * CHANNELS), |first, last| {
        let mut copy = Scratch::new::<f32>(slabs.any().room());
        let mut out = Scratch::new::<f32>(size * CHANNELS);
        // SAFETY: these blocks of these images are this task's.
        unsafe {
            slabs.any().clear(copy.ptr::<f32>());
            for index in first..last {
                let (image, block) = (index / blocks, index % blocks);
                let (channel, count) = (block * CHANNELS, channels(c, block));
                slabs.of(c, block).fill(src.get().add((image * c.groups + channel) * src_size), copy.ptr());
                let mut start = [0.0; CHANNELS];
                if !bias.get().is_null() {
                    start[..count].copy_from_slice(std::slice::from_raw_parts(bias.get().add(channel), count));
                }
                for class in classes {
                    combine(&Combine {
                        image: copy.ptr::<f32>().cast_const(),
                        pixels: &class.pixels,
                        taps: &class.taps,
                        weights: weights.as_ptr().add(block * taps * CHANNELS),
                        start: &start,
                        out: out.ptr(),
                        places: &class.places,
                    });
                }
                let dst = dst.get().add((image * c.groups + channel) * size);
                transpose_out::<T>(out.ptr(), CHANNELS, size, count, dst, size, std::ptr::null());
            }
        }
    });
}

/// # Safety
/// The pointers are the tensors `c` describes; `bias` may be null.
pub(super) unsafe fn forward<T: Storage<Compute = f32>>(c: &Conv, x: *const T, w: *const T, bias: *const T, y: *mut T) {
    let slabs = Slabs::input(c);
    let class = Class {
        pixels: pixel_offsets(c, slabs.any()),
        places: (0..c.output_size()).map(|p| p * CHANNELS).collect(),
        taps: tap_offsets(c, slabs.any()).into_iter().enumerate().map(|(tap, at)| (at, tap * CHANNELS)).collect(),
    };
    // SAFETY: the tensors of `c`.
    unsafe {
        let (weights, mut bias) = (pack(c, w), c.widen_bias(bias));
        let bias = bias.as_mut().map_or(std::ptr::null(), |b| b.ptr::<f32>().cast_const());
        run(c, &slabs, &[class], &weights, bias, (x, c.input_size()), (y, c.output_size()));
    }
}

/// # Safety
/// The pointers are the tensors `c` describes.
pub(super) unsafe fn backward_input<T: Storage<Compute = f32>>(c: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    let slabs = Slabs::output(c);
    let slab = slabs.any();
    let [_, height, width] = c.input;
    let (top, left) = (linked(c, 1, 0..height).0, linked(c, 2, 0..width).0);
    let mut classes = Vec::new();
    // Input positions with equal remainder modulo the stride have the same taps, one output apart.
    for first_row in 0..c.stride[1].min(height) {
        for first_col in 0..c.stride[2].min(width) {
            let (mut pixels, mut places, mut taps) = (Vec::new(), Vec::new(), Vec::new());
            for (kh, oh) in taps_of(c, 1, first_row) {
                for (kw, ow) in taps_of(c, 2, first_col) {
                    let at = (oh - top) as usize * slab.row_pitch() + (ow - left) as usize * slab.pitch();
                    taps.push((at, (kh * c.kernel[2] + kw) * CHANNELS));
                }
            }
            for (i, row) in (first_row..height).step_by(c.stride[1]).enumerate() {
                for (j, col) in (first_col..width).step_by(c.stride[2]).enumerate() {
                    pixels.push(i * slab.row_pitch() + j * slab.pitch());
                    places.push((row * width + col) * CHANNELS);
                }
            }
            classes.push(Class { pixels, places, taps });
        }
    }
    // SAFETY: the tensors of `c`.
    unsafe {
        let (weights, none) = (pack(c, w), std::ptr::null());
        run(c, &slabs, &classes, &weights, none, (dy, c.output_size()), (dx, c.input_size()));
    }
}

/// # Safety
/// The pointers are the tensors `c` describes.
pub(super) unsafe fn backward_weight<T: Storage<Compute = f32>>(c: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    let slabs = Slabs::input(c);
    let (taps, size) = (c.taps(), c.output_size());
    let (pixels, offsets) = (pixel_offsets(c, slabs.any()), tap_offsets(c, slabs.any()));
    let at: Vec<usize> = (0..size).map(|p| p * CHANNELS).collect();
    let sums = Sums { blocks: blocks(c), block: taps * CHANNELS, parts: c.batch };
    let (x, dy) = (SendPtr::of(x), SendPtr::of(dy));
    // SAFETY: a task adds to the sum it is given and to nothing else.
    let mut partial = unsafe {
        sums.collect::<f32>(|block, images, sum| {
            let slab = slabs.of(c, block);
            let (channel, count) = (block * CHANNELS, channels(c, block));
            let mut image_copy = Scratch::new::<f32>(slab.room());
            let mut gradient = Scratch::new::<f32>(size * CHANNELS);
            slab.clear(image_copy.ptr::<f32>());
            for image in images {
                let first = image * c.groups + channel;
                slab.fill(x.get().add(first * c.input_size()), image_copy.ptr());
                transpose_in(dy.get().add(first * size).cast_const(), size, count, gradient.ptr(), &at);
                accumulate(&Accumulate {
                    image: image_copy.ptr::<f32>().cast_const(),
                    pixels: &pixels,
                    taps: &offsets,
                    gradient: gradient.ptr::<f32>().cast_const(),
                    sums: sum,
                });
            }
        })
    };
    let (partial, dw, all) = (SendPtr::new(partial.ptr::<f32>()), SendPtr::new(dw), sums.blocks * sums.block);
    pool::parallel_ranges(sums.blocks, grain(sums.block), |first, last| {
        for block in first..last {
            // SAFETY: this block of every split, and its filters' part of the gradient.
            unsafe {
                let total = partial.get().add(block * sums.block);
                for split in 1..sums.splits() {
                    for i in 0..sums.block {
                        *total.add(i) += *total.add(split * all + i);
                    }
                }
                let dst = dw.get().add(block * CHANNELS * taps);
                transpose_out::<T>(total, CHANNELS, taps, channels(c, block), dst, taps, std::ptr::null());
            }
        }
    });
}
