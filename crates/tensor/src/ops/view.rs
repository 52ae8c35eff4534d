//! Views: other shapes and strides over the same memory.
//!
//! The derivative of a view that drops, repeats or reorders elements puts the gradient back where they came from
//! ([`scatter_view`]); its derivative in turn is the view again.

use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{Ctx, Grads, Meta, no_grad, record, record_many, recording};
use crate::ops::sizes::AsDims;
use rushlight_core::backend::call;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Layout, Result};

/// A gradient of shape `within` put back into a tensor of zeros in a dense layout; overlapping elements add up.
pub(crate) fn scatter_view(dy: &Tensor, whole: &Layout, dtype: DType, within: &Layout) -> Result<Tensor> {
    let out = dy.uninit_in(whole.clone(), dtype)?;
    out.zero_()?;
    if dy.numel() > 0 {
        if within.overlaps() {
            let places = no_grad(|| {
                Tensor::arange_with(0, out.numel(), 1, (DType::I64, dy.device()))?
                    .as_strided(within.shape(), within.strides(), within.offset())?
                    .contiguous()
            })?;
            let flat = Layout::contiguous(&[out.numel()])?;
            let values = dy.to_dtype(dtype)?;
            out.run(call::IndexPut {
                indices: call::List::from_slice(&[places.engine_view()]),
                values: values.engine_view(),
                accumulate: true,
                out: out.view_as(&flat),
            })?;
        } else {
            out.run(call::Copy { src: dy.engine_view(), out: out.view_as(within) })?;
        }
    }
    if recording(&[dy]) {
        let (whole, within, from) = (whole.clone(), within.clone(), dy.dtype());
        record("scatter_view", &[dy], &out, move |_, d| {
            let d = d.in_layout(&whole)?;
            let picked = d.as_strided(within.shape(), within.strides(), d.layout().offset() + within.offset())?;
            Ok(smallvec![Some(picked.to_dtype(from)?)])
        })?;
    }
    Ok(out)
}

/// Sizes that may contain one -1, made definite.
fn infer_shape(name: &str, shape: &[isize], numel: usize) -> Result<Dims> {
    let fail = || Error::shape(format!("{name}: shape '{shape:?}' is invalid for input of size {numel}"));
    let mut known = 1usize;
    let mut hole = None;
    let mut out = Dims::new();
    for (i, &d) in shape.iter().enumerate() {
        if d == -1 && hole.is_none() {
            hole = Some(i);
            out.push(0);
        } else {
            let d = usize::try_from(d).map_err(|_| fail())?;
            known = known.checked_mul(d).ok_or_else(fail)?;
            out.push(d);
        }
    }
    if let Some(i) = hole {
        if known == 0 {
            return Err(Error::shape(format!(
                "{name}: cannot reshape a tensor of {numel} elements into shape {shape:?} because the unspecified dimension size -1 can \
                 be any value"
            )));
        }
        out[i] = numel / known;
        known *= out[i];
    }
    if known == numel { Ok(out) } else { Err(fail()) }
}

/// Sizes given as integers of any kind; -1 is inferred.
pub trait IntoShape {
    /// The sizes.
    fn into_shape(self) -> rushlight_core::smallvec::SmallVec<[isize; 6]>;
}

macro_rules! into_shape {
    ($($t:ty)*) => {$(
        impl<const N: usize> IntoShape for [$t; N] {
            fn into_shape(self) -> rushlight_core::smallvec::SmallVec<[isize; 6]> { self.iter().map(|&d| d as isize).collect() }
        }
        impl<const N: usize> IntoShape for &[$t; N] {
            fn into_shape(self) -> rushlight_core::smallvec::SmallVec<[isize; 6]> { self.iter().map(|&d| d as isize).collect() }
        }
        impl IntoShape for &[$t] {
            fn into_shape(self) -> rushlight_core::smallvec::SmallVec<[isize; 6]> { self.iter().map(|&d| d as isize).collect() }
        }
        impl IntoShape for &Vec<$t> {
            fn into_shape(self) -> rushlight_core::smallvec::SmallVec<[isize; 6]> { self.iter().map(|&d| d as isize).collect() }
        }
    )*};
}
into_shape!(usize isize i32 i64);

impl IntoShape for &Dims {
    fn into_shape(self) -> rushlight_core::smallvec::SmallVec<[isize; 6]> {
        self.iter().map(|&d| d as isize).collect()
    }
}

