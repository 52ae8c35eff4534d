//! Copies: between dtypes, devices and layouts, and in place.

use super::number::fitting;
use crate::announce::announced;
use crate::arg::Arg;
use crate::autograd::{Grads, Meta, edges, no_grad, record, record_conversion, recording};
use crate::capture;
use crate::engine::allocate;
use crate::profile::transfer;
use crate::tensor::backend;
use crate::{Stream, Tensor};
use rushlight_core::backend::{Outcome, call};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Device, Dims, Error, Layout, Result, Scalar, Storage};
use std::sync::Arc;

/// The target of [`Tensor::to`] and of a module's `to`: a dtype, a device, both, or those of another tensor.
#[derive(Clone, Copy, Debug, Default)]
pub struct To {
    /// The dtype, if it changes.
    pub dtype: Option<DType>,
    /// The device, if it changes.
    pub device: Option<Device>,
}

impl From<DType> for To {
    fn from(dtype: DType) -> Self {
        To { dtype: Some(dtype), device: None }
    }
}

impl From<Device> for To {
    fn from(device: Device) -> Self {
        To { dtype: None, device: Some(device) }
    }
}

impl From<&Device> for To {
    fn from(device: &Device) -> Self {
        (*device).into()
    }
}

impl From<(DType, Device)> for To {
    fn from((dtype, device): (DType, Device)) -> Self {
        To { dtype: Some(dtype), device: Some(device) }
    }
}

impl From<(Device, DType)> for To {
    fn from((device, dtype): (Device, DType)) -> Self {
        (dtype, device).into()
    }
}

impl From<&Tensor> for To {
    fn from(other: &Tensor) -> Self {
        (other.dtype(), other.device()).into()
    }
}

