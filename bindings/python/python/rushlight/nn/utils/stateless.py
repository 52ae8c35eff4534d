"""Modules called with other tensors in place of their own."""

from __future__ import annotations

from ... import _C

__all__ = ["functional_call"]

Tensor = _C.Tensor


def _tied(module, given: dict) -> dict:
    """``given`` extended by the other names of tensors that a module has under several names."""
    names: dict = {}
    for members in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in members:
            names.setdefault(id(tensor), []).append(name)
    made = dict(given)
    for same in names.values():
        values = {id(given[name]): given[name] for name in same if name in given}
        if len(values) > 1:
            keys = sorted(name for name in same if name in given)
            raise ValueError(f"functional_call got multiple values for keys {keys}, which are tied. Consider using tie_weights=False")
        for value in values.values():
            made.update((name, value) for name in same)
    return made


def functional_call(
    module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights: bool = True, strict: bool = False
):
    """Calls a module with these parameters and buffers (a dict, or several) instead of its own.

    >>> import rushlight as torch
    >>> layer = torch.nn.Linear(1, 1)
    >>> functional_call(layer, {"weight": torch.tensor([[2.0]]), "bias": torch.zeros(1)}, torch.tensor([3.0]))
    tensor([6.])
    """
    if isinstance(parameters_and_buffers, (list, tuple)):
        merged: dict = {}
        for part in parameters_and_buffers:
            repeated = merged.keys() & part.keys()
            if repeated:
                raise ValueError(f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call is ambiguous")
            merged.update(part)
        parameters_and_buffers = merged
    if not isinstance(parameters_and_buffers, dict):
        raise ValueError(f"Expected parameters_and_buffers to be a dict, or a list/tuple of dicts, but got {type(parameters_and_buffers)}")
    given = _tied(module, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    own = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    own |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    unexpected, missing = given.keys() - own, own - given.keys()
    if strict and (unexpected or missing):
        parts = [f"{kind} key(s): {', '.join(sorted(keys))}." for kind, keys in (("Unexpected", unexpected), ("Missing", missing)) if keys]
        raise RuntimeError("Error(s) in calling functional_call: " + " ".join(parts))
    places = []
    for name, tensor in given.items():
        if name in unexpected:
            raise AttributeError(f"functional_call: {type(module).__name__} has no parameter or buffer '{name}'")
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        kept = owner._parameters if leaf in owner._parameters else owner._buffers
        places.append((kept, leaf, kept[leaf], tensor))
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for kept, leaf, _, tensor in places:
            kept[leaf] = tensor
        return module(*args, **(kwargs or {}))
    finally:
        for kept, leaf, original, tensor in places:
            kept[leaf] = original
