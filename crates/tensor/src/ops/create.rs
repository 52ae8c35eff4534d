//! Tensor constructors: from Rust data, constants and ranges.

use super::number::fitting;
use crate::Tensor;
use crate::arg::{Arg, default_dtype};
use crate::engine::allocate;
use crate::profile::transfer;
use crate::tensor::backend;
use rushlight_core::backend::call;
use rushlight_core::half::{bf16, f16};
use rushlight_core::{DType, Device, Element, Error, Result, Scalar};

/// The dtype and device of a new tensor; [`default_dtype`] on the CPU by default.
///
/// ```
/// # mod rushlight { pub use rushlight_core::{DType, Device}; pub use rushlight_tensor::*; }
/// use rushlight::{DType, Device};
/// use rushlight::{Options, Tensor};
/// let x = Tensor::zeros_with([2], Options::from(DType::F64).device(Device::Cpu))?;
/// assert_eq!(x.dtype(), DType::F64);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    dtype: Option<DType>,
    device: Device,
}

impl Options {
    /// Sets the dtype.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Sets the device.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    pub(crate) fn dtype_or(&self, default: DType) -> DType {
        self.dtype.unwrap_or(default)
    }

    pub(crate) fn uninit(&self, shape: &[usize], default: DType) -> Result<Tensor> {
        Tensor::uninit(backend(self.device)?, shape, self.dtype_or(default))
    }
}

impl From<DType> for Options {
    fn from(dtype: DType) -> Self {
        Options::default().dtype(dtype)
    }
}

impl From<Device> for Options {
    fn from(device: Device) -> Self {
        Options::default().device(device)
    }
}

impl From<(DType, Device)> for Options {
    fn from((dtype, device): (DType, Device)) -> Self {
        Options::default().dtype(dtype).device(device)
    }
}

/// Rust data that can become a tensor: a number, or arrays, slices and vectors of it, nested.
pub trait TensorData {
    /// The elements of the tensor: the number's own type, `i64` for `i32`, `isize` and the unsigned types above `u8`.
    type Elem: Element;
    /// Appends the sizes from here down.
    fn push_shape(&self, shape: &mut Vec<usize>);
    /// Appends the elements, checking that all parts have the sizes of the first.
    fn push_elements(&self, shape: &[usize], out: &mut Vec<Self::Elem>) -> Result<()>;
}

macro_rules! leaf {
    ($($t:ty)*) => {$(
        impl TensorData for $t {
            type Elem = $t;
            fn push_shape(&self, _: &mut Vec<usize>) {}
            fn push_elements(&self, _: &[usize], out: &mut Vec<$t>) -> Result<()> {
                out.push(*self);
                Ok(())
            }
        }
    )*};
}
leaf!(f32 f64 f16 bf16 i64 i16 i8 u8 bool);

/// Integers that become `int64`: the type of a bare literal, and those without a dtype of their own.
macro_rules! integer_leaf {
    ($($t:ty)*) => {$(
        impl TensorData for $t {
            type Elem = i64;
            fn push_shape(&self, _: &mut Vec<usize>) {}
            fn push_elements(&self, _: &[usize], out: &mut Vec<i64>) -> Result<()> {
                out.push(i64::try_from(*self).map_err(|_| Error::value(format!("Tensor::new: {self} is beyond the range of int64")))?);
                Ok(())
            }
        }
    )*};
}
integer_leaf!(i32 isize u16 u32 u64 usize);

/// The data that [`Tensor::new`] takes: all [`TensorData`] but `f64`, so that a float without a suffix is an `f32`,
/// PyTorch's default dtype.
#[diagnostic::on_unimplemented(
    message = "`Tensor::new` does not take `{Self}`",
    note = "`float64` data needs `Tensor::new_with(data, DType::F64)`; `Tensor::new` makes `float32` of floats"
)]
pub trait Literal: TensorData {}

macro_rules! literals {
    ($($t:ty)*) => { $(impl Literal for $t {})* };
}
literals!(f32 f16 bf16 i64 i32 i16 i8 u8 bool isize u16 u32 u64 usize);

impl<T: Literal, const N: usize> Literal for [T; N] {}
impl<T: Literal> Literal for Vec<T> {}
impl<T: Literal> Literal for [T] {}
impl<D: Literal + ?Sized> Literal for &D {}

