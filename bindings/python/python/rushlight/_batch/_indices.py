"""Batching rules of indices: ``x[...]``, assignments, ``gather``, ``scatter`` and their relatives."""

from .. import _C
from . import _INPLACE, _SHAPES, Batched, Tensor, _torch, level_of, made_shape, physical


def _rank(tensor):
    return tensor._rank if type(tensor) is Batched else len(made_shape(tensor))


def _dim(dim, count):
    most = max(count, 1)
    if not -most <= dim < most:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})")
    return dim % most + 1


def _entries(index, count):
    """An index as a list of one entry per dimension it uses or adds; ellipses are written out, lists and masks are indices."""
    index = list(index) if isinstance(index, tuple) else [index]
    listed = []
    for item in index:
        if isinstance(item, (list, range)):
            item = _C.tensor(list(item))
        if isinstance(item, Tensor) and type(item) is not Batched and not _rank(item) and not item.dtype == _C.bool:
            item = int(item)
        if isinstance(item, Tensor) and type(item) is not Batched and item.dtype in (_C.bool, _C.uint8) and _rank(item):
            listed.extend(item.nonzero(as_tuple=True) if hasattr(item, "nonzero") else ())
        else:
            listed.append(item)
    used = sum(1 for i in listed if not (i is None or i is Ellipsis or isinstance(i, bool)))
    at = next((k for k, i in enumerate(listed) if i is Ellipsis), None)
    if at is not None:
        listed[at:at + 1] = [slice(None)] * (count - used)
    return listed


def _joint(level, x, entries):
    """Indices with the batch as one more: views first, then tensors. Returns the view, one entry per dimension, and where the results belong."""
    value = level.value(x)
    dim, made = 1, []
    for item in entries:
        if item is None:
            value = value.unsqueeze(dim)
            made.append(None)
            dim += 1
        elif isinstance(item, slice):
            value = value[(slice(None),) * dim + (item,)] if item != slice(None) else value
            made.append(None)
            dim += 1
        elif isinstance(item, int) and not isinstance(item, bool):
            value = value.select(dim, item)
        elif isinstance(item, Tensor):
            made.append(item)
            dim += 1
        else:
            raise IndexError(f"vmap: an index of type {type(item).__name__} is not supported")
    most = max(_rank(item) for item in made if item is not None)
    # A tensor without dimensions selects: it does not keep others apart.
    places = [k for k, item in enumerate(item for item in made if item is None or _rank(item)) if item is not None]
    first = _torch.arange(level.size).to(value.device).reshape(level.size, *[1] * most)
    index = [first]
    for item in made:
        index.append(slice(None) if item is None else level.aligned(item, most))
    adjacent = bool(places) and places == list(range(places[0], places[-1] + 1))
    return value, tuple(index), most, (places[0] if adjacent else 0)


def _has_tensors(entries):
    return any(isinstance(item, Tensor) for item in entries)


def _refuse_masks(level, entries):
    if any(level.has(item) and item.dtype in (_C.bool, _C.uint8) for item in entries):
        raise RuntimeError(_SHAPES.format("indexing with a mask"))


def getitem(level, func, x, index):
    entries = _entries(index, _rank(x))
    _refuse_masks(level, entries)
    if any(isinstance(item, bool) for item in entries):
        return level.loop(func, (x, index), {})
    if not _has_tensors(entries) or level.has(x) and not any(level.has(e) for e in entries) and _is_simple(entries):
        return level.wrap(x._value[(slice(None), *entries)])
    value, index, most, start = _joint(level, x, entries)
    made = value[index]
    # With the batch as first index the results of indices come first.
    if start and most:
        made = made.movedim(list(range(1, most + 1)), list(range(start + 1, start + most + 1)))
    return level.wrap(made)


def _is_simple(entries):
    places = [k for k, item in enumerate(entries) if isinstance(item, Tensor)]
    return places == list(range(places[0], places[-1] + 1))


