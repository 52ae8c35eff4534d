"""``save`` and ``async_save``."""

from __future__ import annotations

import dataclasses
import enum
import io
import os
import secrets
from concurrent.futures import Future, ThreadPoolExecutor

from ... import _C
from ...serialization import save as _torch_save
from . import _parts
from ._ranks import Ranks
from .filesystem import FileSystemWriter
from .hf_storage import HuggingFaceStorageWriter
from .metadata import _from_rows
from .planner import DefaultSavePlanner


class AsyncCheckpointerType(enum.Enum):
    """How ``async_save`` runs: a thread."""

    THREAD = "thread"
    PROCESS = "process"


@dataclasses.dataclass
class AsyncSaveResponse:
    """Futures of the copy and of the checkpoint."""

    staging_completion: Future
    upload_completion: Future


def _writer(storage_writer, checkpoint_id):
    if storage_writer is None:
        if checkpoint_id is None:
            raise RuntimeError("`checkpoint_id` must be specificed if storage_reader/storage_writer is None.")
        if not FileSystemWriter.validate_checkpoint_id(checkpoint_id):
            raise NotImplementedError(f"checkpoint: '{checkpoint_id}' is no path of a folder; other storages are not supported")
        return FileSystemWriter(checkpoint_id)
    if not isinstance(storage_writer, FileSystemWriter):
        raise NotImplementedError(f"checkpoint: {type(storage_writer).__name__} is not supported; use FileSystemWriter")
    storage_writer._reset(checkpoint_id)
    return storage_writer


def _planner(planner, default):
    if planner is None:
        return default()
    if type(planner) is not default:
        raise NotImplementedError(f"checkpoint: planner {type(planner).__name__} is not supported; use {default.__name__}")
    return planner


def _flat(state_dict, planner):
    if planner.flatten_state_dict:
        return _parts.flatten(state_dict)
    return dict(state_dict), {name: (name,) for name in state_dict}


def _dumped(value):
    stream = io.BytesIO()
    _torch_save(value, stream)
    return stream.getvalue()


def save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, no_dist=False, use_collectives=True):
    """Writes a checkpoint: of ``DTensor``s each rank its own parts, of other values one rank. It becomes valid at once, when all ranks have written."""
    if not use_collectives:
        raise NotImplementedError("checkpoint.save: use_collectives=False is not supported")
    writer = _writer(storage_writer, checkpoint_id)
    return _save(_parts.of_stateful(state_dict), writer, _planner(planner, DefaultSavePlanner), Ranks(process_group, no_dist))


