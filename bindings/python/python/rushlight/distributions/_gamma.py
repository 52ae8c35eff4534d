"""The gamma family: Gamma, Chi2, Dirichlet, Beta, FisherSnedecor, InverseGamma."""

import math

from . import Distribution, ExponentialFamily, _constrain, _nn, _tensors, _torch, constraints
from ._implicit import _sample_dirichlet, _smallest, _standard_gamma
from .transformed_distribution import TransformedDistribution
from .transforms import PowerTransform
from .utils import broadcast_all


def _gammas(concentration):
    """Gamma samples of rate one."""
    return _standard_gamma(concentration)


class Gamma(ExponentialFamily):
    """Sums of waiting times: ``concentration`` of them at a ``rate``."""

    has_rsample, _takes_numbers, _names = True, True, ("concentration", "rate")

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = _tensors(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    def _like(self):
        return self.rate

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate**2)

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        drawn = _gammas(self.concentration.expand(shape)) / self.rate
        # A sample that underflows would have no density; the change is the data's alone, so that gradients pass.
        drawn.detach().clamp_(min=_smallest(drawn.dtype))
        return drawn

    def cdf(self, value):
        from ..special import gammainc

        return gammainc(self.concentration, self.rate * value)

    def log_prob(self, value):
        a, b = self.concentration, self.rate
        return a.xlogy(b) + (a - 1).xlogy(_tensors(value, a)[0]) - b * value - a.lgamma()

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """The sum of ``df`` squared normal variables."""

    def __init__(self, df, validate_args=None):
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, _torch.full_like(df, 0.5), validate_args)

    df = property(lambda self: self.concentration * 2)


class Dirichlet(ExponentialFamily):
    """Probabilities of classes, in the last dimension."""

    has_rsample, _names = True, ("concentration",)

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, keepdim=True))

    @property
    def mode(self):
        above = (self.concentration - 1).clamp(min=0)
        inner = above / above.sum(-1, keepdim=True)
        # If all concentrations are below one, the mode is a corner.
        corner = _nn.one_hot(inner.argmax(-1), self.concentration.shape[-1]).to(inner.dtype)
        return _torch.where((self.concentration < 1).all(-1, keepdim=True), corner, inner)

    @property
    def variance(self):
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def _draw(self, sample_shape):
        return _sample_dirichlet(self.concentration.expand(self._extended(sample_shape)))

    def log_prob(self, value):
        a = self.concentration
        return (a - 1).xlogy(value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self):
        a, classes = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (classes - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)


class Beta(ExponentialFamily):
    """A number between zero and one."""

    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = _tensors(concentration1, concentration0)
        self._pair = Dirichlet(_torch.stack([self.concentration1, self.concentration0], -1), validate_args=False)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    _names = ("concentration1", "concentration0")
    mean = property(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))
    mode = property(lambda self: self._pair.mode[..., 0])

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def _draw(self, sample_shape):
        return self._pair._draw(sample_shape).select(-1, 0)

    def log_prob(self, value):
        value = _tensors(value, self.concentration1)[0]
        return self._pair.log_prob(_torch.stack([value, 1 - value], -1))

    def entropy(self):
        return self._pair.entropy()


class FisherSnedecor(Distribution):
    """The F distribution: the ratio of two chi-squared variables over their degrees of freedom."""

    arg_constraints, support, has_rsample = {"df1": constraints.positive, "df2": constraints.positive}, constraints.positive, True

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
    """The reciprocal of a gamma variable."""

    arg_constraints, support, has_rsample = {"concentration": constraints.positive, "rate": constraints.positive}, constraints.positive, True

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


_constrain(Gamma, constraints.nonnegative, concentration=constraints.positive, rate=constraints.positive)
_constrain(Chi2, constraints.nonnegative, df=constraints.positive)
_constrain(Dirichlet, constraints.simplex, concentration=constraints.independent(constraints.positive, 1))
_constrain(Beta, constraints.unit_interval, concentration1=constraints.positive, concentration0=constraints.positive)
