//! The tensor itself: storage, layout, dtype, and its place on the tape.

use crate::autograd::{Meta, mode};
use crate::engine::allocate;
use crate::{capture, program};
use rushlight_core::backend::View;
use rushlight_core::sync::lock;
use rushlight_core::{Backend, DType, Device, Dims, Element, Error, Layout, Result, Scalar, Storage};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// An n-dimensional array on a device, with its place on the autograd tape.
///
/// Views share storage. Every op returns a [`Result`]; nothing panics.
///
/// `clone()` is Python's `y = x`: the same tensor again, at no cost. PyTorch's `x.clone()` is
/// [`x.copy()?`](Tensor::copy), its `copy.deepcopy(x)` is [`x.deepcopy()?`](Tensor::deepcopy).
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::Tensor;
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]])?.requires_grad_(true)?;
/// let loss = (&x * &x).sum(..)?;
/// loss.backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [2.0, 4.0, 6.0, 8.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// Tensors are `Send + Sync`. In-place ops write through shared references, as views must see each other's changes: two
/// threads that change and read the same elements at the same time need a lock of their own ([`Storage`] has the
/// rules). `.grad`, hooks and the tape need none: backward passes of several threads may add to one leaf.
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) storage: Arc<Storage>,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) requires_grad: AtomicBool,
    /// Made under `inference_mode`: may not enter a graph.
    pub(crate) inference: bool,
    /// Whether this is a view, which a change of its base may give a history.
    pub(crate) is_view: bool,
    /// See [`Tensor::front_object`].
    pub(crate) front_object: AtomicUsize,
    pub(crate) meta: Mutex<Meta>,
}

pub(crate) use rushlight_engines::backend;

impl Tensor {
    pub(crate) fn from_parts(storage: Arc<Storage>, layout: Layout, dtype: DType, meta: Meta) -> Self {
        Self(Arc::new(Inner {
            storage,
            layout,
            dtype,
            requires_grad: AtomicBool::new(false),
            inference: mode::is_inference(),
            is_view: meta.base().is_some(),
            front_object: AtomicUsize::new(0),
            meta: Mutex::new(meta),
        }))
    }

    /// Another tensor over this one's memory. It is one of inference mode if this one is.
    pub(crate) fn over_same_memory(&self, layout: Layout, dtype: DType, meta: Meta) -> Self {
        Self(Arc::new(Inner {
            storage: self.0.storage.clone(),
            layout,
            dtype,
            requires_grad: AtomicBool::new(false),
            inference: self.0.inference,
            is_view: meta.base().is_some(),
            front_object: AtomicUsize::new(0),
            meta: Mutex::new(meta),
        }))
    }

    /// Whether this tensor is a view of another, which in-place changes of either reach.
    pub fn is_view(&self) -> bool {
        self.0.is_view
    }

    /// A contiguous tensor with whatever values the memory holds.
    pub(crate) fn uninit(backend: &'static dyn Backend, shape: &[usize], dtype: DType) -> Result<Self> {
        let layout = Layout::contiguous(shape)?;
        let storage = allocate(backend, layout.numel() * dtype.size())?;
        Ok(Self::from_parts(storage, layout, dtype, Meta::default()))
    }

    /// A contiguous tensor with whatever values the memory holds, on this tensor's device.
    pub(crate) fn uninit_like(&self, shape: &[usize], dtype: DType) -> Result<Self> {
        Self::uninit(self.backend(), shape, dtype)
    }

    /// [`Tensor::uninit_like`] of the shape of this tensor, which is row-major and has `numel` elements.
    #[inline]
    pub(crate) fn uninit_alike(&self, numel: usize, dtype: DType) -> Result<Self> {
        let storage = allocate(self.backend(), numel * dtype.size())?;
        Ok(Self::from_parts(storage, self.0.layout.clone().with_offset(0), dtype, Meta::default()))
    }

    /// A tensor over memory that `owner` keeps alive, without copying: mapped files, arrays of other libraries.
    ///
    /// # Safety
    /// `storage` must meet the contract of [`Storage::from_owner`] or [`Storage::from_backend`].
    pub unsafe fn from_storage(storage: Arc<Storage>, layout: Layout, dtype: DType) -> Result<Self> {
        View::new(&storage, &layout, dtype)?;
        Ok(Self::from_parts(storage, layout, dtype, Meta::default()))
    }

