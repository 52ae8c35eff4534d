"""``torch.special``.

Bessel functions, the incomplete gamma functions, ``zeta`` and ``erfcx`` are sums of tensors in double precision: right to the last digits of
float32, and no faster than their number of terms allows.
"""

import math

from . import _C

_torch = _C._torch

globals().update({name: f for name, f in vars(_C._special).items() if not name.startswith("__")})


def _elementwise(name, compute, derivative):
    """A function of floats (integers are converted) computed in float64. ``derivative(inputs, out)`` gives one factor per input, or None."""
    from .autograd import Function

    class Recorded(Function):
        @staticmethod
        def forward(ctx, *inputs):
            dtype = _result_dtype(inputs)
            out = compute(*(t.detach().double() for t in inputs)).to(dtype)
            ctx.save_for_backward(*inputs, out)
            return out

        @staticmethod
        def backward(ctx, dy):
            *inputs, out = ctx.saved_tensors
            factors = derivative(inputs, out)
            grads = []
            for needed, t, factor in zip(ctx.needs_input_grad, inputs, factors):
                if needed and factor is None:
                    raise NotImplementedError(f"the derivative for '{name}' with respect to its first argument is not implemented")
                grads.append((dy * factor()).sum_to_size(t.shape).to(t.dtype) if needed else None)
            return tuple(grads) if len(grads) > 1 else grads[0]

    Recorded.__name__ = Recorded.__qualname__ = name

    def function(*inputs, out=None):
        tensors = [t if isinstance(t, _C.Tensor) else None for t in inputs]
        like = next((t for t in tensors if t is not None), None)
        if like is None:
            raise TypeError(f"{name}(): expected a Tensor, not {', '.join(type(t).__name__ for t in inputs)}")
        inputs = [t if t is not None else _torch.full((), v, dtype=like.dtype, device=like.device) for t, v in zip(tensors, inputs)]
        made = Recorded.apply(*(t if t.is_floating_point() else t.to(_C.get_default_dtype()) for t in inputs))
        return made if out is None else out.copy_(made)

    function.__name__ = function.__qualname__ = name
    return function


def _result_dtype(inputs):
    dtype = inputs[0].dtype
    for t in inputs[1:]:
        dtype = _C.promote_types(dtype, t.dtype)
    return dtype


def _polynomial(x, coefficients):
    """``c[0] + c[1] x + c[2] x² + …``"""
    out = _torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = out * x + c
    return out


# Modified Bessel functions of the first kind: a power series, all of whose terms are positive, and the asymptotic one
# far from zero.
_FAR = 25.0
_NEAR_0 = [1.0 / math.factorial(k) ** 2 for k in range(60)]
_NEAR_1 = [1.0 / (math.factorial(k) * math.factorial(k + 1)) for k in range(60)]


def _asymptotic(order):
    terms, mu = [1.0], 4.0 * order * order
    for k in range(1, 22):
        terms.append(-terms[-1] * (mu - (2 * k - 1) ** 2) / (8.0 * k))
    return terms


def _bessel(x, near, far, odd, scaled):
    size = x.abs()
    close, distant = size.clamp(max=_FAR), size.clamp(min=_FAR)
    inner = _polynomial(close * close / 4, near) * (close / 2 if odd else 1.0)
    outer = _polynomial(1 / distant, far) / (2 * math.pi * distant).sqrt()
    out = _torch.where(size <= _FAR, inner * (-size).exp() if scaled else inner, outer if scaled else outer * distant.exp())
    return out * x.sign() if odd else out


_FAR_0, _FAR_1 = _asymptotic(0), _asymptotic(1)


def _sloped(i1_over_x, x):
    """``I₁(x) / x``, which is one half at zero."""
    safe = _torch.where(x == 0, 1.0, x)
    return _torch.where(x == 0, 0.5, i1_over_x / safe)


i0 = _elementwise("i0", lambda x: _bessel(x, _NEAR_0, _FAR_0, False, False), lambda v, y: [lambda: i1(v[0])])
i0e = _elementwise("i0e", lambda x: _bessel(x, _NEAR_0, _FAR_0, False, True), lambda v, y: [lambda: i1e(v[0]) - v[0].sign() * i0e(v[0])])
i1 = _elementwise("i1", lambda x: _bessel(x, _NEAR_1, _FAR_1, True, False), lambda v, y: [lambda: i0(v[0]) - _sloped(i1(v[0]), v[0])])
i1e = _elementwise(
    "i1e",
    lambda x: _bessel(x, _NEAR_1, _FAR_1, True, True),
    lambda v, y: [lambda: i0e(v[0]) - _sloped(i1e(v[0]), v[0]) - v[0].sign() * i1e(v[0])],
)


