"""Functions of ``torch`` in the form that its kernels have: normalisation with its statistics, sampling with numbers for modes, factors in one matrix."""

from . import _C

__all__ = ["grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "lu", "native_batch_norm", "native_dropout_backward", "native_group_norm", "native_layer_norm"]

_torch = _C._torch


def _moments(rows, eps):
    """The mean of each row and one by its standard deviation, with dimensions of size one, in at least single precision."""
    wide = rows if rows.dtype in (_C.float32, _C.float64) else rows.float()
    mean = wide.mean(-1, keepdim=True)
    return mean, (wide.var(-1, correction=0, keepdim=True) + eps).rsqrt()


def _constant_moments(rows, eps):
    """The same without derivatives in either direction, as PyTorch has them of batches and layers."""
    from .autograd import no_grad
    from .autograd.forward_ad import _set_fwd_grad_enabled

    with no_grad(), _set_fwd_grad_enabled(False):
        return _moments(rows, eps)


def _of_weight(input, weight):
    """The dtype of statistics."""
    return input.dtype if weight is None else weight.dtype


def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """``layer_norm``, and the mean and the inverse deviation of each row."""
    from .nn import functional as F

    lead = input.dim() - len(normalized_shape)
    mean, inverse = _constant_moments(input.flatten(lead), eps)
    shape, dtype = tuple(input.shape[:lead]) + (1,) * len(normalized_shape), _of_weight(input, weight)
    return F.layer_norm(input, normalized_shape, weight, bias, eps), mean.reshape(shape).to(dtype), inverse.reshape(shape).to(dtype)


def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """``group_norm``, and the mean and the inverse deviation of each group."""
    from .nn import functional as F

    mean, inverse = _moments(input.reshape(N, group, C // group * HxW), eps)
    dtype = _of_weight(input, weight)
    return F.group_norm(input, group, weight, bias, eps), mean.reshape(N, group).to(dtype), inverse.reshape(N, group).to(dtype)


def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """``batch_norm``, and the mean and the inverse deviation of each channel of a batch; without training those are empty."""
    from .nn import functional as F

    made = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        empty = input.new_empty(0)
        return made, empty, empty.clone()
    mean, inverse = _constant_moments(input.transpose(0, 1).flatten(1), eps)
    dtype = _of_weight(input, weight)
    return made, mean.reshape(-1).to(dtype), inverse.reshape(-1).to(dtype)


def native_dropout_backward(grad_output, mask, scale):
    """The gradient of elements that a mask kept and a factor scaled."""
    return grad_output * mask.to(grad_output.dtype) * scale


def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """``grid_sample`` with numbers for modes."""
    from .nn import functional as F

    mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    return F.grid_sample(input, grid, mode, ("zeros", "border", "reflection")[padding_mode], align_corners)


def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    """``grid_sampler`` of images."""
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners):
    """``grid_sampler`` of volumes."""
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def lu(A, pivot=True, get_infos=False, out=None):
    """The factors L and U in one matrix, the rows that were exchanged, and whether each matrix could be factored if ``get_infos``."""
    from . import linalg

    found = linalg.lu_factor_ex(A, pivot=pivot)
    found = tuple(found) if get_infos else tuple(found)[:2]
    if out is None:
        return found
    return tuple(target.copy_(made) for target, made in zip(out, found))


def _clamped(input, indices):
    """Indices within the sizes; a dimension without one is taken whole."""
    return tuple(slice(None) if i is None else i.clamp(-n, n - 1) for i, n in zip(indices, input.shape))


def _unsafe_masked_index(input, mask, indices, fill):
    """``input[indices]``, with ``fill`` where the mask is False. Indices are clamped to the sizes."""
    if not input.numel():
        return input.new_full(_torch.broadcast_tensors(mask, *(i for i in indices if i is not None))[0].shape, fill)
    return input[_clamped(input, indices)].masked_fill(mask.logical_not(), fill)


def _unsafe_masked_index_put_accumulate(input, mask, indices, values):
    """A copy of ``input`` with values added at indices where the mask is True. Indices are clamped to the sizes."""
    if not input.numel():
        return input.clone()
    return input.index_put(list(_clamped(input, indices)), values.masked_fill(mask.logical_not(), 0), True)
