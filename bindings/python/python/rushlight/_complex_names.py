"""Functions of matrices that the compiled part has for real numbers: complex ones go to ``_complex_linalg``."""

import functools

from . import _C

Tensor = _C.Tensor


def aware(row, other, at=0):
    """A row for real matrices, and the function ``other`` of ``_complex_linalg`` if argument ``at`` is complex."""

    @functools.wraps(row)
    def call(*args, **kwargs):
        first = args[at] if len(args) > at else next(iter(kwargs.values()), None)
        if not (isinstance(first, Tensor) and first.dtype.is_complex):
            return row(*args, **kwargs)
        from . import _complex_linalg

        out = kwargs.pop("out", None)
        found = (getattr(_complex_linalg, other) if isinstance(other, str) else other)(*args, **kwargs)
        if out is None:
            return found
        if isinstance(found, Tensor):
            return out.resize_(found.shape).copy_(found)
        for target, value in zip(out, found):
            target.resize_(value.shape).copy_(value)
        return type(found)(tuple(out))

    # Functions that overrides find are those of the table.
    del call.__wrapped__
    return call


def _linalg_of():
    from . import _complex_linalg

    return _complex_linalg


def _svd(input, some=True, compute_uv=True):
    from .return_types import of

    u, s, vh = _linalg_of().svd(input, not some)
    v = vh.transpose(-2, -1).conj()
    if not compute_uv:
        u, v = input.new_zeros(input.shape[-2], input.shape[-2]), input.new_zeros(input.shape[-1], input.shape[-1])
    return of("svd", "U S V")((u, s, v))


def _qr(input, some=True):
    return _linalg_of().qr(input, "reduced" if some else "complete")


def _cholesky(input, upper=False):
    return _linalg_of().cholesky(input, upper=upper)


def _lu_solve(b, LU_data, LU_pivots):
    return _linalg_of().lu_solve(LU_data, LU_pivots, b)


def _lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    from .return_types import of

    p, l, u = _linalg_of().lu_unpack(LU_data, LU_pivots)
    empty = LU_data.new_zeros(0)
    return of("lu_unpack", "P L U")((p if unpack_pivots else empty, l if unpack_data else empty, u if unpack_data else empty))


def _pinverse(input, rcond=1e-15):
    return _linalg_of().pinv(input, rcond)


def _factored(factor, upper):
    """The matrices of Cholesky factors. One triangle is read; the derivative is PyTorch's, of both."""
    factor = factor + ((factor.triu() if upper else factor.tril()) - factor).detach()
    turned = factor.transpose(-2, -1).conj()
    return turned @ factor if upper else factor @ turned


def _cholesky_solve(input, input2=None, upper=False, *, L=None):
    return _C._linalg.solve(_factored(input2 if L is None else L, upper), input)


def _cholesky_inverse(input, upper=False):
    return _C._linalg.inv(_factored(input, upper))


def _nuclear(name, row):
    """Norms by singular values."""

    def call(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None, axis=None, keepdims=None):
        # NumPy's names.
        dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
        by_values = ord in ("nuc", 2, -2) and not isinstance(ord, bool)
        if not (isinstance(A, Tensor) and A.dtype.is_complex and by_values) or dim is None and A.dim() != 2 or isinstance(dim, int):
            return row(A, ord, dim, keepdim, dtype=dtype, out=out)
        first, second = (dim if dim is not None else (-2, -1))
        first, second = first % A.dim(), second % A.dim()
        values = _linalg_of().svdvals((A if dtype is None else A.to(dtype)).movedim((first, second), (-2, -1)))
        made = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
        if keepdim:
            for d in sorted((first, second)):
                made = made.unsqueeze(d)
        return made if out is None else out.copy_(made)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = row.__doc__
    return call


def _old_norm(row):
    def call(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
        if p == "nuc" and isinstance(input, Tensor) and input.dtype.is_complex:
            return _nuclear("norm", _C._linalg.matrix_norm)(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype, out=out)
        extra = {key: value for key, value in (("out", out), ("dtype", dtype)) if value is not None}
        return row(input, p, dim, keepdim, **extra)

    call.__name__ = call.__qualname__ = "norm"
    call.__doc__ = row.__doc__
    return call


def _ldl(name):
    def call(*args, **kwargs):
        from . import _ldl

        return getattr(_ldl, name)(*args, **kwargs)

    return call


def _pinv(row):
    """``linalg.pinv``: tolerances that are tensors, one for each matrix, go to the function that complex matrices have."""

    def call(*args, **kwargs):
        if any(isinstance(value, Tensor) for value in (*args[1:], kwargs.get("atol"), kwargs.get("rtol"), kwargs.get("rcond"))):
            out = kwargs.pop("out", None)
            found = _linalg_of().pinv(*args, **kwargs)
            return found if out is None else out.resize_(found.shape).copy_(found)
        return row(*args, **kwargs)

    functools.update_wrapper(call, row)
    del call.__wrapped__
    return call


#: Functions of ``torch.linalg`` and their complex forms.
LINALG = {
    **{name: aware(getattr(_C._linalg, name), _ldl(name)) for name in ("ldl_factor", "ldl_factor_ex", "ldl_solve")},
    **{name: aware(getattr(_C._linalg, name), name) for name in "cholesky det eigh eigvalsh lstsq lu lu_factor lu_factor_ex lu_solve matrix_rank qr slogdet svd svdvals".split()},
    "pinv": _pinv(aware(_C._linalg.pinv, "pinv")),
    "matrix_norm": _nuclear("matrix_norm", _C._linalg.matrix_norm),
}
_OTHERS = {
    "svd": _svd, "qr": _qr, "cholesky": _cholesky, "lu_solve": _lu_solve, "lu_unpack": _lu_unpack, "geqrf": "geqrf", "logdet": "logdet", "det": "det",
    "slogdet": "slogdet", "pinverse": _pinverse, "cholesky_solve": _cholesky_solve, "cholesky_inverse": _cholesky_inverse,
}
#: Functions of ``torch``.
TORCH = {name: aware(getattr(_C._torch, name), other) for name, other in _OTHERS.items()}
TORCH["norm"] = _old_norm(_C._torch.norm)
# So that pickle finds them.
for _functions, _home in ((TORCH, __package__), (LINALG, f"{__package__}.linalg")):
    for _function in _functions.values():
        _function.__module__ = _home

for _name, _other in _OTHERS.items():
    if hasattr(Tensor, _name):
        setattr(Tensor, _name, aware(getattr(Tensor, _name), _other))
