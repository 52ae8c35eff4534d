//! Index tensors over some dimensions: reading, writing, and the ops that are nothing else.

use crate::Tensor;
use crate::announce::announced;
use crate::arg::Arg;
use crate::autograd::{Ctx, Grads, Saved, edges, record, recording};
use rushlight_core::backend::{View, call};
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Device, Dims, Error, Layout, Result, Scalar};
use std::sync::Arc;

/// Whether an op that changes part of a tensor works on a copy or on the tensor itself.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Place {
    /// A copy that keeps the memory order.
    Copy,
    /// A row-major copy, as PyTorch's `scatter` and `index_add` give.
    RowMajor,
    Own,
}

/// Runs an op that changes part of `x`, and records it with the gradients `backward` gives for `x` and the `sources`.
pub(crate) fn overwrite(
    name: &'static str,
    x: &Tensor,
    place: Place,
    sources: &[&Tensor],
    run: impl FnOnce(&Tensor) -> Result<()>,
    backward: impl Fn(&Ctx, &Tensor) -> Result<Grads> + Send + Sync + 'static,
) -> Result<Tensor> {
    let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![x];
    inputs.extend_from_slice(sources);
    let tape = x.dtype().is_differentiable() && recording(&inputs);
    if place != Place::Own {
        let x = x.detach();
        let out = if place == Place::RowMajor && !x.is_contiguous() { x.contiguous()? } else { x.copy()? };
        run(&out)?;
        if tape {
            record(name, &inputs, &out, backward)?;
        }
        return Ok(out);
    }
    x.check_inplace(name, &inputs)?;
    let edges = if tape { edges(&inputs)? } else { SmallVec::new() };
    // A run that fails may have changed elements before.
    let done = run(x);
    x.changed_unrecorded();
    done?;
    if tape {
        x.new_history(
            name,
            edges,
            Box::new(move |ctx, grads| match grads.into_iter().next().flatten() {
                Some(dy) => backward(ctx, &dy),
                None => Ok(Grads::new()),
            }),
        );
    }
    Ok(x.clone())
}

/// Index tensors over some dimensions of a tensor of a known shape.
pub(crate) struct Plan {
    shape: Dims,
    device: Device,
    /// The indexed dimensions, ascending.
    dims: Dims,
    /// One per indexed dimension, `int64`, all of one shape.
    indices: SmallVec<[Tensor; 2]>,
    /// Position of the index tensors' dimensions in the result.
    at: usize,
}

impl Plan {
    /// One entry per leading dimension of `x`: an index tensor, a mask (which covers as many dimensions as it has),
    /// or nothing.
    pub(crate) fn new(x: &Tensor, list: &[Option<Tensor>]) -> Result<Self> {
        let (mut dims, mut indices) = (Dims::new(), SmallVec::<[Tensor; 2]>::new());
        let mut dim = 0;
        for item in list {
            match item {
                None => dim += 1,
                Some(mask) if matches!(mask.dtype(), DType::Bool | DType::U8) => {
                    check_mask(x, mask, dim)?;
                    let places = mask.to(x.device())?.nonzero()?;
                    for j in 0..mask.rank() {
                        dims.push(dim);
                        indices.push(places.select(1, j as isize)?);
                        dim += 1;
                    }
                }
                Some(t) => {
                    dims.push(dim);
                    indices.push(t.to(x.device())?.to_index("index")?);
                    dim += 1;
                }
            }
        }
        if dim > x.rank() {
            return Err(Error::index(format!("too many indices for tensor of dimension {}", x.rank())));
        }
        let mut common = Dims::new();
        for t in &indices {
            common = broadcast_shapes(&common, t.shape()).map_err(|_| {
                let shapes: Vec<_> = indices.iter().map(|t| t.shape()).collect();
                Error::index(format!(
                    "shape mismatch: indexing tensors could not be broadcast together with shapes {shapes:?}"
                ))
            })?;
        }
        for t in &mut indices {
            *t = t.expand(&common)?;
        }
        // NumPy's rule: index dimensions stay in place if they are adjacent, otherwise they come first.
        let adjacent = dims.windows(2).all(|w| w[1] == w[0] + 1);
        let at = if adjacent { dims.first().copied().unwrap_or(0) } else { 0 };
        Ok(Self { shape: Dims::from_slice(x.shape()), device: x.device(), dims, indices, at })
    }

