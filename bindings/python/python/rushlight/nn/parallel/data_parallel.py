"""``DataParallel``: splits batches over the devices of one process."""

from __future__ import annotations

from ... import _C
from ..modules.module import Module
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _devices(module, device_ids):
    """The devices to use: those named, or all accelerators; an empty list without accelerators."""
    if device_ids is None:
        from ... import cuda

        kind = next((p.device.type for p in module.parameters()), "cpu")
        device_ids = range(cuda.device_count()) if kind == "cuda" else []
    return [_C.device("cuda", d) if isinstance(d, int) else _C.device(d) for d in device_ids]


def data_parallel(module: Module, inputs, device_ids=None, output_device=None, dim: int = 0, module_kwargs=None):
    """Calls a module on batches split over devices."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    devices = _devices(module, device_ids)
    if len(devices) <= 1:
        return module(*inputs, **(module_kwargs or {}))
    pieces, named = scatter_kwargs(inputs, module_kwargs, devices, dim)
    if not pieces:
        return module(*inputs, **(module_kwargs or {}))
    used = devices[: len(pieces)]
    outputs = parallel_apply(replicate(module, used, not _C.is_grad_enabled()), pieces, named, used)
    target = used[0] if output_device is None else output_device
    return gather(outputs, _C.device("cuda", target) if isinstance(target, int) else target, dim)


class DataParallel(Module):
    """Runs a module on batches split over devices; on one device, and on the CPU, ``module`` is called directly.

    >>> import rushlight as torch
    >>> model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
    >>> list(model.state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs, **kwargs):
        return data_parallel(self.module, inputs, self.device_ids or None, self.output_device, self.dim, kwargs)
