//! Another device's engine against the CPU's, on larger and less regular problems than the goldens.
//! `RUSHLIGHT_TEST_DEVICE=cuda` selects the device. On the CPU there is nothing to compare, and the tests are skipped.

use crate::support;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Device, ErrorKind, Result, rng};
use rushlight_tensor::autograd::{Backward, no_grad};
use rushlight_tensor::{
    BatchNormOptions, ConvOptions, CtcTargets, InterpolateMode, InterpolateOptions, SolveTriangular, Tensor, autocast,
    cat, ctc_losses, set_autocast, stack,
};
use std::sync::{Mutex, MutexGuard};

/// Tests take turns: the seed is process-wide, and a device reports an index out of range to the first call that waits.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = lock(&TURN);
    // The same numbers in any order of tests.
    rng::manual_seed(7);
    turn
}

/// The device under test, if it is not the CPU.
pub fn device() -> Option<Device> {
    let device = support::data::device();
    if device.is_cpu() {
        println!("skipped: RUSHLIGHT_TEST_DEVICE names no other device than the CPU");
        return None;
    }
    Some(device)
}

/// Relative distance of two tensors, in `f64`.
pub fn distance(got: &Tensor, want: &Tensor) -> Result<f64> {
    let (got, want) = (got.detach().to_vec::<f64>()?, want.detach().to_vec::<f64>()?);
    assert_eq!(got.len(), want.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let off = norm(&mut got.iter().zip(&want).map(|(a, b)| a - b));
    Ok(off / norm(&mut want.iter().copied()).max(1e-30))
}

pub fn randn(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(shape)
}

/// The same numbers from the same seed.
#[test]
fn random_numbers() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let draw = |device: Device| -> Result<Vec<Tensor>> {
        rng::manual_seed(11);
        Ok(vec![
            Tensor::rand_with([1001], (DType::F32, device))?,
            Tensor::rand_with([333], (DType::F64, device))?,
            Tensor::randint_with(-5, 1000, [777], (DType::I64, device))?,
            Tensor::rand_with([129], (DType::BF16, device))?,
            Tensor::ones_with([5000], device)?.dropout(0.3, true)?,
            Tensor::randn_with([100_003], (DType::F32, device))?,
            Tensor::randn_with([10_001], (DType::F64, device))?,
            Tensor::randn_with([129], (DType::BF16, device))?,
        ])
    };
    for (got, want) in draw(device)?.iter().zip(draw(Device::Cpu)?) {
        assert_eq!(got.to_vec::<f64>()?, want.to_vec::<f64>()?);
    }
    Ok(())
}

