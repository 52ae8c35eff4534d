"""The remaining distributions of numbers."""

import math

from .. import _C
from . import Distribution, Exponential, Normal, Uniform, constraints
from ._further import Cauchy, Chi2, Gamma, _gammas
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform, SigmoidTransform, StickBreakingTransform
from .utils import broadcast_all, clamp_probs, euler_constant, lazy_property, logits_to_probs, probs_to_logits

_torch, _nn = _C._torch, _C._nn


class ExponentialFamily(Distribution):
    """Distributions whose density is the exponential of a product of parameters and statistics."""


class _Binary(Distribution):
    """Distributions of a probability, given as such or as its logit."""

    def _init_probs(self, probs, logits, *others):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given, *others = broadcast_all(logits if probs is None else probs, *others)
        self.__dict__["logits" if probs is None else "probs"] = given
        self._given = "logits" if probs is None else "probs"
        return (given, *others)

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self):
        return self.__dict__[self._given].shape


class Geometric(_Binary):
    """Failures before the first success."""

    arg_constraints, support = {"probs": constraints.unit_interval, "logits": constraints.real}, constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        (given,) = self._init_probs(probs, logits)
        super().__init__(given.shape, validate_args=validate_args)

    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: _torch.zeros_like(self.probs))
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def _draw(self, sample_shape):
        u = _torch.rand(self._extended(sample_shape), dtype=self.probs.dtype, device=self.probs.device).clamp(min=1.1754943508222875e-38)
        return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        value, probs = broadcast_all(value, self.probs)
        probs = _torch.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self):
        return _nn.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(_Binary):
    """Successes in ``total_count`` trials."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        given, self.total_count = self._init_probs(probs, logits, total_count)
        self.total_count = self.total_count.to(given.dtype)
        super().__init__(given.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        most = int(self.total_count.max().item()) if self.total_count.numel() else 0
        trials = _torch.rand([most, *shape], dtype=self.probs.dtype, device=self.probs.device) < self.probs
        counted = _torch.arange(most, device=self.probs.device).reshape([most] + [1] * len(shape)) < self.total_count
        return (trials & counted).sum(0).to(self.probs.dtype)

    def log_prob(self, value):
        n, logits = self.total_count, self.logits
        constant = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return constant + value * logits - n * (logits.clamp(min=0) + (-logits.abs()).exp().log1p())

    def enumerate_support(self, expand=True):
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = _torch.arange(1 + count, dtype=self.probs.dtype, device=self.probs.device).reshape([-1] + [1] * len(self.batch_shape))
        return values.expand([-1, *self.batch_shape]) if expand else values

    def entropy(self):
        values = self.enumerate_support(False)
        logs = self.log_prob(values)
        return -(logs.exp() * logs).sum(0)


class NegativeBinomial(_Binary):
    """Successes before ``total_count`` failures."""

    arg_constraints = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        given, self.total_count = self._init_probs(probs, logits, total_count)
        self.total_count = self.total_count.to(given.dtype)
        super().__init__(given.shape, validate_args=validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        return _torch.poisson((_gammas(self.total_count.expand(shape)) * self.logits.exp()).contiguous())

    def log_prob(self, value):
        plain = self.total_count * _nn.logsigmoid(-self.logits) + value * _nn.logsigmoid(self.logits)
        constant = -(self.total_count + value).lgamma() + (1.0 + value).lgamma() + self.total_count.lgamma()
        return plain - _torch.where(self.total_count + value == 0.0, 0.0, constant)


class ContinuousBernoulli(_Binary):
    """Numbers between 0 and 1 with the density of ``Bernoulli``."""

    arg_constraints, support, has_rsample = {"probs": constraints.unit_interval, "logits": constraints.real}, constraints.unit_interval, True

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        (given,) = self._init_probs(probs, logits)
        self._lims = lims
        super().__init__(given.shape, validate_args=validate_args)

    def _outside(self):
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self):
        return _torch.where(self._outside(), clamp_probs(self.probs), self._lims[0])

    def _log_norm(self):
        cut = self._cut_probs()
        low, high = _torch.where(cut <= 0.5, cut, 0.0), _torch.where(cut >= 0.5, cut, 1.0)
        log_norm = ((-cut).log1p() - cut.log()).abs().log() - _torch.where(cut <= 0.5, (-2 * low).log1p(), (2 * high - 1).log())
        x = (clamp_probs(self.probs) - 0.5) ** 2
        return _torch.where(self._outside(), log_norm, math.log(2.0) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self):
        cut = self._cut_probs()
        x = self.probs - 0.5
        taylor = 0.5 + (1 / 3 + 16 / 45 * x**2) * x
        return _torch.where(self._outside(), cut / (2 * cut - 1) + 1 / ((-cut).log1p() - cut.log()), taylor)

    @property
    def variance(self):
        cut = self._cut_probs()
        x = (clamp_probs(self.probs) - 0.5) ** 2
        exact = cut * (cut - 1) / (1 - 2 * cut) ** 2 + 1 / ((-cut).log1p() - cut.log()) ** 2
        return _torch.where(self._outside(), exact, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def _draw(self, sample_shape):
        u = _torch.rand(self._extended(sample_shape), dtype=self.probs.dtype, device=self.probs.device)
        return self.icdf(u)

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        return -_nn.binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_norm()

    def cdf(self, value):
        cut = self._cut_probs()
        found = (cut**value * (1 - cut) ** (1 - value) + cut - 1) / (2 * cut - 1)
        return _torch.where(self._outside(), found, value).clamp(0, 1)

    def icdf(self, value):
        cut = self._cut_probs()
        found = ((-cut + value * (2 * cut - 1)).log1p() - (-cut).log1p()) / (cut.log() - (-cut).log1p())
        return _torch.where(self._outside(), found, value)

    def entropy(self):
        p0, p1 = (-self.probs).log1p(), self.probs.log()
        return self.mean * (p0 - p1) - self._log_norm() - p0


class FisherSnedecor(Distribution):
    """The ratio of two means of squares."""

    arg_constraints, support, has_rsample = {"df1": constraints.positive, "df2": constraints.positive}, constraints.positive, False

    def __init__(self, df1, df2, validate_args=None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._first, self._second = Chi2(self.df1, validate_args=False), Chi2(self.df2, validate_args=False)
        super().__init__(self.df1.shape, validate_args=validate_args)

    mean = property(lambda self: _torch.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan))
    mode = property(lambda self: _torch.where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan))

    @property
    def variance(self):
        a, b = self.df1, _torch.where(self.df2 <= 4, math.nan, self.df2)
        return 2 * b**2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4))

    def _draw(self, sample_shape):
        tiny = 1.1754943508222875e-38
        return (self._first._draw(sample_shape) / self.df1 / (self._second._draw(sample_shape) / self.df2).clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value):
        ratio, a, b = self.df1 / self.df2, self.df1 / 2, self.df2 / 2
        first = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return first + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()


class InverseGamma(TransformedDistribution):
    """One over a gamma number."""

    arg_constraints, support = {"concentration": constraints.positive, "rate": constraints.positive}, constraints.positive

    def __init__(self, concentration, rate, validate_args=None):
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-_torch.ones_like(base.rate)), validate_args=validate_args)

    concentration = property(lambda self: self.base_dist.concentration)
    rate = property(lambda self: self.base_dist.rate)
    mean = property(lambda self: _torch.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf))
    mode = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def variance(self):
        a = self.concentration
        return _torch.where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)

    def entropy(self):
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class HalfCauchy(TransformedDistribution):
    """The absolute value of a Cauchy number."""

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
    """Numbers above ``scale`` whose logarithms are exponential."""

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
    """Powers of exponential numbers."""

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


class LogisticNormal(TransformedDistribution):
    """Normal vectors broken into probabilities."""

    arg_constraints, support, has_rsample = {"loc": constraints.real, "scale": constraints.positive}, constraints.simplex, True

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)


class _LogitRelaxedBernoulli(_Binary):
    """The logits of ``RelaxedBernoulli``."""

    arg_constraints, support, has_rsample = {"probs": constraints.unit_interval, "logits": constraints.real}, constraints.real, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        (given,) = self._init_probs(probs, logits)
        super().__init__(given.shape, validate_args=validate_args)

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(_torch.rand(shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        away = logits - value * self.temperature
        return self.temperature.log() + away - 2 * away.exp().log1p() if isinstance(self.temperature, _C.Tensor) else (
            math.log(self.temperature) + away - 2 * away.exp().log1p()
        )


LogitRelaxedBernoulli = _LogitRelaxedBernoulli


class RelaxedBernoulli(TransformedDistribution):
    """``Bernoulli`` softened by a temperature, so that gradients reach the probability."""

    arg_constraints, support, has_rsample = {"probs": constraints.unit_interval, "logits": constraints.real}, constraints.unit_interval, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args=validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class VonMises(Distribution):
    """Angles around ``loc``. Samples are not differentiable."""

    arg_constraints, support = {"loc": constraints.real, "concentration": constraints.positive}, constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)

    def _ratio(self):
        """The modified Bessel functions of order 0 (its logarithm) and 1 over 0, by sums over a circle, exact to the last digits."""
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
        # Best and Fisher: a wrapped Cauchy angle, accepted or drawn again.
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
    """What exceeds a high threshold."""

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
