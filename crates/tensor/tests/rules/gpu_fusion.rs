//! Captured steps on a GPU become fused ones once their kernels are compiled; without a GPU these tests say so and
//! pass.

use rushlight_core::backend::Call;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Device, Result};
use rushlight_tensor::program::{Program, Slot};
use rushlight_tensor::{AttentionOptions, Capture, CrossEntropyOptions, Tensor, autocast, cat, compile, synchronize};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The GPU, and this test's turn on it: no other thread may wait for the device while a step is recorded.
fn gpu() -> Option<(Device, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let (device, turn) = (Device::Cuda(0), lock(&TURN));
    match Tensor::ones_with([1], device) {
        Ok(_) => Some((device, turn)),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

fn ramp(shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 60.0).collect();
    Tensor::from_slice(&values, shape)?.to_dtype(dtype)?.to(device)
}

fn is_fused(capture: &Capture) -> bool {
    capture.programs().any(|program| {
        program.calls().iter().any(|call| matches!(call, Call::Fused(_) | Call::FusedReduce(_) | Call::FusedRows(_)))
    })
}

/// An adaptive norm and a gate, written out as models do: `x + g * silu(y * (1 + b) + a)`, with its backward.
fn step(x: &Tensor, [a, b, g]: [&Tensor; 3]) -> Result<Tensor> {
    [a, b, g].iter().for_each(|p| p.zero_grad());
    // Work on the host, as of an optimizer that counts its steps there, is no part of the device's step.
    let _count = Tensor::ones([2])?.add(1.0)?.sum(..)?;
    let y = x.mul(&b.add(1.0)?)?.add(a)?;
    let y = y.mul(&y.sigmoid()?)?.mul(g)?.add(x)?;
    let loss = y.mul(&y)?.mean(..)?;
    loss.backward()?;
    Ok(loss)
}

#[test]
fn captured_steps_are_fused() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    let large = std::env::var_os("RUSHLIGHT_MEASURE").is_some();
    let (rows, width) = if large { (8192, 1024) } else { (64, 32) };
    for dtype in [DType::F32, DType::BF16] {
        let x = ramp(&[rows, width], dtype, device)?;
        // Gradients of broadcast factors are sums of products that nothing else reads.
        let leaf = |shape: &[usize]| ramp(shape, dtype, device)?.requires_grad_(true);
        let p = [&leaf(&[rows, width])?, &leaf(&[width])?, &leaf(&[rows, 1])?];
        let close = if dtype == DType::F32 { 1e-5 } else { 8e-3 };
        let expected = step(&x, p)?.to_dtype(DType::F32)?.item::<f32>()?;
        let grads = p.map(|p| p.grad().expect("a gradient").to_vec::<f32>());
        let mut capture = Capture::new().device(device);
        let began = Instant::now();
        let mut times = [Duration::MAX; 2];
        while !is_fused(&capture) {
            let loss = capture.run(std::array::from_ref(&x), |[x]| step(x, p))?;
            assert!((loss.item::<f32>()? - expected).abs() <= close * expected.abs());
            assert!(began.elapsed() < Duration::from_secs(120), "the kernels are not compiled");
            for _ in 0..if capture.graphs() > 0 { 20 } else { 0 } {
                if is_fused(&capture) {
                    break;
                }
                let start = Instant::now();
                capture.run(std::array::from_ref(&x), |[x]| step(x, p))?;
                synchronize(&device)?;
                if !is_fused(&capture) {
                    times[0] = times[0].min(start.elapsed());
                }
            }
        }
        let sum = |call: &&Call<_>| matches!(call, Call::FusedReduce(_) | Call::FusedRows(_));
        let sums = |p: &Program| p.calls().iter().filter(sum).count();
        assert!(capture.programs().map(sums).sum::<usize>() >= 2, "sums are not fused");
        println!("{dtype}: fused after {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
        for _ in 0..20 {
            let start = Instant::now();
            let loss = capture.run(std::array::from_ref(&x), |[x]| step(x, p))?;
            synchronize(&device)?;
            times[1] = times[1].min(start.elapsed());
            assert!((loss.item::<f32>()? - expected).abs() <= close * expected.abs());
        }
        for (p, expected) in p.iter().zip(grads) {
            // A kernel of several rows may contract a product and a sum.
            let found = p.grad().expect("a gradient").to_vec::<f32>()?;
            let scale = found.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let tolerance = scale * if dtype == DType::F32 { 1e-5 } else { 1e-2 };
            assert!(found.iter().zip(&expected?).all(|(a, b)| (a - b).abs() <= tolerance), "{dtype}");
        }
        println!("{dtype} [{rows}, {width}]: {:?} op by op, {:?} fused", times[0], times[1]);
    }
    Ok(())
}

/// Norms and a softmax, written out: rows are reduced forward and backward.
fn rows(x: &Tensor, [w, b]: [&Tensor; 2]) -> Result<Tensor> {
    [w, b].iter().for_each(|p| p.zero_grad());
    let low = x.mul(b)?;
    let y = low.to_dtype(DType::F32)?;
    let rms = y.mul(&y.mul(&y)?.mean_dims(-1, true)?.add(1e-5)?.rsqrt()?)?.to_dtype(x.dtype())?.mul(w)?;
    let middle = rms.sub(&rms.mean_dims(-1, true)?)?;
    let layer = middle.div(&middle.mul(&middle)?.mean_dims(-1, true)?.add(1e-3)?.sqrt()?)?;
    let e = layer.sub(&layer.amax(-1, true)?.detach())?.exp()?;
    let soft = e.div(&e.sum_dims(-1, true)?)?;
    let loss = soft.mul(&low)?.to_dtype(DType::F32)?.sum(..)?;
    loss.backward()?;
    Ok(loss)
}

#[test]
fn rows_are_reduced_in_one_pass() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    // Vectors and odd lengths; several rows of a warp, one of a block, and rows that do not stay in registers.
    for (dtype, shape) in [
        (DType::F32, vec![9, 8, 64]),
        (DType::F32, vec![40, 37]),
        (DType::BF16, vec![4, 33, 768]),
        (DType::BF16, vec![48, 3001]),
        (DType::F32, vec![33, 8192]),
    ] {
        let x = ramp(&shape, dtype, device)?;
        let width = *shape.last().unwrap();
        let leaf = |shape: &[usize]| ramp(shape, dtype, device)?.add(1.5)?.detach().requires_grad_(true);
        let p = [&leaf(&[width])?, &leaf(&shape)?];
        let close = if dtype == DType::F32 { 1e-4 } else { 2e-2 };
        let count = fused_as_op_by_op(&format!("{dtype} {shape:?}"), &x, p, rows, close)?;
        assert!(count(|call| matches!(call, Call::FusedRows(_))) >= 2, "rows are not fused");
    }
    Ok(())
}

