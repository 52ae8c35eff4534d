//! Arguments that list dimensions, and arguments with one number per spatial dimension.

use crate::Tensor;
use rushlight_core::smallvec::{Array, SmallVec};
use rushlight_core::{Error, Result};
use std::ops::RangeFull;

/// One dimension or several: `1`, `-1`, `[0, 2]`, a slice, a vector, or `..` for all. Negative ones count from the end.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::Tensor;
/// let x = Tensor::ones([2, 3, 4])?;
/// assert_eq!(x.sum(1)?.shape(), [2, 4]);
/// assert_eq!(x.sum(..)?.dim(), 0);
/// assert_eq!(x.mean_dims([0, -1], true)?.shape(), [1, 3, 1]);
/// assert_eq!(x.permute([2, 0, 1])?.shape(), [4, 2, 3]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name dimensions",
    note = "dimensions are `isize`s: `1`, `-1`, `[0, 2]`, a slice, a vector, or `..` for all"
)]
pub trait AsDims {
    /// The dimensions as given; none for `..`, which reductions take as all.
    fn as_dims(&self) -> &[isize];

    /// Whether this is `..`, for calls to which no dimension means none.
    fn is_all(&self) -> bool {
        false
    }
}

impl AsDims for RangeFull {
    fn as_dims(&self) -> &[isize] {
        &[]
    }

    fn is_all(&self) -> bool {
        true
    }
}

impl AsDims for isize {
    fn as_dims(&self) -> &[isize] {
        std::slice::from_ref(self)
    }
}

impl AsDims for [isize] {
    fn as_dims(&self) -> &[isize] {
        self
    }
}

impl<const N: usize> AsDims for [isize; N] {
    fn as_dims(&self) -> &[isize] {
        self
    }
}

impl AsDims for Vec<isize> {
    fn as_dims(&self) -> &[isize] {
        self
    }
}

impl<A: Array<Item = isize>> AsDims for SmallVec<A> {
    fn as_dims(&self) -> &[isize] {
        self
    }
}

impl<D: AsDims + ?Sized> AsDims for &D {
    fn as_dims(&self) -> &[isize] {
        (**self).as_dims()
    }

    fn is_all(&self) -> bool {
        (**self).is_all()
    }
}

/// A dimension to select along, which gives values and indices, or `..` for the whole tensor, which gives one value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dimension",
    note = "a dimension is an `isize` such as `1` or `-1`, or `..` for the whole tensor"
)]
pub trait Along {
    /// One tensor, or values and indices.
    type Output;

    /// Calls the one of two functions that serves this argument.
    fn either(
        self,
        whole: impl FnOnce() -> Result<Tensor>,
        along: impl FnOnce(isize) -> Result<(Tensor, Tensor)>,
    ) -> Result<Self::Output>;
}

impl Along for RangeFull {
    type Output = Tensor;

    fn either(
        self,
        whole: impl FnOnce() -> Result<Tensor>,
        _: impl FnOnce(isize) -> Result<(Tensor, Tensor)>,
    ) -> Result<Tensor> {
        whole()
    }
}

impl Along for isize {
    type Output = (Tensor, Tensor);

    fn either(
        self,
        _: impl FnOnce() -> Result<Tensor>,
        along: impl FnOnce(isize) -> Result<(Tensor, Tensor)>,
    ) -> Result<(Tensor, Tensor)> {
        along(self)
    }
}

/// A number for every spatial dimension, or one for each of up to three.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::Sizes;
/// assert_eq!(Sizes::from(2), Sizes::from([2]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    values: [usize; 3],
    /// How many were given; more than three cannot fit any op and are an error there.
    given: usize,
}

impl From<usize> for Sizes {
    fn from(value: usize) -> Self {
        Sizes::from([value])
    }
}

impl<const N: usize> From<[usize; N]> for Sizes {
    fn from(values: [usize; N]) -> Self {
        Sizes::from(&values[..])
    }
}

impl From<&[usize]> for Sizes {
    fn from(given: &[usize]) -> Self {
        let mut values = [0; 3];
        for (slot, &v) in values.iter_mut().zip(given) {
            *slot = v;
        }
        Self { values, given: given.len() }
    }
}

impl Sizes {
    /// The numbers given, one or one per dimension.
    pub fn as_slice(&self) -> &[usize] {
        &self.values[..self.given.min(3)]
    }

    /// One number for each of `D` (at most three) dimensions; `call` and `what` name them in the error.
    pub fn per_dim<const D: usize>(self, call: &str, what: &str) -> Result<[usize; D]> {
        const { assert!(D <= 3, "there are at most three spatial dimensions") };
        let spread = self.spread(call, what, D, 0)?;
        Ok(std::array::from_fn(|i| spread[3 - D + i]))
    }

    /// One number per dimension, the last `N` of three; the leading ones are `unused`.
    pub(crate) fn spread(self, op: &str, what: &str, dims: usize, unused: usize) -> Result<[usize; 3]> {
        let mut out = [unused; 3];
        for (i, slot) in out[3 - dims..].iter_mut().enumerate() {
            *slot = match self.given {
                1 => self.values[0],
                n if n == dims => self.values[i],
                n => {
                    return Err(Error::value(format!(
                        "{op}: {what} must be a single integer or {dims} integers, one per spatial dimension, but {n} were given"
                    )));
                }
            };
        }
        Ok(out)
    }

    /// [`Sizes::spread`] for numbers that must not be zero.
    pub(crate) fn spread_positive(self, op: &str, what: &str, dims: usize) -> Result<[usize; 3]> {
        let out = self.spread(op, what, dims, 1)?;
        if out.contains(&0) {
            return Err(Error::value(format!("{op}: non-positive {what} is not supported")));
        }
        if out.iter().any(|&size| size > i32::MAX as usize) {
            return Err(Error::value(format!("{op}: {what} must not be larger than {}", i32::MAX)));
        }
        Ok(out)
    }
}
