"""Activation checkpointing: discards activations and recomputes them in backward. ``torch.utils.checkpoint``."""

import contextlib
import functools
import sys
import warnings

from .. import _C
from ..autograd.function import Function

__all__ = [
    "CheckpointPolicy", "SelectiveCheckpointContext", "checkpoint", "checkpoint_sequential", "create_selective_checkpoint_contexts", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
]

Tensor = _C.Tensor


def noop_context_fn():
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """Accepted without effect: a function is always recomputed to its end."""
    yield


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """Accepted without effect: errors always name the shapes that differ."""
    yield


def _flatten(value, tensors):
    """Extracts the tensors from lists, tuples and dicts; returns a function that inserts others."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return next
    if isinstance(value, dict):
        parts = {key: _flatten(v, tensors) for key, v in value.items()}
        return lambda found: type(value)((key, part(found)) for key, part in parts.items())
    if isinstance(value, (list, tuple)):
        parts = [_flatten(v, tensors) for v in value]
        if hasattr(value, "_fields"):
            return lambda found: type(value)(*(part(found) for part in parts))
        return lambda found: type(value)(part(found) for part in parts)
    return lambda found: value


class CheckpointError(RuntimeError):
    """A function that gave other values when it was run again."""


class _Saved:
    """Notes the shape, dtype and device of every tensor that is saved for backward in a block."""

    def __enter__(self):
        self.seen = []
        _C._push_saved_tensors_hooks(self._note, lambda tensor: tensor)
        return self

    def _note(self, tensor):
        self.seen.append((tuple(tensor.shape), tensor.dtype, tensor.device))
        return tensor

    def __exit__(self, *exception):
        _C._pop_saved_tensors_hooks()


def _check_same(before, now):
    """An error if a function saved other tensors when it was run again."""
    if len(before) != len(now):
        raise CheckpointError(
            "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
            f"Number of tensors saved during forward: {len(before)}\nNumber of tensors saved during recomputation: {len(now)}"
        )
    different = [(i, a, b) for i, (a, b) in enumerate(zip(before, now)) if a != b]
    if different:
        lines = [f"tensor at position {i}:\nsaved metadata: {a}\nrecomputed metadata: {b}" for i, a, b in different]
        raise CheckpointError(
            "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.\n" + "\n".join(lines)
        )


class _Run:
    """A function with its arguments, which can be recomputed under the same conditions."""

    def __init__(self, function, args, kwargs, preserve_rng_state, contexts):
        self.function = function
        self.inputs = []
        self.rebuild = _flatten((args, kwargs), self.inputs)
        self.random = _C.get_rng_state() if preserve_rng_state else None
        self.precision = _C._autocast_dtype()
        self.first_context, self.second_context = contexts
        self.rebuild_output = None
        # Metadata of the tensors that the first run saved, if the second must save the same.
        self.saved = None

    def __call__(self, tensors):
        args, kwargs = self.rebuild(iter(tensors))
        outputs = []
        self.rebuild_output = _flatten(self.function(*args, **kwargs), outputs)
        return outputs

    def again(self, tensors):
        """Recomputes the outputs with recording, with the random numbers and the precision of the first run."""
        now = _C.get_rng_state()
        precision = _C._set_autocast(self.precision)
        recording = _C._set_grad_enabled(True)
        try:
            if self.random is not None:
                _C.set_rng_state(self.random)
            with self.second_context:
                if self.saved is None:
                    return self(tensors)
                with _Saved() as saved:
                    outputs = self(tensors)
                _check_same(self.saved, saved.seen)
                return outputs
        finally:
            _C._set_grad_enabled(recording)
            _C._set_autocast(precision)
            if self.random is not None:
                _C.set_rng_state(now)


class _Checkpoint(Function):
    """Inputs are the function's tensors and, after them, the leaves that it captured."""

    @staticmethod
    def forward(ctx, run, outputs, fixed, captured, *inputs):
        ctx.run, ctx.captured = run, captured
        ctx.shapes = [tuple(t.shape) for t in outputs]
        ctx.save_for_backward(*inputs[: len(inputs) - len(captured or ())])
        # Separate handles: an output may be an input, or appear twice.
        results = tuple(t.detach() for t in outputs)
        ctx.mark_non_differentiable(*(r for r, keep in zip(results, fixed) if keep))
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx, *gradients):
        inputs = ctx.saved_tensors
        needs = ctx.needs_input_grad[4 : 4 + len(inputs)]
        leaves = [t.detach().requires_grad_(need) if need else t.detach() for t, need in zip(inputs, needs)]
        outputs = ctx.run.again(leaves)
        if [tuple(t.shape) for t in outputs] != ctx.shapes:
            raise RuntimeError(
                f"checkpoint: the function gave tensors of shapes {[tuple(t.shape) for t in outputs]} when run again, {ctx.shapes} before; it "
                "must not depend on changing state"
            )
        pairs = [(t, g) for t, g in zip(outputs, gradients) if t.requires_grad and g is not None]
        outputs, gradients = [t for t, _ in pairs], [g for _, g in pairs]
        if ctx.captured is None:
            # Reentrant: a nested backward, which accumulates the gradients of captured leaves directly.
            if pairs:
                _C._backward(outputs, gradients, None, False, None)
            return (None, None, None, None, *(leaf.grad if need else None for leaf, need in zip(leaves, needs)))
        wanted = [leaf for leaf, need in zip(leaves, needs) if need] + ctx.captured
        # Captured tensors may belong to other graphs, too, which must stay usable.
        found = iter(_C._grad(outputs, wanted, gradients, True, False, True) if pairs else (None,) * len(wanted))
        return (None, None, None, None, *(next(found) if need else None for need in needs), *found)


