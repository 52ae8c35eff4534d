//! Channels-last images, and batch norms with the ops that follow them, on another device than the CPU.

use crate::device::{agree, device, learn, randn, turn};
use rushlight_core::{DType, Device, Result};
use rushlight_tensor::autograd::{Backward, no_grad};
use rushlight_tensor::{AvgPool, BatchNormOptions, Capture, ConvOptions, MaxPool, Tensor, synchronize};

/// `[batch, height, width, channels]` as images.
fn images(x: &Tensor) -> Result<Tensor> {
    x.permute([0, 3, 1, 2])
}

#[test]
fn pooling_with_channels_innermost() -> Result<()> {
    let _turn = turn();
    for (channels, dtype) in [(8, DType::F32), (3, DType::F32), (16, DType::BF16), (5, DType::F64)] {
        let x = randn(&[3, 13, 10, channels])?.to_dtype(dtype)?;
        let most = if dtype == DType::BF16 { 2e-2 } else { 1e-5 };
        for pool in [
            MaxPool::new(3).stride(2).padding(1),
            MaxPool::new(2),
            MaxPool::new(3).stride(1).dilation(2).padding(1),
            MaxPool::new(3).stride(2).ceil_mode(true),
        ] {
            learn("max_pool2d", most, &[&x], |t| images(&t[0])?.max_pool2d(pool))?;
        }
        for pool in [AvgPool::new(3).stride(2).padding(1), AvgPool::new(2).count_include_pad(false)] {
            learn("avg_pool2d", most, &[&x], |t| images(&t[0])?.avg_pool2d(pool))?;
        }
        learn("adaptive_avg_pool2d", most, &[&x], |t| images(&t[0])?.adaptive_avg_pool2d([4, 3]))?;
        learn("adaptive_avg_pool2d to one pixel", most, &[&x], |t| images(&t[0])?.adaptive_avg_pool2d([1, 1]))?;
        learn("adaptive_max_pool2d", most, &[&x], |t| images(&t[0])?.adaptive_max_pool2d([5, 4]))?;
        agree("indices", 0.0, &[&x], |t| Ok(images(&t[0])?.max_pool2d_with_indices(MaxPool::new(3).stride(2))?.1))?;
    }
    Ok(())
}

/// The ops that follow a batch norm.
#[derive(Clone, Copy, Debug)]
enum After {
    Relu,
    ReluInPlace,
    Add,
    AddRelu,
    AddedToShortcut,
    AllInPlace,
    /// The normalised tensor and the sum are used again.
    Kept,
    /// The normalised tensor is added to itself.
    Twice,
    /// Another op comes between.
    Between,
}

/// Runs one case: values, running statistics and gradients. With `apart`, every call is synchronised and gradients are
/// read in between, so that each op runs its own kernel.
fn normalise(after: After, x: &Tensor, apart: bool, recorded: bool) -> Result<Vec<Tensor>> {
    let device = x.device();
    let gap = || if apart { synchronize(&device) } else { Ok(()) };
    let channels = x.shape()[1];
    let leaf = |t: Tensor| t.to(device)?.detach().requires_grad_(recorded);
    let stat = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let line = |from: f64, to: f64| Tensor::linspace_with(from, to, channels, stat);
    let (w, b) = (leaf(line(-1.0, 2.0)?)?, leaf(line(0.5, -0.5)?)?);
    let short = leaf(x.detach().neg()?.to_dtype(DType::F32)?.cos()?.to_dtype(x.dtype())?)?;
    let x = leaf(x.clone())?;
    let running = [Tensor::zeros_with([channels], (stat, device))?, Tensor::ones_with([channels], (stat, device))?];
    // Not a leaf, so that in-place ops may change it.
    let shortcut = short.mul(1.0)?;
    let norm = BatchNormOptions::default().weight(&w).bias(&b).training(true);
    let norm = norm.running_mean(&running[0]).running_var(&running[1]);
    // The input of the norm is dropped as soon as nothing needs it.
    let y = x.mul(2.0)?.batch_norm(&norm)?;
    gap()?;
    if apart && recorded {
        y.register_hook(|_| Ok(None))?;
    }
    let mut out = Vec::new();
    let z = match after {
        After::Relu => y.relu()?,
        After::ReluInPlace => y.relu_()?.clone(),
        After::Add => y.add(&shortcut)?,
        After::AddRelu => {
            let sum = shortcut.add(&y)?;
            gap()?;
            drop(y);
            sum.relu()?
        }
        After::AddedToShortcut => {
            shortcut.add_(&y)?;
            gap()?;
            drop(y);
            shortcut.relu()?
        }
        After::AllInPlace => {
            y.add_(&shortcut)?;
            gap()?;
            y.relu_()?.clone()
        }
        After::Kept => {
            let sum = y.add(&shortcut)?;
            gap()?;
            let z = sum.relu()?;
            gap()?;
            z.mul(&y)?.add(&sum)?
        }
        After::Twice => y.add(&y)?.relu()?,
        After::Between => {
            let other = shortcut.exp()?;
            gap()?;
            y.add(&other)?.relu()?
        }
    };
    gap()?;
    if recorded {
        let dy = Tensor::arange(0, z.numel() as i64, 1)?.to_dtype(DType::F32)?.mul(0.7)?.sin()?;
        let dy = dy.reshape(z.shape())?.to_dtype(z.dtype())?.to(device)?;
        z.backward_with(Backward::default().gradient(&dy))?;
        out.extend([&x, &w, &b, &short].into_iter().filter_map(|t| t.grad()));
    }
    out.insert(0, z);
    out.extend(running);
    Ok(out)
}

