"""Bags of embeddings, as ``nn.functional`` and ``nn.EmbeddingBag`` use them."""

from __future__ import annotations

from .. import _C

__all__ = ["embedding", "embedding_bag"]

Tensor = _C.Tensor
_nn = _C._nn
_torch = _C._torch


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of a weight by index. With ``sparse`` the gradient of a parameter is a sparse tensor."""
    if not sparse:
        if type(input) is Tensor and not input.is_contiguous():
            # The result lies in memory in the order of its indices, not as they do.
            input = input.contiguous()
        return _nn.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    if max_norm is not None:
        _nn.embedding(input, weight.detach(), None, max_norm, float(norm_type))
    from ..sparse._gradients import embedding

    return embedding(input, weight, padding_idx, scale_grad_by_freq)


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
        bags, owner = input.shape[0], None
    elif input.dim() == 1:
        if offsets is None or offsets.dim() != 1:
            given = "None" if offsets is None else f"a Tensor of dimension {offsets.dim()}"
            raise ValueError(f"offsets has to be a 1D Tensor but got {given}")
        if input.device.type == "cpu" or offsets.numel() == 0:
            bags, owner = _owners(offsets, input.shape[0], include_last_offset, input.device)
        else:
            bags, owner = _owners_on_device(offsets, input.shape[0], include_last_offset)
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, -{weight.shape[0]} through {weight.shape[0] - 1}, but got {padding_idx}"
        )
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype:
        raise RuntimeError(
            f"expected per_sample_weights to have the same type as weight: {per_sample_weights.dtype} does not equal {weight.dtype}"
        )
    padding_idx = None if padding_idx is None else padding_idx % weight.shape[0]
    if max_norm is not None:
        _nn.embedding(input.reshape(-1), weight.detach(), None, max_norm, float(norm_type))
    try:
        rows = embedding(input, weight, None, None, 2.0, scale_grad_by_freq, sparse)
    except IndexError as error:
        raise RuntimeError(f"embedding_bag: Expected idx >= 0 && idx < num_embeddings: {error}") from None
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    kept = None if padding_idx is None else input != padding_idx
    return _nn._bags(rows, mode, owner, bags, kept)


def _owners_on_device(offsets, total: int, include_last_offset: bool):
    """The same as ``_owners`` without a look at the offsets, as PyTorch does on a GPU."""
    bags = offsets.numel() - include_last_offset
    places = _torch.arange(total, device=offsets.device)
    return bags, _torch.searchsorted(offsets.to(_C.int64), places, right=True).sub(1).clamp(min=0)


def _owners(offsets, total: int, include_last_offset: bool, device):
    """Number of bags, and the bag of every index; indices after the last bag have its number plus one."""
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
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {total} but got offsets[-1] of {bounds[-2] if bounds[-1] == total else bounds[-1]}: offsets must "
            f"not decrease, got {offsets.tolist()}"
        )
    bags = len(sizes)
    sizes.append(total - bounds[-1])
    return bags, _torch.arange(bags + 1, device=device).repeat_interleave(_C.tensor(sizes, dtype=_C.int64, device=device))
