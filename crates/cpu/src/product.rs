//! Matrix products and convolutions of views: passes addresses and strides to the kernels.

use crate::conv::{self, Image, Operands, Order, PackedConv};
use crate::gemm::{self, Bias, BiasAxis, Epilogue, Gemm, PackedRight};
use rushlight_core::backend::{Activation, Conv, MatMul, Packed, View, call};
use rushlight_core::{DType, Error, Layout, Result};
use std::sync::Arc;

fn strides(view: View) -> [isize; 3] {
    let s = view.strides();
    [s[0] as isize, s[1] as isize, s[2] as isize]
}

pub fn matmul(spec: &MatMul) -> Result<()> {
    let &[batch, m, k] = spec.a.shape() else {
        return Err(Error::shape(format!("matmul: expected batched matrices, got {:?}", spec.a.shape())));
    };
    let n = spec.b.shape()[2];
    if spec.out.dtype() == DType::Bool {
        return Err(Error::dtype("matmul: not implemented for bool"));
    }
    let gemm = Gemm {
        dtype: spec.out.dtype(),
        batch,
        m,
        n,
        k,
        a: spec.a.ptr(),
        a_strides: strides(spec.a),
        b: spec.b.ptr(),
        b_strides: strides(spec.b),
        c: spec.out.ptr(),
        c_strides: strides(spec.out),
        alpha: spec.alpha,
        beta: spec.beta,
        bias: spec.bias.map(|b| Bias { ptr: b.ptr(), stride: b.strides()[0] as isize, per: BiasAxis::Column }),
        activation: activation(spec.activation),
    };
    // SAFETY: views are within their storages, have one dtype and the shapes that the trait asks for; the output
    // overlaps no input.
    unsafe { gemm::gemm(&gemm) };
    Ok(())
}

fn activation(of: Activation) -> gemm::Activation {
    match of {
        Activation::None => gemm::Activation::None,
        Activation::Relu => gemm::Activation::Relu,
        Activation::Gelu => gemm::Activation::Gelu,
        Activation::GeluTanh => gemm::Activation::GeluTanh,
    }
}

/// A weight `[k, n]`.
struct Weight {
    packed: PackedRight,
    shape: [usize; 2],
}

/// Rows from which a product with a packed weight is ahead of one that reads it in place: an estimate.
const FEWEST_ROWS: usize = 4;

/// See `Backend::pack_weight`.
pub fn pack_weight(weight: View, rows: usize) -> Result<Option<Packed>> {
    let (&[k, n], &[row, column]) = (weight.shape(), weight.strides()) else {
        return Err(Error::shape(format!("pack_weight: expected a matrix, got {:?}", weight.shape())));
    };
    if weight.dtype() != DType::F32 || rows < FEWEST_ROWS {
        return Ok(None);
    }
    let (ptr, row, column) = (weight.ptr().cast_const().cast(), row as isize, column as isize);
    // SAFETY: the view is within its storage.
    let packed = unsafe { PackedRight::new(ptr, [row, column], k, n) };
    Ok(packed.map(|packed| Packed(Arc::new(Weight { packed, shape: [k, n] }))))
}

/// See `call::PackedMatMul`.
pub fn packed_matmul(c: &call::PackedMatMul<View>) -> Result<()> {
    let call::PackedMatMul { ref packed, beta, a, bias, out, .. } = *c;
    let Some(Weight { packed, shape: [k, n] }) = packed.0.downcast_ref() else {
        return Err(Error::value("packed_matmul: the weight was packed by another engine"));
    };
    let (k, n) = (*k, *n);
    let rows = a.shape().first().copied().unwrap_or(0);
    let fits = |v: View, width| v.shape() == [rows, width] && v.dtype() == DType::F32 && v.layout().is_contiguous();
    if !fits(a, k) || !fits(out, n) || bias.is_some_and(|bias| bias.dtype() != DType::F32 || bias.numel() != n) {
        return Err(Error::shape(format!(
            "packed_matmul: {} {:?} @ [{k}, {n}] to {} {:?}, expected contiguous float32 matrices that fit",
            a.dtype(),
            a.shape(),
            out.dtype(),
            out.shape()
        )));
    }
    let (k, n, a, out) = (k as isize, n as isize, a.ptr().cast_const().cast(), out.ptr().cast());
    let bias = bias.map(|bias| (bias.ptr().cast_const().cast(), bias.strides().last().map_or(0, |&s| s as isize)));
    let end = Epilogue { beta: beta as f32, bias, activation: activation(c.activation) };
    // SAFETY: the views are within their storages and have these shapes; the output overlaps no input.
    unsafe { packed.multiply(rows, (a, [k, 1]), (out, n), end) };
    Ok(())
}

