//! Convolutions and their transposes.
//!
//! A convolution, its gradient by the input (which is the transposed convolution) and its gradient by the weight are
//! three recorded ops over one description. Each is linear in both operands, and each one's derivatives are the other
//! two.

use super::sizes::Sizes;
use crate::announce::{Value, announced};
use crate::autograd::{Ctx, Saved, no_grad, record, recording};
use crate::{Tensor, amp};
use rushlight_core::backend::{Conv, call};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Error, Result, setters};

/// Zeros around a convolution's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// As many on both sides.
    Zeros(Sizes),
    /// Padding that keeps the input's size; for stride one.
    Same,
    /// None.
    Valid,
}

impl<T: Into<Sizes>> From<T> for Padding {
    fn from(sizes: T) -> Self {
        Padding::Zeros(sizes.into())
    }
}

/// The optional arguments of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: usize,
}

impl Default for ConvOptions {
    fn default() -> Self {
        Self { stride: 1.into(), padding: 0.into(), dilation: 1.into(), groups: 1 }
    }
}

impl ConvOptions {
    setters! {
        /// Steps of the kernel; 1 by default.
        stride: into Sizes;
        /// Zeros on both sides, or [`Padding::Same`]; none by default.
        padding: into Padding;
        /// Distance between the kernel's taps; 1 by default.
        dilation: into Sizes;
        /// Independent groups of channels; 1 by default.
        groups: usize;
    }
}

/// The optional arguments of a transposed convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTransposeOptions {
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    dilation: Sizes,
    groups: usize,
}

impl Default for ConvTransposeOptions {
    fn default() -> Self {
        Self { stride: 1.into(), padding: 0.into(), output_padding: 0.into(), dilation: 1.into(), groups: 1 }
    }
}

impl ConvTransposeOptions {
    setters! {
        /// Stride: distance between the outputs of two neighbouring inputs; 1 by default.
        stride: into Sizes;
        /// Taken off the output on both sides; 0 by default.
        padding: into Sizes;
        /// Added to the output on one side; 0 by default.
        output_padding: into Sizes;
        /// Distance between the kernel's taps; 1 by default.
        dilation: into Sizes;
        /// Independent groups of channels; 1 by default.
        groups: usize;
    }
}

/// Batch, channels and the last `dims` of three spatial sizes.
fn tensor_shape(batch: usize, channels: usize, space: [usize; 3], dims: usize) -> Dims {
    let mut shape: Dims = smallvec![batch, channels];
    shape.extend_from_slice(&space[3 - dims..]);
    shape
}

/// Converts both operands to one dtype and memory order: a gradient may have any, but the engine needs the same for
/// both.
fn alike(a: &Tensor, b: &Tensor) -> Result<[Tensor; 2]> {
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(format!(
            "convolution: operands of dtypes {} and {} do not go together",
            a.dtype(),
            b.dtype()
        )));
    }
    if a.is_channels_last() || b.is_channels_last() {
        return Ok([a.channels_last()?, b.channels_last()?]);
    }
    Ok([a.contiguous()?, b.contiguous()?])
}

/// A description and how many spatial dimensions its tensors show.
#[derive(Clone, Copy)]
struct Problem {
    spec: Conv,
    dims: usize,
}

impl Problem {
    fn input_shape(&self) -> Dims {
        tensor_shape(self.spec.batch, self.spec.in_channels, self.spec.input, self.dims)
    }

    fn output_shape(&self) -> Dims {
        tensor_shape(self.spec.batch, self.spec.out_channels, self.spec.output, self.dims)
    }

    fn weight_shape(&self) -> Dims {
        tensor_shape(self.spec.out_channels, self.spec.in_channels / self.spec.groups, self.spec.kernel, self.dims)
    }

    /// Sum over everything but the channels.
    fn bias_gradient(&self, dy: &Tensor) -> Result<Tensor> {
        let mut dims = vec![0];
        dims.extend(2..2 + self.dims as isize);
        dy.sum(&dims)
    }

