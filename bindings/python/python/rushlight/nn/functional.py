"""``torch.nn.functional``: the functions that layers are made of. Most are rows of the compiled op table."""

import math

from .. import _C

_nn, _torch = _C._nn, _C._torch
globals().update({name: f for name, f in vars(_nn).items() if not name.startswith("__")})

Tensor = _C.Tensor
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}


def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight,
    out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None,
    k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, is_causal=False,
):
    """Attention of several heads over sequences ``[length, batch, features]`` (or without the batch): the output and the weights."""
    batched = query.dim() == 3
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    source = key.shape[0]
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    head = width // num_heads
    if head * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if use_separate_proj_weight:
        weights = q_proj_weight, k_proj_weight, v_proj_weight
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
    elif query is key and key is value:
        q, k, v = linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), in_proj_weight.chunk(3), biases))
    mask = _additive(attn_mask, q.dtype)
    padding = _additive(key_padding_mask, q.dtype)
    if bias_k is not None:
        k = _torch.cat([k, bias_k.repeat(1, batch, 1)])
        v = _torch.cat([v, bias_v.repeat(1, batch, 1)])
        mask, padding = _widened(mask), _widened(padding)
        source += 1
    q = q.reshape(length, batch, num_heads, head).permute(1, 2, 0, 3)
    k = k.reshape(source, batch, num_heads, head).permute(1, 2, 0, 3) if static_k is None else static_k.reshape(batch, num_heads, -1, head)
    v = v.reshape(source, batch, num_heads, head).permute(1, 2, 0, 3) if static_v is None else static_v.reshape(batch, num_heads, -1, head)
    if add_zero_attn:
        zeros = k.new_zeros(batch, num_heads, 1, head)
        k, v = _torch.cat([k, zeros], 2), _torch.cat([v, zeros], 2)
        mask, padding = _widened(mask), _widened(padding)
    if mask is not None:
        mask = mask.reshape(batch, num_heads, length, -1) if mask.dim() == 3 else mask.reshape(1, 1, length, -1)
    if padding is not None:
        padding = padding.reshape(batch, 1, 1, -1)
        mask = padding.expand(batch, num_heads, length, k.shape[2]) if mask is None else mask + padding
    dropout_p = dropout_p if training else 0.0
    attention = None
    if need_weights:
        scores = (q / math.sqrt(head)) @ k.transpose(-2, -1)
        attention = softmax(scores if mask is None else scores + mask, -1)
        attention = dropout(attention, dropout_p) if dropout_p > 0 else attention
        out = attention @ v
    else:
        out = scaled_dot_product_attention(q, k, v, mask, dropout_p)
    out = linear(out.permute(2, 0, 1, 3).reshape(length, batch, width), out_proj_weight, out_proj_bias)
    if need_weights and average_attn_weights:
        attention = attention.mean(1)
    if not batched:
        out = out.squeeze(1)
        attention = None if attention is None else attention.squeeze(0)
    return out, attention


def _additive(mask, dtype):
    """A mask of truths as one to be added: minus infinity where it is true."""
    if mask is None or mask.dtype != _C.bool:
        return mask
    return _torch.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf)


def _widened(mask):
    return None if mask is None else pad(mask, (0, 1))


def _canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    return _additive(mask, target_type)


def embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False, per_sample_weights=None,
    include_last_offset=False, padding_idx=None,
):
    """Sums, means or maxima of rows of a table, bag by bag."""
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum'")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences.")
        bags, length = input.shape
        offsets = _torch.arange(0, bags * length, length) if length else _torch.zeros(bags, dtype=_C.int64)
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    elif offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    offsets = offsets.long()
    bags = offsets.numel() - 1 if include_last_offset else offsets.numel()
    rows = embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    place = _torch.searchsorted(offsets[:bags].contiguous(), _torch.arange(input.numel()), right=True) - 1
    if padding_idx is not None:
        padding_idx = padding_idx % weight.shape[0]
        kept = (input != padding_idx).nonzero().reshape(-1)
        rows, place = rows.index_select(0, kept), place.index_select(0, kept)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.index_select(0, kept)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    out = _torch.zeros(bags, weight.shape[1], dtype=weight.dtype)
    if mode == "max":
        return out.scatter_reduce(0, place.unsqueeze(1).expand(rows.shape), rows, "amax", include_self=False)
    out = out.index_add(0, place, rows)
    if mode == "mean":
        counts = _torch.bincount(place, minlength=bags).clamp(min=1)
        out = out / counts.unsqueeze(1).to(out.dtype)
    return out


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """An anchor nearer to one than to another, by any distance."""
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _torch.minimum(far, distance(positive, negative))
    loss = (margin + near - far).clamp(min=0)
    return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[reduction]()


