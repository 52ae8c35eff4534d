"""The recorded graph: nodes, their hooks, gradient edges, and hooks over several tensors."""

import contextlib
import threading
import weakref
from typing import NamedTuple, Optional

from .. import _C, _absent

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
    "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]

#: Nodes that Python holds, by their addresses: a node is one object.
_nodes = weakref.WeakValueDictionary()
_classes = {}


class Node:
    """A node of the graph: the backward step of an op, or the accumulation of a leaf's gradient. Its class has the step's name."""

    #: ``_outputs``: sizes, dtypes and devices of the outputs that are known; ``_source``: the step that reads
    #: this one's output.
    __slots__ = ("_node", "_outputs", "_source", "__weakref__")

    def name(self):
        """The name of the step."""
        return f"torch::autograd::{self._node.name}" if self._node.name in ("AccumulateGrad", "CopySlices") else self._node.name

    @property
    def next_functions(self):
        """The nodes of the inputs, each with the number of its output; ``(None, 0)`` for inputs without gradients."""
        made = []
        for at, (handle, slot) in enumerate(self._node.inputs):
            node = None if handle is None else _node_of(handle)
            if node is not None and node._outputs is None and node._source is None:
                node._source = self._node.weak(), at, slot, self._outputs, self._source
            made.append((node, slot))
        return tuple(made)

    @property
    def metadata(self):
        """A dictionary for the user's own data."""
        return self._node.metadata

    @property
    def requires_grad(self):
        return True

    @property
    def _sequence_nr(self):
        return self._node.sequence

    def register_hook(self, fn):
        """Calls ``fn(grad_inputs, grad_outputs)`` after the step; a returned tuple replaces ``grad_inputs``."""
        return self._node.register_hook(fn)

    def register_prehook(self, fn):
        """Calls ``fn(grad_outputs)`` before the step; a returned tuple replaces ``grad_outputs``."""
        return self._node.register_prehook(fn)

    def __call__(self, *grad_outputs):
        return self._node.call(*grad_outputs)

    def __getattr__(self, name):
        if name == "variable" and self._node.name == "AccumulateGrad":
            return self._node.variable
        context = None if name.startswith("__") else self._node.context
        if context is not None:
            return getattr(context, name)
        if name.startswith(("_saved_", "_raw_saved_")):
            from . import _saved

            return _saved.read(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __repr__(self):
        return f"<{type(self).__name__} object at {self._node.id:#x}>"

    @classmethod
    def __subclasshook__(cls, other):
        return NotImplemented


def _class_of(name):
    """The class of nodes with a name."""
    kind = _classes.get(name)
    if kind is None:
        kind = _classes[name] = type(name, (Node,), {"__slots__": (), "__module__": "torch.autograd"})
    return kind


def _node_of(handle):
    """The object of a node: the same one as long as someone holds it."""
    found = _nodes.get(handle.id)
    if found is None:
        found = object.__new__(_class_of(handle.name))
        found._node, found._outputs, found._source = handle, None, None
        _nodes[handle.id] = found
    return found


class GradientEdge(NamedTuple):
    """Where a gradient arrives: a node, and which of its outputs."""

    node: Node
    output_nr: int
    ownership_token: Optional[Node] = None


def get_gradient_edge(tensor):
    """The edge at which the gradient of a tensor arrives. It can be an input or an output of ``autograd.grad``."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node, output = tensor._gradient_edge()
    return GradientEdge(_node_of(node), output)


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Calls ``fn`` with the gradients of all tensors when the last of them is ready, or with the first (``mode="any"``)."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = [t for t in tensors if t.requires_grad]
    if mode == "any":
        seen = []

        def first(grad):
            if not seen:
                seen.append(True)
                fn(grad)

        return _Handles([t.register_hook(first) for t in tensors])
    found = {}

    def watch(at):
        def hook(grad):
            found[at] = grad
            if len(found) == len(tensors):
                gradients = [found[i] for i in range(len(tensors))]
                found.clear()
                fn(gradients)

        return hook

    return _Handles([t.register_hook(watch(at)) for at, t in enumerate(tensors)])


class _Handles:
    """Several handles as one."""

    def __init__(self, handles):
        self._handles = handles

    def remove(self):
        for handle in self._handles:
            handle.remove()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


_disabled = threading.local()


class saved_tensors_hooks(contextlib.ContextDecorator):
    """A context in which ops save the result of ``pack_hook`` instead of a tensor; ``unpack_hook`` restores the tensor."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        _refuse_where_disabled()
        _C._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)
        return self

    def __exit__(self, *exception):
        _C._pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):
    """A context in which saved tensors are kept in the host's memory and copied back to their device when used."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        self._pin_memory = pin_memory

    def __enter__(self):
        _refuse_where_disabled()
        _C._push_save_on_cpu(self._pin_memory)
        return self


def _refuse_where_disabled():
    messages = getattr(_disabled, "messages", None)
    if messages:
        raise RuntimeError(messages[-1])


class disable_saved_tensors_hooks(contextlib.ContextDecorator):
    """A context in which hooks for saved tensors raise ``error_message``."""

    def __init__(self, error_message):
        self._message = error_message

    def __enter__(self):
        if not hasattr(_disabled, "messages"):
            _disabled.messages = []
        _disabled.messages.append(self._message)
        return self

    def __exit__(self, *exception):
        _disabled.messages.pop()


class _Place:
    """Stands for a saved tensor; it dies with the step that saved it."""

    __slots__ = ("__weakref__",)


class _Mutations:
    """Saved tensors by their places: the tensors themselves, or copies of those that were changed since."""

    def __init__(self):
        self.original, self.cloned = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
        self.tid_to_weakhandle = weakref.WeakValueDictionary()
        self._places = {}

    def pack(self, tensor):
        place = _Place()
        self.original[place] = tensor.detach()
        self.tid_to_weakhandle[id(place)] = place
        self._places.setdefault(tensor.untyped_storage().data_ptr(), weakref.WeakSet()).add(place)
        return place

    def unpack(self, place):
        found = self.cloned.get(place)
        found = self.original.get(place) if found is None else found
        if found is None:
            raise RuntimeError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was originally recorded."
            )
        return found.detach()

    def keep(self, tensor):
        """Copies what was saved of a tensor's memory, which is about to change."""
        for place in list(self._places.pop(tensor.untyped_storage().data_ptr(), ())):
            saved = self.original.pop(place, None)
            if saved is not None:
                self.cloned[place] = saved.clone()

    def clear(self):
        self.original.clear()
        self.cloned.clear()
        self._places.clear()


