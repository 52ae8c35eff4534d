//! Elements repeated, moved, mirrored and masked by position.

use crate::Tensor;
use crate::announce::announced;
use crate::arg::Arg;
use crate::autograd::{record, recording};
use crate::ops::join::copy_parts;
use crate::ops::sizes::AsDims;
use crate::program::recipe;
use rushlight_core::backend::call;
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Error, Result, Scalar};

fn too_large(name: &str) -> Error {
    Error::value(format!("{name}: the result has more elements than memory can address"))
}

impl Tensor {
    /// This tensor, `repeats` times along each dimension; more repeats than dimensions add leading ones.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::new([1i64, 2])?.repeat(&[2, 2])?.to_vec::<i64>()?, [1, 2, 1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias = "tile")]
    pub fn repeat(&self, repeats: &[usize]) -> Result<Tensor> {
        let Some(lead) = repeats.len().checked_sub(self.rank()) else {
            return Err(Error::shape(format!(
                "repeat: number of dimensions of repeat dims {repeats:?} can not be smaller than number of dimensions of tensor {:?}",
                self.shape()
            )));
        };
        announced!("Tensor.repeat", [self, repeats]; self.repeat(repeats));
        // Each dimension gets one before it that is stretched to the repeats; the two are merged at the end.
        let (mut split, mut stretched, mut merged) = (Dims::new(), Dims::new(), Dims::new());
        for (i, &times) in repeats.iter().enumerate() {
            let size = if i < lead { 1 } else { self.shape()[i - lead] };
            split.extend_from_slice(&[1, size]);
            stretched.extend_from_slice(&[times, size]);
            merged.push(times.checked_mul(size).ok_or_else(|| too_large("repeat"))?);
        }
        let out = self.reshape(&split)?.expand(&stretched)?.reshape(&merged)?;
        if out.shares_storage(self) { out.contiguous_copy() } else { out.contiguous() }
    }

    /// [`Tensor::repeat`] that takes missing repeats as one.
    pub fn tile(&self, repeats: &[usize]) -> Result<Tensor> {
        let mut all = Dims::from_slice(repeats);
        while all.len() < self.rank() {
            all.insert(0, 1);
        }
        self.repeat(&all)
    }

