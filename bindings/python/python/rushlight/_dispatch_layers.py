"""Layers as ops of ``aten``: what PyTorch's dispatcher splits ``conv2d``, ``batch_norm``, ``cross_entropy`` and others into before a mode or a class sees them.

``COMPOSED`` has the parts of each function, for ``_dispatch.as_aten``. ``_aten`` has the ops among them that are no functions of ``torch`` by themselves.
"""

import math

from . import _C

Tensor = _C.Tensor


def _numbers(value, count):
    """A setting for each dimension."""
    return [int(value)] * count if isinstance(value, int) else [int(v) for v in value] * (count if len(value) == 1 else 1)


def _filled(given, defaults):
    """Arguments without those at the end that have their default, as the dispatcher passes them."""
    given = list(given)
    while given and defaults and given[-1] == defaults[-1]:
        given.pop()
        defaults = defaults[:-1]
    return given


def _conv(dims, transposed):
    def made(call, input, weight, bias=None, stride=1, padding=0, *rest, **kwargs):
        names = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")
        more = {"output_padding": 0, "groups": 1, "dilation": 1, **dict(zip(names, rest)), **kwargs}
        dilation = _numbers(more["dilation"], dims)
        if padding == "same":
            wide = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
            padding = [w // 2 for w in wide]
            if any(w % 2 for w in wide):
                input = call("constant_pad_nd", "default", (input, [side for w in reversed(wide) for side in (0, w % 2)], 0.0), {})
        padding = 0 if padding == "valid" else padding
        single = input.dim() == dims + 1
        if single:
            input = call("unsqueeze", "default", (input, 0), {})
        places = _numbers(stride, dims), _numbers(padding, dims), dilation
        out = call("convolution", "default", (input, weight, bias, *places, transposed, _numbers(more["output_padding"], dims), int(more["groups"])), {})
        return call("squeeze", "dim", (out, 0), {}) if single else out

    return made


def _batch_norm(call, input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05):
    # PyTorch reserves memory for cuDNN, of no size on other devices.
    call("empty", "memory_format", ([0],), {"dtype": _C.uint8, "device": input.device})
    return call("native_batch_norm", "default", (input, weight, bias, running_mean, running_var, training, momentum, eps), {})[0]


def _layer_norm(call, input, normalized_shape, weight=None, bias=None, eps=1e-05):
    return call("native_layer_norm", "default", (input, list(normalized_shape), weight, bias, eps), {})[0]


def _group_norm(call, input, num_groups, weight=None, bias=None, eps=1e-05):
    count, channels = input.shape[:2]
    return call("native_group_norm", "default", (input, weight, bias, count, channels, math.prod(input.shape[2:]), num_groups, eps), {})[0]


def _max_pool(dims):
    def made(call, input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        kernel = _numbers(kernel_size, dims)
        stride = kernel if stride is None or stride == [] else _numbers(stride, dims)
        rest = _filled([_numbers(padding, dims), _numbers(dilation, dims), ceil_mode], [[0] * dims, [1] * dims, False])
        found = call(f"max_pool{dims}d_with_indices", "default", (input, kernel, stride, *rest), {})
        return found if return_indices else found[0]

    return made


def _adaptive_avg_pool(dims):
    def made(call, input, output_size):
        size = _numbers(output_size, dims) if None not in (output_size if isinstance(output_size, (tuple, list)) else ()) else [
            input.shape[at - dims] if n is None else n for at, n in enumerate(output_size)
        ]
        if all(n == 1 for n in size):
            return call("mean", "dim", (input, [-(d + 1) for d in range(dims)], True), {})
        return call(f"_adaptive_avg_pool{dims}d", "default", (input, size), {})

    return made


_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _whole(name, function):
    """A function that stays one op where its arguments are not those that PyTorch splits."""

    def made(call, *args, **kwargs):
        found = function(call, *args, **kwargs)
        return call(name, "default", args, kwargs) if found is None else found

    return made


def _nll(call, input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    if size_average is not None or reduce is not None or input.dim() not in (1, 2, 4) or reduction not in _REDUCTIONS:
        return None
    op = "nll_loss2d_forward" if input.dim() == 4 else "nll_loss_forward"
    return call(op, "default", (input, target, weight, _REDUCTIONS[reduction], ignore_index), {})[0]


def _cross_entropy(call, input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    if target.is_floating_point() or label_smoothing or size_average is not None or reduce is not None or input.dim() not in (1, 2, 4):
        return None
    logs = call("_log_softmax", "default", (input, 1 if input.dim() > 1 else 0, False), {})
    return _nll(call, logs, target, weight, None, ignore_index, None, reduction)


def _mse_loss(call, input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    if size_average is not None or reduce is not None or weight is not None:
        return None
    return call("mse_loss", "default", (input, target, *([] if reduction == "mean" else [_REDUCTIONS[reduction]])), {})


def _embedding(call, input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None:
        return None
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return call("embedding", "default", (weight, input, *_filled([padding, scale_grad_by_freq, sparse], [-1, False, False])), {})


def _dropout(call, input, p=0.5, training=True, inplace=False):
    if not training or p == 0:
        return input
    if p == 1:
        return call("mul_" if inplace else "mul", "Tensor", (input, call("zeros_like", "default", (input,), {})), {})
    if not inplace and input.requires_grad and _C.is_grad_enabled():
        return call("native_dropout", "default", (input, p, True), {})[0]
    noise = call("bernoulli_", "float", (call("empty_like", "default", (input,), {}), 1 - p), {})
    call("div_", "Scalar", (noise, 1 - p), {})
    return call("mul_" if inplace else "mul", "Tensor", (input, noise), {})


def _attention(call, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    if query.device.type != "cpu" or query.dim() != 4 or dropout_p or enable_gqa or attn_mask is not None and attn_mask.requires_grad:
        return None
    further = {key: value for key, value in {"attn_mask": attn_mask, "scale": scale}.items() if value is not None}
    return call("_scaled_dot_product_flash_attention_for_cpu", "default", (query, key, value, *_filled([0.0, is_causal], [0.0, False])), further)[0]


def _deviation(name):
    def made(call, input, dim=None, unbiased=None, keepdim=False, *, correction=None, out=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        correction = correction if correction is not None else 1 if unbiased in (None, True) else 0
        dims = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return call(name, "correction", (input, dims), {"correction": correction, **({"keepdim": True} if keepdim else {})})

    return made


def _norm(call, input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    if out is not None or not (p in ("fro", None) or isinstance(p, (int, float))) or p in ("fro", None) and dim is not None and not isinstance(dim, int) and len(dim) > 2:
        return None
    dims = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
    rest = _filled([2 if p in ("fro", None) else p, dims, keepdim], [2, None, False])
    return call("linalg_vector_norm", "default", (input, *rest), {} if dtype is None else {"dtype": dtype})


def _divide_by(call, input, other):
    return call("mul", "Tensor", (call("reciprocal", "default", (input,), {}), other), {})


def _item(kind):
    return lambda call, input: kind(call("_local_scalar_dense", "default", (input,), {}))


def _outer(call, input, vec2):
    return call("mul", "Tensor", (call("view", "default", (input, [input.shape[0], 1]), {}), vec2), {})


def _interpolate(call, input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    dims = input.dim() - 2
    kinds = {"nearest": "upsample_nearest", "nearest-exact": "_upsample_nearest_exact", "linear": "upsample_linear", "bilinear": "upsample_bilinear",
             "trilinear": "upsample_trilinear", "bicubic": "upsample_bicubic", "lanczos": "upsample_lanczos"}
    if mode not in kinds or recompute_scale_factor or mode == "lanczos" and not antialias:
        return None
    if size is not None:
        size, scales = _numbers(size, dims), []
    else:
        factors = [float(scale_factor)] * dims if isinstance(scale_factor, (int, float)) else [float(f) for f in scale_factor]
        size, scales = [int(math.floor(n * f)) for n, f in zip(input.shape[2:], factors)], factors
    name = f"_{kinds[mode]}{dims}d_aa" if antialias else f"{kinds[mode]}{dims}d"
    return call(name, "default", (input, size, *([] if "nearest" in mode else [bool(align_corners)]), *scales), {})


_PADS = {"reflect": "reflection_pad", "replicate": "replication_pad"}


def _pad(call, input, pad, mode="constant", value=None):
    if mode == "constant":
        return call("constant_pad_nd", "default", (input, list(pad), 0.0 if value is None else value), {})
    if mode not in _PADS:
        return None
    return call(f"{_PADS[mode]}{len(pad) // 2}d", "default", (input, list(pad)), {})


def _tensor(call, *args, **kwargs):
    return call("lift_fresh", "default", (_C.tensor(*args, **kwargs),), {})


#: The parts of functions, as ``_dispatch._COMPOSED`` has them.
COMPOSED = {
    **{f"conv{d}d": _conv(d, False) for d in (1, 2, 3)}, **{f"conv_transpose{d}d": _conv(d, True) for d in (1, 2, 3)},
    **{f"max_pool{d}d": _max_pool(d) for d in (2, 3)}, **{f"adaptive_avg_pool{d}d": _adaptive_avg_pool(d) for d in (2, 3)},
    "batch_norm": _batch_norm, "layer_norm": _layer_norm, "group_norm": _group_norm, "dropout": _dropout, "rtruediv": _divide_by, "rdiv": _divide_by,
    "outer": _outer, "var": _deviation("var"), "std": _deviation("std"),
    "tensor": _tensor,
    **{name: _whole(name, function) for name, function in {
        "cross_entropy": _cross_entropy, "nll_loss": _nll, "mse_loss": _mse_loss, "embedding": _embedding, "scaled_dot_product_attention": _attention, "norm": _norm,
        "interpolate": _interpolate, "pad": _pad,
    }.items()},
}
#: Reads of a tensor's value, by the name of the method.
READS = {
    "item": _item(lambda value: value), "__bool__": _item(bool), "__float__": _item(float), "__int__": _item(int), "__index__": _item(int),
    "is_nonzero": _item(bool), "__complex__": _item(complex),
}
