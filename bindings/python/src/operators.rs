//! Python's operators on tensors. They bypass the op table: `a + b` is the most frequent call of programs.

use crate::convert::scalar;
use crate::error::{to_py, type_error};
use crate::overrides;
use crate::profile::operator_span;
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use rushlight_core::{Result, Scalar};
use rushlight_tensor::{Arg, Tensor};

/// The right operand.
enum Other {
    Tensor(Tensor),
    Number(Scalar),
}

impl Other {
    #[inline]
    fn arg(&self) -> Arg<'_> {
        match self {
            Other::Tensor(t) => Arg::Tensor(t),
            Other::Number(s) => Arg::Scalar(*s),
        }
    }

    fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Other::Tensor(t) => Some(t),
            Other::Number(_) => None,
        }
    }

    /// NumPy's arrays and other objects handle the operation themselves: `None` lets Python call them.
    #[inline]
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Option<Other>> {
        match as_tensor(object) {
            Some(t) => Ok(Some(Other::Tensor(t.get().tensor()))),
            None => Ok(scalar(object)?.map(Other::Number)),
        }
    }

    /// As a tensor, for ops that exist only for tensors.
    fn tensor(&self) -> Result<Tensor> {
        match self {
            Other::Tensor(t) => Ok(t.clone()),
            Other::Number(s) => Tensor::scalar(*s),
        }
    }
}

/// The right operand of an in-place operator. Python tries others' methods where it is none: PyO3 answers
/// `NotImplemented` for arguments that cannot be read.
struct Operand<'py>(Bound<'py, PyAny>);

impl<'a, 'py> FromPyObject<'a, 'py> for Operand<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let object = object.to_owned();
        // An error of a number, such as one that is too large, is told by the operator.
        let is_operand =
            !matches!(Other::read(&object), Ok(None)) || overrides::overridden(&object) || overrides::watched();
        if is_operand { Ok(Self(object)) } else { Err(type_error("no operand")) }
    }
}

/// Elements from which the GIL is released.
const LARGE: usize = 8192;

#[inline]
fn large(a: &Tensor, b: Option<&Other>) -> bool {
    a.numel() >= LARGE || matches!(b, Some(Other::Tensor(b)) if b.numel() >= LARGE)
}

#[inline]
fn binary<'py>(
    name: &str,
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
    op: impl Fn(&Tensor, &Other) -> Result<Tensor> + Send + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    if let Some(answer) = overrides::method(name, slf, &[other])? {
        return Ok(answer);
    }
    let Some(other) = Other::read(other)? else {
        return Ok(py.NotImplemented().into_bound(py));
    };
    let a = slf.get().tensor();
    let _span = operator_span(py, name, &[Some(&a), other.as_tensor()]);
    let out = if large(&a, Some(&other)) { py.detach(|| op(&a, &other)) } else { op(&a, &other) };
    Ok(wrap(py, out.map_err(to_py)?)?.into_any())
}

#[inline]
fn inplace<'py>(
    name: &str,
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
    op: impl Fn(&Tensor, &Other) -> Result<()> + Send + Sync,
) -> PyResult<()> {
    let py = slf.py();
    // The slot keeps the left operand, whatever the result is.
    if overrides::method(name, slf, &[other])?.is_some() {
        return Ok(());
    }
    let Some(other) = Other::read(other)? else {
        return Err(crate::error::type_error(format!(
            "unsupported operand type(s): 'Tensor' and '{}'",
            other.get_type().name()?
        )));
    };
    let a = slf.get().tensor();
    // PyTorch refuses a leaf before it looks at the operands.
    a.check_leaf_change(name).map_err(to_py)?;
    let _span = operator_span(py, name, &[Some(&a), other.as_tensor()]);
    if large(&a, Some(&other)) { py.detach(|| op(&a, &other)) } else { op(&a, &other) }.map_err(to_py)
}

fn unary<'py>(
    name: &str,
    slf: &Bound<'py, PyTensor>,
    op: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    if let Some(answer) = overrides::method(name, slf, &[])? {
        return Ok(answer);
    }
    let a = slf.get().tensor();
    let _span = operator_span(py, name, &[Some(&a)]);
    let out = if large(&a, None) { py.detach(|| op(&a)) } else { op(&a) };
    Ok(wrap(py, out.map_err(to_py)?)?.into_any())
}

macro_rules! operators {
    ($($name:ident $reflected:ident $in_place:ident: $op:expr, $rop:expr, $iop:expr;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                fn $name<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                    binary(stringify!($name), slf, other, $op)
                }

                fn $reflected<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                    binary(stringify!($reflected), slf, other, $rop)
                }

                fn $in_place<'py>(slf: &Bound<'py, Self>, other: Operand<'py>) -> PyResult<()> {
                    inplace(stringify!($in_place), slf, &other.0, $iop)
                }
            )*
        }
    };
}

/// The operands of a reflected operator are never both tensors, except with subclasses.
fn reflect(
    b: &Other,
    number: impl Fn(Scalar) -> Result<Tensor>,
    tensor: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    match b {
        Other::Number(s) => number(*s),
        Other::Tensor(b) => tensor(b),
    }
}