/// Converts the convolution for the kernels; an error if the padded images would not fit memory.
fn kernel_spec(spec: &Conv, dtype: DType) -> Result<conv::Conv> {
    let padded = (0..3).try_fold(8 * spec.in_channels.max(spec.out_channels), |bytes, d| {
        let size = spec.input[d].max(spec.output[d]).checked_add(spec.padding[d].checked_mul(2)?)?;
        bytes.checked_mul(size.checked_add(spec.kernel[d].checked_mul(spec.dilation[d])?)?)
    });
    let fits = padded.is_some_and(|bytes| bytes < 1 << 30 || Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
    if !fits {
        return Err(Error::out_of_memory(format!(
            "conv: padding {:?} makes images of {:?} too large to work on in memory",
            spec.padding, spec.input
        )));
    }
    Ok(conv::Conv {
        dtype,
        batch: spec.batch,
        in_channels: spec.in_channels,
        out_channels: spec.out_channels,
        groups: spec.groups,
        input: spec.input,
        kernel: spec.kernel,
        output: spec.output,
        stride: spec.stride,
        padding: spec.padding,
        dilation: spec.dilation,
    })
}

pub fn conv_forward(spec: &Conv, x: View, w: View, bias: Option<View>, y: View) -> Result<()> {
    let kernel = kernel_spec(spec, x.dtype())?;
    let bias = bias.map_or(std::ptr::null(), |b| b.ptr().cast_const());
    // SAFETY: contiguous views of the sizes in `spec`, checked by the tensor layer.
    unsafe { conv::forward(&kernel, x.ptr(), w.ptr(), bias, y.ptr()) };
    Ok(())
}

/// See `Backend::pack_conv`.
pub fn pack_conv(spec: &Conv, weight: View) -> Result<Option<Packed>> {
    if weight.dtype() != DType::F32 || !weight.layout().is_contiguous() {
        return Ok(None);
    }
    let kernel = kernel_spec(spec, DType::F32)?;
    // SAFETY: a contiguous weight of the sizes in `spec`, checked by the tensor layer.
    let packed = unsafe { PackedConv::new(&kernel, weight.ptr().cast_const().cast()) };
    Ok(packed.map(|packed| Packed(Arc::new(packed))))
}

/// The memory of images, contiguous or with their channels last.
fn images(what: &str, view: View) -> Result<(*mut f32, Order)> {
    let is_last = || Layout::channels_last(view.shape()).is_ok_and(|l| l.strides() == view.strides());
    let order = match () {
        _ if view.dtype() != DType::F32 => None,
        _ if view.layout().is_contiguous() => Some(Order::First),
        _ if is_last() => Some(Order::Last),
        _ => None,
    };
    let fault = || format!("conv_packed: {what} is {} {:?} in another order", view.dtype(), view.shape());
    Ok((view.ptr().cast(), order.ok_or_else(|| Error::shape(fault()))?))
}

/// See `call::ConvPacked`.
pub fn conv_packed(c: &call::ConvPacked<View>) -> Result<()> {
    let Some(packed) = c.packed.0.downcast_ref::<PackedConv>() else {
        return Err(Error::value("conv_packed: the weight was packed by another engine"));
    };
    let spec = packed.spec();
    let fits = |v: View, channels: usize, size: usize| v.numel() == spec.batch * channels * size;
    let (inputs, outputs) = ((spec.in_channels, spec.input_size()), (spec.out_channels, spec.output_size()));
    if !fits(c.x, inputs.0, inputs.1) || ![Some(c.y), c.addend].iter().flatten().all(|v| fits(*v, outputs.0, outputs.1))
    {
        return Err(Error::shape(format!(
            "conv_packed: the weight was packed for images of another size than {:?}",
            c.x.shape()
        )));
    }
    let image = |(ptr, order): (*mut f32, Order)| Image { ptr: ptr.cast_const(), order };
    let (x, y) = (images("x", c.x)?, images("y", c.y)?);
    let addend = c.addend.map(|v| images("the addend", v)).transpose()?.map(image);
    let bias = c.bias.map_or(std::ptr::null(), |b| b.ptr().cast_const().cast());
    let operands = Operands { x: image(x), bias, addend, relu: c.relu, y: Image { ptr: y.0, order: y.1 } };
    // SAFETY: sizes and orders were checked; the bias has a value for each channel, and the output overlaps no input.
    unsafe { packed.run(&operands) };
    Ok(())
}

pub fn conv_backward_input(spec: &Conv, dy: View, w: View, dx: View) -> Result<()> {
    let kernel = kernel_spec(spec, dy.dtype())?;
    // SAFETY: as above.
    unsafe { conv::backward_input(&kernel, dy.ptr(), w.ptr(), dx.ptr()) };
    Ok(())
}

pub fn conv_backward_weight(spec: &Conv, x: View, dy: View, dw: View) -> Result<()> {
    let kernel = kernel_spec(spec, x.dtype())?;
    // SAFETY: as above.
    unsafe { conv::backward_weight(&kernel, x.ptr(), dy.ptr(), dw.ptr()) };
    Ok(())
}