def setitem(level, func, x, index, source):
    if not level.has(x):
        raise RuntimeError(
            "vmap: x[index] = value: x is not batched and the index or the value is; make x inside the function from a batched tensor (new_zeros, zeros_like), or use where"
        )
    entries = _entries(index, x._rank)
    if len(entries) == 1 and level.has(entries[0]) and entries[0].dtype == _C.bool:
        with level:
            source = source if isinstance(source, Tensor) else _C.tensor(source, dtype=x.dtype)
            if _rank(source):
                raise RuntimeError(_SHAPES.format("indexing with a mask"))
            mask = entries[0].reshape(*made_shape(entries[0]), *[1] * (x._rank - _rank(entries[0])))
            x.copy_(_torch.where(mask, source.to(x.dtype), x))
        return None
    _refuse_masks(level, entries)
    if not _has_tensors(entries):
        target = x._value[(slice(None), *entries)]
        target.copy_(level.aligned(source, len(made_shape(target)) - 1)) if isinstance(source, Tensor) else target.fill_(source)
        return None
    _write(level, x, entries, source, False)
    return None


def _write(level, x, entries, source, accumulate):
    value, index, most, start = _joint(level, x, entries)
    shape = made_shape(value[index])
    source = source if isinstance(source, Tensor) else _C.tensor(source, dtype=x.dtype, device=x.device)
    logical = list(shape[1:])
    if start and most:
        logical = logical[most:most + start] + logical[:most] + logical[most + start:]
    source = level.aligned(source, len(logical)).expand(level.size, *logical)
    if start and most:
        source = source.movedim(list(range(start + 1, start + most + 1)), list(range(1, most + 1)))
    value.index_put_(list(index), source, accumulate)


def put(level, x, indices, values, accumulate):
    """``x.index_put_(indices, values)``."""
    entries = [slice(None) if i is None else i for i in indices]
    if len(entries) == 1 and level.has(entries[0]) and entries[0].dtype == _C.bool and not accumulate:
        setitem(level, None, x, entries[0], values)
        return x
    entries = _entries(tuple(entries), x._rank)
    _refuse_masks(level, entries)
    _write(level, x, entries, values, accumulate)
    return x


def _select(level, func, x, dim, index):
    dim = _dim(dim, x._rank)
    if isinstance(index, Tensor):
        return level.loop(func, (x, dim - 1, index), {})
    return level.wrap(x._value.select(dim, index))


def _narrow(level, func, x, dim, start, length):
    if level.has(start):
        return level.loop(func, (x, dim, start, length), {})
    return level.wrap(func(x._value, _dim(dim, x._rank), start, length))


def _index_select(level, func, x, dim, index):
    dim = _dim(dim, _rank(x)) - 1
    if _rank(x) == 0:
        return level.loop(func, (x, dim, index), {})
    if not level.has(index):
        return level.wrap(_torch.index_select(x._value, dim + 1, index))
    with level:
        index = index.unsqueeze(0) if _rank(index) == 0 else index
        return x[(slice(None),) * dim + (index,)]


def _gather(level, func, x, dim, index, **kwargs):
    if _rank(x) == 0:
        return level.loop(func, (x, dim, index), kwargs)
    return level.wrap(_torch.gather(level.value(x), _dim(dim, _rank(x)), level.value(index), **kwargs))


def _take_along_dim(level, func, x, indices, dim=None):
    if dim is None:
        with level:
            return _torch.gather(x.reshape(-1), 0, indices.reshape(-1))
    return level.wrap(func(level.value(x), level.value(indices), _dim(dim, _rank(x))))


def _scattered(level, func, x, dim, index, source=None, *args, **kwargs):
    source = kwargs.pop("src", source)
    if "value" in kwargs:
        source = kwargs.pop("value")
    in_place = getattr(func, "__name__", "").endswith("_")
    if in_place and not level.has(x):
        raise RuntimeError(f"vmap: {func.__name__}: the tensor that is changed is not batched, an argument is; use the function without the underscore")
    if _rank(x) == 0 or isinstance(index, Tensor) and _rank(index) == 0:
        return level.loop(func, (x, dim, index, source, *args), kwargs)
    source = level.value(source) if isinstance(source, Tensor) and _rank(source) else source._value.reshape(-1) if level.has(source) else source
    if isinstance(source, Tensor) and len(made_shape(source)) == 1 and made_shape(source) != made_shape(level.value(index)):
        source = source.reshape(level.size, *[1] * _rank(index)).expand(made_shape(level.value(index)))
    made = func(level.value(x), _dim(dim, _rank(x)), level.value(index), source, *args, **kwargs)
    return x if in_place else level.wrap(made)


