//! Convolution and pooling.

use crate::support::*;
use rushlight_core::backend::{Backend, Conv, Pool, Window, call};
use rushlight_core::{DType, Layout};

fn output(input: usize, kernel: usize, stride: usize, padding: usize, dilation: usize) -> usize {
    (input + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1
}

/// Batch, channels and three sizes; unused leading ones are 1.
struct Case {
    channels: [usize; 4],
    input: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
    /// Spatial dimensions that tensors show.
    dims: usize,
}

impl Case {
    fn spec(&self) -> Conv {
        let [batch, in_channels, out_channels, groups] = self.channels;
        let &Self { input, kernel, stride, padding, dilation, .. } = self;
        let size = |d: usize| output(input[d], kernel[d], stride[d], padding[d], dilation[d]);
        let output = [size(0), size(1), size(2)];
        Conv { batch, in_channels, out_channels, groups, input, kernel, output, stride, padding, dilation }
    }

    fn run(&self, e: &'static dyn Backend, dtype: DType) -> Vec<Tensor> {
        let spec = self.spec();
        let shape = |lead: [usize; 2], space: [usize; 3]| [&lead[..], &space[3 - self.dims..]].concat();
        let x_shape = shape([spec.batch, spec.in_channels], spec.input);
        let w_shape = shape([spec.out_channels, spec.in_channels / spec.groups], spec.kernel);
        let y_shape = shape([spec.batch, spec.out_channels], spec.output);
        let (x, w) = (Tensor::random(e, dtype, &x_shape, 1), Tensor::random(e, dtype, &w_shape, 2));
        let (bias, dy) = (Tensor::random(e, dtype, &[spec.out_channels], 3), Tensor::random(e, dtype, &y_shape, 4));
        let [y, plain, dx, dw] = [&y_shape, &y_shape, &x_shape, &w_shape].map(|shape| Tensor::out(e, dtype, shape));
        run(e, call::ConvForward { spec, x: x.view(), w: w.view(), bias: Some(bias.view()), y: y.view() }).unwrap();
        run(e, call::ConvForward { spec, x: x.view(), w: w.view(), bias: None, y: plain.view() }).unwrap();
        run(e, call::ConvBackwardInput { spec, dy: dy.view(), w: w.view(), dx: dx.view(), accumulate: false }).unwrap();
        run(e, call::ConvBackwardWeight { spec, x: x.view(), dy: dy.view(), dw: dw.view() }).unwrap();
        vec![y, plain, dx, dw]
    }
}

#[test]
fn convolutions() {
    let one = [1; 3];
    let cases = [
        Case {
            channels: [2, 3, 4, 1],
            input: [1, 1, 17],
            kernel: [1, 1, 3],
            stride: [1, 1, 2],
            padding: [0, 0, 2],
            dilation: [1, 1, 2],
            dims: 1,
        },
        Case {
            channels: [3, 4, 6, 2],
            input: [1, 9, 8],
            kernel: [1, 3, 2],
            stride: [1, 2, 1],
            padding: [0, 1, 0],
            dilation: one,
            dims: 2,
        },
        Case {
            channels: [2, 4, 4, 4],
            input: [1, 7, 7],
            kernel: [1, 3, 3],
            stride: one,
            padding: [0, 2, 2],
            dilation: [1, 2, 1],
            dims: 2,
        },
        Case {
            channels: [1, 2, 3, 1],
            input: [4, 5, 6],
            kernel: [2, 3, 2],
            stride: [1, 2, 3],
            padding: [1, 0, 1],
            dilation: [2, 1, 1],
            dims: 3,
        },
        // Trailing rows and columns that no window reaches.
        Case {
            channels: [2, 1, 1, 1],
            input: [1, 8, 10],
            kernel: [1, 2, 2],
            stride: [1, 3, 4],
            padding: [0; 3],
            dilation: one,
            dims: 2,
        },
    ];
    for dtype in FLOATS {
        for (i, case) in cases.iter().enumerate() {
            compare(&format!("convolution {i} {dtype}"), |e| case.run(e, dtype));
        }
    }
    // More columns than a block.
    let large = Case {
        channels: [5, 16, 2, 1],
        input: [1, 96, 96],
        kernel: [1, 3, 3],
        stride: one,
        padding: [0, 1, 1],
        dilation: one,
        dims: 2,
    };
    compare("convolution in blocks", |e| large.run(e, DType::F32));
}

/// Default bodies also support features that only other engines have kernels for: channels-last images and weights.
#[test]
fn channels_innermost() {
    let e = rushlight_cpu::composed();
    let spec = Conv {
        batch: 2,
        in_channels: 4,
        out_channels: 6,
        groups: 2,
        input: [1, 7, 8],
        kernel: [1, 3, 3],
        output: [1, 4, 4],
        stride: [1, 2, 2],
        padding: [0, 1, 1],
        dilation: [1; 3],
    };
    let results = [false, true].map(|innermost| {
        let tensor = |[n, c, h, w]: [usize; 4], seed| {
            let layout = match innermost {
                true => Layout::contiguous(&[n, h, w, c]).unwrap().permute(&[0, 3, 1, 2]),
                false => Layout::contiguous(&[n, c, h, w]).unwrap(),
            };
            Tensor::with_layout(e, DType::F32, layout, |i| number(seed, i))
        };
        let (x, w, dy) = (tensor([2, 4, 7, 8], 1), tensor([6, 2, 3, 3], 2), tensor([2, 6, 4, 4], 3));
        let (y, dx, dw) = (tensor([2, 6, 4, 4], 4), tensor([2, 4, 7, 8], 5), tensor([6, 2, 3, 3], 6));
        run(e, call::ConvForward { spec, x: x.view(), w: w.view(), bias: None, y: y.view() }).unwrap();
        run(e, call::ConvBackwardInput { spec, dy: dy.view(), w: w.view(), dx: dx.view(), accumulate: false }).unwrap();
        run(e, call::ConvBackwardWeight { spec, x: x.view(), dy: dy.view(), dw: dw.view() }).unwrap();
        [y.values(), dx.values(), dw.values()]
    });
    assert_eq!(results[0], results[1]);
}

fn pools() -> Vec<Pool> {
    let fixed = |kernel, stride, padding, dilation, count_include_pad, divisor_override| Window::Fixed {
        kernel,
        stride,
        padding,
        dilation,
        count_include_pad,
        divisor_override,
    };
    let pool = |input, output, window| Pool { planes: 6, input, output, window };
    vec![
        pool([8, 9], [4, 4], fixed([2, 2], [2, 2], [0, 0], [1, 1], true, None)),
        pool([7, 9], [4, 5], fixed([3, 3], [2, 2], [1, 1], [1, 1], true, None)),
        pool([7, 9], [4, 5], fixed([3, 3], [2, 2], [1, 1], [1, 1], false, None)),
        // Windows that extend past the padding (`ceil_mode`).
        pool([6, 6], [4, 4], fixed([3, 3], [2, 2], [1, 1], [1, 1], true, None)),
        pool([7, 7], [3, 3], fixed([3, 3], [2, 2], [0, 0], [1, 1], true, Some(5))),
        pool([9, 10], [5, 4], fixed([2, 3], [2, 2], [1, 1], [2, 2], true, None)),
        pool([9, 10], [4, 3], Window::Adaptive),
        pool([3, 5], [7, 5], Window::Adaptive),
        pool([5, 4], [1, 1], Window::Adaptive),
    ]
}

#[test]
fn pooling() {
    for dtype in FLOATS {
        for spec in pools() {
            let dilated = matches!(spec.window, Window::Fixed { dilation, .. } if dilation != [1, 1]);
            let (inside, outside) = ([6, spec.input[0], spec.input[1]], [6, spec.output[0], spec.output[1]]);
            compare(&format!("max_pool {dtype} {spec:?}"), |e| {
                // Ties; a plane with NaN, one of negative infinities.
                let x = Tensor::new(e, dtype, &inside, |i| match i / (inside[1] * inside[2]) {
                    2 if i % 7 == 3 => f64::NAN,
                    4 => f64::NEG_INFINITY,
                    _ => (number(1, i) * 2.0).round(),
                });
                let (y, indices) = (Tensor::out(e, dtype, &outside), Tensor::out(e, DType::I64, &outside));
                run(e, call::MaxPool { spec, x: x.view(), y: y.view(), indices: indices.view() }).unwrap();
                let (dy, dx) = (Tensor::random(e, dtype, &outside, 2), Tensor::out(e, dtype, &inside));
                run(e, call::MaxPoolBackward { spec, dy: dy.view(), indices: indices.view(), dx: dx.view() }).unwrap();
                vec![y, indices, dx]
            });
            if dilated {
                continue;
            }
            compare(&format!("avg_pool {dtype} {spec:?}"), |e| {
                let x = Tensor::new(e, dtype, &inside, |i| if i == 5 { f64::NAN } else { number(1, i) });
                let y = Tensor::out(e, dtype, &outside);
                run(e, call::AvgPool { spec, x: x.view(), y: y.view() }).unwrap();
                let (dy, dx) = (Tensor::random(e, dtype, &outside, 2), Tensor::out(e, dtype, &inside));
                run(e, call::AvgPoolBackward { spec, dy: dy.view(), dx: dx.view() }).unwrap();
                vec![y, dx]
            });
        }
    }
}

#[test]
fn windows_of_nothing_give_nothing_back() {
    // The first window along each dimension is entirely in the padding.
    let window = Window::Fixed {
        kernel: [2, 2],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [5, 5],
        count_include_pad: true,
        divisor_override: None,
    };
    let spec = Pool { planes: 2, input: [3, 3], output: [2, 2], window };
    compare("max_pool of padding", |e| {
        let x = Tensor::random(e, DType::F32, &[2, 3, 3], 1);
        let (y, indices) = (Tensor::out(e, DType::F32, &[2, 2, 2]), Tensor::out(e, DType::I64, &[2, 2, 2]));
        run(e, call::MaxPool { spec, x: x.view(), y: y.view(), indices: indices.view() }).unwrap();
        assert_eq!(indices.values()[0], -1.0);
        let (dy, dx) = (Tensor::random(e, DType::F32, &[2, 2, 2], 2), Tensor::out(e, DType::F32, &[2, 3, 3]));
        run(e, call::MaxPoolBackward { spec, dy: dy.view(), indices: indices.view(), dx: dx.view() }).unwrap();
        vec![y, indices, dx]
    });
    for e in [rushlight_cpu::backend(), rushlight_cpu::composed()] {
        for bad in [-2.0, 9.0] {
            let (dy, dx) = (Tensor::random(e, DType::F32, &[2, 2, 2], 2), Tensor::out(e, DType::F32, &[2, 3, 3]));
            let indices = Tensor::new(e, DType::I64, &[2, 2, 2], |_| bad);
            assert!(
                run(e, call::MaxPoolBackward { spec, dy: dy.view(), indices: indices.view(), dx: dx.view() }).is_err()
            );
        }
    }
}