    fn forward(self, x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let channels_last = x.suggests_channels_last() || w.suggests_channels_last();
        let [x, w] = alike(x, w)?;
        let bias = bias.map(|b| b.contiguous()).transpose()?;
        let out = x.uninit_in_order(&self.output_shape(), x.dtype())?;
        if x.numel() == 0 {
            out.zero_()?;
        } else if out.numel() > 0 {
            out.run(call::ConvForward {
                spec: self.spec,
                x: x.engine_view(),
                w: w.engine_view(),
                bias: bias.as_ref().map(|b| b.engine_view()),
                y: out.engine_view(),
            })?;
        }
        self.record("conv", &x, &w, bias.as_ref(), &out, [Problem::input_gradient, Problem::weight_gradient_swapped])?;
        out.channels_last_if(channels_last)
    }

    /// The gradient by the input, of `dy` and `w`; the transposed convolution.
    fn input_gradient(self, dy: &Tensor, w: &Tensor) -> Result<Tensor> {
        self.transposed(dy, w, None)
    }

    /// The gradient by the input, added to the sum accumulated so far; in one pass if the engine supports it.
    fn input_gradient_to_sum(self, ctx: &Ctx, dy: &Tensor, w: &Tensor) -> Result<Tensor> {
        let [packed, by] = alike(dy, w)?;
        let shape = self.input_shape();
        let suits = |sum: &Tensor| {
            let alike = sum.dtype() == packed.dtype() && sum.shape() == &shape[..];
            alike && packed.is_channels_last() && sum.is_channels_last() && sum.is_sole_owner()
        };
        let Some(sum) = ctx.take_sum(0, suits) else { return self.input_gradient(&packed, &by) };
        let (dy, w, dx) = (packed.engine_view(), by.engine_view(), sum.engine_view());
        sum.run(call::ConvBackwardInput { spec: self.spec, accumulate: true, dy, w, dx })?;
        Ok(sum)
    }

    fn transposed(self, dy: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let channels_last = dy.suggests_channels_last() || w.suggests_channels_last();
        let [dy, w] = alike(dy, w)?;
        let out = dy.uninit_in_order(&self.input_shape(), dy.dtype())?;
        if dy.numel() == 0 {
            out.zero_()?;
        } else if out.numel() > 0 {
            out.run(call::ConvBackwardInput {
                spec: self.spec,
                dy: dy.engine_view(),
                w: w.engine_view(),
                dx: out.engine_view(),
                accumulate: false,
            })?;
        }
        if let Some(bias) = bias {
            let mut shape: Dims = smallvec![1; self.dims + 1];
            shape[0] = bias.numel();
            no_grad(|| out.add_(&bias.reshape(&shape)?).map(|_| ()))?;
        }
        self.record("conv_transpose", &dy, &w, bias, &out, [Problem::plain, Problem::weight_gradient])?;
        out.channels_last_if(channels_last)
    }

    /// The gradient by the weight, of `x` and `dy`.
    fn weight_gradient(self, x: &Tensor, dy: &Tensor) -> Result<Tensor> {
        let [x, dy] = alike(x, dy)?;
        let out = x.uninit_in_order(&self.weight_shape(), x.dtype())?;
        if x.numel() == 0 || dy.numel() == 0 {
            out.zero_()?;
        } else if out.numel() > 0 {
            out.run(call::ConvBackwardWeight {
                spec: self.spec,
                x: x.engine_view(),
                dy: dy.engine_view(),
                dw: out.engine_view(),
            })?;
        }
        self.record("conv_weight", &x, &dy, None, &out, [Problem::input_gradient_swapped, Problem::plain_swapped])?;
        Ok(out)
    }

    fn plain(self, x: &Tensor, w: &Tensor) -> Result<Tensor> {
        self.forward(x, w, None)
    }

    fn weight_gradient_swapped(self, dy: &Tensor, x: &Tensor) -> Result<Tensor> {
        self.weight_gradient(x, dy)
    }