#[test]
fn batch_norms_with_what_follows() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let cases = [
        After::Relu,
        After::ReluInPlace,
        After::Add,
        After::AddRelu,
        After::AddedToShortcut,
        After::AllInPlace,
        After::Kept,
        After::Twice,
        After::Between,
    ];
    for (shape, dtype, last) in
        [([4, 6, 5, 3], DType::F32, false), ([2, 16, 6, 5], DType::BF16, true), ([3, 8, 4, 4], DType::F64, true)]
    {
        let x = randn(&shape)?.to_dtype(dtype)?.to(device)?;
        let x = if last { x.permute([0, 2, 3, 1])?.contiguous()?.permute([0, 3, 1, 2])? } else { x };
        for after in cases {
            for recorded in [true, false] {
                let run = |apart| normalise(after, &x, apart, recorded);
                let (got, want) = if recorded {
                    (run(false)?, run(true)?)
                } else {
                    no_grad(|| Ok::<_, rushlight_core::Error>((run(false)?, run(true)?)))?
                };
                assert_eq!(got.len(), want.len());
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let (got, want) = (got.to_vec::<f64>()?, want.to_vec::<f64>()?);
                    let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    let most = if i == 0 { 0.0 } else { 1e-5 };
                    assert!(off <= most, "{after:?} of {dtype}, recorded {recorded}: value {i} is off by {off:e}");
                }
            }
        }
    }
    Ok(())
}

/// A block of a residual network; a product adds the shortcut's gradient.
#[test]
fn residual_blocks() -> Result<()> {
    let _turn = turn();
    let (x, w, u) = (randn(&[2, 6, 6, 16])?, randn(&[8, 16, 1, 1])?, randn(&[16, 8, 3, 3])?);
    let (scale, shift) = (randn(&[8])?, randn(&[8])?);
    learn("block", 2e-3, &[&x, &w, &u, &scale, &shift], |t| {
        let x = images(&t[0])?.tanh()?;
        let y = x.conv2d(&t[1], None, ConvOptions::default())?;
        let y = y.batch_norm(&BatchNormOptions::default().weight(&t[3]).bias(&t[4]).training(true))?.silu()?;
        y.conv2d(&t[2], None, ConvOptions::default().padding(1))?.add(&x)?.silu()
    })
}

