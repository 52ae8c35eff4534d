//! Comparisons, logical ops, selection.

use crate::rows;
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::{Arg, Tensor, where_};

macro_rules! comparison {
    ($table:ident: $($(#[doc = $doc:literal])* $name:ident $long:ident $function:ident;)*) => {
        rows! { $table: $(
            $(#[doc = $doc])*
            $name [Torch Method Inplace] { concat!(stringify!($name), "(Tensor input, Tensor|Number other)") } |input: &Tensor, other: Arg| input.$function(other);
            $(#[doc = $doc])*
            $long [Torch Method Inplace] { concat!(stringify!($long), "(Tensor input, Tensor|Number other)") } |input: &Tensor, other: Arg| input.$function(other);
        )* }
    };
}

comparison! { COMPARISONS:
    /// Whether elements are less.
    lt less lt;
    /// Whether elements are less or equal.
    le less_equal le;
    /// Whether elements are greater.
    gt greater gt;
    /// Whether elements are greater or equal.
    ge greater_equal ge;
    /// Whether elements differ.
    ne not_equal ne;
}

fn truth(input: &Tensor) -> Result<Tensor> {
    if input.dtype() == DType::Bool { Ok(input.clone()) } else { input.ne(0) }
}

fn isreal(input: &Tensor) -> Result<Tensor> {
    if input.is_complex() { input.detach().imag()?.eq(0) } else { input.detach().full_like(1)?.to_dtype(DType::Bool) }
}

fn infinite(input: &Tensor, sign: f64) -> Result<Tensor> {
    if input.dtype().is_float() { input.eq(sign * f64::INFINITY) } else { input.zeros_like()?.to_dtype(DType::Bool) }
}

fn isin(elements: &Tensor, test: &Tensor, invert: bool) -> Result<Tensor> {
    if elements.dtype() == rushlight_core::DType::Bool || test.dtype() == rushlight_core::DType::Bool {
        return Err(rushlight_core::Error::dtype("isin(): not implemented for bool"));
    }
    let found = elements.isin(test)?;
    if invert { found.logical_not() } else { Ok(found) }
}

fn one(number: rushlight_core::Scalar) -> Result<Tensor> {
    Tensor::scalar(number)
}

rows! { ROWS:
    /// Whether elements are equal.
    eq [Torch Method Inplace] "eq(Tensor input, Tensor|Number other)" |input: &Tensor, other: Arg| input.eq(other);
    /// Whether two tensors have the same size and elements.
    equal [Torch Method] "equal(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.equal(other);
    /// Whether elements are close to another tensor's.
    isclose [Torch Method] "isclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)"
        |input: &Tensor, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool| input.isclose(other, rtol, atol, equal_nan);
    /// Whether all elements are close to another tensor's.
    allclose [Torch Method] "allclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)"
        |input: &Tensor, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool|
        input.isclose(other, rtol, atol, equal_nan)?.all(..)?.item::<bool>();
    /// Whether elements are NaN.
    isnan [Torch Method] "isnan(Tensor input)" |input: &Tensor| input.isnan();
    /// Whether elements are infinite.
    isinf [Torch Method] "isinf(Tensor input)" |input: &Tensor| input.isinf();
    /// Whether elements are finite.
    isfinite [Torch Method] "isfinite(Tensor input)" |input: &Tensor| input.isfinite();
    /// Whether elements are plus infinity.
    isposinf [Torch Method] "isposinf(Tensor input)" |input: &Tensor| infinite(input, 1.0);
    /// Whether elements are minus infinity.
    isneginf [Torch Method] "isneginf(Tensor input)" |input: &Tensor| infinite(input, -1.0);
    /// Whether elements are real: their imaginary parts are zero.
    isreal [Torch Method] "isreal(Tensor input)" |input: &Tensor| isreal(input);
    /// Whether another tensor contains each element.
    isin [Torch]
        "isin(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False)"
            |elements: &Tensor, test_elements: &Tensor, _assume_unique: bool, invert: bool| isin(elements, test_elements, invert),
        "isin(Tensor elements, Number test_element, *, bool assume_unique=False, bool invert=False)"
            |elements: &Tensor, test_element: rushlight_core::Scalar, _assume_unique: bool, invert: bool| isin(elements, &one(test_element)?, invert),
        "isin(Number element, Tensor test_elements, *, bool assume_unique=False, bool invert=False)"
            |element: rushlight_core::Scalar, test_elements: &Tensor, _assume_unique: bool, invert: bool| isin(&one(element)?, test_elements, invert);
    /// Logical not.
    logical_not [Torch Method Inplace] "logical_not(Tensor input)" |input: &Tensor| input.logical_not();
    /// Logical and.
    logical_and [Torch Method Inplace] "logical_and(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.logical_and(other);
    /// Logical or.
    logical_or [Torch Method Inplace] "logical_or(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.logical_or(other);
    /// Logical exclusive or.
    logical_xor [Torch Method Inplace] "logical_xor(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.logical_xor(other);
    /// Selects from one tensor where a condition holds, from another elsewhere. With a condition alone: its indices.
    r#where [Torch]
        "where(Tensor condition, Tensor|Number input, Tensor|Number other)" |condition: &Tensor, input: Arg, other: Arg| where_(&truth(condition)?, input, other),
        "where(Tensor condition)" |condition: &Tensor| condition.nonzero_tuple();
    /// Whether the single element is not zero.
    is_nonzero [Torch Method] "is_nonzero(Tensor input)" |input: &Tensor| is_nonzero(input);
}

rows! { METHODS:
    /// Selects from this tensor where a condition holds, from another elsewhere.
    r#where [Method] "where(Tensor self, Tensor condition, Tensor|Number other)" |input: &Tensor, condition: &Tensor, other: Arg|
        where_(&truth(condition)?, input, other);
}

fn is_nonzero(input: &Tensor) -> Result<bool> {
    if input.numel() != 1 {
        return Err(Error::value(format!(
            "Boolean value of Tensor with {} is ambiguous",
            if input.numel() == 0 { "no values" } else { "more than one value" }
        )));
    }
    Ok(match input.to_scalar()? {
        Scalar::Complex(re, im) => re != 0.0 || im != 0.0,
        number => number.to_f64() != 0.0,
    })
}