operators! {
    __add__ __radd__ __iadd__: |a, b| a.add(b.arg()), |a, b| a.add(b.arg()), |a, b| a.add_(b.arg()).map(drop);
    __sub__ __rsub__ __isub__: |a, b| a.sub(b.arg()), |a, b| reflect(b, |s| a.rsub(s), |b| b.sub(a)), |a, b| a.sub_(b.arg()).map(drop);
    __mul__ __rmul__ __imul__: |a, b| a.mul(b.arg()), |a, b| a.mul(b.arg()), |a, b| a.mul_(b.arg()).map(drop);
    __truediv__ __rtruediv__ __itruediv__: |a, b| a.div(b.arg()), |a, b| reflect(b, |s| a.rdiv(s), |b| b.div(a)),
        |a, b| a.div_(b.arg()).map(drop);
    __floordiv__ __rfloordiv__ __ifloordiv__: |a, b| a.floor_divide(b.arg()), |a, b| b.tensor()?.floor_divide(a),
        |a, b| a.floor_divide_(b.arg()).map(drop);
    __mod__ __rmod__ __imod__: |a, b| a.remainder(b.arg()), |a, b| reflect(b, |s| a.rremainder(s), |b| b.remainder(a)),
        |a, b| a.remainder_(b.arg()).map(drop);
    __and__ __rand__ __iand__: |a, b| a.bitwise_and(b.arg()), |a, b| a.bitwise_and(b.arg()), |a, b| a.bitwise_and_(b.arg()).map(drop);
    __or__ __ror__ __ior__: |a, b| a.bitwise_or(b.arg()), |a, b| a.bitwise_or(b.arg()), |a, b| a.bitwise_or_(b.arg()).map(drop);
    __xor__ __rxor__ __ixor__: |a, b| a.bitwise_xor(b.arg()), |a, b| a.bitwise_xor(b.arg()), |a, b| a.bitwise_xor_(b.arg()).map(drop);
    __lshift__ __rlshift__ __ilshift__: |a, b| a.bitwise_left_shift(b.arg()), |a, b| b.tensor()?.bitwise_left_shift(a),
        |a, b| a.bitwise_left_shift_(b.arg()).map(drop);
    __rshift__ __rrshift__ __irshift__: |a, b| a.bitwise_right_shift(b.arg()), |a, b| b.tensor()?.bitwise_right_shift(a),
        |a, b| a.bitwise_right_shift_(b.arg()).map(drop);
    __matmul__ __rmatmul__ __imatmul__: |a, b| a.matmul(&b.tensor()?), |a, b| b.tensor()?.matmul(a),
        |a, b| a.copy_(&a.matmul(&b.tensor()?)?).map(drop);
}

#[pymethods]
impl PyTensor {
    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        no_modulo(modulo)?;
        binary("__pow__", slf, other, |a, b| a.pow(b.arg()))
    }

    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        no_modulo(modulo)?;
        binary("__rpow__", slf, other, |a, b| reflect(b, |s| a.rpow(s), |b| b.pow(a)))
    }

    fn __ipow__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>, modulo: &Bound<'py, PyAny>) -> PyResult<()> {
        no_modulo(modulo)?;
        inplace("__ipow__", slf, other, |a, b| a.pow_(b.arg()).map(drop))
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        unary("__neg__", slf, Tensor::neg)
    }

    fn __pos__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyTensor> {
        slf.clone()
    }

    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        unary("__abs__", slf, Tensor::abs)
    }

    fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().with(|t| t.dtype().is_float()) {
            return Err(type_error("~ (operator.invert) is only implemented on integer and Boolean-type tensors"));
        }
        unary("__invert__", slf, Tensor::bitwise_not)
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let name = match op {
            CompareOp::Lt => "__lt__",
            CompareOp::Le => "__le__",
            CompareOp::Eq => "__eq__",
            CompareOp::Ne => "__ne__",
            CompareOp::Gt => "__gt__",
            CompareOp::Ge => "__ge__",
        };
        // Of the comparisons PyTorch has this one with NumPy's arrays, which leave it to the tensor.
        let converted = match (op, as_tensor(other)) {
            (CompareOp::Eq, None) if other.get_type().name()? == "ndarray" => {
                Some(slf.py().import("rushlight._C")?.getattr("as_tensor")?.call1((other,))?)
            }
            _ => None,
        };
        let other = converted.as_ref().unwrap_or(other);
        binary(name, slf, other, move |a, b| match op {
            CompareOp::Lt => a.lt(b.arg()),
            CompareOp::Le => a.le(b.arg()),
            CompareOp::Eq => a.eq(b.arg()),
            CompareOp::Ne => a.ne(b.arg()),
            CompareOp::Gt => a.gt(b.arg()),
            CompareOp::Ge => a.ge(b.arg()),
        })
    }
}

fn no_modulo(modulo: &Bound<'_, PyAny>) -> PyResult<()> {
    match modulo.is_none() {
        true => Ok(()),
        false => Err(crate::error::type_error("pow() of tensors takes no modulo")),
    }
}
