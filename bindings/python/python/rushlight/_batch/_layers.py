"""Batching rules of layers and losses: the batch joins the dimension of samples, or that of channels where weights are batched."""

from .. import _C
from . import Batched, Tensor, _torch, made_shape


def _rank(tensor):
    return tensor._rank if type(tensor) is Batched else len(made_shape(tensor))


def _folded(spatial):
    """A function of samples, channels and ``spatial`` further dimensions, with one tensor; samples are optional."""

    def rule(level, func, x, *args, **kwargs):
        if level.mentions(args) or level.mentions(kwargs) or not level.has(x):
            return level.loop(func, (x, *args), kwargs)
        count = x._rank - 1 if spatial is None else spatial + 1
        if x._rank == count and spatial is not None:
            return level.wrap(func(x._value, *args, **kwargs))
        value = x._value
        made = func(value.flatten(0, 1), *args, **kwargs)
        return level.wrap(level.map(lambda t: t.unflatten(0, (level.size, made_shape(value)[1])), made))

    return rule


def _convolution(spatial, transposed):
    def rule(level, func, input, weight, bias=None, *args, **kwargs):
        names = ("stride", "padding", "output_padding", "groups", "dilation") if transposed else ("stride", "padding", "dilation", "groups")
        options = {**dict(zip(names, args)), **kwargs}
        single = _rank(input) == spatial + 1
        if _rank(weight) != spatial + 2 or not single and _rank(input) != spatial + 2:
            raise RuntimeError(f"{func.__name__}: expected an input of {spatial + 1} or {spatial + 2} dimensions and a weight of {spatial + 2}, got {_rank(input)} and {_rank(weight)}")
        for other, kind in ((weight, "weight"), (bias, "bias")):
            if other is not None and other.dtype != input.dtype:
                raise RuntimeError(f"Input type ({input.dtype}) and {kind} type ({other.dtype}) should be the same")
        if not level.has(weight):
            value = level.value(input)
            plain = None if level.has(bias) else bias
            made = func(value if single else value.flatten(0, 1), weight, plain, **options)
            made = made if single else made.unflatten(0, (level.size, made_shape(value)[1]))
            result = level.wrap(made)
        else:
            # Each element's weights see only its own channels.
            value, kernels = level.value(input), weight._value
            value = value.unsqueeze(1) if single else value
            groups = options.pop("groups", 1)
            samples = value.transpose(0, 1).flatten(1, 2)
            made = func(samples, kernels.flatten(0, 1), None, groups=groups * level.size, **options)
            made = made.unflatten(1, (level.size, -1)).transpose(0, 1)
            result = level.wrap(made.squeeze(1) if single else made)
            plain = None
        if bias is None or plain is not None:
            return result
        with level:
            return result + bias.reshape(-1, *[1] * spatial)

    return rule


def _affine(level, made, weight, bias, shape):
    """``made * weight + bias`` with parameters of another shape."""
    with level:
        made = made if weight is None else made * weight.reshape(shape)
        return made if bias is None else made + bias.reshape(shape)


def _layer_norm(level, func, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    if not level.has(weight) and not level.has(bias):
        return level.wrap(func(input._value, normalized_shape, weight, bias, eps))
    made = func(input._value if level.has(input) else input, normalized_shape, None, None, eps)
    return _affine(level, level.wrap(made) if level.has(input) else made, weight, bias, tuple(normalized_shape))


def _rms_norm(level, func, input, normalized_shape, weight=None, eps=None):
    if not level.has(weight):
        return level.wrap(func(input._value, normalized_shape, weight, eps))
    made = func(input._value if level.has(input) else input, normalized_shape, None, eps)
    return _affine(level, level.wrap(made) if level.has(input) else made, weight, None, tuple(normalized_shape))


def _group_norm(level, func, input, num_groups, weight=None, bias=None, eps=1e-5, *rest):
    value = level.value(input)
    made = level.wrap(func(value.flatten(0, 1), num_groups, None, None, eps).unflatten(0, (level.size, -1)))
    return _affine(level, made, weight, bias, (-1, *[1] * (_rank(input) - 2)))


def _batch_norm(level, func, input, running_mean=None, running_var=None, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, *rest, **kwargs):
    use_input = kwargs.get("use_input_stats", training)
    training, weight, bias = use_input, kwargs.get("weight", weight), kwargs.get("bias", bias)
    shape = (-1, *[1] * (_rank(input) - 2))
    if not training:
        with level:
            scale = (running_var.reshape(shape) + kwargs.get("eps", eps)).rsqrt()
            return _affine(level, (input - running_mean.reshape(shape)) * scale, weight, bias, shape)
    if running_mean is not None and not level.has(running_mean):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in place, were not batched.\n"
            "If you are using a module and do not need eval mode, please set `track_running_stats` to be False; or use torch.func.replace_all_batch_norm_modules_."
        )
    value = level.value(input).transpose(0, 1)
    stats = [None if s is None else s._value.flatten() for s in (running_mean, running_var)]
    made = func(value.flatten(1, 2), stats[0], stats[1], None, None, True, momentum, eps)
    return _affine(level, level.wrap(made.unflatten(1, (level.size, -1)).transpose(0, 1)), weight, bias, shape)


