//! The layout of a tensor in its storage: shape, strides and offset, and all views.

use crate::{Error, Result};
use smallvec::{SmallVec, smallvec};

/// Sizes, strides or dimension lists; up to six without touching the heap.
pub type Dims = SmallVec<[usize; 6]>;

/// Shape, strides (in elements, never negative) and offset (in elements) of a view.
///
/// ```
/// use rushlight_core::Layout;
/// let l = Layout::contiguous(&[2, 3]).unwrap().transpose(0, 1);
/// assert_eq!(l.shape(), [3, 2]);
/// assert_eq!(l.strides(), [1, 3]);
/// assert!(!l.is_contiguous());
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    shape: Dims,
    strides: Dims,
    offset: usize,
}

impl Clone for Layout {
    /// By memory copies: the derived clone goes element by element, and layouts are cloned for every small tensor.
    #[inline]
    fn clone(&self) -> Self {
        Self { shape: Dims::from_slice(&self.shape), strides: Dims::from_slice(&self.strides), offset: self.offset }
    }
}

/// Row-major strides of a shape. Like PyTorch, a dimension of size 0 counts as 1.
#[inline]
pub fn contiguous_strides(shape: &[usize]) -> Dims {
    let mut strides = Dims::from_slice(shape);
    let mut step = 1usize;
    for i in (0..shape.len()).rev() {
        strides[i] = step;
        step = step.saturating_mul(shape[i].max(1));
    }
    strides
}

/// The shape two shapes broadcast to, by NumPy's rule.
pub fn broadcast_shapes(a: &[usize], b: &[usize]) -> Result<Dims> {
    if a == b {
        return Ok(Dims::from_slice(a));
    }
    let rank = a.len().max(b.len());
    let mut out: Dims = smallvec![0; rank];
    for i in 1..=rank {
        let x = if i <= a.len() { a[a.len() - i] } else { 1 };
        let y = if i <= b.len() { b[b.len() - i] } else { 1 };
        out[rank - i] = match (x, y) {
            _ if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => {
                return Err(Error::shape(format!(
                    "shapes {a:?} and {b:?} do not broadcast: size {x} against {y} at dimension {} from the right \
                     (sizes must be equal, or one of them 1)",
                    i
                )));
            }
        };
    }
    Ok(out)
}

/// The number of elements of a shape, or an error if it, or a product of some of the sizes, exceeds the address
/// space.
#[inline]
pub fn checked_numel(shape: &[usize]) -> Result<usize> {
    const MAX_NUMEL: usize = isize::MAX as usize / 16;
    #[cold]
    fn too_large(shape: &[usize]) -> Error {
        Error::value(format!("a tensor of shape {shape:?} has more elements than memory can address"))
    }
    // Zero sizes count as one here: strides, rows and planes are products of the other sizes.
    let (mut extent, mut empty) = (1usize, false);
    for &size in shape {
        empty |= size == 0;
        extent = extent.saturating_mul(size.max(1));
    }
    match extent {
        ..=MAX_NUMEL if empty => Ok(0),
        ..=MAX_NUMEL => Ok(extent),
        _ => Err(too_large(shape)),
    }
}

/// A dimension that may count from the end, made non-negative. A zero-dim tensor takes 0 and -1.
pub fn wrap_dim(dim: isize, rank: usize) -> Result<usize> {
    let n = rank.max(1) as isize;
    if (-n..n).contains(&dim) {
        return Ok(if dim < 0 { dim + n } else { dim } as usize);
    }
    Err(Error::index(format!("Dimension out of range (expected to be in range of [{}, {}], but got {dim})", -n, n - 1)))
}

impl Layout {
    /// Row-major from the start of the storage.
    #[inline]
    pub fn contiguous(shape: &[usize]) -> Result<Self> {
        checked_numel(shape)?;
        Ok(Self { shape: Dims::from_slice(shape), strides: contiguous_strides(shape), offset: 0 })
    }

