//! Rules of the carried dtypes: `uint16` to `uint64`, and 8-bit floats.
//!
//! Engines move and convert their elements (`rushlight_engines::carried`) and compute nothing with them. The few ops
//! that PyTorch has for them run here: on the bits as signed integers where the sign does not matter, else converted.
//! The rest is an error.

use super::complex;
use super::number::fitting;
use super::pointwise::{pointwise, pointwise_inplace};
use crate::Tensor;
use crate::arg::{Arg, result_type};
use rushlight_core::backend::{Reduce, call};
use rushlight_core::float8::{self, carried_bits};
use rushlight_core::rows::Class;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Error, Pointwise, Result, Scalar};

/// Operands, converted.
type Converted = SmallVec<[Tensor; 3]>;

/// Whether a tensor among the operands has a carried dtype, or a number is beyond the range of `i64`.
#[inline]
pub(crate) fn involved(args: &[Arg]) -> bool {
    args.iter().any(|a| match a {
        Arg::Tensor(t) => t.dtype().is_carried(),
        Arg::Scalar(s) => matches!(s, Scalar::Unsigned(_) | Scalar::Complex(..)),
    })
}

/// An error unless tensors of these dtypes combine.
pub(crate) fn check_promotion(args: &[Arg]) -> Result<()> {
    let mut dtypes = args.iter().filter_map(|a| a.tensor()).map(Tensor::dtype);
    let Some(first) = dtypes.next() else { return Ok(()) };
    dtypes.try_fold(first, |a, b| if a.promotes(b) { Ok(a.promote(b)) } else { Err(unpromoted(a, b)) }).map(drop)
}

/// The error for dtypes that do not combine, in PyTorch's words.
///
/// ```
/// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::unpromoted; }
/// use rushlight::DType;
/// assert!(!DType::U16.promotes(DType::I32));
/// let error = rushlight::unpromoted(DType::U16, DType::I32);
/// assert!(error.to_string().contains("uint16 and int32"));
/// ```
pub fn unpromoted(a: DType, b: DType) -> Error {
    let group = if a.is_float8() || b.is_float8() { "Float8 Types is" } else { "uint16, uint32, uint64 types is" };
    Error::dtype(format!(
        "Promotion for {group} not supported, attempted to promote {a} and {b}; convert one with to_dtype"
    ))
}

#[cold]
fn refusal(name: &str, dtype: DType) -> Error {
    Error::dtype(format!("{name}: not implemented for {dtype}; convert the tensor with to_dtype first"))
}

/// A number among operands of a dtype, as an element of it.
fn element(value: Scalar, dtype: DType) -> Scalar {
    let bits = carried_bits(value, dtype);
    match dtype {
        _ if dtype.is_float8() => Scalar::Float(f64::from(float8::decode(dtype, bits as u8))),
        DType::U16 => Scalar::Int(i64::from(bits as i16)),
        DType::U32 => Scalar::Int(i64::from(bits as i32)),
        _ => Scalar::Int(bits),
    }
}

/// The operands as `tensor` and `number` convert them.
fn with_converted<R>(
    args: &[Arg],
    tensor: impl Fn(&Tensor) -> Result<Tensor>,
    number: impl Fn(Scalar) -> Scalar,
    run: impl FnOnce(&[Arg]) -> Result<R>,
) -> Result<R> {
    let converted = args.iter().filter_map(|a| a.tensor()).map(tensor).collect::<Result<Converted>>()?;
    let mut next = converted.iter();
    let converted: SmallVec<[Arg; 3]> = args
        .iter()
        .map(|a| match a {
            Arg::Scalar(s) => Arg::Scalar(number(*s)),
            given => next.next().map_or(*given, Arg::Tensor),
        })
        .collect();
    run(&converted)
}

/// The sign bit of the integers that carry an unsigned dtype.
fn sign_bit(dtype: DType) -> i64 {
    match dtype {
        DType::U16 => i64::from(i16::MIN),
        DType::U32 => i64::from(i32::MIN),
        _ => i64::MIN,
    }
}