/// Compares a computation on both engines.
pub fn agree(name: &str, most: f64, inputs: &[&Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let Some(device) = device() else { return Ok(()) };
    let on = |d: &Device| -> Result<Tensor> { f(&inputs.iter().map(|t| t.to(d)).collect::<Result<Vec<_>>>()?) };
    let (got, want) = no_grad(|| Ok::<_, rushlight_core::Error>((on(&device)?, on(&Device::Cpu)?)))?;
    let off = distance(&got, &want)?;
    assert!(off <= most, "{name} is off by {off:e}");
    Ok(())
}

/// Compares a computation and its gradients on both engines.
pub fn learn(name: &str, most: f64, inputs: &[&Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let Some(device) = device() else { return Ok(()) };
    let run = |device: &Device| -> Result<Vec<Tensor>> {
        let leaf = |t: &&Tensor| {
            let t = t.to(device)?.detach();
            if t.is_floating_point() { t.requires_grad_(true) } else { Ok(t) }
        };
        let leaves = inputs.iter().map(leaf).collect::<Result<Vec<Tensor>>>()?;
        let y = f(&leaves)?;
        // A gradient that differs from element to element, alike on both.
        let dy = Tensor::arange(0, y.numel() as i64, 1)?.to_dtype(DType::F32)?.mul(0.7)?.sin()?.reshape(y.shape())?;
        y.backward_with(Backward::default().gradient(&dy.to_dtype(y.dtype())?.to(device)?))?;
        let mut out = vec![y];
        out.extend(leaves.iter().filter_map(|t| t.grad()));
        Ok(out)
    };
    for (i, (got, want)) in run(&device)?.iter().zip(run(&Device::Cpu)?).enumerate() {
        let off = distance(got, &want)?;
        assert!(off <= most, "{name}: value {i} is off by {off:e}");
        assert_eq!(got.dtype(), want.dtype(), "{name}: value {i}");
    }
    Ok(())
}

#[test]
fn convolutions() -> Result<()> {
    let _turn = turn();
    // Batch, channels in and out, size, kernel, stride, padding.
    for [n, ci, co, size, kernel, stride, padding] in [
        [5, 3, 6, 32, 5, 1, 0],
        [9, 6, 16, 14, 5, 1, 2],
        [3, 16, 5, 9, 3, 1, 1],
        [4, 24, 40, 12, 3, 1, 1],
        [4, 16, 32, 12, 3, 2, 1],
        [4, 32, 64, 13, 1, 2, 0],
        [4, 64, 24, 8, 1, 1, 0],
    ] {
        let (x, w, b) = (randn(&[n, ci, size, size])?, randn(&[co, ci, kernel, kernel])?, randn(&[co])?);
        let options = ConvOptions::default().stride(stride).padding(padding);
        // Convolutions may round f32 to TF32.
        learn("conv2d", 2e-3, &[&x, &w, &b], |t| t[0].conv2d(&t[1], Some(&t[2]), options))?;
        learn("conv2d, bfloat16", 2e-2, &[&x, &w, &b], |t| {
            autocast(DType::BF16, || t[0].conv2d(&t[1], Some(&t[2]), options))
        })?;
    }
    // A block of a network: under autocast images on a GPU have their channels innermost.
    let (x, w, u) = (randn(&[4, 8, 10, 10])?, randn(&[16, 8, 3, 3])?, randn(&[16, 16, 1, 1])?);
    let (scale, shift) = (randn(&[16])?, randn(&[16])?);
    learn("block", 4e-2, &[&x, &w, &u, &scale, &shift], |t| {
        let options = ConvOptions::default().padding(1);
        autocast(DType::BF16, || {
            let y = t[0].conv2d(&t[1], None, options)?;
            let norm = BatchNormOptions::default().weight(&t[3]).bias(&t[4]).training(true);
            // Smooth throughout: where a sign decides, rounding would decide between gradients.
            let z = y.batch_norm(&norm)?.silu()?;
            let short = z.conv2d(&t[2], None, ConvOptions::default())?;
            let out = z.add(&short)?.silu()?;
            // What works on a row-major result works on this one.
            let seen = out.view([4, -1])?.narrow(1, 0, 400)?;
            out.avg_pool2d(2)?.flatten(1, -1)?.add(&seen)
        })
    })
}

/// A block of a transformer, in steps as training takes them: parameters converted together, gradients of conversions
/// and sums on the way.
#[test]
fn feed_forward_in_half_precision() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let shapes: [&[usize]; 8] = [&[3, 40, 32], &[32], &[32], &[128, 32], &[128], &[32, 128], &[32], &[16, 32]];
    let made = shapes.iter().map(|s| randn(s)).collect::<Result<Vec<_>>>()?;
    let run = |device: &Device, half: Option<DType>, fused: bool| -> Result<Vec<Tensor>> {
        let place = |t: &Tensor| t.mul(0.3)?.to(device)?.detach().requires_grad_(true);
        let leaves = made.iter().map(place).collect::<Result<Vec<_>>>()?;
        let [x, scale, shift, w1, b1, w2, b2, head] = &leaves[..] else { return Ok(Vec::new()) };
        let mut out = Vec::new();
        // The second step converts all parameters at once.
        for step in 0..2 {
            leaves.iter().try_for_each(|t| t.set_grad(None).map(drop))?;
            let y = {
                let _precision = set_autocast(half)?;
                let h = x.layer_norm(&[32], Some(scale), Some(shift), 1e-5)?;
                let h = match fused {
                    true => h.feed_forward(w1, b1, w2, b2)?,
                    false => h.linear(w1, Some(b1))?.gelu_tanh()?.linear(w2, Some(b2))?,
                };
                x.add(&h)?.linear(head, None)?
            };
            assert_eq!(y.dtype(), half.unwrap_or(DType::F32));
            let dy = Tensor::arange(0, y.numel() as i64, 1)?
                .to_dtype(DType::F32)?
                .mul(0.7)?
                .sin()?
                .add(1.0)?
                .reshape(y.shape())?;
            y.backward_with(Backward::default().gradient(&dy.to_dtype(y.dtype())?.to(device)?))?;
            if step == 1 {
                out.push(y);
                out.extend(leaves.iter().filter_map(|t| t.grad()));
            }
        }
        Ok(out)
    };
    let want = run(&Device::Cpu, None, false)?;
    for half in [DType::BF16, DType::F16] {
        for fused in [true, false] {
            let got = run(&device, Some(half), fused)?;
            assert_eq!(got.len(), want.len());
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let off = distance(got, want)?;
                assert!(off < 2e-2, "{half}, fused {fused}: value {i} is off by {off:e}");
                assert!(i == 0 || got.dtype() == DType::F32, "{half}: gradient {i} is {}", got.dtype());
            }
        }
    }
    Ok(())
}