def _erfcx(x):
    near, far = x.clamp(max=25.0), x.clamp(min=25.0)
    tail = _polynomial(1 / (far * far), [1.0, -0.5, 0.75, -1.875, 6.5625]) / (far * math.sqrt(math.pi))
    return _torch.where(x > 25.0, tail, (near * near).exp() * _torch.erfc(near))


erfcx = _elementwise("erfcx", _erfcx, lambda v, y: [lambda: 2 * v[0] * erfcx(v[0]) - 2 / math.sqrt(math.pi)])


def _log_ndtr(x):
    z = x * math.sqrt(0.5)
    low, high = z.clamp(max=-0.5), z.clamp(min=-0.5)
    return _torch.where(z < -0.5, (_erfcx(-low) / 2).log() - low * low, (-_torch.erfc(high) / 2).log1p())


log_ndtr = _elementwise(
    "log_ndtr", _log_ndtr, lambda v, y: [lambda: math.sqrt(2 / math.pi) / erfcx(v[0] * -math.sqrt(0.5))]
)


def _zeta(x, q):
    """Hurwitz's zeta function: a sum of ten terms and Euler and Maclaurin's correction of the rest."""
    # B(2j) / (2j)!
    corrections = [1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000]
    x, q = _torch._broadcast_tensors([x, q])
    total, count = _torch.zeros_like(x), 10
    for k in range(count):
        total = total + (q + k) ** -x
    edge = q + count
    total = total + edge ** (1 - x) / (x - 1) + edge ** -x / 2
    rising, power = x, edge ** (-x - 1)
    for j, c in enumerate(corrections):
        total = total + c * rising * power
        rising = rising * (x + 2 * j + 1) * (x + 2 * j + 2)
        power = power / (edge * edge)
    poles = (q <= 0) & (q == q.floor())
    total = _torch.where(poles | (x == 1), float("inf"), total)
    return _torch.where((x < 1) | ((q < 0) & (x != x.floor()) & ~poles), float("nan"), total)


zeta = _elementwise("zeta", _zeta, lambda v, y: [None, lambda: -v[0] * zeta(v[0] + 1, v[1])])


def _lower_gamma(a, x, prefactor):
    """The series of the lower incomplete gamma function, for ``x < a + 1``."""
    term = 1 / a
    total = term
    for n in range(1, 2000):
        term = term * x / (a + n)
        total = total + term
        if not bool((term.abs() > total.abs() * 1e-17).any()):
            break
    return total * prefactor


def _upper_gamma(a, x, prefactor):
    """The continued fraction of the upper one, for ``x >= a + 1``, by Lentz's method."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = _torch.full_like(x, 1 / tiny), 1 / b
    h = d
    for n in range(1, 2000):
        an = -n * (n - a)
        b = b + 2
        d = an * d + b
        d = 1 / _torch.where(d.abs() < tiny, tiny, d)
        c = b + an / c
        c = _torch.where(c.abs() < tiny, tiny, c)
        step = d * c
        h = h * step
        if not bool(((step - 1).abs() > 1e-16).any()):
            break
    return h * prefactor


def _incomplete_gamma(a, x, upper):
    a, x = _torch._broadcast_tensors([a, x])
    bad = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | a.isnan() | x.isnan() | (a.isinf() & x.isinf())
    inner = ~bad & (a > 0) & (x > 0) & a.isfinite() & x.isfinite()
    sa, sx = _torch.where(inner, a, 1.0), _torch.where(inner, x, 1.0)
    prefactor = (sa * sx.log() - sx - _torch.lgamma(sa)).exp()
    series = sx < sa + 1
    low = _lower_gamma(sa, _torch.where(series, sx, 0.5), prefactor)
    high = _upper_gamma(_torch.where(series, 1.0, sa), _torch.where(series, 3.0, sx), prefactor)
    value = _torch.where(series, 1 - low if upper else low, high if upper else 1 - high)
    # At the ends of the ranges.
    whole = (x.isinf() | (a == 0)) & ~a.isinf()
    value = _torch.where(inner, value, whole.double() if not upper else (~whole).double())
    return _torch.where(bad, float("nan"), value)


def _density(v, y):
    """The derivative of the lower function by x."""
    a, x = v
    return ((a - 1) * x.log() - x - _torch.lgamma(a)).exp()


gammainc = _elementwise("igamma", lambda a, x: _incomplete_gamma(a, x, False), lambda v, y: [None, lambda: _density(v, y)])
gammaincc = _elementwise("igammac", lambda a, x: _incomplete_gamma(a, x, True), lambda v, y: [None, lambda: -_density(v, y)])


def __getattr__(name):
    from . import _orthogonal
    from ._functions import _missing

    if name in _orthogonal.__all__:
        globals()[name] = found = getattr(_orthogonal, name)
        return found

    return _missing(__name__, name)


def __dir__():
    from . import _orthogonal

    return sorted(set(globals()) | set(_orthogonal.__all__))
