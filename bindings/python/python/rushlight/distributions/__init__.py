"""``torch.distributions``: the distributions that policies and latent variables are made of."""

import math

from .. import _C
from .._size import Size

Tensor, _torch, _nn = _C.Tensor, _C._torch, _C._nn

#: Distributions that are loaded when first used.
_FURTHER = frozenset(
    "Beta Cauchy Chi2 Dirichlet Gamma Gumbel HalfNormal LogNormal MultivariateNormal OneHotCategorical OneHotCategoricalStraightThrough Poisson StudentT"
    .split()
)

__all__ = ["Bernoulli", "Categorical", "Distribution", "Exponential", "Independent", "Laplace", "Normal", "Uniform", "kl_divergence", *sorted(_FURTHER)]


def _tensors(*values):
    """Parameters as tensors of one size."""
    like = next((v for v in values if isinstance(v, Tensor)), None)
    made = {} if like is None else {"dtype": like.dtype, "device": like.device}
    return _torch._broadcast_tensors([v if isinstance(v, Tensor) else _C.tensor(float(v), **made) for v in values])


def _check(validate_args, kind, name, value, good, constraint):
    """Raises unless all values of a parameter are good, as PyTorch does unless told not to."""
    if validate_args is not False and not good(value).all():
        raise ValueError(
            f"Expected parameter {name} (Tensor of shape {tuple(value.shape)}) of distribution {kind}() to satisfy the constraint {constraint}, but found "
            f"invalid values:\n{value}"
        )


_POSITIVE = (lambda value: value > 0, "GreaterThan(lower_bound=0.0)")
_PROBABILITY = (lambda value: (value >= 0) & (value <= 1), "Interval(lower_bound=0.0, upper_bound=1.0)")


class Distribution:
    """A distribution over tensors. ``sample`` draws; ``rsample`` draws so that gradients reach the parameters."""

    has_rsample = False

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)

    @property
    def batch_shape(self):
        return self._batch_shape

    @property
    def event_shape(self):
        return self._event_shape

    def _extended(self, sample_shape):
        return [*sample_shape, *self._batch_shape, *self._event_shape]

    def sample(self, sample_shape=()):
        before = _C._set_grad_enabled(False)
        try:
            return self._draw(sample_shape)
        finally:
            _C._set_grad_enabled(before)

    def rsample(self, sample_shape=()):
        if not self.has_rsample:
            raise NotImplementedError(f"{type(self).__name__}.rsample: its samples are not differentiable")
        return self._draw(sample_shape)

    def sample_n(self, n):
        return self.sample((n,))

    @property
    def stddev(self):
        return self.variance.sqrt()

    def log_prob(self, value):
        raise NotImplementedError(f"{type(self).__name__}.log_prob: not known")

    def entropy(self):
        raise NotImplementedError(f"{type(self).__name__}.entropy: not known")

    def prob(self, value):
        return self.log_prob(value).exp()

    def perplexity(self):
        return self.entropy().exp()

    def __repr__(self):
        names = getattr(self, "_names", ())
        shown = (f"{n}: {getattr(self, n)}" if getattr(self, n).numel() == 1 else f"{n}: {getattr(self, n).shape}" for n in names)
        return f"{type(self).__name__}({', '.join(shown)})"


class Normal(Distribution):
    """The normal distribution with mean ``loc`` and deviation ``scale``."""

    has_rsample, _names = True, ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = _tensors(loc, scale)
        _check(validate_args, "Normal", "scale", self.scale, *_POSITIVE)
        super().__init__(self.loc.shape)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: self.scale**2)

    def _draw(self, sample_shape):
        return self.loc + self.scale * _torch.randn(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)

    def log_prob(self, value):
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value):
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value):
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