fn push_all<T: TensorData>(items: &[T], shape: &[usize], out: &mut Vec<T::Elem>) -> Result<()> {
    if shape.first() != Some(&items.len()) {
        return Err(Error::shape(format!(
            "Tensor::new: expected sequence of length {} at one nesting level, got {}; all parts must have the same size",
            shape.first().copied().unwrap_or(0),
            items.len()
        )));
    }
    items.iter().try_for_each(|item| item.push_elements(&shape[1..], out))
}

macro_rules! sequence {
    ($(($($generics:tt)*) $t:ty;)*) => {$(
        impl<$($generics)*> TensorData for $t {
            type Elem = T::Elem;
            fn push_shape(&self, shape: &mut Vec<usize>) {
                shape.push(self.len());
                if let Some(first) = self.first() {
                    first.push_shape(shape);
                }
            }
            fn push_elements(&self, shape: &[usize], out: &mut Vec<T::Elem>) -> Result<()> {
                push_all(self, shape, out)
            }
        }
    )*};
}
sequence! {
    (T: TensorData, const N: usize) [T; N];
    (T: TensorData) Vec<T>;
    (T: TensorData) [T];
}

impl<D: TensorData + ?Sized> TensorData for &D {
    type Elem = D::Elem;
    fn push_shape(&self, shape: &mut Vec<usize>) {
        (**self).push_shape(shape);
    }
    fn push_elements(&self, shape: &[usize], out: &mut Vec<D::Elem>) -> Result<()> {
        (**self).push_elements(shape, out)
    }
}

impl Tensor {
    /// A tensor from a number or nested arrays, slices or vectors: PyTorch's `torch.tensor`.
    ///
    /// As there, floats without a suffix give `float32` and integers `int64`; other types give their own dtype, `f64`
    /// needs [`Tensor::new_with`].
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// # use rushlight_core::DType;
    /// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 2][..], DType::F32));
    /// assert_eq!(Tensor::new([1, 2, 3])?.dtype(), DType::I64);
    /// assert_eq!(Tensor::new(vec![7usize])?.to_vec::<i64>()?, [7]);
    /// assert_eq!(Tensor::new_with([0.1], DType::F64)?.item::<f64>()?, 0.1);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias("tensor", "array", "from_vec"))]
    pub fn new(data: impl Literal) -> Result<Tensor> {
        Tensor::from_data(&data)
    }

    /// [`Tensor::new`] of a dtype on a device, from data of any number type.
    pub fn new_with(data: impl TensorData, options: impl Into<Options>) -> Result<Tensor> {
        let options = options.into();
        let own = Tensor::from_data(&data)?;
        own.to_dtype(options.dtype_or(own.dtype()))?.to(options.device)
    }

    fn from_data(data: &impl TensorData) -> Result<Tensor> {
        let mut shape = Vec::new();
        data.push_shape(&mut shape);
        let mut elements = Vec::with_capacity(shape.iter().product());
        data.push_elements(&shape, &mut elements)?;
        Tensor::from_slice(&elements, shape)
    }

