"""Tensors over the devices of one process: copies, sums and pieces, without gradients."""

from ... import _C
from ...autograd.grad_mode import no_grad

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _device(device):
    """A device by its name or number; numbers are accelerators, -1 is the CPU."""
    if isinstance(device, int):
        return _C.device("cpu") if device < 0 else _C.device("cuda", device)
    return _C.device(device)


def _chosen(devices, out, call):
    if (devices is None) == (out is None):
        raise RuntimeError(f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out} (in comm.{call})")


def _filled(out, values):
    for target, value in zip(out, values):
        target.copy_(value)
    return tuple(out)


@no_grad()
def broadcast(tensor, devices=None, *, out=None):
    """A copy of a tensor on each device. On its own device it is the tensor itself."""
    _chosen(devices, out, "broadcast")
    return _filled(out, [tensor] * len(out)) if devices is None else tuple(tensor.to(_device(device)) for device in devices)


@no_grad()
def broadcast_coalesced(tensors, devices, buffer_size=10485760):
    """Copies of tensors on each device: a tuple of tensors for each."""
    return [tuple(tensor.to(_device(device)) for tensor in tensors) for device in devices]


@no_grad()
def reduce_add(inputs, destination=None):
    """The sum of tensors of one shape, on the destination or the first one's device."""
    device = inputs[0].device if destination is None else _device(destination)
    for at, tensor in enumerate(inputs):
        if tensor.shape != inputs[0].shape:
            raise ValueError(f"input {at} has invalid size: got {tuple(tensor.shape)}, but expected {tuple(inputs[0].shape)}")
    total = inputs[0].to(device)
    for tensor in inputs[1:]:
        total = total + tensor.to(device)
    return total


def reduce_add_coalesced(inputs, destination=None, buffer_size=10485760):
    """The sums of the devices' tensors, place by place."""
    return tuple(reduce_add(list(tensors), destination) for tensors in zip(*inputs))


@no_grad()
def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    """Pieces of a tensor along a dimension, one for each device."""
    _chosen(devices, out, "scatter")
    if devices is None:
        return _filled(out, tensor.split([target.shape[dim] for target in out], dim))
    devices = list(devices)
    pieces = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(piece.to(_device(device)) for piece, device in zip(pieces, devices))


@no_grad()
def gather(tensors, dim=0, destination=None, *, out=None):
    """Tensors of several devices as one, along a dimension: on the destination, or the first accelerator."""
    if out is not None:
        if destination is not None:
            raise RuntimeError(f"'destination' must not be specified when 'out' is specified, but got destination={destination} (in comm.gather)")
        return out.copy_(_C._torch.cat([tensor.to(out.device) for tensor in tensors], dim))
    device = _C.device("cuda") if destination is None else _device(destination)
    return _C._torch.cat([tensor.to(device) for tensor in tensors], dim)
