"""Modules called with other tensors in place of their own."""

from __future__ import annotations

import contextlib
import warnings

from ... import _C

__all__ = ["functional_call"]

Tensor = _C.Tensor
#: In place of a tensor that a module does not have.
_MISSING = object()


def _untie_named_tensors_map(module, given: dict) -> dict:
    """``given`` extended by the other names of tensors that a module has under several names."""
    names: dict = {}
    for members in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in members:
            names.setdefault(id(tensor), []).append(name)
    made = dict(given)
    for same in names.values():
        values = {id(given[name]): given[name] for name in same if name in given}
        if len(values) > 1:
            raise ValueError(f"functional_call got multiple values for keys {sorted(same)}, which are tied. Consider using tie_weights=False")
        for value in values.values():
            made.update((name, value) for name in same)
    return made


def _submodule(module, path: str):
    for part in path.split(".") if path else ():
        if not hasattr(module, part):
            raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
        module = getattr(module, part)
    return module


def _swap(module, name: str, tensor):
    """Puts a tensor, or nothing, in the place of a name; returns what was there."""
    path, _, name = name.rpartition(".")
    owner = _submodule(module, path)
    for kept in (owner._parameters, owner._buffers):
        if name in kept:
            before = kept[name]
            if tensor is _MISSING:
                del kept[name]
            else:
                kept[name] = tensor
            return before
    before = getattr(owner, name, _MISSING)
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(owner, name, tensor)
    elif before is not _MISSING:
        delattr(owner, name)
    return before


@contextlib.contextmanager
def _reparametrize_module(module, parameters_and_buffers: dict, tie_weights: bool = False, strict: bool = False, stack_weights: bool = False):
    """A module with other tensors for the block. What the module puts in their places stands in ``parameters_and_buffers`` then."""
    given = _untie_named_tensors_map(module, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    if strict:
        own = {name for members in (module.named_parameters, module.named_buffers) for name, _ in members(remove_duplicate=False)}
        kinds = ("Unexpected", given.keys() - own), ("Missing", own - given.keys())
        wrong = [f"{kind} key(s): {', '.join(map(repr, sorted(keys)))}." for kind, keys in kinds if keys]
        if wrong:
            raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(wrong))
    for value in given.values():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"{value} is not an instance of torch.Tensor")
    before: dict = {}
    try:
        for name, tensor in given.items():
            before[name] = _swap(module, name, tensor)
        yield
    finally:
        after = {name: _swap(module, name, tensor) for name, tensor in (reversed(before.items()) if stack_weights else before.items())}
        parameters_and_buffers.update({name: after[name] for name in parameters_and_buffers if name in after})


def _functional_call(module, parameters_and_buffers: dict, args=None, kwargs=None, *, tie_weights: bool = True, strict: bool = False):
    from ..parallel import DataParallel

    if isinstance(module, DataParallel):
        raise RuntimeError("The stateless API can't be used with nn.DataParallel module")
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


def functional_call(module, parameters_and_buffers: dict, args=None, kwargs=None, *, tie_weights: bool = True, strict: bool = False):
    """The old name of ``torch.func.functional_call``, for a single dict."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future version of PyTorch. Please use "
        "`torch.func.functional_call` instead which is a drop-in replacement.", FutureWarning, stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
