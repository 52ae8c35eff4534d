//! Complex numbers.
//!
//! A complex tensor's memory is pairs of reals, and [`Tensor::view_as_real`] is a view of it. Ops on complex tensors
//! are made of ops on those reals, so they run on every engine. Moves, copies and sums are calls on the pairs
//! (`rushlight_engines::carried`); products, quotients and Fourier transforms are calls of their own.
//!
//! Gradients follow PyTorch's convention: that of `a + b i` is `∂L/∂a + i ∂L/∂b`. So the derivative of a view of the
//! parts is again that view, and the derivative of a holomorphic function multiplies by the conjugate of `f'`.

mod functions;
mod products;
mod rows;

pub(crate) use products::{conjugate_product, matrix_product};
pub(crate) use rows::{involved, row, row_inplace};

use crate::Tensor;
use crate::autograd::{no_grad, record, recording};
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Layout, Result, Scalar};

/// The layout of a complex tensor's parts, in a last dimension of two.
pub(crate) fn pairs_layout(layout: &Layout) -> Result<Layout> {
    let mut shape = Dims::from_slice(layout.shape());
    let mut strides: Dims = layout.strides().iter().map(|s| 2 * s).collect();
    shape.push(2);
    strides.push(1);
    Layout::strided(&shape, &strides, 2 * layout.offset())
}

/// The layout of the complex numbers whose parts are in the last dimension, or the reason why there is none.
fn numbers_layout(layout: &Layout) -> Result<Layout> {
    let fail = |reason: &str| Err(Error::value(format!("view_as_complex: {reason}")));
    let (Some((&2, shape)), Some((&step, strides))) = (layout.shape().split_last(), layout.strides().split_last())
    else {
        return fail("Tensor must have a last dimension of size 2");
    };
    if step != 1 && layout.numel() > 0 {
        return fail("Tensor must have a last dimension with stride 1");
    }
    if shape.iter().zip(strides).any(|(&size, &stride)| size > 1 && stride % 2 != 0) {
        return fail("Tensor must have a stride divisible by 2 for all but last dimension");
    }
    if !layout.offset().is_multiple_of(2) {
        return fail("Tensor must have a storage_offset divisible by 2");
    }
    let halves: Dims = strides.iter().map(|s| s.div_ceil(2)).collect();
    Layout::strided(shape, &halves, layout.offset() / 2)
}

/// Complex numbers of their real and imaginary parts, which have one dtype and broadcast.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, complex};
/// let z = complex(&Tensor::new([1.0, 3.0])?, &Tensor::new([2.0, -1.0])?)?;
/// assert_eq!(z.to_string(), "tensor([1.+2.j, 3.-1.j])");
/// assert_eq!(z.mul(&z)?.imag()?.to_vec::<f32>()?, [4.0, -6.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn complex(real: &Tensor, imag: &Tensor) -> Result<Tensor> {
    let dtype = real.dtype();
    if !matches!(dtype, DType::F16 | DType::F32 | DType::F64) {
        return Err(Error::dtype(format!(
            "complex: Expected both inputs to be Half, Float or Double tensors but got {dtype} and {}",
            imag.dtype()
        )));
    }
    if imag.dtype() != dtype {
        return Err(Error::dtype(format!(
            "complex: Expected object of scalar type {dtype} but got scalar type {} for second argument",
            imag.dtype()
        )));
    }
    real.same_device(imag, "complex")?;
    let shape = broadcast_shapes(real.shape(), imag.shape()).map_err(|e| e.within("complex"))?;
    let out = real.uninit_like(&shape, dtype.complex())?;
    no_grad(|| {
        let pairs = out.pairs()?;
        pairs.select(-1, 0)?.copy_(real)?;
        pairs.select(-1, 1)?.copy_(imag).map(drop)
    })?;
    if recording(&[real, imag]) {
        let (first, second) = (Dims::from_slice(real.shape()), Dims::from_slice(imag.shape()));
        record("complex", &[real, imag], &out, move |_, dy| {
            Ok(smallvec![Some(dy.real()?.sum_to_size(&first)?), Some(dy.imag()?.sum_to_size(&second)?)])
        })?;
    }
    Ok(out)
}

