"""Reductions and normalisations with a mask. Elements that the mask drops count as the neutral element of the operation."""

import functools

from .. import _C, linalg as _linalg
from ..sparse._tensor import Sparse

Tensor = _C.Tensor
_torch, _nn = _C._torch, _C._nn

_SMALL_INTEGERS = frozenset((_C.uint8, _C.bool, _C.int8, _C.int16, _C.int32))


def _plain(input, mask, what):
    """The data and the mask of an operand."""
    from .maskedtensor import MaskedTensor

    if isinstance(input, MaskedTensor):
        return input._masked_data, input._masked_mask
    if isinstance(input, Sparse):
        raise NotImplementedError(f"masked {what} takes strided tensors here, not {input.layout}; call .to_dense() first")
    return input, mask


def _input_mask(input, *args, mask=None, **kwargs):
    """The mask as booleans of the input's shape."""
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    mask = mask.to_dense() if isinstance(mask, Sparse) else mask
    if mask.dim() > input.dim():
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return _torch.broadcast_to(mask, input.shape).to(_C.bool)


def _canonical_dim(dim, ndim):
    """Dimensions as a sorted tuple; None and ``()`` mean all."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    ndim, found = max(ndim, 1), []
    for d in (dim,) if isinstance(dim, int) else dim:
        if d in found:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        if not -ndim <= d < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {d})")
        found.append(d % ndim)
    return tuple(sorted(found))


def _bound(input, largest):
    """Infinity, or the largest number of an integer dtype; the smallest ones otherwise."""
    if input.is_floating_point():
        return float("inf") if largest else float("-inf")
    if input.dtype == _C.bool or input.is_complex():
        raise NotImplementedError(f"identity of {'amin' if largest else 'amax'} on {input.dtype} input")
    from .. import iinfo

    limits = iinfo(input.dtype)
    return limits.max if largest else limits.min


def _neutral(name, input, order=2):
    """The neutral element of an operation, as a number."""
    if name in ("sum", "cumsum"):
        return 0
    if name in ("prod", "cumprod"):
        return 1
    if name == "logsumexp" and input.is_complex():
        return complex(float("-inf"), 0.0)
    if name in ("amax", "argmax", "logaddexp", "logsumexp"):
        return _bound(input, False)
    if name in ("amin", "argmin"):
        return _bound(input, True)
    if name == "norm":
        return float("inf") if order == float("-inf") else 0
    if name == "median":
        return float("nan")
    raise NotImplementedError(f"identity of {name} on {input.dtype} input")


def _reduction_identity(op_name, input, *args):
    """The neutral element of an operation as a tensor; None where there is none."""
    name = op_name.rsplit(".", 1)[-1]
    if name in ("mean", "var", "std"):
        return None
    dtype = _C.float32 if name == "median" and not input.is_floating_point() else input.dtype
    return _C.tensor(_neutral(name, input, *args), dtype=dtype, device=input.device)


def _filled(name, input, mask, *args):
    """The input with the neutral element where the mask is False."""
    if mask is None:
        return input
    mask = _input_mask(input, mask=mask)
    return _torch.where(mask, input, _reduction_identity(name, input, *args))


def _where(mask, input, fill_value):
    return _torch.where(mask, input, fill_value)


def _combine_input_and_mask(op, input, mask, *args):
    input, mask = _plain(input, mask, op.__name__)
    return _filled(op.__name__, input, mask, *args)


_REDUCTIONS = frozenset("sum prod amax amin argmax argmin mean median norm var std logsumexp".split())
_NORMALISATIONS = frozenset("softmax log_softmax softmin normalize cumsum cumprod".split())


def _output_mask(op, input, *args, **kwargs):
    """Which elements of a result have any element behind them."""
    name = getattr(op, "__name__", None)
    if name in _NORMALISATIONS:
        return _input_mask(input, *args, **kwargs)
    if name not in _REDUCTIONS:
        raise ValueError(f"_output_mask expected masked operation (got {name or type(op).__name__})")
    args = args[1:] if name == "norm" else args
    found = _input_mask(input, mask=kwargs.get("mask"))
    for d in reversed(_canonical_dim(args[0] if args else kwargs.get("dim"), input.dim())):
        found = found.any(d, keepdim=bool(kwargs.get("keepdim", False)))
    return found


def _of_sparse(function):
    """Lets a reduction take a sparse input: the dense form is reduced, and the result has the input's layout."""
    name = function.__name__

    @functools.wraps(function)
    def run(input, *args, mask=None, **kwargs):
        if not isinstance(input, Sparse):
            return function(input, *args, mask=mask, **kwargs)
        if mask is None and name != "sum":
            raise ValueError(f"masked {name} expects explicit mask for {str(input.layout).rpartition('.')[2]} tensor input")
        dense = input.to_dense()
        made = function(dense, *args, mask=mask, **kwargs)
        if mask is not None:
            # Elements that have none behind them are not specified.
            made = made.masked_fill(~_output_mask(function, dense, *args, mask=mask, **kwargs), 0)
        return made.to_sparse(layout=input.layout)

    return run


def _total_dtype(input, dtype):
    return dtype or (_C.int64 if input.dtype in _SMALL_INTEGERS else input.dtype)


@_of_sparse
def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The sum of the elements that the mask keeps."""
    input, mask = _plain(input, mask, "sum")
    return _torch.sum(_filled("sum", input, mask), _canonical_dim(dim, input.dim()), bool(keepdim), dtype=_total_dtype(input, dtype))


@_of_sparse
def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The product of the elements that the mask keeps."""
    input, mask = _plain(input, mask, "prod")
    made = _filled("prod", input, mask).to(_total_dtype(input, dtype))
    for d in reversed(_canonical_dim(dim, input.dim())):
        made = made.prod(d, keepdim=bool(keepdim))
    return made


