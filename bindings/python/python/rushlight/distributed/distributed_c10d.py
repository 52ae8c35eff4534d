"""``torch.distributed.distributed_c10d``: the names of process groups and collectives where libraries import them from."""

from ._collectives import *  # noqa: F401,F403
from ._collectives import ReduceOp, _all_gather_base, _reduce_scatter_base, reduce_op  # noqa: F401
from ._group import *  # noqa: F401,F403
from ._group import (  # noqa: F401
    _get_default_group,
    _get_default_store,
    _get_pg_default_device,
    _rank_not_in_group,
    _resolve,
    _set_pg_timeout,
    _world,
)
from ._objects import *  # noqa: F401,F403
from ._objects import _object_to_tensor, _tensor_to_object  # noqa: F401
from ._p2p import *  # noqa: F401,F403
from ._stores import *  # noqa: F401,F403
from ._work import Work  # noqa: F401


#: Groups by their backend and store, as libraries look for them.
_pg_map = _world.pg_map


def _get_pg_config(group=None):
    """A group's name, backend and ranks."""
    pg = _resolve(group)
    return {
        "pg_name": pg.group_name, "pg_desc": pg.group_desc, "backend_config": repr(get_backend_config(pg)), "pg_size": pg.size(),  # noqa: F405
        "ranks": get_process_group_ranks(pg),  # noqa: F405
    }


def _get_process_group_store(group):
    """The store of a group: its keys do not meet those of other groups."""
    return PrefixStore(_resolve(group).group_name, _get_default_store())  # noqa: F405


#: What names of groups are.
GroupName = str


def _resolve_process_group(group_name):
    """The group of a name."""
    from ._symmetric_memory import _named

    return _named(group_name)


def _get_global_rank(group, rank):
    """``get_global_rank`` under its old name."""
    return get_global_rank(group, rank)  # noqa: F405
