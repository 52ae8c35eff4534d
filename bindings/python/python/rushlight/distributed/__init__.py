"""``torch.distributed``: training with several processes, under any launcher."""

from .. import _C, _absent
from . import _names

if hasattr(_C, "_World"):
    from ._collectives import *  # noqa: F401,F403
    from ._collectives import _all_gather_base, _make_nccl_premul_sum, _reduce_scatter_base  # noqa: F401
    from ._debug import *  # noqa: F401,F403
    from ._group import *  # noqa: F401,F403
    from ._group import _rank_not_in_group  # noqa: F401
    from ._objects import *  # noqa: F401,F403
    from ._p2p import *  # noqa: F401,F403
    from ._stores import *  # noqa: F401,F403
    from ._stores import _test_python_store  # noqa: F401
    from ._work import Work  # noqa: F401
    from .device_mesh import DeviceMesh, init_device_mesh  # noqa: F401
    from .rendezvous import register_rendezvous_handler, rendezvous  # noqa: F401
else:

    def is_available():
        """Whether process groups are supported: on Linux only."""
        return False

    def is_initialized():
        """Whether ``init_process_group`` was called: always False."""
        return False

    _absent.fill(globals(), "torch.distributed", "processes work together on Linux", _names.ELSEWHERE)

_absent.fill(globals(), "torch.distributed", _names.REASON, _names.NAMES)
_absent.add_modules(__name__, _names.REASON, _names.MODULES)

#: Modules that are imported on first use.
_LAZY = frozenset(
    "_composable _functional_collectives _symmetric_memory _tensor algorithms checkpoint distributed_c10d device_mesh elastic fsdp launch launcher nn optim pipelining run tensor utils".split()
)


def __getattr__(name):
    import importlib

    if name == "GradBucket":
        from ..nn.parallel._reducer import GradBucket

        return GradBucket
    if name in _LAZY or name in _names.MODULES:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"rushlight has no 'torch.distributed.{name}'")