def _instance_norm(level, func, input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    if running_mean is not None or not use_input_stats:
        return level.loop(func, (input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps), {})
    value = level.value(input)
    made = func(value.flatten(0, 1), None, None, None, None, True, momentum, eps)
    return _affine(level, level.wrap(made.unflatten(0, (level.size, -1))), weight, bias, (-1, *[1] * (_rank(input) - 2)))


def _embedding(level, func, input, weight, padding_idx=None, max_norm=None, *args, **kwargs):
    if not level.has(weight):
        return level.wrap(func(input._value, weight, padding_idx, max_norm, *args, **kwargs))
    if padding_idx is not None or max_norm is not None:
        return level.loop(func, (input, weight, padding_idx, max_norm, *args), kwargs)
    values = level.value(input)
    rows = made_shape(weight)[0]
    start = (_torch.arange(level.size) * rows).to(values.device).reshape(level.size, *[1] * _rank(input))
    return level.wrap(func(values + start, weight._value.flatten(0, 1)))


def _one_hot(level, func, tensor, num_classes=-1):
    return level.wrap(func(tensor._value, num_classes))


def _padded(level, func, input, pad, mode="constant", value=None):
    if mode == "constant":
        return level.wrap(func(input._value, pad, mode, value))
    return _folded(len(pad) // 2)(level, func, input, pad, mode, value)


def _loss(level, func, input, target, *args, **kwargs):
    """A loss of pairs of elements, reduced for each element of the batch."""
    names = {
        "mse_loss": "size_average reduce reduction", "l1_loss": "size_average reduce reduction", "smooth_l1_loss": "size_average reduce reduction beta",
        "huber_loss": "reduction delta", "binary_cross_entropy": "weight size_average reduce reduction", "soft_margin_loss": "size_average reduce reduction",
        "binary_cross_entropy_with_logits": "weight size_average reduce reduction pos_weight", "kl_div": "size_average reduce reduction log_target",
        "poisson_nll_loss": "log_input full size_average eps reduce reduction", "hinge_embedding_loss": "margin size_average reduce reduction",
    }[func.__name__].split()
    options = {**dict(zip(names, args)), **kwargs}
    if options.pop("size_average", None) is not None or options.pop("reduce", None) is not None:
        raise RuntimeError(f"vmap: {func.__name__}: size_average and reduce are not supported inside of vmap; use reduction")
    reduction = options.pop("reduction", "mean")
    if reduction not in ("none", "mean", "sum") and (func.__name__, reduction) != ("kl_div", "batchmean"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    from ._rules import pointwise

    input, target = (t if level.has(t) or made_shape(t) == () else Batched(level.expanded(t), level) for t in (input, target))
    if _rank(input) == 0 == _rank(target):
        input, target = (Batched(level.value(t), level) for t in (input, target))
    made = pointwise(level, func, input, target, reduction="none", **options)
    with level:
        if reduction == "batchmean":
            return made.sum() / made_shape(input)[0]
        return made if reduction == "none" else made.sum() if reduction == "sum" else made.mean()


def _class_loss(level, func, input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    if size_average is not None or reduce is not None:
        raise RuntimeError(f"vmap: {func.__name__}: size_average and reduce are not supported inside of vmap; use reduction")
    if level.has(weight):
        return level.loop(func, (input, target, weight, None, ignore_index, None, reduction), {"label_smoothing": label_smoothing} if label_smoothing else {})
    options = {"label_smoothing": label_smoothing} if label_smoothing else {}
    values, targets = level.value(input), level.value(target)
    single = _rank(input) == 1
    classes = made_shape(input)[0 if single else 1]
    if not single:
        values, targets = values.flatten(0, 1), targets.flatten(0, 1)
    made = func(values, targets, weight, ignore_index=ignore_index, reduction="none", **options)
    made = made if single else made.unflatten(0, (level.size, -1))
    if reduction == "none":
        return level.wrap(made)
    total = made.reshape(level.size, -1).sum(1)
    if reduction == "sum":
        return level.wrap(total)
    if target.is_floating_point():
        count = 1
        for n in made_shape(made)[1:]:
            count *= n
        return level.wrap(total / count)
    flat = targets.reshape(level.size, -1)
    kept = flat != ignore_index
    if weight is None:
        return level.wrap(total / kept.sum(1))
    found = weight[flat.masked_fill(~kept, 0).clamp(0, classes - 1)] * kept
    return level.wrap(total / found.sum(1))


def _attention(level, func, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        return level.loop(func, (query, key, value, attn_mask, dropout_p, is_causal), {"scale": scale, "enable_gqa": enable_gqa})
    most = _rank(query)
    parts = [level.value(t) for t in (query, key, value)]
    if most > 2:
        parts = [t.flatten(0, 1) for t in parts]
    if attn_mask is not None:
        shape = (*made_shape(query)[:-1], made_shape(key)[-2])
        with level:
            attn_mask = attn_mask.expand(shape)
        attn_mask = level.value(attn_mask)
        attn_mask = attn_mask.flatten(0, 1) if most > 2 else attn_mask
    made = func(*parts, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    return level.wrap(made.unflatten(0, (level.size, -1)) if most > 2 else made)


RULES = {
    **{f"conv{n}d": _convolution(n, False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _convolution(n, True) for n in (1, 2, 3)},
    **{f"{kind}{n}d": _folded(n) for n in (1, 2, 3) for kind in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "lp_pool")},
    **{f"{kind}{n}d_with_indices": _folded(n) for n in (1, 2, 3) for kind in ("max_pool", "adaptive_max_pool")},
    "interpolate": _folded(None), "upsample": _folded(None), "F.unfold": _folded(2), "F.fold": _folded(1), "channel_shuffle": _folded(None),
    "local_response_norm": _folded(None), "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm, "batch_norm": _batch_norm,
    "instance_norm": _instance_norm, "embedding": _embedding, "one_hot": _one_hot, "pad": _padded, "nll_loss": _class_loss, "cross_entropy": _class_loss,
    "scaled_dot_product_attention": _attention,
    **{
        name: _loss
        for name in (
            "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss",
            "poisson_nll_loss", "hinge_embedding_loss",
        )
    },
}
