"""``flex_attention``: attention whose scores and mask are functions of batch, head and positions.

The functions are called once, with tensors of indices that broadcast to all scores, instead of once for each score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ... import _C

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask", "create_nested_block_mask", "flex_attention",
    "noop_mask", "or_masks",
]

Tensor, _torch, _nn = _C.Tensor, _C._torch, _C._nn

_DEFAULT_SPARSE_BLOCK_SIZE = 128
FlexKernelOptions = dict

#: The types of functions that change scores, and that mask them.
_score_mod_signature = Callable[..., Any]
_mask_mod_signature = Callable[..., Any]


class AuxRequest(NamedTuple):
    """Selects further results of ``flex_attention``."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The further results."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def _identity(score, batch, head, token_q, token_kv):
    return score


def noop_mask(batch, head, token_q, token_kv):
    """A mask that lets everything through."""
    return batch.new_ones((), dtype=_C.bool)


def and_masks(*mask_mods):
    """The intersection of masks."""

    def mask_mod(b, h, q, kv):
        result = noop_mask(b, h, q, kv)
        for mask in mask_mods:
            result = result & mask(b, h, q, kv)
        return result

    return mask_mod


def or_masks(*mask_mods):
    """The union of masks."""

    def mask_mod(b, h, q, kv):
        result = b.new_zeros((), dtype=_C.bool)
        for mask in mask_mods:
            result = result | mask(b, h, q, kv)
        return result

    return mask_mod


def _indices(batch, heads, rows, columns, device):
    """Indices of batch, head, query and key, each along its own dimension."""
    sizes = (batch, heads, rows, columns)
    return [_torch.arange(n, device=device).reshape([n if at == dim else 1 for at in range(4)]) for dim, n in enumerate(sizes)]


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device=None):
    """The mask of a function as a tensor ``[batch, heads, queries, keys]``; for a function of scores, the scores for zeros."""
    import inspect

    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    indices = _indices(*sizes, device or "cpu")
    required = [p for p in inspect.signature(mod_fn).parameters.values() if p.default is inspect.Parameter.empty]
    if len(required) == 5:
        return mod_fn(_torch.zeros(sizes, device=device), *indices).expand(sizes)
    return mod_fn(*indices).expand(sizes)


