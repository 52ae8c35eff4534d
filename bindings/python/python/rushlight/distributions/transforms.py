"""Transforms of random variables: functions with an inverse and the logarithm of their derivative."""

import math

from .. import _C
from . import constraints
from ._transform import (  # noqa: F401
    CatTransform, ComposeTransform, IndependentTransform, ReshapeTransform, StackTransform, Transform, _InverseTransform, identity_transform,
)
from .utils import _eps, _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform", "ExpTransform",
    "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]

_torch, _nn = _C._torch, _C._nn


class ExpTransform(Transform):
    """``exp(x)``."""

    codomain, bijective, sign = constraints.positive, True, 1

    def __eq__(self, other):
        return isinstance(other, ExpTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """``x ** exponent`` of positive numbers."""

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, _C.Tensor) else _C.tensor(float(exponent))

    @property
    def sign(self):
        return self.exponent.sign()

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()


def _clipped_sigmoid(x):
    """The sigmoid, kept away from 0 and 1."""
    eps = _eps(x.dtype)
    return x.sigmoid().clamp(min=eps**2 if eps > 1e-5 else 1.1754943508222875e-38, max=1 - eps)


class SigmoidTransform(Transform):
    """``1 / (1 + exp(-x))``."""

    codomain, bijective, sign = constraints.unit_interval, True, 1

    def __eq__(self, other):
        return isinstance(other, SigmoidTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        return _clipped_sigmoid(x)

    def _inverse(self, y):
        eps = _eps(y.dtype)
        y = y.clamp(min=1.1754943508222875e-38, max=1 - eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -_nn.softplus(-x) - _nn.softplus(x)


class SoftplusTransform(Transform):
    """``log(1 + exp(x))``."""

    codomain, bijective, sign = constraints.positive, True, 1

    def __eq__(self, other):
        return isinstance(other, SoftplusTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        return _nn.softplus(x)

    def _inverse(self, y):
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x, y):
        return -_nn.softplus(-x)


class TanhTransform(Transform):
    """``tanh(x)``."""

    codomain, bijective, sign = constraints.interval(-1.0, 1.0), True, 1

    def __eq__(self, other):
        return isinstance(other, TanhTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        # Ends are not clipped: values outside have no inverse.
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        return 2.0 * (math.log(2.0) - x - _nn.softplus(-2.0 * x))


class AbsTransform(Transform):
    """``|x|``."""

    codomain = constraints.positive

    def __eq__(self, other):
        return isinstance(other, AbsTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """``loc + scale * x``; the last ``event_dim`` dimensions are one event."""

    bijective = True

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)

    @property
    def domain(self):
        return constraints.real if self._event_dim == 0 else constraints.independent(constraints.real, self._event_dim)

    codomain = domain

    def __eq__(self, other):
        if not isinstance(other, AffineTransform):
            return False
        same = lambda a, b: bool((a == b).all()) if isinstance(a, _C.Tensor) or isinstance(b, _C.Tensor) else a == b  # noqa: E731
        return same(self.loc, other.loc) and same(self.scale, other.scale)

    __hash__ = object.__hash__

    @property
    def sign(self):
        return self.scale.sign() if isinstance(self.scale, _C.Tensor) else 1 if self.scale > 0 else -1 if self.scale < 0 else 0

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        size = self.scale.abs().log() if isinstance(self.scale, _C.Tensor) else _torch.full_like(x, math.log(abs(self.scale)))
        if self._event_dim:
            size = size.expand(x.shape) if isinstance(self.scale, _C.Tensor) else size
            return _sum_rightmost(size, self._event_dim)
        return size.expand(x.shape)


class CorrCholeskyTransform(Transform):
    """Vectors to Cholesky factors of correlation matrices."""

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def _call(self, x):
        x = x.tanh()
        eps = _eps(x.dtype)
        r = vec_to_tril_matrix(x.clamp(-1 + eps, 1 - eps), -1)
        rest = (1 - r**2).sqrt().cumprod(-1)
        r = r + _torch.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * _nn.pad(rest[..., :-1], (1, 0), value=1)

    def _inverse(self, y):
        rest = 1 - (y * y).cumsum(-1)
        below = _nn.pad(rest[..., :-1], (1, 0), value=1)
        t = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(below, -1).sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        rest = 1 - (y * y).cumsum(-1)
        return 0.5 * tril_matrix_to_vec(rest.log(), -2).sum(-1) - 2 * (x + _nn.softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape):
        size = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape):
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class SoftmaxTransform(Transform):
    """Vectors to probabilities. Not one to one."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def __eq__(self, other):
        return isinstance(other, SoftmaxTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        return _nn.softmax(x, -1)

    def _inverse(self, y):
        return y.log()


class StickBreakingTransform(Transform):
    """Vectors to probabilities of one class more, each a share of the remainder (stick breaking)."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    def __eq__(self, other):
        return isinstance(other, StickBreakingTransform)

    __hash__ = object.__hash__

    @staticmethod
    def _offset(x):
        return x.shape[-1] + 1 - _torch.ones_like(x).cumsum(-1)

    def _call(self, x):
        z = SigmoidTransform()._call(x - self._offset(x).log())
        return _nn.pad(z, (0, 1), value=1) * _nn.pad((1 - z).cumprod(-1), (1, 0), value=1)

    def _inverse(self, y):
        head = y[..., :-1]
        left = (1 - head.cumsum(-1)).clamp(min=1.1754943508222875e-38)
        return head.log() - left.log() + self._offset(head).log()

    def log_abs_det_jacobian(self, x, y):
        x = x - self._offset(x).log()
        return (-x + _nn.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape):
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """Matrices to lower triangles with a positive diagonal."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def __eq__(self, other):
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Matrices to positive definite ones."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def __eq__(self, other):
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(_C._linalg.cholesky(y))


class CumulativeDistributionTransform(Transform):
    """A distribution's ``cdf``."""

    bijective, codomain, sign = True, constraints.unit_interval, 1

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)
