"""Functions with a backward written in Python."""

from .. import _C
from ..overrides import _modes

Tensor = _C.Tensor


_FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the "
    "graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if you "
    "need to access saved tensors after calling backward."
)


def _refuse_others(tensors, call, error, optional=False):
    """An error unless all are tensors, or None where that is allowed."""
    for at, tensor in enumerate(tensors):
        if not (isinstance(tensor, Tensor) or optional and tensor is None):
            raise error(f"{call} variables, but argument {at} is of type {type(tensor).__name__}")


class FunctionCtx:
    """The context that ``forward`` fills for ``backward``."""

    def __init__(self, needs_input_grad=()):
        self.needs_input_grad = needs_input_grad
        self._to_save = ()
        self._saved = None
        # The node, once there is one: it keeps what is saved.
        self._node = None
        self._non_differentiable = ()
        self._dirty = ()
        self._materialize = True

    def save_for_backward(self, *tensors):
        """Keeps tensors (inputs or outputs; ``None`` is allowed) for the backward pass."""
        _refuse_others(tensors, "save_for_backward can only save", TypeError, optional=True)
        self._to_save = tensors

    def save_for_forward(self, *tensors):
        """Keeps tensors for ``jvp``, which reads them as ``saved_tensors``."""
        _refuse_others(tensors, "save_for_forward can only save", TypeError, optional=True)
        self.saved_for_forward = tensors

    @property
    def saved_tensors(self):
        if self._saved is not None:
            return self._saved
        if self._node is None:
            return self._to_save
        node = self._node()
        tensors = None if node is None else node.saved_tensors()
        if tensors is None:
            raise RuntimeError(_FREED)
        return self._places(tensors)

    saved_variables = saved_tensors

    def _places(self, tensors):
        """Saved tensors, with None where None was saved."""
        tensors = iter(tensors)
        return tuple(next(tensors) if kept else None for kept in self._to_save)

    def mark_non_differentiable(self, *tensors):
        """Names outputs that have no gradient."""
        _refuse_others(tensors, "mark_non_differentiable only accepts", TypeError)
        self._non_differentiable = tensors

    def mark_dirty(self, *tensors):
        """Names inputs that ``forward`` changed in place and returned."""
        _refuse_others(tensors, "mark_dirty can only accept", RuntimeError)
        self._dirty = tensors

    def set_materialize_grads(self, value):
        """Whether ``backward`` gets zeros for outputs without a gradient; ``None`` otherwise."""
        self._materialize = value


class _Meta(type):
    def __call__(cls, *args, **kwargs):
        import warnings

        warnings.warn(
            f"{cls} should not be instantiated. Methods on autograd functions are all static, so you should invoke them on the class itself. Instantiating an "
            "autograd function will raise an error in a future version of PyTorch.",
            DeprecationWarning, stacklevel=2,
        )
        return super().__call__(*args, **kwargs)


