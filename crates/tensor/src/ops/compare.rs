//! Comparison, logic and choice element by element: names and arguments over rows of the op table.

use super::number::fitting;
use super::operators::{forward, forward_operand};
use super::pointwise::{pointwise, select};
use crate::Tensor;
use crate::announce::announced;
use crate::arg::{Arg, result_type};
use rushlight_core::{DType, Error, Pointwise, Result, Scalar};

macro_rules! compare {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name<'a>(&self, other: impl Into<Arg<'a>>) -> Result<Tensor> {
                pointwise(Pointwise::$op, &[Arg::Tensor(self), other.into()], &[])
            }
        )*}

        forward_operand! { $($name)* }
    };
}

compare! {
    /// Where equal.
    eq Eq;
    /// Where not equal.
    ne Ne;
    /// Where less.
    lt Lt;
    /// Where less or equal.
    le Le;
    /// Where greater.
    gt Gt;
    /// Where greater or equal.
    ge Ge;
}

macro_rules! tests {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name(&self) -> Result<Tensor> {
                pointwise(Pointwise::$op, &[Arg::Tensor(self)], &[])
            }
        )*}

        forward! { $($name();)* }
    };
}

tests! {
    /// Where not a number.
    isnan Isnan;
    /// Where infinite.
    isinf Isinf;
    /// Where neither infinite nor NaN.
    isfinite Isfinite;
    /// Where the sign bit is set.
    signbit Signbit;
}

impl Tensor {
    /// Where `|self - other| <= atol + rtol * |other|`; PyTorch's defaults are `rtol` 1e-5 and `atol` 1e-8.
    pub fn isclose(&self, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
        if self.dtype() != other.dtype() {
            return Err(Error::dtype(format!("isclose: {} did not match {}", self.dtype(), other.dtype())));
        }
        crate::autograd::no_grad(|| {
            let equal = self.eq(other)?;
            let (a, b) = if self.dtype() == DType::Bool {
                (self.to_dtype(DType::U8)?, other.to_dtype(DType::U8)?)
            } else {
                (self.clone(), other.clone())
            };
            let wide = if self.is_complex() { DType::C128 } else { DType::F64 };
            let (a, b) = (a.to_dtype(wide)?, b.to_dtype(wide)?);
            let distance = a.sub(&b)?.abs()?;
            let allowed = b.abs()?.mul(rtol)?.add(atol)?;
            let near = distance.isfinite()?.bitwise_and(&distance.le(&allowed)?)?;
            let close = equal.bitwise_or(&near)?;
            if equal_nan { close.bitwise_or(&self.isnan()?.bitwise_and(&other.isnan()?)?) } else { Ok(close) }
        })
    }

    /// Whether all elements are close; see [`Tensor::isclose`].
    pub fn allclose(&self, other: &Tensor, rtol: f64, atol: f64) -> Result<bool> {
        self.isclose(other, rtol, atol, false)?.all(..)?.item()
    }

