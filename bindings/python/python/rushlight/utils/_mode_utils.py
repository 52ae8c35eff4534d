"""Contexts without modes."""

from .._dispatch import disabled as no_dispatch  # noqa: F401


def all_same(items):
    """Whether all items are one object."""
    return all(item is items[0] for item in items[1:])


all_same_mode = all_same
