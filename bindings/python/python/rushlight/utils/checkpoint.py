"""Activation checkpointing: discards activations and recomputes them in backward. ``torch.utils.checkpoint``."""

import contextlib
import enum
import functools
import sys
import warnings
import weakref

from .. import _C, _absent
from .._compile import Unholdable, is_recording
from ..autograd.function import Function

__all__ = [
    "CheckpointError", "GraphExecGroup", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
]

Tensor = _C.Tensor

#: What ``set_checkpoint_early_stop`` and ``set_checkpoint_debug_enabled`` say; None leaves it to the arguments.
_early_stop = _debug = None


def noop_context_fn():
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """Whether functions that are checkpointed in the block are run again only as far as backward needs them."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """Whether errors of functions that are checkpointed in the block list the functions that were called; None leaves it to ``checkpoint``'s ``debug``."""
    global _debug
    before, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = before


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
    """A function that saved other tensors when it was run again."""


class GraphExecGroup:
    """Backward passes in the block share what was computed again; no two may need the same value."""

    _current = None

    def __enter__(self):
        if GraphExecGroup._current is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested: leave the one that is active first")
        GraphExecGroup._current = self
        return self

    def __exit__(self, *exception):
        GraphExecGroup._current = None


class _Conditions:
    """Random numbers and precision of the first run, for the others."""

    def __init__(self, preserve_rng_state):
        self.random = _C.get_rng_state() if preserve_rng_state else None
        self.precision = _C._autocast_dtype()

    @contextlib.contextmanager
    def again(self):
        now = None if self.random is None else _C.get_rng_state()
        precision = _C._set_autocast(self.precision)
        recording = _C._set_grad_enabled(True)
        try:
            if self.random is not None:
                _C.set_rng_state(self.random)
            yield
        finally:
            _C._set_grad_enabled(recording)
            _C._set_autocast(precision)
            if self.random is not None:
                _C.set_rng_state(now)


class _Run:
    """A function with its arguments, which can be recomputed under the same conditions."""

    def __init__(self, function, args, preserve_rng_state):
        self.function = function
        self.inputs = []
        self.rebuild = _flatten(args, self.inputs)
        self.conditions = _Conditions(preserve_rng_state)
        self.rebuild_output = None

    def __call__(self, tensors):
        outputs = []
        self.rebuild_output = _flatten(self.function(*self.rebuild(iter(tensors))), outputs)
        return outputs

    def again(self, tensors):
        """Recomputes the outputs with recording."""
        with self.conditions.again():
            return self(tensors)


class _Checkpoint(Function):
    """A nested backward pass over outputs that are computed again."""

    @staticmethod
    def forward(ctx, run, outputs, fixed, *inputs):
        ctx.run = run
        ctx.shapes = [tuple(t.shape) for t in outputs]
        ctx.save_for_backward(*inputs)
        # Separate handles: an output may be an input, or appear twice.
        results = tuple(t.detach() for t in outputs)
        ctx.mark_non_differentiable(*(r for r, keep in zip(results, fixed) if keep))
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx, *gradients):
        if not _C._is_checkpoint_valid():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to .backward(): gradients of "
                "captured parameters are added to .grad. Set use_reentrant=False, or call .backward() without `inputs`."
            )
        inputs = ctx.saved_tensors
        needs = ctx.needs_input_grad[3:]
        leaves = [t.detach().requires_grad_(need) if need else t.detach() for t, need in zip(inputs, needs)]
        outputs = ctx.run.again(leaves)
        if [tuple(t.shape) for t in outputs] != ctx.shapes:
            raise RuntimeError(
                f"checkpoint: the function gave tensors of shapes {[tuple(t.shape) for t in outputs]} when run again, {ctx.shapes} before; it "
                "must not depend on changing state"
            )
        if not any(t.requires_grad for t in outputs):
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        pairs = [(t, g) for t, g in zip(outputs, gradients) if t.requires_grad and g is not None]
        # Accumulates the gradients of captured leaves directly.
        if pairs:
            _C._backward([t for t, _ in pairs], [g for _, g in pairs], None, False, None)
        return (None, None, None, *(leaf.grad if need else None for leaf, need in zip(leaves, needs)))


class _Inputs(Function):
    """Keeps tensors as saved values of a step, so that hooks and checkpoints around see them."""

    @staticmethod
    def forward(ctx, keeper, tensors, anchor):
        keeper.context = ctx
        ctx.save_for_backward(*tensors)
        return anchor.new_empty(0)

    @staticmethod
    def backward(ctx, *gradients):
        raise AssertionError("checkpoint: the step that keeps inputs has no gradient")