/// A second bias of another shape than the outputs': the same as the ops one by one, its gradient of its own shape.
/// Large products of half types whose rows are not whole vectors, which run on padded copies, with their gradients.
#[test]
fn products_of_unaligned_rows() -> Result<()> {
    let _turn = turn();
    for (rows, inputs, outputs) in [(9000, 196, 700), (9000, 700, 196), (6001, 333, 515)] {
        for dtype in [DType::BF16, DType::F16] {
            let made = |shape: &[usize]| randn(shape)?.mul(0.1)?.to_dtype(dtype);
            let (x, w, b) = (made(&[rows, inputs])?, made(&[outputs, inputs])?, made(&[outputs])?);
            let most = if dtype == DType::BF16 { 8e-3 } else { 1e-3 };
            // On the CPU in f32.
            let wide = |t: &Tensor| if t.device().is_cpu() { t.to_dtype(DType::F32) } else { Ok(t.clone()) };
            let name = format!("linear of {rows} times {inputs} to {outputs}, {dtype}");
            learn(&name, most, &[&x, &w, &b], |t| {
                wide(&t[0])?.linear(&wide(&t[1])?, Some(&wide(&t[2])?))?.to_dtype(dtype)
            })?;
        }
    }
    Ok(())
}

#[test]
fn feed_forward_with_a_bias_that_broadcasts() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let shapes: [&[usize]; 4] = [&[3, 40, 32], &[128, 32], &[128], &[48, 128]];
    let made = shapes.iter().map(|s| randn(s)?.mul(0.3)).collect::<Result<Vec<_>>>()?;
    let dy = randn(&[3, 40, 48])?;
    for shape in [&[1][..], &[48], &[1, 48], &[40, 1], &[3, 1, 48], &[3, 40, 48]] {
        let bias = randn(shape)?;
        let run = |device: &Device, half: Option<DType>, fused: bool| -> Result<Vec<Tensor>> {
            let place = |t: &Tensor| t.to(device)?.detach().requires_grad_(true);
            let leaves = made.iter().chain([&bias]).map(place).collect::<Result<Vec<_>>>()?;
            let [x, w1, b1, w2, b2] = &leaves[..] else { return Ok(Vec::new()) };
            let y = {
                let _precision = set_autocast(half)?;
                match fused {
                    true => x.feed_forward(w1, b1, w2, b2)?,
                    false => x.linear(w1, Some(b1))?.gelu_tanh()?.linear(w2, Some(b2))?,
                }
            };
            y.backward_with(Backward::default().gradient(&dy.to_dtype(y.dtype())?.to(device)?))?;
            Ok([y].into_iter().chain(leaves.iter().filter_map(|t| t.grad())).collect())
        };
        let want = run(&Device::Cpu, None, false)?;
        for (half, most) in [(None, 1e-4), (Some(DType::BF16), 2e-2), (Some(DType::F16), 5e-3)] {
            let (got, apart) = (run(&device, half, true)?, run(&device, half, false)?);
            assert_eq!([got.len(), apart.len()], [want.len(); 2]);
            assert_eq!(got[5].shape(), shape, "{half:?}: the bias's gradient");
            for (i, want) in want.iter().enumerate() {
                for (what, value) in [("the block", &got[i]), ("the ops one by one", &apart[i])] {
                    assert_eq!(value.shape(), want.shape(), "{half:?}, bias {shape:?}: value {i} of {what}");
                    let off = distance(value, want)?;
                    assert!(off < most, "{half:?}, bias {shape:?}: value {i} of {what} is off by {off:e}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn normalisations() -> Result<()> {
    let _turn = turn();
    for shape in [&[33usize, 7, 5, 5][..], &[16, 24, 8, 8], &[300, 64], &[70, 10], &[2, 3, 4096]] {
        let (x, w, b) = (randn(shape)?.mul(2.0)?.add(50.0)?, randn(&shape[1..2])?, randn(&shape[1..2])?);
        learn("batch_norm", 1e-4, &[&x, &w, &b], |t| {
            t[0].batch_norm(&BatchNormOptions::default().weight(&t[1]).bias(&t[2]).training(true))
        })?;
        let half = randn(shape)?.to_dtype(DType::BF16)?;
        learn("batch_norm, bfloat16", 2e-2, &[&half, &w, &b], |t| {
            t[0].batch_norm(&BatchNormOptions::default().weight(&t[1]).bias(&t[2]).training(true))
        })?;
    }
    for (rows, columns) in [(5, 7), (640, 512), (2000, 768), (33, 4096), (3, 20_000), (1, 64)] {
        let (x, w, b) = (randn(&[rows, columns])?, randn(&[columns])?, randn(&[columns])?);
        learn("layer_norm", 2e-5, &[&x, &w, &b], |t| t[0].layer_norm(&[columns], Some(&t[1]), Some(&t[2]), 1e-5))?;
    }
    Ok(())
}

/// Softmax along columns, and norms of rows that no block keeps in its registers.
#[test]
fn columns_and_long_rows() -> Result<()> {
    let _turn = turn();
    for shape in [&[33usize, 40][..], &[3, 70, 5]] {
        let x = randn(shape)?;
        learn("softmax along columns", 1e-5, &[&x], |t| t[0].softmax(-2))?;
        learn("log_softmax along columns", 1e-5, &[&x], |t| t[0].log_softmax(-2))?;
    }
    let columns = 40_000;
    let (x, w, b) = (randn(&[3, columns])?, randn(&[columns])?, randn(&[columns])?);
    learn("layer_norm", 2e-5, &[&x, &w, &b], |t| t[0].layer_norm(&[columns], Some(&t[1]), Some(&t[2]), 1e-5))
}

#[test]
fn losses() -> Result<()> {
    let _turn = turn();
    for classes in [10usize, 1000, 50_304] {
        let (x, y) = (randn(&[40, classes])?.mul(4.0)?, Tensor::randint(0, classes as i64, [40])?);
        learn("cross_entropy", 1e-5, &[&x, &y], |t| t[0].cross_entropy(&t[1])?.mul(10.0))?;
        let half = x.to_dtype(DType::BF16)?;
        learn("cross_entropy, autocast", 4e-3, &[&half, &y], |t| autocast(DType::BF16, || t[0].cross_entropy(&t[1])))?;
    }
    Ok(())
}

#[test]
fn reductions_of_every_shape() -> Result<()> {
    let _turn = turn();
    for shape in [[3usize, 5, 7], [1, 70_000, 1], [300, 3, 257], [2, 4096, 64], [40, 1, 5000], [3000, 2, 96]] {
        // Not around zero: a sum that all but vanishes has no digits left to compare.
        let x = randn(&shape)?.add(0.5)?;
        for dims in [&[0isize][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
            agree("sum", 1e-5, &[&x], |t| t[0].sum(dims))?;
            agree("sum of a transposed tensor", 1e-5, &[&x], |t| t[0].transpose(0, 2)?.sum_dims(dims, true))?;
            agree("logsumexp", 1e-5, &[&x], |t| t[0].logsumexp(dims, false))?;
            agree("sum of halves", 1e-2, &[&x.to_dtype(DType::BF16)?], |t| t[0].sum(dims))?;
        }
        agree("argmax", 0.0, &[&x], |t| t[0].argmax(1))?;
        agree("amax", 0.0, &[&x], |t| t[0].amax([1], false))?;
    }
    Ok(())
}

#[test]
fn long_lines() -> Result<()> {
    let _turn = turn();
    let x = randn(&[3, 10_001])?;
    agree("sort", 0.0, &[&x], |t| Ok(t[0].sort(1, true)?.0))?;
    agree("order", 0.0, &[&x], |t| Ok(t[0].sort(1, false)?.1))?;
    agree("cumsum", 1e-6, &[&x], |t| t[0].cumsum(1))?;
    agree("cumsum down", 1e-6, &[&x], |t| t[0].transpose(0, 1)?.cumsum(0))?;
    let many = Tensor::randint(0, 50, [20_000])?;
    let values = randn(&[20_000, 8])?;
    let zeros = Tensor::zeros([50, 8])?;
    agree("index_add", 1e-5, &[&zeros, &many, &values], |t| t[0].index_add(0, &t[1], &t[2], 1.0))?;
    let line = values.select(1, 0)?.contiguous()?;
    agree("scatter_add", 1e-5, &[&Tensor::zeros([50])?, &many, &line], |t| t[0].scatter_add(0, &t[1], &t[2]))?;
    agree("nonzero", 0.0, &[&many], |t| t[0].remainder(3)?.nonzero())
}

/// More blocks of counts than one block of threads adds up; on GPUs more than are added up without a scan.
#[test]
fn positions_in_long_lines() -> Result<()> {
    let _turn = turn();
    for n in [300_001, 4_200_001] {
        let few = Tensor::arange(0, n, 1)?.remainder(977)?.eq(5)?;
        agree("nonzero", 0.0, &[&few], |t| t[0].nonzero())?;
    }
    Ok(())
}

/// Lines of every length that a thread, a block or tiles of blocks sort, keys of every size, many equal elements.
#[test]
fn sorted_lines() -> Result<()> {
    let _turn = turn();
    for (lines, length) in [(70, 17), (5, 300), (9, 2048), (3, 4096), (2, 4097), (1, 30_000)] {
        let x = randn(&[lines, length])?;
        let holes = x.index_fill(1, &Tensor::new([3i64, 7])?, f64::NAN)?;
        let few = x.mul(3.0)?.round()?;
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::I8, DType::Bool] {
            let few = few.to_dtype(dtype)?;
            for descending in [false, true] {
                agree("order of equals", 0.0, &[&few], |t| Ok(t[0].sort(1, descending)?.1))?;
            }
            agree("sorted values", 0.0, &[&few], |t| Ok(t[0].sort(1, true)?.0))?;
        }
        agree("order with NaN", 0.0, &[&holes], |t| Ok(t[0].sort(1, true)?.1))?;
        agree("order down", 0.0, &[&x], |t| Ok(t[0].transpose(0, 1)?.sort(0, false)?.1))?;
        for k in [1, 5, 16].into_iter().filter(|&k| k < length) {
            agree("topk", 0.0, &[&x], |t| Ok(t[0].topk(k, 1, true)?.1))?;
            agree("topk of equals", 0.0, &[&few], |t| Ok(t[0].topk(k, 1, false)?.0))?;
        }
    }
    Ok(())
}

/// Sums at indices: a few targets with long runs, many with short ones, indices that lines share, integers.
#[test]
fn scattered_sums() -> Result<()> {
    let _turn = turn();
    for (targets, count) in [(3, 70_000), (1, 5000), (5000, 9000), (300, 65)] {
        let index = Tensor::randint(0, targets as i64, [count])?;
        // Not around zero: a sum that all but vanishes has no digits left to compare.
        let (values, zeros) = (randn(&[count])?.add(0.5)?, Tensor::zeros([targets])?);
        agree("scatter_add", 1e-4, &[&zeros, &index, &values], |t| t[0].scatter_add(0, &t[1], &t[2]))?;
        let halves = [&zeros.to_dtype(DType::BF16)?, &index, &values.to_dtype(DType::BF16)?];
        agree("halves", 2e-2, &halves, |t| t[0].scatter_add(0, &t[1], &t[2]))?;
        let (rows, none) = (randn(&[count, 6])?.add(0.5)?, Tensor::zeros([targets, 6])?);
        agree("index_add", 1e-4, &[&none, &index, &rows], |t| t[0].index_add(0, &t[1], &t[2], 1.0))?;
        let same = |t: &[Tensor]| t[1].unsqueeze(1)?.expand([count, 6]);
        agree("shared indices", 1e-4, &[&none, &index, &rows], |t| t[0].scatter_add(0, &same(t)?, &t[2]))?;
        let own = Tensor::randint(0, targets as i64, [count, 6])?;
        agree("own indices", 1e-4, &[&none, &own, &rows], |t| t[0].scatter_add(0, &t[1], &t[2]))?;
        let counts = values.mul(10.0)?.to_dtype(DType::I64)?;
        let empty = Tensor::zeros_with([targets], DType::I64)?;
        agree("integers", 0.0, &[&empty, &index, &counts], |t| t[0].scatter_add(0, &t[1], &t[2]))?;
        agree("counts", 0.0, &[&index], |t| t[0].bincount(None, 0))?;
        agree("histogram", 0.0, &[&values], |t| t[0].histc(37, -2.0, 1.5))?;
    }
    agree("fine histogram", 0.0, &[&randn(&[4000])?], |t| t[0].histc(3000, 0.0, 0.0))
}

/// Rows added at few indices, which are compared with each other instead of sorted: every one different, and all the
/// same; whole vectors, odd widths and one wide row.
#[test]
fn rows_at_few_indices() -> Result<()> {
    let _turn = turn();
    for (targets, count, width) in [(2000, 2048, 16), (40, 301, 37), (3, 500, 264), (9, 2, 9000), (1, 1, 8)] {
        let index = Tensor::randint(0, targets as i64, [count])?;
        for (dtype, close) in [(DType::F32, 1e-5), (DType::BF16, 2e-2), (DType::F64, 1e-12), (DType::I64, 0.0)] {
            let x = randn(&[targets, width])?.mul(10.0)?.to_dtype(dtype)?;
            let rows = randn(&[count, width])?.add(0.5)?.mul(10.0)?.to_dtype(dtype)?;
            let (all, backwards) = ([&x, &index, &rows], rows.t()?.contiguous()?);
            agree("index_add", close, &all, |t| t[0].index_add(0, &t[1], &t[2], 1))?;
            let columns = [&x.t()?.contiguous()?, &index, &backwards];
            agree("index_add of columns", close, &columns, |t| t[0].index_add(1, &t[1], &t[2], 1))?;
            agree("index_add of views", close, &columns, |t| t[0].t()?.index_add(0, &t[1], &t[2].t()?, 1))?;
            let same = |t: &[Tensor]| t[1].unsqueeze(1)?.expand([count, width]);
            agree("shared indices", close, &all, |t| t[0].scatter_add(0, &same(t)?, &t[2]))?;
        }
    }
    Ok(())
}

/// Distinct elements of vectors that a block sorts, and of longer ones: few and many of them, NaN, both zeros.
#[test]
fn distinct_elements() -> Result<()> {
    let _turn = turn();
    for n in [1, 2, 33, 300, 2048, 2049, 6000] {
        let wide = randn(&[n])?.mul(1e6)?;
        let few = wide.mul(3e-6)?.round()?;
        let holes = few.masked_fill(&few.eq(1.0)?, f64::NAN)?;
        for dtype in [DType::I64, DType::I32, DType::I8, DType::Bool, DType::F32, DType::F64, DType::BF16] {
            for x in [&wide, &few, &holes].into_iter().take(if dtype.is_float() { 3 } else { 2 }) {
                let x = x.to_dtype(dtype)?;
                agree("unique", 0.0, &[&x], |t| {
                    let found = t[0].unique()?;
                    if dtype.is_float() { found.nan_to_num(Some(1e9), None, None) } else { Ok(found) }
                })?;
                agree("places", 0.0, &[&x], |t| Ok(t[0].unique_full()?.inverse))?;
                agree("counts", 0.0, &[&x], |t| Ok(t[0].unique_full()?.counts))?;
            }
        }
        agree("one value", 0.0, &[&few.zeros_like()?], |t| Ok(t[0].unique_full()?.counts))?;
    }
    Ok(())
}

#[test]
fn resized_planes() -> Result<()> {
    let _turn = turn();
    let x = randn(&[3, 2, 13, 9])?;
    for (size, aligned) in [([26, 18], false), ([5, 30], false), ([17, 4], true), ([13, 1], true)] {
        use InterpolateMode::*;
        for mode in [Nearest, NearestExact, Bilinear, Bicubic] {
            let options = InterpolateOptions::size(size).mode(mode);
            let smooth = matches!(mode, Bilinear | Bicubic);
            let options = if smooth { options.align_corners(aligned) } else { options };
            learn(&format!("{mode:?} to {size:?}"), 1e-5, &[&x], |t| t[0].interpolate(&options))?;
        }
    }
    Ok(())
}

/// Two steps of three equally likely classes: "1" is spelt by `1 1`, `1 0` and `0 1`, the empty target by `0 0`.
#[test]
fn ctc_on_devices() -> Result<()> {
    let _turn = turn();
    let targets = CtcTargets { states: &[vec![0, 1, 0], vec![0]], steps: &[2, 2], blank: 0, zero_infinity: false };
    let log_probs = Tensor::zeros([2, 2, 3])?.log_softmax(-1)?;
    assert!(ctc_losses(&log_probs, &targets)?.is_none(), "the CPU leaves it to the host");
    let Some(device) = device() else { return Ok(()) };
    let losses = ctc_losses(&log_probs.to(device)?, &targets)?.expect("a kernel").to_vec::<f32>()?;
    let expected = [3f32.ln(), 9f32.ln()];
    assert!(losses.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{losses:?}");
    Ok(())
}

#[test]
fn copies_between_layouts() -> Result<()> {
    let _turn = turn();
    let x = randn(&[65, 33, 130])?;
    for order in [[0isize, 2, 1], [2, 1, 0], [1, 0, 2], [2, 0, 1], [1, 2, 0]] {
        agree("permuted copy", 0.0, &[&x], |t| t[0].permute(order)?.contiguous())?;
        agree("permuted sum", 0.0, &[&x], |t| t[0].permute(order)?.mul(2.0)?.add(1.0))?;
        let halves = x.to_dtype(DType::BF16)?;
        agree("permuted halves", 0.0, &[&halves], |t| t[0].permute(order)?.contiguous())?;
    }
    Ok(())
}

/// Factors that are unique are compared; the others by what they give when multiplied again.
#[test]
fn factorisations() -> Result<()> {
    let _turn = turn();
    if device().is_none() {
        return Ok(());
    }
    for (dtype, most) in [(DType::F64, 1e-10), (DType::F32, 2e-3)] {
        let matrix = |rows: usize, columns: usize| Tensor::randn_with([2, rows, columns], dtype);
        let square = matrix(150, 150)?.add(&Tensor::eye_with(150, 150, dtype)?.mul(30.0)?)?;
        let (columns, definite) = (matrix(150, 7)?, square.matmul(&square.mt()?)?);
        agree("slogdet", most, &[&square], |t| t[0].slogdet()?.1.add(&t[0].slogdet()?.0))?;
        agree("det", most, &[&square.div(30.0)?], |t| t[0].det())?;
        agree("inv", most, &[&square], |t| t[0].inv())?;
        agree("solve", most, &[&square, &columns], |t| t[0].solve(&t[1], true))?;
        agree("cholesky", most, &[&definite], |t| t[0].cholesky(false))?;
        for (upper, left, unit) in [(true, true, false), (false, true, true), (true, false, false)] {
            let options = SolveTriangular::new(upper).left(left).unitriangular(unit);
            let small = square.div(if unit { 300.0 } else { 1.0 })?;
            let rhs = if left { columns.clone() } else { columns.mt()? };
            agree("solve_triangular", most, &[&small, &rhs], |t| t[0].solve_triangular(&t[1], options))?;
        }
        for (rows, columns) in [(150, 150), (200, 130), (130, 200)] {
            let a = matrix(rows, columns)?;
            for complete in [false, true] {
                agree("qr", most, &[&a], |t| t[0].qr(complete)?.0.matmul(&t[0].qr(complete)?.1))?;
                agree("r", most, &[&a], |t| t[0].qr(complete)?.1.abs())?;
                agree("q", most, &[&a], |t| t[0].qr(complete)?.0.mt()?.matmul(&t[0].qr(complete)?.0))?;
            }
        }
        // As large as the GPU is asked for.
        let n = 256;
        let a = matrix(100, 100)?;
        let symmetric = a.add(&a.mt()?)?;
        agree("eigvalsh", most, &[&symmetric], |t| t[0].eigvalsh(false))?;
        agree("eigh", most, &[&symmetric.tril(0)?], |t| {
            let (w, v) = t[0].eigh(false)?;
            v.mul(&w.unsqueeze(-2)?)?.matmul(&v.mt()?)
        })?;
        for (rows, columns) in [(n, n), (n + 60, n), (n, n + 60)] {
            let a = Tensor::randn_with([rows, columns], dtype)?;
            agree("svdvals", most, &[&a], |t| t[0].svdvals())?;
            for full in [false, true] {
                agree("svd", most, &[&a], |t| {
                    let (u, s, vh) = t[0].svd(full)?;
                    let (u, vh) = (u.narrow(-1, 0, n)?, vh.narrow(-2, 0, n)?);
                    u.mul(&s)?.matmul(&vh)
                })?;
                agree("u", most, &[&a], |t| t[0].svd(full)?.0.mt()?.matmul(&t[0].svd(full)?.0))?;
                agree("vh", most, &[&a], |t| t[0].svd(full)?.2.matmul(&t[0].svd(full)?.2.mt()?))?;
            }
        }
    }
    Ok(())
}

/// What cannot be factored is told of as on the CPU.
#[test]
fn factorisations_that_fail() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let zeros = Tensor::zeros_with([3, 600, 600], DType::F64)?;
    let ones = Tensor::eye_with(600, 600, DType::F64)?.expand([3, 600, 600])?.copy()?;
    ones.select(0, 1)?.copy_(&zeros.select(0, 1)?)?;
    let nan = ones.copy()?;
    nan.select(0, 2)?.fill_(f64::NAN)?;
    type Op = fn(&Tensor) -> Result<Tensor>;
    let cases: [(&Tensor, Op); 5] = [
        (&ones, |t| t.inv()),
        (&ones, |t| t.solve(t, true)),
        (&ones, |t| t.select(0, 1)?.cholesky(false)),
        (&nan, |t| Ok(t.eigh(false)?.0)),
        (&nan, |t| Ok(t.svd(false)?.1)),
    ];
    for (a, op) in cases {
        let (here, there) = (op(a).expect_err("on the CPU"), op(&a.to(device)?).expect_err("on the device"));
        assert_eq!((here.kind(), here.to_string()), (there.kind(), there.to_string()));
    }
    assert_eq!(zeros.select(0, 0)?.to(device)?.det()?.item::<f64>()?, 0.0);
    Ok(())
}

/// An index out of range is told of when something waits for the device, and work continues afterwards.
#[test]
fn indices_out_of_range() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let x = Tensor::arange(0, 5, 1)?.to(device)?;
    let far = Tensor::new([1i64, 7])?.to(device)?;
    let error = x.index_select(0, &far).and_then(|y| y.to_vec::<i64>()).expect_err("index 7 of 5");
    assert_eq!(error.kind(), ErrorKind::Index);
    assert!(error.to_string().contains("index 7 is out of bounds"), "{error}");
    assert_eq!(x.to_vec::<i64>()?, [0, 1, 2, 3, 4]);
    Ok(())
}

/// Memory that is not there is an error, after which smaller tensors can be had.
#[test]
fn out_of_memory() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let error = Tensor::zeros_with([1 << 20, 1 << 20], device).expect_err("4 TiB");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("were asked for"), "{error}");
    assert_eq!(Tensor::ones_with([3], device)?.sum(..)?.item::<f32>()?, 3.0);
    Ok(())
}

/// Steps of the dtype's bits, for numbers of every kind.
#[test]
fn nextafter_takes_the_same_steps() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let inf = f64::INFINITY;
    let some = [0.0, -0.0, 1.0, -1.5, 6.1e-5, 6.0e-5, -5.97e-8, 1e-40, -1e-45, 65504.0, 3.39e38, inf, -inf, f64::NAN];
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = Tensor::new_with(some, dtype)?.unsqueeze(1)?;
        let y = Tensor::new_with([-inf, -1.0, 0.0, 1e-7, 1.0, inf, f64::NAN], dtype)?;
        let on = |d: Device| -> Result<Vec<u64>> {
            let numbers = x.to(d)?.nextafter(&y.to(d)?)?.to_vec::<f64>()?;
            Ok(numbers.into_iter().map(|v| if v.is_nan() { 0 } else { v.to_bits() }).collect())
        };
        assert_eq!(on(device)?, on(Device::Cpu)?, "{dtype}");
    }
    Ok(())
}

