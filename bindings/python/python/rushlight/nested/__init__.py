"""``torch.nested``: batches of tensors whose sizes differ, in the strided and in the jagged layout."""

from .. import _C
from ._tensor import Nested, NestedTensor, StridedNested, Tensor, _torch, jagged, offsets_of, padded

__all__ = ["to_padded_tensor", "as_nested_tensor", "nested_tensor", "nested_tensor_from_jagged", "narrow", "masked_select"]


def _layout(layout):
    if layout not in (None, _C.strided, _C.jagged):
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {layout}")
    return layout == _C.jagged


def _strided(parts, dtype, device):
    if len({p.dim() for p in parts}) > 1:
        raise RuntimeError("All Tensors given to nested_tensor must have the same dimension.")
    if parts:
        parts = [p.to(parts[0].device if device is None else device, parts[0].dtype if dtype is None else dtype) for p in parts]
    return StridedNested.make(parts)


def as_nested_tensor(ts, dtype=None, device=None, layout=None):
    """A nested tensor that keeps the history of its components: of a list of tensors, or of the rows of a tensor."""
    listed = isinstance(ts, (list, tuple)) and all(isinstance(t, Tensor) for t in ts)
    if not isinstance(ts, Tensor) and not listed:
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors ")
    if isinstance(ts, Nested):
        if (layout or _C.strided) != ts.layout:
            raise RuntimeError("as_nested_tensor(): Converting between nested tensor layouts is not supported")
        return ts.to(ts.device if device is None else device, ts.dtype if dtype is None else dtype)
    if isinstance(ts, Tensor) and ts.dim() < 2:
        raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    if not _layout(layout):
        return _strided(list(ts.unbind(0)) if isinstance(ts, Tensor) else [t.clone() for t in ts], dtype, device)
    if listed:
        return jagged(list(ts), None, dtype, device)
    values = ts.contiguous().flatten(0, 1).to(ts.device if device is None else device, ts.dtype if dtype is None else dtype)
    return NestedTensor(values, offsets_of([ts.shape[1]] * ts.shape[0], values.device))


def nested_tensor(tensor_list, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A nested tensor without history, of a list of tensors or of what ``torch.tensor`` takes."""
    parts = [(t.detach().clone() if isinstance(t, Tensor) else _C.tensor(t)) for t in tensor_list]
    made = jagged(parts, None, dtype, device) if _layout(layout) else _strided(parts, dtype, device)
    if pin_memory:
        made = made._with([cell.pin_memory() for cell in made._cells])
    return made.requires_grad_() if requires_grad else made


def to_padded_tensor(input, padding, output_size=None, out=None):
    """The components in one tensor, each followed by the padding."""
    if not isinstance(input, Nested):
        raise RuntimeError("to_padded_tensor: expected a nested tensor")
    made = padded(input, padding, output_size)
    return made if out is None else out.copy_(made)


def nested_tensor_from_jagged(values, offsets=None, lengths=None, jagged_dim=None, min_seqlen=None, max_seqlen=None):
    """A nested tensor over packed components. ``offsets`` say where each begins, ``lengths`` how long each is; with both there may be gaps."""
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets, lengths = _C._nn.pad(lengths.cumsum(0), [1, 0]), None
    jagged_dim = 1 if jagged_dim is None else jagged_dim
    if jagged_dim < 1:
        raise ValueError(f"Expected jagged_dim >=1, but got {jagged_dim}.")
    return NestedTensor(values, offsets, lengths=lengths, _ragged_idx=jagged_dim)


def narrow(tensor, dim, start, length, layout=_C.strided):
    """A nested tensor of an interval of each row of a tensor; in the jagged layout a view, with a start and a length for each row."""
    for name, value in (("start", start), ("length", length)):
        if not isinstance(value, (int, Tensor)):
            raise RuntimeError(f"{name} must be an integer or a tensor")
    if layout == _C.strided:
        if isinstance(start, Tensor) or isinstance(length, Tensor):
            raise RuntimeError("start and length must be integers for the strided layout NT impl")
        rows = list(tensor.unbind(0))
        return _strided(rows[start:start + length] if dim == 0 else [row.narrow(dim - 1, start, length) for row in rows], None, None)
    if layout != _C.jagged:
        raise RuntimeError(f"Specified layout is unsupported for nested narrow: {layout}")
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    rows, longest = tensor.shape[0], tensor.shape[1]
    starts = (start if isinstance(start, Tensor) else _C.tensor([start], device=tensor.device)).expand(rows)
    lengths = (length if isinstance(length, Tensor) else _C.tensor([length], device=tensor.device)).expand(rows)
    begin = starts + longest * _torch.arange(rows, device=tensor.device)
    offsets = _torch.cat([begin, (begin[-1] + lengths[-1]).unsqueeze(0)])
    values = tensor.view(-1, *tensor.shape[2:])
    if bool((begin[1:] == (begin + lengths)[:-1]).all()):
        first = int(offsets[0])
        return NestedTensor(values[first:int(offsets[-1])], offsets - first)
    return NestedTensor(values, offsets, lengths=lengths)


def masked_select(tensor, mask):
    """The elements of a tensor that a mask keeps, with a row for each row of the tensor."""
    for name, value in (("tensor", tensor), ("mask", mask)):
        if value.layout != _C.strided or isinstance(value, Nested):
            raise RuntimeError(f"torch.nested.masked_select requires a strided {name}, given {value.layout}")
    lengths = mask.expand(tensor.shape).sum(tensor.dim() - 1).view(-1)
    return NestedTensor(_torch.masked_select(tensor, mask), _C._nn.pad(lengths.cumsum(0), [1, 0]))


def __getattr__(name):
    from .._functions import _missing

    return _missing(__name__, name)