/// Compares a captured step, once it is fused, with the same op by op: the loss and the gradients of `p`. Returns a
/// function that counts the calls of the fused program.
fn fused_as_op_by_op<const N: usize>(
    what: &str,
    x: &Tensor,
    p: [&Tensor; N],
    step: fn(&Tensor, [&Tensor; N]) -> Result<Tensor>,
    close: f32,
) -> Result<impl Fn(fn(&Call<Slot>) -> bool) -> usize + use<N>> {
    let expected = step(x, p)?.item::<f32>()?;
    let grads = p.map(|p| p.grad().expect("a gradient").to_vec::<f32>());
    let mut capture = Capture::new().device(x.device());
    let began = Instant::now();
    while !is_fused(&capture) {
        capture.run(std::array::from_ref(x), |[x]| step(x, p))?;
        assert!(began.elapsed() < Duration::from_secs(120), "the kernels are not compiled");
    }
    let loss = capture.run(std::array::from_ref(x), |[x]| step(x, p))?.item::<f32>()?;
    assert!((loss - expected).abs() <= close * expected.abs(), "{what}: {loss}, not {expected}");
    for (p, expected) in p.iter().zip(grads) {
        let (found, expected) = (p.grad().expect("a gradient").to_vec::<f32>()?, expected?);
        let scale = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let worst = found.iter().zip(&expected).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(worst <= close * scale, "{what}: gradients are off by {worst} of {scale}");
    }
    let calls: Vec<Call<Slot>> = capture.programs().flat_map(|p| p.calls().to_vec()).collect();
    Ok(move |wanted: fn(&Call<Slot>) -> bool| calls.iter().filter(|call| wanted(call)).count())
}