/// The tensor that parts along `dim` are adjacent views of, if none needs its history.
fn adjoining(parts: &[Tensor], dim: usize) -> Result<Option<Tensor>> {
    let Some((first, others)) = parts.split_first().filter(|_| !recording(&parts.iter().collect::<Vec<_>>())) else {
        return Ok(None);
    };
    let mut shape = Dims::from_slice(first.shape());
    for part in others {
        let next = first.layout().offset() + shape[dim] * first.strides()[dim];
        let beside = part.shares_storage(first) && part.dtype() == first.dtype() && part.strides() == first.strides();
        if !beside || part.layout().offset() != next {
            return Ok(None);
        }
        shape[dim] += part.shape()[dim];
    }
    let layout = Layout::strided(&shape, first.strides(), first.layout().offset())?;
    Ok(Some(Tensor::from_parts(first.0.storage.clone(), layout, first.dtype(), Default::default())))
}

impl Tensor {
    /// A recorded view. `layout` is within the storage.
    fn view_op(
        &self,
        name: &'static str,
        layout: Layout,
        backward: impl Fn(&Ctx, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Result<Tensor> {
        let out = self.make_view(layout);
        if recording(&[self]) {
            record(name, &[self], &out, move |ctx, dy| Ok(smallvec![Some(backward(ctx, dy)?)]))?;
        }
        Ok(out)
    }

    /// A recorded view that leaves elements out or repeats them; `change` is applied to this tensor's layout, and to a
    /// contiguous one of its shape to know where gradients go.
    fn picking_view(&self, name: &'static str, change: impl Fn(&Layout) -> Layout) -> Result<Tensor> {
        let layout = change(self.layout());
        if !recording(&[self]) {
            return Ok(self.make_view(layout));
        }
        let (whole, dtype) = (Layout::contiguous(self.shape())?, self.dtype());
        let within = change(&whole);
        self.view_op(name, layout, move |_, dy| scatter_view(dy, &whole, dtype, &within))
    }

    /// The same elements under another shape, without copying; one size may be -1. An error if strides cannot express
    /// it.
    pub fn view(&self, shape: impl IntoShape) -> Result<Tensor> {
        let shape = infer_shape("view", &shape.into_shape(), self.numel())?;
        announced!("torch.reshape", [self, &shape[..]]; self.view(&shape));
        match self.layout().view(&shape) {
            Some(layout) => self.reshaped(layout),
            // Autocast's convolutions choose channels last by themselves; a caller that did not request it gets a
            // row-major result.
            None if self.is_channels_last() => self.contiguous()?.view(&shape[..]),
            None => Err(Error::shape(format!(
                "view: size {:?} is not compatible with input tensor's size {:?} and stride {:?} (at least one dimension spans across two \
                 contiguous subspaces). Use reshape instead.",
                &shape[..],
                self.shape(),
                self.strides()
            ))),
        }
    }

    fn reshaped(&self, layout: Layout) -> Result<Tensor> {
        let old = Dims::from_slice(self.shape());
        self.view_op("view", layout, move |_, dy| dy.reshape(&old))
    }

    /// The same elements under another shape; one size may be -1. Copies only where strides cannot express it.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::arange(0, 6, 1)?.reshape([2, -1])?.shape(), [2, 3]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias = "view")]
    pub fn reshape(&self, shape: impl IntoShape) -> Result<Tensor> {
        let shape = infer_shape("reshape", &shape.into_shape(), self.numel())?;
        if shape[..] == *self.shape() {
            return Ok(self.clone());
        }
        announced!("torch.reshape", [self, &shape[..]]; self.reshape(&shape));
        match self.layout().view(&shape) {
            Some(layout) => self.reshaped(layout),
            None => self.contiguous()?.reshaped_alone(&shape),
        }
    }

    /// This copy that nobody else sees under another shape: not a view.
    fn reshaped_alone(&self, shape: &[usize]) -> Result<Tensor> {
        let out = self.over_same_memory(Layout::contiguous(shape)?, self.dtype(), Meta::default());
        if recording(&[self]) {
            let old = Dims::from_slice(self.shape());
            record("unsafe_view", &[self], &out, move |_, dy| Ok(smallvec![Some(dy.reshape(&old)?)]))?;
        }
        Ok(out)
    }

    /// Dimensions `start` to `end` merged into one.
    #[doc(alias = "ravel")]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        let (start, end) = (self.wrap_dim("flatten", start)?, self.wrap_dim("flatten", end)?);
        if start > end {
            return Err(Error::value("flatten: start_dim cannot come after end_dim"));
        }
        if self.rank() == 0 {
            return self.reshape([1usize]);
        }
        let mut shape = Dims::from_slice(&self.shape()[..start]);
        shape.push(self.shape()[start..=end].iter().product());
        shape.extend_from_slice(&self.shape()[end + 1..]);
        self.reshape(&shape)
    }

    /// Dimension `dim` split into several sizes, one of which may be -1.
    pub fn unflatten(&self, dim: isize, sizes: impl IntoShape) -> Result<Tensor> {
        if self.rank() == 0 {
            return Err(Error::shape("unflatten: a zero-dim tensor has no dimension to split"));
        }
        let dim = self.wrap_dim("unflatten", dim)?;
        let sizes = infer_shape("unflatten", &sizes.into_shape(), self.shape()[dim])?;
        let mut shape = Dims::from_slice(&self.shape()[..dim]);
        shape.extend_from_slice(&sizes);
        shape.extend_from_slice(&self.shape()[dim + 1..]);
        self.view(&shape)
    }

    /// Dimensions in another order.
    #[doc(alias = "moveaxis")]
    pub fn permute(&self, order: impl AsDims) -> Result<Tensor> {
        let order = order.as_dims();
        let order = self.wrap_dims("permute", order)?;
        if order.len() != self.rank() {
            return Err(Error::shape(format!(
                "permute: the number of dimensions in the tensor input does not match the length of the desired ordering: {} is not {}",
                self.rank(),
                order.len()
            )));
        }
        announced!("torch.permute", [self, &order[..]]; self.view_permuted(&order));
        self.view_permuted(&order)
    }

    fn view_permuted(&self, order: &[usize]) -> Result<Tensor> {
        let mut inverse = vec![0isize; order.len()];
        for (to, &from) in order.iter().enumerate() {
            inverse[from] = to as isize;
        }
        self.view_op("permute", self.layout().permute(order), move |_, dy| dy.permute(&inverse))
    }

    /// Two dimensions swapped.
    #[doc(alias = "swapaxes")]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let (a, b) = (self.wrap_dim("transpose", a)?, self.wrap_dim("transpose", b)?);
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        announced!("torch.transpose", [self, a, b]; self.transpose(a as isize, b as isize));
        self.view_op("transpose", self.layout().transpose(a, b), move |_, dy| dy.transpose(a as isize, b as isize))
    }

