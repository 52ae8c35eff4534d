//! Rows of the op table on complex operands.

use super::functions;
use super::products::combined;
use crate::Tensor;
use crate::arg::{Arg, result_type};
use crate::autograd::{no_grad, recording};
use rushlight_core::backend::Complex;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Error, Pointwise, Result, Scalar};

/// Whether an operand is complex.
#[inline]
pub(crate) fn involved(args: &[Arg]) -> bool {
    args.iter().any(|a| match a {
        Arg::Tensor(t) => t.is_complex(),
        Arg::Scalar(s) => matches!(s, Scalar::Complex(..)),
    })
}

pub(super) fn refusal(name: &str, dtype: DType) -> Error {
    Error::dtype(format!("{name}: not implemented for {dtype}"))
}

/// A row with complex operands.
pub(crate) fn row(op: Pointwise, args: &[Arg], params: &[f64]) -> Result<Tensor> {
    super::super::carried::check_promotion(args)?;
    let common = result_type(args);
    if common == DType::C32 {
        let wide: SmallVec<[Tensor; 3]> = args
            .iter()
            .filter_map(|a| a.tensor())
            .map(|t| match t.dtype() {
                DType::F16 => t.to_dtype(DType::F32),
                _ if t.is_complex() => t.to_dtype(DType::C64),
                _ => Ok(t.clone()),
            })
            .collect::<Result<_>>()?;
        let mut next = wide.iter();
        let wide: SmallVec<[Arg; 3]> =
            args.iter().map(|a| if a.tensor().is_some() { next.next().map_or(*a, Arg::Tensor) } else { *a }).collect();
        let out = row(op, &wide, params)?;
        return match out.dtype() {
            DType::C64 => out.to_dtype(DType::C32),
            DType::F32 => out.to_dtype(DType::F16),
            _ => Ok(out),
        };
    }
    let device = args.iter().find_map(|a| a.tensor()).map(Tensor::device).unwrap_or_default();
    // Products and quotients with real numbers need no complex arithmetic.
    if let (Pointwise::Mul | Pointwise::Div, &[a, b]) = (op, args) {
        let is_real = |x: Arg| match x {
            Arg::Tensor(t) => !t.is_complex() && !t.dtype().is_carried(),
            Arg::Scalar(s) => !matches!(s, Scalar::Complex(..)),
        };
        match (a, b) {
            (Arg::Tensor(z), factor) if z.is_complex() && z.dtype() == common && is_real(factor) => {
                return by_real(op, z, factor);
            }
            (factor, Arg::Tensor(z)) if op == Pointwise::Mul && z.dtype() == common && is_real(factor) => {
                return by_real(op, z, factor);
            }
            _ => {}
        }
    }
    let tensors: SmallVec<[Tensor; 3]> = args
        .iter()
        .map(|a| match a {
            Arg::Tensor(t) => t.to_dtype(common),
            Arg::Scalar(s) => Tensor::full_with([0usize; 0], *s, (common, device)),
        })
        .collect::<Result<_>>()?;
    let by_parts = |op: fn(&Tensor, &Tensor) -> Result<Tensor>, a: &Tensor, b: &Tensor| {
        op(&a.view_as_real()?, &b.view_as_real()?)?.view_as_complex()
    };
    use Pointwise::*;
    match (op, &tensors[..]) {
        (Add, [a, b]) => by_parts(|a, b| a.add(b), a, b),
        (Sub, [a, b]) => by_parts(|a, b| a.sub(b), a, b),
        (Mul, [a, b]) => combined("mul", Complex::Mul, a, b),
        (Div, [a, b]) => combined("div", Complex::Div, a, b),
        (Pow, [a, b]) => match args[1] {
            Arg::Scalar(s) => functions::pow_number(a, b, s),
            Arg::Tensor(_) => functions::pow(a, b),
        },
        (Eq, [a, b]) => no_grad(|| a.view_as_real()?.eq(&b.view_as_real()?)?.all(-1)),
        (Ne, [a, b]) => no_grad(|| a.view_as_real()?.ne(&b.view_as_real()?)?.any(-1)),
        (Isnan, [x]) => no_grad(|| x.view_as_real()?.isnan()?.any(-1)),
        (Isinf, [x]) => no_grad(|| x.view_as_real()?.isinf()?.any(-1)),
        (Isfinite, [x]) => no_grad(|| x.view_as_real()?.isfinite()?.all(-1)),
        (Neg, [x]) => x.view_as_real()?.neg()?.view_as_complex(),
        (Addcmul, [a, b, c]) => a.add(&b.mul(c)?.mul(params.first().copied().unwrap_or(1.0))?),
        (Addcdiv, [a, b, c]) => a.add(&b.div(c)?.mul(params.first().copied().unwrap_or(1.0))?),
        (Lerp, [a, b, weight]) => a.add(&b.sub(a)?.mul(weight)?),
        (NanToNum, [x]) => {
            let [nan, high, low] = [0, 1, 2].map(|i| params.get(i).copied());
            x.view_as_real()?.nan_to_num(nan, high, low)?.view_as_complex()
        }
        (Xlogy, [a, b]) => a.mul(&b.log()?),
        (Logaddexp, [a, b]) => {
            let first = no_grad(|| a.real()?.ge(&b.real()?))?;
            let (larger, smaller) = (crate::where_(&first, a, b)?, crate::where_(&first, b, a)?);
            smaller.sub(&larger)?.exp()?.log1p()?.add(&larger)
        }
        (op, [x]) => functions::unary(op, x),
        _ => Err(refusal(op.name(), common)),
    }
}