    /// One index tensor over one dimension.
    pub(crate) fn along(x: &Tensor, dim: usize, index: &Tensor) -> Result<Self> {
        let mut list = vec![None; dim];
        list.push(Some(index.clone()));
        Self::new(x, &list)
    }

    /// The shape of the indexed elements.
    pub(crate) fn result_shape(&self) -> Dims {
        let mut out: Dims = (0..self.shape.len()).filter(|d| !self.dims.contains(d)).map(|d| self.shape[d]).collect();
        if let Some(first) = self.indices.first() {
            out.insert_from_slice(self.at, first.shape());
        }
        out
    }

    /// The tensor's dimensions, those indexed first.
    fn order(&self) -> Dims {
        let mut out = self.dims.clone();
        out.extend((0..self.shape.len()).filter(|d| !self.dims.contains(d)));
        out
    }

    /// The result's dimensions, the index tensors' first.
    fn result_order(&self) -> Dims {
        let own = self.indices.first().map_or(0, |t| t.rank());
        let rank = self.shape.len() - self.dims.len() + own;
        let mut out: Dims = (self.at..self.at + own).collect();
        out.extend((0..rank).filter(|d| !(self.at..self.at + own).contains(d)));
        out
    }

    /// The layout of the indexed elements: PyTorch orders dimensions by the strides of the tensor and of the indices.
    fn result_layout(&self, x: &Tensor) -> Result<Layout> {
        let shape = self.result_shape();
        if x.is_contiguous() && self.indices.iter().all(Tensor::is_contiguous) {
            return Layout::contiguous(&shape);
        }
        let own = self.indices.first().map_or(0, |t| t.rank());
        let kept = (0..self.shape.len()).filter(|d| !self.dims.contains(d)).map(|d| x.strides()[d]);
        let mut strides: Dims = kept.collect();
        strides.insert_many(self.at, std::iter::repeat_n(0, own));
        let mut operands = vec![Layout::strided(&shape, &strides, 0)?];
        for index in &self.indices {
            let mut strides: Dims = smallvec![0; shape.len()];
            strides[self.at..self.at + own].copy_from_slice(index.strides());
            operands.push(Layout::strided(&shape, &strides, 0)?);
        }
        Ok(Layout::of_pointwise(&shape, &operands.iter().collect::<Vec<_>>()))
    }

    fn views(&self) -> SmallVec<[View<'_>; 2]> {
        self.indices.iter().map(|t| t.engine_view()).collect()
    }

    /// Engines never index dimensions of size zero.
    fn check_empty(&self) -> Result<()> {
        match self.dims.iter().find(|&&d| self.shape[d] == 0) {
            Some(_) => Err(Error::index("index is out of bounds for dimension with size 0")),
            None => Ok(()),
        }
    }

    /// Reads the indexed elements of `x`, without recording.
    fn pick(&self, x: &Tensor) -> Result<Tensor> {
        let out = x.uninit_in(self.result_layout(x)?, x.dtype())?;
        if out.numel() > 0 {
            self.check_empty()?;
            let (from, to) = (x.layout().permute(&self.order()), out.layout().permute(&self.result_order()));
            x.run(call::Index {
                x: x.view_as(&from),
                indices: call::List::from_slice(&self.views()),
                out: out.view_as(&to),
            })?;
        }
        Ok(out)
    }

    /// Puts `values`, broadcast, where the indices point.
    fn put(&self, out: &Tensor, values: &Tensor, accumulate: bool) -> Result<()> {
        let shape = self.result_shape();
        let stretched = values.layout().expand(&shape).map_err(|_| {
            Error::shape(format!(
                "shape mismatch: value tensor of shape {:?} cannot be broadcast to indexing result of shape {:?}",
                values.shape(),
                &shape[..]
            ))
        })?;
        if stretched.numel() == 0 {
            return Ok(());
        }
        self.check_empty()?;
        let safe = values.apart_from(out)?;
        // A copy is contiguous: expand its layout again.
        let stretched = if safe.is_same(values) { stretched } else { safe.layout().expand(&shape)? };
        let indices = self.indices.iter().map(|t| t.apart_from(out)).collect::<Result<SmallVec<[_; 2]>>>()?;
        let views: SmallVec<[View; 2]> = indices.iter().map(|t| t.engine_view()).collect();
        let (to, from) = (out.layout().permute(&self.order()), stretched.permute(&self.result_order()));
        out.run(call::IndexPut {
            indices: call::List::from_slice(&views),
            values: safe.view_as(&from),
            accumulate,
            out: out.view_as(&to),
        })
    }

