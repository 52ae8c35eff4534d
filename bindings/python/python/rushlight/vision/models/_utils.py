"""Parts that families of models share."""

import functools
from collections import OrderedDict

from ... import nn
from ._api import WeightsEnum  # noqa: F401

__all__ = ["IntermediateLayerGetter"]


def _make_divisible(v, divisor, min_value=None):
    """The nearest multiple of ``divisor`` that is at most a tenth below ``v``."""
    rounded = max(divisor if min_value is None else min_value, int(v + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * v else rounded


class IntermediateLayerGetter(nn.ModuleDict):
    """A model's children up to the last one that is asked for; gives the values of those by new names."""

    def __init__(self, model, return_layers):
        wanted = {str(k): str(v) for k, v in return_layers.items()}
        names = [name for name, _ in model.named_children()]
        if not set(wanted) <= set(names):
            raise ValueError("return_layers are not present in model")
        last = max(names.index(name) for name in wanted)
        super().__init__(OrderedDict((name, getattr(model, name)) for name in names[: last + 1]))
        self.return_layers = wanted

    def forward(self, x):
        found = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                found[self.return_layers[name]] = x
        return found


def handle_legacy_interface(**weights):
    """A decorator that takes ``pretrained=True`` for trained weights: each parameter's name with its old name and default weights."""

    def decorate(builder):
        @functools.wraps(builder)
        def call(*args, **kwargs):
            for name, (old, default) in weights.items():
                if old not in kwargs:
                    continue
                asked = kwargs.pop(old)
                kwargs[name] = (default(kwargs) if callable(default) else default) if asked else None
            return builder(*args, **kwargs)

        return call

    return decorate


def _ovewrite_named_param(kwargs, param, new_value):
    """Sets an option, which must not be set to another value."""
    if kwargs.setdefault(param, new_value) != new_value:
        raise ValueError(f"The parameter '{param}' expected value {new_value} but got {kwargs[param]} instead.")


def _ovewrite_value_param(param, actual, expected):
    """The value, which must be the expected one or None."""
    if actual is not None and actual != expected:
        raise ValueError(f"The parameter '{param}' expected value {expected} but got {actual} instead.")
    return expected


def init_convolutions(model, mode="fan_out", nonlinearity="relu", linear=None):
    """Kaiming's weights for convolutions, ones and zeros for norms; ``linear(layer)`` for linear layers."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity=nonlinearity)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif linear is not None and isinstance(module, nn.Linear):
            linear(module)
