"""Indices of entries from one layout to another: ``torch._convert_indices_from_csr_to_coo`` and its counterpart."""

from .. import _C
from ._tensor import SparseCompressed, _torch


def _convert_indices_from_csr_to_coo(crow_indices, col_indices, *, out_int32=False, transpose=False):
    """The places in a batch, rows and columns of compressed entries; with ``transpose`` the columns come first."""
    values = _torch.empty(col_indices.shape, device=col_indices.device)
    size = (*crow_indices.shape[:-1], crow_indices.shape[-1] - 1, 0)
    *places, rows, columns = SparseCompressed.make(crow_indices, col_indices, values, size, True)._ordered()
    found = _torch.stack([*places, columns, rows] if transpose else [*places, rows, columns])
    return found.to(_C.int32 if out_int32 else _C.int64)


def _convert_indices_from_coo_to_csr(input, size, *, out_int32=False):
    """Where each of ``size`` rows begins among entries with these rows, which are in order."""
    if input.dim() > 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {input.dim()} dimensions")
    rows = _torch.arange(size + 1, dtype=input.dtype, device=input.device)
    return _torch.searchsorted(input.reshape(-1), rows).to(_C.int32 if out_int32 else _C.int64)
