"""Tensors in files, mapped into memory: offloading to the device that DeepSpeed calls nvme. The system writes to the disk what does not fit in memory."""

import os
import tempfile

import rushlight as torch

from ..optim.optimizer import _ByFormula
from ..storage import UntypedStorage

#: Bytes of the first file and the most of a later one, if no tensor is larger. Tensors begin at multiples of a page.
_FIRST, _MOST, _PAGE = 1 << 24, 1 << 30, 4096
#: A tensor of fewer bytes stays in memory.
_SMALL = 4096


class Files:
    """Room for tensors in a folder. The files have no names: they are gone when their process is."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self._folder, self._storage, self._used, self._next = folder, None, 0, _FIRST
        self._held = set()

    def zeros(self, shape, dtype):
        """A tensor in a file."""
        like = torch.empty(shape, dtype=dtype, device="meta")
        size = like.numel() * dtype.itemsize
        if self._storage is None or self._used + size > self._storage.nbytes():
            self._storage, self._used = self._file(max(size, self._next)), 0
            self._next = min(2 * self._next, _MOST)
        made = torch.empty(0, dtype=dtype)
        made.set_(self._storage, self._used // dtype.itemsize, tuple(shape), like.stride())
        self._used += -(-size // _PAGE) * _PAGE
        self._held.add(made.data_ptr())
        return made

    def holds(self, tensor):
        """Whether a tensor is in a file already; a small one need not be."""
        return tensor.numel() * tensor.dtype.itemsize < _SMALL or tensor.data_ptr() in self._held

    def hold(self, tensor):
        """A copy of a tensor in a file, or the tensor if it is in one."""
        if self.holds(tensor):
            return tensor
        with torch.no_grad():
            return self.zeros(tensor.shape, tensor.dtype).copy_(tensor.detach())

    def _file(self, size):
        descriptor, name = tempfile.mkstemp(prefix="rushlight-", suffix=".state", dir=self._folder)
        try:
            # Takes the room now: a disk that is full later would end the process.
            os.posix_fallocate(descriptor, 0, size)
            return UntypedStorage.from_file(name, True, size)
        finally:
            os.close(descriptor)
            os.unlink(name)


def step(optimizer, files):
    """A step of an optimizer whose states are in files. States that are new are made and moved one parameter at a time: together they may not fit."""
    groups = optimizer.param_groups
    new = [(i, p) for i, group in enumerate(groups) for p in group["params"] if p.grad is not None and not optimizer.state.get(p)]
    if new and not isinstance(optimizer, _ByFormula):
        raise ValueError(f"deepspeed: offloading the states of {type(optimizer).__name__} to files is not supported; use an optimizer of torch.optim such as AdamW, or the device 'cpu'")
    if not new:
        optimizer.step()
        return
    every = [group["params"] for group in groups]
    fresh = {id(p) for _, p in new}
    try:
        for i, p in new:
            for j, group in enumerate(groups):
                group["params"] = [p] if i == j else []
            optimizer.step()
            optimizer.state[p] = {name: files.hold(value) if isinstance(value, torch.Tensor) else value for name, value in optimizer.state[p].items()}
        rest = [[p for p in params if id(p) not in fresh] for params in every]
        if any(rest):
            for group, params in zip(groups, rest):
                group["params"] = params
            optimizer.step()
    finally:
        for group, params in zip(groups, every):
            group["params"] = params
