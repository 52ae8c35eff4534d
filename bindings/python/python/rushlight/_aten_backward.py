"""Derivatives as ops of ``torch.ops.aten``: they run the forward function and autograd, or a formula."""

from . import _aten, _C

_torch, _nn = _C._torch, _C._nn


def _derived(forward, *places):
    """A derivative: ``op(grad, …)`` as the gradient of ``forward(inputs)`` by its first argument."""

    def run(grad, *args, **kwargs):
        from .autograd import grad as differentiate
        from .autograd.grad_mode import enable_grad

        with enable_grad():
            input = args[0].detach().requires_grad_()
            made = forward(input, *args[1:], **kwargs)
            return differentiate(made, input, grad)[0]

    return run


def _zeros_except(place):
    """The gradient of a view: zeros, with the gradient where the view was."""

    def run(grad, input_sizes, *args):
        made = _torch.zeros(list(input_sizes), dtype=grad.dtype, device=grad.device)
        place(made, *args).copy_(grad)
        return made

    return run


def softmax_backward(grad, output, dim, input_dtype=None):
    made = output * (grad - (grad * output).sum(dim, keepdim=True))
    return made if input_dtype is None else made.to(input_dtype)


def log_softmax_backward(grad, output, dim, input_dtype=None):
    made = grad - output.exp() * grad.sum(dim, keepdim=True)
    return made if input_dtype is None else made.to(input_dtype)


def silu_backward(grad, input):
    gate = input.sigmoid()
    return grad * gate * (1 + input * (1 - gate))


def _masked_gradients(forward, inputs, grad, wanted):
    """Gradients by the inputs that a mask asks for; None for others."""
    from .autograd import grad as differentiate
    from .autograd.grad_mode import enable_grad

    with enable_grad():
        leaves = [None if t is None else t.detach().requires_grad_() for t in inputs]
        made = forward(*leaves)
        asked = [leaf for leaf, w in zip(leaves, wanted) if w and leaf is not None]
        found = iter(differentiate(made, asked, grad, allow_unused=True) if asked else ())
        return tuple(next(found) if w and leaf is not None else None for leaf, w in zip(leaves, wanted))


def convolution_backward(grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask):
    bias = None if bias_sizes is None or not output_mask[2] else weight.new_zeros(list(bias_sizes))
    if output_mask[2] and bias is None:
        bias = weight.new_zeros(grad.shape[1])
    run = lambda x, w, b: _aten.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)  # noqa: E731
    return _masked_gradients(run, (input, weight, bias), grad, output_mask)


def _norm_backward(grad, input, mean, rstd, weight, dims, others, output_mask):
    """Gradients of a normalisation over some dimensions, of its weight and of its bias, which are summed over the others."""
    scaled, normal = (grad if weight is None else grad * weight), (input - mean) * rstd
    by_input = rstd * (scaled - scaled.mean(dims, True) - normal * (scaled * normal).mean(dims, True)) if output_mask[0] else None
    by_weight = (grad * normal).sum(others) if others else grad * normal
    by_bias = grad.sum(others) if others else grad
    return by_input, by_weight if output_mask[1] else None, by_bias if output_mask[2] else None


def layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight, bias, output_mask):
    first = input.dim() - len(normalized_shape)
    return _norm_backward(grad, input, mean, rstd, weight, list(range(first, input.dim())), list(range(first)), output_mask)


