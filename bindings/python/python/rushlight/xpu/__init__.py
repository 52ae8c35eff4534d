"""``torch.xpu``: Intel GPUs, and any other accelerator under this name."""

from .. import _accelerator
from . import amp  # noqa: F401

globals().update(_accelerator.functions("xpu"))

default_generators = ()


class _XpuDeviceProperties(_accelerator.DeviceProperties):
    """Properties of a device, under the names of PyTorch's class."""

    def __init__(self, device=None):
        super().__init__("xpu", device)
        self.max_compute_units = self.multi_processor_count
        self.platform_name, self.driver_version = self.runtime, self.driver

    def __repr__(self):
        return (
            f"_XpuDeviceProperties(name='{self.name}', platform_name='{self.platform_name}', driver_version='{self.driver_version}', "
            f"total_memory={self.total_memory // 2**20}MB, max_compute_units={self.max_compute_units})"
        )


def get_device_properties(device=None):
    """The properties of the device."""
    _accelerator._notice("xpu")
    return _XpuDeviceProperties(device)


def get_device_name(device=None):
    """The device's name."""
    return get_device_properties(device).name


def get_device_capability(device=None):
    """The properties of the device, as a dictionary."""
    found = get_device_properties(device)
    return {name: getattr(found, name) for name in ("name", "platform_name", "driver_version", "total_memory", "max_compute_units")}


def get_gencode_flags():
    """Options of ahead-of-time compilation: none, because kernels are compiled on first use."""
    return ""


def is_tf32_supported():
    """Whether products of float32 may be rounded to TF32: always false."""
    return False


def memory_stats_as_nested_dict(device=None):
    """Allocator statistics, as nested dictionaries."""
    nested = {}
    for name, value in memory_stats(device).items():  # noqa: F821
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def optimize(model, dtype=None, optimizer=None, level="O1", inplace=False, **kwargs):
    """``intel_extension_for_pytorch.optimize`` under its older name."""
    from .. import _ipex

    return _ipex.optimize(model, dtype=dtype, optimizer=optimizer, level=level, inplace=inplace, **kwargs)


def _is_compiled():
    return True


def _is_in_bad_fork():
    return False


def _lazy_init():
    """Devices start by themselves."""


# Names of PyTorch without a counterpart, and what to do instead.
_NONE = {
    "XPUGraph graph graph_pool_handle make_graphed_callables": "steps are not recorded on xpu; rushlight.capture runs them as they are",
    "XPUPluggableAllocator change_current_allocator MemPool use_mem_pool memory_snapshot": "the allocator is the engine's own; memory_stats has its figures",
    "get_per_process_memory_fraction set_per_process_memory_fraction": "the allocator has no limit of its own; ZE_AFFINITY_MASK shares devices out",
    "get_stream_from_external": "streams are OpenCL queues of a context of its own, which SYCL libraries do not share",
    "clock_rate device_memory_used list_gpu_processes memory_usage power_draw temperature utilization": "OpenCL does not tell; xpu-smi does",
}


def __getattr__(name):
    from .._functions import _missing

    for names, reason in _NONE.items():
        if name in names.split():
            raise AttributeError(f"rushlight has no 'xpu.{name}': {reason}")
    return _missing(__name__, name)
