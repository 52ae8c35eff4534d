//! Gathering and scattering along a dimension.

use super::index::{Place, overwrite};
use super::number::fitting;
use crate::Tensor;
use crate::announce::announced;
use crate::arg::Arg;
use crate::autograd::{Ctx, Grads, Saved, record, recording};
use rushlight_core::backend::{Operand, Scatter, call};
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Error, Result, Scalar};

/// How [`Tensor::scatter_reduce`] combines values with the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Average; integers round down.
    Mean,
    /// Largest.
    Amax,
    /// Smallest.
    Amin,
}

/// The dimension and the `int64` index of a gather or scatter over `x` (which has dimensions), checked.
fn checked(name: &str, x: &Tensor, dim: isize, index: &Tensor) -> Result<(usize, Tensor)> {
    x.same_device(index, name)?;
    let dim = x.wrap_dim(name, dim)?;
    let index = index.to_index(name)?.at_least_1d()?;
    if index.numel() == 0 {
        return Ok((dim, index));
    }
    if index.rank() != x.rank() {
        return Err(Error::shape(format!(
            "{name}: index tensor must have the same number of dimensions as the input: {:?} against {:?}",
            index.shape(),
            x.shape()
        )));
    }
    if let Some(d) = (0..x.rank()).find(|&d| d != dim && index.shape()[d] > x.shape()[d]) {
        return Err(Error::shape(format!(
            "{name}: size does not match at dimension {d}: expected index {:?} to be no larger than self {:?} except in dimension {dim}",
            index.shape(),
            x.shape()
        )));
    }
    if x.shape()[dim] == 0 {
        return Err(Error::index(format!("{name}: index is out of bounds for dimension {dim} with size 0")));
    }
    Ok((dim, index))
}

/// A scatter's source of at least the index's sizes, cut to them.
fn cut(name: &str, x: &Tensor, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    x.same_device(source, name)?;
    x.same_dtype(source, name)?;
    let source = source.at_least_1d()?;
    if index.numel() == 0 {
        // Nothing of the source, in the shape that its gradient will have.
        return source.reshape([-1isize])?.narrow(0, 0, 0)?.reshape(index.shape());
    }
    if source.rank() != index.rank() || source.shape().iter().zip(index.shape()).any(|(&have, &want)| have < want) {
        return Err(Error::shape(format!(
            "{name}: expected index {:?} to be no larger size than src {:?}",
            index.shape(),
            source.shape()
        )));
    }
    let mut out = source;
    for (d, &size) in index.shape().iter().enumerate() {
        if out.shape()[d] != size {
            out = out.narrow(d as isize, 0, size)?;
        }
    }
    Ok(out)
}

/// Scatters into `out`, which may share memory with the others.
fn run(op: Scatter, dim: usize, index: &Tensor, source: Arg, out: &Tensor) -> Result<()> {
    if index.numel() == 0 {
        return Ok(());
    }
    let index = index.apart_from(out)?;
    let done = match source {
        Arg::Scalar(s) => {
            let number = Operand::Scalar(fitting("scatter", s, out.dtype())?);
            out.run(call::Scatter { op, dim, index: index.engine_view(), src: number, out: out.engine_view() })
        }
        Arg::Tensor(t) => {
            let t = t.apart_from(out)?;
            out.run(call::Scatter {
                op,
                dim,
                index: index.engine_view(),
                src: Operand::Tensor(t.engine_view()),
                out: out.engine_view(),
            })
        }
    };
    done.map_err(|e| e.within(if op == Scatter::Add { "scatter_add" } else { "scatter" }))
}

