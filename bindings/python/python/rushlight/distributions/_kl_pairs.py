"""Divergences of distributions of different families: the mean of ``-log q`` under ``p``, less the entropy of ``p``."""

import math

from . import Bernoulli, Exponential, ExponentialFamily, Laplace, Normal, Uniform, _torch
from ._continuous import Gumbel, Pareto
from ._discrete import Binomial, Poisson
from ._gamma import Beta, Gamma
from ._relaxed import ContinuousBernoulli
from .utils import _recording, _sum_rightmost

_INFINITY = math.inf


def _infinite_where(condition, value):
    return _torch.where(condition, _INFINITY, value)


# The mean of -log q, from moments under p.


def _exponential(q, mean):
    return q.rate * mean - q.rate.log()


def _gamma(q, mean, mean_log):
    return q.concentration.lgamma() - q.concentration * q.rate.log() - (q.concentration - 1) * mean_log + q.rate * mean


def _normal(q, mean, variance):
    return q.scale.log() + 0.5 * math.log(2 * math.pi) + ((mean - q.loc) ** 2 + variance) / (2 * q.scale**2)


def _beta(q, mean_log, mean_log_rest):
    a, b = q.concentration1, q.concentration0
    return a.lgamma() + b.lgamma() - (a + b).lgamma() - (a - 1) * mean_log - (b - 1) * mean_log_rest


def _continuous_bernoulli(q, mean):
    return -mean * q.logits - (-q.probs).log1p() - q._log_norm()


def _gumbel(q, mean, mean_decay):
    """``mean_decay`` is the mean of ``exp(-x / scale)``."""
    return q.scale.log() + (mean - q.loc) / q.scale + (q.loc / q.scale).exp() * mean_decay


def _beta_logs(p):
    total = (p.concentration1 + p.concentration0).digamma()
    return p.concentration1.digamma() - total, p.concentration0.digamma() - total


def _uniform_log(low, high):
    """The mean of the logarithm of a uniform variable."""
    return (high.xlogy(high) - low.xlogy(low)) / (high - low) - 1


