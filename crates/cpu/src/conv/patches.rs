//! Convolution whose windows do not overlap, as in the patch embedding of a vision transformer and in downsampling
//! layers: each pixel belongs to one window at most, so windows are copied in the weight's order and multiplied by it
//! as matrices.

use super::Conv;
use super::element::Storage;
use super::scratch::Kept;
use crate::gemm::{Activation, Bias, BiasAxis, Gemm, gemm};
use crate::pool;
use rushlight_core::DType;
use rushlight_core::sync::SendPtr;

/// Minimum products of a call that pay for copies of its windows.
const LEAST: usize = 1 << 18;

/// Minimum weights of single pixels without a stride that pay for copies of the image and the gradient.
const LEAST_POINTWISE: usize = 1 << 15;

/// Whether windows are apart from each other, and there is enough to compute; of one pixel they need no copies.
pub(super) fn suits(c: &Conv) -> bool {
    c.taps() > 1 && suits_weight(c)
}

/// Whether the weight gradient gains, as well where windows are single pixels. Half types keep their other kernels,
/// AMX tiles among them.
pub(super) fn suits_weight(c: &Conv) -> bool {
    let apart =
        (0..3).all(|d| c.stride[d] >= c.kernel[d] && c.padding[d] == 0 && (c.dilation[d] == 1 || c.kernel[d] == 1));
    let work = c.batch * c.out_channels * c.output_size() * depth(c);
    let enough = work >= LEAST && (!is_pointwise(c) || c.in_channels * c.out_channels >= LEAST_POINTWISE);
    c.dtype == DType::F32 && apart && c.groups == 1 && enough
}

/// Whether windows are the image's pixels.
fn is_pointwise(c: &Conv) -> bool {
    c.taps() == 1 && c.stride == [1; 3]
}

/// Whether the forward pass gains, too: short windows are multiplied as they are read.
pub(super) fn suits_forward(c: &Conv) -> bool {
    suits(c) && depth(c) >= 32
}

/// Elements of a window: the products of one output pixel.
fn depth(c: &Conv) -> usize {
    c.in_channels * c.taps()
}

/// Memory for `len` elements of `T`; `None` where there is none.
fn room<T>(len: usize) -> Option<Kept> {
    Kept::new((len * size_of::<T>()).div_ceil(size_of::<f32>()))
}

/// Copies between the image and its windows, `[batch · output pixels, depth]`.
///
/// # Safety
/// `image` and `windows` are valid for all elements of both in `c`; what is written is not used by others.
unsafe fn move_windows<T: Storage>(c: &Conv, image: *mut T, windows: *mut T, back: bool) {
    // SAFETY: passed on.
    unsafe {
        match c.kernel[2] {
            1 => move_rows::<T, 1>(c, image, windows, back),
            2 => move_rows::<T, 2>(c, image, windows, back),
            4 => move_rows::<T, 4>(c, image, windows, back),
            8 => move_rows::<T, 8>(c, image, windows, back),
            16 => move_rows::<T, 16>(c, image, windows, back),
            // Rows of any length.
            _ => move_rows::<T, 0>(c, image, windows, back),
        }
    }
}

/// [`move_windows`] with rows of `N` elements.
///
/// # Safety
/// As [`move_windows`]; `N` is 0 or the kernel's width.
unsafe fn move_rows<T: Storage, const N: usize>(c: &Conv, image: *mut T, windows: *mut T, back: bool) {
    let [_, height, cols] = c.output;
    let [_, tall, wide] = c.kernel;
    let (taps, depth) = (c.taps(), depth(c));
    let (image, windows) = (SendPtr::new(image), SendPtr::new(windows));
    // A task for each row of windows.
    pool::parallel_for(c.batch * c.output[0] * height, |task| {
        let (row, plane, sample) = (task % height, task / height % c.output[0], task / height / c.output[0]);
        let first = task * cols * depth;
        for channel in 0..c.in_channels {
            for line in 0..c.kernel[0] * tall {
                let (z, y) = (plane * c.stride[0] + line / tall, row * c.stride[1] + line % tall);
                let from = (((sample * c.in_channels + channel) * c.input[0] + z) * c.input[1] + y) * c.input[2];
                let at = first + channel * taps + line * wide;
                for col in 0..cols {
                    let (pixel, element) = (from + col * c.stride[2], at + col * depth);
                    let len = if N == 0 { wide } else { N };
                    // SAFETY: the row of a window, which is inside the image without padding; no other task has it.
                    unsafe {
                        let (pixel, element) = (image.get().add(pixel), windows.get().add(element));
                        if back {
                            std::ptr::copy_nonoverlapping(element, pixel, len);
                        } else {
                            std::ptr::copy_nonoverlapping(pixel, element, len);
                        }
                    }
                }
            }
        }
    });
}