/// A complex tensor times or divided by real numbers.
fn by_real(op: Pointwise, z: &Tensor, factor: Arg) -> Result<Tensor> {
    let parts = z.view_as_real()?;
    let out = match (op, factor) {
        (Pointwise::Mul, Arg::Scalar(s)) => parts.mul(s)?,
        (_, Arg::Scalar(s)) => parts.div(s)?,
        (_, Arg::Tensor(t)) => {
            let t = t.to_dtype(parts.dtype())?.unsqueeze(-1)?;
            if op == Pointwise::Mul { parts.mul(&t)? } else { parts.div(&t)? }
        }
    };
    if out.strides().last() == Some(&1) { out.view_as_complex() } else { out.contiguous()?.view_as_complex() }
}

/// A row over the elements of `x`, its first operand, where an operand is complex.
pub(crate) fn row_inplace(op: Pointwise, x: &Tensor, others: &[Arg], params: &[f64]) -> Result<()> {
    let name = op.name();
    let inputs: SmallVec<[&Tensor; 3]> = [x].into_iter().chain(others.iter().filter_map(|a| a.tensor())).collect();
    if op == Pointwise::Abs {
        return Err(Error::dtype("abs_: In-place abs is not supported for complex tensors; use abs"));
    }
    x.check_inplace(name, &inputs)?;
    x.check_overlap(name, &inputs)?;
    // The recorded op reads the old value, which the change must not reach.
    let before = if recording(&inputs) { x.copy()? } else { x.clone() };
    let args: SmallVec<[Arg; 3]> = [Arg::Tensor(&before)].into_iter().chain(others.iter().copied()).collect();
    let out = row(op, &args, params)?;
    if out.dtype().category() > x.dtype().category() {
        return Err(Error::dtype(format!(
            "{name}_: result type {} can't be cast to the tensor's own type {}; use {name} without the underscore",
            out.dtype(),
            x.dtype()
        )));
    }
    if out.shape() != x.shape() {
        return Err(Error::shape(format!(
            "{name}_: output with shape {:?} doesn't match the broadcast shape {:?}; an in-place op cannot grow its tensor",
            x.shape(),
            out.shape()
        )));
    }
    x.copy_(&out).map(drop)
}
