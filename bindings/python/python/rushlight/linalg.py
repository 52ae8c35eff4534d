"""``torch.linalg``."""

import functools
import inspect
import math
import re

from . import _C
from ._C import LinAlgError  # noqa: F401
from ._checks import written as _written

from ._complex_names import LINALG as _COMPLEX

globals().update({name: f for name, f in vars(_C._linalg).items() if not name.startswith("__")})
globals().update(_COMPLEX)

#: Signatures of functions that choose by the dtype, as PyTorch documents them.
_SIGNATURES = {
    "cholesky": "(A, *, upper=False, out=None)", "matrix_rank": "(A, *, atol=None, rtol=None, hermitian=False, out=None)",
    "pinv": "(A, *, atol=None, rtol=None, hermitian=False, out=None)", "qr": "(A, mode='reduced', *, out=None)",
    "svd": "(A, full_matrices=True, *, driver=None, out=None)",
}
for _name, _text in _SIGNATURES.items():
    globals()[_name].__signature__ = inspect.signature(eval(f"lambda {_text[1:-1]}: None"))

def _checked(function, name, fields, shape):
    """The result of a factorisation and 0, or NaN and the number of the pivot at which it fails."""
    from .return_types import of

    def attempt(A, *args, check_errors=False, **kwargs):
        info = _C._torch.zeros(A.shape[:-2], dtype=_C.int32, device=A.device)
        try:
            return of(name, fields)((function(A, *args, **kwargs), info))
        except LinAlgError as error:
            if check_errors:
                raise
            if A.dim() > 2 and A.numel() and not any(isinstance(a, _C.Tensor) for a in args):
                # Only some of the matrices fail.
                parts = [attempt(one, *args, **kwargs) for one in A.reshape(-1, *A.shape[-2:])]
                stacked = [_C._torch.stack([part[i] for part in parts]) for i in (0, 1)]
                return of(name, fields)((stacked[0].reshape(A.shape), stacked[1].reshape(info.shape)))
            return of(name, fields)((_C._torch.full(list(shape(A, *args)), float("nan"), dtype=A.dtype, device=A.device), info + _pivot_of(error)))

    attempt.__name__ = attempt.__qualname__ = name
    attempt.__doc__ = f"``{name[:-3]}`` that reports failure in ``info`` instead of raising."
    return attempt


def _pivot_of(error):
    """The pivot that an error names."""
    found = re.search(r"(?:minor of order|diagonal element) (\d+)", str(error))
    return int(found[1]) if found else 1


inv_ex = _checked(_C._linalg.inv, "inv_ex", "inverse info", lambda A: A.shape)
cholesky_ex = _checked(_COMPLEX["cholesky"], "cholesky_ex", "L info", lambda A, *upper: A.shape)
solve_ex = _checked(_C._linalg.solve, "solve_ex", "result info", lambda A, B: B.shape)


def _with_out(function):
    """Lets a function write its results into ``out``: a tensor, or a tuple of as many."""

    @functools.wraps(function)
    def call(*args, out=None, **kwargs):
        made = function(*args, **kwargs)
        if out is None:
            return made
        single = isinstance(made, _C.Tensor)
        for value, target in zip((made,) if single else made, (out,) if single else out):
            if target.dtype != value.dtype:
                raise RuntimeError(f"Expected out tensor to have dtype {value.dtype}, but got {target.dtype} instead")
            if target.device != value.device:
                raise RuntimeError(f"Expected all tensors to be on the same device, but found {target.device} and {value.device}")
            target.resize_(value.shape).copy_(value)
        return out if single else type(made)(tuple(out))

    return call


@_with_out
def cond(A, p=None):
    """The condition number of matrices, by singular values or by a norm."""
    if A.dim() >= 2 and A.numel() == 0 and (not isinstance(p, str) or A.shape[-1] == A.shape[-2]):
        return A.new_zeros(A.shape[:-2])
    if p is None or p in (2, -2):
        values = _COMPLEX["svdvals"](A)
        large, small = values.amax(-1), values.amin(-1)
        return small / large if p == -2 else large / small
    inverse, info = inv_ex(A)
    found = _COMPLEX["matrix_norm"](A, p) * _COMPLEX["matrix_norm"](inverse, p)
    # A matrix without an inverse has an infinite condition number.
    return found.masked_fill(info != 0, float("inf"))


@_with_out
def polar(A):
    """The polar decomposition: A as orthonormal columns times a positive-semidefinite matrix, by singular values."""
    from .return_types import of

    if A.shape[-2] < A.shape[-1]:
        raise RuntimeError(f"linalg.polar: expected at least as many rows as columns, got shape {tuple(A.shape)}")
    U, S, Vh = _COMPLEX["svd"](A, full_matrices=False)
    return of("polar", "U H")((U @ Vh, (Vh.mH * S.unsqueeze(-2)) @ Vh))


def matrix_sqrth(A):
    """The square root of symmetric positive-definite matrices, of which the lower triangle is read."""
    values, vectors = _COMPLEX["eigh"](A)
    return (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mH


@_with_out
def householder_product(A, tau):
    """The first columns of a product of Householder reflections.

    Vector i is column i of A below its diagonal, with a one on it; ``tau[i]`` is its factor.
    """
    rows, columns, count = A.shape[-2], A.shape[-1], tau.shape[-1]
    if columns > rows or count > columns:
        given = f"{count} reflections, {columns} columns and {rows} rows"
        raise RuntimeError(f"linalg.householder_product: expected reflections <= columns <= rows, got {given}")
    vectors = A.tril(-1) + _C._torch.eye(rows, columns, dtype=A.dtype, device=A.device)
    out = _C._torch.eye(rows, columns, dtype=A.dtype, device=A.device).expand(A.shape)
    for i in reversed(range(count)):
        v = vectors[..., i : i + 1]
        out = out - tau[..., i, None, None] * v @ (v.mH @ out)
    if not count:
        # Zeros of the input's history.
        out = out + vectors[..., :0] @ vectors.new_zeros(0, columns)
    # LAPACK's order.
    return out.mT.contiguous().mT


@_with_out
def tensorinv(A, ind=2):
    """The inverse of ``tensordot`` with A over its last dimensions."""
    front, back = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    return _C._linalg.inv(A.reshape(math.prod(front), math.prod(back))).reshape(back + front)


@_with_out
def tensorsolve(A, B, dims=None):
    """X such that ``tensordot(A, X, X.dim())`` is B."""
    if dims is not None:
        A = A.permute([d for d in range(A.dim()) if d not in dims] + list(dims))
    shape = tuple(A.shape[B.dim():])
    return _C._linalg.solve(A.reshape(B.numel(), math.prod(shape)), B.reshape(-1)).reshape(shape)


def eig(A, *, out=None):
    """Eigenvalues and eigenvectors of square matrices; both are complex."""
    from . import _complex_linalg

    made = _complex_linalg.eig(A)
    if out is None:
        return made
    for target, value in zip(out, made):
        _written(value, target)
    return type(made)(tuple(out))


def eigvals(A, *, out=None):
    """Eigenvalues of square matrices, which are complex."""
    from . import _complex_linalg

    made = _complex_linalg.eigvals(A)
    return _written(made, out)


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
