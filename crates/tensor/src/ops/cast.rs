//! Copies: between dtypes, devices and layouts, and in place.

use crate::Tensor;
use crate::arg::Arg;
use crate::autograd::{Grads, edges, record, recording};
use crate::tensor::backend;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Device, Dims, Error, Result, Scalar};

impl Tensor {
    /// The elements as another dtype: floats truncate to integers, anything but zero is true. The same tensor if nothing changes.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        self.copy_as(dtype, "to")
    }

    /// The elements on another device. The same tensor if it is there already.
    pub fn to(&self, device: &Device) -> Result<Tensor> {
        if *device == self.device() {
            return Ok(self.clone());
        }
        let target = backend(*device)?;
        let source = self.contiguous()?;
        let out = Tensor::uninit(target, self.shape(), self.dtype())?;
        let size = self.dtype().size();
        let mut bytes = vec![0u8; source.numel() * size];
        source.backend().download(&source.0.storage, source.0.layout.offset() * size, &mut bytes)?;
        target.upload(&bytes, &out.0.storage, 0)?;
        if recording(&[self]) {
            let home = self.device();
            record("to", &[self], &out, move |_, dy| Ok(smallvec![Some(dy.to(&home)?)]))?;
        }
        Ok(out)
    }

    /// A tensor of its own with the same elements, row-major: PyTorch's `clone()`. (Rust's `clone` gives the same tensor.)
    pub fn copy(&self) -> Result<Tensor> {
        self.copy_as(self.dtype(), "clone")
    }

    fn copy_as(&self, dtype: DType, name: &'static str) -> Result<Tensor> {
        let out = self.uninit_like(self.shape(), dtype)?;
        if out.numel() > 0 {
            self.backend().copy(self.view(), out.view())?;
        }
        if dtype.is_float() && recording(&[self]) {
            let from = self.dtype();
            record(name, &[self], &out, move |_, dy| Ok(smallvec![Some(dy.to_dtype(from)?)]))?;
        }
        Ok(out)
    }

    /// The same elements in row-major order; the same tensor if they are already.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.copy_as(self.dtype(), "contiguous") }
    }

    /// Overwrites the elements with those of `source`, broadcast and converted.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::zeros([2, 3])?;
    /// x.select(0, 1)?.copy_(&Tensor::new([1.0f32, 2.0, 3.0])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn copy_(&self, source: &Tensor) -> Result<&Tensor> {
        if source.device() != self.device() {
            return self.copy_(&source.to(&self.device())?);
        }
        let layout = source.layout().expand(self.shape()).map_err(|e| e.within("copy_"))?;
        self.check_inplace("copy_", &[self, source])?;
        let record = self.dtype().is_float() && recording(&[self, source]);
        let edges = if record { edges(&[self, source])? } else { SmallVec::new() };
        if self.numel() > 0 {
            if source.shares_storage(self) {
                let copy = source.detach().copy()?;
                let layout = copy.layout().expand(self.shape())?;
                self.backend().copy(copy.view_as(&layout), self.view())?;
            } else {
                self.backend().copy(source.view_as(&layout), self.view())?;
            }
        }
        self.changed_unrecorded();
        if record {
            let (shape, dtype) = (Dims::from_slice(source.shape()), source.dtype());
            self.new_history(
                "copy_",
                edges,
                Box::new(move |ctx, grads| {
                    let Some(dy) = grads.into_iter().next().flatten() else { return Ok(Grads::new()) };
                    let to_source = if ctx.needs(1) { Some(dy.sum_to_size(&shape)?.to_dtype(dtype)?) } else { None };
                    let to_self = if ctx.needs(0) { Some(dy.zeros_like()?) } else { None };
                    Ok(smallvec![to_self, to_source])
                }),
            );
        }
        Ok(self)
    }

    /// Sets every element to a number.
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<&Tensor> {
        let value = value.into();
        self.check_inplace("fill_", &[self])?;
        let record = recording(&[self]);
        let edges = if record { edges(&[self])? } else { SmallVec::new() };
        if self.numel() > 0 {
            self.backend().fill(value, self.view())?;
        }
        self.changed_unrecorded();
        if record {
            self.new_history(
                "fill_",
                edges,
                Box::new(|_, grads| {
                    let Some(dy) = grads.into_iter().next().flatten() else { return Ok(Grads::new()) };
                    Ok(smallvec![Some(dy.zeros_like()?)])
                }),
            );
        }
        Ok(self)
    }

    /// Sets every element to zero.
    pub fn zero_(&self) -> Result<&Tensor> {
        self.fill_(0)
    }

    /// Sets every element to a number, or a zero-dim tensor's.
    pub(crate) fn assign(&self, value: Arg) -> Result<&Tensor> {
        match value {
            Arg::Tensor(t) => self.copy_(t),
            Arg::Scalar(s) => self.fill_(s),
        }
    }

    /// An error where two operands live on different devices.
    pub(crate) fn same_device(&self, other: &Tensor, name: &str) -> Result<()> {
        // An engine serves one device, so nearly always one comparison of addresses will do.
        if std::ptr::addr_eq(self.backend(), other.backend()) || self.device() == other.device() {
            return Ok(());
        }
        Err(Error::device(format!(
            "{name}: expected all tensors to be on the same device, but found {} and {}; move one with .to(&device)",
            self.device(),
            other.device()
        )))
    }
}
