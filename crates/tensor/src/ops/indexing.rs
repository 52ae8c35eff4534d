//! Python's `x[…]`: integers, ranges, new axes and ellipses as views, index tensors and masks on top of them.

use super::index::{Place, Plan, index_read, index_write};
use crate::Tensor;
use crate::announce::{Value, announced};
use crate::arg::Arg;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Error, ErrorKind, Result};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use std::sync::Arc;

/// One entry of an index expression. Integers, Rust ranges and tensors convert to it.
#[derive(Clone)]
pub enum IndexItem {
    /// One entry of a dimension, which goes away; negative counts from the end.
    Int(isize),
    /// Every `step`-th entry from `start` to before `end`, as Python's `start:end:step`.
    Range {
        /// The first; from the end if negative. The dimension's start if not given.
        start: Option<isize>,
        /// The end; from the end if negative. The dimension's end if not given.
        end: Option<isize>,
        /// The step.
        step: usize,
    },
    /// A new dimension of size one: Python's `None`.
    NewAxis,
    /// As many full dimensions as it takes: Python's `...`.
    Ellipsis,
    /// Integers that pick entries, or a mask of truth values over one or more dimensions.
    Tensor(Tensor),
}

/// Every `step`-th entry from `start` to before `end`, either of which may be `None`: Python's `start:end:step`.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, slice};
/// let x = Tensor::arange(0, 6, 1)?;
/// assert_eq!(x.i(slice(1, None, 2))?.to_vec::<i64>()?, [1, 3, 5]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn slice(start: impl Into<Option<isize>>, end: impl Into<Option<isize>>, step: usize) -> IndexItem {
    IndexItem::Range { start: start.into(), end: end.into(), step }
}

/// One entry or a tuple of up to six, or a slice of entries: the contents of the brackets of Python's `x[…]`.
pub trait IntoIndex {
    /// The entries.
    fn into_index(self) -> SmallVec<[IndexItem; 4]>;
}

impl From<&Tensor> for IndexItem {
    fn from(t: &Tensor) -> Self {
        IndexItem::Tensor(t.clone())
    }
}

impl From<Tensor> for IndexItem {
    fn from(t: Tensor) -> Self {
        IndexItem::Tensor(t)
    }
}

impl From<RangeFull> for IndexItem {
    fn from(_: RangeFull) -> Self {
        slice(None, None, 1)
    }
}

/// The end of a range that includes it: `..=-1` goes to the last.
fn past(last: isize) -> Option<isize> {
    if last == -1 { None } else { Some(last.saturating_add(1)) }
}

macro_rules! from_integers {
    ($($t:ty)*) => {$(
        impl From<$t> for IndexItem {
            fn from(i: $t) -> Self { IndexItem::Int(i as isize) }
        }
        impl From<Range<$t>> for IndexItem {
            fn from(r: Range<$t>) -> Self { slice(r.start as isize, r.end as isize, 1) }
        }
        impl From<RangeFrom<$t>> for IndexItem {
            fn from(r: RangeFrom<$t>) -> Self { slice(r.start as isize, None, 1) }
        }
        impl From<RangeTo<$t>> for IndexItem {
            fn from(r: RangeTo<$t>) -> Self { slice(None, r.end as isize, 1) }
        }
        impl From<RangeInclusive<$t>> for IndexItem {
            fn from(r: RangeInclusive<$t>) -> Self { slice(*r.start() as isize, past(*r.end() as isize), 1) }
        }
        impl From<RangeToInclusive<$t>> for IndexItem {
            fn from(r: RangeToInclusive<$t>) -> Self { slice(None, past(r.end as isize), 1) }
        }
        one_item!($t, Range<$t>, RangeFrom<$t>, RangeTo<$t>, RangeInclusive<$t>, RangeToInclusive<$t>);
    )*};
}

macro_rules! one_item {
    ($($t:ty),*) => {$(
        impl IntoIndex for $t {
            fn into_index(self) -> SmallVec<[IndexItem; 4]> { SmallVec::from_iter([self.into()]) }
        }
    )*};
}

from_integers!(i32 i64 isize usize);
one_item!(IndexItem, &Tensor, Tensor, RangeFull);

