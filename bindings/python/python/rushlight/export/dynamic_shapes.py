"""Names of sizes that may change."""


class _Mark:
    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"Dim.{self._name}"


class Dim:
    """A size that may change: ``Dim("batch", min=1, max=64)``."""

    AUTO, STATIC, DYNAMIC = _Mark("AUTO"), _Mark("STATIC"), _Mark("DYNAMIC")

    def __init__(self, name, *, min=None, max=None):
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__, self.min, self.max = name, 0 if min is None else min, 2**63 - 1 if max is None else max
        if self.max <= self.min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")

    def __repr__(self):
        return f"Dim('{self.__name__}', min={self.min}, max={self.max})"


def dims(*names, min=None, max=None):
    """Several ``Dim``."""
    return tuple(Dim(name, min=min, max=max) for name in names)
