//! Reductions over any dimensions: sums, means, products, truth and counts.

use crate::announce::{self, announced};
use crate::autograd::{Saved, record, recording};
use crate::ops::complex::conjugate_product;
use crate::ops::sizes::AsDims;
use crate::program::recipe;
use crate::{Tensor, amp};
use rushlight_core::backend::{Reduce, call};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Error, Result};

/// Which dimensions are reduced.
pub(crate) type Mask = SmallVec<[bool; 6]>;

impl Tensor {
    /// Which dimensions to reduce; none named means all.
    pub(crate) fn reduced(&self, name: &str, dims: &[isize]) -> Result<Mask> {
        if self.rank() > 64 {
            return Err(Error::shape(format!("{name}: only tensors with up to 64 dims are supported")));
        }
        let mut mask: Mask = smallvec![dims.is_empty(); self.rank()];
        for d in self.wrap_dims(name, dims)? {
            if let Some(m) = mask.get_mut(d) {
                *m = true;
            }
        }
        Ok(mask)
    }

    /// The shape with the reduced dimensions kept at size one.
    pub(crate) fn kept_shape(&self, mask: &[bool]) -> Dims {
        self.shape().iter().zip(mask).map(|(&d, &r)| if r { 1 } else { d }).collect()
    }

    /// How many elements go into each result.
    pub(crate) fn reduced_count(&self, mask: &[bool]) -> usize {
        self.shape().iter().zip(mask).filter(|(_, r)| **r).map(|(&d, _)| d).product()
    }

    /// An error for an expanded tensor with more elements than could be visited: an engine's partial results would not
    /// fit in memory.
    pub(crate) fn visitable(&self, name: &str) -> Result<()> {
        const MAX_VISITED: usize = 1 << 42;
        if self.numel() <= MAX_VISITED {
            return Ok(());
        }
        Err(Error::out_of_memory(format!(
            "{name}: a tensor of shape {:?} has too many elements to visit",
            self.shape()
        )))
    }

    /// A reduction with the reduced dimensions kept at size one, not recorded.
    pub(crate) fn reduce_keep(&self, op: Reduce, mask: &[bool], dtype: DType) -> Result<Tensor> {
        self.visitable("reduction")?;
        if self.dtype().is_carried() {
            return self.reduce_carried(op, mask, dtype);
        }
        let out = self.uninit_like(&self.kept_shape(mask), dtype)?;
        if out.numel() > 0 {
            out.run(call::Reduce {
                op,
                x: self.engine_view(),
                reduced: call::Marks::from_slice(mask),
                out: out.engine_view(),
            })?;
        }
        Ok(out)
    }

    /// The product of complex numbers, with the reduced dimensions kept at size one: neighbours in pairs, until one is
    /// left.
    pub(crate) fn complex_prod(&self, mask: &[bool]) -> Result<Tensor> {
        let (reduced, rest): (Vec<isize>, Vec<isize>) = (0..self.rank() as isize).partition(|&d| mask[d as usize]);
        let order: Vec<isize> = rest.iter().chain(&reduced).copied().collect();
        let kept = self.kept_shape(mask);
        crate::autograd::no_grad(|| {
            let outer: usize = rest.iter().map(|&d| self.shape()[d as usize]).product();
            let mut rows = self.detach().permute(&order)?.reshape([outer, self.reduced_count(mask)])?;
            if rows.shape()[1] == 0 {
                return rows.sum_dims(1, true)?.ones_like()?.reshape(&kept);
            }
            while rows.shape()[1] > 1 {
                let half = rows.shape()[1] / 2;
                let pairs = rows.narrow(1, 0, half)?.mul(&rows.narrow(1, half as isize, half)?)?;
                rows = match rows.shape()[1] % 2 {
                    0 => pairs,
                    _ => crate::cat(&[&pairs, &rows.narrow(1, 2 * half as isize, 1)?], 1)?,
                };
            }
            rows.reshape(&kept)
        })
    }

    /// A kept reduction under its final shape.
    pub(crate) fn finish(&self, kept: Tensor, mask: &[bool], keepdim: bool) -> Tensor {
        if keepdim || !mask.contains(&true) {
            return kept;
        }
        let mut layout = kept.layout().clone();
        for d in (0..mask.len()).rev().filter(|&d| mask[d]) {
            layout = layout.squeeze(d);
        }
        Tensor::from_parts(kept.0.storage.clone(), layout, kept.dtype(), Default::default())
    }

    /// A reduction under its final shape, not recorded.
    pub(crate) fn reduce(&self, op: Reduce, mask: &[bool], keepdim: bool, dtype: DType) -> Result<Tensor> {
        Ok(self.finish(self.reduce_keep(op, mask, dtype)?, mask, keepdim))
    }

