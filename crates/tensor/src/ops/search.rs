//! Ops based on sorting: distinct values, positions in sorted rows, counts of values.

use super::operands::underivable;
use crate::Tensor;
use crate::arg::{Arg, result_type};
use crate::autograd::{no_grad, recording};
use rushlight_core::backend::{Operand, Scatter, call};
use rushlight_core::{DType, Error, Result, Scalar};

/// Distinct values of a tensor; see [`Tensor::unique_full`].
pub struct Unique {
    /// The values.
    pub values: Tensor,
    /// For each element of the tensor, in its shape, where its value is in `values`.
    pub inverse: Tensor,
    /// Number of occurrences of each value.
    pub counts: Tensor,
}

/// The runs of equal neighbours of a vector.
struct Runs {
    /// Where runs start.
    starts: Tensor,
    /// Whether each element starts a run.
    is_start: Tensor,
}

impl Runs {
    fn of(x: &Tensor) -> Result<Runs> {
        let n = x.numel();
        if n == 0 {
            let none = Tensor::zeros_with([0], (DType::I64, x.device()))?;
            return Ok(Runs { starts: none.clone(), is_start: none });
        }
        let first = Tensor::full_with([1], true, (DType::Bool, x.device()))?;
        let changes = x.narrow(0, 1, n - 1)?.ne(&x.narrow(0, 0, n - 1)?)?;
        let is_start = crate::cat(&[&first, &changes], 0)?;
        Ok(Runs { starts: is_start.nonzero()?.select(1, 0)?.contiguous()?, is_start })
    }

    /// For each element the number of its run.
    fn numbers(&self) -> Result<Tensor> {
        self.is_start.cumsum(0)?.sub(1)
    }

    fn lengths(&self, n: usize) -> Result<Tensor> {
        let end = Tensor::full_with([1], n, (DType::I64, self.starts.device()))?;
        self.starts.diff(1, 0, None, Some(&end))
    }
}

/// Longest vector whose distinct values one call finds: what GPUs sort in one block.
const SHORT: usize = 2048;

impl Tensor {
    /// The distinct values in ascending order.
    pub fn unique(&self) -> Result<Tensor> {
        no_grad(|| {
            if let Some(found) = self.unique_short()? {
                return Ok(found.values);
            }
            let sorted = self.reshape([-1isize])?.sort(0, false)?.0;
            sorted.index_select(0, &Runs::of(&sorted)?.starts)
        })
    }

    /// [`Tensor::unique_full`] of few elements, by one call and one value read from the device.
    fn unique_short(&self) -> Result<Option<Unique>> {
        let n = self.numel();
        if n == 0 || n > SHORT || self.dtype().is_carried() {
            return Ok(None);
        }
        crate::capture::refuse("unique", self.device())?;
        let flat = self.reshape([-1isize])?.contiguous()?;
        let new = |n: usize| self.uninit_like(&[n], DType::I64);
        let (values, inverse, counts, count) = (self.uninit_like(&[n], self.dtype())?, new(n)?, new(n)?, new(1)?);
        flat.run(call::Unique {
            x: flat.engine_view(),
            values: values.engine_view(),
            inverse: inverse.engine_view(),
            counts: counts.engine_view(),
            count: count.engine_view(),
        })?;
        let found = count.item::<i64>()? as usize;
        let (values, counts) = (values.narrow(0, 0, found)?, counts.narrow(0, 0, found)?);
        Ok(Some(Unique { values, inverse: inverse.reshape(self.shape())?, counts }))
    }

