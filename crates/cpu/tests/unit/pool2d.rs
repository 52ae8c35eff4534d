use crate::testing::*;
use rushlight_core::backend::{Pool, Window};
use rushlight_core::{DType, Element, Result};
use rushlight_cpu::pool2d::*;

/// Output size by PyTorch's rule.
fn out_size(size: usize, k: usize, s: usize, p: usize, d: usize, ceil: bool) -> usize {
    let span = size + 2 * p - d * (k - 1) - 1;
    let mut n = if ceil { span.div_ceil(s) } else { span / s } + 1;
    if ceil && (n - 1) * s >= size + p {
        n -= 1;
    }
    n
}

fn fixed(
    input: [usize; 2],
    k: [usize; 2],
    s: [usize; 2],
    p: [usize; 2],
    d: [usize; 2],
    ceil: bool,
    include: bool,
    divisor: Option<usize>,
) -> Pool {
    let output = [0, 1].map(|i| out_size(input[i], k[i], s[i], p[i], d[i], ceil));
    let window = Window::Fixed {
        kernel: k,
        stride: s,
        padding: p,
        dilation: d,
        count_include_pad: include,
        divisor_override: divisor,
    };
    Pool { planes: 3, input, output, window }
}

/// Input positions of output `o`, and the divisor of an average in this dimension.
fn taps(spec: &Pool, dim: usize, o: usize) -> (Vec<usize>, usize) {
    let size = spec.input[dim];
    match spec.window {
        Window::Adaptive => {
            let n = spec.output[dim];
            let taps: Vec<usize> = (o * size / n..((o + 1) * size).div_ceil(n)).collect();
            (taps.clone(), taps.len())
        }
        Window::Fixed { kernel, stride, padding, dilation, count_include_pad, .. } => {
            let start = (o * stride[dim]) as isize - padding[dim] as isize;
            let at = (0..kernel[dim]).map(|t| start + (t * dilation[dim]) as isize);
            let taps: Vec<usize> = at.filter(|&t| t >= 0 && t < size as isize).map(|t| t as usize).collect();
            let end = (start + kernel[dim] as isize).min((size + padding[dim]) as isize);
            let count = if count_include_pad { (end - start) as usize } else { taps.len() };
            (taps, count)
        }
    }
}

fn array<T: Element>(values: &[T]) -> Array {
    Array::contiguous(&[values.len()], values.to_vec())
}

/// Elements of the input and of the output.
fn lengths(spec: &Pool) -> [usize; 2] {
    [spec.input, spec.output].map(|[h, w]| spec.planes * h * w)
}

fn max_of<T: Element>(spec: &Pool, x: &[T]) -> (Vec<T>, Vec<i64>) {
    let [_, outputs] = lengths(spec);
    let (y, indices) = (Array::zeros(&[outputs], T::DTYPE), Array::zeros(&[outputs], DType::I64));
    max_pool(spec, array(x).view(), y.view(), indices.view()).unwrap();
    (y.to_vec(), indices.to_vec())
}

fn max_backward<T: Element>(spec: &Pool, dy: &[T], indices: &[i64]) -> Result<Vec<T>> {
    let dx = Array::new(T::DTYPE, &[lengths(spec)[0]], |_| 1.0);
    max_pool_backward(spec, array(dy).view(), array(indices).view(), dx.view())?;
    Ok(dx.to_vec())
}

fn check<T: Float>(spec: &Pool, seed: u64) {
    let ([h, w], [oh, ow]) = (spec.input, spec.output);
    // Few different values, so that there are equals.
    let x: Vec<T> =
        numbers::<T>(seed, spec.planes * h * w, 4.0).iter().map(|v| T::from_f64(v.to_f64().round())).collect();
    let dy = numbers::<T>(seed + 1, spec.planes * oh * ow, 1.0);
    let (y, indices) = max_of(spec, &x);
    let dx = max_backward(spec, &dy, &indices).unwrap();
    let (input, gradient) = (array(&x), array(&dy));
    let (avg, avg_dx) = (Array::zeros(&[dy.len()], T::DTYPE), Array::zeros(&[x.len()], T::DTYPE));
    avg_pool(spec, input.view(), avg.view()).unwrap();
    avg_pool_backward(spec, gradient.view(), avg_dx.view()).unwrap();
    let (avg, avg_dx) = (avg.to_vec::<T>(), avg_dx.to_vec::<T>());
    let (x, dy) = (wide(&x), wide(&dy));
    let mut want =
        (vec![0.0; dy.len()], vec![0i64; dy.len()], vec![0.0; x.len()], vec![0.0; dy.len()], vec![0.0; x.len()]);
    for o in 0..dy.len() {
        let (plane, i, j) = (o / (oh * ow), o / ow % oh, o % ow);
        let ((rows, rc), (cols, cc)) = (taps(spec, 0, i), taps(spec, 1, j));
        let (mut best, mut place, mut sum) = (f64::NEG_INFINITY, -1, 0.0);
        let divisor = match spec.window {
            Window::Fixed { divisor_override: Some(d), .. } => d,
            _ => rc * cc,
        } as f64;
        for &r in &rows {
            for &c in &cols {
                let v = x[(plane * h + r) * w + c];
                sum += v;
                want.4[(plane * h + r) * w + c] += dy[o] / divisor;
                if v > best {
                    (best, place) = (v, (r * w + c) as i64);
                }
            }
        }
        (want.0[o], want.1[o], want.3[o]) = (best, place, if sum == 0.0 { 0.0 } else { sum / divisor });
        if place >= 0 {
            want.2[plane * h * w + place as usize] += dy[o];
        }
    }
    assert_eq!(indices, want.1, "{spec:?}");
    close(&y, &want.0, 0.0);
    close(&dx, &want.2, tolerance::<T>());
    close(&avg, &want.3, tolerance::<T>());
    close(&avg_dx, &want.4, tolerance::<T>());
}