    /// The index tensors kept for backward, so that a change made to them in between is noticed.
    fn guards(&self) -> SmallVec<[Saved; 2]> {
        self.indices.iter().map(Saved::input).collect()
    }
}

fn check_guards(ctx: &Ctx, guards: &[Saved]) -> Result<()> {
    guards.iter().try_for_each(|g| ctx.get(g).map(drop))
}

fn check_mask(x: &Tensor, mask: &Tensor, dim: usize) -> Result<()> {
    if dim + mask.rank() > x.rank() {
        return Err(Error::index(format!("too many indices for tensor of dimension {}", x.rank())));
    }
    for (j, &size) in mask.shape().iter().enumerate() {
        if x.shape()[dim + j] != size {
            return Err(Error::index(format!(
                "The shape of the mask {:?} at index {j} does not match the shape of the indexed tensor {:?} at index {}",
                mask.shape(),
                x.shape(),
                dim + j
            )));
        }
    }
    Ok(())
}

/// An error of an engine with the name of the call. Indexing by `[]` has none: PyTorch's message starts with "index".
fn named(error: Error, name: &str) -> Error {
    if matches!(name, "index" | "index_put") { error } else { error.within(name) }
}

/// What a plan's indices pick from `x`.
pub(crate) fn index_read(name: &'static str, x: &Tensor, plan: Arc<Plan>) -> Result<Tensor> {
    let out = plan.pick(x).map_err(|e| named(e, name))?;
    if recording(&[x]) {
        let guards = plan.guards();
        record(name, &[x], &out, move |ctx, dy| {
            check_guards(ctx, &guards)?;
            let zeros = Tensor::zeros_with(&plan.shape, (dy.dtype(), plan.device))?;
            Ok(smallvec![Some(index_write("index_put", &zeros, plan.clone(), dy, true, Place::Own)?)])
        })?;
    }
    Ok(out)
}

/// `x` with `values`, broadcast, put (or added) where a plan's indices point.
pub(crate) fn index_write(
    name: &'static str,
    x: &Tensor,
    plan: Arc<Plan>,
    values: &Tensor,
    accumulate: bool,
    place: Place,
) -> Result<Tensor> {
    x.same_device(values, name)?;
    x.same_dtype(values, name)?;
    let guards = if recording(&[x, values]) { plan.guards() } else { SmallVec::new() };
    let (writer, shape) = (plan.clone(), Dims::from_slice(values.shape()));
    overwrite(
        name,
        x,
        place,
        &[values],
        move |out| writer.put(out, values, accumulate).map_err(|e| named(e, name)),
        move |ctx, dy| {
            check_guards(ctx, &guards)?;
            let to_x = match (ctx.needs(0), accumulate) {
                (false, _) => None,
                (true, true) => Some(dy.clone()),
                (true, false) => {
                    let zero = Tensor::zeros_with([], (dy.dtype(), dy.device()))?;
                    Some(index_write("index_put", dy, plan.clone(), &zero, false, Place::Copy)?)
                }
            };
            let to_values = match ctx.needs(1) {
                true => Some(index_read("index", dy, plan.clone())?.sum_to_size(&shape)?),
                false => None,
            };
            Ok(smallvec![to_x, to_values])
        },
    )
}

impl Tensor {
    /// This tensor as `int64` indices.
    pub(crate) fn to_index(&self, name: &str) -> Result<Tensor> {
        if !self.dtype().is_int() {
            return Err(Error::index(format!(
                "{name}: tensors used as indices must be integers (or bool masks where a mask is taken), got {}",
                self.dtype()
            )));
        }
        self.to_dtype(DType::I64)
    }

    /// This tensor, or a copy of it where an op that writes to `out` could change it.
    pub(crate) fn apart_from(&self, out: &Tensor) -> Result<Tensor> {
        if self.shares_storage(out) { self.detach().copy() } else { Ok(self.clone()) }
    }

    /// An error where a source has another dtype than the tensor it goes into.
    pub(crate) fn same_dtype(&self, source: &Tensor, name: &str) -> Result<()> {
        if self.dtype() == source.dtype() {
            return Ok(());
        }
        Err(Error::dtype(format!(
            "{name}: expected source and destination dtypes to match, but the tensor is {} and the source {}; convert with to_dtype",
            self.dtype(),
            source.dtype()
        )))
    }

    /// A zero-dim tensor as one of one element.
    pub(crate) fn at_least_1d(&self) -> Result<Tensor> {
        if self.rank() == 0 { self.reshape([1usize]) } else { Ok(self.clone()) }
    }