class Function(metaclass=_Meta):
    """Subclasses define static methods ``forward(ctx, ...)`` and ``backward(ctx, *grad_outputs)``, and are used by ``apply``.

    >>> import rushlight as torch
    >>> class Cube(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return 3 * x ** 2 * grad
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    #: Whether ``backward`` takes the gradients as one list, which it may clear to free them early.
    boxed_grads_call = False

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with static forward method: "
            f"{type(self).__name__}.apply(...)"
        )

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD.")

    @staticmethod
    def jvp(ctx, *grad_inputs):
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @classmethod
    def apply(cls, *args, **kwargs):
        """Runs ``forward`` and records it."""
        if _modes.stack:
            from .._tangents import apply

            found = apply(cls, *cls._by_position(args, kwargs))
            if found is not None:
                return found
        _, _, single, outputs = cls._run(args, kwargs)
        return outputs[0] if single else tuple(outputs)

    @classmethod
    def _by_position(cls, args, kwargs):
        separate = cls.setup_context is not Function.setup_context
        if kwargs or separate and getattr(cls.forward, "__defaults__", None):
            return _positional(cls.forward, args, kwargs, separate)
        return args, kwargs

    @classmethod
    def _run(cls, args, kwargs):
        """Runs ``forward`` and records it. Returns its arguments by position, its context, whether it has one output, and the outputs."""
        args, kwargs = cls._by_position(args, kwargs)
        separate = cls.setup_context is not Function.setup_context
        recording = _C.is_grad_enabled()
        needs = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        ctx = FunctionCtx(needs if recording else (False,) * len(args))
        before = _C._set_grad_enabled(False)
        try:
            if separate:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **kwargs)
        finally:
            _C._set_grad_enabled(before)
        single = not isinstance(result, tuple)
        results = (result,) if single else result
        if any(all(t is not r for r in results) for t in ctx._dirty):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must all be outputs "
                "of the Function."
            )
        inputs = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        if any(all(t is not args[i] for i in inputs) for t in ctx._dirty):
            import warnings

            warnings.warn(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated should be passed to ctx.mark_dirty().",
                stacklevel=2,
            )
        if not (recording and any(needs)):
            outputs = [_handed_through(r, args, ctx) for r in results]
        else:
            outputs = _record(cls, ctx, args, inputs, results)
        return args, ctx, single, outputs


def _positional(forward, args, kwargs, separate):
    """Arguments by position as far as the signature of ``forward`` has positions for them: gradients are returned by position."""
    import inspect

    first = () if separate else (None,)
    bound = inspect.signature(forward).bind(*first, *args, **kwargs)
    bound.apply_defaults()
    return bound.args[len(first) :], bound.kwargs


def _handed_through(result, args, ctx):
    """An input that was not changed is returned as a view of it."""
    is_input = isinstance(result, Tensor) and any(result is a for a in args) and all(result is not t for t in ctx._dirty)
    return result.view_as(result) if is_input else result


def _nothing():
    """Stands for an output that is not a tensor."""
    return _C._torch.empty(0, dtype=_C.int64)


def _record(cls, ctx, args, inputs, results):
    """Makes the results of ``forward`` outputs of a node of the graph."""
    tensors = [i for i, r in enumerate(results) if isinstance(r, Tensor)]
    shapes = {i: (results[i].shape, results[i].dtype, results[i].device) for i in tensors}
    sizes = {i: args[i].shape for i in inputs}
    backward_of = cls.vjp if hasattr(cls, "vjp") else cls.backward
    # Only the number: the arguments themselves must not live as long as the graph.
    count = len(args)
    both = hasattr(cls, "vjp") and cls.backward is not Function.backward

    def backward(saved, gradients):
        if both:
            raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them.")
        ctx._saved = ctx._places(saved)
        try:
            if ctx._materialize:
                for place in tensors:
                    if gradients[place] is None:
                        size, dtype, device = shapes[place]
                        gradients[place] = _C._torch.zeros(size, dtype=dtype, device=device)
            found = backward_of(ctx, gradients) if cls.boxed_grads_call else backward_of(ctx, *gradients)
        finally:
            ctx._saved = None
        found = found if isinstance(found, (tuple, list)) else (found,)
        if len(found) < count or any(g is not None for g in found[count:]):
            raise RuntimeError(f"function {cls.__name__}Backward returned an incorrect number of gradients (expected {count}, got {len(found)})")
        for place, gradient in enumerate(found[: count]):
            if gradient is not None and place not in sizes:
                raise RuntimeError(
                    f"function {cls.__name__}Backward returned a gradient different than None at position {place + 1}, but the corresponding forward input was "
                    "not a Variable"
                )
            if gradient is not None and not isinstance(gradient, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(gradient).__name__})")
        return [_reduced(found[i], sizes[i]) for i in inputs]

    # Functions of this package make views for themselves only.
    own = vars(cls).get("__module__", "").partition(".")[0] not in ("rushlight", "torch")
    saved = [t for t in ctx._to_save if t is not None]
    made, ctx._node = _C._record_function(
        cls.__name__, [args[i] for i in inputs], [r if isinstance(r, Tensor) else _nothing() for r in results], saved, list(ctx._dirty),
        list(ctx._non_differentiable), own, backward, ctx,
    )
    # The node holds them, without its own outputs' history.
    ctx._to_save = tuple(t is not None for t in ctx._to_save)
    ctx._dirty = ctx._non_differentiable = ()
    return [made[i] if isinstance(r, Tensor) else r for i, r in enumerate(results)]


def _reduced(gradient, size):
    """A gradient of a broadcast input, summed to the input's size."""
    if not isinstance(gradient, Tensor) or gradient.shape == size or gradient.dim() < len(size):
        return gradient
    ends = gradient.shape[gradient.dim() - len(size):]
    return gradient.sum_to_size(size) if all(a in (1, b) for a, b in zip(size, ends)) else gradient


def once_differentiable(function):
    """Marks a backward that cannot be differentiated."""
    import functools

    @functools.wraps(function)
    def wrapper(ctx, *args):
        before = _C._set_grad_enabled(False)
        try:
            outputs = function(ctx, *args)
        finally:
            _C._set_grad_enabled(before)
        if not before or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        from .._autograd_internals import DelayedError

        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        kept = [o for o in outputs if isinstance(o, Tensor)]
        refusing = DelayedError("trying to differentiate twice a function that was marked with @once_differentiable", len(kept))
        made = refusing(*(o.detach().requires_grad_() if o.is_floating_point() or o.is_complex() else o for o in kept))
        made = iter([made] if len(kept) == 1 else made)
        return tuple(next(made) if isinstance(o, Tensor) else o for o in outputs)

    return wrapper


class NestedIOFunction(Function):
    """Exists for compatibility: arguments are not unpacked."""


class InplaceFunction(Function):
    """Exists for compatibility."""
