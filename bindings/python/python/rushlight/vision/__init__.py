"""Images: the package that PyTorch programs import as ``torchvision``."""

from .._version import vision_version as __version__  # noqa: F401

_MODULES = frozenset("datasets extension io models ops transforms tv_tensors utils version".split())


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


def set_video_backend(backend):
    """Files of videos are not read: there is no backend."""
    raise NotImplementedError("torchvision.set_video_backend: files of videos are not read here")


def get_video_backend():
    """The name that PyTorch has by default."""
    return "pyav"


def disable_beta_transforms_warning():
    """Does nothing: there is no such warning."""


def __dir__():
    return sorted(set(globals()) | _MODULES)