    /// An error for a negative index where PyTorch does not count from the end. Only on the CPU: elsewhere the check
    /// would stall the device.
    fn no_negative_index(&self, name: &str, index: &Tensor) -> Result<()> {
        let checked = self.device() == Device::Cpu && crate::capture::may_read(Device::Cpu) && index.numel() > 0;
        if checked && index.dtype().is_int() && index.min(..)?.item::<i64>()? < 0 {
            return Err(Error::index(format!("{name}: index out of range in self: indices must not be negative")));
        }
        Ok(())
    }

    /// The plan of an op that takes a vector of indices along one dimension. `self` has dimensions.
    fn vector_plan(&self, name: &str, dim: isize, index: &Tensor) -> Result<Arc<Plan>> {
        if index.rank() > 1 {
            return Err(Error::index(format!(
                "{name}: index is supposed to be a vector, got shape {:?}",
                index.shape()
            )));
        }
        self.same_device(index, name)?;
        let dim = self.wrap_dim(name, dim)?;
        Ok(Arc::new(Plan::along(self, dim, &index.to_index(name)?.at_least_1d()?)?))
    }

    /// The slices of dimension `dim` that a vector of indices names, in its order.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::arange(0, 6, 1)?.reshape([3, 2])?;
    /// assert_eq!(x.index_select(0, &Tensor::new([2i64, 0])?)?.to_vec::<i64>()?, [4, 5, 0, 1]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias = "take")]
    pub fn index_select(&self, dim: isize, index: &Tensor) -> Result<Tensor> {
        announced!("torch.index_select", [self, dim, index]; self.index_select(dim, index));
        if self.rank() == 0 {
            return self.reshape([1usize])?.index_select(dim, index)?.reshape([0usize; 0]);
        }
        let plan = self.vector_plan("index_select", dim, index)?;
        self.no_negative_index("index_select", index)?;
        if self.size(dim)? == 0 && index.numel() > 0 && self.rank() > 1 {
            return Err(Error::shape(format!(
                "index_select(): self indexing axis dim should be positive: dimension {dim} of {:?} has no elements to select",
                self.shape()
            )));
        }
        index_read("index_select", self, plan)
    }

    fn index_write_along(
        &self,
        name: &'static str,
        dim: isize,
        index: &Tensor,
        source: &Tensor,
        accumulate: bool,
        place: Place,
    ) -> Result<Tensor> {
        if self.rank() == 0 {
            let lifted = self.reshape([1usize])?;
            let out = lifted.index_write_along(name, dim, index, &source.at_least_1d()?, accumulate, place)?;
            return out.reshape([0usize; 0]);
        }
        let plan = self.vector_plan(name, dim, index)?;
        self.no_negative_index(name, index)?;
        let (source, want) = (source.at_least_1d()?, plan.result_shape());
        if source.shape() != &want[..] {
            let message = format!(
                "{name}: source must have one slice per index and the tensor's sizes elsewhere: expected shape {:?}, got {:?}",
                &want[..],
                source.shape()
            );
            // PyTorch has an IndexError where an overwritten tensor gets the wrong number of slices.
            return Err(if accumulate { Error::shape(message) } else { Error::index(message) });
        }
        index_write(name, self, plan, &source, accumulate, place)
    }

    fn index_add_to(&self, dim: isize, index: &Tensor, source: &Tensor, alpha: Scalar, place: Place) -> Result<Tensor> {
        if !self.dtype().is_float() && matches!(alpha, Scalar::Float(_)) {
            return Err(Error::dtype(
                "index_add: for integral input tensors, argument alpha must not be a floating point number",
            ));
        }
        if self.rank() == 0 && index.numel() != 1 {
            return Err(Error::index("index_add: dimension specified as 0 but tensor has no dimensions"));
        }
        let scaled = if alpha.to_f64() == 1.0 { source.clone() } else { source.mul(Arg::Scalar(alpha))? };
        self.index_write_along("index_add", dim, index, &scaled, true, place)
    }

    /// `self` with `alpha` times the slices of `source` added to its slices of dimension `dim` at the indices.
    pub fn index_add(&self, dim: isize, index: &Tensor, source: &Tensor, alpha: impl Into<Scalar>) -> Result<Tensor> {
        self.index_add_to(dim, index, source, alpha.into(), Place::RowMajor)
    }

