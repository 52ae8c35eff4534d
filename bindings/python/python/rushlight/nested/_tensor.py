"""Nested tensors: batches of tensors whose sizes differ.

A nested tensor is a Python object over plain tensors, its *cells*: in the jagged layout one packed tensor of all components, in the strided layout the
components themselves. In either, dimension d of the nested tensor (d > 0) is dimension d - 1 of each cell, so a function that leaves the ragged dimension
alone runs on the cells, and gradients follow from its ops. Functions that work within the ragged dimension run on the components or on a padded form.
"""

import itertools

from .. import _C
from .._dispatch import disabled
from .._size import Size

Tensor = _C.Tensor
_torch = _C._torch

_numbers = itertools.count()


class NestedInt:
    """The size of a ragged dimension: ``j0``, ``j1``, … Sizes are equal if they are of the same offsets."""

    def __init__(self, number, factor=1):
        self._number, self._factor = number, factor

    def __repr__(self):
        return f"j{self._number}" if self._factor == 1 else f"{self._factor}*j{self._number}"

    def __eq__(self, other):
        return isinstance(other, NestedInt) and (self._number, self._factor) == (other._number, other._factor)

    def __hash__(self):
        return hash((self._number, self._factor))

    def __mul__(self, other):
        return NestedInt(self._number, self._factor * other)

    __rmul__ = __mul__

    def _compare(self, other, least):
        if isinstance(other, NestedInt) or other > 2:
            raise ValueError(f"the size {self} of a ragged dimension is not one number: it compares with 0, 1 and 2 only")
        return least

    def __ge__(self, other):
        return True if self == other else self._compare(other, True)

    def __gt__(self, other):
        return self._compare(other, True)

    def __le__(self, other):
        return True if self == other else self._compare(other, False)

    def __lt__(self, other):
        return self._compare(other, False)

    def __bool__(self):
        return True

    def __index__(self):
        raise TypeError(f"the size {self} of a ragged dimension is not one number; see offsets(), or to_padded_tensor()")

    __int__ = __index__


def ragged_size(source):
    """The size that belongs to a tensor of offsets or lengths."""
    found = source.__dict__.get("_nested_int")
    if found is None:
        found = source._nested_int = NestedInt(next(_numbers))
    return found