    fn input_gradient_swapped(self, w: &Tensor, dy: &Tensor) -> Result<Tensor> {
        self.input_gradient(dy, w)
    }

    fn plain_swapped(self, w: &Tensor, x: &Tensor) -> Result<Tensor> {
        self.plain(x, w)
    }

    /// Records a bilinear op of `a` and `b`. `by` are its derivatives, each a function of the output's gradient and the
    /// other operand.
    fn record(
        self,
        name: &'static str,
        a: &Tensor,
        b: &Tensor,
        bias: Option<&Tensor>,
        out: &Tensor,
        by: [fn(Problem, &Tensor, &Tensor) -> Result<Tensor>; 2],
    ) -> Result<()> {
        let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![a, b];
        inputs.extend(bias);
        if !recording(&inputs) {
            return Ok(());
        }
        let saved_a = b.requires_grad().then(|| Saved::input(a));
        let saved_b = a.requires_grad().then(|| Saved::input(b));
        let (has_bias, is_plain) = (bias.is_some(), name == "conv");
        record(name, &inputs, out, move |ctx, dy| {
            let da = match &saved_b {
                Some(b) if ctx.needs(0) && is_plain && !ctx.recording() => {
                    Some(self.input_gradient_to_sum(ctx, dy, &ctx.get(b)?)?)
                }
                Some(b) if ctx.needs(0) => Some(by[0](self, dy, &ctx.get(b)?)?),
                _ => None,
            };
            let db = match &saved_a {
                Some(a) if ctx.needs(1) => Some(by[1](self, dy, &ctx.get(a)?)?),
                _ => None,
            };
            let mut grads = smallvec![da, db];
            if has_bias {
                grads.push(if ctx.needs(2) { Some(self.bias_gradient(dy)?) } else { None });
            }
            Ok(grads)
        })
    }
}

/// Checks common to all convolutions. Returns the input with a batch dimension.
fn checked_input(
    op: &str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    groups: usize,
    dims: usize,
) -> Result<Tensor> {
    x.needs_float(op)?;
    x.same_device(weight, op)?;
    if x.dtype() != weight.dtype() {
        return Err(Error::dtype(format!(
            "{op}: input type ({}) and weight type ({}) should be the same",
            x.dtype(),
            weight.dtype()
        )));
    }
    if weight.rank() != dims + 2 {
        return Err(Error::shape(format!(
            "{op}: expected a {}-dimensional weight, but got weight of size {:?}",
            dims + 2,
            weight.shape()
        )));
    }
    if groups == 0 {
        return Err(Error::value(format!("{op}: non-positive groups is not supported")));
    }
    if !weight.shape()[0].is_multiple_of(groups) || weight.shape()[0] == 0 {
        return Err(Error::shape(format!(
            "{op}: given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size {:?} instead",
            weight.shape()
        )));
    }
    if weight.numel() == 0 {
        return Err(Error::shape(format!("{op}: weight of size {:?} must not be empty", weight.shape())));
    }
    if let Some(bias) = bias {
        x.same_device(bias, op)?;
        if bias.dtype() != x.dtype() {
            return Err(Error::dtype(format!(
                "{op}: input type ({}) and bias type ({}) should be the same",
                x.dtype(),
                bias.dtype()
            )));
        }
    }
    match x.rank().checked_sub(dims) {
        Some(1 | 2) if x.shape()[x.rank() - dims..].contains(&0) && x.shape()[0] > 0 => Err(Error::shape(format!(
            "{op}: expected no empty spatial dimension, but got input of size: {:?}",
            x.shape()
        ))),
        Some(2) => Ok(x.clone()),
        Some(1) => x.unsqueeze(0),
        _ => Err(Error::shape(format!(
            "{op}: expected {}D (unbatched) or {}D (batched) input to {op}, but got input of size: {:?}",
            dims + 1,
            dims + 2,
            x.shape()
        ))),
    }
}

