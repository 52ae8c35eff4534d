"""Functions that pickles name to rebuild tensors and parameters."""

from . import _C


def _rebuild_tensor(storage, storage_offset, size, stride):
    return _C._over_storage(storage._bytes, storage.dtype, storage_offset, list(size), list(stride))


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def _rebuild_parameter(data, requires_grad, backward_hooks):
    from .nn.parameter import Parameter

    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    parameter = _rebuild_parameter(data, requires_grad, backward_hooks)
    attributes = state[0] if isinstance(state, tuple) else state
    parameter.__dict__.update(attributes or {})
    return parameter
