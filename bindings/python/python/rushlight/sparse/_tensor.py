"""Sparse tensors: coordinates (COO) and compressed rows or columns (CSR, CSC) over dense tensors of indices and values.

A sparse tensor is a Python object that holds ``_index`` tensors and ``_data``, the values. Functions of ``torch`` reach it by ``__torch_function__`` and run
as dense ops on the values, so that gradients by the values and by dense operands follow from those ops. Functions without a sparse form are refused by name.
"""

import re

from .. import _C
from .._dispatch import disabled
from .._size import Size

Tensor = _C.Tensor
_torch = _C._torch

#: Attributes that the object has itself.
_OWN = frozenset("shape dtype device ndim layout is_sparse is_sparse_csr requires_grad grad is_leaf grad_fn names is_cuda is_cpu is_meta is_xpu is_quantized itemsize".split())
#: Questions about sizes and types.
_QUESTIONS = frozenset("size dim ndimension numel nelement is_floating_point is_complex is_signed element_size __len__ get_device is_tensor is_same_size".split())


class Sparse(Tensor):
    """The common part of sparse tensors."""

    @staticmethod
    def _made(cls, index, data, size, **state):
        size = [int(n) for n in size]
        made = Tensor._make_wrapper_subclass(cls, size, dtype=data.dtype, device=data.device)
        made._index, made._data, made._sizes = index, data, Size(size)
        made.__dict__.update(state)
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from . import _ops

        return _ops.handle(func, args, kwargs or {})

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{func}: not supported for sparse tensors; call .to_dense() first")

    def _as(self, data):
        """The same indices with other values."""
        raise NotImplementedError

    # Attributes.

    shape = property(lambda self: self._sizes)
    dtype = property(lambda self: self._data.dtype)
    device = property(lambda self: self._data.device)
    ndim = property(lambda self: len(self._sizes))
    is_sparse_csr = property(lambda self: self.layout == _C.sparse_csr)
    is_sparse = property(lambda self: self.layout == _C.sparse_coo)
    is_leaf = property(lambda self: self._data.is_leaf)
    grad_fn = property(lambda self: self._data.grad_fn)
    is_cuda = property(lambda self: self._data.is_cuda)
    is_cpu = property(lambda self: self._data.is_cpu)
    is_meta = property(lambda self: self._data.is_meta)

    #: The tensor whose entries a transpose shows.
    _base = property(lambda self: self.__dict__.get("_viewed"))

    def _is_view(self):
        return self._base is not None

    def _view(self, index, data, size, **state):
        """A tensor of this one's entries."""
        made = Sparse._made(type(self), tuple(i.view(i.shape) for i in index), data.view(data.shape), size, **state)
        made._viewed = self if self._base is None else self._base
        return made

    @property
    def requires_grad(self):
        return self._data.requires_grad

    @requires_grad.setter
    def requires_grad(self, value):
        self._data.requires_grad_(value)

    @property
    def grad(self):
        found, everywhere = self._data.grad, self.__dict__.get("_everywhere")
        if found is None or everywhere is None:
            return None if found is None else self._unsummed(found)
        return self._unsummed(found - everywhere).to_dense() + everywhere

    def _unsummed(self, gradient):
        """The gradient of values as one of elements."""
        return self._as(gradient)

    @grad.setter
    def grad(self, value):
        if value is not None and not (isinstance(value, Sparse) and value._data.shape == self._data.shape):
            raise RuntimeError("the gradient of a sparse tensor has its indices: assign None, or a tensor with as many values")
        self.__dict__.pop("_everywhere", None)
        self._data.grad = None if value is None else value._data

    def requires_grad_(self, requires_grad=True):
        if requires_grad and not (self.is_floating_point() or self.is_complex()):
            raise RuntimeError(f"only Tensors of floating point dtype can require gradients, this one is {self.dtype}")
        self._data.requires_grad_(requires_grad)
        return self

    def size(self, dim=None):
        return self._sizes if dim is None else self._sizes[dim]

    def dim(self):
        return len(self._sizes)

    def numel(self):
        count = 1
        for n in self._sizes:
            count *= n
        return count

    def is_floating_point(self):
        return self._data.is_floating_point()

    def is_complex(self):
        return self._data.is_complex()

    def is_coalesced(self):
        raise RuntimeError(f"is_coalesced expected sparse coordinate tensor layout but got {self._kind}")

    def _nnz(self):
        return self._data.shape[0]

    def __len__(self):
        return self._sizes[0]

    def __setitem__(self, index, value):
        raise TypeError("Cannot assign to a sparse tensor")

    def __bool__(self):
        if self.numel() != 1:
            raise RuntimeError(f"Boolean value of Tensor with {'more than one value' if self.numel() else 'no values'} is ambiguous")
        return bool(self.to_dense())

    def item(self):
        return self.to_dense().item()

    def values(self):
        return self._data

    def backward(self, gradient=None, **kwargs):
        if gradient is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        self._data.backward(self._gradient(gradient), **kwargs)

    def _gradient(self, gradient):
        """The values of a gradient at the indices."""
        if not isinstance(gradient, Sparse):
            return self._picked(gradient)
        # Entries of one index add up in a gradient, too.
        alike = type(gradient) is type(self) and (not gradient.is_sparse or gradient._coalesced)
        alike = alike and all(a.shape == b.shape and bool((a == b).all()) for a, b in zip(self._index, gradient._index))
        return gradient._data if alike else self._picked(gradient.to_dense())

    def detach(self):
        return self._as(self._data.detach())

    def detach_(self):
        self._data = self._data.detach()
        return self

    def clone(self, *, memory_format=None):
        made = self._as(self._data.clone())
        made._index = tuple(i.clone() for i in self._index)
        return made

    def to(self, *args, **kwargs):
        if args and isinstance(args[0], Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        data = self._data.to(*args, **kwargs)
        if data.is_meta and not self._data.is_meta:
            from ._make import empty_like

            # The number of entries is data, which a meta tensor has not.
            return empty_like(self, dtype=data.dtype, device=data.device)
        made = self._as(data)
        if data.device != self._data.device:
            made._index = tuple(i.to(data.device) for i in self._index)
        return made

    def cpu(self):
        return self.to("cpu")

    def cuda(self, device=None, non_blocking=False):
        return self.to("cuda" if device is None else device)

    def type(self, dtype=None):
        from .._functions import _type_names

        if dtype is None:
            return _type_names(self.device.type)[self.dtype].replace("torch.", "torch.sparse.")
        return self.to(dtype)

    def tolist(self):
        return self.to_dense().tolist()

    def numpy(self):
        raise TypeError(f"can't convert {self._kind} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, *args, **kwargs):
        return self.numpy()

    def __deepcopy__(self, memo):
        made = self._as(self._data.detach().clone().requires_grad_(self._data.requires_grad))
        made._index = tuple(i.clone() for i in self._index)
        memo[id(self)] = made
        return made

    def __repr__(self, **kwargs):
        return self._text()

    __str__ = __repr__

    def __hash__(self):
        return id(self)

    def to_sparse(self, layout_or_dim=None, *, layout=None, blocksize=None, dense_dim=None):
        layout = layout_or_dim if isinstance(layout_or_dim, _C.layout) else layout
        if layout is None or layout == _C.sparse_coo:
            return self.to_sparse_coo()
        if layout == _C.sparse_csr:
            return self.to_sparse_csr()
        if layout == _C.sparse_csc:
            return self.to_sparse_csc()
        refuse_blocks(layout)

    def to_sparse_csr(self, dense_dim=None):
        return compressed(self.to_sparse_coo(), True)

    def to_sparse_csc(self, dense_dim=None):
        return compressed(self.to_sparse_coo(), False)

    def to_sparse_bsr(self, blocksize, dense_dim=None):
        refuse_blocks(_C.sparse_bsr)

    def to_sparse_bsc(self, blocksize, dense_dim=None):
        refuse_blocks(_C.sparse_bsc)

    def _parts(self):
        """Names and tensors of what the text shows."""
        raise NotImplementedError

    def _text(self):
        body = ",\n       ".join(f"{name}={_indented(part, 8 + len(name))}" for name, part in self._parts())
        default = self.dtype in (_C.get_default_dtype(), _C.int64, _C.bool, _C.complex64)
        device = "" if self.is_cpu else f"device='{self.device}'"
        number = "" if self.is_meta else f"nnz={self._nnz()}"
        gradient = "requires_grad=True" if self.requires_grad else ""
        if self._data.grad_fn is not None:
            gradient = f"grad_fn=<{type(self._data.grad_fn).__name__}>"
        options = [device, f"size={tuple(self._sizes)}", number, "" if default else f"dtype={self.dtype}", f"layout={self.layout}", gradient]
        return _joined_options("tensor(" + body, [o for o in options if o], self.is_sparse) + ")"


def _joined_options(text, options, apart):
    """A text with options behind it, in lines of 80 characters; with ``apart`` the first begins a line."""
    room = 79 - len(text.rpartition("\n")[2]) - 1
    for option in options:
        if apart or len(option) + 2 > room:
            text, room, apart = f"{text},\n       {option}", 80 - 7 - len(option), False
        else:
            text, room = f"{text}, {option}", room - len(option) - 2
    return text


def refuse_blocks(layout):
    raise NotImplementedError(f"sparse tensors of blocks ({layout}) are not supported; use the layouts torch.sparse_coo, sparse_csr or sparse_csc")


def _numbers(tensor):
    """The text of a tensor inside of another's."""
    if tensor.is_meta or not tensor.numel():
        return f"tensor({'...' if tensor.is_meta else '[]'}, size={tuple(tensor.shape)})"
    with disabled():
        return re.sub(r",\s+dtype=[\w.]+\)$", ")", repr(tensor.detach()))


class SparseCOO(Sparse):
    """Indices of shape (sparse dimensions, entries), values of shape (entries, dense dimensions)."""

    layout = property(lambda self: _C.sparse_coo)
    _kind = "SparseCPU"

    @staticmethod
    def make(indices, values, size, coalesced=False):
        return Sparse._made(SparseCOO, (indices,), values, size, _coalesced=coalesced)

    def _as(self, data):
        return SparseCOO.make(self._index[0], data, self._sizes, self._coalesced)

    def _unsummed(self, gradient):
        if self._coalesced or self._nnz() < 2:
            return self._as(gradient)
        # Entries of one index have the gradient of their sum each.
        unique, inverse = _torch.unique(self.keys(), return_inverse=True)
        values = gradient.new_zeros((unique.shape[0], *gradient.shape[1:])).index_copy(0, inverse, gradient)
        return SparseCOO.make(self._indices_of(unique), values, self._sizes, True)

    def _picked(self, dense):
        """The entries of a dense tensor at the indices."""
        return dense[tuple(self._index[0])] if self._index[0].shape[0] else dense.unsqueeze(0)

    def indices(self):
        if not self._coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._index[0]

    def values(self):
        if not self._coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._data

    def _indices(self):
        return self._index[0]

    def _values(self):
        return self._data

    def crow_indices(self):
        raise RuntimeError("crow_indices expected sparse row compressed tensor layout but got Sparse")

    def col_indices(self):
        raise RuntimeError("col_indices expected sparse row compressed tensor layout but got Sparse")

    def ccol_indices(self):
        raise RuntimeError("ccol_indices expected sparse column compressed tensor layout but got Sparse")

    def row_indices(self):
        raise RuntimeError("row_indices expected sparse column compressed tensor layout but got Sparse")

    def sparse_dim(self):
        return self._index[0].shape[0]

    _dimI = sparse_dim

    def dense_dim(self):
        return self._data.dim() - 1

    _dimV = dense_dim

    def is_coalesced(self):
        return self._coalesced

    def _coalesced_(self, coalesced):
        self._coalesced = coalesced
        return self

    def keys(self):
        """One number for each entry: its row-major position in the sparse dimensions."""
        indices = self._index[0]
        found = _torch.zeros(indices.shape[1], dtype=_C.int64, device=indices.device)
        for d in range(indices.shape[0]):
            found = found * self._sizes[d] + indices[d]
        return found

    def coalesce(self):
        """Entries in order, those of one index added."""
        if self._coalesced:
            return self
        if self._nnz() < 2:
            return SparseCOO.make(self._index[0], self._data, self._sizes, True)
        unique, inverse = _torch.unique(self.keys(), return_inverse=True)
        data = self._data
        summed = _torch.zeros((unique.shape[0], *data.shape[1:]), dtype=data.dtype, device=data.device)
        if data.dtype == _C.bool:
            summed = summed.to(_C.int32).index_add(0, inverse, data.to(_C.int32)).bool()
        else:
            summed = summed.index_add(0, inverse, data)
        return SparseCOO.make(self._indices_of(unique), summed, self._sizes, True)

    def _indices_of(self, keys):
        """The indices that ``keys`` numbers."""
        rows = []
        for d in reversed(range(self.sparse_dim())):
            n = max(self._sizes[d], 1)
            rows.insert(0, keys % n)
            keys = keys // n
        return _torch.stack(rows) if rows else self._index[0][:, :1]

    def to_dense(self, dtype=None, *, masked_grad=None):
        data = self._data if dtype is None else self._data.to(dtype)
        if self.sparse_dim() == 0:
            return data.any(0) if data.dtype == _C.bool else data.sum(0, dtype=data.dtype)
        rest = data.shape[1:]
        count = 1
        for n in self._sizes[: self.sparse_dim()]:
            count *= n
        flat = _torch.zeros((count, *rest), dtype=data.dtype, device=data.device)
        if data.dtype == _C.bool:
            flat = flat.to(_C.int32).index_add(0, self.keys(), data.to(_C.int32)).bool()
        else:
            flat = flat.index_add(0, self.keys(), data)
        return flat.reshape(self._sizes)

    def to_sparse_coo(self):
        return self

    def to_sparse(self, layout_or_dim=None, *, layout=None, blocksize=None, dense_dim=None):
        wanted = self.sparse_dim() if dense_dim is None else self.dim() - dense_dim
        if isinstance(layout_or_dim, int) and not isinstance(layout_or_dim, bool):
            wanted, layout_or_dim = layout_or_dim, None
        if wanted != self.sparse_dim():
            raise RuntimeError("to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not supported; call .to_dense() first")
        return super().to_sparse(layout_or_dim, layout=layout, blocksize=blocksize)

    def _compressed(self, by_row):
        if self.sparse_dim() != 2:
            kind = "SparseCsr" if by_row else "SparseCsc"
            raise RuntimeError(f"coo_to_sparse_{kind[-3:].lower()}: conversion from Sparse to {kind} for input tensors with sparse_dim()!=2 is not supported")
        return compressed(self, by_row)

    def to_sparse_csr(self, dense_dim=None):
        return self._compressed(True)

    def to_sparse_csc(self, dense_dim=None):
        return self._compressed(False)

    def _parts(self):
        return ("indices", self._index[0]), ("values", self._data)

    def __reduce_ex__(self, protocol):
        from .._utils import _rebuild_sparse_tensor

        return _rebuild_sparse_tensor, (self.layout, (self._index[0], self._data, self._sizes, self._coalesced))


def _indented(tensor, margin):
    return _numbers(tensor).replace("\n", "\n" + " " * margin)


class SparseCompressed(Sparse):
    """CSR and CSC matrices: offsets of rows (columns), indices of columns (rows), values.

    The matrices of a batch have as many entries each; all three tensors begin with its dimensions.
    """

    _kind = "SparseCsrCPU"
    layout = property(lambda self: _C.sparse_csr if self._by_row else _C.sparse_csc)

    @staticmethod
    def make(offsets, others, values, size, by_row):
        return Sparse._made(SparseCompressed, (offsets, others), values, size, _by_row=by_row)

    def _as(self, data):
        return SparseCompressed.make(*self._index, data, self._sizes, self._by_row)

    def _need(self, by_row, name):
        if by_row != self._by_row:
            kind = "row" if by_row else "column"
            raise RuntimeError(f"{name} expected sparse {kind} compressed tensor layout but got {'SparseCsr' if self._by_row else 'SparseCsc'}")

    def crow_indices(self):
        self._need(True, "crow_indices")
        return self._index[0]

    def col_indices(self):
        self._need(True, "col_indices")
        return self._index[1]

    def ccol_indices(self):
        self._need(False, "ccol_indices")
        return self._index[0]

    def row_indices(self):
        self._need(False, "row_indices")
        return self._index[1]

    def sparse_dim(self):
        return 2

    @property
    def _batch(self):
        """How many dimensions a batch has."""
        return self._index[0].dim() - 1

    def dense_dim(self):
        return self._data.dim() - 1 - self._batch

    def _nnz(self):
        return self._data.shape[self._batch]

    def indices(self):
        raise RuntimeError("indices expected sparse coordinate tensor layout but got SparseCsr")

    def to_sparse_coo(self):
        if self.is_meta:
            return _empty(self, _C.sparse_coo)
        made = SparseCOO.make(_torch.stack(self._ordered()), self._entries(), self._sizes, self._by_row)
        if self._by_row:
            return made
        order = _torch.argsort(made.keys(), stable=True)
        return SparseCOO.make(made._index[0][:, order], made._data[order], self._sizes, True)

    def _picked(self, dense):
        return dense[self._ordered()].reshape(self._data.shape)

    def _entries(self):
        """The values of all matrices, one behind the other."""
        return self._data.flatten(0, self._batch)

    def _ordered(self):
        """The places of the values in a batch, their rows and columns."""
        offsets, others = self._index
        counts = (offsets[..., 1:] - offsets[..., :-1]).to(_C.int64).reshape(-1)
        lines, matrices = offsets.shape[-1] - 1, 1
        for n in offsets.shape[:-1]:
            matrices *= n
        rows = _torch.repeat_interleave(_torch.arange(lines, device=offsets.device).repeat(matrices), counts)
        others = others.to(_C.int64).reshape(-1)
        places, matrix = [], _torch.arange(matrices, device=offsets.device).repeat_interleave(self._nnz())
        for n in reversed(offsets.shape[:-1]):
            places.insert(0, matrix % n)
            matrix = matrix // n
        return (*places, rows, others) if self._by_row else (*places, others, rows)

    def resize_(self, *size, memory_format=None):
        """Matrices with more rows or columns, or fewer rows; fewer matrices of a batch."""
        size = [int(n) for n in (size[0] if len(size) == 1 and not isinstance(size[0], int) else size)]
        if len(size) < 2:
            raise RuntimeError(f"torch.resize_: Only batched sparse CSR matrices are supported, but got size {size}")
        if not self._by_row or self.dense_dim():
            raise NotImplementedError("resize_: only CSR matrices without dense dimensions are resized; make a new tensor")
        if size[-1] < self._sizes[-1]:
            raise RuntimeError("torch.resize_: Resizing columns of sparse CSR tensors to a smaller value is not supported. "
                               f"The original number of columns is {self._sizes[-1]} while the requested new number of columns is {size[-1]}.")
        (offsets, others), data, batch = self._index, self._data, self._batch
        matrices, old = 1, 1
        for n in size[:-2]:
            matrices *= n
        for n in self._sizes[:batch]:
            old *= n
        if matrices > old:
            raise NotImplementedError("resize_: a batch of sparse matrices does not grow; make a new tensor")
        # As many entries as before where they find room, the last row's among them.
        nnz = min(self._nnz(), size[-2] * size[-1])
        offsets, others, data = (part.reshape(old, part.shape[-1])[:matrices] for part in (offsets, others, data))
        more = size[-2] - self._sizes[batch]
        offsets = _torch.cat([offsets, offsets[:, -1:].expand(matrices, more)], 1) if more > 0 else offsets[:, : size[-2] + 1].clamp(max=nnz)
        offsets[:, -1] = nnz if size[-2] else 0
        parts = (offsets, others[:, :nnz], data[:, :nnz])
        offsets, others, data = (part.reshape(*size[:-2], part.shape[-1]) for part in parts)
        self._index, self._data, self._sizes = (offsets, others), data, Size(size)
        return self

    def resize_as_sparse_(self, other):
        """The sizes and the number of entries of another matrix; indices and values are the other's indices and zeros."""
        if not isinstance(other, SparseCompressed):
            raise RuntimeError(f"resize_as_sparse_compressed_: src  expected sparse compressed tensor layout but got {other.layout}")
        if other._by_row != self._by_row:
            raise RuntimeError(
                f"resize_as_sparse_compressed_tensor_: self and src must have the same layout, but got: self ({self.layout}) and source ({other.layout})"
            )
        if [part.shape for part in (*self._index, self._data)] != [part.shape for part in (*other._index, other._data)]:
            self._index = tuple(new.to(old.dtype).clone() for old, new in zip(self._index, other._index))
            self._data = self._data.new_zeros(other._data.shape)
        self._sizes = other._sizes
        return self

    def to_dense(self, dtype=None, *, masked_grad=None):
        return SparseCOO.make(_torch.stack(self._ordered()), self._entries(), self._sizes, False).to_dense(dtype)

    def to_sparse_csr(self, dense_dim=None):
        return self if self._by_row else self._turned()

    def to_sparse_csc(self, dense_dim=None):
        return self._turned() if self._by_row else self

    def _turned(self):
        """The other order, with indices of the same dtype."""
        made = compressed(self.to_sparse_coo(), not self._by_row)
        made._index = tuple(i.to(self._index[0].dtype) for i in made._index)
        return made

    def _parts(self):
        names = ("crow_indices", "col_indices") if self._by_row else ("ccol_indices", "row_indices")
        return *zip(names, self._index), ("values", self._data)

    def __reduce_ex__(self, protocol):
        from .._utils import _rebuild_sparse_tensor

        return _rebuild_sparse_tensor, (self.layout, (*self._index, self._data, self._sizes))


def _empty(x, layout):
    """A tensor without entries, of another layout."""
    from ._make import empty

    return empty(x.shape, layout, x.dtype, x.device, x.dense_dim())


def compressed(matrix, by_row):
    """A COO matrix in compressed form, or a batch of matrices with as many entries each."""
    batch = matrix.sparse_dim() - 2
    if batch < 0:
        raise RuntimeError(f"compressed sparse tensors are matrices or batches of them, got {matrix.dim()} dimensions, {matrix.sparse_dim()} of them sparse")
    if matrix.is_meta:
        return _empty(matrix, _C.sparse_csr if by_row else _C.sparse_csc)
    matrix = matrix.coalesce()
    indices, data, size = matrix._index[0], matrix._data, list(matrix._sizes)
    rows, columns = size[batch : batch + 2]
    place, count = _torch.zeros(indices.shape[1], dtype=_C.int64, device=indices.device), 1
    for d in range(batch):
        place, count = place * size[d] + indices[d], count * size[d]
    line, other, lines = (indices[batch], indices[batch + 1], rows) if by_row else (indices[batch + 1], indices[batch], columns)
    if not by_row:
        order = _torch.argsort((place * columns + line) * rows + other, stable=True)
        place, line, other, data = place[order], line[order], other[order], data[order]
    counts = _torch.bincount(place * lines + line, minlength=count * lines) if indices.shape[1] else _torch.zeros(count * lines, dtype=_C.int64, device=indices.device)
    counts = counts.reshape(count, lines)
    entries = counts.sum(1)
    if batch and count and bool((entries != entries[0]).any()):
        raise RuntimeError("Expect the same number of specified elements per batch.")
    offsets = _torch.cat([_torch.zeros((count, 1), dtype=_C.int64, device=indices.device), counts.cumsum(1)], 1)
    nnz = indices.shape[1] // max(count, 1)
    offsets, other = offsets.reshape(*size[:batch], lines + 1), other.reshape(*size[:batch], nnz)
    return SparseCompressed.make(offsets, other, data.reshape(*size[:batch], nnz, *data.shape[1:]), size, by_row)


def from_dense(dense, sparse_dim=None):
    """The elements of a dense tensor that are not zero, in its first ``sparse_dim`` dimensions."""
    count = dense.dim() if sparse_dim is None else sparse_dim
    if not 0 <= count <= dense.dim() or count == 0 and dense.dim():
        raise RuntimeError(f"sparse_dim argument must be in range [{min(1, dense.dim())}, {dense.dim()}], but got {count}")
    mask = dense.detach() != 0
    if count < dense.dim():
        mask = mask.flatten(count).any(-1)
    indices = mask.nonzero().t().contiguous()
    values = dense[tuple(indices)] if dense.dim() else (dense.reshape(1) if bool(mask) else dense.reshape(1)[:0])
    return SparseCOO.make(indices, values, dense.shape, True)