/// A product without bias and scale; the fields that differ are set by the callers.
fn product(c: &Conv, [m, n, k]: [usize; 3], a: *const u8, b: *const u8, out: *mut u8) -> Gemm {
    let none = [0; 3];
    let (a_strides, b_strides, c_strides) = (none, none, none);
    let (alpha, beta, bias, activation) = (1.0, 0.0, None, Activation::None);
    let (dtype, batch) = (c.dtype, c.batch);
    Gemm { dtype, batch, m, n, k, a, a_strides, b, b_strides, c: out, c_strides, alpha, beta, bias, activation }
}

/// Whether it was computed: not where there is no memory for the windows.
///
/// # Safety
/// The pointers are the tensors `c` describes; `bias` may be null.
pub(super) unsafe fn forward<T: Storage>(c: &Conv, x: *const T, w: *const T, bias: *const T, y: *mut T) -> bool {
    let (pixels, depth) = (c.output_size(), depth(c));
    let Some(windows) = room::<T>(c.batch * pixels * depth) else { return false };
    // SAFETY: the memory has room for all windows, and the image is only read.
    unsafe { move_windows(c, x.cast_mut(), windows.ptr().cast::<T>(), false) };
    let [p, d] = [pixels as isize, depth as isize];
    let bias = (!bias.is_null()).then_some(Bias { ptr: bias.cast(), stride: 1, per: BiasAxis::Row });
    let sizes = [c.out_channels, pixels, depth];
    // SAFETY: the weight times the windows of each image, transposed; all of these sizes.
    unsafe {
        gemm(&Gemm {
            a_strides: [0, d, 1],
            b_strides: [p * d, 1, d],
            c_strides: [c.out_channels as isize * p, p, 1],
            bias,
            ..product(c, sizes, w.cast(), windows.ptr().cast(), y.cast())
        })
    };
    true
}

/// As [`forward`].
///
/// # Safety
/// As [`forward`].
pub(super) unsafe fn backward_input<T: Storage>(c: &Conv, dy: *const T, w: *const T, dx: *mut T) -> bool {
    let (pixels, depth) = (c.output_size(), depth(c));
    let Some(windows) = room::<T>(c.batch * pixels * depth) else { return false };
    let [p, d] = [pixels as isize, depth as isize];
    let sizes = [pixels, depth, c.out_channels];
    // SAFETY: the gradient of each image, transposed, times the weight; windows cover the image except what is cleared.
    unsafe {
        gemm(&Gemm {
            a_strides: [c.out_channels as isize * p, 1, p],
            b_strides: [0, d, 1],
            c_strides: [p * d, d, 1],
            ..product(c, sizes, dy.cast(), w.cast(), windows.ptr().cast())
        });
        if (0..3).any(|d| c.output[d] * c.kernel[d] != c.input[d]) {
            std::ptr::write_bytes(dx, 0, c.batch * c.in_channels * c.input_size());
        }
        move_windows(c, dx, windows.ptr().cast::<T>(), true);
    }
    true
}

/// Copies images channel by channel: the pixels of all images in one row for each channel.
///
/// # Safety
/// Both are valid for `channels` of the output's size and all images.
unsafe fn rows_of_channels<T: Storage>(c: &Conv, images: *const T, channels: usize, rows: *mut T) {
    let pixels = c.output_size();
    let (from, to) = (SendPtr::of(images), SendPtr::new(rows));
    pool::parallel_for(channels, |channel| {
        for sample in 0..c.batch {
            // SAFETY: the pixels of one channel; this task's row.
            unsafe {
                let source = from.get().add((sample * channels + channel) * pixels);
                std::ptr::copy_nonoverlapping(source, to.get().add((channel * c.batch + sample) * pixels), pixels);
            }
        }
    });
}

/// As [`forward`], in one product over the pixels of all images, whose sums are rounded once.
///
/// # Safety
/// As [`forward`].
pub(super) unsafe fn backward_weight<T: Storage>(c: &Conv, x: *const T, dy: *const T, dw: *mut T) -> bool {
    let (all, depth) = (c.batch * c.output_size(), depth(c));
    let (Some(windows), Some(rows)) = (room::<T>(all * depth), room::<T>(c.out_channels * all)) else { return false };
    let [a, d] = [all as isize, depth as isize];
    // SAFETY: the memory has room for all windows and rows, and the image is only read; gradients times windows.
    unsafe {
        let b_strides = if is_pointwise(c) {
            rows_of_channels(c, x, c.in_channels, windows.ptr().cast());
            [0, 1, a]
        } else {
            move_windows(c, x.cast_mut(), windows.ptr().cast::<T>(), false);
            [0, d, 1]
        };
        rows_of_channels(c, dy, c.out_channels, rows.ptr().cast());
        let sizes = [c.out_channels, depth, all];
        gemm(&Gemm {
            batch: 1,
            a_strides: [0, a, 1],
            b_strides,
            c_strides: [0, d, 1],
            ..product(c, sizes, rows.ptr().cast(), windows.ptr().cast(), dw.cast())
        });
    }
    true
}
