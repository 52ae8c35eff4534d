"""Versions: our own, and that of the toolkit which the accelerators of this machine are driven by. PyTorch's are those it was built with; here
libraries are opened at run time, so ``cuda`` and ``hip`` tell what is installed: at most one of them is not ``None``."""

from ._version import __version__  # noqa: F401

xpu = git_version = None
debug = False


def __getattr__(name):
    if name in ("cuda", "hip", "rocm"):
        from . import _C

        kind, version = _C._accelerator_toolkit() or (None, None)
        globals().update(cuda=version if kind == "cuda" else None, hip=version if kind == "hip" else None, rocm=version if kind == "hip" else None)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
