"""``torch.utils._ordered_set``: a set that keeps the order of its elements."""

from collections.abc import MutableSet


class OrderedSet(MutableSet):
    """A set whose elements are in the order in which they were added."""

    def __init__(self, iterable=None):
        self._dict = dict.fromkeys(iterable or ())

    def __contains__(self, item):
        return item in self._dict

    def __iter__(self):
        return iter(self._dict)

    def __reversed__(self):
        return reversed(self._dict)

    def __len__(self):
        return len(self._dict)

    def add(self, item):
        self._dict[item] = None

    def discard(self, item):
        self._dict.pop(item, None)

    def update(self, *others):
        """Adds the elements of others."""
        for other in others:
            self._dict.update(dict.fromkeys(other))

    def copy(self):
        return OrderedSet(self)

    def __repr__(self):
        return f"OrderedSet({list(self)})"