fn check_channels(op: &str, x: &Tensor, weight: &Tensor, groups: usize, channels: usize) -> Result<()> {
    if x.shape()[1] == channels {
        return Ok(());
    }
    Err(Error::shape(format!(
        "{op}: given groups={groups}, weight of size {:?}, expected input{:?} to have {channels} channels, but got {} channels instead",
        weight.shape(),
        x.shape(),
        x.shape()[1]
    )))
}

fn check_bias(op: &str, weight: &Tensor, bias: Option<&Tensor>, channels: usize) -> Result<()> {
    match bias {
        Some(b) if b.shape() != [channels] => Err(Error::shape(format!(
            "{op}: given weight of size {:?}, expected bias to be 1-dimensional with {channels} elements, but got bias of size {:?} instead",
            weight.shape(),
            b.shape()
        ))),
        _ => Ok(()),
    }
}

/// The last `dims` sizes of a tensor as three.
fn space(shape: &[usize], dims: usize) -> [usize; 3] {
    let mut out = [1; 3];
    out[3 - dims..].copy_from_slice(&shape[shape.len() - dims..]);
    out
}

fn conv(
    op: &str,
    dims: usize,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvOptions,
) -> Result<Tensor> {
    let groups = options.groups;
    let mut input = checked_input(op, x, weight, bias, groups, dims)?;
    let out_channels = weight.shape()[0];
    let in_channels = weight.shape()[1].saturating_mul(groups);
    check_channels(op, &input, weight, groups, in_channels)?;
    check_bias(op, weight, bias, out_channels)?;
    let stride = options.stride.spread_positive(op, "stride", dims)?;
    let dilation = options.dilation.spread_positive(op, "dilation", dims)?;
    let kernel = space(weight.shape(), dims);
    let reach: [Option<usize>; 3] = std::array::from_fn(|i| (kernel[i] - 1).checked_mul(dilation[i]));
    let padding = match options.padding {
        Padding::Zeros(sizes) => sizes.spread(op, "padding", dims, 0)?,
        Padding::Valid => [0; 3],
        Padding::Same => {
            if stride != [1; 3] {
                return Err(Error::value(format!("{op}: padding='same' is not supported for strided convolutions")));
            }
            for i in (0..3).filter(|&i| reach[i].is_some_and(|r| r % 2 == 1)) {
                // The odd zero goes to the far side, as in PyTorch.
                let dim = 2 + dims + i - 3;
                let mut shape = Dims::from_slice(input.shape());
                shape[dim] = 1;
                let zeros = Tensor::zeros_with(&shape, (input.dtype(), input.device()))?;
                input = crate::cat(&[&input, &zeros], dim as isize)?;
            }
            reach.map(|r| r.unwrap_or(0) / 2)
        }
    };
    let sizes = space(input.shape(), dims);
    let mut output = [1; 3];
    for i in 0..3 {
        let padded = padding[i].checked_mul(2).and_then(|p| p.checked_add(sizes[i]));
        // Engines keep padded lines, whatever the stride makes of them.
        if padded.is_none_or(|padded| padded > i32::MAX as usize) {
            return Err(Error::shape(format!(
                "{op}: input of size {:?} with padding {:?} is larger than {} in a dimension",
                x.shape(),
                &padding[3 - dims..],
                i32::MAX
            )));
        }
        output[i] = match (padded, reach[i]) {
            (Some(padded), Some(reach)) if reach < padded => (padded - reach - 1) / stride[i] + 1,
            _ => {
                return Err(Error::shape(format!(
                    "{op}: input of size {:?} with padding {:?} is smaller than the kernel of size {:?} with dilation {:?}. Kernel size can't be \
                     greater than actual input size",
                    x.shape(),
                    &padding[3 - dims..],
                    &kernel[3 - dims..],
                    &dilation[3 - dims..]
                )));
            }
        };
    }
    let batch = input.shape()[0];
    let spec =
        Conv { batch, in_channels, out_channels, groups, input: sizes, kernel, output, stride, padding, dilation };
    let out = Problem { spec, dims }.forward(&input, weight, bias)?;
    if x.rank() == dims + 1 { out.squeeze(0) } else { Ok(out) }
}

