"""Sizes given as one number or one per dimension."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat


def _ntuple(n: int, name: str = "parse"):
    def parse(x):
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple, n: int) -> tuple:
    """The elements from last to first, each ``n`` times: sizes by dimension in the form of ``pad``."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _settings(module, *names: str) -> str:
    """``name=value`` of a module's attributes, for ``extra_repr``."""
    return ", ".join(f"{name}={getattr(module, name)}" for name in names)


def consume_prefix_in_state_dict_if_present(state_dict: dict, prefix: str) -> None:
    """Removes a prefix (``"module."`` of ``DataParallel``) from the names of a state dict, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            if key and (key + ".").startswith(prefix):
                metadata[key[len(prefix) :] if key.startswith(prefix) else ""] = metadata.pop(key)
