"""``torch._prims_common``: questions about dtypes and dimensions. Public libraries and PyTorch's own tests use them although the name is private."""

import enum

from . import _C
from ._functions import broadcast_shapes  # noqa: F401

_COMPLEX = {_C.float16: _C.complex32, _C.bfloat16: _C.complex64, _C.float32: _C.complex64, _C.float64: _C.complex128}
_REAL = {_C.complex32: _C.float16, _C.complex64: _C.float32, _C.complex128: _C.float64}
_INTEGERS = (_C.uint8, _C.int8, _C.int16, _C.int32, _C.int64)


def corresponding_complex_dtype(dtype):
    """The complex dtype of pairs of a real one."""
    return _COMPLEX[dtype]


def corresponding_real_dtype(dtype):
    """The dtype of the parts of a complex one."""
    return _REAL[dtype]


def is_boolean_dtype(dtype):
    """Whether a dtype has truth values."""
    return dtype is _C.bool


def is_integer_dtype(dtype):
    """Whether a dtype has integers."""
    return dtype in _INTEGERS


def is_float_dtype(dtype):
    """Whether a dtype has real numbers."""
    return dtype.is_floating_point


def is_complex_dtype(dtype):
    """Whether a dtype has complex numbers."""
    return dtype.is_complex


def is_low_precision_dtype(dtype):
    """Whether a dtype has 16-bit floats."""
    return dtype in (_C.float16, _C.bfloat16, _C.complex32)


def dtype_to_type(dtype):
    """Python's type of a dtype's numbers."""
    if dtype is _C.bool:
        return bool
    return complex if dtype.is_complex else float if dtype.is_floating_point else int


class ELEMENTWISE_TYPE_PROMOTION_KIND(enum.Enum):
    """How the dtype of an elementwise result follows from those of the arguments."""

    DEFAULT = (0,)
    NO_OPMATH = (1,)
    INT_TO_FLOAT = (2,)
    ALWAYS_BOOL = (3,)
    COMPLEX_TO_FLOAT = (4,)
    BOOL_TO_LONG = (5,)


def _kind_of(value):
    """0 for truth values, 1 for integers, 2 for real and 3 for complex numbers; and the dtype of a tensor."""
    if isinstance(value, _C.Tensor):
        kind = dtype_to_type(value.dtype)
        return (bool, int, float, complex).index(kind), value.dtype
    return next(at for at, kind in enumerate((bool, int, float, complex)) if isinstance(value, kind)), None


def elementwise_dtypes(*args, type_promotion_kind):
    """The dtypes in which an elementwise function computes and returns its result."""
    values = [value for arg in args if arg is not None for value in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    kinds = [(*_kind_of(value), isinstance(value, _C.Tensor) and value.dim() == 0) for value in values]
    highest = max((kind for kind, _, _ in kinds), default=0)
    groups = [[dtype for kind, dtype, scalar in kinds if kind == highest and dtype is not None and scalar is wanted] for wanted in (False, True)]
    found = groups[0] or groups[1]
    if found:
        result = found[0]
        for dtype in found[1:]:
            result = _C.promote_types(result, dtype)
    else:
        # Numbers alone have this kind: what tensors there are decide the width.
        real = next((dtype for _, dtype, _ in kinds if dtype is not None and dtype.is_floating_point), _C.get_default_dtype())
        result = (_C.bool, _C.int64, real, _COMPLEX[real])[highest]
    wide = {_C.float16: _C.float32, _C.bfloat16: _C.float32, _C.complex32: _C.complex64}
    every = ELEMENTWISE_TYPE_PROMOTION_KIND
    if type_promotion_kind is every.NO_OPMATH:
        return result, result
    if type_promotion_kind is every.INT_TO_FLOAT and highest < 2:
        result = _C.get_default_dtype()
    elif type_promotion_kind is every.COMPLEX_TO_FLOAT and highest == 3:
        return wide.get(result, result), _REAL[result]
    elif type_promotion_kind is every.BOOL_TO_LONG and highest == 0:
        result = _C.int64
    elif type_promotion_kind is every.ALWAYS_BOOL:
        return wide.get(result, result), _C.bool
    return wide.get(result, result), result


def canonicalize_dim(rank, idx, wrap_scalar=True):
    """A dimension counted from the front."""
    if rank == 0 and wrap_scalar:
        rank = 1
    if not -rank <= idx < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {idx})")
    return idx % rank


def canonicalize_dims(rank, indices, wrap_scalar=True):
    """Dimensions counted from the front."""
    if isinstance(indices, int):
        return canonicalize_dim(rank, indices, wrap_scalar)
    return tuple(canonicalize_dim(rank, i, wrap_scalar) for i in indices)


def is_expandable_to(shape, desired):
    """Whether a shape broadcasts to another."""
    return len(shape) <= len(desired) and all(a in (b, 1) for a, b in zip(reversed(shape), reversed(desired)))


def make_contiguous_strides_for(shape, row_major=True):
    """The strides of a contiguous tensor; with ``row_major=False`` the last two dimensions are the other way round."""
    strides, step = [], 1
    for size in reversed(tuple(shape)):
        strides.append(step)
        step *= max(size, 1)
    strides.reverse()
    if not row_major and len(strides) > 1:
        return (*strides[:-2], 1, max(tuple(shape)[-2], 1))
    return tuple(strides)


def suggest_memory_format(x):
    """The memory format of a tensor's strides."""
    if x.dim() == 4 and x.is_contiguous(memory_format=_C.channels_last) and not x.is_contiguous():
        return _C.channels_last
    if x.dim() == 5 and x.is_contiguous(memory_format=_C.channels_last_3d) and not x.is_contiguous():
        return _C.channels_last_3d
    return _C.contiguous_format


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
