"""Names of the nodes that ``grad_fn`` shows, and hooks over several tensors."""

import contextlib
import threading

from .. import _C, _absent


class Node:
    """A node of the backward pass, with its name."""

    __slots__ = ("_name",)

    def __init__(self, name):
        self._name = name

    def name(self):
        return self._name

    def __repr__(self):
        return f"<{self._name} object at {id(self):#x}>"

    def __eq__(self, other):
        return isinstance(other, Node) and self._name == other._name

    def __hash__(self):
        return hash(self._name)

    @property
    def next_functions(self):
        raise NotImplementedError("grad_fn.next_functions is not supported: the graph is walked in Rust")


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Calls ``fn`` with the gradients of all tensors when the last of them is ready, or with the first (``mode="any"``)."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any'), but got {mode!r}")
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


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Not supported: a tensor that is kept for the backward pass must not change."""

    def __init__(self):
        raise NotImplementedError("allow_mutation_on_saved_tensors: clone the tensor before changing it")


def increment_version(tensor):
    """Counts an in-place change that autograd did not see."""
    for t in [tensor] if hasattr(tensor, "_version") else tensor:
        t.detach().add_(0)


_absent.fill(globals(), "torch.autograd.graph", "the graph is walked in Rust", "GradientEdge get_gradient_edge node_creation_hook queue_callback")