def _running(name):
    def function(input, dim, *, dtype=None, mask=None):
        input, mask = _plain(input, mask, name)
        dtype = dtype or input.dtype
        return getattr(_torch, name)(_filled(name, input, mask), _canonical_dim(dim, input.dim())[0], dtype=dtype).to(dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` over the elements that the mask keeps."
    return function


cumsum, cumprod = _running("cumsum"), _running("cumprod")


def _extreme(name):
    def function(input, dim=None, *, keepdim=False, dtype=None, mask=None):
        input, mask = _plain(input, mask, name)
        return getattr(_torch, name)(_filled(name, input, mask), _canonical_dim(dim, input.dim()), bool(keepdim)).to(dtype or input.dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {'largest' if name == 'amax' else 'smallest'} of the elements that the mask keeps."
    return function


amax, amin = _of_sparse(_extreme("amax")), _of_sparse(_extreme("amin"))


def _place(name):
    def function(input, dim=None, *, keepdim=False, dtype=None, mask=None):
        input, mask = _plain(input, mask, name)
        return getattr(_torch, name)(_filled(name, input, mask), dim, bool(keepdim)).to(dtype or input.dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The position of the {'largest' if name == 'argmax' else 'smallest'} of the elements that the mask keeps."
    return function


argmax, argmin = _place("argmax"), _place("argmin")


def _count(input, mask, dim, keepdim):
    """How many elements the mask keeps."""
    mask = _torch.ones(input.shape, dtype=_C.bool, device=input.device) if mask is None else _input_mask(input, mask=mask)
    return _torch.sum(mask, _canonical_dim(dim, input.dim()), keepdim)


@_of_sparse
def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The mean of the elements that the mask keeps; NaN where it keeps none."""
    input, mask = _plain(input, mask, "mean")
    used = dtype or input.dtype
    if not (used.is_floating_point or used.is_complex):
        raise ValueError(
            f"mean(): Could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a floating point or complex dtype. Got: {used}"
        )
    return sum(input, dim, keepdim=keepdim, dtype=used, mask=mask) / _count(input, mask, dim, bool(keepdim))


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """The median of the elements that the mask keeps; NaN where it keeps none."""
    input, mask = _plain(input, mask, "median")
    whole = not input.is_floating_point()
    data = _filled("median", input.to(_C.float32) if whole else input, mask)
    found = _torch.nanmedian(data, _canonical_dim(dim, input.dim())[0], keepdim)[0]
    if not whole:
        return found
    if found.isnan().any().item():
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return found.to(dtype or input.dtype)


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """``logsumexp`` of the elements that the mask keeps."""
    input, mask = _plain(input, mask, "logsumexp")
    return _torch.logsumexp(_filled("logsumexp", input, mask), _canonical_dim(dim, input.dim()), keepdim).to(dtype or input.dtype)


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """``logaddexp`` of the elements that each operand's mask keeps."""
    input, input_mask = _plain(input, input_mask, "logaddexp")
    other, other_mask = _plain(other, other_mask, "logaddexp")
    return _torch.logaddexp(_filled("logaddexp", input, input_mask), _filled("logaddexp", other, other_mask)).to(dtype or input.dtype)


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The vector norm of the elements that the mask keeps."""
    input, mask = _plain(input, mask, "norm")
    data = _filled("norm", input, mask, ord)
    return _linalg.vector_norm(data, 2.0 if ord is None else ord, _canonical_dim(dim, input.dim()), bool(keepdim), dtype=dtype or input.dtype)


def _spread(input, dim, unbiased, correction, keepdim, dtype, mask):
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    correction = float(correction) if correction is not None else 0.0 if unbiased is False else 1.0
    numeric = input.is_floating_point() or input.is_complex()
    dtype = dtype or (input.dtype if numeric else _C.float32)
    computed = dtype if dtype.is_floating_point or dtype.is_complex else _C.float32
    count = _count(input, mask, dim, True)
    moved = input - sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / count
    total = sum(moved * moved.conj(), dim, keepdim=keepdim, dtype=computed, mask=mask)
    count = count.reshape(total.shape)
    if correction:
        count = (count.to(computed.to_real() if computed.is_complex else computed) - correction).clamp(min=0)
    return (total / count).to(dtype)


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The variance of the elements that the mask keeps."""
    input, mask = _plain(input, mask, "var")
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask)


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The standard deviation of the elements that the mask keeps."""
    input, mask = _plain(input, mask, "std")
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


def _soft(name, fill, sign):
    def function(input, dim, *, dtype=None, mask=None):
        input, mask = _plain(input, mask, name)
        data = _filled(fill, input, mask)
        return getattr(_nn, name.replace("softmin", "softmax"))(data if sign > 0 else -data, _canonical_dim(dim, input.dim())[0], dtype=dtype or input.dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` over the elements that the mask keeps."
    return function


softmax, log_softmax, softmin = _soft("softmax", "amax", 1), _soft("log_softmax", "amax", 1), _soft("softmin", "amin", -1)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """Vectors divided by the norm of the elements that the mask keeps."""
    input, mask = _plain(input, mask, "normalize")
    length = norm(input, ord, dim, keepdim=True, dtype=dtype or input.dtype, mask=mask)
    return _filled("sum", input, mask) / _torch.maximum(length, length.new_full([], eps))