    /// A tensor of a given shape from its elements in row-major order.
    #[doc(alias("from_numpy", "asarray", "from_vec"))]
    pub fn from_slice<T: Element>(elements: &[T], shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let shape = shape.as_ref();
        crate::capture::refuse_elements("a tensor of elements on the host")?;
        if rushlight_core::layout::checked_numel(shape)? != elements.len() {
            return Err(Error::shape(format!("shape {shape:?} is invalid for input of size {}", elements.len())));
        }
        let out = Tensor::uninit(backend(Device::Cpu)?, shape, T::DTYPE)?;
        // SAFETY: `Element` types are plain data without padding, so their bytes may be read.
        let bytes =
            unsafe { std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), std::mem::size_of_val(elements)) };
        transfer("rushlight::upload", || out.backend().upload(bytes, &out.0.storage, 0))?;
        if crate::program::is_noting() {
            crate::program::note_elements(&out.0.storage);
        }
        Ok(out)
    }

    /// A one-dimensional tensor from an iterator.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::from_iter((0..3).map(|i| i as f32 * 0.5))?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[allow(clippy::should_implement_trait)]
    pub fn from_iter<T: Element>(elements: impl IntoIterator<Item = T>) -> Result<Tensor> {
        let elements: Vec<T> = elements.into_iter().collect();
        let shape = [elements.len()];
        Tensor::from_slice(&elements, shape)
    }

    /// A zero-dim tensor holding a number: `int64` for integers, `float32` for floats, `bool` for truth values.
    pub fn scalar(value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        Tensor::full_with([], value, Arg::Scalar(value).dtype())
    }

    /// A tensor of unspecified values, `float32`. They are zeros: no one reads another's freed memory.
    pub fn empty(shape: impl AsRef<[usize]>) -> Result<Tensor> {
        Tensor::zeros(shape)
    }

    /// [`Tensor::empty`] of a dtype on a device.
    pub fn empty_with(shape: impl AsRef<[usize]>, options: impl Into<Options>) -> Result<Tensor> {
        Tensor::zeros_with(shape, options)
    }

    /// All zeros, `float32`.
    pub fn zeros(shape: impl AsRef<[usize]>) -> Result<Tensor> {
        Tensor::full_with(shape, 0.0, Options::default())
    }

    /// All zeros of a dtype on a device.
    pub fn zeros_with(shape: impl AsRef<[usize]>, options: impl Into<Options>) -> Result<Tensor> {
        let options = options.into();
        Tensor::full_with(shape, 0, options.dtype(options.dtype_or(default_dtype())))
    }

    /// All ones, `float32`.
    pub fn ones(shape: impl AsRef<[usize]>) -> Result<Tensor> {
        Tensor::full_with(shape, 1.0, Options::default())
    }

    /// All ones of a dtype on a device.
    pub fn ones_with(shape: impl AsRef<[usize]>, options: impl Into<Options>) -> Result<Tensor> {
        let options = options.into();
        Tensor::full_with(shape, 1, options.dtype(options.dtype_or(default_dtype())))
    }

    /// One value throughout; the dtype follows the value.
    #[doc(alias = "fill")]
    pub fn full(shape: impl AsRef<[usize]>, value: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::full_with(shape, value, Options::default())
    }

    /// One value throughout, of a dtype on a device.
    pub fn full_with(
        shape: impl AsRef<[usize]>,
        value: impl Into<Scalar>,
        options: impl Into<Options>,
    ) -> Result<Tensor> {
        let value = value.into();
        let out = options.into().uninit(shape.as_ref(), value.dtype())?;
        let value = fitting("full", value, out.dtype())?;
        if out.numel() > 0 {
            out.run(call::Fill { value, out: out.engine_view() })?;
        }
        Ok(out)
    }

    /// One value throughout, with this tensor's shape, memory order, dtype and device.
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        self.full_like_with(value, (self.dtype(), self.device()))
    }

    /// [`Tensor::full_like`] of a dtype on a device.
    pub fn full_like_with(&self, value: impl Into<Scalar>, options: impl Into<Options>) -> Result<Tensor> {
        let options = options.into();
        let dtype = options.dtype_or(self.dtype());
        let value = fitting("full_like", value.into(), dtype)?;
        let layout = self.layout().preserved();
        let storage = allocate(backend(options.device)?, layout.numel() * dtype.size())?;
        let out = Tensor::from_parts(storage, layout, dtype, Default::default());
        if out.numel() > 0 {
            out.run(call::Fill { value, out: out.engine_view() })?;
        }
        Ok(out)
    }

    /// Zeros with this tensor's shape, dtype and device.
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.full_like(0)
    }

    /// Ones with this tensor's shape, dtype and device.
    pub fn ones_like(&self) -> Result<Tensor> {
        self.full_like(1)
    }

    /// `start, start + step, …` up to but not including `end`; `int64` if all three are integers, else `float32`.
    pub fn arange(start: impl Into<Scalar>, end: impl Into<Scalar>, step: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::arange_with(start, end, step, Options::default())
    }

    /// [`Tensor::arange`] of a dtype on a device.
    pub fn arange_with(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        options: impl Into<Options>,
    ) -> Result<Tensor> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let integral = [start, end, step].iter().all(|s| !matches!(s, Scalar::Float(_)));
        let count = if integral {
            let (a, b, s) = (start.to_i64() as i128, end.to_i64() as i128, step.to_i64() as i128);
            range_checks(s == 0, (b - a) * s < 0, false)?;
            ((b - a) / s + i128::from((b - a) % s != 0)) as f64
        } else {
            let (a, b, s) = (start.to_f64(), end.to_f64(), step.to_f64());
            range_checks(s == 0.0, (b - a) * s < 0.0, !(a.is_finite() && b.is_finite() && s.is_finite()))?;
            ((b - a) / s).ceil()
        };
        if count > isize::MAX as f64 / 16.0 {
            return Err(Error::value(format!("arange: {count} elements are more than memory can address")));
        }
        let out = options.into().uninit(&[count as usize], if integral { DType::I64 } else { default_dtype() })?;
        if out.numel() > 0 {
            out.run(call::Arange { start, step, out: out.engine_view() })?;
        }
        Ok(out)
    }

    /// `steps` values from `start` to `end`, both included, `float32`.
    pub fn linspace(start: f64, end: f64, steps: usize) -> Result<Tensor> {
        Tensor::linspace_with(start, end, steps, Options::default())
    }

    /// [`Tensor::linspace`] of a dtype on a device. For an integer dtype the ends are integers, and values between are
    /// truncated.
    pub fn linspace_with(start: f64, end: f64, steps: usize, options: impl Into<Options>) -> Result<Tensor> {
        let options = options.into();
        let dtype = options.dtype_or(default_dtype());
        even_values("linspace", start, end, steps, dtype, options.device)?.to_dtype(dtype)
    }

    /// `base` to the powers of [`Tensor::linspace`].
    pub fn logspace(start: f64, end: f64, steps: usize, base: f64) -> Result<Tensor> {
        Tensor::logspace_with(start, end, steps, base, Options::default())
    }

    /// [`Tensor::logspace`] of a dtype on a device.
    pub fn logspace_with(start: f64, end: f64, steps: usize, base: f64, options: impl Into<Options>) -> Result<Tensor> {
        let options = options.into();
        let dtype = options.dtype_or(default_dtype());
        let exponents = even_values("logspace", start, end, steps, dtype, options.device)?;
        exponents.rpow(base)?.to_dtype(dtype)
    }

    /// The identity matrix, `n` by `m`, `float32`.
    #[doc(alias = "identity")]
    pub fn eye(n: usize, m: usize) -> Result<Tensor> {
        Tensor::eye_with(n, m, Options::default())
    }

    /// [`Tensor::eye`] of a dtype on a device.
    pub fn eye_with(n: usize, m: usize, options: impl Into<Options>) -> Result<Tensor> {
        let out = Tensor::zeros_with([n, m], options)?;
        out.diagonal(0, 0, 1)?.fill_(1)?;
        Ok(out)
    }
}

