//! Every path against a plain loop in `f64`.

use crate::{isa, pool};
use rushlight_core::DType;
use rushlight_core::sync::lock;
use rushlight_core::{Element, with_dtype};
use rushlight_cpu::conv::*;
use std::sync::Mutex;

/// Tests that set the level or the thread count of the process run one after the other.
static PROCESS: Mutex<()> = Mutex::new(());

/// A small multiplicative generator: the tests need variety, not quality.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn value(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 31) as f64 * 2.0 - 1.0
    }
}

/// A convolution over the last `dims` dimensions; `None` when the kernel does not fit.
fn conv(
    dtype: DType,
    batch: usize,
    channels: (usize, usize, usize),
    input: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
) -> Option<Conv> {
    let mut output = [0; 3];
    for d in 0..3 {
        let reach = dilation[d] * (kernel[d] - 1) + 1;
        output[d] = (input[d] + 2 * padding[d]).checked_sub(reach)? / stride[d] + 1;
    }
    let (in_channels, out_channels, groups) = channels;
    Some(Conv { dtype, batch, in_channels, out_channels, groups, input, kernel, output, stride, padding, dilation })
}

fn square(
    batch: usize,
    (from, to): (usize, usize),
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Option<Conv> {
    let wide = |v| [1, v, v];
    let padding = [0, padding, padding];
    conv(DType::F32, batch, (from, to, 1), wide(size), wide(kernel), wide(stride), padding, [1; 3])
}

fn random_conv(r: &mut Random, dtype: DType) -> Conv {
    loop {
        let dims = 1 + r.below(3);
        let mut size = |low: usize, n: usize, unused: usize| {
            let mut v = [unused; 3];
            v[3 - dims..].iter_mut().for_each(|v| *v = low + r.below(n));
            v
        };
        let (input, kernel) = (size(1, 11, 1), size(1, 5, 1));
        let (stride, padding, dilation) = (size(1, 3, 1), size(0, 5, 0), size(1, 3, 1));
        let groups = [1, 1, 1, 2, 3][r.below(5)];
        let depthwise = r.below(4) == 0;
        let (a, b) = if depthwise { (1, 1 + r.below(2)) } else { (1 + r.below(20), 1 + r.below(40)) };
        let groups = if depthwise { 1 + r.below(20) } else { groups };
        let batch = 1 + r.below(3);
        let Some(c) = conv(dtype, batch, (a * groups, b * groups, groups), input, kernel, stride, padding, dilation)
        else {
            continue;
        };
        if c.output_size() * c.taps() * a * b * groups < 400_000 {
            return c;
        }
    }
}

struct Case {
    c: Conv,
    x: Vec<f64>,
    w: Vec<f64>,
    bias: Vec<f64>,
    dy: Vec<f64>,
}

impl Case {
    fn new(c: Conv, seed: u64) -> Self {
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 77);
        let mut draw = |n: usize| -> Vec<f64> {
            // Rounded to the dtype, so that the only error is the computation's.
            (0..n).map(|_| with_dtype!(c.dtype, T => T::from_f64(r.value()).to_f64())).collect()
        };
        let x = draw(c.batch * c.in_channels * c.input_size());
        let w = draw(c.out_channels * c.group_inputs() * c.taps());
        let bias = draw(c.out_channels);
        let dy = draw(c.batch * c.out_channels * c.output_size());
        Self { c, x, w, bias, dy }
    }

    /// Calls `f(x, w, y)` with the indices of every product.
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let c = &self.c;
        let (cin, cout) = (c.group_inputs(), c.group_outputs());
        let unravel = |i: usize, s: [usize; 3]| [i / (s[1] * s[2]), i / s[2] % s[1], i % s[2]];
        for y in 0..self.dy.len() {
            let (pixel, channel, image) =
                (y % c.output_size(), y / c.output_size() % c.out_channels, y / c.output_size() / c.out_channels);
            let at = unravel(pixel, c.output);
            for tap in 0..c.taps() {
                let k = unravel(tap, c.kernel);
                let mut index = Some(0);
                for d in 0..3 {
                    let i = (at[d] * c.stride[d] + k[d] * c.dilation[d]).checked_sub(c.padding[d]);
                    index = index.zip(i).filter(|&(_, i)| i < c.input[d]).map(|(index, i)| index * c.input[d] + i);
                }
                let Some(index) = index else { continue };
                for ci in 0..cin {
                    let x = (image * c.in_channels + channel / cout * cin + ci) * c.input_size() + index;
                    f(x, (channel * cin + ci) * c.taps() + tap, y);
                }
            }
        }
    }

    /// Forward, input, weight and bias gradients by the plain loop.
    fn expected(&self) -> [Vec<f64>; 4] {
        let c = &self.c;
        let mut y: Vec<f64> = (0..self.dy.len()).map(|i| self.bias[i / c.output_size() % c.out_channels]).collect();
        let (mut dx, mut dw) = (vec![0.0; self.x.len()], vec![0.0; self.w.len()]);
        self.each(|xi, wi, yi| {
            y[yi] += self.x[xi] * self.w[wi];
            dx[xi] += self.dy[yi] * self.w[wi];
            dw[wi] += self.dy[yi] * self.x[xi];
        });
        let mut db = vec![0.0; c.out_channels];
        self.dy.iter().enumerate().for_each(|(i, v)| db[i / c.output_size() % c.out_channels] += v);
        [y, dx, dw, db]
    }

    fn actual(&self) -> [Vec<f64>; 4] {
        with_dtype!(self.c.dtype, T => self.run::<T>())
    }

    fn run<T: Element>(&self) -> [Vec<f64>; 4] {
        let c = &self.c;
        let cast = |v: &[f64]| -> Vec<T> { v.iter().map(|&v| T::from_f64(v)).collect() };
        let (x, w, bias, dy) = (cast(&self.x), cast(&self.w), cast(&self.bias), cast(&self.dy));
        // Previous contents must not matter.
        let stale = |n: usize| vec![T::from_f64(7.5); n];
        let (mut y, mut dx) = (stale(dy.len()), stale(x.len()));
        let (mut dw, mut db) = (stale(w.len()), stale(bias.len()));
        // SAFETY: the vectors have the sizes `c` says.
        unsafe {
            forward(c, x.as_ptr().cast(), w.as_ptr().cast(), bias.as_ptr().cast(), y.as_mut_ptr().cast());
            backward_input(c, dy.as_ptr().cast(), w.as_ptr().cast(), dx.as_mut_ptr().cast());
            backward_weight(c, x.as_ptr().cast(), dy.as_ptr().cast(), dw.as_mut_ptr().cast());
            backward_bias(c, dy.as_ptr().cast(), db.as_mut_ptr().cast());
        }
        [y, dx, dw, db].map(|v| v.into_iter().map(T::to_f64).collect())
    }

    fn check(&self) {
        self.compare(&self.expected());
    }

    fn compare(&self, expected: &[Vec<f64>; 4]) {
        let tolerance = match self.c.dtype {
            DType::F64 => 1e-13,
            DType::F32 => 1e-5,
            DType::F16 => 1e-3,
            _ => 8e-3,
        };
        for ((name, want), got) in ["y", "dx", "dw", "db"].iter().zip(expected).zip(self.actual()) {
            // The error of a sum is relative to its terms: their root mean square is used as their size.
            let scale = (want.iter().map(|v| v * v).sum::<f64>() / want.len().max(1) as f64).sqrt().max(1e-3);
            for (i, (w, g)) in want.iter().zip(&got).enumerate() {
                let error = (w - g).abs() / scale.max(w.abs());
                assert!(error < tolerance, "{name}[{i}]: {g} should be {w}, {:?}, {}", self.c, isa::level().name());
            }
        }
    }
}

