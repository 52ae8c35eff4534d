"""Sparse tensors without entries, random values of a pattern, and ``new``."""

from .. import _C
from .._size import Size
from ._tensor import SparseCOO, SparseCompressed, _torch, refuse_blocks

_COMPRESSED = {_C.sparse_csr: True, _C.sparse_csc: False}


def empty(size, layout, dtype=None, device=None, dense_dim=0, index_dtype=_C.int64):
    """A tensor of a sparse layout without entries."""
    size = [int(n) for n in size]
    if min(size, default=0) < 0:
        raise RuntimeError(f"torch.empty: sizes are not negative, got {size}")
    if layout in (_C.sparse_bsr, _C.sparse_bsc):
        refuse_blocks(layout)
    sparse = len(size) - dense_dim
    if layout == _C.sparse_coo:
        indices = _torch.empty((sparse, 0), dtype=index_dtype, device=device)
        return SparseCOO.make(indices, _torch.empty((0, *size[sparse:]), dtype=dtype, device=device), size, True)
    if sparse < 2:
        raise RuntimeError(f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {size}")
    batch, by_row = size[: sparse - 2], _COMPRESSED[layout]
    lines = size[sparse - 2 if by_row else sparse - 1]
    offsets = _torch.zeros((*batch, lines + 1), dtype=index_dtype, device=device)
    others = _torch.empty((*batch, 0), dtype=index_dtype, device=device)
    return SparseCompressed.make(offsets, others, _torch.empty((*batch, 0, *size[sparse:]), dtype=dtype, device=device), size, by_row)


def _like(name):
    def make(x, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
        dtype, device = dtype or x.dtype, device or x.device
        if layout == _C.strided:
            made = _torch.zeros(x.shape, dtype=dtype, device=device)
            made = made if memory_format in (None, _C.preserve_format) else made.contiguous(memory_format=memory_format)
        elif memory_format is not None:
            raise RuntimeError("memory format option is only supported by strided tensors")
        else:
            if name == "empty_like" and layout not in (None, x.layout, _C.sparse_coo) and isinstance(x, SparseCompressed):
                raise RuntimeError(f"empty_like with different sparse layout is not supported (self is {x.layout} but you requested {layout}); use zeros_like")
            index = x._index[0].dtype if layout in (None, x.layout) else _C.int64
            made = empty(x.shape, layout or x.layout, dtype, device, x.dense_dim(), index)
        return made.requires_grad_() if requires_grad else made

    make.__name__ = make.__qualname__ = name
    return make


zeros_like, empty_like = _like("zeros_like"), _like("empty_like")


def full_like(x, value, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """Compressed matrices of the same entries, with one value."""
    if isinstance(x, SparseCOO) or layout not in (None, x.layout):
        raise NotImplementedError(f"full_like: a sparse COO tensor, or another layout, is not filled with {value}; call .to_dense() first")
    made = x._as(_torch.full_like(x._data.detach(), value, dtype=dtype, device=device))
    return made.requires_grad_() if requires_grad else made


def ones_like(x, **kwargs):
    return full_like(x, 1, **kwargs)


def _sparse_compressed_tensor_with_dims(nnz, dense_dim, size, blocksize, index_dtype, *, dtype=None, layout=None, device=None, pin_memory=None):
    """A compressed tensor with room for entries, whose indices are zeros."""
    if blocksize:
        refuse_blocks(layout)
    made = empty(size, layout, dtype, device, dense_dim, index_dtype)
    batch = made._batch
    others = _torch.zeros((*size[:batch], nnz), dtype=index_dtype, device=device)
    values = _torch.empty((*size[:batch], nnz, *size[len(size) - dense_dim :]), dtype=dtype, device=device)
    return SparseCompressed.make(made._index[0], others, values, size, made._by_row)


def random_like(name):
    def make(x, *, layout=None, **kwargs):
        if isinstance(x, SparseCOO):
            raise NotImplementedError(f"{name}: not supported for sparse COO tensors; make random values and call torch.sparse_coo_tensor")
        if layout not in (None, x.layout):
            raise NotImplementedError(f"{name}: the layout of the result is {x.layout}; convert it with to_sparse(layout={layout})")
        return x._as(getattr(_torch, name)(x._data, **kwargs))

    return make


def new(x, *args, device=None):
    """``Tensor.new``: a COO tensor of the dtype from sizes, or from indices, values and a size."""
    from . import sparse_coo_tensor

    if device is not None and _C.device(device).type != x.device.type:
        raise RuntimeError(f"legacy constructor expects device type: {x.device.type} but device type: {_C.device(device).type} was passed")
    where = {"dtype": x.dtype, "device": x.device}
    if not args:
        return empty((0,), _C.sparse_coo, **where)
    if all(isinstance(n, int) for n in args) or len(args) == 1 and isinstance(args[0], (tuple, Size)):
        return empty(args if isinstance(args[0], int) else args[0], _C.sparse_coo, **where)
    if len(args) in (2, 3) and all(isinstance(t, _C.Tensor) for t in args[:2]):
        return sparse_coo_tensor(*args, **where)
    raise TypeError("new(): expected sizes, or indices and values and perhaps a size")


def new_empty(x, *size, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A tensor without entries, of this one's layout."""
    size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    dtype, device, layout = dtype or x.dtype, device or x.device, layout or x.layout
    made = _torch.empty(size, dtype=dtype, device=device) if layout == _C.strided else empty(size, layout, dtype, device)
    return made.requires_grad_() if requires_grad else made


def zeros_of(out, size, dtype=None, device=None):
    """``torch.zeros(size, out=out)`` of a sparse tensor."""
    return empty(size, out.layout, dtype or out.dtype, device or out.device)


def created(name, args, kwargs):
    """A call of ``torch`` with a sparse ``layout``: a tensor without entries, of sizes or like a dense tensor."""
    layout = kwargs["layout"]
    if name in ("zeros", "empty", "new_zeros", "new_empty"):
        kwargs.pop("pin_memory", None)
        requires_grad = kwargs.pop("requires_grad", False)
        if name.startswith("new_"):
            x, *args = args
            kwargs = {"dtype": x.dtype, "device": x.device} | {key: value for key, value in kwargs.items() if value is not None}
        if "size" in kwargs:
            args = (kwargs.pop("size"),)
        if kwargs.pop("memory_format", None) is not None:
            raise RuntimeError(f"{name}: memory format option is only supported by strided tensors")
        made = empty(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args, **kwargs)
        return made.requires_grad_() if requires_grad else made
    if name in ("zeros_like", "empty_like"):
        x = args[0] if args else kwargs["input"]
        return created(name[:5], (x.shape,), {"dtype": x.dtype, "device": x.device} | {key: value for key, value in kwargs.items() if value is not None and key != "input"})
    raise NotImplementedError(f"{name}: not supported with layout={layout}; make a dense tensor and call .to_sparse(layout={layout})")
