"""Made by stubs.py from the op table."""

from typing import Any, Sequence, overload

from . import Generator, Tensor, layout, memory_format
from . import device as _device
from . import dtype as _dtype

Number = int | float | bool

def cholesky(input: Tensor, upper: bool = False) -> Any:
    """Cholesky factor."""
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Any:
    """Cross product of vectors of three."""
def det(A: Tensor) -> Any:
    """Determinant."""
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Diagonals of the last two dimensions."""
def eigh(A: Tensor, UPLO: str = 'L') -> Any:
    """Eigenvalues and eigenvectors of symmetric matrices."""
def eigvalsh(A: Tensor, UPLO: str = 'L') -> Any:
    """Eigenvalues of symmetric matrices."""
def inv(A: Tensor) -> Any:
    """Inverse."""
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """Packed factors of symmetric matrices, and pivots."""
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """Packed factors of symmetric matrices, pivots and the place of the first zero block."""
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Any:
    """Solution of a system whose symmetric matrix is factored."""
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Least squares."""
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """Permutation, lower and upper triangle, `A = P L U`."""
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """Packed LU factors and pivots."""
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Packed LU factors, pivots and the place of the first zero pivot."""
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    """Solution of a system whose LU factors are known."""
def matmul(input: Tensor, other: Tensor) -> Any:
    """Matrix product, batched and broadcast."""
def matrix_exp(A: Tensor) -> Any:
    """Exponential of square matrices."""
@overload
def matrix_norm(A: Tensor, ord: str = 'fro', dim: Sequence[int] = (-2,-1), keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
    """Norm of matrices."""
@overload
def matrix_norm(A: Tensor, ord: float, dim: Sequence[int] = (-2,-1), keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
    """Norm of matrices."""
def matrix_power(input: Tensor, n: int) -> Any:
    """Power of square matrices."""
@overload
def matrix_rank(A: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False) -> Any:
    """Rank."""
@overload
def matrix_rank(A: Tensor, tol: float, hermitian: bool = False) -> Any:
    """Rank."""
def matrix_transpose(input: Tensor) -> Any:
    """The last two dimensions transposed."""
def multi_dot(tensors: Sequence[Tensor]) -> Any:
    """Product of several matrices."""
@overload
def norm(A: Tensor, ord: float | None = None, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
    """Norm of vectors or matrices."""
@overload
def norm(A: Tensor, ord: str, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
    """Norm of vectors or matrices."""
@overload
def pinv(A: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False) -> Any:
    """Pseudo-inverse."""
@overload
def pinv(A: Tensor, rcond: float, hermitian: bool = False) -> Any:
    """Pseudo-inverse."""
def qr(A: Tensor, mode: str = 'reduced') -> Any:
    """Orthogonal and triangular factors."""
def slogdet(A: Tensor) -> Any:
    """Sign and logarithm of the determinant."""
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Any:
    """Solution of a linear system."""
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """Solution of a triangular system."""
def svd(A: Tensor, full_matrices: bool = True) -> Any:
    """Singular value decomposition, `A = U diag(S) Vh`."""
def svdvals(A: Tensor) -> Any:
    """Singular values."""
def vander(x: Tensor, *, N: int | None = None) -> Any:
    """Powers of numbers as columns, the lowest first."""
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Any:
    """Products of vectors along a dimension."""
def vector_norm(x: Tensor, ord: float = 2, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
    """Norm of vectors."""