def save_state_dict(state_dict, storage_writer, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    """The old name of ``save``."""
    return _save(dict(state_dict), _writer(storage_writer, None), _planner(planner, DefaultSavePlanner), Ranks(process_group, no_dist, coordinator_rank))


def _save_safetensors(values, writer, ranks):
    """Writes Hugging Face's files: one rank makes them, every rank writes its parts into them, one gives them their names."""
    others = [name for name, value in values.items() if not _parts.is_tensor(value)]
    if others:
        raise ValueError(f"HuggingFaceStorageWriter: safetensors hold tensors only; {others[:5]} are none")

    def describe():
        found = []
        for name, value in values.items():
            shape, local, _, first = _parts.local_part(value)
            if local is not None:
                found.append((name, str(local.dtype).rpartition(".")[2], list(shape), first, local.numel() * local.element_size()))
        return found

    described, owners = {}, [{} for _ in range(ranks.size)]
    for rank, one in enumerate(ranks.each("plan", describe)):
        for name, dtype, shape, first, size in one:
            if described.setdefault(name, (name, dtype, shape)) != (name, dtype, shape):
                raise ValueError(f"checkpoint: ranks disagree about '{name}'")
            owners[rank][name] = size if first is None else (None if first else False)
    plan = writer._plan(list(described.values()))
    mine = _assigned(owners, ranks.rank, False)
    ranks.one("prepare", lambda: plan.create(writer.path))

    def write():
        for name, value in values.items():
            if name in mine:
                _, local, offsets, _ = _parts.local_part(value)
                plan.write(writer.path, name, list(offsets), local.detach())

    ranks.each("write", write)
    ranks.one("commit", lambda: plan.commit(writer.path))
    rows = [(name, dtype, shape, False, [([0] * len(shape), shape, None)]) for name, dtype, shape in described.values()]
    return _from_rows(rows, [(name, [name]) for name in described], writer.path)


def _save(state_dict, writer, planner, ranks):
    values, paths = _flat(state_dict, planner)
    if isinstance(writer, HuggingFaceStorageWriter):
        return _save_safetensors(values, writer, ranks)

    def plan():
        """Names with sizes of what every rank has; those that are written by their owners have no size."""
        return {name: _owned(value) for name, value in values.items()}

    plans = ranks.each("plan", plan)
    mine = _assigned(plans, ranks.rank, planner.dedup_save_to_lowest_rank)

    def prepare():
        writer._prepare()
        # A folder that holds a valid checkpoint keeps its files until the new one is valid.
        return secrets.token_hex(4) if os.path.exists(os.path.join(writer.path, ".metadata")) else None

    token = ranks.one("prepare", prepare)
    file = writer._file(ranks.rank, token)

    def write():
        parts = []
        for name, value in values.items():
            if name not in mine:
                continue
            if _parts.is_tensor(value):
                shape, local, offsets, _ = _parts.local_part(value)
                if local is not None and (local.numel() or not value.numel()):
                    parts.append((name, local.detach(), list(shape), list(offsets)))
            else:
                parts.append((name, _dumped(value)))
        return _C._checkpoint_write(writer.path, file, parts) if parts else []

    rows = ranks.each("write", write)
    all_paths = ranks.each("paths", lambda: [(name, list(path)) for name, path in paths.items()]) if ranks.size > 1 else [[(n, list(p)) for n, p in paths.items()]]

    def commit():
        known = {}
        for one in all_paths:
            for name, path in one:
                known.setdefault(name, path)
        _C._checkpoint_commit(writer.path, rows, list(known.items()))
        keep = {place[0] for one in rows for *_, chunks in one for _, _, place in chunks if place}
        writer._replaced(keep)
        return None

    ranks.one("commit", commit)
    merged = {}
    for name, dtype, size, requires_grad, chunks in (row for one in rows for row in one):
        known = merged.setdefault(name, (name, dtype, size, requires_grad, []))
        known[4].extend(chunks)
    return _from_rows(list(merged.values()), [(n, p) for one in all_paths for n, p in one], writer.path)


def _owned(value):
    """The bytes of a value that any rank may write; None for one that this rank must write; False for one that it must not."""
    if not _parts.is_tensor(value):
        return 1024
    _, local, _, first = _parts.local_part(value)
    if first is None:
        return local.numel() * local.element_size()
    return None if first else False


def _assigned(plans, rank, to_lowest):
    """The names that a rank writes: its own parts, and its share of what every rank has, the largest first to the rank with the least."""
    load, mine, common = [0] * len(plans), set(), {}
    for i, plan in enumerate(plans):
        for name, size in plan.items():
            if size is None:
                load[i] += 1
                if i == rank:
                    mine.add(name)
            elif size is not False:
                common.setdefault(name, (size, []))[1].append(i)
    for name, (size, holders) in sorted(common.items(), key=lambda item: (-item[1][0], item[0])):
        best = holders[0] if to_lowest else min(holders, key=lambda i: (load[i], i))
        load[best] += size
        if best == rank:
            mine.add(name)
    return mine


def _copied(value):
    """A copy in the CPU's memory, which training does not change."""
    if _parts.is_distributed(value):
        return _Copy(value)
    if isinstance(value, _C.Tensor):
        copy = value.detach()
        return copy.clone() if copy.device.type == "cpu" else copy.cpu()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item) for item in value)
    return value


class _Copy:
    """A copy of this rank's part of a ``DTensor``."""

    def __init__(self, tensor):
        self.placements, self.device_mesh, self.shape = tensor.placements, tensor.device_mesh, tensor.shape
        self._local = _copied(tensor.to_local())

    def to_local(self):
        return self._local

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count


_executor = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")


def async_save(
    state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, async_checkpointer_type=AsyncCheckpointerType.THREAD,
    async_stager=None, no_dist=False, use_collectives=True,
):
    """Copies the state and writes it in a thread; returns a future of the metadata. Ranks agree by ``process_group``, which nothing else may use
    meanwhile: give it a group of its own (``new_group``). Without one it is made on the first call, which all ranks must then reach."""
    if not use_collectives:
        raise NotImplementedError("checkpoint.async_save: use_collectives=False is not supported")
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD:
        raise NotImplementedError("checkpoint.async_save: a separate process is not supported; use AsyncCheckpointerType.THREAD")
    if async_stager is not None:
        raise NotImplementedError("checkpoint.async_save: async_stager is not supported; the state is copied to the CPU's memory")
    writer, planner = _writer(storage_writer, checkpoint_id), _planner(planner, DefaultSavePlanner)
    staged = _copied(_parts.of_stateful(state_dict))
    ranks = Ranks(process_group if process_group is not None else _own_group(no_dist), no_dist)
    return _executor.submit(_save, staged, writer, planner, ranks)


_groups = {}


def _own_group(no_dist):
    """A group for saving in the background, one for each default group."""
    from .. import _group

    if no_dist or not _group.is_initialized():
        return None
    default = _group._resolve(None)
    if _groups.get("default") is not default:
        _groups.update(default=default, own=_group.new_group())
    return _groups["own"]
