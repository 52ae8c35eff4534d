"""``torch.classes``: classes that C++ libraries of TorchScript register. There are none here; libraries of ops can be loaded."""

from ._ops import ops

__all__ = ["classes"]


class _Namespace:
    """Classes of one namespace."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"Tried to instantiate class '{self.name}.{name}', but it does not exist: classes of TorchScript cannot be registered here")


class _Classes:
    """``torch.classes`` itself."""

    __name__, __file__ = "torch.classes", "_classes.py"
    loaded_libraries = property(lambda self: ops.loaded_libraries)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Namespace(name)
        setattr(self, name, made)
        return made

    def load_library(self, path):
        """``torch.ops.load_library``."""
        ops.load_library(path)

    def __repr__(self):
        return "<torch.classes>"


classes = _Classes()
