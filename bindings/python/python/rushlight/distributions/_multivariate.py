"""Distributions of vectors and matrices, and mixtures."""

import math

from .._size import Size
from . import Categorical, Distribution, ExponentialFamily, Normal, _C, _constrain, _nn, _torch, constraints
from ._discrete import Binomial
from ._gamma import Beta, _gammas
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform, StickBreakingTransform
from .utils import _standard_normal, broadcast_all, clamp_probs


def _batch_mv(bmat, bvec):
    """Products of matrices and vectors."""
    return (bmat @ bvec.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(bL, bx):
    """Squared lengths of vectors after the inverses of lower triangular factors."""
    return _C._linalg.solve_triangular(bL, bx.unsqueeze(-1), upper=False).squeeze(-1).square().sum(-1)


def _precision_to_scale_tril(P):
    """The lower factor of the inverse of a positive definite matrix."""
    factor = _C._linalg.cholesky(P.flip(-2, -1)).flip(-2, -1).transpose(-2, -1)
    return _C._linalg.solve_triangular(factor, _C._torch.eye(P.shape[-1], dtype=P.dtype, device=P.device), upper=False)


class MultivariateNormal(Distribution):
    """Normal vectors with a mean and a covariance, or the inverse or a triangular factor of that."""

    has_rsample, _names, _derived = True, ("loc", "covariance_matrix"), ("covariance_matrix", "precision_matrix")

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
            if (self._validate_args if validate_args is None else validate_args) and not constraints.positive_definite.check(given).all():
                name = "precision_matrix" if covariance_matrix is None else "covariance_matrix"
                raise ValueError(
                    f"Expected parameter {name} (Tensor of shape {tuple(given.shape)}) of distribution MultivariateNormal() to satisfy the constraint "
                    f"PositiveDefinite(), but found invalid values:\n{given}"
                )
            scale_tril = _C._linalg.cholesky(covariance)
        batch = _torch._broadcast_tensors([loc[..., 0], scale_tril[..., 0, 0]])[0].shape
        size = loc.shape[-1]
        self.loc, self.scale_tril = loc.expand([*batch, size]), scale_tril.expand([*batch, size, size])
        super().__init__(batch, (size,), validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)
    covariance_matrix = property(lambda self: self.scale_tril @ self.scale_tril.mT)
    precision_matrix = property(lambda self: _C._linalg.inv(self.covariance_matrix))
    variance = property(lambda self: (self.scale_tril**2).sum(-1))

    def _draw(self, sample_shape):
        normal = _torch.randn(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ normal.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self):
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    #: gpytorch's subclass defines it by itself, as PyTorch's class computes with it.
    _unbroadcasted_scale_tril = property(lambda self: self.scale_tril)

    def log_prob(self, value):
        away = (value - self.loc).unsqueeze(-1)
        factor = self._unbroadcasted_scale_tril
        factor = factor.expand([*away.shape[:-2], *factor.shape[-2:]])
        scaled = _C._linalg.solve_triangular(factor, away, upper=False).squeeze(-1)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + (scaled**2).sum(-1)) - self._half_log_det()

    def entropy(self):
        return 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()


class LogisticNormal(TransformedDistribution):
    """Normal vectors mapped to probabilities by stick breaking."""

    arg_constraints, support, has_rsample = {"loc": constraints.real, "scale": constraints.positive}, constraints.simplex, True

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)


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
    """``OneHotCategorical`` relaxed by a temperature."""

    arg_constraints, support, has_rsample = {"probs": constraints.simplex, "logits": constraints.real_vector}, constraints.simplex, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class Multinomial(Distribution):
    """Counts of each class in ``total_count`` draws."""

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
    """A mixture of the distributions in the last batch dimension of another."""

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
    """Normal vectors with a covariance of a diagonal plus a low-rank product."""

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
        # The onion method: each row is a direction times the root of a beta variable.
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


class Wishart(ExponentialFamily):
    """Sums of squares of ``df`` normal vectors, as matrices."""

    arg_constraints = {
        "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support, has_rsample, _derived = constraints.positive_definite, True, ("covariance_matrix", "precision_matrix")

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if given[0].dim() < 2:
            raise ValueError("the matrix must be at least two-dimensional, with optional leading batch dimensions")
        size = given[0].shape[-1]
        df = df if isinstance(df, _C.Tensor) else _C.tensor(float(df), dtype=given[0].dtype, device=given[0].device)
        batch = _torch._broadcast_tensors([df, given[0][..., 0, 0]])[0].shape
        self.df = df.to(given[0].dtype).expand(batch)
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
        # Bartlett decomposition: normal numbers below a diagonal of roots of chi-squared ones.
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


_constrain(
    MultivariateNormal, constraints.real_vector, loc=constraints.real_vector, covariance_matrix=constraints.positive_definite,
    precision_matrix=constraints.positive_definite, scale_tril=constraints.lower_cholesky,
)
