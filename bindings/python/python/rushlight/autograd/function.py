"""Functions with a backward written in Python."""

from .. import _C
from ..overrides import _modes

Tensor = _C.Tensor


class FunctionCtx:
    """The context that ``forward`` fills for ``backward``."""

    def __init__(self, needs_input_grad=()):
        self.needs_input_grad = needs_input_grad
        self._to_save = ()
        self._saved = None
        self._non_differentiable = ()
        self._dirty = ()
        self._materialize = True

    def save_for_backward(self, *tensors):
        """Keeps tensors (inputs or outputs; ``None`` is allowed) for the backward pass."""
        self._to_save = tensors

    @property
    def saved_tensors(self):
        return self._to_save if self._saved is None else self._saved

    saved_variables = saved_tensors

    def mark_non_differentiable(self, *tensors):
        self._non_differentiable = tensors

    def mark_dirty(self, *tensors):
        """Names inputs that ``forward`` changed in place and returned."""
        self._dirty = tensors

    def set_materialize_grads(self, value):
        self._materialize = value


class _Meta(type):
    def __call__(cls, *args, **kwargs):
        raise RuntimeError(f"{cls.__name__}: instances are not called; use {cls.__name__}.apply(...)")


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

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD.")

    @classmethod
    def apply(cls, *args, **kwargs):
        """Runs ``forward`` and records it."""
        if _modes.stack:
            from .._batch import apply

            found = apply(cls, args, kwargs)
            if found is not None:
                return found
        recording = _C.is_grad_enabled()
        needs = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        ctx = FunctionCtx(needs if recording else (False,) * len(args))
        separate = cls.setup_context is not Function.setup_context
        before = _C._set_grad_enabled(False)
        try:
            if separate:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **kwargs)
        finally:
            _C._set_grad_enabled(before)
        if not (recording and any(needs)):
            return result
        single = isinstance(result, Tensor)
        results = (result,) if single else tuple(result)
        fixed = {id(t) for t in ctx._non_differentiable}
        recorded = [i for i, r in enumerate(results) if isinstance(r, Tensor) and (r.is_floating_point() or r.is_complex()) and id(r) not in fixed]
        inputs = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        kept = [i for i, t in enumerate(ctx._to_save) if t is not None]
        shapes = {i: (results[i].shape, results[i].dtype, results[i].device) for i in recorded}
        sizes = {i: args[i].shape for i in inputs}
        backward_of = cls.vjp if hasattr(cls, "vjp") else cls.backward

        def backward(saved, gradients):
            ctx._saved = [None] * len(ctx._to_save)
            for place, tensor in zip(kept, saved):
                ctx._saved[place] = tensor
            ctx._saved = tuple(ctx._saved)
            given = [None] * len(results)
            for place, gradient in zip(recorded, gradients):
                given[place] = gradient
            if ctx._materialize:
                from .. import zeros

                for place in recorded:
                    if given[place] is None:
                        size, dtype, device = shapes[place]
                        given[place] = zeros(size, dtype=dtype, device=device)
            found = backward_of(ctx, *given)
            found = found if isinstance(found, (tuple, list)) else (found,)
            extra = found[len(args):]
            if len(found) < len(args) or any(g is not None for g in extra):
                raise RuntimeError(
                    f"function {cls.__name__}Backward returned an incorrect number of gradients (expected {len(args)}, got {len(found)})"
                )
            return [_reduced(found[i], sizes[i]) for i in inputs]

        outputs = list(results)
        made = _C._record_function(
            cls.__name__,
            [args[i] for i in inputs],
            [results[i] for i in recorded],
            [ctx._to_save[i] for i in kept],
            backward,
            ctx,
        )
        for place, tensor in zip(recorded, made):
            outputs[place] = tensor
        return outputs[0] if single else tuple(outputs)


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
            return function(ctx, *args)
        finally:
            _C._set_grad_enabled(before)

    return wrapper


class NestedIOFunction(Function):
    """Exists for compatibility: arguments are not unpacked."""


class InplaceFunction(Function):
    """Exists for compatibility."""