    /// Any strides; the caller checks them against a storage with [`Layout::span`].
    pub fn strided(shape: &[usize], strides: &[usize], offset: usize) -> Result<Self> {
        if shape.len() != strides.len() {
            return Err(Error::shape(format!(
                "mismatch in length of strides and shape: size {shape:?} has {} dimensions, strides {strides:?} have {}",
                shape.len(),
                strides.len()
            )));
        }
        checked_numel(shape)?;
        let layout = Self { shape: Dims::from_slice(shape), strides: Dims::from_slice(strides), offset };
        layout.span()?;
        Ok(layout)
    }

    /// Sizes.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Strides in elements.
    #[inline]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The position of the first element, in elements.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the elements are dense and in row-major order.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let (shape, strides) = (self.shape(), self.strides());
        let mut step = 1;
        for d in (0..shape.len()).rev() {
            let size = shape[d];
            if size == 0 {
                return true;
            }
            if size != 1 {
                if strides[d] != step {
                    return false;
                }
                step *= size;
            }
        }
        true
    }

    /// Whether the elements fill a range of memory, each once, in any order of dimensions.
    pub fn is_dense(&self) -> bool {
        self.is_contiguous() || self.permute(&self.memory_order()).is_contiguous()
    }

    /// The dimensions from the largest stride to the smallest: a dense layout permuted so is row-major. Sizes of one
    /// come first.
    pub fn memory_order(&self) -> Dims {
        let mut order: Dims = (0..self.rank()).collect();
        order.sort_by_key(|&d| (self.shape[d] > 1, std::cmp::Reverse(self.strides[d])));
        order
    }

    /// Dense with dimension 1 innermost and the others in their order: PyTorch's `channels_last` and
    /// `channels_last_3d`.
    pub fn channels_last(shape: &[usize]) -> Result<Self> {
        checked_numel(shape)?;
        let mut strides = contiguous_strides(shape);
        let mut step = 1usize;
        if shape.len() > 1 {
            for d in std::iter::once(1).chain((2..shape.len()).rev()).chain(std::iter::once(0)) {
                strides[d] = step;
                step = step.saturating_mul(shape[d].max(1));
            }
        }
        Ok(Self { shape: Dims::from_slice(shape), strides, offset: 0 })
    }

    /// Whether images (`[batch, channels, height, width]`) or volumes have their channels innermost, as PyTorch's
    /// `suggest_memory_format` decides.
    pub fn suggests_channels_last(&self) -> bool {
        let order: &[usize] = match self.rank() {
            4 => &[1, 3, 2, 0],
            5 => &[1, 4, 3, 2, 0],
            _ => return false,
        };
        if self.strides[1] == 0 {
            return false;
        }
        let mut least = 0;
        for &d in order {
            let (size, stride) = (self.shape[d], self.strides[d]);
            // A batch of one with one channel matches both orders: it counts as row-major.
            if size == 0 || stride < least || (d == 0 && least == self.strides[1]) {
                return false;
            }
            least = if size > 1 { stride * size } else { stride };
        }
        true
    }

    /// The layout of a copy that keeps this one's order of dimensions (PyTorch's `preserve_format`): without gaps, from
    /// the start of a storage.
    pub fn preserved(&self) -> Self {
        if self.is_contiguous() {
            return Self { shape: self.shape.clone(), strides: contiguous_strides(&self.shape), offset: 0 };
        }
        if self.is_dense() {
            return self.clone().with_offset(0);
        }
        Self::of_pointwise(&self.shape, &[self])
    }

    /// The layout of a pointwise result of this shape: dimensions in the order of the operands' strides, the first
    /// operand that tells two dimensions apart deciding, as in PyTorch. The operands' layouts are stretched to the
    /// shape.
    pub fn of_pointwise(shape: &[usize], operands: &[&Layout]) -> Self {
        let rank = shape.len();
        // Whether `a` is outside of `b`: `None` if no operand distinguishes them.
        let outside = |a: usize, b: usize| {
            for operand in operands {
                let (x, y) = (operand.strides[a], operand.strides[b]);
                if x == 0 || y == 0 {
                    continue;
                }
                if x != y {
                    return Some(x > y);
                }
                if shape[a] > shape[b] {
                    return Some(true);
                }
            }
            None
        };
        // Innermost first, sorted by insertion: an undecided pair neither swaps nor ends the search.
        let mut order: Dims = (0..rank).rev().collect();
        for i in 1..rank {
            let mut at = i;
            for before in (0..i).rev() {
                match outside(order[before], order[at]) {
                    Some(true) => {
                        order.swap(before, at);
                        at = before;
                    }
                    Some(false) => break,
                    None => {}
                }
            }
        }
        let mut strides: Dims = smallvec![0; rank];
        let mut step = 1usize;
        for &d in &order {
            strides[d] = step;
            step = step.saturating_mul(shape[d].max(1));
        }
        Self { shape: Dims::from_slice(shape), strides, offset: 0 }
    }

    /// One past the last element touched, in elements from the start of the storage.
    pub fn span(&self) -> Result<usize> {
        if self.shape.contains(&0) {
            return Ok(self.offset);
        }
        self.shape
            .iter()
            .zip(&self.strides)
            .try_fold(self.offset, |end, (&size, &stride)| end.checked_add((size - 1).checked_mul(stride)?))
            .and_then(|last| last.checked_add(1))
            .filter(|&end| end <= isize::MAX as usize / 16)
            .ok_or_else(|| {
                Error::value(format!(
                    "strides {:?} with shape {:?} exceed the address space",
                    &self.strides[..],
                    &self.shape[..]
                ))
            })
    }

    /// Whether two different indices may name the same element (expanded or overlapping windows). May err on the side
    /// of `true`.
    pub fn overlaps(&self) -> bool {
        let mut dims: SmallVec<[(usize, usize); 6]> =
            self.strides.iter().copied().zip(self.shape.iter().copied()).filter(|&(_, size)| size > 1).collect();
        dims.sort_unstable();
        let mut reach = 0;
        for (stride, size) in dims {
            if stride <= reach {
                return true;
            }
            reach += stride * (size - 1);
        }
        false
    }

    /// Whether two views of the same memory with elements of one size surely have none in common: as a dimension
    /// divides them, such as halves of the columns, or as their ranges do.
    pub fn is_apart(&self, other: &Layout) -> bool {
        let views = [self, other];
        let mut strides: Dims =
            views.iter().flat_map(|v| (0..v.rank()).filter(|&d| v.shape[d] > 1).map(|d| v.strides[d])).collect();
        strides.sort_unstable();
        strides.dedup();
        if strides.first() == Some(&0) || strides.windows(2).any(|w| !w[1].is_multiple_of(w[0])) {
            return false;
        }
        // A place in memory is a number whose digits count steps of each stride: those of a view lie in a range.
        let range = |v: &Layout, i: usize| {
            let mut sizes = (0..v.rank()).filter(|&d| v.shape[d] > 1 && v.strides[d] == strides[i]).map(|d| v.shape[d]);
            let size = sizes.next().unwrap_or(1);
            let (start, end) = match strides.get(i + 1) {
                Some(next) => (v.offset % next / strides[i], next / strides[i]),
                None => (v.offset / strides[i], usize::MAX),
            };
            (sizes.next().is_none() && start + size <= end).then_some((start, start + size))
        };
        let mut apart = false;
        for i in 0..strides.len() {
            let (Some(a), Some(b)) = (range(self, i), range(other, i)) else { return false };
            apart |= a.1 <= b.0 || b.1 <= a.0;
        }
        apart
    }

    /// The same layout with another offset.
    pub fn with_offset(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// Dimensions in another order. `order` must be a permutation.
    pub fn permute(&self, order: &[usize]) -> Self {
        Self {
            shape: order.iter().map(|&d| self.shape[d]).collect(),
            strides: order.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        }
    }

    /// Two dimensions swapped.
    pub fn transpose(&self, a: usize, b: usize) -> Self {
        let mut out = self.clone();
        if a != b {
            out.shape.swap(a, b);
            out.strides.swap(a, b);
        }
        out
    }

    /// `len` entries of dimension `dim` from `start`, every `step`-th. The caller has checked the range.
    pub fn slice(&self, dim: usize, start: usize, len: usize, step: usize) -> Self {
        let mut out = self.clone();
        if len > 0 {
            out.offset += start * self.strides[dim];
        }
        out.shape[dim] = len;
        out.strides[dim] = self.strides[dim].saturating_mul(step);
        out
    }

    /// Dimension `dim` fixed at `index` and removed. The caller has checked the index.
    pub fn select(&self, dim: usize, index: usize) -> Self {
        let mut out = self.clone();
        out.offset += index * self.strides[dim];
        out.shape.remove(dim);
        out.strides.remove(dim);
        out
    }

    /// Inserts a dimension of size one before `dim`.
    pub fn unsqueeze(&self, dim: usize) -> Self {
        let mut out = self.clone();
        let stride = if dim < self.rank() { self.shape[dim].max(1).saturating_mul(self.strides[dim]) } else { 1 };
        out.shape.insert(dim, 1);
        out.strides.insert(dim, stride);
        out
    }

    /// Dimension `dim`, which must have size one, removed.
    pub fn squeeze(&self, dim: usize) -> Self {
        let mut out = self.clone();
        out.shape.remove(dim);
        out.strides.remove(dim);
        out
    }

    /// Sizes of one stretched, new leading dimensions added, without copying.
    pub fn expand(&self, shape: &[usize]) -> Result<Self> {
        if shape == &self.shape[..] {
            return Ok(self.clone());
        }
        let fail = || {
            Error::shape(format!(
                "the expanded size {shape:?} does not fit a tensor of shape {:?}: sizes must be equal or 1, counted from the right",
                &self.shape[..]
            ))
        };
        let lead = shape.len().checked_sub(self.rank()).ok_or_else(fail)?;
        let mut strides: Dims = smallvec![0; shape.len()];
        for i in 0..self.rank() {
            strides[lead + i] = match (self.shape[i], shape[lead + i]) {
                (have, want) if have == want => self.strides[i],
                (1, _) => 0,
                _ => return Err(fail()),
            };
        }
        // A new dimension of one entry has the stride that makes it contiguous, as in PyTorch.
        for i in (0..lead).rev().filter(|&i| shape[i] == 1) {
            strides[i] = match shape.get(i + 1) {
                Some(&next) => next.saturating_mul(strides[i + 1]),
                None => 1,
            };
        }
        checked_numel(shape)?;
        Ok(Self { shape: Dims::from_slice(shape), strides, offset: self.offset })
    }

    /// The same elements in the same order under another shape, if strides can express it.
    pub fn view(&self, shape: &[usize]) -> Option<Self> {
        let numel = self.numel();
        if checked_numel(shape).ok() != Some(numel) {
            return None;
        }
        if numel == 0 || self.is_contiguous() {
            return Some(Self {
                shape: Dims::from_slice(shape),
                strides: contiguous_strides(shape),
                offset: self.offset,
            });
        }
        // Walk both shapes from the right; each run of old dimensions that are evenly spaced must be a product of new
        // ones.
        let mut strides: Dims = smallvec![0; shape.len()];
        let mut new = shape.len();
        let mut base = *self.strides.last()?;
        let (mut run, mut filled) = (1, 1);
        for old in (0..self.rank()).rev() {
            run *= self.shape[old];
            let run_ends = old == 0 || self.shape[old - 1] != 1 && self.strides[old - 1] != run * base;
            if run_ends {
                while new > 0 && (filled < run || shape[new - 1] == 1) {
                    new -= 1;
                    strides[new] = filled * base;
                    filled *= shape[new];
                }
                if filled != run {
                    return None;
                }
                if old > 0 {
                    base = self.strides[old - 1];
                    (run, filled) = (1, 1);
                }
            }
        }
        (new == 0).then(|| Self { shape: Dims::from_slice(shape), strides, offset: self.offset })
    }

    /// The diagonal between two dimensions, as a new last dimension.
    pub fn diagonal(&self, offset: isize, a: usize, b: usize) -> Self {
        let (rows, cols) = (self.shape[a], self.shape[b]);
        let (skip_rows, skip_cols) = if offset >= 0 { (0, offset as usize) } else { (offset.unsigned_abs(), 0) };
        let len = rows.saturating_sub(skip_rows).min(cols.saturating_sub(skip_cols));
        let mut out = self.clone();
        if len > 0 {
            out.offset += skip_rows * self.strides[a] + skip_cols * self.strides[b];
        }
        let stride = self.strides[a] + self.strides[b];
        for d in [a.max(b), a.min(b)] {
            out.shape.remove(d);
            out.strides.remove(d);
        }
        out.shape.push(len);
        out.strides.push(stride);
        out
    }

    /// Windows of `size` every `step` along `dim`, as a new last dimension. The caller has checked the sizes.
    pub fn unfold(&self, dim: usize, size: usize, step: usize) -> Self {
        let mut out = self.clone();
        let (have, stride) = (self.shape.get(dim).copied().unwrap_or(1), self.strides.get(dim).copied().unwrap_or(1));
        if dim < self.rank() {
            out.shape[dim] = (have - size) / step + 1;
            out.strides[dim] = stride.saturating_mul(step);
        }
        out.shape.push(size);
        out.strides.push(stride);
        out
    }
}

