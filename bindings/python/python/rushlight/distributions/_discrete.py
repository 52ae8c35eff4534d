"""Discrete distributions: counts of events and trials, one-hot classes."""

from . import Categorical, Distribution, ExponentialFamily, _constrain, _nn, _tensors, _torch, constraints
from ._gamma import _gammas
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


class Poisson(ExponentialFamily):
    """Counts of events at a rate."""

    _names = ("rate",)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = _tensors(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def _draw(self, sample_shape):
        return _torch.poisson(self.rate.expand(self._extended(sample_shape)).contiguous())

    def log_prob(self, value):
        value, rate = _tensors(value, self.rate)
        return value.xlogy(rate) - rate - (value + 1).lgamma()


class OneHotCategorical(Distribution):
    """``Categorical`` with one-hot samples."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits, validate_args)
        self._names = self._categorical._names
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    probs = mean = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    variance = property(lambda self: self.probs * (1 - self.probs))
    param_shape = property(lambda self: self._categorical.param_shape)

    @property
    def mode(self):
        return _nn.one_hot(self.probs.argmax(-1), self.event_shape[0]).to(self.probs.dtype)

    def _draw(self, sample_shape):
        return _nn.one_hot(self._categorical._draw(sample_shape), self.event_shape[0]).to(self.probs.dtype)

    has_enumerate_support = True

    def enumerate_support(self, expand=True):
        size = self.event_shape[0]
        values = _torch.eye(size, dtype=self.probs.dtype, device=self.probs.device).reshape([size] + [1] * len(self.batch_shape) + [size])
        return values.expand([size, *self.batch_shape, size]) if expand else values

    def log_prob(self, value):
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """``OneHotCategorical`` with straight-through gradients to the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class _Binary(Distribution):
    """Distributions with a probability, given as such or as its logit."""

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
        if self._validate_args and probs is not None and not (given > 0).all():
            raise ValueError(
                f"Expected parameter probs (Tensor of shape {tuple(given.shape)}) of distribution {self!r} to be positive but found invalid values:\n{given}"
            )

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

    has_enumerate_support = True

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
        return constant + value * logits + n * _nn.logsigmoid(-logits)

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


_constrain(Poisson, constraints.nonnegative_integer, rate=constraints.nonnegative)
_constrain(OneHotCategorical, constraints.one_hot, probs=constraints.simplex, logits=constraints.real_vector)
