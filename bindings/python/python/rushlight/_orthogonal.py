"""Orthogonal polynomials and Bessel functions of ``torch.special``, computed in double precision. Polynomials have no derivatives, as in PyTorch."""

import math

from . import _C
from ._checks import written

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
    "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
    "spherical_bessel_j0",
]

Tensor = _C.Tensor
_torch = _C._torch
_EULER = 0.5772156649015329
#: Degrees up to which recurrences run. Higher ones of Chebyshev's inside the interval have a closed form.
_LARGEST = 100_000


def _result(name, inputs, compute, out):
    """``compute`` of the inputs in float64, in their common floating dtype; a result that requires gradients has no derivative."""
    tensors = [t for t in inputs if isinstance(t, Tensor)]
    if not tensors:
        raise TypeError(f"{name}(): expected a Tensor, not {', '.join(type(t).__name__ for t in inputs)}")
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = _C.promote_types(dtype, t.dtype)
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
    largest = int(n.max().item()) if n.numel() else 0
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


# Bessel functions of the first and second kind: power series near zero, Hankel's asymptotic series far from it. Where
# they meet both are right to eleven digits.
_FAR = 13.0
_TERMS = 48


def _series(square, coefficients):
    out = _torch.full_like(square, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = out * square + c
    return out


def _harmonic(k):
    return sum(1.0 / i for i in range(1, k + 1))


_J = [[(-1.0) ** k / (math.factorial(k) * math.factorial(k + order)) for k in range(_TERMS)] for order in (0, 1)]
_Y0 = [0.0] + [(-1.0) ** (k + 1) * _harmonic(k) / math.factorial(k) ** 2 for k in range(1, _TERMS)]
_Y1 = [
    (-1.0) ** k * (_harmonic(k) + _harmonic(k + 1) - 2 * _EULER) / (math.factorial(k) * math.factorial(k + 1)) for k in range(_TERMS)
]


def _near_j(x, order):
    made = _series(x * x / 4, _J[order])
    return made * x / 2 if order else made


def _near_y(x, order):
    log = (x / 2).log()
    if order == 0:
        return 2 / math.pi * ((log + _EULER) * _near_j(x, 0) + _series(x * x / 4, _Y0))
    return -2 / (math.pi * x) + 2 / math.pi * log * _near_j(x, 1) - x / 2 * _series(x * x / 4, _Y1) / math.pi


def _hankel(order):
    """The coefficients of the asymptotic series in one over x."""
    terms = [1.0]
    for k in range(1, 22):
        terms.append(terms[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8.0 * k))
    return terms


def _far(x, order, second):
    """Hankel's expansion of J, or of Y if ``second``."""
    terms = _hankel(order)
    inverse = 1 / (x * x)
    even = _series(inverse, [(-1.0) ** k * terms[2 * k] for k in range(11)])
    odd = _series(inverse, [(-1.0) ** k * terms[2 * k + 1] for k in range(11)]) / x
    angle = x - (order / 2 + 0.25) * math.pi
    wave = angle.sin() * even + angle.cos() * odd if second else angle.cos() * even - angle.sin() * odd
    made = (2 / (math.pi * x)).sqrt() * wave
    # As in PyTorch, no limit.
    return _torch.where(x.isinf(), math.nan, made)


def _bessel_j(order):
    def compute(x):
        size = x.abs()
        made = _torch.where(size < _FAR, _near_j(size.clamp(max=_FAR), order), _far(size.clamp(min=_FAR), order, False))
        made = _torch.where(x.isnan(), x, made)
        return made * x.sign() if order else made

    return compute


def _bessel_y(order):
    def compute(x):
        safe = _torch.where(x > 0, x, 1.0)
        made = _torch.where(safe < _FAR, _near_y(safe.clamp(max=_FAR), order), _far(safe.clamp(min=_FAR), order, True))
        return _torch.where(x > 0, made, _torch.where(x == 0, -math.inf, math.nan))

    return compute


def _bessel_k(order, scaled):
    """The integral of ``exp(-x cosh t) cosh(order t)`` over positive t, by trapezoids: exact to rounding, as the integrand falls off twice
    exponentially. Far from zero its peak is narrower than a step, and the asymptotic series is used."""
    limit = 25.0

    def far(x):
        return (math.pi / (2 * x)).sqrt() * _series(1 / x, _hankel(order))

    def compute(x):
        safe = _torch.where((x > 0) & (x < limit), x, 1.0)
        step, total = 0.0625, 0.5 * _torch.ones_like(safe)
        # Where x is as small as 1e-13 the integrand ends near 35.
        for i in range(1, 580):
            t = i * step
            total = total + (-safe * (math.cosh(t) - 1)).exp() * (math.cosh(t) if order else 1.0)
        made = _torch.where(x < limit, total * step, far(x.clamp(min=limit)))
        made = made if scaled else made * (-x.clamp(min=0)).exp()
        made = _torch.where(x == math.inf, 0.0, made)
        return _torch.where(x > 0, made, _torch.where(x == 0, math.inf, math.nan))

    return compute


# Airy's function: its power series near zero, asymptotic series in ``zeta = 2/3 |x|^1.5`` far from it, and between them for positive x
# the integral of a modified Bessel function, as the two parts of the power series cancel there.
_AIRY_FAR = 8.0
_AIRY_TERMS = [1.0]
for _k in range(1, 22):
    _AIRY_TERMS.append(_AIRY_TERMS[-1] * (6 * _k - 5) * (6 * _k - 3) * (6 * _k - 1) / (216.0 * _k * (2 * _k - 1)))


def _airy_series(x):
    cube, first, second = x * x * x, [1.0], [1.0]
    for k in range(1, 60):
        first.append(first[-1] / ((3 * k - 1) * (3 * k)))
        second.append(second[-1] / ((3 * k) * (3 * k + 1)))
    value, slope = 3 ** (-2 / 3) / math.gamma(2 / 3), 3 ** (-1 / 3) / math.gamma(1 / 3)
    return value * _series(cube, first) - slope * x * _series(cube, second)


def _airy_integral(x):
    zeta = 2 / 3 * x * x.sqrt()
    step, total = 0.0625, 0.5 * _torch.ones_like(x)
    for i in range(1, 128):
        t = i * step
        total = total + (-zeta * (math.cosh(t) - 1)).exp() * math.cosh(t / 3)
    return (x / 3).sqrt() / math.pi * (-zeta).exp() * total * step


def _airy_far(x, negative):
    zeta = 2 / 3 * x * x.sqrt()
    if not negative:
        return (-zeta).exp() / (2 * math.sqrt(math.pi) * x ** 0.25) * _series(-1 / zeta, _AIRY_TERMS)
    inverse = -1 / (zeta * zeta)
    even, odd = _series(inverse, _AIRY_TERMS[0::2]), _series(inverse, _AIRY_TERMS[1::2]) / zeta
    angle = zeta + math.pi / 4
    return (angle.sin() * even - angle.cos() * odd) / (math.sqrt(math.pi) * x ** 0.25)


def _airy(x):
    made = _airy_series(x.clamp(-_AIRY_FAR, 1.0))
    made = _torch.where(x > 1, _airy_integral(x.clamp(1.0, _AIRY_FAR)), made)
    made = _torch.where(x > _AIRY_FAR, _airy_far(x.clamp(min=_AIRY_FAR), False), made)
    made = _torch.where(x < -_AIRY_FAR, _airy_far((-x).clamp(min=_AIRY_FAR), True), made)
    # PyTorch gives NaN at both infinities.
    return _torch.where(x.isinf() | x.isnan(), math.nan, made)


def _spherical_j0(x):
    safe = _torch.where((x == 0) | x.isinf(), 1.0, x)
    return _torch.where(x == 0, 1.0, _torch.where(x.isinf(), 0.0, safe.sin() / safe))


def _modified_i(order):
    def compute(x):
        from .special import i0, i1

        return (i1 if order else i0)(x)

    return compute


_FUNCTIONS = {
    "airy_ai": _airy,
    "bessel_j0": _bessel_j(0), "bessel_j1": _bessel_j(1), "bessel_y0": _bessel_y(0), "bessel_y1": _bessel_y(1), "modified_bessel_i0": _modified_i(0),
    "modified_bessel_i1": _modified_i(1), "modified_bessel_k0": _bessel_k(0, False), "modified_bessel_k1": _bessel_k(1, False),
    "scaled_modified_bessel_k0": _bessel_k(0, True), "scaled_modified_bessel_k1": _bessel_k(1, True), "spherical_bessel_j0": _spherical_j0,
}


def _over(value, x):
    """``value / x`` of a function that is odd: its slope at zero is one half."""
    return _torch.where(x == 0, 0.5, value / _torch.where(x == 0, 1.0, x))


#: Derivatives, of the functions that have one: by the input and the value.
_DERIVATIVES = {
    "bessel_j0": lambda x, y: -bessel_j1(x),
    "bessel_j1": lambda x, y: bessel_j0(x) - _over(y, x),
    "bessel_y0": lambda x, y: -bessel_y1(x),
    "bessel_y1": lambda x, y: bessel_y0(x) - y / x,
    "modified_bessel_i0": lambda x, y: modified_bessel_i1(x),
    "modified_bessel_i1": lambda x, y: modified_bessel_i0(x) - _over(y, x),
    "modified_bessel_k0": lambda x, y: -modified_bessel_k1(x),
    "modified_bessel_k1": lambda x, y: -modified_bessel_k0(x) - y / x,
}


def _recorded(name, compute, derivative):
    """A function of floats (integers are converted) computed in float64; ``derivative(x, y)`` is its slope."""
    from .autograd import Function

    class Recorded(Function):
        @staticmethod
        def forward(ctx, x):
            y = compute(x.detach().double()).to(x.dtype)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, dy):
            return dy * derivative(*ctx.saved_tensors)

        @staticmethod
        def vmap(info, in_dims, x):
            return Recorded.apply(x), in_dims[0]

    Recorded.__name__ = Recorded.__qualname__ = name

    def function(input, *, out=None):
        if not isinstance(input, _C.Tensor):
            raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
        made = Recorded.apply(input if input.is_floating_point() else input.to(_C.get_default_dtype()))
        return written(made, out)

    return function


def _unary(name, compute):
    if name in _DERIVATIVES:
        function = _recorded(name, compute, _DERIVATIVES[name])
    else:

        def function(input, *, out=None):
            return _result(name, [input], compute, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Airy's function Ai." if name == "airy_ai" else f"The {name.replace('_', ' ')[:-1]} of order {name[-1]}."
    return function


globals().update({name: _polynomial_function(name, compute) for name, compute in _POLYNOMIALS.items()})
globals().update({name: _unary(name, compute) for name, compute in _FUNCTIONS.items()})