/// Shapes that reach each path, and its edges.
fn shapes() -> Vec<Conv> {
    let shapes = [
        square(2, (64, 64), 8, 3, 1, 1),
        square(3, (20, 70), 9, 3, 1, 1),
        square(1, (33, 17), 13, 3, 1, 0),
        square(7, (48, 40), 4, 3, 1, 1),
        square(2, (32, 32), 7, 3, 1, 2),
        square(2, (32, 130), 8, 3, 2, 1),
        square(2, (40, 24), 9, 1, 2, 0),
        square(2, (70, 66), 6, 1, 1, 0),
        square(3, (3, 6), 12, 5, 1, 0),
        square(3, (6, 16), 9, 5, 1, 0),
        square(2, (3, 64), 11, 3, 1, 1),
        square(2, (1, 5), 30, 7, 1, 3),
        square(2, (5, 1), 6, 3, 1, 4),
        square(5, (3, 8), 40, 3, 1, 1),
        // Windows apart from each other: they cover the image, leave pixels at its end or between them, are cubes.
        square(2, (3, 40), 32, 16, 16, 0),
        square(3, (20, 33), 21, 4, 4, 0),
        square(2, (24, 48), 19, 2, 3, 0),
        square(3, (72, 40), 16, 1, 2, 0),
        square(3, (160, 208), 5, 1, 1, 0),
        conv(DType::F32, 2, (9, 40, 1), [4, 7, 12], [2, 3, 3], [2, 3, 4], [0; 3], [1; 3]),
    ];
    shapes.into_iter().map(|c| c.expect("the kernel fits")).collect()
}