    pub(crate) fn meta(&self) -> MutexGuard<'_, Meta> {
        lock(&self.0.meta)
    }

    /// The tensor as engines see it, for calls of the engine that no method makes. A step that is being recorded keeps
    /// the memory.
    #[inline]
    pub fn engine_view(&self) -> View<'_> {
        if program::is_noting() {
            program::note_use(&self.0.storage);
        }
        // SAFETY: a tensor's layout is within its storage: constructors check it.
        unsafe { View::new_unchecked(&self.0.storage, &self.0.layout, self.0.dtype) }
    }

    /// The same memory under a layout that is within it.
    #[inline]
    pub(crate) fn view_as<'a>(&'a self, layout: &'a Layout) -> View<'a> {
        if program::is_noting() {
            program::note_use(&self.0.storage);
        }
        // SAFETY: callers derive the layout from the tensor's by slicing, permuting and expanding, or from its size.
        unsafe { View::new_unchecked(&self.0.storage, layout, self.0.dtype) }
    }

    /// Sizes of the dimensions.
    #[inline]
    #[doc(alias = "size")]
    pub fn shape(&self) -> &[usize] {
        self.0.layout.shape()
    }

    /// Sizes of the dimensions, PyTorch's other name for [`Tensor::shape`].
    #[inline]
    pub fn sizes(&self) -> &[usize] {
        self.shape()
    }

    /// The size of one dimension; negative counts from the end.
    #[doc(alias = "len")]
    pub fn size(&self, dim: isize) -> Result<usize> {
        self.size_along("size", dim)
    }

    /// [`Tensor::size`] for the call `name`.
    pub(crate) fn size_along(&self, name: &str, dim: isize) -> Result<usize> {
        if self.rank() == 0 {
            return Err(Error::index(format!("{name}: a zero-dim tensor has no dimensions")));
        }
        Ok(self.shape()[self.wrap_dim(name, dim)?])
    }

    /// Number of dimensions.
    #[inline]
    #[doc(alias("ndim", "dim"))]
    pub fn rank(&self) -> usize {
        self.0.layout.rank()
    }

    /// Number of dimensions, PyTorch's other name for [`Tensor::rank`].
    #[inline]
    pub fn dim(&self) -> usize {
        self.rank()
    }

    /// Number of elements.
    #[inline]
    #[doc(alias("len", "nelement"))]
    pub fn numel(&self) -> usize {
        self.0.layout.numel()
    }

    /// Strides in elements.
    #[inline]
    pub fn strides(&self) -> &[usize] {
        self.0.layout.strides()
    }

    /// Shape, strides and offset.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The memory this tensor looks into.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.0.storage
    }

    /// The type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Where the tensor lives.
    #[inline]
    pub fn device(&self) -> Device {
        self.0.storage.device()
    }

    /// Whether the elements are stored in row-major order without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.0.layout.is_contiguous()
    }

    /// The number of in-place changes of this tensor's memory.
    pub fn version(&self) -> u32 {
        self.0.storage.version()
    }

    /// A dimension that may count from the end, checked for the call `name`.
    pub(crate) fn wrap_dim(&self, name: &str, dim: isize) -> Result<usize> {
        rushlight_core::layout::wrap_dim(dim, self.rank()).map_err(|e| e.within(name))
    }

    /// Several dimensions, checked for the call `name` and without repeats.
    pub(crate) fn wrap_dims(&self, name: &str, dims: &[isize]) -> Result<Dims> {
        let mut out = Dims::new();
        for &d in dims {
            let d = self.wrap_dim(name, d)?;
            if out.contains(&d) {
                return Err(Error::value(format!(
                    "{name}: dim {d} appears multiple times in the list of dims {dims:?}"
                )));
            }
            out.push(d);
        }
        Ok(out)
    }

    /// Whether the two are one tensor (not merely equal).
    #[doc(alias = "is")]
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number no other living tensor has, for sets and maps of tensors.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// A number that a front end keeps with this tensor, such as the address of its own object for it; 0 at first. The
    /// core does not use it.
    #[inline]
    pub fn front_object(&self) -> usize {
        self.0.front_object.load(Relaxed)
    }

    /// Sets [`Tensor::front_object`].
    #[inline]
    pub fn set_front_object(&self, number: usize) {
        self.0.front_object.store(number, Relaxed);
    }

    /// Whether the two share memory.
    pub fn shares_storage(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0.storage, &other.0.storage)
    }

    /// Whether autograd records ops on this tensor.
    #[inline]
    pub fn requires_grad(&self) -> bool {
        self.0.requires_grad.load(Relaxed) || self.0.is_view && self.requires_grad_by_base()
    }

    /// Whether this is a bool tensor, a float tensor, …: shorthand for checks.
    pub fn is_floating_point(&self) -> bool {
        self.dtype().is_float()
    }

    /// The elements in row-major order, converted to `T` as by `.to(dtype)`.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::arange(0, 4, 1)?.to_vec::<f64>()?, [0.0, 1.0, 2.0, 3.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias("tolist", "numpy"))]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        capture::refuse("to_vec", self.device())?;
        if crate::announce::is_on() {
            crate::announce::read(self)?;
        }
        crate::meta::refuse("Cannot read elements", self.device())?;
        let source = mode::no_grad(|| self.to_dtype(T::DTYPE)?.contiguous())?;
        let n = source.numel();
        if T::DTYPE == DType::Bool {
            // Another library, or a view of another dtype, may have written bytes that are no Rust `bool`.
            let mut bytes = vec![0u8; n];
            source.backend().download(&source.0.storage, source.0.layout.offset(), &mut bytes)?;
            return Ok(bytes.into_iter().map(|b| T::from_i64((b != 0) as i64)).collect());
        }
        let mut out = vec![T::default(); n];
        // SAFETY: `Element` types other than `bool` are any bytes; the slice covers exactly the vector's elements.
        let bytes = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), n * size_of::<T>()) };
        let start = source.0.layout.offset() * size_of::<T>();
        crate::profile::transfer("rushlight::download", || source.backend().download(&source.0.storage, start, bytes))?;
        Ok(out)
    }

    /// The one element of a tensor with one element.
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.numel() != 1 {
            return Err(Error::value(format!(
                "item: a tensor with {} elements (shape {:?}) cannot be converted to a number",
                self.numel(),
                self.shape()
            )));
        }
        capture::refuse("item", self.device())?;
        Ok(self.to_vec::<T>()?[0])
    }

    /// The one element of a tensor with one element, as a number of its dtype's kind.
    pub fn to_scalar(&self) -> Result<Scalar> {
        Ok(match self.dtype() {
            DType::Bool => Scalar::Bool(self.item()?),
            d if d.is_complex() => self.complex_item()?,
            d if d.is_float() => Scalar::Float(self.item()?),
            DType::U64 => Scalar::from(self.item::<u64>()?),
            _ => Scalar::Int(self.item()?),
        })
    }
}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Tensor>();
};
