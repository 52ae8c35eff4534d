"""Named tuples that functions return, such as ``torch.return_types.max``."""

_classes = {}


def of(name, fields):
    """The class of a function's results, created on first use."""
    found = _classes.get(name)
    if found is None:
        from collections import namedtuple

        base = namedtuple(name, fields)

        def make(cls, values, *rest):
            # The values in a sequence, as PyTorch has it, or one after the other, as named tuples have.
            return tuple.__new__(cls, (values, *rest) if rest else values)

        def show(self):
            return f"torch.return_types.{name}(\n" + ",\n".join(f"{f}={v!r}" for f, v in zip(self._fields, self)) + ")"

        def reduce(self):
            return _rebuild, (name, fields, tuple(self))

        found = type(name, (base,), {"__slots__": (), "__new__": make, "__repr__": show, "__reduce__": reduce, "__module__": __name__})
        _classes[name] = found
        globals()[name] = found
    return found


def _rebuild(name, fields, values):
    return of(name, fields)(values)
