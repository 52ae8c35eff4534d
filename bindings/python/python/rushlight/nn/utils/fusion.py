"""Batch norm folded into the preceding layer, for inference."""

from __future__ import annotations

import copy

from ... import _C
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

Tensor = _C.Tensor
_torch = _C._torch


def _fold(weight: Tensor, bias, mean, var, eps: float, scale, shift, channel_dim: int):
    """Weight and bias of a layer whose output is normalised with these statistics."""
    dtype = weight.dtype
    bias = _torch.zeros_like(mean) if bias is None else bias
    scale = _torch.ones_like(mean) if scale is None else scale
    shift = _torch.zeros_like(mean) if shift is None else shift
    factor = scale * (var + eps).rsqrt()
    shape = [1] * weight.dim()
    shape[channel_dim] = -1
    folded = (weight * factor.reshape(shape)).to(dtype)
    return folded, ((bias - mean) * factor + shift).to(dtype)


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps: float, bn_w, bn_b, transpose: bool = False):
    """Weight and bias of a convolution with a batch norm folded in."""
    weight, bias = _fold(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)
    trains = conv_b.requires_grad if conv_b is not None else True
    return Parameter(weight.detach(), conv_w.requires_grad), Parameter(bias.detach(), trains)


def fuse_conv_bn_eval(conv, bn, transpose: bool = False):
    """A copy of a convolution with a batch norm folded in. Both must be in evaluation mode."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError("fuse_conv_bn_eval: the batch norm has no running statistics to fold in")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps: float, bn_w, bn_b):
    """Weight and bias of a linear layer with a batch norm folded in."""
    weight, bias = _fold(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)
    trains = linear_b.requires_grad if linear_b is not None else True
    return Parameter(weight.detach(), linear_w.requires_grad), Parameter(bias.detach(), trains)


def fuse_linear_bn_eval(linear, bn):
    """A copy of a linear layer with a batch norm folded in. Both must be in evaluation mode."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