/// Parts of odd sizes, which go to memory one after another, and those that do not.
#[test]
fn joined_and_reordered() -> Result<()> {
    let _turn = turn();
    let exact = |name: &str, x: &Tensor, f: &dyn Fn(&Tensor) -> Result<Tensor>| agree(name, 0.0, &[x], |x| f(&x[0]));
    for dtype in [DType::F32, DType::BF16, DType::I64, DType::F64, DType::I16, DType::Bool] {
        let x = randn(&[37, 130])?.mul(100.0)?;
        let x = if dtype == DType::Bool { x.gt(0)? } else { x.to_dtype(dtype)? };
        exact("cat", &x, &|x| cat(&[x, &x.slice(0, Some(3), Some(4), 1)?, &x.slice(0, Some(20), None, 1)?], 0))?;
        exact("cat of vectors", &x, &|x| {
            let x = x.reshape([-1isize])?;
            let part = |from, to| x.slice(0, Some(from), Some(to), 1);
            cat(&[&part(1, 8)?, &part(8, 4500)?, &part(0, 0)?, &part(3, 4)?], 0)
        })?;
        exact("cat of columns", &x, &|x| cat(&[x, x], 1))?;
        exact("stack", &x, &|x| stack(&[x, x, x], 0))?;
        exact("cat of two dtypes", &x, &|x| cat(&[x, &x.to_dtype(DType::F64)?], 0))?;
        exact("roll", &x, &|x| x.roll([3], [0]))?;
        exact("roll of columns", &x, &|x| x.roll([-3, 5], [1, 0]))?;
        exact("nonzero", &x, &|x| x.nonzero())?;
        exact("unique", &x, &|x| x.unique())?;
        exact("flip", &x, &|x| x.flip([1]))?;
        exact("flip of both", &x, &|x| x.slice(1, Some(1), None, 1)?.flip([0, 1]))?;
        exact("flip of rows", &x, &|x| x.t()?.flip([0]))?;
        let rows = Tensor::new([5i64, 0, 36, 5, 35])?;
        let on = |x: &Tensor| rows.to(x.device());
        exact("index_select", &x, &|x| x.index_select(0, &on(x)?))?;
        exact("index_select of columns", &x, &|x| x.index_select(1, &on(x)?))?;
        exact("index_copy", &x, &|x| {
            x.index_copy(0, &on(x)?.slice(0, Some(0), Some(3), 1)?, &x.slice(0, Some(0), Some(3), 1)?)
        })?;
    }
    Ok(())
}
