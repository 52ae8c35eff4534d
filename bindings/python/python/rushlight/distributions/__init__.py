"""``torch.distributions``: probability distributions."""

import functools
import math
import sys
import types
from importlib.machinery import ModuleSpec

from .. import _C
from .._size import Size
from . import constraints

Tensor, _torch, _nn = _C.Tensor, _C._torch, _C._nn

#: Names that are loaded on first use, by module.
_LAZY = {
    "_continuous": "Cauchy GeneralizedPareto Gumbel HalfCauchy HalfNormal Kumaraswamy LogNormal Pareto StudentT VonMises Weibull",
    "_discrete": "Binomial Geometric NegativeBinomial OneHotCategorical OneHotCategoricalStraightThrough Poisson",
    "_implicit": "_Dirichlet_backward _dirichlet_grad _sample_dirichlet _standard_gamma _standard_gamma_grad",
    "_gamma": "Beta Chi2 Dirichlet FisherSnedecor Gamma InverseGamma",
    "_multivariate": "_batch_mahalanobis _batch_mv _precision_to_scale_tril ExpRelaxedCategorical LKJCholesky LogisticNormal LowRankMultivariateNormal MixtureSameFamily Multinomial MultivariateNormal "
    "RelaxedOneHotCategorical Wishart",
    "_relaxed": "ContinuousBernoulli LogitRelaxedBernoulli RelaxedBernoulli",
    "transformed_distribution": "TransformedDistribution",
    "constraint_registry": "biject_to transform_to",
    "kl": "kl_divergence register_kl",
    "transforms": "AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform CumulativeDistributionTransform ExpTransform IndependentTransform "
    "LowerCholeskyTransform PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform SoftmaxTransform SoftplusTransform StackTransform "
    "StickBreakingTransform TanhTransform Transform identity_transform",
}
_PLACES = {name: module for module, names in _LAZY.items() for name in names.split()}

#: PyTorch's modules of one class each; the names of ``exp_family`` and others follow no rule.
_MODULES = {
    **{name: name.title().replace("_", "") for name in (
        "bernoulli beta binomial categorical cauchy chi2 continuous_bernoulli dirichlet distribution exponential fishersnedecor gamma geometric gumbel half_cauchy "
        "half_normal independent inverse_gamma kumaraswamy laplace log_normal logistic_normal lowrank_multivariate_normal mixture_same_family multinomial "
        "multivariate_normal negative_binomial normal pareto poisson relaxed_bernoulli relaxed_categorical uniform von_mises weibull wishart"
    ).split()},
    "exp_family": "ExponentialFamily", "fishersnedecor": "FisherSnedecor", "lkj_cholesky": "LKJCholesky", "lowrank_multivariate_normal": "LowRankMultivariateNormal",
    "one_hot_categorical": "OneHotCategorical OneHotCategoricalStraightThrough", "relaxed_bernoulli": "LogitRelaxedBernoulli RelaxedBernoulli",
    "relaxed_categorical": "ExpRelaxedCategorical RelaxedOneHotCategorical", "studentT": "StudentT", "generalized_pareto": "GeneralizedPareto",
}

__all__ = ["Bernoulli", "Categorical", "Distribution", "Exponential", "ExponentialFamily", "Independent", "Laplace", "Normal", "Uniform", *sorted(name for name in _PLACES if name not in ("ExpRelaxedCategorical", "LogitRelaxedBernoulli") and not name.startswith("_"))]


def _tensors(*values):
    """Parameters as tensors of one size."""
    like = next((v for v in values if isinstance(v, Tensor)), None)
    made = {} if like is None else {"dtype": like.dtype, "device": like.device}
    return _torch._broadcast_tensors([v if isinstance(v, Tensor) else _C.tensor(float(v), **made) for v in values])


def _validated(method):
    """``log_prob`` or ``cdf`` of this package's distributions: the value is checked first."""

    @functools.wraps(method)
    def checked(self, value):
        if self._takes_numbers and not isinstance(value, Tensor):
            value = _C.tensor(value, dtype=self._like().dtype, device=self._like().device)
        if self._validate_args:
            self._validate_sample(value)
        return method(self, value)

    return checked


