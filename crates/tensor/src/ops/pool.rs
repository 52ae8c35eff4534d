//! Pooling over one or two spatial dimensions, and made of those over three (`volume`).
//!
//! Averages are linear, so their second derivative is the average again. A maximum's gradient goes where its index
//! says; the derivative of that is picking by the same indices.

mod volume;

use super::sizes::Sizes;
use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{Saved, record, record_many, recording};
use rushlight_core::backend::{Pool, Window, call};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Result, setters};

/// The window of a maximum pooling: `MaxPool::new(3).stride(2).padding(1)`, or just the kernel's size where a `MaxPool`
/// is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool {
    kernel: Sizes,
    stride: Option<Sizes>,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
}

impl MaxPool {
    /// A window of a size, with that size as its stride.
    pub fn new(kernel_size: impl Into<Sizes>) -> Self {
        Self { kernel: kernel_size.into(), stride: None, padding: 0.into(), dilation: 1.into(), ceil_mode: false }
    }

    /// Steps of the window; its size by default.
    pub fn stride(mut self, stride: impl Into<Sizes>) -> Self {
        self.stride = Some(stride.into());
        self
    }

    setters! {
        /// Positions added on both sides, which never win; 0 by default.
        padding: into Sizes;
        /// Distance between the window's positions; 1 by default.
        dilation: into Sizes;
        /// Whether a last window that is only partly filled counts.
        ceil_mode: bool;
    }
}

impl<T: Into<Sizes>> From<T> for MaxPool {
    fn from(kernel: T) -> Self {
        MaxPool::new(kernel)
    }
}

/// The window of an average pooling: `AvgPool::new(3).stride(2).padding(1)`, or just the kernel's size where an
/// `AvgPool` is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvgPool {
    kernel: Sizes,
    stride: Option<Sizes>,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Option<usize>,
}

impl AvgPool {
    /// A window of a size, with that size as its stride.
    pub fn new(kernel_size: impl Into<Sizes>) -> Self {
        Self {
            kernel: kernel_size.into(),
            stride: None,
            padding: 0.into(),
            ceil_mode: false,
            count_include_pad: true,
            divisor_override: None,
        }
    }

    /// Steps of the window; its size by default.
    pub fn stride(mut self, stride: impl Into<Sizes>) -> Self {
        self.stride = Some(stride.into());
        self
    }

    setters! {
        /// Zeros on both sides; 0 by default.
        padding: into Sizes;
        /// Whether a last window that is only partly filled counts.
        ceil_mode: bool;
        /// Whether padding counts in the average; true by default.
        count_include_pad: bool;
    }

    /// Divides sums by `divisor` instead of the window's size.
    pub fn divisor_override(mut self, divisor: usize) -> Self {
        self.divisor_override = Some(divisor);
        self
    }
}

impl<T: Into<Sizes>> From<T> for AvgPool {
    fn from(kernel: T) -> Self {
        AvgPool::new(kernel)
    }
}

/// The output size of an adaptive pooling; `None` keeps the input's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSize(Vec<Option<usize>>);

impl OutputSize {
    /// The sizes given, one or one per dimension.
    pub fn as_slice(&self) -> &[Option<usize>] {
        &self.0
    }
}

impl From<usize> for OutputSize {
    fn from(size: usize) -> Self {
        OutputSize(vec![Some(size)])
    }
}

impl<const N: usize> From<[usize; N]> for OutputSize {
    fn from(sizes: [usize; N]) -> Self {
        OutputSize(sizes.into_iter().map(Some).collect())
    }
}

impl<const N: usize> From<[Option<usize>; N]> for OutputSize {
    fn from(sizes: [Option<usize>; N]) -> Self {
        OutputSize(sizes.to_vec())
    }
}

impl From<&[Option<usize>]> for OutputSize {
    fn from(sizes: &[Option<usize>]) -> Self {
        OutputSize(sizes.to_vec())
    }
}

/// A pooling and the shapes its tensors show.
#[derive(Clone)]
struct Problem {
    spec: Pool,
    input: Dims,
    output: Dims,
}

