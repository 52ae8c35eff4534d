"""Further distributions: the gamma family, counts, normal vectors, and functions of others."""

import math

from . import Categorical, Distribution, Normal, _check, _C, _nn, _POSITIVE, _tensors, _torch


def _gammas(concentration):
    """Draws of gamma distributions of rate one, by Marsaglia and Tsang: a cubed normal number, accepted or drawn again."""
    small = concentration < 1
    shifted = (_torch.where(small, concentration + 1, concentration) - 1 / 3).contiguous()
    factor = (9 * shifted).rsqrt()
    drawn, waiting = _torch.zeros_like(shifted), _torch.ones_like(shifted, dtype=_C.bool)
    while waiting.any():
        x = _torch.randn_like(shifted)
        cube = (1 + factor * x) ** 3
        bound = 0.5 * x * x + shifted - shifted * cube + shifted * cube.clamp(min=1e-30).log()
        accepted = waiting & (cube > 0) & (_torch.rand_like(shifted).log() < bound)
        drawn, waiting = _torch.where(accepted, shifted * cube, drawn), waiting & ~accepted
    boost = _torch.rand_like(shifted).clamp(min=1e-30) ** (1 / concentration)
    return _torch.where(small, drawn * boost, drawn)


class Gamma(Distribution):
    """Sums of waiting times: ``concentration`` of them at a ``rate``. Samples are not differentiable."""

    _names = ("concentration", "rate")

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = _tensors(concentration, rate)
        _check(validate_args, "Gamma", "concentration", self.concentration, *_POSITIVE)
        _check(validate_args, "Gamma", "rate", self.rate, *_POSITIVE)
        super().__init__(self.concentration.shape)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate**2)

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        return _gammas(self.concentration.expand(shape)) / self.rate

    def log_prob(self, value):
        a, b = self.concentration, self.rate
        return a * b.log() + (a - 1) * _tensors(value, a)[0].log() - b * value - a.lgamma()

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """The sum of ``df`` squares of normal numbers."""

    def __init__(self, df, validate_args=None):
        (df,) = _tensors(df)
        super().__init__(0.5 * df, _torch.full_like(df, 0.5), validate_args)

    df = property(lambda self: self.concentration * 2)


class Dirichlet(Distribution):
    """Probabilities of classes, in the last dimension. Samples are not differentiable."""

    _names = ("concentration",)

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        _check(validate_args, "Dirichlet", "concentration", concentration, *_POSITIVE)
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:])

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, keepdim=True))

    @property
    def mode(self):
        above = (self.concentration - 1).clamp(min=0)
        inner = above / above.sum(-1, keepdim=True)
        # Where all concentrations are below one, the density is greatest at a corner.
        corner = _nn.one_hot(inner.argmax(-1), self.concentration.shape[-1]).to(inner.dtype)
        return _torch.where((self.concentration < 1).all(-1, keepdim=True), corner, inner)

    @property
    def variance(self):
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def _draw(self, sample_shape):
        drawn = _gammas(self.concentration.expand(self._extended(sample_shape)))
        return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value):
        a = self.concentration
        return ((a - 1) * value.log()).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self):
        a, classes = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (classes - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)


class Beta(Distribution):
    """A number between zero and one. Samples are not differentiable."""

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = _tensors(concentration1, concentration0)
        for name in ("concentration1", "concentration0"):
            _check(validate_args, "Beta", name, getattr(self, name), *_POSITIVE)
        self._pair = Dirichlet(_torch.stack([self.concentration1, self.concentration0], -1), validate_args=False)
        super().__init__(self.concentration1.shape)

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


class Poisson(Distribution):
    """Counts of events at a rate."""

    _names = ("rate",)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = _tensors(rate)
        _check(validate_args, "Poisson", "rate", self.rate, lambda value: value >= 0, "GreaterThanEq(lower_bound=0.0)")
        super().__init__(self.rate.shape)

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def _draw(self, sample_shape):
        return _torch.poisson(self.rate.expand(self._extended(sample_shape)).contiguous())

    def log_prob(self, value):
        value, rate = _tensors(value, self.rate)
        return value.xlogy(rate) - rate - (value + 1).lgamma()