def affine_grid(theta, size, align_corners=None):
    """Where the pixels of an output of the given size come from under affine maps ``[batch, 2, 3]``."""
    if len(size) != 4:
        raise NotImplementedError("affine_grid: only images (sizes of four) are supported")
    batch, _, height, width = size

    def line(n):
        at = _torch.linspace(-1, 1, n, dtype=theta.dtype) if n > 1 else _torch.zeros(1, dtype=theta.dtype)
        return at if align_corners else at * (n - 1) / n

    ys, xs = _torch._meshgrid([line(height), line(width)], indexing="ij")
    points = _torch.stack([xs, ys, _torch.ones_like(xs)], -1).reshape(1, -1, 3)
    return (points @ theta.transpose(1, 2)).reshape(batch, height, width, 2)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Pixels of images at places between -1 and 1."""
    if input.dim() != 4:
        raise NotImplementedError("grid_sample: only images (tensors of four dimensions) are supported")
    if mode not in ("bilinear", "nearest"):
        raise NotImplementedError(f"grid_sample: mode '{mode}' is not supported; use 'bilinear' or 'nearest'")
    batch, channels, height, width = input.shape

    def pixels(at, n):
        at = (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2
        if padding_mode == "border":
            return at.clamp(0, n - 1)
        if padding_mode == "reflection":
            low, span = (0.0, n - 1) if align_corners else (-0.5, n)
            if span == 0:
                return at * 0
            distance = (at - low).abs()
            turns, rest = (distance / span).floor(), distance % span
            return (_torch.where(turns % 2 == 0, rest, span - rest) + low).clamp(0, n - 1)
        return at

    xs, ys = pixels(grid[..., 0], width), pixels(grid[..., 1], height)
    flat = input.reshape(batch, channels, -1)

    def take(x, y):
        inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
        index = y.clamp(0, height - 1).long() * width + x.clamp(0, width - 1).long()
        index = index.reshape(batch, 1, -1).expand(batch, channels, -1)
        return flat.gather(2, index).reshape(batch, channels, *x.shape[1:]) * inside.unsqueeze(1).to(input.dtype)

    if mode == "nearest":
        return take(xs.round(), ys.round())
    left, top = xs.floor(), ys.floor()
    right_part, lower_part = (xs - left).unsqueeze(1), (ys - top).unsqueeze(1)
    upper = take(left, top) * (1 - right_part) + take(left + 1, top) * right_part
    lower = take(left, top + 1) * (1 - right_part) + take(left + 1, top + 1) * right_part
    return upper * (1 - lower_part) + lower * lower_part


def upsample_nearest(input, size=None, scale_factor=None):
    """``interpolate`` by nearest neighbours."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """``interpolate`` by straight lines, corners aligned."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """Power means of windows."""
    kernel = (kernel_size,) * 3 if isinstance(kernel_size, int) else tuple(kernel_size)
    mean = avg_pool3d(input.pow(norm_type), kernel, stride, 0, ceil_mode)
    return (mean.sign() * mean.abs().relu() * math.prod(kernel)).pow(1.0 / norm_type)


def adaptive_max_pool3d(input, output_size, return_indices=False):
    """Largest elements of as many windows as wanted."""
    if return_indices:
        raise NotImplementedError("adaptive_max_pool3d: return_indices=True is not supported")
    wanted = (output_size,) * 3 if isinstance(output_size, int) else tuple(output_size)
    for dim, count in zip((-3, -2, -1), wanted):
        size = input.shape[dim]
        count = size if count is None else count
        parts = [input.narrow(dim, i * size // count, -(-(i + 1) * size // count) - i * size // count).amax(dim) for i in range(count)]
        input = _torch.stack(parts, dim)
    return input


def __getattr__(name):
    from .._functions import _missing

    return _missing(__name__, name)
