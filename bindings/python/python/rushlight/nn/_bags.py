"""Bags of embeddings, as ``nn.functional`` and ``nn.EmbeddingBag`` use them."""

from __future__ import annotations

from .. import _C

__all__ = ["embedding_bag"]

Tensor = _C.Tensor
_nn = _C._nn
_torch = _C._torch


def embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=None,
):
    """Sums, means or maxima of rows, by bags of indices."""
    if not weight.is_floating_point() and input.is_floating_point():
        # The old order of the first two arguments.
        input, weight = weight, input
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum or mean or max")
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotImplementedError(
                f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='{mode}')."
            )
        if per_sample_weights.shape != input.shape:
            raise ValueError(
                f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the same shape as the "
                f"input ({input.shape})"
            )
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences.")
        bags, length = input.shape
        owner = _torch.arange(bags, device=input.device).repeat_interleave(length)
    elif input.dim() == 1:
        if offsets is None or offsets.dim() != 1:
            given = "None" if offsets is None else f"a Tensor of dimension {offsets.dim()}"
            raise ValueError(f"offsets has to be a 1D Tensor but got {given}")
        bags, owner = _owners(offsets, input.shape[0], include_last_offset, input.device)
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    indices = input.reshape(-1)
    scale = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    padding_idx = None if padding_idx is None else padding_idx % weight.shape[0]
    if max_norm is not None:
        _nn.embedding(indices, weight.detach(), None, max_norm, float(norm_type))
    if padding_idx is not None:
        kept = indices != padding_idx
        indices, owner = indices[kept], owner[kept]
        scale = None if scale is None else scale[kept]
    try:
        rows = _nn.embedding(indices, weight, None, None, 2.0, scale_grad_by_freq, sparse)
    except IndexError as error:
        raise RuntimeError(f"embedding_bag: Expected idx >= 0 && idx < num_embeddings: {error}") from None
    if scale is not None:
        rows = rows * scale.unsqueeze(-1)
    empty = _torch.zeros((bags, weight.shape[1]), dtype=rows.dtype, device=rows.device)
    if mode == "max":
        return empty.scatter_reduce(0, owner.unsqueeze(-1).expand(-1, weight.shape[1]), rows, "amax", include_self=False)
    sums = empty.index_add(0, owner, rows)
    if mode == "sum":
        return sums
    counts = _torch.bincount(owner, minlength=bags).clamp(min=1).to(rows.dtype)
    return sums / counts.unsqueeze(-1)


def _owners(offsets, total: int, include_last_offset: bool, device):
    """Number of bags, and the bag of every index."""
    bounds = offsets.tolist()
    if include_last_offset:
        if not bounds:
            raise ValueError("embedding_bag: include_last_offset=True needs at least one offset")
        bounds = bounds[:-1] + [min(bounds[-1], total)]
    else:
        bounds = bounds + [total]
    if bounds[0] != 0:
        raise RuntimeError(f"embedding_bag: the first offset has to be 0, where the first bag begins, got {bounds[0]}")
    sizes = [end - start for start, end in zip(bounds, bounds[1:])]
    if any(size < 0 for size in sizes) or bounds[-1] > total:
        raise ValueError(f"embedding_bag: offsets must not decrease and lie within the {total} indices, got {offsets.tolist()}")
    bags = len(sizes)
    return bags, _torch.arange(bags, device=device).repeat_interleave(_C.tensor(sizes, dtype=_C.int64, device=device))
