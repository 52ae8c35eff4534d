"""Sparse tensors: ``torch.sparse``, and the functions of ``torch`` that make them. Layouts: COO, CSR and CSC; matrices of blocks are refused."""

import math

from .. import _absent, _C
from .._size import Size
from ._checks import _validate_compressed_sparse_indices, check_compressed  # noqa: F401
from ._derivatives import by_values
from ._indices import _convert_indices_from_coo_to_csr, _convert_indices_from_csr_to_coo  # noqa: F401
from ._make import _sparse_compressed_tensor_with_dims  # noqa: F401
from ._ops import _become, masked as _masked
from ._products import addmm as _addmm, hspmm, matmul as _matmul, row_major as _row_major, sampled_addmm as _sampled_addmm, scalar_name, sspaddmm  # noqa: F401
from ._reductions import soft as _soft, total as _total
from ._shapes import broadcast_to as _sparse_broadcast_to  # noqa: F401
from ._tensor import Sparse, SparseCOO, SparseCompressed, Tensor, _torch, compressed, from_dense, refuse_blocks  # noqa: F401

__all__ = ["addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "solve", "spdiags", "sum"]

_PRODUCTS = ("sum", "mean", "amax", "amin")


def _tensor(data, dtype=None, device=None):
    if isinstance(data, Tensor):
        return data.to(device=data.device if device is None else device, dtype=data.dtype if dtype is None else dtype)
    return _C.tensor(data, dtype=dtype, device=device)


def sparse_coo_tensor(
    indices=None, values=None, size=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None, is_coalesced=None
):
    """A tensor of coordinates and values. Entries of one index are added."""
    if size is None and values is None and isinstance(indices, (tuple, list, Size)) and all(isinstance(n, int) for n in indices):
        indices, size = None, indices
    if layout not in (None, _C.sparse_coo):
        raise RuntimeError(f"sparse_coo_tensor: expected layout=torch.sparse_coo, got {layout}")
    if indices is None:
        indices, values = _torch.zeros((len(size), 0), dtype=_C.int64, device=device), _torch.zeros(0, dtype=dtype, device=device)
    values = _alias(_tensor(values, dtype, device))
    indices = _alias(_tensor(indices, _C.int64, values.device))
    if values.dim() == 0:
        values = values.expand(indices.shape[-1] if indices.dim() else 1)
    if indices.dim() == 1 and indices.shape[0] == 0:
        indices = indices.reshape(0 if size is None else len(size), 0)
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if indices.shape[1] != values.shape[0]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {indices.shape[1]}, nnz from values: {values.shape[0]}")
    count = indices.shape[0]
    size = _checked_size(indices, values, count, size)
    if requires_grad:
        values = values.detach().requires_grad_()
    made = SparseCOO.make(indices, values, size, is_coalesced is None and indices.shape[1] < 2)
    if is_coalesced:
        keys = made.keys()
        if bool((keys[1:] <= keys[:-1]).any()):
            raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
        made._coalesced = True
    return made


def _alias(tensor):
    """The same memory as another tensor, so that sizes stay when the other's change."""
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach()


def _checked_size(indices, values, count, size):
    """The size, or the smallest that holds the indices."""
    largest, dense = [-1] * count, list(values.shape[1:])
    if indices.numel() and not indices.is_meta:
        if indices.amin().item() < 0:
            raise RuntimeError(f"found negative index {indices.amin().item()}")
        largest = indices.amax(1).tolist()
    size = [n + 1 for n in largest] + dense if size is None else [int(n) for n in size]
    if len(size) != count + len(dense):
        raise RuntimeError(f"number of dimensions must be sparse_dim ({count}) + dense_dim ({len(dense)}), but got {len(size)}")
    if math.prod(size) > 2**63 - 1:
        raise RuntimeError(f"numel: integer multiplication overflow in a sparse tensor of size {size}")
    for d, n in enumerate(largest):
        if n >= size[d]:
            raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {n}")
    if dense != size[count:]:
        raise RuntimeError(f"values has incorrect size, expected {[indices.shape[1], *size[count:]]}, got {list(values.shape)}")
    return size


def _compressed(by_row, name):
    def make(offsets, others, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None):
        values = _tensor(values, dtype, device)
        offsets, others = (_tensor(part, None if isinstance(part, Tensor) else _C.int64, values.device) for part in (offsets, others))
        if size is None:
            # The smallest that holds the indices.
            batch, most = max(offsets.dim() - 1, 0), int(others.amax().item()) + 1 if others.numel() and not values.is_meta else 0
            count = max(offsets.shape[-1] - 1, 0) if offsets.dim() else 0
            size = (*offsets.shape[:-1], *((count, most) if by_row else (most, count)), *values.shape[batch + 1 :])
        size = tuple(int(n) for n in size)
        check_compressed(offsets, others, values, size, by_row)
        if requires_grad:
            values = values.detach().requires_grad_()
        return SparseCompressed.make(offsets, others, values, size, by_row)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A matrix of compressed {'rows' if by_row else 'columns'}: offsets, indices and values."
    return make


sparse_csr_tensor = _compressed(True, "sparse_csr_tensor")
sparse_csc_tensor = _compressed(False, "sparse_csc_tensor")


def sparse_compressed_tensor(compressed_indices, plain_indices, values, size=None, *, dtype=None, layout=None, **kwargs):
    """A compressed matrix of the layout given."""
    if layout not in (_C.sparse_csr, _C.sparse_csc):
        refuse_blocks(layout)
    make = sparse_csr_tensor if layout == _C.sparse_csr else sparse_csc_tensor
    return make(compressed_indices, plain_indices, values, size, dtype=dtype, **kwargs)


def sparse_bsr_tensor(*args, **kwargs):
    """Refused: there are no matrices of blocks."""
    refuse_blocks(_C.sparse_bsr)


def sparse_bsc_tensor(*args, **kwargs):
    """Refused: there are no matrices of blocks."""
    refuse_blocks(_C.sparse_bsc)


# torch.sparse


def mm(sparse, dense, reduce="sum"):
    """The product of a sparse matrix with a dense or a sparse one; ``reduce`` other than "sum" needs CSR."""
    if reduce not in _PRODUCTS:
        raise ValueError(f"torch.sparse.mm: reduce must be one of {', '.join(_PRODUCTS)}, got {reduce}")
    if not isinstance(sparse, Sparse) and not isinstance(dense, Sparse):
        return _torch.mm(sparse, dense)
    return _matmul(sparse, dense, reduce)


def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
    """``beta * mat + alpha * mat1 @ mat2``."""
    return _addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sum(input, dim=None, dtype=None):
    """The sum of all elements, or along dimensions. A sparse result keeps the dtype."""
    made = _total(input, dim, dtype=dtype)
    return made.to(input.dtype) if dtype is None and isinstance(made, Sparse) else made


def softmax(input, dim, *, dtype=None):
    """The softmax over entries; elements that are not there count as minus infinity."""
    return _soft("softmax")(input, dim, dtype=dtype)


def log_softmax(input, dim, *, dtype=None):
    """The logarithm of ``softmax``."""
    return _soft("log_softmax")(input, dim, dtype=dtype)


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """``beta * input + alpha * (mat1 @ mat2)`` at the entries of a sparse input, or of a batch of them."""
    made = _sampled_addmm(input, mat1, mat2, beta, alpha)
    return made if out is None else _become(out, made)


def spdiags(diagonals, offsets, shape, layout=None):
    """A matrix with the rows of ``diagonals`` on its diagonals."""
    if len(shape) != 2:
        raise RuntimeError(f"spdiags(): Output shape must be 2d, got {list(shape)}")
    if offsets.dim() > 1:
        raise RuntimeError(f"spdiags(): Offsets must be scalar or vector, got {offsets.dim()} dimensions")
    if diagonals.dim() not in (1, 2):
        raise RuntimeError(f"spdiags(): Diagonals must be vector or matrix, got {diagonals.dim()} dimensions")
    if layout not in (None, _C.sparse_coo, _C.sparse_csr, _C.sparse_csc):
        raise RuntimeError(f"spdiags(): Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {str(layout).rpartition('.')[2].capitalize()}")
    if offsets.dtype != _C.int64:
        raise RuntimeError(f"spdiags(): Offset Tensor must have dtype Long but got {scalar_name(offsets.dtype)}")
    diagonals = diagonals.reshape(1, -1) if diagonals.dim() < 2 else diagonals
    offsets = offsets.reshape(-1)
    if offsets.shape[0] != diagonals.shape[0]:
        raise RuntimeError(f"spdiags(): Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets ({offsets.shape[0]})")
    if len(set(offsets.tolist())) != offsets.shape[0]:
        raise RuntimeError("spdiags(): Offset tensor contains duplicate values")
    rows, columns, values = [offsets[:0]], [offsets[:0]], [diagonals[:0].reshape(-1)]
    for k, offset in enumerate(offsets.tolist()):
        first, last = max(0, offset), min(shape[1], shape[0] + offset, diagonals.shape[1])
        at = _torch.arange(first, max(last, first), device=offsets.device)
        rows.append(at - offset)
        columns.append(at)
        values.append(diagonals[k, first:max(last, first)])
    made = SparseCOO.make(_torch.stack([_torch.cat(rows), _torch.cat(columns)]), _torch.cat(values), shape, False)
    return made if layout in (None, _C.sparse_coo) else made.to_sparse(layout=layout)


def solve(A, b):
    """The solution of A x = b for a sparse matrix, by its dense form."""
    from .. import linalg

    return linalg.solve(A.to_dense() if isinstance(A, Sparse) else A, b)


spsolve = solve


class check_sparse_tensor_invariants:
    """Sparse tensors are checked when they are made: the switch has no effect and reports True."""

    def __init__(self, enable=True):
        self._wanted = enable

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def __call__(self, function):
        """As a decorator: the function as it is."""
        return function

    @staticmethod
    def is_enabled():
        return True

    @staticmethod
    def enable():
        """Checks are always on."""

    @staticmethod
    def disable():
        """Checks stay on."""


def as_sparse_gradcheck(gradcheck):
    """``gradcheck`` for functions of sparse tensors: they are differentiated by their values."""

    def check(func, inputs, *, masked=False, **kwargs):
        return gradcheck(*by_values(func, inputs if isinstance(inputs, (list, tuple)) else (inputs,)), **kwargs)

    return check


_absent.fill(
    globals(), "torch.sparse", "semi-structured sparsity needs GPU kernels of its own; use dense tensors, or torch.sparse_csr",
    "SparseSemiStructuredTensor SparseSemiStructuredTensorCUTLASS SparseSemiStructuredTensorCUSPARSELT to_sparse_semi_structured",
)


def _to_sparse(self, layout_or_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    layout = layout_or_dim if isinstance(layout_or_dim, _C.layout) else layout
    if layout in (_C.sparse_bsr, _C.sparse_bsc):
        refuse_blocks(layout)
    if blocksize is not None:
        raise RuntimeError(f"to_sparse: blocksize is for layouts of blocks, but got {layout or _C.sparse_coo}")
    if layout == _C.strided:
        return self
    if dense_dim is not None:
        layout_or_dim = self.dim() - dense_dim
    made = from_dense(self, layout_or_dim if isinstance(layout_or_dim, int) else None)
    return made if layout in (None, _C.sparse_coo) else compressed(made, layout == _C.sparse_csr)


def _resize_as_sparse_(self, other):
    raise RuntimeError(f"resize_as_sparse_compressed_: self  expected sparse compressed tensor layout but got {self.layout}; call .to_sparse_csr() first")


#: Methods of dense tensors.
DENSE = {
    "resize_as_sparse_": _resize_as_sparse_,
    "to_sparse": _to_sparse, "to_sparse_coo": lambda self: from_dense(self), "sparse_mask": _masked,
    "to_sparse_csr": lambda self, dense_dim=None: compressed(from_dense(self, self.dim() - (dense_dim or 0)), True),
    "to_sparse_csc": lambda self, dense_dim=None: compressed(from_dense(self, self.dim() - (dense_dim or 0)), False),
    "to_sparse_bsr": lambda self, blocksize, dense_dim=None: refuse_blocks(_C.sparse_bsr),
    "to_sparse_bsc": lambda self, blocksize, dense_dim=None: refuse_blocks(_C.sparse_bsc),
}
spmm = smm = dsmm = mm


def _validate_sparse_coo_tensor_args(indices, values, size, is_coalesced=None, check_pinning=None):
    """Raises if the parts do not make a COO tensor."""
    sparse_coo_tensor(indices, values.detach(), size, is_coalesced=is_coalesced)


def _validate_sparse_compressed_tensor_args(compressed_indices, plain_indices, values, size, layout, check_pinning=None):
    """Raises if the parts do not make a compressed matrix."""
    sparse_compressed_tensor(compressed_indices, plain_indices, values.detach(), size, layout=layout)


def _validate_sparse_csr_tensor_args(crow_indices, col_indices, values, size, check_pinning=None):
    """Raises if the parts do not make a CSR matrix."""
    sparse_csr_tensor(crow_indices, col_indices, values.detach(), size)


def _validate_sparse_csc_tensor_args(ccol_indices, row_indices, values, size, check_pinning=None):
    """Raises if the parts do not make a CSC matrix."""
    sparse_csc_tensor(ccol_indices, row_indices, values.detach(), size)


hsmm = hspmm


def saddmm(input, mat1, mat2, *, beta=1, alpha=1):
    """``addmm`` of a sparse and a dense matrix."""
    return addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def __getattr__(name):
    from .._functions import _missing

    return _missing(__name__, name)
