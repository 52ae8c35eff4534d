//! ONNX's quantised operators, computed in floats of double precision.

use super::ops::*;
use crate::IValue;
use crate::ops::Args;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

/// Scale or zero point as it broadcasts with the input: one number, one for each index of the axis, or one a block.
fn spread(a: &Args, x: &Tensor, part: &Tensor) -> Result<Tensor> {
    let axis = int(a, "axis", 1)?;
    let axis = (if axis < 0 { axis + x.rank() as i64 } else { axis }).clamp(0, x.rank().max(1) as i64 - 1);
    let block = int(a, "block_size", 0)?;
    let part = part.to_dtype(DType::F64)?;
    if block > 0 {
        let wide = op("repeat_interleave", vec![part.into(), block.into(), axis.into()])?;
        return wide.narrow(axis as isize, 0, x.size(axis as isize)?);
    }
    if part.numel() == 1 {
        return part.reshape(&[0usize; 0][..]);
    }
    let mut shape = vec![1; x.rank()];
    shape[axis as usize] = part.numel();
    part.reshape(&shape[..])
}

fn limits(dtype: DType) -> Result<(f64, f64)> {
    Ok(match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        other => return Err(Error::unsupported(format!("quantised values of {other}"))),
    })
}

/// Rounds to even, adds the zero point, keeps within the dtype.
fn quantised(x: &Tensor, scale: &Tensor, zero: Option<&Tensor>, dtype: DType) -> Result<Tensor> {
    let (low, high) = limits(dtype)?;
    let mut y = op("round", vec![op("div", vec![x.into(), scale.into()])?.into()])?;
    if let Some(zero) = zero {
        y = op("add", vec![y.into(), zero.into()])?;
    }
    op("clamp", vec![y.into(), low.into(), high.into()])?.to_dtype(dtype)
}

fn quantize(a: &Args) -> Found {
    let (x, scale, zero) = (t(a, 0)?, t(a, 1)?, opt(a, 2));
    let dtype = match (&zero, int(a, "output_dtype", 0)?) {
        (Some(zero), _) => zero.dtype(),
        (None, 0) => DType::U8,
        (None, number) => super::proto::dtype(number)?,
    };
    int(a, "precision", 0)?;
    let zero = zero.map(|z| spread(a, &x, &z)).transpose()?;
    // The division is in the precision of the input.
    let (wide, scale) = (x.to_dtype(DType::F32)?, spread(a, &x, &scale)?.to_dtype(DType::F32)?);
    let zero = zero.map(|z| z.to_dtype(DType::F32)).transpose()?;
    some(quantised(&wide, &scale, zero.as_ref(), dtype)?)
}

/// The real values of quantised ones.
fn real(x: &Tensor, scale: Option<&Tensor>, zero: Option<&Tensor>) -> Result<Tensor> {
    let mut y = x.to_dtype(DType::F64)?;
    if let Some(zero) = zero {
        y = op("sub", vec![y.into(), zero.to_dtype(DType::F64)?.into()])?;
    }
    match scale {
        Some(scale) => op("mul", vec![y.into(), scale.to_dtype(DType::F64)?.into()]),
        None => Ok(y),
    }
}

fn dequantize(a: &Args) -> Found {
    let (x, scale, zero) = (t(a, 0)?, t(a, 1)?, opt(a, 2));
    let zero = zero.map(|z| spread(a, &x, &z)).transpose()?;
    let out = match int(a, "output_dtype", 0)? {
        0 => scale.dtype(),
        number => super::proto::dtype(number)?,
    };
    some(real(&x, Some(&spread(a, &x, &scale)?), zero.as_ref())?.to_dtype(out)?)
}

fn dynamic(a: &Args) -> Found {
    let x = t(a, 0)?;
    let extreme = |name: &str| op(name, vec![x.clone().into()])?.to_dtype(DType::F32)?.item::<f32>();
    let (low, high) = (extreme("min")?.min(0.0), extreme("max")?.max(0.0));
    let scale = (high - low) / 255.0;
    let zero = if scale == 0.0 { 0.0 } else { (-low / scale).clamp(0.0, 255.0).round_ties_even() };
    let scale = Tensor::scalar(f64::from(scale))?.to_dtype(DType::F32)?;
    let zero = Tensor::scalar(f64::from(zero))?;
    let y = quantised(&x, &scale, Some(&zero.to_dtype(DType::F32)?), DType::U8)?;
    Ok(Some(IValue::tuple([y.into(), scale.into(), zero.to_dtype(DType::U8)?.into()])))
}

