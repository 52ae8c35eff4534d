"""Functions over strides and files: tensors with another memory order, or in a mapped file."""

from . import _C

Tensor = _C.Tensor
_torch = _C._torch

__all__ = ["as_strided_", "as_strided_scatter", "empty_permuted", "empty_strided", "from_file"]


def empty_strided(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """An uninitialised tensor with given strides."""
    span = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else 0
    made = _torch.empty(span, dtype=dtype, device=device, pin_memory=pin_memory).as_strided(tuple(size), tuple(stride))
    return made.requires_grad_(requires_grad)


def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """An uninitialised tensor whose dimensions have the memory order ``physical_layout``, the slowest first."""
    size, order = tuple(size), tuple(physical_layout)
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(f"empty_permuted(): the physical layout {order} is not an order of {len(size)} dimensions")
    stride, step = [0] * len(size), 1
    for d in reversed(order):
        stride[d] = step
        step *= max(size[d], 1)
    return empty_strided(size, stride, dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory)


def as_strided_(input, size, stride, storage_offset=None):
    """Gives a tensor another size and stride over its memory, in place."""
    return input.set_(input.detach().as_strided(size, stride, storage_offset))


def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of ``input`` with ``src`` written to the elements that ``as_strided`` would give."""
    made = input.contiguous().clone()
    view = made.as_strided(size, stride, storage_offset)
    if tuple(view.shape) != tuple(src.shape):
        raise RuntimeError(
            f"as_strided_scatter(): expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(view.shape)}"
        )
    view.copy_(src)
    return made


def from_file(filename, shared=None, size=0, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A tensor over a file's bytes. Changes go to the file if ``shared``, which grows to the needed size."""
    from .storage import UntypedStorage

    if pin_memory or (device is not None and _C.device(device).type != "cpu"):
        raise RuntimeError("from_file(): a mapped file is in pageable CPU memory; copy the tensor with .pin_memory() or .to(device)")
    dtype = dtype or _C.get_default_dtype()
    storage = UntypedStorage.from_file(filename, bool(shared), size * dtype.itemsize)
    made = _torch.empty(0, dtype=dtype).set_(storage, 0, (size,), (1,))
    return made.requires_grad_(requires_grad)


def _new_empty_strided(self, size, stride, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """An uninitialised tensor at given strides with this one's dtype and device."""
    return empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad, pin_memory=pin_memory)


def _dim_order(self, ambiguity_check=False):
    """Dimensions from the slowest to the fastest in memory."""
    strides = [self.stride(d) for d in range(self.dim())]
    if ambiguity_check and len(set(strides)) < len(strides):
        raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")
    return tuple(sorted(range(self.dim()), key=lambda d: (-strides[d], d)))


Tensor.new_empty_strided = _new_empty_strided
Tensor.dim_order = _dim_order
Tensor.as_strided_ = as_strided_
Tensor.as_strided_scatter = as_strided_scatter
