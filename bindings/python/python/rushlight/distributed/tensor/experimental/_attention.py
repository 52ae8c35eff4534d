"""Context parallelism: sequences split among ranks, attention over all of them.

Attention is compiled (``crates/dist/src/context_parallel.rs``): keys and values go around the ranks while each computes its part, or the ranks exchange
positions for heads (Ulysses) and each computes whole sequences of its heads.
"""

import enum
from contextlib import contextmanager

from .... import _C, _absent
from ....nn import functional as F
from ... import all_gather
from .._api import DTensor
from ..parallel.style import ParallelStyle

__all__ = [
    "_ContextParallel", "_HeadTailLoadBalancer", "_LoadBalancer", "_context_parallel_shard", "_cp_options", "_disable_context_parallel_dispatcher",
    "_enable_context_parallel_dispatcher", "context_parallel", "context_parallel_unshard", "set_attention_method",
    "set_rotate_method", "ulysses_attention",
]


class _RotateMethod(enum.Enum):
    """How keys and values reach the other ranks. Both names send them around the ring here: no rank ever holds all."""

    ALL_TO_ALL = enum.auto()
    ALL_GATHER = enum.auto()


class _Options:
    """What holds for all uses: whether the causal work is balanced, and how keys and values travel. ``attention`` is ours: ``"ring"`` or ``"ulysses"``."""

    def __init__(self):
        self.attention = "ring"
        self.enable_load_balance, self.convert_to_f32, self.rotate_method = True, True, _RotateMethod.ALL_GATHER


_cp_options = _Options()


def set_rotate_method(rotate_method):
    """``"allgather"`` or ``"alltoall"``: the results are the same, keys and values go around the ring."""
    names = {"allgather": _RotateMethod.ALL_GATHER, "alltoall": _RotateMethod.ALL_TO_ALL}
    if rotate_method not in names:
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = names[rotate_method]


def set_attention_method(method):
    """Ours: ``"ring"``, or ``"ulysses"``, whose ranks have contiguous parts of sequences, which need no balance, and whose number divides that of heads."""
    if method not in ("ring", "ulysses"):
        raise ValueError(f"context_parallel: the method of attention is 'ring' or 'ulysses', not {method!r}")
    _cp_options.attention = method


class _LoadBalancer:
    """An order of a sequence's positions; each rank takes its contiguous part of the order."""

    def _generate_indices(self, restore=False):
        raise NotImplementedError


class _HeadTailLoadBalancer(_LoadBalancer):
    """Rank ``r`` of ``n`` takes the parts ``r`` and ``2n - 1 - r`` of ``2n``: under a causal mask all ranks have the same work."""

    def __init__(self, seq_length, world_size, device=None):
        if seq_length % (2 * world_size):
            raise AssertionError(f"context_parallel: a sequence of {seq_length} does not split into {2 * world_size} parts; pad it")
        self.seq_length, self.world_size, self.device = seq_length, world_size, device

    def _generate_indices(self, restore=False):
        """Positions in the order of the ranks, or where each position is in that order; of shape (1, length)."""
        part = self.seq_length // (2 * self.world_size)
        pieces = []
        for rank in range(self.world_size):
            for piece in (rank, 2 * self.world_size - 1 - rank):
                pieces.append(_C._torch.arange(piece * part, (piece + 1) * part))
        order = _C._torch.cat(pieces)
        order = order.argsort() if restore else order
        return order.to(self.device or "cpu").unsqueeze(0)


def _balancer(length, ranks, device):
    return _HeadTailLoadBalancer(length, ranks, device) if _cp_options.enable_load_balance and _cp_options.attention == "ring" else None