    /// Each entry along `dim` (of the flattened tensor without one) repeated in place: a number of times, or each as
    /// often as a tensor of integers says.
    pub fn repeat_interleave<'a>(&self, repeats: impl Into<Arg<'a>>, dim: Option<isize>) -> Result<Tensor> {
        let name = "repeat_interleave";
        let Some(dim) = dim else {
            return self.reshape([-1isize])?.repeat_interleave(repeats, Some(0));
        };
        let x = self.at_least_1d()?;
        let dim = x.wrap_dim(name, dim)?;
        let size = x.shape()[dim];
        let negative = || Error::value(format!("{name}: repeats can not be negative"));
        let not_whole = || Error::dtype(format!("{name}: not implemented for floats: repeats has to be integers"));
        match repeats.into() {
            Arg::Scalar(Scalar::Float(_)) => Err(not_whole()),
            Arg::Scalar(times) => {
                let times = usize::try_from(times.to_i64()).map_err(|_| negative())?;
                let (mut stretched, mut merged) = (Dims::from_slice(x.shape()), Dims::from_slice(x.shape()));
                stretched.insert(dim + 1, times);
                merged[dim] = size.checked_mul(times).ok_or_else(|| too_large(name))?;
                let out = x.unsqueeze(dim as isize + 1)?.expand(&stretched)?.reshape(&merged)?;
                if out.shares_storage(self) { out.contiguous_copy() } else { Ok(out) }
            }
            Arg::Tensor(times) => {
                if !times.dtype().is_int() {
                    return Err(not_whole());
                }
                if times.rank() > 1 || times.numel() != 1 && times.numel() != size {
                    return Err(Error::shape(format!(
                        "{name}: repeats must have one element, or one per entry of dimension {dim} ({size}), got shape {:?}",
                        times.shape()
                    )));
                }
                if times.numel() == 1 {
                    return x.repeat_interleave(times.item::<i64>()?, Some(dim as isize));
                }
                if size > 0 && times.min(..)?.item::<i64>()? < 0 {
                    return Err(negative());
                }
                let ends = times.cumsum(0)?;
                let total = if size == 0 { 0 } else { ends.select(0, -1)?.item::<i64>()? };
                let places = Tensor::arange_with(0, total, 1, (DType::I64, x.device()))?;
                x.index_select(dim as isize, &ends.searchsorted(&places, true)?)
            }
        }
    }

    /// Entries moved `shifts` places along each of the dimensions, around the end; the flattened tensor's without
    /// dimensions.
    pub fn roll(&self, shifts: impl AsDims, dims: impl AsDims) -> Result<Tensor> {
        let (shifts, dims) = (shifts.as_dims(), dims.as_dims());
        if dims.is_empty() && shifts.len() == 1 {
            return self.reshape([-1isize])?.roll(shifts, [0])?.reshape(self.shape());
        }
        if shifts.len() != dims.len() || shifts.is_empty() {
            return Err(Error::value(format!(
                "roll: shifts and dimensions must align: shifts {shifts:?}, dims {dims:?}"
            )));
        }
        if self.numel() == 0 {
            return self.copy();
        }
        if self.rank() == 0 {
            return Err(Error::index("roll: a zero-dim tensor has no dimensions to roll"));
        }
        announced!("torch.roll", [self, shifts, dims]; self.roll(shifts, dims));
        let mut out = self.clone();
        for (&shift, &dim) in shifts.iter().zip(dims) {
            out = out.roll_one(shift, self.wrap_dim("roll", dim)?)?;
        }
        Ok(out)
    }

    fn roll_one(&self, shift: isize, dim: usize) -> Result<Tensor> {
        let size = self.shape()[dim];
        if self.numel() == 0 {
            return self.copy();
        }
        let shift = shift.rem_euclid(size as isize) as usize;
        let out = self.uninit_like(self.shape(), self.dtype())?;
        let (here, there) = (self.layout(), out.layout());
        let parts: SmallVec<[_; 2]> = [(0, shift, size - shift), (size - shift, 0, shift)]
            .into_iter()
            .filter(|(.., length)| *length > 0)
            .map(|(from, to, length)| (self, here.slice(dim, from, length, 1), there.slice(dim, to, length, 1)))
            .collect();
        copy_parts(&out, &parts)?;
        if recording(&[self]) {
            record("roll", &[self], &out, move |_, dy| Ok(smallvec![Some(dy.roll_one(-(shift as isize), dim)?)]))?;
        }
        Ok(out)
    }

    /// Entries in reverse order along the dimensions.
    pub fn flip(&self, dims: impl AsDims) -> Result<Tensor> {
        let dims = dims.as_dims();
        let mut dims = self.wrap_dims("flip", dims)?;
        if dims.is_empty() || self.numel() == 0 || self.rank() == 0 {
            return self.copy();
        }
        dims.sort_unstable();
        let list: Vec<isize> = dims.iter().map(|&d| d as isize).collect();
        announced!("torch.flip", [self, &list[..]]; self.flip(&list));
        let out = self.uninit_preserving(self.dtype())?;
        // With the dimensions in memory order the result is contiguous.
        let order = self.preserved_order();
        let flipped: call::Marks = order.iter().map(|d| dims.contains(d)).collect();
        let (from, to) = (self.layout().permute(&order), out.layout().permute(&order));
        self.run(call::Flip { flipped, x: self.view_as(&from), out: out.view_as(&to) })?;
        if recording(&[self]) {
            let dims: Vec<isize> = dims.iter().map(|&d| d as isize).collect();
            record("flip", &[self], &out, move |_, dy| Ok(smallvec![Some(dy.flip(&dims)?)]))?;
        }
        Ok(out)
    }

    /// Columns in reverse order.
    pub fn fliplr(&self) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::shape("fliplr: input must be >= 2-d"));
        }
        self.flip([1])
    }

    /// Rows in reverse order.
    pub fn flipud(&self) -> Result<Tensor> {
        if self.rank() < 1 {
            return Err(Error::shape("flipud: input must be >= 1-d"));
        }
        self.flip([0])
    }

    /// Turned `k` times by 90 degrees in the plane of two dimensions, from the first towards the second.
    pub fn rot90(&self, k: isize, dims: [isize; 2]) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::shape(format!("rot90: expected total dims >= 2, but got total dims = {}", self.rank())));
        }
        let plane = self.wrap_dims("rot90", &dims)?;
        let (a, b) = (plane[0] as isize, plane[1] as isize);
        match k.rem_euclid(4) {
            1 => self.flip([b])?.transpose(a, b),
            2 => self.flip([a, b]),
            3 => self.flip([a])?.transpose(a, b),
            _ => self.copy(),
        }
    }

    /// Another name of [`Tensor::transpose`].
    pub fn swapaxes(&self, a: isize, b: isize) -> Result<Tensor> {
        self.transpose(a, b)
    }

    /// Another name of [`Tensor::transpose`].
    pub fn swapdims(&self, a: isize, b: isize) -> Result<Tensor> {
        self.transpose(a, b)
    }

    /// The elements of the last two dimensions on one side of a diagonal, zeros elsewhere.
    fn triangle(&self, name: &'static str, diagonal: i64, lower: bool) -> Result<Tensor> {
        let Some(split) = self.rank().checked_sub(2) else {
            return Err(Error::shape(format!("{name}: input tensor must have at least 2 dimensions")));
        };
        let (rows, columns) = (self.shape()[split], self.shape()[split + 1]);
        // Beyond the corners every diagonal is the same.
        announced!(format!("torch.{name}"), [self, diagonal]; self.triangle(name, diagonal, lower));
        let diagonal = diagonal.clamp(-(rows as i64) - 1, columns as i64 + 1);
        let out = recipe(name, &[diagonal], [self], |[x]| {
            // Numbers of 32 bits are half of what the comparison reads.
            let small = rows.saturating_add(columns) < i32::MAX as usize;
            let options = (if small { DType::I32 } else { DType::I64 }, x.device());
            let limit = Tensor::arange_with(diagonal, diagonal + rows as i64, 1, options)?.unsqueeze(1)?;
            let column = Tensor::arange_with(0, columns, 1, options)?;
            let keep = if lower { column.le(&limit)? } else { column.ge(&limit)? };
            let zero = match x.dtype() {
                DType::Bool => Scalar::Bool(false),
                d if d.is_float() => Scalar::Float(0.0),
                _ => Scalar::Int(0),
            };
            crate::where_(&keep, x, zero)?.contiguous()
        })?;
        if recording(&[self]) {
            record(name, &[self], &out, move |_, dy| Ok(smallvec![Some(dy.triangle(name, diagonal, lower)?)]))?;
        }
        Ok(out)
    }

    /// The lower triangle of the last two dimensions, up to `diagonal` above the main one; zeros elsewhere.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::ones([2, 2])?.tril(0)?.to_vec::<f32>()?, [1.0, 0.0, 1.0, 1.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("tril", diagonal, true)
    }

    /// The upper triangle of the last two dimensions, from `diagonal` above the main one; zeros elsewhere.
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("triu", diagonal, false)
    }

    /// A vector as the diagonal `offset` above the main one of a square matrix, or that diagonal of a matrix.
    pub fn diag(&self, offset: isize) -> Result<Tensor> {
        match self.rank() {
            1 => self.diag_embed(offset, 0, 1),
            2 => self.diagonal(offset, 0, 1)?.copy(),
            n => Err(Error::shape(format!("diag: supports 1D or 2D tensors, got {n}D"))),
        }
    }

    /// The last dimension as diagonals, `offset` above the main one, of square matrices in dimensions `dim1` and `dim2`
    /// of the result.
    pub fn diag_embed(&self, offset: isize, dim1: isize, dim2: isize) -> Result<Tensor> {
        let Some(&n) = self.shape().last() else {
            return Err(Error::index("diag_embed: expected at least one dimension"));
        };
        let rank = self.rank() + 1;
        let (a, b) = (rushlight_core::layout::wrap_dim(dim1, rank)?, rushlight_core::layout::wrap_dim(dim2, rank)?);
        if a == b {
            return Err(Error::value(format!("diag_embed: diagonal dimensions cannot be identical {dim1}, {dim2}")));
        }
        let size = n.checked_add(offset.unsigned_abs()).ok_or_else(|| too_large("diag_embed"))?;
        let mut shape = Dims::from_slice(&self.shape()[..rank - 2]);
        shape.insert(a.min(b), size);
        shape.insert(a.max(b), size);
        let out = Tensor::zeros_with(&shape, (self.dtype(), self.device()))?;
        if self.numel() > 0 {
            out.run(call::Copy { src: self.engine_view(), out: out.view_as(&out.layout().diagonal(offset, a, b)) })?;
        }
        if recording(&[self]) {
            record("diag_embed", &[self], &out, move |_, dy| {
                Ok(smallvec![Some(dy.diagonal(offset, a as isize, b as isize)?)])
            })?;
        }
        Ok(out)
    }

    /// The vector product along `dim`, which has size 3; other sizes broadcast. PyTorch's `linalg.cross`.
    pub fn cross(&self, other: &Tensor, dim: isize) -> Result<Tensor> {
        if self.rank() != other.rank() || self.rank() == 0 {
            return Err(Error::shape(format!(
                "cross: inputs must have the same number of dimensions: {:?} and {:?}",
                self.shape(),
                other.shape()
            )));
        }
        let d = self.wrap_dim("cross", dim)?;
        if self.shape()[d] != 3 || other.shape()[d] != 3 {
            return Err(Error::shape(format!(
                "cross: inputs dimension {dim} must have length 3, got {} and {}",
                self.shape()[d],
                other.shape()[d]
            )));
        }
        // Component i is a[i + 1] b[i + 2] - a[i + 2] b[i + 1].
        let next = |t: &Tensor, by: isize| t.roll([-by], [dim]);
        next(self, 1)?.mul(&next(other, 2)?)?.sub(&next(self, 2)?.mul(&next(other, 1)?)?)
    }
}

/// Row and column numbers, `[2, count]`, of the matrix positions that `keep` accepts, in row-major order.
fn positions(rows: usize, columns: usize, keep: impl Fn(i64, i64) -> bool) -> Result<Tensor> {
    let mut places = [Vec::new(), Vec::new()];
    for i in 0..rows as i64 {
        for j in 0..columns as i64 {
            if keep(i, j) {
                places[0].push(i);
                places[1].push(j);
            }
        }
    }
    Tensor::new(&places[..])
}

/// Positions of a `rows` by `columns` matrix's lower triangle, up to `offset` above the main diagonal: row numbers,
/// then columns.
pub fn tril_indices(rows: usize, columns: usize, offset: i64) -> Result<Tensor> {
    positions(rows, columns, |i, j| j.saturating_sub(i) <= offset)
}

/// Positions of a `rows` by `columns` matrix's upper triangle, from `offset` above the main diagonal: row numbers, then
/// columns.
pub fn triu_indices(rows: usize, columns: usize, offset: i64) -> Result<Tensor> {
    positions(rows, columns, |i, j| j.saturating_sub(i) >= offset)
}