    /// The dtype sums and products have: integers and bool add up as `int64`.
    fn total_dtype(&self) -> DType {
        if self.dtype().is_differentiable() { self.dtype() } else { DType::I64 }
    }

    /// Sum over dimensions, or over all of them: `x.sum(1)?`, `x.sum([0, -1])?`, `x.sum(..)?`. Integers and bool add up
    /// as `int64`.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::Tensor;
    /// let x = Tensor::new([[1.0, 2.0], [3.0, 6.0]])?;
    /// assert_eq!(x.sum(1)?.to_vec::<f32>()?, [3.0, 9.0]);
    /// assert_eq!(x.sum(..)?.item::<f32>()?, 12.0);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn sum(&self, dims: impl AsDims) -> Result<Tensor> {
        self.sum_dims(dims, false)
    }

    /// [`Tensor::sum`] whose dimensions stay at size one with `keepdim`.
    pub fn sum_dims(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        let mask = self.reduced("sum", dims)?;
        announced!("torch.sum", [self, announce::dims(dims), keepdim]; self.sum_dims(dims, keepdim));
        let dtype = self.total_dtype();
        let out = self.reduce(Reduce::Sum, &mask, keepdim, dtype)?;
        if dtype.is_differentiable() && recording(&[self]) {
            let (shape, kept) = (Dims::from_slice(self.shape()), self.kept_shape(&mask));
            record("sum", &[self], &out, move |_, dy| Ok(smallvec![Some(dy.reshape(&kept)?.expand(&shape)?)]))?;
        }
        Ok(out)
    }

    /// [`Tensor::sum_dims`] of the elements converted to a dtype first, which the result has too.
    pub fn sum_as(&self, dims: impl AsDims, keepdim: bool, dtype: DType) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.to_dtype(dtype)?.sum_dims(dims, keepdim)?.to_dtype(dtype)
    }

    /// Average over dimensions, `..` for all. Floats only; see [`Tensor::mean_as`] for integers.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([[1.0f32, 2.0], [3.0, 6.0]])?;
    /// assert_eq!(x.mean(..)?.item::<f32>()?, 3.0);
    /// assert_eq!(x.mean(0)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn mean(&self, dims: impl AsDims) -> Result<Tensor> {
        self.mean_dims(dims, false)
    }

    /// [`Tensor::mean`] whose dimensions stay at size one with `keepdim`.
    pub fn mean_dims(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        if !self.dtype().is_differentiable() {
            return Err(Error::dtype(format!(
                "mean: not implemented for {}: could not infer output dtype, input dtype must be a floating point dtype; use mean_as",
                self.dtype()
            )));
        }
        let mask = self.reduced("mean", dims)?;
        announced!("torch.mean", [self, announce::dims(dims), keepdim]; self.mean_dims(dims, keepdim));
        let out = self.reduce(Reduce::Mean, &mask, keepdim, self.dtype())?;
        if recording(&[self]) {
            let (shape, kept, count) =
                (Dims::from_slice(self.shape()), self.kept_shape(&mask), self.reduced_count(&mask));
            record("mean", &[self], &out, move |ctx, dy| {
                let dx = dy.reshape(&kept)?.div(count as f64)?.expand(&shape)?;
                // Row-major where the gradient is itself a result, as PyTorch's; expanded where the next op reads it.
                Ok(smallvec![Some(if ctx.recording() { dx.contiguous()? } else { dx })])
            })?;
        }
        Ok(out)
    }

    /// [`Tensor::mean_dims`] of the elements converted to a float dtype first.
    pub fn mean_as(&self, dims: impl AsDims, keepdim: bool, dtype: DType) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.to_dtype(dtype)?.mean_dims(dims, keepdim)
    }

    /// Sum over dimensions, `..` for all, of the elements that are not NaN.
    pub fn nansum(&self, dims: impl AsDims) -> Result<Tensor> {
        self.nansum_dims(dims, false)
    }

    /// [`Tensor::nansum`] whose dimensions stay at size one with `keepdim`.
    pub fn nansum_dims(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        if !self.dtype().is_float() {
            return self.sum_dims(dims, keepdim);
        }
        let mask = self.reduced("nansum", dims)?;
        let numbers: SmallVec<[i64; 8]> = mask.iter().map(|&m| m as i64).chain([keepdim as i64]).collect();
        let out = recipe("nansum", &numbers, [self], |[x]| {
            let clean = x.detach().masked_fill(&x.isnan()?, 0.0)?;
            clean.reduce(Reduce::Sum, &mask, keepdim, x.dtype())
        })?;
        if recording(&[self]) {
            let (kept, x) = (self.kept_shape(&mask), Saved::input(self));
            record("nansum", &[self], &out, move |ctx, dy| {
                // A product, so that an infinite gradient (a mean of nothing) shows.
                Ok(smallvec![Some(ctx.get(&x)?.isnan()?.logical_not()?.mul(&dy.reshape(&kept)?)?)])
            })?;
        }
        Ok(out)
    }

    /// Average over dimensions, `..` for all, of the elements that are not NaN.
    pub fn nanmean(&self, dims: impl AsDims) -> Result<Tensor> {
        self.nanmean_dims(dims, false)
    }

    /// [`Tensor::nanmean`] whose dimensions stay at size one with `keepdim`.
    pub fn nanmean_dims(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.needs_float("nanmean")?;
        // In half types counts would be rounded.
        if recording(&[self]) || !matches!(self.dtype(), DType::F32 | DType::F64) {
            let counts = self.isnan()?.logical_not()?.sum_dims(dims, keepdim)?;
            return self.nansum_dims(dims, keepdim)?.div(&counts);
        }
        let mask = self.reduced("nanmean", dims)?;
        let numbers: SmallVec<[i64; 8]> = mask.iter().map(|&m| m as i64).chain([keepdim as i64]).collect();
        recipe("nanmean", &numbers, [self], |[x]| {
            let counts = x.isnan()?.logical_not()?.to_dtype(x.dtype())?.sum_dims(dims, keepdim)?;
            x.nansum_dims(dims, keepdim)?.div(&counts)
        })
    }

    /// Product over dimensions, `..` for all. Integers and bool multiply as `int64`.
    pub fn prod(&self, dims: impl AsDims) -> Result<Tensor> {
        self.prod_dims(dims, false)
    }

    /// [`Tensor::prod`] whose dimensions stay at size one with `keepdim`.
    pub fn prod_dims(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        if let Some(cast) = amp::full() {
            return cast.run(|| cast.of(self)?.prod_dims(dims, keepdim));
        }
        let mask = self.reduced("prod", dims)?;
        match *dims {
            [dim] => announced!("torch.prod", [self, dim, keepdim]; self.prod_dims(dims, keepdim)),
            [] if !keepdim => announced!("torch.prod", [self]; self.prod_dims(dims, keepdim)),
            _ => {}
        }
        let dtype = self.total_dtype();
        let out = self.reduce(Reduce::Prod, &mask, keepdim, dtype)?;
        if dtype.is_differentiable() && recording(&[self]) {
            let (kept, x, y) = (self.kept_shape(&mask), Saved::input(self), Saved::output(&out, 0));
            record("prod", &[self], &out, move |ctx, dy| {
                let (x, dy) = (ctx.get(&x)?, dy.reshape(&kept)?);
                // A step that is recorded takes the way that suits zeros too.
                let grad = if !crate::capture::may_read(x.device()) || x.eq(0)?.any(..)?.item::<bool>()? {
                    conjugate_product(&dy, &products_of_others(&x, &mask)?)?
                } else if x.is_complex() {
                    conjugate_product(&dy, &ctx.get(&y)?.reshape(&kept)?.div(&x)?)?
                } else {
                    dy.mul(&ctx.get(&y)?.reshape(&kept)?)?.div(&x)?
                };
                Ok(smallvec![Some(grad)])
            })?;
        }
        Ok(out)
    }

    /// [`Tensor::prod_dims`] of the elements converted to a dtype first, which the result has too.
    pub fn prod_as(&self, dims: impl AsDims, keepdim: bool, dtype: DType) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.to_dtype(dtype)?.prod_dims(dims, keepdim)?.to_dtype(dtype)
    }

    /// `log(sum(exp(x)))` over the named dimensions (`..`: all), without overflow.
    pub fn logsumexp(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        if self.is_complex() {
            // The largest real part is taken out of the sum.
            let largest = crate::autograd::no_grad(|| {
                let dims: Vec<isize> = self
                    .reduced("logsumexp", dims)?
                    .iter()
                    .enumerate()
                    .filter(|(_, r)| **r)
                    .map(|(d, _)| d as isize)
                    .collect();
                let top = if self.numel() == 0 {
                    self.real()?.sum_dims(dims, true)?
                } else {
                    self.real()?.amax(dims, true)?
                };
                crate::where_(&top.isfinite()?, &top, 0.0)
            })?;
            let total = self.sub(&largest)?.exp()?.sum_dims(dims, true)?.log()?.add(&largest)?;
            let mask = self.reduced("logsumexp", dims)?;
            let shape: Dims = self.shape().iter().zip(&mask).filter(|(_, r)| !**r).map(|(&d, _)| d).collect();
            return if keepdim { Ok(total) } else { total.reshape(&shape) };
        }
        if !self.dtype().is_float() {
            return self.to_dtype(crate::default_dtype())?.logsumexp(dims, keepdim);
        }
        let mask = self.reduced("logsumexp", dims)?;
        let all: Vec<usize> = (0..self.rank()).filter(|&d| mask[d]).collect();
        announced!("torch.logsumexp", [self, &all[..], keepdim]; self.logsumexp(dims, keepdim));
        let out = self.reduce(Reduce::LogSumExp, &mask, keepdim, self.dtype())?;
        if recording(&[self]) {
            let (kept, x, y) = (self.kept_shape(&mask), Saved::input(self), Saved::output(&out, 0));
            record("logsumexp", &[self], &out, move |ctx, dy| {
                let y = ctx.get(&y)?.reshape(&kept)?;
                Ok(smallvec![Some(ctx.get(&x)?.sub(&y)?.exp()?.mul(&dy.reshape(&kept)?)?)])
            })?;
        }
        Ok(out)
    }

    /// Truth reductions give `bool`, or `uint8` for `uint8`.
    fn truth_reduction(&self, op: Reduce, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let name = if op == Reduce::Any { "torch.any" } else { "torch.all" };
        announced!(name, [self, announce::dims(dims), keepdim]; self.truth_reduction(op, dims, keepdim));
        let out =
            self.reduce(op, &self.reduced(if op == Reduce::Any { "any" } else { "all" }, dims)?, keepdim, DType::Bool)?;
        if self.dtype() == DType::U8 { out.to_dtype(DType::U8) } else { Ok(out) }
    }

    /// Whether any element along dimensions, `..` for all, is not zero.
    pub fn any(&self, dims: impl AsDims) -> Result<Tensor> {
        self.any_dims(dims, false)
    }

    /// [`Tensor::any`] whose dimensions stay at size one with `keepdim`.
    pub fn any_dims(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.truth_reduction(Reduce::Any, dims, keepdim)
    }

    /// Whether no element along dimensions, `..` for all, is zero.
    pub fn all(&self, dims: impl AsDims) -> Result<Tensor> {
        self.all_dims(dims, false)
    }

    /// [`Tensor::all`] whose dimensions stay at size one with `keepdim`.
    pub fn all_dims(&self, dims: impl AsDims, keepdim: bool) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.truth_reduction(Reduce::All, dims, keepdim)
    }

    /// How many elements along the named dimensions (`..`: all) are not zero.
    pub fn count_nonzero(&self, dims: impl AsDims) -> Result<Tensor> {
        let dims = dims.as_dims();
        self.reduce(Reduce::CountNonzero, &self.reduced("count_nonzero", dims)?, false, DType::I64)
    }

    /// Sum of a matrix's diagonal.
    pub fn trace(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            return Err(Error::shape(format!("trace: expected a matrix, but got tensor with dim {}", self.rank())));
        }
        self.diagonal(0, 0, 1)?.sum(..)
    }

    /// Summed down to a shape that broadcasts to this one: the reverse of `expand`.
    pub fn sum_to_size(&self, shape: &[usize]) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let lead = self.rank().checked_sub(shape.len());
        let fits = lead.is_some_and(|lead| {
            shape.iter().zip(&self.shape()[lead..]).all(|(&want, &have)| want == have || want == 1)
        });
        let Some(lead) = lead.filter(|_| fits) else {
            return Err(Error::shape(format!(
                "sum_to_size: size {shape:?} is not expandable to size {:?}",
                self.shape()
            )));
        };
        let dims: Vec<isize> = (0..self.rank())
            .filter(|&d| d < lead || shape[d - lead] == 1 && self.shape()[d] != 1)
            .map(|d| d as isize)
            .collect();
        if dims.is_empty() {
            return self.reshape(shape);
        }
        self.sum_dims(&dims, true)?.reshape(shape)
    }
}

/// For each element the product of all others it is reduced with: running products from both sides, so that no zero is
/// divided by.
fn products_of_others(x: &Tensor, mask: &[bool]) -> Result<Tensor> {
    let (reduced, rest): (Vec<isize>, Vec<isize>) = (0..x.rank() as isize).partition(|&d| mask[d as usize]);
    // The reduced dimensions side by side in front, as one.
    let order: Vec<isize> = reduced.iter().chain(&rest).copied().collect();
    let front = x.permute(&order)?;
    let count = x.reduced_count(mask);
    let mut rows: Vec<usize> = vec![count];
    rows.extend(&front.shape()[reduced.len()..]);
    let rows = front.reshape(&rows)?;
    let one = rows.narrow(0, 0, 1)?.detach().ones_like()?;
    let before = |t: &Tensor| crate::cat(&[&one, &t.narrow(0, 0, count - 1)?], 0)?.cumprod(0);
    let after = before(&rows.flip([0])?)?.flip([0])?;
    let others = before(&rows)?.mul(&after)?.reshape(front.shape())?;
    let mut inverse = vec![0isize; order.len()];
    for (to, &from) in order.iter().enumerate() {
        inverse[from as usize] = to as isize;
    }
    others.permute(&inverse)
}
