//! Packed 3 × 3 convolutions by Winograd's minimal filtering, in three steps over all threads: images to points, a
//! product for each point, points to results.

use super::element::Compute;
use super::packed::{Operands, Order, PackedConv, WIDTH, padded, store_first};
use super::product::{Epilogue, Finish, Product, Segment, finish_rows};
use super::scratch::Scratch;
use super::winograd::{TILE, point_stride};
use super::winograd_transform::{Image, Outcome, POINTS, Square, Transform, transform};
use crate::pool;
use rushlight_core::sync::SendPtr;

/// Bytes of points for each thread, images and results together, so that they stay in the L2 cache.
const BYTES: usize = 1 << 20;

/// # Safety
/// As `PackedConv::run`, with the addend's channels last, or null.
pub(super) unsafe fn run(conv: &PackedConv, o: &Operands, addend: *const f32) {
    let c = &conv.spec;
    let (from, to) = (c.in_channels, c.out_channels);
    let [_, height, width] = c.output;
    let tiles = [height.div_ceil(TILE), width.div_ceil(TILE)];
    let size = tiles.map(|t| t * TILE + 2);
    let inner = [c.input[1], c.input[2]];
    // SAFETY: the input has this size; the last tiles may reach beyond its padding.
    let input = unsafe { padded(o.x, c.batch, from, inner, [c.padding[1], c.padding[2]], size) };
    let (pitch, image) = (size[1] * from, size[0] * size[1] * from);

    // Rows of tiles that are processed together, of one image or several.
    let lines = c.batch * tiles[0];
    let line_bytes = POINTS * tiles[1] * (from + to) * size_of::<f32>();
    let most = (BYTES * pool::num_threads() / line_bytes).clamp(1, lines);
    let rounds = lines.div_ceil(most);
    let most = lines.div_ceil(rounds);
    let (left_stride, out_stride) = (point_stride(most * tiles[1] * from), point_stride(most * tiles[1] * to));
    let (mut left, mut product) = (Scratch::new::<f32>(POINTS * left_stride), Scratch::new::<f32>(POINTS * out_stride));
    let (left, product) = (SendPtr::new(left.ptr::<f32>()), SendPtr::new(product.ptr::<f32>()));
    let (x, weights, y) = (SendPtr::of(input.data), SendPtr::of(conv.weights.ptr()), SendPtr::new(o.y.ptr));
    let (bias, addend) = (SendPtr::of(o.bias), SendPtr::of(addend));
    let (order, relu) = (o.y.order, o.relu);
    let panels = to.div_ceil(WIDTH);
    let chunks = from.div_ceil(WIDTH);

    for round in 0..rounds {
        let (start, end) = (lines * round / rounds, lines * (round + 1) / rounds);
        let count = (end - start) * tiles[1];
        pool::parallel_for((end - start) * chunks, |task| {
            let (line, chunk) = (task / chunks, task % chunks * WIDTH);
            let at = (start + line) / tiles[0] * image + (start + line) % tiles[0] * TILE * pitch;
            let squares: Vec<Square> = (0..tiles[1])
                .map(|t| Square { src: at + t * TILE * from, dst: (line * tiles[1] + t) * from, rows: 6, cols: 6 })
                .collect();
            // SAFETY: the padded input covers every tile; these channels of these tiles are the task's.
            unsafe {
                transform::<Image>(&Transform {
                    src: x.at(chunk).cast_const(),
                    src_strides: (pitch as isize, from as isize),
                    dst: left.at(chunk),
                    dst_strides: (6 * left_stride, left_stride),
                    squares: &squares,
                    lanes: (from - chunk).min(WIDTH),
                });
            }
        });
        let a_rows: Vec<usize> = (0..count).map(|t| t * from).collect();
        let c_rows: Vec<usize> = (0..count).map(|t| t * to).collect();
        pool::parallel_for(panels * POINTS, |task| {
            let (panel, point) = (task / POINTS, task % POINTS);
            // SAFETY: this point of this panel is the task's.
            unsafe {
                f32::product(&Product {
                    a: left.at(point * left_stride).cast_const(),
                    a_rows: &a_rows,
                    a_step: 1,
                    b: weights.at(task * from * WIDTH).cast_const(),
                    segments: &[Segment { a: 0, b: 0 }],
                    depth: from,
                    c: product.at(point * out_stride + panel * WIDTH),
                    c_rows: &c_rows,
                    lanes: (to - panel * WIDTH).min(WIDTH),
                    accumulate: false,
                    epilogue: None,
                });
            }
        });
        pool::parallel_for((end - start) * panels, |task| {
            let (line, panel) = (task / panels, task % panels);
            let (index, row) = ((start + line) / tiles[0], (start + line) % tiles[0] * TILE);
            let (rows, lanes) = ((height - row).min(TILE), (to - panel * WIDTH).min(WIDTH));
            let squares: Vec<Square> = (0..tiles[1])
                .map(|t| Square {
                    src: (line * tiles[1] + t) * to,
                    dst: t * TILE * WIDTH,
                    rows,
                    cols: width - t * TILE,
                })
                .collect();
            let pixels = rows * width;
            let first = index * height * width + row * width;
            let added: Vec<usize> = (0..pixels).map(|p| (first + p) * to).collect();
            let mut stage = Scratch::new::<f32>(pixels * WIDTH);
            let stage = stage.ptr::<f32>();
            let (dst, dst_pitch) = match order {
                Order::Last => (y.at(first * to + panel * WIDTH), to),
                Order::First => (stage, WIDTH),
            };
            // SAFETY: these rows of this panel's channels are the task's.
            unsafe {
                transform::<Outcome<4>>(&Transform {
                    src: product.at(panel * WIDTH).cast_const(),
                    src_strides: (6 * out_stride as isize, out_stride as isize),
                    dst: stage,
                    dst_strides: (width * WIDTH, WIDTH),
                    squares: &squares,
                    lanes,
                });
                finish_rows(&Finish {
                    src: stage,
                    src_pitch: WIDTH,
                    dst,
                    dst_pitch,
                    rows: pixels,
                    lanes,
                    epilogue: &Epilogue {
                        bias: if bias.get().is_null() { bias.get() } else { bias.at(panel * WIDTH) },
                        addend: if addend.get().is_null() { addend.get() } else { addend.at(panel * WIDTH) },
                        rows: &added,
                        relu,
                    },
                });
                if order == Order::First {
                    store_first(c, stage, first..first + pixels, panel, lanes, y.get());
                }
            }
        });
    }
}
