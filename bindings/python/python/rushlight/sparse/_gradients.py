"""Sparse gradients of embeddings: kept beside a parameter, read by optimizers that know them."""

from .. import _C
from ..autograd.function import Function
from ..nn.parameter import Parameter
from ._tensor import Sparse, SparseCOO, Tensor

_core_grad = Tensor.grad


class SparseGradParameter(Parameter):
    """A parameter whose gradient may be sparse. A parameter becomes one when an embedding with ``sparse=True`` first uses it."""

    __torch_function__ = _C._disabled_torch_function_impl

    @property
    def grad(self):
        dense, sparse = _core_grad.__get__(self), self.__dict__.get("_sparse_grad")
        if sparse is None:
            return dense
        return sparse if dense is None else dense + sparse.to_dense()

    @grad.setter
    def grad(self, value):
        self.__dict__.pop("_sparse_grad", None)
        if isinstance(value, Sparse):
            self._sparse_grad = value
            value = None
        _core_grad.__set__(self, value)

    @grad.deleter
    def grad(self):
        self.grad = None

    def __reduce_ex__(self, protocol):
        made = Parameter(self.detach(), self.requires_grad)
        made.__dict__.update({key: value for key, value in self.__dict__.items() if key != "_sparse_grad"})
        return made.__reduce_ex__(protocol)


_C._plain_types([SparseGradParameter])


class _Lookup(Function):
    @staticmethod
    def forward(ctx, weight, input, padding_idx, owner):
        ctx.save_for_backward(input)
        ctx.padding_idx, ctx.owner = padding_idx, owner
        return _C._nn.embedding(input, weight)

    @staticmethod
    def backward(ctx, grad):
        (input,) = ctx.saved_tensors
        rows, values = input.detach().reshape(-1).to(_C.int64), grad.detach().reshape(-1, grad.shape[-1])
        if ctx.padding_idx is not None:
            kept = (rows != ctx.padding_idx).nonzero().reshape(-1)
            rows, values = rows[kept], values[kept]
        found = SparseCOO.make(rows.reshape(1, -1), values, ctx.owner.shape, False)
        before = ctx.owner.__dict__.get("_sparse_grad")
        ctx.owner._sparse_grad = found if before is None else before + found
        return None, None, None, None


def embedding(input, weight, padding_idx=None, scale_grad_by_freq=False):
    """Rows of a weight, whose gradient is sparse if it is a parameter."""
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    if not (_C.is_grad_enabled() and weight.requires_grad and weight.is_leaf and isinstance(weight, Parameter)):
        return _C._nn.embedding(input, weight, padding_idx)
    if type(weight) is Parameter:
        weight.__class__ = SparseGradParameter
    elif type(weight) is not SparseGradParameter:
        raise NotImplementedError(f"embedding: sparse=True takes an nn.Parameter as weight, not a {type(weight).__name__}")
    return _Lookup.apply(weight, input, None if padding_idx is None else padding_idx % weight.shape[0], weight)


def forget(groups):
    """Drops the sparse gradients of the parameters of an optimizer."""
    for _, p, _ in sparse_parameters(groups):
        del p._sparse_grad


def sparse_parameters(groups):
    """``(group, parameter, gradient)`` of the parameters of an optimizer that have a sparse gradient."""
    return [
        (group, p, p.__dict__["_sparse_grad"]) for group in groups for p in group["params"] if type(p) is SparseGradParameter and "_sparse_grad" in p.__dict__
    ]
