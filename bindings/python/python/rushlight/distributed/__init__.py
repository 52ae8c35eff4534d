"""``torch.distributed`` where there is one process: ``is_available()`` is False, and every other name raises when it is used."""

from .. import _absent
from . import _names

__all__ = ["is_available", "is_initialized"]


def is_available():
    """Whether processes can work together: they cannot."""
    return False


def is_initialized():
    """Whether a process group was set up: none can be."""
    return False


def _no():
    return False


def is_backend_available(backend):
    """Whether there is such a means of communication: there is none."""
    return False


is_gloo_available = is_mpi_available = is_nccl_available = is_torchelastic_launched = is_ucc_available = is_xccl_available = _no


def get_rank(group=None):
    """An error, as PyTorch raises it where no process group was set up."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


get_world_size = get_rank


class group(metaclass=type("_GroupMeta", (type,), {"WORLD": None})):
    """Groups of processes: none was set up."""


_absent.fill(globals(), "torch.distributed", _names.REASON, _names.NAMES)
_absent.add_modules(__name__, _names.REASON, _names.MODULES)


def __getattr__(name):
    import importlib

    if name in _names.MODULES:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"rushlight has no 'torch.distributed.{name}': {_names.REASON}")