impl Tensor {
    /// The elements as another dtype: floats truncate to integers, anything but zero is true. The same tensor if
    /// nothing changes.
    #[doc(alias("astype", "type", "float", "half", "long", "double", "bfloat16"))]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        announced!("Tensor.to", [self, dtype]; self.to_dtype(dtype));
        let kept = if recording(&[self]) { None } else { self.lowered_copy(dtype, true) };
        kept.map_or_else(|| self.copy_as(dtype, "to"), Ok)
    }

    /// Keeps a copy in a lower dtype that a kernel wrote along with this tensor. The first conversion to that dtype
    /// takes it.
    pub(crate) fn keep_lowered(&self, copy: Tensor) {
        let version = self.version();
        self.meta().extra().lowered = Some((copy, version));
    }

    /// That copy, if there is one of this dtype and this tensor has not changed since: to `own`, or to read only.
    fn lowered_copy(&self, dtype: DType, own: bool) -> Option<Tensor> {
        if self.dtype() != DType::F32 || !matches!(dtype, DType::BF16 | DType::F16) {
            return None;
        }
        let version = self.version();
        let mut meta = self.meta();
        let kept = &mut meta.extra.as_mut()?.lowered;
        let (copy, of) = kept.as_ref()?;
        if *of != version || copy.dtype() != dtype || (own && !copy.is_sole_owner()) {
            return None;
        }
        if own { kept.take().map(|(copy, _)| copy) } else { Some(copy.alias()) }
    }

    /// The elements on another device, as another dtype, or both: `x.to(device)?`, `x.to(DType::BF16)?`,
    /// `x.to((dtype, device))?`, or as another tensor has them, `x.to(&other)?`. The same tensor if nothing changes.
    pub fn to(&self, target: impl Into<To>) -> Result<Tensor> {
        match target.into() {
            To { dtype: None, device: Some(device) } => self.to_device(device),
            To { dtype: Some(dtype), device: None } => self.to_dtype(dtype),
            To { dtype: None, device: None } => Ok(self.clone()),
            To { dtype: Some(dtype), device: Some(device) } => self.to_device(device)?.to_dtype(dtype),
        }
    }

    fn to_device(&self, device: Device) -> Result<Tensor> {
        if device == self.device() {
            return Ok(self.clone());
        }
        announced!("Tensor.to", [self, device]; self.to_device(device));
        capture::refuse("to", device)?;
        capture::refuse("to", self.device())?;
        let out = self.moved(device, false)?;
        if recording(&[self]) {
            let home = self.device();
            record("to", &[self], &out, move |_, dy| Ok(smallvec![Some(dy.to(home)?)]))?;
        }
        Ok(out)
    }

    /// [`Tensor::to`], which may return before the copy is done if `non_blocking`: from pinned memory
    /// ([`Tensor::pin_memory`]) to a GPU, which sees the elements in whatever it is given next. Do not change the
    /// pinned tensor before [`synchronize`](crate::synchronize).
    pub fn to_with(&self, device: &Device, non_blocking: bool) -> Result<Tensor> {
        if !non_blocking || *device == self.device() || recording(&[self]) {
            return self.to(device);
        }
        capture::refuse("to", *device)?;
        capture::refuse("to", self.device())?;
        self.moved(*device, true)
    }

    fn moved(&self, device: Device, non_blocking: bool) -> Result<Tensor> {
        let target = backend(device)?;
        // A dense tensor keeps its memory order.
        let layout = self.layout().preserved();
        let storage = allocate(target, layout.numel() * self.dtype().size())?;
        let out = Tensor::from_parts(storage, layout, self.dtype(), Meta::default());
        if device == Device::Meta {
            return Ok(out);
        }
        crate::meta::refuse("Cannot copy out", self.device())?;
        let source = no_grad(|| self.in_layout(out.layout()))?;
        let size = self.dtype().size();
        let (start, len) = (source.0.layout.offset() * size, source.numel() * size);
        if len == 0 {
            return Ok(out);
        }
        match (source.device(), device) {
            (Device::Cpu, _) => source.upload_to(&out, non_blocking)?,
            (_, Device::Cpu) => {
                // SAFETY: memory that was just allocated for these elements and that nobody else sees; every byte is
                // written.
                let bytes = unsafe { std::slice::from_raw_parts_mut(out.engine_view().ptr(), len) };
                transfer("rushlight::download", || source.backend().download(&source.0.storage, start, bytes))?;
            }
            _ if target.copy_from_peer(&source.0.storage, start, &out.0.storage, len)? == Outcome::Done => {}
            _ => source.moved(Device::Cpu, false)?.upload_to(&out, false)?,
        }
        Ok(out)
    }

    /// Copies a dense tensor's elements in memory order from the host to a tensor of the same size on another device.
    pub(crate) fn upload_to(&self, out: &Tensor, non_blocking: bool) -> Result<()> {
        let (ptr, len) = (self.engine_view().ptr(), self.numel() * self.dtype().size());
        if non_blocking && self.is_pinned() {
            // SAFETY: the elements are on the host; pinned memory is not used for anything else before the copy is
            // done.
            return transfer("rushlight::upload_pinned", || unsafe {
                out.backend().upload_pinned(ptr, len, &out.0.storage, 0)
            });
        }
        // SAFETY: the elements are on the host, and this handle keeps them alive.
        let bytes = unsafe { std::slice::from_raw_parts(ptr, len) };
        transfer("rushlight::upload", || out.backend().upload(bytes, &out.0.storage, 0))
    }

    /// The same elements in host memory that a GPU can copy from while the program continues ([`Tensor::to_with`]). The
    /// same tensor if it is such already.
    pub fn pin_memory(&self) -> Result<Tensor> {
        if !self.device().is_cpu() {
            return Err(Error::device(format!(
                "pin_memory: only tensors on the CPU can be pinned, this one is on {}",
                self.device()
            )));
        }
        if self.is_pinned() {
            return Ok(self.clone());
        }
        let memory = rushlight_engines::pinned_memory()?.alloc(self.numel() * self.dtype().size())?;
        // SAFETY: the owner keeps the memory for as long as the storage lives.
        let storage = unsafe { Storage::from_owner(backend(Device::Cpu)?, memory.ptr, memory.bytes, memory.owner) };
        let layout = Layout::contiguous(self.shape())?;
        let out = Tensor::from_parts(Arc::new(storage), layout, self.dtype(), Meta::default());
        if out.numel() > 0 {
            self.run(call::Copy { src: self.engine_view(), out: out.engine_view() })?;
        }
        Ok(out)
    }

    /// Delays the reuse of this tensor's memory: once freed, it is reused only after `stream` has finished the work it
    /// holds at that time. For tensors made on another stream than the one that uses them.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        stream.record_use(&self.0.storage)
    }

    /// Whether this tensor is in pinned memory.
    pub fn is_pinned(&self) -> bool {
        self.device().is_cpu() && rushlight_engines::is_pinned(self.engine_view().ptr())
    }

    /// A copy with its own memory: PyTorch's `clone()`. (Rust's `clone` returns an alias.) It
    /// keeps the memory order of a dense tensor; [`Tensor::contiguous`] returns row-major
    /// elements.
    #[doc(alias = "clone")]
    pub fn copy(&self) -> Result<Tensor> {
        announced!("torch.clone", [self]; self.copy());
        self.copy_as(self.dtype(), "clone")
    }

    /// A new leaf with copies of the elements and of the gradient, and the same `requires_grad`: Python's
    /// `copy.deepcopy(x)`. A tensor with a history is refused; [`Tensor::copy`] copies those and passes gradients on.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::ones([2])?.requires_grad_(true)?;
    /// let y = x.deepcopy()?;
    /// assert!(y.requires_grad() && y.is_leaf() && !y.shares_storage(&x));
    /// assert!((&x * 2.0).eval()?.deepcopy().is_err());
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn deepcopy(&self) -> Result<Tensor> {
        if !self.is_leaf() {
            return Err(Error::autograd(
                "deepcopy: only leaves can be copied with their place in the graph; x.copy()? passes gradients on, x.detach().copy()? does not",
            ));
        }
        let out = self.detach().copy()?.requires_grad_(self.requires_grad())?;
        out.set_grad(self.grad().map(|grad| grad.detach().copy()).transpose()?)?;
        Ok(out)
    }

    /// [`Tensor::to_dtype`] for autocast: only ops see the result, and may give its gradient in this tensor's dtype.
    pub(crate) fn lowered(&self, dtype: DType) -> Result<Tensor> {
        let out = self.lowered_copy(dtype, false).map_or_else(|| no_grad(|| self.to_dtype(dtype)), Ok)?;
        if recording(&[self]) {
            let from = self.dtype();
            record_conversion(self, &out, move |dy| dy.to_dtype(from))?;
        }
        Ok(out)
    }

    /// [`Tensor::lowered`] of several contiguous tensors of one device, or of any one.
    pub(crate) fn lowered_together(tensors: &[Tensor], dtype: DType) -> Result<Vec<Tensor>> {
        let [first, _, ..] = tensors else { return tensors.iter().map(|t| t.lowered(dtype)).collect() };
        let results = tensors.iter().map(|t| t.uninit_like(t.shape(), dtype)).collect::<Result<Vec<_>>>()?;
        let from: Vec<_> = tensors.iter().map(|t| t.engine_view()).collect();
        let to: Vec<_> = results.iter().map(|t| t.engine_view()).collect();
        first.run(call::ForeachCopy { from: call::List::from_slice(&from), to: call::List::from_slice(&to) })?;
        for (from, to) in tensors.iter().zip(&results).filter(|(from, _)| recording(&[from])) {
            let dtype = from.dtype();
            record_conversion(from, to, move |dy| dy.to_dtype(dtype))?;
        }
        Ok(results)
    }

    fn copy_as(&self, dtype: DType, name: &'static str) -> Result<Tensor> {
        let out = self.uninit_preserving(dtype)?;
        self.copy_into(out, name)
    }

    /// The elements converted and written to `out`, recorded.
    fn copy_into(&self, out: Tensor, name: &'static str) -> Result<Tensor> {
        let dtype = out.dtype();
        self.copy_to(&out)?;
        if dtype.is_differentiable() && recording(&[self]) {
            let from = self.dtype();
            record(name, &[self], &out, move |_, dy| Ok(smallvec![Some(dy.to_dtype(from)?)]))?;
        }
        Ok(out)
    }

    /// The same elements in row-major order; the same tensor if they are already.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        announced!("Tensor.contiguous", [self]; self.contiguous());
        self.copy_into(self.uninit_like(self.shape(), self.dtype())?, "contiguous")
    }

    /// A copy in row-major order, whatever the order of this tensor's memory.
    pub(crate) fn contiguous_copy(&self) -> Result<Tensor> {
        announced!("torch.clone", [self]; self.contiguous_copy());
        self.copy_into(self.uninit_like(self.shape(), self.dtype())?, "clone")
    }

    /// Overwrites the elements with the elements of `source`, broadcast and converted.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::zeros([2, 3])?;
    /// x.select(0, 1)?.copy_(&Tensor::new([1.0f32, 2.0, 3.0])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn copy_(&self, source: &Tensor) -> Result<&Tensor> {
        announced!("Tensor.copy_", [self, source]; self.copy_(source));
        if source.device() != self.device() {
            return self.copy_(&source.to(self.device())?);
        }
        let layout = source.layout().expand(self.shape()).map_err(|e| e.within("copy_"))?;
        self.check_inplace("copy_", &[self, source])?;
        self.check_overlap("copy_", &[source])?;
        let record = self.dtype().is_differentiable() && recording(&[self, source]);
        let edges = if record { edges(&[self, source])? } else { SmallVec::new() };
        if self.numel() > 0 {
            if source.shares_storage(self) {
                let copy = source.detach().copy()?;
                let layout = copy.layout().expand(self.shape())?;
                self.run_with(source, call::Copy { src: copy.view_as(&layout), out: self.engine_view() })?;
            } else {
                self.run_with(source, call::Copy { src: source.view_as(&layout), out: self.engine_view() })?;
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
        let value = fitting("fill_", value.into(), self.dtype())?;
        announced!("Tensor.fill_", [self, value]; self.fill_(value));
        self.check_inplace("fill_", &[self])?;
        let record = recording(&[self]);
        let edges = if record { edges(&[self])? } else { SmallVec::new() };
        if self.numel() > 0 {
            self.run(call::Fill { value, out: self.engine_view() })?;
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
            "{name}: expected all tensors to be on the same device, but found {} and {}; move one with .to(device)",
            self.device(),
            other.device()
        )))
    }
}
