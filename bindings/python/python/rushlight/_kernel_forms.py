"""Functions of ``torch`` that take their arguments as kernels do: weights of embeddings and of normalisation first, reductions as numbers (0 none, 1 mean, 2 sum),
results with their indices. The functions of ``torch.nn.functional`` have the same names."""

from . import _aten

__all__ = [
    "adaptive_max_pool1d", "affine_grid_generator", "batch_norm", "binary_cross_entropy_with_logits", "convolution", "cosine_embedding_loss", "ctc_loss", "dropout_",
    "embedding", "embedding_bag", "embedding_renorm_", "frobenius_norm", "group_norm", "hinge_embedding_loss", "instance_norm", "kl_div", "layer_norm",
    "margin_ranking_loss", "max_pool1d_with_indices", "native_dropout", "norm_except_dim", "nuclear_norm", "poisson_nll_loss", "triplet_margin_loss",
]

embedding, convolution, native_dropout = _aten.embedding, _aten.convolution, _aten.native_dropout
affine_grid_generator, max_pool1d_with_indices = _aten.ATEN["affine_grid_generator"], _aten.ATEN["max_pool1d_with_indices"]
frobenius_norm, norm_except_dim = _aten.ATEN["frobenius_norm"], _aten.ATEN["norm_except_dim"]
_F = _aten._F


def _reduction(number):
    return number if isinstance(number, str) else ("none", "mean", "sum")[number]


# Embeddings.


def embedding_bag(
    weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None,
):
    """The bags, the bag of each index, the size of each bag, and a buffer of PyTorch's kernel. ``mode`` is 0 for sums, 1 for means, 2 for maxima."""
    made = _F().embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq, mode=("sum", "mean", "max")[mode], sparse=sparse, per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset, padding_idx=padding_idx,
    )
    return made, *_aten.bags_of(indices, offsets, include_last_offset)


def embedding_renorm_(input, indices, max_norm, norm_type):
    """Scales the rows with these indices, in place, whose norm is greater than ``max_norm``."""
    _F().embedding(indices.reshape(-1), input.detach(), None, max_norm, norm_type)
    return input


# Normalisation.


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    """``nn.functional.layer_norm``."""
    return _F().layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """``nn.functional.group_norm``."""
    return _F().group_norm(input, num_groups, weight, bias, eps)


def batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled):
    """``nn.functional.batch_norm``."""
    return _F().batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled):
    """``nn.functional.instance_norm``."""
    return _F().instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def nuclear_norm(input, dim=None, keepdim=False):
    """The sum of the singular values, of matrices in two dimensions."""
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return _aten.ATEN["nuclear_norm"](input, dim or (-2, -1), keepdim)


# Losses. PyTorch's own calls name their reduction; without one it is none.


def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction=0):
    """``nn.functional.binary_cross_entropy_with_logits``."""
    return _F().binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=_reduction(reduction))


def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction=0):
    """``nn.functional.cosine_embedding_loss``."""
    return _F().cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=0, zero_infinity=False):
    """``nn.functional.ctc_loss``."""
    return _F().ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=blank, reduction=_reduction(reduction), zero_infinity=zero_infinity)


def hinge_embedding_loss(input, target, margin=1.0, reduction=0):
    """``nn.functional.hinge_embedding_loss``."""
    return _F().hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


def kl_div(input, target, reduction=0, *, log_target=False):
    """``nn.functional.kl_div``."""
    return _F().kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction=0):
    """``nn.functional.margin_ranking_loss``."""
    return _F().margin_ranking_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def poisson_nll_loss(input, target, log_input, full, eps, reduction):
    """``nn.functional.poisson_nll_loss``."""
    return _F().poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_reduction(reduction))


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction=0):
    """``nn.functional.triplet_margin_loss``."""
    return _F().triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_reduction(reduction))


# Others.


def adaptive_max_pool1d(input, output_size):
    """The greatest elements and their indices."""
    return _F().adaptive_max_pool1d(input, output_size, return_indices=True)


def dropout_(input, p, train):
    """``nn.functional.dropout`` in place."""
    return _F().dropout(input, p, train, True)
