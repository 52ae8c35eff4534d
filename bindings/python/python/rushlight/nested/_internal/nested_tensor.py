"""``torch.nested._internal.nested_tensor``: the class of jagged tensors and functions that make them."""

from ..._size import Size  # noqa: F401
from .. import narrow as _narrow
from .._tensor import NestedTensor, _rebuild_njt, jagged, packed, ragged_size as get_tensor_symint  # noqa: F401
from ... import _C


def jagged_from_list(tensors, offsets, dtype=None, device=None):
    """A jagged tensor of components, and its offsets."""
    made = jagged(list(tensors), offsets, dtype, device)
    return made, made._offsets


def jagged_from_tensor_and_lengths(tensor, starts, lengths):
    """A jagged tensor over intervals of the rows of a tensor, its offsets and its lengths."""
    made = _narrow(tensor, 1, starts, lengths, layout=_C.jagged)
    return made, made._offsets, made._lengths


def nested_view_from_values_offsets(values, offsets, ragged_idx=1, min_seqlen=None, max_seqlen=None):
    """A jagged tensor over packed components."""
    return NestedTensor(values, offsets, _ragged_idx=ragged_idx)


def nested_view_from_values_offsets_lengths(values, offsets, lengths, ragged_idx=1, min_seqlen=None, max_seqlen=None):
    """A jagged tensor over packed components with gaps."""
    return NestedTensor(values, offsets, lengths=lengths, _ragged_idx=ragged_idx)


def nested_from_padded(padded, offsets, ragged_idx=1, min_seqlen=None, max_seqlen=None, sum_S=None):
    """A jagged tensor of a padded form."""
    width = offsets[-1].item()
    like = NestedTensor(padded.new_zeros([width if d == ragged_idx - 1 else 1 for d in range(padded.dim() - 1)]), offsets, _ragged_idx=ragged_idx)
    return packed(padded, like)


def buffer_from_jagged(jagged):
    """The packed components."""
    return jagged._values
