"""Functions of sparse tensors that move entries: transposes, selections, joins, other sizes. No value changes."""

import math

from .. import _C
from ._tensor import Sparse, SparseCOO, SparseCompressed, _torch, compressed


def coo_of(x):
    """A sparse tensor in coordinates; others as they are."""
    return x.to_sparse_coo() if isinstance(x, Sparse) else x


def like(made, x):
    """A COO result in the layout of an operand."""
    return compressed(made, x._by_row) if isinstance(x, SparseCompressed) else made


def wrapped(dim, count, error=IndexError):
    """A dimension as a number from 0."""
    if not -max(count, 1) <= dim < max(count, 1):
        raise error(f"Dimension out of range (expected to be in range of [{-max(count, 1)}, {max(count, 1) - 1}], but got {dim})")
    return dim % max(count, 1)


def _without(size, dim):
    return [n for d, n in enumerate(size) if d != dim]


def transposed(x, first=0, second=1):
    count = x.dim()
    if isinstance(x, SparseCompressed):
        first, second, batch = first % count, second % count, x._batch
        size = list(x.shape)
        size[first], size[second] = size[second], size[first]
        if x.dense_dim():
            raise RuntimeError("transpose(): hybrid sparse compressed tensors with dense dimensions are not supported")
        if first == second:
            return x._view(x._index, x._data, size, _by_row=x._by_row)
        if {first, second} == {batch, batch + 1}:
            return x._view(x._index, x._data, size, _by_row=not x._by_row)
        if max(first, second) < batch:
            index = [i.transpose(first, second) for i in x._index]
            return x._view(index, x._data.transpose(first, second), size, _by_row=x._by_row)
        kinds = [f"{d}({'Batch' if d < batch else 'Sparse'})" for d in (first, second)]
        raise RuntimeError(f"transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), got {kinds[0]} and {kinds[1]}")
    if count == 0:
        return x
    order = list(range(count))
    first, second = wrapped(first, count), wrapped(second, count)
    order[first], order[second] = order[second], order[first]
    made = permuted(x, order)
    made._coalesced = x._coalesced and (made._coalesced or x._nnz() == 0)
    return made


def permuted(x, *dims, **kwargs):
    dims = kwargs.get("dims", dims)
    given = list(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else list(dims)
    x = coo_of(x)
    if len(given) != x.dim():
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions "
            f"i.e. input.dim() = {x.dim()} is not equal to len(dims) = {len(given)}"
        )
    dims = [wrapped(d, x.dim()) for d in given]
    if len(set(dims)) != len(dims):
        raise RuntimeError("permute(sparse_coo): duplicate dims are not allowed.")
    count = x.sparse_dim()
    if sorted(dims[:count]) != list(range(count)):
        raise RuntimeError(f"permute(sparse_coo): transpositions between sparse and dense dimensions are not allowed. Got {given} for {count} sparse dimensions")
    data = x._data.permute(0, *(d - count + 1 for d in dims[count:]))
    return SparseCOO.make(x._index[0][dims[:count]], data, [x.shape[d] for d in dims], x._coalesced and given[:count] == list(range(count)))


def unsqueezed(x, dim):
    x = coo_of(x)
    dim = wrapped(dim, x.dim() + 1)
    size = [*x.shape[:dim], 1, *x.shape[dim:]]
    if dim > x.sparse_dim():
        return SparseCOO.make(x._index[0], x._data.unsqueeze(dim - x.sparse_dim() + 1), size, x._coalesced)
    indices = x._index[0]
    row = _torch.zeros((1, indices.shape[1]), dtype=indices.dtype, device=indices.device)
    return SparseCOO.make(_torch.cat([indices[:dim], row, indices[dim:]]), x._data, size, x._coalesced)


def selected(x, dim, index):
    dim = wrapped(dim, x.dim())
    if not -x.shape[dim] <= index < x.shape[dim]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")
    if isinstance(x, SparseCompressed) and dim >= x._batch + 2:
        return SparseCompressed.make(*x._index, x._data.select(dim - 1, index), _without(x.shape, dim), x._by_row)
    if isinstance(x, SparseCompressed) and x._batch:
        if dim >= x._batch:
            raise RuntimeError("select(): selecting sparse dimensions is not supported for batched sparse compressed tensors.")
        return SparseCompressed.make(*(i.select(dim, index) for i in x._index), x._data.select(dim, index), _without(x.shape, dim), x._by_row)
    coo = coo_of(x)
    index = index % coo.shape[dim]
    count = coo.sparse_dim()
    if dim >= count:
        return SparseCOO.make(coo._index[0], coo._data.select(dim - count + 1, index), _without(coo.shape, dim), coo._coalesced)
    kept = (coo._index[0][dim] == index).nonzero().reshape(-1)
    data, rest = coo._data[kept], [d for d in range(count) if d != dim]
    if not rest:
        return data.sum(0).to(data.dtype)
    return SparseCOO.make(coo._index[0][rest][:, kept], data, _without(coo.shape, dim), coo._coalesced)


