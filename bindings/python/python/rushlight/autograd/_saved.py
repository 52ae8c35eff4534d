"""What built-in steps keep for their backward: ``grad_fn._saved_self`` and ``grad_fn._raw_saved_self``.

A step does not list what it keeps. Its backward is run once with gradients of zeros, whose result is dropped; what it reads on the way is what it keeps.
Names are those of ``aten``'s arguments. Numbers among the arguments (``_saved_dim``) are not kept as objects, and cannot be read.
"""

from .. import _C

#: Names of a step's inputs, where they are not ``self``, ``other``.
_INPUTS = {
    "MmBackward0": "self mat2", "BmmBackward0": "self mat2", "MvBackward0": "self vec", "DotBackward0": "self tensor", "AddmmBackward0": "self mat1 mat2",
    "BaddbmmBackward0": "self batch1 batch2", "AddcmulBackward0": "self tensor1 tensor2", "AddcdivBackward0": "self tensor1 tensor2",
    "ConvolutionBackward0": "input weight bias", "NativeLayerNormBackward0": "input weight bias", "NativeBatchNormBackward0": "input weight bias",
    "NativeGroupNormBackward0": "input weight bias", "PowBackward1": "self exponent", "LerpBackward0": "self end", "LerpBackward1": "self end weight",
    "CdistBackward0": "x1 x2", "MseLossBackward0": "self target", "L1LossBackward0": "self target", "SmoothL1LossBackward0": "self target",
    "BinaryCrossEntropyBackward0": "self target weight", "BinaryCrossEntropyWithLogitsBackward0": "self target weight", "PreluBackward0": "self weight",
}
#: Names of other tensors that a step keeps: indices, masks, targets.
_OTHERS = {
    "GatherBackward0": "index", "ScatterBackward0": "index", "ScatterAddBackward0": "index", "IndexSelectBackward0": "index", "IndexAddBackward0": "index",
    "EmbeddingBackward0": "indices", "IndexBackward0": "indices", "TakeBackward0": "index", "WhereBackward0": "condition", "MaskedFillBackward0": "mask",
    "MaskedSelectBackward0": "mask", "SortBackward0": "indices", "TopkBackward0": "indices", "MaxBackward0": "indices", "MinBackward0": "indices",
    "NllLossBackward0": "target", "CumprodBackward0": "result",
}


class SavedTensor:
    """A tensor that a step keeps. ``register_hooks`` stores it in another form."""

    def __init__(self, *args):
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden unless you use torch._C._autograd._make_saved_tensor")

    def register_hooks(self, *hooks):
        """Stores ``pack_hook(tensor)`` in the tensor's place; ``unpack_hook`` restores the tensor when the backward reads it."""
        if len(hooks) != 2 or not all(map(callable, hooks)):
            raise TypeError("register_hooks(): incompatible function arguments: it takes two functions, pack_hook and unpack_hook")
        pack, unpack = hooks
        def packed(given):
            version = given._version
            made = pack(given)
            if given._version != version:
                raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be modified by in-place operations.")
            return made

        def unpacked(given):
            made = unpack(given)
            if not isinstance(made, _C.Tensor):
                raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(made).__name__}")
            return made

        self._value.pack(packed, unpacked)

    @property
    def data(self):
        """The tensor that is kept; without its step where it is the step's own output."""
        return self._value.tensor if self._value.output is None else self._value.tensor.detach()

    def unpack(self):
        """The tensor."""
        return self._value.tensor

    unpack_hook = None


def _zeros(node):
    """Gradients of a step's outputs, or None if their sizes are not known."""
    if node._outputs:
        return [None if at not in node._outputs else _zero(*node._outputs[at]) for at in range(node._node.outputs)]
    if node._source is None:
        return None
    weak, at, slot, outputs, source = node._source
    consumer = weak()
    if consumer is None:
        return None
    found = _values(consumer, outputs, source, lambda handle, gradients: handle.call(*gradients))
    found = found if isinstance(found, tuple) else (found,)
    gradients = [None] * node._node.outputs
    gradients[slot] = found[at]
    return None if found[at] is None else gradients


class _Outline:
    """A step as ``_zeros`` sees it."""

    def __init__(self, node, outputs, source):
        self._node, self._outputs, self._source = node, outputs, source


def _values(handle, outputs, source, function):
    gradients = _zeros(_Outline(handle, outputs, source))
    if gradients is None:
        raise AttributeError(f"{handle.name}: the sizes of its outputs are not known; read the attribute from the grad_fn of a tensor")
    return function(handle, gradients)


def _zero(shape, dtype, device):
    return _C._torch.zeros(shape, dtype=dtype, device=device)


def values(node):
    """What a step keeps, by name."""
    with_names, handle = {}, node._node
    kind = type(node).__name__
    found = _values(handle, node._outputs, node._source, lambda h, gradients: h.saved_values(gradients))
    names = _INPUTS.get(kind, "self other").split()
    edges = [None if edge is None else (edge.id, slot) for edge, slot in handle.inputs]
    free, others = set(range(len(edges))), iter(_OTHERS.get(kind, "").split())
    for value in found:
        if value.output is not None:
            with_names.setdefault("result", value)
            continue
        tensor = value.tensor
        edge = None
        if tensor.requires_grad:
            maker, slot = tensor._gradient_edge()
            edge = maker.id, slot
        at = next((at for at in sorted(free) if edges[at] == edge), None) if edge is not None or tensor.is_floating_point() else None
        if at is None or at >= len(names):
            name = next(others, None)
            if name is not None:
                with_names.setdefault(name, value)
            continue
        free.discard(at)
        with_names[names[at]] = value
    # The same tensor twice is kept once.
    for at, name in enumerate(names[: len(edges)]):
        twin = next((n for k, n in enumerate(names[: len(edges)]) if edges[k] == edges[at] is not None and n in with_names), None)
        if name not in with_names and twin is not None:
            with_names[name] = with_names[twin]
    return with_names


def read(node, name):
    """The attribute ``_saved_…`` or ``_raw_saved_…`` of a step."""
    raw = name.startswith("_raw_saved_")
    wanted = name[len("_raw_saved_" if raw else "_saved_"):]
    found = values(node)
    if found and wanted in _INPUTS.get(type(node).__name__, "self other").split()[: len(node._node.inputs)] and wanted not in found:
        # The gradients that are wanted need no such value.
        return None
    if wanted not in found:
        kept = ", ".join(f"_saved_{n}" for n in found) or "nothing"
        raise AttributeError(f"'{type(node).__name__}' object has no attribute '{name}': it keeps {kept}; numbers among a step's arguments cannot be read")
    if not raw:
        return found[wanted].tensor
    made = object.__new__(SavedTensor)
    made._value = found[wanted]
    return made
