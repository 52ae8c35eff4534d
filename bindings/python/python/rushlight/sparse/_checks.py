"""What makes the parts of a compressed tensor fit together."""

from .. import _C
from ._products import scalar_name


def _need(condition, message):
    if not condition:
        raise RuntimeError(message)


def check_compressed(offsets, others, values, size, by_row):
    """Raises if offsets, indices and values do not make compressed matrices of this size."""
    first, second = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
    line, other_count = ("row", "ncols") if by_row else ("column", "nrows")
    for name, tensor in ((first, offsets), (second, others)):
        _need(tensor.dim() >= 1, f"{name} must have dimensionality >= 1 but got {tensor.dim()}")
        _need(tensor.is_meta or tensor.numel() == 0 or tensor.stride(-1) == 1 or tensor.shape[-1] == 1, f"expected {name} to be a contiguous tensor per batch")
    _need(offsets.dim() == others.dim(), f"{first} and {second} dimensionalities must be equal but got {offsets.dim()} and {others.dim()}, respectively")
    batch = offsets.dim() - 1
    dense = values.dim() - batch - 1
    _need(dense >= 0, f"values must have dimensionality > sum of batch and block dimensionalities (={batch} + 0) but got {values.dim()}")
    _need(
        len(size) == batch + 2 + dense,
        f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={batch} + 2 + {dense}) but got {len(size)}",
    )
    shapes = [list(tensor.shape[:batch]) for tensor in (offsets, others, values)]
    _need(
        all(shape == list(size[:batch]) for shape in shapes),
        f"all batch dimensions of {first} (={shapes[0]}), {second} (={shapes[1]}), and values (={shapes[2]}) must be equal to tensor batch dimensions (={list(size[:batch])})",
    )
    lines, most = size[batch : batch + 2] if by_row else reversed(size[batch : batch + 2])
    nnz = values.shape[batch]
    _need(offsets.shape[-1] == lines + 1, f"{first}.shape[-1] must be equal to the number of {line}s + 1 (={lines + 1}), but got {offsets.shape[-1]}")
    _need(others.shape[-1] == nnz, f"{second}.shape[-1] must be equal to nnz (={nnz}) as defined by values.shape[{batch}], but got {others.shape[-1]}")
    shape = list(values.shape[batch + 1 :])
    _need(shape == list(size[batch + 2 :]), f"values.shape[{batch + 1}:] must be the dense dimensions of the size {list(size)}, but got {shape}")
    kinds = scalar_name(offsets.dtype), scalar_name(others.dtype)
    _need(kinds[0] == kinds[1], f"{first} and {second} must have the same dtype, bot got {kinds[0]} and {kinds[1]}, respectively")
    _need(offsets.dtype in (_C.int32, _C.int64), f"{first} and {second} dtype must be Int or Long, but got {kinds[0]}")
    if not (values.is_meta or offsets.is_meta):
        _check_numbers(offsets, others, nnz, most, lines, (first, second, line, other_count))


def _validate_compressed_sparse_indices(is_crow, compressed_idx, plain_idx, cdim, dim, nnz):
    """Raises if indices of ``nnz`` entries do not fit matrices with ``cdim`` lines of ``dim`` elements."""
    names = ("crow_indices", "col_indices", "row", "ncols") if is_crow else ("ccol_indices", "row_indices", "column", "nrows")
    _check_numbers(compressed_idx, plain_idx, nnz, dim, cdim, names)


def _check_numbers(offsets, others, nnz, most, lines, names):
    first, second, line, other_count = names
    if not offsets.numel():
        return
    _need(bool((offsets[..., 0] == 0).all()), f"`{first}[..., 0] == 0` is not satisfied.")
    _need(bool((offsets[..., -1] == nnz).all()), f"`{first}[..., -1] == nnz` is not satisfied.")
    counts = offsets[..., 1:] - offsets[..., :-1]
    _need(bool(((counts >= 0) & (counts <= most)).all()), f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {other_count}` is not satisfied.")
    _need(bool(((others >= 0) & (others < most)).all()), f"`0 <= {second} < {other_count}` is not satisfied.")
    if nnz < 2:
        return
    # A pair of neighbours may decrease where the second begins a line.
    starts, found = offsets.reshape(-1, lines + 1).long(), others.reshape(-1, nnz)
    begins = _C._torch.zeros((found.shape[0], nnz + 1), dtype=_C.bool, device=found.device).scatter(1, starts, True)
    count = "nrows" if line == "row" else "ncols"
    _need(
        bool(((found[:, 1:] > found[:, :-1]) | begins[:, 1:-1]).all()),
        f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {count} are sorted and distinct along the last dimension values` is not satisfied.",
    )
