"""Parameters and buffers of modules by their paths, for libraries that exchange them."""

from ... import _C

_MISSING = object()


def swap_tensor(module, name, tensor, allow_missing=False):
    """Puts a tensor (None removes it) in the place of a parameter, buffer or attribute, and returns what was there."""
    if "." in name or not name:
        raise KeyError(f"tensor name must be a name without dots, got {name!r}")
    for table in (module._parameters, module._buffers):
        if name in table:
            before = table[name]
            if tensor is None:
                del table[name]
            else:
                table[name] = tensor
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING:
        if not allow_missing:
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    elif not isinstance(before, _C.Tensor) and before is not None:
        raise TypeError(f"{module._get_name()}.{name} is not a tensor: {before!r}")
    if tensor is None:
        if before is not _MISSING:
            delattr(module, name)
    else:
        setattr(module, name, tensor)
    return None if before is _MISSING else before
