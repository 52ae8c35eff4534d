"""Derivatives with respect to sparse tensors: those by their values."""

from ..autograd.function import Function
from ._tensor import Sparse


class _Total(Function):
    """The sum of all elements of a leaf. Its gradient is the same everywhere, also where there is no entry."""

    @staticmethod
    def forward(ctx, values, owner):
        ctx.owner, ctx.shape, ctx.dtype = owner, values.shape, values.dtype
        return values.sum()

    @staticmethod
    def backward(ctx, gradient):
        before = ctx.owner.__dict__.get("_everywhere")
        ctx.owner._everywhere = gradient.detach() if before is None else before + gradient.detach()
        return gradient.to(ctx.dtype).expand(ctx.shape), None


def total(x):
    """The sum of all elements. The gradient of a sparse leaf is dense, as PyTorch's."""
    return _Total.apply(x._data, x)


def _values(tensor):
    return tensor._data if isinstance(tensor, Sparse) else tensor


def grad(outputs, inputs, grad_outputs, materialize_grads, **options):
    """``autograd.grad`` with sparse outputs or inputs: a sparse input's gradient has its indices."""
    from ..autograd import grad as dense_grad

    if materialize_grads:
        raise NotImplementedError("autograd.grad: materialize_grads is for dense tensors; pass allow_unused=True and test for None")
    given = [g if g is None or not isinstance(o, Sparse) else o._gradient(g) for o, g in zip(outputs, grad_outputs or [None] * len(outputs))]
    found = dense_grad([_values(o) for o in outputs], [_values(i) for i in inputs], given, **options)
    return tuple(i._as(g) if isinstance(i, Sparse) and g is not None else g for i, g in zip(inputs, found))


def by_values(func, inputs):
    """A function of the values of its sparse inputs, with dense results, and those inputs."""

    def of_values(*given):
        made = func(*(x._as(v) if isinstance(x, Sparse) else v for x, v in zip(inputs, given)))
        dense = [m.to_dense() if isinstance(m, Sparse) else m for m in (made if isinstance(made, (list, tuple)) else [made])]
        return tuple(dense) if isinstance(made, (list, tuple)) else dense[0]

    return of_values, tuple(x._data.detach().requires_grad_(x.requires_grad) if isinstance(x, Sparse) else x for x in inputs)