class Laplace(Distribution):
    """The two-sided exponential distribution."""

    has_rsample, _names = True, ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = _tensors(loc, scale)
        _check(validate_args, "Laplace", "scale", self.scale, *_POSITIVE)
        super().__init__(self.loc.shape)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: 2 * self.scale**2)

    def _draw(self, sample_shape):
        # Between the ends, whose logarithm would not be finite.
        u = (_torch.rand(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device) - 0.5).clamp(min=-0.5 + 1e-7)
        return self.loc - self.scale * u.sign() * (-2 * u.abs()).log1p()

    def log_prob(self, value):
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def entropy(self):
        return 1 + (2 * self.scale).log()


class Uniform(Distribution):
    """Equal density from ``low`` to ``high``."""

    has_rsample, _names = True, ("low", "high")

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = _tensors(low, high)
        if validate_args is not False and not (self.low < self.high).all():
            raise ValueError("Uniform is not defined when low>= high")
        super().__init__(self.low.shape)

    mean = property(lambda self: (self.high + self.low) / 2)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def _draw(self, sample_shape):
        return self.low + _torch.rand(self._extended(sample_shape), dtype=self.low.dtype, device=self.low.device) * (self.high - self.low)

    def log_prob(self, value):
        inside = (value >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value):
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def entropy(self):
        return (self.high - self.low).log()


class Exponential(Distribution):
    """Waiting times at a rate."""

    has_rsample, _names = True, ("rate",)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = _tensors(rate)
        _check(validate_args, "Exponential", "rate", self.rate, *_POSITIVE)
        super().__init__(self.rate.shape)

    mean = property(lambda self: 1 / self.rate)
    variance = property(lambda self: self.rate**-2)

    def _draw(self, sample_shape):
        return _torch.empty(self._extended(sample_shape), dtype=self.rate.dtype, device=self.rate.device).exponential_() / self.rate

    def log_prob(self, value):
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        return 1 - (-self.rate * value).exp()

    def entropy(self):
        return 1 - self.rate.log()


def _one_of(probs, logits, name):
    if (probs is None) == (logits is None):
        raise ValueError(f"Either `probs` or `logits` must be specified, but not both ({name}).")


class Bernoulli(Distribution):
    """One with a probability, else zero."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits, "Bernoulli")
        (given,) = _tensors(logits if probs is None else probs)
        if probs is not None:
            _check(validate_args, "Bernoulli", "probs", given, *_PROBABILITY)
        eps = _EPS[given.dtype]
        self.probs = given.sigmoid() if probs is None else given
        self.logits = given if probs is None else given.clamp(eps, 1 - eps).logit()
        self._names = ("logits",) if probs is None else ("probs",)
        super().__init__(given.shape)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _draw(self, sample_shape):
        return _torch.bernoulli(self.probs.expand(self._extended(sample_shape)).contiguous())

    def log_prob(self, value):
        logits, value = _torch._broadcast_tensors([self.logits, value])
        return -_nn.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return _nn.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


_EPS = {_C.float32: 2.0**-23, _C.float64: 2.0**-52, _C.float16: 2.0**-10, _C.bfloat16: 2.0**-7}


class Categorical(Distribution):
    """Numbers of classes by their probabilities, which lie in the last dimension."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits, "Categorical")
        given = logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError("Categorical: parameters must be at least one-dimensional.")
        if probs is not None:
            if validate_args is not False and not ((given >= 0).all() and (given.sum(-1) > 0).all()):
                raise ValueError("Expected parameter probs of distribution Categorical() to satisfy the constraint Simplex(), but found invalid values")
            self.probs = given / given.sum(-1, keepdim=True)
            eps = _EPS[given.dtype]
            self.logits = self.probs.clamp(eps, 1 - eps).log()
        else:
            self.logits = given - given.logsumexp(-1, keepdim=True)
            self.probs = _nn.softmax(given, -1)
        self._names = ("logits",) if probs is None else ("probs",)
        self._classes = given.shape[-1]
        super().__init__(given.shape[:-1])

    mode = property(lambda self: self.probs.argmax(-1))
    param_shape = property(lambda self: self.probs.shape)

    def _draw(self, sample_shape):
        count = math.prod(sample_shape)
        drawn = _torch.multinomial(self.probs.reshape(-1, self._classes), count, True)
        return drawn.T.reshape(self._extended(sample_shape))

    def log_prob(self, value):
        value = value.long().unsqueeze(-1)
        shape = [max(a, b) for a, b in zip([1] * (value.dim() - self.logits.dim()) + list(self.logits.shape), value.shape)][:-1]
        logits = self.logits.expand([*shape, self._classes])
        return logits.gather(-1, value.expand([*shape, 1])).squeeze(-1)

    def entropy(self):
        return -(self.logits.clamp(min=-3.4e38) * self.probs).sum(-1)