def narrowed(x, dim, start, length):
    coo = coo_of(x)
    dim = wrapped(dim, coo.dim(), RuntimeError)
    if start < 0 or length < 0 or start + length > coo.shape[dim]:
        raise RuntimeError(f"narrow(): start ({start}) + length ({length}) exceeds dimension size ({coo.shape[dim]}).")
    size = [length if d == dim else n for d, n in enumerate(coo.shape)]
    if dim >= coo.sparse_dim():
        return SparseCOO.make(coo._index[0], coo._data.narrow(dim - coo.sparse_dim() + 1, start, length), size, coo._coalesced)
    row = coo._index[0][dim]
    kept = ((row >= start) & (row < start + length)).nonzero().reshape(-1)
    indices = coo._index[0][:, kept].clone()
    indices[dim] -= start
    return SparseCOO.make(indices, coo._data[kept], size, coo._coalesced)


def ranges(starts, counts):
    """For runs of places: the number of the run and the place, of every element."""
    run = _torch.repeat_interleave(_torch.arange(counts.shape[0], device=counts.device), counts)
    within = _torch.arange(run.shape[0], device=counts.device) - (counts.cumsum(0) - counts)[run]
    return run, starts[run] + within


def index_selected(x, dim, index):
    coo = coo_of(x)
    dim = wrapped(dim, coo.dim())
    if index.dim() > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, got {index.dim()} dimensions")
    index, length = index.reshape(-1).to(_C.int64), coo.shape[dim]
    if index.numel() and not -length <= index.amin().item() <= index.amax().item() < length:
        raise IndexError(f"index_select(): index out of range for tensor of size {list(coo.shape)} at dimension {dim}")
    index = _torch.where(index < 0, index + length, index)
    size = [index.shape[0] if d == dim else n for d, n in enumerate(coo.shape)]
    if dim >= coo.sparse_dim():
        return SparseCOO.make(coo._index[0], coo._data.index_select(dim - coo.sparse_dim() + 1, index), size, coo._coalesced)
    row, order = coo._index[0][dim].sort(stable=True)
    first = _torch.searchsorted(row, index)
    place, entry = ranges(first, _torch.searchsorted(row, index, right=True) - first)
    entry = order[entry]
    indices = coo._index[0][:, entry].clone()
    indices[dim] = place
    made = SparseCOO.make(indices, coo._data[entry], size, False)
    return made.coalesce() if coo._coalesced else made


def item(x, index):
    index = index if isinstance(index, tuple) else (index,)
    dim = 0
    for entry in index:
        if isinstance(entry, int):
            x = selected(x, dim, entry) if isinstance(x, Sparse) else x.select(dim, entry)
        elif entry == slice(None):
            dim += 1
        elif isinstance(entry, slice) and entry.step in (None, 1):
            start, stop, _ = entry.indices(x.shape[dim])
            x = narrowed(x, dim, start, max(stop - start, 0))
            dim += 1
        else:
            raise NotImplementedError("a sparse tensor is indexed by numbers and slices; use index_select, or .to_dense() first")
    return x


def joined(tensors, dim=0):
    for position, t in enumerate(tensors):
        if not isinstance(t, Sparse):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {position}.")
    tensors = [coo_of(t) for t in tensors]
    first = tensors[0]
    dim, count = wrapped(dim, first.dim()), first.sparse_dim()
    for position, t in enumerate(tensors):
        if (t.sparse_dim(), t.dense_dim()) != (count, first.dense_dim()):
            raise RuntimeError(
                f"All tensors must have the same number of sparse and dense dimensions, as the first: {count}, {first.dense_dim()}, "
                f"but tensor at position {position} has {t.sparse_dim()}, {t.dense_dim()}."
            )
        if _without(t.shape, dim) != _without(first.shape, dim):
            raise RuntimeError(f"All tensors must have the same shape: {list(first.shape)} (except in the concatenating dimension), but found shape: {list(t.shape)}")
    size = list(first.shape)
    size[dim] = sum(t.shape[dim] for t in tensors)
    indices, values, start = [], [], 0
    for t in tensors:
        if dim < count:
            moved = t._index[0].clone()
            moved[dim] += start
            indices.append(moved)
            values.append(t._data)
        else:
            # Entries of each tensor have zeros where the others' elements are.
            place = dim - count + 1
            parts = [t._data if other is t else t._data.new_zeros(t._data.shape[:place] + (other.shape[dim],) + t._data.shape[place + 1:]) for other in tensors]
            indices.append(t._index[0])
            values.append(_torch.cat(parts, place))
        start += t.shape[dim]
    made = SparseCOO.make(_torch.cat(indices, 1), _torch.cat(values), size, False)
    return made.coalesce() if all(t._coalesced for t in tensors) else made