macro_rules! tuples {
    ($(($($T:ident $i:tt),+))*) => {$(
        impl<$($T: Into<IndexItem>),+> IntoIndex for ($($T,)+) {
            fn into_index(self) -> SmallVec<[IndexItem; 4]> { SmallVec::from_iter([$(self.$i.into()),+]) }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

impl IntoIndex for &[IndexItem] {
    fn into_index(self) -> SmallVec<[IndexItem; 4]> {
        SmallVec::from(self)
    }
}

impl<const N: usize> IntoIndex for &[IndexItem; N] {
    fn into_index(self) -> SmallVec<[IndexItem; 4]> {
        SmallVec::from(&self[..])
    }
}

impl IntoIndex for Vec<IndexItem> {
    fn into_index(self) -> SmallVec<[IndexItem; 4]> {
        SmallVec::from_vec(self)
    }
}

/// A mask without dimensions, which adds one instead of standing for any.
fn is_lone_truth(t: &Tensor) -> bool {
    t.rank() == 0 && matches!(t.dtype(), DType::Bool | DType::U8)
}

fn is_mask(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::Bool | DType::U8)
}

/// The number of dimensions of the indexed tensor that an entry covers.
fn consumed(item: &IndexItem) -> usize {
    match item {
        IndexItem::Int(_) | IndexItem::Range { .. } => 1,
        IndexItem::NewAxis | IndexItem::Ellipsis => 0,
        IndexItem::Tensor(t) if is_mask(t) => t.rank(),
        IndexItem::Tensor(_) => 1,
    }
}

impl Tensor {
    /// The view that the basic entries make, and the index tensors over its leading dimensions (empty if there are
    /// none).
    fn basic(&self, items: &[IndexItem]) -> Result<(Tensor, Vec<Option<Tensor>>)> {
        let named: usize = items.iter().map(consumed).sum();
        if named > self.rank() {
            return Err(match (self.rank(), items.first()) {
                (0, Some(IndexItem::Int(_))) => {
                    Error::index("invalid index of a 0-dim tensor. Use `tensor.item()` to convert it to a number")
                }
                (0, Some(IndexItem::Range { .. })) => Error::index("slice() cannot be applied to a 0-dim tensor"),
                (rank, _) => Error::index(format!("too many indices for tensor of dimension {rank}")),
            });
        }
        if items.iter().filter(|i| matches!(i, IndexItem::Ellipsis)).count() > 1 {
            return Err(Error::index("an index can only have a single ellipsis ('...')"));
        }
        let mut view = self.clone();
        let mut tensors: Vec<Option<Tensor>> = Vec::new();
        // `dim` walks the view, `own` the tensor's own dimensions, for messages.
        let (mut dim, mut own) = (0, 0);
        for item in items {
            match item {
                IndexItem::Int(i) => {
                    view = select(&view, dim, own, *i)?;
                }
                IndexItem::Range { start: None, end: None, step: 1 } => dim += 1,
                IndexItem::Range { start, end, step } => {
                    view = view.slice(dim as isize, *start, *end, *step)?;
                    dim += 1;
                }
                IndexItem::NewAxis => {
                    view = view.unsqueeze(dim as isize)?;
                    dim += 1;
                }
                IndexItem::Ellipsis => {
                    dim += self.rank() - named;
                    own += self.rank() - named;
                }
                IndexItem::Tensor(t) if is_lone_truth(t) => {
                    view = view.unsqueeze(dim as isize)?;
                    push_at(&mut tensors, dim, t.reshape([1usize])?);
                    dim += 1;
                }
                IndexItem::Tensor(t) if t.rank() == 0 && t.dtype().is_int() => {
                    view = select(&view, dim, own, t.item::<i64>()? as isize)?;
                }
                IndexItem::Tensor(t) => {
                    push_at(&mut tensors, dim, t.clone());
                    dim += consumed(item);
                }
            }
            own += consumed(item);
        }
        Ok((view, tensors))
    }

    /// Python's `x[…]`: integers and ranges, [`NewAxis`](IndexItem::NewAxis) and [`Ellipsis`](IndexItem::Ellipsis) give
    /// views; index tensors and masks give copies, with their dimensions where they stood if they are neighbours, else
    /// in front.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{Ellipsis, NewAxis, Tensor};
    /// let x = Tensor::arange(0, 24, 1)?.reshape([2, 3, 4])?;
    /// assert_eq!(x.i((0, 1..3, ..))?.shape(), [2, 4]);
    /// assert_eq!(x.i((Ellipsis, NewAxis, -1))?.shape(), [2, 3, 1]);
    /// let columns = Tensor::new([3i64, 0])?;
    /// assert_eq!(x.i((1, 0, &columns))?.to_vec::<i64>()?, [15, 12]);
    /// assert_eq!(x.i(&x.ge(20)?)?.to_vec::<i64>()?, [20, 21, 22, 23]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn i(&self, index: impl IntoIndex) -> Result<Tensor> {
        self.index(index).map_err(|e| e.within("i"))
    }

    /// [`Tensor::i`] with the error messages of Python's `x[…]`, which name no call.
    #[doc(alias("slice", "getitem", "i"))]
    pub fn index(&self, index: impl IntoIndex) -> Result<Tensor> {
        let (view, tensors) = self.basic(&index.into_index())?;
        if tensors.is_empty() {
            // Return a view even if nothing was indexed: in-place ops on it change a part of this tensor.
            return if view.is_same(self) { self.expand(self.shape()) } else { Ok(view) };
        }
        let read = || index_read("index", &view, Arc::new(Plan::new(&view, &tensors)?));
        announced!("torch.index", [&view, tensors.iter().map(|t| t.as_ref().into()).collect::<Vec<Value>>()]; read());
        read()
    }

    /// Python's `x[…] = value`, in place: the value (a tensor or a number) is broadcast and converted. Recorded for
    /// both.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::zeros([2, 3])?;
    /// x.index_assign((.., 1..), 5.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 5.0, 5.0, 0.0, 5.0, 5.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn index_assign<'a>(&self, index: impl IntoIndex, value: impl Into<Arg<'a>>) -> Result<&Tensor> {
        self.assign_at(&index.into_index(), value.into()).map_err(|e| named(e, "index_assign"))?;
        Ok(self)
    }

    fn assign_at(&self, items: &[IndexItem], value: Arg) -> Result<()> {
        let (view, tensors) = self.basic(items)?;
        if tensors.is_empty() {
            match value {
                Arg::Tensor(t) => {
                    let t = without_leading_ones(t, view.rank())?;
                    // A value that is broadcast may be an element of the target: `x[row] = x[row][0]`.
                    let broadcast = t.shape() != view.shape() && t.shares_storage(&view);
                    view.assign(Arg::Tensor(&if broadcast { t.copy()? } else { t }))?
                }
                number => view.assign(number)?,
            };
            return Ok(());
        }
        view.check_leaf_change("index_put_")?;
        let plan = Plan::new(&view, &tensors)?;
        let values = match value {
            Arg::Scalar(_) => view.number_like("index_assign", value)?,
            Arg::Tensor(t) => {
                without_leading_ones(t, plan.result_shape().len())?.to(view.device())?.to_dtype(view.dtype())?
            }
        };
        index_write("index_put", &view, Arc::new(plan), &values, false, Place::Own)?;
        Ok(())
    }

    /// [`Tensor::index_assign`] that can add instead of overwrite: with `accumulate` repeated indices add up.
    pub fn index_put_(&self, index: impl IntoIndex, values: &Tensor, accumulate: bool) -> Result<&Tensor> {
        self.put_at(&index.into_index(), values, accumulate).map_err(|e| named(e, "index_put_"))?;
        Ok(self)
    }

    fn put_at(&self, items: &[IndexItem], values: &Tensor, accumulate: bool) -> Result<()> {
        let (view, tensors) = self.basic(items)?;
        self.same_dtype(values, "index_put_")?;
        if !tensors.is_empty() {
            let plan = Plan::new(&view, &tensors)?;
            index_write("index_put", &view, Arc::new(plan), values, accumulate, Place::Own)?;
        } else if accumulate {
            view.add_(values)?;
        } else {
            view.copy_(values)?;
        }
        Ok(())
    }

    /// `self` with values put (or added, with `accumulate`) where an index points.
    pub fn index_put(&self, index: impl IntoIndex, values: &Tensor, accumulate: bool) -> Result<Tensor> {
        let items = index.into_index();
        let put = || {
            let (view, tensors) = self.basic(&items)?;
            if view.is_same(self) && !tensors.is_empty() {
                let plan = Plan::new(self, &tensors)?;
                return index_write("index_put", self, Arc::new(plan), values, accumulate, Place::Copy);
            }
            let out = self.copy()?;
            out.put_at(&items, values, accumulate)?;
            Ok(out)
        };
        put().map_err(|e| named(e, "index_put"))
    }
}

/// An index error with the name of the call; other errors have it already.
fn named(error: Error, call: &str) -> Error {
    if error.kind() == ErrorKind::Index { error.within(call) } else { error }
}

fn select(view: &Tensor, dim: usize, own: usize, index: isize) -> Result<Tensor> {
    let size = view.shape().get(dim).copied().unwrap_or(0) as isize;
    if !(-size..size).contains(&index) {
        return Err(Error::index(format!("index {index} is out of bounds for dimension {own} with size {size}")));
    }
    view.select(dim as isize, index)
}

fn push_at(tensors: &mut Vec<Option<Tensor>>, dim: usize, t: Tensor) {
    // An earlier mask covers several dimensions with one entry.
    let covered: usize = tensors.iter().flatten().filter(|t| is_mask(t)).map(|t| t.rank() - 1).sum();
    tensors.resize(dim.saturating_sub(covered), None);
    tensors.push(Some(t));
}

/// Assignment ignores leading dimensions of size one that the target lacks.
fn without_leading_ones(t: &Tensor, rank: usize) -> Result<Tensor> {
    let extra = t.rank().saturating_sub(rank);
    if extra > 0 && t.shape()[..extra].iter().all(|&d| d == 1) { t.reshape(&t.shape()[extra..]) } else { Ok(t.clone()) }
}