class Distribution:
    """A distribution over tensors. ``sample`` draws; ``rsample`` draws so that gradients reach the parameters."""

    has_rsample = has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints = {}
    #: Whether ``log_prob`` also takes numbers.
    _takes_numbers = False
    #: Parameters that are computed from others where they are not given: only given ones are checked.
    _derived = ()

    def __init_subclass__(cls, validated=True, **kwargs):
        super().__init_subclass__(**kwargs)
        if validated and f"{cls.__module__}.".startswith((f"{__package__}.", f"{__name__}.")):
            for name in ("log_prob", "cdf"):
                if name in cls.__dict__:
                    setattr(cls, name, _validated(cls.__dict__[name]))

    @staticmethod
    def set_default_validate_args(value):
        """The default of ``validate_args``."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                value = self._parameter(name)
                if constraints.is_dependent(constraint) or not isinstance(value, Tensor):
                    continue
                if not constraint.check(value).all():
                    raise ValueError(
                        f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                        f"{constraint!r}, but found invalid values:\n{value}"
                    )
        super().__init__()

    def _parameter(self, name):
        """A parameter by its name; None if it is computed when it is first asked for."""
        if name in self.__dict__ or name in self._derived:
            return self.__dict__.get(name)
        from .utils import _LazyProperty

        found = getattr(type(self), name, None)
        return found.fget(self) if isinstance(found, property) and not isinstance(found, _LazyProperty) else None

    @property
    def batch_shape(self):
        return self._batch_shape

    @property
    def event_shape(self):
        return self._event_shape

    @property
    def support(self):
        raise NotImplementedError(f"{type(self).__name__}.support")

    def _extended(self, sample_shape):
        return [*sample_shape, *self._batch_shape, *self._event_shape]

    def _extended_shape(self, sample_shape=()):
        return Size(self._extended(sample_shape))

    def expand(self, batch_shape, _instance=None):
        """The same distribution for a larger batch: parameters are expanded."""
        made = self._get_checked_instance(type(self), _instance)
        rank = len(self._batch_shape)
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor):
                value = value.expand([*batch_shape, *value.shape[rank:]])
            elif isinstance(value, Distribution):
                inner = len(value.batch_shape) - rank
                value = value.expand([*batch_shape, *value.batch_shape[len(value.batch_shape) - inner:]] if inner else batch_shape)
            made.__dict__.setdefault(name, value)
        made._batch_shape = Size(batch_shape)
        return made

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also define a custom .expand() method.")
        return type(self).__new__(type(self)) if _instance is None else _instance

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

    def _draw(self, sample_shape):
        """Draws samples for ``sample``: by default with ``rsample``."""
        if type(self).rsample is Distribution.rsample:
            raise NotImplementedError(f"{type(self).__name__} has no samples")
        return self.rsample(sample_shape)

    def sample_n(self, n):
        return self.sample((n,))

    @property
    def mean(self):
        raise NotImplementedError(f"{type(self).__name__}.mean")

    @property
    def mode(self):
        raise NotImplementedError(f"{type(self).__name__}.mode is not implemented")

    @property
    def variance(self):
        raise NotImplementedError(f"{type(self).__name__}.variance")

    @property
    def stddev(self):
        return self.variance.sqrt()

    def log_prob(self, value):
        raise NotImplementedError(f"{type(self).__name__}.log_prob is not implemented")

    def cdf(self, value):
        raise NotImplementedError(f"{type(self).__name__}.cdf is not implemented")

    def icdf(self, value):
        raise NotImplementedError(f"{type(self).__name__}.icdf is not implemented")

    def enumerate_support(self, expand=True):
        raise NotImplementedError(f"{type(self).__name__}.enumerate_support is not implemented")

    def entropy(self):
        raise NotImplementedError(f"{type(self).__name__}.entropy is not implemented")

    def prob(self, value):
        return self.log_prob(value).exp()

    def perplexity(self):
        return self.entropy().exp()

    def _validate_sample(self, value):
        """Raises unless a value could be a sample."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        events = len(self._event_shape)
        if value.dim() < events or value.shape[value.dim() - events:] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}.")
        batch = value.shape[: value.dim() - events]
        for i, j in zip(reversed(batch), reversed(self._batch_shape)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {self._extended_shape()}.")
        try:
            support = self.support
        except NotImplementedError:
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support ({support!r}) of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def __repr__(self):
        names = getattr(self, "_names", None) or [name for name in self.arg_constraints if name in self.__dict__]
        shown = (f"{n}: {getattr(self, n)}" if getattr(self, n).numel() == 1 else f"{n}: {getattr(self, n).shape}" for n in names)
        return f"{type(self).__name__}({', '.join(shown)})"


class ExponentialFamily(Distribution):
    """Distributions whose density is the exponential of a product of parameters and statistics. ``entropy`` is a Bregman divergence of the log-normaliser."""

    @property
    def _natural_params(self):
        raise NotImplementedError(f"{type(self).__name__}._natural_params")

    def _log_normalizer(self, *natural_params):
        raise NotImplementedError(f"{type(self).__name__}._log_normalizer")

    @property
    def _mean_carrier_measure(self):
        raise NotImplementedError(f"{type(self).__name__}._mean_carrier_measure")

    def entropy(self):
        from ..autograd import grad
        from .utils import _recording, _sum_rightmost

        with _recording():
            natural = [p.detach().requires_grad_() for p in self._natural_params]
            normaliser = self._log_normalizer(*natural)
            slopes = grad(normaliser.sum(), natural, create_graph=True)
        result = -self._mean_carrier_measure + normaliser
        for parameter, slope in zip(natural, slopes):
            result = result - _sum_rightmost(parameter * slope, len((parameter * slope).shape) - len(self.batch_shape))
        return result


class Normal(ExponentialFamily):
    """The normal distribution with mean ``loc`` and standard deviation ``scale``."""

    has_rsample, _names = True, ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = _tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

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
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: 2 * self.scale**2)

    def _draw(self, sample_shape):
        # Excludes the ends, whose logarithm would not be finite.
        u = (_torch.rand(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device) - 0.5).clamp(min=-0.5 + 1e-7)
        return self.loc - self.scale * u.sign() * (-2 * u.abs()).log1p()

    def log_prob(self, value):
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value):
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * (-away.abs() / self.scale).expm1()

    def icdf(self, value):
        away = value - 0.5
        return self.loc - self.scale * away.sign() * (-2 * away.abs()).log1p()

    def entropy(self):
        return 1 + (2 * self.scale).log()