fn conv_transpose(
    op: &str,
    dims: usize,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvTransposeOptions,
) -> Result<Tensor> {
    let groups = options.groups;
    let input = checked_input(op, x, weight, bias, groups, dims)?;
    check_channels(op, &input, weight, groups, weight.shape()[0])?;
    let too_large =
        || Error::value(format!("{op}: an output of these sizes has more elements than memory can address"));
    let channels = weight.shape()[1].checked_mul(groups).ok_or_else(too_large)?;
    check_bias(op, weight, bias, channels)?;
    let stride = options.stride.spread_positive(op, "stride", dims)?;
    let dilation = options.dilation.spread_positive(op, "dilation", dims)?;
    let padding = options.padding.spread(op, "padding", dims, 0)?;
    let extra = options.output_padding.spread(op, "output_padding", dims, 0)?;
    let kernel = space(weight.shape(), dims);
    let sizes = space(input.shape(), dims);
    let mut grown = [1; 3];
    for i in 0..3 {
        if extra[i] >= stride[i].max(dilation[i]) && extra[i] > 0 && input.shape()[0] > 0 {
            return Err(Error::value(format!(
                "{op}: output padding must be smaller than either stride or dilation, but got output_padding {:?}, stride {:?}, dilation {:?}",
                &extra[3 - dims..],
                &stride[3 - dims..],
                &dilation[3 - dims..]
            )));
        }
        let full = sizes[i]
            .checked_mul(stride[i])
            .and_then(|n| {
                n.checked_add((kernel[i] - 1).checked_mul(dilation[i])?)?.checked_add(extra[i])?.checked_add(1)
            })
            .ok_or_else(too_large)?;
        let cut = padding[i].checked_mul(2).and_then(|cut| cut.checked_add(stride[i])).ok_or_else(too_large)?;
        // PyTorch's kernel for single precision gives an empty output, its others refuse one.
        let batch = input.shape()[0];
        let may_be_empty = batch == 0 || x.dtype() == DType::F32 && (batch > 1 || groups > 1);
        grown[i] = full.checked_sub(cut).filter(|&n| n > 0 || may_be_empty).ok_or_else(|| {
            Error::shape(format!(
                "{op}: given input size per channel: {:?}, padding {:?} leaves no output; output size is too small",
                &sizes[3 - dims..],
                &padding[3 - dims..]
            ))
        })?;
    }
    if input.shape()[0] > 0 && grown.contains(&0) {
        // Every gradient is zero.
        let mut shape: Dims = smallvec![input.shape()[0], channels];
        shape.extend_from_slice(&grown[3 - dims..]);
        let mut origin = input.sum(..)?.add(&weight.sum(..)?)?;
        if let Some(bias) = bias {
            origin = origin.add(&bias.sum(..)?)?;
        }
        let out = origin.expand(&shape)?.copy()?;
        return if x.rank() == dims + 1 { out.squeeze(0) } else { Ok(out) };
    }
    // The convolution whose gradient this is: from the larger image to the smaller.
    let spec = Conv {
        batch: input.shape()[0],
        in_channels: channels,
        out_channels: weight.shape()[0],
        groups,
        input: grown,
        kernel,
        output: sizes,
        stride,
        padding,
        dilation,
    };
    let out = Problem { spec, dims }.transposed(&input, weight, bias)?;
    if x.rank() == dims + 1 { out.squeeze(0) } else { Ok(out) }
}

/// The input of a convolution under autocast: images on a GPU with their channels innermost.
fn lowered(cast: amp::Policy, x: &Tensor, groups: usize) -> Result<Tensor> {
    let x = cast.of(x)?;
    let images = x.rank() == 4 && groups == 1 && x.shape()[1] > 1 && x.backend().features().channels_last;
    if images { x.channels_last() } else { Ok(x) }
}

