"""Run by Python programs that a program under ``rushlight.install()`` starts: ``import torch`` means the same there."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_site = os.path.dirname(os.path.dirname(_here))


def _theirs():
    """The environment's own ``sitecustomize``, which this one hides."""
    import importlib.util
    from importlib.machinery import PathFinder

    paths = [p for p in sys.path if os.path.abspath(p or os.curdir) != _here]
    spec = PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_theirs()
if _site not in sys.path:
    # Another environment's Python, or one that found the package by a path set at run time.
    sys.path.append(_site)
try:
    import rushlight
except ImportError:
    # A Python that this package was not built for: it runs without it.
    pass
else:
    rushlight.install()
