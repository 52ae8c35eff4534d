"""``kl_divergence``: the Kullback-Leibler divergence of two distributions; ``register_kl`` adds formulas for pairs of classes."""

import functools
import math

from .. import _C
from . import Bernoulli, Categorical, Distribution, Exponential, Independent, Laplace, Normal, Uniform

__all__ = ["kl_divergence", "register_kl"]

_torch, _nn = _C._torch, _C._nn
_registry = {}
#: The same under PyTorch's name.
_KL_REGISTRY = _registry


def register_kl(type_p, type_q):
    """A decorator: a function of two distributions that gives their divergence, for instances of these classes."""
    for kind in (type_p, type_q):
        # Any class, as in PyTorch: pyro's base of distributions is none of ours.
        if not isinstance(kind, type):
            raise TypeError(f"Expected type_p and type_q to be Distribution subclasses but got {kind}")

    def register(formula):
        _registry[type_p, type_q] = formula
        _formula.cache_clear()
        return formula

    return register


@functools.lru_cache(None)
def _formula(type_p, type_q):
    """The formula of the nearest base classes: by the first argument's class, then by the second's."""
    found = [(type_p.__mro__.index(p), type_q.__mro__.index(q), p, q) for p, q in _registry if issubclass(type_p, p) and issubclass(type_q, q)]
    if not found:
        return None
    _, _, p, q = min(found, key=lambda match: match[:2])
    return _registry[p, q]


def kl_divergence(p, q):
    """The mean under ``p`` of the difference of log-probabilities, of ``p`` minus that of ``q``."""
    formula = _formula(type(p), type(q))
    if formula is None:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")
    return formula(p, q)


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence of Independent distributions with different event dimensions is not implemented")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    terms = _torch.where((q.probs == 0).expand(terms.shape), math.inf, terms)
    return _torch.where((p.probs == 0).expand(terms.shape), 0.0, terms).sum(-1)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    ones = p.probs * (_nn.softplus(-q.logits) - _nn.softplus(-p.logits))
    zeros = (1 - p.probs) * (_nn.softplus(q.logits) - _nn.softplus(p.logits))
    ones = _torch.where(p.probs == 0, 0.0, _torch.where(q.probs == 0, math.inf, ones))
    return ones + _torch.where(p.probs == 1, 0.0, _torch.where(q.probs == 1, math.inf, zeros))


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return _torch.where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Uniform, Normal)
def _uniform_normal(p, q):
    width = p.high - p.low
    return (math.sqrt(math.pi * 2) * q.scale / width).log() + (width**2 / 12 + ((p.high + p.low - 2 * q.loc) / 2) ** 2) / (2 * q.scale**2)