class Uniform(Distribution):
    """The uniform distribution from ``low`` to ``high``."""

    has_rsample, _names = True, ("low", "high")

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = _tensors(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError(f"Uniform is not defined when low>= high: low {self.low}, high {self.high}")

    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def _draw(self, sample_shape):
        return self.low + _torch.rand(self._extended(sample_shape), dtype=self.low.dtype, device=self.low.device) * (self.high - self.low)

    def log_prob(self, value):
        inside = (value >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value):
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()


class Exponential(ExponentialFamily):
    """The exponential distribution: waiting times at a rate."""

    has_rsample, _names = True, ("rate",)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = _tensors(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = property(lambda self: 1 / self.rate)
    mode = property(lambda self: _torch.zeros_like(self.rate))
    variance = property(lambda self: self.rate**-2)

    def icdf(self, value):
        return -(-value).log1p() / self.rate

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


class Bernoulli(ExponentialFamily):
    """The Bernoulli distribution: one with a probability, else zero."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits, "Bernoulli")
        (given,) = _tensors(logits if probs is None else probs)
        eps = _EPS[given.dtype]
        self.probs = given.sigmoid() if probs is None else given
        self.logits = given if probs is None else given.clamp(eps, 1 - eps).logit()
        self._names = ("logits",) if probs is None else ("probs",)
        super().__init__(given.shape, validate_args=validate_args)

    mean = property(lambda self: self.probs)
    mode = property(lambda self: _torch.where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype)))
    variance = property(lambda self: self.probs * (1 - self.probs))
    param_shape = property(lambda self: self.probs.shape)

    def _draw(self, sample_shape):
        return _torch.bernoulli(self.probs.expand(self._extended(sample_shape)).contiguous())

    def log_prob(self, value):
        logits, value = _torch._broadcast_tensors([self.logits, value])
        return -_nn.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return _nn.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


_EPS = {_C.float32: 2.0**-23, _C.float64: 2.0**-52, _C.float16: 2.0**-10, _C.bfloat16: 2.0**-7}


class Categorical(Distribution):
    """Class indices, by probabilities in the last dimension."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits, "Categorical")
        given = logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError("Categorical: parameters must be at least one-dimensional.")
        if probs is not None:
            self.probs = given / given.sum(-1, keepdim=True)
            eps = _EPS[given.dtype]
            self.logits = self.probs.clamp(eps, 1 - eps).log()
        else:
            self.logits = given - given.logsumexp(-1, keepdim=True)
            self.probs = _nn.softmax(given, -1)
        self._names = ("logits",) if probs is None else ("probs",)
        self._classes = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    mode = property(lambda self: self.probs.argmax(-1))
    mean = variance = property(lambda self: _torch.full(self.batch_shape, math.nan, dtype=self.probs.dtype, device=self.probs.device))
    param_shape = property(lambda self: self.probs.shape)

    def _draw(self, sample_shape):
        count = math.prod(sample_shape)
        drawn = _torch.multinomial(self.probs.reshape(-1, self._classes), count, True)
        return drawn.T.reshape(self._extended(sample_shape))

    def log_prob(self, value):
        value, logits = _torch._broadcast_tensors([value.long().unsqueeze(-1), self.logits])
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        return -(self.logits.clamp(min=-3.4e38) * self.probs).sum(-1)


class Independent(Distribution, validated=False):
    """A distribution whose last dimensions count as one event: their log-probabilities are summed."""

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        if reinterpreted_batch_ndims > len(base_distribution.batch_shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(base_distribution.batch_shape)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        shape = base_distribution.batch_shape
        split = len(shape) - reinterpreted_batch_ndims
        super().__init__(shape[:split], shape[split:] + base_distribution.event_shape, validate_args=validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @property
    def has_enumerate_support(self):
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self):
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"

    def expand(self, batch_shape, _instance=None):
        shape = [*batch_shape, *self.event_shape[: self.reinterpreted_batch_ndims]]
        return Independent(self.base_dist.expand(shape), self.reinterpreted_batch_ndims, validate_args=False)

    @constraints.dependent_property
    def support(self):
        inner = self.base_dist.support
        return constraints.independent(inner, self.reinterpreted_batch_ndims) if self.reinterpreted_batch_ndims else inner

    mode = property(lambda self: self.base_dist.mode)

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    mean = property(lambda self: self.base_dist.mean)
    variance = property(lambda self: self.base_dist.variance)

    def _summed(self, value):
        return value.sum(tuple(range(-self.reinterpreted_batch_ndims, 0))) if self.reinterpreted_batch_ndims else value

    def log_prob(self, value):
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self):
        return self._summed(self.base_dist.entropy())


def _constrain(kind, support, **parameters):
    """Sets the constraints of a distribution's parameters and samples."""
    kind.arg_constraints, kind.support = parameters, support


_constrain(Normal, constraints.real, loc=constraints.real, scale=constraints.positive)
_constrain(Laplace, constraints.real, loc=constraints.real, scale=constraints.positive)
_constrain(Exponential, constraints.nonnegative, rate=constraints.positive)
_constrain(Bernoulli, constraints.boolean, probs=constraints.unit_interval, logits=constraints.real)
_constrain(
    Uniform, constraints.dependent_property(lambda self: constraints.interval(self.low, self.high), is_discrete=False, event_dim=0), low=constraints.dependent,
    high=constraints.dependent,
)
_constrain(
    Categorical, constraints.dependent_property(lambda self: constraints.integer_interval(0, self._classes - 1), is_discrete=True, event_dim=0),
    probs=constraints.simplex, logits=constraints.real_vector,
)


def _enumerate_bernoulli(self, expand=True):
    values = _torch.arange(2, dtype=self.probs.dtype, device=self.probs.device).reshape([-1] + [1] * len(self.batch_shape))
    return values.expand([-1, *self.batch_shape]) if expand else values


def _enumerate_categorical(self, expand=True):
    values = _torch.arange(self._classes, device=self.probs.device).reshape([-1] + [1] * len(self.batch_shape))
    return values.expand([-1, *self.batch_shape]) if expand else values


Bernoulli.has_enumerate_support = Categorical.has_enumerate_support = True
Bernoulli.enumerate_support, Categorical.enumerate_support = _enumerate_bernoulli, _enumerate_categorical


def __getattr__(name):
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module("." + _PLACES[name], __name__), name)
    if name in ("constraint_registry", "kl", "transforms", "utils", "transformed_distribution"):
        import importlib

        return importlib.import_module("." + name, __name__)
    from .._functions import _missing

    return _missing(__name__, name)


def _place(name, names):
    """Creates the module in which PyTorch has a class."""
    module = types.ModuleType(f"{__name__}.{name}", f"Where PyTorch has {names}.")
    module.__spec__ = ModuleSpec(module.__name__, None)

    def find(wanted):
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return getattr(sys.modules[__name__], wanted)

    module.__getattr__, module.__all__ = find, names.split()
    sys.modules[module.__name__] = module
    globals()[name] = module


for _module, _names in _MODULES.items():
    _place(_module, _names)

# Libraries walk this module's dictionary (pyro makes a class of each distribution): nothing waits for its first use.
for _name in _PLACES:
    globals()[_name] = __getattr__(_name)

# Pickles and messages name PyTorch's module of a class.
for _module, _names in _MODULES.items():
    for _name in _names.split():
        globals()[_name].__module__ = f"{__name__}.{_module}"
