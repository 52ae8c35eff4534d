"""Functions of ``torch.optim.optimizer`` that optimizers outside of PyTorch import."""

import functools

from .. import _C

__all__ = [
    "_capturable_doc", "_default_to_fused_or_foreach", "_differentiable_doc", "_disable_dynamo_if_unsupported", "_foreach_doc", "_fused_doc", "_get_capturable_supported_devices", "_get_scalar_dtype", "_get_value", "_maximize_doc",
    "_params_doc", "_stack_if_compiling", "_to_scalar", "_use_grad_for_differentiable", "_view_as_real",
]

Tensor = _C.Tensor

#: Texts about options, which optimizers put into their docstrings.
_params_doc = "params: tensors, groups of them as dicts, or pairs of a name and a tensor"
_maximize_doc = "maximize: whether to go up the gradient, not down"
_foreach_doc = "foreach: whether to step lists of tensors at once"
_fused_doc = "fused: whether a step is one kernel"
_capturable_doc = "capturable: whether a step can be captured in a graph"
_differentiable_doc = "differentiable: whether gradients flow through the step"


def _use_grad_for_differentiable(step):
    """A step that records gradients if the optimizer is differentiable, and none otherwise."""

    @functools.wraps(step)
    def run(self, *args, **kwargs):
        before = _C._set_grad_enabled(bool(self.defaults["differentiable"]))
        try:
            return step(self, *args, **kwargs)
        finally:
            _C._set_grad_enabled(before)

    return run


def _get_value(x):
    """The number of a tensor or a number."""
    return x.item() if isinstance(x, Tensor) else x


def _to_scalar(x):
    """A tensor of one element without its sizes; other values as they are."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _stack_if_compiling(x):
    """What it is given: steps are not compiled."""
    return x


def _disable_dynamo_if_unsupported(single_tensor_fn=None):
    """A decorator that changes nothing: steps are not compiled."""
    return lambda function: function


def _default_to_fused_or_foreach(params, differentiable, use_fused=False):
    """Which of two ways to step is chosen: ``(fused, foreach)``. Lists of tensors are for accelerators, as in PyTorch."""
    params = [p for p in params if p is not None]
    plain = all(type(p).__name__ in ("Tensor", "Parameter") and p.device.type in ("cuda", "xpu", "hip") for p in params) and bool(params) and not differentiable
    fused = use_fused and plain and all(p.is_floating_point() for p in params)
    return fused, plain and not fused


def _get_scalar_dtype(is_fused=None):
    """The dtype of a step count that is a tensor."""
    wide = _C.get_default_dtype() == _C.float64 and not is_fused
    return _C.float64 if wide else _C.float32


def _get_capturable_supported_devices(supports_xla=True):
    """Devices whose steps can be captured."""
    return ["cuda", "xpu", "hpu"] + ["xla"] * supports_xla


def _view_as_real(params, *state_and_grads):
    """Replaces complex tensors of lists by their real views, in place."""
    for at, p in enumerate(params):
        if p.is_complex():
            params[at] = _C._torch.view_as_real(p)
            for other in state_and_grads:
                other[at] = _C._torch.view_as_real(other[at])