fn cases() -> Vec<Pool> {
    let adaptive = |input, output| Pool { planes: 2, input, output, window: Window::Adaptive };
    vec![
        fixed([8, 40], [2, 2], [2, 2], [0, 0], [1, 1], false, true, None),
        fixed([33, 35], [3, 3], [2, 2], [1, 1], [1, 1], false, true, None),
        fixed([9, 20], [3, 3], [1, 1], [1, 1], [1, 1], false, false, None),
        fixed([10, 11], [3, 2], [3, 4], [1, 1], [1, 1], true, false, None),
        fixed([10, 11], [3, 2], [3, 4], [1, 1], [1, 1], true, true, None),
        fixed([6, 7], [3, 3], [2, 2], [1, 1], [1, 1], true, true, None),
        fixed([5, 9], [2, 4], [1, 3], [1, 2], [1, 1], false, true, Some(5)),
        fixed([1, 50], [1, 5], [1, 2], [0, 2], [1, 1], false, false, None),
        fixed([10, 10], [2, 2], [2, 2], [0, 0], [1, 1], false, true, None),
        fixed([7, 83], [2, 3], [3, 5], [0, 1], [1, 1], false, true, None),
        fixed([4, 6], [4, 6], [4, 6], [0, 0], [1, 1], false, true, None),
        fixed([8, 40], [2, 2], [1 << 40, 1 << 40], [1, 1], [1, 1], false, true, None),
        adaptive([7, 9], [1, 1]),
        adaptive([7, 9], [3, 4]),
        adaptive([3, 4], [7, 9]),
        adaptive([20, 30], [5, 6]),
    ]
}

#[test]
fn matches_the_definition() {
    at_every_level(|| {
        each_float!(T => for (seed, spec) in cases().iter().enumerate() {
            check::<T>(spec, seed as u64);
        });
    });
}

#[test]
fn dilated_maxima() {
    // The last two have windows entirely in the padding.
    for spec in [
        fixed([12, 15], [3, 2], [2, 1], [1, 1], [2, 3], false, true, None),
        fixed([12, 15], [3, 3], [2, 3], [1, 1], [2, 2], true, true, None),
        fixed([1, 1], [2, 2], [1, 1], [1, 1], [2, 2], false, true, None),
    ] {
        let x = numbers::<f32>(3, lengths(&spec)[0], 1.0);
        let (y, indices) = max_of(&spec, &x);
        let [oh, ow] = spec.output;
        for (o, y) in y.iter().enumerate() {
            let plane = o / (oh * ow) * spec.input[0] * spec.input[1];
            let ((rows, _), (cols, _)) = (taps(&spec, 0, o / ow % oh), taps(&spec, 1, o % ow));
            let all = rows.iter().flat_map(|r| cols.iter().map(move |c| r * spec.input[1] + c));
            let best =
                all.fold((f32::NEG_INFINITY, -1), |b, i| if x[plane + i] > b.0 { (x[plane + i], i as i64) } else { b });
            assert_eq!((*y, indices[o]), best);
        }
        max_backward(&spec, &y, &indices).unwrap();
    }
}

#[test]
fn nan_wins_and_infinity_has_a_place() {
    let spec = fixed([2, 4], [2, 2], [2, 2], [0, 0], [1, 1], false, true, None);
    let inf = f32::NEG_INFINITY;
    let x = [1.0, f32::NAN, inf, inf, 5.0, 2.0, inf, inf];
    let (y, indices) = max_of(&Pool { planes: 1, ..spec }, &x);
    assert!(y[0].is_nan() && y[1] == inf);
    assert_eq!(indices, [1, 2]);
}

#[test]
fn bad_indices_are_refused() {
    let spec = fixed([4, 4], [2, 2], [2, 2], [0, 0], [1, 1], false, true, None);
    let outputs = lengths(&spec)[1];
    for bad in [16, -2, i64::MAX, i64::MIN] {
        let mut indices = vec![0; outputs];
        indices[5] = bad;
        let result = max_backward(&spec, &vec![1f32; outputs], &indices);
        assert_eq!(result.unwrap_err().kind(), rushlight_core::ErrorKind::Index);
    }
}
