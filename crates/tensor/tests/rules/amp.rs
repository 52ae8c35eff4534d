//! Autocast against PyTorch's per-op policy, and its rules.

use rushlight_core::{DType, Result};
use rushlight_tensor::autograd::{checkpoint, grad};
use rushlight_tensor::*;

/// The case of this name in `tests/goldens/amp.py`.
fn case(name: &str, x: &Tensor, y: &Tensor, b: &Tensor, i: &Tensor, v: &Tensor) -> Result<Tensor> {
    let classes = Tensor::new([0i64, 1, 2])?;
    let mean = Reduction::Mean;
    match name {
        "matmul" => x.matmul(y),
        "matmul_vectors" => v.matmul(v),
        "mm" => x.mm(y),
        "bmm" => b.bmm(b),
        "addmm" => x.addmm(x, y, 1, 1),
        "baddbmm" => b.baddbmm(b, b, 1, 1),
        "linear" => x.linear(y, Some(v)),
        "einsum" => einsum("ij,jk->ik", &[x, y]),
        "conv2d" => i.conv2d(i, None, ConvOptions::default()),
        "conv_transpose2d" => i.conv_transpose2d(i, None, ConvTransposeOptions::default()),
        "attention" => b.scaled_dot_product_attention(b, b, &AttentionOptions::default()),
        "mse_loss" => x.mse_loss(y, mean),
        "l1_loss" => x.l1_loss(y, mean),
        "smooth_l1_loss" => x.smooth_l1_loss(y, 1.0, mean),
        "huber_loss" => x.huber_loss(y, 1.0, mean),
        "cross_entropy" => x.cross_entropy(&classes),
        "cross_entropy_soft" => x.cross_entropy(y),
        "nll_loss" => x.nll_loss(&classes, &CrossEntropyOptions::default()),
        "kl_div" => x.kl_div(y, false, Reduction::Sum),
        "bce" => x.binary_cross_entropy(y, None, mean),
        "bce_with_logits" => x.binary_cross_entropy_with_logits(y, None, None, mean),
        "soft_margin_loss" => x.soft_margin_loss(y, mean),
        "prod" => x.prod(..),
        "cdist" => x.cdist(y, 2.0),
        "inv" => x.inv(),
        "reflect_pad" => i.pad(&[1, 1, 1, 1], PadMode::Reflect),
        "constant_pad" => i.pad(&[1, 1, 1, 1], PadMode::Constant(0.into())),
        "add" => x.add(y),
        "add_mixed" => x.to_dtype(DType::F32)?.add(&y.to_dtype(DType::BF16)?),
        "exp" => x.exp(),
        "softmax" => x.softmax(-1),
        "layer_norm" => x.layer_norm(&[3], None, None, 1e-5),
        "gelu" => x.gelu(),
        "sum" => x.sum(..),
        "cat_mixed" => cat(&[&x.to_dtype(DType::F32)?, &y.to_dtype(DType::BF16)?], 0),
        other => panic!("tests/goldens/amp.py has the case {other}, this test has not"),
    }
}

#[test]
fn every_op_gives_the_dtype_pytorch_gives() -> Result<()> {
    let text = include_str!("../../../../tests/goldens/data/amp.json");
    let answers: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
    let whole = Tensor::new([[0.9f32, 0.1, 0.2], [0.3, 0.8, 0.1], [0.2, 0.3, 0.7]])?;
    for (name, answer) in answers {
        let (op, dtype) = name.split_once(' ').unwrap();
        let x = whole.to_dtype(if dtype == "bfloat16" { DType::BF16 } else { DType::F32 })?;
        let (y, b, i, v) = (x.flip([0])?, x.expand([2, 3, 3])?, x.reshape([1, 1, 3, 3])?, x.select(0, 0)?);
        let got = autocast(DType::BF16, || case(op, &x, &y, &b, &i, &v)).map_err(|e| e.within(&name))?;
        assert_eq!(got.dtype().to_string(), answer.as_str().unwrap(), "{name}");
    }
    Ok(())
}

#[test]
fn a_parameter_used_twice_is_converted_once_and_gets_both_gradients() -> Result<()> {
    let w = Tensor::ones([2, 2])?.requires_grad_(true)?;
    let x = Tensor::ones([2, 2])?;
    let y = autocast(DType::BF16, || x.linear(&w, None)?.linear(&w, None))?;
    y.sum(..)?.backward()?;
    let g = w.grad().unwrap();
    assert_eq!((g.dtype(), g.to_vec::<f32>()?), (DType::F32, vec![8.0; 4]));
    Ok(())
}

#[test]
fn several_steps_within_one_region() -> Result<()> {
    let w = Tensor::ones([1, 1])?.requires_grad_(true)?;
    let x = Tensor::ones([1, 1])?;
    autocast(DType::BF16, || {
        for step in 1..=3 {
            x.linear(&w, None)?.sum(..)?.backward()?;
            assert_eq!(w.grad().unwrap().item::<f32>()?, step as f32);
        }
        // An in-place change is seen although the old value was converted before.
        autograd::no_grad(|| w.fill_(3.0).map(|_| ()))?;
        assert_eq!(x.linear(&w, None)?.item::<f32>()?, 3.0);
        Ok(())
    })
}

#[test]
fn regions_nest_and_end() -> Result<()> {
    let x = Tensor::ones([2, 2])?;
    autocast(DType::F16, || {
        assert_eq!(x.mm(&x)?.dtype(), DType::F16);
        assert_eq!(without_autocast(|| x.mm(&x))?.dtype(), DType::F32);
        autocast(DType::BF16, || {
            assert_eq!(x.mm(&x)?.dtype(), DType::BF16);
            Ok(())
        })?;
        assert_eq!(autocast_dtype(), Some(DType::F16));
        Ok(())
    })?;
    assert_eq!(x.mm(&x)?.dtype(), DType::F32);
    let message = autocast(DType::F32, || Ok(())).unwrap_err().to_string();
    assert!(message.contains("bfloat16 and float16"), "{message}");
    Ok(())
}

#[test]
fn a_checkpoint_is_recomputed_in_the_same_precision() -> Result<()> {
    let w = Tensor::new([[1.001f32, 2.003], [3.01, 4.0]])?.requires_grad_(true)?;
    let x = Tensor::new([[0.3f32, 0.7]])?.requires_grad_(true)?;
    let f = move |xs: &[Tensor]| xs[0].linear(&w, None)?.exp()?.linear(&w, None);
    let direct = autocast(DType::BF16, || f(std::slice::from_ref(&x)))?.sum(..)?;
    let expected = grad(&[&direct], &[&x], Default::default())?[0].clone().unwrap();
    let y = autocast(DType::BF16, || checkpoint(f, &[&x]))?;
    y.sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, expected.to_vec::<f32>()?);
    Ok(())
}