impl Tensor {
    /// The elements that an index names along `dim`: `out[i][j] = self[index[i][j]][j]` for `dim` 0. The result has the
    /// index's shape.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let index = Tensor::new([[1i64, 0], [0, 0]])?;
    /// assert_eq!(x.gather(1, &index)?.to_vec::<f32>()?, [2.0, 1.0, 3.0, 3.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn gather(&self, dim: isize, index: &Tensor) -> Result<Tensor> {
        announced!("torch.gather", [self, dim, index]; self.gather(dim, index));
        self.gather_for("gather", dim, index)
    }

    /// Gathers with the name of the call in errors.
    fn gather_for(&self, name: &str, dim: isize, index: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.reshape([1usize])?.gather_for(name, dim, index)?.reshape(index.shape());
        }
        let (dim, places) = checked(name, self, dim, index)?;
        let out = self.uninit_like(places.shape(), self.dtype())?;
        if out.numel() > 0 {
            let done = self.run(call::Gather {
                x: self.engine_view(),
                dim,
                index: places.engine_view(),
                out: out.engine_view(),
            });
            done.map_err(|e| e.within(name))?;
        }
        if recording(&[self]) {
            let (shape, index) = (Dims::from_slice(self.shape()), Saved::input(&places));
            record("gather", &[self], &out, move |ctx, dy| {
                let zeros = Tensor::zeros_with(&shape, (dy.dtype(), dy.device()))?;
                zeros.scatter_add_(dim as isize, &ctx.get(&index)?, dy)?;
                Ok(smallvec![Some(zeros)])
            })?;
        }
        if index.rank() == 0 { out.reshape([0usize; 0]) } else { Ok(out) }
    }

    /// [`Tensor::gather`] with `self` and the indices broadcast against each other outside `dim`, where indices count
    /// round and round, negative ones from the end; without a dimension both are taken flat.
    pub fn take_along_dim(&self, indices: &Tensor, dim: Option<isize>) -> Result<Tensor> {
        let name = "take_along_dim";
        let Some(dim) = dim else {
            return self.reshape([-1isize])?.gather_for(name, 0, &indices.reshape([-1isize])?);
        };
        if self.rank() != indices.rank() {
            return Err(Error::shape(format!(
                "take_along_dim: input and indices should have the same number of dimensions, but got {} and {}",
                self.rank(),
                indices.rank()
            )));
        }
        let dim = self.wrap_dim(name, dim)?;
        if !indices.dtype().is_int() {
            return Err(Error::dtype(format!("{name}: dtype of indices should be int64, but got {}", indices.dtype())));
        }
        let size = self.shape().get(dim).copied().unwrap_or(1);
        let indices = match indices.numel() {
            0 => indices.clone(),
            _ => indices.remainder(size as i64).map_err(|e| e.within(name))?,
        };
        let indices = &indices;
        if self.rank() == 0 {
            return self.gather_for(name, 0, indices);
        }
        let with_size = |t: &Tensor, size: usize| {
            let mut shape = Dims::from_slice(t.shape());
            shape[dim] = size;
            shape
        };
        let common = broadcast_shapes(&with_size(self, 1), &with_size(indices, 1)).map_err(|e| e.within(name))?;
        let stretched = |t: &Tensor| {
            let mut shape = common.clone();
            shape[dim] = t.shape()[dim];
            t.expand(&shape)
        };
        stretched(self)?.gather_for(name, dim as isize, &stretched(indices)?)
    }

    /// Scatters by overwriting or adding, and records it.
    fn scatter_with(&self, op: Scatter, dim: isize, index: &Tensor, source: Arg, place: Place) -> Result<Tensor> {
        let name = if op == Scatter::Add { "scatter_add" } else { "scatter" };
        if self.rank() == 0 {
            return self.reshape([1usize])?.scatter_with(op, dim, index, source, place)?.reshape([0usize; 0]);
        }
        let (dim, index) = checked(name, self, dim, index)?;
        let cut = match source {
            Arg::Tensor(t) => Some(cut(name, self, &index, t)?),
            Arg::Scalar(_) => None,
        };
        let source = cut.as_ref().map_or(source, Arg::Tensor);
        let sources: SmallVec<[&Tensor; 1]> = cut.iter().collect();
        let tape = recording(&[self]) || recording(&sources);
        let (saved, has_source) = (tape.then(|| Saved::input(&index)), cut.is_some());
        let backward = move |ctx: &Ctx, dy: &Tensor| {
            let Some(saved) = &saved else { return Ok(Grads::new()) };
            let index = ctx.get(saved)?;
            let mut grads: Grads = smallvec![match (ctx.needs(0), op) {
                (false, _) => None,
                (true, Scatter::Add) => Some(dy.clone()),
                (true, _) => Some(dy.scatter(dim as isize, &index, 0.0)?),
            }];
            if has_source {
                grads.push(if ctx.needs(1) { Some(dy.gather(dim as isize, &index)?) } else { None });
            }
            Ok(grads)
        };
        overwrite(name, self, place, &sources, |out| run(op, dim, &index, source, out), backward)
    }

    /// `self` with elements of `source` (a tensor of at least the index's sizes, or a number) written where the index
    /// points along `dim`: `out[index[i][j]][j] = source[i][j]` for `dim` 0.
    pub fn scatter<'a>(&self, dim: isize, index: &Tensor, source: impl Into<Arg<'a>>) -> Result<Tensor> {
        let source = source.into();
        announced!("torch.scatter", [self, dim, index, source]; self.scatter(dim, index, source));
        self.scatter_with(Scatter::Set, dim, index, source, Place::RowMajor)
    }

    /// [`Tensor::scatter`] in place.
    pub fn scatter_<'a>(&self, dim: isize, index: &Tensor, source: impl Into<Arg<'a>>) -> Result<&Tensor> {
        self.scatter_with(Scatter::Set, dim, index, source.into(), Place::Own)?;
        Ok(self)
    }

    /// `self` with elements of `source` added where the index points along `dim`.
    pub fn scatter_add(&self, dim: isize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.scatter_with(Scatter::Add, dim, index, Arg::Tensor(source), Place::RowMajor)
    }

    /// [`Tensor::scatter_add`] in place.
    pub fn scatter_add_(&self, dim: isize, index: &Tensor, source: &Tensor) -> Result<&Tensor> {
        self.scatter_with(Scatter::Add, dim, index, Arg::Tensor(source), Place::Own)?;
        Ok(self)
    }

    /// `self` with elements of `source` combined where the index points along `dim`. Without `include_self` the values
    /// that were there do not count; places no index points to keep theirs.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{ScatterReduce, Tensor};
    /// let x = Tensor::new([1.0f32, 2.0])?;
    /// let (index, source) = (Tensor::new([0i64, 0])?, Tensor::new([5.0f32, 3.0])?);
    /// assert_eq!(x.scatter_reduce(0, &index, &source, ScatterReduce::Amax, true)?.to_vec::<f32>()?, [5.0, 2.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn scatter_reduce(
        &self,
        dim: isize,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        let name = "scatter_reduce";
        if self.rank() == 0 {
            let lifted = self.reshape([1usize])?;
            return lifted.scatter_reduce(dim, index, source, reduce, include_self)?.reshape([0usize; 0]);
        }
        let (dim, index) = checked(name, self, dim, index)?;
        let source = cut(name, self, &index, source)?;
        let d = dim as isize;
        let combine = Combine { dim: d, reduce, include_self };
        let out = self.detach().contiguous_copy()?;
        let from = Arg::Tensor(&source);
        match (reduce, include_self) {
            (_, true) => {}
            (ScatterReduce::Sum | ScatterReduce::Mean, false) => run(Scatter::Set, dim, &index, 0.into(), &out)?,
            (ScatterReduce::Prod, false) => run(Scatter::Set, dim, &index, 1.into(), &out)?,
            // Any one of the candidates to start from will do.
            (ScatterReduce::Amax | ScatterReduce::Amin, false) => run(Scatter::Set, dim, &index, from, &out)?,
        }
        let op = match reduce {
            ScatterReduce::Sum | ScatterReduce::Mean => Scatter::Add,
            ScatterReduce::Prod => Scatter::Mul,
            ScatterReduce::Amax => Scatter::Max,
            ScatterReduce::Amin => Scatter::Min,
        };
        run(op, dim, &index, from, &out)?;
        if reduce == ScatterReduce::Mean {
            let counts = combine.counts(&out, &index)?;
            if out.dtype().is_differentiable() {
                out.div_(&counts)?
            } else {
                out.floor_divide_(&counts)?
            };
        }
        if out.dtype().is_differentiable() && recording(&[self, &source]) {
            let saved = [self, &source, &index].map(Saved::input);
            let result = Saved::output(&out, 0);
            record(name, &[self, &source], &out, move |ctx, dy| {
                let [x, source, index] = [ctx.get(&saved[0])?, ctx.get(&saved[1])?, ctx.get(&saved[2])?];
                let (to_x, to_source) = combine.gradients(dy, &x, &source, &index, &ctx.get(&result)?)?;
                let to_x = if include_self { to_x } else { to_x.scatter(d, &index, 0.0)? };
                Ok(smallvec![Some(to_x), Some(to_source)])
            })?;
        }
        Ok(out)
    }

    /// [`Tensor::scatter_reduce`] in place.
    pub fn scatter_reduce_(
        &self,
        dim: isize,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<&Tensor> {
        // The derivative reads the old elements.
        let before = if recording(&[self, source]) { self.copy()? } else { self.clone() };
        self.copy_(&before.scatter_reduce(dim, index, source, reduce, include_self)?)
    }
}

