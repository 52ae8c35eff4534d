"""Made by stubs.py from the op table."""

from typing import Any, Sequence, overload

from . import Generator, Tensor, layout, memory_format
from . import device as _device
from . import dtype as _dtype

Number = int | float | bool

def digamma(input: Tensor) -> Any:
    """Derivative of `lgamma`."""
def entr(input: Tensor) -> Any:
    """`-x * log(x)`: the entropy of each element."""
def erf(input: Tensor) -> Any:
    """Error function."""
def erfc(input: Tensor) -> Any:
    """`1 - erf(x)`."""
def erfcx(input: Tensor) -> Any:
    """`exp(x^2) erfc(x)`."""
def erfinv(input: Tensor) -> Any:
    """Inverse error function."""
def exp2(input: Tensor) -> Any:
    """Two to the power of each element."""
def expit(input: Tensor) -> Any:
    """Logistic function."""
def expm1(input: Tensor) -> Any:
    """`exp(x) - 1`, exact near zero."""
def gammaln(input: Tensor) -> Any:
    """Logarithm of the gamma function's magnitude."""
def i0(input: Tensor) -> Any:
    """Modified Bessel function of the first kind of order 0."""
def i0e(input: Tensor) -> Any:
    """The same, times `exp(-|x|)`."""
def i1(input: Tensor) -> Any:
    """Modified Bessel function of the first kind of order 1."""
def i1e(input: Tensor) -> Any:
    """The same, times `exp(-|x|)`."""
def log1p(input: Tensor) -> Any:
    """`log(1 + x)`, exact near zero."""
def log_ndtr(input: Tensor) -> Any:
    """Logarithm of the normal distribution function."""
def log_softmax(input: Tensor, dim: int, dtype: _dtype | None = None) -> Any:
    """Logarithm of `softmax`."""
def logit(input: Tensor, eps: float | None = None) -> Any:
    """Inverse of the logistic function."""
def logsumexp(input: Tensor, dim: int | Sequence[int | None], keepdim: bool = False) -> Any:
    """Logarithm of the sum of exponentials."""
def multigammaln(input: Tensor, p: int) -> Any:
    """Logarithm of the multivariate gamma function."""
def ndtr(input: Tensor) -> Any:
    """Distribution function of the normal distribution."""
def ndtri(input: Tensor) -> Any:
    """Inverse of `ndtr`."""
def polygamma(n: int, input: Tensor) -> Any:
    """Derivatives of the digamma function."""
def psi(input: Tensor) -> Any:
    """Derivative of the logarithm of the gamma function."""
def round(input: Tensor, *, decimals: int = 0) -> Any:
    """The nearest integer, ties to even, or the nearest number with `decimals` decimals."""
def sinc(input: Tensor) -> Any:
    """`sin(pi x) / (pi x)`."""
def softmax(input: Tensor, dim: int, dtype: _dtype | None = None) -> Any:
    """Exponentials that sum to one."""
@overload
def xlog1py(input: Tensor, other: Tensor | Number) -> Any:
    """`input * log1p(other)`, zero where the input is zero."""
@overload
def xlog1py(input: Number, other: Tensor) -> Any:
    """`input * log1p(other)`, zero where the input is zero."""
@overload
def xlogy(input: Tensor, other: Tensor | Number) -> Any:
    """`input * log(other)`, zero where the input is zero."""
@overload
def xlogy(self: Number, other: Tensor) -> Any:
    """`input * log(other)`, zero where the input is zero."""