_OPERATORS = frozenset(f"__{name}__" for name in "setitem iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split())


def _mode_of(mutations):
    """A mode that lets saved tensors be copied before a function changes them."""
    from ..overrides import TorchFunctionMode

    class Keeping(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            changed = [kwargs["out"]] if kwargs.get("out") is not None else []
            if args and (name in _OPERATORS or name.endswith("_") and not name.endswith("__")):
                changed.append(args[0])
            for given in changed:
                for tensor in given if isinstance(given, (tuple, list)) else (given,):
                    if isinstance(tensor, _C.Tensor):
                        mutations.keep(tensor)
            return func(*args, **kwargs)

    return Keeping()


class allow_mutation_on_saved_tensors(contextlib.AbstractContextManager):
    """A context in which tensors that are kept for the backward pass may change: they are copied before. The backward pass is part of the context."""

    def __enter__(self):
        if getattr(_disabled, "mutations", False):
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        self._kept = _Mutations()
        self._parts = saved_tensors_hooks(self._kept.pack, self._kept.unpack), _mode_of(self._kept)
        for part in self._parts:
            part.__enter__()
        _disabled.mutations = True
        return self._kept

    def __exit__(self, *exception):
        _disabled.mutations = False
        for part in reversed(self._parts):
            part.__exit__(*exception)
        self._kept.clear()


def increment_version(tensor):
    """Counts an in-place change that autograd did not see."""
    for t in [tensor] if isinstance(tensor, _C.Tensor) else tensor:
        if t.is_inference():
            raise RuntimeError("Inference tensors do not track version counter.")
        _C._count_change(t)


def queue_callback(fn):
    """Calls ``fn()`` at the end of the running backward pass."""
    _C._queue_callback(fn)


_absent.fill(globals(), "torch.autograd.graph", "nodes are made in Rust; register hooks on tensors or on grad_fn", "node_creation_hook")
