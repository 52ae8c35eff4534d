"""``TransformedDistribution``: a function of another distribution's samples."""

from .. import _C
from .._size import Size
from . import Distribution, Independent, constraints
from .transforms import ComposeTransform, Transform
from .utils import _sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution, validated=False):
    """Samples of ``base_distribution`` through ``transforms``, with the density that follows."""

    arg_constraints = {}

    def __init__(self, base_distribution, transforms, validate_args=None):
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(f"transforms must be a Transform or a list, but was {transforms}")
        shape = tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape)
        base_events = len(base_distribution.event_shape)
        chain = ComposeTransform(self.transforms)
        if len(shape) < chain.domain.event_dim:
            raise ValueError(f"base_distribution needs to have shape with size at least {chain.domain.event_dim}, but got {shape}.")
        forward = chain.forward_shape(shape)
        wanted = chain.inverse_shape(forward)
        if tuple(wanted) != shape:
            base_distribution = base_distribution.expand(tuple(wanted)[: len(wanted) - base_events])
        more = chain.domain.event_dim - base_events
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        events = chain.codomain.event_dim + max(base_events - chain.domain.event_dim, 0)
        cut = len(forward) - events
        super().__init__(Size(forward[:cut]), Size(forward[cut:]), validate_args)

    def expand(self, batch_shape, _instance=None):
        made = type(self).__new__(type(self)) if _instance is None else _instance
        rank = len(self.batch_shape)
        for name, value in self.__dict__.items():
            made.__dict__.setdefault(name, value.expand([*batch_shape, *value.shape[rank:]]) if isinstance(value, _C.Tensor) else value)
        chain = ComposeTransform(self.transforms)
        shape = chain.inverse_shape((*batch_shape, *self.event_shape))
        made.base_dist = self.base_dist.expand(tuple(shape)[: len(shape) - len(self.base_dist.event_shape)])
        made.transforms = self.transforms
        Distribution.__init__(made, batch_shape, self.event_shape, validate_args=False)
        return made

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property(is_discrete=False)
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        more = len(self.event_shape) - codomain.event_dim
        return constraints.independent(codomain, more) if more > 0 else codomain

    def _through(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape=()):
        before = _C._set_grad_enabled(False)
        try:
            return self._through(self.base_dist.sample(sample_shape))
        finally:
            _C._set_grad_enabled(before)

    def rsample(self, sample_shape=()):
        return self._through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        event, total, y = len(self.event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event += transform.domain.event_dim - transform.codomain.event_dim
            total = total - _sum_rightmost(transform.log_abs_det_jacobian(x, y), event - transform.domain.event_dim)
            y = x
        return total + _sum_rightmost(self.base_dist.log_prob(y), event - len(self.base_dist.event_shape))

    def _monotone(self, value):
        """Complements probabilities where the function decreases."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value):
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._monotone(self.base_dist.cdf(value))

    def icdf(self, value):
        return self._through(self.base_dist.icdf(self._monotone(value)))