def _register_lazy():
    from ._continuous import Cauchy, Gumbel, HalfNormal, LogNormal, Pareto
    from ._discrete import Binomial, Geometric, OneHotCategorical, Poisson
    from ._gamma import Beta, Dirichlet, Gamma
    from ._multivariate import LowRankMultivariateNormal, MultivariateNormal, Wishart, _mvlgamma
    from ._relaxed import ContinuousBernoulli
    from .transformed_distribution import TransformedDistribution

    @register_kl(Gamma, Gamma)
    def gamma(p, q):
        a, b = p.concentration, q.concentration
        return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)

    @register_kl(Exponential, Gamma)
    def exponential_gamma(p, q):
        ratio, euler = q.rate / p.rate, 0.57721566490153286060
        return -q.concentration * ratio.log() + ratio + q.concentration.lgamma() + q.concentration * euler - (1 + euler)

    @register_kl(Gamma, Exponential)
    def gamma_exponential(p, q):
        return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate

    @register_kl(Dirichlet, Dirichlet)
    def dirichlet(p, q):
        a, b = p.concentration, q.concentration
        total = a.sum(-1)
        constant = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
        return constant + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)

    @register_kl(Beta, Beta)
    def beta(p, q):
        return dirichlet(p._pair, q._pair)

    @register_kl(Poisson, Poisson)
    def poisson(p, q):
        return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)

    @register_kl(OneHotCategorical, OneHotCategorical)
    def one_hot(p, q):
        return _categorical(p._categorical, q._categorical)

    @register_kl(LogNormal, LogNormal)
    @register_kl(HalfNormal, HalfNormal)
    def of_base(p, q):
        return kl_divergence(p.base_dist, q.base_dist)

    @register_kl(TransformedDistribution, TransformedDistribution)
    def transformed(p, q):
        if p.transforms != q.transforms or p.event_shape != q.event_shape:
            raise NotImplementedError("kl_divergence of distributions with different transforms is not implemented")
        return kl_divergence(p.base_dist, q.base_dist)

    @register_kl(Gumbel, Gumbel)
    def gumbel(p, q):
        ratio, shift, euler = p.scale / q.scale, (q.loc - p.loc) / q.scale, 0.57721566490153286060
        mean = (p.loc + p.scale * euler - q.loc) / q.scale
        return q.scale.log() - p.scale.log() + mean + (shift + (1 + ratio).lgamma()).exp() - (1 + euler)

    @register_kl(ContinuousBernoulli, ContinuousBernoulli)
    def continuous_bernoulli(p, q):
        return p.mean * (p.logits - q.logits) + p._log_norm() + (-p.probs).log1p() - q._log_norm() - (-q.probs).log1p()

    @register_kl(Wishart, Wishart)
    def wishart(p, q):
        size = p.event_shape[-1]
        half_log_dets = [d.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1) for d in (p, q)]
        trace = (_C._linalg.inv(q.covariance_matrix) @ p.covariance_matrix).diagonal(dim1=-2, dim2=-1).sum(-1)
        digammas = sum(((p.df - i) / 2).digamma() for i in range(size))
        return (
            -q.df * (half_log_dets[0] - half_log_dets[1]) + p.df * (trace - size) / 2 - _mvlgamma(p.df / 2, size) + _mvlgamma(q.df / 2, size)
            + (p.df - q.df) / 2 * digammas
        )

    @register_kl(Geometric, Geometric)
    def geometric(p, q):
        return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits

    @register_kl(Binomial, Binomial)
    def binomial(p, q):
        found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
        return _torch.where(p.total_count > q.total_count, math.inf, found)

    @register_kl(Pareto, Pareto)
    def pareto(p, q):
        ratio = p.scale / q.scale
        alpha = q.alpha / p.alpha
        found = q.alpha * ratio.log() - alpha.log() + alpha - 1
        return _torch.where(p.scale < q.scale, math.inf, found)

    @register_kl(Cauchy, Cauchy)
    def cauchy(p, q):
        return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()

    @register_kl(MultivariateNormal, MultivariateNormal)
    def multivariate(p, q):
        size = p.event_shape[0]
        batch = _torch._broadcast_tensors([p._half_log_det(), q._half_log_det()])[0].shape
        factor = q.scale_tril.expand([*batch, size, size])
        spread = _C._linalg.solve_triangular(factor, p.scale_tril.expand([*batch, size, size]), upper=False)
        away = _C._linalg.solve_triangular(factor, (q.loc - p.loc).expand([*batch, size]).unsqueeze(-1), upper=False)
        return q._half_log_det() - p._half_log_det() + 0.5 * ((spread**2).sum((-2, -1)) + (away**2).sum((-2, -1)) - size)

    @register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
    @register_kl(LowRankMultivariateNormal, MultivariateNormal)
    @register_kl(MultivariateNormal, LowRankMultivariateNormal)
    def low_rank(p, q):
        whole = [d if isinstance(d, MultivariateNormal) else MultivariateNormal(d.loc, d.covariance_matrix, validate_args=False) for d in (p, q)]
        return multivariate(*whole)


_register_lazy()


def _register_pairs():
    from ._kl_pairs import register

    return register(register_kl)


_kl_expfamily_expfamily = _register_pairs()