class _Arguments:
    """Positional arguments, whose tensors are saved values."""

    def __init__(self, args):
        self.places = [i for i, value in enumerate(args) if isinstance(value, Tensor)]
        self.others = [None if isinstance(value, Tensor) else value for value in args]
        # The step lives as long as its result.
        tensors = [args[i] for i in self.places]
        self.step = _Inputs.apply(self, tensors, _C._torch.empty(0, requires_grad=True)) if tensors else None

    def restore(self):
        args = list(self.others)
        for place, tensor in zip(self.places, self.context.saved_tensors if self.places else ()):
            args[place] = tensor
        return args


class _Stop(Exception):
    """Ends a recomputation when all that the first run saved was saved again."""


class _Slot:
    """What a step keeps instead of a tensor."""

    __slots__ = ("tensors", "__weakref__")

    def __init__(self):
        #: The tensor computed again, by backward pass; None once it was used.
        self.tensors = {}


def _metadata(tensor):
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


_TIP = (
    "\nTip: To see a more detailed error message, either pass `debug=True` to `torch.utils.checkpoint.checkpoint(...)` or wrap the code block with "
    "`with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):`. A function that torch.compile compiled anew for other sizes between the passes differs, "
    "too. Either: Use torch._dynamo.mark_dynamic() to explicitly mark varying dimensions beforehand, or Call torch._C._dynamo.eval_frame._set_lru_cache(False) to "
    "disable LRU cache reordering."
)


class _Saved:
    """Hooks of the tensors that a function saves: steps keep slots, which are filled by running the function again when backward reads one."""

    def __init__(self, again, early_stop, metadata):
        self.again = again
        self.early_stop = early_stop
        self.metadata = metadata
        self.slots = []
        self.described = []
        #: The number of tensors saved again, by backward pass.
        self.counts = {}
        self.is_complete = False
        # A backward pass within the function runs before it has saved everything.
        self.is_partial = False

    def pack(self, tensor):
        slot = _Slot()
        self.slots.append(weakref.ref(slot))
        self.described.append(self.metadata(tensor))
        return slot

    def unpack(self, slot):
        group = GraphExecGroup._current
        task = _C._current_graph_task_id()
        key = group or (object() if task < 0 else task)
        if key not in self.counts:
            self._fill(key)
        if slot.tensors.get(key) is None:
            raise CheckpointError(
                "torch.utils.checkpoint: Performing two backward calls that overlap (i.e. require the same saved activation in order to compute gradients) is not "
                "allowed while under the torch.utils.checkpoint.GraphExecGroup context." if group else
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If you are calling ctx.saved_tensors in backward, "
                "make sure to do so only once."
            )
        tensor, slot.tensors[key] = slot.tensors[key], None
        if task < 0 and not group:
            # Outside of backward passes nobody comes for the others.
            del self.counts[key]
            for other in self.slots:
                if other() is not None:
                    other().tensors.pop(key, None)
        return tensor

    def _fill(self, key):
        self.counts[key] = 0
        stopped = False

        def pack(tensor):
            nonlocal stopped
            at = self.counts[key]
            if stopped or at >= len(self.slots):
                if not stopped and self.is_complete:
                    raise CheckpointError(
                        "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original forward pass.\n"
                        f"Number of tensors saved during forward: {len(self.slots)}{_TIP}"
                    )
                self.is_partial = self.is_partial or not self.is_complete
                return tensor
            self.counts[key] += 1
            slot = self.slots[at]()
            if slot is not None:
                slot.tensors[key] = tensor.detach()
            if self.early_stop and at + 1 == len(self.slots):
                stopped = True
                raise _Stop
            return tensor

        _C._push_saved_tensors_hooks(pack, lambda tensor: tensor)
        try:
            self.again()
        except _Stop:
            pass
        finally:
            _C._pop_saved_tensors_hooks()
        if not self.is_partial:
            self._check(key)

    def _check(self, key):
        """An error if the function saved other tensors than the first time."""
        if self.counts[key] != len(self.slots):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.slots)}\nNumber of tensors saved during recomputation: {self.counts[key]}.{_TIP}"
            )
        different = []
        for at, (slot, before) in enumerate(zip(self.slots, self.described)):
            now = None if slot() is None else self.metadata(slot().tensors[key])
            if slot() is not None and now != before:
                different.append(f"tensor at position {at}:\nsaved metadata: {before}\nrecomputed metadata: {now}\n")
        if different:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.\n"
                f"{''.join(different)}{_TIP}"
            )