def group_norm_backward(grad, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    grouped = (N, group, C // group, HxW)
    weight = None if weight is None else weight.reshape(1, group, C // group, 1)
    statistics = (t.reshape(N, group, 1, 1) for t in (mean, rstd))
    found = _norm_backward(grad.reshape(grouped), input.reshape(grouped), *statistics, weight, [2, 3], [0, 3], output_mask)
    return tuple(None if g is None else g.reshape(input.shape if at == 0 else (C,)) for at, g in enumerate(found))


def embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq):
    made = grad.new_zeros((num_weights, grad.shape[-1]))
    rows, values = indices.reshape(-1), grad.reshape(-1, grad.shape[-1])
    if scale_grad_by_freq:
        counts = _torch.bincount(rows, minlength=num_weights)
        values = values / counts[rows].unsqueeze(1).to(values.dtype)
    if padding_idx >= 0:
        values = values.masked_fill((rows == padding_idx).unsqueeze(1), 0)
    return made.index_add(0, rows, values)


def _pool_indices_backward(dims):
    def run(grad, input, kernel_size, stride, padding, dilation, ceil_mode, indices):
        lead = input.shape[:-dims]
        made = grad.new_zeros((*lead, input.shape[-dims:].numel()))
        return made.scatter_add(-1, indices.flatten(-dims), grad.flatten(-dims)).reshape(input.shape)

    return run


def sigmoid_backward(grad, output):
    return grad * (1 - output) * output


def tanh_backward(grad, output):
    return grad * (1 - output * output)


def threshold_backward(grad, input, threshold):
    return _torch.where(input <= threshold, _torch.zeros_like(grad), grad)


def batch_norm_backward(grad, input, weight, running_mean, running_var, mean, rstd, training, eps, output_mask):
    shape, others = [1, -1] + [1] * (input.dim() - 2), [d for d in range(input.dim()) if d != 1]
    weight = None if weight is None else weight.reshape(shape)
    if training:
        return _norm_backward(grad, input, mean.reshape(shape), rstd.reshape(shape), weight, others, others, output_mask)
    rstd = (running_var + eps).rsqrt().reshape(shape)
    normal = (input - running_mean.reshape(shape)) * rstd
    by_input = rstd * (grad if weight is None else grad * weight) if output_mask[0] else None
    return by_input, (grad * normal).sum(others) if output_mask[1] else None, grad.sum(others) if output_mask[2] else None


def attention_backward(grad, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None):
    run = lambda q, k, v: _nn.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)  # noqa: E731
    return _masked_gradients(run, (query, key, value), grad, (True, True, True))


def selection_backward(grad, dim, indices, sizes, keepdim):
    """The gradient of elements that a reduction chose."""
    if not keepdim and len(sizes):
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(list(sizes)).scatter_(dim, indices, grad)


def _upsample_backward(name):
    """The gradient of an upsampled image, whose size is given beside the settings of the forward function."""

    def run(grad, output_size, input_size, *rest):
        return _derived(lambda x: _aten.ATEN[name](x, list(output_size), *rest))(grad, grad.new_zeros(list(input_size)))

    return run


#: The ops by name.
DERIVATIVES = {
    "sigmoid_backward": sigmoid_backward, "tanh_backward": tanh_backward, "threshold_backward": threshold_backward, "_softmax_backward_data": softmax_backward,
    "_log_softmax_backward_data": log_softmax_backward, "gelu_backward": _derived(_aten._activation("gelu")), "silu_backward": silu_backward,
    "mish_backward": _derived(_aten._activation("mish")), "hardswish_backward": _derived(_aten._activation("hardswish")), "hardsigmoid_backward": _derived(_aten._activation("hardsigmoid")),
    "hardtanh_backward": _derived(_aten._activation("hardtanh")), "softplus_backward": _derived(_aten._activation("softplus")), "hardshrink_backward": _derived(_aten._activation("hardshrink")),
    "softshrink_backward": _derived(_aten._activation("softshrink")), "leaky_relu_backward": lambda grad, input, slope, is_result: _torch.where(input > 0, grad, grad * slope),
    "log_sigmoid_backward": lambda grad, input, buffer: _derived(_aten._activation("logsigmoid"))(grad, input),
    "mse_loss_backward": lambda grad, input, target, reduction: _derived(lambda x: _aten._F().mse_loss(x, target, reduction=_aten._REDUCTIONS[reduction]))(grad, input),
    "l1_loss_backward": lambda grad, input, target, reduction: _derived(lambda x: _aten._F().l1_loss(x, target, reduction=_aten._REDUCTIONS[reduction]))(grad, input),
    "nll_loss_backward": lambda grad, input, target, weight, reduction, ignore_index, total: _derived(
        lambda x: _aten._F().nll_loss(x, target, weight, reduction=_aten._REDUCTIONS[reduction], ignore_index=ignore_index))(grad, input),
    "avg_pool2d_backward": _derived(_aten._average_pool(2)), "_adaptive_avg_pool2d_backward": lambda grad, input: _derived(lambda x: _aten._F().adaptive_avg_pool2d(x, grad.shape[-2:]))(grad, input),
    "max_pool2d_with_indices_backward": _pool_indices_backward(2), "max_pool3d_with_indices_backward": _pool_indices_backward(3), "convolution_backward": convolution_backward, "native_layer_norm_backward": layer_norm_backward,
    "native_group_norm_backward": group_norm_backward,
    "embedding_dense_backward": embedding_dense_backward, "select_backward": _zeros_except(lambda t, dim, at: t.select(dim, at)),
    "slice_backward": _zeros_except(lambda t, dim, start, end, step: _aten.slice_(t, dim, start, end, step)),
    "diagonal_backward": _zeros_except(lambda t, offset, dim1, dim2: t.diagonal(offset, dim1, dim2)),
    "native_batch_norm_backward": batch_norm_backward, "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
    "value_selecting_reduction_backward": selection_backward,
    "nll_loss2d_backward": lambda grad, input, target, weight, reduction, ignore_index, total: _derived(
        lambda x: _aten._F().nll_loss(x, target, weight, reduction=_aten._REDUCTIONS[reduction], ignore_index=ignore_index))(grad, input),
    **{f"upsample_{kind}_backward": _upsample_backward(f"upsample_{kind}") for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")},
}