class OneHotCategorical(Distribution):
    """``Categorical`` whose samples are rows with a one."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits, validate_args)
        self._names = self._categorical._names
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:])

    probs = mean = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    variance = property(lambda self: self.probs * (1 - self.probs))
    param_shape = property(lambda self: self._categorical.param_shape)

    @property
    def mode(self):
        return _nn.one_hot(self.probs.argmax(-1), self.event_shape[0]).to(self.probs.dtype)

    def _draw(self, sample_shape):
        return _nn.one_hot(self._categorical._draw(sample_shape), self.event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value):
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """``OneHotCategorical`` whose samples pass gradients on to the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class MultivariateNormal(Distribution):
    """Normal vectors with a mean and a covariance, or the inverse or a triangular factor of that."""

    has_rsample, _names = True, ("loc", "covariance_matrix")

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if (covariance_matrix is not None) + (precision_matrix is not None) + (scale_tril is not None) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = next(m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None)
        if given.dim() < 2:
            raise ValueError("the matrix must be at least two-dimensional, with optional leading batch dimensions")
        if scale_tril is None:
            covariance = _C._linalg.inv(precision_matrix) if covariance_matrix is None else covariance_matrix
            if validate_args is not False and not _torch.isclose(covariance, covariance.mT, atol=1e-6).all():
                raise ValueError("Expected parameter covariance_matrix of distribution MultivariateNormal() to satisfy the constraint PositiveDefinite()")
            scale_tril = _C._linalg.cholesky(covariance)
        batch = _torch._broadcast_tensors([loc[..., 0], scale_tril[..., 0, 0]])[0].shape
        size = loc.shape[-1]
        self.loc, self.scale_tril = loc.expand([*batch, size]), scale_tril.expand([*batch, size, size])
        super().__init__(batch, (size,))

    mean = mode = property(lambda self: self.loc)
    covariance_matrix = property(lambda self: self.scale_tril @ self.scale_tril.mT)
    precision_matrix = property(lambda self: _C._linalg.inv(self.covariance_matrix))
    variance = property(lambda self: (self.scale_tril**2).sum(-1))

    def _draw(self, sample_shape):
        normal = _torch.randn(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ normal.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self):
        return self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value):
        away = (value - self.loc).unsqueeze(-1)
        factor = self.scale_tril.expand([*away.shape[:-2], *self.scale_tril.shape[-2:]])
        scaled = _C._linalg.solve_triangular(factor, away, upper=False).squeeze(-1)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + (scaled**2).sum(-1)) - self._half_log_det()

    def entropy(self):
        return 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()


class LogNormal(Distribution):
    """The exponential of a normal number."""

    has_rsample, _names = True, ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.base_dist = Normal(loc, scale, validate_args)
        super().__init__(self.base_dist.batch_shape)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: (self.loc + self.scale**2 / 2).exp())
    mode = property(lambda self: (self.loc - self.scale**2).exp())
    variance = property(lambda self: (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp())

    def _draw(self, sample_shape):
        return self.base_dist._draw(sample_shape).exp()

    def cdf(self, value):
        return self.base_dist.cdf(value.log())

    def icdf(self, value):
        return self.base_dist.icdf(value).exp()

    def log_prob(self, value):
        logarithm = _tensors(value, self.loc)[0].log()
        return self.base_dist.log_prob(logarithm) - logarithm

    def entropy(self):
        return self.base_dist.entropy() + self.loc


class HalfNormal(Distribution):
    """The absolute value of a normal number."""

    has_rsample, _names = True, ("scale",)

    def __init__(self, scale, validate_args=None):
        self.base_dist = Normal(0.0, scale, validate_args)
        super().__init__(self.base_dist.batch_shape)

    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    mode = property(lambda self: _torch.zeros_like(self.scale))

    def cdf(self, value):
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob):
        return self.base_dist.icdf((prob + 1) / 2)

    variance = property(lambda self: self.scale**2 * (1 - 2 / math.pi))

    def _draw(self, sample_shape):
        return self.base_dist._draw(sample_shape).abs()

    def log_prob(self, value):
        value = _tensors(value, self.scale)[0]
        return _torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)


