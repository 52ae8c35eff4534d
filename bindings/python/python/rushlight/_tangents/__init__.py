"""Forward mode: a mode (``Level``) knows the tangents of tensors and gives every function of ``torch`` its rule (``_rules``).

Tensors are the program's own: a level keeps a tangent for each object, and drops it with the object. A rule computes the value as ever and the tangent by
functions of ``torch``, under the modes below: levels nest, tangents may be batched (``vmap``), and a tape records both. Pure forward derivatives need no tape.

Reverse passes within a level are differentiated along its *sources*: tensors on the tape at which tangents enter. An op that is recorded gets its tensors with
tangents as such sources.
"""

import contextlib
import threading
import weakref

from .. import _C
from .._batch import METADATA, Batched, Level as Batch, levels, name_of
from ..overrides import TorchFunctionMode, _modes

Tensor = _C.Tensor
_torch = _C._torch


class _Switch(threading.local):
    """Whether this thread propagates tangents."""

    enabled = True


switch = _Switch()

#: Functions whose results have no tangents: questions, numbers, constants of a tensor's kind.
_CONSTANT = METADATA | frozenset(
    "item tolist numpy __float__ __int__ __index__ __complex__ __bool__ __array__ __format__ __contains__ data_ptr is_nonzero equal allclose isclose detach data "
    "zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full new_tensor new_empty_strided "
    "eq ne lt le gt ge isnan isinf isfinite isposinf isneginf isreal signbit logical_and logical_or logical_xor logical_not argmax argmin argsort nonzero argwhere "
    "bernoulli multinomial count_nonzero searchsorted bucketize any all floor_divide".split()
)


def tensors_of(value):
    """The tensors of nested containers, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    return [t for item in value.values() for t in tensors_of(item)] if isinstance(value, dict) else []


def mapped(function, value):
    """Nested containers with other tensors."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        made = [mapped(function, item) for item in value]
        named = hasattr(value, "_fields") and not type(value).__module__.endswith("return_types")
        return type(value)(*made) if named else made if type(value) is list else type(value)(made)
    return {key: mapped(function, item) for key, item in value.items()} if isinstance(value, dict) else value