    /// The distinct values in ascending order, with each element's index among them and the counts.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let u = Tensor::new([3i64, 1, 3])?.unique_full()?;
    /// assert_eq!(u.values.to_vec::<i64>()?, [1, 3]);
    /// assert_eq!(u.inverse.to_vec::<i64>()?, [1, 0, 1]);
    /// assert_eq!(u.counts.to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn unique_full(&self) -> Result<Unique> {
        self.picked("unique", || {
            if let Some(found) = self.unique_short()? {
                return Ok(found);
            }
            let (sorted, order) = self.reshape([-1isize])?.sort(0, false)?;
            let runs = Runs::of(&sorted)?;
            let numbers = runs.numbers()?;
            let inverse = numbers.zeros_like()?;
            inverse.scatter_(0, &order, &numbers)?;
            Ok(Unique {
                values: sorted.index_select(0, &runs.starts)?,
                inverse: inverse.reshape(self.shape())?,
                counts: runs.lengths(self.numel())?,
            })
        })
    }

    /// The distinct slices along a dimension in lexicographic order.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([[2i64, 1], [0, 5], [2, 1]])?;
    /// assert_eq!(x.unique_dim(0)?.to_vec::<i64>()?, [0, 5, 2, 1]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn unique_dim(&self, dim: isize) -> Result<Tensor> {
        Ok(self.unique_dim_full(dim)?.values)
    }

    /// [`Tensor::unique_dim`] with each slice's index among the distinct ones and the counts.
    pub fn unique_dim_full(&self, dim: isize) -> Result<Unique> {
        self.distinct_slices(dim, true)
    }

    /// Slices along `dim` that differ from the one before, with each slice's index among them and the lengths of the
    /// runs.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let found = Tensor::new([[1i64, 1, 2, 1], [3, 3, 4, 3]])?.unique_consecutive_dim_full(1)?;
    /// assert_eq!(found.values.to_vec::<i64>()?, [1, 2, 1, 3, 4, 3]);
    /// assert_eq!(found.counts.to_vec::<i64>()?, [2, 1, 1]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn unique_consecutive_dim_full(&self, dim: isize) -> Result<Unique> {
        self.distinct_slices(dim, false)
    }

    /// Distinct slices along `dim`, among all of them in their order or among neighbours.
    fn distinct_slices(&self, dim: isize, among_all: bool) -> Result<Unique> {
        let at = self.wrap_dim("unique", dim)?;
        if self.rank() == 0 {
            return self.reshape([1])?.distinct_slices(0, among_all);
        }
        let slices = self.shape()[at];
        if self.shape().iter().enumerate().any(|(d, &size)| size == 0 && d != at) {
            return Err(Error::shape(format!(
                "unique: there are 0 sized dimensions in {:?}, and they aren't selected, so unique cannot be applied",
                self.shape()
            )));
        }
        no_grad(|| {
            let numbers =
                self.movedim([at as isize], [0])?.reshape([slices, self.numel() / slices.max(1)])?.slice_numbers()?;
            let (runs, firsts, inverse);
            if among_all {
                let (sorted, order) = numbers.sort(0, false)?;
                runs = Runs::of(&sorted)?;
                let numbers = runs.numbers()?;
                inverse = numbers.zeros_like()?;
                inverse.scatter_(0, &order, &numbers)?;
                firsts = order.index_select(0, &runs.starts)?;
            } else {
                runs = Runs::of(&numbers)?;
                (firsts, inverse) = (runs.starts.clone(), runs.numbers()?);
            }
            // The dimension is outermost in memory, as in PyTorch.
            let values = self.movedim([dim], [0])?.index_select(0, &firsts)?.movedim([0], [dim])?;
            Ok(Unique { values, inverse, counts: runs.lengths(slices)? })
        })
    }

    /// Runs `find` and records it as PyTorch does: the values require gradients, but the op has no derivative.
    fn picked(&self, name: &'static str, find: impl FnOnce() -> Result<Unique>) -> Result<Unique> {
        let mut found = no_grad(find)?;
        if self.dtype().is_differentiable() && recording(&[self]) {
            found.values = underivable(name, &[self], || Ok(found.values.clone()))?;
        }
        Ok(found)
    }

    /// A number for each row of a matrix, in the rows' lexicographic order. Neighbouring columns are joined, pair by
    /// pair, into one that counts the distinct pairs, until one column is left.
    fn slice_numbers(&self) -> Result<Tensor> {
        let mut ranks = self.unique_full()?.inverse;
        if ranks.numel() == 0 {
            return Tensor::zeros_with([self.shape()[0]], (DType::I64, self.device()));
        }
        while ranks.shape()[1] > 1 {
            let columns = ranks.shape()[1];
            // Cannot overflow: there are at most as many ranks as elements, far below the root of the largest integer.
            let base = ranks.max(..)?.add(1)?;
            let pairs = ranks.narrow(1, 0, columns / 2 * 2)?.reshape([self.shape()[0], columns / 2, 2])?;
            let joined = pairs.select(2, 0)?.mul(&base)?.add(&pairs.select(2, 1)?)?;
            let joined = match columns % 2 {
                0 => joined,
                _ => crate::cat(&[&joined, &ranks.narrow(1, -1, 1)?.mul(&base)?], 1)?,
            };
            ranks = joined.unique_full()?.inverse;
        }
        ranks.select(1, 0)?.contiguous()
    }

    /// The first of each run of equal neighbours in the flattened tensor.
    pub fn unique_consecutive(&self) -> Result<Tensor> {
        underivable("unique_consecutive", &[self], || {
            let flat = self.reshape([-1isize])?;
            flat.index_select(0, &Runs::of(&flat)?.starts)
        })
    }

    /// [`Tensor::unique_consecutive`] with the run of each element and the runs' lengths.
    pub fn unique_consecutive_full(&self) -> Result<Unique> {
        self.picked("unique_consecutive", || {
            let flat = self.reshape([-1isize])?;
            let runs = Runs::of(&flat)?;
            Ok(Unique {
                values: flat.index_select(0, &runs.starts)?,
                inverse: runs.numbers()?.reshape(self.shape())?,
                counts: runs.lengths(self.numel())?,
            })
        })
    }

    /// Where values would go in this tensor's sorted rows (its last dimension) to keep them sorted: before equal ones,
    /// or after them with `right`. One row serves any values; several need values with the same leading sizes.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let edges = Tensor::new([1.0f32, 3.0, 5.0])?;
    /// assert_eq!(edges.searchsorted(&Tensor::new([3.0f32, 6.0])?, false)?.to_vec::<i64>()?, [1, 3]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn searchsorted<'a>(&self, values: impl Into<Arg<'a>>, right: bool) -> Result<Tensor> {
        let name = "searchsorted";
        let values = match values.into() {
            Arg::Tensor(t) => t.clone(),
            Arg::Scalar(s) => Tensor::full_with([], s, (s.dtype(), self.device()))?,
        };
        self.same_device(&values, name)?;
        if self.dtype() != values.dtype() {
            let common = self.dtype().promote(values.dtype());
            return no_grad(|| self.to_dtype(common)?.searchsorted(&values.to_dtype(common)?, right));
        }
        let (rank, one_row) = (self.rank(), self.rank() == 1);
        let same_rows = rank > 1 && values.rank() == rank && values.shape()[..rank - 1] == self.shape()[..rank - 1];
        if !one_row && !same_rows {
            return Err(Error::shape(format!(
                "{name}: boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor \
                 must match, but got boundaries tensor {:?} and input value tensor {:?}",
                self.shape(),
                values.shape()
            )));
        }
        let out = values.uninit_like(values.shape(), DType::I64)?;
        if out.numel() > 0 {
            let rows: usize = self.shape()[..rank - 1].iter().product();
            let (sorted, flat) = no_grad(|| -> Result<_> {
                if one_row {
                    return Ok((self.clone(), values.reshape([-1isize])?));
                }
                Ok((self.reshape([rows, self.shape()[rank - 1]])?, values.reshape([rows, values.shape()[rank - 1]])?))
            })?;
            let layout = rushlight_core::Layout::contiguous(flat.shape())?;
            sorted.run(call::SearchSorted {
                sorted: sorted.engine_view(),
                values: flat.engine_view(),
                right,
                out: out.view_as(&layout),
            })?;
        }
        Ok(out)
    }

    /// [`Tensor::searchsorted`] in rows that `sorter`, as [`Tensor::argsort`] gives it, would put in order.
    pub fn searchsorted_with_sorter<'a>(
        &self,
        values: impl Into<Arg<'a>>,
        right: bool,
        sorter: &Tensor,
    ) -> Result<Tensor> {
        if sorter.shape() != self.shape() || sorter.dtype() != DType::I64 {
            return Err(Error::shape(format!(
                "searchsorted: sorter must be an int64 tensor of the boundaries' shape {:?}, but got {} {:?}",
                self.shape(),
                sorter.dtype(),
                sorter.shape()
            )));
        }
        let sorted = no_grad(|| self.gather(-1, sorter)).map_err(|e| e.within("searchsorted: sorter"))?;
        sorted.searchsorted(values, right)
    }

    /// The bucket each element falls into, given ascending boundaries: [`Tensor::searchsorted`] the other way round.
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Result<Tensor> {
        if boundaries.rank() != 1 {
            return Err(Error::shape(format!(
                "bucketize: boundaries tensor must be 1 dimension, but got dim({})",
                boundaries.rank()
            )));
        }
        boundaries.searchsorted(self, right).map_err(|e| e.within("bucketize"))
    }

    /// Counts of 0, 1, 2, … in a vector of integers, or the sums of their weights; at least
    /// `minlength` entries.
    pub fn bincount(&self, weights: Option<&Tensor>, minlength: usize) -> Result<Tensor> {
        if self.dtype().is_float() || self.dtype() == DType::Bool {
            return Err(Error::dtype(format!("bincount: not implemented for {}", self.dtype())));
        }
        let negative = || Error::value("bincount only supports 1-d non-negative integral inputs");
        if self.rank() != 1 || !self.dtype().is_int() {
            return Err(negative());
        }
        if let Some(w) = weights
            && w.shape() != self.shape()
        {
            return Err(Error::shape(format!(
                "bincount: weights should be 1-d and have the same length as input: {:?} against {:?}",
                w.shape(),
                self.shape()
            )));
        }
        let index = self.to_index("bincount")?.contiguous()?;
        let mut length = minlength;
        if index.numel() > 0 {
            let range = index.uninit_like(&[2], DType::I64)?;
            range.run(call::IntRange { x: index.engine_view(), out: range.engine_view() })?;
            let (least, most) = match range.to_vec::<i64>()?[..] {
                [least, most] => (least, most),
                _ => (0, 0),
            };
            if least < 0 {
                return Err(negative());
            }
            length = length.max((most as usize).saturating_add(1));
        }
        let values = match weights {
            None => {
                let out = Tensor::zeros_with([length], (DType::I64, self.device()))?;
                if index.numel() > 0 {
                    let one = Operand::Scalar(Scalar::Int(1));
                    out.run(call::Scatter {
                        op: Scatter::Add,
                        dim: 0,
                        index: index.engine_view(),
                        src: one,
                        out: out.engine_view(),
                    })?;
                }
                return Ok(out);
            }
            Some(w) if w.dtype() == DType::F32 => w.detach(),
            Some(w) => w.detach().to_dtype(DType::F64)?,
        };
        let out = Tensor::zeros_with([length], (values.dtype(), self.device()))?;
        if index.numel() > 0 {
            let values = Operand::Tensor(values.engine_view());
            out.run(call::Scatter {
                op: Scatter::Add,
                dim: 0,
                index: index.engine_view(),
                src: values,
                out: out.engine_view(),
            })?;
        }
        Ok(out)
    }

    /// How many elements fall into each of `bins` bins of equal width from `min` to `max`; if those are equal, from the
    /// smallest element to the largest. Elements outside and NaN do not count.
    pub fn histc(&self, bins: usize, min: f64, max: f64) -> Result<Tensor> {
        self.needs_float("histc")?;
        if bins == 0 {
            return Err(Error::value("histc: bins must be > 0"));
        }
        no_grad(|| {
            let (mut low, mut high) = (min, max);
            if low == high && self.numel() > 0 {
                (low, high) = (self.min(..)?.item()?, self.max(..)?.item()?);
            }
            if low == high {
                (low, high) = (low - 1.0, high + 1.0);
            }
            if !low.is_finite() || !high.is_finite() {
                return Err(Error::value(format!("histc: range of [{low}, {high}] is not finite")));
            }
            if low > high {
                return Err(Error::value("histc: max must be larger than min"));
            }
            let counts = Tensor::zeros_with([bins], (DType::I64, self.device()))?;
            let x = if self.dtype() == DType::F64 { self.detach() } else { self.detach().to_dtype(DType::F32)? };
            x.run(call::Histogram { low, high, x: x.engine_view(), out: counts.engine_view() })?;
            counts.to_dtype(self.dtype())
        })
    }

    /// For each element, whether `test` contains it.
    pub fn isin(&self, test: &Tensor) -> Result<Tensor> {
        self.same_device(test, "isin")?;
        if test.numel() == 0 {
            return Tensor::full_with(self.shape(), false, (DType::Bool, self.device()));
        }
        no_grad(|| {
            let dtype = result_type(&[Arg::Tensor(self), Arg::Tensor(test)]);
            let x = self.to_dtype(dtype)?;
            let sorted = test.to_dtype(dtype)?.reshape([-1isize])?.sort(0, false)?.0;
            let place = sorted.searchsorted(&x, false)?.clamp_max(sorted.numel() - 1)?;
            sorted.take(&place)?.eq(&x)
        })
    }
}