/// A residual addition, a norm without parameters, and its scale, shift and gate by image, as diffusion transformers
/// have them.
fn modulated(x: &Tensor, [y, a, b, w]: [&Tensor; 4]) -> Result<Tensor> {
    [y, a, b, w].iter().for_each(|p| p.zero_grad());
    let x = x.add(&y.mul(b)?)?;
    let width = *x.shape().last().expect("rows");
    let normed = x.layer_norm(&[width], None, None, 1e-6)?;
    let mixed = normed.mul(&b.add(1.0)?)?.add(a)?.matmul(w)?;
    let rms = x.add(&mixed)?.rms_norm(&[width], None, Some(1e-6))?;
    let loss = rms.mul(&mixed)?.to_dtype(DType::F32)?.sum(..)?;
    loss.backward()?;
    Ok(loss)
}

#[test]
fn norms_fuse_with_their_neighbours() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    for (dtype, shape) in [(DType::F32, [3, 16, 64]), (DType::BF16, [2, 24, 768]), (DType::F32, [4, 9, 37])] {
        let x = ramp(&shape, dtype, device)?;
        let leaf = |shape: &[usize], by: f64| ramp(shape, dtype, device)?.mul(by)?.detach().requires_grad_(true);
        let [images, _, width] = shape;
        let p = [
            &leaf(&shape, 1.0)?,
            &leaf(&[images, 1, width], 0.5)?,
            &leaf(&[images, 1, width], 0.3)?,
            &leaf(&[width, width], 0.1)?,
        ];
        let close = if dtype == DType::F32 { 1e-4 } else { 3e-2 };
        let count = fused_as_op_by_op(&format!("{dtype} {shape:?}"), &x, p, modulated, close)?;
        assert!(count(|call| matches!(call, Call::FusedRows(_))) >= 3, "norms are not fused");
        let norm = |call: &Call<Slot>| matches!(call, Call::RowNorm(_) | Call::RowNormBackward(_));
        // In bfloat16, where the loss's gradient is cast first, the RMS norm's gradients stay a call of their own.
        assert!(count(norm) <= if dtype == DType::F32 { 0 } else { 1 }, "norms are calls of their own");
    }
    Ok(())
}

/// A block with a norm before its layers, in mixed precision.
fn block(x: &Tensor, [weight, bias, w, v]: [&Tensor; 4]) -> Result<Tensor> {
    [weight, bias, w, v].iter().for_each(|p| p.zero_grad());
    let width = *x.shape().last().expect("rows");
    let loss = autocast(DType::BF16, || {
        let x = x.matmul(w)?;
        let y = x.add(&x.layer_norm(&[width], Some(weight), Some(bias), 1e-5)?.matmul(v)?.gelu()?)?;
        y.to_dtype(DType::F32)?.square()?.mean(..)
    })?;
    loss.backward()?;
    Ok(loss)
}

#[test]
fn gradients_of_norms_in_mixed_precision() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    for shape in [[3, 40, 64], [2, 24, 768], [2, 9, 36]] {
        let leaf = |shape: &[usize], by: f64| ramp(shape, DType::F32, device)?.mul(by)?.detach().requires_grad_(true);
        let width = shape[2];
        let p =
            [&leaf(&[width], 1.0)?, &leaf(&[width], 0.5)?, &leaf(&[width, width], 0.3)?, &leaf(&[width, width], 0.1)?];
        let x = ramp(&shape, DType::F32, device)?;
        let count = fused_as_op_by_op(&format!("{shape:?}"), &x, p, block, 3e-2)?;
        let narrow = |call: &Call<Slot>| matches!(call, Call::RowNormBackward(c) if c.dx.is_none() && c.low.is_some());
        assert_eq!(count(narrow), 1, "the gradient is written in bfloat16 alone");
    }
    Ok(())
}

/// Attention of four heads that share two of keys and values, which the model repeats.
fn shared(x: &Tensor, [k, v]: [&Tensor; 2]) -> Result<Tensor> {
    [k, v].iter().for_each(|p| p.zero_grad());
    let repeated = |t: &Tensor| t.transpose(1, 2)?.repeat_interleave(2i64, Some(1));
    let options = AttentionOptions::default().is_causal(true);
    let y = x.transpose(1, 2)?.scaled_dot_product_attention(&repeated(&k.mul(1.5)?)?, &repeated(v)?, &options)?;
    let loss = y.mul(&y)?.to_dtype(DType::F32)?.sum(..)?;
    loss.backward()?;
    Ok(loss)
}