def is_number(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


@contextlib.contextmanager
def below(at):
    """The first modes of the stack only."""
    before = _modes.stack
    _modes.stack = before[:at]
    _C._set_function_modes(at)
    try:
        yield
    finally:
        _modes.stack = before
        _C._set_function_modes(len(before))


@contextlib.contextmanager
def recording():
    before = _C._set_grad_enabled(True)
    try:
        yield
    finally:
        _C._set_grad_enabled(before)


def _batches_of(tensor):
    """The levels of ``vmap`` at which a tensor is batched."""
    found = []
    while type(tensor) is Batched:
        found.append(tensor._level)
        tensor = tensor._value
    return found


def lifted(tensor, limit=None):
    """A tensor that is batched at every level of ``vmap``, with its tangents: derivatives by it differ between elements of the batch."""
    stack = _modes.stack
    limit = len(stack) if limit is None else limit
    at = next((k for k in reversed(range(limit)) if isinstance(stack[k], Batch)), None)
    if at is None:
        return tensor
    batch = stack[at]
    if batch.has(tensor):
        inner = lifted(tensor._value, at)
        if inner is tensor._value:
            return tensor
        made = Batched(inner, batch)
    else:
        inner = lifted(tensor, at)
        with below(at):
            made = Batched(batch.expanded(inner), batch)
    for mode in stack[at + 1:limit]:
        if isinstance(mode, Level):
            mode.copy(tensor, made)
    return made


def keep(old, new, source=False):
    """Gives a tensor the tangents of another of the same value. Returns the sources that this made, with their levels."""
    made = []
    for mode in _modes.stack:
        if isinstance(mode, Level) and mode.copy(old, new) and source:
            made.append((mode, mode.add_source(new)))
    if type(old) is Batched and type(new) is Batched:
        made += keep(old._value, new._value, source)
    return made


def leaf(tensor, made=None):
    """A tensor that derivatives are taken by. What it adds to the levels' sources is appended to ``made``."""
    tensor = lifted(tensor)
    if tensor.requires_grad:
        return tensor.view_as(tensor)
    new = tensor.detach().requires_grad_()
    sources = keep(tensor, new, True)
    if made is not None:
        made += sources
    return new


def detached(tensor):
    """A tensor without its graph, with its tangents."""
    new = tensor.detach()
    if any(isinstance(mode, Level) for mode in _modes.stack):
        keep(tensor, new)
    return new


def along(outputs, leaves, tangents, recorded):
    """The derivatives of outputs along tangents of the leaves: the gradient is linear in its weight; its derivative by the weight is the result.

    None for outputs that no leaf has a part in."""
    from ..autograd import grad

    live = [o for o in outputs if o.requires_grad]
    if not live or not leaves:
        return [None] * len(outputs)
    # Not zeros: formulas with logarithms of a weight have no derivative there.
    weights = [_torch.ones_like(o.detach()).requires_grad_() for o in live]
    gradients = grad(live, leaves, weights, retain_graph=True, create_graph=True, allow_unused=True)
    pairs = [(g, t) for g, t in zip(gradients, tangents) if g is not None and g.requires_grad]
    if not pairs:
        return [None] * len(outputs)
    found = grad([g for g, _ in pairs], weights, [t for _, t in pairs], retain_graph=True, create_graph=recorded, allow_unused=True)
    parts = iter(found)
    return [next(parts) if o.requires_grad else None for o in outputs]


class Level(TorchFunctionMode):
    """The tangents of one direction, and the mode that computes them."""

    def __init__(self):
        self._known = {}
        # Tensors written in place, by identity: their views take their tangents from them.
        self._written = {}
        # What tensors became when they joined a tape.
        self._joined = {}
        self.sources = []

    # Tangents of objects.

    def attach(self, tensor, tangent):
        """Gives a tensor its tangent, in the tensor's dtype and size. Integers have none."""
        if not is_number(tensor):
            return
        if tangent.dtype != tensor.dtype:
            tangent = tangent.to(tensor.dtype)
        if tuple(tangent.shape) != tuple(tensor.shape):
            tangent = tangent.expand(tensor.shape)
        key, known = id(tensor), self._known
        known[key] = (weakref.ref(tensor, lambda _: known.pop(key, None)), tangent)

    def forget(self, tensor):
        self._known.pop(id(tensor), None)

    def copy(self, old, new):
        """Gives a tensor another's tangent. Returns whether there is one."""
        tangent = self.tangent(old)
        if tangent is not None:
            self.attach(new, tangent)
        return tangent is not None

    def tangent(self, tensor):
        """The tangent of a tensor, or None."""
        if not self._known:
            return None
        if self._written and type(tensor) is not Batched and tensor._is_view():
            base = tensor._base
            if base is not None and id(base) in self._written:
                return _part(self._known[id(base)][1], base, tensor)
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def write(self, tensor, tangent):
        """The tangent of a tensor that was changed in place, and of all views of the same memory."""
        base = None if type(tensor) is Batched or not tensor._is_view() else tensor._base
        if base is None:
            self.attach(tensor, tangent)
            base = tensor
        else:
            whole = self.tangent(base)
            whole = _torch.zeros_like(base) if whole is None else _torch.zeros_like(base) + whole
            whole = _batched_as(whole, tangent)
            _part(whole, base, tensor).copy_(tangent)
            self.attach(base, whole)
        if type(tensor) is not Batched:
            self._written[id(base)] = base

    def dual(self, primal, tangent):
        """A tensor of the same memory that has a tangent."""
        if primal.requires_grad:
            primal = lifted(primal)
            made = primal.view_as(primal)
        else:
            made = detached(primal)
        self.attach(made, tangent)
        if primal.requires_grad:
            self.add_source(made)
        return made

    def primal(self, tensor):
        """A tensor of the same memory and history without a tangent of this level."""
        made = tensor.view_as(tensor) if tensor.requires_grad else detached(tensor)
        self.forget(made)
        return made

    def unpack(self, tensor):
        """The tangent of a result: the one it has, or what the tape says."""
        tangent = self.tangent(tensor)
        if tangent is not None or not tensor.requires_grad or not self.sources:
            return tangent
        with recording():
            (tangent,) = self._along([tensor], tensor.grad_fn is not None and _C.is_grad_enabled())
        return tangent

    # The tape.

    def add_source(self, tensor):
        entry = (tensor, self.tangent(tensor))
        self.sources.append(entry)
        return entry

    def drop_source(self, entry):
        self.sources = [e for e in self.sources if e is not entry]

    def join(self, tensor):
        """A tensor with a tangent as one of the tape; others as they are."""
        if not isinstance(tensor, Tensor) or tensor.requires_grad or not is_number(tensor) or self.tangent(tensor) is None:
            return tensor
        known = self._joined.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] is self.tangent(tensor):
            return known[2]
        made = lifted(tensor)
        made = made.detach().requires_grad_()
        keep(tensor, made, True)
        self.copy(tensor, made)
        self.add_source(made)
        self._joined[id(tensor)] = (weakref.ref(tensor), self.tangent(tensor), made)
        return made

    def _along(self, outputs, recorded):
        """Tangents of tensors on the tape. All sources are batched at every level of ``vmap`` below; outputs that are not do not depend on them."""
        batches = levels()
        live = [o for o in outputs if all(b in _batches_of(o) for b in batches)]
        found = iter(along(live, [t for t, _ in self.sources], [t for _, t in self.sources], recorded))
        return [next(found) if any(o is k for k in live) else None for o in outputs]

    def grad(self, at, outputs, inputs, gradients, function, create):
        """Gradients with their tangents. ``function`` differentiates under the modes below, the first ``at``."""
        with below(at):
            gradients = [self.join(g) for g in gradients]
            found = function(outputs, inputs, gradients, again=True, create=True)
            live = [g for g in found if g is not None]
            with recording():
                tangents = iter(self._along(live, create))
            made = []
            for gradient in found:
                tangent = next(tangents) if gradient is not None else None
                gradient = gradient if create or gradient is None else detached(gradient)
                if tangent is not None:
                    self.attach(gradient, tangent if create else detached(tangent))
                made.append(gradient)
        return tuple(made)

    # Calls.

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self._known or not switch.enabled or not any(self.tangent(t) is not None for t in tensors_of((args, kwargs))):
            return func(*args, **kwargs)
        name = name_of(func)
        if name in _CONSTANT:
            return func(*args, **kwargs)
        from ._rules import call

        return call(self, func, name, args, kwargs)