def _own(buffer, dim, mesh, balancer):
    """This rank's part of a whole tensor."""
    ranks, rank = mesh.size(), mesh.get_local_rank()
    length = buffer.shape[dim]
    if length % ranks:
        raise ValueError(f"context_parallel: dimension {dim} of size {length} does not split among {ranks} ranks; pad it")
    size = length // ranks
    if balancer is None:
        return buffer.narrow(dim, rank * size, size)
    indices = balancer._generate_indices().to(buffer.device)
    if indices.shape[0] == 1:
        return buffer.index_select(dim, indices[0, rank * size : (rank + 1) * size])
    rows = [buffer[i].index_select(dim - 1, indices[i, rank * size : (rank + 1) * size]) for i in range(buffer.shape[0])]
    return _C._torch.stack(rows)


#: The mesh whose ranks share a sequence, the innermost last.
_active = []


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if attn_mask is not None:
        raise NotImplementedError("context_parallel: attention masks are not supported; use is_causal")
    if dropout_p:
        raise NotImplementedError("context_parallel: dropout of attention is not supported; use dropout_p=0.0")
    if enable_gqa and key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    mesh = _active[-1]
    if isinstance(query, DTensor):
        # Heads that tensor parallelism has split: each rank computes its own.
        if any(not (p.is_shard(0) or p.is_shard(1) or p.is_replicate()) for p in query.placements) or not query.placements == key.placements == value.placements:
            raise NotImplementedError(f"context_parallel: queries placed {query.placements}, keys {key.placements}; only batches and heads may be split, alike")
        out = _attention(query.to_local(), key.to_local(), value.to_local(), None, 0.0, is_causal, scale)
        return DTensor._of(out, query.device_mesh, query.placements, query.shape)
    if _cp_options.attention == "ulysses":
        return ulysses_attention(query, key, value, mesh, is_causal=is_causal, scale=scale)
    return _C._ring_attention(query, key, value, bool(is_causal), _cp_options.enable_load_balance, scale, mesh.get_group()._group)


_plain_attention = F.scaled_dot_product_attention


