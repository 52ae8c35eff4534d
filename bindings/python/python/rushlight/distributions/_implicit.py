"""Samples of the gamma family whose gradients reach the parameters, by implicit differentiation of the distribution function.

A sample ``x`` with ``F(x; a) = u`` moves with the parameter by ``dx/da = -(dF/da) / (dF/dx)``. ``F`` is a power times a series or a continued fraction; the
power's derivative is exact, and only the logarithm of the other factor is differenced, in double precision, so nothing underflows in the tails.
"""

from .. import _C
from ..autograd.function import Function, once_differentiable
from ..overrides import handle_torch_function, has_torch_function

_torch = _C._torch

#: Terms after which a series or a continued fraction has converged, for the arguments that reach it.
_TERMS = 400
_TINY = 1e-300


def _log_gammas(concentration, generator=None):
    """Logarithms of gamma samples of rate one, in double precision, by Marsaglia and Tsang: rejection sampling of cubed normal numbers."""
    concentration = concentration.detach().double()
    small = concentration < 1
    shifted = (_torch.where(small, concentration + 1, concentration) - 1 / 3).contiguous()
    factor = (9 * shifted).rsqrt()
    drawn, waiting = _torch.zeros_like(shifted), _torch.isfinite(shifted)
    while waiting.any():
        x = _torch.randn_like(shifted, generator=generator)
        cube = (1 + factor * x) ** 3
        log_cube = cube.clamp(min=1e-30).log()
        bound = 0.5 * x * x + shifted - shifted * cube + shifted * log_cube
        accepted = waiting & (cube > 0) & (_torch.rand_like(shifted, generator=generator).log() < bound)
        drawn, waiting = _torch.where(accepted, shifted.log() + log_cube, drawn), waiting & ~accepted
    boost = (1 - _torch.rand_like(shifted, generator=generator)).log() / concentration
    return _torch.where(small, drawn + boost, drawn) + 0 * concentration


def _smallest(dtype):
    return {_C.float64: 2.2250738585072014e-308, _C.float16: 2.0**-14}.get(dtype, 1.1754943508222875e-38)


def _below_one(dtype):
    return 1 - {_C.float64: 2.0**-53, _C.float16: 2.0**-11, _C.bfloat16: 2.0**-8}.get(dtype, 2.0**-24)


def _converged(step):
    """Calls ``step(n)``, which says by how much a value has changed, until nothing changes."""
    for n in range(1, _TERMS):
        change = step(n)
        if n % 16 == 0 and bool((change.abs() < 1e-15).all()):
            return


def _log_series(a, x):
    """``log(1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + …)``: the lower incomplete gamma function without its power."""
    total, term = _torch.ones_like(x), _torch.ones_like(x)

    def step(n):
        nonlocal total, term
        term = term * x / (a + n)
        total = total + term
        return term / total

    _converged(step)
    return total.log()


def _log_fraction(first, numerator, denominator):
    """The logarithm of ``1 / (first + numerator(1) / (denominator(1) + …))``, by Lentz's method."""
    c, d = _torch.full_like(first, 1 / _TINY), 1 / first
    value = d

    def step(n):
        nonlocal c, d, value
        an, bn = numerator(n), denominator(n)
        d = an * d + bn
        d = 1 / _torch.where(d.abs() < _TINY, _TINY, d)
        c = bn + an / c
        c = _torch.where(c.abs() < _TINY, _TINY, c)
        value = value * (d * c)
        return d * c - 1

    _converged(step)
    return value.abs().log()


def _log_upper(a, x):
    """The upper incomplete gamma function without its power."""
    return _log_fraction(x + 1 - a, lambda n: -n * (n - a), lambda n: x + 2 * n + 1 - a)


def _log_beta_fraction(a, b, x):
    """The incomplete beta function without its power."""

    def numerator(n):
        m = n // 2
        if n % 2:
            return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))

    return _log_fraction(_torch.ones_like(x), numerator, lambda n: _torch.ones_like(x))


def _slope(function, at):
    """The derivative of a smooth function, by central differences."""
    width = 1e-5 * at
    return (function(at + width) - function(at - width)) / (2 * width)


