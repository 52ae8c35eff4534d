"""``load``."""

from __future__ import annotations

import io
from collections.abc import Mapping

from ... import _C
from ...serialization import load as _torch_load
from ...autograd.grad_mode import no_grad
from . import _parts
from ._ranks import Ranks
from ._save import _flat, _planner
from .filesystem import FileSystemReader
from .planner import DefaultLoadPlanner
from .stateful import Stateful


def _reader(storage_reader, checkpoint_id):
    if storage_reader is None:
        if checkpoint_id is None:
            raise RuntimeError("`checkpoint_id` must be specificed if storage_reader/storage_writer is None.")
        if not FileSystemReader.validate_checkpoint_id(checkpoint_id):
            raise NotImplementedError(f"checkpoint: '{checkpoint_id}' is no path of a folder; other storages are not supported")
        return FileSystemReader(checkpoint_id)
    if not isinstance(storage_reader, FileSystemReader):
        raise NotImplementedError(f"checkpoint: {type(storage_reader).__name__} is not supported; use FileSystemReader")
    storage_reader._reset(checkpoint_id)
    return storage_reader


def load(state_dict, *, checkpoint_id=None, storage_reader=None, planner=None, process_group=None, no_dist=False):
    """Reads a checkpoint into a state dict, in place: tensors into their memory, of a ``DTensor`` this rank's part; other values are replaced. Objects with
    a state get it by ``load_state_dict``. The checkpoint may come from any number of ranks, sharded in any way."""
    reader = _reader(storage_reader, checkpoint_id)
    states = {key: value.state_dict() if isinstance(value, Stateful) and not _parts.is_tensor(value) else value for key, value in state_dict.items()}
    _load(states, reader, _planner(planner, DefaultLoadPlanner), Ranks(process_group, no_dist))
    for key, value in list(state_dict.items()):
        if isinstance(value, Stateful) and not _parts.is_tensor(value):
            value.load_state_dict(states[key])
        else:
            state_dict[key] = states[key]


def load_state_dict(state_dict, storage_reader, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    """The old name of ``load``, for state dicts without objects."""
    _load(state_dict, _reader(storage_reader, None), _planner(planner, DefaultLoadPlanner), Ranks(process_group, no_dist, coordinator_rank))


def _load(states, reader, planner, ranks):
    values, paths = _flat(states, planner)

    def read():
        source = reader._open()
        known = {row[0]: row for row in source.rows()}
        for name, value in values.items():
            row = known.get(name)
            if row is None:
                if planner.allow_partial_load:
                    continue
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
            _, dtype, size, _, _ = row
            if not _parts.is_tensor(value):
                if dtype is None:
                    found = _torch_load(io.BytesIO(source.saved(name)), weights_only=True)
                else:
                    found = source.read(name, [0] * len(size), size)
                _set(states, paths[name], found)
                continue
            if dtype is None:
                raise RuntimeError(f"checkpoint: '{name}' is no tensor in the checkpoint")
            shape, local, offsets, _ = _parts.local_part(value)
            if list(shape) != list(size):
                raise ValueError(f"Size mismatch between saved {list(size)} and current: {list(shape)} for {name}")
            if local is None or not local.numel():
                continue
            with no_grad():
                local.detach().copy_(source.read(name, list(offsets), list(local.shape)))

    ranks.each("read", read)


def _set(container, path, value):
    """Replaces the value at a path; keys of names may be numbers."""
    for step in path[:-1]:
        container = container[_key(container, step)]
    if isinstance(container, tuple):
        raise TypeError(f"checkpoint: '{'.'.join(map(str, path))}' is in a tuple, which cannot be changed; use a list")
    container[_key(container, path[-1])] = value


def _key(container, step):
    if isinstance(container, Mapping) and step not in container:
        return next(key for key in container if str(key) == step)
    return step


def _load_all(folder):
    """The whole nested state dict of a checkpoint, with its paths."""
    source = _C._CheckpointReader(folder)
    paths, result = dict(source.paths()), {}
    for name, dtype, size, _, _ in source.rows():
        value = _torch_load(io.BytesIO(source.saved(name)), weights_only=True) if dtype is None else source.read(name, [0] * len(size), size)
        path = paths.get(name, [name])
        place = result
        for step, following in zip(path[:-1], path[1:]):
            empty = [] if isinstance(following, int) else {}
            if isinstance(place, list):
                while len(place) <= step:
                    place.append(None)
                if place[step] is None:
                    place[step] = empty
                place = place[step]
            else:
                place = place.setdefault(step, empty)
        if isinstance(place, list):
            while len(place) <= path[-1]:
                place.append(None)
        place[path[-1]] = value
    return result