def register(register_kl):
    """Registers the formulas."""

    def add(type_p, type_q):
        return register_kl(type_p, type_q)

    everywhere = (Gumbel, Laplace, Normal)
    outside = [(p, q) for p in everywhere for q in (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)]
    outside += [(p, q) for p in (Exponential, Gamma) for q in (Beta, ContinuousBernoulli, Pareto, Uniform)]
    outside += [(p, q) for p in (Pareto,) for q in (Beta, ContinuousBernoulli, Uniform)]
    outside += [(Beta, Pareto), (ContinuousBernoulli, Pareto), (Poisson, Bernoulli), (Poisson, Binomial)]
    parameter = {Gumbel: "loc", Laplace: "loc", Normal: "loc", Exponential: "rate", Gamma: "concentration", Pareto: "scale", Beta: "concentration1",
                 ContinuousBernoulli: "probs", Poisson: "rate"}
    for type_p, type_q in outside:
        # Samples of p can be where q has no density.
        add(type_p, type_q)(lambda p, q, name=parameter[type_p]: _torch.full_like(getattr(p, name), _INFINITY))

    @add(Bernoulli, Poisson)
    def bernoulli_poisson(p, q):
        return -p.entropy() - (p.probs * q.rate.log() - q.rate)

    @add(Beta, ContinuousBernoulli)
    def beta_continuous_bernoulli(p, q):
        return _continuous_bernoulli(q, p.mean) - p.entropy()

    @add(Beta, Exponential)
    def beta_exponential(p, q):
        return _exponential(q, p.mean) - p.entropy()

    @add(Beta, Gamma)
    def beta_gamma(p, q):
        return _gamma(q, p.mean, _beta_logs(p)[0]) - p.entropy()

    @add(Beta, Normal)
    @add(ContinuousBernoulli, Normal)
    @add(Exponential, Normal)
    @add(Gamma, Normal)
    @add(Gumbel, Normal)
    @add(Laplace, Normal)
    def any_normal(p, q):
        return _normal(q, p.mean, p.variance) - p.entropy()

    @add(Beta, Uniform)
    def beta_uniform(p, q):
        return _infinite_where((q.low > 0) | (q.high < 1), (q.high - q.low).log() - p.entropy())

    # As in PyTorch, an interval that ends where the other's support does counts as outside.
    @add(ContinuousBernoulli, Uniform)
    def continuous_bernoulli_uniform(p, q):
        return _infinite_where((q.low >= 0) | (q.high <= 1), (q.high - q.low).log() - p.entropy())

    @add(ContinuousBernoulli, Exponential)
    def continuous_bernoulli_exponential(p, q):
        return _exponential(q, p.mean) - p.entropy()

    @add(Exponential, Gumbel)
    def exponential_gumbel(p, q):
        return _gumbel(q, p.mean, p.rate / (p.rate + 1 / q.scale)) - p.entropy()

    @add(Gamma, Gumbel)
    def gamma_gumbel(p, q):
        return _gumbel(q, p.mean, (1 + 1 / (p.rate * q.scale)) ** -p.concentration) - p.entropy()

    @add(Normal, Gumbel)
    def normal_gumbel(p, q):
        return _gumbel(q, p.mean, (0.5 * (p.scale / q.scale) ** 2 - p.loc / q.scale).exp()) - p.entropy()

    @add(Uniform, Gumbel)
    def uniform_gumbel(p, q):
        decay = q.scale * ((-p.low / q.scale).exp() - (-p.high / q.scale).exp()) / (p.high - p.low)
        return _gumbel(q, p.mean, decay) - p.entropy()

    @add(Normal, Laplace)
    def normal_laplace(p, q):
        away = p.loc - q.loc
        distance = p.scale * math.sqrt(2 / math.pi) * (-0.5 * (away / p.scale) ** 2).exp() + away * (away / (p.scale * math.sqrt(2))).erf()
        return (2 * q.scale).log() + distance / q.scale - p.entropy()

    @add(Pareto, Exponential)
    def pareto_exponential(p, q):
        return _infinite_where(p.alpha <= 1, _exponential(q, p.mean) - p.entropy())

    @add(Pareto, Gamma)
    def pareto_gamma(p, q):
        return _infinite_where(p.alpha <= 1, _gamma(q, p.mean, p.scale.log() + 1 / p.alpha) - p.entropy())

    @add(Pareto, Normal)
    def pareto_normal(p, q):
        return _infinite_where(p.alpha <= 2, _normal(q, p.mean, p.variance) - p.entropy())

    @add(Uniform, Beta)
    def uniform_beta(p, q):
        inside = _beta(q, _uniform_log(p.low, p.high), _uniform_log(1 - p.high, 1 - p.low)) - p.entropy()
        return _infinite_where((p.low < 0) | (p.high > 1), inside)

    @add(Uniform, ContinuousBernoulli)
    def uniform_continuous_bernoulli(p, q):
        return _infinite_where((p.low <= 0) | (p.high >= 1), _continuous_bernoulli(q, p.mean) - p.entropy())

    @add(Uniform, Exponential)
    def uniform_exponential(p, q):
        return _infinite_where(p.low < 0, _exponential(q, p.mean) - p.entropy())

    @add(Uniform, Gamma)
    def uniform_gamma(p, q):
        return _infinite_where(p.low < 0, _gamma(q, p.mean, _uniform_log(p.low, p.high)) - p.entropy())

    @add(Uniform, Pareto)
    def uniform_pareto(p, q):
        cross = (q.alpha + 1) * _uniform_log(p.low, p.high) - q.alpha.log() - q.alpha * q.scale.log()
        return _infinite_where(p.low < q.scale, cross - p.entropy())

    @add(ExponentialFamily, ExponentialFamily)
    def exponential_family(p, q):
        if type(p) is not type(q):
            raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")
        from ..autograd import grad

        with _recording():
            natural = [value.detach().requires_grad_() for value in p._natural_params]
            normaliser = p._log_normalizer(*natural)
            slopes = grad(normaliser.sum(), natural, create_graph=True)
        result = q._log_normalizer(*q._natural_params) - normaliser
        for mine, others, slope in zip(natural, q._natural_params, slopes):
            result = result - _sum_rightmost((others - mine) * slope, len(q.event_shape))
        return result

    return exponential_family