def checkpoint(
    function=None, *args, use_reentrant=None, preserve_rng_state=True, context_fn=noop_context_fn, determinism_check="default", debug=False,
    early_stop=True, **kwargs,
):
    """``function(*args, **kwargs)`` without keeping intermediate values: backward runs the function again.

    With ``use_reentrant=True`` at least one input must require gradients for the outputs to do so, and parameters that the function uses
    get their gradients added to ``.grad`` by every backward pass, as in PyTorch.

    >>> import rushlight as torch
    >>> from rushlight.utils.checkpoint import checkpoint
    >>> w = torch.tensor([2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * w).exp(), torch.tensor([0.0]), use_reentrant=False).sum().backward()
    >>> w.grad
    tensor([0.])
    """
    if function is None:
        options = {"use_reentrant": use_reentrant, "preserve_rng_state": preserve_rng_state, "context_fn": context_fn}
        options.update(determinism_check=determinism_check, debug=debug, early_stop=early_stop, **kwargs)

        def decorate(function):
            @functools.wraps(function)
            def call(*args, **kwargs):
                return checkpoint(function, *args, **options, **kwargs)

            return call

        return decorate
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly; use_reentrant=False is recommended, "
                      "and what holds without it is True.", stacklevel=2)
        use_reentrant = True
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'] but got {determinism_check}")
    if not _C.is_grad_enabled():
        return function(*args, **kwargs)
    sharded = sys.modules.get("rushlight.distributed.fsdp._unit")
    if sharded is not None:
        # Backward runs the function when the parameters of the modules around it are sharded again.
        function = sharded.gathered_again(function)
    run = _Run(function, args, kwargs, preserve_rng_state, context_fn())
    if use_reentrant and not any(t.requires_grad for t in run.inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
    # Recorded once and discarded, to find which outputs depend on tensors that require gradients, and on which.
    given = [t.detach().requires_grad_(t.requires_grad) for t in run.inputs]
    recording = _C._set_grad_enabled(not use_reentrant)
    try:
        with run.first_context:
            if use_reentrant or determinism_check == "none" or getattr(run.first_context, "is_selective", False):
                outputs = run(given)
            else:
                with _Saved() as saved:
                    outputs = run(given)
                run.saved = saved.seen
    finally:
        _C._set_grad_enabled(recording)
    rebuild = run.rebuild_output
    if use_reentrant:
        fixed = [not t.is_floating_point() for t in outputs]
        captured = None
    else:
        fixed = [not t.requires_grad for t in outputs]
        if all(fixed):
            return rebuild(iter(outputs))
        # Parameters may require gradients though no input does.
        captured = _C._leaves([t for t in outputs if t.requires_grad], given)
    return rebuild(iter(_Checkpoint.apply(run, [t.detach() for t in outputs], fixed, captured, *run.inputs, *(captured or ()))))


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Functions (or a ``Sequential``) in segments; all segments but the last are checkpointed."""
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly.", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if segments < 1:
        raise ValueError(f"checkpoint_sequential: segments must be positive, not {segments}")
    size = max(1, len(functions) // segments)

    def chained(part):
        def run(x):
            for function in part:
                x = function(x)
            return x

        return run

    last = size * (segments - 1) if segments <= len(functions) else len(functions) - 1
    for start in range(0, last, size):
        part = chained(functions[start : min(start + size, last)])
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return chained(functions[last:])(input)


def get_device_states(*args):
    """The accelerators of tensors among the arguments, and their random states. One generator serves all devices."""
    from .. import Tensor, get_rng_state
    from ._pytree import tree_leaves

    devices = sorted({t.device.index for t in tree_leaves(args) if isinstance(t, Tensor) and t.is_cuda})
    return devices, [get_rng_state() for _ in devices]


def set_device_states(devices, states, *, device_type=None):
    """Restores such states."""
    from .. import set_rng_state

    for state in states:
        set_rng_state(state)


def check_backward_validity(inputs):
    """Warns if no input needs a gradient."""
    if not any(isinstance(t, Tensor) and t.requires_grad for t in inputs):
        import warnings

        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def detach_variable(inputs):
    """Detaches inputs; they require gradients as before."""
    return tuple(t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in inputs)


from ._selective import SAC_IGNORED_OPS, CheckpointPolicy, SelectiveCheckpointContext, create_selective_checkpoint_contexts  # noqa: E402, F401
