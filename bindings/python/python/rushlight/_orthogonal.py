"""Orthogonal polynomials of ``torch.special``, computed in double precision. They have no derivatives, as in PyTorch."""

from . import _C
from ._checks import written
from ._functions import result_type

__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h",
    "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
]

Tensor = _C.Tensor
_torch = _C._torch
#: Degrees up to which recurrences run. Higher ones of Chebyshev's inside the interval have a closed form.
_LARGEST = 100_000


def _result(name, inputs, compute, out):
    """``compute`` of the inputs in float64, in their common floating dtype; a result that requires gradients has no derivative."""
    tensors = [t for t in inputs if isinstance(t, Tensor)]
    if not tensors:
        raise TypeError(f"{name}(): expected a Tensor, not {', '.join(type(t).__name__ for t in inputs)}")
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        # Tensors with dimensions decide among numbers of one kind.
        dtype = result_type(tensors[0], t)
    dtype = dtype if dtype.is_floating_point else _C.get_default_dtype()
    device = tensors[0].device
    wide = [t.detach().double() if isinstance(t, Tensor) else _torch.full((), float(t), dtype=_C.float64, device=device) for t in inputs]
    made = compute(*_torch._broadcast_tensors(wide)).to(dtype)
    if any(t.requires_grad for t in tensors) and _C.is_grad_enabled():
        made = _underivable(name, tensors, made)
    return written(made, out)


def _underivable(name, inputs, made):
    from .autograd import Function

    class Recorded(Function):
        @staticmethod
        def forward(ctx, *tensors):
            return made

        @staticmethod
        def backward(ctx, dy):
            raise RuntimeError(f"the derivative for '{name}' is not implemented")

    return Recorded.apply(*inputs)


# Polynomials: ``degree`` is a tensor, so every degree up to the largest is computed and picked where it is wanted.


def _recurrence(x, n, first, step):
    """Polynomials of degree n: 1, ``first``, and ``step(k, p, q)`` of degree k from those of k - 2 and k - 1. Zero for negative degrees."""
    n = n.trunc()
    # Of a batch under vmap the degrees of all elements.
    plain = n
    while hasattr(plain, "_level"):
        plain = plain._value
    largest = int(plain.max().item()) if plain.numel() else 0
    if largest > _LARGEST:
        raise NotImplementedError(f"polynomials of degree {largest} are not supported; degrees go up to {_LARGEST}")
    out = _torch.where(n == 0, 1.0, _torch.zeros_like(x))
    p, q = _torch.ones_like(x), first
    for k in range(1, largest + 1):
        if k > 1:
            p, q = q, step(k, p, q)
        out = _torch.where(n == k, q, out)
    return out


def _chebyshev(kind):
    def compute(x, n):
        first = {"t": x, "u": 2 * x, "v": 2 * x - 1, "w": 2 * x + 1}[kind]
        return _recurrence(x, n, first, lambda k, p, q: 2 * x * q - p)

    return compute


def _shifted(kind):
    plain = _chebyshev(kind)
    return lambda x, n: plain(2 * x - 1, n)


_POLYNOMIALS = {
    "hermite_polynomial_h": lambda x, n: _recurrence(x, n, 2 * x, lambda k, p, q: 2 * x * q - 2 * (k - 1) * p),
    "hermite_polynomial_he": lambda x, n: _recurrence(x, n, x, lambda k, p, q: x * q - (k - 1) * p),
    "laguerre_polynomial_l": lambda x, n: _recurrence(x, n, 1 - x, lambda k, p, q: ((2 * k - 1 - x) * q - (k - 1) * p) / k),
    "legendre_polynomial_p": lambda x, n: _recurrence(x, n, x, lambda k, p, q: ((2 * k - 1) * x * q - (k - 1) * p) / k),
}
for _kind in "tuvw":
    _POLYNOMIALS[f"chebyshev_polynomial_{_kind}"] = _chebyshev(_kind)
    _POLYNOMIALS[f"shifted_chebyshev_polynomial_{_kind}"] = _shifted(_kind)


def _polynomial_function(name, compute):
    def polynomial(input, n, *, out=None):
        return _result(name, [input, n], compute, out)

    polynomial.__name__ = polynomial.__qualname__ = name
    polynomial.__doc__ = f"The {name.rpartition('_')[0].replace('_', ' ')} ``{name[-2:].strip('_').upper()}`` of degree ``n``."
    return polynomial


globals().update({name: _polynomial_function(name, compute) for name, compute in _POLYNOMIALS.items()})
