"""Models over several devices: with one device, ``DataParallel`` is the model itself."""

from .data_parallel import DataParallel, data_parallel

__all__ = ["DataParallel", "data_parallel"]


def __getattr__(name):
    if name == "DistributedDataParallel":
        raise AttributeError("rushlight has no 'DistributedDataParallel': distributed training is not part of this version")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