    /// Whether both have the same shape and elements.
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        if self.shape() != other.shape() {
            return Ok(false);
        }
        crate::autograd::no_grad(|| self.eq(other)?.all(..)?.item())
    }

    fn truth(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { Ok(self.clone()) } else { self.ne(0) }
    }

    /// Where zero (or false).
    pub fn logical_not(&self) -> Result<Tensor> {
        self.eq(0)
    }

    /// A row of two truths; `bits` is that of `bool`, and of dtypes that engines do not compute in.
    fn logic(&self, other: &Tensor, row: Pointwise, bits: Pointwise) -> Result<Tensor> {
        let plain = |t: &Tensor| t.dtype() == DType::Bool || t.dtype().is_carried();
        if plain(self) || plain(other) {
            return pointwise(bits, &[Arg::Tensor(&self.truth()?), Arg::Tensor(&other.truth()?)], &[]);
        }
        pointwise(row, &[Arg::Tensor(self), Arg::Tensor(other)], &[])
    }

    /// Where both are non-zero.
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        self.logic(other, Pointwise::LogicalAnd, Pointwise::BitwiseAnd)
    }

    /// Where either is non-zero.
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        self.logic(other, Pointwise::LogicalOr, Pointwise::BitwiseOr)
    }

    /// Where exactly one is non-zero.
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        self.logic(other, Pointwise::LogicalXor, Pointwise::BitwiseXor)
    }

    /// All bits flipped; logical not for bool.
    pub fn bitwise_not(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { self.logical_not() } else { self.bitwise_xor(-1) }
    }

    /// `self` where the condition holds, else `other`. The condition may be any tensor that broadcasts; see also
    /// [`where_`].
    ///
    /// [`where_`]: crate::where_
    pub fn where_self<'a>(&self, condition: &Tensor, other: impl Into<Arg<'a>>) -> Result<Tensor> {
        choose(condition, Arg::Tensor(self), other.into())
    }

    /// `value` where the mask holds, else `self`.
    pub fn masked_fill<'a>(&self, mask: &Tensor, value: impl Into<Arg<'a>>) -> Result<Tensor> {
        let value = value.into();
        announced!("torch.masked_fill", [self, mask, value]; self.masked_fill(mask, value));
        let out = match value {
            Arg::Tensor(t) if t.rank() > 0 => {
                return Err(Error::shape(format!(
                    "masked_fill: only supports a 0-dimensional value tensor, but got a tensor with shape {:?}",
                    t.shape()
                )));
            }
            // Reading the number of another device would stall it.
            Arg::Tensor(t) if t.device().is_cpu() && !t.requires_grad() => {
                return self.masked_fill(mask, t.to_scalar()?);
            }
            Arg::Tensor(t) => select(mask, Arg::Tensor(&t.to_dtype(self.dtype())?), Arg::Tensor(self))?,
            Arg::Scalar(s) => {
                // As an element of this dtype: the choice must not promote.
                let element = match (fitting("masked_fill", s, self.dtype())?, self.dtype()) {
                    (s, DType::Bool) => Scalar::Bool(s.to_f64() != 0.0),
                    (s, dtype) if dtype.is_int() => Scalar::Int(s.to_i64()),
                    (s, _) => s,
                };
                select(mask, Arg::Scalar(element), Arg::Tensor(self))?
            }
        };
        // Row-major whatever the operands' order, as in PyTorch.
        out.to_dtype(self.dtype())?.contiguous()
    }

    /// [`Tensor::masked_fill`] in place.
    pub fn masked_fill_<'a>(&self, mask: &Tensor, value: impl Into<Arg<'a>>) -> Result<&Tensor> {
        let filled = self.masked_fill(mask, value)?;
        if filled.shape() != self.shape() {
            return Err(Error::shape(format!(
                "masked_fill_: mask {:?} is larger than the tensor {:?}",
                mask.shape(),
                self.shape()
            )));
        }
        self.copy_(&filled)
    }
}

/// `a` where the condition holds, else `b`; all broadcast. PyTorch's `torch.where`.
///
/// ```
/// # use rushlight_tensor::{Tensor, where_};
/// let x = Tensor::new([-1.0f32, 2.0])?;
/// assert_eq!(where_(&x.gt(0)?, &x, 0.0)?.to_vec::<f32>()?, [0.0, 2.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[doc(alias("where", "select"))]
pub fn where_<'a>(condition: &Tensor, a: impl Into<Arg<'a>>, b: impl Into<Arg<'a>>) -> Result<Tensor> {
    choose(condition, a.into(), b.into())
}

/// [`select`] that refuses a number outside the range of the integer dtype it is combined with.
fn choose(condition: &Tensor, a: Arg, b: Arg) -> Result<Tensor> {
    let dtype = result_type(&[a, b]);
    for arg in [a, b] {
        if let Arg::Scalar(s) = arg
            && dtype.is_int()
        {
            fitting("where", s, dtype)?;
        }
    }
    select(condition, a, b)
}

impl Tensor {
    /// The next number of the dtype after each element in the direction of `other`. Its derivative is one where it
    /// moves; the derivative by `other` is zero.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([1.0f32])?;
    /// assert_eq!(x.nextafter(&Tensor::new([2.0f32])?)?.to_vec::<f32>()?, [1.0f32.next_up()]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn nextafter(&self, other: &Tensor) -> Result<Tensor> {
        let dtype = result_type(&[Arg::Tensor(self), Arg::Tensor(other)]);
        // A row computes halves as f32: the last bit of a half is a higher bit there, and the smallest numbers of f16,
        // which are 2^-24 apart, are normal there. Infinity is the number after its largest.
        let params = match dtype {
            DType::F64 | DType::F32 => [1.0, 0.0, -1.0, f64::INFINITY],
            DType::BF16 => [65536.0, 0.0, -1.0, f64::INFINITY],
            DType::F16 => [8192.0, 2f64.powi(-24), 2f64.powi(-14), 65536.0],
            _ => return Err(Error::dtype(format!("nextafter: not implemented for {dtype}"))),
        };
        let (x, y) = (self.to_dtype(dtype)?, other.to_dtype(dtype)?);
        pointwise(Pointwise::Nextafter, &[Arg::Tensor(&x), Arg::Tensor(&y)], &params)
    }

    /// The same memory read as elements of another dtype of the same size. Not recorded.
    pub(crate) fn reinterpreted(&self, dtype: DType) -> Tensor {
        Tensor::from_parts(self.0.storage.clone(), self.layout().clone(), dtype, Default::default())
    }
}