impl Tensor {
    /// The same memory as the integers that carry this dtype. Not recorded.
    fn bits(&self) -> Tensor {
        self.reinterpreted(self.dtype().carrier())
    }

    /// Signed integers in the order of these unsigned ones: the bits with the sign bit changed.
    fn ordered_bits(&self) -> Result<Tensor> {
        self.bits().bitwise_xor(sign_bit(self.dtype()))
    }

    /// The unsigned integers that [`Tensor::ordered_bits`] made signed ones of.
    fn unordered_bits(&self, dtype: DType) -> Result<Tensor> {
        Ok(self.bitwise_xor(sign_bit(dtype))?.reinterpreted(dtype))
    }

    /// [`Tensor::sort`] of a carried dtype.
    pub(crate) fn sort_carried(&self, dim: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        if self.dtype().is_float() {
            return Err(refusal("sort", self.dtype()));
        }
        let (values, indices) = self.ordered_bits()?.sort(dim, descending)?;
        Ok((values.unordered_bits(self.dtype())?, indices))
    }

    /// A reduction of a carried dtype, with the reduced dimensions kept at size one.
    pub(crate) fn reduce_carried(&self, op: Reduce, mask: &[bool], dtype: DType) -> Result<Tensor> {
        match op {
            Reduce::Any | Reduce::All | Reduce::CountNonzero if self.is_complex() => {
                self.detach().ne(0)?.reduce_keep(op, mask, dtype)
            }
            Reduce::Sum | Reduce::Mean if self.is_complex() => {
                let out = self.uninit_like(&self.kept_shape(mask), dtype)?;
                if out.numel() > 0 {
                    let reduced = call::Marks::from_slice(mask);
                    self.run(call::Reduce { op, x: self.engine_view(), reduced, out: out.engine_view() })?;
                }
                Ok(out)
            }
            Reduce::Prod if self.is_complex() => self.complex_prod(mask),
            Reduce::Any | Reduce::All if self.dtype().is_float() => {
                self.detach().to_dtype(DType::F32)?.reduce_keep(op, mask, dtype)
            }
            Reduce::Any | Reduce::All => self.bits().reduce_keep(op, mask, dtype),
            Reduce::Sum | Reduce::Prod if dtype == DType::I64 => {
                self.to_dtype(DType::I64)?.reduce_keep(op, mask, dtype)
            }
            // The engine of the carried dtype names the op in its refusal.
            _ => {
                self.run(call::Reduce {
                    op,
                    x: self.engine_view(),
                    reduced: call::Marks::from_slice(mask),
                    out: self.engine_view(),
                })?;
                Err(refusal("reduction", self.dtype()))
            }
        }
    }
}

