"""``torch.distributed._symmetric_memory``: products that overlap their communication (asynchronous tensor parallelism).

``enable_symm_mem_for_group(name)``, or ``torch._inductor.config._micro_pipeline_tp = True`` for all groups, makes the layers of
``torch.distributed.tensor.parallel`` use them: a ``Linear`` in the style ``ColwiseParallel(input_layouts=Shard(d))`` multiplies each rank's part while the next one
is on its way, and one in the style ``RowwiseParallel(output_layouts=Shard(d))`` sends sums on while it computes the next product. Nothing has to be compiled. Memory
that devices share by name (``empty``, ``rendezvous``) is not supported.
"""

from contextlib import contextmanager

from .. import _absent, _C
from ._group import _world

__all__ = ["enable_symm_mem_for_group", "is_symm_mem_enabled_for_group"]

_absent.fill(globals(), __name__.replace("rushlight", "torch"), "memory that devices share by name is not supported; use torch.distributed's collectives", """
empty get_backend get_mempool_allocator get_symm_mem_workspace is_nvshmem_available rendezvous set_backend
""")

_enabled = set()


def _named(name):
    """The group of a name, or the group itself."""
    if not isinstance(name, str):
        return name
    for pg in _world.pg_map:
        if pg.group_name == name:
            return pg
    raise ValueError(f"there is no process group named {name!r}")


def enable_symm_mem_for_group(group_name):
    """Products of layers that are split over this group overlap their communication from now on."""
    _enabled.add(_named(group_name).group_name)


def is_symm_mem_enabled_for_group(group_name):
    """Whether ``enable_symm_mem_for_group`` was called for a group."""
    return group_name in _enabled


@contextmanager
def _test_mode(group_names=None):
    """Enables groups, all by default, within a ``with`` statement."""
    before = set(_enabled)
    _enabled.update(pg.group_name for pg in _world.pg_map if group_names is None or pg.group_name in group_names)
    try:
        yield
    finally:
        _enabled.clear()
        _enabled.update(before)


def _overlaps(pg):
    """Whether layers overlap products and communication over a group."""
    from .._inductor import config

    return pg.size() > 1 and (pg.group_name in _enabled or bool(getattr(config, "_micro_pipeline_tp", False)))


def _fused_all_gather_matmul(A_shard, Bs, gather_dim, group_name, *, return_A=True):
    """The whole of ``A_shard`` over the ranks, or None, and its products with ``Bs``."""
    return _C._all_gather_matmul(A_shard, list(Bs), gather_dim, return_A, _named(group_name)._group)


def _fused_matmul_reduce_scatter(A, B, reduce_op, scatter_dim, group_name):
    """This rank's part of the ranks' ``A @ B``, summed (``"sum"``) or averaged (``"avg"``)."""
    if reduce_op not in ("sum", "avg"):
        raise ValueError("reduce_op must be sum or avg")
    return _C._matmul_reduce_scatter(A, B, reduce_op, scatter_dim, _named(group_name)._group)


#: ``torch.ops.symm_mem``.
_OPS = {"fused_all_gather_matmul": _fused_all_gather_matmul, "fused_matmul_reduce_scatter": _fused_matmul_reduce_scatter}