    /// A matrix transposed; vectors and scalars are unchanged.
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => self.transpose(0, 1),
            n => Err(Error::shape(format!(
                "t() expects a tensor with <= 2 dimensions, but self is {n}D; use transpose or permute"
            ))),
        }
    }

    /// Dimensions moved to new places, the others keeping their order.
    pub fn movedim(&self, source: impl AsDims, destination: impl AsDims) -> Result<Tensor> {
        let (source, destination) = (source.as_dims(), destination.as_dims());
        let (from, to) = (self.wrap_dims("movedim", source)?, self.wrap_dims("movedim", destination)?);
        if from.len() != to.len() {
            return Err(Error::value(format!(
                "movedim: {} source dims for {} destination dims; they must be as many",
                from.len(),
                to.len()
            )));
        }
        let mut order = vec![isize::MAX; self.rank()];
        for (&f, &t) in from.iter().zip(&to) {
            // A tensor without dimensions takes 0 and -1, and has nothing to move.
            if let Some(slot) = order.get_mut(t) {
                *slot = f as isize;
            }
        }
        let mut rest = (0..self.rank()).filter(|d| !from.contains(d));
        for slot in order.iter_mut().filter(|d| **d == isize::MAX) {
            *slot = rest.next().unwrap_or(0) as isize;
        }
        self.permute(&order)
    }

    /// The named dimensions removed where their size is one: `x.squeeze(0)?`, `x.squeeze([0, -1])?`, `x.squeeze(..)?`
    /// for all.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::Tensor;
    /// let x = Tensor::ones([1, 3, 1])?;
    /// assert_eq!(x.squeeze(0)?.shape(), [3, 1]);
    /// assert_eq!(x.squeeze(..)?.shape(), [3]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn squeeze(&self, dims: impl AsDims) -> Result<Tensor> {
        let mut dims =
            if dims.is_all() { (0..self.rank()).collect() } else { self.wrap_dims("squeeze", dims.as_dims())? };
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        dims.sort_unstable();
        dims.retain(|d| self.shape()[*d] == 1);
        let name = if dims.is_empty() { "torch.alias" } else { "torch.squeeze" };
        announced!(name, [self, (!dims.is_empty()).then_some(&dims[..])]; self.squeezed(&dims));
        self.squeezed(&dims)
    }

    /// Without the given dimensions of size one, in order.
    fn squeezed(&self, dims: &[usize]) -> Result<Tensor> {
        let mut layout = self.layout().clone();
        for &d in dims.iter().rev() {
            layout = layout.squeeze(d);
        }
        self.reshaped(layout)
    }

    /// A dimension of size one put before `dim`; -1 appends one.
    #[doc(alias("expand_dims", "newaxis"))]
    pub fn unsqueeze(&self, dim: isize) -> Result<Tensor> {
        let dim = rushlight_core::layout::wrap_dim(dim, self.rank() + 1).map_err(|e| e.within("unsqueeze"))?;
        announced!("torch.unsqueeze", [self, dim]; self.unsqueeze(dim as isize));
        self.reshaped(self.layout().unsqueeze(dim))
    }

    /// Sizes of one stretched without copying; -1 keeps a size.
    pub fn expand(&self, shape: impl IntoShape) -> Result<Tensor> {
        let shape = shape.into_shape();
        let lead = shape.len().saturating_sub(self.rank());
        let mut sizes = Dims::new();
        for (i, &d) in shape.iter().enumerate() {
            let size = match (d, i.checked_sub(lead)) {
                (-1, Some(own)) if own < self.rank() => self.shape()[own],
                _ => usize::try_from(d).map_err(|_| {
                    Error::shape(format!(
                        "expand: size {d} at dimension {i} is not allowed for shape {:?}",
                        self.shape()
                    ))
                })?,
            };
            sizes.push(size);
        }
        let layout = self.layout().expand(&sizes).map_err(|e| e.within("expand"))?;
        announced!("torch.expand", [self, &sizes[..]]; self.expand(&sizes));
        let old = Dims::from_slice(self.shape());
        self.view_op("expand", layout, move |_, dy| dy.sum_to_size(&old))
    }

    /// Stretched to another tensor's shape.
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        self.expand(other.shape())
    }

    /// Stretched to a shape.
    pub fn broadcast_to(&self, shape: impl IntoShape) -> Result<Tensor> {
        self.expand(shape)
    }

    /// `length` entries of dimension `dim` from `start`.
    #[doc(alias = "slice")]
    pub fn narrow(&self, dim: isize, start: isize, length: usize) -> Result<Tensor> {
        if self.rank() == 0 {
            return Err(Error::shape("narrow() cannot be applied to a 0-dim tensor"));
        }
        let dim = self.wrap_dim("narrow", dim)?;
        let size = self.shape()[dim];
        let first = if start < 0 { start + size as isize } else { start };
        if first < 0 || first as usize > size {
            return Err(Error::index(format!("narrow: start {start} is out of range for dimension size {size}")));
        }
        if length > size - first as usize {
            return Err(Error::value(format!(
                "narrow: start ({start}) + length ({length}) exceeds dimension size ({size})"
            )));
        }
        announced!("torch.narrow", [self, dim, first, length]; self.narrow(dim as isize, first, length));
        self.picking_view("narrow", move |l| l.slice(dim, first as usize, length, 1))
    }

    /// Every `step`-th entry of dimension `dim` from `start` to before `end`; negative ones count from the end, and
    /// bounds beyond the size are clamped, as in Python.
    pub fn slice(&self, dim: isize, start: Option<isize>, end: Option<isize>, step: usize) -> Result<Tensor> {
        if self.rank() == 0 {
            return Err(Error::index("slice() cannot be applied to a 0-dim tensor"));
        }
        if step == 0 {
            return Err(Error::value("slice: step must be positive"));
        }
        let dim = self.wrap_dim("slice", dim)?;
        let size = self.shape()[dim] as isize;
        let bound = |v: isize| if v < 0 { (v + size).max(0) } else { v.min(size) } as usize;
        let (start, end) = (bound(start.unwrap_or(0)), bound(end.unwrap_or(isize::MAX)));
        announced!(
            "torch.slice", [self, dim, start, end, step];
            self.slice(dim as isize, Some(start as isize), Some(end as isize), step)
        );
        let length = end.saturating_sub(start).div_ceil(step);
        self.picking_view("slice", move |l| l.slice(dim, start, length, step))
    }

    /// The part at a position of the first dimension, as `x[index]` in Python; from the end if negative.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.get(-1)?.to_vec::<i64>()?, [3, 4]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias = "getitem")]
    pub fn get(&self, index: isize) -> Result<Tensor> {
        self.select(0, index)
    }

    /// Dimension `dim` fixed at `index` and removed.
    pub fn select(&self, dim: isize, index: isize) -> Result<Tensor> {
        if self.rank() == 0 {
            return Err(Error::index("select() cannot be applied to a 0-dim tensor"));
        }
        let dim = self.wrap_dim("select", dim)?;
        let size = self.shape()[dim] as isize;
        if !(-size..size).contains(&index) {
            return Err(Error::index(format!(
                "select: index {index} is out of bounds for dimension {dim} with size {size}"
            )));
        }
        let index = if index < 0 { index + size } else { index } as usize;
        announced!("torch.select", [self, dim, index]; self.select(dim as isize, index as isize));
        self.picking_view("select", move |l| l.select(dim, index))
    }

    /// The diagonal between two dimensions, `offset` above the main one, as a new last dimension.
    pub fn diagonal(&self, offset: isize, dim1: isize, dim2: isize) -> Result<Tensor> {
        let (a, b) = (self.wrap_dim("diagonal", dim1)?, self.wrap_dim("diagonal", dim2)?);
        if a == b || self.rank() < 2 {
            return Err(Error::value(format!("diagonal: diagonal dimensions cannot be identical {dim1}, {dim2}")));
        }
        announced!("torch.diagonal", [self, offset, a, b]; self.diagonal(offset, a as isize, b as isize));
        self.picking_view("diagonal", move |l| l.diagonal(offset, a, b))
    }

    /// Windows of `size` every `step` along `dim`, as a new last dimension.
    #[doc(alias = "sliding_window_view")]
    pub fn unfold(&self, dim: isize, size: usize, step: usize) -> Result<Tensor> {
        let dim = self.wrap_dim("unfold", dim)?;
        let have = self.shape().get(dim).copied().unwrap_or(1);
        if size > have {
            return Err(Error::value(format!(
                "unfold: maximum size for tensor at dimension {dim} is {have} but size is {size}"
            )));
        }
        if step == 0 {
            return Err(Error::value("unfold: step must be positive"));
        }
        announced!("Tensor.unfold", [self, dim, size, step]; self.unfold(dim as isize, size, step));
        self.picking_view("unfold", move |l| l.unfold(dim, size, step))
    }

    /// Any shape, strides and offset (in elements of the storage) that are within this tensor's storage.
    pub fn as_strided(&self, shape: &[usize], strides: &[usize], offset: usize) -> Result<Tensor> {
        let layout = Layout::strided(shape, strides, offset).map_err(|e| e.within("as_strided"))?;
        rushlight_core::View::new(&self.0.storage, &layout, self.dtype()).map_err(|e| e.within("as_strided"))?;
        if !recording(&[self]) {
            return Ok(self.make_view(layout));
        }
        let base = self.layout();
        let end = layout.span()?;
        if !base.is_dense() || offset < base.offset() || (layout.numel() > 0 && end > base.offset() + base.numel()) {
            return Err(Error::unsupported(
                "as_strided: recording it needs a dense tensor whose own elements it stays within; call contiguous() first",
            ));
        }
        let within = layout.clone().with_offset(offset - base.offset());
        let (whole, dtype) = (base.clone().with_offset(0), self.dtype());
        self.view_op("as_strided", layout, move |_, dy| scatter_view(dy, &whole, dtype, &within))
    }

    /// Parts of `size` along `dim` (the last may be smaller), as views.
    #[doc(alias = "array_split")]
    pub fn split(&self, size: usize, dim: isize) -> Result<Vec<Tensor>> {
        if self.rank() == 0 {
            return Err(Error::shape("split: expects at least a 1-dimensional tensor"));
        }
        let total = self.size_along("split", dim)?;
        if size == 0 && total > 0 {
            return Err(Error::value("split: split_size can only be 0 if dimension size is 0"));
        }
        let count = if total == 0 { 1 } else { total.div_ceil(size) };
        let mut sizes = room_for("split", count)?;
        sizes.extend((0..count).map(|i| size.min(total - i * size)));
        self.split_with_sizes(&sizes, dim)
    }

    /// Parts of the given sizes along `dim`, which must add up, as views.
    pub fn split_with_sizes(&self, sizes: &[usize], dim: isize) -> Result<Vec<Tensor>> {
        let total = self.size_along("split_with_sizes", dim)?;
        let dim = self.wrap_dim("split_with_sizes", dim)?;
        if sizes.iter().try_fold(0usize, |a, &b| a.checked_add(b)) != Some(total) {
            return Err(Error::value(format!(
                "split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension {dim}), but got {sizes:?}"
            )));
        }
        announced!("torch.split", [self, sizes, dim]; self.split_with_sizes(sizes, dim as isize));
        let mut start = 0;
        let mut parts = room_for("split", sizes.len())?;
        for &size in sizes {
            parts.push(self.make_view_of_several(self.layout().slice(dim, start, size, 1)));
            start += size;
        }
        if recording(&[self]) {
            let (shape, dtype, device) = (Dims::from_slice(self.shape()), self.dtype(), self.device());
            let sizes = sizes.to_vec();
            // One gradient made of the parts', instead of a tensor of zeros per part.
            record_many("split", &[self], &parts.iter().collect::<Vec<_>>(), move |_, grads: Grads| {
                let mut parts = Vec::new();
                for (g, &size) in grads.into_iter().zip(&sizes) {
                    let mut shape = shape.clone();
                    shape[dim] = size;
                    parts.push(match g {
                        Some(g) => g,
                        None => Tensor::zeros_with(&shape, (dtype, device))?,
                    });
                }
                let whole = match adjoining(&parts, dim)? {
                    Some(whole) => whole,
                    None => crate::cat(&parts.iter().collect::<Vec<_>>(), dim as isize)?,
                };
                Ok(smallvec![Some(whole)])
            })?;
        }
        Ok(parts)
    }

    /// At most `chunks` parts of equal size along `dim` (the last may be smaller), as views.
    pub fn chunk(&self, chunks: usize, dim: isize) -> Result<Vec<Tensor>> {
        if chunks == 0 {
            return Err(Error::value("chunk: expects `chunks` to be greater than 0, got 0"));
        }
        if self.rank() == 0 {
            return Err(Error::shape("chunk: expects at least a 1-dimensional tensor"));
        }
        let total = self.size_along("chunk", dim)?;
        if total == 0 {
            let mut sizes = room_for("chunk", chunks)?;
            sizes.resize(chunks, 0);
            return self.split_with_sizes(&sizes, dim);
        }
        self.split(total.div_ceil(chunks), dim)
    }

    /// `sections` parts along `dim`, the first ones longer by one where they cannot be equal, as views.
    pub fn tensor_split(&self, sections: usize, dim: isize) -> Result<Vec<Tensor>> {
        if self.rank() == 0 {
            return Err(Error::shape("tensor_split: expected at least a 1-dimensional tensor"));
        }
        let total = self.size_along("tensor_split", dim)?;
        if sections == 0 {
            return Err(Error::value("tensor_split: number of sections must be larger than 0, got 0"));
        }
        let mut sizes = room_for("tensor_split", sections)?;
        sizes.extend((0..sections).map(|i| total / sections + usize::from(i < total % sections)));
        self.split_with_sizes(&sizes, dim)
    }

    /// All slices along `dim`, each without that dimension.
    pub fn unbind(&self, dim: isize) -> Result<Vec<Tensor>> {
        let total = self.size_along("unbind", dim)?;
        if self.rank() == 0 {
            return Err(Error::index("unbind: dimension specified as 0 but tensor has no dimensions"));
        }
        let dim = self.wrap_dim("unbind", dim)?;
        announced!("torch.unbind", [self, dim]; self.unbind(dim as isize));
        let mut out = room_for("unbind", total)?;
        out.extend((0..total).map(|i| self.make_view_of_several(self.layout().select(dim, i))));
        if total > 0 && recording(&[self]) {
            let mut shape = Dims::from_slice(self.shape());
            shape.remove(dim);
            let options = (self.dtype(), self.device());
            record_many("unbind", &[self], &out.iter().collect::<Vec<_>>(), move |_, grads: Grads| {
                let parts = grads
                    .into_iter()
                    .map(|g| g.map_or_else(|| Tensor::zeros_with(&shape, options), Ok))
                    .collect::<Result<Vec<_>>>()?;
                Ok(smallvec![Some(crate::stack(&parts.iter().collect::<Vec<_>>(), dim as isize)?)])
            })?;
        }
        Ok(out)
    }
}

/// An empty list with capacity for `count` items, or an error: the caller may pass a huge count.
fn room_for<T>(name: &str, count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count)
        .map_err(|_| Error::out_of_memory(format!("{name}: no memory for a list of {count} tensors")))?;
    Ok(list)
}