class Gumbel(Distribution):
    """The greatest of many numbers."""

    has_rsample, _names = True, ("loc", "scale")
    _EULER = 0.57721566490153286060

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = _tensors(loc, scale)
        _check(validate_args, "Gumbel", "scale", self.scale, *_POSITIVE)
        super().__init__(self.loc.shape)

    mean = property(lambda self: self.loc + self.scale * self._EULER)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: math.pi**2 / 6 * self.scale**2)

    def _draw(self, sample_shape):
        waited = _torch.empty(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device).exponential_()
        return self.loc - self.scale * waited.log()

    def log_prob(self, value):
        away = (self.loc - value) / self.scale
        return away - away.exp() - self.scale.log()

    def cdf(self, value):
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value):
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self):
        return self.scale.log() + 1 + self._EULER


class Cauchy(Distribution):
    """The ratio of two normal numbers, moved and scaled."""

    has_rsample, _names = True, ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = _tensors(loc, scale)
        _check(validate_args, "Cauchy", "scale", self.scale, *_POSITIVE)
        super().__init__(self.loc.shape)

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
    """A normal number over the root of a mean of ``df`` squares. Samples are not differentiable by ``df``."""

    has_rsample, _names = True, ("df", "loc", "scale")

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = _tensors(df, loc, scale)
        for name in ("df", "scale"):
            _check(validate_args, "StudentT", name, getattr(self, name), *_POSITIVE)
        super().__init__(self.df.shape)

    mode = property(lambda self: self.loc)
    mean = property(lambda self: _torch.where(self.df > 1, self.loc, math.nan))

    @property
    def variance(self):
        finite = self.scale**2 * self.df / (self.df - 2)
        return _torch.where(self.df > 2, finite, _torch.where(self.df > 1, _torch.full_like(self.df, math.inf), math.nan))

    def _draw(self, sample_shape):
        shape = self._extended(sample_shape)
        normal = _torch.randn(shape, dtype=self.df.dtype, device=self.df.device)
        squares = 2 * _gammas((self.df.detach() / 2).expand(shape))
        return self.loc + self.scale * normal * (squares / self.df.detach()).rsqrt()

    def log_prob(self, value):
        y, df = (value - self.loc) / self.scale, self.df
        constant = self.scale.log() + 0.5 * df.log() + 0.5 * math.log(math.pi) + (0.5 * df).lgamma() - (0.5 * (df + 1)).lgamma()
        return -0.5 * (df + 1) * (y**2 / df).log1p() - constant

    def entropy(self):
        half, df = 0.5 * (self.df + 1), self.df
        beta = (0.5 * df).lgamma() + 0.5 * math.log(math.pi) - half.lgamma()
        return self.scale.log() + half * (half.digamma() - (0.5 * df).digamma()) + 0.5 * df.log() + beta


def _constrain_all():
    from . import _constrain, constraints as c

    positive, real = c.positive, c.real
    _constrain(Gamma, c.nonnegative, concentration=positive, rate=positive)
    _constrain(Chi2, c.nonnegative, df=positive)
    _constrain(Dirichlet, c.simplex, concentration=c.independent(positive, 1))
    _constrain(Beta, c.unit_interval, concentration1=positive, concentration0=positive)
    _constrain(Poisson, c.nonnegative_integer, rate=c.nonnegative)
    _constrain(OneHotCategorical, c.one_hot, probs=c.simplex, logits=c.real_vector)
    _constrain(
        MultivariateNormal, c.real_vector, loc=c.real_vector, covariance_matrix=c.positive_definite, precision_matrix=c.positive_definite,
        scale_tril=c.lower_cholesky,
    )
    _constrain(LogNormal, positive, loc=real, scale=positive)
    _constrain(HalfNormal, c.nonnegative, scale=positive)
    _constrain(Gumbel, real, loc=real, scale=positive)
    _constrain(Cauchy, real, loc=real, scale=positive)
    _constrain(StudentT, real, df=positive, loc=real, scale=positive)


_constrain_all()
