"""Collating samples to batches."""

import collections.abc
import copy
import re

from .... import _C

Tensor = _C.Tensor

_FOUND = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"

#: NumPy's dtypes of strings and objects, which are not collated.
np_str_obj_array_pattern = re.compile(r"[SaUO]")


def _is_numpy(value):
    return type(value).__module__ == "numpy"


def _numpy_text(dtype):
    return dtype.kind in "SUO"


def default_convert(data):
    """Converts NumPy arrays inside to tensors; everything else is unchanged."""
    if isinstance(data, Tensor):
        return data
    if _is_numpy(data):
        if type(data).__name__ == "ndarray" and _numpy_text(data.dtype):
            return data
        return _C.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _rebuilt(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt(data, [default_convert(d) for d in data])
    return data


def _rebuilt(model, items):
    """Items in a container like ``model``, or unchanged if such a container cannot be made."""
    try:
        if isinstance(model, collections.abc.MutableMapping) or isinstance(model, collections.abc.MutableSequence):
            clone = copy.copy(model)
            if isinstance(items, dict):
                clone.update(items)
            else:
                clone[:] = items
            return clone
        return type(model)(items)
    except TypeError:
        return items


def collate(batch, *, collate_fn_map=None):
    """A batch from a list of samples, by functions for the types of their elements."""
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for known, function in collate_fn_map.items():
            if isinstance(first, known):
                return function(batch, collate_fn_map=collate_fn_map)
        if _is_numpy(first) and Tensor in collate_fn_map:
            return _collate_numpy(batch, first, collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        return _rebuilt(first, {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)))
    if isinstance(first, collections.abc.Sequence):
        count = len(first)
        if any(len(sample) != count for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)]
        return columns if isinstance(first, tuple) else _rebuilt(first, columns)
    raise TypeError(_FOUND.format(kind))


def _collate_tensors(batch, *, collate_fn_map=None):
    return _C._torch.stack(list(batch), 0)


def _collate_numpy(batch, first, collate_fn_map):
    if type(first).__name__ == "ndarray":
        if _numpy_text(first.dtype):
            raise TypeError(_FOUND.format(first.dtype))
        return collate([_C.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)
    # NumPy's scalars keep their dtype.
    import numpy

    return _C.as_tensor(numpy.asarray(batch, dtype=first.dtype))


def _collate_floats(batch, *, collate_fn_map=None):
    return _C.tensor(list(batch), dtype=_C.float64)


def _collate_ints(batch, *, collate_fn_map=None):
    return _C.tensor(list(batch))


def _collate_text(batch, *, collate_fn_map=None):
    return batch


default_collate_fn_map = {
    Tensor: _collate_tensors, float: _collate_floats, int: _collate_ints, str: _collate_text, bytes: _collate_text,
}


def default_collate(batch):
    """Samples as a batch: tensors stacked, numbers as tensors, dicts and lists element by element.

    >>> from rushlight.utils.data import default_collate
    >>> default_collate([(1, 2.0), (3, 4.0)])
    [tensor([1, 3]), tensor([2., 4.], dtype=torch.float64)]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
