"""``deepspeed.checkpoint.utils``: what programs use to write weights themselves."""

import rushlight as torch

__all__ = ["clone_tensors_for_torch_save"]


def clone_tensors_for_torch_save(item, device=None):
    """A copy of nested lists, tuples and dictionaries whose tensors own their memory, on the CPU unless a device is given: a view would be saved with the whole
    buffer that it is a part of."""
    if isinstance(item, torch.Tensor):
        return item.detach().clone().to(torch.device("cpu") if device is None else device)
    if isinstance(item, (list, tuple)):
        return type(item)(clone_tensors_for_torch_save(value, device) for value in item)
    if isinstance(item, dict):
        return type(item)({key: clone_tensors_for_torch_save(value, device) for key, value in item.items()})
    return item
