"""``torch._functorch.apis``: ``vmap`` in a number of pieces."""

from ..func import grad, grad_and_value, vmap  # noqa: F401
from ..utils import _pytree as pytree


def chunk_vmap(func, in_dims=0, out_dims=0, randomness="error", chunks=2):
    """``vmap`` in a number of pieces of the batch, for less memory."""

    def run(*args, **kwargs):
        leaves, form = pytree.tree_flatten(args)
        dims = pytree.tree_leaves(in_dims) if not isinstance(in_dims, int) else [in_dims] * len(leaves)
        size = next((leaf.shape[d] for leaf, d in zip(leaves, dims) if d is not None and hasattr(leaf, "shape")), None)
        piece = None if chunks == 1 or size is None else -(-size // chunks)
        return vmap(func, in_dims, out_dims, randomness, chunk_size=piece)(*args, **kwargs)

    return run
