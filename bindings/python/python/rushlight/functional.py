"""``torch.functional``: functions of ``torch`` under the module in which PyTorch defines them."""

__all__ = [
    "align_tensors", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul",
    "einsum", "istft", "lu", "meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique", "unique_consecutive", "unravel_index",
]


def __getattr__(name):
    if name in __all__:
        import importlib

        return getattr(importlib.import_module(__package__), name)
    from ._functions import _missing

    return _missing(__name__, name)


def __dir__():
    return sorted({*globals(), *__all__})