def _logging(metadata_of):
    """Contexts that note the functions called, and hooks' ``unpack`` with both lists in its errors."""
    from ..overrides import BaseTorchFunctionMode, resolve_name

    calls = [], []

    class Log(BaseTorchFunctionMode):
        def __init__(self, lines):
            self.lines = lines

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.lines.append(str(resolve_name(func) or getattr(func, "__name__", func)))
            return func(*args, **(kwargs or {}))

    def unpack(slot):
        try:
            return metadata_of.unpack(slot)
        except CheckpointError as error:
            first, second = ("\n".join(f"  {name}" for name in names) for names in calls)
            raise CheckpointError(
                f"{error}\n\nFunctions called in the original forward:\n{first}\n\nFunctions called in recomputation:\n{second}\n\n"
                "You are seeing this error because you passed `debug=True` to checkpoint and the tensors to be saved during the original forward and differ "
                "between those saved during recomputation: the first line in which the lists differ is where the function depends on state that changed."
            ) from error

    return Log(calls[0]), Log(calls[1]), unpack


def _by_hooks(function, args, kwargs, preserve_rng_state, context_fn, determinism_check, debug, early_stop):
    """The result of a function whose steps keep slots; the graph is that of this call."""
    debug = debug if _debug is None else _debug
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    first, second = context_fn()
    arguments = _Arguments(args)
    conditions = _Conditions(preserve_rng_state)

    def again():
        with conditions.again():
            restored = arguments.restore()
            with second:
                function(*restored, **kwargs)

    metadata = _metadata if determinism_check == "default" else lambda tensor: None
    saved = _Saved(again, early_stop if _early_stop is None else _early_stop, metadata)
    unpack = saved.unpack
    if debug:
        first, second, unpack = _logging(saved)
    result, done = None, False
    _C._push_saved_tensors_hooks(saved.pack, unpack)
    try:
        with first:
            result, done = function(*args, **kwargs), True
    finally:
        _C._pop_saved_tensors_hooks()
    if not done:
        raise RuntimeError("torch.utils.checkpoint: the first context of context_fn suppressed an exception of the function, which has no result then")
    saved.is_complete = True
    return result


def checkpoint(
    function=None, *args, use_reentrant=None, preserve_rng_state=True, context_fn=noop_context_fn, determinism_check="default", debug=False,
    early_stop=True, **kwargs,
):
    """``function(*args, **kwargs)`` without keeping intermediate values: backward runs the function again.

    With ``use_reentrant=True`` at least one input must require gradients for the outputs to do so, and parameters that the function uses
    get their gradients added to ``.grad`` by every backward pass, as in PyTorch. With ``use_reentrant=False`` the function is run again up to the
    last value that backward needs (to its end with ``early_stop=False``), and must save the same tensors again.

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
    if not use_reentrant:
        if is_recording():
            raise Unholdable("torch.utils.checkpoint with use_reentrant=False runs the function again by hooks, which no program holds")
        return _by_hooks(function, args, kwargs, preserve_rng_state, context_fn, determinism_check, debug, early_stop)
    run = _Run(function, args, preserve_rng_state)
    if not any(t.requires_grad for t in run.inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
    given = [t.detach().requires_grad_(t.requires_grad) for t in run.inputs]
    recording = _C._set_grad_enabled(False)
    try:
        outputs = run(given)
    finally:
        _C._set_grad_enabled(recording)
    rebuild = run.rebuild_output
    fixed = [not t.is_floating_point() for t in outputs]
    return rebuild(iter(_Checkpoint.apply(run, [t.detach() for t in outputs], fixed, *run.inputs)))


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


class CheckpointPolicy(enum.Enum):
    """Policy for an op's values between the passes."""

    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE, MUST_CPU_OFFLOAD = range(5)


def check_backward_validity(inputs):
    """Warns if no input needs a gradient."""
    if not any(isinstance(t, Tensor) and t.requires_grad for t in inputs):
        import warnings

        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def detach_variable(inputs):
    """Detaches inputs; they require gradients as before."""
    return tuple(t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in inputs)


_absent.fill(
    globals(), "torch.utils.checkpoint", "a checkpoint keeps its inputs and recomputes the rest", "SelectiveCheckpointContext create_selective_checkpoint_contexts",
)