class Independent(Distribution):
    """A distribution whose last dimensions count as one event: their log-probabilities are summed."""

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        self.base_dist, self._count = base_distribution, reinterpreted_batch_ndims
        shape = base_distribution.batch_shape
        split = len(shape) - reinterpreted_batch_ndims
        super().__init__(shape[:split], shape[split:] + base_distribution.event_shape)
        self.has_rsample = base_distribution.has_rsample

    mean = property(lambda self: self.base_dist.mean)
    variance = property(lambda self: self.base_dist.variance)

    def _draw(self, sample_shape):
        return self.base_dist._draw(sample_shape)

    def _summed(self, value):
        return value.sum(tuple(range(-self._count, 0))) if self._count else value

    def log_prob(self, value):
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self):
        return self._summed(self.base_dist.entropy())


def kl_divergence(p, q):
    """How far one distribution is from another of its kind."""
    if isinstance(p, Independent) and isinstance(q, Independent):
        return p._summed(kl_divergence(p.base_dist, q.base_dist))
    if isinstance(p, Normal) and isinstance(q, Normal):
        ratio = (p.scale / q.scale) ** 2
        return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        return (p.probs * (p.logits - q.logits)).sum(-1)
    if isinstance(p, Bernoulli) and isinstance(q, Bernoulli):
        return p.probs * (_nn.softplus(-q.logits) - _nn.softplus(-p.logits)) + (1 - p.probs) * (_nn.softplus(q.logits) - _nn.softplus(p.logits))
    if isinstance(p, Exponential) and isinstance(q, Exponential):
        ratio = q.rate / p.rate
        return -ratio.log() + ratio - 1
    return _further_divergence(p, q)


def _further_divergence(p, q):
    from ._further import Beta, Dirichlet, Gamma, MultivariateNormal, Poisson

    if isinstance(p, Gamma) and isinstance(q, Gamma):
        a, b = p.concentration, q.concentration
        return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)
    if isinstance(p, Beta) and isinstance(q, Beta):
        return _further_divergence(p._pair, q._pair)
    if isinstance(p, Dirichlet) and isinstance(q, Dirichlet):
        a, b = p.concentration, q.concentration
        total = a.sum(-1)
        constant = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
        return constant + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)
    if isinstance(p, Poisson) and isinstance(q, Poisson):
        return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)
    if isinstance(p, MultivariateNormal) and isinstance(q, MultivariateNormal):
        size = p.event_shape[0]
        batch = _torch._broadcast_tensors([p._half_log_det(), q._half_log_det()])[0].shape
        factor = q.scale_tril.expand([*batch, size, size])
        spread = _C._linalg.solve_triangular(factor, p.scale_tril.expand([*batch, size, size]), upper=False)
        away = _C._linalg.solve_triangular(factor, (q.loc - p.loc).expand([*batch, size]).unsqueeze(-1), upper=False)
        return q._half_log_det() - p._half_log_det() + 0.5 * ((spread**2).sum((-2, -1)) + (away**2).sum((-2, -1)) - size)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")


def __getattr__(name):
    if name in _FURTHER:
        from . import _further

        return getattr(_further, name)
    from .._functions import _missing

    return _missing(__name__, name)
