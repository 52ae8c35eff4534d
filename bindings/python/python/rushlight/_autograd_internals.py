"""``torch._C._functions`` and ``torch._C._autograd``: functions for tests of backward passes, and the state of saved tensors' hooks."""

import types

from .autograd import Function, _saved, graph


class _Failing(Function):
    @staticmethod
    def forward(ctx, message, *tensors):
        ctx.message = message
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError(ctx.message)


class DelayedError(graph.Node):
    """A function that returns its inputs, and whose backward step raises."""

    __slots__ = ("_count", "_message")

    def __init__(self, message, num_inputs):
        self._message, self._count = message, num_inputs

    def __call__(self, *tensors):
        made = _Failing.apply(self._message, *tensors)
        return made[0] if self._count == 1 else made


class _Undefined(Function):
    @staticmethod
    def forward(ctx, *tensors):
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        return (None,) * len(gradients)


class UndefinedGrad(graph.Node):
    """A function that returns its inputs, and whose backward step has no gradients."""

    __slots__ = ()

    def __call__(self, *tensors):
        made = _Undefined.apply(*tensors)
        return made[0] if len(tensors) == 1 else made


def _saved_tensors_hooks_is_enabled():
    """Whether hooks of saved tensors may be pushed."""
    return not getattr(graph._disabled, "messages", None)


def modules():
    """The two modules."""
    functions, autograd = types.ModuleType("torch._C._functions"), types.ModuleType("torch._C._autograd")
    functions.DelayedError, functions.UndefinedGrad = DelayedError, UndefinedGrad
    functions.AccumulateGrad = graph._class_of("AccumulateGrad")
    autograd.SavedTensor = _saved.SavedTensor
    autograd._saved_tensors_hooks_is_enabled = _saved_tensors_hooks_is_enabled
    return {"_functions": functions, "_autograd": autograd}

