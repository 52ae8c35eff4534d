"""``torch.cuda``: the machine's accelerators."""

from .. import _C, _accelerator
from . import amp, nvtx  # noqa: F401

globals().update(_accelerator.functions("cuda"))

default_generators = ()
OutOfMemoryError = _C.OutOfMemoryError


def _figure(device, at, what):
    value = _C._gpu_figures(_accelerator._index(device))[at]
    if value is None:
        raise RuntimeError(f"torch.cuda.{what}: the GPU's management library gives no such figure of this device")
    return value


def utilization(device=None):
    """Utilisation of the GPU in per cent, from NVML, ROCm SMI or Level Zero Sysman."""
    return int(_figure(device, 0, "utilization"))


def memory_usage(device=None):
    """Utilisation of the GPU's memory bandwidth in per cent."""
    return int(_figure(device, 1, "memory_usage"))


def device_memory_used(device=None):
    """Bytes of the GPU's memory in use, by all processes."""
    return int(_figure(device, 2, "device_memory_used"))


def temperature(device=None):
    """Temperature in degrees Celsius."""
    return int(_figure(device, 3, "temperature"))


def power_draw(device=None):
    """Power in milliwatts."""
    return int(_figure(device, 4, "power_draw") * 1000)


def clock_rate(device=None):
    """Clock of the GPU's cores in MHz."""
    return int(_figure(device, 5, "clock_rate"))


def is_tf32_supported(including_emulation=True):
    """Whether the GPU multiplies in TF32: those of compute capability 8 and later."""
    return is_available() and get_device_capability() >= (8, 0)  # noqa: F405


def _is_in_bad_fork():
    """Whether this process is a fork of one that has used the device: the driver does not survive a fork."""
    if not is_available():  # noqa: F405
        return False
    try:
        _C._torch.empty(0, device="cuda")
    except RuntimeError as error:
        return "forked subprocess" in str(error)
    return False


def _lazy_call(callable, **kwargs):
    """Calls a function when the device is initialised, which it always is."""
    callable()


def _lazy_init():
    """Does nothing: the device is initialised when it is first used."""


def __getattr__(name):
    from .. import _functions

    if name.endswith("Tensor") and name in _functions.__all__:
        return _functions.typed(getattr(_functions, name).dtype, "cuda")
    if name in ("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle"):
        from . import graphs

        return getattr(graphs, name)
    if name == "_compile_kernel":
        from ..kernels import compile_kernel

        return compile_kernel
    if name == "_initialized":
        return is_initialized()  # noqa: F405
    if name == "ExternalStream":
        raise AttributeError("rushlight has no 'cuda.ExternalStream': work goes to streams of its own; share tensors by DLPack, which orders the streams")
    return _functions._missing(__name__, name)
