"""Images: the package that PyTorch programs import as ``torchvision``."""

from .._version import vision_version as __version__  # noqa: F401

_MODULES = frozenset("datasets io models ops transforms utils".split())


def __getattr__(name):
    if name in _MODULES:
        import importlib

        return importlib.import_module("." + name, __name__)
    from .._functions import _missing

    return _missing("torchvision", name)


def set_image_backend(backend):
    """Accepted for ``PIL``: it is used if installed."""
    if backend != "PIL":
        raise ValueError(f"Invalid backend '{backend}'. Options are 'PIL'")


def get_image_backend():
    """The name of the image backend."""
    return "PIL"


def __dir__():
    return sorted(set(globals()) | _MODULES)
