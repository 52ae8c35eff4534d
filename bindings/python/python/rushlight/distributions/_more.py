"""The remaining distributions of ``torch.distributions``."""

import math

from .. import _C
from .._size import Size
from . import Categorical, Distribution, Exponential, Normal, Uniform, constraints
from ._further import Beta, Cauchy, Chi2, Gamma, MultivariateNormal, _gammas
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform, SigmoidTransform, StickBreakingTransform
from .utils import _standard_normal, broadcast_all, clamp_probs, euler_constant, lazy_property, logits_to_probs, probs_to_logits

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


class ExpRelaxedCategorical(Distribution):
    """The logarithms of ``RelaxedOneHotCategorical``."""

    arg_constraints, support, has_rsample = {"probs": constraints.simplex, "logits": constraints.real_vector}, constraints.real_vector, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self._categorical, self.temperature = Categorical(probs, logits), temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    logits = property(lambda self: self._categorical.logits)
    probs = property(lambda self: self._categorical.probs)
    param_shape = property(lambda self: self._categorical.param_shape)

    def expand(self, batch_shape, _instance=None):
        return ExpRelaxedCategorical(self.temperature, logits=self.logits.expand([*batch_shape, *self.event_shape]), validate_args=False)

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        u = clamp_probs(_torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value):
        count = self.event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        temperature = _torch.full_like(self.logits[..., 0], 1.0) * self.temperature
        constant = math.lgamma(count) - temperature.log() * -(count - 1)
        score = logits - value * self.temperature
        return (score - score.logsumexp(-1, keepdim=True)).sum(-1) + constant


