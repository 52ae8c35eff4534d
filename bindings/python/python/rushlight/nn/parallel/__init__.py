"""Models over several devices and several processes."""

from . import scatter_gather
from .data_parallel import DataParallel, data_parallel
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter", "scatter_gather"]


def __getattr__(name):
    # Process groups are imported on first use.
    if name in ("DistributedDataParallel", "distributed"):
        import importlib

        module = importlib.import_module(".distributed", __name__)
        return module if name == "distributed" else module.DistributedDataParallel
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