    /// [`Tensor::index_add`] in place.
    pub fn index_add_(&self, dim: isize, index: &Tensor, source: &Tensor, alpha: impl Into<Scalar>) -> Result<&Tensor> {
        self.index_add_to(dim, index, source, alpha.into(), Place::Own)?;
        Ok(self)
    }

    /// `self` with its slices of dimension `dim` at the indices replaced by the slices of `source`.
    pub fn index_copy(&self, dim: isize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.index_write_along("index_copy", dim, index, source, false, Place::RowMajor)
    }

    /// [`Tensor::index_copy`] in place.
    pub fn index_copy_(&self, dim: isize, index: &Tensor, source: &Tensor) -> Result<&Tensor> {
        self.index_write_along("index_copy", dim, index, source, false, Place::Own)?;
        Ok(self)
    }

    fn index_fill_with(&self, dim: isize, index: &Tensor, value: Arg, place: Place) -> Result<Tensor> {
        if self.rank() == 0 {
            if place == Place::Own {
                self.check_inplace("index_fill_", &[self])?;
            }
            return self.reshape([1usize])?.index_fill_with(dim, index, value, place)?.reshape([0usize; 0]);
        }
        if let Arg::Tensor(value) = value
            && value.rank() == 0
            && recording(&[value])
        {
            // An index that occurs twice fills once: the value's gradient counts places, not indices.
            let mask = Tensor::zeros_with(self.shape(), (DType::Bool, self.device()))?;
            let mask = mask.index_fill_with(dim, index, true.into(), Place::Own)?;
            let filled = self.masked_fill(&mask, &value.to(self.device())?)?;
            return if place == Place::Own { self.copy_(&filled).cloned() } else { Ok(filled) };
        }
        let plan = self.vector_plan("index_fill", dim, index)?;
        index_write("index_fill", self, plan, &self.number_like("index_fill", value)?, false, place)
    }

    /// A number, or a zero-dim tensor's, as a zero-dim tensor of this tensor's dtype.
    pub(crate) fn number_like(&self, name: &str, value: Arg) -> Result<Tensor> {
        match value {
            Arg::Scalar(s) => Tensor::full_with([], s, (self.dtype(), self.device())),
            Arg::Tensor(t) if t.rank() == 0 => t.to(self.device())?.to_dtype(self.dtype()),
            Arg::Tensor(t) => Err(Error::shape(format!(
                "{name}: supports a number or a 0-dimensional value tensor, but got a tensor with {} dimensions",
                t.rank()
            ))),
        }
    }

    /// `self` with the slices of dimension `dim` that the indices name set to a number (or a zero-dim tensor's).
    pub fn index_fill<'a>(&self, dim: isize, index: &Tensor, value: impl Into<Arg<'a>>) -> Result<Tensor> {
        self.index_fill_with(dim, index, value.into(), Place::Copy)
    }

    /// [`Tensor::index_fill`] in place.
    pub fn index_fill_<'a>(&self, dim: isize, index: &Tensor, value: impl Into<Arg<'a>>) -> Result<&Tensor> {
        self.index_fill_with(dim, index, value.into(), Place::Own)?;
        Ok(self)
    }

    /// The elements at positions of the flattened tensor, in the indices' shape.
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        self.same_device(index, "take")?;
        let flat = self.reshape([-1isize])?;
        let plan = Plan::along(&flat, 0, &index.to_index("take")?)?;
        index_read("take", &flat, Arc::new(plan))
    }

    /// `self` with elements of `source` put (or added, with `accumulate`) at positions of the flattened tensor.
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        if index.dtype() != DType::I64 {
            return Err(Error::shape(format!("put_(): expected a long tensor for index, but got {}", index.dtype())));
        }
        self.same_dtype(source, "put_")?;
        if index.numel() != source.numel() {
            return Err(Error::index(format!(
                "put_(): expected source and index to have the same number of elements, but got {} and {}",
                source.numel(),
                index.numel()
            )));
        }
        self.same_device(index, "put")?;
        let flat = self.reshape([-1isize])?;
        let plan = Plan::along(&flat, 0, &index.to_index("put")?.reshape([-1isize])?)?;
        let values = source.reshape([-1isize])?;
        index_write("put", &flat, Arc::new(plan), &values, accumulate, Place::Copy)?
            .reshape(self.shape())?
            .in_order_of(self)
    }

    /// [`Tensor::put`] in place.
    pub fn put_(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<&Tensor> {
        self.copy_(&self.put(index, source, accumulate)?)
    }
}
