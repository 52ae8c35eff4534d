"""``deepspeed.comm``: the names of ``torch.distributed``, and ``init_distributed``."""

from .. import distributed as _distributed


def init_distributed(
    dist_backend=None, auto_mpi_discovery=True, distributed_port=29500, verbose=True, timeout=None, init_method=None, dist_init_required=None, config=None, rank=-1,
    world_size=-1,
):
    """Joins the other ranks, by whichever launcher started them."""
    if dist_init_required is False or _distributed.is_initialized():
        return
    options = {} if timeout is None else {"timeout": timeout}
    if rank >= 0 and world_size > 0:
        options |= {"rank": rank, "world_size": world_size}
    _distributed.init_process_group(dist_backend, init_method=init_method, **options)


def get_local_rank():
    """This rank on its node."""
    import os

    return int(os.environ.get("LOCAL_RANK", 0))


def __getattr__(name):
    return getattr(_distributed, name)
