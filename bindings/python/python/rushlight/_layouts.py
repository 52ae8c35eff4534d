"""Methods of dense tensors that concern sparse layouts: conversions, and accessors that refuse dense tensors."""

from . import _C
from ._tensor import _method

Tensor = _C.Tensor


@_method
def to_dense(self, dtype=None, *, masked_grad=None):
    """This tensor, which is dense."""
    own = type(self).to_dense
    if own is not Tensor.to_dense:
        # ``Tensor.to_dense(x)`` of a sparse tensor.
        return own(self, dtype, masked_grad=masked_grad)
    return self if dtype is None else self.to(dtype)


def _sparse_method(name):
    def call(self, *args, **kwargs):
        from .sparse import DENSE

        own = getattr(type(self), name)
        if own is not call:
            # ``Tensor.to_sparse(x)`` of a sparse tensor.
            return own(self, *args, **kwargs)
        return DENSE[name](self, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "A sparse tensor of this one's elements."
    setattr(Tensor, name, call)


for _name in "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc sparse_mask resize_as_sparse_".split():
    _sparse_method(_name)


def _without_layout(name, layout):
    def call(self, *args):
        own = getattr(type(self), name, None)
        if own is not None and own is not call:
            # ``Tensor.values(x)`` of a sparse tensor.
            return own(self, *args)
        raise RuntimeError(f"{name} expected sparse {layout}tensor layout but got Strided")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Of sparse tensors; a dense one raises an error."
    setattr(Tensor, name, call)


for _name in "indices coalesce is_coalesced _nnz _indices _values".split():
    _without_layout(_name, "coordinate ")
_without_layout("values", "")
for _name in "crow_indices col_indices".split():
    _without_layout(_name, "row compressed ")
for _name in "ccol_indices row_indices".split():
    _without_layout(_name, "column compressed ")

Tensor.is_sparse_csr = property(lambda self: False, doc="Whether this is a CSR matrix.")


@_method
def sparse_dim(self):
    """The number of sparse dimensions: a dense tensor has none."""
    return 0


@_method
def dense_dim(self):
    """The number of dense dimensions."""
    return self.dim()


@_method
def smm(self, mat):
    """The product with a matrix, one of them sparse."""
    return self @ mat