def _standard_gamma_grad(concentration, sample):
    """The derivative of gamma samples of rate one by their concentration."""
    shape = sample.shape
    a, x = (t.detach().double().expand(shape) for t in (concentration, sample))
    x = x.clamp(min=_TINY)
    # Wilson and Hilferty: the cube root of a gamma variable is nearly normal.
    root = (x / a) ** (1 / 3)
    large = root**3 + 3 * a * root**2 * (1 / (9 * a * a) - (root - 1 + 1 / (9 * a)) / (2 * a))
    plain = a < 1000
    safe = _torch.where(plain, a, 1.0)
    lower = plain & (x < safe + 1)
    low_x, high_x = _torch.where(lower, x, 0.5), _torch.where(plain & ~lower, x, safe + 2)
    log_low = low_x.log() - (safe + 1).digamma() + _slope(lambda at: _log_series(at, low_x), safe)
    from_low = -low_x / safe * _log_series(safe, low_x).exp() * log_low
    log_high = high_x.log() - safe.digamma() + _slope(lambda at: _log_upper(at, high_x), safe)
    from_high = high_x * _log_upper(safe, high_x).exp() * log_high
    return _torch.where(lower, from_low, _torch.where(plain, from_high, large)).to(sample.dtype)


def _beta_grad(x, a, b):
    """The derivative of beta samples by their first concentration."""
    x = x.clamp(_TINY, 1 - 2.0**-53)
    lower = x < (a + 1) / (a + b + 2)
    rate = a.digamma() - (a + b).digamma()
    low_x, high_x = _torch.where(lower, x, 0.0), _torch.where(lower, 0.0, 1 - x)
    log_low = x.log() - 1 / a - rate + _slope(lambda at: _log_beta_fraction(at, b, low_x), a)
    from_low = -x * (1 - x) / a * _log_beta_fraction(a, b, low_x).exp() * log_low
    log_high = x.log() - rate + _slope(lambda at: _log_beta_fraction(b, at, high_x), a)
    from_high = x * (1 - x) / b * _log_beta_fraction(b, a, high_x).exp() * log_high
    return _torch.where(lower, from_low, from_high)


def _dirichlet_grad(x, alpha, total):
    """The derivative of a component of Dirichlet samples by its own concentration, over one minus the component."""
    values, a, t = (v.detach().double().expand(x.shape) for v in (x, alpha, total))
    return (_beta_grad(values, a, t - a) / (1 - values).clamp(min=2.0**-53)).to(x.dtype)


def _Dirichlet_backward(x, concentration, grad_output):
    """The gradient of the concentrations from that of a sample."""
    total = concentration.sum(-1, keepdim=True).expand(concentration.shape)
    return _dirichlet_grad(x, concentration, total) * (grad_output - (x * grad_output).sum(-1, keepdim=True))


class _Gamma(Function):
    @staticmethod
    def forward(ctx, concentration, generator):
        sample = _log_gammas(concentration, generator).exp().to(concentration.dtype).clamp(min=_smallest(concentration.dtype))
        ctx.save_for_backward(sample, concentration)
        return sample

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        sample, concentration = ctx.saved_tensors
        return grad * _standard_gamma_grad(concentration, sample), None


class _Dirichlet(Function):
    @staticmethod
    def forward(ctx, concentration, generator):
        logs = _log_gammas(concentration, generator)
        sample = _C._nn.softmax(logs, -1).to(concentration.dtype).clamp(_smallest(concentration.dtype), _below_one(concentration.dtype))
        ctx.save_for_backward(sample, concentration)
        return sample

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return _Dirichlet_backward(*ctx.saved_tensors, grad), None


def _standard_gamma(concentration, generator=None):
    """Gamma samples of rate one."""
    if has_torch_function((concentration,)):
        return handle_torch_function(_standard_gamma, (concentration,), concentration, generator=generator)
    return _Gamma.apply(concentration, generator)


def _sample_dirichlet(concentration, generator=None):
    """Dirichlet samples."""
    if has_torch_function((concentration,)):
        return handle_torch_function(_sample_dirichlet, (concentration,), concentration, generator=generator)
    return _Dirichlet.apply(concentration, generator)


def binomial(count, prob, generator=None):
    """How many of ``count`` trials succeed with probability ``prob``."""
    if has_torch_function((count, prob)):
        return handle_torch_function(binomial, (count, prob), count, prob, generator=generator)
    if not count.is_floating_point():
        raise ValueError(f"binomial only supports floating-point dtypes for count, got: {count.dtype}")
    if not prob.is_floating_point():
        raise ValueError(f"binomial only supports floating-point dtypes for prob, got: {prob.dtype}")
    if count.dtype != prob.dtype:
        raise RuntimeError(f"Found dtype {prob.dtype} but expected {count.dtype}; convert one with .to(dtype)")
    count, prob = _torch._broadcast_tensors([count.detach(), prob.detach()])
    most = max(int(count.max().item()), 0) if count.numel() else 0
    trials = _torch.rand([most, *count.shape], generator=generator, dtype=prob.dtype, device=prob.device) < prob
    counted = _torch.arange(most, device=prob.device).reshape([most] + [1] * count.dim()) < count
    return (trials & counted).sum(0).to(prob.dtype)