/// Complex numbers of their magnitudes and angles.
pub fn polar(abs: &Tensor, angle: &Tensor) -> Result<Tensor> {
    if abs.dtype() != angle.dtype() {
        return Err(Error::dtype(format!(
            "polar: Expected object of scalar type {} but got scalar type {} for second argument",
            abs.dtype(),
            angle.dtype()
        )));
    }
    if !matches!(abs.dtype(), DType::F32 | DType::F64) {
        return Err(Error::dtype(format!(
            "polar: Expected both inputs to be Float or Double tensors but got {} and {}",
            abs.dtype(),
            angle.dtype()
        )));
    }
    complex(&abs.mul(&angle.cos()?)?, &abs.mul(&angle.sin()?)?)
}

impl Tensor {
    /// Whether the elements are complex numbers.
    pub fn is_complex(&self) -> bool {
        self.dtype().is_complex()
    }

    /// The parts of a complex tensor in a last dimension of two, not recorded.
    pub(crate) fn pairs(&self) -> Result<Tensor> {
        Ok(self.over_same_memory(pairs_layout(self.layout())?, self.dtype().real(), Default::default()))
    }

    /// The numbers of a contiguous tensor as real ones of this shape, not recorded.
    pub(crate) fn as_reals(&self, shape: &[usize]) -> Result<Tensor> {
        let factor = if self.is_complex() { 2 } else { 1 };
        let layout = Layout::contiguous(shape)?.with_offset(factor * self.layout().offset());
        Ok(self.over_same_memory(layout, self.dtype().real(), Default::default()))
    }

    fn needs_complex(&self, name: &str) -> Result<()> {
        if self.is_complex() {
            return Ok(());
        }
        Err(Error::dtype(format!("{name}: is only supported for complex tensors, got {}", self.dtype())))
    }

    /// A view of the real and imaginary parts, in a last dimension of two.
    pub fn view_as_real(&self) -> Result<Tensor> {
        self.needs_complex("view_as_real")?;
        let out = self.make_view_as(pairs_layout(self.layout())?, self.dtype().real());
        if recording(&[self]) {
            record("view_as_real", &[self], &out, |_, dy| Ok(smallvec![Some(dy.contiguous()?.view_as_complex()?)]))?;
        }
        Ok(out)
    }

    /// A view of a last dimension of two as complex numbers.
    pub fn view_as_complex(&self) -> Result<Tensor> {
        if !matches!(self.dtype(), DType::F16 | DType::F32 | DType::F64) {
            return Err(Error::dtype(format!(
                "view_as_complex: is only supported for half, float and double tensors, but got a tensor of {}",
                self.dtype()
            )));
        }
        if self.rank() == 0 {
            return Err(Error::value("view_as_complex: Input tensor must have one or more dimensions"));
        }
        let out = self.make_view_as(numbers_layout(self.layout())?, self.dtype().complex());
        if recording(&[self]) {
            record("view_as_complex", &[self], &out, |_, dy| Ok(smallvec![Some(dy.view_as_real()?)]))?;
        }
        Ok(out)
    }

    /// The real parts, a view; a real tensor itself.
    pub fn real(&self) -> Result<Tensor> {
        if self.is_complex() { self.view_as_real()?.select(-1, 0) } else { Ok(self.clone()) }
    }

    /// The imaginary parts, a view.
    pub fn imag(&self) -> Result<Tensor> {
        if !self.is_complex() {
            return Err(Error::dtype("imag: is not implemented for tensors with non-complex dtypes."));
        }
        self.view_as_real()?.select(-1, 1)
    }

    /// Complex conjugates; a real tensor itself.
    pub fn conj(&self) -> Result<Tensor> {
        if !self.is_complex() {
            return Ok(self.clone());
        }
        let out = self.detach().copy()?;
        no_grad(|| out.pairs()?.select(-1, 1)?.neg_().map(drop))?;
        if recording(&[self]) {
            record("conj", &[self], &out, |_, dy| Ok(smallvec![Some(dy.conj()?)]))?;
        }
        Ok(out)
    }

    /// Matrices transposed and conjugated: PyTorch's `.mH`.
    pub fn mh(&self) -> Result<Tensor> {
        self.mt()?.conj()
    }

    /// The number of a complex tensor with one element.
    pub(crate) fn complex_item(&self) -> Result<Scalar> {
        if self.numel() != 1 {
            return self.item::<f64>().map(Scalar::Float);
        }
        let parts = no_grad(|| self.detach().pairs()?.to_vec::<f64>())?;
        Ok(Scalar::Complex(parts[0], parts[1]))
    }
}