#[test]
fn heads_share_keys_that_a_model_repeats() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    let x = ramp(&[2, 40, 4, 64], DType::BF16, device)?;
    let leaf = |by: f64| {
        let t = ramp(&[2, 40, 2, 64], DType::F32, device)?.mul(by)?.to_dtype(DType::BF16)?;
        t.detach().requires_grad_(true)
    };
    let count = fused_as_op_by_op("shared heads", &x, [&leaf(1.0)?, &leaf(-0.7)?], shared, 2e-2)?;
    let by_two = |call: &Call<Slot>| match call {
        Call::Attention(c) => c.of.k.layout.shape()[1] == 2,
        Call::AttentionBackward(c) => c.dk.layout.shape()[1] == 2 && c.of.v.layout.shape()[1] == 2,
        _ => false,
    };
    assert_eq!(count(by_two), 2, "keys and values are repeated");
    Ok(())
}

#[test]
fn compiled_functions_run_on_gpus() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    let x = ramp(&[33, 70], DType::F32, device)?;
    let w = ramp(&[70], DType::F32, device)?.requires_grad_(true)?;
    let mut f = compile(|[x]: &[Tensor; 1]| x.mul(&w)?.tanh()?.add(x)?.mean(..));
    for _ in 0..4 {
        w.zero_grad();
        f.run(std::array::from_ref(&x))?.backward()?;
        let ours = w.grad().expect("a gradient").to_vec::<f32>()?;
        w.zero_grad();
        x.mul(&w)?.tanh()?.add(&x)?.mean(..)?.backward()?;
        let theirs = w.grad().expect("a gradient").to_vec::<f32>()?;
        assert!(ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() <= 1e-6), "{ours:?}\n{theirs:?}");
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(f.compiled().recordings(), 1, "{:?}", f.compiled().reasons());
    Ok(())
}

#[test]
fn topk_is_that_of_the_cpu() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    for (shape, k) in [([300, 8], 2), ([70, 31], 31), ([9, 33], 5), ([5, 4096], 50), ([3, 700], 64), ([2, 9000], 7)] {
        for dtype in [DType::F32, DType::BF16, DType::I64] {
            let x = ramp(&shape, DType::F32, Device::Cpu)?.mul(60.0)?.to_dtype(dtype)?;
            for largest in [true, false] {
                let (v, i) = x.topk(k, -1, largest)?;
                let (gv, gi) = x.to(device)?.topk(k, -1, largest)?;
                assert_eq!(gv.to_vec::<f64>()?, v.to_vec::<f64>()?, "{shape:?} {dtype}");
                let picked = x.gather(-1, &gi.to(Device::Cpu)?)?;
                assert_eq!(picked.to_vec::<f64>()?, v.to_vec::<f64>()?, "{shape:?} {dtype}");
                assert_eq!(i.shape(), gi.shape());
            }
        }
    }
    if std::env::var_os("RUSHLIGHT_MEASURE").is_some() {
        for (shape, k) in [([65536, 8], 2), ([1024, 4096], 50)] {
            let x = ramp(&shape, DType::F32, device)?;
            let mut best = [Duration::MAX; 2];
            for _ in 0..20 {
                for (time, sort) in best.iter_mut().zip([false, true]) {
                    let start = Instant::now();
                    if sort {
                        x.sort(-1, true)?.0
                    } else {
                        x.topk(k, -1, true)?.0
                    };
                    synchronize(&device)?;
                    *time = (*time).min(start.elapsed());
                }
            }
            println!("topk {k} of {shape:?}: {:?}, by sorting {:?}", best[0], best[1]);
        }
    }
    Ok(())
}

