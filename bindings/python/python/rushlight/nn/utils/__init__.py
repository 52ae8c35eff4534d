"""Helpers for training and for changing modules: ``torch.nn.utils``."""

import importlib

from . import rnn  # noqa: F401
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

# Imported eagerly: these functions have the names of their files, which a later import would put in their place.
from .spectral_norm import remove_spectral_norm, spectral_norm
from .weight_norm import remove_weight_norm, weight_norm

#: Names imported on first use, and their modules.
_LAZY = {
    "convert_conv2d_weight_memory_format": "memory_format",
    "convert_conv3d_weight_memory_format": "memory_format",
    "fuse_conv_bn_eval": "fusion",
    "fuse_conv_bn_weights": "fusion",
    "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion",
    "skip_init": "init",
}
_PACKAGES = frozenset(("fusion", "init", "memory_format", "parametrizations", "parametrize", "prune", "stateless"))

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
    "parametrizations", "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm", "stateless",
    "vector_to_parameters", "weight_norm", *_LAZY,
]


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module("." + _LAZY[name], __name__), name)
    if name in _PACKAGES:
        return importlib.import_module("." + name, __name__)
    from ..._functions import _missing

    return _missing(__name__, name)


def __dir__():
    return sorted({*globals(), *_LAZY, *_PACKAGES})