def stacked(tensors, dim=0):
    """Tensors along a new sparse dimension."""
    tensors = list(tensors)
    return joined([unsqueezed(t, dim) if isinstance(t, Sparse) else t for t in tensors], wrapped(dim, tensors[0].dim() + 1))


def broadcast_to(input, size):
    """A COO tensor with the entries of dimensions of size one repeated."""
    coo, size = coo_of(input), list(size)
    extra = len(size) - coo.dim()
    indices, values, count = coo._index[0], coo._data, coo.sparse_dim()
    old = [1] * extra + list(coo.shape)
    if extra < 0 or any(n not in (1, wanted) for n, wanted in zip(old, size)):
        raise RuntimeError(f"The expanded size of the tensor does not match: input of size {list(coo.shape)} does not broadcast to {size}")
    values = values.expand(values.shape[0], *size[extra + count:])
    indices = _torch.cat([indices.new_zeros((extra, indices.shape[1])), indices])
    for d, (n, wanted) in enumerate(zip(old[: extra + count], size)):
        if n != wanted:
            places = _torch.arange(wanted, device=indices.device).repeat_interleave(indices.shape[1])
            indices = indices.repeat(1, wanted)
            indices[d] = places
            values = values.repeat(wanted, *([1] * (values.dim() - 1)))
    made = SparseCOO.make(indices, values, size, False)
    return made.coalesce() if coo._coalesced else made


def _may_resize(x, size, sparse_dim, dense_dim):
    """Refuses sizes that a tensor with entries cannot have."""
    for kind, old, new in (("sparse", x.sparse_dim(), sparse_dim), ("dense", x.dense_dim(), dense_dim)):
        if old != new:
            raise RuntimeError(f"changing the number of {kind} dimensions (from {old} to {new}) on a non-empty sparse tensor is not supported; make a new tensor")
    for kind, first, last in (("sparse", 0, sparse_dim), ("dense", sparse_dim, len(size))):
        if any(new < old for old, new in zip(x.shape[first:last], size[first:last])):
            raise RuntimeError(
                f"shrinking the size of {kind} dimensions (from {list(x.shape[first:last])} to {list(size[first:last])}) on a non-empty sparse tensor is not "
                "supported; make a new tensor"
            )


def resized(x, size, sparse_dim, dense_dim, clear=False):
    """``sparse_resize_``: gives a COO tensor another size. New elements of values are zeros."""
    size = [int(n) for n in size]
    if sparse_dim + dense_dim != len(size):
        raise RuntimeError(f"number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), but got {len(size)}")
    count = 0 if clear else x._nnz()
    if count:
        _may_resize(x, size, sparse_dim, dense_dim)
        shape = (count, *size[sparse_dim:])
        flat = x._data.detach().reshape(-1)
        data = _torch.cat([flat, flat.new_zeros(math.prod(shape) - flat.shape[0])]).reshape(shape)
        made = SparseCOO.make(x._index[0], data, size, x._coalesced)
    else:
        made = SparseCOO.make(x._index[0].new_empty((sparse_dim, 0)), x._data.new_empty((0, *size[sparse_dim:])), size, True)
    return made


def as_real(x):
    """A complex COO tensor as pairs of numbers, a dense dimension."""
    return SparseCOO.make(x._index[0], _torch.view_as_real(x._data), [*x.shape, 2], x._coalesced)


def as_complex(x):
    """Pairs of numbers as complex ones."""
    if x.dense_dim() == 0 or x.shape[-1] != 2:
        raise RuntimeError("view_as_complex_sparse is only supported for sparse tensors with the last dim == 2 and dense_dim > 0.")
    return SparseCOO.make(x._index[0], _torch.view_as_complex(x._data), x.shape[:-1], x._coalesced)