/// One input channel per output channel, channels innermost: all channel counts, strides, dilations and paddings.
#[test]
fn depthwise_convolutions() -> Result<()> {
    let _turn = turn();
    // Batch, channels, height, width, kernel's height and width, stride, padding, dilation.
    for (i, [n, c, h, w, kh, kw, stride, padding, dilation]) in [
        [2, 32, 9, 14, 7, 7, 1, 3, 1],
        [3, 6, 11, 10, 3, 3, 1, 1, 1],
        [2, 5, 8, 13, 3, 5, 2, 2, 1],
        [1, 66, 12, 7, 5, 3, 1, 6, 2],
        [2, 64, 10, 9, 3, 3, 2, 1, 2],
        [2, 4, 5, 30, 1, 13, 1, 0, 1],
    ]
    .into_iter()
    .enumerate()
    {
        let (x, w, b) = (randn(&[n, h, w, c])?, randn(&[c, 1, kh, kw])?, randn(&[c])?);
        let options = ConvOptions::default().stride(stride).padding(padding).dilation(dilation).groups(c);
        for dtype in [DType::F32, [DType::BF16, DType::F16, DType::F64][i % 3]] {
            let most = match dtype {
                DType::F64 => 1e-12,
                // Gradients of biases are sums that almost cancel.
                DType::F32 => 1e-4,
                _ => 2e-2,
            };
            let [x, w, b] = [x.to_dtype(dtype)?, w.to_dtype(dtype)?, b.to_dtype(dtype)?];
            learn(&format!("depthwise {i}, {dtype}"), most, &[&x, &w, &b], |t| {
                let y = images(&t[0])?.conv2d(&t[1], Some(&t[2]), options)?;
                assert_eq!(y.strides()[1], 1, "channels are innermost");
                Ok(y)
            })?;
        }
    }
    Ok(())
}

/// Gradients of a ReLU large enough to be deferred: after a batch norm, after a sum, and after neither.
#[test]
fn gradients_of_large_relus() -> Result<()> {
    let _turn = turn();
    let x = randn(&[2, 32, 64, 32])?.to_dtype(DType::F64)?;
    let (w, b) = (randn(&[32])?.to_dtype(DType::F64)?, randn(&[32])?.to_dtype(DType::F64)?);
    for last in [false, true] {
        let image = |x: &Tensor| if last { images(x) } else { x.reshape([2, 32, 64, 32]) };
        let norm = |t: &[Tensor]| {
            image(&t[0])?.batch_norm(&BatchNormOptions::default().weight(&t[1]).bias(&t[2]).training(true))
        };
        learn("of a batch norm", 1e-10, &[&x, &w, &b], |t| norm(t)?.relu())?;
        learn("of a sum", 1e-10, &[&x, &w, &b], |t| norm(t)?.add(&image(&t[0])?)?.relu()?.mul(3.0))?;
        learn("of two batch norms", 1e-10, &[&x, &w, &b], |t| norm(t)?.add(&norm(t)?.tanh()?)?.relu())?;
        learn("of a product", 1e-10, &[&x, &w, &b], |t| norm(t)?.mul(&image(&t[0])?)?.relu()?.mul(2.0)?.relu())?;
        learn("of a batch norm that is used twice", 1e-10, &[&x, &w, &b], |t| {
            let y = norm(t)?;
            y.relu()?.add(&y)
        })?;
    }
    Ok(())
}

/// A captured step gets its inputs in the memory order of the recorded ones, whatever order later ones have and
/// wherever they are.
#[test]
fn captured_steps_keep_the_memory_order_of_inputs() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    let (mut capture, mut orders) = (Capture::new(), Vec::new());
    for i in 0..6 {
        let x = images(&randn(&[2, 5, 4, 3])?)?;
        let x = if i == 4 { x.contiguous()? } else { x };
        let x = if i == 5 { x } else { x.to(device)?.in_order_of(&x)? };
        let inputs = [x.clone()];
        let got = capture.run(&inputs, |[x]: &[Tensor; 1]| {
            orders.push((x.device(), x.strides().to_vec()));
            x.to(device)?.exp()
        })?;
        assert_eq!(got.to_vec::<f32>()?, x.to(device)?.exp()?.to_vec::<f32>()?, "step {i}");
    }
    let first = &orders[0].1;
    assert_eq!(first[..], [60, 1, 12, 3]);
    // The xpu engine records no steps: there each runs on the inputs as they are.
    if let Device::Xpu(_) = device {
        assert_eq!((capture.graphs(), orders.len()), (0, 6));
        return Ok(());
    }
    let recorded = orders.iter().filter(|(at, _)| *at == device);
    assert!(recorded.into_iter().all(|(_, strides)| strides == first), "{orders:?}");
    Ok(())
}