impl Problem {
    /// `sizes` gives the output size of each of the two spatial dimensions from the input's.
    fn new(
        op: &str,
        dims: usize,
        x: &Tensor,
        window: Window,
        sizes: impl Fn(usize, usize) -> Result<usize>,
    ) -> Result<Self> {
        x.needs_float(op)?;
        let lead = x.rank().checked_sub(dims).filter(|lead| (1..=2).contains(lead));
        // Windows that follow the output's size need no channels.
        let full = |&lead: &usize| !x.shape()[lead - usize::from(window != Window::Adaptive)..].contains(&0);
        let Some(lead) = lead.filter(full) else {
            return Err(Error::shape(format!(
                "{op}: expected {}D or {}D (batch mode) tensor with optional 0 dim batch size for input, but got: {:?}",
                dims + 1,
                dims + 2,
                x.shape()
            )));
        };
        let mut input = [1; 2];
        input[2 - dims..].copy_from_slice(&x.shape()[lead..]);
        let mut output = [1; 2];
        for i in 2 - dims..2 {
            output[i] = sizes(i, input[i])?;
        }
        let mut shape = Dims::from_slice(&x.shape()[..lead]);
        shape.extend_from_slice(&output[2 - dims..]);
        let planes = x.shape()[..lead].iter().product();
        Ok(Self { spec: Pool { planes, input, output, window }, input: Dims::from_slice(x.shape()), output: shape })
    }

    /// Refuses a size of zero in any dimension but the batch, as PyTorch's adaptive pooling does.
    fn refuse_empty(&self, op: &str, x: &Tensor) -> Result<()> {
        match (self.spec.window, x.shape().get(1..).and_then(|sizes| sizes.iter().position(|&s| s == 0))) {
            (Window::Adaptive, Some(at)) => Err(Error::shape(format!(
                "{op}: expected a non-zero size for non-batch dimensions, but got sizes {:?} with dimension {} being empty",
                x.shape(),
                at + 1
            ))),
            _ => Ok(()),
        }
    }

    fn max(self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        self.refuse_empty("adaptive_max_pool", x)?;
        let channels_last = x.suggests_channels_last();
        let x = readable(x)?;
        let memory = |dtype: DType| x.uninit_in_order(&self.output, dtype);
        let (y, indices) = (memory(x.dtype())?, memory(DType::I64)?);
        if y.numel() > 0 {
            y.run(call::MaxPool {
                spec: self.spec,
                x: x.engine_view(),
                y: y.engine_view(),
                indices: indices.engine_view(),
            })?;
        }
        if recording(&[&x]) {
            let saved = Saved::input(&indices);
            record_many("max_pool", &[&x], &[&y, &indices], move |ctx, mut grads| {
                let Some(dy) = grads.get_mut(0).and_then(|g| g.take()) else { return Ok(smallvec![None]) };
                Ok(smallvec![Some(self.spread(&dy, &ctx.get(&saved)?)?)])
            })?;
        }
        Ok((y.channels_last_if(channels_last)?, indices.channels_last_if(channels_last)?))
    }

    /// Each gradient put where its maximum came from.
    fn spread(&self, dy: &Tensor, indices: &Tensor) -> Result<Tensor> {
        self.refuse_empty("adaptive_max_pool_backward", dy)?;
        let channels_last = dy.suggests_channels_last();
        let dy = if indices.is_channels_last() { dy.channels_last()? } else { dy.contiguous()? };
        let indices = &if indices.is_channels_last() { indices.clone() } else { indices.contiguous()? };
        let dx = indices.uninit_in_order(&self.input, dy.dtype())?;
        if dy.numel() == 0 {
            dx.zero_()?;
        } else if dx.numel() > 0 {
            dx.run(call::MaxPoolBackward {
                spec: self.spec,
                dy: dy.engine_view(),
                indices: indices.engine_view(),
                dx: dx.engine_view(),
            })?;
        }
        if recording(&[&dy]) {
            let (problem, saved) = (self.clone(), Saved::input(indices));
            record("max_pool_backward", &[&dy], &dx, move |ctx, d| {
                Ok(smallvec![Some(problem.pick(d, &ctx.get(&saved)?)?)])
            })?;
        }
        dx.channels_last_if(channels_last)
    }

    /// The elements at the places the maxima came from.
    fn pick(&self, x: &Tensor, indices: &Tensor) -> Result<Tensor> {
        let flat = |t: &Tensor, space: [usize; 2]| t.reshape([self.spec.planes, space[0] * space[1]]);
        flat(x, self.spec.input)?.gather(1, &flat(indices, self.spec.output)?)?.reshape(&self.output)
    }