/// Ops that run as programs of several calls, and others whose kernels have forms of their own.
#[test]
fn composed_ops_are_those_of_the_cpu() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    type Op = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let ops: [(&str, Op); 14] = [
        ("i0", |x, _| x.mul(9.0)?.i0()),
        ("zeta", |x, y| x.abs()?.add(2.0)?.zeta(&y.abs()?.add(0.5)?)),
        ("nextafter", |x, y| x.nextafter(y)),
        ("tril", |x, _| x.tril(3)),
        ("triu", |x, _| x.triu(-2)),
        ("glu", |x, _| x.glu(-1)),
        ("nansum", |x, y| x.div(&y.mul(60.0)?.round()?.eq(3.0)?.logical_not()?.mul(&x.abs()?)?)?.nansum(0)),
        ("logical_xor", |x, y| x.mul(60.0)?.round()?.logical_xor(&y.mul(3.0)?.round()?)),
        ("logical_and", |x, y| x.mul(3.0)?.round()?.logical_and(&y.mul(3.0)?.round()?)),
        ("nanmean", |x, y| x.div(&y.mul(60.0)?.round()?.eq(3.0)?.logical_not()?.mul(&x.abs()?)?)?.nanmean(1)),
        ("transposed", |x, y| x.add(y)?.t()?.contiguous()),
        ("transposed in part", |x, y| x.mul(y)?.slice(1, Some(1), Some(24), 1)?.t()?.contiguous()),
        ("nonzero", |x, _| x.mul(3.0)?.round()?.nonzero()),
        ("adaptive_avg_pool2d", |x, _| x.unsqueeze(0)?.unsqueeze(0)?.adaptive_avg_pool2d(1)),
    ];
    for dtype in [DType::F32, DType::BF16] {
        let cpu = [ramp(&[37, 24], dtype, Device::Cpu)?, ramp(&[24, 37], dtype, Device::Cpu)?.t()?.contiguous()?];
        let own = [cpu[0].to(device)?, cpu[1].to(device)?];
        for (name, op) in ops {
            let expected = op(&cpu[0], &cpu[1])?;
            // The first run records it.
            for _ in 0..3 {
                let found = op(&own[0], &own[1])?;
                assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()), "{name}");
                let close = if dtype == DType::F32 { 1e-5 } else { 1e-2 };
                for (a, b) in found.to_vec::<f64>()?.into_iter().zip(expected.to_vec::<f64>()?) {
                    let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= close * (b.abs() + 0.1);
                    assert!(same, "{name} {dtype}: {a}, not {b}");
                }
            }
        }
        let log = cpu[0].log_softmax(-1)?;
        let target = Tensor::arange(0, 37, 1)?.remainder(24)?;
        let options = CrossEntropyOptions::default().ignore_index(5);
        let expected = log.nll_loss(&target, &options)?.item::<f64>()?;
        for _ in 0..2 {
            let found = log.to(device)?.nll_loss(&target.to(device)?, &options)?.item::<f64>()?;
            assert!((found - expected).abs() <= 1e-2 * expected.abs(), "nll_loss {dtype}: {found}, not {expected}");
        }
    }
    Ok(())
}

/// `x * cos + cat([-right, left]) * sin` of heads in the memory order of a product, then its gradient.
fn rotated(x: &Tensor, [cos, sin]: [&Tensor; 2], dy: &Tensor) -> Result<[Tensor; 2]> {
    let heads = x.detach().requires_grad_(true)?;
    let x = heads.transpose(1, 2)?;
    let parts = x.chunk(2, -1)?;
    let turned = cat(&[&parts[1].neg()?, &parts[0]], -1)?;
    let y = x.mul(cos)?.add(&turned.mul(sin)?)?;
    y.mul(dy)?.sum(..)?.backward()?;
    Ok([y.detach(), heads.grad().expect("a gradient")])
}

#[test]
fn rotary_embeddings_are_few_kernels() -> Result<()> {
    let Some((device, _turn)) = gpu() else { return Ok(()) };
    for dtype in [DType::F32, DType::BF16] {
        let x = ramp(&[2, 16, 4, 32], dtype, device)?;
        let angles = [ramp(&[16, 32], dtype, device)?, ramp(&[16, 32], dtype, device)?.flip(0)?];
        let dy = ramp(&[2, 4, 16, 32], dtype, device)?;
        let expected = rotated(&x, angles.each_ref(), &dy)?.map(|t| t.to_vec::<f32>());
        let mut capture = Capture::new().device(device);
        let began = Instant::now();
        let mut found = None;
        while !is_fused(&capture) || found.is_none() {
            assert!(began.elapsed() < Duration::from_secs(120), "the kernels are not compiled");
            found = Some(capture.run(std::array::from_ref(&x), |[x]| rotated(x, angles.each_ref(), &dy))?);
        }
        let kernels = |p: &Program| p.calls().iter().filter(|c| !matches!(c, Call::Copy(_))).count();
        // The outputs are copied to where they are asked for. The gradient is two kernels where the joined halves take
        // the place of a value that was freed.
        let most = capture.programs().map(kernels).max();
        assert!(most.is_some_and(|n| n <= 3), "{}", capture.programs().next().unwrap());
        for (found, expected) in found.into_iter().flatten().zip(expected) {
            let (found, expected) = (found.to_vec::<f32>()?, expected?);
            let scale = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let close = scale * if dtype == DType::F32 { 1e-5 } else { 2e-2 };
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= close), "{dtype}");
        }
    }
    Ok(())
}
