"""Sound: the package that PyTorch programs import as ``torchaudio``."""

from .._version import audio_version as __version__  # noqa: F401
from ._io import AudioMetaData, info, load, save  # noqa: F401

_MODULES = frozenset("functional transforms".split())


def list_audio_backends():
    """The names of the readers and writers of files."""
    return ["rushlight"]


def __getattr__(name):
    if name in _MODULES:
        import importlib

        return importlib.import_module("." + name, __name__)
    from .._functions import _missing

    return _missing("torchaudio", name)


def __dir__():
    return sorted(set(globals()) | _MODULES)
