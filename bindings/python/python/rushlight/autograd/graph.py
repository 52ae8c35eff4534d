"""Names of the nodes that ``grad_fn`` shows, and hooks over several tensors."""

from .. import _absent


class Node:
    """A step of the backward pass. It knows its name."""

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
    """Calls ``fn`` with the gradients of all tensors when the last of them is there, or with the first (``mode="any"``)."""
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


class saved_tensors_hooks:
    """A context in which ``pack_hook`` sees tensors that are kept for the backward pass. Not supported."""

    def __init__(self, pack_hook, unpack_hook):
        raise NotImplementedError("saved_tensors_hooks: tensors kept for the backward pass cannot be exchanged; use torch.utils.checkpoint")


class save_on_cpu:
    """A context in which tensors kept for the backward pass lie on the CPU. All do where there is no accelerator."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        from .. import _C

        if _C._device_count():
            raise NotImplementedError("save_on_cpu: tensors of an accelerator stay there; use torch.utils.checkpoint to keep fewer")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


class disable_saved_tensors_hooks(save_on_cpu):
    """A context in which hooks for saved tensors are refused. They are always."""

    def __init__(self, error_message):
        pass


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Not supported: a tensor that is kept for the backward pass must not change."""

    def __init__(self):
        raise NotImplementedError("allow_mutation_on_saved_tensors: clone the tensor before changing it")


def increment_version(tensor):
    """Counts a change in place that was made behind autograd's back."""
    for t in [tensor] if hasattr(tensor, "_version") else tensor:
        t.detach().add_(0)


_absent.fill(globals(), "torch.autograd.graph", "the graph is walked in Rust", "GradientEdge get_gradient_edge node_creation_hook queue_callback")
