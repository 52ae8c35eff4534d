"""Continuous distributions of real numbers."""

import math

from . import Distribution, Exponential, Normal, Uniform, _C, _constrain, _nn, _tensors, _torch, constraints
from ._gamma import _gammas
from ._implicit import _smallest
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform
from .utils import _eps, broadcast_all, euler_constant


class LogNormal(TransformedDistribution):
    """The exponential of a normal variable."""

    arg_constraints, support, has_rsample = {"loc": constraints.real, "scale": constraints.positive}, constraints.positive, True

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: (self.loc + self.scale**2 / 2).exp())
    mode = property(lambda self: (self.loc - self.scale**2).exp())
    variance = property(lambda self: (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp())

    def entropy(self):
        return self.base_dist.entropy() + self.loc


class HalfNormal(TransformedDistribution):
    """The absolute value of a normal variable."""

    arg_constraints, support, has_rsample = {"scale": constraints.positive}, constraints.nonnegative, True

    def __init__(self, scale, validate_args=None):
        super().__init__(Normal(0.0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    mode = property(lambda self: _torch.zeros_like(self.scale))
    variance = property(lambda self: self.scale**2 * (1 - 2 / math.pi))

    def log_prob(self, value):
        value = _tensors(value, self.scale)[0]
        return _torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value):
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob):
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)


class Gumbel(TransformedDistribution):
    """The distribution of the maximum of many samples."""

    arg_constraints, support = {"loc": constraints.real, "scale": constraints.positive}, constraints.real

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        tiny, eps = _smallest(self.loc.dtype), _eps(self.loc.dtype)
        base = Uniform(_torch.full_like(self.loc, tiny), _torch.full_like(self.loc, 1 - eps), validate_args=validate_args)
        ones = _torch.ones_like(self.scale)
        chain = [ExpTransform().inv, AffineTransform(0, -ones), ExpTransform().inv, AffineTransform(self.loc, -self.scale)]
        super().__init__(base, chain, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return Gumbel(self.loc.expand(batch_shape), self.scale.expand(batch_shape), validate_args=False)

    mean = property(lambda self: self.loc + self.scale * euler_constant)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: math.pi**2 / 6 * self.scale**2)

    def log_prob(self, value):
        away = (self.loc - value) / self.scale
        return away - away.exp() - self.scale.log()

    def entropy(self):
        return self.scale.log() + 1 + euler_constant


class Cauchy(Distribution):
    """The ratio of two normal variables, shifted and scaled."""

    has_rsample, _names = True, ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = _tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mode = property(lambda self: self.loc)
    mean = property(lambda self: _torch.full_like(self.loc, math.nan))
    variance = property(lambda self: _torch.full_like(self.loc, math.inf))

    def _draw(self, sample_shape):
        u = _torch.rand(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * (math.pi * (u - 0.5)).tan()

    def cdf(self, value):
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value):
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def log_prob(self, value):
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


class StudentT(Distribution):
    """A normal variable over the root of a chi-squared one divided by ``df``."""

    has_rsample, _names = True, ("df", "loc", "scale")

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = _tensors(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    mode = property(lambda self: self.loc)
    mean = property(lambda self: _torch.where(self.df > 1, self.loc, math.nan))

    @property
    def variance(self):
        finite = self.scale**2 * self.df / (self.df - 2)
        return _torch.where(self.df > 2, finite, _torch.where(self.df > 1, _torch.full_like(self.df, math.inf), math.nan))

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        normal = _torch.randn(shape, dtype=self.df.dtype, device=self.df.device)
        squares = 2 * _gammas((self.df / 2).expand(shape))
        return self.loc + self.scale * normal * (squares / self.df).rsqrt()

    def log_prob(self, value):
        y, df = (value - self.loc) / self.scale, self.df
        constant = self.scale.log() + 0.5 * df.log() + 0.5 * math.log(math.pi) + (0.5 * df).lgamma() - (0.5 * (df + 1)).lgamma()
        return -0.5 * (df + 1) * (y**2 / df).log1p() - constant

    def entropy(self):
        half, df = 0.5 * (self.df + 1), self.df
        beta = (0.5 * df).lgamma() + 0.5 * math.log(math.pi) - half.lgamma()
        return self.scale.log() + half * (half.digamma() - (0.5 * df).digamma()) + 0.5 * df.log() + beta


class HalfCauchy(TransformedDistribution):
    """The absolute value of a Cauchy variable."""

    arg_constraints, support, has_rsample = {"scale": constraints.positive}, constraints.nonnegative, True

    def __init__(self, scale, validate_args=None):
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: _torch.full_like(self.scale, math.inf))
    mode = property(lambda self: _torch.zeros_like(self.scale))
    variance = property(lambda self: self.base_dist.variance)

    def log_prob(self, value):
        (value, _) = broadcast_all(value, self.scale)
        return _torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value):
        return 2 / math.pi * (value / self.scale).atan()

    def icdf(self, prob):
        return self.scale * (math.pi / 2 * prob).tan()

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)