    fn average(&self, x: &Tensor) -> Result<Tensor> {
        let channels_last = x.suggests_channels_last();
        let x = readable(x)?;
        let y = x.uninit_in_order(&self.output, x.dtype())?;
        if y.numel() > 0 {
            y.run(call::AvgPool { spec: self.spec, x: x.engine_view(), y: y.engine_view() })?;
        }
        if recording(&[&x]) {
            let problem = self.clone();
            record("avg_pool", &[&x], &y, move |_, dy| Ok(smallvec![Some(problem.share(dy)?)]))?;
        }
        y.channels_last_if(channels_last)
    }

    /// Each gradient shared out over its window.
    fn share(&self, dy: &Tensor) -> Result<Tensor> {
        self.refuse_empty("adaptive_avg_pool_backward", dy)?;
        let channels_last = dy.suggests_channels_last();
        let dy = readable(dy)?;
        let dx = dy.uninit_in_order(&self.input, dy.dtype())?;
        if dy.numel() == 0 {
            dx.zero_()?;
        } else if dx.numel() > 0 {
            dx.run(call::AvgPoolBackward { spec: self.spec, dy: dy.engine_view(), dx: dx.engine_view() })?;
        }
        if recording(&[&dy]) {
            let problem = self.clone();
            record("avg_pool_backward", &[&dy], &dx, move |_, d| Ok(smallvec![Some(problem.average(d)?)]))?;
        }
        dx.channels_last_if(channels_last)
    }
}

/// The elements in row-major order, or channels last if `x` has that order and the engine supports it.
fn readable(x: &Tensor) -> Result<Tensor> {
    if x.is_channels_last() { Ok(x.clone()) } else { x.contiguous() }
}

/// The last two of three sizes.
fn last_two(sizes: [usize; 3]) -> [usize; 2] {
    [sizes[1], sizes[2]]
}

/// Output size of a fixed window, by PyTorch's rule: with `ceil` a last window must start within the input or its left
/// padding.
fn window_count(
    op: &str,
    size: usize,
    (kernel, stride, padding, dilation): (usize, usize, usize, usize),
    ceil: bool,
) -> Result<usize> {
    let too_small = || {
        Error::shape(format!(
            "{op}: input of size {size} is too small for a window of size {kernel}, padding {padding} and dilation {dilation}: \
             output size is too small"
        ))
    };
    if padding > kernel / 2 {
        return Err(Error::value(format!(
            "{op}: pad should be at most half of effective kernel size, but got pad={padding}, kernel_size={kernel} and dilation={dilation}"
        )));
    }
    let reach = (kernel - 1).checked_mul(dilation).ok_or_else(too_small)?;
    let padded = padding.checked_mul(2).and_then(|p| p.checked_add(size)).ok_or_else(too_small)?;
    // With `ceil` a window may be larger than the input: its first place counts if the next would be a stride away.
    let beyond = if ceil { stride - 1 } else { 0 };
    let room = padded.checked_add(beyond).and_then(|p| p.checked_sub(reach)).and_then(|r| r.checked_sub(1));
    let Some(room) = room else { return Err(too_small()) };
    let count = room / stride + 1;
    let starts_inside = (count - 1).checked_mul(stride).is_some_and(|start| start < size + padding);
    match if ceil && !starts_inside { count - 1 } else { count } {
        0 => Err(too_small()),
        count => Ok(count),
    }
}

impl MaxPool {
    fn problem(&self, op: &str, dims: usize, x: &Tensor) -> Result<Problem> {
        let kernel = last_two(self.kernel.spread_positive(op, "kernel_size", dims)?);
        let stride = last_two(self.stride.unwrap_or(self.kernel).spread_positive(op, "stride", dims)?);
        let padding = last_two(self.padding.spread(op, "padding", dims, 0)?);
        let dilation = last_two(self.dilation.spread_positive(op, "dilation", dims)?);
        let window =
            Window::Fixed { kernel, stride, padding, dilation, count_include_pad: false, divisor_override: None };
        Problem::new(op, dims, x, window, |i, size| {
            window_count(op, size, (kernel[i], stride[i], padding[i], dilation[i]), self.ceil_mode)
        })
    }
}

impl AvgPool {
    fn problem(&self, op: &str, dims: usize, x: &Tensor) -> Result<Problem> {
        if self.divisor_override == Some(0) {
            return Err(Error::value(format!("{op}: divisor must be not zero")));
        }
        let kernel = last_two(self.kernel.spread_positive(op, "kernel_size", dims)?);
        let stride = last_two(self.stride.unwrap_or(self.kernel).spread_positive(op, "stride", dims)?);
        let padding = last_two(self.padding.spread(op, "padding", dims, 0)?);
        let window = Window::Fixed {
            kernel,
            stride,
            padding,
            dilation: [1; 2],
            count_include_pad: self.count_include_pad,
            divisor_override: self.divisor_override,
        };
        Problem::new(op, dims, x, window, |i, size| {
            window_count(op, size, (kernel[i], stride[i], padding[i], 1), self.ceil_mode)
        })
    }
}