#[test]
fn every_level_and_dtype_agrees_with_a_plain_loop() {
    let _turn = crate::testing::turn();
    let _guard = lock(&PROCESS);
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let mut r = Random(3 + dtype.size() as u64);
        let random = (0..60).map(|_| random_conv(&mut r, dtype)).collect::<Vec<_>>().into_iter().enumerate();
        for (seed, c) in random.chain(shapes().into_iter().enumerate()) {
            let case = Case::new(Conv { dtype, ..c }, seed as u64);
            let expected = case.expected();
            for level in isa::Level::ALL {
                isa::force(level);
                case.compare(&expected);
            }
        }
    }
    isa::force(isa::detected());
}

/// `v` with the channels of its images behind their pixels.
fn channels_last(v: &[f32], batch: usize, channels: usize) -> Vec<f32> {
    let pixels = v.len() / batch / channels;
    let at = |i: usize| (i / pixels / channels, i % channels, i / channels % pixels);
    (0..v.len()).map(at).map(|(image, c, p)| v[(image * channels + c) * pixels + p]).collect()
}

#[test]
fn packed_weights_give_the_same_in_every_order() {
    let _turn = crate::testing::turn();
    let _guard = lock(&PROCESS);
    let mut more = vec![
        square(1, (32, 96), 14, 3, 1, 1),
        square(1, (32, 48), 30, 3, 1, 1),
        square(2, (3, 80), 17, 7, 2, 3),
        square(3, (130, 64), 7, 1, 1, 0),
    ];
    let mut dilated = square(2, (24, 32), 12, 3, 1, 2).expect("the kernel fits");
    dilated.dilation = [1, 2, 2];
    dilated.output = [1, 12, 12];
    more.push(Some(dilated));
    let shapes = shapes().into_iter().chain(more.into_iter().map(|c| c.expect("the kernel fits")));
    for (seed, c) in shapes.enumerate() {
        let case = Case::new(Conv { dtype: DType::F32, ..c }, seed as u64);
        let cast = |v: &[f64]| -> Vec<f32> { v.iter().map(|&v| v as f32).collect() };
        let (x, w, bias, addend) = (cast(&case.x), cast(&case.w), cast(&case.bias), cast(&case.dy));
        let (x_last, addend_last) =
            (channels_last(&x, c.batch, c.in_channels), channels_last(&addend, c.batch, c.out_channels));
        let plain = &case.expected()[0];
        let scale = (plain.iter().map(|v| v * v).sum::<f64>() / plain.len() as f64).sqrt();
        for level in isa::Level::ALL {
            isa::force(level);
            // SAFETY: `w` is the weight of the case.
            let Some(packed) = (unsafe { PackedConv::new(&case.c, w.as_ptr()) }) else {
                assert!(!c.out_channels.is_multiple_of(16), "{c:?}");
                continue;
            };
            for kind in 0..16 {
                let [x_order, y_order, add_order] =
                    [1, 2, 4].map(|bit| if kind & bit == 0 { Order::First } else { Order::Last });
                let (with_addend, relu) = (kind & 12 != 8, kind & 8 != 0);
                let pick = |order, first: &[f32], last: &[f32]| match order {
                    Order::First => first.as_ptr(),
                    Order::Last => last.as_ptr(),
                };
                let mut y = vec![7.5f32; addend.len()];
                let operands = Operands {
                    x: Image { ptr: pick(x_order, &x, &x_last), order: x_order },
                    bias: if relu { bias.as_ptr() } else { std::ptr::null() },
                    addend: with_addend
                        .then(|| Image { ptr: pick(add_order, &addend, &addend_last), order: add_order }),
                    relu,
                    y: Image { ptr: y.as_mut_ptr(), order: y_order },
                };
                // SAFETY: tensors of the case's sizes.
                unsafe { packed.run(&operands) };
                let want: Vec<f32> = plain
                    .iter()
                    .enumerate()
                    .map(|(i, v)| {
                        let b = if relu { 0.0 } else { case.bias[i / c.output_size() % c.out_channels] };
                        let sum = v - b + if with_addend { case.dy[i] } else { 0.0 };
                        (if relu { sum.max(0.0) } else { sum }) as f32
                    })
                    .collect();
                let want = match y_order {
                    Order::First => want,
                    Order::Last => channels_last(&want, c.batch, c.out_channels),
                };
                for (i, (want, got)) in want.iter().zip(&y).enumerate() {
                    let error = f64::from((want - got).abs()) / scale.max(f64::from(want.abs()));
                    assert!(error < 1e-5, "y[{i}]: {got} should be {want}, {c:?}, {}, {kind}", level.name());
                }
            }
        }
    }
    isa::force(isa::detected());
}

