"""Multi-head attention, as ``nn.functional`` and ``nn.MultiheadAttention`` use it."""

from __future__ import annotations

import math

from .. import _C

__all__ = ["multi_head_attention_forward"]

Tensor = _C.Tensor
_nn = _C._nn
_torch = _C._torch


def _as_scores(mask: Tensor | None, name: str, dtype) -> Tensor | None:
    """A mask as a summand of scores: True becomes minus infinity."""
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype != _C.bool:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return _torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)


def _project(query, key, value, weight, weights, bias, num_heads: int, head_dim: int) -> list:
    """Queries, keys and values from inputs, ``[.., .., heads, size]``, in as few products as possible."""

    def heads(x, w, b, count=1):
        # Split by heads, not by features, so that gradients join in one copy.
        joined = _nn.linear(x, w, b).unflatten(-1, (count * num_heads, head_dim))
        return [joined] if count == 1 else joined.split(num_heads, 2)

    if weight is not None and query is key and key is value:
        return heads(query, weight, bias, 3)
    width = num_heads * head_dim
    if weight is not None and key is value:
        w_q, w_kv = weight.split([width, 2 * width])
        b_q, b_kv = bias.split([width, 2 * width]) if bias is not None else (None, None)
        return [*heads(query, w_q, b_q), *heads(key, w_kv, b_kv, 2)]
    weights = weights if weight is None else weight.chunk(3)
    biases = bias.chunk(3) if bias is not None else (None,) * 3
    return [heads(x, w, b)[0] for x, w, b in zip((query, key, value), weights, biases)]


def _check_attention(query, key, value, key_padding_mask, attn_mask) -> bool:
    """Whether the inputs have a batch; an error if they do not fit together."""
    if query.dim() not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor")
    batched, dims = query.dim() == 3, query.dim()
    kind = "batched (3-D)" if batched else "unbatched (2-D)"
    if key.dim() != dims or value.dim() != dims:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {dims}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != dims - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {dims - 1}-D but found {key_padding_mask.dim()}-D tensor instead"
        )
    if attn_mask is not None and attn_mask.dim() not in (2, 3):
        raise AssertionError(
            f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead"
        )
    return batched


def attention(
    query, key, value, embed_dim, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight,
    out_proj_bias, training, key_padding_mask, need_weights, attn_mask, separate_weights, static_k, static_v, average_attn_weights,
    is_causal, batch_first,
):
    """Multi-head attention of inputs that have the batch first or second. Returns the output and the weights, if wanted."""
    batched = _check_attention(query, key, value, key_padding_mask, attn_mask)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint: Transformer.generate_square_subsequent_mask makes one.")
    if query.shape[-1] != embed_dim:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim}, but got {query.shape[-1]}")
    head_dim = embed_dim // num_heads
    if head_dim * num_heads != embed_dim:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if not batched:
        # Keeps equal inputs the same object, so that their projections are one product.
        lifted = {id(x): x.unsqueeze(0) for x in (query, key, value)}
        query, key, value = (lifted[id(x)] for x in (query, key, value))
        key_padding_mask = key_padding_mask if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        batch_first = True
    if key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {tuple(key.shape[:2])} do not match value's {tuple(value.shape[:2])}")
    # Heads as views of the projections: ``[batch, heads, length, size]``.
    order = (0, 2, 1, 3) if batch_first else (1, 2, 0, 3)
    projected = _project(query, key, value, in_proj_weight, separate_weights, in_proj_bias, num_heads, head_dim)
    q, k, v = (x.permute(order) for x in projected)
    batch, _, length, _ = q.shape
    plain = is_causal and key_padding_mask is None and not need_weights
    mask = None if plain else _as_scores(attn_mask, "attn_mask", q.dtype)
    padding = _as_scores(key_padding_mask, "key_padding_mask", q.dtype)
    causal = is_causal and key_padding_mask is None

    def one_more_key(mask):
        return mask if mask is None else _nn.pad(mask, (0, 1))

    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        k, v = (
            _torch.cat([x, extra.reshape(1, num_heads, 1, head_dim).expand(batch, -1, -1, -1)], 2) for x, extra in ((k, bias_k), (v, bias_v))
        )
        mask, padding = one_more_key(mask), one_more_key(padding)
    if static_k is not None:
        k = static_k.reshape(batch, num_heads, -1, head_dim)
    if static_v is not None:
        v = static_v.reshape(batch, num_heads, -1, head_dim)
    if add_zero_attn:
        zeros = _torch.zeros((batch, num_heads, 1, head_dim), dtype=k.dtype, device=k.device)
        k, v = _torch.cat([k, zeros], 2), _torch.cat([v, zeros], 2)
        mask, padding = one_more_key(mask), one_more_key(padding)
    keys = k.shape[2]
    if mask is not None:
        expected = (length, keys) if mask.dim() == 2 else (batch * num_heads, length, keys)
        if tuple(mask.shape) != expected:
            raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {tuple(mask.shape)}, but should be {expected}.")
        mask = mask if mask.dim() == 2 else mask.reshape(batch, num_heads, length, keys)
    if padding is not None:
        if tuple(padding.shape) != (batch, keys):
            raise AssertionError(f"expecting key_padding_mask shape of {(batch, keys)}, but got {tuple(padding.shape)}")
        padding = padding.reshape(batch, 1, 1, keys)
        mask = padding if mask is None else mask + padding
    if mask is not None and mask.dtype != q.dtype:
        mask = mask.to(q.dtype)
    dropout_p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = (q * math.sqrt(1.0 / head_dim)) @ k.transpose(-2, -1)
        weights = _nn.softmax(scores if mask is None else scores + mask, -1)
        if dropout_p > 0.0:
            weights = _nn.dropout(weights, dropout_p)
        out = weights @ v
    else:
        if mask is not None and mask.dim() == 4:
            mask = mask.expand(batch, num_heads, length, keys)
        out = _nn.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal and mask is None)
    merged = out.permute((0, 2, 1, 3) if batch_first else (2, 0, 1, 3)).flatten(2)
    out = _nn.linear(merged, out_proj_weight, out_proj_bias)
    if weights is not None:
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights if batched else weights.squeeze(0)
    return (out if batched else out.squeeze(0)), weights


def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p,
    out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
    use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
    average_attn_weights=True, is_causal=False,
):
    """The function behind ``nn.MultiheadAttention``, for inputs ``(length, batch, features)``."""
    return attention(
        query, key, value, embed_dim_to_check, num_heads, None if use_separate_proj_weight else in_proj_weight, in_proj_bias, bias_k,
        bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training, key_padding_mask, need_weights, attn_mask,
        (q_proj_weight, k_proj_weight, v_proj_weight), static_k, static_v, average_attn_weights, is_causal, False,
    )
