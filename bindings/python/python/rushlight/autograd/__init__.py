"""Automatic differentiation: ``torch.autograd``."""

import functools
import warnings
from collections.abc import Mapping

from .. import _C
from ..overrides import _modes
from . import function, grad_mode  # noqa: F401
from .function import Function, FunctionCtx  # noqa: F401
from .grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled, set_multithreading_enabled  # noqa: F401

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "functional", "grad", "gradcheck", "gradgradcheck", "graph",
    "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]

Tensor = _C.Tensor


def _grad_by_modes(*args):
    from .._tangents import grad

    return grad(*args)


def _is_edge(object):
    return type(object).__name__ == "GradientEdge" and hasattr(object, "output_nr")


def _place(object, what):
    """A tensor, or an edge of the graph as the engine takes it."""
    if isinstance(object, Tensor):
        return object
    if _is_edge(object):
        return (object.node._node, object.output_nr)
    raise TypeError(f"{what}: expected Tensors, got {type(object).__name__}")


def _listed(tensors, what):
    return [_place(tensor, what) for tensor in ([tensors] if isinstance(tensors, Tensor) or _is_edge(tensors) else tensors)]


def _gradients(gradients, count):
    if gradients is None:
        return [None] * count
    gradients = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    if len(gradients) != count:
        raise RuntimeError(f"got {count} tensors and {len(gradients)} gradients")
    return gradients


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Adds the gradients of tensors to the ``.grad`` of the leaves they were made from."""
    tensors = _listed(tensors, "backward")
    gradients = _gradients(grad_tensors if grad_variables is None else grad_variables, len(tensors))
    if inputs is not None:
        inputs = _listed(inputs.values() if type(inputs) is dict else inputs, "backward")
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    if _is_dispatched():
        gradients = [_ones_like(t) if g is None and isinstance(t, Tensor) else g for t, g in zip(tensors, gradients)]
        with _observed(tensors, create_graph):
            return _C._backward(tensors, gradients, retain_graph, create_graph, inputs)
    _C._backward(tensors, gradients, retain_graph, create_graph, inputs)


def _is_dispatched():
    """Whether a mode of ``__torch_dispatch__`` is active."""
    return bool(_modes.stack) and any(getattr(mode, "_handles_ops", False) for mode in _modes.stack)


def _observed(*args):
    from .._dispatch_backward import observed

    return observed(*args)


def _any_sparse(tensors):
    return any(isinstance(t, Tensor) and t.layout not in (_C.strided, _C.jagged) for t in tensors)


def _ones_like(output):
    if not output.requires_grad or output.numel() != 1:
        # The engine says what is wrong.
        return None
    return _C._torch.ones_like(output)


def grad(
    outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
    is_grads_batched=False, materialize_grads=False,
):
    """Gradients of outputs by inputs, as a tuple; as a dict with the same keys if ``inputs`` is a dict."""
    if is_grads_batched:
        return _batched_grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    if allow_unused is False and materialize_grads:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    names = None
    if type(inputs) is dict:
        names, inputs = list(inputs), list(inputs.values())
    elif isinstance(inputs, Mapping):
        raise TypeError(f"`inputs` argument to `grad()` must be a dict, not {type(inputs).__name__}. Other Mapping types are not supported.")
    outputs, wanted = _listed(outputs, "grad"), _listed(inputs, "grad")
    if not wanted:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    gradients = _gradients(grad_outputs, len(outputs))
    if _any_sparse(outputs) or _any_sparse(wanted):
        from ..sparse._derivatives import grad as sparse_grad

        found = sparse_grad(
            outputs, wanted, gradients, materialize_grads, retain_graph=retain_graph, create_graph=create_graph, allow_unused=allow_unused
        )
        return found if names is None else dict(zip(names, found))

    def differentiate(outputs, wanted, gradients, again=False, create=create_graph, limit=None):
        if _modes.stack:
            further = functools.partial(differentiate, again=again, create=create)
            found = _grad_by_modes(outputs, wanted, gradients, further, create, len(_modes.stack) if limit is None else limit)
            if found is not None:
                return found
        keep = True if again else retain_graph
        if _is_dispatched():
            gradients = [_ones_like(t) if g is None and isinstance(t, Tensor) else g for t, g in zip(outputs, gradients)]
            with _observed(outputs, create, False):
                return _C._grad(outputs, wanted, gradients, keep, create, allow_unused)
        return _C._grad(outputs, wanted, gradients, keep, create, allow_unused)

    found = differentiate(outputs, wanted, gradients)
    if materialize_grads:
        if any(g is None and not isinstance(i, Tensor) for g, i in zip(found, wanted)):
            raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
        found = tuple(_C._torch.zeros_like(i, requires_grad=create_graph) if g is None else g for g, i in zip(found, wanted))
    return found if names is None else dict(zip(names, found))


def _batched_grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads):
    """``grad`` for a batch of ``grad_outputs``: one backward pass for each row, the gradients stacked."""
    vectors = _gradients(grad_outputs, 1 if isinstance(outputs, Tensor) or _is_edge(outputs) else len(outputs))
    sizes = {v.shape[0] for v in vectors if v is not None}
    if len(sizes) != 1:
        raise ValueError(f"autograd.grad: is_grads_batched=True expects grad_outputs with one batch size, got {sorted(sizes)}")
    count = sizes.pop()
    rows = []
    for number in range(count):
        keep = True if number + 1 < count else retain_graph
        row = [None if v is None else v[number] for v in vectors]
        rows.append(grad(outputs, inputs, row, keep, create_graph, True, allow_unused, False, materialize_grads))
    if type(inputs) is dict:
        return {name: None if rows[0][name] is None else _C._torch.stack([row[name] for row in rows]) for name in rows[0]}
    return tuple(None if column[0] is None else _C._torch.stack(column) for column in zip(*rows))


class set_detect_anomaly:
    """Switches the search for NaN in backward passes, at once and as a context manager."""

    def __init__(self, mode, check_nan=True):
        self._before = _C.is_anomaly_enabled()
        # Only the search for NaN has an effect: errors of backward steps name their ops anyway.
        _C._set_detect_anomaly(mode and check_nan)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        _C._set_detect_anomaly(self._before)


class detect_anomaly(set_detect_anomaly):
    """A backward step within that makes NaN is an error that names the op, and a warning shows the lines that called its forward."""

    def __init__(self, check_nan=True):
        super().__init__(True, check_nan)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.", stacklevel=2
        )


class _VariableMeta(type):
    def __instancecheck__(cls, other):
        return isinstance(other, Tensor)


class _Engine:
    """The engine of backward passes, as far as programs call it."""

    @staticmethod
    def queue_callback(fn):
        """Calls ``fn()`` at the end of the running backward pass."""
        _C._queue_callback(fn)

    @staticmethod
    def is_checkpoint_valid():
        """Whether checkpoints may be computed again: False within ``autograd.grad`` only."""
        return _is_checkpoint_valid()


class Variable(metaclass=_VariableMeta):
    """The old name of ``Tensor``: a call gives the tensor."""

    _execution_engine = _Engine()

    def __new__(cls, data, requires_grad=False, volatile=None):
        return data.detach().requires_grad_(requires_grad) if requires_grad else data


def is_multithreading_enabled():
    """Whether backward passes may use several threads."""
    return grad_mode._multithreading.enabled


def kineto_available():
    """Whether the profiler writes traces: always True."""
    return True


def _calculate_shape(output, grad, is_grads_batched):
    """The sizes of an output and of its gradient, without the batch."""
    if _is_edge(output):
        raise NotImplementedError("_calculate_shape: a gradient edge has no size; pass the tensor")
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape


class _force_original_view_tracking:
    """How views are made again after their base changes: always from sizes and strides here, so the mode is only remembered."""

    _mode = False

    def __init__(self, mode):
        self._before, type(self)._mode = type(self)._mode, mode

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        type(self)._mode = self._before


def _is_checkpoint_valid():
    """Whether activations may be checkpointed with reentrant backward passes: always True."""
    return True


def _profiler_enabled():
    """Whether a profiler records."""
    return _C._profiler_is_on()


def __getattr__(name):
    import importlib

    if name in ("forward_ad", "functional", "graph", "profiler", "profiler_util"):
        return importlib.import_module("." + name, __name__)
    from .._functions import _missing

    return _missing(__name__, name)


from .gradcheck import gradcheck, gradgradcheck  # noqa: E402, F401
