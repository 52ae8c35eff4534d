"""Models over several devices: with one device, ``DataParallel`` is the model itself."""

from . import scatter_gather
from .data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel
from .scatter_gather import gather, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter", "scatter_gather"]


def replicate(network, devices, detach=False):
    """The module for each device; there is one."""
    return [network] * len(devices)


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """Calls each module with its inputs."""
    named = kwargs_tup or [{}] * len(modules)
    return [m(*(i if isinstance(i, (list, tuple)) else (i,)), **k) for m, i, k in zip(modules, inputs, named)]