/// A row with operands of carried dtypes.
pub(crate) fn row(op: Pointwise, args: &[Arg], params: &[f64]) -> Result<Tensor> {
    if complex::involved(args) {
        return complex::row(op, args, params);
    }
    check_promotion(args)?;
    let common = result_type(args);
    let to = |dtype: DType| move |t: &Tensor| t.to_dtype(dtype);
    if let Some(beyond) = args.iter().find_map(|a| match a {
        Arg::Scalar(s @ Scalar::Unsigned(_)) => Some(*s),
        _ => None,
    }) {
        fitting(op.name(), beyond, common)?;
    }
    if !common.is_carried() {
        let number = |s| if matches!(s, Scalar::Unsigned(_)) { Scalar::Float(s.to_f64()) } else { s };
        return with_converted(args, to(common), number, |args| pointwise(op, args, params));
    }
    if common.is_float8() {
        let tensors = args.iter().all(|a| a.tensor().is_some());
        let number = |s| element(s, common);
        return match op {
            Pointwise::Mul if tensors => {
                with_converted(args, to(DType::F32), number, |args| pointwise(op, args, params))?.to_dtype(common)
            }
            Pointwise::Abs if common != DType::F8E8M0FNU => {
                with_converted(args, to(DType::F32), number, |args| pointwise(op, args, params))?.to_dtype(common)
            }
            Pointwise::Eq | Pointwise::Ne | Pointwise::Isnan | Pointwise::Isinf | Pointwise::Isfinite => {
                with_converted(args, to(DType::F32), number, |args| pointwise(op, args, params))
            }
            _ => Err(refusal(op.name(), common)),
        };
    }
    use Pointwise::*;
    match op {
        Mul | BitwiseAnd | BitwiseOr | BitwiseXor | Eq | Ne => {
            let out =
                with_converted(args, |t| Ok(t.bits()), |s| element(s, common), |args| pointwise(op, args, params))?;
            Ok(if out.dtype() == DType::Bool { out } else { out.reinterpreted(common) })
        }
        Maximum | Minimum | Fmax | Fmin | Clamp | ClampMin | ClampMax => {
            let number = |s| Scalar::Int(element(s, common).to_i64() ^ sign_bit(common));
            with_converted(args, Tensor::ordered_bits, number, |args| pointwise(op, args, params))?
                .unordered_bits(common)
        }
        Relu | Floor | Ceil | Round | Trunc => match args {
            [Arg::Tensor(x), ..] => x.copy(),
            _ => Err(refusal(op.name(), common)),
        },
        _ if matches!(op.class(), Class::Real | Class::Test) => {
            with_converted(args, to(DType::F32), |s| s, |args| pointwise(op, args, params))
        }
        _ => Err(refusal(op.name(), common)),
    }
}

/// A row over the elements of `x`, its first operand, where an operand's dtype is carried.
pub(crate) fn row_inplace(op: Pointwise, x: &Tensor, others: &[Arg], params: &[f64]) -> Result<()> {
    let mut args: SmallVec<[Arg; 3]> = others.iter().copied().collect();
    args.insert(0, Arg::Tensor(x));
    if complex::involved(&args) {
        return complex::row_inplace(op, x, others, params);
    }
    check_promotion(&args)?;
    if !x.dtype().is_carried() {
        // A float and unsigned integers.
        let dtype = result_type(&args);
        for arg in others {
            if let Arg::Scalar(s @ Scalar::Unsigned(_)) = arg {
                fitting(op.name(), *s, dtype)?;
            }
        }
        return with_converted(
            others,
            |t| t.to_dtype(if t.dtype().is_carried() { dtype } else { t.dtype() }),
            |s| if matches!(s, Scalar::Unsigned(_)) { Scalar::Float(s.to_f64()) } else { s },
            |others| pointwise_inplace(op, x, others, params),
        );
    }
    let out = row(op, &args, params)?;
    if out.dtype().category() > x.dtype().category() {
        return Err(Error::dtype(format!(
            "{name}_: result type {} can't be cast to the tensor's own type {}; use {name} without the underscore",
            out.dtype(),
            x.dtype(),
            name = op.name()
        )));
    }
    if out.shape() != x.shape() {
        return Err(Error::shape(format!(
            "{}_: output with shape {:?} doesn't match the broadcast shape {:?}; an in-place op cannot grow its tensor",
            op.name(),
            x.shape(),
            out.shape()
        )));
    }
    x.copy_(&out).map(drop)
}

/// The two sides of a choice where one has a carried dtype, brought to the dtype they combine in.
pub(crate) fn with_one_dtype(sides: [Arg; 2], run: impl FnOnce([Arg; 2]) -> Result<Tensor>) -> Result<Tensor> {
    check_promotion(&sides)?;
    let dtype = result_type(&sides);
    with_converted(
        &sides,
        |t| t.to_dtype(dtype),
        |s| s,
        |sides| match sides {
            [a, b] => run([*a, *b]),
            _ => Err(refusal("where", dtype)),
        },
    )
}
