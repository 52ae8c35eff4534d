"""``DataParallel``: splits batches over the devices of one process."""

from __future__ import annotations

import threading

from ... import _C
from ..modules.module import Module
from .scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel", "parallel_apply", "replicate"]


def _devices(module, device_ids):
    """The devices to use: those named, or all accelerators; an empty list without accelerators."""
    if device_ids is None:
        from ... import cuda

        kind = next((p.device.type for p in module.parameters()), "cpu")
        device_ids = range(cuda.device_count()) if kind == "cuda" else []
    return [_C.device("cuda", d) if isinstance(d, int) else _C.device(d) for d in device_ids]


def replicate(network, devices, detach=False):
    """A copy of the module for each device. Gradients of the copies' parameters flow back to the module's own."""
    return [_replica(network, device, detach, {}) for device in devices]


def _replica(module, device, detach, seen):
    if id(module) in seen:
        return seen[id(module)]
    seen[id(module)] = made = _shallow(module)
    own = made.__dict__
    own["_parameters"] = {name: p if p is None else (p.detach() if detach else p).to(device) for name, p in module._parameters.items()}
    own["_buffers"] = {name: b if b is None else b.to(device) for name, b in module._buffers.items()}
    own["_modules"] = {name: m if m is None else _replica(m, device, detach, seen) for name, m in module._modules.items()}
    return made


def _shallow(module):
    made = module.__new__(type(module))
    made.__dict__ = dict(module.__dict__)
    return made


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """Calls each module with its inputs, each in its own thread."""
    named = kwargs_tup or [{}] * len(modules)
    results, recording, cast = [None] * len(modules), _C.is_grad_enabled(), _C._autocast_dtype()

    def call(i):
        before, outer = _C._set_grad_enabled(recording), _C._set_autocast(cast)
        try:
            own = inputs[i] if isinstance(inputs[i], (list, tuple)) else (inputs[i],)
            results[i] = (True, modules[i](*own, **named[i]))
        except Exception as error:
            error.args = (f"Caught {type(error).__name__} in replica {i}: {error}",)
            results[i] = (False, error)
        finally:
            _C._set_autocast(outer)
            _C._set_grad_enabled(before)

    if len(modules) == 1:
        call(0)
    else:
        threads = [threading.Thread(target=call, args=(i,)) for i in range(len(modules))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for well, value in results:
        if not well:
            raise value
    return [value for _, value in results]


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
