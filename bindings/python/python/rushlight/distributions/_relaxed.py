"""Continuous relaxations of the Bernoulli distribution."""

import math

from . import ExponentialFamily, _C, _nn, _torch, constraints
from ._discrete import _Binary
from .transformed_distribution import TransformedDistribution
from .transforms import SigmoidTransform
from .utils import broadcast_all, clamp_probs


class ContinuousBernoulli(_Binary, ExponentialFamily):
    """Numbers between 0 and 1 with the density of ``Bernoulli``."""

    arg_constraints, support, has_rsample = {"probs": constraints.unit_interval, "logits": constraints.real}, constraints.unit_interval, True

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        (given,) = self._init_probs(probs, logits)
        if probs is not None:
            if validate_args and not constraints.unit_interval.check(given).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(given)
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
    """``Bernoulli`` relaxed by a temperature, so that gradients reach the probability."""

    arg_constraints, support, has_rsample = {"probs": constraints.unit_interval, "logits": constraints.real}, constraints.unit_interval, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args=validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)