/// `steps` values of `f64` at equal distances, whose ends are elements of `dtype`; made on the device.
fn even_values(name: &str, start: f64, end: f64, steps: usize, dtype: DType, device: Device) -> Result<Tensor> {
    if dtype == DType::Bool {
        return Err(Error::dtype(format!("{name}: not implemented for bool")));
    }
    let dtype = if dtype.is_complex() { dtype.real() } else { dtype };
    let element = |v: f64| -> Result<f64> {
        let v = fitting(name, Scalar::Float(v), dtype)?.to_f64();
        Ok(if dtype.is_float() { v } else { v.trunc() })
    };
    let (start, end) = (element(start)?, element(end)?);
    let step = if steps <= 1 { 0.0 } else { (end - start) / (steps - 1) as f64 };
    // PyTorch's step between integers is an `f32`.
    let step = if dtype.is_float() { step } else { step as f32 as f64 };
    // From both ends to the middle, so that the last value is exactly `end`.
    let half = if steps == 1 { 1 } else { steps / 2 };
    let place = Tensor::arange_with(0, steps, 1, (DType::F64, device))?;
    let (up, down) = (place.mul(step)?.add(start)?, place.rsub(steps as f64 - 1.0)?.mul(step)?.rsub(end)?);
    super::compare::where_(&place.lt(half as f64)?, &up, &down)
}

fn range_checks(zero_step: bool, wrong_way: bool, infinite: bool) -> Result<()> {
    if zero_step {
        return Err(Error::value("arange: step must be nonzero"));
    }
    if infinite {
        return Err(Error::value("arange: unsupported range: bounds and step must be finite"));
    }
    if wrong_way {
        return Err(Error::value("arange: upper bound and larger bound inconsistent with step sign"));
    }
    Ok(())
}
