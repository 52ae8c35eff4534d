"""``torch.Size``: a tuple of sizes."""


class Size(tuple):
    """The sizes of a tensor's dimensions, a tuple of integers."""

    __slots__ = ()
    __module__ = "rushlight"

    def numel(self):
        """The number of elements of a tensor of these sizes."""
        count = 1
        for size in self:
            count *= size
        return count

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"

    __str__ = __repr__

    def __getitem__(self, index):
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other):
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other):
        # A list must stay a list: `list += size` would otherwise call this method.
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times):
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __reduce__(self):
        return Size, (tuple(self),)