class Nested(Tensor):
    """The common part of nested tensors."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from ._ops import handle

        return handle(func, args, kwargs or {})

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{func}: not supported for nested tensors; use unbind() or to_padded_tensor()")

    is_nested = property(lambda self: True)
    is_sparse = property(lambda self: False)
    dtype = property(lambda self: self._cells[0].dtype)
    device = property(lambda self: self._cells[0].device)
    ndim = property(lambda self: self.dim())
    is_leaf = property(lambda self: all(c.is_leaf for c in self._cells))
    is_cuda = property(lambda self: self._cells[0].is_cuda)
    is_cpu = property(lambda self: self._cells[0].is_cpu)
    names = property(lambda self: (None,) * self.dim())
    itemsize = property(lambda self: self._cells[0].itemsize)

    @property
    def grad_fn(self):
        return next((c.grad_fn for c in self._cells if c.grad_fn is not None), None)

    @property
    def requires_grad(self):
        return any(c.requires_grad for c in self._cells)

    @requires_grad.setter
    def requires_grad(self, value):
        self.requires_grad_(value)

    @property
    def grad(self):
        found = [c.grad for c in self._cells]
        if all(g is None for g in found):
            return None
        return self._with([_torch.zeros_like(c) if g is None else g for c, g in zip(self._cells, found)])

    @grad.setter
    def grad(self, value):
        for cell, part in zip(self._cells, [None] * len(self._cells) if value is None else value._cells):
            cell.grad = part

    def requires_grad_(self, requires_grad=True):
        for cell in self._cells:
            cell.requires_grad_(requires_grad)
        return self

    def retain_grad(self):
        for cell in self._cells:
            cell.retain_grad()

    def backward(self, gradient=None, **kwargs):
        if gradient is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        from ..autograd import backward

        pairs = [(c, g) for c, g in zip(self._cells, gradient._cells) if c.requires_grad]
        backward([c for c, _ in pairs], [g for _, g in pairs], **kwargs)

    def dim(self):
        return self._cells[0].dim() + 1

    def is_floating_point(self):
        return self._cells[0].is_floating_point()

    def is_complex(self):
        return self._cells[0].is_complex()

    def __len__(self):
        return self._count()

    def __hash__(self):
        return id(self)

    def __bool__(self):
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    def tolist(self):
        return [part.tolist() for part in self._parts()]

    def numpy(self):
        raise TypeError("can't convert a nested tensor to numpy; use unbind() or to_padded_tensor()")

    def __array__(self, *args, **kwargs):
        return self.numpy()

    def item(self):
        raise RuntimeError("a nested tensor has no single item; use unbind() or to_padded_tensor()")

    def __iter__(self):
        return iter(self._parts())

    def __deepcopy__(self, memo):
        memo[id(self)] = made = self._with([c.detach().clone().requires_grad_(c.requires_grad) for c in self._cells])
        return made

    def to_padded_tensor(self, padding, output_size=None):
        """The components in one tensor, each followed by the padding."""
        return padded(self, padding, output_size)


class StridedNested(Nested):
    """Components of any sizes with equal numbers of dimensions."""

    layout = property(lambda self: _C.strided)

    @staticmethod
    def make(parts):
        parts = list(parts)
        first = parts[0] if parts else _torch.zeros(0)
        made = Tensor._make_wrapper_subclass(StridedNested, [len(parts), *([0] * first.dim())], dtype=first.dtype, device=first.device)
        made._components = parts
        return made

    @property
    def _cells(self):
        return self._components or [_torch.zeros(())]

    def _with(self, cells, ragged=None):
        return StridedNested.make(cells)

    def _parts(self):
        return list(self._components)

    def _count(self):
        return len(self._components)

    def _lengths_equal(self, other):
        return isinstance(other, StridedNested) and self._count() == other._count()

    @property
    def shape(self):
        raise RuntimeError("Internal error: NestedTensorImpl doesn't support sizes. Please file an issue.")

    def size(self, dim=None):
        if dim is None:
            raise RuntimeError("a nested tensor of the strided layout has no size as a whole; ask for a dimension, or each component")
        dim = dim % self.dim()
        found = {self._count()} if dim == 0 else {part.shape[dim - 1] for part in self._components}
        if len(found) != 1:
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")
        return found.pop()

    def numel(self):
        return sum(part.numel() for part in self._components)

    def is_contiguous(self, memory_format=None):
        return True

    def values(self):
        """All elements in one row."""
        return _torch.cat([part.reshape(-1) for part in self._components])

    def _nested_tensor_size(self):
        return _C.tensor([list(part.shape) for part in self._components])

    def _nested_tensor_strides(self):
        return _C.tensor([list(part.contiguous().stride()) for part in self._components])

    def _nested_tensor_storage_offsets(self):
        counts = [part.numel() for part in self._components]
        return _C.tensor([sum(counts[:i]) for i in range(len(counts))])

    def __repr__(self, **kwargs):
        with disabled():
            lines = [repr(part.detach()).replace("\n", "\n  ") for part in self._components]
        options = f", grad_fn=<{type(self.grad_fn).__name__}>" if self.grad_fn is not None else ", requires_grad=True" if self.requires_grad else ""
        return "nested_tensor([\n  " + ",\n  ".join(lines) + "\n]" + options + ")"

    __str__ = __repr__

    def __reduce_ex__(self, protocol):
        return _strided_again, ([part.detach() for part in self._components], self.requires_grad)


def _strided_again(parts, requires_grad):
    made = StridedNested.make(parts)
    return made.requires_grad_() if requires_grad else made


class NestedTensor(Nested):
    """The jagged layout: components packed along their one ragged dimension."""

    layout = property(lambda self: _C.jagged)

    @staticmethod
    def __new__(cls, values, offsets, *, lengths=None, _ragged_idx=1, requires_grad=False, _metadata_cache=None, **kwargs):
        if offsets.dim() != 1:
            raise AssertionError(f"offsets must be 1D, but got {offsets.dim()}D")
        if isinstance(values, Nested):
            raise AssertionError("values must not be a NestedTensor")
        if values.device != offsets.device:
            raise AssertionError(
                f"values and offsets must be on the same device, but got values.device={values.device} and offsets.device={offsets.device}"
            )
        if lengths is not None and lengths.shape[0] != offsets.shape[0] - 1:
            raise AssertionError(
                f"offsets and lengths batch sizes must match: offsets.shape[0] - 1 = {offsets.shape[0] - 1}, lengths.shape[0] = {lengths.shape[0]}"
            )
        made = Tensor._make_wrapper_subclass(NestedTensor, [offsets.shape[0] - 1, *values.shape], dtype=values.dtype, device=values.device)
        made._values, made._offsets, made._lengths, made._ragged_idx = values, offsets, lengths, _ragged_idx
        if requires_grad:
            values.requires_grad_()
        return made

    def __init__(self, values, offsets, **kwargs):
        pass

    @property
    def _cells(self):
        return [self._values]

    def _with(self, cells, ragged=None):
        return NestedTensor(cells[0], self._offsets, lengths=self._lengths, _ragged_idx=self._ragged_idx if ragged is None else ragged)

    def _count(self):
        return self._offsets.shape[0] - 1

    def _extents(self):
        """Where each component begins, and its length."""
        cache = self._offsets.__dict__
        if "_extents" not in cache:
            # Offsets do not change; reading them waits for an accelerator once.
            cache["_extents"] = self._offsets.tolist()
        starts = cache["_extents"]
        lengths = [b - a for a, b in zip(starts, starts[1:])] if self._lengths is None else self._lengths.tolist()
        return starts[:-1], lengths

    def _parts(self):
        starts, lengths = self._extents()
        return [self._values.narrow(self._ragged_idx - 1, start, length) for start, length in zip(starts, lengths)]

    def _lengths_equal(self, other):
        if not isinstance(other, NestedTensor):
            return False
        a, b = self._offsets if self._lengths is None else self._lengths, other._offsets if other._lengths is None else other._lengths
        return a is b or ragged_size(a) == ragged_size(b)

    @property
    def _size(self):
        sizes = [self._count(), *self._values.shape]
        sizes[self._ragged_idx] = ragged_size(self._offsets if self._lengths is None else self._lengths)
        return tuple(sizes)

    shape = property(lambda self: Size(self._size))

    def size(self, dim=None):
        return self.shape if dim is None else self._size[dim]

    @property
    def _strides(self):
        strides = self._values.stride()
        return (ragged_size(self._offsets if self._lengths is None else self._lengths) * strides[self._ragged_idx - 1], *strides)

    def stride(self, dim=None):
        return self._strides if dim is None else self._strides[dim]

    def numel(self):
        if self._lengths is None:
            return self._values.numel()
        return sum(part.numel() for part in self._parts())

    def is_contiguous(self, memory_format=None):
        return self._lengths is None and self._values.is_contiguous()

    def values(self):
        """The packed components."""
        return self._values

    def offsets(self):
        """Where each component begins in the packed dimension, and where the last one ends."""
        return self._offsets

    def lengths(self):
        """The lengths of components, where they are not the differences of offsets; None otherwise."""
        return self._lengths

    def _get_max_seqlen(self):
        return max(self._extents()[1], default=0)

    def _get_min_seqlen(self):
        return min(self._extents()[1], default=0)

    _max_seqlen = property(_get_max_seqlen)
    _min_seqlen = property(_get_min_seqlen)
    _maybe_max_seqlen = property(_get_max_seqlen)
    _maybe_min_seqlen = property(_get_min_seqlen)

    def __repr__(self, **kwargs):
        options = f", grad_fn={self.grad_fn}" if self.grad_fn is not None else ", requires_grad=True" if self.requires_grad else ""
        with disabled():
            return f"NestedTensor(size={self._size}, offsets={self._offsets}{options}, contiguous={self.is_contiguous()})"

    __str__ = __repr__

    def __reduce_ex__(self, protocol):
        kept = {
            "values": self._values.detach(), "offsets": self._offsets, "lengths": self._lengths, "_ragged_idx": self._ragged_idx, "requires_grad": self.requires_grad,
        }
        return _rebuild_njt, (kept,)


def _rebuild_njt(constructor_kwargs):
    return NestedTensor(**constructor_kwargs)


def offsets_of(lengths, device):
    """Offsets of components of these lengths."""
    counts = [0]
    for n in lengths:
        counts.append(counts[-1] + n)
    made = _C.tensor(counts, dtype=_C.int64, device=device)
    made._extents = counts
    return made


def jagged(parts, offsets=None, dtype=None, device=None):
    """Components packed along the one dimension in which they differ."""
    if not parts:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    for what, found in (("have the same dtype", {p.dtype for p in parts}), ("be on the same device", {p.device for p in parts}), ("have the same dim", {p.dim() for p in parts})):
        if len(found) != 1:
            raise RuntimeError(f"When constructing a nested tensor, all tensors in list must {what}")
    if parts[0].dim() == 0:
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    ragged = [d + 1 for d in range(parts[0].dim()) if len({p.shape[d] for p in parts}) > 1]
    if len(ragged) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout only allows for a single ragged dimension. "
            "For example: (B, *, D_0, D_1, ..., D_N), with ragged * dim."
        )
    ragged = ragged[0] if ragged else 1
    values = _torch.cat(parts, ragged - 1)
    values = values.to(values.device if device is None else device, values.dtype if dtype is None else dtype)
    offsets = offsets_of([p.shape[ragged - 1] for p in parts], values.device) if offsets is None else offsets
    return NestedTensor(values, offsets, _ragged_idx=ragged)


def gathered(x):
    """For each row and place of the padded form of a jagged tensor, the place in the packed dimension; one past its end for padding."""
    starts, lengths = x._extents()
    longest = max(lengths, default=0)
    place = _torch.arange(longest, device=x.device)
    begin = _C.tensor(starts, dtype=_C.int64, device=x.device).unsqueeze(1)
    inside = place < _C.tensor(lengths, dtype=_C.int64, device=x.device).unsqueeze(1)
    end = x._values.shape[x._ragged_idx - 1]
    return _torch.where(inside, begin + place, _C.tensor(end, device=x.device)), inside


def padded(x, padding, output_size=None):
    """The components of a nested tensor in one tensor."""
    if isinstance(x, NestedTensor):
        at, _ = gathered(x)
        r = x._ragged_idx
        values = x._values.movedim(r - 1, 0)
        rows = _torch.cat([values, _torch.full((1, *values.shape[1:]), padding, dtype=values.dtype, device=values.device)])
        made = rows.index_select(0, at.reshape(-1)).reshape(*at.shape, *values.shape[1:]).movedim(1, r)
    else:
        sizes = [max(part.shape[d] for part in x._components) for d in range(x.dim() - 1)]
        made = _torch.stack([_padded_to(part, sizes, padding) for part in x._components])
    if output_size is None:
        return made
    if len(output_size) != made.dim():
        raise RuntimeError(f"to_padded_tensor: output_size has {len(output_size)} dimensions for a nested tensor of {made.dim()}")
    if any(wanted < n for wanted, n in zip(output_size[1:], made.shape[1:])) or output_size[0] < made.shape[0]:
        raise RuntimeError("Value in output_size is less than NestedTensor padded size. Truncation is not supported.")
    return _padded_to(made, list(output_size), padding)


def _padded_to(part, sizes, padding):
    missing = [(0, wanted - n) for n, wanted in zip(part.shape, sizes)]
    if not any(after for _, after in missing):
        return part
    return _C._nn.pad(part, [n for pair in reversed(missing) for n in pair], "constant", padding)


def packed(dense, like):
    """A padded form as a jagged tensor of the lengths of another."""
    at, inside = gathered(like)
    r = like._ragged_idx
    rows = dense.narrow(r, 0, at.shape[1]).movedim(r, 1).flatten(0, 1)
    places = inside.reshape(-1).nonzero().reshape(-1)
    if like._lengths is not None:
        return NestedTensor(rows.index_select(0, places).movedim(0, r - 1), offsets_of(like._extents()[1], like.device), _ragged_idx=r)
    return NestedTensor(rows.index_select(0, places).movedim(0, r - 1), like._offsets, _ragged_idx=r)