class Kumaraswamy(TransformedDistribution):
    """Numbers between 0 and 1, much like ``Beta``'s, with a density without gamma functions."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support, has_rsample = constraints.unit_interval, True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(_torch.zeros_like(self.concentration0), _torch.ones_like(self.concentration0), validate_args=False)
        chain = [PowerTransform(1 / self.concentration0), AffineTransform(1.0, -1.0), PowerTransform(1 / self.concentration1)]
        super().__init__(base, chain, validate_args=validate_args)

    def _moment(self, n):
        at = 1 + n / self.concentration1
        return (at.lgamma() + self.concentration0.lgamma() - (at + self.concentration0).lgamma() + self.concentration0.log()).exp()

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self._moment(1) ** 2)

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        found = ((a - 1) / (a * b - 1)) ** (1 / a)
        return _torch.where((a >= 1) & (b >= 1) & ~((a == 1) & (b == 1)), found, math.nan)

    def entropy(self):
        first, second = 1 - 1 / self.concentration1, 1 - 1 / self.concentration0
        harmonic = (self.concentration0 + 1).digamma() + euler_constant
        return second + first * harmonic - self.concentration1.log() - self.concentration0.log()


class Pareto(TransformedDistribution):
    """Values above ``scale`` with exponentially distributed logarithms."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale, alpha, validate_args=None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(Exponential(self.alpha, validate_args=validate_args), [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.greater_than_eq(self.scale)

    mode = property(lambda self: self.scale)

    @property
    def mean(self):
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def variance(self):
        a = self.alpha.clamp(min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self):
        return (self.scale / self.alpha).log() + (1 + 1 / self.alpha)


class Weibull(TransformedDistribution):
    """A power of an exponential variable."""

    arg_constraints, support = {"scale": constraints.positive, "concentration": constraints.positive}, constraints.positive

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(_torch.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)], validate_args=validate_args)

    mean = property(lambda self: self.scale * (1 + self.concentration_reciprocal).lgamma().exp())

    @property
    def mode(self):
        c = self.concentration
        return self.scale * (((c - 1) / c).clamp(min=0) ** c.reciprocal())

    @property
    def variance(self):
        r = self.concentration_reciprocal
        return self.scale**2 * ((1 + 2 * r).lgamma().exp() - (2 * (1 + r).lgamma()).exp())

    def entropy(self):
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + (self.scale * r).log() + 1


class VonMises(Distribution):
    """A distribution of angles around ``loc``. Samples are not differentiable."""

    arg_constraints, support = {"loc": constraints.real, "concentration": constraints.positive}, constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)

    def _ratio(self):
        """``log(I0)`` and ``I1 / I0`` of modified Bessel functions, by sums over a circle, accurate to the last digits."""
        steps = 512
        angle = (_torch.arange(steps, dtype=_C.float64, device=self.loc.device) + 0.5) * (2 * math.pi / steps)
        weights = self.concentration.double().unsqueeze(-1) * (angle.cos() - 1)
        log_zero = weights.logsumexp(-1) - math.log(steps) + self.concentration.double()
        return log_zero, (_nn.softmax(weights, -1) * angle.cos()).sum(-1)

    @property
    def variance(self):
        return (1 - self._ratio()[1]).to(self.loc.dtype)

    def log_prob(self, value):
        log_zero = self._ratio()[0].to(self.loc.dtype)
        return self.concentration * (value - self.loc).cos() - math.log(2 * math.pi) - log_zero

    def _draw(self, sample_shape):
        # Best and Fisher: rejection sampling of wrapped Cauchy angles.
        shape = self._extended(sample_shape)
        kappa = self.concentration.double().expand(shape)
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        r = _torch.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho**2) / (2 * rho))
        found, waiting = _torch.zeros_like(kappa), _torch.ones_like(kappa, dtype=_C.bool)
        while waiting.any():
            u1, u2, u3 = (_torch.rand_like(kappa) for _ in range(3))
            z = (math.pi * u1).cos()
            f = (1 + r * z) / (r + z)
            c = kappa * (r - f)
            accepted = waiting & ((c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0))
            found, waiting = _torch.where(accepted, (u3 - 0.5).sign() * f.clamp(-1, 1).acos(), found), waiting & ~accepted
        return ((found + math.pi + self.loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)


class GeneralizedPareto(Distribution):
    """Excesses over a high threshold."""

    arg_constraints, has_rsample = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}, True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.greater_than_eq(self.loc)

    def _flat(self):
        return self.concentration.abs() < 1e-12

    def _draw(self, sample_shape):
        return self.icdf(_torch.rand(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def icdf(self, value):
        k = _torch.where(self._flat(), 1.0, self.concentration)
        left = (-value).log1p()
        return self.loc + self.scale * _torch.where(self._flat(), -left, (-k * left).expm1() / k)

    def _log_survival(self, value):
        z = (value - self.loc) / self.scale
        k = _torch.where(self._flat(), 1.0, self.concentration)
        return _torch.where(self._flat(), -z, -(k * z).log1p() / k)

    def cdf(self, value):
        return -self._log_survival(value).expm1()

    def log_prob(self, value):
        inside = self._log_survival(value) * (1 + self.concentration) - self.scale.log()
        return _torch.where(value >= self.loc, inside, -math.inf)

    mean = property(lambda self: _torch.where(self.concentration < 1, self.loc + self.scale / (1 - self.concentration), math.inf))
    mode = property(lambda self: self.loc)

    @property
    def variance(self):
        k = self.concentration
        return _torch.where(k < 0.5, self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k)), math.inf)

    def entropy(self):
        return self.scale.log() + self.concentration + 1


_constrain(Cauchy, constraints.real, loc=constraints.real, scale=constraints.positive)
_constrain(StudentT, constraints.real, df=constraints.positive, loc=constraints.real, scale=constraints.positive)