/// A convolution of complex numbers: four of their parts.
fn by_parts(
    dims: isize,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    convolve: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if weight.dtype() != x.dtype() {
        return Err(Error::dtype(format!(
            "conv: expected a weight of the input's dtype {}, but got {}; convert one with to_dtype",
            x.dtype(),
            weight.dtype()
        )));
    }
    let part = |t: &Tensor| -> Result<(Tensor, Tensor)> { Ok((t.real()?.contiguous()?, t.imag()?.contiguous()?)) };
    let ((a, b), (c, d)) = (part(x)?, part(weight)?);
    let re = convolve(&a, &c)?.sub(&convolve(&b, &d)?)?;
    let im = convolve(&a, &d)?.add(&convolve(&b, &c)?)?;
    let out = crate::complex(&re, &im)?;
    match bias {
        Some(bias) => {
            let mut shape = vec![1isize; dims as usize + 1];
            shape[0] = -1;
            out.add(&bias.reshape(&shape)?)
        }
        None => Ok(out),
    }
}

macro_rules! convolutions {
    ($($(#[$doc:meta])* $conv:ident $transpose:ident $dims:literal;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// `weight` is `[out_channels, in_channels / groups, kernel..]`, `bias` `[out_channels]`. The batch
            /// dimension may be missing.
            pub fn $conv(&self, weight: &Tensor, bias: Option<&Tensor>, options: ConvOptions) -> Result<Tensor> {
                if let Some(cast) = amp::lower() {
                    let x = lowered(cast, self, options.groups)?;
                    return cast.run(|| x.$conv(&cast.of(weight)?, cast.of_option(bias)?.as_ref(), options));
                }
                let (stride, padding, dilation) = (options.stride, Value::from(options.padding), options.dilation);
                announced!(
                    concat!("nn.functional.", stringify!($conv)),
                    [self, weight, bias, stride, padding, dilation, options.groups];
                    self.$conv(weight, bias, options)
                );
                if self.is_complex() {
                    return by_parts($dims, self, weight, bias, |x, w| x.$conv(w, None, options));
                }
                conv(stringify!($conv), $dims, self, weight, bias, &options)
            }

            #[doc = concat!("The transpose of [`Tensor::", stringify!($conv), "`]: its gradient by the input.")]
            ///
            /// `weight` is `[in_channels, out_channels / groups, kernel..]`, `bias` `[out_channels]`. The batch
            /// dimension may be missing.
            pub fn $transpose(&self, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions) -> Result<Tensor> {
                if let Some(cast) = amp::lower() {
                    return cast.run(|| cast.of(self)?.$transpose(&cast.of(weight)?, cast.of_option(bias)?.as_ref(), options));
                }
                let (stride, padding, more) = (options.stride, options.padding, options.output_padding);
                announced!(
                    concat!("nn.functional.", stringify!($transpose)),
                    [self, weight, bias, stride, padding, more, options.groups, options.dilation];
                    self.$transpose(weight, bias, options)
                );
                if self.is_complex() {
                    return by_parts($dims, self, weight, bias, |x, w| x.$transpose(w, None, options));
                }
                conv_transpose(stringify!($transpose), $dims, self, weight, bias, &options)
            }
        )*}
    };
}

convolutions! {
    /// Convolution of `[batch, channels, length]`.
    conv1d conv_transpose1d 1;
    /// Convolution of `[batch, channels, height, width]`.
    ///
    /// ```
    /// # use rushlight_tensor::{ConvOptions, Tensor};
    /// let (x, w) = (Tensor::ones([1, 3, 8, 8])?, Tensor::ones([4, 3, 3, 3])?);
    /// assert_eq!(x.conv2d(&w, None, ConvOptions::default().stride(2).padding(1))?.shape(), [1, 4, 4, 4]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    conv2d conv_transpose2d 2;
    /// Convolution of `[batch, channels, depth, height, width]`.
    conv3d conv_transpose3d 3;
}