def _indexed(level, func, x, dim, index, source=None, *args, **kwargs):
    """``index_add`` and its like: one index for all elements runs at once, several one by one."""
    source = kwargs.pop("value", kwargs.pop("tensor", source))
    in_place = getattr(func, "__name__", "").endswith("_")
    if in_place and not level.has(x):
        raise RuntimeError(f"vmap: {func.__name__}: the tensor that is changed is not batched, an argument is; use the function without the underscore")
    if level.has(index) or _rank(x) == 0 or isinstance(source, Tensor) and _rank(source) == 0:
        return level.loop(func, (x, dim, index, source, *args), kwargs)
    source = level.value(source) if isinstance(source, Tensor) else source
    made = func(level.value(x), _dim(dim, _rank(x)), index, source, *args, **kwargs)
    return x if in_place else level.wrap(made)


def _last(size, stride, offset):
    """The place of the last element in memory, or None."""
    return None if 0 in size else offset + sum((n - 1) * step for n, step in zip(size, stride))


def _as_strided(level, func, x, size, stride, storage_offset=None):
    """Offsets count from the first element's memory; a view of an element must lie in its own."""
    size, stride = list(size), list(stride)
    if len(size) != len(stride):
        raise RuntimeError("Tensor.as_strided(size, stride, ...): size and stride must have the same length!")
    (step, *own), start = physical(x._value)
    offset = start if storage_offset is None else storage_offset
    last, allowed = _last(size, stride, offset), _last(made_shape(x), own, start)
    if offset < start or last is not None and (allowed is None or last > allowed):
        raise RuntimeError(
            f"vmap: as_strided({size}, {stride}, {storage_offset}) reaches memory outside of the element's own, of size {list(made_shape(x))} and strides {own}. "
            "This is not supported inside of vmap; use other views"
        )
    return level.wrap(_torch.as_strided(x._value, [level.size, *size], [step, *stride], offset))


def new_empty_strided(level, x, size, stride, **kwargs):
    """Every element has the strides given, in memory of its own."""
    place = _last(list(size), list(stride), 0)
    return level.wrap(x._value.new_empty_strided([level.size, *size], [0 if place is None else place + 1, *stride], **kwargs))


def _repeat_interleave(level, func, *args, output_size=None, **kwargs):
    """Results of one size: of the same repeats, or of as many elements as ``output_size`` says."""
    repeats = kwargs.get("repeats", args[1] if len(args) > 1 and (isinstance(args[1], Tensor) or not isinstance(args[0], Tensor)) else args[0])
    if level.mentions(repeats) and output_size is None:
        raise RuntimeError("vmap: repeat_interleave of batched repeats has results of sizes that depend on values; pass output_size")
    if output_size is not None:
        kwargs["output_size"] = output_size
    return level.loop(func, args, kwargs)


def _combinations(level, func, x, r=2, with_replacement=False):
    if _rank(x) != 1:
        raise RuntimeError(f"combinations: expected a tensor with one dimension, got {_rank(x)}")
    places = _torch.arange(made_shape(x)[0], device=x.device)
    return level.wrap(x._value[:, func(places, r, with_replacement)])


def _take(level, func, x, index):
    with level:
        return x.reshape(-1)[index]


def _index_put(level, func, x, indices, values, accumulate=False):
    if not func.__name__.endswith("_"):
        x = Batched(level.value(x).clone(), level)
    elif not level.has(x):
        raise RuntimeError(_INPLACE.format("index_put_"))
    return put(level, x, indices, values, accumulate)


def put_at_any_level(x, indices, values, accumulate, in_place):
    """``index_put`` at the innermost level of its tensors, or None outside of ``vmap``."""
    level = level_of((x, indices, values))
    return None if level is None else _index_put(level, Tensor.index_put_ if in_place else Tensor.index_put, x, indices, values, accumulate)


RULES = {
    "repeat_interleave": _repeat_interleave, "combinations": _combinations, "index_put": _index_put, "index_put_": _index_put,
    "__getitem__": getitem, "__setitem__": setitem, "select": _select, "narrow": _narrow, "narrow_copy": _narrow, "index_select": _index_select,
    "gather": _gather, "take_along_dim": _take_along_dim, "take": _take, "as_strided": _as_strided,
    **{name: _scattered for name in ("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_")},
    **{name: _indexed for name in ("index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_", "index_reduce", "index_reduce_")},
}