class BlockMask:
    """A mask as a function, and the blocks of queries and keys that it does not mask out entirely."""

    def __init__(self, mask_mod, shape, block_size, counts, indices, full_counts=None, full_indices=None):
        self.mask_mod, self._shape, self.BLOCK_SIZE = mask_mod, tuple(shape), block_size
        self.seq_lengths = self._shape[-2:]
        self.kv_num_blocks, self.kv_indices = counts, indices
        self.full_kv_num_blocks, self.full_kv_indices = full_counts, full_indices

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks, kv_indices, full_kv_num_blocks=None, full_kv_indices=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, mask_mod=None, seq_lengths=None,
        compute_q_blocks=True,
    ):
        """A mask from the blocks of keys that each block of queries sees."""
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        seen = _blocks_of(kv_num_blocks, kv_indices)
        if full_kv_num_blocks is not None:
            full = _blocks_of(full_kv_num_blocks, full_kv_indices)
            inner = noop_mask if mask_mod is None else mask_mod

            def within(b, h, q, kv):
                at = (_along(b, seen.shape[0]), _along(h, seen.shape[1]), q // size[0], kv // size[1])
                return full[at] | seen[at] & inner(b, h, q, kv)
        else:
            inner = noop_mask if mask_mod is None else mask_mod

            def within(b, h, q, kv):
                at = (_along(b, seen.shape[0]), _along(h, seen.shape[1]), q // size[0], kv // size[1])
                return seen[at] & inner(b, h, q, kv)

        return cls(within, (*kv_indices.shape[:2], *seq_lengths), size, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)

    @property
    def shape(self):
        return self._shape

    def numel(self):
        return math.prod(self._shape)

    def _visible(self):
        """The blocks that are not masked out."""
        seen = _blocks_of(self.kv_num_blocks, self.kv_indices)
        return seen if self.full_kv_num_blocks is None else seen | _blocks_of(self.full_kv_num_blocks, self.full_kv_indices)

    def to_dense(self):
        """Ones for blocks that are not masked out."""
        return self._visible().to(_C.int32)

    def sparsity(self):
        """The percentage of scores in blocks that are masked out."""
        seen = self._visible()
        return 100.0 * (1 - seen.sum().item() / max(seen.numel(), 1))

    def to(self, device):
        """The mask on another device."""
        moved = [t if t is None else t.to(device) for t in (self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices)]
        return BlockMask(self.mask_mod, self._shape, self.BLOCK_SIZE, *moved)

    def as_tuple(self, flatten=True):
        size = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        return (*self.seq_lengths, self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices, *size, self.mask_mod)

    def __repr__(self):
        return f"BlockMask(shape={self._shape}, block_size={self.BLOCK_SIZE}, sparsity={self.sparsity():.2f}%)"


def _along(index, size):
    """An index along a dimension that may be of size one for all."""
    return index * 0 if size == 1 else index


def _blocks_of(counts, indices):
    """The blocks of a list of counts and indices."""
    rank = _torch.arange(indices.shape[-1], device=indices.device)
    listed = rank < counts.unsqueeze(-1)
    named = _torch.zeros(indices.shape, dtype=_C.int64, device=indices.device)
    return named.scatter_add(-1, indices.long(), listed.long()) > 0


def create_block_mask(
    mask_mod, B, H, Q_LEN, KV_LEN, device=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, _compile=False, separate_full_blocks=True, dtype=None,
):
    """A mask from a function of batch, head, query and key."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    dense = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device or "cpu")
    batch, heads = dense.shape[:2]
    rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
    padded = _nn.pad(dense.to(_C.int32), (0, columns * size[1] - KV_LEN, 0, rows * size[0] - Q_LEN))
    counts = padded.reshape(batch, heads, rows, size[0], columns, size[1]).sum((3, 5))
    full = counts == size[0] * size[1]
    partial = (counts > 0) & ~full if separate_full_blocks else counts > 0

    def listed(blocks):
        order = blocks.to(_C.int32).argsort(dim=-1, descending=True, stable=True)
        return blocks.sum(-1).to(_C.int32), order.to(_C.int32)

    whole = listed(full) if separate_full_blocks else (None, None)
    return BlockMask(mask_mod, (batch, heads, Q_LEN, KV_LEN), size, *listed(partial), *whole)


def create_nested_block_mask(mask_mod, B, H, q_nt, kv_nt=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, _compile=False):
    """Not supported: masks of blocks are of padded sequences."""
    raise NotImplementedError("create_nested_block_mask: not supported; scaled_dot_product_attention takes nested tensors, or pad the sequences for flex_attention")


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None, *, return_aux=None,
):
    """Attention of ``[batch, heads, length, features]`` with scores changed by ``score_mod(score, batch, head, query, key)`` and masked by a ``BlockMask``.

    All scores are made at once. ``kernel_options`` choose among kernels of a compiler and change nothing here.
    """
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"flex_attention: query and key have {query.shape[-1]} and {key.shape[-1]} features")
    batch, heads, rows, features = query.shape
    columns = key.shape[-2]
    if key.shape[1] != heads:
        if not enable_gqa or heads % key.shape[1]:
            raise ValueError(
                f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={key.shape[1]}. Try setting enable_gqa=True for GQA."
            )
        key, value = (t.repeat_interleave(heads // t.shape[1], 1) for t in (key, value))
    scale = 1 / math.sqrt(features) if scale is None else scale
    # Scores and their sums are made in single precision at least.
    precise = _C.float32 if query.dtype in (_C.float16, _C.bfloat16) else query.dtype
    scores = (query.to(precise) @ key.to(precise).transpose(-2, -1)) * scale
    indices = _indices(batch, heads, rows, columns, query.device)
    if score_mod is not None:
        scores = score_mod(scores, *indices).to(precise)
    if block_mask is not None:
        if block_mask.seq_lengths[0] < rows or block_mask.seq_lengths[1] < columns:
            raise ValueError(f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={rows} and kv_len={columns}.")
        scores = scores.masked_fill(~block_mask.mask_mod(*indices), -math.inf)
    lse = scores.logsumexp(-1)
    # A query that sees no key gets zeros.
    weights = (scores - lse.masked_fill(lse == -math.inf, 0).unsqueeze(-1)).exp()
    out = (weights @ value.to(precise)).to(query.dtype)
    if return_aux is not None:
        return out, AuxOutput(lse if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None)
    return (out, lse) if return_lse else out