/// The options of a `scatter_reduce`.
#[derive(Clone, Copy)]
struct Combine {
    dim: isize,
    reduce: ScatterReduce,
    include_self: bool,
}

impl Combine {
    /// How many values met at each place; 1 where none did.
    fn counts(&self, x: &Tensor, index: &Tensor) -> Result<Tensor> {
        let start = Scalar::Int(self.include_self as i64);
        let dtype = if x.dtype().is_differentiable() { x.dtype() } else { DType::I64 };
        let counts = Tensor::full_with(x.shape(), start, (dtype, x.device()))?;
        counts.scatter_add_(self.dim, index, &Tensor::ones_with(index.shape(), (dtype, x.device()))?)?;
        counts.clamp_min(1)
    }

    /// Gradients by the tensor (as if it were included) and by the source.
    fn gradients(
        &self,
        dy: &Tensor,
        x: &Tensor,
        source: &Tensor,
        index: &Tensor,
        y: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        match self.reduce {
            ScatterReduce::Sum => Ok((dy.clone(), dy.gather(self.dim, index)?)),
            ScatterReduce::Mean => {
                let share = dy.div(&self.counts(dy, index)?)?;
                let to_source = share.gather(self.dim, index)?;
                Ok((share, to_source))
            }
            ScatterReduce::Prod => self.prod_gradients(dy, x, source, index, y),
            ScatterReduce::Amax | ScatterReduce::Amin => {
                // Equal winners share.
                let mut x_wins = x.eq(y)?.to_dtype(dy.dtype())?;
                if !self.include_self {
                    x_wins = x_wins.scatter(self.dim, index, 0.0)?;
                }
                let source_wins = source.eq(&y.gather(self.dim, index)?)?.to_dtype(dy.dtype())?;
                let share = dy.div(&x_wins.scatter_add(self.dim, index, &source_wins)?)?;
                let to_source = source_wins.mul(&share.gather(self.dim, index)?)?;
                Ok((x_wins.mul(&share)?, to_source))
            }
        }
    }