/// The loop nest over several operands of one shape, with neighbouring dimensions merged wherever every operand allows
/// it. Dimensions run from outermost to innermost; there is always at least one.
#[derive(Clone, Debug)]
pub struct Nest<const N: usize> {
    /// Sizes.
    pub shape: Dims,
    /// Strides of each operand, by dimension.
    pub strides: [Dims; N],
}

impl<const N: usize> Nest<N> {
    /// Merges the dimensions of `shape` under the operands' `strides` (each as long as `shape`).
    pub fn new(shape: &[usize], strides: [&[usize]; N]) -> Self {
        let mut out = Nest { shape: Dims::new(), strides: std::array::from_fn(|_| Dims::new()) };
        for d in 0..shape.len() {
            if shape[d] == 1 {
                continue;
            }
            let merges = !out.shape.is_empty()
                && (0..N).all(|i| *out.strides[i].last().unwrap_or(&0) == strides[i][d].saturating_mul(shape[d]));
            if merges {
                if let Some(last) = out.shape.last_mut() {
                    *last *= shape[d];
                }
                for i in 0..N {
                    if let Some(last) = out.strides[i].last_mut() {
                        *last = strides[i][d];
                    }
                }
            } else {
                out.shape.push(shape[d]);
                for i in 0..N {
                    out.strides[i].push(strides[i][d]);
                }
            }
        }
        if out.shape.is_empty() {
            out.shape.push(1);
            for s in &mut out.strides {
                s.push(1);
            }
        }
        out
    }

    /// Number of positions.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Offsets of each operand at linear position `index`.
    pub fn offsets(&self, mut index: usize) -> [usize; N] {
        let mut out = [0; N];
        for d in (0..self.shape.len()).rev() {
            let i = index % self.shape[d];
            index /= self.shape[d];
            for (o, s) in out.iter_mut().zip(&self.strides) {
                *o += i * s[d];
            }
        }
        out
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