def ulysses_attention(query, key, value, mesh, *, is_causal=False, scale=None, enable_gqa=False):
    """Ours: attention over sequences of which each rank has a contiguous part, by an exchange among all ranks that gives each the whole sequences of some heads.
    Tensors are ``[batch, heads, tokens, size]``; the ranks' number divides that of heads, also of keys and values. Recorded."""
    if mesh.ndim != 1:
        raise ValueError(f"ulysses_attention: a mesh of one dimension is needed, got {mesh}; take a part of it by name, as mesh['cp']")
    if any(t.dim() != 4 or isinstance(t, DTensor) for t in (query, key, value)):
        raise ValueError("ulysses_attention: plain tensors of [batch, heads, tokens, size] are needed")
    group = mesh.get_group()._group
    query, key, value = (_C._all_to_all_dims(t, 1, 2, group) for t in (query, key, value))
    out = _plain_attention(query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    return _C._all_to_all_dims(out, 2, 1, group)


def _enter(mesh):
    if mesh.ndim != 1:
        raise ValueError(f"context_parallel: a mesh of one dimension is needed, got {mesh}; take a part of it by name, as mesh['cp']")
    _active.append(mesh)
    F.scaled_dot_product_attention = _attention


def _leave():
    _active.pop()
    if not _active:
        F.scaled_dot_product_attention = _plain_attention


@contextmanager
def _context(mesh, buffers, buffer_seq_dims, no_restore_buffers):
    buffers, dims = list(buffers or ()), list(buffer_seq_dims or ())
    if len(buffers) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    kept = {id(b) for b in no_restore_buffers or ()}
    if not kept <= {id(b) for b in buffers}:
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    before = _C._set_grad_enabled(False)
    try:
        originals = [None if id(b) in kept else b.clone() for b in buffers]
        for buffer, dim in zip(buffers, dims):
            part = _own(buffer, dim, mesh, _balancer(buffer.shape[dim], mesh.size(), buffer.device)).clone()
            buffer.resize_(part.shape)
            buffer.copy_(part)
    finally:
        _C._set_grad_enabled(before)
    _enter(mesh)
    try:
        yield
    finally:
        _leave()
        before = _C._set_grad_enabled(False)
        try:
            for buffer, original in zip(buffers, originals):
                if original is not None:
                    buffer.resize_(original.shape)
                    buffer.copy_(original)
        finally:
            _C._set_grad_enabled(before)


def context_parallel(mesh, *, buffers=None, buffer_seq_dims=None, no_restore_buffers=None):
    """Within the context every buffer is this rank's part of its sequence, in place, and ``scaled_dot_product_attention`` spans the ranks' parts. Run the
    backward pass within it too if it recomputes attention. Afterwards the buffers are whole again, those in ``no_restore_buffers`` excepted."""
    return _context(mesh, buffers, buffer_seq_dims, no_restore_buffers)


def _context_parallel_shard(mesh, buffers, seq_dims, load_balancer=None):
    """This rank's part of each buffer, as new tensors."""
    if isinstance(buffers, _C.Tensor):
        return _own(buffers, seq_dims if isinstance(seq_dims, int) else seq_dims[0], mesh, load_balancer)
    if isinstance(buffers, dict):
        return {k: _own(b, seq_dims if isinstance(seq_dims, int) else seq_dims[k], mesh, load_balancer) for k, b in buffers.items()}
    dims = [seq_dims] * len(buffers) if isinstance(seq_dims, int) else list(seq_dims)
    if len(dims) != len(buffers):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    return type(buffers)(_own(b, d, mesh, load_balancer) for b, d in zip(buffers, dims))


def context_parallel_unshard(mesh, buffers, seq_dims, load_balancer=None):
    """The whole of tensors that were split by ``context_parallel``, such as outputs."""
    before = _C._set_grad_enabled(False)
    try:
        found = []
        for buffer, dim in zip(buffers, seq_dims):
            parts = [_C._torch.empty_like(buffer.contiguous()) for _ in range(mesh.size())]
            all_gather(parts, buffer.detach().contiguous(), group=mesh.get_group())
            whole = _C._torch.cat(parts, dim)
            balancer = load_balancer or _balancer(whole.shape[dim], mesh.size(), whole.device)
            if balancer is not None:
                indices = balancer._generate_indices(restore=True).to(whole.device)
                if indices.shape[0] == 1:
                    whole = whole.index_select(dim, indices[0])
                else:
                    whole = _C._torch.stack([whole[i].index_select(dim - 1, indices[i]) for i in range(whole.shape[0])])
            found.append(whole)
        return found
    finally:
        _C._set_grad_enabled(before)


def _enable_context_parallel_dispatcher():
    """Modules under ``_ContextParallel`` span the ranks by themselves, so there is nothing to enable."""


def _disable_context_parallel_dispatcher():
    """The other half of ``_enable_context_parallel_dispatcher``."""


class _ContextParallel(ParallelStyle):
    """A style of a module that calls ``scaled_dot_product_attention``: its attention spans the ranks of the mesh."""

    class AttentionType(enum.Enum):
        """The kind of attention of the module."""

        FLEX = "flex_attention"
        SDPA = "scaled_dot_product_attention"

    def __init__(self, seq_dim, attention_type):
        if seq_dim != 2:
            raise NotImplementedError("_ContextParallel: tensors of [batch, heads, tokens, size] are expected, so seq_dim is 2")
        if attention_type != self.AttentionType.SDPA:
            raise NotImplementedError("_ContextParallel: flex_attention is not supported; use scaled_dot_product_attention")
        self.seq_dim, self.attention_type = seq_dim, attention_type

    def _apply(self, module, device_mesh):
        def before(_, args):
            _enter(device_mesh)
            return args

        module.register_forward_pre_hook(before)
        module.register_forward_hook(lambda *_: _leave(), always_call=True)
        return module


_absent.fill(globals(), "torch.distributed.tensor.experimental._attention", "masks of flex_attention are not split over ranks; use is_causal", "_PTRRLoadBalancer")