class RelaxedOneHotCategorical(TransformedDistribution):
    """``OneHotCategorical`` softened by a temperature."""

    arg_constraints, support, has_rsample = {"probs": constraints.simplex, "logits": constraints.real_vector}, constraints.simplex, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class Multinomial(Distribution):
    """How often each class came in ``total_count`` draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count, self._categorical = total_count, Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    logits = property(lambda self: self._categorical.logits)
    probs = property(lambda self: self._categorical.probs)
    param_shape = property(lambda self: self._categorical.param_shape)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def expand(self, batch_shape, _instance=None):
        return Multinomial(self.total_count, logits=self.logits.expand([*batch_shape, *self.event_shape]), validate_args=False)

    def _draw(self, sample_shape):
        drawn = self._categorical._draw((self.total_count, *sample_shape))
        return _nn.one_hot(drawn, self.event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        logits = _torch.where((value == 0) & (logits == -math.inf), 0.0, logits)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (logits * value).sum(-1)

    def entropy(self):
        n = self.total_count
        counts = Binomial(n, probs=self.probs, validate_args=False)
        values = counts.enumerate_support(False)[1:]
        weights = (counts.log_prob(values).exp() * (values + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + weights


class MixtureSameFamily(Distribution):
    """A choice among the distributions in the last batch dimension of another."""

    arg_constraints = {}

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of torch.distributions.Categorical")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        batch, event = component_distribution.batch_shape[:-1], component_distribution.event_shape
        if mixture_distribution.param_shape[-1] != component_distribution.batch_shape[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.param_shape[-1]}) does not equal `component_distribution.batch_shape[-1]` "
                f"({component_distribution.batch_shape[-1]})"
            )
        super().__init__(batch, event, validate_args=validate_args)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    def _weights(self):
        return self._mixture_distribution.probs.reshape(*self._mixture_distribution.probs.shape, *[1] * len(self.event_shape))

    @property
    def mean(self):
        return (self._weights() * self._component_distribution.mean).sum(-1 - len(self.event_shape))

    @property
    def variance(self):
        at = -1 - len(self.event_shape)
        within = (self._weights() * self._component_distribution.variance).sum(at)
        away = self._component_distribution.mean - self.mean.unsqueeze(at)
        return within + (self._weights() * away**2).sum(at)

    def cdf(self, value):
        return (self._component_distribution.cdf(value.unsqueeze(-1)) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value):
        logs = self._component_distribution.log_prob(value.unsqueeze(-1 - len(self.event_shape)))
        return (logs + _nn.log_softmax(self._mixture_distribution.logits, -1)).logsumexp(-1)

    def _draw(self, sample_shape):
        at, events = len(sample_shape) + len(self.batch_shape), len(self.event_shape)
        chosen = self._mixture_distribution.sample(sample_shape)
        samples = self._component_distribution.sample(sample_shape)
        index = chosen.reshape(*chosen.shape, *[1] * (events + 1)).expand([*chosen.shape, 1, *self.event_shape])
        return samples.gather(at, index).squeeze(at)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors whose covariance is a diagonal and a product of a narrow matrix with itself."""

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2), "cov_diag": constraints.independent(constraints.positive, 1)}
    support, has_rsample = constraints.real_vector, True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1 or cov_factor.dim() < 2:
            raise ValueError("loc must be at least one-dimensional, cov_factor at least two-dimensional")
        size = loc.shape[-1]
        if cov_factor.shape[-2] != size or cov_diag.shape[-1] != size:
            raise ValueError(f"cov_factor and cov_diag must have the size of loc, {size}")
        batch = _torch._broadcast_tensors([loc[..., 0], cov_factor[..., 0, 0], cov_diag[..., 0]])[0].shape
        self.loc, self.cov_diag = loc.expand([*batch, size]), cov_diag.expand([*batch, size])
        self.cov_factor = cov_factor.expand([*batch, *cov_factor.shape[-2:]])
        super().__init__(batch, (size,), validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: (self.cov_factor**2).sum(-1) + self.cov_diag)
    covariance_matrix = property(lambda self: self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed())
    precision_matrix = property(lambda self: _C._linalg.inv(self.covariance_matrix))
    scale_tril = property(lambda self: _C._linalg.cholesky(self.covariance_matrix))

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        narrow = _standard_normal([*shape[:-1], self.cov_factor.shape[-1]], self.loc.dtype, self.loc.device)
        return self.loc + (self.cov_factor @ narrow.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * _standard_normal(shape, self.loc.dtype, self.loc.device)

    def _whole(self):
        return MultivariateNormal(self.loc, self.covariance_matrix, validate_args=False)

    def log_prob(self, value):
        return self._whole().log_prob(value)

    def entropy(self):
        return self._whole().entropy()


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
        # Best and Fisher: a wrapped Cauchy angle, accepted or drawn anew.
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


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices."""

    arg_constraints, support = {"concentration": constraints.positive}, constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, Size((dim, dim)), validate_args=validate_args)
        offset = _torch.arange(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        offset = _torch.cat([offset.new_zeros(1), offset])
        marginal = self.concentration.unsqueeze(-1) + 0.5 * (dim - 2)
        self._beta = Beta(offset + 0.5, marginal - 0.5 * offset, validate_args=False)

    def expand(self, batch_shape, _instance=None):
        return LKJCholesky(self.dim, self.concentration.expand(batch_shape), validate_args=False)

    def _draw(self, sample_shape):
        # The onion method: each row is a direction times the root of a beta number.
        y = self._beta.sample(sample_shape).unsqueeze(-1)
        u = _torch.randn(self._extended(sample_shape), dtype=y.dtype, device=y.device).tril(-1)
        u = u / (u**2).sum(-1, keepdim=True).sqrt()
        u = _torch.cat([_torch.zeros_like(u[..., :1, :]), u[..., 1:, :]], -2)
        w = y.sqrt() * u
        tiny = 1.1754943508222875e-38
        return w + (1 - (w**2).sum(-1)).clamp(min=tiny).sqrt().diag_embed()

    def log_prob(self, value):
        d = self.dim
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = _torch.arange(2, d + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + d - order
        unnormalised = (order * diagonal.log()).sum(-1)
        alpha = self.concentration + 0.5 * (d - 1)
        denominator = alpha.lgamma() * (d - 1)
        return unnormalised - (_mvlgamma(alpha - 0.5, d - 1) + 0.5 * (d - 1) * math.log(math.pi) - denominator)


def _mvlgamma(a, p):
    """The logarithm of the multivariate gamma function."""
    return p * (p - 1) / 4 * math.log(math.pi) + sum((a - 0.5 * j).lgamma() for j in range(p))


class Wishart(Distribution):
    """Sums of squares of ``df`` normal vectors, as matrices."""

    arg_constraints = {
        "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support, has_rsample = constraints.positive_definite, False

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if given[0].dim() < 2:
            raise ValueError("the matrix must be at least two-dimensional, with optional leading batch dimensions")
        size = given[0].shape[-1]
        df = df if isinstance(df, _C.Tensor) else _C.tensor(float(df), dtype=given[0].dtype, device=given[0].device)
        batch = _torch._broadcast_tensors([df, given[0][..., 0, 0]])[0].shape
        self.df = df.expand(batch)
        if (self.df <= size - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.")
        if scale_tril is None:
            scale_tril = _C._linalg.cholesky(_C._linalg.inv(precision_matrix) if covariance_matrix is None else covariance_matrix)
        self.scale_tril = scale_tril.expand([*batch, size, size])
        super().__init__(batch, (size, size), validate_args=validate_args)

    covariance_matrix = property(lambda self: self.scale_tril @ self.scale_tril.mT)
    precision_matrix = property(lambda self: _C._linalg.inv(self.covariance_matrix))
    mean = property(lambda self: self.df.reshape(*self.batch_shape, 1, 1) * self.covariance_matrix)

    @property
    def mode(self):
        factor = self.df - self.event_shape[-1] - 1
        return _torch.where(factor <= 0, math.nan, factor).reshape(*self.batch_shape, 1, 1) * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df.reshape(*self.batch_shape, 1, 1) * (v**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _draw(self, sample_shape):
        # Bartlett: a lower triangle of normal numbers under roots of sums of squares.
        shape = self._extended(sample_shape)
        size = self.event_shape[-1]
        df = self.df.unsqueeze(-1) - _torch.arange(size, dtype=self.df.dtype, device=self.df.device)
        squares = 2 * _gammas((df / 2).expand(shape[:-1]))
        noise = _torch.randn(shape, dtype=self.df.dtype, device=self.df.device).tril(-1) + squares.sqrt().diag_embed()
        factor = self.scale_tril @ noise
        return factor @ factor.mT

    def log_prob(self, value):
        size, nu = self.event_shape[-1], self.df
        determinant = self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        trace = (_C._linalg.inv(self.covariance_matrix) @ value).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -nu * (size * math.log(2) / 2 + determinant) - _mvlgamma(nu / 2, size) + (nu - size - 1) / 2 * _C._linalg.slogdet(value).logabsdet - trace / 2
        )

    def entropy(self):
        size, nu = self.event_shape[-1], self.df
        determinant = self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        digammas = sum(((nu - i) / 2).digamma() for i in range(size))
        return (size + 1) * (size * math.log(2) / 2 + determinant) + _mvlgamma(nu / 2, size) - (nu - size - 1) / 2 * digammas + nu * size / 2


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

