"""``torch.cuda.CUDAGraph`` and its helpers: work recorded between two calls and replayed on the same tensors."""

from .. import _C, _accelerator

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def _device():
    if not _C._device_count():
        raise RuntimeError(
            "CUDAGraph: there is no accelerator whose work could be recorded; rushlight.capture(step) runs a step as it is on the CPU and records it elsewhere"
        )
    return _C._current_device()


def is_current_stream_capturing():
    """Whether this thread's work is being recorded as a graph."""
    return _C._is_recording()


def graph_pool_handle():
    """A memory pool for graphs."""
    return _C._GraphPool(_device())


class CUDAGraph:
    """Work of an accelerator, recorded by ``torch.cuda.graph`` and replayed on the tensors that it read and wrote.

    Random numbers continue from replay to replay, and an optimizer in the graph follows its options and counts its steps. ``rushlight.capture`` does the same for
    a function of tensors, without static tensors.
    """

    def __init__(self, keep_graph=False):
        if keep_graph:
            raise NotImplementedError("CUDAGraph(keep_graph=True): the driver's graph is not accessible")
        self._index, self._pool, self._graph = _device(), None, None

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Starts to record this thread's work. Work of other threads does not disturb it, for every ``capture_error_mode``."""
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError(f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}")
        if self._graph is not None:
            raise RuntimeError("This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance or call reset().")
        self._pool = pool if pool is not None else _C._GraphPool(self._index)
        _C._graph_begin(self._index, self._pool)

    def capture_end(self):
        """Ends the recording. The recorded work has not run yet."""
        self._graph = _C._graph_end()

    def replay(self):
        """Runs the recorded work on its tensors' current contents."""
        if self._graph is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        self._graph.replay()

    def reset(self):
        """Discards the recording."""
        self._graph = None

    def pool(self):
        """The memory of the recording, for other graphs to share."""
        if self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool


class graph:
    """A context whose work is recorded in a ``CUDAGraph`` and does not run.

    The recording has its own stream; ``stream`` is the current stream after it.
    """

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="thread_local"):
        self.cuda_graph, self._pool, self._mode = cuda_graph, pool, capture_error_mode
        self._stream = _accelerator.StreamContext(stream)

    def __enter__(self):
        _C._synchronize(_accelerator.place("cuda"))
        self._stream.__enter__()
        try:
            self.cuda_graph.capture_begin(self._pool, self._mode)
        except BaseException:
            self._stream.__exit__()
            raise

    def __exit__(self, kind, *exception):
        try:
            if kind is None:
                self.cuda_graph.capture_end()
            else:
                _C._graph_abort()
        finally:
            self._stream.__exit__(kind, *exception)


def _leaves(value):
    """The tensors of nested tuples, lists and dicts, and a function that rebuilds the containers with others."""
    if isinstance(value, _C.Tensor):
        return [value], lambda tensors: next(tensors)
    if isinstance(value, dict):
        parts = {key: _leaves(part) for key, part in value.items()}
        return [t for found, _ in parts.values() for t in found], lambda tensors: {key: make(tensors) for key, (_, make) in parts.items()}
    if isinstance(value, (tuple, list)):
        parts = [_leaves(part) for part in value]
        kind = type(value)
        return [t for found, _ in parts for t in found], lambda tensors: kind([make(tensors) for _, make in parts])
    return [], lambda tensors: value


def make_graphed_callables(
    callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None, capture_error_mode="thread_local",
):
    """Modules or functions of tensors whose forward and backward passes are each replayed as a graph.

    Arguments must be like the sample's in shape, dtype and ``requires_grad``; the next call overwrites the results. Each callable records in its own
    memory unless ``pool`` is given.
    """
    single = not isinstance(callables, tuple)
    functions, samples = ((callables,), (sample_args,)) if single else (callables, sample_args)
    made = tuple(
        _graphed(function, sample, num_warmup_iters, allow_unused_input, pool or graph_pool_handle(), capture_error_mode)
        for function, sample in zip(functions, samples)
    )
    return made[0] if single else made


def _graphed(function, sample, warmup, allow_unused, pool, mode):
    from ..autograd import Function, grad
    from ..nn import Module

    if not all(isinstance(a, _C.Tensor) for a in sample):
        raise TypeError("make_graphed_callables: sample_args must be tensors; other arguments belong into the callable")
    is_module = isinstance(function, Module)
    if is_module:
        if function._hooked:
            raise RuntimeError("Modules must not have hooks registered at the time they are passed. Hooks may be registered after")
        if any(b.requires_grad for b in function.buffers()):
            raise RuntimeError("make_graphed_callables: buffers of modules must not require gradients")
    params = tuple(p for p in function.parameters() if p.requires_grad) if is_module else ()
    inputs = tuple(a.detach().clone().requires_grad_(a.requires_grad) for a in sample)
    surface = tuple(t for t in (*inputs, *params) if t.requires_grad)

    def backward(outputs, gradients):
        wanted = [(o, g) for o, g in zip(outputs, gradients) if o.requires_grad]
        if not wanted or not surface:
            return ()
        # Retained: the forward pass's saved tensors keep their memory.
        return grad([o for o, _ in wanted], surface, [g for _, g in wanted], retain_graph=True, allow_unused=allow_unused)

    for _ in range(warmup):
        outputs, _ = _leaves(function(*inputs))
        backward(outputs, [o.detach().new_ones(o.shape) for o in outputs])
    forward_graph, backward_graph = CUDAGraph(), CUDAGraph()
    with graph(forward_graph, pool, capture_error_mode=mode):
        outputs, rebuild = _leaves(function(*inputs))
    gradients = [o.detach().new_empty(o.shape) for o in outputs]
    input_gradients = ()
    if surface and any(o.requires_grad for o in outputs):
        with graph(backward_graph, pool, capture_error_mode=mode):
            input_gradients = backward(outputs, gradients)
    found = iter(input_gradients)
    slots = [next(found, None) if t.requires_grad else None for t in (*inputs, *params)]

    class Graphed(Function):
        @staticmethod
        def forward(ctx, *given):
            for own, a in zip(inputs, given):
                if own.data_ptr() != a.data_ptr():
                    own.detach().copy_(a.detach())
            forward_graph.replay()
            results = tuple(o.detach() for o in outputs)
            ctx.mark_non_differentiable(*(r for r, o in zip(results, outputs) if not o.requires_grad))
            return results

        @staticmethod
        def backward(ctx, *given):
            for own, g in zip(gradients, given):
                if g is not None:
                    own.copy_(g)
            backward_graph.replay()
            # Copies: callers may keep gradients, and the next replay overwrites these.
            return tuple(None if s is None else s.clone() for s in slots)

    def graphed(*args):
        if len(args) != len(inputs) or any(a.shape != own.shape or a.dtype != own.dtype for a, own in zip(args, inputs)):
            raise ValueError("make_graphed_callables: the arguments are not like the sample's in number, shape and dtype")
        made = Graphed.apply(*args, *params)
        return rebuild(iter(made if isinstance(made, tuple) else (made,)))

    if not is_module:
        return graphed
    mode_then, plain = function.training, function.forward

    def forward(*args):
        # The other mode was not recorded.
        return graphed(*args) if function.training == mode_then else plain(*args)

    function.forward = forward
    return function
