"""``DataParallel``: batches shared out over devices."""

from __future__ import annotations

from ..modules.module import Module

__all__ = ["DataParallel", "data_parallel"]


def _one_device(device_ids) -> None:
    if device_ids is not None and len(device_ids) > 1:
        raise NotImplementedError(f"DataParallel: batches are not shared out over {len(device_ids)} devices; leave device_ids out or name one")


class DataParallel(Module):
    """Runs a module on one device, as PyTorch's does where there is one: ``module`` is the module itself.

    >>> import rushlight as torch
    >>> model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
    >>> list(model.state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0) -> None:
        super().__init__()
        _one_device(device_ids)
        self.module = module
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


def data_parallel(module: Module, inputs, device_ids=None, output_device=None, dim: int = 0, module_kwargs=None):
    """Calls a module on one device."""
    _one_device(device_ids)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*inputs, **(module_kwargs or {}))