    /// A product's gradients are the products of all the others, zeros among them or not.
    fn prod_gradients(
        &self,
        dy: &Tensor,
        x: &Tensor,
        source: &Tensor,
        index: &Tensor,
        y: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let product = |x: &Tensor, source: &Tensor| {
            x.scatter_reduce(self.dim, index, source, ScatterReduce::Prod, self.include_self)
        };
        let nonzero_x = x.masked_fill(&x.eq(0)?, 1.0)?;
        let to_x = dy.mul(&product(&nonzero_x, source)?)?.div(&nonzero_x)?;

        let is_zero = source.eq(0)?;
        let zeros = Tensor::zeros_with(x.shape(), (DType::I64, x.device()))?;
        zeros.scatter_add_(self.dim, index, &is_zero.to_dtype(DType::I64)?)?;
        let zeros = zeros.gather(self.dim, index)?;
        let only_zero = is_zero.logical_and(&zeros.eq(1)?)?;
        let others = dy.mul(&product(x, &source.masked_fill(&only_zero, 1.0)?)?)?.gather(self.dim, index)?;
        let usual = dy.mul(y)?.gather(self.dim, index)?.div(&source.masked_fill(&is_zero, 1.0)?)?;
        let to_source = crate::where_(&only_zero, &others, &usual)?.masked_fill(&zeros.gt(1)?, 0.0)?;
        Ok((to_x, to_source))
    }
}