impl OutputSize {
    fn problem(&self, op: &str, dims: usize, x: &Tensor) -> Result<Problem> {
        let given = &self.0;
        if given.len() != 1 && given.len() != dims {
            return Err(Error::value(format!(
                "{op}: output_size must be 1 or {dims} numbers, but {} were given",
                given.len()
            )));
        }
        Problem::new(op, dims, x, Window::Adaptive, |i, size| {
            let wanted = if given.len() == 1 { given[0] } else { given[i + dims - 2] };
            Ok(wanted.unwrap_or(size))
        })
    }
}

macro_rules! pools {
    ($($dims:literal $what:literal $max:ident $max_indices:ident $avg:ident $adaptive_max:ident $adaptive_max_indices:ident $adaptive_avg:ident;)*) => {
        impl Tensor {$(
            #[doc = concat!("The largest element of each window over ", $what, "; the batch dimension may be missing.")]
            pub fn $max(&self, window: impl Into<MaxPool>) -> Result<Tensor> {
                let w = window.into();
                announced!(
                    concat!("nn.functional.", stringify!($max)),
                    [self, w.kernel, w.stride, w.padding, w.dilation, w.ceil_mode];
                    self.$max(w)
                );
                Ok(w.problem(stringify!($max), $dims, self)?.max(self)?.0)
            }

            #[doc = concat!("[`Tensor::", stringify!($max), "`] and where in its plane each maximum was found, `int64`.")]
            pub fn $max_indices(&self, window: impl Into<MaxPool>) -> Result<(Tensor, Tensor)> {
                let w = window.into();
                announced!(
                    concat!("nn.functional.", stringify!($max_indices)),
                    [self, w.kernel, w.stride, w.padding, w.dilation, w.ceil_mode];
                    self.$max_indices(w)
                );
                w.problem(stringify!($max), $dims, self)?.max(self)
            }

            #[doc = concat!("The average of each window over ", $what, "; the batch dimension may be missing.")]
            pub fn $avg(&self, window: impl Into<AvgPool>) -> Result<Tensor> {
                let w = window.into();
                announced!(
                    concat!("nn.functional.", stringify!($avg)),
                    [self, w.kernel, w.stride, w.padding, w.ceil_mode, w.count_include_pad, w.divisor_override];
                    self.$avg(w)
                );
                w.problem(stringify!($avg), $dims, self)?.average(self)
            }

            #[doc = concat!("The largest elements of ", $what, " in windows that give an output of the wanted size.")]
            pub fn $adaptive_max(&self, output_size: impl Into<OutputSize>) -> Result<Tensor> {
                let size = output_size.into();
                announced!(concat!("nn.functional.", stringify!($adaptive_max)), [self, &size]; self.$adaptive_max(size));
                Ok(size.problem(stringify!($adaptive_max), $dims, self)?.max(self)?.0)
            }

            #[doc = concat!("[`Tensor::", stringify!($adaptive_max), "`] and where in its plane each maximum was found, `int64`.")]
            pub fn $adaptive_max_indices(&self, output_size: impl Into<OutputSize>) -> Result<(Tensor, Tensor)> {
                let size = output_size.into();
                announced!(concat!("nn.functional.", stringify!($adaptive_max_indices)), [self, &size]; self.$adaptive_max_indices(size));
                size.problem(stringify!($adaptive_max), $dims, self)?.max(self)
            }

            #[doc = concat!("Averages of ", $what, " in windows that give an output of the wanted size.")]
            pub fn $adaptive_avg(&self, output_size: impl Into<OutputSize>) -> Result<Tensor> {
                let size = output_size.into();
                announced!(concat!("nn.functional.", stringify!($adaptive_avg)), [self, &size]; self.$adaptive_avg(size));
                size.problem(stringify!($adaptive_avg), $dims, self)?.average(self)
            }
        )*}
    };
}

pools! {
    1 "`[batch, channels, length]`" max_pool1d max_pool1d_with_indices avg_pool1d adaptive_max_pool1d adaptive_max_pool1d_with_indices adaptive_avg_pool1d;
    2 "`[batch, channels, height, width]`" max_pool2d max_pool2d_with_indices avg_pool2d adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_avg_pool2d;
}