/// Convolutions that use AMX tiles if the machine has them: every remainder of channels, rows and columns.
fn tile_shapes() -> Vec<Conv> {
    let mut r = Random(5);
    let mut shapes = vec![
        square(33, (32, 64), 4, 3, 1, 1),
        square(17, (16, 32), 8, 3, 2, 1),
        square(16, (64, 40), 8, 1, 2, 0),
        square(1, (32, 48), 32, 3, 1, 1),
        square(5, (130, 32), 7, 3, 1, 0),
        square(2, (16, 16), 150, 3, 1, 1),
        square(1, (64, 64), 120, 3, 2, 1),
        // A kernel so long that the weight gradient uses the other path.
        conv(DType::F32, 1, (16, 16, 1), [1, 1, 1600], [1, 1, 500], [1; 3], [0; 3], [1; 3]),
    ];
    for _ in 0..40 {
        let mut size = |low: usize, n: usize| [1, low + r.below(n), low + r.below(n)];
        let (input, kernel, stride, dilation) = (size(1, 14), size(1, 4), size(1, 3), size(1, 2));
        let padding = [0, r.below(4), r.below(4)];
        let channels = (16 + r.below(60), 16 + r.below(60), 1);
        shapes.push(conv(DType::F32, 1 + r.below(20), channels, input, kernel, stride, padding, dilation));
    }
    shapes.into_iter().flatten().map(|c| Conv { dtype: DType::BF16, ..c }).collect()
}

#[test]
fn tiles_agree_with_a_plain_loop_and_for_any_number_of_threads() {
    let _turn = crate::testing::turn();
    let _guard = lock(&PROCESS);
    let before = pool::num_threads();
    for (seed, c) in tile_shapes().into_iter().enumerate() {
        let case = Case::new(c, seed as u64);
        pool::set_num_threads(2);
        case.check();
        let [one, three] = [1, 3].map(|threads| {
            pool::set_num_threads(threads);
            case.actual()
        });
        assert!(one == three, "the number of threads changes {c:?}");
    }
    pool::set_num_threads(before);
}

#[test]
fn large_images_are_cut_and_many_channels_stay_accurate() {
    let wide = |v| [1, v, v];
    let first_layer = conv(DType::F32, 1, (3, 5, 1), [1, 230, 250], wide(7), wide(2), [0, 3, 3], [1; 3]);
    let depthwise = conv(DType::F32, 2, (6, 12, 6), [1, 240, 211], wide(3), [1, 2, 1], [0, 1, 1], [1, 1, 2]);
    let long = conv(DType::F32, 1, (2, 3, 1), [1, 1, 70_000], [1, 1, 9], [1, 1, 3], [0, 0, 4], [1; 3]);
    let deep = conv(DType::F32, 1, (18, 17, 1), [5, 40, 44], [2, 3, 2], [2, 1, 1], [1, 1, 0], [1; 3]);
    let shapes = [
        first_layer,
        depthwise,
        long,
        deep,
        square(1, (18, 20), 96, 3, 2, 1),
        square(1, (16, 17), 90, 3, 1, 1),
        square(4, (300, 16), 8, 3, 1, 1),
        square(1, (300, 20), 10, 1, 1, 0),
    ];
    let _guard = lock(&PROCESS);
    for (seed, c) in shapes.into_iter().enumerate() {
        Case::new(c.expect("the kernel fits"), seed as u64).check();
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let _turn = crate::testing::turn();
    let _guard = lock(&PROCESS);
    let before = pool::num_threads();
    let mut r = Random(11);
    let random = (0..10).map(|_| random_conv(&mut r, DType::F32));
    for (seed, c) in shapes().into_iter().chain(random).enumerate() {
        let case = Case::new(c, seed as u64);
        let mut results = [1, 2, 3].map(|threads| {
            pool::set_num_threads(threads);
            case.actual()
        });
        let first = results[0].clone();
        for result in &mut results {
            for (a, b) in result.iter().flatten().zip(first.iter().flatten()) {
                assert_eq!(a.to_bits(), b.to_bits(), "{c:?}");
            }
        }
    }
    pool::set_num_threads(before);
}

#[test]
fn an_empty_batch_gives_zero_gradients() {
    let c = Conv { batch: 0, ..square(1, (3, 4), 5, 3, 1, 1).expect("the kernel fits") };
    Case::new(c, 0).check();
}