/// A zero point of rows, as a column.
fn rows(zero: Option<Tensor>) -> Result<Option<Tensor>> {
    zero.map(|z| if z.rank() == 1 && z.numel() > 1 { z.unsqueeze(1) } else { Ok(z) }).transpose()
}

fn matmul_integer(a: &Args) -> Found {
    let x = real(&t(a, 0)?, None, rows(opt(a, 2))?.as_ref())?;
    let y = real(&t(a, 1)?, None, opt(a, 3).as_ref())?;
    some(op("matmul", vec![x.into(), y.into()])?.to_dtype(DType::I32)?)
}

fn qlinear_matmul(a: &Args) -> Found {
    let x = real(&t(a, 0)?, rows(opt(a, 1))?.as_ref(), rows(opt(a, 2))?.as_ref())?;
    let y = real(&t(a, 3)?, opt(a, 4).as_ref(), opt(a, 5).as_ref())?;
    let zero = t(a, 7)?;
    let scale = t(a, 6)?.to_dtype(DType::F64)?;
    let product = op("matmul", vec![x.into(), y.into()])?;
    some(quantised(&product, &scale, Some(&zero.to_dtype(DType::F64)?), zero.dtype())?)
}

/// A convolution of real values with the node's attributes.
fn convolved(a: &Args, x: Tensor, w: Tensor, bias: IValue) -> Result<Tensor> {
    let inner = Args { list: vec![x.into(), w.into(), bias], keywords: a.keywords.clone(), asked: Default::default() };
    let y = super::ops_nn::conv(&inner)?;
    a.asked.borrow_mut().extend(inner.asked.into_inner());
    y.ok_or_else(|| Error::value("a convolution without a result"))?.to_tensor()
}

/// Values of output channels, as they broadcast with the weight.
fn channels(part: Option<Tensor>, w: &Tensor) -> Result<Option<Tensor>> {
    let shape = |n: usize| [&[n], &vec![1; w.rank().saturating_sub(1)][..]].concat();
    part.map(|p| if p.numel() > 1 { p.reshape(&shape(p.numel())[..]) } else { p.reshape(&[0usize; 0][..]) }).transpose()
}

fn conv_integer(a: &Args) -> Found {
    let w = t(a, 1)?;
    let x = real(&t(a, 0)?, None, opt(a, 2).map(|z| z.reshape(&[0usize; 0][..])).transpose()?.as_ref())?;
    let w = real(&w, None, channels(opt(a, 3), &w)?.as_ref())?;
    some(convolved(a, x, w, IValue::None)?.to_dtype(DType::I32)?)
}

fn qlinear_conv(a: &Args) -> Found {
    let w = t(a, 3)?;
    let (x_scale, w_scale) = (t(a, 1)?, t(a, 4)?);
    let x = real(&t(a, 0)?, Some(&x_scale), opt(a, 2).as_ref())?;
    let real_w = real(&w, channels(Some(w_scale.clone()), &w)?.as_ref(), channels(opt(a, 5), &w)?.as_ref())?;
    let bias = match opt(a, 8) {
        Some(b) => {
            let scale = op("mul", vec![x_scale.to_dtype(DType::F64)?.into(), w_scale.to_dtype(DType::F64)?.into()])?;
            op("mul", vec![b.to_dtype(DType::F64)?.into(), scale.into()])?.into()
        }
        None => IValue::None,
    };
    let y = convolved(a, x, real_w, bias)?;
    let zero = t(a, 7)?;
    let scale = t(a, 6)?.to_dtype(DType::F64)?;
    some(quantised(&y, &scale, Some(&zero.to_dtype(DType::F64)?), zero.dtype())?)
}

pub(super) fn find(name: &str) -> Option<fn(&Args) -> Found> {
    Some(match name {
        "QuantizeLinear" => quantize,
        "DequantizeLinear" => dequantize,
        "DynamicQuantizeLinear" => dynamic,
        "MatMulInteger" => matmul_integer,
        "QLinearMatMul" => qlinear_matmul,
        "ConvInteger" => conv_integer,
        "QLinearConv" => qlinear_conv,
        _ => return None,
    })
}
