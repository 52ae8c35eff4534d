"""``torch._foreach_…``: an op on each tensor of a list. Optimizers of libraries use them."""

from . import _C

Tensor = _C.Tensor

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()
_BINARY = "add clamp_max clamp_min div maximum minimum mul pow sub".split()
_TERNARY = "addcdiv addcmul lerp".split()


def _each(value, count):
    """One value per tensor: a list's own, or the same for all."""
    return value if isinstance(value, (list, tuple)) else [value] * count


def _make(name, inplace):
    method = name + "_" if inplace else name

    def apply(self, *others, **options):
        columns = [_each(other, len(self)) for other in others]
        for column in columns:
            if len(column) != len(self):
                raise RuntimeError(f"Tensor lists must have the same number of tensors, got {len(self)} and {len(column)}")
        made = [_call(tensor, method, *row, **options) for tensor, *row in zip(self, *columns)]
        return None if inplace else made

    apply.__name__ = apply.__qualname__ = f"_foreach_{method}"
    apply.__doc__ = f"``{method}`` of each tensor of a list."
    return apply


def _call(tensor, method, *others, **options):
    plain = method.rstrip("_")
    if plain in ("maximum", "minimum") and others and not isinstance(others[0], Tensor):
        # With numbers these are bounds.
        method = method.replace("maximum", "clamp_min").replace("minimum", "clamp_max")
    if plain in ("maximum", "minimum") and method.endswith("_") and "clamp" not in method:
        return tensor.copy_(getattr(tensor, plain)(*others))
    if plain in ("addcdiv", "addcmul") and len(others) == 3:
        *others, value = others
        options = {"value": value}
    return getattr(tensor, method)(*others, **options)


for _name in (*_UNARY, *_BINARY, *_TERNARY):
    for _inplace in (False, True):
        _function = _make(_name, _inplace)
        globals()[_function.__name__] = _function


def _foreach_pow(self, exponent):
    """``pow`` of each tensor of a list, or of a number by each."""
    return [tensor.pow(e) for tensor, e in zip(self, _each(exponent, len(self)))] if isinstance(self, (list, tuple)) else [_C._torch.pow(self, e) for e in exponent]


def _foreach_norm(self, ord=2, dtype=None):
    """The norm of each tensor of a list."""
    return [_C._linalg.vector_norm(tensor, ord, dtype=dtype) for tensor in self]


def _foreach_powsum(self, ord=2, dtype=None):
    """The sum of the powers of the magnitudes of each tensor of a list."""
    return [(tensor if dtype is None else tensor.to(dtype)).abs().pow(ord).sum() for tensor in self]


def _foreach_max(self):
    """The largest element of each tensor of a list."""
    return [tensor.max() for tensor in self]


def _foreach_clone(self, *, memory_format=None):
    """A copy of each tensor of a list."""
    return [tensor.clone() if memory_format is None else tensor.clone(memory_format=memory_format) for tensor in self]


def _foreach_mm(self, mat2):
    """The product of each matrix of a list with the one at the same position."""
    if len(self) != len(mat2):
        raise RuntimeError(f"Tensor lists must have the same number of tensors, got {len(self)} and {len(mat2)}")
    return [a.mm(b) for a, b in zip(self, mat2)]


def _foreach_zero_(self):
    """Sets all elements of a list's tensors to zero."""
    for tensor in self:
        tensor.zero_()


def _foreach_copy_(self, src, non_blocking=False):
    """Copies each tensor of a list into the tensor at the same position."""
    for tensor, source in zip(self, src):
        tensor.copy_(source, non_blocking)


__all__ = [name for name in list(globals()) if name.startswith("_foreach_")]