def _part(whole, base, view):
    """The part of a tensor, which lies in memory as ``base`` does, that a view of ``base`` has."""
    if tuple(whole.stride()) != tuple(base.stride()):
        whole = _torch.zeros_like(base) + whole
    return whole.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset() + (0 if type(whole) is Batched else whole.storage_offset()))


def _batched_as(tensor, other):
    """A copy of a tensor that is batched wherever another is."""
    for batch in reversed(_batches_of(other)):
        if batch not in _batches_of(tensor):
            tensor = lifted(tensor)
    return tensor.clone()


def grad(outputs, inputs, gradients, function, create, limit):
    """Gradients by the innermost of the first ``limit`` modes that has a part in them: a batch, or a level of tangents. None if there is none."""
    from .._batch import _grad_of

    stack = _modes.stack
    for at in reversed(range(min(limit, len(stack)))):
        mode = stack[at]
        if isinstance(mode, Batch) and mode.mentions((outputs, inputs, gradients)):
            return _grad_of(mode, outputs, inputs, gradients, lambda *args, _at=at, **options: function(*args, limit=_at, **options))
        if isinstance(mode, Level) and switch.enabled and (mode.sources or any(g is not None and mode.tangent(g) is not None for g in gradients)):
            return mode.grad(at, outputs, inputs, gradients, lambda *args, _at=at, **options: function(*args, limit=_at, **options), create)
    return None


def apply(function, args, kwargs):
    """``autograd.Function.apply`` by the innermost batch or level of tangents that has one of the arguments; None without any."""
    from .._batch import _apply

    stack = _modes.stack
    for at in reversed(range(len(stack))):
        mode = stack[at]
        if isinstance(mode, Batch) and (mode.mentions(args) or mode.mentions(kwargs)):
            return _apply(mode, function, args, kwargs)
        if isinstance(mode, Level) and switch.enabled and any(mode.tangent(t) is not None for t in tensors_of((args, kwargs))):
            from ._rules import applied

            with below(at):
                return applied(mode, function, args, kwargs)
    return None
